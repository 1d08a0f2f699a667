"""Asks over REST: the block comes first, the agent asks, a person answers exactly once, and what was answered
opens the site in the running session. (Held connections: tests/unit/test_asks.c, tests/egress/test_hold.py.)"""
import os
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest
from cordon_test.daemon import Daemon

# Inside: the status line of CONNECT to each target, one a line.
TRY = """
import os, socket, sys
port = int(os.environ["http_proxy"].strip("/").rsplit(":", 1)[1])
for target in sys.argv[1:]:
    with socket.create_connection(("127.0.0.1", port), 20) as s:
        s.sendall(f"CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\nAccept: application/json\\r\\n\\r\\n".encode())
        answer = b""
        while True:
            more = s.recv(65536)
            if not more:
                break
            answer += more
        print(answer.decode().replace("\\r\\n", " ").replace("\\n", " "))
"""
# .invalid is never resolved (RFC 6761, 6.4): allowed is 502 there, refused 403.
HOST = "packages.invalid"


class Asks(ApiTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(cls.work + "/try.py", "w") as f:
            f.write(TRY)

    def reach(self, s, *targets):
        c = self.run_in(s, argv=["/usr/bin/python3", "try.py", *targets], cwd=self.work)
        self.assertEqual(c["result"]["exit_code"], 0, c)
        return [int(line.split(" ", 2)[1]) for line in c["text"]["stdout"].splitlines()], c

    def ask(self, s, host=HOST, port=443, want=201, by=None, **more):
        body = {"kind": "site", "subject": {"host": host, "port": port}, **more}
        return (by or self.c).call("POST", f"/v1/sessions/{s['id']}/asks", body, want)

    def decide(self, ask, answer, want=200, by=None, **more):
        return (by or self.c).call("POST", f"/v1/asks/{ask['id']}/decide", {"answer": answer, **more}, want)

    def setting(self, **asks):
        self.c.patch("/v1/settings", {"asks": asks})

    def test_block_first_then_ask_then_open(self):
        s = self.session(name="my-app")
        agent = self.agent(s, "read", "exec", "ask:create")
        codes, c = self.reach(s, HOST + ":443")
        self.assertEqual(codes, [403])
        a = self.ask(s, by=agent, reason="install the test runner")
        self.assertEqual({k: a[k] for k in ("session_id", "kind", "subject", "requested_by", "reason", "state", "waiting")},
                         {"session_id": s["id"], "kind": "site", "subject": {"host": HOST, "port": 443},
                          "requested_by": "agent", "reason": "install the test runner", "state": "open", "waiting": 0})
        self.assertEqual(a["evidence"]["blocked"], True)
        self.assertEqual((a["evidence"]["count"], a["evidence"]["command_id"]), (1, c["id"]))
        self.assertEqual([x["answer"] for x in a["answers"]], ["session", "always", "deny"])
        self.assertEqual(a["answers"][0], {"answer": "session", "effect": f"{HOST}:443 until my-app ends",
                                           "hosts": [HOST, "*." + HOST]})
        # A second one joins it, and so does a further try.
        self.assertEqual(self.ask(s, HOST.upper() + ".", want=200, by=agent)["id"], a["id"])
        self.assertEqual(self.reach(s, HOST + ":443")[0], [403])
        self.assertEqual(self.c.call("GET", "/v1/asks/" + a["id"])["evidence"]["count"], 2)
        self.assertEqual(self.c.call("GET", f"/v1/sessions/{s['id']}")["counts"]["asks"], 1)
        # The agent sees it, and cannot answer it.
        self.assertEqual(agent.call("GET", "/v1/asks/" + a["id"])["state"], "open")
        self.assertEqual([x["id"] for x in agent.items("/v1/asks?state=open")], [a["id"]])
        self.assertEqual(agent.call("POST", f"/v1/asks/{a['id']}/decide", {"answer": "session"}, 403)["code"], "scope_missing")
        self.assertEqual(agent.call("POST", f"/v1/asks/{a['id']}/extend", None, 403)["code"], "scope_missing")
        person = self.holder("read", "ask:decide")
        d = self.decide(a, "session", by=person, note="for now")
        self.assertEqual((d["state"], d["answer"], d["answers"], d["decided"]["note"]), ("decided", "session", [], "for now"))
        self.assertTrue(d["decided"]["by"].startswith("tok_"), d)
        self.assertEqual(d, self.c.call("GET", "/v1/asks/" + a["id"]))
        sites = self.c.items(f"/v1/sessions/{s['id']}/sites")
        self.assertEqual([(x["id"], x["host"], x["port"], x["source"]) for x in sites], [(d["site_id"], HOST, 443, "ask")])
        # Open in the running session, for that port alone; taken back, closed again.
        self.assertEqual(self.reach(s, HOST + ":443", HOST + ":80", "a." + HOST + ":443")[0], [502, 403, 403])
        self.assertEqual(self.ask(s, want=409)["code"], "already_allowed")
        self.c.call("DELETE", f"/v1/sessions/{s['id']}/sites/{d['site_id']}", None, 204)
        self.assertEqual(self.reach(s, HOST + ":443")[0], [403])
        rows = self.audit(f"session={s['id']}&target={HOST}:443")
        self.assertEqual([r["action"] for r in reversed(rows) if r["action"].startswith("ask.")], ["ask.raised", "ask.decided"])
        decided = next(r for r in rows if r["action"] == "ask.decided")
        self.assertEqual((decided["after"]["answer"], decided["actor"]["id"]), ("session", d["decided"]["by"]))
        raised = next(r for r in rows if r["action"] == "ask.raised")
        self.assertEqual(raised["actor"]["kind"], "agent")

    def test_exactly_once(self):
        s = self.session()
        a = self.ask(s)
        answers = []

        def answer(how):
            c = self.d.client()
            answers.append(c.ask("POST", f"/v1/asks/{a['id']}/decide", {"answer": how}))
        threads = [threading.Thread(target=answer, args=(how,)) for how in ("deny", "session", "deny", "session")]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(sorted(x.status for x in answers), [200, 409, 409, 409])
        first = next(x.json for x in answers if x.status == 200)
        for x in answers:
            if x.status == 409:
                self.assertEqual((x.json["code"], x.json["decided"]), ("ask_closed", first["decided"]))
        self.assertEqual(len(self.audit(f"action=ask.decided&session={s['id']}")), 1)
        self.assertEqual(self.c.call("POST", f"/v1/asks/{a['id']}/extend", None, 409)["code"], "ask_closed")
        self.assertEqual(self.decide({"id": "ask_" + "0" * 26}, "deny", 404)["code"], "not_found")

    def test_deny_holds_for_the_session(self):
        s, other = self.session(), self.session()
        self.decide(self.ask(s), "deny")
        self.assertEqual(self.ask(s, want=403)["code"], "ask_denied")
        codes, c = self.reach(s, HOST + ":443", HOST + ":443")
        self.assertEqual(codes, [403, 403])
        self.assertIn('"code":"ask_denied"', c["text"]["stdout"])
        self.assertIn("give it up", c["text"]["stdout"])
        self.assertEqual([(b["host"], b["count"], b["reason"]) for b in c["result"]["blocked"]], [(HOST, 2, "denied")])
        self.ask(other)  # another session asks by itself
        # A person's own list stands above an answer.
        self.c.call("POST", f"/v1/sessions/{s['id']}/sites", {"host": HOST, "port": 443}, 201)
        self.assertEqual(self.reach(s, HOST + ":443")[0], [502])

    def test_always_and_wider(self):
        s, other = self.session(), self.session()
        a, same = self.ask(s, "always.invalid", 8443), self.ask(other, "always.invalid", 8443)
        d = self.decide(a, "always")
        site = self.c.call("GET", "/v1/sites/" + d["site_id"])
        self.assertEqual((site["host"], site["port"], site["list"], site["source"], site["enabled"]),
                         ("always.invalid", 8443, "machine", "ask", True))
        # Open in all walled sessions; the question of the other one is superseded.
        self.assertEqual(self.reach(other, "always.invalid:8443", "always.invalid:443")[0], [502, 403])
        self.assertEqual(self.c.call("GET", "/v1/asks/" + same["id"])["state"], "superseded")
        self.assertEqual(self.decide(same, "session", 409)["code"], "ask_closed")
        # A site of the machine that is switched off is switched on by the answer.
        self.c.patch("/v1/sites/" + site["id"], {"enabled": False})
        self.assertEqual(self.decide(self.ask(s, "always.invalid", 8443), "always")["site_id"], site["id"])
        self.assertEqual(self.reach(s, "always.invalid:8443")[0], [502])
        self.c.call("DELETE", "/v1/sites/" + site["id"], None, 204)
        # Widened to what the answer names, and to nothing else.
        a = self.ask(s, "wide.invalid")
        self.assertEqual(self.decide(a, "session", 422, host="*.invalid")["errors"][0]["pointer"], "/host")
        self.assertEqual(self.decide(a, "deny", 422, host="*.wide.invalid")["code"], "body_invalid")
        self.decide(a, "session", host="*.wide.invalid")
        self.assertEqual(self.reach(s, "wide.invalid:443", "a.wide.invalid:443", "a.wide.invalid:80", "b.invalid:443")[0],
                         [502, 502, 403, 403])
        # No wildcard is offered above a public suffix, or for an address.
        for host in ("com", "co.uk", "github.io", "203.0.113.9", "2001:db8::9"):
            typed = f"[{host}]" if ":" in host else host
            self.assertEqual(self.ask(s, typed)["answers"][0]["hosts"], [host])

    def test_answers_that_are_not_on_offer(self):
        s = self.session()
        a = self.ask(s)
        self.assertEqual(self.decide(a, "once", 409)["code"], "answer_not_offered")
        for body in ({"answer": "yes"}, {}, {"answer": "session", "note": ""}, {"answer": "deny", "more": 1}):
            self.assertEqual(self.c.call("POST", f"/v1/asks/{a['id']}/decide", body, 422)["code"], "body_invalid")
        self.assertEqual(self.c.call("GET", "/v1/asks/" + a["id"])["state"], "open")

    def test_what_is_never_offered(self):
        s = self.session()
        for host, port in (("localhost", 5432), ("127.0.0.1", 80), ("[::1]", 80), ("10.0.0.1", 443), ("169.254.169.254", 80),
                           ("[fe80::1]", 80), ("[::ffff:127.0.0.1]", 80), ("localhost", self.d.port), ("0.0.0.0", 80)):
            self.assertEqual(self.ask(s, host, port, 403)["code"], "private_address", host)
        for host in ("*.example.com", "*", "http://x.test", "x.test:443", "a b", "x\\ntest", "0x7f.1", ".x", "x%00.test"):
            self.assertEqual(self.ask(s, host, want=422)["code"], "site_invalid", host)
        for body in ({"kind": "site", "subject": {"host": "x.test"}}, {"kind": "site", "subject": {"host": "x.test", "port": 0}},
                     {"kind": "folder", "subject": {"path": "/tmp/x", "mode": "ro"}}, {"subject": {"host": "x.test", "port": 1}},
                     {"kind": "site", "subject": {"host": "x.test", "port": 1}, "reason": "x" * 501}):
            self.assertEqual(self.c.call("POST", f"/v1/sessions/{s['id']}/asks", body, 422)["code"], "body_invalid")
        none = self.session(network="none")
        self.assertEqual(self.ask(none, want=403)["code"], "network_none")
        wide = self.c.call("POST", "/v1/sessions?confirm=open", {"folders": [{"path": self.work}], "require_wall": True,
                                                                 "network": "open"}, 201)
        self.addCleanup(self.end_session, wide["id"])
        self.assertEqual(self.ask(wide, want=409)["code"], "already_allowed")
        self.assertEqual(self.c.items(f"/v1/sessions/{s['id']}/asks"), [])

    def test_nobody_is_asked(self):
        full = self.session(approvals="full")
        self.assertEqual(self.ask(full, want=403)["code"], "asks_off")
        # Switched to full with a question open: it is over, and the next is refused.
        s = self.session()
        a = self.ask(s)
        self.c.patch(f"/v1/sessions/{s['id']}", {"approvals": "full"})
        self.assertEqual(self.c.call("GET", "/v1/asks/" + a["id"])["state"], "cancelled")
        self.assertEqual(self.ask(s, want=403)["code"], "asks_off")
        self.assertEqual(self.reach(s, HOST + ":443")[0], [403])
        self.c.patch(f"/v1/sessions/{s['id']}", {"approvals": "auto"})
        a = self.ask(s)
        self.addCleanup(self.setting, learn=None)
        self.setting(learn=True)
        self.assertEqual(self.c.call("GET", "/v1/asks/" + a["id"])["state"], "cancelled")
        self.assertEqual(self.ask(s, want=403)["code"], "asks_off")

    def test_time_runs_out(self):
        s = self.session()
        self.addCleanup(self.setting, expiry_ms=None)
        self.setting(expiry_ms=1000)
        a = self.ask(s, want=201, wait_ms=60000)  # answered when it is over
        self.assertEqual((a["state"], a["answers"]), ("expired", []))
        self.assertEqual(self.decide(a, "session", 409)["code"], "ask_closed")
        expired = self.audit(f"action=ask.expired&session={s['id']}")
        self.assertEqual([(r["after"]["ask_id"], r["after"]["state"]) for r in expired], [(a["id"], "expired")])
        # The next one asks again; more time is given up to an hour in all.
        self.setting(expiry_ms=3000000)
        b = self.ask(s)
        self.assertNotEqual(a["id"], b["id"])
        ends = [self.c.call("POST", f"/v1/asks/{b['id']}/extend", {}, 200)["expires_at"] for _ in range(3)]
        self.assertEqual(ends[0], ends[1])
        self.assertLess(b["expires_at"], ends[0])
        at = [int(x[11:13]) * 3600 + int(x[14:16]) * 60 + float(x[17:23]) for x in (b["expires_at"], ends[0])]
        self.assertAlmostEqual((at[1] - at[0]) % 86400, 600, places=1)  # an hour in all

    def test_a_long_poll_ends_with_the_answer(self):
        s = self.session()
        a = self.ask(s)
        self.assertEqual(self.c.call("GET", f"/v1/asks/{a['id']}?wait_ms=1")["state"], "open")
        got = []
        t = threading.Thread(target=lambda: got.append(self.d.client().call("GET", f"/v1/asks/{a['id']}?wait_ms=60000")))
        t.start()
        self.ask(s, "other.invalid")  # another one's news is not its own
        self.decide(a, "deny")
        t.join()
        self.assertEqual((got[0]["state"], got[0]["answer"]), ("decided", "deny"))

    def test_at_most_thirty_are_open(self):
        s = self.session()
        made = [self.ask(s, f"h{i}.invalid") for i in range(30)]
        self.assertEqual(self.ask(s, "more.invalid", want=429)["code"], "too_many")
        self.assertEqual(self.ask(s, "h7.invalid", want=200)["id"], made[7]["id"])
        self.decide(made[0], "deny")
        self.ask(s, "more.invalid")
        first = self.c.call("GET", f"/v1/sessions/{s['id']}/asks?limit=20")
        rest = self.c.call("GET", f"/v1/sessions/{s['id']}/asks?limit=20&cursor={first['next_cursor']}")
        ids = [a["id"] for a in first["items"] + rest["items"]]
        self.assertEqual((len(ids), len(set(ids)), ids), (31, 31, sorted(ids, reverse=True)))
        self.assertEqual([a["id"] for a in self.c.items(f"/v1/sessions/{s['id']}/asks?state=decided")], [made[0]["id"]])
        self.assertEqual(len(self.c.items(f"/v1/asks?session={s['id']}&state=open&limit=11")), 30)  # in pages
        self.assertEqual(self.c.call("GET", "/v1/asks?cursor=ses_1", None, 422)["code"], "query_invalid")

    def test_the_session_ends(self):
        s = self.session()
        a = self.ask(s)
        agent = self.agent(s, "read", "ask:create")
        mine = self.ask(self.session(), "other.invalid")
        self.assertEqual(agent.call("GET", "/v1/asks/" + mine["id"], None, 404)["code"], "not_found")
        self.assertEqual(agent.call("GET", f"/v1/asks?session={mine['session_id']}", None, 404)["code"], "not_found")
        self.assertEqual([x["id"] for x in agent.items("/v1/asks")], [a["id"]])
        self.end_session(s["id"])
        self.assertEqual(self.c.call("GET", f"/v1/asks/{a['id']}?wait_ms=60000")["state"], "cancelled")
        while self.c.call("GET", f"/v1/sessions/{s['id']}")["state"] != "ended":
            pass
        self.assertEqual(self.ask(s, want=409)["code"], "session_ended")
        self.assertEqual([x["state"] for x in self.c.items(f"/v1/sessions/{s['id']}/asks")], ["cancelled"])
        self.c.call("DELETE", f"/v1/sessions/{s['id']}", None, 204)
        self.c.call("GET", "/v1/asks/" + a["id"], None, 404)

    def test_a_daemon_that_is_killed(self):
        """What was answered stands, what was open is over; and so it is told."""
        d = Daemon()
        self.addCleanup(d.close)
        c = d.client()
        s = c.call("POST", "/v1/sessions", {"folders": [{"path": d.work}], "require_wall": True}, 201)
        open_one, decided = (self.ask(s, host, by=c) for host in ("open.invalid", "decided.invalid"))
        answer = self.decide(decided, "always", by=c, note="kept")
        d.kill()
        d.start()
        c = d.client()
        self.assertEqual(c.call("GET", "/v1/asks/" + decided["id"]), answer)
        self.assertEqual(c.call("GET", "/v1/sites/" + answer["site_id"])["source"], "ask")
        got = c.call("GET", "/v1/asks/" + open_one["id"])
        self.assertEqual((got["state"], got["answers"], got["rev"]), ("cancelled", [], 2))
        self.assertEqual(self.decide(open_one, "session", 409, by=c)["code"], "ask_closed")
        rows = c.items("/v1/audit?action=ask.expired")
        self.assertEqual([(r["after"]["ask_id"], r["after"]["state"]) for r in rows], [(open_one["id"], "cancelled")])
        self.assertTrue(c.call("GET", "/v1/audit/verify")["ok"])

    def test_events(self):
        """Each change is told once, to the agent of that session too."""
        s = self.session()
        agent, json = self.agent(s, "read"), {"Accept": "application/json"}
        at = "/v1/events?types=ask&session=" + s["id"]
        first = self.c.call("GET", at + "&wait_ms=1", headers=json)
        a = self.ask(s)
        self.assertEqual(self.reach(s, HOST + ":443")[0], [403])  # one more try
        self.decide(a, "deny")
        for who in (self.c, agent):
            got = who.call("GET", f"{at}&wait_ms=1&after={first['next']}", headers=json)["events"]
            self.assertEqual({(e["type"], e["id"], e["session_id"]) for e in got}, {("ask", a["id"], s["id"])})
            self.assertEqual(got[-1]["rev"], self.c.call("GET", "/v1/asks/" + a["id"])["rev"])
            self.assertEqual([e["rev"] for e in got], sorted({e["rev"] for e in got}))

    def test_a_repeated_request(self):
        s = self.session()
        body = {"kind": "site", "subject": {"host": HOST, "port": 443}}
        path, key = f"/v1/sessions/{s['id']}/asks", {"Idempotency-Key": "k1"}
        one = self.c.call("POST", path, body, 201, headers=key)
        self.assertEqual(self.c.call("POST", path, body, 201, headers=key)["id"], one["id"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
