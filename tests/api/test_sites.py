"""Lists of sites: one spelling whatever door it comes by, what an entry means in which list, a typed list
looked at before it is taken, batches, ten thousand rules."""
import os
import sqlite3
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest

SITES_MAX = 10000
# Case 49: what is typed, and how it is kept, or the accepted form of what was probably meant.
TAKEN = {"example.com": "example.com", "EXAMPLE.com:443": "example.com:443", "example.com.": "example.com",
         "*.Example.com": "*.example.com", "münchen.example": "xn--mnchen-3ya.example", "[2001:DB8:0::1]:8443": "[2001:db8::1]:8443",
         "xn--mnchen-3ya.example:80": "xn--mnchen-3ya.example:80", "203.0.113.7": "203.0.113.7"}
REFUSED = {".example.com": "*.example.com", "https://example.com/": "example.com:443", "example.com/": "example.com",
           "example.com:*": "example.com", "http://u@example.com:8443/p": "example.com:8443", "exa mple": "",
           "a..b": "", "x" * 300: "", "2001:db8::1": "[2001:db8::1]", "example.com:0443": "example.com:443",
           "127.1": "127.0.0.1", "*.*.example.com": "", "example.com:65536": "example.com", "a%00.example": ""}
# No list opens these, and none pretends to.
NEVER = ("169.254.169.254", "0.0.0.0", "[fe80::1]", "224.0.0.1", "100.64.0.1", "255.255.255.255", "[::]")


