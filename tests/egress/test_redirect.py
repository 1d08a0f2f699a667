"""Programs that know nothing of a proxy, behind the wall: their connections are redirected, and the
name server inside gives each name an address that stands for it.

Every command runs without the proxy variables. "Reached" is judged at the far side's logs.
"""
import ipaddress
import os
import shlex
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402

lab.enter()
from cordon_test.api import ApiTest  # noqa: E402

HELLO = "hello from 203.0.113.10\n"
PLAIN = "unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY NODE_USE_ENV_PROXY\n"
PYTHON = "/usr/bin/python3 -c "
V4_NET, V6_NET = ipaddress.ip_network("198.18.0.0/15"), ipaddress.ip_network("fd63:6f72:646f:6e00::/64")

# One connection: what came back, or the error's name.
RAW = """
import socket, sys
def one(host, port, say=b"", family=0):
    try:
        at = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)[0]
        with socket.socket(at[0]) as s:
            s.settimeout(10)
            s.connect(at[4])
            s.sendall(say)
            return s.recv(100).decode("latin-1")
    except OSError as e:
        return type(e).__name__
"""

FETCH_JAVA = """
import java.net.URI;
import java.net.http.*;
public class Fetch {
    public static void main(String[] a) throws Exception {
        for (String url : a)
            try {
                System.out.print(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(url)).build(),
                    HttpResponse.BodyHandlers.ofString()).body());
            } catch (java.io.IOException e) {
                System.out.println("IOException");
            }
    }
}
"""


# A database whose server speaks first: its greeting, then what it has against the client.
DATABASE = """
import socket, struct
def packet(n, payload):
    return struct.pack("<I", len(payload))[:3] + bytes([n]) + payload
hello = b"\\x0a8.0.0-lab\\0" + struct.pack("<I", 7) + b"saltsalt\\0" + struct.pack("<HBHH", 0x8209, 45, 2, 8) + \\
    b"\\x15" + bytes(10) + b"saltsaltsalt\\0mysql_native_password\\0"
with socket.create_server(("203.0.113.10", 3306)) as server:
    while True:
        c = server.accept()[0]
        c.sendall(packet(0, hello))
        if c.recv(4096):
            c.sendall(packet(2, b"\\xff" + struct.pack("<H", 1045) + b"#28000the lab lets nobody in"))
        c.close()
"""


