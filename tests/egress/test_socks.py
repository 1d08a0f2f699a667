"""The SOCKS doors: SOCKS5, SOCKS4 and SOCKS4a, by hand and by curl, under the one decision.

"Reached" is judged at the far server's log. Case 55: a name that ends early for whoever dials.
"""
import os
import random
import socket
import struct
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402
from cordon_test.egress import (ADDRESS_CLASS, ALLOW, CONNECT_FAILED, DOOR_SOCKS4, DOOR_SOCKS5, OPENED, OWN_PORT,  # noqa: E402
                                RESOLVE_FAILED, SELF, TIMED_OUT, Egress, read_all, take)

lab.enter()
from cordon_test.api import ApiTest  # noqa: E402

MIB = 1 << 20
HELLO5 = b"\x05\x01\x00"
OPEN5 = b"\x05\x00" + b"\x05\x00\x00\x01\0\0\0\0\0\0"
OPEN4 = b"\x00\x5a\0\0\0\0\0\0"


def name5(host, port, command=1):
    host = host if isinstance(host, bytes) else host.encode()
    return HELLO5 + bytes([5, command, 0, 3, len(host)]) + host + struct.pack(">H", port)


def address5(text, port):
    family, kind = (socket.AF_INET6, 4) if ":" in text else (socket.AF_INET, 1)
    return HELLO5 + bytes([5, 1, 0, kind]) + socket.inet_pton(family, text) + struct.pack(">H", port)


def name4(host, port):
    host = host if isinstance(host, bytes) else host.encode()
    return b"\x04\x01" + struct.pack(">H", port) + b"\0\0\0\1me\0" + host + b"\0"


def address4(text, port):
    return b"\x04\x01" + struct.pack(">H", port) + socket.inet_aton(text) + b"me\0"


def code(answer):
    """The reply's code, in words of SOCKS5; SOCKS4 has 0x5a and 0x5b."""
    if answer[:2] == b"\x05\x00":
        return answer[3] if len(answer) == 12 else answer
    return answer[1] if len(answer) in (2, 8) else answer


