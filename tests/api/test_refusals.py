"""What is refused because of the state of things: no wall, no room, going down, another account, a late code."""
import datetime
import json
import os
import socket
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.cli import wait_for
from cordon_test.client import Client
from cordon_test.daemon import Daemon

# A user namespace of its own, so that an ordinary user may do what follows too.
NEW_USER = ["unshare", "--user", "--map-root-user", "--mount"]


class Hidden(Daemon):
    """One whose state folder is mounted where only it sees it."""

    def server(self):
        with open(f"/proc/{self.pid}/root{self.state}/server.json") as f:
            return json.load(f)


class Fixed(Client):
    """It knows the socket without reading the notice."""

    def __init__(self, daemon):
        super().__init__(daemon)
        self.path = daemon.socket

    def connect(self):
        s = socket.socket(socket.AF_UNIX)
        s.connect(self.path)
        return s


class Refusals(unittest.TestCase):
    def test_no_wall_no_session(self):
        """Where no namespace can be made a session is refused, named and recorded; never open."""
        with Daemon(wrap=[*NEW_USER, "sh", "-c", "echo 0 >/proc/sys/user/max_user_namespaces; exec \"$@\"", "-"]) as d:
            c = d.client()
            body = {"folders": [{"path": d.work}], "require_wall": True}
            p = c.problem(503, "session_refused", "POST", "/v1/sessions", body)
            self.assertTrue(p["detail"] and p["hint"])
            s = c.call("GET", f"/v1/sessions/{p['session_id']}")
            self.assertEqual((s["state"], s["refused"]["code"]), ("refused", "session_refused"))
            at = f"/v1/sessions/{s['id']}"
            c.problem(409, "session_not_ready", "POST", at + "/commands", {"shell": f"touch {d.work}/ran"})
            c.problem(409, "session_not_ready", "PUT", at + f"/files/content?path={d.work}/x", b"x",
                      {"Content-Type": "application/octet-stream"})
            self.assertEqual(os.listdir(d.work), [])
            rows = c.items(f"/v1/audit?session={s['id']}")
            self.assertEqual([(r["action"], r["outcome"]) for r in rows][0][0], "session.refused")
            status = c.call("POST", "/v1/status/check", {})
            self.assertTrue(status["sessions_refused"])
            self.assertTrue(status["fix"])
            etag = c.ask("GET", "/v1/settings").etag
            c.problem(409, "wall_unavailable", "PATCH", "/v1/settings", '{"sandbox_provider":"bubblewrap"}',
                      {"Content-Type": "application/merge-patch+json", "If-Match": etag})
            self.assertIn(d.cordon("run", "--", "touch", d.work + "/ran").code, (125,))
            self.assertEqual(os.listdir(d.work), [])
            c.call("DELETE", at, want=204)

    def test_a_full_disk(self):
        """No room for the records: 507, nothing is run unrecorded; with room again all goes on."""
        with Hidden(start=False) as d:
            d.expected = ("store.write_failed",)
            os.makedirs(d.state, 0o700)
            d.wrap = [*NEW_USER, "sh", "-c", f"mount -t tmpfs -o size=96m,mode=0700 none '{d.state}'; exec \"$@\"", "-"]
            d.start()
            c = d.client()
            root = f"/proc/{d.pid}/root{d.state}"
            self.assertTrue(os.path.exists(root + "/cordon.db"))
            s = c.call("POST", "/v1/sessions", {"folders": [{"path": d.work}]}, 201)
            at = f"/v1/sessions/{s['id']}"
            with open(root + "/filler", "wb") as f:
                try:
                    while True:
                        f.write(b"\0" * 65536)
                        f.flush()
                except OSError:
                    pass
            seen = None
            for i in range(200):
                a = c.ask("POST", "/v1/sites", {"host": f"full{i}.test", "note": "n" * 200})
                if a.status != 201:
                    seen = a
                    break
            self.assertEqual((seen.status, seen.json["code"]), (507, "disk_full"))
            a = c.ask("POST", at + "/commands", {"shell": f"touch {d.work}/ran", "wait_ms": 20000})
            self.assertEqual((a.status, a.json["code"]), (507, "disk_full"), a)
            self.assertFalse(os.path.exists(d.work + "/ran"))
            c.call("GET", "/v1/health")
            os.unlink(root + "/filler")
            command = {"shell": f"touch {d.work}/ran", "wait_ms": 20000}
            wait_for(lambda: c.ask("POST", at + "/commands", command).status == 201, "room to be seen")
            self.assertTrue(os.path.exists(d.work + "/ran"))
            self.assertTrue(c.call("GET", "/v1/audit/verify")["ok"])

    def test_going_down(self):
        """POST /shutdown takes no new work, lets commands end for drain_ms, and ends them then."""
        d = Daemon()
        try:
            c = d.client()
            s = c.call("POST", "/v1/sessions", {"folders": [{"path": d.work}], "require_wall": True}, 201)
            at = f"/v1/sessions/{s['id']}"
            c.call("POST", at + "/commands", {"shell": "trap '' TERM; while :; do sleep 1; done"}, 201)
            c.call("POST", "/v1/shutdown", {"drain_ms": 1500}, 202)
            c.problem(503, "shutting_down", "POST", "/v1/sessions", {"folders": [{"path": d.work}]})
            p = c.ask("POST", at + "/commands", {"argv": ["true"]})
            self.assertEqual((p.status, p.json["code"]), (503, "shutting_down"))
            self.assertIn("Retry-After", p.headers)
            d.process.wait(90)  # by itself, though the command goes on
        finally:
            code, d.process = d.process.poll(), None
            d.close()
        self.assertEqual(code, 0)

    @unittest.skipUnless(os.getuid() == 0, "another account can be had by root alone; the suite runs as root too")
    def test_a_peer_of_another_account(self):
        with Daemon() as d:
            for folder in (d.base, d.run_dir, os.path.dirname(d.socket)):
                os.chmod(folder, 0o755)
            os.chmod(d.socket, 0o666)
            c = Fixed(d)
            os.seteuid(20002)
            try:
                a = c.ask("GET", "/v1/sessions")
            finally:
                os.seteuid(0)
            self.assertEqual((a.status, a.json["code"]), (403, "peer_not_allowed"))
            d.client().call("GET", "/v1/sessions")  # the control
            [row] = [r for r in d.client().items("/v1/audit?action=auth.failed")]
            self.assertEqual(row["actor"]["peer_uid"], 20002)


