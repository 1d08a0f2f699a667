"""What runs over the doors: HTTP/2 and WebSocket by real clients inside, to real servers of the test's own."""
import base64
import hashlib
import os
import socket
import struct
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402

HTTP2, WEBSOCKET = 7443, 7080
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3


def take(s, n):
    got = b""
    while len(got) < n:
        more = s.recv(n - len(got))
        if not more:
            raise EOFError
        got += more
    return got


def frame_read(s):
    first, n = take(s, 2)
    masked, n = n & 0x80, n & 0x7f
    if n == 126:
        n = struct.unpack(">H", take(s, 2))[0]
    mask = take(s, 4) if masked else bytes(4)
    return first & 15, bytes(b ^ mask[i % 4] for i, b in enumerate(take(s, n)))


def websocket_server(port):
    """Echoes frames; says its own first."""
    def serve(s):
        try:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += take(s, 1)
            key = [line.split(b": ", 1)[1] for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key:")][0]
            accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
            s.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                      b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n\x81\x05first")
            while True:
                kind, data = frame_read(s)
                s.sendall(bytes([0x80 | kind, len(data)]) + data)
                if kind == 8:
                    return
        except (OSError, EOFError, IndexError):
            pass
        finally:
            s.close()

    listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


if sys.argv[1:2] == ["websocket"]:
    websocket_server(WEBSOCKET)

lab.enter()
from cordon_test.api import ApiTest  # noqa: E402

HTTP2_SERVER = """
const fs = require("fs"), [cert, key, port] = process.argv.slice(1);
require("http2").createSecureServer({cert: fs.readFileSync(cert), key: fs.readFileSync(key), allowHTTP1: false},
    (request, response) => response.end("by " + request.httpVersion + " " + request.headers[":authority"])).listen(+port, "::");
"""
# Inside: WAY is "absolute" or "connect"; HOST; prints what the server said and the echo, or the status line.
CLIENT = """
import base64, hashlib, os, socket, struct, sys
way, host = sys.argv[1:]
s = socket.create_connection(("127.0.0.1", int(os.environ["http_proxy"].strip("/").rsplit(":", 1)[1])), 20)
f = s.makefile("rwb", buffering=0)
def head():
    out = f.readline()
    while f.readline() not in (b"\\r\\n", b""):
        pass
    return out.decode().strip()
target = "/chat"
if way == "connect":
    f.write(f"CONNECT {host}:7080 HTTP/1.1\\r\\nHost: {host}:7080\\r\\n\\r\\n".encode())
    line = head()
    if " 200 " not in line:
        sys.exit(line)
else:
    target = f"http://{host}:7080/chat"
key = base64.b64encode(os.urandom(16)).decode()
f.write(f"GET {target} HTTP/1.1\\r\\nHost: {host}:7080\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
        f"Sec-WebSocket-Key: {key}\\r\\nSec-WebSocket-Version: 13\\r\\n\\r\\n".encode())
line = head()
if " 101 " not in line:
    sys.exit(line)
def say(kind, data):
    mask = os.urandom(4)
    f.write(bytes([0x80 | kind, 0x80 | len(data)]) + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))
def hear():
    first, n = f.read(2)
    return first & 15, f.read(n) if n else b""
print(hear())
for i in range(50):
    say(2, bytes([i]) * i)
    assert hear() == (2, bytes([i]) * i)
say(8, b"")
print(hear())
"""


class Protocols(ApiTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cert, key = (os.path.join(cls.d.base, n) for n in ("cert.pem", "key.pem"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                        key, "-out", cert, "-days", "2", "-subj", "/CN=ok.test", "-addext",
                        "subjectAltName=DNS:ok.test,DNS:no.test"], check=True, capture_output=True)
        subprocess.run(["cp", cert, os.path.join(cls.work, "ca.pem")], check=True)
        cls.fars = [lab.Far(["node", "-e", HTTP2_SERVER, cert, key, str(HTTP2)]),
                    lab.Far([sys.executable, os.path.realpath(__file__), "websocket"])]
        lab.far_listens(HTTP2)
        lab.far_listens(WEBSOCKET)

    @classmethod
    def tearDownClass(cls):
        for far in cls.fars:
            far.close()
        super().tearDownClass()

    def test_http2(self):
        s = self.session(sites=[{"host": "ok.test", "port": HTTP2}, {"host": "ok.test", "port": 8080}])
        curl = f"cd {self.work}; curl -sS -m 20 --http2 --cacert ca.pem -w ' %{{http_version}}' "
        for way in ("", "--socks5-hostname ${http_proxy#http://} ", "--socks4a ${http_proxy#http://} "):
            c = self.run_in(s, curl + way + f"https://ok.test:{HTTP2}/")
            self.assertEqual(c["text"]["stdout"], f"by 2.0 ok.test:{HTTP2} 2", c)
            c = self.run_in(s, curl + way + f"https://no.test:{HTTP2}/")
            self.assertEqual([(b["host"], b["count"]) for b in c["result"]["blocked"]], [("no.test", 1)], c)
        # Without TLS it would take each further request out of our sight: it is not offered on.
        c = self.run_in(s, curl + "http://ok.test:8080/head")
        self.assertTrue(c["text"]["stdout"].endswith(" 1.1"), c)
        self.assertNotIn("http2-settings", c["text"]["stdout"].lower())

    def test_websocket(self):
        s = self.session(sites=[{"host": "ok.test", "port": WEBSOCKET}])
        mark = lab.mark()
        for way in ("absolute", "connect"):
            c = self.run_in(s, argv=["/usr/bin/python3", "-c", CLIENT, way, "ok.test"])
            self.assertEqual(c["text"]["stdout"], "(1, b'first')\n(8, b'')\n", c)
            c = self.run_in(s, argv=["/usr/bin/python3", "-c", CLIENT, way, "no.test"])
            self.assertIn("HTTP/1.1 403 Blocked by Cordon: no.test:7080", c["text"]["stderr"])
        self.assertNotIn("no.test", lab.asked(mark))


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
