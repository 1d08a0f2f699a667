#!/usr/bin/python3
"""The command table, the man page and the help name the same commands and options, both ways."""
import os
import re
import subprocess
import unittest

CORDON = os.path.join(os.environ["CORDON_BIN"], "cordon")
PAGE = os.path.join(os.environ["CORDON_SOURCE"], "packaging/man/cordon.1")


def table():
    out = subprocess.run([CORDON, "help", "--list"], capture_output=True, text=True, check=True).stdout
    commands = {}
    for line in out.splitlines():
        f = line.split("\t")
        if len(f) == 3:
            commands[f[0]] = (f[2], {})
        else:
            name, option, letter, arg, state = f
            commands[name][1][option] = (letter.strip("-"), arg, state)
    return commands


def page():
    commands, name = {}, None
    with open(PAGE, encoding="utf-8") as f:
        text = f.read().replace("\\-", "-")
    body = text[text.index('.SH COMMANDS'):text.index('.SH "EXIT STATUS"')]
    for block in re.split(r"^\.SS ", body, flags=re.M)[1:]:
        title, rest = block.split("\n", 1)
        words = title.strip('"').split()
        name = " ".join(w for w in words if re.fullmatch(r"[a-z-]+", w) and w != "--")
        parts = re.split(r"^\.TP\n", rest, flags=re.M)
        options = {}
        for p in parts[1:]:
            head = re.sub(r"\\f[BIR]", "", p.split("\n", 1)[0])
            m = re.fullmatch(r"(?:-(\w), )?(--[a-z-]+)(?: (\S+))?", head)
            assert m, head
            state = "later" if "Not in this version" in p else "now"
            options[m[2]] = (m[1] or "", m[3] or "", state)
        commands[name] = ("later" if "Not in this version" in parts[0] else "now", options)
    return commands


class Man(unittest.TestCase):
    maxDiff = None

    def test_the_page_says_what_the_table_says(self):
        self.assertEqual(page(), table())

    def test_help_names_each(self):
        for name, (_, options) in table().items():
            out = subprocess.run([CORDON, "help", *name.split()], capture_output=True, text=True)
            self.assertEqual(out.returncode, 0, name)
            self.assertIn("cordon " + name, out.stdout)
            for o in options:
                self.assertIn(o, out.stdout)

    def test_pages_render_without_a_warning(self):
        for p in ("cordon.1", "cordond.8"):
            r = subprocess.run(["man", "--warnings", "-l", os.path.join(os.path.dirname(PAGE), p)],
                               capture_output=True, env={**os.environ, "MANPAGER": "cat", "PAGER": "cat"})
            self.assertEqual((r.returncode, r.stderr), (0, b""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