class Socks(lab.Case):
    def opened(self, eg, request, opens, port=None):
        """A connected socket behind the reply."""
        s = eg.connect()
        s.sendall(request)
        self.assertEqual(take(s, len(opens)), opens)
        return s

    def test_every_form_reaches_what_is_allowed(self):
        forms = [(name5("ok.test", 443), OPEN5), (name5("OK.TEST.", 443), OPEN5), (address5("203.0.113.10", 443), OPEN5),
                 (address5("2001:db8::10", 443), OPEN5), (name4("ok.test", 443), OPEN4),
                 (address4("203.0.113.10", 443), OPEN4)]
        with Egress(allow={"ok.test:443", "203.0.113.10:443", "[2001:db8::10]:443"}) as eg:
            for request, opens in forms:
                with self.opened(eg, request, opens) as s:
                    s.sendall(b"a word")
                    self.assertEqual(take(s, 6), b"a word")
                    s.shutdown(socket.SHUT_WR)
                    self.assertEqual(read_all(s), b"")
            eg.wait(lambda: len(eg.closed) == len(forms), "each is told")
            self.assertEqual([c[2] for c in eg.checks], [DOOR_SOCKS5] * 4 + [DOOR_SOCKS4] * 2)
            self.assertEqual([c[3] for c in eg.checks],
                             ["ok.test", "ok.test", "203.0.113.10", "2001:db8::10", "ok.test", "203.0.113.10"])
            self.assertEqual({c[2:] for c in eg.closed}, {(6, 6, 1)})
        self.assertEqual(len(self.reached(port=443)), len(forms))

    def test_byte_by_byte_and_with_early_data(self):
        with Egress(allow={"ok.test:443"}) as eg:
            for request, opens in ((name5("ok.test", 443), OPEN5), (name4("ok.test", 443), OPEN4)):
                for seed in range(4):
                    rand = random.Random(seed)
                    with eg.connect() as s:
                        whole, at = request + b"early", 0
                        while at < len(whole):
                            n = 1 if seed == 0 else rand.randint(1, 9)
                            s.sendall(whole[at:at + n])
                            at += n
                        self.assertEqual(take(s, len(opens) + 5), opens + b"early")

    def test_a_server_that_speaks_first_and_half_close(self):
        with Egress(allow={"ok.test"}) as eg:
            for make, opens in ((name5, OPEN5), (name4, OPEN4)):
                with self.opened(eg, make("ok.test", 9002), opens) as s:
                    self.assertEqual(take(s, 9), b"220 lab\r\n")
                with self.opened(eg, make("ok.test", 9001), opens) as s:
                    s.sendall(b"request")
                    s.shutdown(socket.SHUT_WR)
                    self.assertEqual(len(read_all(s)), MIB)

    def test_refusals_and_troubles_have_their_codes(self):
        with Egress(allow={"nowhere.test", "ok.test", "hole.test", "lo.test", "203.0.113.10", "10.9.0.10"},
                    dial_ms=1000, own_ports=[8080]) as eg:
            for host, port, wanted, outcome in (
                    ("no.test", 443, 2, None), ("nowhere.test", 443, 4, RESOLVE_FAILED),
                    ("ok.test", 9999, 5, CONNECT_FAILED), ("hole.test", 443, 6, TIMED_OUT),
                    ("lo.test", 443, 2, ADDRESS_CLASS), ("ok.test", 8080, 2, OWN_PORT)):
                n = len(eg.results)
                self.assertEqual(code(eg.ask(name5(host, port))), wanted, host)
                self.assertEqual(code(eg.ask(name4(host, port))), 0x5b, host)
                eg.wait(lambda: eg.owed() == 0, "each is told")
                self.assertEqual([r[2] for r in eg.results[n:]], [] if outcome is None else [outcome] * 2)
            for text in ("203.0.113.11", "2001:db8::11", "10.9.0.10", "127.0.0.1", "::1", "::ffff:127.0.0.1"):
                self.assertEqual(code(eg.ask(address5(text, 443))), 2, text)
            self.assertEqual(code(eg.ask(address4("127.0.0.1", 443))), 0x5b)
        self.assertEqual(self.reached(at=lab.NO4) + self.reached(at=lab.NO6), [])
        self.assertNotIn("no.test", self.asked())

    def test_what_is_no_plain_connect(self):
        with Egress(decide=lambda *_: (ALLOW, 1)) as eg:
            for request, answer in (
                    (name5("ok.test", 443, command=2), 7), (name5("ok.test", 443, command=3), 7),  # BIND, UDP
                    (b"\x05\x01\x02", 0xff), (b"\x05\x00", 0xff),  # no method that we take
                    (HELLO5 + b"\x05\x01\x00\x02\x01\x02\x03\x04\x01\xbb", 8),
                    (HELLO5 + b"\x05\x01\x01\x03\x07ok.test\x01\xbb", 1), (HELLO5 + b"\x04\x01", 1),
                    (name5("ok.test", 0), 1), (b"\x04\x02\x01\xbb\xcb\x00\x71\x0ame\0", 0x5b),
                    (b"\x04\x01\x01\xbb\0\0\0\1" + b"u" * 300, 0x5b),
                    (b"\x04\x01\x01\xbb\0\0\0\1\0" + b"n" * 300, 0x5b)):
                self.assertEqual(code(eg.ask(request)), answer, request)
            eg.wait(lambda: len(eg.refused) == 11, "each is told")
            self.assertEqual(eg.checks, [])
            with eg.connect() as s:  # ends within its request
                s.sendall(name5("ok.test", 443)[:9])
                s.shutdown(socket.SHUT_WR)
                self.assertEqual(read_all(s), b"\x05\x00")
        self.nothing_happened()

    def test_bytes_that_end_a_name_early(self):
        """Case 55."""
        names = [b"no.test\0.ok.test", b"ok.test\0.no.test", b"no.test%00.ok.test", b"no.test .ok.test", b"no.test\r\n.ok.test",
                 b"no.test#.ok.test", b"no.test?.ok.test", b"no.test/.ok.test", b"ok.test@no.test", b"no.test\\.ok.test",
                 b"no\ttest", b"no\x7ftest", b"n\xf6.test", b"n\xc3\xb6.test", b"", b".", b".ok.test", b"*.ok.test", b"a" * 255,
                 b"a" * 64 + b".test", b"[ok.test]", b"[2001:db8::10]", b"0x7f.1", b"127.1", b"2130706433", b"0177.0.0.1",
                 b"fe80::1%lo", b"ok.test:443"]
        with Egress(decide=lambda *_: (ALLOW, 1)) as eg:
            for name in names:
                self.assertEqual(code(eg.ask(name5(name, 443))), 1, name)
                if b"\0" not in name:
                    self.assertEqual(code(eg.ask(name4(name, 443))), 0x5b, name)
            eg.wait(lambda: len(eg.refused) == 2 * len(names) - 2, "each is told")
            for _, host, why in eg.refused:
                self.assertTrue(host.isprintable(), host)
                self.assertEqual(why, "the host is neither a name nor an address")
            self.assertIn("no.test\\x00.ok.test", [host for _, host, _ in eg.refused])
            self.assertEqual(eg.checks, [])
            # SOCKS4a ends the name at its NUL: what is behind it is the client's first bytes.
            with self.opened(eg, name4(b"ok.test\0.no.test", 443), OPEN4) as s:
                self.assertEqual(take(s, 9), b".no.test\0")
            self.assertEqual([c[3] for c in eg.checks], ["ok.test"])
        self.assertEqual(self.reached(at=lab.NO4) + self.reached(at=lab.NO6), [])

    def test_the_limit_and_the_proof_name(self):
        with Egress(decide=lambda host, _: (SELF if host.endswith(".invalid") else ALLOW, 0), connections=4) as eg:
            self.assertEqual(eg.ask(name5("a.cordon.invalid", 443)), OPEN5)
            self.assertEqual(eg.ask(name4("a.cordon.invalid", 443)), OPEN4)
            eg.wait(lambda: [r[2] for r in eg.results] == [OPENED] * 2, "told")
            held = [self.opened(eg, name5("ok.test", 443), OPEN5) for _ in range(4)]
            self.assertEqual(code(eg.ask(name5("ok.test", 443))), 1)
            self.assertEqual(code(eg.ask(name4("ok.test", 443))), 0x5b)
            eg.wait(lambda: len(eg.refused) == 2, "both are told")
            self.assertEqual([r[1:] for r in eg.refused], [("ok.test", "too many connections at once")] * 2)
            for s in held:
                s.close()

    def test_cut_and_a_client_that_goes(self):
        with Egress(decide=lambda *_: None) as eg:
            s = eg.connect()
            s.sendall(name5("ok.test", 443))
            eg.wait(lambda: eg.checks, "the check")
            s.close()
            eg.verdict(eg.checks[0][0], eg.checks[0][1], ALLOW)
            eg.wait(lambda: eg.results, "told")
            with eg.connect() as s:
                s.sendall(name5("ok.test", 443))
                eg.wait(lambda: len(eg.checks) == 2, "the check")
                eg.cut(eg.checks[1][0])
                self.assertIn(read_all(s), (b"\x05\x00<reset>", b"<reset>", b"\x05\x00"))


