"""A daemon that dies: what ran is lost, what was said stays readable, nothing of it lives on."""
import http.client
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest
from cordon_test.cli import is_alive


class Restart(ApiTest):
    def test_killed_and_started_again(self):
        s = self.session(keep=True)
        done = self.run_in(s, "printf 'kept\\377'; exit 4")
        runs = self.start(s, "echo before; setsid sleep 600 & exec sleep 600")
        with self.c.stream("GET", self.at(runs) + "/output?follow=1") as out:
            self.assertEqual(out.frame()["text"], "before\n")
            folders = self.d.private_folders()
            self.assertEqual(len(folders), 1)
            tree = self.d.tree()
            token = self.d.token
            self.d.kill()
            self.assertEqual([p for p in tree if is_alive(p)], [])
            with self.assertRaises((http.client.IncompleteRead, ConnectionError)):  # cut, and no end
                out.read(1)
        self.d.start()
        self.assertEqual(self.d.token, token)
        self.assertEqual([p for p in folders if os.path.exists(p)], [])
        self.assertEqual(self.c.call("GET", f"/v1/sessions/{s['id']}")["state"], "ended")
        self.assertEqual(self.c.call("GET", self.at(runs))["state"], "lost")
        kept = self.c.call("GET", self.at(done))
        self.assertEqual((kept["state"], kept["result"]["exit_code"]), ("exited", 4))
        octets = {"Accept": "application/octet-stream"}
        self.assertEqual(self.c.call("GET", self.at(done) + "/output?stream=stdout", headers=octets), b"kept\xff")
        frames = self.c.ask("GET", self.at(runs) + "/output").frames()
        self.assertEqual([f.get("text", f["kind"]) for f in frames], ["before\n", "end"])
        self.assertEqual(frames[-1]["state"], "lost")
        self.assertTrue(self.c.call("GET", "/v1/audit/verify")["ok"])
        self.c.problem(409, "session_ended", "POST", f"/v1/sessions/{s['id']}/commands", {"argv": ["true"]})
        self.c.call("DELETE", f"/v1/sessions/{s['id']}", want=204)
        self.c.problem(404, "not_found", "GET", self.at(done))


if __name__ == "__main__":
    unittest.main(verbosity=2)
