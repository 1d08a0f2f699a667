"""kill -9 of the daemon under load, again and again: the database is whole, the audit's chain holds,
what ran is lost, what was answered stands, and what had been written can be read."""
import itertools
import json
import os
import sqlite3
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest

ROUNDS = 4
WORKERS = 4
NUMBERS = itertools.count()


class Killed(ApiTest):
    def load(self, s, done, enough):
        """Commands and sites until the daemon is gone; what was answered is noted."""
        try:
            while True:
                c = self.start(s, "echo out; echo err >&2; exit 5", wait_ms=30000)
                if c["state"] == "exited":
                    done["commands"].append(c)
                host = f"h{next(NUMBERS)}.test"
                self.c.call("POST", "/v1/sites", {"host": host, "port": 443}, 201)
                done["hosts"].append(host)
                if len(done["commands"]) >= 8:
                    enough.set()
        except (OSError, EOFError, json.JSONDecodeError, ValueError):
            pass  # killed
        except Exception as e:  # http.client's many names for a cut connection
            if type(e).__module__ != "http.client":
                done["wrong"].append(repr(e))
                enough.set()

    def database_is_whole(self):
        with open(self.d.state + "/cordon.db", "rb") as f:
            self.assertEqual(f.read(15), b"SQLite format 3")
        copy = self.d.base + "/copy.db"
        for end in ("", "-wal"):
            if os.path.exists(self.d.state + "/cordon.db" + end):
                with open(self.d.state + "/cordon.db" + end, "rb") as a, open(copy + end, "wb") as b:
                    b.write(a.read())
        db = sqlite3.connect(copy)
        self.assertEqual(db.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
        self.assertEqual(db.execute("PRAGMA foreign_key_check").fetchall(), [])
        db.close()
        for end in ("", "-wal", "-shm"):
            if os.path.exists(copy + end):
                os.unlink(copy + end)

    def test_under_load(self):
        hosts, rows = set(), 0
        for _ in range(ROUNDS):
            s = self.session(keep=True)
            runs = self.start(s, "echo begun; yes x | head -c 200000; exec sleep 600")
            with self.c.stream("GET", self.at(runs) + "/output?follow=1") as out:
                self.assertTrue(out.frame()["text"].startswith("begun\n"))
            done, enough = {"commands": [], "hosts": [], "wrong": []}, threading.Event()
            workers = [threading.Thread(target=self.load, args=(s, done, enough)) for _ in range(WORKERS)]
            for w in workers:
                w.start()
            enough.wait(60)
            self.d.kill()
            for w in workers:
                w.join()
            self.assertEqual(done["wrong"], [])
            self.assertGreaterEqual(len(done["commands"]), 8)
            self.database_is_whole()
            self.d.start()
            self.assertIn("store.unclean_end", self.d.log())
            self.assertNotIn("store_corrupt", self.d.log())
            verify = self.c.call("GET", "/v1/audit/verify")
            self.assertEqual((verify["ok"], verify.get("broken_at")), (True, None))
            self.assertGreater(verify["rows"], rows)  # nothing that was there before is gone
            rows = verify["rows"]
            # A command that was answered as ended is ended, with all it wrote.
            for c in done["commands"]:
                got = self.c.call("GET", self.at(c))
                self.assertEqual((got["state"], got["result"]["exit_code"], got["text"]["stdout"], got["text"]["stderr"]),
                                 ("exited", 5, "out\n", "err\n"))
            hosts |= set(done["hosts"])
            self.assertEqual(hosts - {x["host"] for x in self.c.items("/v1/sites?limit=500&source=user")}, set())
            # What ran is lost, is told so, and what it wrote is there, with one end.
            got = self.c.call("GET", self.at(runs))
            self.assertEqual(got["state"], "lost")
            self.assertIn("ended_at", got)
            frames = self.c.ask("GET", self.at(runs) + "/output").frames()
            self.assertTrue(frames[0]["text"].startswith("begun\n"))
            self.assertEqual([f["kind"] for f in frames].count("end"), 1)
            self.assertEqual((frames[-1]["kind"], frames[-1]["state"]), ("end", "lost"))
            states = {c["state"] for c in self.c.items(f"/v1/sessions/{s['id']}/commands?limit=500")}
            self.assertLessEqual(states, {"exited", "lost"})
            self.assertEqual(self.c.call("GET", f"/v1/sessions/{s['id']}")["end_reason"], "daemon_died")
            ended = [r for r in self.audit("action=command.ended&outcome=error") if r["command_id"] == runs["id"]]
            self.assertEqual([r["after"]["state"] for r in ended], ["lost"])
            self.run_in(self.session(), "true")


if __name__ == "__main__":
    unittest.main(verbosity=2)
