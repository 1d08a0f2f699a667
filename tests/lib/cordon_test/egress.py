"""cordon-egress driven by a daemon made here: frames over a socketpair, doors made here.

    with Egress(allow={"ok.test:443"}) as eg:
        s = eg.connect()
        ...
    eg.checks, eg.results, eg.closed, eg.refused: what it told, in order, as tuples
"""
import os
import socket
import struct
import subprocess
import threading
import time

START, VERDICT, CUT, FILE = 128, 129, 130, 131
NAMES, NAMES_BYTES = 135, (4 << 20) + 4096
READY, CHECK, RESULT, CLOSED, REFUSED, STALE = range(160, 166)
FILES = ["/etc/resolv.conf", "/etc/hosts"]
DENY, ALLOW, SELF = 0, 1, 2
DOOR_CONNECT, DOOR_HTTP, DOOR_SOCKS5, DOOR_SOCKS4, DOOR_REDIRECT, DOOR_TLS_NAME = range(6)
NAME_REQUEST = 0x80000000
FAILED, OPENED, ADDRESS_CLASS, OWN_PORT, RESOLVE_FAILED, CONNECT_FAILED, TIMED_OUT = range(7)
BIN = os.environ.get("CORDON_BIN") or os.path.join(
    os.path.dirname(__file__), "..", "..", "..", "build", "debug", "bin")
LL_READ_FILE, LL_READ_DIR = 4, 8
LL_ALL = 0xffff
RESOLVER_FILES = ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/gai.conf",
                  "/etc/host.conf", "/etc/services", "/dev/urandom"]


def put_bytes(data):
    data = data.encode() if isinstance(data, str) else data
    return struct.pack("<I", len(data)) + data


class Unpack:
    def __init__(self, data):
        self.data, self.at = data, 0

    def num(self, form):
        value = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += struct.calcsize("<" + form)
        return value

    def text(self):
        n = self.num("I")
        value = self.data[self.at:self.at + n].decode()
        self.at += n
        return value


def rules(landlock=True, paths=RESOLVER_FILES, limits=(), bpf=b""):
    found = [(os.path.realpath(path), LL_READ_FILE) for path in paths if os.path.exists(path)]
    out = struct.pack("<BIQQ", landlock, 7, LL_ALL, 3) + struct.pack("<I", len(found))
    for path, rights in found:
        out += put_bytes(path) + struct.pack("<QB", rights, 1)
    out += struct.pack("<I", len(limits))
    for what, soft, hard in limits:
        out += struct.pack("<IQQ", what, soft, hard)
    return out + put_bytes(bpf)


def daemon_rules():
    """The very lock-down that the daemon orders, Landlock and filter."""
    return subprocess.run([os.path.join(BIN, "egress_rules")], stdout=subprocess.PIPE,
                          check=True).stdout


