"""Commands: how they end, by themselves, by signal, stop and clock; what they are given; standard input by
offset; what is kept of them."""
import hashlib
import os
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest
from cordon_test.cli import is_alive, wait_for

OCTETS = {"Content-Type": "application/octet-stream"}


class Commands(ApiTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.s = cls.c.call("POST", "/v1/sessions", {"folders": [{"path": cls.work}], "require_wall": True}, 201)
        cls.n = 0

    def mark(self):
        """A text that stands in the command line of what a test starts, and nowhere else."""
        type(self).n += 1
        return f"9{os.getpid()}{self.n:03}"

    def running(self, mark):
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    words = f.read().split(b"\0")
            except OSError:
                continue
            if words[:2] == [b"sleep", mark.encode()] and is_alive(int(pid)):
                found.append(int(pid))
        return found

    def signal(self, c, name, **more):
        return self.c.call("POST", self.at(c) + "/signal", {"signal": name, **more})

    # ---- How they end ------------------------------------------------------------------------------

    def test_exit_codes_and_signals(self):
        for code in (0, 1, 2, 7, 126, 127, 128, 137, 255):
            c = self.run_in(self.s, f"exit {code}")
            self.assertEqual((c["state"], c["result"]["exit_code"], c["result"].get("signal")), ("exited", code, None))
        for name in ("TERM", "KILL", "SEGV", "HUP", "ABRT", "PIPE", "USR1"):
            c = self.run_in(self.s, f"kill -{name} $$")
            self.assertEqual((c["state"], c["result"]["signal"], c["result"].get("exit_code")), ("killed", name, None))

    def test_what_never_ran(self):
        """failed, with errno and stage; never a made-up 126 or 127."""
        with open(self.work + "/plain", "w") as f:
            f.write("x")
        with open(self.work + "/noint", "w") as f:
            f.write("#!/no/such/interpreter\n")
        os.chmod(self.work + "/noint", 0o755)
        for argv, cwd, stage, errno in ((["/no/such"], None, "exec", 2), ([self.work + "/plain"], None, "exec", 13),
                                        ([self.work], None, "exec", 13), ([self.work + "/noint"], None, "exec", 2),
                                        (["no-such-program"], None, "exec", 2), (["true"], self.work + "/gone", "cwd", 2),
                                        (["true"], self.work + "/plain", "cwd", 20)):
            c = self.run_in(self.s, argv=argv, **({"cwd": cwd} if cwd else {}))
            self.assertEqual((c["state"], c["start_error"]["stage"], c["start_error"]["errno"]), ("failed", stage, errno), argv)
            self.assertNotIn("exit_code", c.get("result") or {})
            end = self.c.ask("GET", self.at(c) + "/output").frames()[-1]
            self.assertEqual((end["kind"], end["state"], end["start_error"]), ("end", "failed", c["start_error"]))

    # case 26
    def test_sizes_of_a_command_line(self):
        c = self.run_in(self.s, argv=["/bin/echo", "x" * 131000])
        self.assertEqual(c["state"], "exited")
        a = self.c.ask("POST", f"/v1/sessions/{self.s['id']}/commands", {"argv": ["/bin/echo", "x" * 140000], "wait_ms": 20000})
        self.assertTrue(a.status == 422 or a.json["state"] == "failed", a)  # one clear answer, not a shell's
        if a.status == 201:
            self.assertEqual((a.json["start_error"]["stage"], a.json["start_error"]["errno"]), ("exec", 7))
        many = {"argv": ["/bin/echo"] + ["y" * 1000] * 1900, "wait_ms": 20000}
        a = self.c.ask("POST", f"/v1/sessions/{self.s['id']}/commands", many)
        self.assertTrue(a.status in (413, 422) or a.json["state"] == "failed", a)
        c = self.run_in(self.s, argv=["/bin/true"], env={"BIG": "z" * 100000})
        self.assertEqual(c["result"]["exit_code"], 0)

    # ---- What they are given -----------------------------------------------------------------------

    def test_cwd_env_and_arguments(self):
        os.makedirs(self.work + "/sub dir", exist_ok=True)
        c = self.run_in(self.s, 'pwd; printf "%s|" "$A" "$B" "${HOME:+home}"', cwd=self.work + "/sub dir",
                        env={"A": "ü $(id) `x` \"'", "B": ""})
        self.assertEqual(c["text"]["stdout"], f"{self.work}/sub dir\nü $(id) `x` \"'||home|")
        c = self.run_in(self.s, argv=["printf", "[%s]", "", "a b", "*", "$HOME", "-n", "é\n", "\\"])
        self.assertEqual(c["text"]["stdout"], "[][a b][*][$HOME][-n][é\n][\\]")
        c = self.run_in(self.s, "pwd", cwd="sub dir")  # from the session's own folder on
        self.assertEqual(c["text"]["stdout"], self.work + "/sub dir\n")
        got = self.c.call("GET", self.at(c))
        self.assertEqual((got["shell"], got["display"], got["session_id"]), ("pwd", "pwd", self.s["id"]))
        c = self.run_in(self.s, "env | grep -c '^PATH='", env={"PATH": None})  # taken away
        self.assertEqual(c["text"]["stdout"].strip(), "0")

    def test_no_input_is_dev_null(self):
        c = self.run_in(self.s, "cat; readlink /proc/self/fd/0")
        self.assertEqual(c["text"]["stdout"], "/dev/null\n")

    # case 88
    def test_secrets_of_others_in_proc(self):
        """Another command's environment and the daemon's are not to be read in /proc."""
        other = self.start(self.s, "exec sleep 600", env={"SECRET_A": "s3cr3t-other"})
        s2 = self.session()
        c = self.run_in(s2, "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c -e s3cr3t-[o]ther -e cordon[d]; "
                            "ls /proc | grep -c '^[0-9]'")
        hits, n = c["text"]["stdout"].split()
        self.assertEqual(hits, "0")
        self.assertLess(int(n), 20)
        self.c.call("POST", self.at(other) + "/stop", {"grace_ms": 0}, 202)

    # ---- Signals and stop --------------------------------------------------------------------------

    def test_each_signal(self):
        for name in ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2"):
            c = self.start(self.s, f"trap 'echo got {name}; exit 9' {name}; echo up; while :; do sleep 0.05; done")
            with self.c.stream("GET", self.at(c) + "/output?follow=1") as out:
                self.assertEqual(out.frame()["text"], "up\n")
                self.signal(c, name, to="leader")
                self.assertEqual(out.frame()["text"], f"got {name}\n")
            self.assertEqual(self.wait_end(c)["result"]["exit_code"], 9)
        c = self.start(self.s, "trap '' TERM; echo up; exec sleep 600")
        self.first(c)
        self.signal(c, "TERM")
        self.assertEqual(self.c.call("GET", self.at(c))["state"], "running")
        self.signal(c, "KILL")
        self.assertEqual(self.wait_end(c)["result"]["signal"], "KILL")

    def first(self, c):
        with self.c.stream("GET", self.at(c) + "/output?follow=1") as out:
            return out.frame()

    def test_stop_and_go_on(self):
        m = self.mark()
        c = self.start(self.s, f"echo up; sleep {m} & wait")
        self.first(c)
        wait_for(lambda: self.running(m), "the sleeper")
        self.signal(c, "STOP")
        wait_for(lambda: self.state_of(self.running(m)[0]) == "T", "it to stand")
        self.signal(c, "CONT")
        wait_for(lambda: self.state_of(self.running(m)[0]) == "S", "it to go on")
        self.signal(c, "STOP")
        self.c.call("POST", self.at(c) + "/stop", {"grace_ms": 600000}, 202)  # what stands still is ended all the same
        self.assertEqual(self.wait_end(c)["state"], "killed")
        self.assertEqual(self.running(m), [])

    @staticmethod
    def state_of(pid):
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0]

    # case 85
    def test_stop_takes_the_whole_tree(self):
        """Children, what they started with setsid, double forks, and what ignores TERM."""
        m = self.mark()
        c = self.start(self.s, f"""
            sleep {m} & setsid sleep {m} & (setsid sh -c 'sleep {m} & sleep {m} & wait' &) & nohup sleep {m} >/dev/null 2>&1 &
            sh -c 'trap "" TERM INT HUP; sleep {m} & sleep {m}; wait' & echo up; trap '' TERM; wait; sleep {m}""")
        self.first(c)
        wait_for(lambda: len(self.running(m)) >= 6, "all sleepers")
        r = self.c.call("POST", self.at(c) + "/stop", {"grace_ms": 200}, 202)
        self.assertIn(r["state"], ("running", "killed"))
        self.assertEqual(self.wait_end(c)["state"], "killed")
        wait_for(lambda: not self.running(m), "the tree to be gone")
        self.c.problem(409, "command_ended", "POST", self.at(c) + "/stop", {})
        self.c.problem(409, "command_ended", "POST", self.at(c) + "/signal", {"signal": "KILL"})
        # The control: the session and another command live on.
        self.assertEqual(self.run_in(self.s, "echo well")["text"]["stdout"], "well\n")

    def test_a_child_lives_on_until_the_session_ends(self):
        s, m = self.session(keep=True), self.mark()
        c = self.run_in(s, f"setsid sleep {m} >/dev/null 2>&1 & echo started")
        self.assertEqual((c["state"], c["text"]["stdout"]), ("exited", "started\n"))
        wait_for(lambda: self.running(m), "the child")
        self.c.problem(409, "session_running", "DELETE", f"/v1/sessions/{s['id']}")
        self.c.call("POST", f"/v1/sessions/{s['id']}/stop", {"grace_ms": 0}, 202)
        wait_for(lambda: not self.running(m), "the child to go with its session")
        wait_for(lambda: self.c.call("GET", f"/v1/sessions/{s['id']}")["state"] == "ended", "the session to end")
        self.c.problem(409, "session_ended", "POST", f"/v1/sessions/{s['id']}/commands", {"argv": ["true"]})
        self.c.problem(409, "session_ended", "POST", f"/v1/sessions/{s['id']}/stop", {})
        self.c.call("DELETE", f"/v1/sessions/{s['id']}", want=204)
        self.c.problem(404, "not_found", "GET", f"/v1/sessions/{s['id']}")

    # ---- Three clocks ------------------------------------------------------------------------------

    def test_waiting_ends_the_answer_alone(self):
        c = self.start(self.s, "sleep 600", wait_ms=50)
        self.assertEqual(c["state"], "running")
        self.assertNotIn("text", c)
        self.assertEqual(self.c.call("GET", self.at(c) + "?wait_ms=50")["state"], "running")
        self.c.call("POST", self.at(c) + "/stop", {"grace_ms": 0}, 202)
        self.wait_end(c)

    def test_time_out_ends_the_process(self):
        m = self.mark()
        c = self.run_in(self.s, f"setsid sleep {m} & trap '' TERM; echo x; sleep {m}", timeout_ms=300, kill_grace_ms=100)
        self.assertEqual((c["state"], c["result"]["limit"], c["text"]["stdout"]), ("timed_out", "time", "x\n"))
        self.assertGreaterEqual(c["result"]["elapsed_ms"], 300)
        wait_for(lambda: not self.running(m), "the tree to be gone")
        c = self.run_in(self.s, "echo y; sleep 600", idle_timeout_ms=200)
        self.assertEqual((c["state"], c["text"]["stdout"]), ("timed_out", "y\n"))
        # What speaks is not idle.
        c = self.run_in(self.s, "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.1; done", idle_timeout_ms=20000)
        self.assertEqual(c["state"], "exited")

    def test_the_setting_is_the_default_clock(self):
        self.c.patch("/v1/settings", {"limits": {"command_timeout_ms": 250}})
        try:
            self.assertEqual(self.run_in(self.s, "sleep 600")["state"], "timed_out")
            self.assertEqual(self.run_in(self.s, "sleep 0.4; echo z", timeout_ms=0)["text"]["stdout"], "z\n")
        finally:
            self.c.patch("/v1/settings", {"limits": {"command_timeout_ms": None}})

    def test_a_caller_that_hangs_up(self):
        """on_disconnect: keep lets it run, kill stops it."""
        for kind in ("keep", "kill"):
            m = self.mark()
            body = {"shell": f"sleep {m}", "wait_ms": 60000, "on_disconnect": kind, "kill_grace_ms": 0}
            data, headers = self.c.encode(body, {})
            with self.c.connect() as sock:
                sock.sendall(self.c.head("POST", f"/v1/sessions/{self.s['id']}/commands", data, headers) + data)
                wait_for(lambda: self.running(m), "it to run")
            c = self.c.call("GET", f"/v1/sessions/{self.s['id']}/commands?limit=1")["items"][0]
            if kind == "kill":
                self.assertEqual(self.wait_end(c)["state"], "killed")
            else:
                self.assertEqual(self.c.call("GET", self.at(c) + "?wait_ms=200")["state"], "running")
                self.c.call("POST", self.at(c) + "/stop", {"grace_ms": 0}, 202)

    # ---- Standard input ----------------------------------------------------------------------------

    def put(self, c, offset, data, want=200, query=""):
        return self.c.call("POST", f"{self.at(c)}/stdin?offset={offset}{query}", data, want, OCTETS)

    def test_input_by_offset(self):
        data = bytes(range(256)) * 4
        c = self.start(self.s, "od -An -v -tx1 | tr -d ' \\n'", stdin="pipe")
        self.assertEqual(self.put(c, 0, data[:100]), {"accepted_to": 100, "closed": False})
        self.assertEqual(self.put(c, 0, data[:100])["accepted_to"], 100)      # the same again: taken once
        self.assertEqual(self.put(c, 50, data[50:300])["accepted_to"], 300)   # what overlaps is skipped
        self.assertEqual(self.put(c, 10, data[10:20])["accepted_to"], 300)    # all of it known
        p = self.c.problem(409, "stdin_gap", "POST", self.at(c) + "/stdin?offset=301", b"x", OCTETS)
        self.assertEqual(p["accepted_to"], 300)
        self.assertEqual(self.put(c, 300, b"")["accepted_to"], 300)
        self.assertEqual(self.put(c, 300, data[300:], query="&close=1"), {"accepted_to": 1024, "closed": True})
        self.assertEqual(self.wait_end(c)["text"]["stdout"], data.hex())

    def test_input_that_nobody_reads(self):
        c = self.start(self.s, "echo up; exec sleep 600", stdin="pipe")
        self.first(c)
        at, full = 0, None
        for _ in range(20):
            a = self.c.ask("POST", f"{self.at(c)}/stdin?offset={at}", b"y" * 65536, OCTETS)
            if a.status != 200:
                full = a
                break
            at = a.json["accepted_to"]
        self.assertEqual((full.status, full.json["code"]), (429, "stdin_full"))
        self.assertGreater(full.json["retry_after_ms"], 0)
        self.assertLessEqual(full.json["accepted_to"], (256 << 10) + 65536 * 2)
        self.c.problem(413, "body_too_large", "POST", f"{self.at(c)}/stdin?offset=0", b"z" * ((256 << 10) + 1), OCTETS)
        self.c.call("POST", self.at(c) + "/stop", {"grace_ms": 0}, 202)
        self.wait_end(c)
        self.c.problem(409, "command_ended", "POST", self.at(c) + "/stdin?offset=0", b"x", OCTETS)

    def test_much_input_by_two(self):
        """Two clients that send the same bytes: taken once, in order."""
        data = os.urandom(1 << 20)
        c = self.start(self.s, "sha256sum", stdin="pipe")

        def feed():
            at = 0
            while at < len(data):
                a = self.c.ask("POST", f"{self.at(c)}/stdin?offset={at}", data[at:at + 100000], OCTETS)
                self.assertIn(a.status, (200, 429), a)
                at = max(at, a.json["accepted_to"])

        threads = [threading.Thread(target=feed) for _ in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.put(c, len(data), b"", query="&close=1")
        self.assertEqual(self.wait_end(c)["text"]["stdout"].split()[0], hashlib.sha256(data).hexdigest())

    def test_input_where_there_is_none(self):
        c = self.start(self.s, "exec sleep 600")
        self.c.problem(409, "stdin_none", "POST", self.at(c) + "/stdin?offset=0", b"x", OCTETS)
        self.c.problem(415, "content_type", "POST", self.at(c) + "/stdin?offset=0", b"x", {"Content-Type": "text/plain"})
        self.c.problem(422, "query_invalid", "POST", self.at(c) + "/stdin", b"x", OCTETS)
        self.c.call("POST", self.at(c) + "/stop", {"grace_ms": 0}, 202)

    # ---- Records -----------------------------------------------------------------------------------

    def test_lists_say_what_runs_now(self):
        c = self.c.call("POST", f"/v1/sessions/{self.s['id']}/commands", {"shell": "echo up; exec sleep 60"}, 201)
        self.c.call("GET", self.at(c) + "/output?stream=stdout&after=0&wait_ms=10000", None, 200,
                    headers={"Accept": "application/json"})
        try:
            for query, has in (("", True), ("?state=running", True), ("?state=starting", False)):
                items = self.c.call("GET", f"/v1/sessions/{self.s['id']}/commands{query}", None, 200)["items"]
                mine = [x["state"] for x in items if x["id"] == c["id"]]
                self.assertEqual(mine, ["running"] if has else [], query)
            items = self.c.call("GET", "/v1/sessions", None, 200)["items"]
            self.assertEqual([x["counts"]["running"] for x in items if x["id"] == self.s["id"]], [1])
        finally:
            self.c.call("POST", self.at(c) + "/stop", {"grace_ms": 0}, 202)

    def test_lists_and_removal(self):
        s = self.session(keep=True)
        made = [self.run_in(s, f"echo {i}; exit {i % 2}") for i in range(7)]
        at = f"/v1/sessions/{s['id']}/commands"
        self.assertEqual([c["id"] for c in self.c.items(at + "?limit=2")], [c["id"] for c in reversed(made)])
        self.assertEqual([c["id"] for c in self.c.items(at + "?q=echo%203")], [made[3]["id"]])
        self.assertEqual(self.c.items(at + "?state=running"), [])
        self.assertEqual(len(self.c.items(at + "?state=exited&limit=3")), 7)
        self.c.call("DELETE", self.at(made[0]), want=204)
        self.c.problem(404, "not_found", "GET", self.at(made[0]) + "/output")
        self.assertEqual(len(self.c.items(at)), 6)
        runs = self.start(s, "exec sleep 600")
        self.c.problem(409, "command_running", "DELETE", self.at(runs))
        self.c.call("POST", f"/v1/sessions/{s['id']}/stop", {"grace_ms": 0}, 202)
        wait_for(lambda: self.c.call("GET", f"/v1/sessions/{s['id']}")["state"] == "ended", "the session to end")
        self.c.call("DELETE", f"/v1/sessions/{s['id']}", want=204)
        self.assertEqual([d for d in os.listdir(self.d.state + "/spool") if d in {c["id"] for c in made}], [])

    def test_the_limit_of_running_commands(self):
        """64 run; the next is refused with the limit named, and runs when one has ended."""
        s = self.session()
        runs = [self.start(s, "exec sleep 600") for _ in range(64)]
        p = self.c.problem(429, "too_many", "POST", f"/v1/sessions/{s['id']}/commands", {"argv": ["true"]})
        self.assertIn("64", p["detail"])
        self.c.call("POST", self.at(runs[0]) + "/stop", {"grace_ms": 0}, 202)
        self.wait_end(runs[0])
        self.assertEqual(self.run_in(s, "true")["state"], "exited")

    def test_records_say_the_wall(self):
        c = self.run_in(self.s, "true")
        self.assertEqual((c["enforcement"]["provider"], c["enforcement"]["tier"], c["enforcement"]["level"]),
                         ("bubblewrap", "walled", "files+network"))
        rows = [r for r in self.audit(f"session={self.s['id']}") if r.get("command_id") == c["id"]]
        self.assertEqual([r["action"] for r in rows], ["command.ended", "command.started"])
        for r in rows:
            self.assertEqual(r["enforcement"], c["enforcement"])
        self.assertEqual(c["result"]["denied"], [])
        self.assertGreater(c["result"]["max_rss_bytes"], 1 << 20)


if __name__ == "__main__":
    unittest.main(verbosity=2)