class Redirect(ApiTest):
    def setUp(self):
        self.mark = lab.mark()

    def open_session(self):
        s = self.c.call("POST", "/v1/sessions?confirm=open",
                        {"folders": [{"path": self.work}], "require_wall": True, "network": "open"}, 201)
        self.addCleanup(self.end_session, s["id"])
        return s

    def run_ok(self, s, shell):
        c = self.run_in(s, PLAIN + shell)
        self.assertEqual(c["result"]["exit_code"], 0, c)
        return c["text"]["stdout"]

    def python(self, s, code):
        return self.run_ok(s, PYTHON + shlex.quote(RAW + code))

    def blocked(self, s):
        got = self.c.call("GET", f"/v1/sessions/{s['id']}/blocked")
        return {(b["host"], b["port"]): b["reason"] for b in got["items"]}

    def refused_is_not_reached(self):
        lab.mark()
        self.assertEqual(lab.reached(self.mark, at=lab.NO4) + lab.reached(self.mark, at=lab.NO6), [])
        self.assertNotIn("no.test", lab.asked(self.mark))

    # ---- Real programs ---------------------------------------------------------------------------

    def test_curl_and_wget(self):
        s = self.session(sites=[{"host": "v4.test"}])
        for client in ("curl -sS -m 20 {}", "curl -4 -sS -m 20 {}", "curl -6 -sS -m 20 {}", "wget -q -T 20 -O - {}"):
            self.assertEqual(self.run_ok(s, client.format("http://v4.test/hello")), HELLO, client)
            c = self.run_in(s, PLAIN + client.format("http://no.test/hello") + " -t 1" * client.startswith("wget"))
            self.assertNotEqual(c["result"]["exit_code"], 0, c)
            self.assertEqual([(b["host"], b["port"], b["reason"]) for b in c["result"]["blocked"]],
                             [("no.test", 80, "not_listed")], client)
            self.assertEqual(c["result"]["denied"][0]["cure"], "cordon sites add no.test:80")
        self.refused_is_not_reached()
        self.assertIn("v4.test", lab.asked(self.mark))

    def test_node_fetch(self):
        s = self.session(sites=[{"host": "v4.test"}])
        fetch = "node -e 'fetch(process.argv[1]).then(r => r.text()).then(t => process.stdout.write(t), " \
                "e => console.log(\"refused\", e.cause.code))' "
        self.assertEqual(self.run_ok(s, fetch + "http://v4.test/hello"), HELLO)
        out = self.run_ok(s, fetch + "http://no.test/hello")
        self.assertEqual(out, "refused ECONNRESET\n")
        self.assertEqual(self.blocked(s), {("no.test", 80): "not_listed"})
        self.refused_is_not_reached()

    def test_java(self):
        """By the JDK's own client, which reads no variable."""
        folder = self.folder("java")
        with open(os.path.join(folder, "Fetch.java"), "w") as f:
            f.write(FETCH_JAVA)
        subprocess.run(["javac", "-J-Xshare:auto", "Fetch.java"], cwd=folder, check=True)
        s = self.session(folders=[{"path": folder}], sites=[{"host": "v4.test"}])
        c = self.run_in(s, "cd " + folder + " && java -Xshare:auto -cp . Fetch http://v4.test/hello http://no.test/hello")
        self.assertEqual((c["result"]["exit_code"], c["text"]["stdout"], c["text"]["stderr"]),
                         (0, HELLO + "IOException\n", ""), c)
        self.assertEqual(self.blocked(s), {("no.test", 80): "not_listed"})
        self.refused_is_not_reached()

    def test_raw_sockets(self):
        """A server that speaks first is heard at once, one that is spoken to answers, halves close alone."""
        s = self.session(sites=[{"host": "ok.test", "port": 9002}, {"host": "ok.test", "port": 9001}])
        self.assertEqual(self.python(s, """
for family in (socket.AF_INET, socket.AF_INET6):
    print(one("ok.test", 9002, family=family).strip(), one("no.test", 9002, family=family))
    print(one("ok.test", 9003, family=family))
s = socket.create_connection(("ok.test", 9001))
s.sendall(b"x" * 100000)
s.shutdown(socket.SHUT_WR)
n = 0
while data := s.recv(1 << 16):
    n += len(data)
print(n)
"""), "220 lab ConnectionResetError\nConnectionResetError\n" * 2 + "1048576\n")
        self.refused_is_not_reached()
        self.assertEqual(lab.reached(self.mark, port=9003), [])
        self.assertEqual(self.blocked(s), {("no.test", 9002): "not_listed", ("ok.test", 9003): "not_listed"})

    def test_a_database_client(self):
        """Its server speaks first."""
        s = self.session(sites=[{"host": "v4.test", "port": 3306}])
        client = "mariadb --no-defaults --connect-timeout=20 -h {} -P 3306 -u lab -plab -e 'select 1'"
        with lab.Far([sys.executable, "-c", DATABASE]):
            lab.far_listens(3306, at="203.0.113.10")
            c = self.run_in(s, PLAIN + client.format("v4.test"))
            self.assertIn("ERROR 1045 (28000): the lab lets nobody in", c["text"]["stderr"])
            c = self.run_in(s, PLAIN + client.format("no.test"))
        self.assertIn("ERROR 2013", c["text"]["stderr"])
        self.assertEqual(self.blocked(s), {("no.test", 3306): "not_listed"})
        self.refused_is_not_reached()

    def test_the_name_within_tls(self):
        """Another name than the one whose address it is, and not allowed by itself: nothing of it arrives."""
        s = self.session(sites=[{"host": "v4.test"}])
        shell = "openssl s_client -connect v4.test:443 -servername {} </dev/null 2>&1 | tr -d '\\0' | head -c 4000"
        # What is on 443 sends the very bytes back, which no client takes for a server's.
        self.assertIn("unexpected message", self.run_ok(s, shell.format("v4.test")))
        self.assertEqual(self.blocked(s), {})
        self.assertNotIn("unexpected message", self.run_ok(s, shell.format("no.test")))
        self.assertEqual(self.blocked(s), {("no.test", 443): "name_mismatch"})

    # ---- Addresses -------------------------------------------------------------------------------

    def test_an_address_is_judged_as_itself(self):
        s = self.session(sites=[{"host": "203.0.113.10", "port": 9002}])
        self.assertEqual(self.python(s, """
for at in ("203.0.113.10", "203.0.113.11", "2001:db8::11", "10.9.0.10", "169.254.169.254"):
    print(one(at, 9002).strip())
"""), "220 lab\n" + "ConnectionResetError\n" * 4)
        self.assertEqual(self.python(self.open_session(), "print(one('2001:db8::10', 9002).strip())"), "220 lab\n")
        self.assertEqual({c["at"] for c in lab.reached(self.mark)}, {"203.0.113.10", "2001:db8::10"})
        self.refused_is_not_reached()
        self.assertEqual(lab.reached(self.mark, at="10.9.0.10") + lab.reached(self.mark, at="169.254.169.254"), [])
        self.assertEqual(lab.asked(self.mark), [])

    def test_what_stands_for_nothing(self):
        """The namespace's own address, one no name has, a port that is none."""
        s = self.open_session()
        self.assertEqual(self.python(s, """
print(one("198.18.0.1", 80), one("198.19.200.7", 80), one("fd63:6f72:646f:6e00::1", 80))
print(one("203.0.113.10", 0))
"""), "ConnectionResetError " * 2 + "ConnectionResetError\nConnectionResetError\n")
        lab.mark()
        self.assertEqual(lab.lines(self.mark), [])
        self.assertEqual(self.run_ok(s, "curl -sS -m 20 http://v4.test/hello"), HELLO)  # the egress lives

    def test_the_host_itself(self):
        """Its addresses and its loopback are not reached, whatever leads there."""
        with lab.socket.create_server(("0.0.0.0", 0)) as server:
            port = server.getsockname()[1]
            lab.socket.create_connection(("203.0.113.1", port)).close()  # control: outside it answers
            server.accept()[0].close()
            server.settimeout(0.2)
            s = self.open_session()
            self.assertEqual(self.python(s, f"""
for at in ("203.0.113.1", "own.test", "lo.test", "mapped.test"):
    print(one(at, {port}))
print(one("127.0.0.1", {port}))
"""), "ConnectionResetError\n" * 4 + "ConnectionRefusedError\n")
            with self.assertRaises(TimeoutError):
                server.accept()
        self.assertIn(("lo.test", port), self.blocked(s))

    def test_servers_inside(self):
        """Loopback is not redirected, in either family, nor is 127.0.0.2."""
        s = self.session()
        self.assertEqual(self.python(s, """
for family, at in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "127.0.0.2"), (socket.AF_INET6, "::1")):
    with socket.create_server((at, 0), family=family) as server:
        c = socket.create_connection(server.getsockname()[:2])
        server.accept()[0].sendall(b"inside")
        print(c.recv(10).decode())
"""), "inside\n" * 3)

    def test_udp_reaches_nobody(self):
        s = self.open_session()
        self.assertEqual(self.python(s, """
for family, at in ((socket.AF_INET, "203.0.113.53"), (socket.AF_INET, "203.0.113.1"), (socket.AF_INET6, "2001:db8::53")):
    for port in (53, 443):
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            s.settimeout(5)
            s.connect((at, port))
            s.send(bytes.fromhex("000101000001000000000000") + b"\\4leak\\2no\\4test\\0\\0\\1\\0\\1")
            try:
                print(s.recv(100))
            except OSError as e:
                print(type(e).__name__)
"""), "ConnectionRefusedError\n" * 6)
        lab.mark()
        self.assertEqual(lab.asked(self.mark), [])

    def test_too_many_at_once(self):
        """The 1,025th is reset and told; the others live on."""
        s = self.session(sites=[{"host": "ok.test", "port": 9010}])
        self.assertEqual(self.python(s, """
import resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
at = (socket.gethostbyname("ok.test"), 9010)
held = []
for n in range(1024):
    held.append(socket.create_connection(at, 60))
    held[n].sendall(b"here")
for c in held:
    c.settimeout(60)
    assert c.recv(4) == b"here"
print(one("ok.test", 9010, b"more"))
held.pop().close()
held[0].sendall(b"again")
print(held[0].recv(5))
"""), "ConnectionResetError\nb'again'\n")
        self.assertIn("too many connections at once", [(r.get("after") or {}).get("detail") for r in
                                                       self.audit(f"session={s['id']}")])

    def test_half_closed(self):
        """In tests/long for longer than netfilter remembers such a connection by itself."""
        wait = 150 if os.environ.get("CORDON_LONG") else 1
        server = "import socket, time\nwith socket.create_server(('203.0.113.10', 3307)) as s:\n    c = s.accept()[0]\n" \
                 f"    while c.recv(100):\n        pass\n    time.sleep({wait})\n    c.sendall(b'late')\n"
        s = self.session(sites=[{"host": "v4.test", "port": 3307}])
        with lab.Far([sys.executable, "-c", server]):
            c = self.start(s, PLAIN + PYTHON + shlex.quote("""
import socket, time
while True:
    s = socket.create_connection(("v4.test", 3307))
    s.sendall(b"x")
    s.shutdown(socket.SHUT_WR)
    try:
        print(s.recv(10))
        break
    except ConnectionResetError:  # the server is not up yet
        time.sleep(0.1)
"""), timeout_ms=0)
            while c["state"] in ("queued", "starting", "running"):
                c = self.c.call("GET", self.at(c) + "?wait_ms=60000")
        self.assertEqual(self.c.call("GET", self.at(c) + "/output?stream=stdout",
                                     headers={"Accept": "application/octet-stream"}), b"b'late'\n")

    # ---- Names -----------------------------------------------------------------------------------

    def test_names(self):
        """Each its own two addresses, also one that is not allowed; nobody outside is asked."""
        s = self.session(sites=[{"host": "ok.test"}])
        out = self.python(s, """
def all_of(name):
    return sorted({a[4][0] for a in socket.getaddrinfo(name, 80)})
for name in ("ok.test", "no.test", "OK.test.", "leak-1.no.test", "ok.test"):
    print(*all_of(name))
for name in ("localhost", "x.localhost"):
    print(*all_of(name))
for name in ("a b", "x" * 64 + ".test", "1.2.3.4.5"):
    try:
        print(all_of(name))
    except (OSError, UnicodeError) as e:
        print(type(e).__name__)
""").splitlines()
        ok, no, again, leak, last = (line.split() for line in out[:5])
        for v4, v6 in (ok, no, leak):
            self.assertIn(ipaddress.ip_address(v4), V4_NET)
            self.assertIn(ipaddress.ip_address(v6), V6_NET)
        self.assertEqual((ok, ok), (again, last))
        self.assertEqual(len({*ok, *no, *leak}), 6)
        self.assertEqual(out[5:7], ["127.0.0.1 ::1", "127.0.0.1 ::1"])
        self.assertEqual([line for line in out[7:] if "Error" not in line and line != "gaierror"], [])
        lab.mark()
        self.assertEqual(lab.asked(self.mark), [])
        self.assertEqual(self.blocked(s), {})  # asking for a name is no try

    def test_two_sessions_share_nothing(self):
        a, b = self.session(sites=[{"host": "v4.test"}]), self.session()
        look_up = PYTHON + "'import socket; print(socket.gethostbyname(\"v4.test\"))'"
        at = self.run_ok(a, look_up).strip()
        self.assertEqual(self.run_ok(a, f"curl -sS -m 20 http://{at}/hello"), HELLO)
        c = self.run_in(b, PLAIN + f"curl -sS -m 20 http://{at}/hello")
        self.assertNotEqual(c["result"]["exit_code"], 0)
        self.assertEqual(len(lab.requests(self.mark)), 1)

    def test_a_site_opens_and_closes_for_what_runs(self):
        """The verdict is the daemon's, for each connection: added, used, taken back; what is open then is cut."""
        s = self.session()
        get = "curl -sS -m 20 http://v4.test:8080/hello"
        self.assertNotEqual(self.run_in(s, PLAIN + get)["result"]["exit_code"], 0)
        site = self.c.call("POST", f"/v1/sessions/{s['id']}/sites", {"host": "v4.test", "port": 8080}, 201)
        self.assertEqual(self.run_ok(s, get), HELLO)
        other = self.c.call("POST", f"/v1/sessions/{s['id']}/sites", {"host": "v4.test", "port": 9003}, 201)
        held = self.start(s, PLAIN + PYTHON + shlex.quote(RAW + "print(one('v4.test', 9003, b'hello'))"))
        lab.wait_for(lambda: [r for r in self.audit(f"session={s['id']}") if r["action"] == "connection.opened"
                              and r["target"] == "v4.test:9003"], "the connection that is held")
        for one in (site, other):
            self.c.call("DELETE", f"/v1/sessions/{s['id']}/sites/{one['id']}", None, 204)
        self.assertEqual(self.wait_end(held)["result"]["exit_code"], 0)
        self.assertEqual(self.c.call("GET", self.at(held) + "/output?stream=stdout",
                                     headers={"Accept": "application/octet-stream"}), b"ConnectionResetError\n")
        self.assertNotEqual(self.run_in(s, PLAIN + get)["result"]["exit_code"], 0)
        self.assertEqual(len(lab.requests(self.mark)), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
