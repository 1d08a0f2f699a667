"""200 requests at once through one session, allowed and refused by turns and by every door, in rounds:
none crosses.

CORDON_ROUNDS: how many rounds; 300, and 10,000 in tests/long. Judged by the far server's own counts
and by the session's records, not only by the client.
"""
import os
import shutil
import struct
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402

lab.enter()
from cordon_test.api import ApiTest  # noqa: E402
from cordon_test.cli import BIN, SANITIZE, wait_for  # noqa: E402

# tests/all as root makes them once more as an ordinary user, in such a home: fewer then.
IS_AGAIN = os.environ.get("HOME", "").startswith("/tmp/tests-of-cordon-")
ROUNDS = int(os.environ.get("CORDON_ROUNDS") or (30 if SANITIZE else 60 if IS_AGAIN else 300))
N, PORT = 200, 7101
WAYS = "cg54r"  # many.c


class Many(ApiTest):
    def test_none_crosses(self):
        shutil.copy(os.path.join(BIN, "many"), self.work)
        counts = os.path.join(os.environ["LAB_DIR"], "many")
        s = self.session(sites=[{"host": "ok.test", "port": PORT}])
        mark = lab.mark()
        with lab.Far([os.path.join(BIN, "many"), "far", str(PORT), counts]):
            lab.far_listens(PORT)
            c = self.start(s, argv=["./many", "near", str(ROUNDS), str(N), "ok.test", "no.test", str(PORT), WAYS],
                           timeout_ms=0)
            while c["state"] in ("queued", "starting", "running"):
                c = self.c.call("GET", self.at(c) + "?wait_ms=30000")
            c["text"] = {name: self.c.call("GET", self.at(c) + f"/output?stream={name}",
                                           headers={"Accept": "application/octet-stream"}).decode()
                         for name in ("stdout", "stderr")}
            lab.mark()
            with open(counts, "rb") as f:
                reached = {i: pair for i, pair in enumerate(struct.iter_unpack("<QQ", f.read())) if any(pair)}
        half = ROUNDS * N // 2
        self.assertEqual((c["state"], c["text"]["stdout"]), ("exited", f"{half} {half} 0\n"), c["text"]["stderr"])
        reached.pop(254)  # the look whether it is up
        self.assertEqual(sum(requests for _, requests in reached.values()), half)
        self.assertLessEqual(set(reached), {10, 0x10})  # the two addresses of ok.test
        self.assertEqual(set(lab.asked(mark)), {"ok.test"})
        # The audit has refusals one by one up to a bound, and then their number: none is missing.
        blocked = self.c.call("GET", f"/v1/sessions/{s['id']}/blocked")
        self.end_session(s["id"])
        wait_for(lambda: self.c.call("GET", f"/v1/sessions/{s['id']}")["state"] == "ended", "the session's end", 60)
        rows = [r for r in self.audit(f"session={s['id']}") if r["action"] == "site.blocked"]
        self.assertEqual(sum((r["after"] or {}).get("count", 1) for r in rows), half)
        self.assertLess(len(rows), 600 * 12)
        self.assertEqual([(b["host"], b["port"], b["count"]) for b in blocked["items"]], [("no.test", PORT, half)])


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
