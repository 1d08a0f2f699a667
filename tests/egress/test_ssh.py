"""git over ssh and plain ssh through Cordon's own ProxyCommand, to a real sshd of the lab.

"Reached" is judged at sshd's log; each allowed way has its refused twin.
"""
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402

lab.enter()
from cordon_test.api import ApiTest  # noqa: E402

GIT = "git -c user.name=Lab -c user.email=lab@lab.test"
CONNECT = "/run/cordon/cordon-runner connect"
LINE = ("cordon: no.test:22 is on no list of this session. Rule: network allowlist: no site of this machine or "
        "session covers it. What to do: cordon sites add no.test:22")


class Ssh(ApiTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.far_home = os.path.join(cls.d.base, "far")
        cls.keys = os.path.join(cls.d.base, "sshd")
        os.mkdir(cls.far_home)
        os.mkdir(cls.keys)
        cls.repository()
        cls.far = lab.Far([sys.executable, os.path.join(lab.SOURCE, "tests", "lab", "sshd.py"), cls.keys,
                           cls.far_home])
        lab.far_listens(22)
        lab.far_listens(2222)

    @classmethod
    def tearDownClass(cls):
        cls.far.close()
        super().tearDownClass()

    @classmethod
    def repository(cls):
        """r.git with one commit on main."""
        seed = os.path.join(cls.d.base, "seed")
        cls.bare = os.path.join(cls.far_home, "r.git")
        env = {"PATH": os.environ["PATH"], "HOME": cls.d.base, "GIT_CONFIG_NOSYSTEM": "1"}
        for line in (f"init -q --bare -b main {cls.bare}", f"init -q -b main {seed}",
                     f"-C {seed} commit -q --allow-empty -m seed", f"-C {seed} push -q {cls.bare} main"):
            subprocess.run([*GIT.split(), *line.split()], env=env, check=True, capture_output=True)

    def setUp(self):
        subprocess.run(["find", self.work, "-mindepth", "1", "-delete"], check=True)
        for name in ("id", "known_hosts"):
            with open(f"{self.keys}/{name}", "rb") as f, open(f"{self.work}/{name}", "wb") as out:
                out.write(f.read())
        self.mark = lab.mark()
        self.n_log = len(self.log())

    def log(self):
        with open(f"{self.keys}/sshd.log") as f:
            return f.read().splitlines()

    def came(self):
        """Connections to sshd since the test began."""
        return [line for line in self.log()[self.n_log:] if line.startswith("Connection from")]

    def ssh_session(self, *sites, **more):
        """One whose home has the key and the known host."""
        s = self.session(sites=[{"host": h, "port": p} for h, p in sites], **more)
        self.run_ok(s, "mkdir -m 700 ~/.ssh && install -m 600 id ~/.ssh/id_ed25519 && cp known_hosts ~/.ssh/")
        return s

    def run_ok(self, s, shell):
        c = self.run_in(s, shell)
        self.assertEqual(c["result"]["exit_code"], 0, c)
        return c["text"]["stdout"]

    def nothing_came(self):
        lab.mark()
        self.assertEqual(self.came(), [])
        self.assertNotIn("no.test", lab.asked(self.mark))

    # ---- git -----------------------------------------------------------------------------------

    def test_git_clone_and_push(self):
        s = self.ssh_session(("git.test", 22))
        self.run_ok(s, f"""set -e
            {GIT} clone -q ssh://lab@git.test{self.bare} r && cd r
            {GIT} commit -q --allow-empty -m pushed && {GIT} push -q origin main
            {GIT} -C .. clone -q lab@git.test:r.git again && test -d ../again/.git""")
        head = subprocess.run(["git", "--git-dir", self.bare, "log", "-1", "--format=%s"], capture_output=True,
                              text=True, check=True, env={**os.environ, "HOME": self.d.base}).stdout
        self.assertEqual(head, "pushed\n")
        self.assertEqual(len(self.came()), 3)
        self.assertTrue(all(line.startswith("Connection from 203.0.113.1 ") for line in self.came()), self.came())
        opened = [a for a in self.audit("action=connection.opened") if a["session_id"] == s["id"]]
        self.assertEqual({a["target"] for a in opened}, {"git.test:22"})

    def test_git_is_refused_in_one_line(self):
        s = self.ssh_session(("git.test", 22))
        for url in ("ssh://lab@no.test/r.git", "lab@no.test:r.git"):
            c = self.run_in(s, f"{GIT} ls-remote {url}")
            self.assertNotEqual(c["result"]["exit_code"], 0, c)
            lines = c["text"]["stderr"].replace("\r", "").splitlines()
            self.assertEqual(lines[0], LINE, c)
            self.assertNotIn("UNKNOWN port", c["text"]["stderr"])
            self.assertEqual([(b["host"], b["port"], b["reason"]) for b in c["result"]["blocked"]],
                             [("no.test", 22, "not_listed")])
        self.nothing_came()

    def test_what_a_person_has_set_for_git_does_not_lead_round_it(self):
        s = self.ssh_session(("git.test", 22))
        self.run_ok(s, f"{GIT} -c core.sshCommand=false ls-remote lab@git.test:r.git")
        self.assertEqual(len(self.came()), 1)

    # ---- Any ssh -------------------------------------------------------------------------------

    def test_ssh_scp_sftp_and_rsync(self):
        s = self.ssh_session(("git.test", 22), ("git.test", 2222))
        self.assertEqual(self.run_ok(s, "ssh -T lab@git.test echo hello"), "hello\n")
        self.assertEqual(self.run_ok(s, "ssh -T -p 2222 lab@git.test 'echo $SSH_CONNECTION' | cut -d' ' -f1,4"),
                         "203.0.113.1 2222\n")
        self.run_ok(s, "head -c 3000000 /dev/urandom > big && scp -q big lab@git.test:up && "
                       "scp -q lab@git.test:up back && cmp big back && "
                       "scp -q -O lab@git.test:up back2 && cmp big back2 && "
                       "rsync -e ssh lab@git.test:up back3 && cmp big back3")
        for client in ("ssh -T lab@no.test true", "scp -q big lab@no.test:up", "rsync -e ssh lab@no.test:up no"):
            c = self.run_in(s, client)
            self.assertNotEqual(c["result"]["exit_code"], 0, c)
            self.assertEqual(c["text"]["stderr"].splitlines()[0], LINE, c)
            self.assertNotIn("UNKNOWN port", c["text"]["stderr"])
        lab.mark()
        self.assertNotIn("no.test", lab.asked(self.mark))

    def test_a_jump_an_alias_a_shared_connection_and_a_proxy_of_ones_own(self):
        """What stands in the session's own ~/.ssh/config holds, for git too."""
        s = self.ssh_session(("git.test", 22), ("git.test", 2222))
        self.run_ok(s, """cat > ~/.ssh/config <<'END'
Host alias
    HostName git.test
    Port 2222
    User lab
Host behind
    HostName 203.0.113.77
    User lab
    ProxyJump lab@git.test
Host *
    ControlMaster auto
    ControlPath ~/.ssh/cm-%C
END""")
        self.run_ok(s, f"{GIT} ls-remote alias:r.git")
        self.run_ok(s, f"{GIT} ls-remote behind:r.git && ssh behind true")
        self.assertIn("Connection from 203.0.113.1 ", self.came()[0])
        self.run_ok(s, f"""set -e
            printf 'Host git.test\\n    ProxyCommand {CONNECT} %%h 2222\\n' > ~/.ssh/config
            {GIT} ls-remote lab@git.test:r.git
            ssh -o 'ProxyCommand={CONNECT} git.test 2222' lab@whatever.invalid true""")
        self.assertIn(" port 2222 ", self.came()[-1] + " ")

    def test_an_unknown_host_key_is_sshs_own_question(self):
        s = self.ssh_session(("git.test", 22))
        c = self.run_in(s, f"rm ~/.ssh/known_hosts; {GIT} ls-remote lab@git.test:r.git")
        self.assertNotEqual(c["result"]["exit_code"], 0)
        self.assertIn("Host key verification failed", c["text"]["stderr"])
        self.run_ok(s, f'GIT_SSH_COMMAND="$GIT_SSH_COMMAND -o StrictHostKeyChecking=accept-new" '
                       f"{GIT} ls-remote lab@git.test:r.git")

    # ---- The helper alone ----------------------------------------------------------------------

    def test_each_direction_has_its_own_end(self):
        s = self.session(sites=[{"host": "v4.test", "port": 9001}, {"host": "v4.test", "port": 9004}])
        self.assertEqual(self.run_ok(s, f"printf x | {CONNECT} v4.test 9001 | wc -c"), "1048576\n")
        self.assertEqual(self.run_ok(s, f"head -c 2000000 /dev/zero | {CONNECT} v4.test 9004 | wc -c"), "1048576\n")

    def test_loopback_is_inside(self):
        s = self.session()
        server = ("import socket; s = socket.create_server(('127.0.0.1', 8022)); print('up', flush=True); "
                  "c = s.accept()[0]; c.sendall(b'SSH-2.0-inside'); c.close()")
        for host in ("localhost", "127.0.0.1"):
            out = self.run_ok(s, f'exec 3< <(/usr/bin/python3 -c "{server}"); read up <&3; '
                              f"{CONNECT} {host} 8022 </dev/null")
            self.assertEqual(out, "SSH-2.0-inside")
        c = self.run_in(s, f"{CONNECT} localhost 8022")
        self.assertEqual((c["result"]["exit_code"], c["text"]["stderr"]),
                         (1, "cordon: localhost:8022: Connection refused\n"))
        self.assertEqual(c["result"]["blocked"], [])

    def test_what_is_no_host_and_what_does_not_answer(self):
        s = self.session(sites=[{"host": "ghost.test", "port": 22}, {"host": "v4.test", "port": 23}])
        for args, text in (("'no.test\n' 22", "not a host and a port"), ("no.test 0", "not a host and a port"),
                           ("ghost.test 22", "no such name"), ("v4.test 23", "Connection refused"),
                           ("169.254.169.254 22", "is on no list")):
            c = self.run_in(s, f"{CONNECT} {args}")
            self.assertEqual(c["result"]["exit_code"], 1, c)
            self.assertIn(text, c["text"]["stderr"])
            self.assertEqual(c["text"]["stderr"].count("\n"), 1, c)
        self.assertEqual(self.run_in(s, CONNECT)["result"]["exit_code"], 2)

    def test_the_runner_that_can_be_seen_gives_nothing(self):
        """Its other words are the daemon's: by hand they end at once, and what holds a command holds them."""
        s = self.session()
        self.assertEqual(self.run_ok(s, "ls /run/cordon"), "cordon-runner\nssh_config\n")
        for path in ("/run/cordon/x", "/run/cordon/ssh_config", "/run/cordon/cordon-runner", "/etc/ssh/ssh_config"):
            self.assertNotEqual(self.run_in(s, f"echo x > {path}")["result"]["exit_code"], 0, path)
        for word in ("stage", "inside", "plain"):
            c = self.run_in(s, f"/run/cordon/cordon-runner {word} 3</dev/null </dev/null", timeout_ms=20000)
            self.assertEqual(c["state"], "exited", c)
            self.assertNotEqual(c["result"]["exit_code"], 0, c)
        self.assertEqual(self.run_ok(s, "echo still here"), "still here\n")

    def test_without_a_network_there_is_no_way(self):
        s = self.session(network="none")
        c = self.run_in(s, f'test -z "$GIT_SSH_COMMAND" && test ! -e /run/cordon/ssh_config && {CONNECT} git.test 22')
        self.assertEqual(c["result"]["exit_code"], 1, c)
        self.assertEqual(c["text"]["stderr"],
                         "cordon: git.test:22: this session has no way out (network none, or its egress is not up)\n")
        self.nothing_came()


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
