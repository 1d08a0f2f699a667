#!/usr/bin/python3
"""`cordon run --ask` on a terminal of the test's own: what was refused is asked about, by each key, and the
answer opens the site while the command runs; and `cordon asks`."""
import os
import pty
import re
import select
import signal
import sys
import termios
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.cli import Home

# Inside: CONNECT to each host in turn, again until it is open (502, as .invalid is never resolved, RFC 6761) or
# denied; "HOST STATUS" a line.
TRY = r"""
import os, socket, sys, time
port = int(os.environ["http_proxy"].strip("/").rsplit(":", 1)[1])
def status(host):
    with socket.create_connection(("127.0.0.1", port), 20) as s:
        s.sendall(f"CONNECT {host} HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n\r\n".encode())
        answer = b""
        while True:
            more = s.recv(65536)
            if not more:
                return "denied" if b'"ask_denied"' in answer else answer.split(b" ")[1].decode()
            answer += more
for host in sys.argv[1:]:
    for _ in range(600):
        got = status(host)
        if got != "403":
            break
        time.sleep(0.05)
    print(host, got, flush=True)
"""
CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]|\xc2[\x80-\x9f]")


class Terminal:
    """A command line whose controlling terminal is ours. Standard in is nothing, or it; out is a pipe."""

    def __init__(self, h, *args, typed=b"", reads=False, **kw):
        self.master, slave = pty.openpty()
        os.set_inheritable(slave, True)
        self.seen = b""
        if typed:
            os.write(self.master, typed)
        self.before = termios.tcgetattr(self.master)

        def take():
            os.setsid()
            import fcntl
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        if reads:
            kw["stdin"] = slave
        self.p = h.start(*args, stderr=slave, preexec_fn=take, **kw)
        os.close(slave)

    def until(self, text, seconds=30):
        """Reads the terminal until TEXT came; what came before it, with it."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            if time.monotonic() > end or not select.select([self.master], [], [], end - time.monotonic())[0]:
                raise AssertionError(f"{text!r} did not come: {self.seen[-2000:]!r}")
            self.seen += os.read(self.master, 65536)
        at = self.seen.index(text) + len(text)
        got, self.seen = self.seen[:at], self.seen[at:]
        return got

    def type(self, keys):
        os.write(self.master, keys)

    def end(self):
        """Its exit code and standard output; the terminal is as it was."""
        out = self.p.communicate(timeout=60)[0]
        after = termios.tcgetattr(self.master)
        while select.select([self.master], [], [], 0)[0]:
            try:
                self.seen += os.read(self.master, 65536)
            except OSError:
                break
        os.close(self.master)
        return self.p.returncode, out, after == self.before


class Asks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.h = Home()
        with open(cls.h.work + "/try.py", "w") as f:
            f.write(TRY)

    @classmethod
    def tearDownClass(cls):
        cls.h.close()

    def run_asked(self, hosts, *options, **kw):
        t = Terminal(self.h, "run", *options, "--", "/usr/bin/python3", "try.py", *hosts, **kw)
        self.addCleanup(lambda: t.p.poll() is None and t.p.kill())
        return t

    def test_each_key(self):
        # The menu begins at deny, the last; once is not on offer, as nothing waits.
        keys = [(b"s", "502"), (b"2", "502"), (b"a", "502"), (b"3", "denied"), (b"n", "denied"), (b"\x1b", "denied"),
                (b"\r", "denied"), (b"k\r", "502"), (b"kk\n", "502"), (b"j\r", "502"), (b"\x1b[A\r", "502"),
                (b"\x1bOA\x1b[B\r", "denied"), (b"1yqx\x1b[C\x1b[1;5A\x00s", "502")]
        hosts = [f"h{i}.invalid:443" for i in range(len(keys))]
        t = self.run_asked(hosts)
        for host, (typed, _) in zip(hosts, keys):
            t.until(f"cordon: {host} was refused".encode())
            menu = t.until(b"> deny")
            self.assertIn(b"  session  s          " + host.encode() + b" until work ends", menu)
            self.assertIn(b"  always   2, a       " + host.encode() + b" for every walled session", menu)
            self.assertNotIn(b"once ", menu)
            t.until(b"\n")
            t.type(typed)
            t.until(f"cordon: {host} was refused: ".encode())
        code, out, restored = t.end()
        self.assertEqual((code, restored), (0, True))
        self.assertEqual(out.decode().split(), [x for host, (_, want) in zip(hosts, keys) for x in (host, want)])
        always = {f"{s['host']}:{s['port']}" for s in self.h.json("sites", "list", "--json") if s["source"] == "ask"}
        self.assertEqual(always, {hosts[i] for i in (1, 2, 7, 10)})
        asks = {a["subject"]["host"]: a for a in self.h.json("asks", "list", "--all", "--json")}
        self.assertEqual(asks["h0.invalid"]["answer"], "session")
        self.assertTrue(asks["h0.invalid"]["evidence"]["blocked"])
        self.assertEqual(asks["h0.invalid"]["decided"]["by"], "owner")

    def test_what_was_typed_before_does_not_count(self):
        t = self.run_asked(["typed.invalid:443"], typed=b"aaaa\ns\n1\n")
        t.until(b"typed.invalid:443 was refused")
        t.until(b"> deny")
        t.until(b"\n")
        open_now = [a["subject"]["host"] for a in self.h.json("asks", "list", "--json")]
        self.assertEqual(open_now, ["typed.invalid"])
        t.type(b"n")
        self.assertEqual(t.end(), (0, b"typed.invalid:443 denied\n", True))

    def test_a_command_that_reads_the_terminal(self):
        """The answer is not its input, and what is typed behind it is."""
        t = Terminal(self.h, "run", "--", "sh", "-c", "/usr/bin/python3 try.py reads.invalid:443; read line; echo got $line",
                     reads=True)
        t.until(b"> deny")
        t.until(b"\n")
        t.type(b"n")
        t.until(b"reads.invalid:443 was refused: deny")
        t.type(b"hello\n")
        self.assertEqual(t.end(), (0, b"reads.invalid:443 denied\ngot hello\n", True))

    def test_answered_elsewhere(self):
        t = self.run_asked(["else.invalid:443"])
        t.until(b"> deny")
        a = self.h.json("asks", "list", "--json")[0]
        self.assertEqual(self.h.cordon("asks", "allow", a["id"]).code, 0)
        t.until(b"else.invalid:443 was refused: session")
        self.assertEqual(t.end(), (0, b"else.invalid:443 502\n", True))

    def test_a_signal_at_the_question(self):
        t = self.run_asked(["signal.invalid:443"])
        t.until(b"> deny")
        t.until(b"\n")
        t.type(b"\x03")  # Ctrl-C is no answer
        t.until(b"signal.invalid:443 was refused: not answered")
        code, out, restored = t.end()
        self.assertEqual((code, out, restored), (130, b"", True))
        a = [x for x in self.h.json("asks", "list", "--all", "--json") if x["subject"]["host"] == "signal.invalid"]
        self.assertEqual(a[0]["state"], "cancelled")
        t = self.run_asked(["signal2.invalid:443"])
        t.until(b"> deny")
        t.until(b"\n")
        t.p.send_signal(signal.SIGTERM)
        code, out, restored = t.end()
        self.assertEqual((code, restored), (143, True))

    def test_nobody_to_ask(self):
        """Without a terminal, or with --no-ask on one: refused at once, and no agent may ask."""
        r = self.h.cordon("run", "--keep", "--", "true")
        self.h.cordon("session", "stop", sid := r.err.decode().split()[-1])
        self.assertEqual(self.h.json("session", "show", sid)["approvals"], "full")
        t = self.run_asked(["nobody.invalid:443"], "--no-ask", "--keep", "--timeout", "2s")
        code, out, _ = t.end()
        self.assertEqual(code, 124)
        self.assertNotIn(b"> ", t.seen)
        sid = re.search(rb"ses_[0-9A-Z]{26}", t.seen)[0].decode()
        self.h.cordon("session", "stop", sid)
        self.assertEqual(self.h.json("session", "show", sid)["approvals"], "full")
        t = self.run_asked([], "--keep")
        t.end()
        sid = re.search(rb"ses_[0-9A-Z]{26}", t.seen)[0].decode()
        self.h.cordon("session", "stop", sid)
        self.assertEqual(self.h.json("session", "show", sid)["approvals"], "ask")

    def test_texts_from_inside_are_shown_escaped(self):
        """Case 122: a reason that would move the cursor, hide, or forge a line."""
        evil = "ok\r\x1b[2K\x1b[8m\x1b]52;c;eA==\x07\x9b2J\u202e\n[allowed] fake" + "x" * 300
        t = self.run_asked(["evil.invalid:443", "evil2.invalid:443"])
        t.until(b"evil.invalid:443 was refused")
        sid = self.h.json("asks", "list", "--json")[0]["session_id"]
        self.h.post(f"/v1/sessions/{sid}/asks", {"kind": "site", "subject": {"host": "evil2.invalid", "port": 443},
                                                 "reason": evil})
        t.until(b"> deny")
        t.until(b"\n")
        t.type(b"n")
        shown = t.until(b"> deny")
        self.assertIn(rb"cordon: the agent says: ok\x0d\x1b[2K", shown)
        # What is granted stands last above the menu, and in full.
        self.assertIn(b"...\r\ncordon: evil2.invalid:443 was refused\r\n  session", shown)
        self.assertNotIn(b"\n[allowed]", shown)
        # Before it the terminal is made plain: no hidden text, other characters, scroll region or screen.
        plain = b"\x1b[?47l\x1b[!p\x1b[0m\x1b(B\x0f\rcordon: the agent says"
        self.assertIn(plain, shown)
        self.assertIsNone(CONTROL.search(shown.replace(plain, b"")), shown)
        listed = self.h.cordon("asks", "list").out
        self.assertIn(rb"\x0d\x1b[2K\x1b[8m", listed)
        self.assertEqual((listed.count(b"\n"), CONTROL.search(listed), listed.count(b"\x1b")), (1, None, 0))
        t.until(b"\n")
        t.type(b"n")
        t.end()

    def test_a_long_name_is_shown_in_full(self):
        host = ".".join(["a" * 60] * 4) + ".invalid"
        t = self.run_asked([host + ":443"])
        t.until(f"cordon: {host}:443 was refused\r\n".encode())
        t.until(b"> deny")
        t.until(b"\n")
        t.type(b"k")
        t.until(b"> always")
        t.until(b"\n")
        t.type(b"s")
        # Four lines of 80 columns and a menu of three are wiped.
        t.until(b"\r\x1b[7A\x1b[J" + f"cordon: {host}:443 was refused: session\r\n".encode())
        self.assertEqual(t.end()[:2], (0, f"{host}:443 502\n".encode()))

    def test_wrong_answers(self):
        for args in (("allow", "ask_" + "0" * 26), ("deny", "nothing"), ("allow", "x", "never"), ("allow",), ("deny", "a", "b")):
            r = self.h.cordon("asks", *args)
            self.assertEqual((r.code, r.err.count(b"\n")), (125, 1), (args, r))
        self.assertIn(b"once, session", self.h.cordon("asks", "allow", "x", "never").err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
