"""Files and the wall: what is granted is there, and nothing else (cases 11, 13, 14, 16, 19, 20, 32)."""
import os
import shutil
import subprocess
import threading
import time

import wall_lab
from wall_lab import MARK, PYTHON, Wall, private_folders

READ = "import sys; d=open(sys.argv[1]).read(); print('REACHED' if '%s' in d else d)" % MARK
WRITE = "import sys; open(sys.argv[1],'w').write('x'); print('REACHED')"


class Home(Wall):
    def test_not_listable(self):
        self.try_thrice("import os,sys; print('REACHED' if 'secret.txt' in os.listdir(sys.argv[1]) else 'no')",
                        self.home)

    def test_file(self):
        self.try_thrice(READ, os.path.join(self.home, "secret.txt"))

    def test_above(self):
        self.write(self.root, "beside.txt", MARK)
        self.try_thrice(READ, os.path.join(self.root, "beside.txt"))

    def test_state(self):
        for name in ("token", "cordon.db", "canary"):
            self.try_thrice(READ, self.write(self.state, name, MARK))

    def test_through_roots(self):
        script = ("import os,sys\n"
                  "for p in os.listdir('/proc'):\n"
                  "    if p.isdigit():\n"
                  "        try:\n"
                  "            if '%s' in open('/proc/'+p+'/root'+sys.argv[1]).read(): print('REACHED')\n"
                  "        except OSError: pass\n" % MARK)
        self.try_thrice(script, self.write(self.state, "canary", MARK))

    def test_hard_link(self):
        self.try_thrice("import os,sys; os.link(sys.argv[1], sys.argv[2]); print('REACHED')",
                        self.write(self.home, "private.txt", MARK), os.path.join(self.w, "linked"))

    def test_private_home_is_writable_and_gone(self):
        before = private_folders()
        done = self.walled("import os; h=os.environ['HOME']; open(h+'/x','w').write('y'); "
                           "print(h, os.path.expanduser('~'), os.listdir(h))")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(self.home.encode(), done.stdout)
        self.assertFalse(os.path.exists(self.home + "/x"))
        self.assertEqual(private_folders() - before, set())

    def test_credentials_beside_git_config(self):
        """Also when the host replaces the file while the session runs."""
        self.write(self.home, ".config/git/config", "[user]\n\tname = x\n")
        secret = self.write(self.home, ".config/git/credentials", MARK)
        flag, ready = os.path.join(self.w, "flag"), os.path.join(self.w, "ready")
        script = ("import os,sys,time\n"
                  "c,g,flag,ready=sys.argv[1:]\n"
                  "assert 'name' in open(g).read()\n"
                  "try: print('REACHED', open(c).read())\n"
                  "except OSError as e: print(e)\n"
                  "open(ready,'w').close()\n"
                  "while not os.path.exists(flag): time.sleep(0.02)\n"
                  "try: print('REACHED', open(c).read())\n"
                  "except OSError as e: print(e)\n")

        def replace():
            wall_lab.wait_for(lambda: os.path.exists(ready))
            self.write(os.path.dirname(secret), "credentials.tmp", MARK + " new")
            os.rename(os.path.join(os.path.dirname(secret), "credentials.tmp"), secret)
            open(flag, "w").close()

        host = threading.Thread(target=replace)
        host.start()
        done = self.walled(script, secret, os.path.join(self.home, ".config/git/config"), flag, ready)
        host.join()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(self.crossed(done), done.stdout)


