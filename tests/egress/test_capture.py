"""No question about a name leaves that is not allowed, and no packet that was not asked for: by what
comes over the wire to the far side, whatever a program inside tries.
"""
import os
import shlex
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402

lab.enter()
from cordon_test.api import ApiTest  # noqa: E402

TCP, UDP = 6, 17
CAPTURE = os.path.join(lab.SOURCE, "tests", "lab", "capture.py")

# Every way to say a name: to the name server inside, to others by UDP and by TCP, to the doors.
LEAK = """
import socket, ssl, struct
def quietly(call, *args, **kw):
    try:
        return call(*args, **kw)
    except (OSError, EOFError):
        return b""
def question(name):
    return b"\\1\\2\\1\\0\\0\\1" + bytes(6) + b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + \
        b"\\0\\0\\1\\0\\1"
def datagram(family, at, name):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.settimeout(2)
        s.connect((at, 53))
        s.send(question(name))
        return s.recv(600)
def stream(at, port, say):
    with socket.create_connection((at, port), 5) as s:
        s.sendall(say)
        return s.recv(600)
quietly(socket.getaddrinfo, "leak-1.no.test", 80)
quietly(socket.gethostbyaddr, "203.0.113.77")
for n, at in enumerate(("127.0.0.1", "1.1.1.1", "203.0.113.53", "198.18.0.1")):
    quietly(datagram, socket.AF_INET, at, f"leak-2{n}.no.test")
    quietly(stream, at, 53, struct.pack(">H", 40) + question(f"leak-3{n}.no.test"))
quietly(datagram, socket.AF_INET6, "2001:4860:4860::8888", "leak-4.no.test")
door = ("127.0.0.1", DOOR)
for n, say in enumerate((b"CONNECT %s:443", b"GET http://%s/", b"GET http://%s:9999/")):
    quietly(stream, *door, say % (b"leak-5%d.no.test" % n) + b" HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
quietly(stream, *door, b"\\4\\1\\0\\x50\\0\\0\\0\\1u\\0leak-6.no.test\\0")
with socket.create_connection(door, 5) as s:
    s.sendall(b"\\5\\1\\0")
    if s.recv(2) == b"\\5\\0":
        s.sendall(b"\\5\\1\\0\\3\\x0eleak-7.no.test\\0\\x50")
        s.recv(10)
quietly(stream, "leak-8.no.test", 80, b"GET / HTTP/1.1\\r\\nHost: leak-8.no.test\\r\\n\\r\\n")
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
def tls():
    with socket.create_connection(("v4.test", 443), 5) as s:
        s.settimeout(5)
        context.wrap_socket(s, server_hostname="leak-9.no.test")
quietly(tls)
print("all said")
"""


class Capture(ApiTest):
    def packets(self):
        return lab._lines("packets.jsonl")

    def test_no_name_leaves(self):
        with lab.Far([sys.executable, CAPTURE], LAB_DIR=os.environ["LAB_DIR"]):
            path = os.path.join(os.environ["LAB_DIR"], "packets.jsonl")
            lab.wait_for(lambda: os.path.exists(path) and self.packets(), "the capture")
            s = self.session(sites=[{"host": "v4.test"}])
            c = self.run_in(s, "/usr/bin/python3 -c " + shlex.quote(LEAK.replace("DOOR", "int(__import__('os').environ["
                                                                               "'http_proxy'].rsplit(':', 1)[1].strip('/'))")))
            self.assertEqual(c["text"]["stdout"], "all said\n", c["text"])
            out = self.run_in(s, "curl -sS --noproxy '*' -m 20 http://v4.test/hello")["text"]["stdout"]
            self.assertEqual(out, "hello from 203.0.113.10\n")
            self.end_session(s["id"])
            lab.mark()
            lab.wait_for(lambda: any("\5knock\3lab" in p.get("data", "") for p in self.packets()), "the knock")
            packets = self.packets()[1:]
        names = [p["data"] for p in packets if p["proto"] == UDP and "\5knock\3lab" not in p["data"]]
        self.assertEqual([p for p in packets if "ether" in p or p["proto"] not in (TCP, UDP)], [])
        self.assertEqual([name for name in names if "leak" in name or "\2no\4test" in name], [])
        self.assertTrue(names and all("\2v4\4test" in name for name in names), names)  # and the allowed one is seen
        self.assertEqual({(p["to"], p["port"]) for p in packets if p["proto"] == UDP}, {("203.0.113.53", 53)})
        opened = {(p["to"], p["port"]) for p in packets if p["proto"] == TCP and p["syn"] and p["to"] != lab.KNOCKED}
        self.assertEqual(opened, {("203.0.113.10", 80), ("203.0.113.10", 443)})
        blocked = {b["host"] for b in self.c.call("GET", f"/v1/sessions/{s['id']}/blocked")["items"]}
        for n in ("50", "51", "52", "6", "7", "8", "9"):
            self.assertIn(f"leak-{n}.no.test", blocked)
        self.assertNotIn("leak-1.no.test", blocked)  # asking for a name is no try


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
