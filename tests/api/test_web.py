"""The agent's web tools: a fetch and a search, each in a cordon-fetch of its own, by the session's list.
Judged by the far servers' log; each refusal has a control that succeeds."""
import base64
import os
import signal
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test import lab  # noqa: E402

lab.enter()
from cordon_test import web  # noqa: E402
from cordon_test.api import ApiTest  # noqa: E402
from cordon_test.cli import wait_for  # noqa: E402

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/egress"))
import test_upstream  # noqa: E402

CA = web.certificates()
test_upstream.KNOWN["web.test"] = "203.0.113.30"


class Web(ApiTest):
    env = {"SSL_CERT_FILE": CA}
    maxDiff = None

    def setUp(self):
        self.far = web.Since()

    def made(self, *hosts, **more):
        """Nobody is asked, unless the test wants it."""
        return self.session(**{"approvals": "full", **more}, sites=[{"host": h} if isinstance(h, str) else {"host": h[0], "port": h[1]} for h in hosts])

    def fetch(self, s, url, **more):
        return self.c.call("POST", f"/v1/sessions/{s['id']}/web/fetch", {"url": url, **more})

    def refused(self, s, status, code, url, **more):
        return self.c.problem(status, code, "POST", f"/v1/sessions/{s['id']}/web/fetch", {"url": url, **more})

    def blocked(self, s):
        return {(b["host"], b["port"]): (b["count"], b["reason"], b.get("command_id"))
                for b in self.c.call("GET", f"/v1/sessions/{s['id']}/blocked")["items"]}

    def called(self, s):
        return [r for r in self.audit(f"session={s['id']}&action=web.called")]


