"""Files and paths behind the wall: archives, copies, renames, names of every kind."""
import os
import tarfile
import unittest
import unicodedata

from box import Box, BoxCase, Session, need


class Tools(BoxCase):
    def root_owned_tar(self):
        with tarfile.open(self.dir / "r.tar", "w") as tar:
            for name, uid in (("a", 0), ("b", 12345), ("d", 0)):
                info = tarfile.TarInfo(name)
                info.uid = info.gid = uid
                info.uname = info.gname = "root" if uid == 0 else "someone"
                info.type = tarfile.DIRTYPE if name == "d" else tarfile.REGTYPE
                info.mode = 0o755 if name == "d" else 0o644
                tar.addfile(info)

    def test_tar_of_foreign_owners(self):
        """Case 31: the id inside is the user's own, so nobody tries to restore owners."""
        need(self, "tar")
        self.root_owned_tar()
        self.inside("mkdir x; tar xf r.tar -C x; test -d x/d; tar czf back.tgz x; tar tzf back.tgz >/dev/null", )
        self.assertEqual((self.dir / "x" / "a").stat().st_uid, os.getuid())

    def test_tar_same_owner(self):
        """chown to an id that does not exist inside is refused by the kernel; tar says so, its files are there."""
        need(self, "tar")
        self.root_owned_tar()
        done = self.session.run("sh", "-c", "mkdir y; tar xf r.tar --same-owner -C y; echo exit $?; ls y", cwd=self.dir)
        self.assertEqual(done.stdout.decode().split()[-3:], ["a", "b", "d"])
        self.assertEqual((self.dir / "y" / "a").stat().st_uid, os.getuid())

    def test_cp_and_rsync(self):
        need(self, "rsync")
        self.inside("cp -a /etc/hostname .; rsync -a /etc/hosts .; mkdir t; echo 1 >t/f; rsync -a t/ u/; cmp t/f u/f")

    def test_sqlite(self):
        need(self, "sqlite3")
        self.assertEqual(self.inside("sqlite3 d.db 'pragma journal_mode=wal; create table t(x); insert into t values(7);"
                                     "select x from t'").split(), ["wal", "7"])

    def test_ssh_reads_its_system_settings(self):
        """Case 41: root's files look foreign inside."""
        need(self, "ssh")
        self.assertIn("hostname example.com", self.inside("ssh -G example.com; ssh -V 2>&1"))

    def test_atomic_saves(self):
        """Case 7: by lock and rename, as editors and tools save."""
        self.inside("echo a >f; sed -i s/a/b/ f; test $(cat f) = b; echo c >f.new; mv f.new f; ln f g; ln -sf f h;"
                    "chmod 640 f; touch -d 2020-01-01 f; truncate -s 0 g; mkfifo p; rm p")

    def test_renames_and_links_across_folders(self):
        """Case 23."""
        self.inside("mkdir a b; touch a/f; mv a/f b/f; python3 -c 'import os;os.link(\"b/f\",\"a/g\");"
                    "os.rename(\"a/g\",\"b/g\");os.rename(\"a\",\"b/a\")'; touch $TMPDIR/x; mv $TMPDIR/x .")

    def test_names_with_dots(self):
        """Case 22."""
        self.inside("touch a..b ... ..c; ls -A")
        self.assertEqual(sorted(os.listdir(self.dir)), ["...", "..c", "a..b"])

    def test_big_command_lines(self):
        """Case 26: too long is one clear message before anything is started."""
        done = self.box.run("true", *["x" * (100 << 10)] * 12)
        self.assertEqual(done.returncode, 125)
        self.assertLess(len(done.stderr), 2000)
        self.ok(self.box.run("sh", "-c", "test ${#1} = 100000", "sh", "y" * 100000))


ODD = ["p[1]", "a*b", "q?", "with space", "tab\there", "nl\nx", "-dash", "$(id)", "`id`", "'\"", "a\\b", "a..b", "...",
       "{a,b}", "~", "#c", "%s%n", "n" * 200, unicodedata.normalize("NFC", "ümläut-日本"),
       unicodedata.normalize("NFD", "ümläut-日本"), os.fsdecode(b"bad-\xff\xfe")]


