"""cordon-egress and the host's own name service: its changes are followed without a restart.

Against the lab, with an /etc of its own: "looked up" is judged at the far name server's log.
"""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402
from cordon_test.egress import ALLOW, Egress, status  # noqa: E402

lab.enter(etc=True)
from cordon_test.api import ApiTest  # noqa: E402

CONF, HOSTS = "/etc/resolv.conf", "/etc/hosts"
DEAD = "nameserver 203.0.113.66\noptions timeout:1 attempts:1\n"


class Config(lab.Case):
    def setUp(self):
        super().setUp()
        self.before = {path: open(path).read() for path in (CONF, HOSTS)}
        self.eg = Egress(decide=lambda *_: (ALLOW, 0), dial_ms=1000)
        self.assertTrue(self.opens("ok.test"))

    def tearDown(self):
        for path, text in self.before.items():
            self.replace(path, text)
        with self.eg:
            pass

    def opens(self, host):
        got = self.eg.tunnel(host + ":443")
        if isinstance(got, bytes):
            self.assertIn(status(got), (502, 504), got)
            return False
        got.close()
        return True

    @staticmethod
    def replace(path, text):
        """As editors and network managers do."""
        with open(path + ".new", "w") as f:
            f.write(text)
        os.rename(path + ".new", path)

    def test_written_in_place(self):
        with open(CONF, "w") as f:
            f.write(DEAD)
        self.assertFalse(self.opens("ok.test"))
        with open(CONF, "w") as f:
            f.write(self.before[CONF])
        self.assertTrue(self.opens("ok.test"))

    def test_replaced_by_rename(self):
        for _ in range(3):
            self.replace(CONF, DEAD)
            self.assertFalse(self.opens("ok.test"))
            self.replace(CONF, self.before[CONF])
            self.assertTrue(self.opens("ok.test"))
        self.assertEqual(self.eg.stale, [0] * 6)

    def test_a_link_that_leads_elsewhere(self):
        for name, text in (("one", self.before[CONF]), ("two", DEAD)):
            with open(f"/etc/resolv.{name}", "w") as f:
                f.write(text)
        for name, works in (("two", False), ("one", True), ("two", False)):
            os.symlink(f"resolv.{name}", CONF + ".new")
            os.rename(CONF + ".new", CONF)
            self.assertEqual(self.opens("ok.test"), works, name)
        with open("/etc/resolv.two", "w") as f:  # what the link leads to, in place
            f.write(self.before[CONF])
        self.assertTrue(self.opens("ok.test"))
        self.replace("/etc/resolv.two", DEAD)  # and by rename
        self.assertFalse(self.opens("ok.test"))

    def test_taken_away_and_back(self):
        os.unlink(CONF)
        self.assertTrue(self.opens("ok.test"), "the last good configuration stays")
        self.replace(CONF, DEAD)
        self.assertFalse(self.opens("ok.test"))

    def test_hosts(self):
        self.assertFalse(self.opens("only.here.test"))
        self.replace(HOSTS, self.before[HOSTS] + "203.0.113.10 only.here.test\n"
                     "2001:db8::10 only.here.test\n")
        mark = lab.mark()
        self.assertTrue(self.opens("only.here.test"))
        self.assertEqual(lab.asked(mark), [])
        os.unlink(HOSTS)
        self.assertFalse(self.opens("only.here.test"))
        self.replace(HOSTS, "127.0.0.1 ok.test\n::1 ok.test\n")
        got = self.eg.tunnel("ok.test:443")
        self.assertEqual(status(got), 403)  # an address class, whoever says so
        self.assertIn(b" address ", got)

    def test_look_ups_wait_until_the_daemon_told(self):
        self.eg.tells_files = False
        self.replace(CONF, self.before[CONF] + "# changed\n")
        socks = [self.eg.connect() for _ in range(5)]
        mark = lab.mark()
        for s in socks:
            s.sendall(b"CONNECT v4.test:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        self.eg.wait(lambda: self.eg.stale, "the daemon is asked")
        lab.mark()
        self.assertEqual(lab.asked(mark), [])
        socks.pop().close()  # one does not wait for it
        self.eg.file(0)
        for s in socks:
            self.assertTrue(s.recv(100).startswith(b"HTTP/1.1 200 "))
            s.close()
        self.assertEqual(self.eg.stale, [0])

    def test_a_daemon_that_does_not_tell(self):
        self.eg.tells_files = False
        self.replace(CONF, self.before[CONF] + "# changed\n")
        self.assertFalse(self.opens("ok.test"))  # 504, by the dial's own deadline
        self.eg.file(0)
        self.assertTrue(self.opens("ok.test"))


class Walled(ApiTest):
    def test_a_secret_made_later(self):
        """What the host puts into /etc while the daemon runs is hidden from the sessions made after it:
        by name, and from root's also what others may not read."""
        self.session()
        late = {"/etc/ssh/late_key": 0o644, **({"/etc/late-secret": 0o600} if os.geteuid() == 0 else {})}
        os.makedirs("/etc/ssh", exist_ok=True)
        for path, mode in late.items():
            with open(path, "w") as f:
                f.write("a secret")
            os.chmod(path, mode)
            self.addCleanup(os.unlink, path)
        with open("/etc/late-open", "w") as f:
            f.write("no secret")
        self.addCleanup(os.unlink, "/etc/late-open")
        s = self.session()
        self.assertEqual(self.run_in(s, "cat /etc/late-open")["text"]["stdout"], "no secret")
        for path in late:
            with open(path) as f:
                self.assertEqual(f.read(), "a secret")
            self.assertEqual(self.run_in(s, f"cat {path}")["text"]["stdout"], "")

    def test_a_session_follows(self):
        s = self.session(sites=[{"host": "v4.test"}, {"host": "new.test"}])
        before = {path: open(path).read() for path in (CONF, HOSTS)}
        code = "curl -s -o /dev/null -w '%{http_code}' http://"
        try:
            self.assertEqual(self.run_in(s, code + "v4.test/")["text"]["stdout"], "200")
            Config.replace(CONF, "nameserver 203.0.113.54\n")  # nobody answers there
            self.assertEqual(self.run_in(s, code + "v4.test/")["text"]["stdout"], "502")
            Config.replace(CONF, before[CONF])
            self.assertEqual(self.run_in(s, code + "v4.test/")["text"]["stdout"], "200")
            Config.replace(HOSTS, before[HOSTS] + "203.0.113.10 new.test\n")
            self.assertEqual(self.run_in(s, code + "new.test/")["text"]["stdout"], "200")
            # What the egress has to say goes through a pipe: the lock-down lets it write no file.
            os.unlink(CONF)
            self.assertEqual(self.run_in(s, code + "v4.test/")["text"]["stdout"], "200")
            said = [line for line in self.d.log().splitlines() if " egress.said " in line]
            self.assertEqual(len(said), 1)
            self.assertIn("file=/etc/resolv.conf what it holds now could not be taken over", said[0])
        finally:
            for path, text in before.items():
                Config.replace(path, text)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
