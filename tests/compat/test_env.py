"""The environment behind the wall: an allow list, no hooks, no logins, no sockets of the desktop.
Cases 29, 37, 83 and 88 of what comes in by it."""
import os
import socket
import stat
import subprocess
import unittest

from box import BIN, Box, Session, need

MARK = "MARKofTHEhost"
HOOKS = ("LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT BASH_ENV ENV PROMPT_COMMAND IFS NODE_OPTIONS NODE_PATH PYTHONSTARTUP "
         "PYTHONPATH PYTHONHOME PERL5OPT PERL5LIB RUBYOPT RUBYLIB JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS "
         "GIT_DIR GIT_WORK_TREE GIT_SSH GIT_ASKPASS SSH_ASKPASS GIT_EXEC_PATH GIT_CONFIG_GLOBAL "
         "GIT_CONFIG_COUNT GIT_EDITOR EDITOR VISUAL PAGER GIT_PAGER LESSOPEN MAKEFLAGS CMAKE_TOOLCHAIN_FILE RUSTC_WRAPPER "
         "CARGO_HOME GOFLAGS CC npm_config_prefix PIP_INDEX_URL DOCKER_HOST KUBECONFIG").split()
SOCKETS = ("SSH_AUTH_SOCK SSH_AGENT_PID GPG_AGENT_INFO GNOME_KEYRING_CONTROL DBUS_SESSION_BUS_ADDRESS DISPLAY "
           "WAYLAND_DISPLAY XAUTHORITY XDG_RUNTIME_DIR XDG_SESSION_ID TMUX STY SUDO_USER").split()
LOGINS = ("GITHUB_TOKEN GH_TOKEN AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID AWS_PROFILE NPM_TOKEN OPENAI_KEY my_api_key "
          "MyPassword DB_PASSWD CLIENT_SECRET Some_Credential BASIC_AUTH LC_apiKey LC_TOKEN LC_x_auth CORDON_TOKEN").split()
SET_ANEW = "GIT_SSH_COMMAND HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy NO_PROXY".split()


def variables(done):
    return dict(v.split("=", 1) for v in done.stdout.decode(errors="surrogateescape").split("\0") if v)


class OfTheCaller(unittest.TestCase):
    """What stood in the daemon's environment when it was started."""
    @classmethod
    def setUpClass(cls):
        cls.box = Box()
        cls.addClassCleanup(cls.box.close)
        dirty = {name: f"/{MARK}/{name}" for name in HOOKS + SOCKETS + LOGINS + SET_ANEW if name != "XDG_RUNTIME_DIR"}
        for name in ("LD_PRELOAD", "LD_AUDIT"):  # the loader would say so on each start
            dirty[name] = ""
        dirty.update(IFS=" ", GIT_CONFIG_COUNT="0")
        cls.dirty = {**dirty, **cls.box.env, "LC_MESSAGES": "C", "COLORTERM": "truecolor", "NO_COLOR": "1",
                     "TZ": "Europe/Berlin", "TERM": "xterm-256color", "XDG_RUNTIME_DIR": str(cls.box.runtime)}
        started = cls.box.cordon("serve", env=cls.dirty)
        assert started.returncode == 0, started.stderr

    def inside(self, *options):
        done = self.box.run("env", "-0", options=options, env=self.dirty)
        self.assertEqual(done.returncode, 0, done.stderr)
        return variables(done)

    def test_only_the_allow_list_passes(self):
        bare = variables(subprocess.run(["env", "-0"], env=self.dirty, capture_output=True, check=True))
        inside = self.inside()
        for name in HOOKS + SOCKETS + LOGINS:
            with self.subTest(name=name):
                self.assertIn(name, bare)
                self.assertNotIn(name, inside)
        self.assertEqual([v for v in inside.values() if MARK in v], [])
        for name in SET_ANEW:  # set, to the session's own
            self.assertNotIn(MARK, inside[name])

    def test_language_terminal_and_time_pass(self):
        inside = self.inside()
        for name in ("LANG", "LC_MESSAGES", "COLORTERM", "NO_COLOR", "TZ", "TERM"):
            self.assertEqual(inside.get(name), self.dirty[name], name)

    def test_what_is_set(self):
        inside = self.inside()
        self.assertEqual(inside["HOME"], str(self.box.home))
        self.assertEqual((inside["GIT_TERMINAL_PROMPT"], inside["CORDON_SANDBOXED"]), ("0", "1"))
        for name in "XDG_CONFIG_HOME XDG_CACHE_HOME npm_config_cache PIP_CACHE_DIR UV_CACHE_DIR GOCACHE GOMODCACHE YARN_CACHE_FOLDER".split():
            self.assertTrue(inside[name].startswith(str(self.box.home) + "/"), name)
        self.assertLess(len(inside["TMPDIR"]), 40)

    def test_named_it_passes_and_only_there(self):
        """A session may name anything, a login too; the next command has it no more."""
        inside = self.inside("-e", "GITHUB_TOKEN", "-e", "PYTHONPATH=/x", "-e", "EMPTY=")
        self.assertEqual(inside["GITHUB_TOKEN"], self.dirty["GITHUB_TOKEN"])
        self.assertEqual((inside["PYTHONPATH"], inside["EMPTY"]), ("/x", ""))
        session = Session(self.box)
        named = variables(session.run("env", "-0", options=["-e", "MINE=1"]))
        self.assertEqual(named["MINE"], "1")
        self.assertNotIn("MINE", variables(session.run("env", "-0")))
        session.close()

    def test_the_open_tier_passes_all(self):
        inside = self.inside("-t", "open")
        for name in ("GITHUB_TOKEN", "SSH_AUTH_SOCK", "NODE_OPTIONS", "GIT_DIR"):
            self.assertEqual(inside.get(name), self.dirty[name], name)

    def test_nobody_else_has_it(self):
        """Case 88: neither pid 1 inside nor what the host shows of the wall's programs."""
        done = self.box.sb("cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c '%s[^*]'; cat /proc/1/environ"
                           % (MARK[:-1] + "[t]"), env=self.dirty)
        self.assertEqual(done.stdout.split(), [b"0"])


