"""The egress of a session is killed: nothing is opened by it, and a new one takes over the doors."""
import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402

lab.enter()
from cordon_test.api import ApiTest  # noqa: E402
from cordon_test.cli import wait_for  # noqa: E402

CODE = "curl -s -o /dev/null -w '%{http_code}' "
NAKED = CODE + "-m 2 --noproxy '*' http://203.0.113.10/"  # past the door
STREAM = ("exec bash -c 'port=${http_proxy##*:}; exec 3<>/dev/tcp/127.0.0.1/${port%/}; "
          "printf \"CONNECT v4.test:9005 HTTP/1.1\\r\\n\\r\\n\" >&3; exec cat <&3 >/dev/null'")


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(word) for word in f.read().split()]


class Restart(ApiTest):
    def setUp(self):
        self.mark = lab.mark()
        self.s = self.session(sites=[{"host": "v4.test"}, {"host": "v4.test", "port": 9005}])

    def egresses(self):
        found = []
        for pid in children(self.d.process.pid):
            try:
                with open(f"/proc/{pid}/comm") as f:
                    found += [pid] if f.read() == "cordon-egress\n" else []
            except OSError:
                pass
        return found

    def kill(self):
        """Kills the session's egress; it is gone when this returns."""
        pids = self.egresses()
        self.assertEqual(len(pids), 1)
        os.kill(pids[0], signal.SIGKILL)
        wait_for(lambda: pids[0] not in self.egresses(), "its end")

    def out(self, shell, **more):
        return self.run_in(self.s, shell, **more)["text"]["stdout"]

    def told(self):
        return [row["target"] for row in self.audit(f"session={self.s['id']}")
                if row["action"] == "session.changed" and str(row["target"]).startswith("egress")]

    def test_a_new_one_takes_over(self):
        stream = self.start(self.s, STREAM)
        wait_for(lambda: [r for r in self.audit(f"session={self.s['id']}") if r["action"] == "connection.opened"],
                 "the stream")
        self.kill()
        self.wait_end(stream)  # cut, not left hanging
        self.assertEqual(self.out(CODE + "http://v4.test/"), "200")  # waited at the door
        self.assertEqual(self.out(CODE + "http://no.test/"), "403")
        self.assertEqual(self.out(NAKED), "000")
        lab.mark()
        self.assertEqual(lab.reached(self.mark, at=lab.NO4), [])
        self.assertNotIn("no.test", lab.asked(self.mark))
        self.assertEqual([line["port"] for line in lab.reached(self.mark)], [9005, 80])
        self.assertEqual(sorted(self.told()), ["egress ended", "egress started again"])
        closed = [row for row in self.audit(f"session={self.s['id']}") if row["action"] == "connection.closed"]
        self.assertEqual([(row["target"], row["outcome"]) for row in closed if row["target"] == "v4.test:9005"],
                         [("v4.test:9005", "error")])
        self.assertEqual(self.c.call("GET", f"/v1/sessions/{self.s['id']}")["state"], "ready")

    def test_names_outlive_it(self):
        """What an address inside stands for never changes, so that one who kept it means the same place."""
        look = "/usr/bin/python3 -c 'import socket, sys\nfor h in sys.argv[1:]: print(socket.gethostbyname(h))' "
        before = self.out(look + "no.test v4.test").split()
        self.kill()
        after = self.out(look + "other.test v4.test no.test third.test").split()
        self.assertEqual([after[1], after[2]], [before[1], before[0]])
        self.assertEqual(len(set(before + after)), 4)
        self.kill()
        self.assertEqual(self.out(f"curl -s --noproxy '*' -m 20 http://{before[1]}/hello"), "hello from 203.0.113.10\n")
        self.assertEqual(self.out(f"curl -s --noproxy '*' -m 20 http://{before[0]}/hello; echo $?"), "56\n")
        lab.mark()
        self.assertEqual([line["at"] for line in lab.reached(self.mark)], ["203.0.113.10"])
        self.assertEqual(set(lab.asked(self.mark)), {"v4.test"})

    def test_one_that_dies_again_and_again_stays_dead_until_verified(self):
        for n in range(6):
            self.kill()
            if n < 5:
                self.assertEqual(self.out(CODE + "http://v4.test/"), "200")
        s = self.c.call("GET", f"/v1/sessions/{self.s['id']}")
        self.assertIn("proxy_off", [w["code"] for w in s["warnings"]])
        mark = lab.mark()
        self.assertEqual(self.out(CODE + "-m 1 http://v4.test/"), "000")
        self.assertEqual(self.out(NAKED), "000")
        lab.mark()
        self.assertEqual((lab.lines(mark), lab.asked(mark), self.egresses()), ([], [], []))
        self.c.call("POST", f"/v1/sessions/{self.s['id']}/verify", {})
        wait_for(lambda: self.c.call("GET", f"/v1/sessions/{self.s['id']}")["state"] == "ready", "the proof")
        self.assertEqual(self.out(CODE + "http://v4.test/"), "200")
        self.assertEqual(self.out(CODE + "http://no.test/"), "403")


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
