"""How cordon-egress begins, locks itself down, and ends.

Against the lab: "reached" is judged at the far server's log, "looked up" at the far name server's.
"""
import os
import signal
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402
from cordon_test.egress import (BIN, Egress, read_all, rules, status)  # noqa: E402

lab.enter()


class Life(lab.Case):
    def test_killed_egress_opens_nothing(self):
        with Egress(allow={"ok.test"}) as eg:
            s = eg.tunnel("ok.test:443")
            eg.child.send_signal(signal.SIGKILL)
            eg.child.wait()
            self.assertIn(read_all(s), (b"<reset>", b""))
            mark = lab.mark()
            with eg.connect(timeout=0.5) as waits:  # the daemon's copy of the door still listens
                waits.sendall(b"GET http://ok.test:8080/ HTTP/1.1\r\nHost: x\r\n\r\n")
                with self.assertRaises(TimeoutError):
                    waits.recv(1)
            self.assertEqual(lab.lines(mark), [])

    def test_ends_with_the_daemon(self):
        eg = Egress(allow={"ok.test"})
        s = eg.tunnel("ok.test:443")
        eg.sock.shutdown(socket.SHUT_RDWR)
        self.assertEqual(eg.close(), 0)
        self.assertIn(read_all(s), (b"<reset>", b""))

    def test_nonsense_from_the_daemon_ends_it(self):
        for frame in (b"\0\0\0\0\0", b"\xff\xff\xff\xff\x81", b"\1\0\0\0\x07",
                      b"\5\0\0\0\x81abcd", b"\1\0\0\0\x80"):
            eg = Egress()
            eg.sock.sendall(frame)
            self.assertEqual(eg.child.wait(5), 1, frame)
            eg.close()

    def test_a_lock_down_that_fails_serves_nobody(self):
        bad = [rules(limits=((999, 1, 1),)), b"\1\0"]
        if not os.environ.get("CORDON_SANITIZE"):  # a sanitized build takes no filter
            bad.append(rules(bpf=b"\xff" * 8))
        for the_rules in bad:
            eg = Egress(start=False)
            eg.start([], 1024, 65536, 10000, the_rules)
            eg.reader.start()
            code = eg.child.wait(5)
            eg.reader.join(5)
            self.assertEqual(code, 1)
            if the_rules != b"\1\0":
                self.assertTrue(eg.ready)
            eg.close()

    def test_locked_down(self):
        with Egress(allow={"ok.test"}) as eg:
            eg.tunnel("ok.test:443").close()
            with open(f"/proc/{eg.child.pid}/status") as f:
                text = f.read()
            self.assertIn("NoNewPrivs:\t1", text)
            if os.getuid() != 0:
                with self.assertRaises(PermissionError):  # not dumpable
                    eg.fds()
                return
            eg.wait(lambda: eg.closed, "the tunnel's end")
            fds = {os.readlink(f"/proc/{eg.child.pid}/fd/{n}") for n in eg.fds()}
            self.assertEqual([f for f in fds if f.startswith("/") and f != "/dev/null"
                              and not f.startswith("/tmp")], [])

    def test_not_started_by_hand(self):
        done = subprocess.run([os.path.join(BIN, "cordon-egress")], capture_output=True, text=True)
        self.assertEqual(done.returncode, 125)
        self.assertIn("started by cordond", done.stderr)

if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
