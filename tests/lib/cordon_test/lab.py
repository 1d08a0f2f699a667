"""The lab for tests: a test program that calls lab.enter() first runs inside tests/lab/lab.

    from cordon_test import lab
    lab.enter()                       # starts this program again inside, and does not come back
    ...
    mark = lab.mark()
    ...
    lab.reached(mark, at="203.0.113.10")   # connections that the far servers logged since
    lab.asked(mark)                        # names that the far name server was asked for since
"""
import json
import os
import socket
import sys
import time

SOURCE = os.environ.get("CORDON_SOURCE") or os.path.realpath(
    os.path.join(os.path.dirname(__file__), "..", "..", ".."))
OK4, OK6, NO4 = "203.0.113.10", "2001:db8::10", "203.0.113.11"


def enter():
    """A lab that cannot be made is a failure, never a skip."""
    if "LAB_DIR" in os.environ:
        return
    lab = os.path.join(SOURCE, "tests", "lab", "lab")
    sys.stdout.flush()
    os.execv(lab, [lab, "--", sys.executable, *sys.argv])


def _lines(name):
    with open(os.path.join(os.environ["LAB_DIR"], name)) as f:
        return [json.loads(line) for line in f if line.endswith("\n")]


def mark():
    return len(_lines("connections.jsonl")), len(_lines("dns.jsonl"))


def quiet_mark():
    """A mark once nothing more comes of what went before."""
    while True:
        before = mark()
        time.sleep(0.03)
        if mark() == before:
            return before


def lines(since):
    return _lines("connections.jsonl")[since[0]:]


def reached(since, **wanted):
    """Connections (not the requests on them) whose members are as wanted."""
    return [line for line in lines(since) if "from" in line
            and all(line.get(key) == value for key, value in wanted.items())]


def requests(since, **wanted):
    return [line for line in lines(since) if "request" in line
            and all(line.get(key) == value for key, value in wanted.items())]


def asked(since):
    return [line["name"] for line in _lines("dns.jsonl")[since[1]:]]


def wait_for(claim, what, seconds=10):
    end = time.monotonic() + seconds
    while not claim():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


class Far:
    """A program that runs in the far namespace while this is open."""

    def __init__(self, argv, **env):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.path.join(os.environ["LAB_DIR"], "far.sock"))
        self.sock.sendall(json.dumps({"run": argv, "env": env}).encode() + b"\n")
        self.pid = json.loads(self.sock.makefile("r").readline())["pid"]

    def close(self):
        self.sock.shutdown(socket.SHUT_WR)
        self.sock.recv(1)
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def far_listens(port, at="203.0.113.254", seconds=10):
    """Waits until something answers there."""
    def tries():
        try:
            socket.create_connection((at, port), 1).close()
            return True
        except OSError:
            return False
    wait_for(tries, f"a far server on {port}", seconds)
