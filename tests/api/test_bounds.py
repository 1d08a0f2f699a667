"""How many sessions live, and how one ends: TERM, a grace, KILL."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest
from cordon_test.cli import wait_for

OPEN = "/v1/sessions?confirm=open"


class Bounds(ApiTest):
    def ended(self, s):
        wait_for(lambda: self.c.call("GET", f"/v1/sessions/{s['id']}")["state"] == "ended", "the end", 30)

    def test_256_sessions(self):
        body = {"folders": [{"path": self.work}], "tier": "open", "wait_ms": 0}
        all = [self.c.call("POST", OPEN, body, 201) for _ in range(256)]
        p = self.c.problem(429, "too_many", "POST", OPEN, body)
        self.assertIn("256", p["detail"])
        for s in (all[0], all[255]):
            wait_for(lambda: self.c.call("GET", f"/v1/sessions/{s['id']}")["state"] == "ready", "a session", 30)
            self.assertEqual(self.run_in(s, "echo works")["text"]["stdout"], "works\n")
        self.end_session(all[7]["id"])
        self.ended(all[7])
        all.append(self.c.call("POST", OPEN, body, 201))
        for s in all:
            self.end_session(s["id"])
        for s in all:
            self.ended(s)

    def test_term_grace_kill(self):
        said = os.path.join(self.work, "said")
        s = self.session(keep=True)
        polite = self.start(s, f"trap 'echo term > {said}; exit 3' TERM; echo up; while :; do sleep 0.1; done")
        deaf = self.start(s, "trap '' TERM; echo up; while :; do sleep 0.1; done")
        server = self.run_in(s, "sleep 600 > /dev/null 2>&1 & echo $!")
        self.assertEqual(server["state"], "exited")
        for c in (polite, deaf):
            wait_for(lambda: self.c.call("GET", self.at(c))["output"]["stdout_bytes"] == 3, "the trap")
        tree = self.d.tree()
        self.c.call("POST", f"/v1/sessions/{s['id']}/stop", {"grace_ms": 1500}, 202)
        self.assertEqual(self.wait_end(polite)["state"], "killed" if not os.path.exists(said) else "exited")
        self.ended(s)
        with open(said) as f:
            self.assertEqual(f.read(), "term\n")
        self.assertEqual(self.c.call("GET", self.at(polite))["result"]["exit_code"], 3)
        self.assertEqual(self.c.call("GET", self.at(deaf))["result"]["signal"], "KILL")
        self.assertEqual([p for p in tree if p != self.d.pid and os.path.exists(f"/proc/{p}")], [])

    def test_origin(self):
        s = self.session()
        at = f"/v1/sessions/{s['id']}/commands"
        for kind in ("user", "watch"):
            p = self.c.problem(422, "body_invalid", "POST", at, {"argv": ["true"], "origin": {"kind": kind}})
            self.assertIn("not in this version", p["errors"][0]["detail"])
            quiet = self.session(network="none")
            self.assertEqual(self.run_in(quiet, "echo ran", origin={"kind": kind})["text"]["stdout"], "ran\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
