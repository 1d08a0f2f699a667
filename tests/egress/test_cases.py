"""Known holes and faults of proxies, tried from inside a session, through cordond and its egress.

Each test names its case. Judged by the far servers' log and the host's own listeners; the same
bytes reach their servers when nothing stands between (the controls).
"""
import base64
import json
import os
import socket
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402

lab.enter()
from cordon_test.api import ApiTest  # noqa: E402
from cordon_test.egress import body, status  # noqa: E402

MIB = 1 << 20
# Inside: each request of REQUESTS, bytes in base64, on a connection of its own to the door; prints
# what came back until the end. ["shut", …]: the sending side is closed behind it.
DOOR = """
import base64, json, os, socket, sys
port = int(os.environ["http_proxy"].strip("/").rsplit(":", 1)[1])
out = []
for how, text in json.load(open("requests")):
    with socket.create_connection(("127.0.0.1", port), 20) as s:
        try:
            s.sendall(base64.b64decode(text))
            if how == "shut":
                s.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        got = b""
        try:
            while True:
                more = s.recv(1 << 18)
                if not more:
                    break
                got += more
        except ConnectionResetError:
            got += b"<reset>"
        except TimeoutError:
            got += b"<silence>"
        out.append(base64.b64encode(got).decode())
json.dump(out, open("answers", "w"))
"""


def get(url, method="GET", fields="Host: x\r\nConnection: close\r\n"):
    return f"{method} {url} HTTP/1.1\r\n{fields}\r\n".encode("latin-1")


def connect(target, then=b""):
    return f"CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode("latin-1") + then


