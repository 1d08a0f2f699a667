"""From inside a session nothing of Cordon's own is reached: not the daemon by any spelling, socket, token,
notice or database, nor another session's way out; what was tried is in the records. Each try is also made
bare, where it does succeed: so it would have been seen."""
import json
import os
import re
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest

# Asks for /v1/health and prints what came; an instance_id in it means that the daemon was reached.
TRY = r"""
import json, os, socket, sys
how, host, port, proxy = sys.argv[1:5]
def connect(at):
    family = socket.AF_UNIX if isinstance(at, str) else socket.AF_INET6 if ":" in at[0] else socket.AF_INET
    s = socket.socket(family)
    s.settimeout(5)
    s.connect(at)
    return s
def proxied():
    p = proxy
    if p.startswith("http"):
        host, _, port = p.split("://")[1].rstrip("/").rpartition("@")[2].rpartition(":")
        return connect((host.strip("[]"), int(port)))
    return connect(p)
ask = b"GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nConnection: close\r\n\r\n" % port.encode()
def read(s):
    out = b""
    while True:
        try:
            part = s.recv(65536)
        except OSError:
            break
        if not part:
            break
        out += part
    return out
try:
    if how == "direct":
        s = socket.create_connection((host, int(port)), 5)
        s.sendall(ask)
    elif how == "raw":
        s = connect((host, int(port)))
        s.sendall(ask)
    elif how == "unix":
        s = connect(host)
        s.sendall(ask)
    elif how == "connect":
        s = proxied()
        s.sendall(b"CONNECT %s:%s HTTP/1.1\r\nHost: %s:%s\r\n\r\n" % (host.encode(), port.encode(), host.encode(), port.encode()))
        answer = s.recv(65536)
        sys.stdout.buffer.write(answer.split(b"\r\n")[0] + b"\n")
        if b" 200 " in answer:
            s.sendall(ask)
    elif how == "absolute":
        s = proxied()
        s.sendall(b"GET http://%s:%s/v1/health HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\n\r\n" % (host.encode(), port.encode(), host.encode(), port.encode()))
    sys.stdout.buffer.write(read(s))
except OSError as e:
    print("error", e)
"""


