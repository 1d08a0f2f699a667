"""What the tests of the wall share: a scratch home and workspace, and one script run three times
(bare: must succeed, walled: must fail, and the host afterwards unchanged).

A script prints REACHED when what it tries works; otherwise it raises or prints why not."""
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

BIN = os.environ.get("CORDON_BIN") or os.path.join(os.path.dirname(__file__), "../../build/debug/bin")
SOURCE = os.environ.get("CORDON_SOURCE") or os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
DRIVER = os.path.join(BIN, "wall_driver")
STOP_DRIVER = os.path.join(BIN, "stop", "wall_driver")
PYTHON = "/usr/bin/python3"
MUST_WORK = os.environ.get("WALL_MUST_WORK") == "1"
MARK = "wall-mark-5f0d1c"


def machine_has_wall():
    done = subprocess.run([DRIVER, "--check"], capture_output=True, text=True)
    return done.returncode == 0, done.stderr.strip()


HAS_WALL, WHY_NOT = machine_has_wall()


def snapshot(root):
    """Names, kinds, sizes and contents of small files below ROOT."""
    seen = {}
    for at, dirs, files in os.walk(root):
        for name in dirs + files:
            path = os.path.join(at, name)
            st = os.lstat(path)
            text = b""
            if os.path.isfile(path) and not os.path.islink(path) and st.st_size < 65536:
                with open(path, "rb") as f:
                    text = f.read()
            elif os.path.islink(path):
                text = os.readlink(path).encode("utf-8", "surrogateescape")
            seen[os.path.relpath(path, root)] = (st.st_mode, st.st_ino, text)
    return seen


def processes_with(mark):
    found = []
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if mark.encode() in f.read():
                    found.append(int(pid))
        except OSError:
            pass
    return found


def is_held(path):
    """Somebody alive holds the folder's lock: another test's session, run at the same time."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return True  # another user's, or gone this moment
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(fd)


def private_folders():
    """Private folders that nobody holds: what a session left behind."""
    return {n for n in os.listdir("/tmp") if n.startswith("cordon-") and
            len(n) == len("cordon-") + 22 and not is_held("/tmp/" + n)}


def left_folders(mark):
    """As private_folders, but for whole ones without a file MARK in their tmp: those are of a daemon that
    somebody else killed this moment."""
    def is_foreign(name):
        try:
            has = set(os.listdir("/tmp/" + name))
            return {"home", "tmp", "cache", "view"} <= has and mark not in os.listdir(f"/tmp/{name}/tmp")
        except OSError:
            return not os.path.exists("/tmp/" + name)
    return {n for n in private_folders() if not is_foreign(n)}


def wait_for(what, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.02)
    return what()


class Wall(unittest.TestCase):
    """A scratch HOME and workspace of one test."""

    def setUp(self):
        if not HAS_WALL:
            if MUST_WORK:
                self.fail("this machine cannot put up the wall: " + WHY_NOT)
            print("NOT TESTED, no wall on this machine: " + WHY_NOT, file=sys.stderr)
            self.skipTest(WHY_NOT)
        self.root = tempfile.mkdtemp(prefix="wall-test-")
        self.addCleanup(self.remove)
        self.home = os.path.join(self.root, "home")
        self.w = os.path.join(self.root, "w")
        self.state = os.path.join(self.home, ".local/state/cordon")
        os.makedirs(self.state, 0o700)
        os.mkdir(self.w)
        self.write(self.home, "secret.txt", MARK)
        self.env = {"HOME": self.home, "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8",
                    "WALL_TEST_TOKEN": MARK}

    def remove(self):
        subprocess.run(["chmod", "-R", "u+rwX", self.root], stderr=subprocess.DEVNULL)
        shutil.rmtree(self.root, ignore_errors=True)

    def write(self, *parts):
        path = os.path.join(*parts[:-1])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(parts[-1])
        return path

    def drive(self, *args, driver=DRIVER, env=None, timeout=120, **more):
        more.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run([driver, *args], capture_output=True, timeout=timeout,
                              env={**self.env, **(env or {})}, cwd="/", **more)

    def walled(self, script, *args, rw=None, ro=(), options=(), **more):
        folders = [x for d in (rw if rw is not None else [self.w]) for x in ("--rw", d)]
        folders += [x for d in ro for x in ("--ro", d)]
        return self.drive(*folders, *options, "--", PYTHON, "-c", script, *args, **more)

    def bare(self, script, *args):
        return subprocess.run([PYTHON, "-c", script, *args], capture_output=True, timeout=60,
                              env=self.env, cwd=self.w, stdin=subprocess.DEVNULL)

    def crossed(self, done):
        return b"REACHED" in done.stdout

    def try_thrice(self, script, *args, bare=True, **more):
        """BARE False: on this machine the plain user cannot either (a reason stands at the call)."""
        before = snapshot(self.root)
        if bare:
            done = self.bare(script, *args)
            self.assertTrue(self.crossed(done), f"bare, it must work: {done.stderr!r}")
            self.restore(before)
        done = self.walled(script, *args, **more)
        self.assertNotEqual(done.returncode, 125, done.stderr)
        self.assertFalse(self.crossed(done), "it crossed the wall")
        self.assertEqual(snapshot(self.root), before, "the host is not as it was")
        return done

    def restore(self, before):
        """Takes away what the bare run added."""
        for name in sorted(set(snapshot(self.root)) - set(before), reverse=True):
            path = os.path.join(self.root, name)
            os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)


def main():
    """The tests as this user, and as root once more as an ordinary one."""
    ok = unittest.main(exit=False).result.wasSuccessful()
    if os.geteuid() == 0 and "WALL_TEST_USER" not in os.environ and "WALL_ONE_PASS" not in os.environ:
        user = 61234
        home = tempfile.mkdtemp(prefix="wall-user-")
        os.chown(home, user, user)
        env = {"PATH": "/usr/bin:/bin", "HOME": home, "TMPDIR": home, "WALL_TEST_USER": "1",
               "CORDON_BIN": BIN, "CORDON_SOURCE": SOURCE, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
               "WALL_MUST_WORK": os.environ.get("WALL_MUST_WORK", "")}
        print("---- again as an ordinary user", file=sys.stderr, flush=True)
        done = subprocess.run(["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups",
                               PYTHON, os.path.abspath(sys.argv[0]), *sys.argv[1:]], env=env,
                              cwd="/")
        shutil.rmtree(home, ignore_errors=True)
        ok = ok and done.returncode == 0
    sys.exit(0 if ok else 1)
