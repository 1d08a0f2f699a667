#!/usr/bin/python3
"""How the daemon is found, started and stopped: cases 37, 38, 115, 116, 44, 113 (in part)."""
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.cli import Home, is_alive, wait_for


class Start(unittest.TestCase):
    def test_status_and_stop_start_none(self):
        with Home() as h:
            self.assertEqual(h.cordon("status").code, 1)
            self.assertEqual(json.loads(h.cordon("status", "--json").out)["state"], "down")
            self.assertEqual(h.cordon("stop").code, 0)
            self.assertFalse(os.path.exists(h.state))

    def test_twenty_at_once(self):
        """Case 116."""
        with Home() as h:
            ps = [h.start("run", "--", "sh", "-c", f"exit {i}") for i in range(20)]
            results = [(p.communicate(timeout=120), p.returncode) for p in ps]
            self.assertEqual([code for _, code in results], list(range(20)), results)
            rows = h.cordon("audit", "--json", "-n", "1000").out.splitlines()
            self.assertEqual(sum(b'"session.created"' in r for r in rows), 20)
            daemons = [p for p in os.listdir("/proc") if p.isdigit() and has_home(p, h.home)]
            self.assertEqual(len(daemons), 1, daemons)

    def test_stop_then_start_at_once(self):
        with Home() as h:
            for _ in range(5):
                self.assertEqual(h.cordon("run", "--", "true").code, 0)
                self.assertEqual(h.cordon("stop").code, 0)

    def test_stop_ends_all(self):
        with Home() as h:
            h.cordon("serve")
            pid = h.server()["pid"]
            self.assertEqual(h.cordon("stop").code, 0)
            wait_for(lambda: not is_alive(pid), "the daemon to end", 10)
            self.assertFalse(os.path.exists(h.state + "/server.json"))

    def test_recycled_pid(self):
        """Case 115: a pid in a file is no daemon, and is never signalled."""
        with Home() as h:
            sleeper = subprocess.Popen(["sleep", "600"])
            try:
                h.cordon("serve")
                old = h.server()
                h.kill_daemon()
                old["pid"] = sleeper.pid
                for name in ("server.json", "lock", "cordond.pid"):
                    with open(os.path.join(h.state, name), "w") as f:
                        f.write(json.dumps(old) if name == "server.json" else str(sleeper.pid))
                self.assertEqual(h.cordon("status").code, 1)
                self.assertEqual(h.cordon("stop").code, 0)
                self.assertIsNone(sleeper.poll())
                self.assertEqual(h.cordon("run", "--", "true").code, 0)
                self.assertNotEqual(h.server()["pid"], sleeper.pid)
                self.assertEqual(h.cordon("stop").code, 0)
                self.assertIsNone(sleeper.poll())
            finally:
                sleeper.kill()
                sleeper.wait()

    def test_port_taken(self):
        """Case 116: another port, and everybody finds it. Two homes, two daemons."""
        with Home() as a, Home() as b:
            a.cordon("serve")
            b.cordon("serve")
            self.assertNotEqual(a.server()["url"], b.server()["url"])
            self.assertNotEqual(a.server()["instance_id"], b.server()["instance_id"])
            self.assertEqual(b.cordon("run", "--", "true").code, 0)
            self.assertEqual(len(a.cordon("session", "list", "-a").out.splitlines()), 0)

    def test_two_homes_one_runtime_folder(self):
        with Home() as a, Home(run=a.run_dir) as b:
            a.cordon("serve")
            b.cordon("serve")
            self.assertEqual(b.cordon("run", "--", "true").code, 0)
            self.assertEqual(len(a.cordon("session", "list", "-a").out.splitlines()), 0)
            self.assertEqual(len(b.cordon("session", "list", "-a").out.splitlines()), 1)

    def test_found_whatever_the_environment(self):
        with Home() as h:
            h.cordon("serve")
            url = h.server()["url"]
            r = h.cordon("serve", env={"XDG_RUNTIME_DIR": None})
            self.assertEqual(r.out.decode().strip(), url)
            # The copy beside the socket: another state folder, the same runtime folder.
            r = h.cordon("status", "--json", env={"HOME": h.base + "/nowhere"})
            self.assertEqual(r.code, 0, r)

    def test_tcp_when_the_socket_is_gone(self):
        with Home() as h:
            h.cordon("serve")
            os.unlink(h.server()["socket"])
            r = h.cordon("run", "--", "echo", "x")
            self.assertEqual((r.code, r.out), (0, b"x\n"), r)

    def test_an_impostor_gets_no_token(self):
        """server.json left behind, and somebody else on its port: no token is sent there."""
        with Home() as h:
            h.cordon("serve")
            doc = h.server()
            h.kill_daemon()
            if os.path.exists(doc["socket"]):
                os.unlink(doc["socket"])
            got = []
            with socket.create_server(("127.0.0.1", 0)) as s:
                doc["url"] = f"http://127.0.0.1:{s.getsockname()[1]}"
                with open(h.state + "/server.json", "w") as f:
                    json.dump(doc, f)
                s.settimeout(10)
                p = h.start("status")
                c, _ = s.accept()
                got.append(c.recv(65536))
                c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                c.close()
                self.assertEqual(p.wait(20), 1)
                p.communicate()
            self.assertNotIn(b"uthorization", got[0])

    def test_an_impostor_that_knows_the_instance_gets_no_token(self):
        """Anybody may ask a daemon for its instance, and take its port once it was killed."""
        with Home() as h:
            h.cordon("serve")
            doc = h.server()
            h.kill_daemon()
            if os.path.exists(doc["socket"]):
                os.unlink(doc["socket"])
            body = json.dumps({"status": "ok", "instance_id": doc["instance_id"]}).encode()
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
            got = b""
            with socket.create_server(("127.0.0.1", 0)) as s:
                doc["url"] = f"http://127.0.0.1:{s.getsockname()[1]}"
                with open(h.state + "/server.json", "w") as f:
                    json.dump(doc, f)
                s.settimeout(10)
                p = h.start("status")
                c, _ = s.accept()
                c.settimeout(5)
                while more := c.recv(65536):
                    got += more
                    c.sendall(answer)
                c.close()
                self.assertEqual(p.wait(20), 1)
                p.communicate()
            self.assertIn(b"/v1/health", got)
            self.assertNotIn(b"uthorization", got)

    # ---- places --------------------------------------------------------------------------------------

    def test_long_paths(self):
        """Case 38."""
        with Home() as h:
            for name, env in (
                ("TMPDIR", {"TMPDIR": "/tmp/" + "a" * 120}),
                ("no runtime folder", {"XDG_RUNTIME_DIR": None}),
                ("a missing one", {"XDG_RUNTIME_DIR": "/no/such/folder"}),
                ("a long one", {"XDG_RUNTIME_DIR": h.base + "/" + "r" * 120}),
                ("a long home", {"HOME": h.base + "/" + "h" * 150, "XDG_RUNTIME_DIR": None}),
            ):
                for d in (env.get("XDG_RUNTIME_DIR"), env.get("HOME")):
                    if d and d.startswith(h.base):
                        os.makedirs(d, 0o700, exist_ok=True)
                r = h.cordon("run", "--", "echo", "x", env=env)
                self.assertEqual((r.code, r.out), (0, b"x\n"), (name, r))
                with Home() as other:  # /tmp/cordon-UID is the last one's: another home does not use it
                    r = other.cordon("stop")
                    self.assertEqual((r.code, r.out), (0, b"cordond is not running\n"), (name, r))
                self.assertEqual(h.cordon("stop", env=env).code, 0, name)

    def test_temporary_folder_inside_is_short(self):
        with Home() as h:
            r = h.cordon("run", "--", "python3", "-c",
                         "import tempfile,socket;s=socket.socket(socket.AF_UNIX);"
                         "s.bind(tempfile.mkdtemp()+'/s.sock');print('bound')",
                         env={"TMPDIR": "/tmp/" + "a" * 120})
            self.assertEqual(r.out, b"bound\n", r)

    def test_modes_whatever_the_umask(self):
        """Case 113."""
        with Home() as h:
            p = subprocess.run(["sh", "-c", f"umask 0; exec {h.argv()[0]} run -- true"],
                               cwd=h.work, env=h.env, capture_output=True, timeout=60)
            self.assertEqual(p.returncode, 0, p.stderr)
            h.cordon("token", "new", "a", "--scope", "read")
            bad = []
            for top in (h.state, h.run_dir + "/cordon"):
                for folder, _, files in os.walk(top):
                    for path in [folder] + [os.path.join(folder, f) for f in files]:
                        st = os.lstat(path)
                        if stat.S_IMODE(st.st_mode) & 0o077 and not stat.S_ISLNK(st.st_mode):
                            bad.append((path, oct(st.st_mode)))
            self.assertEqual(bad, [])

    def test_log_that_is_no_file_of_ours(self):
        """Case 44: no link is followed, no FIFO waited for."""
        for kind in ("link", "fifo", "folder"):
            with Home() as h:
                os.makedirs(h.state, 0o700)
                victim = h.home + "/victim"
                with open(victim, "w") as f:
                    f.write("keep")
                path = h.state + "/cordond.log"
                if kind == "link":
                    os.symlink(victim, path)
                elif kind == "fifo":
                    os.mkfifo(path)
                else:
                    os.mkdir(path)
                r = h.cordon("run", "--", "true", timeout=20)
                self.assertEqual((r.code, r.err.count(b"\n")), (125, 1), (kind, r))
                self.assertIn(b"cordond.log", r.err)
                with open(victim) as f:
                    self.assertEqual(f.read(), "keep")

    def test_predictable_names_in_tmp(self):
        """Case 44: /tmp/cordon-UID made by somebody else (here: no folder of ours)."""
        path = f"/tmp/cordon-{os.getuid()}"
        if os.path.lexists(path):
            shutil.rmtree(path)
        with Home() as h:
            target = h.home + "/x"
            os.mkdir(target)
            os.symlink(target, path)
            try:
                env = {"HOME": h.base + "/" + "h" * 150, "XDG_RUNTIME_DIR": None}
                os.makedirs(env["HOME"], 0o700)
                r = h.cordon("run", "--", "true", env=env)
                self.assertEqual((r.code, r.err.count(b"\n")), (125, 1), r)
                self.assertEqual(os.listdir(target), [])
            finally:
                os.unlink(path)

    # ---- which programs are run -----------------------------------------------------------------------

    def test_no_program_from_the_path(self):
        """Case 37: a PATH that leads into the work folder."""
        with Home() as h:
            pwn = h.base + "/PWN"
            os.mkdir(h.work + "/bin")
            for name in ("bwrap", "cordond", "cordon-runner", "cordon-egress", "sh", "git", "ssh", "socat",
                         "xdg-open", "nft", "ip", "newuidmap", "mount"):
                with open(f"{h.work}/bin/{name}", "w") as f:
                    f.write(f"#!/bin/bash\necho {name} >> {pwn}\nexit 1\n")
                os.chmod(f"{h.work}/bin/{name}", 0o755)
                shutil.copy(f"{h.work}/bin/{name}", f"{h.work}/{name}")
            for path in (f"{h.work}/bin:/usr/bin:/bin", f".:{os.environ['PATH']}"):
                env = {"PATH": path, "DISPLAY": ":99"}
                r = h.cordon("run", "--", "/bin/echo", "x", env=env)
                self.assertEqual((r.code, r.out), (0, b"x\n"), r)
                self.assertEqual(h.cordon("status", "--why", env=env).code, 0)
                h.cordon("policy", "--render", "bwrap", env=env)
                self.assertEqual(h.cordon("stop", env=env).code, 0)
            self.assertFalse(os.path.exists(pwn))

    def test_open_shows_no_code_in_argv(self):
        with Home() as h:
            r = h.cordon("open")
            self.assertRegex(r.out.decode(), r"^http://127\.0\.0\.1:\d+/ui/#c=[A-Za-z0-9_-]{20,}\n$")
            code = r.out.decode().strip().split("#c=")[1]
            for folder, _, files in os.walk(h.state):
                for name in files:
                    with open(os.path.join(folder, name), "rb") as f:
                        self.assertNotIn(code.encode(), f.read(), name)


def has_home(pid, home):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            if b"cordond" not in f.read().split(b"\0")[0]:
                return False
        with open(f"/proc/{pid}/environ", "rb") as f:
            return f"HOME={home}".encode() in f.read().split(b"\0")
    except OSError:
        return False


if __name__ == "__main__":
    unittest.main(verbosity=2)