class Folders(Wall):
    def test_read_only(self):
        keep = os.path.join(self.root, "keep")
        self.write(keep, "file", "kept")
        self.try_thrice(WRITE, os.path.join(keep, "file2"), ro=[keep])
        done = self.walled("print(open(%r).read())" % (keep + "/file"), ro=[keep])
        self.assertIn(b"kept", done.stdout)

    def test_nested_in_any_order(self):
        """Case 32: the most specific wins, with duplicates and both ways round."""
        a, b = os.path.join(self.root, "a"), os.path.join(self.root, "a/b")
        os.makedirs(b)
        can = ("import sys\nfor p in sys.argv[1:]:\n"
               "    try: open(p+'/t','w').close(); print('rw')\n"
               "    except OSError as e: print('ro')\n")
        for grants, want in ((["--rw", b, "--ro", a], "ro rw"), (["--ro", a, "--rw", b], "ro rw"),
                             (["--rw", a, "--ro", b], "rw ro"), (["--ro", b, "--rw", a], "rw ro"),
                             (["--ro", b, "--rw", a, "--ro", b], "rw ro")):
            with self.subTest(grants=grants):
                done = self.drive(*grants, "--", PYTHON, "-c", can, a, b)
                self.assertEqual(done.stdout.decode().split(), want.split(), done.stderr)

    def test_move_of_a_read_only_folder_and_its_parents(self):
        """Case 19: neither it nor any folder between the grant and it can be renamed."""
        keep = os.path.join(self.w, "one/two/keep")
        self.write(keep, "file", "kept")
        for name in ("one", "one/two", "one/two/keep"):
            with self.subTest(name=name):
                self.try_thrice("import os,sys; os.rename(sys.argv[1], sys.argv[2]); print('REACHED');"
                                "os.rename(sys.argv[2], sys.argv[1])",
                                os.path.join(self.w, name), os.path.join(self.w, "moved"), ro=[keep])

    def test_odd_names(self):
        """Case 20: every name behaves alike."""
        names = ["p[1]", "a*b", "q?", "with space", "ümläut-日本", "tab\tx", "nl\nx", "-dash", "$(id)",
                 "'\"", "a..b", "...", "back\\slash", "u\u0301", "\u00fa", "x" * 200, "{a,b}", "a:b,c"]
        for name in names:
            with self.subTest(name=name):
                d = os.path.join(self.root, name)
                self.write(d, "sub/keep", "kept")
                sub = os.path.join(d, "sub")
                done = self.drive("--rw", d, "--ro", sub, "--", PYTHON, "-c",
                                  "import os,sys\nd,s=sys.argv[1:]\nopen(d+'/made','w').close()\n"
                                  "print(open(s+'/keep').read())\n"
                                  "try: open(s+'/x','w'); print('REACHED')\n"
                                  "except OSError as e: print(e.errno)", d, sub)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(b"kept", done.stdout)
                self.assertFalse(self.crossed(done))
                self.assertTrue(os.path.exists(os.path.join(d, "made")))
                self.assertEqual(sorted(os.listdir(d)), ["made", "sub"])

    def test_nothing_is_made(self):
        """Also by a command that fails, and when the launcher is killed."""
        before = wall_lab.snapshot(self.root)
        self.walled("print(1)")
        self.walled("import sys; sys.exit(3)")
        self.assertEqual(self.walled("import os; os.kill(os.getpid(), 9)").returncode, 137)
        held = subprocess.Popen([wall_lab.DRIVER, "--rw", self.w, "--hold"], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, env=self.env)
        held.stdout.readline()
        held.kill()
        held.wait()
        held.stdin.close()
        held.stdout.close()
        self.drive("--sweep", "--check")
        self.assertEqual(wall_lab.snapshot(self.root), before)

    def test_across_one_grant(self):
        """Case 23: rename and link work within a grant."""
        done = self.walled("import os\nos.mkdir('a'); os.mkdir('b'); open('a/f','w').close()\n"
                           "os.rename('a/f','b/f'); os.link('b/f','a/g'); os.rename('a','b/a')\n"
                           "print(sorted(os.listdir('b')))")
        self.assertIn(b"['a', 'f']", done.stdout, done.stderr)


