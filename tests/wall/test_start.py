"""Start-up and the folders of a session: the cases of other systems that stop a command or leave a
trace (1, 2, 13, 17, 22, 23, 25, 26, 34, 38, 43, 44)."""
import os
import shutil
import subprocess

import wall_lab
from wall_lab import DRIVER, MARK, PYTHON, Wall, private_folders

GIT = ["git", "-c", "user.name=x", "-c", "user.email=x@invalid", "-c", "init.defaultBranch=main"]


def git(where, *args):
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run([*GIT, "-C", where, *args], env=env, capture_output=True, text=True, check=True).stdout


class Watcher:
    """Every name that is made below a folder while it looks, also one that is gone again: inotify(7)."""

    def __init__(self, root):
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        assert self.fd >= 0
        made = 0x100 | 0x80 | 0x2 | 0x200 | 0x4  # CREATE MOVED_TO MODIFY DELETE ATTRIB
        for at, _, _ in os.walk(root):
            assert libc.inotify_add_watch(self.fd, os.fsencode(at), made) >= 0

    def seen(self):
        names, at = [], 0
        try:
            data = os.read(self.fd, 1 << 20)
        except BlockingIOError:
            return names
        while at < len(data):
            n = int.from_bytes(data[at + 12:at + 16], "little")
            names.append(data[at + 16:at + 16 + n].rstrip(b"\0"))
            at += 16 + n
        return names

    def close(self):
        os.close(self.fd)