class OddNames(unittest.TestCase):
    """Case 20: no name is a pattern, an option or shell text to anybody."""
    @classmethod
    def setUpClass(cls):
        cls.box = Box()
        cls.addClassCleanup(cls.box.close)

    def test_folders_of_every_kind(self):
        for name in ODD:
            with self.subTest(name=ascii(name)):
                if not name.isprintable() and os.fsencode(name).startswith(b"bad"):
                    continue  # the API takes UTF-8 only: next test
                w = self.box.work / name
                (w / "keep").mkdir(parents=True)
                (w / "keep" / "f").write_text("kept\n")
                done = self.box.run("sh", "-c", "pwd; echo in >made; cat keep/f; echo no >keep/f; echo no >keep/g; mv keep k2",
                                    folders=[w, f"{w}/keep:ro"], cwd=w)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertEqual(os.fsdecode(done.stdout), f"{w}\nkept\n")
                self.assertEqual((w / "made").read_text(), "in\n")
                self.assertEqual((w / "keep" / "f").read_text(), "kept\n")
                self.assertEqual(sorted(os.listdir(w)), ["keep", "made"])

    def test_a_name_that_is_not_utf8_is_refused_or_works(self):
        w = self.box.work / os.fsdecode(b"bad-\xff\xfe")
        w.mkdir()
        done = self.box.run("sh", "-c", "echo in >made", folders=[w], cwd=w)
        if done.returncode == 0:
            self.assertTrue((w / "made").exists())
        else:
            self.assertEqual(done.returncode, 125)
            self.assertEqual(os.listdir(w), [])


class Grants(unittest.TestCase):
    """Case 32: the most specific grant wins, in any order of the list."""
    @classmethod
    def setUpClass(cls):
        cls.box = Box()
        cls.addClassCleanup(cls.box.close)

    def check(self, folders, script, want):
        for order in (folders, folders[::-1], [f.replace(":ro", "/:ro") if f.endswith(":ro") else f + "/" for f in folders],
                      folders + folders):
            with self.subTest(order=order):
                done = self.box.run("sh", "-c", script, folders=order, cwd=self.box.work)
                self.assertEqual(done.stdout.decode().split(), want, done.stderr.decode())

    def test_nested(self):
        a = self.box.work / "a"
        (a / "b" / "c").mkdir(parents=True)
        self.check([f"{a}:ro", f"{a}/b"], f"cd {a}; touch x 2>/dev/null || echo ro; touch b/x && echo rw", ["ro", "rw"])
        self.check([f"{a}", f"{a}/b:ro"], f"cd {a}; touch x && echo rw; touch b/x 2>/dev/null || echo ro", ["rw", "ro"])
        self.check([f"{a}", f"{a}/b:ro", f"{a}/b/c"],
                   f"cd {a}; touch b/y 2>/dev/null || echo ro; touch b/c/x && echo rw", ["ro", "rw"])

    def test_across_two_folders(self):
        one, two = self.box.work / "one", self.box.work / "two"
        one.mkdir()
        two.mkdir()
        done = self.box.run("sh", "-c", f"touch {one}/f; mv {one}/f {two}/f; mkdir -p {one}/d/e; mv {one}/d {two}/",
                            folders=[one, two], cwd=one)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((two / "d" / "e").is_dir() and (two / "f").is_file())

    def test_a_parent_of_a_read_only_folder_stays_where_it_is(self):
        """Renamed and made anew it would hold what the agent likes."""
        w = self.box.work / "pin"
        (w / "x" / "y" / "keep").mkdir(parents=True)
        (w / "x" / "y" / "keep" / "f").write_text("kept\n")
        done = self.box.run("sh", "-c", f"cd {w}; mv x x2; mv x/y z; mv x/y/keep k; rm -rf x; echo more >x/y/new; cat x/y/keep/f",
                            folders=[w, f"{w}/x/y/keep:ro"], cwd=w)
        self.assertEqual(done.stdout, b"kept\n", done.stderr)
        self.assertEqual((w / "x" / "y" / "keep" / "f").read_text(), "kept\n")
        self.assertTrue((w / "x" / "y" / "new").exists())
        self.assertTrue((w / "x" / "y" / "keep").is_dir())  # mv may have copied, and moved nothing

    def test_links_among_the_settings_stop_nothing(self):
        """Case 14: in the folder and in home, dangling ones too."""
        box = Box()
        self.addCleanup(box.close)
        (box.base / "dot").mkdir()
        (box.base / "dot" / "gitconfig").write_text("[user]\n name = linked\n")
        for name, target in ((".env", "/nix/store/none"), ("sub", "../elsewhere"), (".envrc", "sub/.env"), ("loop", "loop")):
            (box.work / name).symlink_to(target)
        (box.home / ".gitconfig").symlink_to(box.base / "dot" / "gitconfig")
        (box.home / ".npmrc").symlink_to("/nowhere")
        (box.home / ".config").symlink_to(box.base / "gone")
        done = box.sb("echo hi; git config --global user.name; cat .env; ls sub")
        self.assertEqual(done.stdout.split()[0], b"hi", done.stderr)
        self.assertNotIn(b"elsewhere:", done.stdout)
        (box.home / ".gitconfig").unlink()
        (box.home / ".gitconfig").symlink_to("/nowhere")
        self.assertEqual(box.sb("echo hi").stdout, b"hi\n")

    def test_odd_homes(self):
        """Case 25: the home inside is always writable and private."""
        for make in (lambda h: None, lambda h: (h / ".ssh").write_text("x"), lambda h: (h / ".config").write_text("x"),
                     lambda h: h.chmod(0o500)):
            box = Box()
            self.addCleanup(box.close)
            make(box.home)
            # where the home cannot be written, Cordon's own state must lie elsewhere, as it says
            box.env["XDG_STATE_HOME"] = str(box.base / "state")
            before = sorted(os.listdir(box.home))
            done = box.sb("echo $HOME; id -un; touch ~/x && echo made")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(b"made", done.stdout)
            box.home.chmod(0o700)
            self.assertFalse((box.home / "x").exists())
            self.assertTrue(set(before) <= set(os.listdir(box.home)))


