#!/usr/bin/python3
"""`cordon blocked` and `cordon why`: what was refused, by which rule, and the one thing to do (B6, case 82)."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.cli import Home, wait_for
from cordon_test.client import Client


class Started(Home):
    port = 1  # any: on the socket it is not looked at

    @property
    def socket(self):
        return self.server()["socket"]


class Why(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.h = Started()
        cls.h.cordon("serve")
        cls.c = Client(cls.h)

    @classmethod
    def tearDownClass(cls):
        cls.h.close()

    def run_json(self, script, *options):
        return self.h.json("run", "--json", *options, "--", "sh", "-c", script)

    def why(self, id):
        r = self.h.cordon("why", id)
        self.assertEqual(r.code, 0, r)
        return r.out.decode().splitlines()

    def test_a_refused_site(self):
        doc = self.run_json("for i in 1 2 3; do curl -s -o /dev/null http://why.example:8080/; done; true")
        lines = self.why(doc["id"])
        self.assertTrue(lines[0].endswith(": exited, exit code 0"), lines)
        self.assertEqual(lines[1], "egress refused why.example:8080 (3 times)")
        self.assertTrue(lines[2].startswith("  rule  ") and "allowlist" in lines[2], lines)
        self.assertIn("why.example:8080", lines[3])
        self.assertTrue(lines[3].startswith("  cure  "), lines)
        self.assertEqual(len(lines), 4)
        # The cure, as it is told, is one.
        words = lines[3].split()
        self.assertEqual(words[1:4], ["cordon", "sites", "add"])
        self.assertEqual(self.h.cordon("sites", "check", "why.example:8080").code, 1)
        self.assertEqual(self.h.cordon(*words[2:]).code, 0)
        self.assertEqual(self.h.cordon("sites", "check", "why.example:8080").code, 0)

    def test_nothing_and_never_ran(self):
        self.assertEqual(self.why(self.run_json("exit 0")["id"])[1:], ["nothing was refused while it ran"])
        session = self.h.cordon("session", "new").out.decode().strip()
        doc = self.c.call("POST", f"/v1/sessions/{session}/commands", {"argv": ["/no/such/file"], "wait_ms": 60000}, 201)
        self.assertEqual(self.why(doc["id"]), ["/no/such/file: failed", "it never ran: exec: No such file or directory"])

    def test_a_limit(self):
        session = self.h.cordon("session", "new").out.decode().strip()
        doc = self.c.call("POST", f"/v1/sessions/{session}/commands",
                          {"argv": ["sleep", "600"], "timeout_ms": 100, "wait_ms": 60000}, 201)
        denied, = doc["result"]["denied"]
        self.assertEqual((denied["source"], denied["target"]), ("limit", "time"))
        lines = self.why(doc["id"])
        self.assertEqual(lines[:2], ["sleep 600: timed_out", "limit reached: time"])
        self.assertEqual([x.split()[0] for x in lines[2:]], ["rule", "cure"])

    def test_while_it_runs(self):
        session = self.h.cordon("session", "new").out.decode().strip()
        at = f"/v1/sessions/{session}/commands"
        quiet = self.c.call("POST", at, {"argv": ["sleep", "600"]}, 201)
        lines = self.why(quiet["id"])
        self.assertIn(lines[0], ("sleep 600: starting", "sleep 600: running"))
        self.assertEqual(lines[1:], ["nothing was refused so far"])
        busy = self.c.call("POST", at, {"shell": "curl -s http://runs.example/; exec sleep 600"}, 201)
        wait_for(lambda: len(self.why(busy["id"])) == 3, "its refusal")
        self.assertEqual(self.why(busy["id"])[1:], ["egress refused runs.example port 80 (1 times)", "  why   not_listed"])

    def test_no_such_command(self):
        self.h.cordon("session", "new")
        for id in ("cmd_00000000000000000000000000", "x"):
            r = self.h.cordon("why", id)
            self.assertEqual((r.code, r.out), (125, b""), r)
            self.assertIn(b"no command", r.err)
        self.assertEqual(self.h.cordon("why").code, 125)

    def test_blocked_of_one_and_of_all(self):
        one, two = (self.h.cordon("session", "new").out.decode().strip() for _ in range(2))
        for session, host in ((one, "b1.example"), (two, "b2.example"), (two, "b2.example")):
            self.assertEqual(self.h.cordon("exec", session, "--", "sh", "-c",
                                           f"curl -s -o /dev/null http://{host}/; true").code, 0)
        rows = [line.split() for line in self.h.cordon("blocked", two).out.decode().splitlines()]
        self.assertEqual([r[:4] + r[5:] for r in rows], [["b2.example", "80", "2", "not_listed", two]])
        rows = {line.split()[0] for line in self.h.cordon("blocked").out.decode().splitlines()}
        self.assertLessEqual({"b1.example", "b2.example"}, rows)
        self.assertEqual(self.h.cordon("blocked", "ses_00000000000000000000000000").code, 125)


if __name__ == "__main__":
    unittest.main(verbosity=2)
