"""A state folder on a full disk: nothing new starts, every answer is true, what happened meanwhile is
written down once there is room, and a restart finds it."""
import ctypes
import os
import shutil
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest
from cordon_test.cli import wait_for
from cordon_test.daemon import Daemon

CLONE_NEWNS, CLONE_NEWUSER, MS_REC, MS_PRIVATE = 0x00020000, 0x10000000, 0x4000, 1 << 18
LIBC = ctypes.CDLL(None, use_errno=True)


def own_mounts():
    """A mount namespace of this test; an ordinary user needs a user namespace for it."""
    uid, gid = os.geteuid(), os.getegid()
    if LIBC.unshare(CLONE_NEWNS if uid == 0 else CLONE_NEWNS | CLONE_NEWUSER) < 0:
        raise OSError(ctypes.get_errno(), "unshare")
    if uid != 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open("/proc/self/" + name, "w") as f:
                f.write(text)
    if LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) < 0:
        raise OSError(ctypes.get_errno(), "mount")


class DiskFull(ApiTest):
    @classmethod
    def setUpClass(cls):
        own_mounts()
        cls.d = Daemon(start=False)
        os.makedirs(cls.d.state, 0o700)
        options = f"size=24m,mode=700,uid={os.geteuid()},gid={os.getegid()}".encode()
        if LIBC.mount(b"tmpfs", cls.d.state.encode(), b"tmpfs", 0, options) < 0:
            raise OSError(ctypes.get_errno(), "mount")
        cls.d.start()
        cls.c = cls.d.client()
        cls.work = cls.d.work

    @classmethod
    def tearDownClass(cls):
        if cls.d.process is not None:
            cls.d.kill()  # its log has the failed writes, which no other test may have
        LIBC.umount2(cls.d.state.encode(), 2)
        shutil.rmtree(cls.d.base)

    def fill(self):
        with open(self.d.state + "/filler", "ab", buffering=0) as f:
            try:
                while f.write(bytes(4096)) == 4096:
                    pass
            except OSError as e:
                self.assertEqual(e.errno, 28)
        self.assertEqual(os.statvfs(self.d.state).f_bavail, 0)

    def until_refused(self, ask):
        """Small writes fit where the log was: the answers up to the first that is not done."""
        done = []
        for i in range(20000):
            a = ask(i)
            if a.status == 507:
                self.assertEqual(a.json["code"], "disk_full")
                return done, i
            self.assertIn(a.status, (200, 201, 204), a)
            done.append(i)
        self.fail("it is never full")

    def hosts(self):
        return {s["host"] for s in self.c.items("/v1/sites?limit=500&source=user")}

    def everything_new_is_refused(self, s):
        sessions = self.c.items("/v1/sessions")
        commands = self.c.items(f"/v1/sessions/{s['id']}/commands")
        self.c.problem(507, "disk_full", "POST", "/v1/sessions", {"folders": [{"path": self.work}], "require_wall": True})
        self.c.problem(507, "disk_full", "POST", f"/v1/sessions/{s['id']}/commands", {"argv": ["touch", self.work + "/ran"]})
        self.c.problem(507, "disk_full", "PUT", f"/v1/sessions/{s['id']}/files/content?path={self.work}/put", b"x",
                       headers={"Content-Type": "application/octet-stream"})
        self.assertEqual(os.listdir(self.work), [])
        self.assertEqual(self.c.items("/v1/sessions"), sessions)
        self.assertEqual(self.c.items(f"/v1/sessions/{s['id']}/commands"), commands)

    def test_full_and_room_again(self):
        s, other = self.session(), self.session(keep=True)
        ends = self.start(s, "read x; echo ended; exit 7", stdin="pipe")
        floods = self.start(other, "read x; yes flood | head -c 3000000; exit 3", stdin="pipe")
        old = self.run_in(s, "echo kept")
        self.fill()
        # Settings and sites: done is done, refused is not there, in memory as on the disk.
        sites, refused = self.until_refused(lambda i: self.c.ask("POST", "/v1/sites", {"host": f"h{i}.test", "port": 443}))
        self.assertEqual(self.hosts(), {f"h{i}.test" for i in sites})
        check = {"host": f"h{refused}.test", "port": 443}
        self.assertEqual(self.c.call("POST", "/v1/sites/check", check)["verdict"], "refuse")
        etag = self.c.ask("GET", "/v1/settings").etag
        days = self.c.call("GET", "/v1/settings")["values"]["retention"]["output_days"]

        def set_days(i):
            nonlocal etag, days
            a = self.c.ask("PATCH", "/v1/settings", f'{{"retention":{{"output_days":{1000 + i}}}}}',
                           {"Content-Type": "application/merge-patch+json", "If-Match": etag})
            if a.status == 200:
                etag, days = a.etag, 1000 + i
            return a
        self.until_refused(set_days)
        got = self.c.ask("GET", "/v1/settings")
        self.assertEqual((got.json["values"]["retention"]["output_days"], got.etag), (days, etag))
        tokens, _ = self.until_refused(lambda i: self.c.ask("POST", "/v1/tokens", {"name": f"t{i}", "scopes": ["read"]}))
        self.assertEqual(len(self.c.items("/v1/tokens")), len(tokens))
        self.until_refused(lambda i: self.c.ask("DELETE", self.at(old)))
        self.assertEqual(self.c.call("GET", self.at(old))["text"]["stdout"], "kept\n")
        self.everything_new_is_refused(s)

        # What runs ends, and that is said, though it cannot be written down yet.
        octets = {"Content-Type": "application/octet-stream"}
        for c in (ends, floods):
            self.c.call("POST", self.at(c) + "/stdin?offset=0&close=1", b"x\n", headers=octets)
        ended = self.wait_end(ends)
        self.assertEqual((ended["state"], ended["result"]["exit_code"]), ("exited", 7))
        flooded = self.wait_end(floods)
        self.assertEqual((flooded["state"], flooded["result"]["exit_code"]), ("exited", 3))
        self.assertEqual(flooded["output"]["stdout_bytes"], 3000000)
        self.assertGreater(flooded["output"]["dropped_bytes"], 0)
        self.c.ask("POST", f"/v1/sessions/{other['id']}/stop", {"grace_ms": 0})
        wait_for(lambda: self.c.call("GET", f"/v1/sessions/{other['id']}")["state"] == "ended", "the end", 30)
        self.everything_new_is_refused(s)

        # Room again: it finds out by itself.
        os.unlink(self.d.state + "/filler")
        wait_for(lambda: self.c.ask("POST", f"/v1/sessions/{s['id']}/commands",
                                    {"argv": ["true"], "wait_ms": 30000}).status == 201, "room", 30)
        wait_for(lambda: [r for r in self.audit("action=session.ended") if r["session_id"] == other["id"]], "the rows", 30)
        rows = [r for r in self.audit("action=command.ended") if r["command_id"] == ends["id"]]
        self.assertEqual([r["after"]["exit_code"] for r in rows], [7])
        rows = [r for r in self.audit("action=command.ended") if r["command_id"] == floods["id"]]
        self.assertEqual([r["after"]["exit_code"] for r in rows], [3])
        self.assertTrue(self.c.call("GET", "/v1/audit/verify")["ok"])
        self.assertIn(" store.writable ", self.d.log())
        self.assertNotIn("audit.lost", self.d.log())
        self.c.call("POST", "/v1/sites", check, 201)
        self.assertEqual(self.run_in(s, "echo new > n; cat n")["text"]["stdout"], "new\n")

        # A daemon that is killed and started again knows the same.
        hosts = self.hosts()
        self.d.kill()
        self.d.start()
        self.assertEqual(self.hosts(), hosts)
        self.assertEqual(self.c.call("GET", "/v1/settings")["values"]["retention"]["output_days"], days)
        self.assertEqual(len(self.c.items("/v1/tokens")), len(tokens))
        for c, code in ((ends, 7), (floods, 3)):
            got = self.c.call("GET", self.at(c))
            self.assertEqual((got["state"], got["result"]["exit_code"]), ("exited", code))
        self.assertEqual(self.c.call("GET", f"/v1/sessions/{other['id']}")["end_reason"], "stopped")
        self.assertTrue(self.c.call("GET", "/v1/audit/verify")["ok"])
        self.assertNotIn("store_corrupt", self.d.log())


if __name__ == "__main__":
    unittest.main(verbosity=2)
