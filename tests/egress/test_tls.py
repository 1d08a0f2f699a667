"""The server name of TLS within tunnels (case 62), whichever door they came by.

"Reached" is judged by what the far server read; it is an echo, so that each byte that went on comes
back. The session's part with real TLS servers of the test's own.
"""
import os
import random
import socket
import ssl
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402
from cordon_test.egress import (ALLOW, DENY, DOOR_TLS_NAME, NAME_REQUEST, Egress, read_all, take)  # noqa: E402

lab.enter()
from cordon_test.api import ApiTest  # noqa: E402

ALERT = b"\x15\x03\x03\x00\x02\x02\x31"  # fatal, access_denied
TLS_PORT = 7443


def client_hello(name, alpn=()):
    """As OpenSSL says it; NAME None: without a server name."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols(list(alpn))
    out = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


def in_records(hello, size):
    """The same message, cut into records of SIZE bytes."""
    message = hello[5:]
    return b"".join(b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part
                    for part in (message[i:i + size] for i in range(0, len(message), size)))


def socks5(eg, host, port):
    s = eg.connect()
    s.sendall(b"\x05\x01\x00\x05\x01\x00\x03" + bytes([len(host)]) + host.encode() + port.to_bytes(2, "big"))
    assert take(s, 12) == b"\x05\x00\x05\x00\x00\x01\0\0\0\0\0\0"
    return s


class Names(lab.Case):
    def doors(self, eg, host="ok.test", port=443):
        yield eg.tunnel(f"{host}:{port}")
        yield socks5(eg, host, port)

    def passes(self, s, first):
        with s:
            s.sendall(first + b"and on")
            self.assertEqual(take(s, len(first) + 6), first + b"and on")

    @staticmethod
    def closed(eg):
        """In the order of the connections, not of their ends."""
        order = [c[0] for c in eg.checks]
        return sorted(eg.closed, key=lambda c: order.index(c[0]))

    def refused(self, s, first):
        with s:
            s.sendall(first + b"and on")
            self.assertEqual(read_all(s), ALERT)

    def test_the_judged_name_and_none(self):
        with Egress(allow={"ok.test:443"}) as eg:
            for name in ("ok.test", "OK.test", None):
                for s in self.doors(eg):
                    self.passes(s, client_hello(name))
            eg.wait(lambda: len(eg.closed) == 6, "told")
            self.assertEqual([c[4] for c in self.closed(eg)], [0] * 4 + [1] * 2)  # opaque: no name
            self.assertEqual(len(eg.checks), 6)

    def test_another_name_is_closed_unless_allowed_by_itself(self):
        with Egress(allow={"ok.test:443", "a.ok.test:443", "also.test:8443"}) as eg:
            for name in ("no.test", "also.test", "ok.test.no.test", "b.ok.test"):
                for s in self.doors(eg):
                    self.refused(s, client_hello(name))
            self.assertEqual([(c[2], c[3], c[4]) for c in eg.checks[1::2]],
                             [(DOOR_TLS_NAME, n, 443) for n in ("no.test", "also.test", "ok.test.no.test", "b.ok.test")
                              for _ in "ab"])
            self.assertEqual([c[1] for c in eg.checks[1::2]], [NAME_REQUEST | 1] * 8)
            for s in self.doors(eg):
                self.passes(s, client_hello("a.ok.test"))
            eg.wait(lambda: len(eg.closed) == 10, "told")
            self.assertEqual([c[2:] for c in self.closed(eg)[:8]], [(0, 0, 1)] * 8)  # not a byte went on
            self.assertEqual([c[4] for c in self.closed(eg)[8:]], [0, 0])
        self.assertNotIn("no.test", self.asked())

    def test_an_address_with_a_name_within(self):
        with Egress(allow={"203.0.113.10:443", "v4.test:443"}) as eg:
            for s in self.doors(eg, "203.0.113.10"):
                self.refused(s, client_hello("no.test"))
            for s in self.doors(eg, "203.0.113.10"):
                self.passes(s, client_hello("v4.test"))

    def test_however_it_is_cut(self):
        rand = random.Random(62)
        with Egress(allow={"ok.test:443"}) as eg:
            for size in (1, 5, 100):
                for name, check in (("ok.test", self.passes), ("no.test", self.refused)):
                    whole = in_records(client_hello(name), size)
                    s = eg.tunnel("ok.test:443")
                    at = 0
                    while at < len(whole) - 1:
                        n = rand.randint(1, 60)
                        s.sendall(whole[at:min(at + n, len(whole) - 1)])
                        at = min(at + n, len(whole) - 1)
                    s.setblocking(False)
                    self.assertRaises(BlockingIOError, s.recv, 1)  # nothing went on before it is whole
                    s.settimeout(15)
                    s.sendall(whole[-1:])
                    if check == self.passes:
                        self.assertEqual(take(s, len(whole)), whole)
                    else:
                        self.assertEqual(read_all(s), ALERT)
                    s.close()

    def test_early_data_with_the_head(self):
        with Egress(allow={"ok.test:443"}) as eg:
            for name in ("ok.test", "no.test"):
                hello = client_hello(name)
                with eg.connect() as s:
                    s.sendall(b"CONNECT ok.test:443 HTTP/1.1\r\nHost: x\r\n\r\n" + hello)
                    head = b""
                    while not head.endswith(b"\r\n\r\n"):
                        head += s.recv(1)
                    if name == "ok.test":
                        self.assertEqual(take(s, len(hello)), hello)
                    else:
                        self.assertEqual(read_all(s), ALERT)

    def test_odd_hellos_go_nowhere(self):
        hello = client_hello("ok.test")
        at = hello.index(b"ok.test") - 9  # the extension: type, length, list length, type, length, name
        twice = hello[:at] + hello[at:at + 16] + hello[at:]
        body = len(twice) - 5
        twice = twice[:3] + body.to_bytes(2, "big") + twice[5:6] + (body - 4).to_bytes(3, "big") + twice[9:]
        with Egress(allow={"ok.test:443"}) as eg:
            for first in (twice, hello[:3] + b"\x00\x00" + hello[5:], b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00",
                          hello[:5] + b"\x01\xff\xff\xff" + hello[9:], hello.replace(b"ok.test", b"ok\0test")):
                self.refused(eg.tunnel("ok.test:443"), first)
            endless = in_records(b"\x16\x03\x01\0\0\x01\x00\xff\x00" + bytes(7000), 1)
            self.refused(eg.tunnel("ok.test:443"), endless)
            with eg.tunnel("ok.test:443") as s:  # ends within it
                s.sendall(hello[:100])
                s.shutdown(socket.SHUT_WR)
                self.assertEqual(read_all(s), ALERT)
            eg.wait(lambda: len(eg.refused) == 7, "each is told")
            self.assertEqual({r[1] for r in eg.refused}, {"ok.test"})
            eg.wait(lambda: len(eg.closed) == 7, "told")
            self.assertEqual({c[2:4] for c in eg.closed}, {(0, 0)})

    def test_what_is_no_tls_is_not_held(self):
        with Egress(allow={"ok.test"}) as eg:
            for s in self.doors(eg, port=9002):  # the server speaks first
                with s:
                    self.assertEqual(take(s, 9), b"220 lab\r\n")
                    s.sendall(b"EHLO\r\n")
                    self.assertEqual(take(s, 6), b"EHLO\r\n")
                    hello = client_hello("no.test")  # as STARTTLS would: not seen, and told as opaque
                    s.sendall(hello)
                    self.assertEqual(take(s, len(hello)), hello)
            for first in (b"SSH-2.0-x\r\n", b"\x00\x00\x00\x08\x04\xd2\x16\x2f", b"\x16\x02", b"\x17\x03\x03\x00\x01x"):
                self.passes(eg.tunnel("ok.test:443"), first)
            with eg.tunnel("ok.test:9001") as s:  # not a byte, but its end
                s.shutdown(socket.SHUT_WR)
                self.assertEqual(len(read_all(s)), 1 << 20)
            eg.wait(lambda: len(eg.closed) == 7, "told")
            self.assertEqual({c[4] for c in eg.closed}, {1})

    def test_a_server_is_heard_while_the_name_is_asked_for(self):
        with Egress(decide=lambda host, _: (ALLOW, 0) if host == "ok.test" else None) as eg:
            with eg.tunnel("ok.test:9002") as s:
                hello = client_hello("no.test")
                s.sendall(hello)
                eg.wait(lambda: len(eg.checks) == 2, "the name's check")
                self.assertEqual(take(s, 9), b"220 lab\r\n")
                eg.verdict(*eg.checks[1][:2], ALLOW)
                self.assertEqual(take(s, len(hello)), hello)
            with eg.tunnel("ok.test:9002") as s:  # after the server's words an alert would be nonsense
                s.sendall(hello)
                self.assertEqual(take(s, 9), b"220 lab\r\n")
                eg.wait(lambda: len(eg.checks) == 4, "the name's check")
                eg.verdict(*eg.checks[3][:2], DENY)
                self.assertIn(read_all(s), (b"<reset>", b""))
            s = eg.tunnel("ok.test:443")  # gone before the answer
            s.sendall(hello)
            eg.wait(lambda: len(eg.checks) == 6, "the name's check")
            s.close()
            with eg.tunnel("ok.test:443") as s:
                eg.verdict(*eg.checks[5][:2], ALLOW)
                eg.verdict(eg.checks[6][0], NAME_REQUEST | 1, ALLOW)  # never asked
                s.sendall(hello)
                eg.wait(lambda: len(eg.checks) == 8, "the name's check")
            eg.wait(lambda: len(eg.results) == 4, "those of the tunnels alone")


SERVER = """
import socket, ssl, sys, threading
c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
c.load_cert_chain(sys.argv[1], sys.argv[2])
def named(s, name, _):
    s.lab = name
