"""Web sites and search providers of the lab's far side, for cordon-fetch: 203.0.113.30 to .39.

Over HTTP on 80, and over TLS on 443 with FOLDER/tls.pem (key and certificate; self.pem for
203.0.113.38), which the test puts there before it asks. Each request is a line of FOLDER/web.jsonl:
{"host", "at", "tls", "method", "path", "headers", "body"}.

A web site's paths: /page (HTML) /page/latin1 /page/utf16 /json /bytes/N /binary /gzip/N (N zeros,
packed) /to?URL (302 to it) /loop /status/N /slow/MS /drip (a byte each 50 ms, for ever) /cookie
(sets one, and redirects to /seen, which shows the request) /seen /endless (headers without end)
/garbage /empty. A provider answers its own path with its own form; `cfg` in the query selects odd
ones.
"""
import gzip
import json
import os
import ssl
import time
import urllib.parse

AT = {f"203.0.113.{n}" for n in range(30, 40)} | {"2001:db8::30"}
LOG = None
FOLDER = None

PAGE = """<!doctype html><html><head><title>Lab &amp; page</title><meta charset=utf-8>
<style>p { color: red }</style><script>if (a < b) { document.write("<p>never") }</script></head>
<body><nav><a href="/page?x=1">Home</a></nav><h2>Fish &lt;and&gt; chips</h2>
<p>One <b>bold</b> and <em>slanted</em> word,<br>a <a href="sub/../deep/x?y=1#z">link</a> and
<a href="javascript:alert(1)">none</a>.</p><ul><li>first<li>second <ul><li>inner</ul></ul>
<ol><li>one</li><li>two</li></ol><blockquote><p>said</p></blockquote>
<pre>a  b
  c &lt; d</pre><table><tr><th>k<th>v</tr><tr><td>1</td><td>2</td></tr></table>
<img src="/i.png" alt="a picture"><noscript>hidden</noscript><p>caf\u00e9 \u2014 \u65e5\u672c</p></body></html>"""

BRAVE = {"type": "search", "web": {"results": [
    {"title": "First <strong>hit</strong>", "url": "https://ok.test/a?b=1&c=2", "description": "A &amp; <strong>b</strong>"},
    {"title": "No link", "url": "javascript:alert(1)", "description": "x"},
    {"title": "Second", "url": "http://ok.test/2", "description": ""}]}}
TAVILY = {"query": "q", "answer": None, "results": [
    {"title": "T one", "url": "https://ok.test/t1", "content": "line one\nline two", "score": 0.9},
    {"title": "T two", "url": "https://ok.test/t2", "content": "z" * 9000, "score": 0.1}]}
DUCK = """<html><body><div class="serp__results"><div id="links" class="results">
<div class="result results_links result--ad"><h2 class="result__title"><a rel="nofollow" class="result__a"
 href="https://duckduckgo.com/y.js?ad_domain=ads.test&amp;u3=x">Buy</a></h2><a class="result__snippet" href="x">ad</a></div>
<div class="result results_links results_links_deep web-result "><div class="links_main links_deep result__body">
<h2 class="result__title"><a rel="nofollow" class="result__a"
 href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fok.test%2Fone%3Fa%3D1%26b%3D2&amp;rut=abc">One <b>result</b></a></h2>
<a class="result__snippet" href="//duckduckgo.com/l/?uddg=x">Snip &quot;one&quot; <b>bold</b></a></div></div>
<div class="result web-result"><h2 class="result__title"><a class="result__a" href="https://ok.test/two">Two</a></h2>
</div></div></div></body></html>"""


def open_log(log, folder):
    global LOG, FOLDER
    LOG, FOLDER = log, folder


def serve_tls(h):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.path.join(FOLDER, "self.pem" if h.at.endswith(".38") else "tls.pem"))
    try:
        serve(h, context.wrap_socket(h.request, server_side=True), True)
    except (ssl.SSLError, OSError):
        pass


def head_read(stream):
    line = stream.readline(65537).decode("latin-1").rstrip("\r\n")
    headers = {}
    while field := stream.readline(65537).decode("latin-1").rstrip("\r\n"):
        name, _, value = field.partition(":")
        headers[name.lower()] = value.strip()
    return line, headers


