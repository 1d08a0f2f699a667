"""Real services of the lab's far side, for real clients: git, an npm registry, a Python index.

A program for lab.Far: services.py FOLDER GIT_ROOT. Each request is a line of FOLDER/services.jsonl:
{"service", "method", "path", "status"}.

  3000  git over smart HTTP, by git's own http-backend; repositories below GIT_ROOT, push allowed
  4873  an npm registry with `lab-left` 1.0.0, and `lab-top` 2.1.0 which needs it
  3141  a Python index, /simple/, with `lab-wheel` 0.3
"""
import base64
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FOLDER, GIT_ROOT = sys.argv[1:3]
LOCK = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_request(self, code="-", size="-"):
        line = {"service": self.service, "method": self.command, "path": self.path, "status": int(code)}
        with LOCK, open(os.path.join(FOLDER, "services.jsonl"), "a") as f:
            f.write(json.dumps(line) + "\n")

    def answer(self, body, kind, status=200):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        out = b""
        while True:
            n = int(self.rfile.readline().split(b";")[0], 16)
            out += self.rfile.read(n)
            self.rfile.readline()
            if n == 0:
                return out


# ---- git ------------------------------------------------------------------------------------------

class Git(Handler):
    service = "git"

    def do_GET(self):
        path, _, query = self.path.partition("?")
        env = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": GIT_ROOT, "GIT_HTTP_EXPORT_ALL": "1",
               "REQUEST_METHOD": self.command, "PATH_INFO": path, "QUERY_STRING": query,
               "CONTENT_TYPE": self.headers.get("Content-Type", ""), "REMOTE_USER": "lab",
               "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
               "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "GIT_CONFIG_NOSYSTEM": "1",
               "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
               "REMOTE_ADDR": self.client_address[0], "HOME": FOLDER}
        body = self.body()
        env["CONTENT_LENGTH"] = str(len(body))
        done = subprocess.run(["git", "http-backend"], env=env, input=body, stdout=subprocess.PIPE)
        head, _, out = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)

    do_POST = do_GET


# ---- npm ------------------------------------------------------------------------------------------

def tarball(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo("package/" + name)
            info.size, info.mode = len(text), 0o644
            tar.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def npm_package(name, version, text, needs):
    manifest = {"name": name, "version": version, "main": "index.js", "license": "MIT", "dependencies": needs}
    data = tarball({"package.json": json.dumps(manifest), "index.js": text})
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
    manifest["dist"] = {"integrity": integrity, "shasum": hashlib.sha1(data).hexdigest(),
                        "tarball": f"http://registry.test:4873/{name}/-/{name}-{version}.tgz"}
    return data, {"name": name, "dist-tags": {"latest": version}, "versions": {version: manifest}}


PACKAGES = {"lab-left": npm_package("lab-left", "1.0.0", "module.exports = s => '<' + s\n", {}),
            "lab-top": npm_package("lab-top", "2.1.0", "module.exports = require('lab-left')('top')\n",
                                   {"lab-left": "^1.0.0"})}


class Npm(Handler):
    service = "npm"

    def do_GET(self):
        words = self.path.split("?")[0].strip("/").split("/")
        data, document = PACKAGES.get(words[0], (b"", None))
        if document is None:
            self.answer(b'{"error":"not found"}', "application/json", 404)
        elif len(words) == 1:
            self.answer(json.dumps(document).encode(), "application/json")
        else:
            self.answer(data, "application/octet-stream")

    def do_POST(self):  # audits
        self.body()
        self.answer(b"{}", "application/json")


# ---- Python ---------------------------------------------------------------------------------------

def wheel():
    info = "lab_wheel-0.3.dist-info/"
    files = {"lab_wheel.py": "VALUE = 'rolls'\n",
             info + "METADATA": "Metadata-Version: 2.1\nName: lab-wheel\nVersion: 0.3\n",
             info + "WHEEL": "Wheel-Version: 1.0\nGenerator: lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = "".join(f"{name},,\n" for name in [*files, info + "RECORD"])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, text in {**files, info + "RECORD": record}.items():
            z.writestr(name, text)
    return out.getvalue()


WHEEL, WHEEL_NAME = wheel(), "lab_wheel-0.3-py3-none-any.whl"


class Index(Handler):
    service = "pip"

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/simple/lab-wheel/":
            text = f'<!DOCTYPE html><a href="/files/{WHEEL_NAME}">{WHEEL_NAME}</a>'
            self.answer(text.encode(), "text/html")
        elif path == f"/files/{WHEEL_NAME}":
            self.answer(WHEEL, "application/octet-stream")
        else:
            self.answer(b"no", "text/plain", 404)


def main():
    servers = [ThreadingHTTPServer(("0.0.0.0", port), handler)
               for port, handler in ((3000, Git), (4873, Npm), (3141, Index))]
    open(os.path.join(FOLDER, "services.jsonl"), "a").close()
    for server in servers[1:]:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    servers[0].serve_forever()


main()
