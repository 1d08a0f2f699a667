#!/usr/bin/python3
"""What is printed on a terminal is what there is: control and format characters that came from
elsewhere are shown escaped (case 122); secrets are nowhere (case 88)."""
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.cli import Home

# Carriage return and erase, hidden text, a link, the clipboard, bell, C1 CSI, bidi, a fake line.
NASTY = ("ls -la\r\x1b[2K", "\x1b[8mhidden", "\x1b]8;;http://x\x1b\\link", "\x1b]52;c;YQ==\x07", "\x07bell",
         "\u009b31m", "abc\u202edcba", "\u2066x\u2069", "one\n[allowed] two", "x" * 10000)
BAD = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")


class Print(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.h = Home()

    @classmethod
    def tearDownClass(cls):
        cls.h.close()

    def clean(self, r, lines=None):
        for text in (r.out, r.err):
            text = text.decode()
            self.assertIsNone(BAD.search(text), repr(text))
        if lines is not None:
            self.assertEqual(r.err.count(b"\n"), lines, r)

    def test_errors(self):
        for text in NASTY:
            for args in (("run", "-f", text, "--", "true"), ("run", "-t", text, "--", "true"), (text,),
                         ("settings", "get", text), ("settings", "set", "sandbox_provider", text),
                         ("sites", "add", text), ("exec", text, "--", "true"), ("run", "--" + text),
                         ("token", "revoke", text), ("session", "show", text)):
                r = self.h.cordon(*args)
                self.assertEqual(r.code, 125, (args[0], text[:20], r))
                self.clean(r, 1)

    def test_lists(self):
        for i, text in enumerate(NASTY[:-1]):
            d = f"{self.h.base}/{i}{text}".replace("\\", "")
            if "/" in text:
                continue
            os.mkdir(d)
            r = self.h.cordon("run", "-f", d, "--", "echo", text)
            self.assertEqual((r.code, r.out), (0, text.encode() + b"\n"), r)
            self.clean(self.h.cordon("session", "new", "-f", d))
            self.h.cordon("sites", "add", "--note", text, f"s{i}.example")
        for args in (("session", "list", "-a"), ("audit", "-n", "500"), ("sites", "list"), ("blocked",),
                     ("session", "list", "--json"), ("audit", "--json"), ("policy",), ("status",),
                     ("token", "list"), ("settings", "get"), ("policy", "--render", "bwrap")):
            r = self.h.cordon(*args)
            self.assertEqual(r.code, 0, (args, r))
            self.clean(r)
        rows = self.h.cordon("audit", "-n", "500").out.decode().splitlines()
        self.assertTrue(all(re.match(r"\d{4}-\d\d-\d\dT", row) for row in rows))

    def test_log_one_event_one_line(self):
        for text in NASTY:
            self.h.cordon("run", "--", "sh", "-c", "exit 0 # " + text)
        for line in self.h.log().splitlines():
            self.assertIsNone(BAD.search(line), line)

    def test_command_not_found_is_escaped(self):
        r = self.h.cordon("run", "--", "no\x1b[31m")
        self.assertEqual(r.code, 127)
        self.clean(r, 1)

    def test_secrets_are_nowhere(self):
        """Case 88: markers in the daemon's environment and in what is passed by name."""
        with Home(MARK_SECRET="MARKSECRET", GITHUB_TOKEN="MARKSECRET", LD_LIBRARY_PATH_X="MARKSECRET") as h:
            h.cordon("serve")
            script = "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c MARK[S]ECRET"
            self.assertEqual(h.sh(script).out, b"0\n")
            r = h.sh(script, "-e", "GITHUB_TOKEN")
            self.assertNotEqual(r.out, b"0\n")  # named: it is there, and only where it was named
            with open(f"/proc/{h.server()['pid']}/cmdline", "rb") as f:
                self.assertNotIn(b"MARKSECRET", f.read())
            self.assertNotIn("MARKSECRET", h.log())
            self.assertNotIn(b"MARKSECRET", h.cordon("audit", "--json", "-n", "500").out)
            self.assertNotEqual(h.sh("cat /proc/1/environ").code, 0)
            self.assertNotEqual(h.sh("ls /proc/1/fd/ /proc/1/root /proc/1/cwd").code, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
