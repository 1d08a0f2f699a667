"""The main job over REST: who may ask, what is refused, a session behind the wall and its records."""
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest
from cordon_test.contract import judge

OCTETS = {"Content-Type": "application/octet-stream"}


class Main(ApiTest):
    # ---- The contract and the table ----------------------------------------------------------------

    def test_routes_are_the_specification(self):
        spec = judge().contract.spec
        routes = {(r["method"], r["path"]) for r in self.c.call("GET", "/v1/routes")["items"]}
        self.assertEqual(routes, {(m.upper(), p) for p, ms in spec["paths"].items() for m in ms})
        self.assertEqual(self.c.call("GET", "/v1/openapi.json"), spec)

    def test_schemas_are_closed(self):
        def walk(node, at):
            if isinstance(node, dict):
                if node.get("type") == "object" and "properties" in node:
                    self.assertIs(node.get("additionalProperties"), False, at)
                for k, v in node.items():
                    walk(v, at + "/" + k)
            elif isinstance(node, list):
                for i, v in enumerate(node):
                    walk(v, f"{at}/{i}")
        walk(judge().contract.spec["components"]["schemas"], "")

    # ---- Who may ask -------------------------------------------------------------------------------

    def test_hosts(self):
        port = self.d.port
        for host in ("evil.test", f"evil.test:{port}", f"localhost.evil.test:{port}", "127.0.0.1", "localhost:1"):
            for path in ("/v1/health", "/v1/sessions", "/ui/", "/nothing"):
                self.tcp.problem(403, "host_not_allowed", "GET", path, headers={"Host": host})
        for host in (f"127.0.0.1:{port}", f"[::1]:{port}", f"LocalHost:{port}"):
            self.tcp.call("GET", "/v1/health", headers={"Host": host})

    def test_tokens(self):
        tcp = self.tcp
        tcp.other(token=None).problem(401, "token_missing", "GET", "/v1/sessions")
        tcp.other(token="cordon_" + "a" * 43).problem(401, "token_invalid", "GET", "/v1/sessions")
        tcp.other(token=None).problem(401, "token_missing", "GET", "/v1/sessions?token=" + self.d.token)
        tcp.call("GET", "/v1/sessions")
        tcp.other(via="v6").call("GET", "/v1/sessions")
        made = self.c.call("POST", "/v1/tokens", {"name": "r", "scopes": ["read"]}, 201)
        reader = tcp.other(token=made["token"])
        reader.call("GET", "/v1/sessions")
        p = reader.problem(403, "scope_missing", "POST", "/v1/sessions", {"folders": [{"path": self.work}]})
        self.assertEqual(p["scope"], "sessions")
        self.c.call("DELETE", f"/v1/tokens/{made['id']}", want=204)
        reader.problem(401, "token_invalid", "GET", "/v1/sessions")

    def test_an_agent_reaches_its_session_alone(self):
        mine, other = self.session(), self.session()
        agent = self.agent(mine)
        agent.call("GET", f"/v1/sessions/{mine['id']}")
        agent.call("POST", f"/v1/sessions/{mine['id']}/commands", {"argv": ["true"]}, 201)
        agent.problem(404, "not_found", "GET", f"/v1/sessions/{other['id']}")
        agent.problem(404, "not_found", "POST", f"/v1/sessions/{other['id']}/commands", {"argv": ["true"]})
        for method, path in (("GET", "/v1/settings"), ("GET", "/v1/tokens"), ("GET", "/v1/audit"),
                             ("GET", "/v1/sessions"), ("POST", "/v1/shutdown"), ("GET", "/v1/sites")):
            agent.problem(403, "scope_missing", method, path)
        agent.problem(403, "scope_missing", "POST", f"/v1/sessions/{mine['id']}/stop", {})

    # ---- Bodies ------------------------------------------------------------------------------------

    def test_strict_bodies(self):
        js = {"Content-Type": "application/json"}
        post = lambda text, want, code, **kw: self.c.problem(want, code, "POST", "/v1/sessions", text,
                                                           headers=kw.get("headers", js))
        for text in ("{", "", "[1", "{\"a\":\"\\ud800\"}", "{\"folders\":[]} x", "\xff"):
            post(text.encode("latin-1"), 400, "json_invalid")
        post("[" * 33 + "]" * 33, 400, "json_invalid")
        post("{\"folders\":[],\"folders\":[]}", 422, "body_invalid")
        post("{}", 422, "body_invalid", headers={"Content-Type": "application/json"})
        post("{}", 415, "content_type", headers={"Content-Type": "text/plain"})
        post("\"" + "a" * (257 << 10) + "\"", 413, "body_too_large")
        for body, pointer, kind in (
                ({"folder": []}, "/folder", "unknown"), ({}, "/folders", "missing"),
                ({"folders": [{"path": 7}]}, "/folders/0/path", "type"),
                ({"folders": [{"path": self.work, "mode": "x"}]}, "/folders/0/mode", None),
                ({"folders": [{"path": self.work}], "wait_ms": 60001}, "/wait_ms", "range"),
                ({"folders": [{"path": self.work}], "publish": [80, 0]}, "/publish/1", "range")):
            p = self.c.problem(422, "body_invalid", "POST", "/v1/sessions", body)
            rows = {e["pointer"]: e["code"] for e in p["errors"]}
            self.assertIn(pointer, rows, p)
            if kind:
                self.assertEqual(rows[pointer], kind)
        self.c.problem(422, "query_invalid", "GET", "/v1/sessions?limt=3")
        self.c.problem(405, "method_not_allowed", "PUT", "/v1/sessions")
        self.c.problem(404, "not_found", "GET", "/v1/nothing")
        self.c.problem(404, "version_unknown", "GET", "/v2/health")

    def test_folders_that_are_refused(self):
        for path, want, code in (("/", 403, "protected_place"), (self.d.home, 403, "protected_place"),
                                 (self.d.state, 403, "protected_place"),
                                 ("/no/such", 422, "path_invalid"), ("rel", 422, "path_invalid"),
                                 ("/tmp", 403, "protected_place")):
            p = self.c.problem(want, code, "POST", "/v1/sessions", {"folders": [{"path": path}]})
            self.assertTrue(p["detail"], path)

    # ---- A session ---------------------------------------------------------------------------------

    def test_a_session_and_its_commands(self):
        s = self.session()
        self.assertEqual((s["state"], s["provider"], s["enforcement"]["level"]),
                         ("ready", "bubblewrap", "files+network"))
        proof = self.c.call("GET", f"/v1/sessions/{s['id']}/proof")
        self.assertEqual([c["id"] for c in proof["checks"] if not c["ok"] and c["required"]], [])
        c = self.run_in(s, "echo out; echo err >&2; exit 3")
        self.assertEqual((c["state"], c["result"]["exit_code"], c["text"]["stdout"], c["text"]["stderr"]),
                         ("exited", 3, "out\n", "err\n"))
        c = self.run_in(s, "kill -9 $$")
        self.assertEqual((c["state"], c["result"]["signal"]), ("killed", "KILL"))
        c = self.c.call("POST", f"/v1/sessions/{s['id']}/commands", {"argv": ["/nope"], "wait_ms": 9000}, 201)
        self.assertEqual((c["state"], c["start_error"]["stage"]), ("failed", "exec"))
        c = self.run_in(s, "sleep 60", timeout_ms=200)
        self.assertEqual((c["state"], c["result"]["limit"]), ("timed_out", "time"))
        with open(self.d.home + "/marker", "w") as f:
            f.write("host only")
        c = self.run_in(s, f"cat {self.d.home}/marker; cat {self.d.state}/token")
        self.assertEqual((c["text"]["stdout"], c["result"]["exit_code"]), ("", 1))
        with open(self.d.home + "/marker") as f:
            self.assertEqual(f.read(), "host only")
        rows = self.c.call("GET", f"/v1/audit?session={s['id']}")["items"]
        self.assertIn("command.ended", [r["action"] for r in rows])
        self.assertTrue(self.c.call("GET", "/v1/audit/verify")["ok"])

    def test_output_in_each_form(self):
        s = self.session()
        c = self.run_in(s, "printf 'a\\0b\\377'; echo x >&2")
        base = f"/v1/sessions/{s['id']}/commands/{c['id']}/output"
        kinds = [f["kind"] for f in map(json.loads, self.c.call("GET", base).splitlines())]
        self.assertEqual(kinds.count("end"), 1)
        self.assertEqual(kinds[-1], "end")
        frames = self.c.call("GET", base, headers={"Accept": "application/json"})
        self.assertTrue(frames["ended"])
        octets = {"Accept": "application/octet-stream"}
        self.assertEqual(self.c.call("GET", base + "?stream=stdout", headers=octets), b"a\0b\xff")
        self.assertEqual(self.c.call("GET", base + "?stream=stdout", want=206,
                                   headers=dict(octets, Range="bytes=1-2")), b"\0b")
        self.c.problem(416, "range_invalid", "GET", base + "?stream=stdout",
                     headers=dict(octets, Range="bytes=9-"))
        sse = self.c.call("GET", base, headers={"Accept": "text/event-stream"})
        self.assertIn(b"event: end", sse)

    def test_stdin_by_offset(self):
        s = self.session()
        c = self.c.call("POST", f"/v1/sessions/{s['id']}/commands", {"argv": ["cat"], "stdin": "pipe"}, 201)
        base = f"/v1/sessions/{s['id']}/commands/{c['id']}"
        kw = {"headers": OCTETS}
        self.assertEqual(self.c.call("POST", base + "/stdin?offset=0", b"hello", headers=OCTETS)["accepted_to"], 5)
        self.assertEqual(self.c.call("POST", base + "/stdin?offset=3", b"lo you", **kw)["accepted_to"], 9)
        p = self.c.problem(409, "stdin_gap", "POST", base + "/stdin?offset=20", b"x", **kw)
        self.assertEqual(p["accepted_to"], 9)
        self.c.call("POST", base + "/stdin?offset=9&close=1", b"", **kw)
        self.assertEqual(self.c.call("GET", base + "?wait_ms=20000")["text"]["stdout"], "hello you")
        self.c.problem(409, "command_ended", "POST", base + "/signal", {"signal": "TERM"})

    def test_files(self):
        s = self.session()
        base = f"/v1/sessions/{s['id']}/files"
        where = "?path=" + self.work + "/api-file.bin"
        data = bytes(range(256)) * 300
        kw = {"headers": OCTETS}
        self.c.call("PUT", base + "/content" + where, data, 201, **kw)
        self.assertEqual(self.c.call("GET", base + "/content" + where), data)
        with open(self.work + "/api-file.bin", "rb") as f:
            self.assertEqual(f.read(), data)
        self.assertEqual(self.c.call("GET", base + "/content" + where, want=206,
                                   headers={"Range": "bytes=10-19"}), data[10:20])
        self.c.problem(412, "rev_mismatch", "PUT", base + "/content" + where, b"x",
                     headers={**OCTETS, "If-Match": "\"0-0-0\""})
        self.c.problem(403, "outside_session", "GET", base + "/content?path=/etc/passwd")
        self.c.problem(403, "outside_session", "PUT", base + "/content?path=/etc/x", b"x", **kw)
        self.c.call("PUT", base + "/content?path=" + self.work + "/t.txt", b"one two one", 201, **kw)
        edit = {"path": self.work + "/t.txt", "old": "one", "new": "1"}
        self.c.problem(409, "edit_mismatch", "POST", base + "/edit", edit)
        self.assertEqual(self.c.call("POST", base + "/edit", dict(edit, all=True))["replaced"], 2)
        self.assertEqual(len(self.c.call("POST", base + "/search", {"pattern": "two"})["items"]), 1)
        self.c.call("POST", base + "/mkdir", {"path": self.work + "/d"}, 201)
        self.c.call("POST", base + "/move", {"from": self.work + "/t.txt",
                                           "to": self.work + "/d/t.txt"})
        self.assertTrue(os.path.exists(self.work + "/d/t.txt"))
        self.c.call("DELETE", base + "?recursive=1&path=" + self.work + "/d", want=204)
        self.assertFalse(os.path.exists(self.work + "/d"))

    def test_blocked_hosts_are_named(self):
        s = self.session()
        c = self.run_in(s, "curl -sS -m 10 http://no.test/ ; curl -sS -m 10 https://no.test/")
        self.assertIn("no.test", c["text"]["stdout"] + c["text"]["stderr"])
        self.assertEqual({(b["host"], b["port"], b["reason"]) for b in c["result"]["blocked"]},
                         {("no.test", 80, "not_listed"), ("no.test", 443, "not_listed")})
        c = self.run_in(s, f"curl -sS -m 10 http://127.0.0.1:{self.d.port}/v1/health -x $HTTP_PROXY --noproxy ''")
        self.assertNotIn("instance_id", c["text"]["stdout"])
        self.assertEqual(len(self.c.call("GET", f"/v1/sessions/{s['id']}/blocked")["items"]) >= 2, True)

    def test_settings_and_sites(self):
        etag = self.c.ask("GET", "/v1/settings").etag
        merge = {"Content-Type": "application/merge-patch+json"}
        self.c.problem(428, "if_match_required", "PATCH", "/v1/settings", "{}", headers=merge)
        self.c.problem(412, "rev_mismatch", "PATCH", "/v1/settings", "{}",
                     headers=dict(merge, **{"If-Match": "\"999\""}))
        p = self.c.problem(409, "confirm_required", "PATCH", "/v1/settings",
                         '{"sandbox_network_profile":"open"}', headers=dict(merge, **{"If-Match": etag}))
        self.assertEqual(p["confirm"], "open")
        new = self.c.call("POST", "/v1/sites", {"host": "EXAMPLE.test", "port": 443}, 201)
        self.assertEqual(new["host"], "example.test")
        self.c.problem(409, "exists", "POST", "/v1/sites", {"host": "example.test", "port": 443})
        self.c.problem(422, "site_invalid", "POST", "/v1/sites", {"host": "https://example.test/"})
        check = {"host": "example.test", "port": 443}
        self.assertEqual(self.c.call("POST", "/v1/sites/check", check)["verdict"], "allow")
        self.c.call("DELETE", f"/v1/sites/{new['id']}", want=204)
        self.assertEqual(self.c.call("POST", "/v1/sites/check", check)["verdict"], "refuse")

    def test_status_check_proves_a_wall(self):
        st = self.c.call("POST", "/v1/status/check", {})
        self.assertEqual([c for c in st["checks"] if c["required"] and not c["ok"]], [])
        self.assertTrue(st["checks"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