class Links(unittest.TestCase):
    """Cases 11, 16, 17, 19: links and moves open nothing."""
    def setUp(self):
        self.box = Box()
        self.addCleanup(self.box.close)
        (self.box.home / "marker").write_text("MARKER\n")
        (self.box.home / ".ssh").mkdir()
        (self.box.home / ".ssh" / "id").write_text("MARKER\n")

    def test_planted_links_write_nowhere(self):
        """Case 11: a link planted in one session, for the start of the next."""
        out = self.box.base / "out"
        out.mkdir()
        done = self.box.sb(f"for n in .vscode .git .config .cordon; do ln -s /oldroot{out} $n; ln -s {out} {out.name}-$n; done")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.box.sb("true").returncode, 0)
        (self.box.work / "keep").symlink_to(out)
        done = self.box.run("true", folders=[self.box.work, f"{self.box.work}/keep:ro"])
        self.assertIn(done.returncode, (0, 125))
        self.assertEqual(os.listdir(out), [])

    def test_links_to_secrets_read_nothing(self):
        """Case 16."""
        home = self.box.home
        self.box.sb(f"ln -s {home}/marker l1; ln -s {home}/.ssh l2; ln -s {home}/.local/state/cordon l3; ln -s / l4")
        for _ in range(2):
            done = self.box.sb(f"ls -R l3/ l4{home}/; cat l1 l2/* l3/* l4{home}/marker")
            self.assertNotIn(b"MARKER", done.stdout)
            self.assertNotIn(b"token", done.stdout)
            self.assertEqual(done.returncode, 1)

    def test_a_folder_replaced_by_a_link_is_refused(self):
        extra = self.box.base / "extra"
        extra.mkdir()
        session = Session(self.box, folders=[extra])
        self.assertEqual(session.sb("touch ok").returncode, 0)
        session.close()
        extra.rename(self.box.base / "moved")
        extra.symlink_to(self.box.home / ".ssh")
        done = self.box.run("sh", "-c", "cat id", folders=[extra], cwd=self.box.work)
        self.assertEqual(done.returncode, 125)
        self.assertNotIn(b"MARKER", done.stdout)

    def test_a_credential_folder_that_links_into_a_grant(self):
        """Case 17: refused when granted, with the place named."""
        dot = self.box.home / "dotfiles"
        (dot / "aws").mkdir(parents=True)
        (dot / "aws" / "credentials").write_text("MARKER\n")
        (dot / "netrc").write_text("MARKER\n")
        (self.box.home / ".aws").symlink_to("dotfiles/aws")
        self.box.cordon("stop")  # the places are looked at when the daemon starts
        done = self.box.run("cat", "aws/credentials", folders=[dot], cwd=dot)
        self.assertEqual((done.returncode, done.stdout), (125, b""))
        self.assertIn(b"aws", done.stderr)

    def test_hard_links_and_moves(self):
        """Case 19: a read-only folder is not opened by renaming or linking what is in it."""
        ro = self.box.work / "ro"
        ro.mkdir()
        (ro / "f").write_text("kept\n")
        done = self.box.run("sh", "-c", "ln ro/f h; mv ro/f m; mv ro r2; echo bad >h; echo bad >ro/f; rm -rf ro; ls -A",
                            folders=[self.box.work, f"{ro}:ro"])
        self.assertEqual((ro / "f").read_text(), "kept\n")
        self.assertFalse((self.box.work / "r2").exists())
        self.assertTrue((ro / "f").exists())  # mv may have copied what may be read, and moved nothing
        self.assertIn(b"ro", done.stdout)

    def test_home_and_spellings(self):
        """A home and a folder that are reached by links work both ways."""
        real = self.box.base / "disk" / "ws"
        real.mkdir(parents=True)
        link = self.box.base / "ws"
        link.symlink_to(real)
        done = self.box.run("sh", "-c", f"touch {link}/a {real}/b && cd {link} && pwd -P && ls", folders=[link], cwd=link)
        self.assertEqual(done.stdout.decode().split(), [str(real), "a", "b"], done.stderr)


if __name__ == "__main__":
    unittest.main()
