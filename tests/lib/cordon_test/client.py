"""A client of the daemon's API that can also send what no proper client sends.

    c = Client(daemon, via="v4", token=daemon.token)     # via: unix, v4, v6
    c.call("GET", "/v1/sessions")                         # 200 wanted: the JSON, else the bytes
    c.problem(404, "not_found", "GET", "/v1/nothing")     # the problem document
    c.ask("GET", "/v1/health").headers                    # any answer
    c.send(b"GET /v1/health HTTP/1.0\\r\\n\\r\\n")        # exactly these bytes
    with c.stream("GET", path) as s: s.frame()            # frame by frame, as they come

Every answer is judged by the contract."""
import http.client
import json
import socket
import urllib.parse

from .contract import judge

TIMEOUT = 60


class Answer:
    """status, headers, body (bytes); json and frames() read the body."""

    def __init__(self, response, body):
        self.status, self.headers, self.body = response.status, response.headers, body
        self.kind = (self.headers.get("Content-Type") or "").split(";")[0].strip()
        self._json = None

    @property
    def json(self):
        if self._json is None:
            self._json = json.loads(self.body)
        return self._json

    @property
    def etag(self):
        return self.headers["ETag"]

    def frames(self):
        if self.kind == "text/event-stream":
            return [json.loads(line[5:]) for line in self.body.decode().split("\n") if line.startswith("data:")]
        return [json.loads(line) for line in self.body.splitlines()]

    def __repr__(self):
        return f"{self.status} {self.kind} {self.body[:800]!r}"


class Stream:
    """An answer that is read as it comes."""

    def __init__(self, sock, response):
        self.sock, self.response = sock, response
        self.status, self.headers = response.status, response.headers

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def read(self, n):
        return self.response.read(n)

    def line(self):
        return self.response.readline()

    def frame(self, keepalive=False):
        """The next frame of x-ndjson, None at the end; keepalives are left out, unless asked for."""
        while line := self.line():
            got = json.loads(line)
            judge().frame(got)
            if keepalive or got["kind"] != "keepalive":
                return got
        return None

    def frames(self):
        return list(iter(self.frame, None))

    def event(self):
        """The next one of GET /events, None at the end. Where the stream stands then is self.at, also when
        only that was told."""
        data = None
        while line := self.line().decode():
            if line.startswith("id: "):
                self.at = line[4:-1]
            elif line.startswith("data: "):
                data = json.loads(line[6:])
            elif line == "\n" and data:
                judge().frame(data, "event")
                return data
        return None

    def close(self):
        self.response.close()
        self.sock.close()


class Client:
    def __init__(self, daemon, via="unix", token=None, timeout=TIMEOUT):
        self.daemon, self.via, self.token, self.timeout = daemon, via, token, timeout

    def other(self, **change):
        """The same client with another `via` or `token`."""
        return Client(self.daemon, **{"via": self.via, "token": self.token, "timeout": self.timeout, **change})

    def connect(self):
        if self.via == "unix":
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(self.timeout)
            s.connect(self.daemon.socket)
            return s
        host = {"v4": "127.0.0.1", "v6": "::1"}[self.via]
        return socket.create_connection((host, self.daemon.port), self.timeout)

    def host(self):
        return f"[::1]:{self.daemon.port}" if self.via == "v6" else f"127.0.0.1:{self.daemon.port}"

    # ---- What is sent ------------------------------------------------------------------------------

    def head(self, method, target, body, headers):
        """Field lines as they go out; headers with value None are left out."""
        fields = {"Host": self.host()}
        if self.token:
            fields["Authorization"] = "Bearer " + self.token
        if body is not None:
            fields["Content-Length"] = str(len(body))
        fields.update(headers or {})
        lines = [f"{method} {target} HTTP/1.1"]
        for name, value in fields.items():
            values = value if isinstance(value, (list, tuple)) else [value]
            lines += [f"{name}: {v}" for v in values if v is not None]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    @staticmethod
    def encode(body, headers):
        """dict and list become JSON, with its type unless another is given."""
        headers = dict(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        elif isinstance(body, str):
            body = body.encode()
        return body, headers

    def send(self, data, method="GET", target=None, body=b"", kind=None):
        """DATA as it is, then one answer. An early refusal is read although the rest was not taken."""
        with self.connect() as s:
            try:
                s.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                pass
            return self.receive(s, method, target, body, kind)

    def receive(self, s, method, target, body=b"", kind=None):
        r = http.client.HTTPResponse(s, method=method)
        r.begin()
        answer = Answer(r, r.read())
        r.close()
        judge().exchange(method if target else None, target, body, kind, self.via, answer)
        return answer

    # ---- Asking ------------------------------------------------------------------------------------

    def ask(self, method, target, body=None, headers=None):
        body, headers = self.encode(body, headers)
        data = self.head(method, target, body, dict({"Connection": "close"}, **headers))
        return self.send(data + (body or b""), method, target, body or b"", headers.get("Content-Type"))

    def call(self, method, target, body=None, want=200, headers=None):
        a = self.ask(method, target, body, headers)
        assert a.status == want, (method, target, f"wanted {want}", a)
        return a.json if a.kind.endswith("json") and a.kind != "application/x-ndjson" else a.body

    def problem(self, want, code, method, target, body=None, headers=None):
        a = self.ask(method, target, body, headers)
        assert (a.status, a.kind) == (want, "application/problem+json"), (method, target, f"wanted {want} {code}", a)
        assert a.json["code"] == code, (method, target, f"wanted {code}", a)
        return a.json

    def patch(self, target, body, etag=None, headers=None, want=200):
        """A merge patch with the entity tag of a GET just before, unless one is given."""
        etag = etag or self.ask("GET", target.split("?")[0]).etag
        return self.call("PATCH", target, json.dumps(body), want,
                         {"Content-Type": "application/merge-patch+json", "If-Match": etag, **(headers or {})})

    def items(self, target):
        """All items of a list, page after page."""
        items, cursor = [], None
        while True:
            mark = "&" if "?" in target else "?"
            more = f"{mark}cursor={urllib.parse.quote(cursor)}" if cursor else ""
            page = self.call("GET", target + more)
            items += page["items"]
            cursor = page.get("next_cursor")
            if not cursor:
                return items

    def stream(self, method, target, headers=None):
        s = self.connect()
        s.sendall(self.head(method, target, None, headers))
        r = http.client.HTTPResponse(s, method=method)
        r.begin()
        return Stream(s, r)
