"""Tunnels through cordon-egress, troubles with servers, and many at once.

Against the lab: "reached" is judged at the far server's log, "looked up" at the far name server's.
"""
import json
import os
import resource
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402
from cordon_test.egress import (ALLOW, CONNECT_FAILED, OPENED, RESOLVE_FAILED, SELF, TIMED_OUT, Egress, body, read_all, status)  # noqa: E402

lab.enter()
MIB = 1 << 20


class Trouble(lab.Case):
    """Case 76: 403 only for policy. Case 80: a dead family costs little."""

    def test_statuses(self):
        with Egress(decide=lambda *_: (ALLOW, 0), dial_ms=1000) as eg:
            for target, code, outcome in (
                    ("nowhere.test:443", 502, RESOLVE_FAILED), ("ok.test:9999", 502, CONNECT_FAILED),
                    ("hole.test:443", 504, TIMED_OUT)):
                for answer in (eg.tunnel(target), eg.get(f"http://{target}/")):
                    self.assertEqual(status(answer), code, target)
                    self.assertIn(target.encode(), answer)
                eg.wait(lambda: eg.owed() == 0, "each is told")
                self.assertEqual(eg.results[-1][2], outcome)
            for port in (9007, 9008, 9009):
                self.assertEqual(status(eg.get(f"http://ok.test:{port}/")), 502, port)
            eg.wait(lambda: len(eg.results) == 9, "each is told")
            # A server that resets at once may do so before the connection counts as made.
            opened = sum(r[2] == OPENED for r in eg.results)
            self.assertIn(opened, (2, 3))
            eg.wait(lambda: len(eg.closed) == opened, "those that were opened are told closed")

    def test_dead_families(self):
        with Egress(decide=lambda *_: (ALLOW, 0), dial_ms=4000) as eg:
            for host, at in (("dead6.test", "203.0.113.10"), ("dead4.test", "2001:db8::10"),
                             ("v4.test", "203.0.113.10"), ("v6.test", "2001:db8::10")):
                start = time.monotonic()
                self.assertNotIsInstance(eg.tunnel(host + ":443"), bytes)
                took = time.monotonic() - start
                print(f"  {host}: connected after {took * 1000:.1f} ms")
                lab.wait_for(lambda: self.reached(at=at), f"{host} reached at {at}", 2)

    def test_reset_after_connect(self):
        with Egress(decide=lambda *_: (ALLOW, 0)) as eg:
            # The reset may come before the tunnel is told or after: an answer, or an end at once.
            got = eg.tunnel("ok.test:9007")
            if isinstance(got, bytes):
                self.assertTrue(got.startswith(b"HTTP/1.1 502 "), got)
            else:
                self.assertIn(read_all(got), (b"", b"<reset>"))
            self.assertEqual(read_all(eg.tunnel("ok.test:9009")), b"")

    def test_other_protocols_are_told_and_closed(self):
        with Egress(decide=lambda *_: (ALLOW, 0)) as eg:
            for first in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\0\0", b"\x06\x01\x00", b"\x03\x01\x00"):
                self.assertEqual(status(eg.ask(first)), 400)
            eg.wait(lambda: len(eg.refused) == 3, "each is told")
        self.nothing_happened()

    def test_refusal_texts(self):
        """Case 82."""
        with Egress() as eg:
            text = eg.tunnel("no.test:443")
            for part in (b"no.test:443", b"Rule: list machine", b"What to do: cordon sites add"):
                self.assertIn(part, text)
            self.assertTrue(text.startswith(b"HTTP/1.1 403 Blocked by Cordon: no.test:443\r\n"))
            answer = eg.ask("GET http://no.test/ HTTP/1.1\r\nHost: x\r\n"
                            "Accept: text/html, application/json;q=0.9\r\n\r\n")
            told = json.loads(body(answer))
            self.assertEqual((told["host"], told["port"], told["code"]),
                             ("no.test", 80, "site_not_listed"))
            self.assertTrue(told["rule"] and told["hint"])

    def test_proof_names(self):
        with Egress(decide=lambda host, _: (SELF, 0)) as eg:
            answer = eg.ask("CONNECT a.cordon.invalid:443 HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertEqual(status(answer), 200)
            self.assertEqual(status(eg.get("http://a.cordon.invalid/")), 200)
            eg.wait(lambda: len(eg.results) == 2, "told")
            self.assertEqual([r[2] for r in eg.results], [OPENED, OPENED])
            self.assertEqual(eg.closed, [])
        self.nothing_happened()


class Tunnels(lab.Case):
    """Case 73 and what else a tunnel must stand."""

    def test_half_close(self):
        with Egress(allow={"ok.test"}) as eg:
            count = lambda: len(eg.fds()) if os.getuid() == 0 else 0  # noqa: E731
            before = count()
            s = eg.tunnel("ok.test:9001")
            s.sendall(b"request")
            s.shutdown(socket.SHUT_WR)
            self.assertEqual(len(read_all(s)), MIB)
            s.close()
            s = eg.tunnel("ok.test:9004")
            self.assertEqual(len(read_all(s)), MIB)  # its side is closed, ours is open
            s.sendall(b"y" * 5000)
            s.close()
            lab.wait_for(lambda: [l for l in lab.lines(self.mark) if l.get("read") == 5000],
                         "what was sent after the server's end")
            eg.wait(lambda: len(eg.closed) == 2, "both told")
            self.assertEqual([c[2:4] for c in eg.closed], [(7, MIB), (5000, MIB)])
            self.assertEqual([c[4] for c in eg.closed], [1, 1])
            lab.wait_for(lambda: count() == before, "no descriptor left")

    def test_server_speaks_first_and_early_data(self):
        with Egress(allow={"ok.test"}) as eg:
            with eg.tunnel("ok.test:9002") as s:
                self.assertEqual(s.recv(20), b"220 lab\r\n")
            with eg.connect() as s:  # not waiting for the 200
                s.sendall(b"CONNECT ok.test:443 HTTP/1.1\r\n\r\nearly")
                got = b""
                while not got.endswith(b"early"):
                    more = s.recv(4096)
                    self.assertTrue(more)
                    got += more
                s.sendall(b" and late")
                self.assertEqual(s.recv(100), b" and late")

    def test_bytes_are_whole_both_ways(self):
        data = os.urandom(8 * MIB)
        with Egress(allow={"ok.test"}) as eg:
            s = eg.tunnel("ok.test:443")
            got = bytearray()
            sender = threading.Thread(target=lambda: (s.sendall(data),
                                                      s.shutdown(socket.SHUT_WR)))
            sender.start()
            while True:
                more = s.recv(1 << 16)
                if not more:
                    break
                got += more
            sender.join()
            self.assertEqual(bytes(got), data)
            eg.wait(lambda: eg.closed, "told")
            self.assertEqual(eg.closed[0][2:4], (len(data), len(data)))

    def test_slow_readers_hold_no_memory(self):
        with Egress(allow={"ok.test"}) as eg:
            socks = [eg.tunnel("ok.test:9005") for _ in range(60)]  # endless, never read
            for s in socks:  # each server has begun, and fills what there is
                self.assertTrue(s.recv(1, socket.MSG_PEEK))
            lab.wait_for(lambda: eg.cpu_ticks() == eg.cpu_ticks(0.1), "nothing moves any more")
            with open(f"/proc/{eg.child.pid}/status") as f:
                rss = int([l for l in f if l.startswith("VmRSS")][0].split()[1])
            limit = 24 << 10 if not os.environ.get("CORDON_SANITIZE") else 200 << 10
            self.assertLess(rss, limit, "KiB with 60 stuck tunnels")
            for s in socks:
                s.close()
            lab.wait_for(lambda: len(eg.closed) == 60, "all closed")

    def test_cut(self):
        with Egress(allow={"ok.test"}) as eg:
            s, other = eg.tunnel("ok.test:443"), eg.tunnel("ok.test:443")
            s.sendall(b"a")
            self.assertEqual(s.recv(1), b"a")
            eg.cut(eg.checks[0][0])
            self.assertIn(read_all(s), (b"<reset>", b""))
            eg.wait(lambda: eg.closed, "told")
            self.assertEqual(eg.closed, [(eg.checks[0][0], 1, 1, 1, 1)])
            other.sendall(b"b")
            self.assertEqual(other.recv(1), b"b")
            eg.cut(4711)  # nobody
            eg.cut(eg.checks[0][0])  # gone
            other.sendall(b"b")
            self.assertEqual(other.recv(1), b"b")

    def test_client_reset_reaches_the_server(self):
        with Egress(allow={"ok.test"}) as eg:
            s = eg.tunnel("ok.test:443")
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            s.close()
            eg.wait(lambda: eg.closed, "told")


class Many(lab.Case):
    def test_200_parallel_allowed_and_refused(self):
        """None crosses."""
        wrong, lock = [], threading.Lock()

        def one(eg, n):
            good = n % 2 == 0
            host = "ok.test" if good else "no.test"
            try:
                if n % 4 < 2:
                    answer = eg.tunnel(f"{host}:443", timeout=60)
                    if not isinstance(answer, bytes):
                        word = os.urandom(2000)
                        answer.sendall(word)
                        back = b""
                        while len(back) < len(word):
                            back += answer.recv(4096)
                        answer.close()
                        answer = b"HTTP/1.1 200 " if back == word else b"HTTP/1.1 999 "
                else:
                    answer = eg.get(f"http://{host}:8080/hello", timeout=60)
                if status(answer) != (200 if good else 403):
                    raise AssertionError(answer)
            except Exception as e:
                with lock:
                    wrong.append((n, repr(e)))

        rounds = int(os.environ.get("CORDON_ROUNDS", "3"))
        with Egress(allow={"ok.test:443", "ok.test:8080"}) as eg:
            for _ in range(rounds):
                threads = [threading.Thread(target=one, args=(eg, n)) for n in range(200)]
                for t in threads:
                    t.start()
                for t in threads:
                    t.join()
            self.assertEqual(wrong, [])
            self.assertEqual(len(eg.checks), 200 * rounds)
            eg.wait(lambda: len(eg.closed) == 100 * rounds, "each told")
        self.assertEqual(self.reached(at=lab.NO4) + self.reached(at=lab.NO6), [])
        self.assertNotIn("no.test", self.asked())

    def test_connection_limit(self):
        with Egress(allow={"ok.test"}, connections=20) as eg:
            held = [eg.tunnel("ok.test:443") for _ in range(20)]
            answer = eg.tunnel("ok.test:443")
            self.assertEqual(status(answer), 503)
            self.assertIn(b"too many connections", answer)
            many = [eg.connect() for _ in range(200)]  # beyond the slack they wait
            held.pop().close()
            for s in many:
                s.close()
            lab.wait_for(lambda: not isinstance(eg.tunnel("ok.test:443"), bytes), "room again")
            for s in held:
                s.close()

    def test_1024_connections(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
        with Egress(allow={"ok.test"}) as eg:
            held = [eg.tunnel("ok.test:443", timeout=60) for _ in range(1024)]
            self.assertEqual([s for s in held if isinstance(s, bytes)], [])
            self.assertEqual(status(eg.tunnel("ok.test:443")), 503)
            for s in held:
                s.sendall(b"x")
            for s in held:
                self.assertEqual(s.recv(1), b"x")
                s.close()
            eg.wait(lambda: len(eg.closed) == 1024, "all closed")

if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