class Fetch(Web):
    @classmethod
    def setUpClass(cls):
        """A call to a server that swallows everything runs beside the others: it ends by its own clock."""
        super().setUpClass()
        cls.silent = cls.c.call("POST", "/v1/sessions", {"folders": [{"path": cls.work}], "require_wall": True,
                                                         "sites": [{"host": "hole.test"}]}, 201)
        cls.late = []
        cls.clock = threading.Thread(target=lambda: cls.late.append(cls.d.client().ask(
            "POST", f"/v1/sessions/{cls.silent['id']}/web/fetch", {"url": "http://hole.test/"})))
        cls.clock.start()

    @classmethod
    def tearDownClass(cls):
        cls.clock.join()
        super().tearDownClass()

    def test_zz_time(self):
        self.clock.join()
        self.assertEqual((self.late[0].status, self.late[0].json["code"]), (504, "fetch_timeout"))
        self.assertEqual([(r["outcome"], r["after"]["code"]) for r in self.called(self.silent)], [("error", "fetch_timeout")])

    def test_a_page_as_markdown(self):
        s = self.made("web.test")
        got = self.fetch(s, "https://WEB.test:443/page#frag")
        self.assertEqual({k: got[k] for k in ("url", "final_url", "status", "truncated", "redirects", "site")},
                         {"url": "https://web.test/page", "final_url": "https://web.test/page", "status": 200,
                          "truncated": False, "redirects": [], "site": "web.test"})
        self.assertEqual(got["enforcement"], {"provider": "direct", "tier": "walled", "level": "none"})
        self.assertEqual(got["content_type"], "text/html; charset=utf-8")
        self.assertEqual(got["text"], """# Lab & page

[Home](https://web.test/page?x=1)

## Fish <and> chips

One **bold** and *slanted* word,
a [link](https://web.test/deep/x?y=1#z) and none.

- first
- second
  - inner

1. one
2. two

> said

```
a  b
  c < d
```

| k | v |
| --- | --- |
| 1 | 2 |

![a picture](https://web.test/i.png)

caf\u00e9 \u2014 \u65e5\u672c
""")
        (r,) = self.far.requests()
        self.assertEqual((r["method"], r["host"], r["path"], r["tls"], r["body"]), ("GET", "web.test", "/page", True, ""))
        self.assertFalse({"cookie", "authorization", "referer", "proxy-authorization"} & set(r["headers"]), r)
        (row,) = self.called(s)
        self.assertEqual((row["target"], row["outcome"], row["actor"]["kind"]), ("https://web.test/page", "ok", "owner"))
        self.assertEqual(row["enforcement"]["level"], "none")
        self.assertEqual((row["after"]["status"], row["after"]["rule"], row["after"]["address"]), (200, "web.test", "203.0.113.30:443"))
        self.assertNotIn("chips", str(row))

    def test_forms(self):
        s = self.made("web.test")
        text = self.fetch(s, "http://web.test/page", format="text")["text"]
        self.assertTrue(text.startswith("Lab & page\n\nHome\n\nFish <and> chips\n\nOne bold and slanted word,\na link and none."), text)
        self.assertNotIn("never", text)
        self.assertNotIn("hidden", text)
        raw = self.fetch(s, "http://web.test/page", format="raw")
        self.assertIn("<h2>Fish &lt;and&gt; chips</h2>", raw["text"])
        for form in ("raw", "text", "markdown"):
            self.assertEqual(self.fetch(s, "http://web.test/json", format=form)["text"], '{"a": "<b>\u00e9</b>"}')
            got = self.fetch(s, "http://web.test/binary", format=form)
            self.assertEqual((base64.b64decode(got["b64"]), "text" in got), (bytes(range(256)), False))
        self.assertEqual(base64.b64decode(self.fetch(s, "http://web.test/nul", format="raw")["b64"]), b"a\0b")
        self.assertEqual(self.fetch(s, "http://web.test/page/latin1")["text"], "caf\u00e9\n")
        self.assertEqual(self.fetch(s, "http://web.test/page/utf16")["text"], "caf\u00e9 \U0001f41f\n")
        got = self.fetch(s, "http://web.test/empty")
        self.assertEqual((got["text"], got["content_type"]), ("", ""))
        self.assertEqual(self.fetch(s, "http://web.test/status/404")["status"], 404)

    def test_bounds(self):
        s = self.made("web.test")
        got = self.fetch(s, "http://web.test/bytes/5000", max_bytes=5000)
        self.assertEqual((got["text"], got["truncated"]), ("x" * 5000, False))
        got = self.fetch(s, "http://web.test/bytes/5000", max_bytes=4999)
        self.assertEqual((got["text"], got["truncated"]), ("x" * 4999, True))
        got = self.fetch(s, "http://web.test/bytes/9000000", max_bytes=5 << 20)
        self.assertEqual((len(got["text"]), got["truncated"]), (5 << 20, True))
        self.assertEqual((len(self.fetch(s, "http://web.test/bytes/9000000")["text"])), 1 << 20)
        # A small answer that unpacks to 50 MB is read as far as the bound.
        got = self.fetch(s, "http://web.test/gzip/50000000", max_bytes=1000)
        self.assertEqual((got["text"], got["truncated"]), ("0" * 1000, True))
        self.assertEqual(self.fetch(s, "http://web.test/gzip/999", max_bytes=1000)["text"], "0" * 999)
        got = self.fetch(s, "http://web.test/page", max_bytes=600)
        self.assertTrue(got["truncated"])
        for bad in (0, -1, (5 << 20) + 1):
            self.c.problem(422, "body_invalid", "POST", f"/v1/sessions/{s['id']}/web/fetch", {"url": "http://web.test/", "max_bytes": bad})

    def test_urls_that_are_none(self):
        s = self.made("web.test", "*.web.test")
        for url in ("web.test/page", "ftp://web.test/", "file:///etc/passwd", "http:web.test", "https://user@web.test/",
                    "https://u:p@web.test/", "https://web.test:0/", "https://web.test:65536/", "https://web.test:+443/",
                    "https://web.test:/", "https://", "https:///page", "https://0x7f.1/", "https://2130706433/", "https://127.1/",
                    "https://web.test\\@no.test/", "https://web%2etest/", "https://[web.test]/", "https://web.test /",
                    "https://we\tb.test/", "https://[::1%25lo]/", "gopher://web.test/", "https://-.test/" + "a" * 8200):
            p = self.refused(s, 422, "body_invalid", url)
            self.assertEqual(p["errors"][0]["pointer"], "/url", p)
        self.assertEqual(self.far.connections(), [])
        self.assertEqual(self.far.names(), [])
        self.fetch(s, "http://web.test/json")  # the control

    def test_a_site_that_is_not_listed(self):
        s = self.made("web.test")
        for url in ("https://other.test/page", "https://sub.web.test/", "http://web.test:8080/", "https://notweb.test/"):
            p = self.refused(s, 403, "site_not_listed", url)
            self.assertIn("cordon sites add", p["hint"])
        self.assertEqual(self.far.connections(), [])
        self.assertEqual(self.far.names(), [])
        self.assertEqual(self.blocked(s)[("other.test", 443)], (1, "not_listed", None))
        self.assertEqual([(r["target"], r["outcome"], r["after"]["code"]) for r in self.called(s)][-1],
                         ("https://other.test/page", "refused", "site_not_listed"))
        self.c.call("POST", f"/v1/sessions/{s['id']}/sites", {"host": "other.test"}, 201)  # opens at once
        self.assertEqual(self.fetch(s, "https://other.test/json")["status"], 200)

    def test_redirects_are_judged_one_by_one(self):
        s = self.made("web.test", "other.test")
        got = self.fetch(s, "http://web.test/to?https%3A%2F%2Fother.test%2Fto%3F%2Fjson")
        self.assertEqual(got["redirects"], ["https://other.test/to?/json", "https://other.test/json"])
        self.assertEqual((got["final_url"], got["site"], got["url"]),
                         ("https://other.test/json", "other.test", "http://web.test/to?https%3A%2F%2Fother.test%2Fto%3F%2Fjson"))
        self.refused(s, 403, "site_not_listed", "http://web.test/to?http%3A%2F%2Fno.test%2Fsecret")
        self.refused(s, 403, "site_not_listed", "http://web.test/to?%2F%2Fno.test%2Fsecret")
        for to in ("file%3A%2F%2F%2Fetc%2Fpasswd", "http%3A%2F%2Fok.test%40no.test%2F", "ftp%3A%2F%2Fweb.test%2F"):
            self.refused(s, 502, "fetch_failed", "http://web.test/to?" + to)
        self.assertEqual(self.far.connections(at=lab.NO4), [])
        self.assertNotIn("no.test", self.far.names())
        p = self.refused(s, 502, "fetch_failed", "http://web.test/loop/0")
        self.assertIn("more than 5 times", p["detail"])
        self.assertEqual([x for h, x in self.far.paths() if x.startswith("/loop")], [f"/loop/{n}" for n in range(6)])
        got = self.fetch(s, "http://web.test/cookie", format="raw")
        self.assertNotIn("cookie", got["text"].lower())

    def test_addresses_that_are_refused(self):
        names = ["lo.test", "lo6.test", "mapped.test", "nat64.test", "meta.test", "zero.test", "priv.test", "cgn.test",
                 "ll.test", "own.test", "own6.test", "multi.test"]
        s = self.made(*[(n, self.d.port) for n in names[:1]], *names, "v4.test")
        for name in names:
            p = self.refused(s, 403, "private_address", f"http://{name}/x")
            self.assertIn(name, p["detail"])
        for url in ("http://127.0.0.1/", "http://localhost/", "http://[::1]/", f"http://127.0.0.1:{self.d.port}/v1/health",
                    f"http://lo.test:{self.d.port}/v1/health"):
            self.refused(s, 403, "private_address", url)
        self.assertEqual(self.far.connections(), [])
        self.assertEqual(self.blocked(s)[("meta.test", 80)][:2], (1, "address_class"))
        self.assertEqual(self.blocked(s)[("127.0.0.1", self.d.port)][:2], (1, "own_port"))
        self.assertEqual(self.fetch(s, "http://v4.test/hello")["text"], "hello from 203.0.113.10\n")
        # Rebinding: the first answer is public, the next is loopback: only what was checked is dialled.
        r = self.made("reb.test")
        got = {self.c.ask("POST", f"/v1/sessions/{r['id']}/web/fetch", {"url": "http://reb.test/hello"}).status for _ in range(4)}
        self.assertEqual(got, {200, 403})

    def test_failures_have_names(self):
        s = self.made("web.test", "ghost.test", "hole.test", ("web.test", 9007), ("web.test", 9008), "selfsigned.test",
                      ("v4.test", 443))
        for url, words in (("http://ghost.test/", "no such name"), ("http://web.test:9007/", ""),
                           ("http://web.test/garbage", "HTTP"), ("http://web.test/endless", ""),
                           ("https://selfsigned.test/", "certificate"), ("https://v4.test/", "")):
            p = self.refused(s, 502, "fetch_failed", url)
            self.assertIn(words, p["detail"], p)
        self.assertEqual([r["outcome"] for r in self.called(s)], ["error"] * 6)

    def test_ipv6(self):
        s = self.made("web6.test")
        self.assertEqual(self.fetch(s, "https://web6.test/json")["status"], 200)
        self.assertEqual([c["at"] for c in self.far.connections(port=443)], ["2001:db8::30"])

    def test_networks(self):
        none, everything = self.session(network="none"), \
            self.c.call("POST", "/v1/sessions?confirm=open", {"folders": [{"path": self.work}], "require_wall": True,
                                                              "network": "open"}, 201)
        self.addCleanup(self.end_session, everything["id"])
        self.refused(none, 403, "network_none", "http://web.test/json")
        self.assertEqual(self.far.names(), [])
        self.assertEqual(self.fetch(everything, "http://web.test/json")["site"], "network open")
        self.refused(everything, 403, "private_address", "http://127.0.0.1/")

    def test_a_site_taken_back_ends_the_call(self):
        s = self.made()
        site = self.c.call("POST", f"/v1/sessions/{s['id']}/sites", {"host": "web.test"}, 201)
        a = self.d.client()
        with a.connect() as sock:
            body = b'{"url":"http://web.test/drip"}'
            sock.sendall(a.head("POST", f"/v1/sessions/{s['id']}/web/fetch", body, {"Content-Type": "application/json"}) + body)
            wait_for(lambda: self.far.paths() == [("web.test", "/drip")], "the request")
            self.c.call("DELETE", f"/v1/sessions/{s['id']}/sites/{site['id']}", want=204)
            got = a.receive(sock, "POST", f"/v1/sessions/{s['id']}/web/fetch", body, "application/json")
        self.assertEqual((got.status, got.json["code"]), (403, "site_not_listed"))
        self.gone()

    def fetchers(self):
        found = []
        for pid in self.d.tree():
            try:
                with open(f"/proc/{pid}/comm") as f:
                    found += [pid] if f.read() == "cordon-fetch\n" else []
            except OSError:
                pass
        return found

    def gone(self):
        wait_for(lambda: not self.fetchers(), "the end of each cordon-fetch")

    def started(self, s, url):
        """A call that is under way: its socket and its process."""
        a = self.d.client()
        sock = a.connect()
        body = b'{"url":"%s"}' % url.encode()
        target = f"/v1/sessions/{s['id']}/web/fetch"
        sock.sendall(a.head("POST", target, body, {"Content-Type": "application/json"}) + body)
        wait_for(lambda: self.far.paths() and self.fetchers(), "the request")
        return lambda: a.receive(sock, "POST", target, body, "application/json"), sock, self.fetchers()[0]

    def test_ends(self):
        s = self.made("web.test")
        answer, sock, pid = self.started(s, "http://web.test/drip")
        os.kill(pid, signal.SIGKILL)
        self.assertEqual((answer().status), 502)
        sock.close()
        answer, sock, pid = self.started(s, "http://web.test/drip")
        sock.close()  # the client hangs up: the process goes
        self.gone()
        self.far = web.Since()
        answer, sock, pid = self.started(s, "http://web.test/drip")
        self.c.ask("POST", f"/v1/sessions/{s['id']}/stop", {"grace_ms": 0})
        got = answer()
        self.assertEqual((got.status, got.json["code"]), (409, "session_ended"))
        sock.close()
        self.gone()
        wait_for(lambda: self.c.call("GET", f"/v1/sessions/{s['id']}")["state"] == "ended", "the session's end")
        self.refused(s, 409, "session_ended", "http://web.test/json")

    def test_the_process_is_locked_down(self):
        s = self.made("web.test")
        _, sock, pid = self.started(s, "http://web.test/drip")
        with open(f"/proc/{pid}/status") as f:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
        self.assertEqual(status["NoNewPrivs"], "1")
        if not os.environ.get("CORDON_SANITIZE"):
            self.assertEqual(status["Seccomp"], "2")
        sock.close()
        self.gone()

    def test_through_the_proxy_of_the_hosts_network(self):
        s = self.made("web.test", "lo.test", "[2001:db8::1]")

        def set(value):
            return self.c.patch("/v1/settings", {"sandbox": {"proxy": {"upstream": value}}})
        self.addCleanup(set, None)
        with test_upstream.Proxy() as p:
            set(f"http://me:p%40ss@{p.at}")
            for scheme in ("http", "https"):
                self.assertEqual(self.fetch(s, scheme + "://web.test/json")["status"], 200)
            self.assertEqual(p.lines, ["GET http://web.test/json HTTP/1.1", "CONNECT web.test:443 HTTP/1.1"])
            self.assertTrue(all(f"Proxy-Authorization: {test_upstream.AUTH}" in h for h in p.heads), p.heads)
            self.assertEqual([("proxy-authorization" in r["headers"], r["path"]) for r in self.far.requests()], [(True, "/json"), (False, "/json")])
            self.assertNotIn("web.test", self.far.names())  # the proxy resolves
            self.refused(s, 403, "site_not_listed", "http://other.test/json")
            self.refused(s, 403, "private_address", "http://[2001:db8::1]/")  # an address that is asked for is judged here
            self.assertEqual(p.n, 2)
            self.assertEqual([r["after"]["address"] for r in self.called(s) if r["outcome"] == "ok"], [p.at] * 2)
        set(f"http://127.0.0.1:{self.d.port}")
        self.assertNotEqual(self.c.ask("POST", f"/v1/sessions/{s['id']}/web/fetch", {"url": "http://web.test/json"}).status, 200)

    def test_who_may(self):
        s, other = self.made("web.test"), self.made("web.test")
        agent = self.agent(s, "exec")
        body = {"url": "http://web.test/json"}
        self.assertEqual(agent.call("POST", f"/v1/sessions/{s['id']}/web/fetch", body)["status"], 200)
        self.assertEqual(agent.ask("POST", f"/v1/sessions/{other['id']}/web/fetch", body).status, 404)
        self.assertEqual(self.agent(s, "read").ask("POST", f"/v1/sessions/{s['id']}/web/fetch", body).status, 403)
        self.assertEqual([r["actor"]["kind"] for r in self.called(s)], ["agent"])

    def test_a_session_without_a_wall_follows_its_list_too(self):
        s = self.made("web.test", require_wall=False)
        self.assertEqual(s["enforcement"]["level"], "none")
        self.refused(s, 403, "site_not_listed", "http://other.test/json")
        self.assertEqual(self.fetch(s, "http://web.test/json")["status"], 200)

    def test_too_many_at_once(self):
        s = self.made("web.test")
        socks = []
        a = self.d.client()
        body = b'{"url":"http://web.test/drip"}'
        for _ in range(16):
            sock = a.connect()
            sock.sendall(a.head("POST", f"/v1/sessions/{s['id']}/web/fetch", body, {"Content-Type": "application/json"}) + body)
            socks.append(sock)
        wait_for(lambda: len(self.far.paths()) == 16, "the requests", 30)
        self.refused(s, 429, "too_many", "http://web.test/json")
        for sock in socks:
            sock.close()
        self.gone()
        self.assertEqual(self.fetch(s, "http://web.test/json")["status"], 200)


