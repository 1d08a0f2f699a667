"""What the programs link: those that read hostile bytes carry no database and no HTTP server."""
import os
import re
import subprocess
import unittest
from pathlib import Path

BIN = Path(os.environ["CORDON_BIN"])
IS_SANITIZED = bool(os.environ.get("CORDON_SANITIZE"))
NEEDED = re.compile(r"\(NEEDED\).*\[([^\]]+)\]")

# program -> libraries it may not need; "*" = it needs none at all
FORBIDDEN = {
    "cordon-egress": ("libsqlite3", "libmicrohttpd", "libcurl", "libseccomp"),
    "cordon-runner": ("libsqlite3", "libmicrohttpd", "libcurl", "libseccomp", "libuv", "libjansson"),
    "cordon": ("libsqlite3", "libmicrohttpd", "libcurl", "libseccomp"),
    "cordon-fetch": ("libsqlite3", "libmicrohttpd", "libseccomp"),
    "cordond": ("libcurl",),
}


def needed(program):
    out = subprocess.run(["readelf", "-dW", str(program)], capture_output=True, text=True, check=True)
    return NEEDED.findall(out.stdout)


class Links(unittest.TestCase):
    def test_no_forbidden_library(self):
        for name in FORBIDDEN:
            program = BIN / name
            with self.subTest(program=name):
                self.assertTrue(program.exists(), f"{program} was not built")
                for library in needed(program):
                    self.assertFalse(library.startswith(FORBIDDEN[name]), f"{name} needs {library}")

    def test_the_runner_needs_nothing(self):
        if not IS_SANITIZED:  # sanitizers bring their own run-time libraries
            self.assertEqual(needed(BIN / "cordon-runner"), [])

    def test_hardened(self):
        for name in FORBIDDEN:
            with self.subTest(program=name):
                out = subprocess.run(["readelf", "-hldW", str(BIN / name)], capture_output=True,
                                     text=True, check=True).stdout
                self.assertRegex(out, r"Type:\s+DYN", "position independent")
                self.assertIn("GNU_RELRO", out)
                self.assertRegex(out, r"FLAGS_1.*NOW|BIND_NOW", "bound at start")
                self.assertNotRegex(out, r"GNU_STACK.*RWE", "no executable stack")


if __name__ == "__main__":
    unittest.main()
