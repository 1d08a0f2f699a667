"""The proxy of the host's network (case 79): what goes through it, past it, and what is refused.

The proxy is this program's, on the host's loopback as such helpers are; it logs each request's head
and leads to the lab. It knows the names by itself, so that any question to the name server is ours.
"""
import base64
import os
import socket
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402
from cordon_test.egress import (ADDRESS_CLASS, ALLOW, CONNECT_FAILED, OPENED, TIMED_OUT, Egress, body, read_all,  # noqa: E402
                                status)

lab.enter()
from cordon_test.api import ApiTest  # noqa: E402
from cordon_test.daemon import Daemon  # noqa: E402

AUTH = "Basic " + base64.b64encode(b"me:p@ss").decode()
KNOWN = {"ok.test": lab.OK4, "v4.test": lab.OK4}


class Proxy:
    """ANSWER: bytes to say instead of leading anywhere; SILENT: says nothing."""

    def __init__(self, answer=None, silent=False):
        self.answer, self.silent, self.heads, self.n = answer, silent, [], 0
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        self.open = []
        threading.Thread(target=self.accepts, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
        for s in self.open:
            s.close()

    @property
    def at(self):
        return f"127.0.0.1:{self.port}"

    @property
    def lines(self):
        return [h.split("\r\n")[0] for h in self.heads]

    def accepts(self):
        while True:
            try:
                s = self.sock.accept()[0]
            except OSError:
                return
            self.n += 1
            self.open.append(s)
            threading.Thread(target=self.serve, args=(s,), daemon=True).start()

    def serve(self, s):
        try:
            while self.one(s):
                pass
        except (OSError, KeyError, ValueError, IndexError):
            pass
        finally:
            if not self.silent:
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    @staticmethod
    def copy(a, b):
        try:
            while True:
                data = a.recv(65536)
                if not data:
                    break
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def one(self, s):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            more = s.recv(1)
            if not more:
                return False
            head += more
        self.heads.append(head.decode())
        if self.silent:
            threading.Event().wait()
        if self.answer is not None:
            s.sendall(self.answer)
            return False
        method, target = head.decode().split(" ")[:2]
        if method == "CONNECT":
            host, port = target.rsplit(":", 1)
            up = socket.create_connection((KNOWN.get(host, host.strip("[]")), int(port)), 10)
            self.open.append(up)
            first = up.recv(100) if port == "9002" else b""  # what a server says first comes with the head
            s.sendall(b"HTTP/1.1 200 OK\r\nX-Proxy: y\r\n\r\n" + first)
            t = threading.Thread(target=self.copy, args=(up, s))
            t.start()
            self.copy(s, up)
            t.join()
            return False
        host, path = target[7:].split("/", 1)
        name, _, port = host.partition(":")
        with socket.create_connection((KNOWN[name], int(port or 80)), 10) as up:
            up.sendall(head.replace(target.encode(), b"/" + path.encode(), 1))
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += up.recv(65536)
            n = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            while len(body(answer)) < n:
                answer += up.recv(65536)
        s.sendall(answer)
        return True


class Through(lab.Case):
    def egress(self, proxy, auth="", **more):
        eg = Egress(**{"decide": lambda *_: (ALLOW, 0), **more})
        eg.via = (proxy.at if isinstance(proxy, Proxy) else proxy, auth)
        return eg

    def test_tunnels(self):
        with Proxy() as p, self.egress(p, AUTH) as eg:
            with eg.tunnel("ok.test:443") as s:
                s.sendall(b"a word")
                self.assertEqual(s.recv(10), b"a word")
            with eg.tunnel("ok.test:9002") as s:  # came with the proxy's own answer
                self.assertEqual(s.recv(20), b"220 lab\r\n")
            with eg.tunnel("ok.test:9001") as s:
                s.sendall(b"request")
                s.shutdown(socket.SHUT_WR)
                self.assertEqual(len(read_all(s)), 1 << 20)
            with eg.connect() as s:
                s.sendall(b"\x05\x01\x00\x05\x01\x00\x03\x07ok.test\x01\xbbearly")
                got = b""
                while len(got) < 17:
                    got += s.recv(100)
                self.assertEqual(got, b"\x05\x00\x05\x00\x00\x01\0\0\0\0\0\0early")
            self.assertEqual(p.lines, [f"CONNECT ok.test:{n} HTTP/1.1" for n in (443, 9002, 9001, 443)])
            self.assertEqual(p.heads[0], "CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test:443\r\n"
                                         f"Proxy-Authorization: {AUTH}\r\n\r\n")
            eg.wait(lambda: len(eg.closed) == 4, "told")
            self.assertEqual({r[2:] for r in eg.results}, {(OPENED, p.at, "through the upstream proxy")})
        self.assertEqual(self.asked(), [])

    def test_plain_http(self):
        with Proxy() as p, self.egress(p, AUTH) as eg:
            with eg.connect() as s:
                for url, fields in (("http://ok.test:8080/hello", "Proxy-Authorization: Basic own\r\n"),
                                    ("http://ok.test:8080/hello", ""), ("http://v4.test/hello", "Connection: close\r\n")):
                    s.sendall(f"GET {url} HTTP/1.1\r\nHost: no.test\r\n{fields}\r\n".encode())
                answer = read_all(s)
            self.assertEqual(answer.count(b"hello from 203.0.113.10"), 3)
            self.assertEqual(p.lines, ["GET http://ok.test:8080/hello HTTP/1.1"] * 2 + ["GET http://v4.test/hello HTTP/1.1"])
            self.assertEqual(p.n, 2)  # used again for the same place
            self.assertEqual([h.count("Proxy-Authorization: ") for h in p.heads], [1] * 3)
            self.assertIn(f"\r\nProxy-Authorization: {AUTH}\r\n", p.heads[0])
            self.assertNotIn("no.test", "".join(p.heads))
            with eg.connect() as s:
                s.sendall(b"GET http://ok.test:8080/upgrade HTTP/1.1\r\nHost: x\r\nUpgrade: lab\r\nConnection: Upgrade\r\n\r\n")
                got = b""
                while not got.endswith(b"welcome\n"):
                    got += s.recv(4096)
                s.sendall(b"ping")
                self.assertEqual(s.recv(10), b"ping")
            self.assertEqual(p.lines[3:], ["CONNECT ok.test:8080 HTTP/1.1"])
            self.assertEqual(status(eg.get("http://ok.test:8080/status/407")), 502)  # the proxy's, as far as we know
        self.assertEqual(self.asked(), [])

    def test_troubles_name_the_proxy(self):
        for answer, code, outcome, text in (
                (b"HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n", 502, CONNECT_FAILED,
                 b"other credentials"),
                (b"HTTP/1.1 403 No\r\n\r\n", 502, CONNECT_FAILED, b"it refuses (it answered 403)"),
                (b"HTTP/1.1 504 Late\r\n\r\n", 504, TIMED_OUT, b"it answered 504"),
                (b"220 smtp\r\n\r\n", 502, CONNECT_FAILED, b"not HTTP"), (b"", 502, CONNECT_FAILED, b"closed"),
                (b"HTTP/1.1 200 " + b"x" * 70000, 502, CONNECT_FAILED, b"not HTTP")):
            with Proxy(answer) as p, self.egress(p) as eg:
                got = eg.tunnel("ok.test:443")
                self.assertEqual(status(got), code, answer[:30])
                self.assertIn(b"the upstream proxy " + p.at.encode(), got)
                self.assertIn(text, got)
                eg.wait(lambda: eg.owed() == 0, "told")
                self.assertEqual(eg.results[0][2], outcome)
        with Proxy(silent=True) as p, self.egress(p, dial_ms=500) as eg:
            self.assertEqual(status(eg.tunnel("ok.test:443")), 504)
            with eg.connect() as s:  # a client that goes meanwhile
                s.sendall(b"CONNECT ok.test:443 HTTP/1.1\r\n\r\n")
                eg.wait(lambda: len(eg.checks) == 2 and len(p.heads) == 2, "the second is with the proxy")
            eg.wait(lambda: eg.owed() == 0, "told")
        with self.egress("127.0.0.1:1") as eg:
            for got in (eg.tunnel("ok.test:443"), eg.get("http://ok.test/")):
                self.assertEqual(status(got), 502)
                self.assertIn(b"the upstream proxy 127.0.0.1:1", got)
        with self.egress("proxy.nowhere.test:3128") as eg:
            self.assertIn(b"no such name", eg.tunnel("ok.test:443"))
        self.assertLessEqual(set(self.asked()), {"proxy.nowhere.test"})
        self.assertEqual(self.reached(), [])

    def test_an_interim_answer_and_one_in_pieces(self):
        with Proxy(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nfirst") as p, self.egress(p) as eg:
            with eg.tunnel("ok.test:443") as s:
                self.assertEqual(read_all(s), b"first")

    def test_addresses_are_judged_here(self):
        with Proxy() as p, self.egress(p) as eg:
            for target in ("127.0.0.1:80", "[::1]:80", "169.254.169.254:80", "203.0.113.1:80", "10.9.0.10:443"):
                self.assertEqual(status(eg.tunnel(target)), 403, target)
                self.assertEqual(status(eg.get(f"http://{target}/")), 403, target)
            eg.wait(lambda: len(eg.results) == 10, "each is told")
            self.assertEqual({r[2] for r in eg.results}, {ADDRESS_CLASS})
            self.assertEqual(p.n, 0)
            eg.tunnel("203.0.113.10:443").close()
            self.assertEqual(p.lines, ["CONNECT 203.0.113.10:443 HTTP/1.1"])

    def test_ourselves(self):
        with Proxy() as p, self.egress(p, own_ports=[p.port]) as eg:
            for got in (eg.tunnel("ok.test:443"), eg.get("http://ok.test/hello")):
                self.assertEqual(status(got), 502)
                self.assertIn(b"its port is Cordon's own", got)
            self.assertEqual(p.n, 0)


class Sessions(ApiTest):
    CURL = "curl -sS -m 20 -o /dev/null -w '%{http_code} ' "

    def set(self, value, want=200):
        return self.c.patch("/v1/settings", {"sandbox": {"proxy": {"upstream": value}}}, want=want)

    def test_the_setting(self):
        s = self.session(sites=[{"host": "ok.test", "port": 8080}, {"host": "v4.test"}])
        url = self.CURL + "http://ok.test:8080/hello"
        with Proxy() as p:
            self.addCleanup(self.set, None)
            self.assertEqual(self.run_in(s, url)["text"]["stdout"], "200 ")
            self.assertEqual(p.n, 0)
            shown = self.set(f"http://me:p%40ss@{p.at}")["values"]["sandbox"]["proxy"]["upstream"]
            self.assertEqual(shown, f"http://me:***@{p.at}")
            self.assertEqual(self.run_in(s, url)["text"]["stdout"], "200 ")  # the running session's next connection
            self.assertEqual(p.lines, ["GET http://ok.test:8080/hello HTTP/1.1"])
            self.assertIn(f"Proxy-Authorization: {AUTH}", p.heads[0])
            c = self.run_in(s, "curl -sS -m 20 -p http://v4.test:80/hello; " + self.CURL + "https://no.test/")
            self.assertEqual(c["text"]["stdout"], "hello from 203.0.113.10\n000 ")
            self.assertEqual(p.lines[1:], ["CONNECT v4.test:80 HTTP/1.1"])  # refused names do not get so far
            c = self.run_in(s, "curl -sS -m 20 --noproxy '*' http://v4.test/hello")  # knows no proxy
            self.assertEqual(c["text"]["stdout"], "hello from 203.0.113.10\n", c)
            self.assertEqual(p.lines[2:], ["CONNECT v4.test:80 HTTP/1.1"])
            with socket.create_server(("127.0.0.1", 0)) as own:  # the host's own service, by grant: past it
                port = own.getsockname()[1]
                self.c.call("POST", f"/v1/sessions/{s['id']}/sites?confirm=localhost", {"host": "localhost", "port": port}, 201)
                held = self.start(s, f"echo hello | curl -sS -m 20 -T - telnet://localhost:{port}")
                own.settimeout(20)
                with own.accept()[0]:
                    pass
                self.wait_end(held)
            self.assertEqual(len(p.lines), 3)
            opened = [r for r in self.audit(f"session={s['id']}") if r["action"] == "connection.opened"]
            self.assertNotIn("detail", opened[0]["after"])  # of the grant
            self.assertEqual((opened[1]["after"]["address"], opened[1]["after"]["detail"]),
                             (p.at, "through the upstream proxy"))
            for text in ("p@ss", "p%40ss"):  # the password is told nowhere
                self.assertNotIn(text, str(self.c.call("GET", "/v1/settings")) + str(self.audit()) + self.d.log())
        self.set(f"http://127.0.0.1:{self.d.port}")
        c = self.run_in(s, "curl -sS -m 20 http://ok.test:8080/hello")
        self.assertIn("its port is Cordon's own", c["text"]["stdout"])
        for wrong in ("https://p:1", "socks5://p:1", "http://", "http://p:0", "http://me:***@p:1", "http://p:1/x"):
            self.assertIn("no proxy that can be used", str(self.set(wrong, 422)), wrong)

    def test_the_daemons_environment(self):
        with Proxy() as p, Proxy() as q:
            for env, used in (
                    ({"https_proxy": f"http://{p.at}", "HTTP_PROXY": f"http://{q.at}"}, (1, 1)),
                    ({"ALL_PROXY": p.at}, (2, 0)), ({"HTTPS_PROXY": f"http://{p.at}", "NO_PROXY": ".test"}, (0, 0)),
                    ({"HTTPS_PROXY": f"socks5://{p.at}"}, (0, 0))):
                n = p.n, q.n
                with Daemon(**env) as d:
                    c = d.client()
                    s = c.call("POST", "/v1/sessions", {"folders": [{"path": d.work}], "require_wall": True, "sites": [
                        {"host": "ok.test", "port": 8080}]}, 201)
                    c.call("POST", f"/v1/sessions/{s['id']}/commands", {"wait_ms": 60000, "shell":
                           f"{self.CURL} http://ok.test:8080/hello; {self.CURL} -p http://ok.test:8080/hello"}, 201)
                    self.assertEqual((p.n - n[0], q.n - n[1]), used, env)
                    warned = [w["detail"] for w in s["warnings"] if w["code"] == "key_ignored"]
                    self.assertEqual(warned, ["HTTPS_PROXY of the daemon's environment is not used as a proxy: only http:// "
                                              "proxies are known"] if "socks" in str(env) else [])


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
