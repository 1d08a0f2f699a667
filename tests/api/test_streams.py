"""Streams and waiting requests: how many, for how long a token's go on, what a client leaves that goes
away before it has its answer."""
import datetime
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest
from cordon_test.cli import wait_for


def in_ms(ms):
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(milliseconds=ms)
    return at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class Streams(ApiTest):
    def running(self):
        s = self.session()
        c = self.start(s, "echo here; exec sleep 600")
        return s, c, self.at(c) + "/output?follow=1"

    def test_sixteen_a_token_and_more_on_the_socket(self):
        _, _, path = self.running()
        holder = self.holder("read")
        open_ones = []
        self.addCleanup(lambda: [x.close() for x in open_ones])
        for who in (self.tcp, holder):  # the owner's token counts like any other, each for itself
            for _ in range(16):
                x = who.stream("GET", path)
                open_ones.append(x)
                self.assertEqual(x.status, 200)
                self.assertEqual(x.frame()["text"], "here\n")
            p = who.problem(429, "too_many", "GET", path)
            self.assertIn("16", p["detail"])
        for _ in range(20):  # no token, so no token's limit
            x = self.c.stream("GET", path)
            open_ones.append(x)
            self.assertEqual(x.status, 200)
        # One gone makes room for one.
        open_ones.pop(0).close()
        for _ in range(500):
            x = self.tcp.stream("GET", path)
            open_ones.append(x)
            if x.status == 200:
                break
        self.assertEqual(x.status, 200)

    def test_256_in_all(self):
        _, _, path = self.running()
        open_ones = [self.c.stream("GET", path) for _ in range(256)]
        self.addCleanup(lambda: [x.close() for x in open_ones])
        self.assertEqual({x.status for x in open_ones}, {200})
        self.assertIn("256", self.c.problem(429, "too_many", "GET", path)["detail"])
        self.assertEqual(self.c.call("GET", "/v1/health")["status"], "ok")

    def ends(self, stream):
        """The stream ends by itself, properly, with nothing more in it."""
        self.assertEqual(stream.frames(), [])

    def test_revoked_ends_its_streams_and_no_others(self):
        s, c, path = self.running()
        t = self.c.call("POST", "/v1/tokens", {"name": "x", "scopes": ["read"]}, 201)
        mine, other = self.d.client(via="v4", token=t["token"]), self.holder("read")
        with mine.stream("GET", path) as a, other.stream("GET", path) as b:
            self.assertEqual([x.frame()["text"] for x in (a, b)], ["here\n"] * 2)
            waiting = mine.connect()
            self.addCleanup(waiting.close)
            waiting.sendall(mine.head("GET", self.at(c) + "?wait_ms=60000", None, {}))
            self.c.call("DELETE", f"/v1/tokens/{t['id']}", want=204)
            self.ends(a)
            got = mine.receive(waiting, "GET", self.at(c))
            self.assertEqual((got.status, got.json["code"]), (401, "token_invalid"))
            self.c.call("POST", self.at(c) + "/signal", {"signal": "KILL"})
            self.assertEqual(b.frame()["kind"], "end")
        mine.problem(401, "token_invalid", "GET", "/v1/sessions")

    def test_expired_ends_its_streams(self):
        _, _, path = self.running()
        t = self.c.call("POST", "/v1/tokens", {"name": "x", "scopes": ["read"], "expires_at": in_ms(1500)}, 201)
        mine = self.d.client(via="v4", token=t["token"])
        with mine.stream("GET", path) as a:
            self.assertEqual(a.frame()["text"], "here\n")
            self.ends(a)
        mine.problem(401, "token_invalid", "GET", "/v1/sessions")

    def test_signed_out_by_its_own_hand(self):
        _, _, path = self.running()
        mine = self.holder("read")
        with mine.stream("GET", path) as a:
            self.assertEqual(a.frame()["text"], "here\n")
            mine.call("DELETE", "/v1/auth/self", want=204)
            self.ends(a)


class Gone(ApiTest):
    """A client that goes away while POST /sessions waits for the wall."""

    def post(self, headers=None, **body):
        s = self.c.connect()
        body, headers = self.c.encode({"folders": [{"path": self.work}], "require_wall": True, **body}, headers)
        s.sendall(self.c.head("POST", "/v1/sessions", body, headers) + body)
        return s

    def ids(self):
        return {s["id"] for s in self.c.items("/v1/sessions?limit=500")}

    def new_one(self, before):
        wait_for(lambda: self.ids() - before, "a session")
        (one,) = self.ids() - before
        return one

    def test_nobody_knows_it_so_it_ends(self):
        before = self.ids()
        client = self.post()
        one = self.new_one(before)
        state = self.c.call("GET", f"/v1/sessions/{one}")["state"]
        self.assertIn(state, ("starting", "verifying"), "the wall was too quick for this test")
        client.close()
        wait_for(lambda: self.c.call("GET", f"/v1/sessions/{one}")["state"] == "ended", "its end")
        got = self.c.call("GET", f"/v1/sessions/{one}")
        self.assertEqual(got["end_reason"], "caller_gone")
        rows = self.audit(f"session={one}&action=session.ended")
        self.assertEqual([r["after"]["reason"] if "reason" in (r.get("after") or {}) else r["target"]
                          for r in rows if "caller_gone" in json.dumps(r)] != [], True, rows)
        self.assertFalse(self.d.private_folders() and one in str(self.d.private_folders()))

    def test_with_a_key_it_can_be_had_again(self):
        before = self.ids()
        key = {"Idempotency-Key": "again"}
        client = self.post(key)
        one = self.new_one(before)
        client.close()
        body = {"folders": [{"path": self.work}], "require_wall": True}
        for _ in range(200):  # the daemon may not have seen the client go yet: 409
            a = self.c.ask("POST", "/v1/sessions", body, key)
            if a.status != 409:
                break
            self.assertEqual(a.json["code"], "key_reused")
        self.assertEqual((a.status, a.json["id"]), (201, one))
        self.addCleanup(self.end_session, one)
        self.assertEqual(self.ids() - before, {one})
        wait_for(lambda: self.c.call("GET", f"/v1/sessions/{one}")["state"] == "ready", "the session")

    def test_who_has_the_answer_keeps_the_session(self):
        s = self.session()
        self.c.call("GET", "/v1/health")
        self.assertEqual(self.c.call("GET", f"/v1/sessions/{s['id']}")["state"], "ready")

    def test_the_command_goes_on_or_ends(self):
        s = self.session()
        for how in ("keep", "kill"):
            body, headers = self.c.encode({"shell": "exec sleep 600", "wait_ms": 60000, "on_disconnect": how}, None)
            client = self.c.connect()
            before = {c["id"] for c in self.c.items(f"/v1/sessions/{s['id']}/commands")}
            client.sendall(self.c.head("POST", f"/v1/sessions/{s['id']}/commands", body, headers) + body)
            wait_for(lambda: [c for c in self.c.items(f"/v1/sessions/{s['id']}/commands")
                              if c["id"] not in before], "the command")
            (one,) = [c for c in self.c.items(f"/v1/sessions/{s['id']}/commands") if c["id"] not in before]
            client.close()
            if how == "kill":
                self.assertEqual(self.wait_end(one)["state"], "killed")
            else:
                got = self.c.call("GET", self.at(one) + "?wait_ms=500")
                self.assertEqual(got["state"], "running")


if __name__ == "__main__":
    unittest.main(verbosity=2)
