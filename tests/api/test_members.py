"""The rarer members of bodies, queries and answers, each with its effect."""
import base64
import os
import sqlite3
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest

OCTETS = {"Content-Type": "application/octet-stream"}


class Members(ApiTest):
    def test_settings_one_by_one(self):
        """Each that this version has can be set to what it is, and back to its default."""
        got = self.c.call("GET", "/v1/settings")
        lists = {k for k, m in got["meta"].items() if isinstance(m["default"], list)}
        for key, meta in got["meta"].items():
            if key in lists:
                continue
            body = value = meta["default"]
            for part in reversed(key.split(".")):
                body = {part: body}
            new = self.c.patch("/v1/settings?confirm=direct", body)
            self.assertEqual(new["meta"][key]["default"], value, key)
            null = None
            for part in reversed(key.split(".")):
                null = {part: null}
            self.assertEqual(self.c.patch("/v1/settings?confirm=direct", null)["meta"][key]["source"], "default", key)
        self.assertEqual(self.c.call("GET", "/v1/settings")["values"], got["values"])

    def test_of_a_command(self):
        s = self.session()
        c = self.run_in(s, f"umask; touch {self.work}/masked", umask=0o27, on_disconnect="keep",
                        origin={"kind": "agent", "agent": "tester 1", "tool_call_id": "call-7"})
        self.assertEqual(c["text"]["stdout"].strip()[-3:], "027")
        self.assertEqual(os.stat(self.work + "/masked").st_mode & 0o777, 0o640)
        self.assertEqual((c["origin"], c["umask"]), ({"kind": "agent", "agent": "tester 1", "tool_call_id": "call-7"}, 0o27))
        user = self.run_in(self.session(network="none"), "true", origin={"kind": "user"})
        self.assertEqual((user["state"], user["origin"]), ("exited", {"kind": "user"}))
        self.assertEqual(self.agent(s).problem(422, "body_invalid", "POST", f"/v1/sessions/{s['id']}/commands",
                                               {"argv": ["true"], "origin": {"kind": "user"}})["errors"][0]["pointer"],
                         "/origin/kind")
        done = self.c.ask("GET", self.at(c) + "/output?follow=1")
        self.assertEqual(done.frames()[-1]["kind"], "end")

    def test_of_a_session(self):
        s = self.session(approvals="auto")
        at = f"/v1/sessions/{s['id']}"
        self.assertEqual(s["approvals"], "auto")
        self.assertEqual(self.c.patch(at + "?confirm=nothing", {"name": "n"})["name"], "n")
        proof = self.c.call("POST", at + "/verify", {"wait_ms": 60000})
        self.assertTrue(proof["checks"])
        site = self.c.call("POST", at + "/sites?confirm=10.9.8.7", {"host": "10.9.8.7", "port": 8123, "allow_private": True}, 201)
        self.assertEqual((site["host"], site["port"], site["allow_private"]), ("10.9.8.7", 8123, True))
        self.assertIn("10.9.8.7", [x["host"] for x in self.c.call("GET", at + "/access")["sites"]])

    def test_of_sites(self):
        one = self.c.call("POST", "/v1/sites?confirm=10.1.2.3", {"host": "10.1.2.3", "allow_private": True, "enabled": False}, 201)
        self.assertEqual((one["allow_private"], one["enabled"]), (True, False))
        at = "/v1/sites/" + one["id"]
        self.assertFalse(self.c.patch(at, {"allow_private": False})["allow_private"])
        p = self.c.problem(409, "confirm_required", "PATCH", at, '{"allow_private":true}',
                           {"Content-Type": "application/merge-patch+json", "If-Match": self.c.ask("GET", at).etag})
        self.assertEqual(p["confirm"], "10.1.2.3")
        self.assertTrue(self.c.patch(at + "?confirm=10.1.2.3", {"allow_private": True})["allow_private"])
        row = self.audit("action=site.changed&target=" + self.audit("action=site.changed")[0]["target"])[0]
        self.assertEqual((row["before"]["allow_private"], row["after"]["allow_private"]), (False, True))
        self.c.call("POST", "/v1/sites/batch?confirm=*", {"add": [{"host": "*"}]})
        [star] = [x for x in self.c.items("/v1/sites?limit=500") if x["host"] == "*"]
        self.c.call("DELETE", "/v1/sites/" + star["id"], want=204)

    def test_pages_and_texts(self):
        self.assertEqual(self.c.ask("GET", "/ui/style.css").kind, "text/css")
        self.assertEqual(self.c.ask("GET", "/ui/app.js").kind, "text/javascript")
        a = self.c.ask("POST", "/v1/policy/preview?render=bwrap", {"folders": [{"path": self.work}]})
        self.assertEqual((a.kind, self.work.encode() in a.body or b"--" in a.body), ("text/plain", True))
        for code in ("not_found", "scope_missing", "nothing"):
            a = self.c.ask("GET", "/v1/problems/" + code)
            self.assertEqual(a.status, 404 if code == "nothing" else 200)

    # case 20
    def test_paths_that_are_no_text(self):
        raw = os.fsencode(self.d.base) + b"/raw-\xff\xfe"
        os.mkdir(raw)
        os.symlink(raw, self.d.base + "/link")
        with open(raw + b"/f-\xfd", "w") as f:
            f.write("needle\n")
        s = self.session(folders=[{"path": self.d.base + "/link"}])
        at = f"/v1/sessions/{s['id']}"
        decode = lambda text: base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        self.assertEqual(self.run_in(s, "cat f-*", cwd=None)["text"]["stdout"], "needle\n")
        hits = self.c.call("POST", at + "/files/search", {"pattern": "needle"})["items"]
        self.assertEqual([decode(h["path_b64"])[-4:] for h in hits], [b"/f-\xfd"])
        found = self.c.call("POST", at + "/files/glob", {"pattern": "*"})["items"]
        self.assertEqual([decode(h["path_b64"])[-4:] for h in found], [b"/f-\xfd"])

    def test_a_row_that_was_changed(self):
        """Verify names the first row of the chain that is not what was written."""
        self.session()
        for i in range(3):
            self.c.call("POST", "/v1/sites", {"host": f"chain{i}.test"}, 201)
        self.assertTrue(self.c.call("GET", "/v1/audit/verify")["ok"])
        rows = self.audit("action=site.added")
        self.d.kill()
        db = sqlite3.connect(self.d.state + "/cordon.db")
        for [name] in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {name}")
        db.execute("UPDATE audit SET target = 'other.test' WHERE seq = ?", (rows[1]["seq"],))
        db.commit()
        db.close()
        self.d.expected = ("audit",)
        self.d.start()
        got = self.c.call("GET", "/v1/audit/verify")
        self.assertEqual((got["ok"], got["broken_at"]), (False, rows[1]["seq"]))

    def test_a_silent_stream_says_that_it_lives(self):
        s = self.session()
        c = self.start(s, "exec sleep 600")
        with self.c.stream("GET", self.at(c) + "/output?follow=1") as out, \
                self.c.stream("GET", "/v1/events?types=toolchain") as events:
            told = [events.line() for _ in range(3)]
            self.assertEqual(out.frame(keepalive=True), {"kind": "keepalive"})
            # A comment, and the place: further on, although nothing of these types happened.
            self.c.call("POST", "/v1/sites", {"host": "meanwhile.test"}, 201)
            again = [events.line() for _ in range(3)]
            self.assertEqual((told[0], again[0]), (b": cordon\n", b": keepalive\n"))
            self.assertEqual((told[1][:4], again[1][:4], told[2], again[2]), (b"id: ", b"id: ", b"\n", b"\n"))
            self.c.call("POST", self.at(c) + "/stop", {"grace_ms": 0}, 202)
            self.assertEqual(out.frame()["kind"], "end")


if __name__ == "__main__":
    unittest.main(verbosity=2)