class Traces(Wall):
    # case 1
    def test_nothing_is_made_in_the_workspace_however_the_command_ends(self):
        git(self.w, "init", "-q")
        self.write(self.w, "kept", "kept")
        os.mkdir(self.w + "/sub")
        before, status = wall_lab.snapshot(self.w), git(self.w, "status", "--porcelain")
        watcher = Watcher(self.w)
        self.addCleanup(watcher.close)
        for script, code in (("pass", 0), ("import sys; sys.exit(3)", 3),
                             ("import os; os.kill(os.getpid(), 9)", 137)):
            self.assertEqual(self.walled(script).returncode, code)
        held = subprocess.Popen([DRIVER, "--rw", self.w, "--ro", self.w + "/sub", "--hold"], env=self.env,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        held.stdout.readline()
        held.kill()
        held.wait()
        held.stdin.close()
        held.stdout.close()
        self.assertEqual(watcher.seen(), [], "made, and perhaps gone again")
        self.assertEqual(wall_lab.snapshot(self.w), before)
        self.assertEqual(git(self.w, "status", "--porcelain"), status)
        with open(self.w + "/bare", "w"):
            pass
        self.assertIn(b"bare", watcher.seen(), "the watcher sees")

    # case 2
    def test_no_lock_file_of_git_stays_and_git_works_on_the_host_meanwhile(self):
        main, tree = self.root + "/r", self.root + "/wt"
        os.mkdir(main)
        git(main, "init", "-q")
        git(main, "commit", "-q", "--allow-empty", "-m", "x")
        git(main, "worktree", "add", "-q", tree)
        held = subprocess.Popen([DRIVER, "--rw", tree, "--rw", main, "--hold"], env=self.env,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            self.assertTrue(held.stdout.readline().startswith(b"up "))
            git(main, "config", "a.b", "during")
        finally:
            held.stdin.close()
            held.wait(20)
            held.stdout.close()
        git(main, "config", "a.b", "after")
        self.assertEqual(git(main, "config", "a.b").strip(), "after")
        self.assertEqual([f for at, _, files in os.walk(main) for f in files if f.endswith(".lock")], [])

    # case 43
    def test_many_starts_leave_no_folder(self):
        mark, before = "mark-%d" % os.getpid(), set(os.listdir("/dev/shm"))
        done = self.drive("--rw", self.w, "--times", "500" if os.environ.get("CORDON_LONG") else "60", "--", "/bin/sh",
                          "-c", 'echo >"$TMPDIR/$1" && test -w /dev/shm', "sh", mark, timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(wall_lab.left_folders(mark), set())
        self.assertEqual({n for n in set(os.listdir("/dev/shm")) - before if "cordon" in n}, set())

    # case 43
    def test_a_writer_that_stays_behind_does_not_stop_the_clean_up(self):
        done = self.walled("import os,subprocess,time\n"
                           "subprocess.Popen(['sh','-c','while :; do date >>$TMPDIR/writes; date >>$HOME/y; done'],"
                           "start_new_session=True)\n"
                           "while not os.path.exists(os.environ['TMPDIR']+'/writes'): time.sleep(0.01)\nprint('writes')")
        self.assertEqual(done.stdout, b"writes\n", done.stderr)
        self.assertEqual(wall_lab.left_folders("writes"), set())

    # case 43
    def test_killed_launchers_are_swept_and_living_ones_are_not(self):
        before = private_folders()
        held = [subprocess.Popen([DRIVER, "--rw", self.w, "--hold"], env=self.env, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE) for _ in range(6)]
        private = []
        for p in held:
            self.addCleanup(p.stdin.close)
            self.addCleanup(p.stdout.close)
            private.append(p.stdout.readline().split()[2].decode())
        for p in held[:5]:
            p.kill()
            p.wait()
        self.assertTrue(wall_lab.wait_for(lambda: not any(wall_lab.is_held(d) for d in private[:5] if os.path.exists(d))))
        self.drive("--sweep", "--check")
        self.assertEqual([os.path.exists(d) for d in private], [False] * 5 + [True])
        held[5].kill()
        held[5].wait()
        wall_lab.wait_for(lambda: not wall_lab.is_held(private[5]))
        self.drive("--sweep", "--check")
        self.assertEqual(private_folders() - before, set())

    # case 44
    def test_names_in_tmp_are_random_ours_and_closed_to_others(self):
        names = set()
        for _ in range(3):
            p = subprocess.Popen([DRIVER, "--rw", self.w, "--hold"], env=self.env, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE)
            private = p.stdout.readline().split()[2].decode()
            st = os.lstat(private)
            self.assertEqual((st.st_uid, st.st_mode & 0o7777), (os.geteuid(), 0o700))
            self.assertRegex(private, r"^/tmp/cordon-[\w-]{22}$")
            names.add(private)
            p.stdin.close()
            p.wait(20)
            p.stdout.close()
        self.assertEqual(len(names), 3)


class Names(Wall):
    # case 22
    def test_only_whole_dot_dot_components_count(self):
        names = ["advisory-db..lock", "a..b", "...", "..c", "d..", "e.. f"]
        done = self.walled("import os,sys\nfor n in sys.argv[1:]:\n    os.mkdir(n); open(n+'/x..y','w').close()\n"
                           "print(sorted(os.listdir('.')))", *names)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(os.listdir(self.w)), sorted(names))
        for name in names:
            d = os.path.join(self.w, name)
            done = self.walled("import os; print(os.listdir('.'), os.getcwd())", rw=[d])
            self.assertIn(b"x..y", done.stdout, done.stderr)

    # case 13
    def test_a_workspace_below_a_link_of_the_system_and_both_spellings_of_run(self):
        runtime = "/var/run/user/%d" % os.geteuid()
        if os.path.isdir(runtime) and os.access(runtime, os.W_OK):
            base = runtime
        elif os.geteuid() == 0:
            base = "/var/run"
        else:
            base = self.root
            os.symlink(self.root, self.root + "/alias")
            base += "/alias"
        d = "%s/wall-test-%d" % (base, os.getpid())
        os.mkdir(d)
        self.addCleanup(shutil.rmtree, d, True)
        real = os.path.realpath(d)
        self.assertNotEqual(real, d)
        for granted in (d, real) if base.startswith("/var/run") else (d,):  # a person's own link is not the system's
            done = self.walled("import os,sys\nfor p in sys.argv[1:]: open(p+'/f','a').close(); print(sorted(os.listdir(p)))\n"
                               "print(os.path.realpath('/var/run'), os.path.realpath('/bin/ls'), os.path.exists('/lib64'))",
                               d, real, rw=[granted])
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout.count(b"['f']"), 2, done.stdout)
            self.assertIn(b"/run /usr/bin/ls", done.stdout)

    # case 23
    def test_mv_from_the_private_tmp_and_between_two_grants(self):
        other = self.root + "/other"
        os.mkdir(other)
        script = ("import os,shutil,sys\nw,o=sys.argv[1:]\nfor d in (os.environ['TMPDIR'],os.environ['HOME'],o,w):\n"
                  "    open(d+'/m','w').write(d)\n    shutil.move(d+'/m', w+'/sub/m'); os.remove(w+'/sub/m')\n"
                  "os.mkdir(o+'/tree'); open(o+'/tree/f','w').close(); shutil.move(o+'/tree', w+'/sub/')\n"
                  "print(os.listdir(w+'/sub/tree'))")
        os.mkdir(self.w + "/sub")
        done = self.walled(script, self.w, other, rw=[self.w, other])
        self.assertEqual(done.stdout, b"['f']\n", done.stderr)


class Homes(Wall):
    def shell(self, env):
        done = self.drive("--state", self.state, "--rw", self.w, "--", "/bin/sh", "-c",
                          'echo x >~/x && cat ~/x && echo "$HOME" && id -u && cd ~ && pwd', env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.decode().split()
        self.assertEqual((lines[0], lines[2]), ("x", str(os.geteuid())))
        self.assertEqual(lines[1], lines[3])
        return lines[1]

    # case 25
    def test_any_home_is_good_enough_and_its_odd_files_stop_nothing(self):
        def ssh_file():
            self.write(self.home, ".ssh", "no folder")
            self.write(self.home, ".config", "no folder")

        def ssh_links():
            os.symlink("/nowhere/else", self.home + "/.ssh")
            os.symlink(".aws", self.home + "/.aws")

        def fifo():
            os.mkfifo(self.home + "/.netrc")
            os.mkfifo(self.home + "/.gitconfig")

        def no_mode():
            os.chmod(self.home, 0)

        def read_only():
            os.chmod(self.home, 0o555)

        for kind in (ssh_file, ssh_links, fifo, read_only, no_mode):
            with self.subTest(kind=kind.__name__):
                shutil.rmtree(self.home)
                os.mkdir(self.home)
                kind()
                try:
                    self.assertEqual(self.shell({}), self.home)
                finally:
                    os.chmod(self.home, 0o700)
                self.assertFalse(os.path.lexists(self.home + "/x"), "the real home was written to")

    # case 25
    def test_a_home_that_cannot_be_used_gives_another_that_can(self):
        for home in ("", "/", "relative", "/no/such/home", "/etc/passwd", self.home + "/../home"):
            with self.subTest(home=home):
                inside = self.shell({"HOME": home})
                self.assertTrue(inside.startswith("/") and len(inside) > 1, inside)


class Sizes(Wall):
    # case 26
    def test_the_number_of_files_and_folders_changes_no_argument(self):
        guarded = self.w + "/guarded"
        os.mkdir(guarded)
        for i in range(2000):
            open("%s/f%d" % (guarded, i), "w").close()
        extra = []
        for i in range(200):
            extra.append("%s/extra/%s%d" % (self.root, "x" * 120, i))
            os.makedirs(extra[-1])
        small = self.drive("--rw", self.w, "--render", "bwrap").stdout
        p = subprocess.Popen([DRIVER, "--rw", self.w, "--ro", guarded, "--hold"], env=self.env,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertTrue(p.stdout.readline().startswith(b"up "))
        p.stdin.close()
        p.wait(20)
        p.stdout.close()
        arguments = [t for t in self.drive("--rw", self.w, "--ro", guarded, "--render", "bwrap").stdout.split(b"\n")
                     if t.startswith(b"--")]
        self.assertEqual(arguments, [t for t in small.split(b"\n") if t.startswith(b"--")])

    # case 26
    def test_thirty_extra_folders_and_a_large_environment(self):
        extra = []
        for i in range(30):
            extra.append("%s/extra/%s%d" % (self.root, "x" * 120, i))
            os.makedirs(extra[-1])
        env = {"LC_WALL_%d" % i: "v" * 1000 for i in range(100)}
        done = self.walled("import os,sys; print(sum(os.path.isdir(p) for p in sys.argv[1:]))", *extra, ro=extra,
                           env=env)
        self.assertEqual(done.stdout, b"30\n", done.stderr)


class Machine(Wall):
    # case 34
    def test_without_landlock_the_wall_is_refused_with_the_cure(self):
        """The three calls answer ENOSYS, by a filter around the launcher, as on a kernel without it."""
        wrapper = ("import ctypes,os,struct,sys\n"
                   "rule=lambda c,t,f,k: struct.pack('HBBI',c,t,f,k)\n"
                   "code=rule(0x20,0,0,0)+rule(0x35,0,2,444)+rule(0x25,1,0,446)+rule(0x06,0,0,0x50026)+rule(0x06,0,0,0x7fff0000)\n"
                   "b=ctypes.create_string_buffer(code); libc=ctypes.CDLL(None,use_errno=True)\n"
                   "class P(ctypes.Structure): _fields_=[('n',ctypes.c_ushort),('p',ctypes.c_void_p)]\n"
                   "p=P(5,ctypes.addressof(b))\n"
                   "assert libc.prctl(38,1,0,0,0)==0 and libc.prctl(22,2,ctypes.byref(p))==0\n"
                   "os.execv(sys.argv[1],sys.argv[1:])")
        for args in (["--check"], ["--rw", self.w, "--", "/usr/bin/true"]):
            done = subprocess.run([PYTHON, "-c", wrapper, DRIVER, *args], env=self.env, capture_output=True, text=True)
            self.assertEqual(done.returncode, 125, done)
            self.assertRegex(done.stderr, "session_refused: .*Landlock.* \\| .*lsm=")

    # case 35
    def test_a_masked_proc_as_containers_have_it_is_refused_and_never_the_hosts_shown(self):
        folder = next(d for d in ("acpi", "fs", "irq", "bus", "tty") if os.path.isdir("/proc/" + d))
        for args in (["--check"], ["--rw", self.w, "--", "/usr/bin/true"]):
            done = subprocess.run(["unshare", "-Urm", "sh", "-c", "mount -t tmpfs none /proc/%s && exec \"$@\"" % folder,
                                   "sh", DRIVER, *args], env=self.env, capture_output=True, text=True)
            self.assertEqual(done.returncode, 125, done)
            self.assertRegex(done.stderr, "session_refused: .*proc.*Operation not permitted.* \\| .")

    # case 35
    def test_the_proof_holds_where_etc_has_mounts(self):
        """No overlay of /etc is possible then; masks take its place, and the proof reads through them."""
        self.write(self.home, ".config/git/credentials", MARK)
        for etc in ("true", "mount --bind /etc/hostname /etc/hosts"):
            done = subprocess.run(["unshare", "-Urm", "sh", "-c", etc + " && exec \"$@\"", "sh", DRIVER, "--state",
                                   self.root + "/state", "--rw", self.w, "--proof"], env=self.env, capture_output=True,
                                  text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    # case 38
    def test_the_temporary_folder_inside_is_short_whatever_it_is_outside(self):
        long = "/".join([self.root, "a" * 120, "b" * 120])
        os.makedirs(long)
        script = ("import socket,tempfile,multiprocessing\n"
                  "s=socket.socket(socket.AF_UNIX); s.bind(tempfile.mkdtemp()+'/s.sock'); print(s.getsockname())\n"
                  "m=multiprocessing.Manager(); print(m.list([1,2]))\nm.shutdown()")
        for env in ({"TMPDIR": long, "XDG_RUNTIME_DIR": long}, {"TMPDIR": "/no/such", "XDG_RUNTIME_DIR": "/no/such"},
                    {"TMPDIR": "", "XDG_RUNTIME_DIR": ""}):
            with self.subTest(env=env):
                done = self.walled(script, env=env)
                self.assertIn(b"[1, 2]", done.stdout, done.stderr)


if __name__ == "__main__":
    wall_lab.main()
