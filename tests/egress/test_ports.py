"""Ports both ways, and network open: published ports, services of the host's loopback by grant.

The host is the lab's near side, so its loopback is this test's alone.
"""
import os
import socket
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402

lab.enter()
from cordon_test.api import ApiTest  # noqa: E402
from cordon_test.daemon import Daemon  # noqa: E402

MIB = 1 << 20


class Service:
    """A server on the host that says TEXT to all and counts them; with ECHO it sends back what came; with HTTP it
    is asked first."""

    def __init__(self, at, port, text=b"the host's own\n", echo=False, http=False):
        self.sock = socket.create_server((at, port), family=socket.AF_INET6 if ":" in at else socket.AF_INET)
        self.text, self.echo, self.n = b"HTTP/1.0 200 OK\r\n\r\n" * http + text, echo, 0
        self.http = http
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                c = self.sock.accept()[0]
            except OSError:
                return
            self.n += 1
            threading.Thread(target=self.one, args=(c,), daemon=True).start()

    def one(self, c):
        line = b""
        with c:
            try:
                while self.http and not (line := line[-4:] + c.recv(1)).endswith(b"\r\n\r\n"):
                    pass
                c.sendall(self.text)
                while self.echo and (data := c.recv(65536)):
                    c.sendall(data)
            except OSError:
                pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def get(port, at="127.0.0.1", send=b"", timeout=10):
    """What a connection from the host says until its end; b'' for a reset."""
    try:
        with socket.create_connection((at, port), timeout) as s:
            s.sendall(send)
            s.shutdown(socket.SHUT_WR)
            return s.makefile("rb").read()
    except (ConnectionResetError, BrokenPipeError):
        return b""


