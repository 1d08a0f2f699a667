"""The lab for tests: a test program that calls lab.enter() first runs inside tests/lab/lab.

    from cordon_test import lab
    lab.enter()                       # starts this program again inside, and does not come back
    ...
    mark = lab.mark()
    ...
    lab.reached(mark, at="203.0.113.10")   # connections that the far servers logged since
    lab.asked(mark)                        # names that the far name server was asked for since

The far side logs in the order in which it accepts. So lab.mark() knocks on each of its ports first:
once these knocks are logged, all that came before them is.
"""
import json
import os
import socket
import struct
import sys
import time
import unittest

SOURCE = os.environ.get("CORDON_SOURCE") or os.path.realpath(
    os.path.join(os.path.dirname(__file__), "..", "..", ".."))
OK4, OK6, NO4, NO6 = "203.0.113.10", "2001:db8::10", "203.0.113.11", "2001:db8::11"
KNOCKED, KNOCK_NAME = "203.0.113.99", "knock.lab"
PORTS = (80, 8080, 443, *range(9001, 9011))


def enter(etc=False):
    """A lab that cannot be made is a failure, never a skip. ETC: with an /etc of its own."""
    if "LAB_DIR" in os.environ:
        return
    lab = os.path.join(SOURCE, "tests", "lab", "lab")
    sys.stdout.flush()
    os.execv(lab, [lab, *(["--etc"] if etc else []), "--", sys.executable, *sys.argv])


def _lines(name):
    with open(os.path.join(os.environ["LAB_DIR"], name)) as f:
        return [json.loads(line) for line in f if line.endswith("\n")]


def _knock_is_logged(connections, names):
    ports = {line["port"] for line in _lines("connections.jsonl")[connections:]
             if line.get("at") == KNOCKED and "from" in line}
    return ports.issuperset(PORTS) and \
        any(line["name"] == KNOCK_NAME for line in _lines("dns.jsonl")[names:])


def mark():
    """Where the far logs are, once all is in them that reached the far side before."""
    connections, names = len(_lines("connections.jsonl")), len(_lines("dns.jsonl"))
    for port in PORTS:
        socket.create_connection((KNOCKED, port), 10).close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(10)
        question = b"".join(bytes([len(x)]) + x.encode() for x in KNOCK_NAME.split("."))
        s.sendto(struct.pack(">HHHHHH", 1, 0x100, 1, 0, 0, 0) + question + b"\0\0\1\0\1",
                 ("203.0.113.53", 53))
        s.recv(512)
    wait_for(lambda: _knock_is_logged(connections, names), "the knocks in the far log", 30)
    last = max(line["n"] for line in _lines("connections.jsonl"))
    return last, len(_lines("dns.jsonl"))


def lines(since):
    """What was logged of connections that were made since; knocks are left out."""
    return [line for line in _lines("connections.jsonl")
            if line["n"] > since[0] and line["at"] != KNOCKED]


def reached(since, **wanted):
    """Connections (not the requests on them) whose members are as wanted."""
    return [line for line in lines(since) if "from" in line
            and all(line.get(key) == value for key, value in wanted.items())]


def requests(since, **wanted):
    return [line for line in lines(since) if "request" in line
            and all(line.get(key) == value for key, value in wanted.items())]


def asked(since):
    return [line["name"] for line in _lines("dns.jsonl")[since[1]:] if line["name"] != KNOCK_NAME]


def served():
    """Requests to the real services of tests/lab/services.py."""
    return _lines("services.jsonl")


class Case(unittest.TestCase):
    """self.mark is where the far logs were when the test began."""

    def setUp(self):
        self.mark = mark()

    def reached(self, **wanted):
        mark()
        return reached(self.mark, **wanted)

    def asked(self):
        mark()
        return asked(self.mark)

    def nothing_happened(self):
        mark()
        self.assertEqual(lines(self.mark), [])
        self.assertEqual(asked(self.mark), [])


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
