"""The command line under test: a home of its own, a work folder, and `cordon` run in it.

    with Home() as h:
        r = h.cordon("run", "--", "true")     # r.code, r.out, r.err (bytes)
"""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request

BIN = os.environ.get("CORDON_BIN", "")
SOURCE = os.environ.get("CORDON_SOURCE", "")
SANITIZE = os.environ.get("CORDON_SANITIZE", "")


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __repr__(self):
        return f"exit {self.code}\nout: {self.out[-2000:]!r}\nerr: {self.err[-2000:]!r}"


class Home:
    """A person's home, apart from everybody else's. The daemon that `cordon` starts in it is
    stopped at the end, and must leave nothing alive."""

    def __init__(self, home=None, run=None, **env):
        self.base = tempfile.mkdtemp(prefix="tests-of-cordon-", dir=os.environ.get("TESTS_BASE", "/tmp"))
        self.home = home or self.base + "/home"
        self.work = self.base + "/work"
        self.run_dir = run or self.base + "/run"
        for d in (self.home, self.work, self.run_dir):
            os.makedirs(d, 0o700, exist_ok=True)
        keep = {k: v for k, v in os.environ.items()
                if k in ("PATH", "LANG", "LC_ALL", "USER", "LOGNAME", "TERM")
                or k.startswith(("ASAN_", "UBSAN_", "LSAN_"))}
        self.env = {**keep, "HOME": self.home, "XDG_RUNTIME_DIR": self.run_dir, **env}
        self.state = self.home + "/.local/state/cordon"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def argv(self, *args):
        return [os.path.join(BIN, "cordon"), *args]

    def start(self, *args, stdin=subprocess.DEVNULL, cwd=None, env=None, **kw):
        kw.setdefault("stdout", subprocess.PIPE)
        kw.setdefault("stderr", subprocess.PIPE)
        e = {**self.env, **(env or {})}
        e = {k: v for k, v in e.items() if v is not None}
        return subprocess.Popen(self.argv(*args), stdin=stdin, cwd=cwd or self.work, env=e, **kw)

    def cordon(self, *args, input=None, timeout=60, **kw):
        p = Home.start(self, *args, stdin=subprocess.DEVNULL if input is None else subprocess.PIPE, **kw)
        try:
            out, err = p.communicate(input, timeout)
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
            raise AssertionError(f"cordon {args} did not end: {out[-500:]!r} {err[-500:]!r}")
        return Result(p.returncode, out or b"", err or b"")

    def sh(self, script, *options, **kw):
        return self.cordon("run", *options, "--", "sh", "-c", script, **kw)

    def json(self, *args, **kw):
        r = self.cordon(*args, **kw)
        assert r.code == 0, r
        return json.loads(r.out)

    def post(self, path, body, want=201):
        """Over REST, with the owner's token."""
        with open(self.state + "/token") as f:
            token = f.read().strip()
        rq = urllib.request.Request(self.server()["url"] + path, json.dumps(body).encode(),
                                    {"Authorization": "Bearer " + token, "Content-Type": "application/json"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(rq, timeout=60) as answer:
            assert answer.status == want, answer.status
            return json.load(answer)

    def server(self):
        with open(self.state + "/server.json") as f:
            return json.load(f)

    def log(self):
        try:
            with open(self.state + "/cordond.log", errors="replace") as f:
                return f.read()
        except OSError:
            return ""

    def kill_daemon(self):
        pid = self.server()["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not is_alive(pid), "the daemon to die")
        return pid

    def close(self):
        if os.path.exists(self.state + "/server.json"):
            r = self.cordon("stop", timeout=60)
            if r.code != 0:
                print("stop:", r)
                print(self.log()[-3000:])
        shutil.rmtree(self.base, ignore_errors=True)


def is_alive(pid):
    """A process that runs: a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def wait_for(claim, what, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if claim():
            return
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds} s for {what}")


def processes_with(mark):
    """pids whose command line or environment holds MARK (bytes)."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                text = f.read()
            if mark in text and int(pid) != os.getpid() and is_alive(pid):
                found.append(int(pid))
        except OSError:
            pass
    return found