class Egress:
    def __init__(self, allow=(), private=(), decide=None, own_ports=(), connections=1024,
                 head=65536, dial_ms=10000, the_rules=None, start=True, argv=(), doors=2, dns=False, names=None):
        """DOORS 1: without IPv6. DNS: the name server's door too. NAMES: the memory of the names inside."""
        self.allow, self.private = set(allow), set(private)
        self.decide = decide or self.by_list
        self.checks, self.results, self.closed, self.refused = [], [], [], []
        self.stale, self.tells_files = [], True
        self.via = ("", "")  # the proxy to go through, and its authorization
        self.ready = None
        self.n_allowed = 0
        self.names = names
        self.problem = None
        self.lock = threading.Lock()
        self.doors = []
        for family, at in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            s = socket.socket(family)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind((at, self.doors[0].getsockname()[1] if self.doors else 0))
            s.listen(4096)
            self.doors.append(s)
        self.port = self.doors[0].getsockname()[1]
        self.doors = self.doors[:doors]
        if dns:
            self.doors.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            self.doors[-1].bind(("127.0.0.1", 0))
            self.dns = self.doors[-1].getsockname()
        self.sock, child = socket.socketpair()
        env = {}
        if os.environ.get("CORDON_SANITIZE"):
            env["ASAN_OPTIONS"] = "detect_leaks=0"
        null = os.open("/dev/null", os.O_RDWR)
        number = child.fileno()

        def to_three():
            os.dup2(number, 3)

        self.child = subprocess.Popen([*argv, os.path.join(BIN, "cordon-egress")], env=env,
                                      stdin=null, stdout=null, close_fds=False,
                                      preexec_fn=to_three)
        os.close(null)
        child.close()
        self.reader = threading.Thread(target=self.read_frames, daemon=True)
        if start:
            self.start(own_ports, connections, head, dial_ms,
                       the_rules or daemon_rules())
            self.reader.start()
            self.wait(lambda: self.ready is not None, "M_EG_READY")
            if self.ready:
                raise AssertionError(self.ready)

    def start(self, own_ports, connections, head, dial_ms, the_rules):
        if self.names is not None:
            self.send(NAMES, b"", [self.names])
        ports = (list(own_ports) + [0] * 4)[:4]
        payload = put_bytes("ses_test") + struct.pack("<H4HIII", self.port, *ports, connections,
                                                      head, dial_ms) + the_rules
        self.send(START, payload, [s.fileno() for s in self.doors])

    def send(self, kind, payload, fds=()):
        frame = struct.pack("<IB", len(payload) + 1, kind) + payload
        with self.lock:
            if fds:
                sent = socket.send_fds(self.sock, [frame], list(fds))
                frame = frame[sent:]
            if frame:
                self.sock.sendall(frame)

    def by_list(self, host, port):
        name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if name in self.private:
            return ALLOW, 1
        return (ALLOW, 0) if name in self.allow or host in self.allow else (DENY, 0)

    def read_frames(self):
        data = b""
        while True:
            try:
                more = self.sock.recv(65536)
            except OSError:
                return
            if not more:
                return
            data += more
            while len(data) >= 5 and len(data) >= 4 + struct.unpack_from("<I", data)[0]:
                n = struct.unpack_from("<I", data)[0]
                try:
                    self.got(data[4], Unpack(data[5:4 + n]))
                except Exception as e:  # kept for the test's thread
                    self.problem = e
                data = data[4 + n:]

    def got(self, kind, u):
        if kind == READY:
            self.ready = u.text()
        elif kind == CHECK:
            conn, request, door = u.num("I"), u.num("I"), u.num("B")
            host, port = u.text(), u.num("H")
            self.checks.append((conn, request, door, host, port))
            answer = self.decide(host, port)
            if answer is not None:
                self.n_allowed += answer[0] != DENY and door != DOOR_TLS_NAME
                self.verdict(conn, request, *answer)
        elif kind == RESULT:
            self.results.append((u.num("I"), u.num("I"), u.num("B"), u.text(), u.text()))
        elif kind == CLOSED:
            self.closed.append((u.num("I"), u.num("I"), u.num("Q"), u.num("Q"), u.num("B")))
        elif kind == STALE:
            self.stale.append(u.num("B"))
            if self.tells_files:
                self.file(self.stale[-1])
        elif kind == REFUSED:
            self.refused.append((u.num("I"), u.text(), u.text()))
        else:
            raise AssertionError(f"frame of kind {kind}")

    def verdict(self, conn, request, verdict, flags=0, reason="not_listed",
                rule="list machine: no site covers it", hint="cordon sites add HOST"):
        self.send(VERDICT, struct.pack("<IIBB", conn, request, verdict, flags) +
                  b"".join(map(put_bytes, (reason, rule, hint, *self.via))))

    def file(self, number):
        """What the daemon answers when a file of the resolver changed."""
        fd, readable = os.memfd_create("file"), 1
        try:
            with open(FILES[number], "rb") as f:
                os.write(fd, f.read())
        except OSError:
            readable = 0
        os.lseek(fd, 0, os.SEEK_SET)
        self.send(FILE, struct.pack("<BB", number, readable), [fd])
        os.close(fd)

    def owed(self):
        """Allowed requests whose result did not come yet."""
        return self.n_allowed - len(self.results)

    def cut(self, conn):
        self.send(CUT, struct.pack("<I", conn))

    def wait(self, claim, what, seconds=10):
        end = time.monotonic() + seconds
        while not claim():
            if self.problem is not None:
                raise self.problem
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds} s: {what}")
            time.sleep(0.002)

    # ---- Clients -----------------------------------------------------------------------------

    def connect(self, v6=False, timeout=15):
        return socket.create_connection(("::1" if v6 else "127.0.0.1", self.port), timeout)

    def ask(self, request, timeout=15, shut=False):
        """Everything that comes back until the end."""
        with self.connect(timeout=timeout) as s:
            s.sendall(request if isinstance(request, bytes) else request.encode("latin-1"))
            if shut:
                s.shutdown(socket.SHUT_WR)
            return read_all(s)

    def tunnel(self, target, timeout=15):
        """A connected socket through CONNECT, or the answer's bytes."""
        s = self.connect(timeout=timeout)
        s.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            more = s.recv(1)
            if not more:
                break
            head += more
        if head.startswith(b"HTTP/1.1 200 "):
            return s
        with s:
            return head + read_all(s)

    def get(self, url, method="GET", fields="", body=b"", **kw):
        return self.ask(f"{method} {url} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                        f"{fields}\r\n".encode() + body, **kw)

    # ---- Ends --------------------------------------------------------------------------------

    def fds(self):
        """Root only: the process is not dumpable, so its own user may not look."""
        return os.listdir(f"/proc/{self.child.pid}/fd")

    def cpu_ticks(self, after=0):
        """Processor time that it has used, in clock ticks, AFTER seconds from now."""
        time.sleep(after)
        with open(f"/proc/{self.child.pid}/stat") as f:
            return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))

    def close(self):
        self.sock.close()
        for s in self.doors:
            s.close()
        try:
            return self.child.wait(10)
        finally:
            self.child.kill()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.close()
        if self.problem is not None:
            raise self.problem


def take(s, n):
    """N bytes, or fewer at the end."""
    got = b""
    while len(got) < n:
        more = s.recv(n - len(got))
        if not more:
            break
        got += more
    return got


def read_all(s):
    out = []
    try:
        while True:
            data = s.recv(1 << 18)
            if not data:
                break
            out.append(data)
    except ConnectionResetError:
        out.append(b"<reset>")
    return b"".join(out)


def body(answer):
    return answer.split(b"\r\n\r\n", 1)[1]


def status(answer):
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else None
