"""Many tunnels, and slow readers: all are served, and memory stays bounded.

CORDON_LOAD=full, as in tests/long: five sessions with 1,000 idle tunnels each, 500 TLS tunnels at once as an
installer makes them, a reader of 1 GiB that stops. Else a short form of each.
"""
import os
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402

lab.enter()
from cordon_test.api import ApiTest  # noqa: E402
from cordon_test.cli import SANITIZE  # noqa: E402

FULL = os.environ.get("CORDON_LOAD") == "full"
HERE = os.path.dirname(os.path.realpath(__file__))
KIB, MIB = 1 << 10, 1 << 20


class Load(ApiTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.keys = os.path.join(cls.d.base, "far")
        os.mkdir(cls.keys)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                        "2", "-subj", "/CN=ok.test", "-addext", "subjectAltName=DNS:ok.test", "-keyout",
                        f"{cls.keys}/key.pem", "-out", f"{cls.keys}/cert.pem"], check=True, capture_output=True)
        shutil.copy(f"{cls.keys}/cert.pem", cls.work)
        shutil.copy(f"{HERE}/load_client.py", cls.work)
        cls.far = lab.Far([sys.executable, os.path.join(lab.SOURCE, "tests", "lab", "load_far.py"), cls.keys])
        for port in (7201, 7202, 7203):
            lab.far_listens(port)

    @classmethod
    def tearDownClass(cls):
        cls.far.close()
        super().tearDownClass()

    def load_session(self):
        """One, and its egress."""
        before = set(self.egresses())
        s = self.session(sites=[{"host": "ok.test", "port": port} for port in (7201, 7202, 7203)])
        (pid,) = set(self.egresses()) - before
        return s, pid

    def egresses(self):
        return [pid for pid in self.d.tree() if self.comm(pid).startswith("cordon-egress")]

    @staticmethod
    def comm(pid):
        try:
            with open(f"/proc/{pid}/comm") as f:
                return f.read()
        except OSError:
            return ""

    @staticmethod
    def peak(pid):
        """The most memory it ever had, in bytes; readable though it is not dumpable."""
        with open(f"/proc/{pid}/status") as f:
            return next(int(line.split()[1]) * KIB for line in f if line.startswith("VmHWM:"))

    def stays_below(self, pid, limit, what):
        peak = self.peak(pid)
        print(f"  {what}: {peak / MIB:.1f} MiB, at most {limit / MIB:.0f}")
        if not SANITIZE:
            self.assertLess(peak, limit, what)

    def client(self, s, mode, n, *more):
        c = self.start(s, argv=["/usr/bin/python3", "load_client.py", mode, s["id"], str(n), *map(str, more)], timeout_ms=0)
        if mode != "tls":
            lab.wait_for(lambda: os.path.exists(f"{self.work}/open-{s['id']}") or self.ended(c), f"{mode} to be open", 300)
        return c

    def ended(self, c):
        return self.c.call("GET", self.at(c))["state"] == "exited"

    def go(self, s, c):
        open(f"{self.work}/go-{s['id']}", "w").close()
        return self.answer(c)

    def answer(self, c):
        while (r := self.c.call("GET", self.at(c) + "?wait_ms=60000"))["state"] == "running":
            pass
        text = self.c.call("GET", self.at(c) + "/output", headers={"Accept": "application/octet-stream"}).decode()
        self.assertEqual(r["result"]["exit_code"], 0, text[-2000:])
        return int(text)

    def test_idle_tunnels(self):
        sessions, n = (5, 1000) if FULL else (2, 200)
        made = [self.load_session() for _ in range(sessions)]
        running = [self.client(s, "idle", n) for s, _ in made]
        # With all of them open, another session is served as ever.
        self.assertEqual(self.run_in(self.session(sites=[{"host": "v4.test"}]), "curl -sS http://v4.test/hello")["text"]
                         ["stdout"], "hello from 203.0.113.10\n")
        for (s, _), c in zip(made, running):
            self.assertEqual(self.go(s, c), n)
        for _, pid in made:
            self.stays_below(pid, 6 * MIB + n * 4 * KIB, f"an egress with {n} idle tunnels")
        self.stays_below(self.d.pid, 32 * MIB, f"the daemon with {sessions} times {n}")
        closed = lambda s: sum(1 for _ in self.audit(f"action=connection.closed&session={s['id']}"))
        lab.wait_for(lambda: all(closed(s) == n for s, _ in made), "the end of each in the audit", 60)

    def test_tls_tunnels_as_an_installer_makes_them(self):
        n, size = (500, 200 * KIB) if FULL else (120, 100 * KIB)
        s, pid = self.load_session()
        for _ in range(3 if FULL else 1):
            self.assertEqual(self.answer(self.client(s, "tls", n, size)), n)
        self.stays_below(pid, 6 * MIB + n * 16 * KIB, f"an egress with {n} TLS tunnels at once")

    def test_a_reader_that_stops(self):
        size = (1 << 30) if FULL else 128 * MIB
        s, pid = self.load_session()
        c = self.client(s, "slow", 1, size)
        seen = []

        def sent():
            with open(f"{self.keys}/sent") as f:
                return int(f.read() or 0)

        def stands_still():
            seen.append(sent())
            return len(seen) > 20 and seen[-20] == seen[-1]
        lab.wait_for(lambda: os.path.exists(f"{self.keys}/sent"), "the first bytes", 30)
        lab.wait_for(stands_still, "the server to be held back", 60)
        self.assertLess(sent(), 48 * MIB)  # what the kernels' buffers take
        self.stays_below(pid, 8 * MIB, "an egress whose client does not read")
        # Others of the same session are served meanwhile.
        self.assertEqual(self.answer(self.client(s, "tls", 5, MIB)), 5)
        self.assertEqual(self.go(s, c), size)
        self.stays_below(pid, 8 * MIB, "the same after it was read")


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