class Agents(unittest.TestCase):
    def test_sockets_of_agents_do_not_answer(self):
        """A real socket beside the variable: named by the session itself it is still not there."""
        box = Box()
        self.addCleanup(box.close)
        with socket.socket(socket.AF_UNIX) as agent:
            path = str(box.runtime / "agent.sock")
            agent.bind(path)
            agent.listen(8)
            line = ("import os,socket;s=socket.socket(socket.AF_UNIX)\n"
                    "try: s.connect(os.environ['SSH_AUTH_SOCK']);print('in')\nexcept OSError as e: print(type(e).__name__)")
            env = dict(box.env, SSH_AUTH_SOCK=path)
            bare = subprocess.run(["/usr/bin/python3", "-c", line], env=env, capture_output=True, timeout=60)
            self.assertEqual(bare.stdout, b"in\n")
            done = box.run("python3", "-c", line, options=["-e", f"SSH_AUTH_SOCK={path}"], env=env)
            self.assertEqual(done.stdout, b"FileNotFoundError\n", done.stderr)


class Certificates(unittest.TestCase):
    def test_a_bundle_is_joined_read_only_and_a_protected_place_is_not(self):
        box = Box(base="/var/tmp")  # below /tmp all is the session's own
        self.addCleanup(box.close)
        bundle, other = box.base / "ca" / "bundle.pem", box.base / "ca" / "other"
        bundle.parent.mkdir()
        for at in (bundle, other):
            at.write_text("BUNDLE\n")
        state = box.home / ".local" / "state" / "cordon"
        env = dict(box.env, SSL_CERT_FILE=str(bundle), CURL_CA_BUNDLE=f"{state}/token", SSL_CERT_DIR=str(box.base),
                   REQUESTS_CA_BUNDLE="/proc/1/environ")
        done = box.sb(f"cat $SSL_CERT_FILE; echo x 2>/dev/null >>$SSL_CERT_FILE; ls -A {bundle.parent}; cat {state}/token;"
                      "echo ${CURL_CA_BUNDLE-unset} ${REQUESTS_CA_BUNDLE-unset} ${SSL_CERT_DIR-unset}", env=env)
        self.assertEqual(done.stdout.decode().split(), ["BUNDLE", "bundle.pem", "unset", "unset", "unset"], done.stderr)
        self.assertTrue((state / "token").exists())
        self.assertEqual(bundle.read_text(), "BUNDLE\n")


