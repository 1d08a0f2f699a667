"""The rules for all routes, on real ones: first answers again, entity tags, null in a merge patch, dry
runs, HEAD, OPTIONS, Allow, names that are nearly right."""
import base64
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest


class Rules(ApiTest):
    def test_the_first_answer_again_is_whole(self):
        key = {"Idempotency-Key": "one"}
        first = self.c.ask("POST", "/v1/sites", {"host": "again.test"}, key)
        again = self.c.ask("POST", "/v1/sites", {"host": "again.test"}, key)
        self.assertEqual((first.status, first.headers["ETag"]), (201, '"1"'))
        self.assertEqual(first.headers["Location"], "/v1/sites/" + first.json["id"])
        for what in ("ETag", "Location", "Content-Type"):
            self.assertEqual(again.headers[what], first.headers[what])
        self.assertEqual((again.status, again.json), (201, first.json))
        self.c.problem(409, "key_reused", "POST", "/v1/sites", {"host": "other.test"}, key)
        # Another caller's keys are its own, and so are another path's.
        other = self.holder("settings", "read").ask("POST", "/v1/sites", {"host": "again2.test"}, key)
        self.assertEqual(other.status, 201)
        self.assertEqual(len([s for s in self.c.items("/v1/sites?q=again")]), 2)

    def test_a_key_that_is_none(self):
        for key in ("", "k" * 129, "a b", "\xe4"):
            p = self.c.problem(422, "query_invalid", "POST", "/v1/sites", {"host": "never.test"}, {"Idempotency-Key": key})
            self.assertEqual(p["errors"][0]["pointer"], "/Idempotency-Key")
        self.assertEqual(self.c.items("/v1/sites?q=never"), [])
        self.assertEqual(self.c.ask("POST", "/v1/sites", {"host": "k128.test"}, {"Idempotency-Key": "k" * 128}).status, 201)

    def test_null_is_the_default_again(self):
        s = self.c.call("POST", "/v1/sites", {"host": "null.test", "enabled": False, "note": "n"}, 201)
        got = self.c.patch(f"/v1/sites/{s['id']}", {"enabled": None, "note": None, "allow_private": None})
        self.assertEqual((got["enabled"], got["note"], got["allow_private"], got["rev"]), (True, None, False, 2))
        s = self.session(name="mine", approvals="auto")
        got = self.c.patch(f"/v1/sessions/{s['id']}", {"name": None, "approvals": None})
        self.assertEqual((got["name"], got["approvals"]), (os.path.basename(self.work), "ask"))

    def test_entity_tags(self):
        s = self.c.call("POST", "/v1/sites", {"host": "etag.test"}, 201)
        path, merge = f"/v1/sites/{s['id']}", {"Content-Type": "application/merge-patch+json"}
        self.c.problem(428, "if_match_required", "PATCH", path, b'{"note":"x"}', merge)
        for stale in ('"2"', 'W/"1"', "1", "*", '"1", "2"'):
            p = self.c.problem(412, "rev_mismatch", "PATCH", path, b'{"note":"x"}', {**merge, "If-Match": stale})
            self.assertEqual(p["current"], '"1"')
        self.c.problem(415, "content_type", "PATCH", path, {"note": "x"}, {"If-Match": '"1"'})
        got = self.c.ask("PATCH", path, b'{"note":"x"}', {**merge, "If-Match": '"1"'})
        self.assertEqual((got.status, got.etag, got.json["rev"]), (200, '"2"', 2))

    def test_dry_runs_change_nothing(self):
        s = self.session()
        before = self.c.call("GET", "/v1/settings")
        etag = self.c.ask("GET", "/v1/settings").etag
        got = self.c.call("PATCH", "/v1/settings?dry_run=1&confirm=open", b'{"sandbox_network_profile":"open"}', 200,
                          {"Content-Type": "application/merge-patch+json", "If-Match": etag})
        self.assertEqual((got["changed"], got["sessions"]), ({"sandbox_network_profile": "open"}, [s["id"]]))
        self.assertEqual(self.c.call("GET", "/v1/settings"), before)
        got = self.c.call("POST", "/v1/sites/batch?dry_run=1", {"add": [{"host": "dry.test"}]})
        self.assertEqual((got["dry_run"], got["sessions"]), (True, [s["id"]]))
        self.assertEqual(self.c.items("/v1/sites?q=dry.test"), [])
        got = self.c.call("POST", "/v1/sites/batch", {"add": [{"host": "wet.test"}]})
        self.assertNotIn("sessions", got)
        self.assertEqual(len(self.c.items("/v1/sites?q=wet.test")), 1)

    def test_a_catalogue_site_stays(self):
        s = self.c.call("GET", "/v1/sites?source=catalogue&limit=1")["items"][0]
        a = self.c.ask("DELETE", f"/v1/sites/{s['id']}")
        self.assertEqual((a.status, a.json["code"]), (405, "method_not_allowed"))
        self.assertEqual(a.headers["Allow"], "GET, HEAD, PATCH, OPTIONS")
        self.assertEqual(self.c.call("GET", f"/v1/sites/{s['id']}"), s)

    def test_a_loopback_site_of_the_machine(self):
        for host in ("localhost", "127.0.0.1", "[::1]"):
            p = self.c.problem(422, "site_invalid", "POST", "/v1/sites", {"host": host})
            self.assertNotIn("suggestion", p)

    def test_head_options_allow(self):
        for path in ("/v1/health", "/v1/sessions", "/v1/nothing", "/ui/", "/v1/openapi.json"):
            get, head = self.c.ask("GET", path), self.c.ask("HEAD", path)
            self.assertEqual((head.status, head.body), (get.status, b""))
            for what in ("Content-Length", "Content-Type", "Cache-Control"):
                same = what != "Content-Length" or get.status == 200
                if same:
                    self.assertEqual(head.headers[what], get.headers[what], (path, what))
        for who in (self.c, self.tcp.other(token=None)):
            a = who.ask("OPTIONS", "/v1/sessions")
            self.assertEqual((a.status, a.headers["Allow"], a.body), (204, "GET, HEAD, POST, OPTIONS", b""))
        a = self.c.ask("PUT", "/v1/sites/sit_x")
        self.assertEqual((a.status, a.headers["Allow"]), (405, "GET, HEAD, PATCH, DELETE, OPTIONS"))
        self.c.problem(404, "not_found", "OPTIONS", "/v1/nothing")
        for path in ("/v2", "/v2/sessions", "/v0/x", "/v11/x"):
            self.c.problem(404, "version_unknown", "GET", path)

    def test_nearly_right_names(self):
        p = self.c.problem(422, "query_invalid", "GET", "/v1/sessions?limti=3")
        self.assertEqual((p["errors"][0]["pointer"], p["errors"][0]["code"]), ("/limti", "unknown"))
        self.assertIn('"limit"', p["errors"][0]["detail"])
        p = self.c.problem(422, "body_invalid", "POST", "/v1/sites", {"hots": "a.test"})
        self.assertEqual({(e["pointer"], e["code"]) for e in p["errors"]}, {("/hots", "unknown"), ("/host", "missing")})
        self.assertIn('"host"', [e for e in p["errors"] if e["code"] == "unknown"][0]["detail"])

    def test_removing_a_file_says_its_level(self):
        s = self.session()
        with open(self.work + "/gone", "w") as f:
            f.write("x")
        a = self.c.ask("DELETE", f"/v1/sessions/{s['id']}/files?path={self.work}/gone")
        self.assertEqual(a.status, 204)
        self.assertIn('"level":"files+network"', a.headers["Cordon-Enforcement"])
        self.assertFalse(os.path.exists(self.work + "/gone"))

    def test_names_that_are_no_text(self):
        s = self.session()
        with open(os.fsencode(self.work) + b"/\xff\xfe.txt", "wb") as f:
            f.write(b"x")
        got = self.c.call("GET", f"/v1/sessions/{s['id']}/files?path={self.work}")
        (one,) = [i for i in got["items"] if i["path"] is None]
        self.assertEqual(base64.b64decode(one["path_b64"]), os.fsencode(self.work) + b"/\xff\xfe.txt")


if __name__ == "__main__":
    unittest.main(verbosity=2)