class Asked(Web):
    """A person is asked about what is not listed, and the call waits."""

    def post(self, s, url, want, kind="fetch", **more):
        body = {"url": url, **more} if kind == "fetch" else {"query": url, **more}
        return self.c.call("POST", f"/v1/sessions/{s['id']}/web/{kind}", body, want)

    def decide(self, ask_id, answer, **more):
        return self.c.call("POST", f"/v1/asks/{ask_id}/decide", {"answer": answer, **more})

    def asks(self, s):
        return self.c.items(f"/v1/asks?session={s['id']}&state=open")

    def in_background(self, s, url, **more):
        """A call that waits: its answer, once it is read."""
        found = []
        client = self.d.client()
        t = threading.Thread(target=lambda: found.append(client.ask("POST", f"/v1/sessions/{s['id']}/web/fetch", {"url": url, **more})))
        t.start()
        self.addCleanup(t.join)
        return lambda: (t.join(), found[0])[1]

    def one_ask(self, s):
        wait_for(lambda: self.asks(s), "an ask")
        (ask,) = self.asks(s)
        return ask

    def test_session_opens_it_for_commands_too(self):
        s = self.session()
        answer = self.in_background(s, "http://web.test/json", wait_ms=60000)
        ask = self.one_ask(s)
        self.assertEqual((ask["requested_by"], ask["subject"], ask["waiting"]), ("web_fetch", {"host": "web.test", "port": 80}, 1))
        self.assertEqual([x["answer"] for x in ask["answers"]], ["once", "session", "always", "deny"])
        self.assertEqual((self.far.connections(), self.far.names()), ([], []))  # nothing is looked up before
        self.decide(ask["id"], "session")
        got = answer()
        self.assertEqual((got.status, got.json["site"]), (200, "web.test:80"))
        self.assertEqual(self.fetch(s, "http://web.test/json")["status"], 200)
        c = self.run_in(s, "curl -s -o /dev/null -w '%{http_code}' http://web.test/json")
        self.assertEqual(c["text"]["stdout"], "200")
        self.assertEqual(self.asks(s), [])

    def test_once_is_one_call(self):
        s = self.session()
        answer = self.in_background(s, "http://web.test/json", wait_ms=60000)
        self.decide(self.one_ask(s)["id"], "once")
        got = answer()
        self.assertEqual((got.status, got.json["site"]), (200, "allowed once"))
        self.post(s, "http://web.test/json", 202, wait_ms=0)
        self.assertEqual(self.far.paths(), [("web.test", "/json")])

    def test_waiting_and_coming_back(self):
        s = self.session()
        w = self.post(s, "http://web.test/json", 202, wait_ms=0)
        self.assertEqual(set(w), {"state", "ask_id"})
        self.assertEqual(self.post(s, "http://web.test/json", 202, wait_ms=0)["ask_id"], w["ask_id"])  # the one ask of it
        self.assertEqual(self.post(s, "http://web.test/json", 202, wait_ms=100, ask_id=w["ask_id"])["ask_id"], w["ask_id"])
        self.assertEqual(self.far.connections(), [])
        self.assertEqual([r for r in self.called(s)], [])
        self.decide(w["ask_id"], "once")
        got = self.post(s, "http://web.test/json", 200, ask_id=w["ask_id"])
        self.assertEqual((got["status"], got["site"]), (200, "allowed once"))
        # It is spent: the same id opens nothing more, and no other host.
        again = self.post(s, "http://web.test/json", 202, wait_ms=0, ask_id=w["ask_id"])
        self.assertNotEqual(again["ask_id"], w["ask_id"])
        other = self.post(s, "http://other.test/json", 202, wait_ms=0, ask_id=w["ask_id"])
        self.decide(other["ask_id"], "once")
        self.post(s, "http://web.test:8080/hello", 202, wait_ms=0, ask_id=other["ask_id"])
        self.assertEqual(self.far.paths(), [("web.test", "/json")])

    def test_deny_is_for_the_session(self):
        s = self.session()
        answer = self.in_background(s, "https://web.test/json", wait_ms=60000)
        self.decide(self.one_ask(s)["id"], "deny")
        got = answer()
        self.assertEqual((got.status, got.json["code"]), (403, "ask_denied"))
        p = self.refused(s, 403, "ask_denied", "https://web.test/page")
        self.assertIn("give it up", p["hint"])
        self.assertEqual(self.blocked(s)[("web.test", 443)][:2], (2, "denied"))
        self.assertEqual(self.far.connections(), [])
        self.assertEqual(self.asks(s), [])

    def test_a_redirect_is_asked_about_by_itself(self):
        s = self.session(sites=[{"host": "web.test"}])
        answer = self.in_background(s, "http://web.test/to?http%3A%2F%2Fother.test%2Fjson", wait_ms=60000)
        ask = self.one_ask(s)
        self.assertEqual(ask["subject"], {"host": "other.test", "port": 80})
        self.assertNotIn("other.test", self.far.names())
        self.decide(ask["id"], "once")
        got = answer().json
        self.assertEqual((got["final_url"], got["site"], got["redirects"]), ("http://other.test/json", "allowed once", ["http://other.test/json"]))

    def test_once_on_each_hop_survives_coming_back(self):
        s = self.session()
        url = "http://web.test/to?http%3A%2F%2Fother.test%2Fjson"
        first = self.post(s, url, 202, wait_ms=0)["ask_id"]
        self.decide(first, "once")
        second = self.post(s, url, 202, wait_ms=0, ask_id=first)["ask_id"]
        self.assertNotEqual(second, first)
        self.decide(second, "once")
        got = self.post(s, url, 200, ask_id=second)
        self.assertEqual((got["status"], got["redirects"]), (200, ["http://other.test/json"]))
        self.post(s, url, 202, wait_ms=0, ask_id=second)  # all of it is spent
        self.assertEqual([p for h, p in self.far.paths() if h == "other.test"], ["/json"])

    def test_once_is_one_request_however_often_the_call_comes_back(self):
        s = self.session()
        url = "http://web.test/to?http%3A%2F%2Fother.test%2Fjson"
        first = self.post(s, url, 202, wait_ms=0)["ask_id"]
        self.decide(first, "once")
        second = self.post(s, url, 202, wait_ms=0, ask_id=first)["ask_id"]
        for _ in range(3):
            self.assertEqual(self.post(s, url, 202, wait_ms=0, ask_id=second)["ask_id"], second)
        self.assertNotEqual(self.post(s, "http://web.test/json?more", 202, wait_ms=0, ask_id=second)["ask_id"], second)
        self.assertEqual(len([p for h, p in self.far.paths() if h == "web.test"]), 1)
        rows = self.c.items(f"/v1/audit?action=web.called&session={s['id']}")
        self.assertEqual([(r["target"], r["outcome"]) for r in rows], [(url, "refused")])
        self.decide(second, "deny")
        self.assertEqual(self.post(s, url, 403, ask_id=second)["code"], "ask_denied")
        self.assertEqual(len([p for h, p in self.far.paths() if h == "web.test"]), 1)

    def test_search_is_asked_about(self):
        s = self.session()
        w = self.post(s, "one two", 202, "search", provider="duckduckgo", wait_ms=0)
        (ask,) = self.asks(s)
        self.assertEqual((ask["id"], ask["requested_by"], ask["subject"]),
                         (w["ask_id"], "web_search", {"host": "html.duckduckgo.com", "port": 443}))
        self.decide(w["ask_id"], "once")
        self.assertEqual(len(self.post(s, "one two", 200, "search", provider="duckduckgo", ask_id=w["ask_id"])["results"]), 2)

    def test_who_leaves_and_what_ends(self):
        s = self.session()
        a = self.d.client()
        target, body = f"/v1/sessions/{s['id']}/web/fetch", b'{"url":"http://web.test/json","wait_ms":60000}'
        with a.connect() as sock:
            sock.sendall(a.head("POST", target, body, {"Content-Type": "application/json"}) + body)
            ask = self.one_ask(s)
        wait_for(lambda: self.one_ask(s)["waiting"] == 0, "the caller's leaving")  # the card stays, without once
        self.assertEqual([x["answer"] for x in self.one_ask(s)["answers"]], ["session", "always", "deny"])
        answer = self.in_background(s, "http://web.test/json", wait_ms=60000)
        wait_for(lambda: self.one_ask(s)["waiting"] == 1, "the call")
        self.end_session(s["id"])
        got = answer()
        self.assertEqual((got.status, got.json["code"]), (409, "session_ended"))
        self.assertEqual(self.c.call("GET", "/v1/asks/" + ask["id"])["state"], "cancelled")
        self.assertEqual(self.far.connections(), [])

    def test_never_offered(self):
        s = self.session()
        for url in ("http://127.0.0.1/", "http://169.254.169.254/latest", "http://localhost:1/"):
            self.refused(s, 403, "private_address", url)
        self.assertEqual(self.asks(s), [])
        w = self.post(s, "http://lo.test/json", 202, wait_ms=0)  # a name may be asked about; where it leads is judged then
        self.decide(w["ask_id"], "session")
        self.refused(s, 403, "private_address", "http://lo.test/json", ask_id=w["ask_id"])
        none = self.session(network="none")
        self.refused(none, 403, "network_none", "http://web.test/json")


