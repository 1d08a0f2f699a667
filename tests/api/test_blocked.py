"""What was refused, by session, host and command, in pages; and how much, by the hour."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest


def tries(*targets):
    """A command that asks the proxy for each of them, and does not mind the answer."""
    return "; ".join(f"curl -s -g -o /dev/null -m 20 http://{t}/" for t in targets) + "; true"


class Blocked(ApiTest):
    def pages(self, path, limit):
        """The items of each page."""
        got, cursor = [], ""
        while True:
            page = self.c.call("GET", f"{path}limit={limit}{cursor}")
            got.append(page["items"])
            if "next_cursor" not in page:
                return got
            cursor = "&cursor=" + page["next_cursor"]

    def test_counted_by_command_and_in_pages(self):
        s = self.session()
        at = f"/v1/sessions/{s['id']}/blocked"
        one = self.run_in(s, tries("a.example", "b.example", "b.example:81", "a.example"))
        two = self.run_in(s, tries("c.example", "a.example"))
        rows = self.c.items(at)
        self.assertEqual({(b["host"], b["port"]): b["count"] for b in rows},
                         {("a.example", 80): 3, ("b.example", 80): 1, ("b.example", 81): 1, ("c.example", 80): 1})
        self.assertEqual(rows[0]["host"], "a.example")  # the latest first
        self.assertEqual({b["reason"] for b in rows}, {"not_listed"})
        for c, hosts in ((one, {("a.example", 80): 2, ("b.example", 80): 1, ("b.example", 81): 1}),
                         (two, {("a.example", 80): 1, ("c.example", 80): 1})):
            mine = self.c.items(f"{at}?command={c['id']}")
            self.assertEqual({(b["host"], b["port"]): b["count"] for b in mine}, hosts)
            self.assertEqual({b["command_id"] for b in mine}, {c["id"]})
            self.assertEqual({(b["host"], b["port"]): b["count"] for b in c["result"]["blocked"]}, hosts)
            # Case 82: each says what it was, by which rule, and the one thing to do.
            for d in c["result"]["denied"]:
                self.assertEqual(d["source"], "egress")
                self.assertIn("allowlist", d["rule"])
                self.assertIn(d["target"], d["cure"])
        pages = self.pages(at + "?", 3)
        self.assertEqual([len(p) for p in pages], [3, 1])
        self.assertEqual([b for p in pages for b in p], rows)
        self.c.problem(422, "query_invalid", "GET", at + "?cursor=x")
        self.c.problem(422, "query_invalid", "GET", at + "?command=x")
        # An agent sees its own.
        self.assertEqual(self.agent(s, "read").items(at), rows)
        self.agent(self.session(), "read").problem(404, "not_found", "GET", at)

    def test_a_flood_is_counted_in_full(self):
        """More than are written one by one in a minute: the records of commands have them all at the end."""
        s = self.session()
        waits = self.start(s, "exec sleep 600")
        n = 1300
        script = ("import socket\nfor i in range(%d):\n    s = socket.create_connection(('127.0.0.1', 7410))\n"
                  "    s.sendall(b'CONNECT flood.example:443 HTTP/1.1\\r\\nHost: flood.example:443\\r\\n\\r\\n')\n"
                  "    assert b' 403 ' in s.recv(100)\n    s.close()\n" % n)
        c = self.run_in(s, argv=["python3", "-c", script])
        self.assertEqual((c["result"]["exit_code"], [b["count"] for b in c["result"]["blocked"]]), (0, [n]))
        at = f"/v1/sessions/{s['id']}/blocked"
        self.assertEqual([b["count"] for b in self.c.items(at)], [n])
        self.assertEqual([b["count"] for b in self.c.items(f"{at}?command={c['id']}")], [n])
        self.c.call("POST", self.at(waits) + "/stop", {"grace_ms": 0}, 202)
        waits = self.c.call("GET", self.at(waits) + "?wait_ms=10000")
        self.assertEqual([b["count"] for b in waits["result"]["blocked"]], [n])
        self.assertEqual([b["count"] for b in self.c.items(f"{at}?command={waits['id']}")], [n])

    def test_of_all_sessions_and_by_host(self):
        first, second = self.session(), self.session()
        for s in (first, second):
            self.run_in(s, tries("shared.example"))
        self.run_in(first, tries("mine.example", "mine.example:8080"))
        ids = {first["id"], second["id"]}
        rows = [b for b in self.c.items("/v1/blocked?limit=2") if b["session_id"] in ids]
        self.assertEqual(sorted(b["host"] for b in rows),
                         ["mine.example", "mine.example", "shared.example", "shared.example"])
        groups = self.pages("/v1/blocked?group=host&", 1)
        self.assertEqual({len(p) for p in groups}, {1})
        groups = {p[0]["host"]: p[0] for p in groups}
        self.assertEqual((groups["mine.example"]["count"], groups["shared.example"]["count"]), (2, 2))
        self.assertEqual({b["session_id"] for b in groups["shared.example"]["items"]}, ids)
        self.assertEqual(sorted(b["port"] for b in groups["mine.example"]["items"]), [80, 8080])
        self.c.problem(422, "query_invalid", "GET", "/v1/blocked?group=host&cursor=x")
        self.c.problem(422, "query_invalid", "GET", "/v1/blocked?group=port")
        # They go with their session.
        self.end_session(first["id"])
        self.c.call("GET", f"/v1/sessions/{first['id']}/blocked")
        while self.c.ask("DELETE", f"/v1/sessions/{first['id']}").status != 204:
            self.c.call("GET", "/v1/events?wait_ms=1000&types=session", headers={"Accept": "application/json"})
        self.assertNotIn(first["id"], {b["session_id"] for b in self.c.items("/v1/blocked")})

    def test_the_ask_about_it_is_named(self):
        s = self.session()
        at = f"/v1/sessions/{s['id']}"
        self.run_in(s, tries("ask.example:8080", "ask.example", "[2001:db8::7]:8080"))
        asks = {}
        for host in ("ask.example", "[2001:db8::7]"):
            with self.c.stream("GET", f"/v1/events?types=ask&session={s['id']}") as events:
                asks[host] = self.c.call("POST", at + "/asks", {"kind": "site", "subject": {"host": host, "port": 8080}}, 201)
                e = events.event()
                self.assertEqual((e["type"], e["id"], e["change"]), ("ask", asks[host]["id"], "created"))
        rows = {(b["host"], b["port"]): b.get("ask_id") for b in self.c.items(at + "/blocked")}
        self.assertEqual(rows, {("ask.example", 8080): asks["ask.example"]["id"], ("ask.example", 80): None,
                                ("2001:db8::7", 8080): asks["[2001:db8::7]"]["id"]})
        group, = [g for g in self.c.items("/v1/blocked?group=host") if g["host"] == "ask.example"]
        self.assertEqual({b.get("ask_id") for b in group["items"]}, {None, asks["ask.example"]["id"]})
        self.c.call("POST", f"/v1/asks/{asks['ask.example']['id']}/decide", {"answer": "deny"})
        self.run_in(s, tries("ask.example:8080"))
        rows = {(b["host"], b["port"], b["reason"]): b.get("ask_id") for b in self.c.items(at + "/blocked")}
        self.assertEqual(rows["ask.example", 8080, "denied"], asks["ask.example"]["id"])

    def test_by_the_hour(self):
        before = self.c.call("GET", "/v1/stats")
        total = lambda stats: sum(h["blocked"] for h in stats["items"])
        s = self.session()
        self.run_in(s, tries("hour.example", "hour.example", "hour.example:81"))
        after = self.c.call("GET", "/v1/stats?bucket=hour")
        self.assertEqual(total(after) - total(before), 3)
        mine = {h["port"]: h for h in after["hosts"] if h["host"] == "hour.example"}
        self.assertEqual({p: (h["allowed"], h["blocked"]) for p, h in mine.items()}, {80: (0, 2), 81: (0, 1)})
        self.assertRegex(after["items"][-1]["at"], r":00:00\.000Z$")
        self.c.problem(422, "query_invalid", "GET", "/v1/stats?bucket=minute")
        # The proof's own tries are none.
        self.session()
        self.assertEqual(total(self.c.call("GET", "/v1/stats")), total(after))


if __name__ == "__main__":
    unittest.main(verbosity=2)
