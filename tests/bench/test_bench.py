#!/usr/bin/python3
"""The bench runs, in its short form: every section is measured and nothing is left. What is measured
is printed, not judged: this machine may be busy."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["CORDON_SOURCE"]


class Bench(unittest.TestCase):
    def test_short(self):
        base = tempfile.mkdtemp(prefix="tests-of-cordon-", dir="/tmp")
        self.addCleanup(shutil.rmtree, base, True)
        r = subprocess.run([sys.executable, os.path.join(SOURCE, "tests/bench/run"), "--short"],
                           capture_output=True, text=True, timeout=500, env={**os.environ, "TESTS_BASE": base})
        print(r.stdout, r.stderr)
        self.assertEqual(r.returncode, 0)
        for what in ("warm command", "cordon run -- true", "tunnel through the egress", "GET /v1/health",
                     "one warm session", "sessions at once", "audit rows", "a site among"):
            self.assertIn(what, r.stdout)
        self.assertEqual(os.listdir(base), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
