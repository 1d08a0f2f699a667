"""The far side of the lab: servers on every address, a name server, and a log of what came.

Started by ./lab in the second network namespace: far.py FOLDER READY_FD. Each connection is a line
of FOLDER/connections.jsonl before a byte is answered: {"port", "at" (the address it was made to),
"from", "n"}; each HTTP request one more: {"port", "at", "n", "request", "host", "head"}; its end on
this side another: {"port", "at", "n", "closed"}. Each question to the name server is a line of
FOLDER/dns.jsonl: {"name", "type"}. FOLDER/far.sock takes one JSON line {"run": [argv], "env": {}} a
connection, runs it here, and kills it when that ends.

TCP ports:   80 8080  HTTP, paths below      443 echo, any bytes
  9001 reads to the end, then sends 1 MiB    9002 speaks first ("220 lab"), then echoes
  9003 silent      9004 sends 1 MiB and closes its side, then reads to the end and logs how much
  9005 sends zeros for ever  9006 reads for ever  9007 resets at once  9008 garbage instead of HTTP
  9009 closes at once        9010 echo, reads slowly
443 on 203.0.113.30 and above to .39: HTTPS as a web site and search providers speak (web.py)
HTTP paths: /hello /bytes/N /chunked/N /close/N (no length) /echo (body back) /count (length of the
body) /head (the request head as it came) /status/N /early/N (status before the body is read)
/slow/MS /trailers /upgrade /drop (closes without an answer) /continue (sends 100 first) /hints (103)
"""
import json
import os
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import web  # noqa: E402

FOLDER = sys.argv[1]
LOCK = threading.Lock()
COUNT = [0]
CHUNK = bytes(1 << 20)
KNOCKED = "203.0.113.99"  # lib/cordon_test/lab.py

A, AAAA = 1, 28
ZONE = {  # a list a type; a list of lists: one after the other, question by question
    "ok.test": {A: ["203.0.113.10"], AAAA: ["2001:db8::10"]},
    "no.test": {A: ["203.0.113.11"], AAAA: ["2001:db8::11"]},
    "v4.test": {A: ["203.0.113.10"]},
    "v6.test": {AAAA: ["2001:db8::10"]},
    "dead6.test": {A: ["203.0.113.10"], AAAA: ["2001:db8::66"]},
    "dead4.test": {A: ["203.0.113.66"], AAAA: ["2001:db8::10"]},
    "hole.test": {A: ["203.0.113.66"], AAAA: ["2001:db8::66"]},
    "reb.test": {A: [["203.0.113.10"], ["127.0.0.1"]]},
    "mix.test": {A: ["127.0.0.1", "203.0.113.10"]},
    "many.test": {A: [f"203.0.113.{n}" for n in range(100, 140)]},
    "lo.test": {A: ["127.0.0.1"]},
    "lo6.test": {AAAA: ["::1"]},
    "mapped.test": {AAAA: ["::ffff:127.0.0.1"]},
    "compat.test": {AAAA: ["::7f00:1"]},
    "nat64.test": {AAAA: ["64:ff9b::7f00:1"]},
    "sixtofour.test": {AAAA: ["2002:7f00:1::1"]},
    "meta.test": {A: ["169.254.169.254"]},
    "meta6.test": {AAAA: ["fd00:ec2::254"]},
    "zero.test": {A: ["0.0.0.0"]},
    "zero6.test": {AAAA: ["::"]},
    "priv.test": {A: ["10.9.0.10"]},
    "reg.corp": {A: ["192.168.77.10"]},
    "ula.test": {AAAA: ["fd12::10"]},
    "cgn.test": {A: ["100.64.0.10"]},
    "ll.test": {A: ["169.254.1.1"]},
    "ll6.test": {AAAA: ["fe80::1"]},
    "multi.test": {A: ["224.0.0.1"]},
    "bcast.test": {A: ["255.255.255.255"]},
    "synth.test": {A: ["198.18.0.5"]},
    "own.test": {A: ["203.0.113.1"]},
    "own6.test": {AAAA: ["2001:db8::1"]},
    "web.test": {A: ["203.0.113.30"]},
    "other.test": {A: ["203.0.113.31"]},
    "api.search.brave.com": {A: ["203.0.113.32"]},
    "api.tavily.com": {A: ["203.0.113.33"]},
    "html.duckduckgo.com": {A: ["203.0.113.34"]},
    "selfsigned.test": {A: ["203.0.113.38"]},
    "web6.test": {AAAA: ["2001:db8::30"]},
    "registry.test": {A: ["203.0.113.20"]},
    "git.test": {A: ["203.0.113.21"]},
    "only.search.test": {A: ["203.0.113.12"]},
    "ghost.test.search.test": {A: ["203.0.113.12"]},
}
SILENT_NAMES = {"silent.test"}  # the name server never answers
FAIL_NAMES = {"servfail.test"}


def log(file, **line):
    with LOCK:
        with open(os.path.join(FOLDER, file), "a") as f:
            f.write(json.dumps(line) + "\n")


