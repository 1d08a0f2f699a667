"""Origin x Sec-Fetch-Site x method x path: a page of another origin is refused before any effect."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest

BODY = b'{"host":"origin.test"}'
JSON = {"Content-Type": "application/json"}


class Origin(ApiTest):
    def test_each_combination(self):
        ours = [None, f"http://127.0.0.1:{self.d.port}", f"http://[::1]:{self.d.port}",
                f"http://localhost:{self.d.port}"]
        foreign = ["null", "", "https://evil.test", f"https://127.0.0.1:{self.d.port}", "http://127.0.0.1",
                   f"http://127.0.0.1:{self.d.port}.evil.test", f"http://evil@127.0.0.1:{self.d.port}",
                   f"http://127.0.0.1:{self.d.port}/", "file://", "chrome-extension://abc",
                   [ours[1], "https://evil.test"], [ours[1], ours[1]]]
        site_ok = [None, "same-origin", "none"]
        site_bad = ["cross-site", "same-site", "", "Same-Origin ", "unknown", ["none", "none"]]
        refused = asked = 0
        for origin in ours + foreign:
            for site in site_ok + site_bad:
                fine = origin in ours and site in site_ok
                for method in ("GET", "HEAD", "POST", "DELETE", "OPTIONS"):
                    if fine and method not in ("GET", "POST"):
                        continue  # what is let through is tried with the two that have no lasting effect
                    for path in ("/v1/sites", "/mcp", "/v2/x", "/%76%31/sites"):
                        asked += 1
                        headers = {"Origin": origin, "Sec-Fetch-Site": site}
                        post = method in ("POST",)
                        body = b"{" if post and fine else BODY if post else None
                        a = self.tcp.ask(method, path, body, {**headers, **(JSON if post else {})})
                        if fine:
                            self.assertNotEqual(a.status, 403, (headers, method, path, a))
                        else:
                            refused += 1
                            self.assertEqual(a.status, 403, (headers, method, path, a))
                            if method != "HEAD":
                                self.assertEqual(a.json["code"], "origin_not_allowed", (headers, method, path))
        self.assertGreater(refused, 1500)
        hosts = [s["host"] for s in self.c.items("/v1/sites?limit=500")]
        self.assertNotIn("origin.test", hosts)  # nothing was done
        # The control: the same request without Origin does it.
        self.tcp.call("POST", "/v1/sites", BODY, 201, JSON)

    def test_the_socket_takes_no_origin(self):
        for origin in (f"http://127.0.0.1:{self.d.port}", "http://localhost", "null", "https://evil.test"):
            self.c.problem(403, "origin_not_allowed", "GET", "/v1/sites", headers={"Origin": origin})
        self.c.call("GET", "/v1/sites", headers={"Sec-Fetch-Site": "none"})

    def test_before_the_token_and_the_body(self):
        """No token, no such route, a body too large: still the origin is what is wrong."""
        self.tcp.other(token=None).problem(403, "origin_not_allowed", "POST", "/v1/nothing", b"x",
                                           {"Origin": "https://evil.test"})
        data = self.tcp.head("POST", "/v1/sites", None, {"Origin": "https://evil.test", "Content-Length": "999999999"})
        a = self.tcp.send(data, "POST", "/v1/sites")  # the body never comes
        self.assertEqual((a.status, a.json["code"]), (403, "origin_not_allowed"))

    def test_pages_without_v1_are_for_all(self):
        self.tcp.call("GET", "/ui/", headers={"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.test"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
