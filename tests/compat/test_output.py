"""Much output and servers in the background (cases 68, 89): nothing is lost, nothing is gathered in
memory, and what was started stays until its session ends."""
import json
import os
import re
import subprocess
import unittest
from pathlib import Path

from box import BIN, Box, BoxCase, Session, need

SIZE = (1 << 30) if os.environ.get("CORDON_LONG") else (128 << 20)
RESIDENT_MAX_KIB = int(os.environ.get("CORDON_SANITIZE", "") != "") * (512 << 10) or 48 << 10


def daemon_peak_kib(box):
    server = json.loads((box.home / ".local/state/cordon/server.json").read_text())
    status = Path(f"/proc/{server['pid']}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


class Output(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.box = Box()
        cls.addClassCleanup(cls.box.close)
        cls.session = Session(cls.box, options=["--network", "none"])

    def tearDown(self):
        self.assertLess(daemon_peak_kib(self.box), RESIDENT_MAX_KIB)

    def count(self, *argv):
        """How many bytes came, the last of them, and how many the command line says are missing."""
        p = subprocess.Popen([BIN / "cordon", "exec", self.session.id, "--", *argv], cwd=self.box.work, env=self.box.env,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        n, last = 0, b""
        while block := p.stdout.read(1 << 20):
            n += len(block)
            last = (last + block)[-64:]
        error = p.stderr.read()
        missing = re.fullmatch(rb"cordon: (\d+) bytes of output are missing: .*\n", error)
        self.assertEqual(p.wait(), 125 if missing else 0, error)
        p.stdout.close()
        p.stderr.close()
        return n, last, int(missing[1]) if missing else 0

    def test_very_much(self):
        """The daemon stays small, the end is there, and each byte came or is said to be missing: a spool
        keeps no more than this, and a writer never waits for a slow reader."""
        n, last, missing = self.count("sh", "-c", f"head -c {SIZE - 4} /dev/zero; printf end.")
        self.assertEqual((n + missing, last[-5:]), (SIZE, b"\0end."))
        self.assertLess(missing, 64 << 20)

    def test_lines_long_and_many(self):
        n, last, missing = self.count("sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' x; echo; seq 1 3000000")
        lines = sum(9 * 10 ** d * (d + 2) for d in range(6)) + 2000001 * 8
        self.assertEqual((n, missing, last[-9:]), (20000001 + lines, 0, b"\n3000000\n"))

    def test_without_an_end_it_is_stopped(self):
        done = self.session.run("sh", "-c", "timeout 1 yes >/dev/stderr; yes | head -c 20000000 | tail -c 3; echo $?")
        self.assertEqual(done.stdout, b"\ny\n0\n", done.stderr[-200:])
        self.assertGreater(done.stderr.count(b"y\n"), 1000)

    def test_bytes_that_are_no_text(self):
        """JSON stays JSON: what is no UTF-8 is replaced there, and kept in the raw stream."""
        line = "cat /bin/ls; head -c 1000000 /dev/urandom; printf '\\360\\237\\230'; printf 'a\\0b\\rc'"
        done = self.session.run("sh", "-c", line, options=["--json"])
        self.assertEqual(done.returncode, 0)
        record = json.loads(done.stdout)
        size = os.path.getsize("/bin/ls") + 1000008
        self.assertEqual((record["result"]["exit_code"], record["output"]["stdout_bytes"]), (0, size))
        n, last, missing = self.count("sh", "-c", line)
        self.assertEqual((n, missing, last[-8:]), (size, 0, b"\xf0\x9f\x98a\0b\rc"))

    def test_a_record_is_bounded(self):
        done = self.session.run("sh", "-c", "echo first; head -c 20000000 /dev/zero; echo last", options=["--json"])
        record = json.loads(done.stdout)
        self.assertEqual((record["result"]["exit_code"], record["output"]["stdout_bytes"]), (0, 20000011))
        text = record["text"]["stdout"]
        self.assertTrue(text.startswith("first\n\0"), text[:50])
        self.assertLess(len(done.stdout), 20 << 20)


SERVER = "import http.server as h;s=h.ThreadingHTTPServer(('%s',0),h.SimpleHTTPRequestHandler);print(s.server_port,flush=True);s.serve_forever()"


class Background(BoxCase):
    def test_a_server_lives_until_its_session_ends(self):
        """The call returns at once with its output; all clients reach it by each spelling, without the
        proxy; a second session and the host do not."""
        need(self, "curl", "node")
        (self.dir / "f").write_text("served\n")
        self.inside(f"python3 -c \"{SERVER % '127.0.0.1'}\" >port 2>log & echo $! >pid; timeout 60 sh -c 'until test -s port; do sleep 0.05; done'")
        port = (self.dir / "port").read_text().strip()
        url = f"http://localhost:{port}/f"
        out = self.inside(f"curl -sS {url}; curl -sS http://127.0.0.1:{port}/f;"
                          f"python3 -c 'import urllib.request as u;print(u.urlopen(\"{url}\").read().decode(),end=\"\")';"
                          f"node -e 'fetch(\"http://127.0.0.1:{port}/f\").then(r=>r.text()).then(t=>process.stdout.write(t))'", timeout=200)
        self.assertEqual(out, "served\n" * 4)
        other = self.box.sb(f"curl -sS --max-time 5 http://127.0.0.1:{port}/f")
        self.assertEqual((other.returncode, other.stdout), (7, b""), other.stderr)
        host = subprocess.run(["curl", "-sS", "--noproxy", "*", "--max-time", "5", f"http://127.0.0.1:{port}/f"], capture_output=True)
        self.assertNotIn(b"served", host.stdout)
        self.inside("kill -0 $(cat pid)")

    def test_servers_of_both_families(self):
        """Case 80: one that listens on ::1 alone."""
        (self.dir / "f").write_text("six\n")
        six = SERVER.replace("s=h.", "h.ThreadingHTTPServer.address_family=10;s=h.") % "::1"
        out = self.inside(f"python3 -c \"{six}\" >port 2>log & timeout 60 sh -c 'until test -s port; do sleep 0.05; done';"
                          "curl -sS http://localhost:$(cat port)/f; curl -sS http://[::1]:$(cat port)/f; kill $!")
        self.assertEqual(out, "six\nsix\n")


if __name__ == "__main__":
    unittest.main()
