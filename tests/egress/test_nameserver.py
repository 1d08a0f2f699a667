"""The name server inside a session (egress/nameserver): it asks nobody, and says no more than it must.

Against cordon-egress itself, by datagrams to its door. What leads where from an address: test_redirect.
"""
import os
import random
import select
import socket
import struct
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402
from cordon_test.egress import NAMES_BYTES, Egress, read_all  # noqa: E402

lab.enter()
A, NS, PTR, MX, TXT, AAAA, OPT, HTTPS, ANY = 1, 2, 12, 15, 16, 28, 41, 65, 255
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED = range(6)
NAMES_MAX = 16384


def wire(name):
    return b"".join(bytes([len(part)]) + part for part in name.encode("latin-1").split(b".") if part) + b"\0"


def question(name, kind=A, id=7, flags=0x100, klass=1, count=1, more=b"", extra=0):
    return struct.pack(">HHHHHH", id, flags, count, 0, 0, extra) + (wire(name) + struct.pack(">HH", kind, klass)) * \
        count + more


class Names(lab.Case):
    def setUp(self):
        super().setUp()
        self.client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.client.settimeout(20)
        self.addCleanup(self.client.close)

    def tearDown(self):
        self.assertEqual(self.asked(), [])  # whatever was asked here, nobody outside was

    def raw(self, eg, bytes):
        """The answer; asked again as resolvers do, since a datagram may find the queue full."""
        for _ in range(10):
            self.client.sendto(bytes, eg.dns)
            while select.select([self.client], [], [], 3)[0]:
                answer = self.client.recv(2000)
                if answer[:2] == bytes[:2]:
                    return answer
        self.fail("no answer")

    def ask(self, eg, name, kind=A, **kw):
        """(rcode, addresses)."""
        query = question(name, kind, **kw)
        out = self.raw(eg, query)
        id, flags, n_questions, n_answers, n_ns, _ = struct.unpack_from(">HHHHHH", out)
        self.assertEqual((id, flags & 0x8280, n_ns), (kw.get("id", 7), 0x8080, 0))  # a response, whole
        found, at = [], 12
        if n_questions:
            at += len(wire(name)) + 4
            self.assertEqual(out[12:at], query[12:at])
        for _ in range(n_answers):
            pointer, got, klass, ttl, n = struct.unpack_from(">HHHIH", out, at)
            self.assertEqual((pointer, got, klass), (0xc00c, kind, 1))
            self.assertTrue(0 < ttl <= 60)
            found.append(socket.inet_ntop(socket.AF_INET if kind == A else socket.AF_INET6, out[at + 12:at + 12 + n]))
            at += 12 + n
        return flags & 15, found

    def test_addresses_and_nothing_else(self):
        with Egress(dns=True) as eg:
            self.assertEqual(self.ask(eg, "ok.test"), (NOERROR, ["198.18.1.0"]))
            self.assertEqual(self.ask(eg, "no.test"), (NOERROR, ["198.18.1.1"]))
            self.assertEqual(self.ask(eg, "OK.TesT"), (NOERROR, ["198.18.1.0"]))
            self.assertEqual(self.ask(eg, "ok.test", AAAA), (NOERROR, ["fd63:6f72:646f:6e00::c612:100"]))
            for kind in (NS, PTR, MX, TXT, HTTPS, ANY):  # no data, and no address used up
                self.assertEqual(self.ask(eg, f"t{kind}.test", kind), (NOERROR, []))
            self.assertEqual(self.ask(eg, "next.test"), (NOERROR, ["198.18.1.2"]))
            for name in ("localhost", "a.b.localhost"):
                self.assertEqual(self.ask(eg, name), (NOERROR, ["127.0.0.1"]))
                self.assertEqual(self.ask(eg, name, AAAA), (NOERROR, ["::1"]))
            self.assertEqual(self.ask(eg, "notlocalhost"), (NOERROR, ["198.18.1.3"]))
            self.assertEqual((eg.checks, eg.refused), ([], []))  # asking is no try

    def test_what_is_no_name_or_no_question(self):
        with Egress(dns=True) as eg:
            for name in ("", "1.2.3.4", "a b.test", "x\xff.test", "no.test\0.ok.test", "a%00.test"):
                self.assertEqual(self.ask(eg, name), (NXDOMAIN, []), name)
            self.assertEqual(self.ask(eg, "ok.test", klass=3), (REFUSED, []))
            self.assertEqual(self.ask(eg, "ok.test", flags=0x2900), (NOTIMP, []))  # an update
            self.assertEqual(self.raw(eg, question("ok.test", count=2))[3] & 15, FORMERR)
            self.assertEqual(self.raw(eg, question("ok.test", more=b"more"))[3] & 15, FORMERR)
            self.assertEqual(self.ask(eg, "ok.test", more=b"\0\0\x29\4\xd0\0\0\0\0\0\0", extra=1)[0], NOERROR)  # EDNS
            for silent in (b"", b"\0", question("ok.test", flags=0x8180), question("ok.test")[:11], bytes(1300)):
                self.client.sendto(silent, eg.dns)  # never answered: else two of us could talk for ever
            self.assertEqual(self.ask(eg, "last.test", id=99), (NOERROR, ["198.18.1.1"]))

    def test_nonsense_harms_nobody(self):
        rng = random.Random(7)
        with Egress(dns=True, allow={"ok.test"}) as eg:
            whole = question("www.ok.test", AAAA, more=b"\0\0\x29\4\xd0\0\0\0\0\0\0", extra=1)
            for _ in range(3000):
                bytes_ = bytearray(whole[:rng.randrange(len(whole) + 1)])
                for _ in range(rng.randrange(4)):
                    if bytes_:
                        bytes_[rng.randrange(len(bytes_))] = rng.randrange(256)
                self.client.sendto(bytes_, eg.dns)
            self.client.close()
            self.client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.client.settimeout(20)
            self.assertEqual(self.ask(eg, "ok.test", id=4711)[0], NOERROR)
            with eg.tunnel("ok.test:9002") as s:
                self.assertEqual(s.recv(9), b"220 lab\r\n")
        self.assertEqual(set(self.asked()), {"ok.test"})
        self.mark = lab.mark()

    def test_without_ipv6(self):
        with Egress(dns=True, doors=1) as eg:
            self.assertEqual(self.ask(eg, "ok.test", AAAA), (NOERROR, []))
            self.assertEqual(self.ask(eg, "ok.test"), (NOERROR, ["198.18.1.0"]))

    def test_a_full_table(self):
        """Further names have no address; those that have one keep it, and it is told once."""
        with Egress(dns=True) as eg:
            for start in range(0, NAMES_MAX, 64):
                for n in range(start, start + 64):
                    self.client.sendto(question(f"n{n}.test", id=n), eg.dns)
                for n in range(64):
                    self.client.recv(600)
            for name in ("one.test", "more.test"):
                self.assertEqual(self.ask(eg, name), (SERVFAIL, []))
            self.assertEqual(self.ask(eg, "localhost"), (NOERROR, ["127.0.0.1"]))
            self.assertEqual(self.ask(eg, "n0.test"), (NOERROR, ["198.18.1.0"]))
            self.assertEqual(self.ask(eg, f"n{NAMES_MAX - 1}.test"), (NOERROR, ["198.18.64.255"]))
            eg.wait(lambda: eg.refused, "that it is told")
            self.assertEqual([(host, "too many different names" in why) for _, host, why in eg.refused],
                             [("one.test", True)])

    # ---- The memory of the names ------------------------------------------------------------------

    def memory(self, size=NAMES_BYTES):
        fd = os.memfd_create("names")
        self.addCleanup(os.close, fd)
        os.truncate(fd, size)
        return fd

    def test_the_next_one_knows_them(self):
        fd = self.memory()
        with Egress(dns=True, names=fd) as eg:
            self.assertEqual(self.ask(eg, "a.test"), (NOERROR, ["198.18.1.0"]))
            eg.child.kill()
            eg.child.wait()
        with Egress(dns=True, names=fd) as eg:
            self.assertEqual(self.ask(eg, "b.test"), (NOERROR, ["198.18.1.1"]))
            self.assertEqual(self.ask(eg, "a.test"), (NOERROR, ["198.18.1.0"]))
        os.pwrite(fd, b"\xff" * 4096, 0)  # what no egress wrote is not believed
        with Egress(dns=True, names=fd) as eg:
            self.assertEqual(self.ask(eg, "c.test"), (NOERROR, ["198.18.1.0"]))

    def test_memory_that_is_none(self):
        eg = Egress(start=False, names=self.memory(4096))
        eg.start([], 1024, 65536, 10000, b"")
        self.assertEqual(eg.child.wait(10), 1)
        eg.close()
        eg = Egress(dns=True, names=self.memory())
        self.assertEqual(self.ask(eg, "a.test")[0], NOERROR)
        with eg.connect() as s:
            eg.send(135, b"", [eg.names])  # a second time
            self.assertEqual(eg.child.wait(10), 1)
            self.assertIn(read_all(s), (b"", b"<reset>"))
        eg.close()


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
