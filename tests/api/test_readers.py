"""Much output, many readers, one that stops reading, clients that vanish: the same bytes for all, in flat
memory, with nothing held afterwards. Under CORDON_LONG it is 1 GiB."""
import hashlib
import json
import os
import selectors
import socket
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest
from cordon_test.cli import SANITIZE, wait_for

MIB = 1024 if os.environ.get("CORDON_LONG") else 64
READERS = 20
LINE = b"the quick brown fox 0123456789 \\ \" end\n"
# What the daemon's memory may grow by, whatever is read: buffers of 21 connections, caches of SQLite.
GROWTH_KIB = 48 << 10


def memory_kib(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class Reader:
    """One follower of raw bytes or of frames: a digest of what came, and how much."""

    def __init__(self, client, path, kind):
        self.kind, self.size, self.sum = kind, 0, hashlib.sha256()
        self.stream = client.stream("GET", path, {"Accept": kind})
        assert self.stream.status == 200, self.stream.status
        self.rest = b""

    def read(self):
        """False at the end."""
        got = self.stream.response.read1(1 << 20)
        self.size += len(got)
        self.sum.update(got)
        self.rest = (self.rest + got)[-4000:]
        return bool(got)


class Readers(ApiTest):
    def big(self, s):
        """A command that waits for a line, then writes MIB of text."""
        script = f"read go; yes '{LINE.decode()[:-1]}' | head -c {MIB << 20}"
        return self.start(s, script, stdin="pipe", max_output_bytes=1 << 30)

    def go(self, c):
        self.c.call("POST", self.at(c) + "/stdin?offset=0&close=1", b"go\n", headers={
            "Content-Type": "application/octet-stream"})

    def expected(self):
        sum, left, block = hashlib.sha256(), MIB << 20, LINE * 10000
        while left:
            sum.update(block[:left])
            left -= min(left, len(block))
        return sum.hexdigest()

    def test_the_same_bytes_for_all_in_flat_memory(self):
        s = self.session()
        patient = self.c.other()
        patient.timeout = 300  # of a loaded machine
        c = self.big(s)
        before = memory_kib(self.d.pid)
        path = self.at(c) + "/output?follow=1"
        raw = [Reader(patient, path + "&stream=stdout", "application/octet-stream") for _ in range(READERS // 2)]
        framed = [Reader(patient, path, "application/x-ndjson") for _ in range(READERS // 2)]
        stopped = Reader(patient, path + "&stream=stdout", "application/octet-stream")
        self.go(c)
        most = before
        with selectors.DefaultSelector() as sel:
            for r in raw + framed:
                sel.register(r.stream.sock, selectors.EVENT_READ, r)
            while sel.get_map():
                for key, _ in sel.select(300) or self.fail("nothing comes"):
                    if not key.data.read():
                        sel.unregister(key.fileobj)
                most = max(most, memory_kib(self.d.pid))
        want = self.expected()
        self.assertEqual({(r.size, r.sum.hexdigest()) for r in raw}, {(MIB << 20, want)})
        self.assertEqual(len({(r.size, r.sum.hexdigest()) for r in framed}), 1)
        end = json.loads(framed[0].rest.splitlines()[-1])
        self.assertEqual((end["kind"], end["state"], end["result"]["exit_code"]), ("end", "exited", 0))
        while stopped.read():  # who stopped for all that time has lost nothing
            pass
        self.assertEqual((stopped.size, stopped.sum.hexdigest()), (MIB << 20, want))
        late = Reader(patient, path + "&stream=stdout", "application/octet-stream")
        while late.read():
            pass
        self.assertEqual(late.sum.hexdigest(), want)
        for r in raw + framed + [stopped, late]:
            r.stream.close()
        if not SANITIZE:
            self.assertLess(most - before, GROWTH_KIB, f"{before} KiB before, {most} KiB at most")

    def vanish(self, i, s, c):
        """A client that goes away in one of many moments, once politely, once with a reset."""
        agent = self.c if i % 2 else self.tcp
        at = f"/v1/sessions/{s['id']}"
        body = json.dumps({"shell": "sleep 5", "wait_ms": 60000, "on_disconnect": "kill"}).encode()
        kind = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        moments = [
            agent.head("GET", self.at(c) + "/output?follow=1", None, {}),
            agent.head("GET", self.at(c) + "?wait_ms=60000", None, {}),
            agent.head("GET", self.at(c) + "/output?after=0&wait_ms=60000", None, {"Accept": "application/json"}),
            agent.head("POST", at + "/commands", None, kind) + body,
            agent.head("POST", at + "/commands", None, kind) + body[:20],
            agent.head("PUT", at + f"/files/content?path={self.work}/never", None, {"Content-Length": "9000000"})
            + b"x" * 100000,
            agent.head("POST", at + "/files/search", None, {**kind, "Content-Length": "15"}) + b'{"pattern":"a"}',
            agent.head("GET", "/v1/audit/verify", None, {}),
            agent.head("GET", "/v1/sessions", None, {})[:40],
            agent.head("GET", "/v1/openapi.json", None, {}) * 20,
            b"",
        ]
        sock = agent.connect()
        try:
            sock.sendall(moments[i % len(moments)])
            if i % 3 == 0:
                sock.recv(100) if i % len(moments) in (0, 9) else None
            if i % 5 == 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        except OSError:
            pass
        sock.close()

    def test_clients_vanish(self):
        s = self.session()
        c = self.start(s, "while :; do echo x; sleep 0.01; done")
        self.c.call("GET", "/v1/health")
        before = descriptors(self.d.pid)
        workers = [threading.Thread(target=lambda k=k: [self.vanish(i, s, c) for i in range(k, 440, 8)])
                   for k in range(8)]
        [w.start() for w in workers]
        [w.join() for w in workers]
        self.assertEqual(self.c.call("GET", "/v1/health")["status"], "ok")
        self.c.call("POST", self.at(c) + "/signal", {"signal": "KILL"})
        wait_for(lambda: all(x["state"] not in ("running", "starting", "queued") for x in
                             self.c.items(f"/v1/sessions/{s['id']}/commands")), "the commands of the vanished", 60)
        wait_for(lambda: descriptors(self.d.pid) <= before, "their descriptors to be closed", 120)
        self.assertFalse(os.path.exists(self.work + "/never"))
        self.assertEqual(self.run_in(s, "echo still here")["text"]["stdout"], "still here\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