class Links(Wall):
    def test_planted_links_lead_nowhere(self):
        """Case 16: what a session plants grants the next one nothing."""
        self.write(self.home, ".ssh/id", MARK)
        self.walled("import os,sys\nh,s=sys.argv[1:]\nos.symlink(h+'/secret.txt','l1')\n"
                    "os.symlink(h+'/.ssh','l2'); os.symlink(s,'l3'); os.symlink('/','l4')",
                    self.home, self.state)
        self.write(self.state, "token", MARK)
        for name in ("l1", "l2/id", "l3/token", "l4" + self.home + "/secret.txt"):
            with self.subTest(name=name):
                self.try_thrice(READ, os.path.join(self.w, name))

    def test_oldroot(self):
        """Case 11: bubblewrap 0.8 follows a planted link when it makes a mount point."""
        out = os.path.join(self.root, "out")
        os.mkdir(out)
        for name in (".vscode", ".git", ".cordon", "bin", "usr", "tmp"):
            os.symlink("/oldroot" + out, os.path.join(self.w, name))
        self.assertEqual(self.walled("print(1)").returncode, 0)
        self.assertEqual(os.listdir(out), [])

    def test_links_among_protected_names(self):
        """Case 14: dangling and looping links stop no command."""
        os.symlink("/nix/store/none", self.w + "/.env")
        os.symlink("loop", self.w + "/loop")
        for name in (".gitconfig", ".npmrc", ".config"):
            os.symlink("../nowhere/" + name, os.path.join(self.home, name))
        done = self.walled("print('hi')")
        self.assertEqual(done.stdout, b"hi\n", done.stderr)

    def test_replaced_by_a_link(self):
        for then in ("mv %s %s.gone && ln -s /etc %s", "mv %s %s.gone; mkdir %s"):
            w = os.path.join(self.root, "w%d" % len(then))
            os.mkdir(w)
            done = self.drive("--rw", w, "--then", then % (w, w, w), "--", "/usr/bin/true")
            self.assertEqual(done.returncode, 125)
            self.assertIn(w.encode(), done.stderr)
            self.assertRegex(done.stderr.decode(), "symbolic link|another folder")

    def test_vanished(self):
        done = self.drive("--rw", self.w, "--then", "rmdir " + self.w, "--", "/usr/bin/true")
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"gone", done.stderr)
        self.assertIn(self.w.encode(), done.stderr)

    def test_link_above_the_folder(self):
        real = os.path.join(self.root, "real/ws")
        os.makedirs(real)
        os.symlink("real", os.path.join(self.root, "alias"))
        by_link = os.path.join(self.root, "alias/ws")
        for path in (real, by_link):
            done = self.walled("import os,sys; open(sys.argv[1]+'/f','w').close(); print('made')", path,
                               rw=[by_link])
            self.assertIn(b"made", done.stdout, done.stderr)
            self.assertTrue(os.path.exists(real + "/f"))


class Grants(Wall):
    def refused(self, path):
        done = self.drive("--rw", path, "--", "/usr/bin/true")
        self.assertEqual(done.returncode, 125, path)
        self.assertIn(b"protected_place", done.stderr, path)
        return done.stderr

    def test_protected(self):
        os.makedirs(self.home + "/.ssh/sub")
        os.makedirs(self.home + "/.config/cordon")
        for path in ("/", "/tmp", self.home, self.root, self.home + "/.ssh", self.home + "/.ssh/sub",
                     self.state, self.home + "/.local/state", self.home + "/.config/cordon",
                     self.home + "/.config", "/proc", "/proc/self", "/sys/kernel", "/dev",
                     os.path.realpath(wall_lab.BIN), os.path.dirname(os.path.realpath(wall_lab.BIN))):
            with self.subTest(path=path):
                self.refused(path)

    def test_what_a_credential_link_points_to(self):
        """Case 17."""
        os.makedirs(self.home + "/dotfiles/aws")
        os.symlink("dotfiles/aws", self.home + "/.aws")
        self.assertIn(b".aws", self.refused(self.home + "/dotfiles"))
        self.assertIn(b".aws", self.refused(self.home + "/dotfiles/aws"))

    def test_not_a_folder(self):
        for path in (self.write(self.w, "f", ""), self.w + "/none"):
            done = self.drive("--rw", path, "--", "/usr/bin/true")
            self.assertEqual(done.returncode, 125)
            self.assertIn(b"path_invalid", done.stderr)


