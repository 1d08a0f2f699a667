"""The Host of a request: its own address in the few spellings that browsers use, and no other; heads that
are no proper HTTP/1.1."""
import os
import socket
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest


class Host(ApiTest):
    # case 106
    def test_other_spellings_are_refused(self):
        p = self.d.port
        hosts = ["evil.test", f"evil.test:{p}", f"localhost.evil.test:{p}", f"127.0.0.1.evil.test:{p}", "127.0.0.1",
                 "localhost", "[::1]", f"127.0.0.1:{p + 1}", f"127.1:{p}", f"2130706433:{p}", f"0x7f000001:{p}",
                 f"0177.0.0.1:{p}", f"localhost.:{p}", f"127.0.0.1.:{p}", f"localhost:{p}@evil.test",
                 f"user@localhost:{p}", f"0.0.0.0:{p}", f"[::]:{p}", f"[::ffff:127.0.0.1]:{p}", f"[0:0:0:0:0:0:0:1]:{p}",
                 f"::1:{p}", f"127.0.0.2:{p}", f"127.0.0.1:0{p}", f"127.0.0.1:{p}/", f"127.0.0.1:{p}, evil.test",
                 f"localhost:{p}\tx", f"{socket.gethostname()}:{p}", f"http://127.0.0.1:{p}", f"127.0.0.1:+{p}", "*", ""]
        for via in (self.tcp, self.tcp.other(via="v6")):
            for host in hosts:
                for path in ("/v1/health", "/ui/", "/nothing"):
                    a = via.ask("GET", path, headers={"Host": host})
                    self.assertEqual((a.status, a.json["code"]), (403, "host_not_allowed"), (host, path))
                    self.assertNotIn("evil", a.json["hint"])
        p = via.problem(403, "host_not_allowed", "GET", "/", headers={"Host": "evil.test"})
        self.assertIn(f"http://127.0.0.1:{self.d.port}", p["detail"] + p.get("url", ""))  # names the address to use

    def test_its_own_spellings(self):
        p = self.d.port
        for via in (self.tcp, self.tcp.other(via="v6")):
            for host in (f"127.0.0.1:{p}", f"[::1]:{p}", f"localhost:{p}", f"LOCALHOST:{p}", f"LocalHost:{p}"):
                via.call("GET", "/v1/health", headers={"Host": host})
        self.c.call("GET", "/v1/health", headers={"Host": "anything.test"})  # the socket is no page's

    def test_none_two_and_old(self):
        p = self.d.port
        mine = f"Host: 127.0.0.1:{p}\r\n"
        for head in ("GET /v1/health HTTP/1.1\r\n\r\n", f"GET /v1/health HTTP/1.1\r\n{mine}{mine}\r\n",
                     f"GET /v1/health HTTP/1.1\r\n{mine}Host: evil.test\r\n\r\n",
                     f"GET /v1/health HTTP/1.1\r\nHost: evil.test\r\n{mine}\r\n",
                     f"GET /v1/health HTTP/1.0\r\n{mine}\r\n", "GET /v1/health HTTP/1.0\r\n\r\n"):
            for c in (self.tcp, self.tcp.other(via="v6"), self.c):
                a = c.send(head.encode(), "GET", "/v1/health")
                self.assertEqual((a.status, a.json["code"]), (400, "host_missing"), head)

    def test_absolute_targets(self):
        """An absolute target is a proxy's; its authority is no way round the Host."""
        p = self.d.port
        for target, host in (("http://evil.test/v1/health", f"127.0.0.1:{p}"),
                             (f"http://127.0.0.1:{p}/v1/health", "evil.test"), ("*", "evil.test"), ("v1/health", "evil.test")):
            a = self.tcp.send(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            self.assertGreaterEqual(a.status, 400, (target, host))
            self.assertIn(a.json["code"], ("host_not_allowed", "not_found"))
        a = self.tcp.send(f"CONNECT 127.0.0.1:{p} HTTP/1.1\r\nHost: 127.0.0.1:{p}\r\n\r\n".encode(), "CONNECT")
        self.assertGreaterEqual(a.status, 400)

    def test_odd_heads(self):
        p = self.d.port
        host = f"Host: 127.0.0.1:{p}\r\n"
        auth = f"Authorization: Bearer {self.d.token}\r\n"
        body = '{"host":"smuggled.test"}'
        for name, head in (
                ("two lengths", f"POST /v1/sites HTTP/1.1\r\n{host}{auth}Content-Type: application/json\r\n"
                                f"Content-Length: 3\r\nContent-Length: {len(body)}\r\n\r\n{body}"),
                ("length and coding", f"POST /v1/sites HTTP/1.1\r\n{host}{auth}Content-Type: application/json\r\n"
                                      f"Content-Length: {len(body)}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
                ("negative length", f"POST /v1/sites HTTP/1.1\r\n{host}{auth}Content-Type: application/json\r\n"
                                    f"Content-Length: -1\r\n\r\n{body}"),
                ("a length with a plus", f"POST /v1/sites HTTP/1.1\r\n{host}{auth}Content-Type: application/json\r\n"
                                         f"Content-Length: +{len(body)}\r\n\r\n{body}")):
            self.assertEqual(self.tcp.send(head.encode()).status, 400, name)
        self.assertNotIn("smuggled.test", [s["host"] for s in self.c.items("/v1/sites?limit=500")])

    def test_a_head_too_large(self):
        self.tcp.call("GET", "/v1/health", headers={"X-Filler": "a" * 12000})
        for headers in ({"X-Filler": "a" * 17000}, {f"X-{i}": "a" * 100 for i in range(170)}):
            self.tcp.problem(431, "headers_too_large", "GET", "/v1/health", headers=headers)
        a = self.tcp.send(self.tcp.head("GET", "/v1/health?" + "a" * 20000, None, {}))
        self.assertIn(a.status, (414, 431))
        self.assertIn(a.json["code"], ("headers_too_large",))

    def test_methods(self):
        a = self.tcp.ask("OPTIONS", "/v1/sessions")
        self.assertEqual((a.status, a.headers["Allow"]), (204, "GET, HEAD, POST, OPTIONS"))
        for method in ("TRACE", "PROPFIND", "LOCK", "get", "CONNECT"):
            a = self.tcp.send(self.tcp.head(method, "/v1/sessions", None, {"Connection": "close"}), method)
            self.assertIn((a.status, a.json["code"]), ((405, "method_not_allowed"), (404, "not_found"), (403, "host_not_allowed")), method)
        a = self.tcp.ask("PUT", "/v1/sessions", b"{}", {"Content-Type": "application/json"})
        self.assertEqual((a.status, a.json["code"], a.headers["Allow"]),
                         (405, "method_not_allowed", "GET, HEAD, POST, OPTIONS"))
        get, head = self.tcp.ask("GET", "/v1/health"), self.tcp.ask("HEAD", "/v1/health")
        self.assertEqual((head.status, head.body, head.headers["Content-Length"]), (200, b"", str(len(get.body))))

    def test_paths(self):
        for target in ("/v1", "/v1/", "/v1//sessions", "/v1/sessions/", "/v1/sessions/..", "/v1/%2e%2e/health",
                       "/v1/./health", "/V1/health", "/v1/sessions/%00", "/v1/sessions/%ff", "/v1/sessions/%", "/v1/healt%68x",
                       "/ui/../v1/health", "/ui/%2e%2e%2fv1", "/ui/nothing.js", "/etc/passwd", "//evil.test/v1/health"):
            self.tcp.problem(404, "not_found", "GET", target)
        self.tcp.call("GET", "/v1/%68ealth")
        for path in ("/v0/health", "/v2/health", "/v99/sessions"):
            self.tcp.problem(404, "version_unknown", "GET", path)

    def test_two_requests_on_one_connection(self):
        one = self.tcp.head("GET", "/v1/health", None, {})
        evil = self.tcp.head("GET", "/v1/health", None, {"Host": "evil.test"})
        with self.tcp.connect() as s:
            s.sendall(one)
            self.assertEqual(self.tcp.receive(s, "GET", "/v1/health").status, 200)
            s.sendall(evil)
            self.assertEqual(self.tcp.receive(s, "GET", "/v1/health").status, 403)  # each is looked at


class Listen(unittest.TestCase):
    # case 109
    def test_loopback_alone(self):
        from cordon_test.daemon import Daemon
        with Daemon() as d:
            found = set()
            for name in ("tcp", "tcp6"):
                with open("/proc/net/" + name) as f:
                    for line in f.readlines()[1:]:
                        local, state = line.split()[1], line.split()[3]
                        address, port = local.rsplit(":", 1)
                        if state == "0A" and int(port, 16) == d.port:
                            found.add(address)
            self.assertEqual(found, {"0100007F", "00000000000000000000000001000000"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
