"""cordon-egress and what it is asked for: spellings, names, addresses.

Against the lab: "reached" is judged at the far server's log, "looked up" at the far name server's.
"""
import os
import socket
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402
from cordon_test.egress import (ADDRESS_CLASS, ALLOW, DENY, OPENED, OWN_PORT, RESOLVE_FAILED, Egress, read_all, status)  # noqa: E402

lab.enter()


class Hosts(lab.Case):
    """Cases 55, 56, 58."""

    BAD = ["no.test\0.ok.test", "no.test%00.ok.test", "no.test .ok.test", "no.test\r\n.ok.test",
           "no.test#.ok.test", "no.test?.ok.test", "no.test/.ok.test", "ok.test@no.test",
           "no.test\\.ok.test", "no\ttest", "no\x7ftest", "n\xf6.test", "", ".", ".ok.test",
           "*.ok.test", "a" * 64 + ".test", "[ok.test]", "0x7f.1", "127.1", "2130706433",
           "0177.0.0.1", "1.2.3.4.5", "[::1", "::1", "[fe80::1%lo]", "[::ffff:1.2.3.4.5]"]
    PORTS = ["", ":", ":0", ":0443", ":+443", ":443 ", ":65979", ":-1", ":0x1bb", ":443:443"]

    def test_bad_spellings(self):
        with Egress(decide=lambda *_: (ALLOW, 1)) as eg:
            for host in self.BAD:
                for request in (f"CONNECT {host}:443 HTTP/1.1\r\nHost: x\r\n\r\n",
                                f"GET http://{host}:8080/ HTTP/1.1\r\nHost: x\r\n\r\n"):
                    if host[7:8] in ("/", "?") and request.startswith("GET"):
                        continue  # a path or a query, rightly
                    answer = eg.ask(request)
                    self.assertEqual(status(answer), 400, (host, request))
            for port in self.PORTS:
                self.assertEqual(status(eg.ask(f"CONNECT ok.test{port} HTTP/1.1\r\n\r\n")), 400,
                                 port)
            for _, host, _ in eg.refused:
                self.assertTrue(host.isprintable() or host == "", host)
            self.assertEqual(eg.checks, [])
        self.nothing_happened()

    def test_labels(self):
        with Egress(allow={"ok.test:443"}) as eg:
            for host in ("notok.test", "ok.test.no.test", "a.b.ok.test", "ok.testx", "-ok.test",
                         "ok.tes"):
                self.assertEqual(status(eg.tunnel(host + ":443")), 403, host)
            for host in ("ok.test", "OK.TEST", "ok.test."):
                eg.tunnel(host + ":443").close()
            self.assertEqual({c[3] for c in eg.checks[-3:]}, {"ok.test"})
        self.assertLessEqual(set(self.asked()), {"ok.test"})

    def test_connect_with_another_host_field(self):
        with Egress(allow={"ok.test:443"}) as eg:
            answer = eg.ask("CONNECT no.test:443 HTTP/1.1\r\nHost: ok.test:443\r\n\r\n")
            self.assertEqual(status(answer), 403)
            with eg.connect() as s:
                s.sendall(b"CONNECT ok.test:443 HTTP/1.1\r\nHost: no.test:443\r\n\r\n")
                self.assertTrue(s.recv(4096).startswith(b"HTTP/1.1 200 "))
        self.assertEqual(self.reached(at=lab.NO4), [])

    def test_literals(self):
        with Egress(allow={"203.0.113.10:443", "[2001:db8::10]:443"}) as eg:
            for target, at in (("203.0.113.10:443", "203.0.113.10"),
                               ("[2001:DB8:0::10]:443", "2001:db8::10")):
                eg.tunnel(target).close()
                self.assertEqual(len(self.reached(at=at)), 1)
        self.assertEqual(self.asked(), [])


