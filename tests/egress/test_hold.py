"""Held requests in cordon-egress: it waits for a second verdict, whatever the door, reaches and looks up nothing
meanwhile, and tells that a client gave up.

Against the lab: "reached" is judged at the far server's log, "looked up" at the far name server's.
"""
import os
import socket
import struct
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402
from cordon_test.egress import ALLOW, DENY, FAILED, OPENED, Egress, read_all, status  # noqa: E402

lab.enter()
HOLD = 3


class Hold(lab.Case):
    def held(self, eg, n=1):
        """N requests wait, each told so by the daemon; the last one's connection and request."""
        eg.wait(lambda: len(eg.checks) >= n, "asked")
        conn, request = eg.checks[n - 1][:2]
        return conn, request

    def start(self, **kw):
        eg = Egress(decide=lambda *_: (HOLD, 0), **kw)
        self.addCleanup(eg.__exit__)
        return eg

    def requests(self):
        lab.mark()
        return lab.requests(self.mark)

    def raw(self, eg, data):
        s = eg.connect()
        self.addCleanup(s.close)
        s.sendall(data)
        return s

    def test_each_door_waits_and_goes_on(self):
        eg = self.start()
        # What is sent early is kept, and reaches the server behind the answer.
        early = b"GET /hello HTTP/1.1\r\nHost: ok.test\r\nConnection: close\r\n\r\n"
        doors = (b"CONNECT ok.test:8080 HTTP/1.1\r\nHost: x\r\n\r\n" + early,
                 b"GET http://ok.test:8080/hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                 b"\x04\x01" + struct.pack(">H", 8080) + b"\0\0\0\1\0ok.test\0" + early)
        for i, head in enumerate(doors):
            s = self.raw(eg, head)
            conn, request = self.held(eg, i + 1)
            s.setblocking(False)
            self.assertRaises(BlockingIOError, s.recv, 1)
            self.nothing_happened()
            s.settimeout(15)
            eg.verdict(conn, request, ALLOW)
            got = b""
            while b"HTTP/1.1 200 OK" not in got:
                more = s.recv(1 << 16)
                self.assertTrue(more, got)
                got += more
            s.close()
            eg.wait(lambda: len(eg.closed) == i + 1, "told closed")
            self.assertEqual(eg.results[-1][2], OPENED)
            self.assertEqual([r["host"].split(":")[0] for r in self.requests()], ["ok.test"])
            self.mark = lab.mark()

    def test_a_refusal_after_all(self):
        eg = self.start()
        s = self.raw(eg, b"CONNECT no.test:443 HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n\r\n")
        conn, request = self.held(eg)
        eg.verdict(conn, request, DENY, reason="denied", rule="a person denied it for this session", hint="give it up")
        got = read_all(s)
        self.assertEqual(status(got), 403)
        self.assertIn(b'"code":"ask_denied"', got)
        self.assertIn(b'"hint":"give it up"', got)
        self.assertEqual((eg.results, eg.closed), ([], []))
        self.nothing_happened()

    def test_a_client_that_leaves_is_told(self):
        eg = self.start()
        for i, reset in enumerate((False, True)):
            s = self.raw(eg, b"CONNECT ok.test:443 HTTP/1.1\r\nHost: x\r\n\r\nmore that is not read yet")
            conn, request = self.held(eg, i + 1)
            if reset:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()
            eg.wait(lambda: len(eg.closed) == i + 1, "told that it left")
            self.assertEqual(eg.closed[-1][:4], (conn, request, 0, 0))
            # An answer that crosses it reaches nobody, and has its result.
            eg.verdict(conn, request, ALLOW)
            eg.wait(lambda: len(eg.results) == i + 1, "told a result")
            self.assertEqual(eg.results[-1][:3], (conn, request, FAILED))
            # Held though it is gone: told again; refused: nothing to tell.
            eg.verdict(conn, request, HOLD)
            eg.wait(lambda: len(eg.closed) == i + 2, "told that it left")
            eg.verdict(conn, request, DENY)
            eg.closed.pop()
        self.assertEqual(len(eg.results), 2)
        self.nothing_happened()

    def test_one_that_ends_its_side_reads_why(self):
        eg = self.start()
        s = self.raw(eg, b"CONNECT ok.test:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        self.held(eg)
        s.shutdown(socket.SHUT_WR)
        got = read_all(s)
        self.assertEqual(status(got), 403)
        self.assertIn(b"ended its side", got)
        eg.wait(lambda: len(eg.closed) == 1, "told that it left")

    def test_the_second_request_of_a_connection(self):
        eg = Egress(decide=lambda host, port: (ALLOW, 0) if host == "ok.test" else (HOLD, 0))
        self.addCleanup(eg.__exit__)
        s = self.raw(eg, b"GET http://ok.test:8080/hello HTTP/1.1\r\nHost: x\r\n\r\n"
                     b"GET http://no.test:8080/hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        conn, request = self.held(eg, 2)
        lab.wait_for(lambda: len(self.requests()) == 1, "the first one reached", 5)
        eg.verdict(conn, request, ALLOW)
        got = read_all(s)
        self.assertEqual(got.count(b"HTTP/1.1 200"), 2, got)
        self.assertEqual([r["host"] for r in self.requests()], ["ok.test:8080", "no.test:8080"])

    def test_many_wait_and_cost_nothing(self):
        eg = self.start(connections=300)
        all_of_them = [self.raw(eg, f"CONNECT h{i}.test:443 HTTP/1.1\r\nHost: x\r\n\r\n".encode()) for i in range(200)]
        self.held(eg, 200)
        self.assertLess(eg.cpu_ticks(0.3) - eg.cpu_ticks(), 20)
        for conn, request, *_ in eg.checks:
            eg.verdict(conn, request, DENY, reason="denied")
        self.assertEqual({status(read_all(s)) for s in all_of_them}, {403})


if __name__ == "__main__":
    unittest.main(verbosity=2)
