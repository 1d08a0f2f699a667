"""cordon-egress as a proxy of plain HTTP: what passes, what is refused, and how.

Against the lab: "reached" is judged at the far server's log, "looked up" at the far name server's.
"""
import os
import random
import socket
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402
from cordon_test.egress import (OPENED, Egress, body, read_all, status)  # noqa: E402

lab.enter()
MIB = 1 << 20


class Plain(lab.Case):
    """HTTP in absolute form (case 53, 58, 77)."""

    def test_every_method_is_judged(self):
        with Egress(allow={"ok.test:8080"}) as eg:
            for method in ("GET", "POST", "HEAD", "OPTIONS", "TRACE", "DELETE", "PUT", "PATCH",
                           "BREW"):
                for port in ("", ":80", ":8080", ":81"):
                    answer = eg.get(f"http://no.test{port}/?a=b", method)
                    self.assertEqual(status(answer), 403, method)
                    self.assertEqual(method == "HEAD", body(answer) == b"")
            self.nothing_happened()
            self.assertEqual(len(eg.checks), 36)

    def test_odd_targets_never_reach_a_check(self):
        targets = ["ftp://no.test/", "https://no.test/", "/", "//no.test/", "no.test", "*",
                   "http:no.test", "http://", "http:///x", "HTTP//no.test", "file:///etc/passwd",
                   "http://no.test:/", "http://a:b@no.test/", "http://no.test/#f"]
        with Egress(allow={"ok.test", "no.test"}) as eg:
            for target in targets:
                self.assertEqual(status(eg.get(target)), 400, target)
            self.assertEqual(eg.checks, [])
            eg.wait(lambda: len(eg.refused) == len(targets), "each is told")
        self.nothing_happened()

    def test_host_is_rebuilt_from_the_uri(self):
        with Egress(allow={"ok.test:8080", "ok.test:80"}) as eg:
            eg.ask("GET http://ok.test:8080/hello HTTP/1.1\r\nHost: no.test:8080\r\n"
                   "Connection: close\r\n\r\n")
            eg.ask("GET http://OK.TEST./hello HTTP/1.1\r\nHost: no.test\r\n"
                   "Connection: close\r\n\r\n")
        self.assertEqual([r["host"] for r in lab.requests(self.mark)], ["ok.test:8080", "ok.test"])
        self.assertEqual(self.reached(at=lab.NO4), [])

    def test_hop_by_hop_and_proxy_fields_stay(self):
        with Egress(allow={"ok.test:8080"}) as eg:
            answer = eg.get("http://ok.test:8080/head", fields=(
                "Proxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\n"
                "TE: trailers\r\nKeep-Alive: 9\r\nX-Kept: yes\r\n"))
        head = body(answer).lower()
        self.assertIn(b"x-kept: yes", head)
        for name in (b"proxy-", b"te:", b"keep-alive", b"connection"):
            self.assertNotIn(name, head)

    def test_two_hosts_and_smuggling(self):
        bad = ["Host: ok.test\r\nHost: no.test\r\n",
               "Host: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n",
               "Host: x\r\nContent-Length: 3\r\nContent-Length: 3\r\n",
               "Host: x\r\nContent-Length: -1\r\n", "Host: x\r\nContent-Length: +1\r\n",
               "Host: x\r\nTransfer-Encoding: gzip\r\n",
               "Host: x\r\nTransfer-Encoding : chunked\r\n", "Host: x\r\n folded\r\n",
               "Host: x\nX: y\r\n", "Host: x\r\nX: \0\r\n", ""]
        with Egress(allow={"ok.test:8080"}) as eg:
            for fields in bad:
                answer = eg.ask("POST http://ok.test:8080/echo HTTP/1.1\r\n" + fields + "\r\nabc"
                                "GET http://no.test:8080/ HTTP/1.1\r\nHost: x\r\n\r\n")
                self.assertEqual(status(answer), 400, fields)
                self.assertEqual(answer.count(b"HTTP/1.1 "), 1)
            self.assertEqual(eg.checks, [])
        self.nothing_happened()

    def test_bad_chunking_ends_the_connection(self):
        with Egress(allow={"ok.test:8080"}) as eg:
            for chunks in ("5\nhello\r\n0\r\n\r\n", "zz\r\n", "5\r\nhelloX\r\n", "fffffffffffffffff\r\n",
                           "0\r\n bad\r\n\r\n"):
                answer = eg.ask("POST http://ok.test:8080/echo HTTP/1.1\r\nHost: x\r\n"
                                "Transfer-Encoding: chunked\r\n\r\n" + chunks +
                                "GET http://no.test:8080/ HTTP/1.1\r\nHost: x\r\n\r\n")
                self.assertEqual(status(answer), 400, chunks)
            self.assertNotIn("no.test", [c[3] for c in eg.checks])
        self.assertEqual(self.reached(at=lab.NO4), [])

    def kept(self, eg, parts):
        """Each part (text, responses) on one connection, sent when all before it is answered."""
        got, wanted = b"", 0
        with eg.connect() as s:
            for text, responses in parts:
                s.sendall(text.encode())
                wanted += responses
                while got.count(b"HTTP/1.1 ") < wanted:
                    more = s.recv(65536)
                    self.assertTrue(more, (parts, got))
                    got += more
            return got + read_all(s)

    def test_each_request_of_a_kept_connection_is_judged(self):
        one = "GET http://ok.test:8080/hello HTTP/1.1\r\nHost: x\r\n\r\n"
        two = "GET http://no.test:8080/hello HTTP/1.1\r\nHost: x\r\nAuthorization: secret\r\n\r\n"
        last = one.replace("Host: x", "Host: x\r\nConnection: close")
        post = ("POST http://ok.test:8080/echo HTTP/1.1\r\nHost: x\r\n"
                "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
        length = ("POST http://ok.test:8080/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
                  "hello")
        inner = ("POST http://ok.test:8080/echo HTTP/1.1\r\nHost: x\r\n"
                 f"Content-Length: {len(two)}\r\n\r\n{two}")
        with Egress(allow={"ok.test:8080"}) as eg:
            for parts, codes in (
                    ([(one, 1), (two, 1)], [200, 403]), ([(one + two, 2)], [200, 403]),
                    ([(post + two, 2)], [200, 403]),
                    ([(post, 1), (post + length + one + two, 4)], [200, 200, 200, 200, 403]),
                    ([(length + two, 2)], [200, 403]), ([(inner + last, 2)], [200, 200]),
                    ([(one + one + last, 3)], [200, 200, 200])):
                answer = self.kept(eg, parts)
                found = [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]
                         if part[:3].isdigit()]
                found = [code for code in found if code in (200, 403)]
                self.assertEqual(found, codes, parts)
            self.assertEqual(len({c[0] for c in eg.checks}), 7)
            requests = [c[1] for c in eg.checks if c[0] == eg.checks[0][0]]
            self.assertEqual(requests, [1, 2])
        self.assertEqual(self.reached(at=lab.NO4), [])
        self.assertNotIn("no.test", self.asked())
        self.assertEqual([r for r in lab.requests(self.mark) if "secret" in r["head"]], [])

    def test_upstream_is_used_again_and_changed(self):
        one = "GET http://v4.test:8080/hello HTTP/1.1\r\nHost: x\r\n\r\n"
        other = "GET http://v6.test:8080/hello HTTP/1.1\r\nHost: x\r\n\r\n"
        last = other.replace("Host: x", "Host: x\r\nConnection: close")
        with Egress(allow={"v4.test:8080", "v6.test:8080"}) as eg:
            answer = self.kept(eg, [(one, 1), (one, 1), (one + other, 2), (last, 1)])
            self.assertEqual(answer.count(b"hello from 203.0.113.10"), 3)
            self.assertEqual(answer.count(b"hello from 2001:db8::10"), 2)
            eg.wait(lambda: len(eg.closed) == 5, "each is told closed")
            self.assertEqual([r[2] for r in eg.results], [OPENED] * 5)
        self.assertEqual(len(self.reached(at="203.0.113.10")), 1)
        self.assertEqual(len(self.reached(at="2001:db8::10")), 1)

    def test_a_kept_upstream_that_closed_is_dialled_anew(self):
        one = "GET http://v4.test:8080/idle/0 HTTP/1.1\r\nHost: x\r\n\r\n"
        with Egress(allow={"v4.test:8080"}) as eg:
            with eg.connect() as s:
                for n in range(3):
                    s.sendall(one.encode())
                    got = b""
                    while not got.endswith(b"idle\n"):
                        got += s.recv(4096)
                    lab.wait_for(lambda: sum("closed" in line for line in lab.lines(self.mark)) > n,
                                 "the server's close")
        self.assertEqual(len(self.reached()), 3)

    def test_bodies(self):
        with Egress(allow={"ok.test:8080"}) as eg:
            get = lambda path, **kw: eg.get("http://ok.test:8080/" + path, **kw)  # noqa: E731
            self.assertEqual(body(get("bytes/1000000")), b"x" * 1000000)
            self.assertEqual(body(get("close/1000000")), b"x" * 1000000)
            self.assertTrue(body(get("chunked/3")).endswith(b"a;x=y\r\n0123456789\r\n0\r\n\r\n"))
            self.assertTrue(get("trailers").endswith(b"0\r\nX-Sum: 42\r\n\r\n"))
            self.assertEqual(body(get("hello", method="HEAD")), b"")
            self.assertEqual(body(get("status/204")), b"")
            self.assertEqual(status(get("status/418")), 418)
            self.assertTrue(get("hints").startswith(b"HTTP/1.1 103 Early Hints\r\n"))
            data = os.urandom(3 * MIB)
            answer = get("echo", method="POST", fields=f"Content-Length: {len(data)}\r\n",
                         body=data)
            self.assertEqual(body(answer), data)
            chunked = b"".join(b"%x;e\r\n%s\r\n" % (len(data[i:i + 7777]), data[i:i + 7777])
                               for i in range(0, len(data), 7777)) + b"0\r\nT: v\r\n\r\n"
            answer = get("count", method="PUT", fields="Transfer-Encoding: chunked\r\n",
                         body=chunked)
            self.assertEqual(body(answer), str(len(data)).encode())
            # Cut short: the client must not take it for whole.
            self.assertTrue(get("short/5000").endswith(b"<reset>"))
            self.assertEqual(status(get("drop")), 502)
            old = eg.ask("GET http://ok.test:8080/hello HTTP/1.0\r\n\r\n")
            self.assertIn(b"hello from", old)
            self.assertNotIn(b"chunked", old)
            self.assertEqual(body(get("old")), b"old\n")

    def test_byte_by_byte(self):
        whole = ("POST http://ok.test:8080/echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                 "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n").encode()
        with Egress(allow={"ok.test:8080"}) as eg:
            for seed in range(4):
                rand, at = random.Random(seed), 0
                with eg.connect() as s:
                    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    while at < len(whole):
                        n = 1 if seed == 0 else rand.randint(1, 20)
                        s.sendall(whole[at:at + n])
                        at += n
                        time.sleep(0.0005)
                    self.assertEqual(body(read_all(s)), b"hello")

    def test_expect_continue_and_early_answers(self):
        """Case 74."""
        data = b"z" * (4 * MIB)
        with Egress(allow={"ok.test:8080"}) as eg:
            for path, code in (("continue", 200), ("early/413", 413)):
                with eg.connect() as s:
                    s.sendall(f"PUT http://ok.test:8080/{path} HTTP/1.1\r\nHost: x\r\n"
                              f"Content-Length: {len(data)}\r\nExpect: 100-continue\r\n"
                              "Connection: close\r\n\r\n".encode())
                    first = s.recv(65536)  # while the body waits for it
                    if code == 200:
                        self.assertEqual(first, b"HTTP/1.1 100 Continue\r\n\r\n")
                        s.sendall(data)
                        answer = read_all(s)
                        self.assertEqual(body(answer), str(len(data)).encode())
                    else:
                        self.assertEqual(status(first + read_all(s)), code)
            # Early, while the client keeps sending and never looks.
            with eg.connect() as s:
                s.sendall(f"PUT http://ok.test:8080/early/401 HTTP/1.1\r\nHost: x\r\n"
                          f"Content-Length: {len(data)}\r\n\r\n".encode())
                try:
                    s.sendall(data)
                except OSError:
                    pass
                self.assertEqual(status(read_all(s)), 401)

    def test_upgrade(self):
        with Egress(allow={"ok.test:8080"}) as eg:
            with eg.connect() as s:
                s.sendall(b"GET http://ok.test:8080/upgrade HTTP/1.1\r\nHost: x\r\n"
                          b"Upgrade: lab\r\nConnection: Upgrade\r\n\r\n")
                got = b""
                while b"welcome\n" not in got:
                    got += s.recv(4096)
                self.assertTrue(got.startswith(b"HTTP/1.1 101 "))
                self.assertIn(b"Upgrade: lab\r\n", got)
                s.sendall(b"ping")
                self.assertEqual(s.recv(10), b"ping")
            self.assertEqual(status(eg.get("http://ok.test:8080/upgrade")), 502)  # unasked

    def test_head_bounds(self):
        with Egress(allow={"ok.test:8080"}, head=4096) as eg:
            self.assertEqual(status(eg.get("http://ok.test:8080/", fields="X: " + "y" * 5000 +
                                           "\r\n")), 400)
            self.assertEqual(status(eg.get("http://ok.test:8080/", fields="X: y\r\n" * 250)), 400)
        self.nothing_happened()

if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