class Path(unittest.TestCase):
    """Cases 29 and 37: what cannot be read, is relative or is empty is no part of PATH inside."""
    def setUp(self):
        self.box = Box(base="/var/tmp")  # below /tmp all is the session's own
        self.addCleanup(self.box.close)

    def fake(self, folder, name):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("#!/bin/sh\necho FAKE\n")
        (folder / name).chmod(0o755)
        return str(folder)

    def test_folders_that_cannot_be_read(self):
        closed = self.fake(self.box.base / "closed", "git")
        os.chmod(closed, 0)
        others = ["/srv", "/boot", "/var/log", "/no/such"]  # no part of the view
        env = dict(self.box.env, PATH=":".join([closed, *others, "", ".", "./bin", self.box.env["PATH"]]))
        self.fake(self.box.work, "git")
        done = self.box.sb("git --version; printf '%s\\n' $PATH", env=env)
        self.assertTrue(done.stdout.startswith(b"git version"), done.stdout + done.stderr)
        path = done.stdout.decode().splitlines()[1].split(":")
        self.assertTrue(all(p.startswith("/") for p in path), path)
        self.assertFalse({*others, str(self.box.work)} & set(path), path)
        self.assertEqual(len(path), len(set(path)))

    def test_a_readable_folder_keeps_its_rank(self):
        mine = self.fake(self.box.base / "tools" / "bin", "git")
        env = dict(self.box.env, PATH=f"{mine}:{self.box.env['PATH']}")
        done = self.box.run("git", folders=[self.box.work, f"{self.box.base}/tools:ro"], env=env)
        self.assertEqual(done.stdout, b"FAKE\n", done.stderr)

    def test_outside_no_program_comes_from_it(self):
        """Case 37, of every helper that there might be."""
        trap = self.box.work / "bin"
        for name in "bwrap sh bash ip nft socat ssh git setpriv newuidmap mount cordond cordon-runner cordon-egress env".split():
            self.fake(trap, name)
            (trap / name).write_text(f"#!/bin/sh\n: >{self.box.base}/RAN\nexec /usr/bin/{name} \"$@\"\n")
        env = dict(self.box.env, PATH=f"{trap}:.:{self.box.env['PATH']}")
        control = subprocess.run(["/bin/sh", "-c", "git --version"], env=env, capture_output=True, timeout=60)
        self.assertTrue((self.box.base / "RAN").exists(), control)
        (self.box.base / "RAN").unlink()
        done = self.box.run("/bin/true", env=env, cwd=trap)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.box.cordon("status", env=env, cwd=trap).returncode, 0)
        self.assertFalse((self.box.base / "RAN").exists())


class Prompts(unittest.TestCase):
    """Case 83: whoever would ask finds the end of its input, and the code is kept."""
    @classmethod
    def setUpClass(cls):
        cls.box = Box()
        cls.addClassCleanup(cls.box.close)
        cls.session = Session(cls.box, options=["--network", "none"])

    def code(self, line):
        return self.session.sb(f"timeout 20 sh -c '{line}'").returncode

    def test_readers_end(self):
        self.assertEqual(self.code("cat"), 0)
        self.assertEqual(self.code("read x"), 1)
        self.assertEqual(self.code('python3 -c "input()"'), 1)
        self.assertEqual(self.session.sb("false").returncode, 1)

    def test_programs_that_ask_end(self):
        need(self, "git", "ssh", "npm")
        for line in ("git init -q e; cd e; git -c user.name=a -c user.email=a@b commit --allow-empty",
                     "git clone -q https://user@no.invalid/r", "ssh no.invalid true", "npm init", "passwd", "su -c true nobody"):
            with self.subTest(line=line):
                self.assertNotIn(self.code(line), (0, 124, 137))

    def test_sudo_and_set_uid_give_nothing(self):
        done = self.session.sb("sudo -n true; id -u; grep NoNewPrivs /proc/self/status; find / -xdev -perm -4000 -user 0 -type f 2>/dev/null | head -1 | "
                               "while read f; do test -u $f && echo setuid-there; done")
        self.assertIn(str(os.getuid()).encode(), done.stdout.split())
        self.assertIn(b"NoNewPrivs:\t1", done.stdout)


class Owner(unittest.TestCase):
    def test_a_uid_without_an_entry(self):
        """Case 40: as root, once more as a uid that no passwd line names; as a user, as that user."""
        box = Box(base="/tmp")
        self.addCleanup(box.close)
        uid = os.getuid() or 20407
        if os.getuid() == 0:
            for at in (box.base, box.home, box.work, box.runtime):
                os.chown(at, uid, uid)
        line = ("id -u; id -un; whoami; getent passwd $(id -u) | cut -d: -f1,6; echo $HOME; "
                "python3 -c 'import getpass;print(getpass.getuser())'; node -p 'os.userInfo().username'; ssh -V 2>/dev/null && echo ssh; touch f")
        as_uid = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if os.getuid() == 0 else []
        need(self, "node", "ssh", "setpriv")

        def cordon(*args):
            return subprocess.run([*as_uid, BIN / "cordon", *args], cwd=box.work, env=box.env, stdin=subprocess.DEVNULL,
                                  capture_output=True, timeout=120)
        readable = subprocess.run([*as_uid, "test", "-x", BIN / "cordon"]).returncode == 0
        if not readable:
            self.assertEqual(os.getuid(), 0)
            self.skipTest("the build folder is closed to other users; tests/all runs the tests as a user from a copy")
        try:
            done = cordon("run", "-f", str(box.work), "--", "sh", "-c", line)
            self.assertEqual(done.returncode, 0, done.stderr)
            out = done.stdout.decode().split()
            name = out[1]
            self.assertEqual(out, [str(uid), name, name, f"{name}:{box.home}", str(box.home), name, name, "ssh"])
            made = (box.work / "f").stat()
            self.assertEqual((made.st_uid, stat.S_IMODE(made.st_mode) & 0o600), (uid, 0o600))
        finally:
            cordon("stop")


if __name__ == "__main__":
    unittest.main()
