"""A machine of a test's own: a home, XDG folders and a workspace below a temporary folder, and the
built `cordon` in them. `sb` runs a shell line in a fresh session, as `cordon run -f W -- sh -c LINE`;
`Session` keeps one for many commands."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

BIN = Path(os.environ["CORDON_BIN"])
SOURCE = Path(os.environ["CORDON_SOURCE"])
DEADLINE = 120


def need(case, *programs):
    """Programs of the system: one that is missing fails where the wall must work, else it is said."""
    missing = [p for p in programs if not any((Path(d) / p).exists() for d in ("/usr/bin", "/bin", "/usr/sbin"))]
    if missing and os.environ.get("WALL_MUST_WORK") == "1":
        case.fail(f"not installed: {', '.join(missing)}")
    if missing:
        case.skipTest(f"not installed: {', '.join(missing)}")


class Box:
    def __init__(self, base=None):
        self.base = Path(tempfile.mkdtemp(prefix="cordon-compat-", dir=base))
        self.home = self.base / "home"
        self.work = self.base / "work"
        self.runtime = self.base / "run"
        for folder in (self.home, self.work, self.runtime):
            folder.mkdir(mode=0o700)
        self.env = {"HOME": str(self.home), "XDG_RUNTIME_DIR": str(self.runtime), "PATH": os.environ["PATH"],
                    "LANG": "C.UTF-8", "TERM": "dumb", "TZ": "UTC"}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                self.env[name] = os.environ[name]

    def cordon(self, *args, cwd=None, env=None, input=None, timeout=DEADLINE):
        return subprocess.run([BIN / "cordon", *map(os.fspath, args)], cwd=cwd or self.work, env=env or self.env,
                              stdin=subprocess.DEVNULL if input is None else None, input=input,
                              capture_output=True, timeout=timeout)

    def run(self, *argv, folders=None, options=(), **more):
        grants = []
        for folder in folders if folders is not None else [self.work]:
            grants += ["-f", folder]
        return self.cordon("run", *grants, *options, "--", *argv, **more)

    def sb(self, line, **more):
        return self.run("sh", "-c", line, **more)

    def close(self):
        try:
            self.cordon("stop", timeout=30)
        finally:
            for folder, _, _ in os.walk(self.base):
                os.chmod(folder, 0o700)
            shutil.rmtree(self.base, ignore_errors=True)


class Session:
    def __init__(self, box, folders=None, options=()):
        self.box = box
        grants = []
        for folder in folders if folders is not None else [box.work]:
            grants += ["-f", os.fspath(folder)]
        made = box.cordon("session", "new", *grants, *options)
        assert made.returncode == 0, made.stderr.decode(errors="replace")
        self.id = made.stdout.decode().strip()

    def run(self, *argv, cwd=None, options=(), **more):
        where = ["-C", os.fspath(cwd)] if cwd else []
        return self.box.cordon("exec", self.id, *where, *options, "--", *argv, **more)

    def sb(self, line, **more):
        return self.run("sh", "-c", line, **more)

    def close(self):
        self.box.cordon("session", "stop", self.id)


class BoxCase(unittest.TestCase):
    """One box a class, one session (of the workspace) a class; each test its own folder in it."""
    @classmethod
    def setUpClass(cls):
        cls.box = Box()
        cls.addClassCleanup(cls.box.close)
        cls.session = Session(cls.box)

    def setUp(self):
        self.dir = self.box.work / self._testMethodName
        self.dir.mkdir()

    def ok(self, done, want=0):
        self.assertEqual(done.returncode, want,
                         f"\n--- stdout\n{done.stdout.decode(errors='replace')[-3000:]}"
                         f"\n--- stderr\n{done.stderr.decode(errors='replace')[-3000:]}")
        return done.stdout.decode(errors="surrogateescape")

    def inside(self, line, want=0, **more):
        """A shell line in the class's session, in the test's own folder; what it printed."""
        return self.ok(self.session.run("sh", "-ec", line, cwd=self.dir, **more), want)
