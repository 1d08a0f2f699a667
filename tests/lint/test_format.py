"""clang-format leaves every .c and .h of server/ and tests/ as it is."""
import os
import shutil
import subprocess
import unittest
from pathlib import Path

SOURCE = Path(os.environ["CORDON_SOURCE"])


class Format(unittest.TestCase):
    def test_formatted(self):
        tool = shutil.which("clang-format")
        self.assertIsNotNone(tool, "clang-format is not installed")
        files = sorted(str(p) for folder in ("server", "tests") for p in (SOURCE / folder).rglob("*")
                       if p.suffix in (".c", ".h"))
        self.assertGreater(len(files), 40)
        done = subprocess.run([tool, "--dry-run", "-Werror", "--style=file", *files],
                              capture_output=True, text=True, cwd=SOURCE)
        lines = [l for l in done.stderr.splitlines() if "error:" in l]
        self.assertEqual(done.returncode, 0, "\n" + "\n".join(lines[:40]))


if __name__ == "__main__":
    unittest.main()
