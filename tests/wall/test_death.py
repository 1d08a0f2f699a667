"""The wall's life and its layers: killed at each named stop point nothing is left; with one layer taken
away exactly the check of that name turns false; what bubblewrap is told names no granted path.

Needs the builds with stop points: <CORDON_BIN>/stop/wall_driver and its runner (base/stop.h)."""
import json
import os
import signal
import subprocess

import wall_lab
from wall_lab import STOP_DRIVER, Wall

STAGE_POINTS = ["stage-namespaces", "stage-network", "stage-order", "stage-doors", "stage-view", "stage-exec"]
LAUNCHER_POINTS = ["wall-spawned", "wall-ordered", "wall-ready"]


def comm(pid):
    try:
        with open(f"/proc/{pid}/comm") as f:
            return f.read().strip()
    except OSError:
        return ""


def namespaces():
    seen = set()
    for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
        for kind in ("user", "net", "mnt", "pid"):
            try:
                seen.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
            except OSError:
                pass
    return seen


def descendants(pid):
    found, todo = [], [pid]
    while todo:
        at = todo.pop()
        for task in os.listdir(f"/proc/{at}/task") if os.path.exists(f"/proc/{at}/task") else []:
            try:
                with open(f"/proc/{at}/task/{task}/children") as f:
                    todo += [int(x) for x in f.read().split()]
            except OSError:
                pass
        found.append(at)
    return found


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Death(Wall):
    def start(self, point=None, *options):
        env = dict(self.env, **({"CORDON_TEST_STOP": point} if point else {}))
        p = subprocess.Popen([STOP_DRIVER, "--rw", self.w, *options, "--hold"], env=env, cwd="/",
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.stdin.close)
        return p

    def end(self, p):
        p.kill()
        p.wait()

    def stopped(self, launcher):
        return next((q for q in descendants(launcher.pid) if comm(q) == "stopped"), None)

    def nothing_left(self, launcher, before, tree):
        left = wall_lab.wait_for(lambda: not [q for q in tree if alive(q)], 10)
        self.assertTrue(left, [(q, comm(q)) for q in tree if alive(q)])
        self.drive("--sweep", "--check")
        self.assertEqual(wall_lab.private_folders() - before["private"], set())
        with open("/proc/self/mountinfo") as f:
            self.assertNotIn("cordon-", f.read())
        self.assertEqual(wall_lab.snapshot(self.root), before["tree"])

    def now(self):
        return {"private": wall_lab.private_folders(), "tree": wall_lab.snapshot(self.root)}

    def test_killed_at_each_point(self):
        for point in STAGE_POINTS + LAUNCHER_POINTS:
            with self.subTest(point=point):
                before = self.now()
                p = self.start(point)
                try:
                    self.assertTrue(wall_lab.wait_for(lambda: self.stopped(p)), "never came there")
                    tree = descendants(p.pid)
                finally:
                    self.end(p)
                self.nothing_left(p, before, tree)

    def test_killed_when_up(self):
        before = self.now()
        p = self.start()
        self.assertTrue(p.stdout.readline().startswith(b"up "))
        tree = descendants(p.pid)
        self.assertGreaterEqual(len(tree), 4, "launcher, stage, bubblewrap, runner")
        mine = {os.readlink(f"/proc/{q}/ns/net") for q in tree[1:]} - {os.readlink("/proc/self/ns/net")}
        self.assertTrue(mine)
        self.end(p)
        self.nothing_left(p, before, tree)
        self.assertFalse(mine & namespaces())

    def test_stage_or_runner_killed(self):
        """Any one of them takes the others along; the launcher goes on and cleans up."""
        for which in (1, 2, 3):
            before = self.now()
            p = self.start()
            p.stdout.readline()
            tree = descendants(p.pid)
            os.kill(tree[which], signal.SIGKILL)
            wait = wall_lab.wait_for(lambda: not [q for q in tree[1:] if alive(q)], 10)
            self.assertTrue(wait, which)
            p.stdin.close()
            p.wait(20)
            self.nothing_left(p, before, tree)

    def test_orderly_end(self):
        before = self.now()
        p = self.start()
        p.stdout.readline()
        tree = descendants(p.pid)
        p.stdin.close()
        self.assertEqual(p.wait(20), 0)
        self.assertFalse([q for q in tree if alive(q)], "closed, and still there")
        self.assertEqual(wall_lab.private_folders() - before["private"], set())

    def test_a_living_session_is_not_swept(self):
        p = self.start()
        private = p.stdout.readline().split()[2].decode()
        self.drive("--sweep", "--check")
        self.assertTrue(os.path.isdir(private + "/home"))
        p.stdin.close()
        p.wait(20)

    def test_sweep_looks_at_owner_and_lock(self):
        """Names alone sweep nothing: a link, a file, another mode (case 44)."""
        names = ["/tmp/cordon-" + c * 22 for c in "ABC"]
        os.symlink(self.home, names[0])
        open(names[1], "w").close()
        os.mkdir(names[2], 0o755)
        os.chmod(names[2], 0o755)
        try:
            self.drive("--sweep", "--check")
            self.assertEqual([os.path.lexists(n) for n in names], [True] * 3)
            self.assertTrue(os.path.exists(self.home + "/secret.txt"))
        finally:
            os.unlink(names[0])
            os.unlink(names[1])
            os.rmdir(names[2])

    def test_arguments_of_bubblewrap(self):
        """Read in a live session, from the memory file the stage hands over."""
        sub = os.path.join(self.w, "sub")
        os.mkdir(sub)
        p = self.start("stage-exec", "--ro", sub)
        try:
            stage = wall_lab.wait_for(lambda: self.stopped(p))
            with open(f"/proc/{stage}/fd/4", "rb") as f:
                args = f.read().decode().split("\0")
        finally:
            self.end(p)
        self.assertIn("--unshare-user", args)
        for arg in args:
            self.assertFalse(arg.startswith((self.w, self.home, self.root)), arg)
        binds = [args[i + 1] for i, a in enumerate(args) if "bind" in a]
        mine = [b for b in binds if b != "/dev/null" and not b.startswith("/proc/")]
        self.assertEqual(len(mine), 1, binds)  # the view, in the private folder; fixed parts of /proc, and what closes some
        self.assertRegex(mine[0], r"^/tmp/cordon-[\w-]{22}/view/root$")
        self.assertLess(len(binds), 20)

    def test_descriptors_at_exec(self):
        """The stage hands bubblewrap 0 to 2, the control socket, its arguments and the filter."""
        p = self.start("stage-exec")
        try:
            stage = wall_lab.wait_for(lambda: self.stopped(p))
            kept = []
            for fd in os.listdir(f"/proc/{stage}/fdinfo"):
                with open(f"/proc/{stage}/fdinfo/{fd}") as f:
                    flags = int(f.read().split("flags:")[1].split()[0], 8)
                if not flags & 0o2000000:
                    kept.append(int(fd))
        finally:
            self.end(p)
        self.assertEqual(sorted(kept), [0, 1, 2, 3, 4, 5])