class Clients(ApiTest):
    """curl inside, through cordond."""

    WAYS = ["--socks5-hostname", "--socks4a"]
    BY_ADDRESS = ["--socks5", "--socks4"]

    def curl(self, s, way, host, url):
        c = self.run_in(s, f"curl -sS -m 20 {way} \"${{http_proxy#http://}}\" --noproxy '' "
                           f"--resolve {host}:8080:203.0.113.{11 if host == 'no.test' else 10} {url}")
        return c["result"]["exit_code"], c["text"]["stdout"], c["text"]["stderr"], c["result"]["blocked"]

    def test_curl_that_looks_names_up_by_itself(self):
        """It gets an address that stands for the name, and asks for that: judged by the name, by every door."""
        s = self.session(sites=[{"host": "v4.test", "port": 8080}])
        mark = lab.mark()
        for way in self.BY_ADDRESS:
            curl = f"curl -sS -m 20 {way} \"${{http_proxy#http://}}\" --noproxy '' "
            c = self.run_in(s, curl + "http://v4.test:8080/hello")
            self.assertEqual((c["text"]["stdout"], c["result"]["blocked"]), ("hello from 203.0.113.10\n", []), c)
            c = self.run_in(s, curl + "http://no.test:8080/hello")
            self.assertEqual([(b["host"], b["reason"]) for b in c["result"]["blocked"]], [("no.test", "not_listed")], c)
        at = "at=$(getent ahostsv4 v4.test | head -1 | cut -d' ' -f1); "
        for client in ("curl -sS -m 20 http://$at:8080/hello", "curl -sS -m 20 -p http://$at:8080/hello"):
            c = self.run_in(s, at + client)
            self.assertEqual(c["text"]["stdout"], "hello from 203.0.113.10\n", c)
        self.assertEqual({r["host"] for r in lab.requests(mark)} - {"v4.test:8080"}, {
            c["text"]["stdout"].strip() + ":8080" for c in [self.run_in(s, at + "echo $at")]})  # the last's own Host
        c = self.run_in(s, "curl -sS -m 20 http://198.18.99.99:8080/; curl -sS --socks5 ${http_proxy#http://} "
                           "http://198.18.99.99:8080/")
        self.assertIn("stands for no name", c["text"]["stdout"])
        self.assertEqual(c["result"]["exit_code"], 97)
        lab.mark()
        self.assertEqual(lab.reached(mark, at=lab.NO4) + lab.reached(mark, at=lab.NO6), [])
        self.assertEqual(set(lab.asked(mark)), {"v4.test"})

    def test_curl(self):
        s = self.session(sites=[{"host": "v4.test", "port": 8080}, {"host": "203.0.113.10", "port": 8080}])
        mark = lab.mark()
        for way in self.WAYS + self.BY_ADDRESS:
            got = self.curl(s, way, "v4.test", "http://v4.test:8080/hello")
            self.assertEqual(got, (0, "hello from 203.0.113.10\n", "", []), way)
        lab.mark()
        self.assertEqual(len(lab.requests(mark)), 4)
        for way in self.WAYS + self.BY_ADDRESS:
            exit_code, out, _, blocked = self.curl(s, way, "no.test", "http://no.test:8080/hello")
            self.assertEqual((exit_code, out), (97, ""), way)
            self.assertEqual([(b["host"], b["port"], b["count"], b["reason"]) for b in blocked],
                             [("no.test" if way in self.WAYS else "203.0.113.11", 8080, 1, "not_listed")], way)
        lab.mark()
        self.assertEqual(lab.reached(mark, at=lab.NO4) + lab.reached(mark, at=lab.NO6), [])
        self.assertNotIn("no.test", lab.asked(mark))
        opened = [r for r in self.audit(f"session={s['id']}") if r["action"] == "connection.opened"]
        self.assertEqual([r["target"] for r in opened], ["203.0.113.10:8080"] * 2 + ["v4.test:8080"] * 2)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