class Reach(ApiTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(cls.work + "/try.py", "w") as f:
            f.write(TRY)
        cls.c.patch("/v1/settings", {"sandbox_provider": "bubblewrap"})

    def bare(self, how, host, port, proxy="-"):
        return subprocess.run(["/usr/bin/python3", self.work + "/try.py", how, host, str(port), proxy],
                              capture_output=True, timeout=30).stdout.decode(errors="replace")

    def inside(self, s, how, host, port, proxy="$HTTP_PROXY"):
        c = self.run_in(s, f'python3 {self.work}/try.py {how} "{host}" {port} "{proxy}"')
        return c["text"]["stdout"], c

    def hosts(self):
        """Spellings of this machine: each reaches the daemon from outside."""
        return ["127.0.0.1", "::1", "localhost", "0.0.0.0", "2130706433", "0x7f000001", "0177.0.0.1", "127.1",
                "::ffff:127.0.0.1", "LOCALHOST", "localhost."]

    # case 64
    def test_the_daemon_by_each_spelling(self):
        s = self.session()
        for host in self.hosts():
            seen = self.bare("direct", host, self.d.port)
            if host not in ("localhost.", "::ffff:127.0.0.1", "0177.0.0.1"):  # these the resolver may not take
                self.assertIn("instance_id", seen, host)
            out, c = self.inside(s, "direct", host, self.d.port)
            self.assertNotIn("instance_id", out, host)
        # The machine's own name and addresses: nothing listens there for outsiders either; still none inside.
        for host in {socket.gethostname(), *self.addresses()}:
            out, _ = self.inside(s, "direct", host, self.d.port)
            self.assertNotIn("instance_id", out, host)

    @staticmethod
    def addresses():
        out = subprocess.run(["hostname", "-I"], capture_output=True).stdout.decode().split()
        return out[:4]

    # case 59
    def test_the_daemon_through_its_own_way_out(self):
        """CONNECT and an absolute GET, to the port itself, whatever a rule says."""
        for sites in ((), ({"host": "127.0.0.1", "port": self.d.port}, {"host": "localhost", "port": self.d.port},
                           {"host": "[::1]", "port": self.d.port})):
            body = {"sites": list(sites)} if sites else {}
            a = self.c.ask("POST", "/v1/sessions", {"folders": [{"path": self.work}], "require_wall": True, **body})
            if a.status != 201:  # a list that names our port may also be refused at once
                self.assertIn(a.status, (409, 422), a)
                continue
            s = a.json
            self.addCleanup(self.end_session, s["id"])
            for how in ("connect", "absolute"):
                for host in self.hosts() + ["[::1]", "[::ffff:127.0.0.1]"]:
                    if ":" in host and not host.startswith("["):
                        continue
                    out, c = self.inside(s, how, host, self.d.port)
                    self.assertNotIn("instance_id", out, (how, host, sites))
                    self.assertRegex(out.split("\n")[0], r"^HTTP/1\.1 (400|403) ", (how, host, out))
            blocked = self.c.call("GET", f"/v1/sessions/{s['id']}/blocked")["items"]
            mine = [b for b in blocked if b["port"] == self.d.port]
            self.assertIn("127.0.0.1", [b["host"] for b in mine])
            rows = [r for r in self.audit(f"session={s['id']}") if r["action"] == "site.blocked"]
            self.assertTrue([r for r in rows if str(self.d.port) in r["target"]], rows[:3])
            self.assertEqual({r["outcome"] for r in rows}, {"refused"})

    def test_the_socket_and_the_files(self):
        s = self.session()
        sock = self.d.socket
        self.assertIn("instance_id", self.bare("unix", sock, 0))
        self.assertNotIn("instance_id", self.inside(s, "unix", sock, 0)[0])
        found = [p for p in (self.d.state + "/token", self.d.state + "/server.json", self.d.state + "/cordon.db",
                             os.path.dirname(sock) + "/server.json", self.d.state + "/spool", sock)]
        for path in found:
            self.assertTrue(os.path.exists(path), path)
            c = self.run_in(s, f"ls -d '{path}'; cat '{path}'; ls '{path}'; dd if='{path}' bs=1 count=1; : > '{path}'; echo $?")
            self.assertNotRegex(c["text"]["stdout"], r"^/|cordon_|\{", path)
            self.assertTrue(os.path.exists(path), path)
        self.assertEqual(self.d.token[:7], "cordon_")
        # By the file tools no more than by a command.
        for path in found:
            a = self.c.ask("GET", f"/v1/sessions/{s['id']}/files/content?path={path}")
            self.assertEqual((a.status, a.json["code"]), (403, "outside_session"), path)
        # Nor by a search of all that can be seen.
        c = self.run_in(s, "grep -rsl --exclude-dir=proc --exclude-dir=sys -e " + self.d.token[7:20] +
                        f"[{self.d.token[20]}] /home /root /run /var/run /tmp 2>/dev/null | head -3")
        self.assertEqual(c["text"]["stdout"], "")
        c = self.run_in(s, "find / -xdev -type s 2>/dev/null | head -20; cat /proc/net/unix 2>/dev/null | grep -c api.sock")
        self.assertNotIn("api.sock\n", c["text"]["stdout"])

    def test_no_descriptor_and_no_process_of_the_daemon(self):
        s = self.session()
        c = self.run_in(s, "ls -l /proc/self/fd | grep -v -e 'total' | awk '{print $NF}'; "
                           "cat /proc/[0-9]*/comm | sort -u | tr '\\n' ' '")
        self.assertNotIn("cordon.db", c["text"]["stdout"])
        self.assertNotIn("cordond", c["text"]["stdout"])
        self.assertNotIn("api.sock", c["text"]["stdout"])
        c = self.run_in(s, f"kill -9 {self.d.pid}; kill -0 {self.d.pid}; cat /proc/{self.d.pid}/status; echo done")
        self.assertEqual(c["text"]["stdout"].strip().split("\n")[-1], "done")
        self.c.call("GET", "/v1/health")

    def test_another_sessions_way_out(self):
        """Each has its own; what one may reach the other may not, and neither its door nor its name works there."""
        a = self.session(sites=[{"host": "ok.test"}])
        b = self.session()
        proxy = self.run_in(a, "printf %s \"$HTTP_PROXY\"")["text"]["stdout"]
        self.assertTrue(proxy)
        # The control: A's own way out lets the name through (it cannot be resolved here: 502, not 403).
        out, _ = self.inside(a, "connect", "ok.test", 443)
        self.assertRegex(out, r"^HTTP/1\.1 50[24] ")
        out, _ = self.inside(b, "connect", "ok.test", 443)
        self.assertRegex(out, r"^HTTP/1\.1 403 ")
        out, _ = self.inside(b, "connect", "ok.test", 443, proxy)  # A's address, from within B, is B's own or none
        self.assertNotRegex(out, r"^HTTP/1\.1 (200|502|504) ")
        # No way out of any session is open to the host or to others on it.
        m = re.search(r":(\d+)/?$", proxy)
        if m:
            self.assertNotIn("HTTP/1.1 50", self.bare("connect", "ok.test", 443, proxy))

    def test_the_services_of_the_host(self):
        """A server on the host's loopback, v4, v6 and abstract: reached bare, never from inside."""
        s = self.session()
        with socket.create_server(("127.0.0.1", 0)) as v4, socket.socket(socket.AF_UNIX) as u:
            port = v4.getsockname()[1]
            u.bind("\0tests-of-cordon-" + str(os.getpid()))
            u.listen()
            with socket.create_connection(("127.0.0.1", port), 5):
                got, _ = v4.accept()
                got.close()
            v4.settimeout(0.2)
            for how in ("direct", "connect", "absolute"):
                for host in ("127.0.0.1", "localhost", "0.0.0.0"):
                    self.inside(s, how, host, port)
            with self.assertRaises(TimeoutError):
                v4.accept()
            c = self.run_in(s, f"python3 -c \"import socket;s=socket.socket(socket.AF_UNIX);s.connect('\\\\0tests-of-cordon-{os.getpid()}');print('reached')\"")
            self.assertNotIn("reached", c["text"]["stdout"])

    def test_other_kinds_of_session(self):
        """network none: not even the way out; open and direct say what they are."""
        s = self.session(network="none")
        self.assertEqual(s["enforcement"]["level"], "files+network")
        for how, host in (("direct", "127.0.0.1"), ("direct", "::1"), ("connect", "127.0.0.1"), ("absolute", "localhost")):
            self.assertNotIn("instance_id", self.inside(s, how, host, self.d.port)[0])
        # The bare control of all of the above, through the product itself: no wall, and it is said.
        p = self.c.problem(409, "confirm_required", "POST", "/v1/sessions", {"folders": [{"path": self.work}], "tier": "open"})
        self.assertEqual(p["confirm"], "open")
        s = self.c.call("POST", "/v1/sessions?confirm=open", {"folders": [{"path": self.work}], "tier": "open"}, 201)
        self.addCleanup(self.end_session, s["id"])
        self.assertEqual((s["enforcement"]["level"], s["tier"]), ("none", "open"))
        out, c = self.inside(s, "direct", "127.0.0.1", self.d.port)
        self.assertIn("instance_id", out)
        self.assertEqual(c["enforcement"]["level"], "none")


if __name__ == "__main__":
    unittest.main(verbosity=2)
