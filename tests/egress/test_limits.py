"""The limits of a session's way out, as the daemon sets them: each is reached, and one more is told."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402

lab.enter()
from cordon_test.api import ApiTest  # noqa: E402

# Inside. Prints what the further connections were told, then what works once there is room again.
CONNECTIONS = """
import os, socket
port = int(os.environ["http_proxy"].strip("/").rsplit(":", 1)[1])
def tunnel():
    s = socket.create_connection(("127.0.0.1", port), 60)
    s.sendall(b"CONNECT ok.test:443 HTTP/1.1\\r\\n\\r\\n")
    return s, s.recv(100)[9:12].decode()
held = []
while len(held) < 1024:
    s, code = tunnel()
    held.append(s)
    assert code == "200", (len(held), code)
print(tunnel()[1])
s = socket.create_connection(("127.0.0.1", port), 60)
s.sendall(b"GET http://ok.test:8080/hello HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
print(s.recv(100)[9:12].decode())
s = socket.create_connection(("127.0.0.1", port), 60)
s.sendall(b"\\5\\1\\0\\5\\1\\0\\3\\7ok.test\\1\\xbb")
got = b""
while len(got) < 12:
    got += s.recv(100)
print(got[:4].hex(), flush=True)
open("go").read()
for s in held[::2]:
    s.sendall(b"x")
    assert s.recv(1) == b"x"
    s.close()
code = "503"
while code == "503":
    code = tunnel()[1]
print(code)
"""
# Heads of exactly so many bytes, and one more; of requests, then of responses.
HEADS = """
import os, socket
port = int(os.environ["http_proxy"].strip("/").rsplit(":", 1)[1])
def code(head):
    with socket.create_connection(("127.0.0.1", port), 60) as s:
        s.sendall(head)
        return s.recv(100)[9:12].decode()
for n in (65536, 65537):
    first, last = b"GET http://ok.test:8080/hello HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n", b"\\r\\n"
    pad = n - len(first) - len(last)
    lines = []
    while pad > 0:
        take = min(pad, 8000)
        if 0 < pad - take < 6:
            take -= 6
        lines.append(b"X: " + b"y" * (take - 5) + b"\\r\\n")
        pad -= take
    head = first + b"".join(lines) + last
    assert len(head) == n
    print(code(head))
"""


class Limits(ApiTest):
    def python(self, s, text, **more):
        return self.start(s, argv=["/usr/bin/python3", "-c", text], **more)

    def writer(self, fifo, command):
        """Once the command reads FIFO; it must not have ended instead."""
        fds = []

        def opens():
            c = self.c.call("GET", self.at(command))
            self.assertIn(c["state"], ("queued", "starting", "running"), c)
            try:
                fds.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                pass
            return fds

        lab.wait_for(opens, "the command reads", 120)
        return open(fds[0], "w")

    def test_connections_heads_and_the_dial(self):
        s = self.session(sites=[{"host": "ok.test", "port": 443}, {"host": "ok.test", "port": 8080}])
        other = self.session(sites=[{"host": "ok.test", "port": 8080}, {"host": "hole.test", "port": 8080}])
        go = os.path.join(self.work, "go")
        os.mkfifo(go)
        dial = self.start(other, "curl -sS -m 60 http://hole.test:8080/")
        c = self.wait_end(self.python(s, HEADS))
        self.assertEqual(c["text"]["stdout"], "200\n400\n", c)
        full = self.python(s, CONNECTIONS, cwd=self.work)
        with self.writer(go, full):  # it is full now, and told so; the other session has its own
            c = self.run_in(other, "curl -sS http://ok.test:8080/hello")
            self.assertIn("hello from ", c["text"]["stdout"])
        c = self.wait_end(full)
        self.assertEqual(c["text"]["stdout"], "503\n503\n05000501\n200\n", c)
        self.assertIn("no connection within 10000 ms", self.wait_end(dial)["text"]["stdout"])


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
