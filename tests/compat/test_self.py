"""Cordon's own tree, copied into a session's folder, is built there and passes its unit tests.
What a unit test needs and no wall gives, namespaces, it says itself and skips; nothing else may."""
import os
import re
import shutil
import unittest

from box import SOURCE, Box, Session, need

TREE = ("CMakeLists.txt", "server", "profiles", "schema", "tests", "webui", "packaging", "README.md")


class Self(unittest.TestCase):
    def setUp(self):
        need(self, "cmake", "ninja", "gcc", "pkg-config")
        self.box = Box()
        self.addCleanup(self.box.close)
        for name in TREE:
            at = SOURCE / name
            if at.is_dir():
                shutil.copytree(at, self.box.work / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
            else:
                shutil.copy(at, self.box.work / name)
        self.session = Session(self.box, options=["--network", "none"])

    def inside(self, line):
        done = self.session.run("bash", "-ec", line, timeout=560)
        self.assertEqual(done.returncode, 0, (done.stdout + done.stderr).decode(errors="replace")[-6000:])
        return done.stdout.decode(errors="replace")

    def test_builds_itself_and_passes_its_unit_tests(self):
        self.inside("cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Debug >/dev/null")
        self.inside("cd build; units=$(ninja -t targets all | grep -oE '^bin/test_[a-z_]+' | sort -u);"
                    "nice cmake --build . -j2 --target $units cordon cordond cordon-egress >made 2>&1 || { tail -c 3000 made; exit 1; }")
        self.assertIn("100% tests passed", self.inside("ctest --test-dir build -L unit --output-on-failure -j2"))
        log = (self.box.work / "build" / "Testing" / "Temporary" / "LastTest.log").read_text(errors="replace")
        reasons = re.findall(r"^skipped: (.*)$", log, re.M)
        skipped = set(re.findall(r"^\[  SKIPPED \] ([a-z0-9_]+)$", log, re.M))
        passed = set(re.findall(r"^\[       OK \] (\S+)$", log, re.M))
        self.assertEqual([r for r in reasons if "namespace" not in r], [])
        self.assertEqual(len(reasons), len(skipped))
        self.assertLess(len(skipped) * 5, len(passed))
        self.assertTrue({"disk_full", "basics_wall"} <= skipped)
        self.assertTrue({"basics_direct", "killed_writer", "every_number"} <= passed, sorted(passed))
        made = {p.name for p in (self.box.work / "build" / "bin").iterdir()}
        self.assertTrue({"cordon", "cordond", "cordon-runner", "cordon-egress"} <= made)
        # the programs that run outside are not those that were made here, nor can they be written
        before = (SOURCE / "README.md").stat().st_mtime_ns
        bin = os.environ["CORDON_BIN"]
        done = self.session.sb(f"echo x >{bin}/cordond; echo x >{SOURCE}/README.md; build/bin/cordon --version")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count(b"cannot create"), 2, done.stderr)
        self.assertEqual((SOURCE / "README.md").stat().st_mtime_ns, before)


if __name__ == "__main__":
    unittest.main()
