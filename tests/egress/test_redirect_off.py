"""A machine that does not let us redirect: the session says so, the proxy variables alone remain, and
all else leads nowhere. And one whose redirect is not what it should be: no session.

The programs with removable layers (base/stop.h): CORDON_TEST_WITHOUT.
"""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402

lab.enter()
from cordon_test.api import ApiTest  # noqa: E402
from cordon_test.cli import BIN  # noqa: E402
from cordon_test.daemon import Daemon  # noqa: E402

# What becomes of a connection, a datagram and a name, by a program that knows no proxy.
NAKED = """/usr/bin/python3 -c '
import socket
def errno(call, *args):
    try:
        call(*args)
        return "worked"
    except OSError as e:
        return type(e).__name__ + " " + str(e.errno)
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    for family, at in ((socket.AF_INET, "203.0.113.10"), (socket.AF_INET6, "2001:db8::10"), (socket.AF_INET, "198.18.1.0")):
        print(errno(socket.socket(family, kind).connect, (at, 80)))
print(errno(socket.getaddrinfo, "v4.test", 80))
'"""


class Off(ApiTest):
    @classmethod
    def setUpClass(cls):
        pass  # a daemon a test

    def daemon(self, layer):
        self.d = Daemon(bin=os.path.join(BIN, "stop"), CORDON_TEST_WITHOUT=layer)
        self.addCleanup(self.d.close)
        self.c, self.work = self.d.client(), self.d.work

    @classmethod
    def tearDownClass(cls):
        pass

    def test_off(self):
        mark = lab.mark()
        self.daemon("redirect")
        s = self.session(sites=[{"host": "v4.test"}])
        said = {w["code"]: w["detail"] for w in s["warnings"]}
        self.assertEqual(list(said), ["redirect_off"])
        self.assertIn("only programs that use the proxy variables", said["redirect_off"])
        self.assertIn("redirect_off", [w["code"] for w in self.c.call("GET", f"/v1/sessions/{s['id']}")["warnings"]])
        out = self.run_in(s, "curl -sS -m 20 http://v4.test/hello; curl -s -m 20 http://no.test/ | head -1")
        self.assertEqual(out["text"]["stdout"], "hello from 203.0.113.10\nBlocked by Cordon: no.test:80\n")
        self.assertEqual(self.run_in(s, NAKED)["text"]["stdout"], "OSError 101\n" * 6 + "gaierror -3\n")
        self.assertEqual(self.run_in(s, "curl -sS --noproxy '*' -m 20 http://v4.test/hello")["result"]["exit_code"], 6)
        lab.mark()
        self.assertEqual(len(lab.reached(mark)), 1)
        none = self.session(network="none")
        self.assertEqual(none["warnings"], [])
        self.assertEqual(self.run_in(none, NAKED)["text"]["stdout"], "OSError 101\n" * 6 + "gaierror -3\n")

    def test_routes_without_the_rule_are_no_wall(self):
        self.daemon("redirect-rule")
        a = self.c.ask("POST", "/v1/sessions", {"folders": [{"path": self.work}], "require_wall": True})
        self.assertEqual((a.status, a.json["code"]), (503, "session_refused"))
        self.assertEqual({c["id"] for c in a.json["checks"] if not c["ok"]},
                         {"direct_refused", "egress_answers", "unlisted_refused"})


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
