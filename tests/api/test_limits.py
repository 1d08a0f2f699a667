"""Each limit is held by what this machine has for it, the result names the one that was hit, and the
proof says which are held and by what. Control: the same command without the limit."""
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest
from cordon_test.cli import wait_for

MIB = 1 << 20
EAT = "import sys; b = bytearray(%d); sys.stdout.write(str(len(b)))"
FORK = """import os, time
n = 0
try:
    for _ in range(400):
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        n += 1
except OSError:
    pass
print(n)
"""


def groups():
    """The control groups that daemons of ours have in every hierarchy."""
    found = []
    for top, dirs, _ in os.walk("/sys/fs/cgroup"):
        found += [os.path.join(top, d) for d in dirs if re.fullmatch(r"cordon\.\d+\.\d+", d)]
    return found


class Limits(ApiTest):
    def limits(self, **values):
        at = self.c.ask("GET", "/v1/settings")
        self.c.call("PATCH", "/v1/settings", {"limits": values},
                    headers={"If-Match": at.headers["ETag"], "Content-Type": "application/merge-patch+json"})
        self.addCleanup(self.back, list(values))

    def back(self, names):
        at = self.c.ask("GET", "/v1/settings")
        self.c.call("PATCH", "/v1/settings", {"limits": {n: None for n in names}},
                    headers={"If-Match": at.headers["ETag"], "Content-Type": "application/merge-patch+json"})

    def held(self, s, what):
        """By what, as the proof says; None when it is not."""
        check = {c["id"]: c for c in self.c.call("GET", f"/v1/sessions/{s['id']}/proof")["checks"]}["limits"]
        text = re.search(what + r" \d+ \(([^)]*)\)", check["detail"])
        self.assertIsNotNone(text, check)
        self.assertEqual(check["ok"], "NOT HELD" not in check["detail"], check)
        return None if text[1].startswith("NOT HELD") else text[1]

    def python(self, s, code, **more):
        return self.run_in(s, argv=["/usr/bin/python3", "-c", code], **more)

    def test_time(self):
        r = self.run_in(self.session(), "sleep 600", timeout_ms=200, kill_grace_ms=0)
        self.assertEqual((r["state"], r["result"]["limit"]), ("timed_out", "time"))

    def test_memory(self):
        free = self.python(self.session(), EAT % (256 * MIB))
        self.assertEqual((free["state"], free["text"]["stdout"]), ("exited", str(256 * MIB)))
        self.assertNotIn("limit", free["result"])
        self.limits(memory_bytes=128 * MIB)
        s = self.session()
        by = self.held(s, "memory")
        r = self.python(s, EAT % (256 * MIB))
        self.assertEqual(r["text"]["stdout"], "")
        if "control group" in by:
            self.assertEqual((r["state"], r["result"].get("signal"), r["result"]["limit"]),
                             ("killed", "KILL", "memory"), r)
            # address space is not memory: what is reserved and not used does not count
            r = self.python(s, f"import mmap; mmap.mmap(-1, {1024 * MIB}); print('reserved')")
            self.assertEqual(r["text"]["stdout"], "reserved\n")
        else:
            self.assertIn("MemoryError", r["text"]["stderr"])
        self.assertEqual(self.python(s, EAT % MIB)["text"]["stdout"], str(MIB))

    def test_processes(self):
        free = self.python(self.session(), FORK)
        self.assertEqual(int(free["text"]["stdout"]), 400)
        self.limits(processes=60)
        s = self.session()
        by = self.held(s, "processes")
        r = self.python(s, FORK)
        self.assertLess(int(r["text"]["stdout"]), 60 + 16 + 1)
        self.assertGreater(int(r["text"]["stdout"]), 40)
        if "control group" in by:
            self.assertEqual(r["result"]["limit"], "processes")

    def test_cpu(self):
        self.limits(cpu_percent=20)
        s = self.session()
        spin = "import time; t = time.process_time(); w = time.monotonic()\n" \
               "while time.process_time() - t < 0.3: pass\nprint(time.monotonic() - w)"
        r = self.python(s, spin)
        if self.held(s, "cpu"):
            self.assertGreater(float(r["text"]["stdout"]), 1.0)  # 0.3 s of work at a fifth of a processor
            self.assertEqual(r["result"]["limit"], "cpu")
        else:  # said, and nothing else is: `status` is degraded
            self.assertNotIn("limit", r["result"])
            self.assertEqual(self.c.call("GET", "/v1/status")["checks"][-1]["id"], "limits")

    def test_output(self):
        r = self.run_in(self.session(), "head -c 300000 /dev/zero; echo done >&2", max_output_bytes=65536)
        self.assertEqual((r["state"], r["text"]["stderr"]), ("exited", "done\n"))
        self.assertEqual(r["output"]["stdout_bytes"], 300000)
        self.assertGreater(r["output"]["dropped_bytes"], 0)
        self.assertTrue(r["text"]["truncated"])

    def test_open_files(self):
        self.limits(open_files=64)
        s = self.session()
        self.assertIn("RLIMIT_NOFILE", self.held(s, "open files"))
        r = self.python(s, "import os, errno\nn = 3\ntry:\n  while True: os.dup(1); n += 1\n"
                           "except OSError as e: print(n, errno.errorcode[e.errno])")
        self.assertEqual(r["text"]["stdout"], "64 EMFILE\n")

    def test_nothing_stays_in_the_hierarchies(self):
        mine = f"cordon.{self.d.pid}."
        self.limits(memory_bytes=256 * MIB, cpu_percent=50)
        s = self.session()
        by = self.held(s, "memory")
        here = [g for g in groups() if os.path.basename(g).startswith(mine)]
        self.assertEqual(bool(here), "control group" in by)
        self.c.call("POST", f"/v1/sessions/{s['id']}/stop", {"grace_ms": 0}, 202)
        wait_for(lambda: self.c.call("GET", f"/v1/sessions/{s['id']}")["state"] == "ended", "the end", 20)
        left = [g for g in here if os.path.exists(g)]
        self.assertEqual(left, [])
        self.session(keep=True)
        old = [g for g in groups() if os.path.basename(g).startswith(mine)]
        self.d.kill()
        self.d.start()
        self.assertEqual([g for g in old if os.path.exists(g)], [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