class Ports(ApiTest):
    def setUp(self):
        subprocess.run(["find", self.work, "-mindepth", "1", "-delete"], check=True)

    def run_ok(self, s, shell):
        c = self.run_in(s, shell)
        self.assertEqual(c["result"]["exit_code"], 0, c)
        return c["text"]["stdout"]

    def serve(self, s, port, body, at="127.0.0.1"):
        """A server inside that runs BODY (c is the connection) for each client; returns once it listens."""
        with open(f"{self.work}/server{port}.py", "w") as f:
            f.write("import socket\n"
                    f"s = socket.create_server(('{at}', {port}), family=socket.AF_INET{'6' if ':' in at else ''})\n"
                    f"open('{self.work}/up', 'w').close()\n"
                    f"while True:\n    c = s.accept()[0]\n    {body}\n    c.close()\n")
        c = self.start(s, f"/usr/bin/python3 server{port}.py")
        lab.wait_for(lambda: os.path.exists(f"{self.work}/up"), f"the server on {port}", 30)
        os.unlink(f"{self.work}/up")
        return c

    def rows(self, s, action):
        return [a for a in self.audit(f"action={action}") if a["session_id"] == s["id"]]

    def renewable(self, query="", **more):
        """A session whose sandbox is made anew when its read-only folder inside the writable one is replaced."""
        inner = f"{self.work}/inner"
        os.mkdir(inner)
        s = self.c.call("POST", "/v1/sessions" + query, {
            "folders": [{"path": self.work}, {"path": inner, "mode": "ro"}], "require_wall": True, **more}, 201)
        self.addCleanup(self.end_session, s["id"])
        return s

    def renew(self, s):
        os.rename(f"{self.work}/inner", f"{self.work}/inner.old")
        os.mkdir(f"{self.work}/inner")
        self.run_ok(s, "true")
        self.assertEqual(len(self.rows(s, "session.restarted")), 1)

    def kill_egress(self):
        for pid in self.d.tree():
            try:
                with open(f"/proc/{pid}/comm") as f:
                    is_one = f.read().startswith("cordon-egress")
                if is_one:
                    os.kill(pid, 9)
            except (FileNotFoundError, ProcessLookupError):
                pass  # it ended by itself

    # ---- Published -----------------------------------------------------------------------------

    def test_a_published_port_answers_on_loopback_alone_and_until_the_end(self):
        s = self.session(publish=[3000, 3001])
        self.assertEqual(self.c.call("GET", f"/v1/sessions/{s['id']}")["publish"], [3000, 3001])
        self.assertEqual(get(3000), b"")  # nothing listens inside yet
        self.serve(s, 3000, "c.sendall(b'from inside')")
        self.assertEqual(get(3000), b"from inside")
        self.serve(s, 3001, "c.sendall(b'six')", at="::1")  # as many dev servers do
        self.assertEqual(get(3001), b"six")
        for at in ("203.0.113.1", "::1", "2001:db8::1"):
            with self.assertRaises(ConnectionRefusedError):
                get(3000, at)
        opened = self.rows(s, "connection.opened")
        self.assertEqual([(a["target"], a["outcome"], a["after"]["rule"]) for a in reversed(opened)],
                         [("localhost:3000", "error", "publish 3000"), ("localhost:3000", "ok", "publish 3000"),
                          ("localhost:3001", "ok", "publish 3001")])
        self.assertEqual(self.c.call("GET", f"/v1/sessions/{s['id']}/blocked")["items"], [])
        with socket.create_connection(("127.0.0.1", 3000), 10) as open_one:
            self.assertEqual(open_one.recv(1), b"f")
            self.end_session(s["id"])
            lab.wait_for(lambda: self.c.call("GET", f"/v1/sessions/{s['id']}")["state"] == "ended", "the end")
            try:
                self.assertEqual(open_one.makefile("rb").read().strip(b"rom inside"), b"")
            except ConnectionError:
                pass
        for port in (3000, 3001):
            with self.assertRaises(ConnectionRefusedError):
                get(port)

    def test_bytes_both_ways_and_each_end_by_itself(self):
        s = self.session(publish=[3002])
        self.serve(s, 3002, "n = sum(len(x) for x in iter(lambda: c.recv(65536), b'')); "
                            "c.sendall(str(n).encode() + bytes(1 << 20))")
        got = get(3002, send=bytes(5 * MIB), timeout=60)
        self.assertEqual((got[:7], len(got)), (b"5242880", 7 + MIB))
        closed = [a["after"] for a in self.rows(s, "connection.closed")]
        self.assertEqual([(a["up_bytes"], a["down_bytes"]) for a in closed], [(5 * MIB, 7 + MIB)])

    def test_a_server_that_is_slow_to_accept_delays_nobody_else(self):
        s = self.session(publish=[3007])
        c = self.start(s, argv=["/usr/bin/python3", "-c", f"""if True:
            import os, socket, time
            s = socket.socket()
            s.bind(('127.0.0.1', 3007))
            s.listen(0)
            open('{self.work}/up', 'w').close()
            while not os.path.exists('{self.work}/go'):
                time.sleep(0.02)
            while True:
                c = s.accept()[0]
                c.sendall(b'late')
                c.close()"""])
        lab.wait_for(lambda: os.path.exists(f"{self.work}/up"), "the server", 30)
        got = []
        clients = [threading.Thread(target=lambda: got.append(get(3007, timeout=60))) for _ in range(8)]
        for t in clients:
            t.start()
        self.assertEqual(self.run_ok(s, "echo as ever"), "as ever\n")
        self.assertEqual(got, [])
        open(f"{self.work}/go", "w").close()
        for t in clients:
            t.join()
        self.assertEqual(got, [b"late"] * 8)
        self.assertEqual(self.c.call("GET", self.at(c))["state"], "running")

    def test_what_cannot_be_published(self):
        body = lambda **more: {"folders": [{"path": self.work}], "require_wall": True, **more}
        with socket.create_server(("127.0.0.1", 3003)):
            p = self.c.problem(409, "exists", "POST", "/v1/sessions", body(publish=[3004, 3003]))
            self.assertIn("port 3003 of 127.0.0.1 is taken", p["detail"])
        s = self.session(publish=[3003, 3004])  # nothing was left of the one that was refused
        self.c.problem(409, "exists", "POST", "/v1/sessions", body(publish=[3004]))
        self.end_session(s["id"])
        lab.wait_for(lambda: self.c.call("GET", f"/v1/sessions/{s['id']}")["state"] == "ended", "the end")
        last = self.session(publish=[3004])
        for ports, more in (([3005, 3005], {}), (["3005"], {}), ([65536], {}), ([3005], {"network": "none"}),
                            ([3005], {"require_wall": False})):
            self.c.problem(422, "body_invalid", "POST", "/v1/sessions", body(publish=ports, **more))
        self.c.problem(422, "body_invalid", "POST", "/v1/sessions", body(publish=[7410]))  # the door inside
        self.c.problem(409, "exists", "POST", "/v1/sessions", body(publish=[self.d.port]))
        # Both ways at once would be a circle.
        self.c.problem(422, "body_invalid", "POST", "/v1/sessions?confirm=localhost",
                       body(publish=[3005], sites=[{"host": "localhost", "port": 3005}]))
        self.c.problem(422, "site_invalid", "POST", f"/v1/sessions/{last['id']}/sites?confirm=localhost",
                       {"host": "localhost", "port": 3004})
        if os.getuid() != 0:
            self.c.problem(422, "body_invalid", "POST", "/v1/sessions", body(publish=[80]))

    def test_after_a_restart_and_after_the_death_of_the_egress(self):
        s = self.renewable(publish=[3006])
        self.serve(s, 3006, "c.sendall(b'old')")
        self.renew(s)
        self.assertEqual(get(3006), b"old")  # it goes on in its sandbox, and nothing new listens
        new = self.serve(s, 3006, "c.sendall(b'new')")
        self.assertEqual(get(3006), b"new")
        self.c.call("POST", f"{self.at(new)}/signal", {"signal": "KILL"})
        lab.wait_for(lambda: get(3006) == b"old", "the older server to answer again")
        self.kill_egress()
        lab.wait_for(lambda: get(3006) == b"old", "the port to answer by the next egress", 30)

    def test_nothing_is_left_of_a_daemon_that_was_killed(self):
        with Daemon() as d:
            c = d.client()
            s = c.call("POST", "/v1/sessions", {"folders": [{"path": d.work}], "require_wall": True,
                                                "publish": [3010]}, 201)
            c.call("POST", f"/v1/sessions/{s['id']}/commands", {"argv": [
                "/usr/bin/python3", "-c", f"import socket; s = socket.create_server(('127.0.0.1', 3010)); "
                f"open('{d.work}/up', 'w').close()\nwhile True: c = s.accept()[0]; c.sendall(b'up'); c.close()"]}, 201)
            lab.wait_for(lambda: os.path.exists(f"{d.work}/up"), "the server", 30)
            self.assertEqual(get(3010), b"up")
            d.kill()

            def is_refused():
                try:
                    get(3010)
                except ConnectionRefusedError:
                    return True
            lab.wait_for(is_refused, "the port to be closed")
            d.start()

    # ---- Services of the host ------------------------------------------------------------------

    def grant(self, s, port):
        at = f"/v1/sessions/{s['id']}/sites"
        p = self.c.problem(409, "confirm_required", "POST", at, {"host": "localhost", "port": port})
        self.assertEqual(p["confirm"], "localhost")
        return self.c.call("POST", f"{at}?confirm=localhost", {"host": "localhost", "port": port}, 201)

    NC = ("import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10); "
          "print(s.recv(99).decode(), end='')")

    def reach(self, s, host, port):
        """What a program inside that knows no proxy hears there."""
        return self.run_in(s, f'/usr/bin/python3 -c "{self.NC}" {host} {port}')

    def test_a_service_of_the_host_by_grant_and_taken_back(self):
        with Service("127.0.0.1", 5000, echo=True) as service, Service("127.0.0.1", 5009) as other:
            s = self.session()
            for host in ("localhost", "127.0.0.1", "::1", "203.0.113.1"):
                self.assertNotEqual(self.reach(s, host, 5000)["result"]["exit_code"], 0)
            self.assertEqual(service.n, 0)
            site = self.grant(s, 5000)
            for host in ("localhost", "127.0.0.1", "::1"):
                self.assertEqual(self.reach(s, host, 5000)["text"]["stdout"], "the host's own\n", host)
            self.assertEqual(service.n, 3)
            self.assertIn("HTTP/1.1 200", self.run_ok(
                s, "curl -sv -m 5 --noproxy '' -px $http_proxy http://localhost:5000/ 2>&1 | grep 'HTTP/1.1 '; true"))
            for host, port in (("localhost", 5009), ("127.0.0.1", 5009), ("203.0.113.1", 5000)):
                self.assertNotEqual(self.reach(s, host, port)["result"]["exit_code"], 0)
                c = self.run_in(s, f"curl -s -m 5 --noproxy '' -px $http_proxy -o /dev/null -w '%{{http_connect}}' "
                                   f"http://{host}:{port}/")
                self.assertEqual(c["text"]["stdout"], "403", (host, port))
            self.assertEqual(other.n, 0)
            opened = self.rows(s, "connection.opened")
            self.assertEqual({(a["target"], a["after"]["address"]) for a in opened},
                             {("localhost:5000", "127.0.0.1:5000")})
            other_session = self.session()
            self.assertNotEqual(self.reach(other_session, "localhost", 5000)["result"]["exit_code"], 0)
            # Taken back: what is open is cut, and the port is free inside.
            c = self.start(s, f"/usr/bin/python3 -c \"import socket; s = socket.create_connection(('localhost', 5000)); "
                              f"s.recv(99); open('{self.work}/open', 'w').close(); s.recv(1)\"; echo cut")
            lab.wait_for(lambda: os.path.exists(f"{self.work}/open"), "the open connection", 30)
            self.c.call("DELETE", f"/v1/sessions/{s['id']}/sites/{site['id']}", want=204)
            self.assertEqual(self.wait_end(c)["state"], "exited")
            before = service.n
            for host in ("localhost", "::1"):
                self.assertIn("refused", self.reach(s, host, 5000)["text"]["stderr"])
            self.assertEqual(service.n, before)
            self.grant(s, 5000)  # and once more
            self.assertEqual(self.reach(s, "localhost", 5000)["text"]["stdout"], "the host's own\n")

    def test_low_ports_and_services_on_v6_alone_and_from_the_start(self):
        low = 80 if os.getuid() == 0 else 5080
        with Service("127.0.0.1", low), Service("::1", 5006, b"six\n"):
            s = self.renewable("?confirm=localhost", sites=[{"host": "localhost", "port": low},
                                                            {"host": "localhost", "port": 5006}])
            self.assertEqual(self.reach(s, "localhost", low)["text"]["stdout"], "the host's own\n")
            self.assertEqual(self.reach(s, "localhost", 5006)["text"]["stdout"], "six\n")
            self.renew(s)
            self.assertEqual(self.reach(s, "localhost", 5006)["text"]["stdout"], "six\n")
            self.kill_egress()
            lab.wait_for(lambda: self.reach(s, "localhost", 5006)["text"]["stdout"] == "six\n", "the next egress", 30)
            self.assertEqual(self.c.call("GET", f"/v1/sessions/{s['id']}")["warnings"],
                             [w for w in s["warnings"]])

    def test_a_port_that_is_taken_inside_is_told(self):
        with Service("127.0.0.1", 5001) as service:
            s = self.session()
            server = self.serve(s, 5001, "c.sendall(b'inside')")
            site = self.grant(s, 5001)
            told = lambda: [w["detail"] for w in self.c.call("GET", f"/v1/sessions/{s['id']}")["warnings"]
                            if w["code"] == "port_taken"]
            lab.wait_for(told, "the warning")
            self.assertIn("localhost:5001 is not the host's inside", told()[0])
            self.assertEqual(self.reach(s, "127.0.0.1", 5001)["text"]["stdout"], "inside")
            self.assertEqual(service.n, 0)
            # As it says: end it, remove the site, add it again.
            self.c.call("POST", f"{self.at(server)}/signal", {"signal": "KILL"})
            self.wait_end(server)
            self.c.call("DELETE", f"/v1/sessions/{s['id']}/sites/{site['id']}", want=204)
            self.grant(s, 5001)
            self.assertEqual(self.reach(s, "127.0.0.1", 5001)["text"]["stdout"], "the host's own\n")
            self.assertEqual(len(told()), 1)

    def test_what_no_grant_opens(self):
        at = None
        with Service("127.0.0.1", 5002) as service:
            s = self.c.call("POST", "/v1/sessions?confirm=*", {"folders": [{"path": self.work}], "require_wall": True,
                                                               "sites": [{"host": "*", "port": 5002}]}, 201)
            self.addCleanup(self.end_session, s["id"])
            at = f"/v1/sessions/{s['id']}/sites"
            self.assertNotEqual(self.reach(s, "localhost", 5002)["result"]["exit_code"], 0)
            c = self.run_in(s, "for h in localhost 127.0.0.1 '[::1]' lo.test; do curl -s -m 5 --noproxy '' -px $http_proxy "
                               "-o /dev/null -w '%{http_connect} ' http://$h:5002/; done")
            self.assertEqual(c["text"]["stdout"], "403 403 403 403 ")
            c = self.run_in(s, "curl -s -m 5 --noproxy '' -x $http_proxy http://localhost:5002/")
            self.assertIn(f"What to do: cordon sites add --session {s['id']} localhost:5002\n", c["text"]["stdout"])
            self.assertEqual(service.n, 0)
        for host, port in (("localhost", None), ("localhost", self.d.port), ("localhost", 7410), ("127.0.0.1", 5002),
                           ("[::1]", 5002)):
            body = {"host": host, **({"port": port} if port else {})}
            self.c.problem(422, "site_invalid", "POST", f"{at}?confirm=localhost", body)
        for lst in ("machine", "guarded"):
            self.c.problem(422, "site_invalid", "POST", "/v1/sites?confirm=localhost",
                           {"host": "localhost", "port": 5002, "list": lst})
        for i in range(32):
            self.c.call("POST", f"{at}?confirm=localhost", {"host": "localhost", "port": 6000 + i}, 201)
        self.c.problem(429, "too_many", "POST", f"{at}?confirm=localhost", {"host": "localhost", "port": 6032})
        agent = self.agent(s, "read", "exec")
        agent.problem(403, "scope_missing", "POST", f"{at}?confirm=localhost", {"host": "localhost", "port": 6040})

    # case 68, case 80
    CLIENTS = {
        "curl": "curl -sS -m 10 {}", "wget": "wget -qO- -T 10 {}",
        "python": "/usr/bin/python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode(), "
                  "end=\"\")' {}",
        "node": "node -e 'require(\"http\").get(process.argv[1], r => r.pipe(process.stdout))' {}"}

    def test_localhost_is_inside_for_every_client_and_the_host_by_grant(self):
        s = self.session()
        http = "c.recv(9999); c.sendall(b'HTTP/1.0 200 OK\\r\\n\\r\\ninside\\n')"
        self.serve(s, 8123, http)
        self.serve(s, 8124, http, at="::1")
        out = self.run_ok(s, 'printf "%s\n%s\n" "$NO_PROXY" "$no_proxy"').splitlines()
        self.assertEqual(out[0], out[1])
        self.assertLessEqual({"localhost", "127.0.0.1", "::1", "[::1]"}, set(out[0].split(",")))
        for name, client in self.CLIENTS.items():
            for url in ("http://localhost:8123/", "http://127.0.0.1:8123/", "http://[::1]:8124/"):
                self.assertEqual(self.run_ok(s, client.format(url)), "inside\n", (name, url))
        with Service("127.0.0.1", 5010, http=True):
            self.grant(s, 5010)
            for name, client in self.CLIENTS.items():
                self.assertEqual(self.run_ok(s, client.format("http://localhost:5010/")), "the host's own\n", name)
        self.assertEqual(self.c.call("GET", f"/v1/sessions/{s['id']}/blocked")["items"], [])

    # ---- Network open --------------------------------------------------------------------------

    def test_network_open_is_the_same_doors_with_every_verdict_allow(self):
        body = {"folders": [{"path": self.work}], "require_wall": True, "network": "open"}
        self.assertEqual(self.c.problem(409, "confirm_required", "POST", "/v1/sessions", body)["confirm"], "open")
        s = self.c.call("POST", "/v1/sessions?confirm=open", body, 201)
        self.addCleanup(self.end_session, s["id"])
        self.assertEqual(s["enforcement"]["level"], "files")
        mark = lab.mark()
        code = lambda url: self.run_in(
            s, f"curl -s -m 10 --noproxy '' -px $http_proxy -o /dev/null -w '%{{http_connect}}' {url}")["text"]["stdout"]
        for url, address in (("http://no.test:8080/hello", lab.NO4), ("http://priv.test:8080/hello", "10.9.0.10"),
                             ("http://10.9.0.10:8080/hello", "10.9.0.10"), ("http://203.0.113.11:9009/", lab.NO4)):
            self.assertEqual(code(url), "200", url)
            lab.mark()
            self.assertTrue([r for r in lab.reached(mark, at=address)] or address == lab.NO4 and
                            lab.reached(mark, at=lab.NO6), url)
        mark = lab.mark()
        with Service("127.0.0.1", 5003) as service:
            for host in ("localhost", "127.0.0.1", "[::1]", "lo.test", "203.0.113.1", "own.test", "[2001:db8::1]",
                         "meta.test", "169.254.169.254", "ll.test", "[fe80::1]", "multi.test", "cgn.test", "zero.test"):
                self.assertEqual(code(f"http://{host}:5003/"), "403", host)
            self.assertEqual(code(f"http://no.test:{self.d.port}/"), "403")  # Cordon's own port, at whatever host
            self.assertEqual(service.n, 0)
        lab.mark()
        self.assertEqual(lab.reached(mark), [])
        rules = {(a["target"], a["after"]["rule"]) for a in self.rows(s, "connection.opened") if a["outcome"] == "ok"}
        self.assertIn(("no.test:8080", "network open"), rules)
        self.assertIn(("priv.test:8080", "network open"), rules)
        # Programs that know no proxy: by a name, and by an address that stands in no list.
        for host in ("no.test", "203.0.113.11", "10.9.0.10"):
            self.assertEqual(self.reach(s, host, 9002)["text"]["stdout"], "220 lab\r\n", host)
        with Service("127.0.0.1", 5003) as service:
            for host in ("203.0.113.1", "own.test", "lo.test", "169.254.169.254", "meta.test"):
                self.assertEqual(self.reach(s, host, 5003)["text"]["stdout"], "", host)
            self.assertEqual(service.n, 0)
        # A grant opens the one service of the host that it names, here as elsewhere.
        with Service("127.0.0.1", 5004):
            self.grant(s, 5004)
            self.assertEqual(self.reach(s, "localhost", 5004)["text"]["stdout"], "the host's own\n")


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
