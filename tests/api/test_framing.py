"""Heads and lengths that no proper client sends: a problem document, then the connection ends. What comes
in pieces, late or too often."""
import http.client
import os
import socket
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest


class Framing(ApiTest):
    def raw(self, data, who=None):
        """One answer to DATA, and nothing behind it."""
        with (who or self.tcp).connect() as s:
            s.sendall(data)
            a = (who or self.tcp).receive(s, "GET", None)
            self.assertEqual(s.recv(1), b"", "the connection goes on")
            return a

    def head(self, *lines, first="GET /v1/sessions HTTP/1.1"):
        return "\r\n".join([first, f"Host: {self.tcp.host()}", f"Authorization: Bearer {self.d.token}",
                            *lines, "", ""]).encode("latin-1")

    def refused(self, want, code, data):
        for who in (self.tcp, self.c, self.d.client(via="v6")):
            a = self.raw(data, who)
            self.assertEqual((a.status, a.json["code"]), (want, code), (data[:200], a))
            self.assertEqual(a.headers["Connection"], "close")
            self.assertEqual(a.headers["X-Request-Id"], a.json["instance"])
            self.assertEqual(a.headers["X-Content-Type-Options"], "nosniff")
            self.assertNotIn("<", a.body.decode())

    def taken(self, data):
        return self.tcp.send(data, "GET", "/v1/sessions")

    def test_the_control(self):
        self.assertEqual(self.taken(self.head("Connection: close")).status, 200)

    def test_lengths(self):
        post = "POST /v1/sites HTTP/1.1"
        kind = "Content-Type: application/json"
        for bad in ("Content-Length: abc", "Content-Length: -2", "Content-Length: +2", "Content-Length: 2, 2",
                    "Content-Length:", "Content-Length: 2\r\nContent-Length: 2", "Transfer-Encoding: gzip",
                    "Content-Length: 2\r\nTransfer-Encoding: chunked",
                    "Transfer-Encoding: chunked\r\nContent-Length: 2",
                    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"):
            self.refused(400, "json_invalid", self.head(kind, bad, first=post) + b"{}")
        self.refused(413, "body_too_large", self.head(kind, "Content-Length: 99999999999999999999999", first=post))
        self.assertEqual([s for s in self.c.items("/v1/sites?source=user")], [])

    def test_lines(self):
        for first in ("GARBAGE", "GET /v1/health", "GET  HTTP/1.1", "GET /v1/he alth HTTP/1.1", "GET / HTTP/1.1 x"):
            self.refused(400, "json_invalid", self.head(first=first))
        for line in ("nocolon", "X : a", "X: a\r\n b", "X: a\rY: b", "X: a\0b", ": x", "X: \x7f"):
            self.refused(400, "json_invalid", self.head(line))
        self.refused(400, "json_invalid", self.head().replace(b"\r\n", b"\n"))
        for first in ("GET /v1/health HTTP/2.0", "GET /v1/health HTTP/1.0"):
            self.refused(400, "host_missing", self.head(first=first))
        # A browser that was made to speak to us as TLS, or as another protocol.
        self.refused(400, "json_invalid", b"\x16\x03\x01\x00\x05\x01\r\n\r\n")

    def test_large_heads(self):
        fits = 16384 - len(self.head("X: ", "Connection: close"))
        for n in (0, 1, fits):
            self.assertEqual(self.taken(self.head("X: " + "a" * n, "Connection: close")).status, 200, n)
        for n in (16384, 70000, 300000):
            self.refused(431, "headers_too_large", self.head("X: " + "a" * n))
            self.refused(431, "headers_too_large", self.head(first="GET /v1/health?" + "a" * n + " HTTP/1.1"))
        self.refused(431, "headers_too_large", self.head(*["X: a"] * 2000))
        self.assertEqual(self.taken(self.head(*["X: a"] * 190, "Connection: close")).status, 200)

    def test_in_pieces(self):
        data = self.head("Connection: close")
        for who in (self.tcp, self.c):
            with who.connect() as s:
                if who is self.tcp:
                    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for i in range(len(data)):
                    s.sendall(data[i:i + 1])
                self.assertEqual(who.receive(s, "GET", "/v1/sessions").status, 200)

    def test_one_connection_many_requests(self):
        c = http.client.HTTPConnection("127.0.0.1", self.d.port, timeout=60)
        for i in range(50):
            c.request("GET", "/v1/sessions" if i % 2 else "/v1/nothing",
                      headers={"Authorization": "Bearer " + self.d.token})
            r = c.getresponse()
            self.assertEqual(r.status, 200 if i % 2 else 404)
            r.read()
        c.close()
        one = self.head()
        with self.tcp.connect() as s:  # three at once
            s.sendall(one * 2 + self.head("Connection: close"))
            text = b""
            while got := s.recv(65536):
                text += got
        self.assertEqual(text.count(b"HTTP/1.1 200 OK"), 3)

    def test_a_later_head_is_the_librarys(self):
        """On a connection that is open already: the same status, no document, and the end."""
        for bad, status in ((b"X Y\r\nZ\r\n\r\n", 400), (self.head("X: " + "a" * 70000), 431)):
            with self.tcp.connect() as s:
                s.sendall(self.head())
                r = http.client.HTTPResponse(s, method="GET")
                r.begin()
                r.read()
                s.sendall(bad)
                r = http.client.HTTPResponse(s, method="GET")
                r.begin()
                self.assertEqual(r.status, status)
                body = r.read()
                self.assertLess(len(body), 400)
                self.assertNotIn(self.d.token.encode(), body)
                try:
                    self.assertEqual(s.recv(1), b"")
                except ConnectionResetError:
                    pass  # more had been sent than was read

    def test_the_limit_of_connections(self):
        held = []
        self.addCleanup(lambda: [s.close() for s in held])
        with self.tcp.connect() as spare:
            for i in range(512):  # each was taken, as it has an answer
                s = self.c.connect() if i else spare
                held.append(s)
                s.sendall(self.head())
                self.assertEqual(self.c.receive(s, "GET", "/v1/sessions").status, 200)
            a = self.raw(self.head())
            self.assertEqual((a.status, a.json["code"]), (429, "too_many"))
            self.assertIn("512", a.json["detail"])
            spare.sendall(self.head("Connection: close"))  # one of the 512 still has its turn
            self.assertEqual(self.tcp.receive(spare, "GET", "/v1/sessions").status, 200)
        for s in held:
            s.close()
        for _ in range(500):  # they are seen to be gone
            a = self.taken(self.head("Connection: close"))
            if a.status == 200:
                break
        self.assertEqual(a.status, 200)

    def test_a_head_has_fifteen_seconds(self):
        begun = time.monotonic()
        with self.tcp.connect() as none, self.tcp.connect() as half, self.c.connect() as again:
            half.sendall(b"GET /v1/hea")
            again.sendall(self.head())
            r = http.client.HTTPResponse(again, method="GET")
            r.begin()
            r.read()
            again.sendall(b"GET /v1/hea")
            for s in (none, half, again):
                try:
                    self.assertEqual(s.recv(1), b"")
                except ConnectionResetError:
                    pass  # what it had sent was never read
        took = time.monotonic() - begun
        self.assertGreater(took, 14)
        self.assertLess(took, 40)  # of a loaded machine


if __name__ == "__main__":
    unittest.main(verbosity=2)
