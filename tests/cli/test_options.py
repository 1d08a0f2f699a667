#!/usr/bin/python3
"""Each option and command has an effect or is refused (case 52). The table itself
says what there is, so that none can be added without a test here."""
import json
import os
import socket
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.cli import Home, wait_for
from cordon_test.daemon import free_port


def table():
    out = subprocess.run([os.path.join(os.environ["CORDON_BIN"], "cordon"), "help", "--list"],
                         capture_output=True, text=True, check=True).stdout
    commands, options = {}, {}
    for line in out.splitlines():
        f = line.split("\t")
        if len(f) == 3:
            commands[f[0]] = f
        else:
            options[f[0], f[1]] = f
    return commands, options


COMMANDS, OPTIONS = table()
# What a command needs so that its options can be tried.
NEEDS = {"run": ["--", "touch", "ran"], "exec": ["ses_X", "--", "true"]}


class Later(unittest.TestCase):
    """What is not in this version: exit 125, said so, nothing started."""

    @classmethod
    def setUpClass(cls):
        cls.h = Home()

    @classmethod
    def tearDownClass(cls):
        cls.h.close()

    def refused(self, *args):
        r = self.h.cordon(*args)
        self.assertEqual(r.code, 125, (args, r))
        self.assertIn(b"not in this version", r.err, args)
        self.assertEqual(r.err.count(b"\n"), 1)
        self.assertEqual(r.out, b"")

    def test_options(self):
        n = 0
        for (command, option), row in OPTIONS.items():
            if row[4] == "later":
                self.refused(*command.split(), option, *(["x"] if row[3] else []), *NEEDS.get(command, []))
                n += 1
        self.assertGreater(n, 5)

    def test_commands(self):
        for name, row in COMMANDS.items():
            if row[2] == "later":
                self.refused(*name.split(), *row[1].split())

    def test_tiers_and_renderings(self):
        for tier in ("guarded", "airlock"):
            self.refused("run", "-t", tier, "--", "touch", "ran")
            self.refused("session", "new", "--tier", tier)
        self.refused("policy", "--render", "seatbelt")

    def test_nothing_was_started(self):
        self.assertFalse(os.path.exists(self.h.state + "/server.json"))
        self.assertEqual(os.listdir(self.h.work), [])