def serve(h, sock, is_tls=False):
    line, headers = head_read(stream := sock.makefile("rb"))
    if line.count(" ") != 2:
        return
    method, path, _ = line.split(" ")
    body = stream.read(int(headers.get("content-length", 0))).decode("utf-8", "replace")
    LOG(host=headers.get("host"), at=h.at, tls=is_tls, method=method, path=path, headers=headers, body=body)
    answer(sock, path, headers, method)
    try:
        sock.close()
    except OSError:
        pass


def send(sock, body, kind="text/html; charset=utf-8", status="200 OK", **more):
    body = body.encode() if isinstance(body, str) else body
    fields = {**({"Content-Type": kind} if kind else {}), "Content-Length": len(body), "Connection": "close",
              **{k.replace("_", "-"): v for k, v in more.items()}}
    sock.sendall(f"HTTP/1.1 {status}\r\n".encode() + "".join(f"{k}: {v}\r\n" for k, v in fields.items()).encode("latin-1")
                 + b"\r\n" + body)


def provider(sock, path, headers):
    """True when PATH is one of a provider's."""
    where, _, query = path.partition("?")
    odd = urllib.parse.parse_qs(query).get("q", [""])[0]
    if where == "/res/v1/web/search":
        if headers.get("x-subscription-token") != "good-brave-key":
            send(sock, '{"type":"ErrorResponse"}', "application/json", "401 Unauthorized")
        elif odd == "odd":
            send(sock, "not json at all", "application/json")
        elif odd == "elsewhere":
            send(sock, "", "application/json", "302 Found", Location="https://no.test/?k=1")
        elif odd == "busy":
            send(sock, "{}", "application/json", "429 Too Many Requests")
        else:
            send(sock, json.dumps({"type": "search"} if odd == "none" else BRAVE), "application/json")
    elif where == "/search":
        ok = headers.get("authorization") == "Bearer good-tavily-key"
        send(sock, json.dumps(TAVILY if ok else {"detail": "no"}), "application/json", "200 OK" if ok else "401 Unauthorized")
    elif where == "/html/":
        send(sock, DUCK)
    else:
        return False
    return True


def answer(sock, path, headers, method):
    where, _, query = path.partition("?")
    parts = where.strip("/").split("/")
    n = int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0
    name = parts[0]
    if provider(sock, path, headers):
        return
    if name == "page" and parts[1:] == ["latin1"]:
        send(sock, "<p>caf\u00e9</p>".encode("latin-1"), "text/html; charset=ISO-8859-1")
    elif name == "page" and parts[1:] == ["utf16"]:
        send(sock, "<p>caf\u00e9 \U0001f41f</p>".encode("utf-16"), "text/html")
    elif name == "page":
        send(sock, PAGE)
    elif name == "json":
        send(sock, '{"a": "<b>\u00e9</b>"}', "application/json")
    elif name == "bytes":
        send(sock, b"x" * n, "text/plain")
    elif name == "binary":
        send(sock, bytes(range(256)), "application/octet-stream")
    elif name == "nul":
        send(sock, b"a\0b", "text/plain")
    elif name == "gzip":
        send(sock, gzip.compress(b"0" * n), "text/plain", Content_Encoding="gzip")
    elif name == "to":
        send(sock, "moved", status="302 Found", Location=urllib.parse.unquote(query))
    elif name == "loop":
        send(sock, "round", status="302 Found", Location=f"/loop/{n + 1}")
    elif name == "status":
        send(sock, f"<p>status {n}", status=f"{n} As Wanted")
    elif name == "slow":
        time.sleep(n / 1000)
        send(sock, "slow")
    elif name == "drip":
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            sock.sendall(b".")
            time.sleep(0.05)
    elif name == "cookie":
        send(sock, "", status="302 Found", Location="/seen", Set_Cookie="lab=1; Path=/")
    elif name == "seen":
        send(sock, json.dumps(headers), "application/json")
    elif name == "endless":
        sock.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            sock.sendall(b"X-Pad: " + b"p" * 8000 + b"\r\n")
    elif name == "garbage":
        sock.sendall(b"\x00\x01 this is no HTTP\n\n" * 10)
    elif name == "empty":
        send(sock, b"", None)
    else:
        send(sock, "no such path", "text/plain", "404 Not Found")