class Codes(unittest.TestCase):
    """Sign-in codes against a clock that the test sets."""

    @classmethod
    def setUpClass(cls):
        cls.d = Daemon(start=False)
        source = cls.d.base + "/clock.c"
        with open(source, "w") as f:
            f.write("""#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *t)
{
    char text[32] = "";
    long r = syscall(SYS_clock_gettime, id, t);
    int fd = id == CLOCK_REALTIME && getenv("TEST_CLOCK") ? open(getenv("TEST_CLOCK"), O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        if (read(fd, text, sizeof text - 1) > 0)
            t->tv_sec += atol(text);
        close(fd);
    }
    return (int)r;
}
""")
        cls.shim = cls.d.base + "/clock.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", cls.shim, source], check=True)
        cls.offset = cls.d.base + "/offset"
        cls.set(0)
        options = os.environ.get("ASAN_OPTIONS", "")
        cls.d.start(LD_PRELOAD=cls.shim, TEST_CLOCK=cls.offset,
                    ASAN_OPTIONS=(options + ":" if options else "") + "verify_asan_link_order=0")
        cls.c = cls.d.client()

    @classmethod
    def tearDownClass(cls):
        cls.d.close()

    @classmethod
    def set(cls, seconds):
        with open(cls.offset + ".new", "w") as f:
            f.write(str(seconds))
        os.rename(cls.offset + ".new", cls.offset)

    def setUp(self):
        self.set(0)
        self.page = self.d.client(via="v4")

    def code(self):
        return self.c.call("POST", "/v1/auth/codes", {}, 201)["code"]

    def test_a_late_code(self):
        in_time, late = self.code(), self.code()
        self.set(58)
        self.page.call("POST", "/v1/auth/exchange", {"code": in_time})
        self.set(62)
        self.page.problem(410, "code_expired", "POST", "/v1/auth/exchange", {"code": late})
        self.page.problem(410, "code_used", "POST", "/v1/auth/exchange", {"code": in_time})

    def test_a_browser_that_is_idle(self):
        """Twelve hours, counted from its last use."""
        me = self.page.other(token=self.page.call("POST", "/v1/auth/exchange", {"code": self.code()})["token"])
        self.set(11 * 3600)
        me.call("GET", "/v1/auth/self")
        self.set(22 * 3600)
        me.call("GET", "/v1/auth/self")
        self.set(35 * 3600)
        me.problem(401, "token_invalid", "GET", "/v1/auth/self")

    def test_a_token_with_an_end(self):
        end = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=3600)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        made = self.c.call("POST", "/v1/tokens", {"name": "e", "scopes": ["read"], "expires_at": end}, 201)
        self.assertEqual(made["expires_at"], end)
        holder = self.page.other(token=made["token"])
        holder.call("GET", "/v1/sessions")
        self.set(3700)
        holder.problem(401, "token_invalid", "GET", "/v1/sessions")
        self.set(0)
        for text, kind in (("2020-01-01T00:00:00Z", "range"), ("tomorrow", "format"), ("2030-13-01T00:00:00Z", "format")):
            p = self.c.problem(422, "body_invalid", "POST", "/v1/tokens", {"name": "e", "scopes": ["read"], "expires_at": text})
            self.assertEqual((p["errors"][0]["pointer"], p["errors"][0]["code"]), ("/expires_at", kind))

    def test_two_at_once(self):
        """One code, many at the same moment: exactly one signs in."""
        for _ in range(5):
            code, seen = self.code(), []
            start = threading.Barrier(6)

            def ask():
                start.wait()
                seen.append(self.d.client(via="v4").ask("POST", "/v1/auth/exchange", {"code": code}).status)

            threads = [threading.Thread(target=ask) for _ in range(6)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(sorted(seen), [200] + [410] * 5)

    def test_wrong_codes_are_counted(self):
        codes = ["", "x", "A" * 22, "A" * 64]
        seen = [self.page.ask("POST", "/v1/auth/exchange", {"code": codes[i % 3 + 1]}).status for i in range(24)]
        self.assertEqual(seen[-1], 429)
        self.assertLessEqual(seen.count(401), 20)

    def test_browsers_are_listed_and_signed_out(self):
        got = self.page.call("POST", "/v1/auth/exchange", {"code": self.code()})
        me = self.page.other(token=got["token"])
        id = me.call("GET", "/v1/auth/self")["id"]
        self.assertIn(id, [b["id"] for b in self.c.items("/v1/auth/browsers")])
        self.page.call("POST", "/v1/auth/exchange", {"code": self.code()})
        self.assertEqual(len(self.c.items("/v1/auth/browsers?limit=1")), len(self.c.items("/v1/auth/browsers")))
        me.call("DELETE", "/v1/auth/browsers/" + id, want=204)
        me.problem(401, "token_invalid", "GET", "/v1/auth/self")
        self.assertNotIn(id, [b["id"] for b in self.c.items("/v1/auth/browsers")])

    def test_no_secret_is_written(self):
        code = self.code()
        got = self.page.call("POST", "/v1/auth/exchange", {"code": code})
        self.page.problem(410, "code_used", "POST", "/v1/auth/exchange", {"code": code})
        text = self.d.log() + str(self.c.items("/v1/audit?limit=500"))
        with open(self.d.state + "/cordon.db", "rb") as f:
            data = f.read()
        for secret in (code, got["token"]):
            self.assertNotIn(secret, text)
            self.assertNotIn(secret.encode(), data)
        with open(f"/proc/{self.d.pid}/cmdline", "rb") as f:
            self.assertNotIn(got["token"].encode(), f.read())


if __name__ == "__main__":
    unittest.main(verbosity=2)
