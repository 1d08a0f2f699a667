#!/usr/bin/python3
"""`cordon run` and `exec`: exit codes, bytes, signals, ends."""
import glob
import json
import os
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.cli import Home, processes_with, wait_for


class Run(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.h = Home()

    @classmethod
    def tearDownClass(cls):
        cls.h.close()

    def mark(self):
        return f"mark{os.getpid()}{time.monotonic_ns()}"

    # ---- exit codes ------------------------------------------------------------------------------

    def test_codes_of_the_command(self):
        for code in (0, 1, 7, 124, 125, 255):
            self.assertEqual(self.h.sh(f"exit {code}").code, code)

    def test_no_such_command_is_127(self):
        r = self.h.cordon("run", "--", "no-such-command-here")
        self.assertEqual(r.code, 127, r)
        self.assertIn(b"no-such-command-here", r.err)
        self.assertEqual(self.h.cordon("run", "--", "/no/such/file").code, 127)

    def test_not_executable_is_126(self):
        path = self.h.work + "/plain"
        with open(path, "w") as f:
            f.write("text\n")
        os.chmod(path, 0o644)
        self.assertEqual(self.h.cordon("run", "--", "./plain").code, 126)
        self.assertEqual(self.h.cordon("run", "--", self.h.work).code, 126)

    def test_own_signals_are_128_and_n(self):
        for name, number in (("TERM", 15), ("KILL", 9), ("INT", 2), ("SEGV", 11), ("HUP", 1)):
            self.assertEqual(self.h.sh(f"kill -{name} $$").code, 128 + number, name)

    def test_forwarded_signals(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129),
                             (signal.SIGQUIT, 131)):
            p = self.h.start("run", "--", "sh", "-c", "ulimit -c 0; echo up; exec sleep 60")
            self.assertEqual(p.stdout.readline(), b"up\n")
            p.send_signal(number)
            self.assertEqual(p.wait(10), code)
            p.communicate()

    def test_a_signal_that_is_handled_inside(self):
        p = self.h.start("run", "--", "sh", "-c",
                         "trap 'echo got; exit 5' TERM; echo up; while :; do sleep 0.1; done")
        self.assertEqual(p.stdout.readline(), b"up\n")
        p.send_signal(signal.SIGTERM)
        out, _ = p.communicate(timeout=10)
        self.assertEqual((p.returncode, out), (5, b"got\n"))

    def test_three_signals_leave_at_once(self):
        p = self.h.start("run", "--", "sh", "-c", "trap '' INT; echo up; while :; do sleep 0.1; done")
        self.assertEqual(p.stdout.readline(), b"up\n")
        for _ in range(3):
            p.send_signal(signal.SIGINT)
            time.sleep(0.1)
        self.assertEqual(p.wait(10), 130)
        p.communicate()

    def test_timeout_is_124(self):
        r = self.h.cordon("run", "--timeout", "300ms", "--", "sleep", "600")
        self.assertEqual(r.code, 124, r)

    def test_refusals_are_125_with_reason_and_cure(self):
        for args, text in (
            (("-f", "/no/such/folder"), b"/no/such/folder"),
            (("-f", self.h.home), b"protected"),
            (("-f", "/"), b""),
            (("--timeout", "soon"), b"soon"),
            (("--timeout", "0"), b"0"),
            (("-t", "no-tier"), b"no-tier"),
            (("--network", "maybe"), b"maybe"),
            (("--allow", "exa mple"), b""),
            (("--allow", "example.com:99999"), b"65535"),
            (("-e", "CORDON_NO_SUCH_VARIABLE"), b"CORDON_NO_SUCH_VARIABLE"),
            (("-C", "/no/such/folder"), b"/no/such/folder"),
            (("--no-such-option",), b"no-such-option"),
            (("-f", self.h.work, "-C", "/usr"), b""),
        ):
            r = self.h.cordon("run", *args, "--", "touch", "ran")
            self.assertEqual(r.code, 125, (args, r))
            self.assertEqual(r.err.count(b"\n"), 1, (args, r))
            self.assertIn(text, r.err, args)
            self.assertEqual(r.out, b"")
        self.assertFalse(os.path.exists(self.h.work + "/ran"))

    def test_umask_of_the_caller(self):
        """Not that of whoever started the daemon, whose own files stay private."""
        path = self.h.work + "/made"
        for tier in ("walled", "open"):
            for mask in (0o022, 0o077, 0o002, 0o000, 0o027):
                r = self.h.cordon("run", "-t", tier, "--", "sh", "-c",
                                  "umask; rm -rf made d; mkdir d; > made", umask=mask)
                self.assertEqual((r.code, int(r.out, 8)), (0, mask), (tier, r))
                self.assertEqual(os.stat(path).st_mode & 0o777, 0o666 & ~mask, tier)
                self.assertEqual(os.stat(self.h.work + "/d").st_mode & 0o777, 0o777 & ~mask, tier)
        for folder, _, files in os.walk(self.h.state):
            self.assertEqual(os.lstat(folder).st_mode & 0o077, 0, folder)
            for name in files:
                self.assertEqual(os.lstat(f"{folder}/{name}").st_mode & 0o077, 0, name)

    # ---- bytes -----------------------------------------------------------------------------------

    def test_streams_apart(self):
        r = self.h.sh("echo out; echo err >&2; exit 3")
        self.assertEqual((r.code, r.out, r.err), (3, b"out\n", b"err\n"))

    def test_all_bytes(self):
        data = bytes(range(256)) * 300 + b"\xe2\x82" + b"\x00\xff" + "ü€😀".encode() * 1000
        r = self.h.cordon("run", "--", "cat", input=data)
        self.assertEqual(r.code, 0, r.err)
        self.assertEqual(r.out, data)

    def test_no_newline_no_output(self):
        self.assertEqual(self.h.sh("printf x").out, b"x")
        r = self.h.cordon("run", "--", "true")
        self.assertEqual((r.out, r.err), (b"", b""))

    def test_much_output(self):
        n = 64 << 20
        p = self.h.start("run", "--", "head", "-c", str(n), "/dev/zero")
        total = 0
        while True:
            b = p.stdout.read(1 << 20)
            if not b:
                break
            self.assertEqual(b.count(0), len(b))
            total += len(b)
        self.assertEqual((p.wait(), total, p.stderr.read()), (0, n, b""))
        p.communicate()

    def test_a_slow_reader_loses_nothing(self):
        n = 24 << 20
        p = self.h.start("run", "--", "sh", "-c", f"seq 1 10000000 | head -c {n}")
        time.sleep(1.5)
        data = p.stdout.read()
        self.assertEqual(p.wait(), 0, p.stderr.read())
        expected = b"".join(b"%d\n" % i for i in range(1, 3600000))[:n]
        self.assertEqual(len(data), n)
        self.assertTrue(data == expected)
        p.communicate()

    def test_output_comes_as_it_is_written(self):
        p = self.h.start("run", "--", "sh", "-c", "echo one; n=0; until test -e seen || test $n = 600; do "
                         "sleep 0.05; n=$((n + 1)); done; test -e seen && echo two")
        self.assertEqual(p.stdout.readline(), b"one\n")
        open(self.h.work + "/seen", "x").close()  # only who has read the first line makes the second
        self.assertEqual(p.communicate(timeout=60)[0], b"two\n")

    # ---- standard in -------------------------------------------------------------------------------

    def test_stdin_is_passed(self):
        for n in (0, 1, 65536, 300000, 5 << 20):
            data = os.urandom(n)
            r = self.h.cordon("run", "--", "sh", "-c", "wc -c; true", input=data)
            self.assertEqual(r.out.strip(), str(n).encode(), r)
        with open(self.h.base + "/in", "wb") as f:
            f.write(b"a\nb\n")
        with open(self.h.base + "/in", "rb") as f:
            p = self.h.start("run", "--", "sort", "-r", stdin=f)
            self.assertEqual(p.communicate(timeout=20)[0], b"b\na\n")

    def test_stdin_null_or_closed_ends_reads_at_once(self):
        self.assertEqual(self.h.sh("cat; echo $?").out, b"0\n")
        self.assertEqual(self.h.sh("read x; echo $?").out, b"1\n")
        p = subprocess.run(["sh", "-c", f"exec {self.h.argv()[0]} run -- cat <&-"],
                           cwd=self.h.work, env=self.h.env, capture_output=True, timeout=30)
        self.assertEqual((p.returncode, p.stdout), (0, b""), p.stderr)

    def test_stdin_as_a_conversation(self):
        p = self.h.start("run", "--", "cat", stdin=subprocess.PIPE)
        for line in (b"one\n", b"two\n"):
            p.stdin.write(line)
            p.stdin.flush()
            self.assertEqual(p.stdout.readline(), line)
        p.stdin.close()
        self.assertEqual(p.wait(10), 0)
        p.stdout.close()
        p.stderr.close()

    def test_a_command_that_leaves_its_stdin(self):
        r = self.h.cordon("run", "--", "head", "-c", "3", input=b"x" * (8 << 20), timeout=30)
        self.assertEqual((r.code, r.out), (0, b"xxx"), r.err)

    def test_back_pressure(self):
        p = self.h.start("run", "--", "sleep", "3", stdin=subprocess.PIPE)
        taken = 0
        os.set_blocking(p.stdin.fileno(), False)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            try:
                taken += os.write(p.stdin.fileno(), b"x" * 65536)
            except BlockingIOError:
                time.sleep(0.01)
        self.assertLess(taken, 4 << 20)
        self.assertEqual(p.wait(20), 0)
        p.stdin.close()
        p.stdout.close()
        p.stderr.close()

    # ---- ends --------------------------------------------------------------------------------------

    def none_alive(self, mark):
        wait_for(lambda: not processes_with(mark.encode()), f"{mark} to be gone", 15)

    def sessions(self):
        return self.h.json("session", "list", "--json")

    def test_closed_stdout_ends_the_session(self):
        mark = self.mark()
        p = subprocess.run(["bash", "-c", 'set -o pipefail; "$0" run -- sh -c "while :; do echo '
                            + mark + '; done" | head -1', self.h.argv()[0]],
                           cwd=self.h.work, env=self.h.env, capture_output=True, timeout=30)
        self.assertEqual((p.returncode, p.stdout), (141, mark.encode() + b"\n"), p.stderr)
        self.none_alive(mark)

    def test_stdout_closed_from_the_start(self):
        p = subprocess.run(["sh", "-c", f"exec {self.h.argv()[0]} run -- echo x >&-"],
                           cwd=self.h.work, env=self.h.env, capture_output=True, timeout=30)
        self.assertEqual((p.returncode, p.stderr), (0, b""))

    def test_full_disk_behind_stdout(self):
        with open("/dev/full", "wb") as full:
            p = self.h.start("run", "--", "echo", "x", stdout=full)
            _, err = p.communicate(timeout=20)
        self.assertEqual(p.returncode, 125, err)
        self.assertIn(b"No space left", err)

    def test_killed_command_line_ends_the_session(self):
        mark = self.mark()
        p = self.h.start("run", "--", "sh", "-c", f"echo up; while :; do sleep 0.2; done # {mark}")
        self.assertEqual(p.stdout.readline(), b"up\n")
        p.kill()
        p.communicate()
        self.none_alive(mark)

    def test_killed_at_any_point(self):
        """While the daemon is asked, the wall made, the command started, or it runs: no session is
        left, nor any process of one."""
        self.h.cordon("serve")
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            mark = self.mark()
            for i in range(24):
                p = self.h.start("run", "--", "sh", "-c", f"while :; do sleep 0.2; done # {mark}")
                time.sleep(i * 0.005)
                p.send_signal(number)
                self.assertIn(p.wait(30), (-number, 128 + number))
                p.communicate()
            wait_for(lambda: self.sessions() == [], f"no session after signal {number}", 30)
            self.none_alive(mark)

    def test_killed_group(self):
        """A terminal that is closed, a job that is killed: the whole process group goes at once."""
        mark = self.mark()
        for i in range(8):
            p = self.h.start("run", "--", "sh", "-c", f"while :; do sleep 0.2; done # {mark}",
                             start_new_session=True)
            time.sleep(i * 0.012)
            os.killpg(p.pid, signal.SIGKILL)
            p.communicate()
        wait_for(lambda: self.sessions() == [], "no session", 30)
        self.none_alive(mark)

    def test_session_ends_with_all_that_it_left_behind(self):
        mark = self.mark()
        r = self.h.sh(f"setsid sh -c 'while :; do sleep 0.1; done # {mark}' & echo left")
        self.assertEqual((r.code, r.out), (0, b"left\n"), r)
        self.none_alive(mark)

    def test_timeout_takes_descendants_along(self):
        mark = self.mark()
        late = self.h.work + "/late"
        r = self.h.sh(f"trap '' TERM; setsid sh -c 'while :; do date >> late; sleep 0.2; done # {mark}' & "
                      "while :; do sleep 0.1; done", "--timeout", "500ms")
        self.assertEqual(r.code, 124, r)
        self.none_alive(mark)
        size = os.path.getsize(late)
        time.sleep(0.6)
        self.assertEqual(os.path.getsize(late), size)

    def test_ends_in_the_record(self):
        self.h.cordon("run", "--", "true")
        wait_for(lambda: self.sessions() == [], "no session to be alive")

    def test_many_at_once(self):
        ps = [self.h.start("run", "--", "sh", "-c", f"exit {i}") for i in range(8)]
        self.assertEqual([p.wait(60) for p in ps], list(range(8)))
        for p in ps:
            p.communicate()

    def test_nothing_left_in_tmp(self):
        """Case 43, the short form: what a run makes is gone after it."""
        mark, folders = os.path.basename(self.h.base), []
        for _ in range(25):
            p = self.h.start("run", "--", "sh", "-c", f"touch /tmp/{mark}; echo up; cat", stdin=subprocess.PIPE)
            self.assertEqual(p.stdout.readline(), b"up\n")
            folders += glob.glob(f"/tmp/cordon-*/tmp/{mark}")
            p.communicate(timeout=60)
            self.assertEqual(p.returncode, 0)
        self.assertEqual(len(folders), 25, "the control: while it runs it is there")
        wait_for(lambda: not any(os.path.lexists(f.rsplit("/", 2)[0]) for f in folders),
                 "the private folders to be gone", 15)
        self.assertEqual(os.listdir(self.h.work).count("true"), 0)

    # ---- a session that stays --------------------------------------------------------------------

    def test_keep_and_exec(self):
        r = self.h.sh("echo a > f", "--keep")
        self.assertEqual(r.code, 0, r)
        sid = r.err.decode().split()[-1]
        try:
            self.assertRegex(sid, "^ses_")
            r = self.h.cordon("exec", sid, "--", "sh", "-c", "cat f; exit 9")
            self.assertEqual((r.code, r.out), (9, b"a\n"), r)
            r = self.h.cordon("exec", "-e", "X=y", "-C", "/tmp", sid, "--", "sh", "-c", "pwd; echo $X")
            self.assertEqual(r.out, b"/tmp\ny\n", r)
            self.assertEqual(self.h.cordon("exec", "--timeout", "200ms", sid, "--", "sleep", "9").code, 124)
            p = self.h.start("exec", sid, "--", "sh", "-c", "echo up; exec sleep 60")
            self.assertEqual(p.stdout.readline(), b"up\n")
            p.send_signal(signal.SIGINT)
            self.assertEqual(p.wait(10), 130)
            p.communicate()
            mark = self.mark()
            p = self.h.start("exec", sid, "--", "sh", "-c", f"echo up; while :; do sleep 0.2; done # {mark}")
            self.assertEqual(p.stdout.readline(), b"up\n")
            p.kill()
            p.communicate()
            self.none_alive(mark)
            self.assertEqual(self.h.cordon("exec", sid, "--", "true").code, 0)
        finally:
            self.assertEqual(self.h.cordon("session", "stop", sid).code, 0)
        wait_for(lambda: self.h.cordon("exec", sid, "--", "true").code == 125, "the session to end")

    def test_json(self):
        r = self.h.sh("printf 'a\\377b'; echo e >&2; exit 4", "--json")
        self.assertEqual((r.code, r.err), (4, b""), r)
        doc = json.loads(r.out)
        self.assertEqual(doc["state"], "exited")
        self.assertEqual(doc["result"]["exit_code"], 4)
        self.assertEqual(doc["text"]["stderr"], "e\n")
        self.assertEqual(doc["text"]["stdout"], "a\ufffdb")
        self.assertTrue(doc["text"]["lossy"])
        self.assertEqual(doc["enforcement"]["level"], "files+network")

    # ---- the daemon --------------------------------------------------------------------------------

    def test_commands_die_with_the_daemon(self):
        """Case 86."""
        with Home() as h:
            mark = self.mark()
            p = h.start("run", "--", "sh", "-c", f"echo up; while :; do sleep 0.2; done # {mark}")
            self.assertEqual(p.stdout.readline(), b"up\n")
            h.kill_daemon()
            _, err = p.communicate(timeout=20)
            self.assertEqual(p.returncode, 125, err)
            wait_for(lambda: not processes_with(mark.encode()), "its commands to die", 15)
            self.assertEqual(h.cordon("run", "--", "true").code, 0)
            wait_for(lambda: h.cordon("session", "list").out == b"", "no session to be alive")

    def test_ten_thousand_lines_in_order(self):
        r = self.h.sh("for i in 1 2 3 4 5 6 7 8 9 10; do seq $((i*1000)) $((i*1000+999)); done")
        self.assertEqual(r.out, b"".join(b"%d\n" % i for i in range(1000, 11000)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
