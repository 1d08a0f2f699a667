"""git as it is, behind the wall: no ghost files before, during or after (cases 1, 2, 4, 7, 8)."""
import os
import subprocess
import unittest

from box import Box, BoxCase, Session, need

NAMED = ("-c user.name=t -c user.email=t@example.com -c init.defaultBranch=main "
         "-c protocol.file.allow=always").split()


def git(folder, *args):
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", *NAMED, "-C", folder, *args], check=True, capture_output=True, env=env).stdout.decode()


SETTINGS = ("[user]\n name = t\n email = t@example.com\n[init]\n defaultBranch = main\n"
            "[protocol \"file\"]\n allow = always\n")


class Git(BoxCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.session.close()
        (cls.box.home / ".gitconfig").write_text(SETTINGS)
        (cls.box.home / ".config" / "git").mkdir(parents=True)
        (cls.box.home / ".config" / "git" / "ignore").write_text("*.ignored\n")
        (cls.box.home / ".config" / "git" / "credentials").write_text("https://u:SECRET@example.com\n")
        cls.session = Session(cls.box)

    def setUp(self):
        need(self, "git")
        super().setUp()

    def test_init_commit_branch_log(self):
        self.inside("git init -q r; cd r; echo a >f; git add f; git commit -qm one; git switch -qc b;"
                    "echo b >>f; git commit -qam two; git switch -q main; git merge -q b;"
                    "test $(git log --oneline | wc -l) = 2; git gc -q; git fsck --strict")
        self.assertEqual(git(self.dir / "r", "log", "--format=%s").split(), ["two", "one"])
        self.assertEqual(git(self.dir / "r", "status", "--porcelain"), "")

    def test_clone_worktree_submodule_in_the_folder(self):
        self.inside("git init -q m; git -C m commit -q --allow-empty -m x; git clone -q m c;"
                    "git -C m worktree add -q ../wt -b t; cd wt; echo a >f; git add f; git commit -qm c;"
                    "git log --oneline; cd ..; git init -q s; cd s; git submodule --quiet add ../m sub;"
                    "git commit -qm sub; git -C sub commit -q --allow-empty -m inner; git submodule status")
        self.assertTrue((self.dir / "s" / "sub" / ".git").is_file())

    def test_push_to_a_bare_repository_records_the_upstream(self):
        """Case 7: config is written by lock and rename."""
        out = self.inside("git init -q --bare b.git; git clone -q b.git w 2>/dev/null; cd w;"
                          "git commit -q --allow-empty -m x; git push -q -u origin HEAD;"
                          "git config --get branch.$(git branch --show-current).remote")
        self.assertEqual(out, "origin\n")
        self.assertFalse(list(self.dir.rglob("*.lock")))

    def test_lock_files_are_free_for_the_host(self):
        """Case 2."""
        git(self.box.work, "init", "-q", str(self.dir / "r"))
        git(self.dir / "r", "commit", "-q", "--allow-empty", "-m", "x")
        git(self.dir / "r", "worktree", "add", "-q", "../wt")
        self.inside("true")
        self.assertEqual(list(self.dir.rglob("*.lock")), [])
        git(self.dir / "r", "config", "a.b", "c")

    def test_init_as_the_first_command(self):
        """Case 4: the folder is no repository yet."""
        done = self.box.run("sh", "-ec", "git init -q && git commit -q --allow-empty -m x", folders=[self.dir], cwd=self.dir)
        self.ok(done)
        self.assertEqual(git(self.dir, "log", "--format=%s"), "x\n")

    def test_nested_repositories(self):
        """Case 8: hooks' samples are copied, clones into subfolders work."""
        self.inside("git init -q repo; git -C repo commit -q --allow-empty -m x; mkdir sub; cd sub;"
                    "git init -q; git clone -q ../repo c; ls .git/hooks/*.sample >/dev/null")

    def test_settings_are_read_and_logins_are_not(self):
        out = self.inside("git config user.email; ls ~/.config/git; cat ~/.config/git/credentials 2>&1 || true;"
                          "touch x.ignored; git init -q; git status --porcelain")
        self.assertIn("t@example.com", out)
        self.assertIn("ignore", out)
        self.assertNotIn("SECRET", out)
        self.assertNotIn("x.ignored", out)

    def test_settings_cannot_be_written(self):
        self.session.run("sh", "-c", "git config --global user.email evil@example.com; echo x >>~/.gitconfig",
                         cwd=self.dir)
        self.assertEqual((self.box.home / ".gitconfig").read_text(), SETTINGS)

    def test_prompts_fail_fast(self):
        self.inside("timeout 10 git -c credential.helper= ls-remote https://no.invalid/r </dev/null || test $? != 124")


class NothingIsLeft(unittest.TestCase):
    """Case 1: no path appears in the folder, however the session ends."""
    def test_no_ghost_files(self):
        need(self, "git")
        box = Box()
        self.addCleanup(box.close)
        git(box.work, "init", "-q")
        git(box.work, "commit", "-q", "--allow-empty", "-m", "x")

        def seen():
            status = git(box.work, "--no-optional-locks", "status", "--porcelain")
            names = []
            for folder, dirs, files in os.walk(box.work):
                names += [(os.path.join(folder, n), os.lstat(os.path.join(folder, n)).st_mtime_ns)
                          for n in dirs + files]
            return sorted(names), os.lstat(box.work).st_mtime_ns, status
        before = seen()
        self.assertEqual(box.sb("true").returncode, 0)
        self.assertEqual(box.sb("exit 3").returncode, 3)
        self.assertEqual(box.sb("kill -9 $$").returncode, 137)
        self.assertEqual(seen(), before)


if __name__ == "__main__":
    unittest.main()
