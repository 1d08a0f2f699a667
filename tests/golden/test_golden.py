"""What the renderers print for fixed machines and policies, against tests/golden/NAME.txt.

A difference is a change of what the kernel is told: read it, and when it is meant, run
    UPDATE=1 python3 tests/golden/test_golden.py      (with CORDON_BIN and CORDON_SOURCE set)
and commit the files with the change."""
import os
import subprocess
import unittest
from pathlib import Path

RENDER = Path(os.environ["CORDON_BIN"]) / "golden_render"
FOLDER = Path(os.environ["CORDON_SOURCE"]) / "tests" / "golden"


def render(*args):
    done = subprocess.run([RENDER, *args], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


class Golden(unittest.TestCase):
    maxDiff = None

    def test_each_file(self):
        for name in render("--list").decode().split():
            path = FOLDER / f"{name}.txt"
            with self.subTest(name):
                made = render(name)
                if os.environ.get("UPDATE"):
                    path.write_bytes(made)
                self.assertTrue(path.exists(), f"{path} is missing: UPDATE=1 makes it")
                self.assertEqual(path.read_text(errors="backslashreplace"),
                                 made.decode(errors="backslashreplace"),
                                 f"{name}: regenerate with UPDATE=1 when this is meant")

    def test_no_file_without_a_renderer(self):
        names = set(render("--list").decode().split())
        self.assertEqual({p.stem for p in FOLDER.glob("*.txt")} - names, set())


if __name__ == "__main__":
    unittest.main()
