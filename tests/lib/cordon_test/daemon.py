"""A daemon of its own for a test: its own home, folders and port; it leaves nothing.

    with Daemon() as d:
        Client(d).call("GET", "/v1/health")
        d.kill()          # SIGKILL
        d.start()         # the same state folder again
"""
import os
import random
import selectors
import signal
import socket
import subprocess
import time

from .cli import BIN, Home, is_alive, wait_for
from .client import Client

START_S = 60


def free_port():
    """A port that is free on both loopback addresses, and none of those that the kernel gives to
    clients. Somebody may take it before we do: Daemon.start then tries another."""
    while True:
        port = random.randint(10000, 30000)
        with socket.socket() as a:
            try:
                a.bind(("127.0.0.1", port))
            except OSError:
                continue
            if not socket.has_ipv6:
                return port
            try:
                with socket.socket(socket.AF_INET6) as b:
                    b.bind(("::1", port))
            except OSError as e:
                if e.errno in (97, 99):  # EAFNOSUPPORT, EADDRNOTAVAIL: no IPv6 here
                    return port
                continue
            return port


class Daemon(Home):
    """As Home, with `cordond` as a child: `cordon` in it finds this daemon."""

    def __init__(self, start=True, bin=BIN, wrap=(), **env):
        """WRAP: words before cordond; they must exec it."""
        super().__init__(**env)
        self.bin, self.wrap = bin, list(wrap)
        self.process = None
        self.expected = ()  # texts of errors in the log that the test brings about
        self.log_path = self.base + "/cordond.err"
        if start:
            self.start()

    # ---- Life --------------------------------------------------------------------------------------

    def start(self, port=None, **env):
        """Returns when it answers; no sleeping: it says so on a pipe."""
        assert self.process is None, "it runs"
        for _ in range(10):
            self.port = port or free_port()
            line = self.start_once(env)
            if line == "ready":
                return self
            self.process.wait(START_S)
            self.process = None
            if port or "port" not in line:
                break
        raise AssertionError(f"cordond did not start: {line!r}\n{self.log()[-3000:]}")

    def start_once(self, env):
        r, w = os.pipe()
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [*self.wrap, os.path.join(self.bin, "cordond"), "--foreground", "--port", str(self.port), "--ready-fd",
                 str(w)],
                cwd="/", env={**self.env, **env}, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(w,))
        os.close(w)
        text, end = b"", time.monotonic() + START_S
        with selectors.DefaultSelector() as s, open(r, "rb", buffering=0) as f:
            s.register(f, selectors.EVENT_READ)
            while s.select(max(0, end - time.monotonic())):
                got = f.read(4096)
                if not got:
                    break
                text += got
        return text.decode().strip()

    @property
    def pid(self):
        return self.process.pid

    @property
    def socket(self):
        return self.server()["socket"]

    @property
    def token(self):
        with open(self.state + "/token") as f:
            return f.read().strip()

    def client(self, **kw):
        return Client(self, **kw)

    def log(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    def tree(self):
        """pids of the daemon's children and theirs."""
        found, todo = [], [self.pid]
        while todo:
            at = todo.pop()
            try:
                tasks = os.listdir(f"/proc/{at}/task")
            except OSError:
                continue
            for task in tasks:
                try:
                    with open(f"/proc/{at}/task/{task}/children") as f:
                        more = [int(x) for x in f.read().split()]
                except OSError:
                    continue
                found += more
                todo += more
        return found

    def private_folders(self):
        """The folders in /tmp that this daemon's sessions hold."""
        found = set()
        for fd in os.listdir(f"/proc/{self.pid}/fd"):
            try:
                path = os.readlink(f"/proc/{self.pid}/fd/{fd}")
            except OSError:
                continue
            if path.startswith("/tmp/cordon-") and len(path) == len("/tmp/cordon-") + 22:
                found.add(path)
        return found

    def kill(self):
        """SIGKILL; the processes of its sessions die with it, their folders stay for the next start."""
        tree = self.tree()
        self.process.kill()
        self.process.wait()
        self.process = None
        wait_for(lambda: not [p for p in tree if is_alive(p)], "the sessions to die", 30)

    def stop(self):
        """SIGTERM: it ends by itself with 0, and nothing of it is left."""
        tree, folders, socket_path = self.tree(), self.private_folders(), self.socket
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(START_S)
        self.process = None
        assert code == 0, f"cordond ended with {code}\n{self.log()[-6000:]}"
        wait_for(lambda: not [p for p in tree if is_alive(p)], "the sessions to end", 30)
        left = [p for p in (*folders, socket_path, self.state + "/server.json") if os.path.lexists(p)]
        assert not left, left
        self.check_log()

    def check_log(self):
        bad = [line for line in self.log().splitlines()
               if ("Sanitizer" in line or "runtime error:" in line or " cordond error " in line)
               and not any(text in line for text in self.expected)]
        assert not bad, bad[:20]

    def close(self):
        try:
            if self.process is not None and self.process.poll() is None:
                self.stop()
            elif self.process is not None:
                raise AssertionError(f"cordond died: {self.process.returncode}\n{self.log()[-6000:]}")
        finally:
            if self.process is not None and self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.process = None
            super().close()  # nothing runs: only the folders go
