"""Output goes when there is too much of it, what ended first in front; the records stay."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest
from cordon_test.cli import wait_for

MIB = 1 << 20


class Retention(ApiTest):
    def bytes_of(self, c):
        a = self.c.ask("GET", self.at(c) + "/output?stream=stdout", headers={"Accept": "application/octet-stream"})
        return a.body if a.status == 200 else a.json["code"]

    def test_output_goes_and_records_stay(self):
        ended = self.session()
        first = self.run_in(ended, "yes first | head -c 600000", inline_bytes=0)
        alive = self.session()
        runs = self.start(alive, "yes runs | head -c 900000; echo; exec cat", stdin="pipe")
        last = self.run_in(alive, "yes last | head -c 600000", inline_bytes=0)
        silent = self.run_in(alive, "exit 3")
        # It began before the others and ends after them.
        late = self.start(ended, "yes late | head -c 200000; read x", stdin="pipe", wait_ms=0)
        wait_for(lambda: len(self.bytes_of(runs)) > 900000, "output")
        wait_for(lambda: len(self.bytes_of(late)) == 200000, "output")
        second = self.run_in(alive, "yes second | head -c 100000", inline_bytes=0)
        self.c.call("POST", self.at(late) + "/stdin?offset=0&close=1", b"x\n",
                    headers={"Content-Type": "application/octet-stream"})
        late = self.wait_end(late)
        self.c.call("POST", f"/v1/sessions/{ended['id']}/stop", {"grace_ms": 0}, 202)
        wait_for(lambda: self.c.call("GET", f"/v1/sessions/{ended['id']}")["state"] == "ended", "the end", 30)
        records = {c["id"]: self.c.call("GET", self.at(c)) for c in (first, last, late, second, silent)}
        self.assertEqual(len(self.bytes_of(first)), 600000)

        # Less is kept now: 900,000 of the running one stay, so 148,576 are left for all others.
        self.c.patch("/v1/settings", {"retention": {"output_bytes": MIB}})
        wait_for(lambda: self.bytes_of(last) == "output_expired", "the output to go", 30)
        wait_for(lambda: self.bytes_of(second) == "output_expired", "the output to go", 30)
        wait_for(lambda: self.bytes_of(late) == "output_expired", "the output to go", 30)
        self.assertEqual(self.bytes_of(first), "output_expired")
        self.assertGreater(len(self.bytes_of(runs)), 900000)
        for form in ("application/x-ndjson", "application/json", "text/event-stream", "application/octet-stream"):
            for c in (first, last):
                self.c.problem(410, "output_expired", "GET", self.at(c) + "/output?follow=0&stream=stdout",
                               headers={"Accept": form})
        # Every record is as it was, alone, in the list and in the audit; only its text is gone.
        for c in (first, last, late, second, silent):
            got = self.c.call("GET", self.at(c))
            was = records[c["id"]]
            self.assertEqual({k: v for k, v in got.items() if k != "text"},
                             {k: v for k, v in was.items() if k != "text"})
        got = self.c.call("GET", self.at(last))
        self.assertEqual((got["text"]["stdout"], got["text"]["truncated"]), ("", True))
        self.assertEqual(got["output"]["stdout_bytes"], 600000)
        self.assertEqual(self.c.call("GET", f"/v1/sessions/{ended['id']}")["state"], "ended")
        self.assertEqual({c["id"] for c in self.c.items(f"/v1/sessions/{ended['id']}/commands")},
                         {first["id"], late["id"]})
        self.assertEqual(self.c.call("GET", "/v1/audit/verify")["ok"], True)

        # What still runs goes on writing, and what is made now is kept while there is room.
        self.c.call("POST", self.at(runs) + "/stdin?offset=0&close=1", b"the end\n",
                    headers={"Content-Type": "application/octet-stream"})
        self.assertEqual(self.wait_end(runs)["state"], "exited")
        self.assertTrue(self.bytes_of(runs).endswith(b"the end\n"))
        self.c.patch("/v1/settings", {"retention": {"output_bytes": None}})
        new = self.run_in(alive, "yes new | head -c 600000", inline_bytes=0)
        self.assertEqual(len(self.bytes_of(new)), 600000)
        self.assertGreater(len(self.bytes_of(runs)), 900000)


if __name__ == "__main__":
    unittest.main(verbosity=2)
