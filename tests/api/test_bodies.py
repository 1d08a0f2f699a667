"""Each body of each route, wrong in kind, size and encoding: a 4xx with its code and the member named;
nothing is started and nothing changed."""
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest
from cordon_test.contract import judge

JSON = "application/json"
MERGE = "application/merge-patch+json"
ULID = "01" + "0" * 24
# A body that a route takes: what is wrong with it below is wrong with nothing else.
GOOD = {
    "POST /v1/status/check": {},
    "POST /v1/shutdown": {"drain_ms": 0},
    "POST /v1/auth/codes": {},
    "POST /v1/auth/exchange": {"code": "abc"},
    "POST /v1/tokens": {"name": "n", "scopes": ["read"]},
    "POST /v1/policy/preview": {"folders": [{"path": "WORK"}]},
    "PATCH /v1/settings": {"limits": {"command_timeout_ms": 5}},
    "POST /v1/sites": {"host": "body.test"},
    "PATCH /v1/sites/{id}": {"note": "n"},
    "POST /v1/sites/batch": {"add": [{"host": "body.test"}]},
    "POST /v1/sites/preview": {"text": "body.test"},
    "POST /v1/sites/check": {"host": "body.test", "port": 443},
    "PUT /v1/web/providers/{p}": {"key": "body-test"},
    "POST /v1/asks/{a}/decide": {"answer": "deny"},
    "POST /v1/asks/{a}/extend": {},
    "POST /v1/sessions/{s}/asks": {"kind": "site", "subject": {"host": "body.test", "port": 443}},
    "POST /v1/sessions": {"folders": [{"path": "WORK"}], "require_wall": True},
    "PATCH /v1/sessions/{s}": {"name": "n"},
    "POST /v1/sessions/{s}/stop": {"grace_ms": 0},
    "POST /v1/sessions/{s}/verify": {},
    "POST /v1/sessions/{s}/sites": {"host": "body.test"},
    "POST /v1/sessions/{s}/commands": {"shell": "touch WORK/ran"},
    "POST /v1/sessions/{s}/commands/{c}/signal": {"signal": "TERM"},
    "POST /v1/sessions/{s}/commands/{c}/stop": {"grace_ms": 0},
    "POST /v1/sessions/{s}/files/edit": {"path": "WORK/f", "old": "a", "new": "b"},
    "POST /v1/sessions/{s}/files/search": {"pattern": "a"},
    "POST /v1/sessions/{s}/files/glob": {"pattern": "*"},
    "POST /v1/sessions/{s}/files/mkdir": {"path": "WORK/d"},
    "POST /v1/sessions/{s}/web/fetch": {"url": "http://body.test/"},
    "POST /v1/sessions/{s}/web/search": {"query": "q"},
    "POST /v1/sessions/{s}/files/move": {"from": "WORK/f", "to": "WORK/g"},
}


