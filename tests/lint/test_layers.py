"""Includes of server/ against the table in layers.py, and the first line of each .c file."""
import os
import re
import unittest
from pathlib import Path

from layers import GENERATED, IMPURE_ALLOWED, IMPURE_HEADERS, LIBRARIES, PURE, ROOMS

SERVER = Path(os.environ["CORDON_SOURCE"]) / "server"
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.M)
FIRST_LINE = re.compile(r"^/\* Runs in: [^.]+\. Reads: [^.]+\. May block: ")
PROCESSES = ("daemon", "egress", "runner", "cli", "fetch", "any")


def sources(*suffixes):
    return sorted(p for p in SERVER.rglob("*") if p.suffix in suffixes)


def includes(path):
    return [(m.group(1), m.group(2)) for m in INCLUDE.finditer(path.read_text())]


def name_of(path):
    return path.relative_to(SERVER).as_posix()


class Layers(unittest.TestCase):
    def setUp(self):
        self.faults = []

    def fault(self, path, text):
        self.faults.append(f"server/{name_of(path)}: {text}")

    def tearDown(self):
        self.assertEqual(self.faults, [], "\n" + "\n".join(self.faults))

    def test_something_is_checked(self):
        self.assertGreater(len(sources(".c", ".h")), 40)

    def test_every_room_is_in_the_table(self):
        for folder in SERVER.iterdir():
            if folder.is_dir() and folder.name not in ROOMS:
                self.fault(folder, "a room that layers.py does not know")

    def test_own_includes_name_an_allowed_room(self):
        for path in sources(".c", ".h"):
            room = name_of(path).split("/")[0]
            for quote, name in includes(path):
                if quote != '"':
                    continue
                if name in GENERATED:
                    if room not in GENERATED[name]:
                        self.fault(path, f"{name} belongs to {sorted(GENERATED[name])}")
                elif "/" not in name:
                    self.fault(path, f'"{name}" does not name its room')
                else:
                    other = name.split("/")[0]
                    if other not in ROOMS:
                        self.fault(path, f'"{name}": no such room')
                    elif other != room and other not in ROOMS[room]:
                        self.fault(path, f"{room} may not include {name}")

    def test_one_library_one_room(self):
        for path in sources(".c", ".h"):
            name = name_of(path)
            for _, header in includes(path):
                allowed = LIBRARIES.get(header)
                if allowed is not None and name not in allowed and name.split("/")[0] not in allowed:
                    self.fault(path, f"<{header}> is for {sorted(allowed)} only")

    def test_pure_rooms_touch_nothing(self):
        for path in sources(".c", ".h"):
            name = name_of(path)
            if name.split("/")[0] not in PURE:
                continue
            for _, header in includes(path):
                if header in IMPURE_HEADERS and (name, header) not in IMPURE_ALLOWED:
                    self.fault(path, f"a pure room includes {header}")

    def test_first_line_says_where_it_runs(self):
        for path in sources(".c"):
            text = path.read_text().replace("\n * ", " ")
            if not FIRST_LINE.match(text):
                self.fault(path, "must begin with /* Runs in: … Reads: … May block: … */")
                continue
            where = re.match(r"/\* Runs in: ([a-z]+)", text)
            if not where or where.group(1) not in PROCESSES:
                self.fault(path, "Runs in: begins with no process of ours")

    def test_headers_are_guarded(self):
        for path in sources(".h"):
            if "#pragma once" not in path.read_text():
                self.fault(path, "no #pragma once")


if __name__ == "__main__":
    unittest.main()