class Layers(Wall):
    """layer taken away -> the checks that must turn false, and no others."""

    MUST_FAIL = {
        None: set(),
        "home": {"home_hidden"},
        "read-only": {"folders_reachable"},
        "network": {"direct_refused", "api_refused"},
        "descriptors": {"no_descriptors"},
        "seccomp": {"no_privileges"},
        "landlock": {"no_privileges"},
        "proc": {"own_proc"},
        "proc-sys": {"own_proc"},
        "mask": {"credentials_hidden"},
        "limits": {"limits"},
    }

    def proof(self, layer):
        keep = os.path.join(self.root, "keep")
        os.makedirs(keep, exist_ok=True)
        self.write(self.home, ".config/git/credentials", wall_lab.MARK)
        env = {"CORDON_TEST_WITHOUT": layer} if layer else {}
        state = os.path.join(self.root, "state")
        net = "none" if layer == "network" else "allowlist"  # doors outside are refused before
        done = self.drive("--state", state, "--net", net, "--rw", self.w, "--ro", keep, "--files", "512",
                          "--proof", driver=STOP_DRIVER, env=env)
        if layer == "proc" and done.returncode == 125:
            # bubblewrap looks its child up in the host's /proc by the number it has in ours, and may
            # not open what it finds there: no wall at all, which is no hole either
            self.assertIn(b"open /proc/", done.stderr)
            return None
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return {c["id"]: c for c in json.loads(done.stdout)["checks"]}

    def test_doors_in_the_host_are_refused(self):
        done = self.drive("--rw", self.w, "--", "/usr/bin/true", driver=STOP_DRIVER,
                          env={"CORDON_TEST_WITHOUT": "network"})
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"in the host's network namespace", done.stderr)

    def test_each(self):
        for layer, want in self.MUST_FAIL.items():
            with self.subTest(layer=layer):
                checks = self.proof(layer)
                if checks is None:
                    continue
                self.assertEqual(len(checks), 12)
                failed = {i for i, c in checks.items() if not c["ok"]}
                self.assertEqual(failed, want, {i: checks[i]["detail"] for i in failed | want})


if __name__ == "__main__":
    wall_lab.main()