class Cases(ApiTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(os.path.join(cls.work, "door.py"), "w") as f:
            f.write(DOOR)

    def setUp(self):
        self.mark = lab.mark()

    def ask(self, s, requests):
        """The answers to the requests, made inside."""
        rows = [r if isinstance(r, tuple) else ("", r) for r in requests]
        with open(os.path.join(self.work, "requests"), "w") as f:
            json.dump([(how, base64.b64encode(text).decode()) for how, text in rows], f)
        c = self.run_in(s, argv=["/usr/bin/python3", "door.py"], cwd=self.work)
        self.assertEqual(c["result"]["exit_code"], 0, c)
        with open(os.path.join(self.work, "answers")) as f:
            answers = [base64.b64decode(text) for text in json.load(f)]
        self.assertEqual(len(answers), len(rows))
        return answers

    def codes(self, s, requests):
        return [status(a) for a in self.ask(s, requests)]

    def reached(self, **wanted):
        lab.mark()
        return lab.reached(self.mark, **wanted)

    def no_test_is_untouched(self):
        self.assertEqual(self.reached(at=lab.NO4) + self.reached(at=lab.NO6), [])
        self.assertEqual([n for n in lab.asked(self.mark) if n.endswith("no.test")], [])

    def blocked(self, s):
        return {(b["host"], b["port"]): (b["count"], b["reason"])
                for b in self.c.call("GET", f"/v1/sessions/{s['id']}/blocked")["items"]}

    # case 53
    def test_plain_http_is_judged_like_connect(self):
        s = self.session(sites=[{"host": "ok.test", "port": 8080}])
        urls = ["http://no.test:8080/?a=b", "http://no.test/", "http://no.test:81/x"]
        methods = ["GET", "POST", "HEAD", "OPTIONS", "TRACE", "DELETE"]
        self.assertEqual(self.codes(s, [get(u, m) for u in urls for m in methods]), [403] * 18)
        self.assertEqual(self.codes(s, [get("ftp://no.test/"), get("/"), get("https://no.test/")]), [400] * 3)
        self.assertEqual(self.blocked(s), {("no.test", p): (6, "not_listed") for p in (80, 81, 8080)})
        self.no_test_is_untouched()
        self.assertEqual(self.codes(s, [get("http://ok.test:8080/hello")]), [200])

    # case 55
    def test_bytes_that_end_a_name_early(self):
        s = self.session(sites=[{"host": "*.ok.test"}, {"host": "ok.test"}])
        names = ["no.test\0.ok.test", "no.test%00.ok.test", "no.test .ok.test", "no.test\r\n.ok.test",
                 "no.test#.ok.test", "no.test?.ok.test", "ok.test@no.test", "no.test\\.ok.test", "no.test\t.ok.test",
                 "no.test\x7f.ok.test", "n\xf6.ok.test", "a" * 64 + ".ok.test", ""]
        answers = self.ask(s, [connect(name + ":443") for name in names])
        self.assertEqual([status(a) for a in answers], [400] * len(names))
        told = [row for row in self.audit(f"session={s['id']}") if row["action"] == "site.blocked"]
        self.assertEqual(len(told), len(names))
        self.assertTrue(all(str(row["target"] or "").isprintable() for row in told), told)
        self.no_test_is_untouched()
        self.assertEqual(self.reached(), [])

    # case 56
    def test_labels(self):
        wild = self.session(sites=[{"host": "*.ok.test", "port": 443}])
        exact = self.session(sites=[{"host": "ok.test", "port": 443}])
        names = ["notok.test", "ok.test.no.test", "ok.testx", "-ok.test", "ok.tes"]
        for s, refused in ((wild, names + ["ok.test"]), (exact, names + ["a.b.ok.test"])):
            self.assertEqual(self.codes(s, [connect(n + ":443") for n in refused]), [403] * 6)
            self.assertEqual(self.codes(s, [connect(n + ":443") for n in (".ok.test", "*.ok.test")]), [400] * 2)
        self.assertEqual(self.reached(), [])
        self.assertEqual(self.codes(wild, [("shut", connect("a.b.ok.test:443"))]), [200])
        self.assertEqual(self.codes(exact, [("shut", connect("OK.TEST.:443"))]), [200])

    # case 58
    def test_brackets_ports_and_a_host_field_that_differs(self):
        s = self.session(sites=[{"host": "ok.test", "port": 8080}, {"host": "ok.test", "port": 443}])
        two = "Host: ok.test\r\nHost: no.test\r\n"
        self.assertEqual(self.codes(s, [
            connect("[ok.test]:443"), connect("ok.test"), connect("ok.test:0443"), connect("ok.test:+443"),
            connect("ok.test:443 "), connect("ok.test:65979"), get("http://ok.test:8080/", fields=two)]), [400] * 7)
        self.assertEqual(self.codes(s, [get("http://ok.test:8080/hello", fields="Host: no.test:8080\r\n"
                                            "Connection: close\r\n")]), [200])
        self.assertEqual([r["host"] for r in lab.requests(self.mark)], ["ok.test:8080"])
        self.no_test_is_untouched()

    # case 59, 64
    def test_addresses_that_are_never_reached(self):
        names = ["lo.test", "lo6.test", "mapped.test", "compat.test", "nat64.test", "sixtofour.test", "meta.test",
                 "meta6.test", "zero.test", "cgn.test", "ll.test", "ll6.test", "own.test", "own6.test", "priv.test",
                 "reg.corp", "ula.test"]
        direct = ["127.0.0.1", "[::1]", "0.0.0.0", "localhost", "203.0.113.1", "169.254.169.254",
                  "[::ffff:127.0.0.1]", socket.gethostname().lower()]
        got, listeners = [], []
        for family, at in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            listener = socket.socket(family)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((at, listeners[0].getsockname()[1] if listeners else 0))
            listener.listen()
            listeners.append(listener)

        def accepts(listener):
            while True:
                try:
                    got.append(listener.accept()[1])
                except OSError:
                    return

        threads = [threading.Thread(target=accepts, args=(listener,)) for listener in listeners]
        for t in threads:
            t.start()
        port = listeners[0].getsockname()[1]
        try:
            s = self.session(sites=[{"host": h.strip("[]"), "port": port} for h in names])
            answers = self.ask(s, [connect(f"{h}:{port}") for h in names + direct])
            self.assertEqual([status(a) for a in answers], [403] * len(answers), answers)
            o = self.c.call("POST", "/v1/sessions?confirm=open",
                            {"folders": [{"path": self.work}], "require_wall": True, "network": "open"}, 201)
            self.addCleanup(self.end_session, o["id"])
            answers = self.ask(o, [connect(f"{h}:{p}") for h in direct[:-1] for p in (port, self.d.port)])
            self.assertEqual([status(a) for a in answers], [403] * len(answers), answers)
            socket.create_connection(("127.0.0.1", port)).close()  # the control
            lab.wait_for(lambda: got, "the control")
        finally:
            for listener in listeners:
                listener.shutdown(socket.SHUT_RDWR)
                listener.close()
            for t in threads:
                t.join()
        self.assertEqual(len(got), 1, "a listener of the host was reached")
        self.assertEqual(self.reached(), [])

    # case 59
    def test_rebinding(self):
        s = self.session(sites=[{"host": "reb.test", "port": 8080}, {"host": "mix.test", "port": 443}])
        codes = self.codes(s, [get("http://reb.test:8080/hello")] * 6)  # ordinary, then 127.0.0.1, by turns
        self.assertEqual(sorted(codes), [200] * 3 + [403] * 3)
        self.assertEqual(self.codes(s, [("shut", connect("mix.test:443"))]), [200])
        self.assertEqual({r["at"] for r in self.reached()}, {lab.OK4})

    # case 61
    def test_a_private_address_says_how_to_allow_exactly_that(self):
        site = {"host": "reg.corp", "port": 443}
        s = self.session(sites=[site])
        answer = self.ask(s, [connect("reg.corp:443")])[0]
        self.assertEqual(status(answer), 403)
        for part in (b"reg.corp resolves to a private address 192.168.77.10:443", b"allow_private"):
            self.assertIn(part, answer)
        self.assertEqual(self.blocked(s)[("reg.corp", 443)], (1, "address_class"))
        other = self.session()
        self.c.call("POST", f"/v1/sessions/{other['id']}/sites?confirm=reg.corp", {**site, "allow_private": True}, 201)
        self.assertEqual(self.codes(other, [("shut", connect("reg.corp:443"))]), [200])
        self.assertEqual(self.codes(other, [connect("priv.test:443")]), [403])  # exactly that
        self.assertEqual([r["at"] for r in self.reached()], ["192.168.77.10"])

    # case 65
    def test_names_do_not_leave(self):
        s = self.session(sites=[{"host": "ok.test"}])
        self.run_in(s, "getent hosts leak-1.no.test; curl -s http://leak-3.no.test/; curl -s https://leak-4.no.test/; "
                    "/usr/bin/python3 -c 'import socket; socket.getaddrinfo(\"leak-2.no.test\", 80)'")
        lab.mark()
        self.assertEqual(lab.asked(self.mark), [])
        self.assertEqual(self.codes(s, [get("http://ok.test/hello")]), [200])
        self.assertEqual(set(lab.asked(self.mark)), {"ok.test"})

    # case 73
    def test_half_closed_tunnels_keep_the_answer(self):
        s = self.session(sites=[{"host": "ok.test", "port": p} for p in (9001, 9004)] +
                         [{"host": "ok.test", "port": 8080}])
        with socket.create_connection((lab.OK4, 9001)) as bare:  # the control
            bare.shutdown(socket.SHUT_WR)
            n = 0
            while True:
                data = bare.recv(1 << 18)
                if not data:
                    break
                n += len(data)
        self.assertEqual(n, MIB)
        answers = self.ask(s, [("shut", connect("ok.test:9001", b"request")), connect("ok.test:9004", b"x" * 5000),
                               get("http://ok.test:8080/close/1048576")])
        self.assertEqual([len(body(a)) for a in answers], [MIB] * 3)
        lab.wait_for(lambda: [r for r in lab.lines(self.mark) if r.get("read") == 5000],
                     "what was sent after the server's end")
        lab.wait_for(lambda: {(r["target"], r["after"]["up_bytes"], r["after"]["down_bytes"])
                              for r in self.audit(f"session={s['id']}") if r["action"] == "connection.closed"}
                     >= {("ok.test:9001", 7, MIB), ("ok.test:9004", 5000, MIB)}, "both ends told, bytes counted")

    # case 74
    def test_expect_and_early_answers(self):
        s = self.session(sites=[{"host": "ok.test", "port": 8080}])
        curl = "head -c 4000000 /dev/zero > big; curl -sS -m 30 -o out -w '%{http_code} ' -T big -H 'Expect: 100-continue' "
        for path, code in (("continue", "200"), ("count", "200"), ("early/413", "413")):
            c = self.run_in(s, curl + f"http://ok.test:8080/{path}", cwd=self.work)
            self.assertEqual(c["text"]["stdout"], code + " ", c)
        self.assertEqual(self.codes(s, [
            get("http://ok.test:8080/echo", "POST", "Host: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n") + b"abc",
            get("http://ok.test:8080/echo", "POST", "Host: x\r\nContent-Length: -1\r\n")]), [400, 400])
        chunked = get("http://ok.test:8080/trailers")
        self.assertTrue(self.ask(s, [chunked])[0].endswith(b"0\r\nX-Sum: 42\r\n\r\n"))

    # case 76
    def test_policy_and_trouble_are_told_apart(self):
        ports = (9999, 9007, 9008, 9009)
        s = self.session(sites=[{"host": "nowhere.test"}] + [{"host": "ok.test", "port": p} for p in ports])
        answers = self.ask(s, [connect("nowhere.test:443"), connect("ok.test:9999"), connect("no.test:443")] +
                           [get(f"http://ok.test:{p}/") for p in ports[1:]])
        self.assertEqual([status(a) for a in answers], [502, 502, 403, 502, 502, 502])
        for part in (b"no.test:443", b"cordon sites add no.test:443"):
            self.assertIn(part, answers[2])
        for a in answers[:2] + answers[3:]:
            self.assertNotIn(b"cordon sites add", a)

    # case 77
    def test_every_request_of_a_kept_connection_is_judged(self):
        s = self.session(sites=[{"host": "ok.test", "port": 8080}])
        one = get("http://ok.test:8080/hello", fields="Host: x\r\n")
        two = get("http://no.test:8080/hello", fields="Host: x\r\nAuthorization: secret\r\n")
        post = get("http://ok.test:8080/echo", "POST", "Host: x\r\nTransfer-Encoding: chunked\r\n") + b"5\r\nhello\r\n0\r\n\r\n"
        inner = get("http://ok.test:8080/echo", "POST", f"Host: x\r\nConnection: close\r\nContent-Length: {len(two)}\r\n") + two
        answers = self.ask(s, [one + two, post + two, one + one + post + two, inner])
        codes = [[int(part[:3]) for part in a.split(b"HTTP/1.1 ")[1:] if part[:3].isdigit()] for a in answers]
        self.assertEqual(codes, [[200, 403], [200, 403], [200, 200, 200, 403], [200]])
        self.assertEqual(self.blocked(s), {("no.test", 8080): (3, "not_listed")})
        self.no_test_is_untouched()
        self.assertEqual([r for r in lab.requests(self.mark) if "secret" in r["head"]], [])

    # case 82
    def test_a_refusal_says_who_and_what_to_do(self):
        s = self.session()
        text = get("http://no.test/")
        told = json.loads(body(self.ask(s, [get("http://no.test/", fields="Host: x\r\nAccept: application/json\r\n")])[0]))
        self.assertEqual((told["host"], told["port"], told["code"]), ("no.test", 80, "site_not_listed"))
        self.assertTrue(told["rule"] and "cordon sites add no.test:80" in told["hint"], told)
        self.assertEqual(self.codes(s, [text] * 20), [403] * 20)
        self.assertEqual(self.blocked(s)[("no.test", 80)], (21, "not_listed"))


class Upstream(ApiTest):
    """The daemon was started with proxy variables that name the door of its own sessions, as it has them
    when it is started inside one. Its own API port as a proxy: test_upstream.py."""
    env = {"HTTPS_PROXY": "http://127.0.0.1:7410", "HTTP_PROXY": "http://127.0.0.1:7410",
           "ALL_PROXY": "http://127.0.0.1:7410"}

    # case 79
    def test_the_daemons_own_proxy_variables_make_no_loop(self):
        mark = lab.mark()
        s = self.session(sites=[{"host": "v4.test"}])
        c = self.run_in(s, "curl -s -w ' %{http_code}' http://v4.test/")
        self.assertIn("the upstream proxy 127.0.0.1:7410", c["text"]["stdout"])
        self.assertTrue(c["text"]["stdout"].endswith(" 502"), c)
        self.assertEqual(lab.reached(mark), [])


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