class Addresses(lab.Case):
    """Cases 59, 61, 64: whatever the list says by name."""

    REFUSED = ["lo.test", "lo6.test", "mapped.test", "compat.test", "nat64.test",
               "sixtofour.test", "meta.test", "meta6.test", "zero.test", "zero6.test", "cgn.test",
               "ll.test", "ll6.test", "multi.test", "bcast.test", "synth.test", "own.test",
               "own6.test", "localhost", "127.0.0.1", "[::1]", "0.0.0.0", "[::]", "203.0.113.1",
               "[2001:db8::1]", "[::ffff:127.0.0.1]", "[::ffff:203.0.113.1]", "169.254.169.254",
               "[fe80::1]", "[64:ff9b::cb00:7101]", "[2002:cb00:7101::1]"]

    def setUp(self):
        super().setUp()
        self.got = []
        self.listeners = []
        for family, at in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            s = socket.socket(family)
            if family == socket.AF_INET6:
                s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            s.bind((at, self.listeners[0].getsockname()[1] if self.listeners else 0))
            s.listen()
            self.listeners.append(s)
            threading.Thread(target=self.accepts, args=(s,), daemon=True).start()
        self.port = self.listeners[0].getsockname()[1]

    def accepts(self, s):
        while True:
            try:
                self.got.append(s.accept()[1])
            except OSError:
                return

    def tearDown(self):
        for s in self.listeners:
            s.shutdown(socket.SHUT_RDWR)
            s.close()
        self.assertEqual(self.got, [], "a listener of the host was reached")

    def test_refused_classes(self):
        for flags in (0, 1):  # allow_private opens none of these
            with Egress(decide=lambda *_: (ALLOW, flags)) as eg:
                for host in self.REFUSED:
                    answer = eg.tunnel(f"{host}:{self.port}")
                    self.assertEqual(status(answer), 403, host)
                    self.assertIn(b" address ", answer)
                    answer = eg.get(f"http://{host}:{self.port}/")
                    self.assertEqual(status(answer), 403, host)
                eg.wait(lambda: eg.owed() == 0, "each is told")
                self.assertEqual({r[2] for r in eg.results}, {ADDRESS_CLASS})
                self.assertEqual(eg.closed, [])
        self.assertEqual(lab.lines(self.mark), [])

    def test_private_needs_its_flag(self):
        for target in ("priv.test:443", "reg.corp:443", "ula.test:443", "10.9.0.10:443",
                       "[fd12::10]:443"):
            with Egress(allow={target}) as eg:
                answer = eg.tunnel(target)
                self.assertEqual(status(answer), 403)
                self.assertIn(b"a private address", answer)
                self.assertIn(b"allow_private", answer)
                eg.wait(lambda: eg.owed() == 0, "each is told")
                self.assertEqual(eg.results[0][2], ADDRESS_CLASS)
            self.assertEqual(self.reached(), [])
            with Egress(private={target}) as eg:
                eg.tunnel(target).close()
                eg.wait(lambda: eg.results, "told")
                self.assertEqual(eg.results[0][2], OPENED)
            self.assertEqual(len(self.reached()), 1)
            self.mark = lab.mark()

    def test_rebinding(self):
        with Egress(decide=lambda *_: (ALLOW, 1)) as eg:
            codes = [status(a) if isinstance(a, bytes) else 200
                     for a in (eg.tunnel(f"reb.test:{8080}") for _ in range(6))]
            self.assertEqual(sorted(codes), [200] * 3 + [403] * 3)
            s = eg.tunnel("mix.test:443")  # [127.0.0.1, ordinary]: only the ordinary one
            s.close()
        self.assertEqual({line["at"] for line in self.reached()}, {"203.0.113.10"})

    def test_own_ports(self):
        with Egress(decide=lambda *_: (ALLOW, 1), own_ports=[self.port, 8080]) as eg:
            for target in (f"127.0.0.1:{self.port}", f"[::1]:{self.port}", "ok.test:8080",
                           f"localhost:{self.port}"):
                answer = eg.tunnel(target)
                self.assertEqual(status(answer), 403)
                self.assertIn(b"Cordon's own", answer)
            eg.wait(lambda: eg.owed() == 0, "each is told")
            self.assertEqual({r[2] for r in eg.results}, {OWN_PORT})
        self.nothing_happened()


class Names(lab.Case):
    """Case 65: nothing is looked up before the answer is allow, and only that very name."""

    def test_refused_names_are_not_looked_up(self):
        with Egress(decide=lambda host, port: None) as eg:
            s = eg.connect()
            s.sendall(b"CONNECT leak-3.ok.test:443 HTTP/1.1\r\nHost: x\r\n\r\n")
            eg.wait(lambda: eg.checks, "the check")
            self.nothing_happened()  # pending
            eg.verdict(eg.checks[0][0], eg.checks[0][1], DENY)
            self.assertEqual(status(read_all(s)), 403)
            s.close()
        self.nothing_happened()

    def test_no_search_domain_no_alias(self):
        with Egress(decide=lambda *_: (ALLOW, 0)) as eg:
            for host in ("ghost.test", "ghost", "only"):
                answer = eg.tunnel(host + ":443")
                self.assertEqual(status(answer), 502, host)
                self.assertIn(b"no such name", answer)
            eg.wait(lambda: eg.owed() == 0, "each is told")
            self.assertEqual({r[2] for r in eg.results}, {RESOLVE_FAILED})
        self.assertLessEqual(set(self.asked()), {"ghost.test", "ghost", "only"})
        self.assertEqual(self.reached(), [])

    def test_name_server_trouble(self):
        with Egress(decide=lambda *_: (ALLOW, 0), dial_ms=1500) as eg:
            self.assertEqual(status(eg.tunnel("servfail.test:443")), 502)
            self.assertEqual(status(eg.tunnel("silent.test:443")), 504)
            eg.tunnel("many.test:443").close()  # the answer comes by TCP


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
