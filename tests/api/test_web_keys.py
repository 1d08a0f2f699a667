"""The keys of search providers: they come in, and no answer, record, log or argument ever has one."""
import glob
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest

KEY, SECOND = "BSA-qz81-wwe7Kx3", "BSA-second-qz82-4410"
PATH = "/v1/web/providers/"


class Keys(ApiTest):
    def providers(self, who=None):
        return {p["id"]: (p["key_set"], p["site_listed"]) for p in (who or self.c).call("GET", PATH[:-1])["items"]}

    def nowhere(self, key, also_files):
        """KEY is in no answer, record, log or argument; in the files of the state folder only while it is kept."""
        for path in ("/v1/web/providers", "/v1/settings", "/v1/audit?limit=500", "/v1/status", "/v1/sites?limit=500"):
            self.assertNotIn(key.encode(), self.c.ask("GET", path).body, path)
        self.assertNotIn(key, self.d.log())
        for pid in [self.d.pid, *self.d.tree()]:
            for what in ("cmdline", "environ"):
                with open(f"/proc/{pid}/{what}", "rb") as f:
                    self.assertNotIn(key.encode(), f.read())
        found = []
        for path in glob.glob(self.d.state + "/**", recursive=True):
            if os.path.isfile(path):
                with open(path, "rb") as f:
                    found += [os.path.basename(path)] if key.encode() in f.read() else []
        if also_files:
            self.assertEqual(found, [])
        else:
            self.assertLessEqual(set(found), {"cordon.db", "cordon.db-wal"})
        return found

    def test_a_key_comes_in_and_stays_in(self):
        self.assertEqual(self.providers(), {"brave": (False, False), "tavily": (False, False), "duckduckgo": (False, False)})
        got = self.c.call("PUT", PATH + "brave", {"key": KEY})
        self.assertEqual(got, {"id": "brave", "key_set": True, "site_listed": False})
        self.assertTrue(self.nowhere(KEY, False))  # the control: it is kept
        self.assertEqual(oct(os.stat(self.d.state + "/cordon.db").st_mode & 0o777), "0o600")
        self.c.call("PUT", PATH + "brave", {"key": SECOND})
        self.d.stop()
        self.d.start()
        self.assertEqual(self.providers()["brave"], (True, False))
        self.assertTrue(self.nowhere(SECOND, False))
        self.nowhere(KEY, True)  # replaced, and gone from the files too
        self.c.call("DELETE", PATH + "brave", want=204)
        self.assertEqual(self.providers()["brave"], (False, False))
        self.c.problem(404, "not_found", "DELETE", PATH + "brave")
        self.d.stop()
        self.d.start()
        self.nowhere(SECOND, True)
        told = [(r["action"], r["target"], r["actor"]["kind"]) for r in self.audit() if r["action"].startswith("credential")]
        self.assertEqual(told, [("credential.removed", "web/brave", "owner"), *[("credential.added", "web/brave", "owner")] * 2])

    def test_what_is_no_key(self):
        for key in ("", "a b", "a\nX-Evil: 1", "\u00e4", "k" * 513, 7, None):
            self.c.problem(422, "body_invalid", "PUT", PATH + "tavily", {"key": key})
        p = self.c.problem(422, "body_invalid", "PUT", PATH + "tavily", {})
        self.assertEqual([(e["pointer"], e["code"]) for e in p["errors"]], [("/key", "missing")])
        p = self.c.problem(422, "body_invalid", "PUT", PATH + "duckduckgo", {"key": "x"})
        self.assertEqual([(e["pointer"], e["code"]) for e in p["errors"]], [("/key", "conflict")])
        self.assertEqual(self.c.call("PUT", PATH + "duckduckgo", {})["key_set"], False)
        for method, body in (("PUT", {"key": "x"}), ("DELETE", None)):
            self.c.problem(404, "not_found", method, PATH + "google", body)
        self.assertEqual(self.providers()["tavily"], (False, False))

    def test_who_may(self):
        s = self.session()
        agent = self.agent(s, "read", "exec", "ask:create")
        for who in (agent, self.holder("read", "settings", "admin")):
            self.assertEqual(who.ask("PUT", PATH + "tavily", {"key": KEY}).status, 403)
            self.assertEqual(who.ask("DELETE", PATH + "tavily").status, 403)
        self.assertEqual(agent.ask("GET", PATH[:-1]).status, 403)
        self.assertEqual(self.holder("credentials").call("PUT", PATH + "tavily", {"key": KEY})["key_set"], True)
        self.assertEqual(self.providers(self.holder("read"))["tavily"], (True, False))
        self.c.call("DELETE", PATH + "tavily", want=204)

    def test_a_site_that_is_listed(self):
        site = self.c.call("POST", "/v1/sites", {"host": "api.tavily.com", "port": 443}, 201) \
            if not self.c.items("/v1/sites?q=api.tavily.com") else self.c.items("/v1/sites?q=api.tavily.com")[0]
        self.c.patch(f"/v1/sites/{site['id']}", {"enabled": True})
        self.assertEqual(self.providers()["tavily"], (False, True))
        self.c.patch(f"/v1/sites/{site['id']}", {"enabled": False})
        self.assertEqual(self.providers()["tavily"], (False, False))

    def test_the_setting(self):
        for value in ("brave", "tavily", "duckduckgo", None):
            etag = self.c.ask("GET", "/v1/settings").etag
            got = self.c.call("PATCH", "/v1/settings", b'{"web":{"search_provider":%s}}' % (b'"%s"' % value.encode() if value else b"null"),
                              200, {"Content-Type": "application/merge-patch+json", "If-Match": etag})
            self.assertEqual(got["values"]["web"]["search_provider"], value)


if __name__ == "__main__":
    unittest.main(verbosity=2)
