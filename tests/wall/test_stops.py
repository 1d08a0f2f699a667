"""kill -9 of the daemon at each named step of a session's and a command's life (base/stop.h): no process,
mount, folder or file of it is left, and the daemon that comes next says what became of it."""
import os
import sys
import threading
import unittest

import wall_lab

os.environ.setdefault("CORDON_SOURCE", wall_lab.SOURCE)
sys.path.insert(0, os.path.join(wall_lab.SOURCE, "tests/lib"))
from cordon_test.cli import is_alive
from cordon_test.daemon import Daemon

STOP_BIN = os.path.join(wall_lab.BIN, "stop")
STARTING = ["private-made", "wall-spawned", "wall-ordered", "wall-ready", "egress-spawned", "verifying", "proof-sent",
            "ready"]
RUNNING = ["command-sent"]
ENDING = ["stopping", "down-term", "down-kill", "down-remove", "down-over", "ended"]


def comm(pid):
    try:
        with open(f"/proc/{pid}/comm") as f:
            return f.read().strip()
    except OSError:
        return ""


def ours(names):
    return {n for n in names if n.startswith("cordon-")}


class Stops(unittest.TestCase):
    def setUp(self):
        if not wall_lab.HAS_WALL:
            if wall_lab.MUST_WORK:
                self.fail("this machine cannot put up the wall: " + wall_lab.WHY_NOT)
            print("NOT TESTED, no wall on this machine: " + wall_lab.WHY_NOT, file=sys.stderr)
            self.skipTest(wall_lab.WHY_NOT)

    def ask(self, d, *request):
        """In a thread: the daemon will not answer any more."""
        def go():
            try:
                d.client().ask(*request)
            except Exception:
                pass  # cut, as it must be
        t = threading.Thread(target=go)
        t.start()
        self.addCleanup(t.join)

    def stopped(self, d):
        return wall_lab.wait_for(lambda: comm(d.pid) == "stopped", 60)

    def nothing_left(self, d, before, state):
        tree, private = d.tree(), d.private_folders()
        d.process.kill()
        d.process.wait()
        d.process = None
        self.assertTrue(wall_lab.wait_for(lambda: not [p for p in tree if is_alive(p)], 30),
                        [(p, comm(p)) for p in tree if is_alive(p)])
        with open("/proc/self/mountinfo") as f:
            self.assertNotIn("/cordon-", f.read())
        d.start()
        self.assertEqual([p for p in private if os.path.exists(p)], [], "swept at start")
        self.assertEqual(wall_lab.snapshot(d.work), before)
        self.assertEqual(set(os.listdir(d.state)) - state, set(), "no canary, no temporary file")
        c = d.client()
        for s in c.items("/v1/sessions"):
            self.assertIn(s["state"], ("ended", "refused"), s)
        self.assertTrue(c.call("GET", "/v1/audit/verify")["ok"])
        s = c.call("POST", "/v1/sessions", {"folders": [{"path": d.work}], "require_wall": True}, 201)
        done = c.call("POST", f"/v1/sessions/{s['id']}/commands", {"argv": ["true"], "wait_ms": 60000}, 201)
        self.assertEqual(done["result"]["exit_code"], 0)
        c.ask("POST", f"/v1/sessions/{s['id']}/stop", {"grace_ms": 0})

    def at(self, point, drive):
        with Daemon(bin=STOP_BIN, start=False) as d, self.subTest(point=point):
            open(d.work + "/kept", "w").close()
            before = wall_lab.snapshot(d.work)
            d.start()
            state = set(os.listdir(d.state))
            d.stop()
            d.start(CORDON_TEST_STOP=point)
            drive(d)
            self.assertTrue(self.stopped(d), f"never came to {point}\n{d.log()[-2000:]}")
            self.nothing_left(d, before, state | set(os.listdir(d.state)) & {"cordond.log"})

    def new(self, d):
        self.ask(d, "POST", "/v1/sessions", {"folders": [{"path": d.work}], "require_wall": True})

    def test_while_it_starts(self):
        for point in STARTING:
            self.at(point, self.new)

    def test_while_a_command_starts_and_while_it_ends(self):
        def drive(d):
            s = d.client().call("POST", "/v1/sessions", {"folders": [{"path": d.work}], "require_wall": True}, 201)
            at = f"/v1/sessions/{s['id']}"
            body = {"shell": "setsid sleep 600 & exec sleep 600"}
            if d.point in RUNNING:
                self.ask(d, "POST", at + "/commands", body)
                return
            d.client().call("POST", at + "/commands", body, 201)
            self.ask(d, "POST", at + "/stop", {"grace_ms": 200})
        for point in RUNNING + ENDING:
            def with_point(d, point=point):
                d.point = point
                drive(d)
            self.at(point, with_point)


if __name__ == "__main__":
    wall_lab.main()
