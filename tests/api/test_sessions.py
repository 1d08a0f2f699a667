"""Sessions, sites, settings, blocked and audit as resources: lists page by page, filters, entity tags, keys of
repetition, confirmation, and the limits of what there may be."""
import json
import os
import sys
import threading
import unittest
import urllib.parse

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest
from cordon_test.cli import wait_for
from cordon_test.daemon import free_port

MERGE = {"Content-Type": "application/merge-patch+json"}


class Sessions(ApiTest):
    def body(self, **more):
        return {"folders": [{"path": self.work}], "require_wall": True, **more}

    # ---- Keys --------------------------------------------------------------------------------------

    def test_keys(self):
        """The same key and body: the first answer again, and one session; another body: refused."""
        key = {"Idempotency-Key": "key-1"}
        one = self.c.ask("POST", "/v1/sessions", self.body(name="keyed"), key)
        again = self.c.ask("POST", "/v1/sessions", self.body(name="keyed"), key)
        self.addCleanup(self.end_session, one.json["id"])
        self.assertEqual((one.status, again.status, again.json["id"]), (201, 201, one.json["id"]))
        self.assertEqual(len(self.c.items("/v1/sessions?q=keyed")), 1)
        self.c.problem(409, "key_reused", "POST", "/v1/sessions", self.body(name="other"), key)
        # A key is its owner's and its route's.
        at = f"/v1/sessions/{one.json['id']}"
        c = self.c.ask("POST", at + "/commands", {"argv": ["true"]}, key)
        self.assertEqual(c.status, 201)
        agent = self.agent(one.json)
        d = agent.ask("POST", at + "/commands", {"argv": ["true"]}, key)
        self.assertEqual(d.status, 201)
        self.assertNotEqual(c.json["id"], d.json["id"])
        for bad in ("", "a" * 129, "a b", "\x7f"):
            a = self.c.ask("POST", at + "/commands", {"argv": ["true"]}, {"Idempotency-Key": bad})
            self.assertGreaterEqual(a.status, 400, bad)
        n = len(self.c.items(at + "/commands"))
        seen = []
        threads = [threading.Thread(target=lambda: seen.append(
            self.c.ask("POST", at + "/commands", {"shell": "sleep 0.2", "wait_ms": 20000}, {"Idempotency-Key": "both"})))
            for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len({a.json["id"] for a in seen if a.status == 201}), 1)
        self.assertEqual({a.status for a in seen} - {201, 409}, set())
        self.assertEqual(len(self.c.items(at + "/commands")), n + 1)
        site = {"host": "key.test"}
        a, b = (self.c.call("POST", "/v1/sites", site, 201, {"Idempotency-Key": "s"}) for _ in range(2))
        self.assertEqual(a["id"], b["id"])
        a, b = (self.c.call("POST", at + "/sites", site, 201, {"Idempotency-Key": "s"}) for _ in range(2))
        self.assertEqual(a["id"], b["id"])
        self.c.problem(409, "key_reused", "POST", "/v1/sites", {"host": "key2.test"}, {"Idempotency-Key": "s"})

    # ---- Lists -------------------------------------------------------------------------------------

    def test_lists(self):
        made = []
        for i in range(7):
            s = self.session(name=f"list-{i % 2}", keep=True)
            made.append(s["id"])
            if i < 4:
                self.end_session(s["id"])
            else:
                self.addCleanup(self.end_session, s["id"])
        for id in made[:4]:
            wait_for(lambda: self.c.call("GET", f"/v1/sessions/{id}")["state"] == "ended", "the end", 30)
        newest = [s["id"] for s in self.c.items("/v1/sessions?q=list-")]
        self.assertEqual(newest, made[::-1])
        for limit in (1, 2, 3, 7, 500):
            self.assertEqual([s["id"] for s in self.c.items(f"/v1/sessions?q=list-&limit={limit}")], newest)
        self.assertEqual([s["id"] for s in self.c.items("/v1/sessions?q=list-&state=ended&limit=1")], made[3::-1])
        self.assertEqual([s["id"] for s in self.c.items("/v1/sessions?q=list-1")], made[1::2][::-1])
        self.assertEqual(self.c.items("/v1/sessions?q=list-&tier=open"), [])
        self.assertEqual(len(self.c.items("/v1/sessions?q=list-&tier=walled")), 7)
        # A page stays where it was when something new comes in front.
        page = self.c.call("GET", "/v1/sessions?q=list-&limit=3")
        new = self.session(name="list-new")
        rest = self.c.call("GET", "/v1/sessions?q=list-&limit=500&cursor=" + urllib.parse.quote(page["next_cursor"]))
        self.assertEqual([s["id"] for s in page["items"] + rest["items"]], newest)
        self.assertNotIn(new["id"], [s["id"] for s in rest["items"]])
        for cursor in ("nonsense", "%25", "ses_x'; DROP TABLE records; --", "a" * 1000):
            a = self.c.ask("GET", "/v1/sessions?cursor=" + urllib.parse.quote(cursor))
            self.assertIn(a.status, (200, 422), a)
        self.assertEqual(self.c.items("/v1/sessions?q=" + urllib.parse.quote("%")), [])  # no pattern, a text
        for path in ("/v1/tokens", "/v1/auth/browsers", "/v1/sites", "/v1/audit", f"/v1/sessions/{new['id']}/commands",
                     f"/v1/sessions/{new['id']}/sites"):
            one, all = self.c.items(path + "?limit=1"), self.c.items(path + "?limit=500")
            if path != "/v1/audit":  # which grows by asking
                self.assertEqual(one, all, path)

    def test_tokens_list_shows_no_secret(self):
        for i in range(5):
            self.c.call("POST", "/v1/tokens", {"name": f"t{i}", "scopes": ["read"]}, 201)
        items = self.c.items("/v1/tokens?limit=2")
        self.assertEqual([t["name"] for t in items if t["name"].startswith("t")], ["t4", "t3", "t2", "t1", "t0"])
        self.assertNotIn("cordon_", json.dumps(items))

    # ---- Changes -----------------------------------------------------------------------------------

    def test_two_changes_on_one_revision(self):
        s = self.session()
        at = f"/v1/sessions/{s['id']}"
        tag = self.c.ask("GET", at).etag
        self.assertEqual(tag, f"\"{s['rev']}\"")
        got = self.c.patch(at, {"name": "first"}, tag)
        self.assertEqual((got["name"], got["rev"]), ("first", s["rev"] + 1))
        a = self.c.ask("PATCH", at, "{\"name\":\"second\"}", {**MERGE, "If-Match": tag})
        self.assertEqual((a.status, a.json["code"], a.json["current"]), (412, "rev_mismatch", f"\"{got['rev']}\""))
        self.assertEqual(self.c.call("GET", at)["name"], "first")
        self.assertEqual(self.c.patch(at, {"approvals": "auto"})["approvals"], "auto")
        a = self.c.ask("PATCH", at, "{\"name\":\"x\"}", MERGE)
        self.assertEqual((a.status, a.json["code"]), (428, "if_match_required"))
        [row, *_] = [r for r in self.audit(f"session={s['id']}") if r["action"] == "session.changed"]
        self.assertEqual(row["outcome"], "ok")

    def test_settings(self):
        got = self.c.ask("GET", "/v1/settings")
        new = self.c.patch("/v1/settings", {"limits": {"command_timeout_ms": 1234}}, got.etag)
        self.assertEqual((new["values"]["limits"]["command_timeout_ms"], new["meta"]["limits.command_timeout_ms"]["source"]),
                         (1234, "stored"))
        dry = self.c.patch("/v1/settings?dry_run=1", {"limits": {"command_timeout_ms": 99}})
        self.assertEqual(self.c.call("GET", "/v1/settings"), new)
        again = self.c.patch("/v1/settings", {"limits": {"command_timeout_ms": None}})
        self.assertEqual(again["meta"]["limits.command_timeout_ms"]["source"], "default")
        self.assertEqual(again["rev"], new["rev"] + 1)
        p = self.c.problem(409, "confirm_required", "PATCH", "/v1/settings", '{"sandbox_network_profile":"open"}',
                           {**MERGE, "If-Match": f"\"{again['rev']}\""})
        self.assertEqual(p["confirm"], "open")
        self.assertEqual(self.c.call("GET", "/v1/settings"), again)
        wide = self.c.patch("/v1/settings?confirm=open", {"sandbox_network_profile": "open"})
        self.assertEqual(wide["values"]["sandbox_network_profile"], "open")
        self.c.patch("/v1/settings", {"sandbox_network_profile": None})

    # ---- Sites -------------------------------------------------------------------------------------

    def test_sites(self):
        made = self.c.ask("POST", "/v1/sites", {"host": "Sites.TEST.", "port": 8443, "note": "n", "list": "guarded"})
        at = f"/v1/sites/{made.json['id']}"
        self.assertEqual((made.status, made.json["host"], made.json["port"], made.json["enabled"]), (201, "sites.test", 8443, True))
        got = self.c.patch(at, {"enabled": False, "note": None})
        self.assertEqual((got["enabled"], self.c.call("GET", at)["enabled"]), (False, False))
        self.c.problem(409, "exists", "POST", "/v1/sites", {"host": "sites.test", "port": 8443, "list": "guarded"})
        uni = self.c.call("POST", "/v1/sites", {"host": "bücher.test"}, 201)
        self.assertEqual((uni["host"], uni["host_unicode"]), ("xn--bcher-kva.test", "bücher.test"))
        for bad in ("https://x.test/", ".x.test", "x.test:*", "x test", "x..test", "*.*.test", "127.1", "0x7f000001",
                    "2130706433", "x.test/path", "x" * 300, "user@x.test", "\u202ex.test", "x.test\n", "[::1", "a_b\x00"):
            a = self.c.ask("POST", "/v1/sites", {"host": bad})
            self.assertIn(a.status, (400, 422), (bad, a))
            self.assertIn(a.json["code"], ("site_invalid", "body_invalid", "json_invalid"), bad)
        p = self.c.problem(422, "site_invalid", "POST", "/v1/sites", {"host": "https://sug.test/x"})
        self.assertEqual(p["suggestion"], "sug.test:443")
        for wide in ("*", "*.com", "localhost"):
            p = self.c.ask("POST", "/v1/sites", {"host": wide})
            self.assertIn(p.json["code"], ("confirm_required", "site_invalid"), (wide, p))
        listed = self.c.items("/v1/sites?source=user&limit=2")
        self.assertEqual({s["source"] for s in listed}, {"user"})
        self.assertTrue(self.c.items("/v1/sites?source=catalogue"))
        self.assertEqual([s["id"] for s in self.c.items("/v1/sites?list=guarded&q=sites.test")], [made.json["id"]])
        self.c.call("DELETE", at, want=204)
        self.c.problem(404, "not_found", "GET", at)
        self.c.problem(404, "not_found", "DELETE", at)

    def test_many_sites_at_once(self):
        before = [s["id"] for s in self.c.items("/v1/sites?limit=500")]
        a = self.c.ask("POST", "/v1/sites/batch", {"add": [{"host": "b1.test"}, {"host": "http://b2.test/"}]})
        self.assertGreaterEqual(a.status, 400)
        self.assertEqual([s["id"] for s in self.c.items("/v1/sites?limit=500")], before)  # all or nothing
        self.c.call("POST", "/v1/sites/batch?dry_run=1", {"add": [{"host": "b1.test"}]})
        self.assertEqual([s["id"] for s in self.c.items("/v1/sites?limit=500")], before)
        self.c.call("POST", "/v1/sites/batch", {"add": [{"host": "b1.test"}, {"host": "b2.test"}]})
        two = self.c.items("/v1/sites?q=b2.test")[0]["id"]
        one = self.c.items("/v1/sites?q=b1.test")[0]["id"]
        self.c.call("POST", "/v1/sites/batch", {"remove": [one], "disable": [two]})
        self.assertEqual([(s["host"], s["enabled"]) for s in self.c.items("/v1/sites?q=.test")
                          if s["host"] in ("b1.test", "b2.test")], [("b2.test", False)])
        self.c.call("POST", "/v1/sites/batch", {"enable": [two]})
        self.assertTrue(self.c.call("GET", "/v1/sites/" + two)["enabled"])
        a = self.c.ask("POST", "/v1/sites/batch", {"add": [{"host": f"m{i}.test"} for i in range(1001)]})
        self.assertIn((a.status, a.json["code"]), ((429, "too_many"), (422, "body_invalid")))
        p = self.c.call("POST", "/v1/sites/preview", {"text": "p1.test\nhttps://p2.test/\n# no\nP3.test:8080\n"})
        self.assertEqual([(s["host"], s["port"]) for s in p["sites"]], [("p1.test", None), ("p3.test", 8080)])
        self.assertEqual(len(p["errors"]), 1)
        self.assertEqual(self.c.items("/v1/sites?q=p1.test"), [])

    def test_a_sessions_own_sites(self):
        s = self.session(sites=[{"host": "own.test", "port": 443}])
        at = f"/v1/sessions/{s['id']}"
        check = lambda host, port=443, **kw: self.c.call("POST", "/v1/sites/check", {"host": host, "port": port, **kw})["verdict"]
        self.assertEqual((check("own.test", session_id=s["id"]), check("own.test")), ("allow", "refuse"))
        self.assertEqual(check("own.test", 80, session_id=s["id"]), "refuse")
        new = self.c.call("POST", at + "/sites", {"host": "new.test"}, 201)
        self.assertEqual((check("new.test", 80, session_id=s["id"]), new["list"]), ("allow", "session"))
        self.c.problem(409, "exists", "POST", at + "/sites", {"host": "new.test"})
        self.assertEqual([x["host"] for x in self.c.items(at + "/sites?limit=1")], ["new.test", "own.test"])
        c = self.run_in(s, "curl -sS -m 20 -o /dev/null http://new.test/ -w '%{http_code}'")
        self.assertNotEqual(c["text"]["stdout"], "403")  # listed: it is only that no such name exists
        self.c.call("DELETE", f"{at}/sites/{new['id']}", want=204)
        c = self.run_in(s, "curl -sS -m 20 -o /dev/null http://new.test/ -w '%{http_code}'")
        self.assertEqual(c["text"]["stdout"], "403")
        self.assertEqual(c["result"]["blocked"][0]["host"], "new.test")
        self.assertEqual(c["result"]["denied"][0]["source"], "egress")
        access = self.c.call("GET", at + "/access")
        self.assertIn("own.test", [x["host"] for x in access["sites"]])
        for i in range(255):
            self.c.call("POST", at + "/sites", {"host": f"n{i}.test"}, 201)
        p = self.c.problem(429, "too_many", "POST", at + "/sites", {"host": "more.test"})
        self.assertIn("256", p["detail"])

    # ---- Blocked, audit, policy --------------------------------------------------------------------

    # case 82
    def test_what_was_blocked(self):
        s = self.session()
        for _ in range(2):
            c = self.run_in(s, "curl -sS -m 20 http://blocked.test:8080/x; curl -sS -m 20 https://blocked.test/")
        self.assertIn("blocked.test", c["text"]["stdout"] + c["text"]["stderr"])
        rows = {(b["host"], b["port"]): b for b in self.c.call("GET", f"/v1/sessions/{s['id']}/blocked")["items"]}
        self.assertEqual((rows["blocked.test", 8080]["count"], rows["blocked.test", 8080]["reason"]), (2, "not_listed"))
        self.assertEqual(rows["blocked.test", 443]["session_id"], s["id"])
        self.assertTrue([b for b in self.c.call("GET", "/v1/blocked")["items"] if b["host"] == "blocked.test"])
        self.assertTrue([b for b in self.c.call("GET", "/v1/blocked?group=host")["items"] if b["host"] == "blocked.test"])
        frames = self.c.ask("GET", self.at(c) + "/output").frames()
        self.assertEqual({(f["host"], f["port"]) for f in frames if f["kind"] == "blocked"},
                         {("blocked.test", 8080), ("blocked.test", 443)})
        self.assertEqual(self.c.call("GET", f"/v1/sessions/{s['id']}")["counts"]["blocked"] > 0, True)

    def test_audit(self):
        s = self.session()
        c = self.run_in(s, "exit 3")
        rows = self.audit(f"session={s['id']}")
        self.assertEqual([r["seq"] for r in rows], sorted((r["seq"] for r in rows), reverse=True))
        self.assertEqual([r["action"] for r in reversed(rows)][:4],
                         ["session.created", "wall.verified", "command.started", "command.ended"])
        self.assertEqual({r["id"] for r in self.audit(f"session={s['id']}&action=command.ended")},
                         {r["id"] for r in rows if r["action"] == "command.ended"})
        self.assertTrue(all(r["outcome"] == "refused" for r in self.audit("outcome=refused")))
        self.assertEqual(self.audit(f"session={s['id']}&since=2100-01-01T00:00:00Z"), [])
        self.assertEqual(self.audit(f"session={s['id']}&until=2001-01-01T00:00:00Z"), [])
        self.assertEqual(len(self.audit(f"session={s['id']}&since=2001-01-01T00:00:00Z&until=2100-01-01T00:00:00Z")), len(rows))
        self.assertTrue(self.audit("actor=owner"))
        self.assertEqual([r["id"] for r in self.c.items(f"/v1/audit?session={s['id']}&limit=1")], [r["id"] for r in rows])
        v = self.c.call("GET", "/v1/audit/verify")
        self.assertTrue(v["ok"])
        self.assertGreaterEqual(v["rows"], len(rows))
        self.assertTrue(c["result"]["exit_code"] == 3)

    def test_policy(self):
        s = self.session()
        machine = self.c.call("GET", "/v1/policy?tier=walled")
        self.assertTrue(machine["enforced_by"])
        mine = self.c.call("GET", f"/v1/sessions/{s['id']}/policy")
        self.assertIn(self.work, json.dumps(mine["writable"]))
        for render in ("bwrap", "landlock", "seccomp"):
            for path in ("/v1/policy?tier=walled&render=", f"/v1/sessions/{s['id']}/policy?render="):
                a = self.c.ask("GET", path + render)
                self.assertEqual((a.status, a.kind), (200, "text/plain"))
                self.assertTrue(a.body)
        n = len(self.c.items("/v1/sessions?limit=500"))
        preview = self.c.call("POST", "/v1/policy/preview", self.body())
        self.assertEqual(preview["writable"], mine["writable"])
        self.assertEqual(len(self.c.items("/v1/sessions?limit=500")), n)
        proof = self.c.call("GET", f"/v1/sessions/{s['id']}/proof")
        self.assertEqual([x["id"] for x in proof["checks"] if x["required"] and not x["ok"]], [])
        again = self.c.call("POST", f"/v1/sessions/{s['id']}/verify", {})
        self.assertGreaterEqual(again["verified_at"], proof["verified_at"])
        folders = self.c.call("GET", f"/v1/sessions/{s['id']}/folders")["items"]
        self.assertEqual([(f["path"], f["mode"], f["missing"]) for f in folders], [(self.work, "rw", False)])

    def test_folders_of_a_session(self):
        d = self.d
        for path, code in (("/", "protected_place"), (d.home, "protected_place"), (d.state, "protected_place"),
                           (d.base, "protected_place"), ("/tmp", "protected_place"), ("/etc", "path_invalid"),
                           ("/no/such", "path_invalid"), ("relative", "path_invalid"), (self.work + "/../..", None)):
            a = self.c.ask("POST", "/v1/sessions", {"folders": [{"path": path}], "require_wall": True})
            self.assertIn(a.status, (403, 422), (path, a))
            if code:
                self.assertEqual(a.json["code"], code, (path, a))
        for body, pointer in (({"tier": "guarded"}, "/tier"), ({"tier": "airlock"}, "/tier"), ({"preset": "read-only"}, "/preset"),
                              ({"config_file": "/x"}, "/config_file")):
            p = self.c.problem(422, "body_invalid", "POST", "/v1/sessions", self.body(**body))
            self.assertEqual(p["errors"][0]["pointer"], pointer)  # later versions: refused, never a pretence
        s = self.session(name="ü" * 50, cwd=self.work, env={"FROM_SESSION": "1"}, agent={"name": "t", "version": "1"},
                         file_roots=[self.work], wait_ms=60000, unattended=True, publish=[port := free_port()])
        self.assertEqual(s["publish"], [port])
        self.assertIn(str(port), self.c.problem(409, "exists", "POST", "/v1/sessions", self.body(publish=[port]))["detail"])
        self.assertEqual((s["name"], s["agent"], s["cwd"]), ("ü" * 50, {"name": "t", "version": "1"}, self.work))
        self.assertEqual(self.run_in(s, "echo $FROM_SESSION")["text"]["stdout"], "1\n")

    def test_the_limit_of_tokens(self):
        d = self.d
        n = len(self.c.items("/v1/tokens?limit=500"))
        for i in range(256 - n):
            self.c.call("POST", "/v1/tokens", {"name": "f", "scopes": ["read"]}, 201)
        p = self.c.problem(429, "too_many", "POST", "/v1/tokens", {"name": "f", "scopes": ["read"]})
        self.assertIn("256", p["detail"])
        ids = [t["id"] for t in self.c.items("/v1/tokens?limit=500") if t["name"] == "f"]
        self.c.call("DELETE", "/v1/tokens/" + ids[0], want=204)
        self.c.call("POST", "/v1/tokens", {"name": "f", "scopes": ["read"]}, 201)
        for id in [t["id"] for t in self.c.items("/v1/tokens?limit=500") if t["name"] == "f"]:
            self.c.call("DELETE", "/v1/tokens/" + id, want=204)

    def test_the_limit_of_connections(self):
        """512 at once; what is over it is refused, and those that are there go on."""
        held = [self.tcp.connect() for _ in range(505)]
        try:
            self.c.call("GET", "/v1/health")
            more = []
            refused = 0
            for _ in range(20):
                try:
                    s = self.tcp.connect()
                    s.settimeout(3)
                    more.append(s)
                    s.sendall(self.tcp.head("GET", "/v1/health", None, {}))
                    data = s.recv(4096)
                    refused += b" 200 " not in data
                except OSError:
                    refused += 1
            self.assertGreater(refused, 0)
            held[0].sendall(self.tcp.head("GET", "/v1/health", None, {}))
            self.assertIn(b" 200 ", held[0].recv(4096))
        finally:
            for s in held + more:
                s.close()
        wait_for(lambda: self.works(), "room again", 30)

    def works(self):
        try:
            return self.tcp.ask("GET", "/v1/health").status == 200
        except OSError:
            return False


if __name__ == "__main__":
    unittest.main(verbosity=2)
