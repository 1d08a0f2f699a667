"""Commands of a session that do not end as they should, by the daemon (cases 83, 85, 86, 88)."""
import os
import signal
import subprocess
import sys
import time
import unittest

import wall_lab

os.environ.setdefault("CORDON_SOURCE", wall_lab.SOURCE)
os.environ.setdefault("CORDON_BIN", wall_lab.BIN)
sys.path.insert(0, os.path.join(wall_lab.SOURCE, "tests/lib"))
from cordon_test.api import ApiTest
from cordon_test.cli import processes_with, wait_for

MARK = wall_lab.MARK


def zombies(pid):
    found = []
    for child in os.listdir("/proc"):
        if not child.isdigit():
            continue
        try:
            with open(f"/proc/{child}/stat") as f:
                state, parent = f.read().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue
        if state == "Z" and int(parent) in pid:
            found.append(child)
    return found


class Ends(ApiTest):
    @classmethod
    def setUpClass(cls):
        if not wall_lab.HAS_WALL and not wall_lab.MUST_WORK:
            print("NOT TESTED, no wall on this machine: " + wall_lab.WHY_NOT, file=sys.stderr)
            raise unittest.SkipTest(wall_lab.WHY_NOT)
        cls.env = {"SERVER_SECRET_TOKEN": MARK + "-server"}
        super().setUpClass()
        cls.s = cls.c.call("POST", "/v1/sessions", {"folders": [{"path": cls.work}], "require_wall": True}, 201)

    # case 83
    def test_quiet_commands_and_prompts_end_at_once_with_their_code(self):
        for shell, code in (("false", 1), ("exit 77", 77), ("cat; exit 5", 5), ("read x; echo $?; exit 6", 6),
                            ("python3 -c 'input()' 2>/dev/null", 1), ("git commit 2>/dev/null", 128),
                            ("GIT_EDITOR= ssh -o BatchMode=yes -o ConnectTimeout=5 host.invalid 2>/dev/null", 255),
                            ("git ls-remote https://user@host.invalid/x 2>/dev/null", 128),
                            ("test -t 0 && exit 9; exit 8", 8)):
            with self.subTest(shell=shell):
                done = self.run_in(self.s, shell, timeout_ms=50000)
                self.assertEqual((done["state"], done["result"]["exit_code"]), ("exited", code), done)

    def test_a_command_that_disarms_its_supervisor_is_held_to_its_time_out(self):
        for code in ("import os, signal; os.kill(os.getppid(), signal.SIGSTOP)",
                     "import os, signal; os.kill(-1, signal.SIGSTOP)",
                     "import os, resource as r; r.prlimit(os.getppid(), r.RLIMIT_NOFILE, (0, 0))"):
            with self.subTest(code=code):
                begun = time.monotonic()
                done = self.run_in(self.s, f"python3 -c '{code}'; sleep 600.{os.getpid()}", timeout_ms=2000,
                                   kill_grace_ms=500)
                self.assertIn(done["state"], ("timed_out", "killed", "lost"), done)
                self.assertLess(time.monotonic() - begun, 30)
                wait_for(lambda: not processes_with(b"600.%d" % os.getpid()), "the command to be gone", 10)
                self.assertEqual(self.run_in(self.s, "exit 7")["result"]["exit_code"], 7)

    def test_what_cannot_be_killed_takes_the_sandbox_along(self):
        """Stopped from outside, so that neither the runner nor the supervisor hears of anything."""
        before = set(self.d.tree())
        s = self.c.call("POST", "/v1/sessions", {"folders": [{"path": self.work}], "require_wall": True}, 201)
        c = self.start(s, "sleep 600", timeout_ms=3000, kill_grace_ms=500)
        for pid in set(self.d.tree()) - before:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if f.read().startswith(b"/run/cordon/cordon-runner\0inside"):
                    os.kill(int(pid), signal.SIGSTOP)
        got = self.c.call("GET", self.at(c) + "?wait_ms=40000")
        self.assertIn(got["state"], ("timed_out", "killed", "lost"), got)
        wait_for(lambda: set(self.d.tree()) <= before, "the sandbox to be gone", 10)

    def test_nothing_is_made_that_runs_as_its_owner(self):
        at = self.work + "/suid"
        self.run_in(self.s, f"cp /bin/sh {at}; chmod 4755 {at}; install -m 4755 /bin/sh {at}2; python3 -c '"
                    f"import os; os.write(os.open(\"{at}3\", os.O_CREAT | os.O_RDWR, 0o4755), b\"x\")'")
        for name in (at, at + "2", at + "3"):
            if os.path.exists(name):
                self.assertEqual(os.stat(name).st_mode & 0o4000, 0, name)
        self.assertTrue(os.path.exists(at))

    # case 85
    def test_a_time_out_takes_all_descendants_along(self):
        late = self.work + "/late"
        done = self.run_in(self.s, f"trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do date >>{late}; sleep 0.05; "
                           f"done' {MARK}-late & while ! test -s {late}; do sleep 0.05; done; wait", timeout_ms=2000)
        self.assertEqual(done["state"], "timed_out", done)
        wait_for(lambda: not processes_with(f"{MARK}-late".encode()), "the descendants to end", 30)
        size = os.path.getsize(late)
        time.sleep(0.3)  # nothing can write any more: no timing is judged
        self.assertEqual(os.path.getsize(late), size)
        self.assertEqual(self.run_in(self.s, "echo on")["result"]["exit_code"], 0, "the session goes on")

    # case 85
    def test_stop_and_delete_leave_nothing(self):
        for how in ("stop", "delete"):
            s = self.session(keep=True)
            mark = f"{MARK}-{how}"
            self.start(s, f"for i in 1 2 3; do setsid sh -c 'trap \"\" TERM HUP INT; sleep 600 & wait' {mark} & done; wait")
            wait_for(lambda: len(processes_with(mark.encode())) >= 3, "the commands")
            at = f"/v1/sessions/{s['id']}"
            self.c.ask("POST", at + "/stop", {"grace_ms": 100})
            wait_for(lambda: self.c.call("GET", at)["state"] == "ended", "the end", 30)
            self.assertEqual(processes_with(mark.encode()), [])
            if how == "delete":
                self.c.call("DELETE", at, None, 204)

    # case 85
    def test_no_zombie_after_many_commands(self):
        for _ in range(60):
            self.start(self.s, "(true & true & setsid true &) ; true", wait_ms=60000)
        tree = set(self.d.tree()) | {self.d.pid}
        wait_for(lambda: not zombies(tree), "the zombies to be reaped")

    # case 88
    def test_no_marker_in_any_argv_or_in_an_environment_others_may_read(self):
        """The secret of a command is in that command's own environment and nowhere else."""
        s = self.session()
        runs = self.start(s, "echo up; exec sleep 600", env={"DEPLOY_TOKEN": MARK + "-named"})
        with self.c.stream("GET", self.at(runs) + "/output?follow=1") as out:
            self.assertEqual(out.frame()["text"], "up\n")
        for pid in self.d.tree() + [self.d.pid]:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                self.assertNotIn(MARK.encode(), f.read())
        look = ("cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -a '%s'; "
                "echo looked" % (MARK + "-[s]erver"))
        seen = self.c.call("GET", self.at(self.run_in(s, look)) + "/output?stream=stdout",
                           headers={"Accept": "application/octet-stream"})
        self.assertEqual(seen, b"looked\n")
        if os.geteuid() == 0:  # another user of the host
            ps = subprocess.run(["setpriv", "--reuid=61999", "--regid=61999", "--clear-groups", "sh", "-c",
                                 "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'"],
                                capture_output=True, env={"PATH": "/usr/bin:/bin"})
            self.assertNotIn((MARK + "-named").encode(), ps.stdout)
            self.assertNotIn((MARK + "-server").encode(), ps.stdout)
            self.assertIn(b"cordond", ps.stdout, "it looked")

    # case 64
    def test_each_session_has_its_own_egress_and_no_other(self):
        """The door answers by the list of its own session; a site of another one, Cordon's own port and the
        host's loopback are refused by name. The name that is listed is let through to the resolver."""
        a = self.session(sites=[{"host": "one.invalid", "port": 443}])
        b = self.session(sites=[{"host": "two.invalid", "port": 443}])
        ask = ("python3 -c 'import os,socket,sys,urllib.parse as u\n"
               "p=u.urlsplit(os.environ[\"https_proxy\"])\n"
               "for n in sys.argv[1:]:\n"
               "    s=socket.create_connection((p.hostname,p.port)); s.sendall(b\"CONNECT %s HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n\" % ((n.encode(),)*2))\n"
               "    print(s.recv(99).split()[1].decode())' ")
        def codes(s, *names):
            done = self.run_in(s, ask + " ".join(names))
            out = self.c.call("GET", self.at(done) + "/output?stream=stdout", headers={"Accept": "application/octet-stream"})
            return out.decode().split()
        own = "127.0.0.1:%d" % self.d.port
        self.assertEqual(codes(b, "one.invalid:443", own, "localhost:%d" % self.d.port, "[::1]:22"), ["403"] * 4)
        self.assertEqual(codes(a, "two.invalid:443", own), ["403"] * 2)
        listed = codes(a, "one.invalid:443") + codes(b, "two.invalid:443")
        self.assertEqual([c for c in listed if c in ("200", "403")], [], listed)

    def test_a_command_that_kills_all_it_can_reach_ends_itself_alone(self):
        s = self.session()
        other = self.start(s, "sleep 600 & wait")
        done = self.run_in(s, "python3 -c 'import os; os.kill(-1, 9)'; kill -9 1; exit 3", timeout_ms=50000)
        self.assertNotEqual(done["state"], "running")
        self.assertNotEqual(self.wait_end(other)["state"], "running")
        self.assertEqual(self.c.call("GET", f"/v1/sessions/{s['id']}")["state"], "ready")
        again = self.run_in(s, "exit 4")
        self.assertEqual((again["state"], again["result"]["exit_code"]), ("exited", 4))


if __name__ == "__main__":
    wall_lab.main()