def address(pair):
    text = pair[0]
    return text[7:] if text.startswith("::ffff:") else text


# ---- Names ---------------------------------------------------------------------------------------

def dns_answer(query):
    at, labels = 12, []
    while query[at] != 0:
        labels.append(query[at + 1:at + 1 + query[at]].decode("latin-1"))
        at += 1 + query[at]
    kind = struct.unpack(">H", query[at + 1:at + 3])[0]
    question = query[12:at + 5]
    name = ".".join(labels).lower()
    log("dns.jsonl", name=name, type={A: "A", AAAA: "AAAA"}.get(kind, str(kind)))
    if name in SILENT_NAMES:
        return None
    entry = ZONE.get(name)
    if entry is None and name.endswith(".ok.test"):
        entry = ZONE["ok.test"]
    records = (entry or {}).get(kind, [])
    if records and isinstance(records[0], list):
        with LOCK:
            records.append(records.pop(0))
            records = records[-1]
    rcode = 2 if name in FAIL_NAMES else 0 if entry is not None else 3
    out = query[:2] + struct.pack(">HHHHH", 0x8580 | rcode, 1, len(records), 0, 0) + question
    for text in records:
        packed = socket.inet_pton(socket.AF_INET if kind == A else socket.AF_INET6, text)
        out += b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(packed)) + packed
    return out


class DnsUdp(socketserver.BaseRequestHandler):
    def handle(self):
        out = dns_answer(self.request[0])
        if out is not None:
            if len(out) > 512:
                out = out[:2] + struct.pack(">H", 0x8780) + out[4:6] + bytes(6) + \
                    self.request[0][12:]
            self.request[1].sendto(out, self.client_address)


class DnsTcp(socketserver.BaseRequestHandler):
    def handle(self):
        head = self.request.recv(2)
        if len(head) == 2:
            out = dns_answer(self.request.recv(struct.unpack(">H", head)[0]))
            if out is not None:
                self.request.sendall(struct.pack(">H", len(out)) + out)


# ---- Connections ---------------------------------------------------------------------------------

class Handler(socketserver.BaseRequestHandler):
    def setup(self):
        self.n = self.server.numbers.pop(self.request)
        own = self.request.getsockname()
        self.at, self.port = address(own), own[1]
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def handle(self):
        try:
            PORTS[self.port](self)
        except OSError:
            pass

    def finish(self):
        """The server's end is closed before it is logged."""
        try:
            self.request.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        log("connections.jsonl", port=self.port, at=self.at, n=self.n, closed=True)

    def read_all(self):
        n = 0
        while True:
            data = self.request.recv(1 << 18)
            if not data:
                return n
            n += len(data)


def echo(h):
    while True:
        data = h.request.recv(1 << 18)
        if not data:
            return
        h.request.sendall(data)


def half_close(h):
    h.read_all()
    h.request.sendall(CHUNK)


def speaks_first(h):
    h.request.sendall(b"220 lab\r\n")
    echo(h)


def silent(h):
    h.read_all()


def closes_first(h):
    h.request.sendall(CHUNK)
    h.request.shutdown(socket.SHUT_WR)
    log("connections.jsonl", port=h.port, at=h.at, n=h.n, read=h.read_all())


def source(h):
    while True:
        h.request.sendall(CHUNK)


def resets(h):
    h.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    h.request.close()


def garbage(h):
    h.request.recv(65536)
    h.request.sendall(b"\x00\x01 this is no HTTP\n\n" * 10)


def closes(h):
    pass


def slow_echo(h):
    h.request.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    while True:
        time.sleep(0.01)
        data = h.request.recv(65536)
        if not data:
            return
        h.request.sendall(data)


# ---- HTTP, by hand, so that it can be odd ---------------------------------------------------------

class Request:
    def __init__(self, h, stream):
        self.raw = b""
        while True:
            line = stream.readline(65537)
            self.raw += line
            if line in (b"\r\n", b""):
                break
        self.lines = self.raw.decode("latin-1").split("\r\n")
        self.fields = {}
        for line in self.lines[1:]:
            if ":" in line:
                name, value = line.split(":", 1)
                self.fields.setdefault(name.lower(), []).append(value.strip())
        self.stream = stream
        if self.raw.endswith(b"\r\n\r\n"):
            log("connections.jsonl", port=h.port, at=h.at, n=h.n, request=self.lines[0],
                host=self.field("host"), head=self.raw.decode("latin-1"))

    def field(self, name):
        return self.fields.get(name, [""])[0]

    def body(self):
        if self.field("transfer-encoding").lower() == "chunked":
            out = b""
            while True:
                n = int(self.stream.readline().split(b";")[0], 16)
                out += self.stream.read(n)
                if n > 0:
                    self.stream.readline()
                    continue
                while self.stream.readline() not in (b"\r\n", b""):
                    pass
                return out
        left, out = int(self.field("content-length") or 0), []
        while left > 0:
            data = self.stream.read(min(left, 1 << 20))
            if not data:
                break
            left -= len(data)
            out.append(data)
        return b"".join(out)