class Bodies(ApiTest):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(cls.work + "/f", "w") as f:
            f.write("a\n")
        cls.s = cls.c.call("POST", "/v1/sessions", {"folders": [{"path": cls.work}], "require_wall": True}, 201)
        cls.cmd = cls.c.call("POST", f"/v1/sessions/{cls.s['id']}/commands", {"argv": ["cat"], "stdin": "pipe"}, 201)
        cls.site = cls.c.call("POST", "/v1/sites", {"host": "there.test"}, 201)
        cls.ask = cls.c.call("POST", f"/v1/sessions/{cls.s['id']}/asks", GOOD["POST /v1/sessions/{s}/asks"], 201)
        cls.routes = [r for r in cls.c.call("GET", "/v1/routes")["items"]
                      if r["body_max_bytes"] and not r["path"].endswith(("/stdin", "/content"))]

    def setUp(self):
        self.before = self.state()

    def tearDown(self):
        self.assertEqual(self.state(), self.before)

    def state(self):
        c, at = self.c, f"/v1/sessions/{self.s['id']}"
        session = c.call("GET", at)
        rows = [r for r in self.audit() if r["action"] not in ("auth.failed", "auth.code_reused")]
        return (session["state"], session["rev"], session["name"], [x["id"] for x in c.items("/v1/sessions")],
                [(x["id"], x["state"]) for x in c.items(at + "/commands")], c.items(at + "/sites"),
                [(x["id"], x["rev"]) for x in c.items("/v1/sites?limit=500")], c.call("GET", "/v1/settings"),
                [x["id"] for x in c.items("/v1/tokens")], sorted(os.listdir(self.work)),
                [r["action"] for r in rows])

    def each(self):
        for r in self.routes:
            name = r["method"] + " " + r["path"]
            path = r["path"].replace("{s}", self.s["id"]).replace("{c}", self.cmd["id"]).replace("{id}", self.site["id"]) \
                .replace("{p}", "brave").replace("{a}", self.ask["id"])
            good = json.loads(json.dumps(GOOD[name]).replace("WORK", self.work))
            yield name, r, path, good

    def send(self, r, path, text, kind=None):
        headers = {"Content-Type": kind or (MERGE if r["method"] == "PATCH" else JSON)}
        if r["if_match"]:
            headers["If-Match"] = self.c.ask("GET", path).etag
        if kind == "":
            del headers["Content-Type"]
        return self.c.ask(r["method"], path, text, headers)

    def refused(self, name, a, status, code, pointer=None, kind=None):
        self.assertEqual((a.status, a.json["code"]), (status, code), (name, a))
        if pointer is not None:
            errors = {e["pointer"]: e for e in a.json["errors"]}
            self.assertIn(pointer, errors, (name, a))
            if kind:
                self.assertEqual(errors[pointer]["code"], kind, (name, a))
            return errors[pointer]

    def test_all_routes_are_here(self):
        self.assertEqual({r["method"] + " " + r["path"] for r in self.routes}, set(GOOD))

    def test_no_json(self):
        for name, r, path, good in self.each():
            text = json.dumps(good).encode()
            for bad in (b"{", b"[1", text[:-1], text + b"x", text + text, text + b"\0", b"\xef\xbb\xbf" + text,
                        b"{\"a\":\"\\ud800\"}", b"{\"a\":\"\\udc00x\"}", b"{\"a\":\"\xff\"}", b"{\"a\":\"\xed\xa0\x80\"}",
                        b"{'a':1}", b"{\"a\":01}", b"{\"a\":NaN}", b"{\"a\":1e999}", b"\0", b"{\"a\":\"\0\"}",
                        b"[" * 33 + b"]" * 33, b"{\"a\":" * 33 + b"1" + b"}" * 33, b"nul", b"{\"a\":1,}"):
                a = self.send(r, path, bad)
                self.refused((name, bad), a, 400, "json_invalid")

    def test_not_an_object(self):
        for name, r, path, good in self.each():
            for bad in (b"[]", b"1", b"\"x\"", b"null", b"true", b"[" * 32 + b"]" * 32):
                a = self.send(r, path, bad)
                self.refused((name, bad), a, 422, "body_invalid", "", "type")

    def test_empty(self):
        for name, r, path, good in self.each():
            op = judge().contract.spec["paths"][r["path"]][r["method"].lower()]
            if op["requestBody"].get("required"):
                self.refused(name, self.send(r, path, b""), 400, "json_invalid")

    def test_types_and_sizes(self):
        for name, r, path, good in self.each():
            text = json.dumps(good).encode()
            for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
                         "application/json; charset=utf-16", "application/jsonx", "",
                         JSON if r["method"] == "PATCH" else MERGE):
                self.refused((name, kind), self.send(r, path, text, kind), 415, "content_type")
            big = json.dumps(dict(good, filler="a" * (r["body_max_bytes"] + 1024))).encode()
            self.refused(name, self.send(r, path, big), 413, "body_too_large")
            # No byte of it is waited for: the head alone is answered.
            headers = {"Content-Type": MERGE if r["method"] == "PATCH" else JSON, "If-Match": "\"1\"",
                       "Content-Length": str(r["body_max_bytes"] + 1)}
            a = self.c.send(self.c.head(r["method"], path, None, headers), r["method"], path)
            self.refused(name, a, 413, "body_too_large")

    def test_a_body_in_pieces_is_counted(self):
        """Chunked: no length tells; what is over the limit is refused as it comes."""
        for name, r, path, good in self.each():
            if r["body_max_bytes"] > 1 << 20:
                continue
            headers = {"Content-Type": MERGE if r["method"] == "PATCH" else JSON, "If-Match": "\"1\"",
                       "Transfer-Encoding": "chunked", "Connection": "close"}
            piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
            data = self.c.head(r["method"], path, None, headers) + piece * 5 + b"0\r\n\r\n"
            self.refused(name, self.c.send(data, r["method"], path), 413, "body_too_large")

    def test_unknown_members(self):
        for name, r, path, good in self.each():
            a = self.send(r, path, json.dumps(dict(good, nonsense_member=1)))
            self.refused(name, a, 422, "body_invalid", "/nonsense_member", "unknown")
            for member in good if r["path"] != "/v1/settings" else ():
                wrong = dict(good)
                wrong[member + "x"] = wrong.pop(member)
                a = self.send(r, path, json.dumps(wrong))
                e = self.refused(name, a, 422, "body_invalid", f"/{member}x", "unknown")
                self.assertIn(member, e["detail"], (name, a))  # the nearest name

    def test_duplicate_members(self):
        for name, r, path, good in self.each():
            for member, value in good.items():
                text = json.dumps(good)[:-1] + f",{json.dumps(member)}:{json.dumps(value)}" + "}"
                a = self.send(r, path, text)
                self.refused(name, a, 422, "body_invalid", "/" + member, "duplicate")

    def test_duplicates_inside(self):
        w = json.dumps(self.work)
        for text, pointer in ((f'{{"folders":[{{"path":{w}}},{{"path":{w},"mode":"rw","path":{w}}}]}}', "/folders/1/path"),
                              (f'{{"folders":[{{"path":{w}}}],"env":{{"a/b":"[{{,","x":"1","a\\u002fb":"2"}}}}',
                               "/env/a~1b"),
                              ('{"env":{},"folders":[],"env":{}}', "/env")):
            p = self.c.problem(422, "body_invalid", "POST", "/v1/sessions", text, {"Content-Type": JSON})
            self.assertEqual([(e["pointer"], e["code"]) for e in p["errors"]], [(pointer, "duplicate")])

    def test_missing_members(self):
        for name, r, path, good in self.each():
            schema = self.schema(r)
            for member in schema.get("required", ()):
                a = self.send(r, path, json.dumps({k: v for k, v in good.items() if k != member}))
                self.refused(name, a, 422, "body_invalid", "/" + member, "missing")

    def schema(self, r):
        op = judge().contract.spec["paths"][r["path"]][r["method"].lower()]
        return judge().contract.resolve(list(op["requestBody"]["content"].values())[0]["schema"])[1]

    def test_wrong_values(self):
        """Each member that the document knows, given what its schema does not allow."""
        n, faults = 0, []
        for name, r, path, good in self.each():
            if r["path"] == "/v1/settings":
                continue  # below
            for member, schema in self.schema(r).get("properties", {}).items():
                for bad in self.wrong(schema):
                    try:
                        n += 1
                        self.one_wrong(name, r, path, good, member, bad)
                    except AssertionError as e:
                        faults.append(f"{name} {member}={str(bad)[:40]!r}: {str(e)[:400]}")
        self.assertEqual(faults, [])
        self.assertGreater(n, 500)

    def one_wrong(self, name, r, path, good, member, bad):
        a = self.send(r, path, json.dumps(dict(good, **{member: bad})))
        # No NUL in any string, no integer that 64 bits do not hold.
        if isinstance(bad, str) and "\0" in bad or isinstance(bad, int) and bad >= 2 ** 63:
            return self.refused(name, a, 400, "json_invalid")
        self.assertEqual(a.status, 422, a)
        self.assertIn(a.json["code"], ("body_invalid", "site_invalid", "path_invalid"))
        where = [e["pointer"] for e in a.json.get("errors", ())]
        self.assertTrue([w for w in where if w == "/" + member or w.startswith(f"/{member}/")], a)

    def wrong(self, schema):
        _, schema = judge().contract.resolve(schema)
        for bad in (None, True, 7, -1, 1.5, "", "x", "\0", "a\0b", [], {}, [7], [None], {"x": 1}, 2 ** 53 + 1, 2 ** 63,
                    10 ** 30, "x" * 5000, [[]]):
            if judge().contract.faults(schema, bad):
                yield bad

    def test_numbers_and_their_ranges(self):
        for name, r, path, good in self.each():
            for member, schema in self.schema(r).get("properties", {}).items():
                if "minimum" in schema:
                    a = self.send(r, path, json.dumps(dict(good, **{member: schema["minimum"] - 1})))
                    self.refused((name, member), a, 422, "body_invalid", "/" + member, "range")
                if "maximum" in schema:
                    a = self.send(r, path, json.dumps(dict(good, **{member: schema["maximum"] + 1})))
                    self.refused((name, member), a, 422, "body_invalid", "/" + member, "range")
                    for text in ("1.0", "1e3", "\"1\"", "-0.5"):
                        body = json.dumps(dict(good, **{member: 424242})).replace("424242", text)
                        a = self.send(r, path, body)
                        self.refused((name, member, text), a, 422, "body_invalid", "/" + member, "type")

    def test_settings(self):
        send = lambda body, **kw: self.c.ask("PATCH", "/v1/settings", json.dumps(body),
                                             {"Content-Type": MERGE, "If-Match": self.etag(), **kw})
        for body, pointer, kind in (({"limits": {"command_timeout_ms": -1}}, "/limits/command_timeout_ms", "range"),
                                    ({"limits": {"command_timeout_ms": "5"}}, "/limits/command_timeout_ms", "type"),
                                    ({"limits": {"command_timeout": 5}}, "/limits/command_timeout", "unknown"),
                                    ({"limits": 5}, "/limits", "type"), ({"limit": {}}, "/limit", "unknown"),
                                    ({"sandbox_provider": "docker"}, "/sandbox_provider", None),
                                    ({"sandbox_provider": 5}, "/sandbox_provider", None)):
            self.refused(body, send(body), 422, "body_invalid", pointer, kind)
        self.assertIn("limits.command_timeout_ms", str(send({"limits": {"command_timeout": 5}}).json["errors"]))
        a = send({"sandbox_network_hosts": ["x.test"]})
        self.assertEqual((a.status, a.json["code"]), (422, "list_setting"))
        a = self.c.ask("PATCH", "/v1/settings", "{}", {"Content-Type": MERGE})
        self.assertEqual((a.status, a.json["code"]), (428, "if_match_required"))
        for tag in ("\"0\"", "7", "*", "W/" + self.etag(), self.etag() + ", \"2\"", ""):
            a = send({"limits": {"command_timeout_ms": 5}}, **{"If-Match": tag})
            self.assertEqual((a.status, a.json["code"]), (412, "rev_mismatch"), tag)
            self.assertEqual(a.json["current"], self.etag())

    def test_bounds_of_settings_are_those_of_the_document(self):
        parts = self.c.call("GET", "/v1/openapi.json")["components"]["schemas"]["settings_patch"]["properties"]
        n = 0
        for part in ("server", "limits", "retention"):
            for name, schema in parts[part]["properties"].items():
                least, most = schema["minimum"], schema["maximum"]
                for value, status in ((least - 1, 422), (least, 200), (most, 200), (most + 1, 422)):
                    a = self.c.ask("PATCH", "/v1/settings?dry_run=1", json.dumps({part: {name: value}}),
                                   {"Content-Type": MERGE, "If-Match": self.etag()})
                    self.assertEqual(a.status, status, (part, name, value, a))
                    n += 1
        self.assertGreaterEqual(n, 4 * 10)

    def etag(self):
        return self.c.ask("GET", "/v1/settings").etag

    def test_inside_of_members(self):
        """Pointers of what lies deeper."""
        at = f"/v1/sessions/{self.s['id']}"
        w = self.work
        folder = {"folders": [{"path": w}]}
        for path, body, pointer, kind in (
                ("/v1/sessions", {"folders": [{"path": w, "mod": "rw"}]}, "/folders/0/mod", "unknown"),
                ("/v1/sessions", {"folders": [{"path": w}, {}]}, "/folders/1/path", "missing"),
                ("/v1/sessions", {"folders": [{"path": w}, 7]}, "/folders/1", "type"),
                ("/v1/sessions", {"folders": [{"path": w, "mode": "RW"}]}, "/folders/0/mode", None),
                ("/v1/sessions", {"folders": [{"path": w}] * 33}, "/folders", "range"),
                ("/v1/sessions", {"folders": []}, "/folders", "range"),
                ("/v1/sessions", {**folder, "env": {"A": 1}}, "/env/A", "type"),
                ("/v1/sessions", {**folder, "env": {"A=B": "1"}}, "/env/A=B", "format"),
                ("/v1/sessions", {**folder, "env": {"": "1"}}, "/env/", "format"),
                ("/v1/sessions", {**folder, "env": {"a/b~c": 5}}, "/env/a~1b~0c", "type"),
                ("/v1/sessions", {**folder, "sites": [{"host": "x.test", "prt": 1}]}, "/sites/0/prt", "unknown"),
                ("/v1/sessions", {**folder, "sites": [{"host": "x.test", "port": 0}]}, "/sites/0/port", "range"),
                ("/v1/sessions", {**folder, "agent": {"nam": "x"}}, "/agent/nam", "unknown"),
                ("/v1/sessions", {**folder, "file_roots": [w, 7]}, "/file_roots/1", "type"),
                (at + "/commands", {"argv": []}, "/argv", None),
                (at + "/commands", {"argv": ["a", 7]}, "/argv/1", "type"),
                (at + "/commands", {}, "/argv", "missing"),
                (at + "/commands", {"argv": ["true"], "shell": "true"}, "/shell", "conflict"),
                (at + "/commands", {"argv": ["true"], "env": {"A": 1}}, "/env/A", "type"),
                (at + "/commands", {"argv": ["true"], "origin": {"kind": "me"}}, "/origin/kind", None),
                (at + "/commands", {"argv": ["true"], "tty": {"cols": 80, "rows": 24}}, "/tty", None),
                (at + "/commands", {"argv": ["true"], "keep_state": True}, "/keep_state", None),
                (at + "/commands", {"argv": ["true"], "tier": "airlock"}, "/tier", None),
                (at + "/commands", {"argv": ["true"], "max_output_bytes": 65535}, "/max_output_bytes", "range")):
            a = self.c.ask("POST", path, body)
            self.assertEqual(a.status, 422, (body, a))
            errors = {e["pointer"]: e["code"] for e in a.json.get("errors", ())}
            self.assertIn(pointer, errors, (body, a))
            if kind:
                self.assertEqual(errors[pointer], kind, (body, a))
        a = self.c.ask("POST", "/v1/sessions", {"folder": [], "tyer": "walled", "wait_ms": -1})
        self.assertEqual({e["pointer"]: e["code"] for e in a.json["errors"]},  # all of them at once
                         {"/folder": "unknown", "/tyer": "unknown", "/wait_ms": "range", "/folders": "missing"})

    def test_queries(self):
        at = f"/v1/sessions/{self.s['id']}"
        for target, pointer in (("/v1/sessions?limt=3", "/limt"), ("/v1/sessions?limit=0", "/limit"),
                                ("/v1/sessions?limit=501", "/limit"), ("/v1/sessions?limit=x", "/limit"),
                                ("/v1/sessions?limit=1&limit=2", "/limit"), ("/v1/sessions?limit=", "/limit"),
                                ("/v1/sessions?limit=+1", "/limit"), ("/v1/sessions?limit=1.0", "/limit"),
                                ("/v1/sessions?state=up", "/state"), ("/v1/sessions?q=%ff", "/q"),
                                ("/v1/sessions?q=%00", "/q"), ("/v1/sessions?q=%", "/q"), ("/v1/health?x=1", "/x"),
                                (at + "?x", "/x"), (at + "/files", "/path"), (at + "/files?path=", "/path"),
                                (at + "/files?path=/&recursive=1", "/recursive"),
                                (f"{at}/commands/{self.cmd['id']}?wait_ms=60001", "/wait_ms"),
                                (f"{at}/commands/{self.cmd['id']}/output?follow=2", "/follow"),
                                (f"{at}/commands/{self.cmd['id']}/output?stream=std", "/stream"),
                                (f"{at}/commands/{self.cmd['id']}/output?after=-1", "/after"),
                                (f"{at}/commands/{self.cmd['id']}/output?max_bytes=0", "/max_bytes"),
                                ("/v1/audit?outcome=no", "/outcome"), ("/v1/audit?since=yesterday", "/since"),
                                ("/v1/policy?tier=wall", "/tier"), ("/v1/policy?render=lisp", "/render")):
            p = self.c.problem(422, "query_invalid", "GET", target)
            self.assertIn(pointer, [e["pointer"] for e in p["errors"]], (target, p))
        p = self.c.problem(422, "query_invalid", "GET", "/v1/sessions?" + "&".join(f"a{i}=1" for i in range(40)))

    def test_a_body_where_none_is_taken(self):
        for method, path in (("GET", "/v1/sessions"), ("DELETE", f"/v1/sessions/{self.s['id']}"), ("GET", "/v1/health")):
            self.c.problem(413, "body_too_large", method, path, b"{}", {"Content-Type": JSON})

    def test_ids(self):
        for id in ("ses_" + ULID, "ses_x", "x", "..", "ses_" + "a" * 5000, "%00", "cmd_" + ULID, self.cmd["id"],
                   self.s["id"].lower(), self.s["id"] + "x", "ses_../" + self.s["id"], "*", "%2e%2e%2f" + self.s["id"]):
            for path in ("", "/commands", "/proof"):
                self.c.problem(404, "not_found", "GET", f"/v1/sessions/{id}{path}")
        for id in (self.s["id"], "cmd_" + ULID, "..", "../x", "cmd_" + "0" * 26, "x/../y"):
            self.c.problem(404, "not_found", "GET", f"/v1/sessions/{self.s['id']}/commands/{id}/output")
            self.c.problem(404, "not_found", "GET", f"/v1/sites/{id}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
