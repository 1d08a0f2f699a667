"""The main job over REST: who may ask, what is refused, a session behind the wall and its records.
Every JSON answer is checked against schema/openapi.json."""
import http.client
import json
import os
import re
import socket
import sys
import unittest

import jsonschema

SOURCE = os.environ["CORDON_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests/lib"))
from cordon_test.cli import Home  # noqa: E402

with open(SOURCE + "/schema/openapi.json") as f:
    SPEC = json.load(f)


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)


def operation(method, path):
    for pattern, methods in SPEC["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", pattern), path.split("?")[0]):
            return methods.get(method.lower())
    return None


def check_answer(method, path, status, kind, body):
    op = operation(method, path)
    if not op or not kind.split(";")[0].endswith("/json") and not kind.endswith("+json"):
        return
    answer = op["responses"].get(str(status)) or op["responses"].get("default")
    media = answer["content"].get(kind.split(";")[0])
    assert media, (method, path, status, kind)
    schema = dict(media["schema"], components=SPEC["components"])
    jsonschema.validate(json.loads(body), schema)


class Main(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.home = Home()
        assert cls.home.cordon("serve").code == 0
        cls.server = cls.home.server()
        cls.port = int(cls.server["url"].rsplit(":", 1)[1])
        with open(cls.home.state + "/token") as f:
            cls.token = f.read().strip()

    @classmethod
    def tearDownClass(cls):
        cls.home.close()

    def raw(self, method, path, body=None, tcp=False, headers=None, token=None, host=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60) if tcp else Unix(
            self.server["socket"])
        h = dict(headers or {})
        if host is not None:
            h["Host"] = host
        if token:
            h["Authorization"] = "Bearer " + token
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            h.setdefault("Content-Type", "application/json")
        try:
            c.request(method, path, body=body, headers=h)
        except BrokenPipeError:
            pass  # refused before the body was read: the answer is there all the same
        r = c.getresponse()
        data = r.read()
        kind = r.headers.get("Content-Type", "")
        check_answer(method, path, r.status, kind, data)
        c.close()
        return r.status, r.headers, data

    def call(self, method, path, body=None, want=200, **kw):
        status, headers, data = self.raw(method, path, body, **kw)
        self.assertEqual(status, want, (method, path, data[:600]))
        kind = headers.get("Content-Type", "").split(";")[0]
        if kind.endswith("/json") or kind.endswith("+json"):
            return json.loads(data)
        return data

    def problem(self, want, code, method, path, body=None, **kw):
        p = self.call(method, path, body, want, **kw)
        self.assertEqual(p["code"], code, p)
        self.assertEqual(p["status"], want)
        return p

    def session(self, **more):
        s = self.call("POST", "/v1/sessions", dict({"folders": [{"path": self.home.work}],
                                                    "require_wall": True}, **more), 201)
        self.addCleanup(self.raw, "POST", f"/v1/sessions/{s['id']}/stop", {"grace_ms": 0})
        return s

    def run_in(self, s, shell, **more):
        return self.call("POST", f"/v1/sessions/{s['id']}/commands",
                         dict({"shell": shell, "wait_ms": 30000}, **more), 201)

    # ---- The contract and the table ----------------------------------------------------------------

    def test_routes_are_the_specification(self):
        routes = {(r["method"], r["path"]) for r in self.call("GET", "/v1/routes")["items"]}
        spec = {(m.upper(), p) for p, ms in SPEC["paths"].items() for m in ms}
        self.assertEqual(routes, spec)
        self.assertEqual(self.call("GET", "/v1/openapi.json"), SPEC)

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
        walk(SPEC["components"]["schemas"], "")

    # ---- Who may ask -------------------------------------------------------------------------------

    def test_hosts(self):
        for host in ("evil.test", f"evil.test:{self.port}", f"localhost.evil.test:{self.port}",
                     f"127.0.0.1.evil.test:{self.port}", "127.0.0.1", "localhost:1",
                     f"127.1:{self.port}", f"2130706433:{self.port}", f"localhost.:{self.port}",
                     f"localhost:{self.port}@evil", f"0.0.0.0:{self.port}"):
            for path in ("/v1/health", "/v1/sessions", "/ui/", "/nothing"):
                self.problem(403, "host_not_allowed", "GET", path, tcp=True, token=self.token,
                             host=host)
        for host in (f"127.0.0.1:{self.port}", f"[::1]:{self.port}", f"LocalHost:{self.port}"):
            self.call("GET", "/v1/health", tcp=True, host=host)

    def test_origins(self):
        before = len(self.call("GET", "/v1/sessions")["items"])
        body = {"folders": [{"path": self.home.work}]}
        for headers in ({"Origin": "https://evil.test"}, {"Origin": "null"},
                        {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):
            for method in ("GET", "POST"):
                self.problem(403, "origin_not_allowed", method, "/v1/sessions",
                             body if method == "POST" else None, tcp=True, token=self.token,
                             headers=headers)
        self.assertEqual(len(self.call("GET", "/v1/sessions")["items"]), before)
        _, headers, _ = self.raw("GET", "/v1/health", tcp=True)
        self.assertNotIn("Access-Control-Allow-Origin", headers)
        self.assertEqual(headers["Cache-Control"], "no-store")

    def test_tokens(self):
        self.problem(401, "token_missing", "GET", "/v1/sessions", tcp=True)
        self.problem(401, "token_invalid", "GET", "/v1/sessions", tcp=True, token="cordon_" + "a" * 43)
        self.problem(401, "token_missing", "GET", "/v1/sessions?token=" + self.token, tcp=True)
        self.call("GET", "/v1/sessions", tcp=True, token=self.token)
        reader = self.call("POST", "/v1/tokens", {"name": "r", "scopes": ["read"]}, 201)
        self.call("GET", "/v1/sessions", tcp=True, token=reader["token"])
        p = self.problem(403, "scope_missing", "POST", "/v1/sessions",
                         {"folders": [{"path": self.home.work}]}, tcp=True, token=reader["token"])
        self.assertIn("sessions", json.dumps(p))
        self.call("DELETE", f"/v1/tokens/{reader['id']}", want=204)
        self.problem(401, "token_invalid", "GET", "/v1/sessions", tcp=True, token=reader["token"])

    def test_an_agent_reaches_its_session_alone(self):
        mine, other = self.session(), self.session()
        t = self.call("POST", "/v1/tokens", {"name": "a", "scopes": ["read", "exec"],
                                             "session_id": mine["id"]}, 201)["token"]
        kw = {"tcp": True, "token": t}
        self.call("GET", f"/v1/sessions/{mine['id']}", **kw)
        self.call("POST", f"/v1/sessions/{mine['id']}/commands", {"argv": ["true"]}, 201, **kw)
        self.problem(404, "not_found", "GET", f"/v1/sessions/{other['id']}", **kw)
        self.problem(404, "not_found", "POST", f"/v1/sessions/{other['id']}/commands",
                     {"argv": ["true"]}, **kw)
        for method, path in (("GET", "/v1/settings"), ("GET", "/v1/tokens"), ("GET", "/v1/audit"),
                             ("GET", "/v1/sessions"), ("POST", "/v1/shutdown"), ("GET", "/v1/sites")):
            self.problem(403, "scope_missing", method, path, **kw)
        self.problem(403, "scope_missing", "POST", f"/v1/sessions/{mine['id']}/stop", {}, **kw)

    def test_a_code_counts_once(self):
        self.problem(403, "socket_only", "POST", "/v1/auth/codes", {}, tcp=True, token=self.token)
        code = self.call("POST", "/v1/auth/codes", {}, 201)["code"]
        t = self.call("POST", "/v1/auth/exchange", {"code": code}, tcp=True)["token"]
        self.assertEqual(self.call("GET", "/v1/auth/self", tcp=True, token=t)["kind"], "browser")
        self.problem(410, "code_used", "POST", "/v1/auth/exchange", {"code": code}, tcp=True)
        self.call("DELETE", "/v1/auth/self", tcp=True, token=t, want=204)
        self.problem(401, "token_invalid", "GET", "/v1/auth/self", tcp=True, token=t)

    # ---- Bodies ------------------------------------------------------------------------------------

    def test_strict_bodies(self):
        js = {"Content-Type": "application/json"}
        post = lambda text, want, code, **kw: self.problem(want, code, "POST", "/v1/sessions", text,
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
                ({"folders": [{"path": self.home.work, "mode": "x"}]}, "/folders/0/mode", None),
                ({"folders": [{"path": self.home.work}], "wait_ms": 60001}, "/wait_ms", "range"),
                ({"folders": [{"path": self.home.work}], "publish": [80]}, "/publish", None)):
            p = self.problem(422, "body_invalid", "POST", "/v1/sessions", body)
            rows = {e["pointer"]: e["code"] for e in p["errors"]}
            self.assertIn(pointer, rows, p)
            if kind:
                self.assertEqual(rows[pointer], kind)
        self.problem(422, "query_invalid", "GET", "/v1/sessions?limt=3")
        self.problem(405, "method_not_allowed", "PUT", "/v1/sessions")
        self.problem(404, "not_found", "GET", "/v1/nothing")
        self.problem(404, "version_unknown", "GET", "/v2/health")

    def test_folders_that_are_refused(self):
        for path, want, code in (("/", 403, "protected_place"), (self.home.home, 403, "protected_place"),
                                 (self.home.state, 403, "protected_place"),
                                 ("/no/such", 422, "path_invalid"), ("rel", 422, "path_invalid"),
                                 ("/tmp", 403, "protected_place")):
            p = self.problem(want, code, "POST", "/v1/sessions", {"folders": [{"path": path}]})
            self.assertTrue(p["detail"], path)

    # ---- A session ---------------------------------------------------------------------------------

    def test_a_session_and_its_commands(self):
        s = self.session()
        self.assertEqual((s["state"], s["provider"], s["enforcement"]["level"]),
                         ("ready", "bubblewrap", "files+network"))
        proof = self.call("GET", f"/v1/sessions/{s['id']}/proof")
        self.assertEqual([c["id"] for c in proof["checks"] if not c["ok"] and c["required"]], [])
        c = self.run_in(s, "echo out; echo err >&2; exit 3")
        self.assertEqual((c["state"], c["result"]["exit_code"], c["text"]["stdout"], c["text"]["stderr"]),
                         ("exited", 3, "out\n", "err\n"))
        c = self.run_in(s, "kill -9 $$")
        self.assertEqual((c["state"], c["result"]["signal"]), ("killed", "KILL"))
        c = self.call("POST", f"/v1/sessions/{s['id']}/commands", {"argv": ["/nope"], "wait_ms": 9000}, 201)
        self.assertEqual((c["state"], c["start_error"]["stage"]), ("failed", "exec"))
        c = self.run_in(s, "sleep 60", timeout_ms=200)
        self.assertEqual((c["state"], c["result"]["limit"]), ("timed_out", "time"))
        with open(self.home.home + "/marker", "w") as f:
            f.write("host only")
        c = self.run_in(s, f"cat {self.home.home}/marker; cat {self.home.state}/token")
        self.assertEqual((c["text"]["stdout"], c["result"]["exit_code"]), ("", 1))
        with open(self.home.home + "/marker") as f:
            self.assertEqual(f.read(), "host only")
        rows = self.call("GET", f"/v1/audit?session={s['id']}")["items"]
        self.assertIn("command.ended", [r["action"] for r in rows])
        self.assertTrue(self.call("GET", "/v1/audit/verify")["ok"])

    def test_output_in_each_form(self):
        s = self.session()
        c = self.run_in(s, "printf 'a\\0b\\377'; echo x >&2")
        base = f"/v1/sessions/{s['id']}/commands/{c['id']}/output"
        kinds = [f["kind"] for f in map(json.loads, self.call("GET", base).splitlines())]
        self.assertEqual(kinds.count("end"), 1)
        self.assertEqual(kinds[-1], "end")
        frames = self.call("GET", base, headers={"Accept": "application/json"})
        self.assertTrue(frames["ended"])
        octets = {"Accept": "application/octet-stream"}
        self.assertEqual(self.call("GET", base + "?stream=stdout", headers=octets), b"a\0b\xff")
        self.assertEqual(self.call("GET", base + "?stream=stdout", want=206,
                                   headers=dict(octets, Range="bytes=1-2")), b"\0b")
        self.problem(416, "range_invalid", "GET", base + "?stream=stdout",
                     headers=dict(octets, Range="bytes=9-"))
        sse = self.call("GET", base, headers={"Accept": "text/event-stream"})
        self.assertIn(b"event: end", sse)

    def test_stdin_by_offset(self):
        s = self.session()
        c = self.call("POST", f"/v1/sessions/{s['id']}/commands", {"argv": ["cat"], "stdin": "pipe"}, 201)
        base = f"/v1/sessions/{s['id']}/commands/{c['id']}"
        kw = {"headers": {"Content-Type": "application/octet-stream"}}
        self.assertEqual(self.call("POST", base + "/stdin?offset=0", b"hello", **kw)["accepted_to"], 5)
        self.assertEqual(self.call("POST", base + "/stdin?offset=3", b"lo you", **kw)["accepted_to"], 9)
        p = self.problem(409, "stdin_gap", "POST", base + "/stdin?offset=20", b"x", **kw)
        self.assertEqual(p["accepted_to"], 9)
        self.call("POST", base + "/stdin?offset=9&close=1", b"", **kw)
        self.assertEqual(self.call("GET", base + "?wait_ms=20000")["text"]["stdout"], "hello you")
        self.problem(409, "command_ended", "POST", base + "/signal", {"signal": "TERM"})

    def test_files(self):
        s = self.session()
        base = f"/v1/sessions/{s['id']}/files"
        where = "?path=" + self.home.work + "/api-file.bin"
        data = bytes(range(256)) * 300
        kw = {"headers": {"Content-Type": "application/octet-stream"}}
        self.call("PUT", base + "/content" + where, data, 201, **kw)
        self.assertEqual(self.call("GET", base + "/content" + where), data)
        with open(self.home.work + "/api-file.bin", "rb") as f:
            self.assertEqual(f.read(), data)
        self.assertEqual(self.call("GET", base + "/content" + where, want=206,
                                   headers={"Range": "bytes=10-19"}), data[10:20])
        self.problem(412, "rev_mismatch", "PUT", base + "/content" + where, b"x",
                     headers={"Content-Type": "application/octet-stream", "If-Match": "\"0-0-0\""})
        self.problem(403, "outside_session", "GET", base + "/content?path=/etc/passwd")
        self.problem(403, "outside_session", "PUT", base + "/content?path=/etc/x", b"x", **kw)
        self.call("PUT", base + "/content?path=" + self.home.work + "/t.txt", b"one two one", 201, **kw)
        edit = {"path": self.home.work + "/t.txt", "old": "one", "new": "1"}
        self.problem(409, "edit_mismatch", "POST", base + "/edit", edit)
        self.assertEqual(self.call("POST", base + "/edit", dict(edit, all=True))["replaced"], 2)
        self.assertEqual(len(self.call("POST", base + "/search", {"pattern": "two"})["items"]), 1)
        self.call("POST", base + "/mkdir", {"path": self.home.work + "/d"}, 201)
        self.call("POST", base + "/move", {"from": self.home.work + "/t.txt",
                                           "to": self.home.work + "/d/t.txt"})
        self.assertTrue(os.path.exists(self.home.work + "/d/t.txt"))
        self.call("DELETE", base + "?recursive=1&path=" + self.home.work + "/d", want=204)
        self.assertFalse(os.path.exists(self.home.work + "/d"))

    def test_blocked_hosts_are_named(self):
        s = self.session()
        c = self.run_in(s, "curl -sS -m 10 http://no.test/ ; curl -sS -m 10 https://no.test/")
        self.assertIn("no.test", c["text"]["stdout"] + c["text"]["stderr"])
        self.assertEqual({(b["host"], b["port"], b["reason"]) for b in c["result"]["blocked"]},
                         {("no.test", 80, "not_listed"), ("no.test", 443, "not_listed")})
        c = self.run_in(s, f"curl -sS -m 10 http://127.0.0.1:{self.port}/v1/health -x $HTTP_PROXY --noproxy ''")
        self.assertNotIn("instance_id", c["text"]["stdout"])
        self.assertEqual(len(self.call("GET", f"/v1/sessions/{s['id']}/blocked")["items"]) >= 2, True)

    def test_settings_and_sites(self):
        _, headers, data = self.raw("GET", "/v1/settings")
        etag = headers["ETag"]
        merge = {"Content-Type": "application/merge-patch+json"}
        self.problem(428, "if_match_required", "PATCH", "/v1/settings", "{}", headers=merge)
        self.problem(412, "rev_mismatch", "PATCH", "/v1/settings", "{}",
                     headers=dict(merge, **{"If-Match": "\"999\""}))
        p = self.problem(409, "confirm_required", "PATCH", "/v1/settings",
                         '{"sandbox_network_profile":"open"}', headers=dict(merge, **{"If-Match": etag}))
        self.assertEqual(p["confirm"], "open")
        new = self.call("POST", "/v1/sites", {"host": "EXAMPLE.test", "port": 443}, 201)
        self.assertEqual(new["host"], "example.test")
        self.problem(409, "exists", "POST", "/v1/sites", {"host": "example.test", "port": 443})
        self.problem(422, "site_invalid", "POST", "/v1/sites", {"host": "https://example.test/"})
        check = {"host": "example.test", "port": 443}
        self.assertEqual(self.call("POST", "/v1/sites/check", check)["verdict"], "allow")
        self.call("DELETE", f"/v1/sites/{new['id']}", want=204)
        self.assertEqual(self.call("POST", "/v1/sites/check", check)["verdict"], "refuse")

    def test_status_check_proves_a_wall(self):
        st = self.call("POST", "/v1/status/check", {})
        self.assertEqual([c for c in st["checks"] if c["required"] and not c["ok"]], [])
        self.assertTrue(st["checks"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
