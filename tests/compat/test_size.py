"""Starting does not depend on how much there is to hold (case 26): no walk of a tree, no argument a
file. Shown by what the programs read, not by the clock: a folder that was listed has a new atime
where the file system keeps it, and inotify tells of every opening."""
import ctypes
import os
import struct
import subprocess
import unittest

from box import Box

IN_OPEN = 0x20
IN_NONBLOCK = 0x800
FILES = int(os.environ.get("CORDON_TEST_FILES", "300000"))


class Watch:
    """Openings of some folders, seen by inotify."""
    def __init__(self, paths):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(IN_NONBLOCK)
        self.paths = {self.libc.inotify_add_watch(self.fd, os.fsencode(p), IN_OPEN): p for p in paths}

    def seen(self):
        found = []
        while True:
            try:
                data = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return found
            at = 0
            while at < len(data):
                wd, _, _, n = struct.unpack_from("iIII", data, at)
                name = data[at + 16:at + 16 + n].rstrip(b"\0").decode()
                found.append((str(self.paths.get(wd)), name))
                at += 16 + n


class Size(unittest.TestCase):
    def test_a_folder_of_many_files(self):
        box = Box()
        self.addCleanup(box.close)
        self.assertEqual(box.sb("true").returncode, 0)
        per = 1000
        for d in range(max(1, FILES // per)):
            folder = box.work / f"d{d}"
            folder.mkdir()
            fd = os.open(folder, os.O_RDONLY)
            for i in range(per):
                os.close(os.open(f"f{i}", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd))
            os.close(fd)
        watch = Watch([box.work / "d0", box.work / f"d{max(1, FILES // per) // 2}"])
        done = box.sb("echo hi")
        self.assertEqual((done.returncode, done.stdout), (0, b"hi\n"), done.stderr)
        self.assertEqual(watch.seen(), [], "a folder below the granted one was looked into")
        done = box.sb("ls d0 | wc -l")
        self.assertEqual(done.stdout.strip(), str(per).encode())
        self.assertTrue(watch.seen(), "the watch itself sees nothing")
        subprocess.run(["rm", "-rf", box.work], check=True)
        box.work.mkdir()

    def test_the_rules_do_not_grow_with_the_files(self):
        box = Box()
        self.addCleanup(box.close)

        def rendered():
            made = box.cordon("session", "new", "-f", box.work)
            self.assertEqual(made.returncode, 0, made.stderr)
            session = made.stdout.decode().strip()
            texts = [box.cordon("policy", session, "--render", form).stdout for form in ("bwrap", "landlock")]
            box.cordon("session", "stop", session)
            return [len(t.splitlines()) for t in texts]
        before = rendered()
        for i in range(300):
            (box.work / f"wt{i}").mkdir()
            (box.work / f"wt{i}" / ".git").write_text("gitdir: /elsewhere\n")
        self.assertEqual(rendered(), before)
        self.assertGreater(min(before), 10)

    def test_a_large_environment(self):
        box = Box()
        self.addCleanup(box.close)
        done = box.run("sh", "-c", "echo ${#BIG}", options=["-e", "BIG=" + "v" * (100 << 10)])
        self.assertEqual(done.stdout.strip(), str(100 << 10).encode(), done.stderr)


if __name__ == "__main__":
    unittest.main()