class System(Wall):
    def test_read_only_and_secrets(self):
        script = ("import os\nfor p in ('/usr','/etc','/','/opt','/run','/usr/bin'):\n"
                  "    try: open(p+'/wall-test','w'); print('REACHED', p)\n"
                  "    except OSError: pass\n"
                  "for p in ('/etc/shadow','/etc/gshadow','/etc/sudoers','/etc/ssl/private'):\n"
                  "    if os.path.lexists(p): print('REACHED', p)\n"
                  "print(open('/etc/passwd').read())")
        done = self.try_thrice(script, bare=False)  # an ordinary user can write to none of them
        self.assertIn(self.home.encode(), done.stdout)

    def test_mounts_below_etc(self):
        """Case 35: as containers have them. No overlay is possible then; masks take its place."""
        script = ("import os\nfor p in ('/etc/shadow','/etc/gshadow','/etc/sudoers'):\n"
                  "    try:\n        if open(p).read(): print('REACHED', p)\n"
                  "    except OSError: pass\n"
                  "print(open('/etc/hosts').read()); print(open('/etc/passwd').read())\n"
                  "try: open('/etc/hosts','w'); print('REACHED')\nexcept OSError: pass")
        done = subprocess.run(["unshare", "-Urm", "sh", "-c", "mount --bind /etc/hostname /etc/hosts && exec \"$@\"",
                               "sh", wall_lab.DRIVER, "--rw", self.w, "--", PYTHON, "-c", script],
                              env=self.env, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(self.crossed(done), done.stdout)
        self.assertIn(b"127.0.0.1 localhost", done.stdout)
        self.assertIn(self.home.encode(), done.stdout)

    def test_hidden_below_hidden(self):
        """A machine with sudo: its folder is hidden, and so is a file in it that others may not read.
        One within the other is no reason to refuse the wall."""
        etc = os.path.join(self.home, "etc")
        os.makedirs(etc + "/sudoers.d")
        for name in ("passwd", "group", "hosts", "ld.so.cache"):
            shutil.copy("/etc/" + name, etc)
        for name, mode in (("README", 0o440), ("agent", 0o644)):
            with open(f"{etc}/sudoers.d/{name}", "w") as f:
                f.write("secret")
            os.chmod(f.name, mode)
        script = ("import os\nprint(os.listdir('/etc'))\n"
                  "for p in ('', '/README', '/agent'):\n"
                  "    if os.path.exists('/etc/sudoers.d' + p): print('REACHED', p)\n")
        inside = ["sh", "-c", "mount --bind \"$0\" /etc && exec \"$@\"", etc]
        bare = subprocess.run(["unshare", "-Urm", *inside, PYTHON, "-c", script], capture_output=True)
        self.assertEqual(bare.stdout.count(b"REACHED"), 3, bare)
        done = subprocess.run(["unshare", "-Urm", *inside, wall_lab.DRIVER, "--rw", self.w, "--", PYTHON, "-c",
                               script], env=self.env, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn(b"REACHED", done.stdout)
        self.assertIn(b"passwd", done.stdout)

    def test_two_sessions_apart(self):
        """Case 28: /dev/shm and /tmp are each session's own, and gone afterwards."""
        names = ["/dev/shm/wall-" + str(os.getpid()), "/tmp/wall-" + str(os.getpid())]
        ready, flag = os.path.join(self.w, "ready"), os.path.join(self.w, "flag")
        script = ("import os,sys,time\nn=sys.argv[1:3]; ready,flag=sys.argv[3:]\n"
                  "for p in n: open(p,'w').write('x')\nopen(ready,'w').close()\n"
                  "while not os.path.exists(flag): time.sleep(0.02)")
        first = threading.Thread(target=self.walled, args=(script, *names, ready, flag))
        first.start()
        self.assertTrue(wall_lab.wait_for(lambda: os.path.exists(ready)))
        done = self.walled("import os,sys; print([os.path.exists(p) for p in sys.argv[1:]])", *names)
        open(flag, "w").close()
        first.join()
        self.assertIn(b"[False, False]", done.stdout, done.stderr)
        self.assertEqual([os.path.exists(p) for p in names], [False, False])


if __name__ == "__main__":
    wall_lab.main()