class Search(Web):
    PROVIDERS = "/v1/web/providers/"

    def search(self, s, want=200, code=None, **body):
        path = f"/v1/sessions/{s['id']}/web/search"
        return self.c.problem(want, code, "POST", path, body) if code else self.c.call("POST", path, body)

    def setting(self, value):
        etag = self.c.ask("GET", "/v1/settings").etag
        self.c.call("PATCH", "/v1/settings", b'{"web":{"search_provider":%s}}' % value, 200,
                    {"Content-Type": "application/merge-patch+json", "If-Match": etag})

    def test_brave(self):
        s = self.made(("api.search.brave.com", 443))
        self.search(s, 409, "search_not_configured", query="q")
        self.search(s, 409, "search_not_configured", query="q", provider="brave")
        self.assertEqual(self.far.connections(), [])
        self.c.call("PUT", self.PROVIDERS + "brave", {"key": "good-brave-key"})
        self.setting(b'"brave"')
        got = self.search(s, query="fish & chips?", count=7)
        self.assertEqual(got["results"], [{"title": "First hit", "url": "https://ok.test/a?b=1&c=2", "snippet": "A & b"},
                                          {"title": "Second", "url": "http://ok.test/2", "snippet": ""}])
        self.assertEqual((got["provider"], got["site"], got["enforcement"]["level"]), ("brave", "api.search.brave.com:443", "none"))
        (r,) = self.far.requests()
        self.assertEqual((r["method"], r["path"], r["tls"]), ("GET", "/res/v1/web/search?q=fish%20%26%20chips%3F&count=7", True))
        self.assertEqual(r["headers"]["x-subscription-token"], "good-brave-key")
        self.assertEqual(self.search(s, query="none")["results"], [])
        self.assertEqual(len(self.search(s, query="q", count=1)["results"]), 1)
        for query, words in (("odd", "cannot be read"), ("busy", "429"), ("elsewhere", "")):
            self.assertIn(words, self.search(s, 502, "fetch_failed", query=query)["detail"])
        self.assertEqual(self.far.connections(at=lab.NO4), [])
        self.c.call("PUT", self.PROVIDERS + "brave", {"key": "bad-key-9137"})
        self.assertIn("refused the key", self.search(s, 502, "fetch_failed", query="q")["detail"])
        (row,) = [r for r in self.called(s) if r["after"].get("query") == "fish & chips?"]
        self.assertEqual((row["target"], row["outcome"], row["after"]["results"]), ("search brave", "ok", 2))
        for what in ("/v1/audit?limit=500", "/v1/settings", "/v1/events?after=0&wait_ms=0"):
            body = self.c.ask("GET", what, headers={"Accept": "application/json"}).body
            self.assertFalse(b"brave-key" in body or b"9137" in body, what)
        self.assertFalse("brave-key" in self.d.log() or "9137" in self.d.log())
        self.setting(b"null")
        self.c.call("DELETE", self.PROVIDERS + "brave", want=204)

    def test_tavily(self):
        s = self.made("api.tavily.com")
        self.c.call("PUT", self.PROVIDERS + "tavily", {"key": "good-tavily-key"})
        got = self.search(s, query='say "hi"\n', provider="tavily", count=2)
        self.assertEqual(got["results"][0], {"title": "T one", "url": "https://ok.test/t1", "snippet": "line one line two"})
        self.assertEqual(got["results"][1]["snippet"], "z" * 4000)
        (r,) = self.far.requests()
        self.assertEqual((r["method"], r["path"], r["body"]), ("POST", "/search", '{"query":"say \\"hi\\"\\n","max_results":2}'))
        self.assertEqual(r["headers"]["authorization"], "Bearer good-tavily-key")
        self.c.call("DELETE", self.PROVIDERS + "tavily", want=204)

    def test_duckduckgo(self):
        s = self.made("html.duckduckgo.com")
        got = self.search(s, query="one two", provider="duckduckgo")
        self.assertEqual(got["results"], [{"title": "One result", "url": "https://ok.test/one?a=1&b=2", "snippet": 'Snip "one" bold'},
                                          {"title": "Two", "url": "https://ok.test/two", "snippet": ""}])
        self.assertEqual([x["path"] for x in self.far.requests()], ["/html/?q=one%20two"])

    def test_a_provider_whose_site_is_not_listed(self):
        s = self.made("web.test")
        self.search(s, 403, "site_not_listed", query="q", provider="duckduckgo")
        self.assertEqual(self.far.connections(), [])
        self.assertEqual(self.blocked(s), {("html.duckduckgo.com", 443): (1, "not_listed", None)})
        self.search(self.session(network="none"), 403, "network_none", query="q", provider="duckduckgo")

    def test_bodies(self):
        s = self.made()
        for bad in ({}, {"query": ""}, {"query": "q" * 2001}, {"query": "q", "count": 0}, {"query": "q", "count": 21},
                    {"query": "q", "provider": "google"}, {"query": 1}, {"query": "q", "key": "x"}):
            self.search(s, 422, "body_invalid", **bad)
        self.search(s, 409, "search_not_configured", query="q", provider=None)


if __name__ == "__main__":
    unittest.main(verbosity=2)
