"""Lists in use, in the lab: what each entry let through is counted, by site, session and hour; an entry
opens what it says and no more, and closes at once when it is taken back; events tell of it."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402

lab.enter()
from cordon_test.api import ApiTest  # noqa: E402

GET = "curl -s -g -m 20 -o /dev/null -w '%{{http_code}} ' {0}"


class Use(ApiTest):
    def setUp(self):
        self.mark = lab.mark()

    def tearDown(self):
        ids = [s["id"] for s in self.c.items("/v1/sites?source=user&limit=500")]
        self.c.call("POST", "/v1/sites/batch", {"remove": ids})

    def codes(self, s, *urls):
        return self.run_in(s, "; ".join(GET.format(u) for u in urls))["text"]["stdout"].split()

    def reached(self):
        lab.mark()
        return [(r["at"], r["port"]) for r in lab.reached(self.mark)]

    def site(self, row):
        return self.c.call("GET", "/v1/sites/" + row["id"])

    def stats(self, host, port):
        rows = [h for h in self.c.call("GET", "/v1/stats")["hosts"] if (h["host"], h["port"]) == (host, port)]
        return (rows[0]["allowed"], rows[0]["blocked"]) if rows else (0, 0)

    def test_counted_by_site_and_hour(self):
        used = self.c.call("POST", "/v1/sites", {"host": "ok.test", "port": 8080}, 201)
        idle = self.c.call("POST", "/v1/sites", {"host": "*.ok.test", "port": 8080}, 201)
        lan = self.c.call("POST", "/v1/sites", {"host": "reg.corp", "port": 443}, 201)
        before = {x: self.stats(*x) for x in (("ok.test", 8080), ("no.test", 8080), ("reg.corp", 443))}
        s = self.session()
        urls = ["http://ok.test:8080/hello"] * 3 + ["http://no.test:8080/"] * 2 + ["https://reg.corp/"]
        self.assertEqual(self.codes(s, *urls), ["200"] * 3 + ["403"] * 2 + ["000"])
        reached = self.reached()
        self.assertEqual((len(reached), {r in ((lab.OK4, 8080), (lab.OK6, 8080)) for r in reached}), (3, {True}))
        got = self.site(used)
        self.assertEqual((got["hits"], got["blocked_hits"], got["last_used_at"] is not None), (3, 0, True))
        self.assertEqual((self.site(idle)["hits"], self.site(idle)["last_used_at"]), (0, None))
        # Listed, and yet refused: its name led to a private address.
        got = self.site(lan)
        self.assertEqual((got["hits"], got["blocked_hits"], got["last_used_at"]), (0, 1, None))
        for x, (allowed, blocked) in {("ok.test", 8080): (3, 0), ("no.test", 8080): (0, 2), ("reg.corp", 443): (0, 1)}.items():
            self.assertEqual(self.stats(*x), (before[x][0] + allowed, before[x][1] + blocked), x)
        # The counts outlive the daemon's restart.
        self.d.stop()
        self.d.start()
        self.assertEqual(self.site(used)["hits"], 3)
        self.assertEqual(self.stats("ok.test", 8080), (before["ok.test", 8080][0] + 3, before["ok.test", 8080][1]))

    def test_addresses_as_sites(self):
        """An address of IPv6 is found in the list as it is typed; a private one opens exactly itself (case 61)."""
        s = self.session(sites=[{"host": "[2001:DB8:0::10]", "port": 8080}, {"host": lab.OK4, "port": 8080}])
        self.assertEqual(self.codes(s, f"http://[{lab.OK6}]:8080/hello", f"http://{lab.OK4}:8080/hello",
                                    f"http://[{lab.NO6}]:8080/", f"http://{lab.NO4}:8080/", f"http://[{lab.OK6}]/"),
                         ["200", "200", "403", "403", "403"])
        self.assertEqual(self.reached(), [(lab.OK6, 8080), (lab.OK4, 8080)])
        own = self.c.items(f"/v1/sessions/{s['id']}/sites")
        self.assertEqual({x["host"]: (x["hits"], x["list"]) for x in own}, {lab.OK6: (1, "session"), lab.OK4: (1, "session")})
        other = self.session()
        at = f"/v1/sessions/{other['id']}/sites"
        self.c.problem(409, "confirm_required", "POST", at, {"host": "192.168.77.10", "port": 8080})
        self.assertEqual(self.codes(other, "http://192.168.77.10:8080/hello"), ["403"])
        self.c.call("POST", at + "?confirm=192.168.77.10", {"host": "192.168.77.10", "port": 8080}, 201)
        self.assertEqual(self.codes(other, "http://192.168.77.10:8080/hello", "http://192.168.77.11:8080/"), ["200", "403"])

    def test_the_more_specific_entry_decides(self):
        """A wide entry of the session does not hide the machine's own entry for a private network."""
        self.c.call("POST", "/v1/sites?confirm=reg.corp", {"host": "reg.corp", "port": 443, "allow_private": True}, 201)
        s = self.session()
        self.c.call("POST", f"/v1/sessions/{s['id']}/sites?confirm=*.corp", {"host": "*.corp"}, 201)
        c = self.run_in(s, "curl -s -k -m 20 -p -x $https_proxy -o /dev/null -w '%{http_connect}' https://reg.corp/")
        self.assertEqual(c["text"]["stdout"], "200", c)

    def test_taken_back_closes_and_is_told(self):
        row = self.c.call("POST", "/v1/sites", {"host": "ok.test", "port": 9004}, 201)
        s = self.session()
        tunnel = self.start(s, "exec 3<>/dev/tcp/127.0.0.1/${http_proxy##*:}; "
                               "printf 'CONNECT ok.test:9004 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' >&3; "
                               "read -r line <&3; echo $line; cat <&3 >/dev/null 2>&1; echo closed")
        with self.c.stream("GET", self.at(tunnel) + "/output?follow=1") as out, \
                self.c.stream("GET", f"/v1/events?types=site,blocked") as events:
            self.assertIn("200", out.frame()["text"])
            self.c.call("DELETE", "/v1/sites/" + row["id"], want=204)
            self.assertEqual(out.frame()["text"], "closed\n")
            e = events.event()
            self.assertEqual((e["type"], e["id"], e["change"]), ("site", row["id"], "removed"))
            self.assertEqual(self.codes(s, "http://ok.test:9004/"), ["403"])
            e = events.event()
            self.assertEqual((e["type"], e["id"], e["session_id"]), ("blocked", "ok.test:9004", s["id"]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
