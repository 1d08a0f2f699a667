#!/usr/bin/python3
"""TOML 1.0: the whole of toml-test's list for it, valid and invalid (CORDON_CORPORA, else the folder
corpora of the documents beside this tree), and what our own errors say."""
import datetime
import json
import math
import os
import subprocess
import unittest

SOURCE = os.environ["CORDON_SOURCE"]
CORPORA = os.environ.get("CORDON_CORPORA", os.path.join(SOURCE, "../shared/corpora"))
TESTS = os.path.join(CORPORA, "toml-test/tests")


def read(data):
    r = subprocess.run([os.path.join(os.environ["CORDON_BIN"], "golden_toml")], input=data, capture_output=True,
                       timeout=60)
    return r.returncode, r.stdout, r.stderr.decode("utf-8", "replace")


def same_scalar(a, b):
    if a["type"] != b["type"]:
        return False
    x, y = a["value"], b["value"]
    if a["type"] == "float":
        x, y = float(x), float(y)
        return x == y or (math.isnan(x) and math.isnan(y))
    if a["type"] in ("datetime", "datetime-local", "time-local"):
        return moment(a["type"], x) == moment(a["type"], y)
    return x == y


def moment(kind, text):
    """Fractions to the millisecond and beyond compare as numbers; Python itself keeps six digits."""
    head, _, rest = text.partition(".")
    digits = "".join(c for c in rest.split("Z")[0].split("+")[0].split("-")[0] if c.isdigit())
    zone = rest[len(digits):] if rest else ""
    whole = head + zone if rest else text
    if kind == "time-local":
        return datetime.time.fromisoformat(whole), float("0." + (digits or "0"))
    return datetime.datetime.fromisoformat(whole.replace("Z", "+00:00")), float("0." + (digits or "0"))


def same(a, b):
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if set(a) == {"type", "value"} and isinstance(a["type"], str):
        return set(b) == {"type", "value"} and same_scalar(a, b)
    return isinstance(b, dict) and set(a) == set(b) and all(same(a[k], b[k]) for k in a)


class TomlTest(unittest.TestCase):
    def test_the_list_for_1_0(self):
        listing = os.path.join(TESTS, "files-toml-1.0.0")
        if not os.path.exists(listing):
            self.assertNotIn("CORDON_CORPORA", os.environ, "it names no folder with toml-test")
            self.skipTest("toml-test: 0 files ran, as the corpora are not beside this tree")
        with open(listing) as f:
            names = [n.strip() for n in f if n.strip().endswith(".toml")]
        wrong = []
        for name in names:
            with open(os.path.join(TESTS, name), "rb") as f:
                code, out, err = read(f.read())
            if name.startswith("invalid/"):
                if code != 1 or not err.startswith("toml_invalid: line "):
                    wrong.append((name, code, err))
                continue
            with open(os.path.join(TESTS, name[:-4] + "json")) as f:
                want = json.load(f)
            if code != 0 or not same(want, json.loads(out)):
                wrong.append((name, code, err or out[:300]))
        print(f"toml-test: {len(names)} files")
        self.assertEqual(wrong, [])
        self.assertGreater(len(names), 600)


class Errors(unittest.TestCase):
    def test_line_and_reason(self):
        for text, line, words in (
            (b"a = 1\nb = \n", 2, "no value"),
            (b"a = 1\n\n[t]\na = 1\na = 2\n", 5, "a stands a second time"),
            (b"a = \"x\n", 1, "no end on its line"),
            (b"\n\na = '''\n\n", 3, "has no end"),
            (b"a = [\n1,\n2\n3]\n", 4, "the array that begins at line 1"),
            (b"a = 1 b = 2\n", 1, "goes on"),
            (b"a = 1\r\nb = \xff\r\n", 2, "UTF-8"),
            (b"a = 99999999999999999999\n", 1, "64 bits"),
            (b"a = 2026-02-30\n", 1, "date"),
            (b"a = 1\n[b\n", 2, "']'"),
            (b"a=" + b"[" * 100, 1, "too deep"),
            (b"".join(b"k%d=1\n" % i for i in range(5000)), 4097, "more than 4096"),
            (b"#" * (1 << 20) + b"#", 1, "larger than 1048576"),
            (b"a\x00b = 1\n", 1, "'='"),
        ):
            code, out, err = read(text)
            self.assertEqual((code, out), (1, b""), text[:40])
            self.assertTrue(err.startswith(f"toml_invalid: line {line}: "), (text[:40], err))
            self.assertIn(words, err, text[:40])

    def test_what_is_near_a_bound(self):
        self.assertEqual(read(b"#" * (1 << 20))[0], 0)
        self.assertEqual(read(b"".join(b"k%d=1\n" % i for i in range(4096)))[0], 0)
        self.assertEqual(read(b"a=" + b"[" * 60 + b"]" * 60)[0], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