class Sites(ApiTest):
    def forget(self, *hosts):
        ids = [s["id"] for s in self.c.items("/v1/sites?limit=500&source=user") if not hosts or s["host"] in hosts]
        for i in range(0, len(ids), 1000):
            self.c.call("POST", "/v1/sites/batch", {"remove": ids[i:i + 1000]})

    def tearDown(self):
        self.forget()

    def preview(self, text, **more):
        return self.c.call("POST", "/v1/sites/preview", {"text": text, **more})

    def check(self, host, port=443, s=None):
        body = {"host": host, "port": port, **({"session_id": s["id"]} if s else {})}
        return self.c.call("POST", "/v1/sites/check", body)

    # ---- One spelling for all doors ----------------------------------------------------------------

    def text_of(self, site):
        v6 = ":" in site["host"]
        host = f"[{site['host']}]" if v6 else site["host"]
        return host + (f":{site['port']}" if site["port"] else "")

    def test_taken_alike_at_each_door(self):
        session = self.session()
        for typed, kept in TAKEN.items():
            one = self.preview(typed)["sites"][0]
            self.assertEqual((one["text"], one["confirm"]), (kept, False), typed)
            made = self.c.call("POST", "/v1/sites", {"host": typed}, 201)
            self.assertEqual(self.text_of(made), kept, typed)
            self.forget(made["host"])
            own = self.c.call("POST", f"/v1/sessions/{session['id']}/sites", {"host": typed}, 201)
            self.assertEqual(self.text_of(own), kept, typed)
            self.c.call("DELETE", f"/v1/sessions/{session['id']}/sites/{own['id']}", want=204)
            batch = self.c.call("POST", "/v1/sites/batch", {"add": [{"host": typed}]})["items"][0]["site"]
            self.assertEqual(self.text_of(batch), kept, typed)
            self.forget(batch["host"])
            r = self.d.cordon("sites", "add", typed)
            self.assertEqual(r.code, 0, r)
            self.assertEqual([self.text_of(s) for s in self.c.items("/v1/sites?source=user")], [kept], typed)
            self.forget()

    def test_refused_alike_with_the_accepted_form(self):
        session = self.session()
        for typed, suggestion in REFUSED.items():
            got = self.preview(typed)
            self.assertEqual((got["sites"], [e["suggestion"] or "" for e in got["errors"]]), ([], [suggestion]), typed)
            for path, body in (("/v1/sites", {"host": typed}), ("/v1/sites/batch", {"add": [{"host": typed}]}),
                               (f"/v1/sessions/{session['id']}/sites", {"host": typed}),
                               ("/v1/sessions", {"folders": [{"path": self.work}], "sites": [{"host": typed}]})):
                p = self.c.ask("POST", path, body)
                if len(typed) < 256:
                    self.assertEqual((p.status, p.json["code"], p.json.get("suggestion", "")),
                                     (422, "site_invalid", suggestion), (path, typed))
                else:
                    self.assertEqual(p.status, 422)
            r = self.d.cordon("sites", "add", typed)
            self.assertEqual(r.code, 125, (typed, r))
            if suggestion:
                self.assertIn(suggestion.encode(), r.err, typed)
        self.assertEqual(self.c.items("/v1/sites?source=user"), [])

    def test_addresses(self):
        session = self.session()
        own = f"/v1/sessions/{session['id']}/sites"
        for address in NEVER:
            for path in ("/v1/sites", own):
                self.assertIn("never reached", self.c.problem(422, "site_invalid", "POST", path, {"host": address})["detail"])
            self.assertIn("never reached", self.preview(address)["errors"][0]["detail"])
        for name in ("localhost", "127.0.0.1:8000", "[::1]:8000"):
            self.c.problem(422, "site_invalid", "POST", "/v1/sites", {"host": name})
            self.assertEqual(self.preview(name)["sites"], [])
        # A private address is its own allow_private, and is confirmed as such.
        for typed, host in (("10.1.2.3:8080", "10.1.2.3"), ("[fd12::1]:8080", "fd12::1")):
            one = self.preview(typed)["sites"][0]
            self.assertEqual((one["confirm"], one["allow_private"]), (True, True))
            for path in ("/v1/sites", own):
                p = self.c.problem(409, "confirm_required", "POST", path, {"host": typed})
                self.assertEqual(p["confirm"], host)
                made = self.c.call("POST", f"{path}?confirm={host}", {"host": typed}, 201)
                self.assertEqual((made["allow_private"], made["host"], made["port"]), (True, host, 8080))
        # An address of IPv6 is found again as it was typed: kept without its brackets.
        self.c.call("POST", own, {"host": "[2001:db8::10]", "port": 8080}, 201)
        got = self.check("[2001:db8:0::10]", 8080, session)
        self.assertEqual((got["verdict"], got["site"]), ("allow", "[2001:db8::10]:8080"))
        self.assertEqual(self.check("[2001:db8::11]", 8080, session)["verdict"], "refuse")
        self.assertEqual(self.check("[2001:db8::10]", 443, session)["verdict"], "refuse")

    # ---- What an entry means -----------------------------------------------------------------------

    def test_label_boundaries(self):
        """Case 56, at the list; tests/egress has it at the door."""
        session = self.session()
        self.c.call("POST", "/v1/sites", {"host": "ok.test"}, 201)
        self.c.call("POST", "/v1/sites", {"host": "*.sub.test"}, 201)
        for host, allowed in (("ok.test", True), ("notok.test", False), ("ok.test.no.test", False), ("a.ok.test", False),
                              ("ok.testx", False), ("ok.tes", False), ("sub.test", False), ("a.sub.test", True),
                              ("b.a.sub.test", True), ("xsub.test", False)):
            self.assertEqual(self.check(host, s=session)["verdict"], "allow" if allowed else "refuse", host)
        # Case 124: 443 and 80 and nothing else.
        self.assertEqual([self.check("ok.test", p, session)["verdict"] for p in (443, 80, 22, 8443)],
                         ["allow", "allow", "refuse", "refuse"])

    def test_both_meanings_of_a_bare_name(self):
        session = self.session()
        for name in ("machine", "guarded"):
            made = self.c.call("POST", "/v1/sites", {"host": f"{name}.test", "list": name}, 201)
            self.assertEqual(made["covers"], {"machine": "host", "guarded": "host_and_subdomains"}[name])
        one, = self.preview("bare.test", list="guarded")["sites"]
        self.assertEqual((one["covers"], one["matches"]),
                         ("host_and_subdomains", ["bare.test:443", "bare.test:80", "*.bare.test:443", "*.bare.test:80"]))
        one, = self.preview("bare.test:8080", list="session")["sites"]
        self.assertEqual((one["covers"], one["matches"]), ("host", ["bare.test:8080"]))
        # The list of the other tier opens nothing in walled.
        for host in ("guarded.test", "a.guarded.test", "a.machine.test"):
            self.assertEqual(self.check(host, s=session)["verdict"], "refuse", host)
        self.assertEqual(self.check("machine.test", s=session)["verdict"], "allow")
        # With its subdomains "com" is as wide as "*.com".
        self.assertEqual(self.c.problem(409, "confirm_required", "POST", "/v1/sites",
                                        {"host": "com", "list": "guarded"})["confirm"], "com")
        self.c.call("POST", "/v1/sites", {"host": "com"}, 201)

    def test_the_more_specific_entry_decides(self):
        session = self.session()
        self.c.call("POST", f"/v1/sessions/{session['id']}/sites", {"host": "*.corp.test"}, 201)
        self.c.call("POST", "/v1/sites", {"host": "reg.corp.test", "port": 443}, 201)
        self.assertEqual(self.check("reg.corp.test", s=session)["site"], "reg.corp.test:443")
        self.assertEqual(self.check("x.corp.test", s=session)["site"], "*.corp.test")

    def test_a_tick_opens_and_closes(self):
        session = self.session()
        box = self.c.items("/v1/sites?source=catalogue&q=pypi.org")[0]
        self.assertEqual((box["enabled"], box["port"], box["group"], box["removable"]), (False, 443, "registries", False))
        self.assertEqual(self.check("pypi.org", s=session)["verdict"], "refuse")
        self.c.call("POST", "/v1/sites/batch", {"enable": [box["id"]]})
        self.assertEqual(self.check("pypi.org", s=session)["verdict"], "allow")
        self.assertEqual(self.check("pypi.org", 80, session)["verdict"], "refuse")  # it states its port
        self.c.call("POST", "/v1/sites/batch", {"disable": [box["id"]]})
        self.assertEqual(self.check("pypi.org", s=session)["verdict"], "refuse")
        self.assertEqual({s["group"] for s in self.c.items("/v1/sites?source=catalogue&limit=500")},
                         {"code_hosts", "registries", "search"})

    # ---- A typed list ------------------------------------------------------------------------------

    def test_preview_says_what_is_there_already(self):
        above = self.c.call("POST", "/v1/sites", {"host": "*.above.test"}, 201)
        off = self.c.call("POST", "/v1/sites", {"host": "off.test", "enabled": False}, 201)
        got = self.preview("# two sites\n a.above.test:443 , \r\noff.test # why\n*\n\nhttps://x.test/\n")
        a, b, star = got["sites"]
        self.assertEqual((a["text"], a["covered_by"], a["there"]),
                         ("a.above.test:443", {"site": "*.above.test", "site_id": above["id"]}, None))
        self.assertEqual((b["covered_by"], b["there"]), (None, {"id": off["id"], "enabled": False}))
        self.assertEqual((star["host"], star["covers"], star["confirm"], star["matches"]), ("*", "any", True, ["*:443", "*:80"]))
        self.assertEqual([(e["line"], e["suggestion"]) for e in got["errors"]], [(6, "x.test:443")])
        uni, = self.preview("bücher.test")["sites"]
        self.assertEqual((uni["host"], uni["host_unicode"]), ("xn--bcher-kva.test", "bücher.test"))
        self.assertEqual(len(self.c.items("/v1/sites?source=user")), 2)  # nothing was taken

    # ---- Batches -----------------------------------------------------------------------------------

    def test_a_batch_with_several_wide_sites(self):
        add = {"add": [{"host": "*.com"}, {"host": "plain.test"}, {"host": "10.0.0.1"}]}
        p = self.c.problem(409, "confirm_required", "POST", "/v1/sites/batch", add)
        self.assertEqual(p["confirm"], "*.com,10.0.0.1")
        self.c.problem(409, "confirm_required", "POST", "/v1/sites/batch?confirm=*.com", add)
        self.assertEqual(self.c.items("/v1/sites?source=user"), [])
        got = self.c.call("POST", "/v1/sites/batch?confirm=*.com,10.0.0.1", add)
        self.assertEqual([x["site"]["host"] for x in got["items"]], ["*.com", "plain.test", "10.0.0.1"])
        body = {"folders": [{"path": self.work}], "sites": [{"host": "*.net"}, {"host": "*.org"}]}
        p = self.c.problem(409, "confirm_required", "POST", "/v1/sessions", body)
        self.assertEqual(p["confirm"], "*.net,*.org")
        s = self.c.call("POST", "/v1/sessions?confirm=*.net,*.org", body, 201)
        self.end_session(s["id"])

    def test_all_or_nothing(self):
        box = self.c.items("/v1/sites?source=catalogue&limit=1")[0]
        there = self.c.call("POST", "/v1/sites", {"host": "there.test"}, 201)
        before = self.c.items("/v1/sites?limit=500")
        for body in ({"add": [{"host": "new.test"}, {"host": "there.test"}]},
                     {"add": [{"host": "twice.test"}, {"host": "TWICE.test"}]},
                     {"disable": [there["id"]], "remove": [there["id"]]},
                     {"add": [{"host": "new.test"}], "remove": [box["id"]]},
                     {"enable": [box["id"], "sit_00000000000000000000000000"]},
                     {"add": [{"host": "new.test"}, {"host": "x", "nope": 1}]}, {"add": [1]}):
            self.assertGreaterEqual(self.c.ask("POST", "/v1/sites/batch", body).status, 400, body)
            self.assertEqual(self.c.items("/v1/sites?limit=500"), before, body)


