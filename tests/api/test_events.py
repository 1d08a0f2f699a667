"""GET /events: each change is told once and in order, to whoever may know of it; a stream is resumed where
it was cut; who is left behind is told to begin anew, and delays nobody."""
import http.client
import json
import os
import socket
import struct
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest
from cordon_test.cli import wait_for

JSON = {"Accept": "application/json"}
EVENTS_MAX = 10000
ROUNDS = 60 if os.environ.get("CORDON_LONG") else 5  # of 2,700 events


class Events(ApiTest):
    def follow(self, query="", who=None, **headers):
        s = (who or self.c).stream("GET", "/v1/events" + query, headers)
        self.addCleanup(s.close)
        self.assertEqual((s.status, s.headers["Content-Type"]), (200, "text/event-stream"))
        self.assertEqual(s.line(), b": cordon\n")  # it is connected: what happens from now on is told
        return s

    def add_site(self, host):
        return self.c.call("POST", "/v1/sites", {"host": host}, 201)

    def until(self, stream, type, change, **more):
        """The first event of that kind; those before it."""
        before = []
        while e := stream.event():
            if e["type"] == type and e.get("change") == change and all(e.get(k) == v for k, v in more.items()):
                return e, before
            before.append(e)
        self.fail(f"it ended before {type} {change}: {before}")

    def poll(self, query="", who=None):
        return (who or self.c).call("GET", "/v1/events" + query, headers=JSON)

    # ---- What is told ------------------------------------------------------------------------------

    def test_sites_and_settings(self):
        with self.follow("?types=site,settings") as s:
            row = self.add_site("one.example")
            self.assertEqual({k: v for k, v in s.event().items() if k != "at"},
                             {"type": "site", "id": row["id"], "rev": 1, "change": "created"})
            self.c.patch(f"/v1/sites/{row['id']}", {"enabled": False})
            e = s.event()
            self.assertEqual((e["id"], e["rev"], e["change"]), (row["id"], 2, "updated"))
            self.c.call("DELETE", f"/v1/sites/{row['id']}", want=204)
            self.assertEqual((s.event()["change"]), "removed")
            got = self.c.patch("/v1/settings", {"limits": {"command_timeout_ms": 900000}})
            e = s.event()
            self.assertEqual((e["type"], e["id"], e["rev"]), ("settings", "settings", got["rev"]))
            many = self.c.call("POST", "/v1/sites/batch", {"add": [{"host": f"b{i}.example"} for i in range(3)]})
            self.assertEqual([s.event()["id"] for _ in range(3)], [x["site"]["id"] for x in many["items"]])

    def test_a_refused_change_is_not_told(self):
        with self.follow("?types=site") as s:
            self.c.problem(422, "site_invalid", "POST", "/v1/sites", {"host": "http://x.example/"})
            self.c.call("POST", "/v1/sites/batch?dry_run=1", {"add": [{"host": "dry.example"}]})
            row = self.add_site("told.example")
            self.assertEqual(s.event()["id"], row["id"])

    def test_a_session_and_its_command(self):
        with self.follow() as s:
            made = self.session(keep=True)
            first, _ = self.until(s, "session", "created")
            self.assertEqual((first["id"], first["session_id"]), (made["id"], made["id"]))
            c = self.run_in(made, "true")
            e, _ = self.until(s, "command", "created")
            self.assertEqual((e["id"], e["session_id"]), (c["id"], made["id"]))
            self.assertEqual((e["enforcement"], e["origin"]), (c["enforcement"], c["origin"]))
            # The newest of its events is of its end: whoever GETs it then sees that.
            while e["rev"] < 4:
                e, _ = self.until(s, "command", "updated", id=c["id"])
            wait_for(lambda: self.c.ask("DELETE", self.at(c)).status == 204, "its supervisor to go")
            self.assertEqual(self.until(s, "command", "removed")[0]["id"], c["id"])
            self.end_session(made["id"])
            while self.c.call("GET", f"/v1/sessions/{made['id']}")["state"] != "ended":
                self.until(s, "session", "updated", id=made["id"])
            self.c.call("DELETE", f"/v1/sessions/{made['id']}", want=204)
            self.assertEqual(self.until(s, "session", "removed")[0]["id"], made["id"])

    def test_files_and_own_sites(self):
        made = self.session()
        at = f"/v1/sessions/{made['id']}"
        folder = self.folder("told")
        with self.follow(f"?types=file,site&session={made['id']}") as s:
            path = self.work + "/told.txt"
            for change in ("created", "updated"):
                self.c.ask("PUT", f"{at}/files/content?path={path}", b"x")
                e = s.event()
                self.assertEqual((e["type"], e["id"], e["change"], e["session_id"]), ("file", path, change, made["id"]))
                self.assertEqual((e["enforcement"], e["origin"]), (made["enforcement"], {"kind": "agent"}))
            self.c.call("POST", at + "/files/move", {"from": path, "to": path + "2"})
            self.assertEqual([(e["id"], e["change"]) for e in (s.event(), s.event())],
                             [(path, "removed"), (path + "2", "created")])
            self.c.problem(403, "outside_session", "POST", at + "/files/mkdir", {"path": folder + "/x"})
            self.add_site("other.example")  # of no session
            site = self.c.call("POST", at + "/sites", {"host": "own.example"}, 201)
            e = s.event()
            self.assertEqual((e["type"], e["id"], e["session_id"], e["change"]),
                             ("site", site["id"], made["id"], "created"))
            self.c.call("DELETE", f"{at}/sites/{site['id']}", want=204)
            self.assertEqual((s.event()["change"]), "removed")

    def test_what_was_blocked_and_recorded(self):
        made = self.session()
        with self.follow("?types=blocked,audit") as s:
            self.run_in(made, "curl -s -o /dev/null http://no.example/; curl -s -o /dev/null http://no.example/; true")
            e, before = self.until(s, "blocked", "created")
            self.assertEqual((e["id"], e["session_id"], e["rev"] >= 1), ("no.example:80", made["id"], True))
            while e["rev"] < 2:
                e, more = self.until(s, "blocked", "updated")
                before += more
            self.assertIn("audit", {x["type"] for x in before})
            last = [x for x in before if x["type"] == "audit"][-1]
            rows = self.c.call("GET", "/v1/audit?limit=100")["items"]
            row = next(r for r in rows if r["id"] == last["id"])
            self.assertEqual(row["seq"], last["rev"])

    # ---- Where it goes on --------------------------------------------------------------------------

    def test_resumed_by_id_nothing_is_lost_nor_told_twice(self):
        with self.follow("?types=site") as s:
            rows = [self.add_site(f"r{i}.example")["id"] for i in range(3)]
            self.assertEqual(s.event()["id"], rows[0])
            at = s.at
        rows.append(self.add_site("r3.example")["id"])
        for headers, query in (({"Last-Event-ID": at}, ""), ({}, "&after=" + at), ({"Last-Event-ID": at}, "&after=0")):
            if query.endswith("=0"):
                self.c.problem(422, "query_invalid", "GET", "/v1/events?types=site&after=0")
            with self.follow("?types=site" + query, **headers) as s:
                self.assertEqual([s.event()["id"] for _ in range(3)], rows[1:])
        # The place is told also when nothing passed the filter.
        with self.follow("?types=toolchain") as s:
            self.assertRegex(s.line(), rb"^id: [0-9a-f]{8}-[0-9]+\n$")

    def test_another_start_of_the_daemon_is_a_reset(self):
        with self.follow("?types=site") as s:
            self.add_site("before.example")
            s.event()
            at = s.at
            self.d.stop()
            e = s.event()
            self.assertEqual(e["type"], "shutdown")
            self.assertIsNone(s.event())
        self.d.start()
        s = self.c.stream("GET", "/v1/events?types=site", {"Last-Event-ID": at})
        with s:
            self.assertEqual(s.event()["type"], "reset")
            self.assertNotEqual(s.at.split("-")[0], at.split("-")[0])
            row = self.add_site("after.example")  # it goes on
            self.assertEqual(s.event()["id"], row["id"])
        self.assertEqual(self.poll("?after=" + at)["events"][0]["type"], "reset")
        self.assertEqual(self.poll("?after=" + at.split("-")[0] + "-9007199254740992")["events"][0]["type"], "reset")

    def test_the_long_poll_form(self):
        now = self.poll("?types=site")
        self.assertEqual(now["events"], [])
        row = self.add_site("poll.example")
        got = self.poll("?types=site&after=" + now["next"])
        self.assertEqual([e["id"] for e in got["events"]], [row["id"]])
        self.assertEqual(self.poll("?types=site&wait_ms=1&after=" + got["next"])["events"], [])
        answer = {}
        waits = threading.Thread(target=lambda: answer.update(
            self.poll("?types=ask,site&wait_ms=60000&after=" + got["next"])))
        waits.start()
        self.c.patch("/v1/settings", {"limits": {"command_timeout_ms": 800000}})  # wakes it, and is not for it
        row = self.add_site("poll2.example")
        waits.join(60)
        self.assertEqual([e["id"] for e in answer["events"]], [row["id"]])
        # What a page takes at most; the rest comes with `next`.
        self.c.call("POST", "/v1/sites/batch", {"add": [{"host": f"p{i}.example"} for i in range(600)]})
        first = self.poll("?types=site&after=" + answer["next"])
        rest = self.poll("?types=site&after=" + first["next"])
        self.assertEqual((len(first["events"]), len(rest["events"])), (500, 100))

    def test_what_is_not_asked_properly(self):
        for query in ("?types=sites", "?types=site,,", "?session=x", "?after=x", "?after=0123456-1", "?wait_ms=1",
                      "?after=0123456g-1", "?after=01234567-", "?after=01234567-1x", "?nope=1"):
            self.c.problem(422, "query_invalid", "GET", "/v1/events" + query)
        self.c.problem(422, "query_invalid", "GET", "/v1/events", headers={"Last-Event-ID": "x"})
        self.c.problem(406, "not_acceptable", "GET", "/v1/events", headers={"Accept": "text/html"})
        self.poll("?types=reset,revoked,shutdown,site")

    def test_head_of_it_ends(self):
        a = self.c.ask("HEAD", "/v1/events")
        self.assertEqual((a.status, a.body), (200, b""))

    # ---- Who is told -------------------------------------------------------------------------------

    def test_an_agent_hears_of_its_own_session_alone(self):
        mine, other = self.session(), self.session()
        agent = self.agent(mine, "read")
        with self.follow(who=agent) as s, self.follow(f"?session={mine['id']}", who=agent) as same:
            self.add_site("machine.example")
            self.run_in(other, "true")
            c = self.run_in(mine, "true")
            for x in (s, same):
                e = x.event()
                self.assertEqual((e["type"], e["id"]), ("command", c["id"]))
        for query in ("", f"?session={mine['id']}"):
            self.assertEqual(self.poll(query, who=agent)["events"], [])
        agent.problem(404, "not_found", "GET", f"/v1/events?session={other['id']}")
        agent.problem(404, "not_found", "GET", "/v1/events?session=ses_" + "0" * 26)

    def test_read_is_needed(self):
        self.holder("exec").problem(403, "scope_missing", "GET", "/v1/events")
        self.d.client(via="v4").problem(401, "token_missing", "GET", "/v1/events")

    def test_revoked_is_the_last_word(self):
        t = self.c.call("POST", "/v1/tokens", {"name": "x", "scopes": ["read"]}, 201)
        whole = {}
        them = self.d.client(via="v4", token=t["token"])
        with self.follow(who=them) as s:
            reads = threading.Thread(target=lambda: whole.update(answer=them.ask("GET", "/v1/events?types=site")))
            reads.start()
            while not whole:  # until the other one is there too, both have what happens
                self.add_site(f"w{os.urandom(4).hex()}.example")
                self.until(s, "site", "created")
                if len(self.c.call("GET", "/v1/tokens")["items"]) and self.streams() >= 2:
                    break
            self.c.call("DELETE", f"/v1/tokens/{t['id']}", want=204)
            self.until(s, "revoked", None)
            self.assertIsNone(s.event())
            reads.join(60)
        self.assertEqual(whole["answer"].frames()[-1]["type"], "revoked")

    def streams(self):
        """Connections over TCP that the daemon holds."""
        with open("/proc/net/tcp") as f:
            port = f":{self.d.port:04X}"
            return sum(1 for line in f if line.split()[1].endswith(port) and line.split()[3] == "01")

    def test_sixteen_a_token(self):
        holder = self.holder("read")
        for _ in range(16):
            self.follow(who=holder)
        holder.problem(429, "too_many", "GET", "/v1/events")
        self.assertEqual(self.poll(who=holder)["events"], [])  # no stream

    def test_no_foreign_page_follows(self):
        """Case 110: not with a token, not by a browser's own means."""
        for origin in ("https://evil.test", "null", "http://localhost.evil.test:7411"):
            for accept in ("text/event-stream", "application/json"):
                self.tcp.problem(403, "origin_not_allowed", "GET", "/v1/events",
                                 headers={"Origin": origin, "Accept": accept})
        self.tcp.problem(403, "origin_not_allowed", "GET", "/v1/events", headers={"Sec-Fetch-Site": "cross-site"})
        self.d.client(via="v4").problem(401, "token_missing", "GET", "/v1/events?token=" + self.d.token[:8],
                                        headers={"Cookie": "token=" + self.d.token})

    # ---- Many readers ------------------------------------------------------------------------------

    def test_eight_tabs_and_one_that_is_torn_off(self):
        tabs = [self.follow("?types=site", who=self.tcp) for _ in range(8)]
        torn, first = tabs.pop(), self.add_site("tab0.example")["id"]
        self.assertEqual(torn.event()["id"], first)
        torn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        torn.close()  # by a reset, in the middle
        ids = [first] + [self.add_site(f"tab{i}.example")["id"] for i in range(1, 6)]
        for tab in tabs:
            self.assertEqual([tab.event()["id"] for _ in ids], ids)
        with self.tcp.stream("GET", "/v1/events?types=site", {"Last-Event-ID": torn.at}) as back:
            self.assertEqual([back.event()["id"] for _ in ids[1:]], ids[1:])

    # ---- Slow readers ------------------------------------------------------------------------------

    def batch(self, body):
        """The ids of its sites; judged by no contract, as that takes longer than all else here."""
        with self.c.connect() as sock:
            body = json.dumps(body).encode()
            sock.sendall(self.c.head("POST", "/v1/sites/batch", body, {"Content-Type": "application/json"}) + body)
            answer = http.client.HTTPResponse(sock)
            answer.begin()
            self.assertEqual(answer.status, 200)
            return [x["site"]["id"] for x in json.loads(answer.read())["items"]]

    def test_a_reader_that_stops_is_cut_and_delays_nobody(self):
        """More than the ring holds, while one does not read: another has it all in order."""
        slow, quick = self.follow("?types=site"), self.follow("?types=site")
        old = self.poll()["next"]
        ids, got = [], []
        for n in range(ROUNDS):
            new = self.batch({"add": [{"host": f"s{n}-{i}.example"} for i in range(900)]})
            ids += new
            for change in ("disable", "remove"):
                self.assertEqual(self.batch({change: new}), new)
                ids += new
            while len(got) < len(ids):
                line = quick.line()
                if line.startswith(b"data: "):
                    got.append(json.loads(line[6:])["id"])
        self.assertEqual(got == ids, True)
        seen = list(iter(slow.event, None))
        self.assertEqual([e["type"] for e in seen if e["type"] != "site"], ["reset"])
        self.assertEqual(seen[-1]["type"], "reset")
        self.assertEqual([e["id"] for e in seen[:-1]], ids[:len(seen) - 1])
        self.assertLess(len(seen), EVENTS_MAX)
        with self.c.stream("GET", "/v1/events?types=site", {"Last-Event-ID": slow.at}) as again:
            row = self.add_site("again.example")
            self.assertEqual(self.until(again, "site", "created", id=row["id"])[1], [])
        self.assertEqual(self.poll("?types=site&after=" + old)["events"][0]["type"], "reset")


if __name__ == "__main__":
    unittest.main(verbosity=2)