def answer(h, body, status="200 OK", extra=""):
    h.request.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{extra}\r\n".encode()
                      + (b"" if h.is_head else body))
    return True


def http_path(h, rq, path, n):
    if path == "hello":
        rq.body()
        return answer(h, f"hello from {h.at}\n".encode())
    if path == "bytes":
        return answer(h, b"x" * n)
    if path == "chunked":
        h.request.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(n):
            h.request.sendall(b"a;x=y\r\n0123456789\r\n")
        h.request.sendall(b"0\r\n\r\n")
        return True
    if path == "close":
        h.request.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * n)
        return False
    if path == "short":  # promises more than it sends
        h.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * n)
        return False
    if path == "echo":
        return answer(h, rq.body())
    if path == "count":
        return answer(h, str(len(rq.body())).encode())
    if path == "head":
        rq.body()
        return answer(h, rq.raw)
    if path == "status":
        rq.body()
        return answer(h, b"status\n", f"{n} As Wanted")
    if path == "early":
        answer(h, b"early\n", f"{n} Early", "Connection: close\r\n")
        h.request.shutdown(socket.SHUT_WR)
        h.read_all()
        return False
    if path == "slow":
        time.sleep(n / 1000)
        return answer(h, b"slow\n")
    if path == "trailers":
        h.request.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
                          b"5\r\nhello\r\n0\r\nX-Sum: 42\r\n\r\n")
        return True
    if path == "continue":
        h.request.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        return answer(h, str(len(rq.body())).encode())
    if path == "hints":
        h.request.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
        return answer(h, b"hinted\n")
    if path == "upgrade":
        h.request.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: lab\r\n"
                          b"Connection: Upgrade\r\n\r\nwelcome\n")
        echo(h)
        return False
    if path == "idle":  # answers, then closes a kept connection
        answer(h, b"idle\n")
        time.sleep(n / 1000)
        return False
    if path == "old":
        h.request.sendall(b"HTTP/1.0 200 OK\r\n\r\nold\n")
        return False
    if path == "drop":
        return False
    return answer(h, b"no such path\n", "404 Not Found")


def http(h):
    stream = h.request.makefile("rb")
    while True:
        rq = Request(h, stream)
        if not rq.raw.endswith(b"\r\n\r\n"):
            return
        words = rq.lines[0].split(" ")
        h.is_head = words[0] == "HEAD"
        parts = (words[1] if len(words) > 1 else "/").split("?")[0].strip("/").split("/")
        n = int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0
        if not http_path(h, rq, parts[0] or "hello", n):
            return


def https_or_echo(h):
    """443 echoes, but for the addresses of web sites."""
    web.serve_tls(h) if h.at in web.AT else echo(h)


def http_or_web(h):
    web.serve(h, h.request) if h.at in web.AT else http(h)


PORTS = {80: http_or_web, 8080: http, 443: https_or_echo, 9001: half_close, 9002: speaks_first, 9003: silent,
         9004: closes_first, 9005: source, 9006: silent, 9007: resets, 9008: garbage,
         9009: closes, 9010: slow_echo}


# ---- Running ------------------------------------------------------------------------------------

class Tcp(socketserver.ThreadingTCPServer):
    address_family = socket.AF_INET6
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 1024

    def server_bind(self):
        self.numbers = {}
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request, client_address):
        """Logged here, one after the other, in the order of accepting: lib/cordon_test/lab.py
        counts on it."""
        own = request.getsockname()
        if own[1] in PORTS:
            with LOCK:
                COUNT[0] += 1
                self.numbers[request] = n = COUNT[0]
            log("connections.jsonl", port=own[1], at=address(own), n=n,
                **{"from": address(client_address)})
        if address(own) == KNOCKED:
            self.numbers.pop(request)
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def handle_error(self, request, client_address):
        pass


class Udp(socketserver.UDPServer):  # one after the other, for the same reason
    max_packet_size = 4096


class Runner(socketserver.StreamRequestHandler):
    def handle(self):
        order = json.loads(self.rfile.readline())
        child = subprocess.Popen(order["run"], env=dict(os.environ, **order.get("env", {})),
                                 stdin=subprocess.DEVNULL)
        try:
            self.wfile.write(json.dumps({"pid": child.pid}).encode() + b"\n")
            self.rfile.read()
        finally:
            child.kill()
            child.wait()


class RunnerServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


def main():
    web.open_log(lambda **line: log("web.jsonl", **line), FOLDER)
    for name in ("connections.jsonl", "dns.jsonl", "web.jsonl"):
        open(os.path.join(FOLDER, name), "a").close()
    servers = [Tcp(("::", port), Handler) for port in PORTS]
    servers += [Udp(("203.0.113.53", 53), DnsUdp), Tcp(("::", 53), DnsTcp),
                RunnerServer(os.path.join(FOLDER, "far.sock"), Runner)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    os.write(int(sys.argv[2]), b"s")
    os.close(int(sys.argv[2]))
    threading.Event().wait()


main()