class TenThousand(ApiTest):
    """As many as a list holds: put into the database while nobody has it open, as that takes no minute."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        boxes = len(cls.c.items("/v1/sites?limit=500"))
        cls.d.stop()
        db = sqlite3.connect(cls.d.state + "/cordon.db")
        cls.ids = [f"sit_0{i:025}" for i in range(SITES_MAX - boxes)]
        db.executemany("INSERT INTO sites VALUES (?, ?, '', ?, 443, 1, 0, '', 'user', '', 'owner', 0, 0, 0, 0, 1)",
                       [(id, i % 2, f"h{i}.example") for i, id in enumerate(cls.ids)])
        db.commit()
        db.close()
        cls.d.start()

    def test_all_count_and_no_more_fit(self):
        s = self.session(sites=[{"host": "own.test"}])  # counts for itself
        check = lambda host: self.c.call("POST", "/v1/sites/check", {"host": host, "session_id": s["id"]})["verdict"]
        last = len(self.ids) - 2 + len(self.ids) % 2  # of the list machine, as all with an even number
        self.assertEqual([check(h) for h in ("h0.example", f"h{last}.example", "own.test", "h1.example", "h10000.example",
                                             "example")], ["allow", "allow", "allow", "refuse", "refuse", "refuse"])
        for path, body in (("/v1/sites", {"host": "more.test"}), ("/v1/sites", {"host": "more.test", "list": "guarded"}),
                           ("/v1/sites/batch", {"add": [{"host": "more.test"}]})):
            self.assertIn("10000", self.c.problem(429, "too_many", "POST", path, body)["detail"])
        self.c.call("POST", f"/v1/sessions/{s['id']}/sites", {"host": "more.test"}, 201)
        # One out, one in, in one batch; off at once.
        self.c.call("POST", "/v1/sites/batch", {"add": [{"host": "more.test"}], "remove": [self.ids[0]]})
        self.assertEqual((check("h0.example"), check("h2.example")), ("refuse", "allow"))
        page = self.c.call("GET", "/v1/sites?limit=2&q=h77.example")
        self.assertEqual([x["host"] for x in page["items"]], ["h77.example"])
        one, = self.c.call("POST", "/v1/sites/preview", {"text": "a.h77.example", "list": "guarded"})["sites"]
        self.assertIsNone(one["covered_by"])  # on both ports it is more than h77.example:443 and what lies below
        one, = self.c.call("POST", "/v1/sites/preview", {"text": "a.h77.example:443", "list": "guarded"})["sites"]
        self.assertEqual(one["covered_by"]["site"], "h77.example:443")


if __name__ == "__main__":
    unittest.main(verbosity=2)