class Options(unittest.TestCase):
    """One test an option of this version: test_<command>__<option>."""

    @classmethod
    def setUpClass(cls):
        cls.h = Home()
        cls.sid = cls.h.cordon("session", "new").out.decode().strip()

    @classmethod
    def tearDownClass(cls):
        cls.h.close()

    def test_all_have_a_test(self):
        shared = {"machine sandbox status": "status"}
        missing = []
        for (command, option), row in OPTIONS.items():
            name = f"test_{shared.get(command, command)}__{option[2:]}".replace(" ", "_").replace("-", "_")
            if row[4] == "now" and not hasattr(self, name):
                missing.append(name)
        self.assertEqual(missing, [])

    def ok(self, *args, **kw):
        r = self.h.cordon(*args, **kw)
        self.assertEqual(r.code, 0, (args, r))
        return r.out

    def new(self, *args):
        doc = json.loads(self.ok("session", "new", "--json", *args))
        self.h.cordon("session", "stop", "--grace", "1ms", doc["id"])
        return doc

    # ---- run ---------------------------------------------------------------------------------------

    def test_run__folder(self):
        d = self.h.base + "/more"
        os.makedirs(d, exist_ok=True)
        open(d + "/f", "w").write("content")
        self.assertEqual(self.ok("run", "-f", d, "--", "sh", "-c", "pwd; cat f; echo new > g"),
                         d.encode() + b"\ncontent")
        self.assertTrue(os.path.exists(d + "/g"))
        r = self.h.sh(f"cat {d}/f && echo x > {d}/h", "-f", self.h.work, "-f", d + ":ro")
        self.assertNotEqual(r.code, 0)
        self.assertEqual(r.out, b"content")
        self.assertFalse(os.path.exists(d + "/h"))
        self.assertNotEqual(self.h.sh(f"ls {d}").code, 0)

    def test_run__tier(self):
        secret = self.h.home + "/secret"
        open(secret, "w").write("mine")
        self.assertNotEqual(self.h.sh(f"cat {secret}", "-t", "walled").code, 0)
        r = self.h.sh(f"cat {secret}", "-t", "open")
        self.assertEqual((r.code, r.out), (0, b"mine"), r)
        self.assertIn(b"no wall", r.err)
        for bad in (("--network", "none"), ("--allow", "example.com"), ("--publish", "3000")):
            self.assertEqual(self.h.sh("true", "-t", "open", *bad).code, 125)

    def test_run__cd(self):
        os.makedirs(self.h.work + "/sub", exist_ok=True)
        self.assertEqual(self.ok("run", "-f", self.h.work, "-C", self.h.work + "/sub", "--", "pwd"),
                         f"{self.h.work}/sub\n".encode())
        self.assertEqual(self.ok("run", "-C", "sub", "--", "pwd"), f"{self.h.work}/sub\n".encode())
        # Without -f it is the folder: what lies above is not granted, and not to be seen.
        with open(self.h.work + "/above", "w") as f:
            f.write("not granted")
        self.assertEqual(self.h.sh("cat above", "-f", self.h.work).out, b"not granted")
        self.assertNotEqual(self.h.sh("cat ../above", "-C", "sub").code, 0)
        self.assertNotIn(b"above", self.h.sh("ls -a ..", "-C", "sub").out)
        self.assertEqual(self.h.sh("pwd", "-f", self.h.work, cwd="/").out,
                         self.h.work.encode() + b"\n")

    def test_run__allow(self):
        doc = self.new("--allow", "example.com:443", "--allow", "Other.Example.")
        access = json.dumps(doc) + json.dumps(self.h.json("session", "show", doc["id"]))
        del access
        sid = self.ok("session", "new", "--allow", "ok.example:443").decode().strip()
        self.assertEqual(self.h.cordon("sites", "check", "--session", sid, "ok.example:443").code, 0)
        self.assertEqual(self.h.cordon("sites", "check", "--session", sid, "ok.example:80").code, 1)
        self.assertEqual(self.h.cordon("sites", "check", "ok.example:443").code, 1)
        self.ok("session", "stop", sid)

    def test_run__publish(self):
        port = free_port()
        server = (f"import socket; s = socket.create_server(('127.0.0.1', {port})); print('up', flush=True); "
                  "c = s.accept()[0]; c.sendall(b'from inside'); c.close()")
        p = self.h.start("run", "--publish", str(port), "--", "/usr/bin/python3", "-c", server)
        with p:
            self.assertEqual(p.stdout.readline(), b"up\n", p)
            with socket.create_connection(("127.0.0.1", port), 10) as s:
                self.assertEqual(s.makefile("rb").read(), b"from inside")
            self.assertEqual(p.wait(30), 0)
        for bad in (("--publish", "0"), ("--publish", "x"), ("--publish", "3000", "--network", "none")):
            self.assertEqual(self.h.sh("true", *bad).code, 125, bad)
        with socket.create_server(("127.0.0.1", port)):
            r = self.h.sh("true", "--publish", str(port))
            self.assertEqual(r.code, 125)
            self.assertIn(f"port {port} of 127.0.0.1 is taken".encode(), r.err)

    def test_run__network(self):
        self.assertEqual(self.new("--network", "none")["network"], "none")
        self.assertEqual(self.new("--network", "allowlist")["network"], "allowlist")
        doc = self.new("--network", "open")
        self.assertEqual((doc["network"], doc["enforcement"]["level"]), ("open", "files"))
        out = self.h.sh("echo ${HTTP_PROXY:-no}", "--network", "none").out
        self.assertEqual(out, b"no\n")
        self.assertNotEqual(self.h.sh("echo ${HTTP_PROXY:-no}").out, b"no\n")

    def test_run__no_ask(self):
        self.assertEqual(self.new("--no-ask")["approvals"], "full")
        self.assertEqual(self.new()["approvals"], "ask")

    def test_run__ask(self):
        """On a terminal: test_asks.py. Without one it is refused; two that exclude each other too."""
        r = self.h.cordon("run", "--ask", "--", "touch", "asked", start_new_session=True)
        self.assertEqual((r.code, os.path.exists(self.h.work + "/asked")), (125, False), r)
        self.assertIn(b"no terminal", r.err)
        for more in (("--no-ask",), ("-t", "open"), ("--network", "none"), ("--network", "open")):
            self.assertEqual(self.h.cordon("run", "--ask", *more, "--", "true").code, 125, more)

    def test_session_new__ask(self):
        self.assertEqual(self.new("--ask")["approvals"], "ask")
        self.assertEqual(self.h.cordon("session", "new", "--ask", "--no-ask").code, 125)

    # ---- asks: what is answered is in test_asks.py --------------------------------------------------

    def ask(self, host):
        """A new one: what was denied once is not asked again."""
        if any(a["subject"]["host"] == host for a in self.h.json("asks", "list", "-a", "--json", "-s", self.sid)):
            host = "again." + host
        return self.h.post(f"/v1/sessions/{self.sid}/asks", {"kind": "site", "subject": {"host": host, "port": 443}})["id"]

    def asks(self, *args):
        return {a["id"] for a in self.h.json("asks", "list", "--json", *args)}

    def test_asks_list__session(self):
        a = self.ask("list.invalid")
        self.assertIn(a, self.asks("--session", self.sid))
        self.assertNotIn(a, self.asks("-s", "ses_" + "0" * 26))
        self.assertIn(f"{a} open       list.invalid:443 ", self.ok("asks", "list").decode())
        self.ok("asks", "deny", a)

    def test_asks_list__all(self):
        a = self.ask("all.invalid")
        self.ok("asks", "deny", a)
        self.assertNotIn(a, self.asks())
        self.assertIn(a, self.asks("-a"))

    test_asks_list__json = test_asks_list__all

    def test_asks_allow__host(self):
        a = self.ask("wide.invalid")
        self.assertEqual(self.h.cordon("asks", "allow", a, "--host", "*.invalid").code, 125)
        self.ok("asks", "allow", a, "--host", "*.wide.invalid")
        for host, code in (("wide.invalid:443", 0), ("x.wide.invalid:443", 0), ("x.wide.invalid:80", 1)):
            self.assertEqual(self.h.cordon("sites", "check", "--session", self.sid, host).code, code, host)

    def test_asks_allow__note(self):
        a = self.ask("note.invalid")
        doc = self.h.json("asks", "allow", a, "session", "--note", "it is fine", "--json")
        self.assertEqual((doc["answer"], doc["decided"]["by"], doc["decided"]["note"]), ("session", "owner", "it is fine"))
        self.assertEqual(self.h.cordon("asks", "deny", a).code, 125)

    test_asks_allow__json = test_asks_allow__note

    def test_asks_deny__note(self):
        doc = self.h.json("asks", "deny", self.ask("deny.invalid"), "--note", "no", "--json")
        self.assertEqual((doc["answer"], doc["decided"]["note"]), ("deny", "no"))

    test_asks_deny__json = test_asks_deny__note

    def test_run__timeout(self):
        self.assertEqual(self.h.cordon("run", "--timeout", "200ms", "--", "sleep", "9").code, 124)
        self.assertEqual(self.h.cordon("run", "--timeout", "1h", "--", "true").code, 0)
        for bad in ("0", "-1", "1d", "5 m", "", "25h", "99999999999"):
            self.assertEqual(self.h.cordon("run", f"--timeout={bad}", "--", "true").code, 125, bad)

    def test_run__env(self):
        r = self.h.sh('echo "$A|$B|$C|${NO-unset}"', "-e", "A=1=2", "-e", "B=", "--env=C",
                      env={"C": "here", "NO": "1"})
        self.assertEqual(r.out, b"1=2||here|unset\n", r)
        r = self.h.sh('echo "$MY_TOKEN"', "-e", "MY_TOKEN", env={"MY_TOKEN": "named"})
        self.assertEqual(r.out, b"named\n", r)

    def test_run__no_tty(self):
        self.assertEqual(self.h.sh("test -t 1; echo $?", "--no-tty").out, b"1\n")

    def test_run__json(self):
        doc = json.loads(self.ok("run", "--json", "--", "echo", "x"))
        self.assertEqual(doc["text"]["stdout"], "x\n")

    def test_run__keep(self):
        r = self.h.cordon("run", "--keep", "--", "true")
        sid = r.err.decode().split()[-1]
        self.assertEqual(self.h.json("session", "show", sid)["state"], "ready")
        self.ok("session", "stop", sid)

    # ---- exec --------------------------------------------------------------------------------------

    def test_exec__cd(self):
        self.assertEqual(self.ok("exec", "-C", "/usr", self.sid, "--", "pwd"), b"/usr\n")

    def test_exec__timeout(self):
        self.assertEqual(self.h.cordon("exec", self.sid, "--timeout", "200ms", "--", "sleep", "9").code, 124)

    def test_exec__env(self):
        self.assertEqual(self.ok("exec", "-eX=1", self.sid, "--", "sh", "-c", "echo $X"), b"1\n")

    def test_exec__no_tty(self):
        self.ok("exec", "--no-tty", self.sid, "--", "true")

    def test_exec__json(self):
        self.assertEqual(json.loads(self.ok("exec", "--json", self.sid, "--", "true"))["state"], "exited")

    # ---- sessions ------------------------------------------------------------------------------------

    def test_session_new__folder(self):
        doc = self.new("-f", self.h.work + ":ro")
        self.assertEqual([(f["path"], f["mode"]) for f in doc["folders"]], [(self.h.work, "ro")])

    def test_session_new__tier(self):
        self.assertEqual(self.new("-t", "walled")["tier"], "walled")
        doc = self.new("-t", "open")
        self.assertEqual((doc["tier"], doc["enforcement"]["level"]), ("open", "none"))

    def test_session_new__cd(self):
        os.makedirs(self.h.work + "/sub", exist_ok=True)
        self.assertEqual(self.new("-f", self.h.work, "-C", "sub")["cwd"], self.h.work + "/sub")

    test_session_new__allow = test_run__allow
    test_session_new__publish = test_run__publish
    test_session_new__network = test_run__network
    test_session_new__no_ask = test_run__no_ask

    def test_session_new__json(self):
        self.assertEqual(self.new()["provider"], "bubblewrap")

    def test_session_list__all(self):
        doc = self.new()
        wait_for(lambda: doc["id"].encode() not in self.ok("session", "list"), "the session to end")
        self.assertIn(doc["id"].encode(), self.ok("session", "list", "--all"))

    def test_session_list__json(self):
        self.assertIn(self.sid, [s["id"] for s in self.h.json("session", "list", "--json")])

    def test_blocked__json(self):
        self.h.sh("curl -s -o /dev/null http://json.example/; true", "--keep")
        self.assertIn("json.example", [b["host"] for b in self.h.json("blocked", "--json")])

    def test_why__json(self):
        r = self.h.cordon("run", "--json", "--", "true")
        doc = json.loads(r.out)
        self.assertEqual(self.h.json("why", "--json", doc["id"])["id"], doc["id"])

    def test_session_stop__grace(self):
        sid = self.ok("session", "new").decode().strip()
        self.assertEqual(self.h.cordon("session", "stop", "--grace", "x", sid).code, 125)
        self.ok("session", "stop", "--grace", "10ms", sid)
        wait_for(lambda: self.h.json("session", "show", sid)["state"] == "ended", "its end")

    # ---- sites, settings, tokens, audit, policy, status --------------------------------------------

    def test_sites_add__session(self):
        self.ok("sites", "add", "-s", self.sid, "only.example:443")
        self.assertEqual(self.h.cordon("sites", "check", "-s", self.sid, "only.example:443").code, 0)
        self.assertEqual(self.h.cordon("sites", "check", "only.example:443").code, 1)
        self.assertIn(b"only.example", self.ok("sites", "list", "-s", self.sid))
        self.ok("sites", "remove", "-s", self.sid, "only.example:443")
        self.assertEqual(self.h.cordon("sites", "check", "-s", self.sid, "only.example:443").code, 1)
        # A service of this machine's loopback, reached inside while it is a site of the session.
        port = free_port()
        reach = ("/usr/bin/python3", "-c", f"import socket; s = socket.create_connection(('localhost', {port}), 9); "
                                           "print(s.recv(9).decode())")
        with socket.create_server(("127.0.0.1", port)) as service:
            threading.Thread(target=lambda: service.accept()[0].sendall(b"outside"), daemon=True).start()
            self.assertNotEqual(self.h.cordon("exec", self.sid, "--", *reach).code, 0)
            self.ok("sites", "add", "-s", self.sid, f"localhost:{port}")
            self.assertEqual(self.h.cordon("sites", "check", "-s", self.sid, f"localhost:{port}").code, 0)
            self.assertEqual(self.ok("exec", self.sid, "--", *reach), b"outside\n")
            self.ok("sites", "remove", "-s", self.sid, f"localhost:{port}")
            self.assertNotEqual(self.h.cordon("exec", self.sid, "--", *reach).code, 0)

    test_sites_list__session = test_sites_add__session
    test_sites_remove__session = test_sites_add__session
    test_sites_check__session = test_sites_add__session

    def test_sites_add__list(self):
        self.ok("sites", "add", "--list", "guarded", "g.example")
        self.assertIn(("g.example", "guarded"), [(s["host"], s["list"]) for s in self.h.json("sites", "list", "--json")])
        self.assertEqual(self.h.cordon("sites", "add", "--list", "none", "x.example").code, 125)

    def test_sites_add__note(self):
        self.ok("sites", "add", "--note", "because", "note.example")
        self.assertIn(b"because", self.ok("sites", "list"))

    def test_sites_add__allow_private(self):
        self.ok("sites", "add", "--allow-private", "lan.example:443")
        row = [s for s in self.h.json("sites", "list", "--json") if s["host"] == "lan.example"][0]
        self.assertTrue(row["allow_private"])

    def test_sites_list__json(self):
        self.assertIsInstance(self.h.json("sites", "list", "--json"), list)

    def test_settings_get__json(self):
        self.assertEqual(self.h.json("settings", "get", "--json")["values"]["sandbox_provider"],
                         self.ok("settings", "get", "sandbox_provider").decode().strip())

    def test_audit__json(self):
        rows = [json.loads(x) for x in self.ok("audit", "--json").splitlines()]
        self.assertTrue(rows and all("hash" in r for r in rows))
        self.assertEqual([r["seq"] for r in rows], sorted(r["seq"] for r in rows))

    def test_audit__follow(self):
        for options in ((), ("--session", self.sid)):
            p = self.h.start("audit", "-f", "-n", "1", *options)
            self.addCleanup(p.communicate)
            self.addCleanup(p.kill)
            first = p.stdout.readline().decode()
            self.assertRegex(first, r"^\d{4}-\d\d-\d\dT")
            for i in range(3):  # each as it comes, and once
                mark = f"followed-{i}-{len(options)}"
                self.ok("exec", self.sid, "--", "true", mark)
                rows = []
                while len(rows) < 2:  # sessions of other tests may end meanwhile
                    row = p.stdout.readline().decode()
                    rows += [row] if mark in row else []
                self.assertEqual([r.split()[2] for r in rows], ["command.started", "command.ended"])

    def test_audit__limit(self):
        self.assertEqual(len(self.ok("audit", "-n", "2").splitlines()), 2)
        self.assertEqual(self.h.cordon("audit", "-n", "0").code, 125)

    def test_audit__session(self):
        rows = [json.loads(x) for x in self.ok("audit", "--json", "-s", self.sid).splitlines()]
        self.assertEqual({r["session_id"] for r in rows}, {self.sid})

    def test_audit__action(self):
        self.ok("run", "--", "true")
        rows = [json.loads(x) for x in self.ok("audit", "--json", "--action", "command.started").splitlines()]
        self.assertEqual({r["action"] for r in rows}, {"command.started"})

    def test_audit__outcome(self):
        self.h.cordon("run", "-f", self.h.home, "--", "true")
        for x in self.ok("audit", "--json", "--outcome", "ok").splitlines():
            self.assertEqual(json.loads(x)["outcome"], "ok")

    def test_policy__render(self):
        for form in ("bwrap", "landlock", "seccomp"):
            self.assertTrue(self.ok("policy", "--render", form).strip(), form)
            self.assertTrue(self.ok("policy", self.sid, "--render", form).strip(), form)
        self.assertEqual(self.h.cordon("policy", "--render", "x").code, 125)

    def test_policy__tier(self):
        self.assertIn(self.h.work, self.h.json("policy", "-t", "walled")["writable"])
        self.assertEqual(self.h.json("policy", "--tier", "open")["writable"], "unrestricted")
        self.assertEqual(self.h.cordon("policy", "-t", "walled", self.sid).code, 125)

    def test_token_new__scope(self):
        doc = self.h.json("token", "new", "a", "--scope", "read", "--scope", "exec", "--json")
        self.assertEqual(set(doc["scopes"]), {"read", "exec"})
        self.assertRegex(doc["token"], "^cordon_[A-Za-z0-9_-]{43}$")
        self.assertEqual(self.h.cordon("token", "new", "b").code, 125)
        self.assertEqual(self.h.cordon("token", "new", "b", "--scope", "all").code, 125)
        self.assertIn(doc["id"].encode(), self.ok("token", "list"))
        self.ok("token", "revoke", doc["id"])
        self.assertNotIn(doc["id"].encode(), self.ok("token", "list"))
        self.assertEqual(self.h.cordon("token", "revoke", doc["id"]).code, 125)

    test_token_new__json = test_token_new__scope

    def test_token_new__session(self):
        doc = self.h.json("token", "new", "c", "--scope", "exec", "-s", self.sid, "--json")
        self.assertEqual(doc["session_id"], self.sid)
        self.assertEqual(self.h.cordon("token", "new", "d", "--scope", "settings", "-s", self.sid).code, 125)

    def test_token_new__expires(self):
        doc = self.h.json("token", "new", "e", "--scope", "read", "--expires", "5m", "--json")
        self.assertIn("expires_at", doc)

    def test_token_list__json(self):
        self.assertIsInstance(self.h.json("token", "list", "--json"), list)

    def test_status__json(self):
        self.assertEqual(self.h.json("status", "--json")["provider"], "direct")
        self.assertEqual(self.h.json("machine", "sandbox", "status", "--json")["provider"], "direct")

    def test_status__why(self):
        out = self.ok("status", "--why")
        for check in (b"home_hidden", b"folders_reachable", b"no_privileges", b"cordon_hidden"):
            self.assertIn(check, out)
        # Each limit, and what holds it.
        limits = next(x for x in out.decode().splitlines() if " limits " in x)
        self.assertRegex(limits, "processes 1024 [(](a session: its control group|a session: the maximum of its pid namespace|"
                                 "RLIMIT_NPROC|NOT HELD: root)")
        self.assertIn("open files 4096 (a process: RLIMIT_NOFILE); memory no limit set", limits)
        self.ok("settings", "set", "limits.memory_bytes", "1000000000")
        try:
            self.assertRegex(self.ok("status", "--why").decode(), "memory 1000000000 [(]bytes (a session: its control group|"
                                                                  "of address space a process: RLIMIT_AS)[)]")
        finally:
            self.ok("settings", "unset", "limits.memory_bytes")

    def test_serve__port(self):
        with Home() as h:
            for bad in ("0", "80", "65536", "x", "-1"):
                self.assertEqual(h.cordon("serve", "--port", bad).code, 125, bad)
            r = h.cordon("serve", "--port", "7999")
            self.assertEqual((r.code, r.out), (0, b"http://127.0.0.1:7999\n"), r)
            # While one runs: its address, exit 0.
            r = h.cordon("serve")
            self.assertEqual((r.code, r.out), (0, b"http://127.0.0.1:7999\n"), r)
            with Home() as other:
                r = other.cordon("serve", "--port", "7999")
                self.assertEqual(r.code, 125, r)
                self.assertIn(b"7999", r.err)

    def test_serve__foreground(self):
        with Home() as h:
            p = h.start("serve", "--foreground")
            wait_for(lambda: os.path.exists(h.state + "/server.json"), "the daemon")
            self.assertEqual(h.server()["pid"], p.pid)
            self.assertEqual(h.cordon("stop").code, 0)
            self.assertEqual(p.wait(20), 0)
            p.communicate()

    def test_stop__drain(self):
        with Home() as h:
            p = h.start("run", "--", "sh", "-c", "echo up; sleep 1; echo done")
            self.assertEqual(p.stdout.readline(), b"up\n")
            self.assertEqual(h.cordon("stop", "--drain", "x").code, 125)
            r = h.cordon("stop", "--drain", "10s")
            self.assertEqual(r.code, 0, r)
            out, err = p.communicate(timeout=20)
            self.assertEqual(out, b"done\n", err)


class Settings(unittest.TestCase):
    def test_set_and_unset(self):
        with Home() as h:
            def get(key):
                return h.cordon("settings", "get", key).out.decode().strip()
            self.assertEqual(get("sandbox_provider"), "direct")
            for key, value in (("sandbox_provider", "bubblewrap"), ("sandbox_network_profile", "none"),
                               ("limits.processes", "100"), ("retention.audit_days", "30"),
                               ("server.port", "7500")):
                default = get(key)
                r = h.cordon("settings", "set", key, value)
                self.assertEqual(r.code, 0, (key, r))
                self.assertEqual(get(key), value)
                self.assertEqual(h.cordon("settings", "unset", key).code, 0)
                self.assertEqual(get(key), default)
            for key, value in (("sandbox_provider", "magic"), ("sandbox_provide", "direct"),
                               ("limits.processes", "-1"), ("asks.learn", "yes"), ("nothing", "1"),
                               ("asks", "1"), ("sandbox_network_hosts", "[]")):
                r = h.cordon("settings", "set", key, value)
                self.assertEqual((r.code, r.err.count(b"\n")), (125, 1), (key, r))
            self.assertIn(b"did you mean", h.cordon("settings", "get", "sandbox_provide").err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
