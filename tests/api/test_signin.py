"""Sign-in of a browser by code: once, late, by two at once, too often wrong."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest


class SignIn(ApiTest):
    def setUp(self):
        self.page = self.tcp.other(token=None)

    def code(self):
        return self.c.call("POST", "/v1/auth/codes", {}, 201)["code"]

    def test_a_code_counts_once(self):
        self.tcp.problem(403, "socket_only", "POST", "/v1/auth/codes", {})
        code = self.code()
        got = self.page.call("POST", "/v1/auth/exchange", {"code": code})
        me = self.page.other(token=got["token"])
        self.assertEqual(me.call("GET", "/v1/auth/self")["kind"], "browser")
        self.assertEqual(sorted(got["scopes"]), sorted(me.call("GET", "/v1/auth/self")["scopes"]))
        self.page.problem(410, "code_used", "POST", "/v1/auth/exchange", {"code": code})
        self.assertEqual(self.audit("action=auth.code_reused")[0]["outcome"], "refused")
        me.call("GET", "/v1/sessions")  # a second use takes nothing from the first
        me.call("DELETE", "/v1/auth/self", want=204)
        me.problem(401, "token_invalid", "GET", "/v1/auth/self")


if __name__ == "__main__":
    unittest.main(verbosity=2)