c.sni_callback = named
l = socket.create_server(("::", int(sys.argv[3])), family=socket.AF_INET6, dualstack_ipv6=True)
def serve(s):
    try:
        t = c.wrap_socket(s, server_side=True)
        with open(sys.argv[4], "a") as f:
            f.write(str(getattr(t, "lab", None)) + "\\n")
        t.recv(65536)
        t.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 6\\r\\nConnection: close\\r\\n\\r\\nhello\\n")
        t.unwrap()
    except OSError:
        pass
while True:
    threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
"""


class Clients(ApiTest):
    """curl and openssl inside, through cordond, to a real TLS server that logs the names it is asked for."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.key, cls.cert, cls.log = (os.path.join(cls.d.base, n) for n in ("key.pem", "cert.pem", "names"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-keyout", cls.key, "-out", cls.cert, "-days", "2", "-subj", "/CN=ok.test", "-addext",
                        "subjectAltName=DNS:ok.test,DNS:a.ok.test,DNS:no.test"], check=True, capture_output=True)
        subprocess.run(["cp", cls.cert, os.path.join(cls.work, "ca.pem")], check=True)
        open(cls.log, "w").close()
        cls.far = lab.Far([sys.executable, "-c", SERVER, cls.cert, cls.key, str(TLS_PORT), cls.log])
        lab.far_listens(TLS_PORT)

    @classmethod
    def tearDownClass(cls):
        cls.far.close()
        super().tearDownClass()

    def names(self):
        with open(self.log) as f:
            return f.read().split("\n")[:-1]

    def test_curl_and_openssl(self):
        s = self.session(sites=[{"host": "ok.test", "port": TLS_PORT}])
        p = TLS_PORT
        curl = f"cd {self.work}; curl -sS -m 20 --cacert ca.pem "
        c = self.run_in(s, curl + f"https://ok.test:{p}/")
        self.assertEqual(c["text"]["stdout"], "hello\n", c)
        self.assertEqual(self.names(), ["ok.test"])
        for shell in (curl + f"--connect-to no.test:{p}:ok.test:{p} https://no.test:{p}/",
                      curl + f"--socks5-hostname ${{http_proxy#http://}} --connect-to no.test:{p}:ok.test:{p} https://no.test:{p}/",
                      "echo | openssl s_client -proxy ${http_proxy#http://} "
                      f"-connect ok.test:{p} -servername no.test >&2"):
            c = self.run_in(s, shell)
            self.assertIn("access denied", c["text"]["stderr"], c)
            self.assertEqual([(b["host"], b["port"], b["count"], b["reason"]) for b in c["result"]["blocked"]],
                             [("no.test", p, 1, "name_mismatch")], c)
        self.assertEqual(self.names(), ["ok.test"])
        # A program that knows no proxy: the name its address stands for, and the name it says.
        c = self.run_in(s, curl + f"--noproxy '*' --connect-to no.test:{p}:ok.test:{p} https://no.test:{p}/")
        self.assertIn("access denied", c["text"]["stderr"], c)
        self.assertEqual([(b["host"], b["reason"]) for b in c["result"]["blocked"]], [("no.test", "name_mismatch")], c)
        self.assertEqual(self.names(), ["ok.test"])
        c = self.run_in(s, curl + f"--noproxy '*' https://ok.test:{p}/")
        self.assertEqual(c["text"]["stdout"], "hello\n", c)
        self.assertEqual(self.names(), ["ok.test"] * 2)
        c = self.run_in(s, f"echo | openssl s_client -proxy ${{http_proxy#http://}} -connect ok.test:{p} -noservername")
        self.assertIn("BEGIN CERTIFICATE", c["text"]["stdout"])
        self.assertEqual(self.names(), ["ok.test", "ok.test", "None"])
        blocked = self.c.call("GET", f"/v1/sessions/{s['id']}/blocked")["items"]
        self.assertEqual([(b["host"], b["port"], b["reason"], b["count"]) for b in blocked],
                         [("no.test", p, "name_mismatch", 4)])
        # Allowed by itself: it goes, and ends when it is taken back.
        site = self.c.call("POST", f"/v1/sessions/{s['id']}/sites", {"host": "no.test", "port": p}, 201)
        c = self.run_in(s, curl + f"--connect-to no.test:{p}:ok.test:{p} https://no.test:{p}/")
        self.assertEqual(c["text"]["stdout"], "hello\n", c)
        self.assertEqual(self.names(), ["ok.test", "ok.test", "None", "no.test"])
        rows = [r for r in self.audit(f"session={s['id']}") if r["action"] == "connection.closed"]
        self.assertEqual([(r["target"], r["after"]["opaque"], r["after"].get("tls_name")) for r in rows[::-1]],
                         [(f"ok.test:{p}", False, None)] + [(f"ok.test:{p}", True, None)] * 4 +
                         [(f"ok.test:{p}", False, None), (f"ok.test:{p}", True, None)] +
                         [(f"ok.test:{p}", False, "no.test")])
        # What is open on it ends when it is taken back.
        held = self.start(s, f"cd {self.work}; mkfifo f; exec 3<>f; openssl s_client -quiet -proxy ${{http_proxy#http://}} "
                             f"-connect ok.test:{p} -servername no.test <&3 2>/dev/null; echo ended")
        lab.wait_for(lambda: len(self.names()) == 5, "the held tunnel")
        self.c.call("DELETE", f"/v1/sessions/{s['id']}/sites/{site['id']}", want=204)
        self.assertEqual(self.wait_end(held)["text"]["stdout"], "ended\n")
        self.assertEqual(self.names(), ["ok.test", "ok.test", "None", "no.test", "no.test"])


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
