"""After all other tests of the API: what they saw, against what schema/openapi.json and the table of errors
promise. Each operation, status, type, member, query member and code must have occurred, or be named here
with the reason why it cannot in this version. ctest runs it after the others ($CORDON_RECORD)."""
import glob
import json
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.contract import SOURCE, Contract

# Codes that no test of the API can bring about, and why.
UNSEEN_CODES = {
    "internal": "a bug by its nature",
}
# Members of answers and bodies that this version never fills or takes, by pattern, and why.
LATER = "comes with a later version"
UNSEEN = {
    r"(folder|access\.folders\[\]|file_entry|file_edited)\.path_b64": "such a path comes in the request, as text",
    r"access\.sites\[\]\.last_used_at": "wants a server that is reached: tests/compat has one",
    r"command\.notices\[\]\..*": LATER + ": restarts by the person",
    r"session\.pending\[\]\..*": LATER + ": restarts by the person",
    r"frame\|4\..*": LATER + ": kind ask, of the tier guarded; tests/unit/test_asks.c has it",
    r"result\.cwd": LATER + ": the shell that lasts",
    r"(setting_meta|warning)\.(file|line|key)": LATER + ": configuration files",
}


def record():
    rows = []
    for path in sorted(glob.glob(os.path.join(os.environ["CORDON_RECORD"], "test_*.jsonl"))):
        with open(path) as f:
            rows += [json.loads(line) for line in f]
    return rows


class Collected(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        with open(SOURCE + "/schema/openapi.json") as f:
            cls.contract = Contract(json.load(f))
        cls.rows = record()
        cls.members = {m for r in cls.rows for m in r.get("members", ())}

    def test_each_program_left_a_record(self):
        here = {os.path.basename(p)[:-3] for p in glob.glob(os.path.join(SOURCE, "tests/api/test_*.py"))}
        left = {os.path.basename(p)[:-6] for p in glob.glob(os.path.join(os.environ["CORDON_RECORD"], "*.jsonl"))}
        by_itself = {"test_zz_collected", "test_secrets"}  # this one, and one that speaks HTTP by itself
        self.assertEqual(here - left, by_itself)
        self.assertGreater(len(self.rows), 5000)

    def unseen(self, wanted, allowed):
        found = sorted(wanted)
        unused = [p for p in allowed if not any(re.fullmatch(p, x) for x in found)]
        self.assertEqual(unused, [], "excused, and yet it occurs")
        return [x for x in found if not any(re.fullmatch(p, x) for p in allowed)]

    def test_each_answer_occurred(self):
        wanted = set()
        for method, _, path, op in self.contract.operations:
            for status, answer in op["responses"].items():
                kinds = list(answer.get("content", {})) or [None]
                wanted |= {f"{method} {path} -> {status}" + (f" {k}" if k else "") for k in kinds if status != "default"}
        self.assertEqual(self.unseen(wanted - self.members, {}), [])

    def test_each_member_occurred(self):
        self.assertEqual(self.unseen(self.contract.documented() - self.members, UNSEEN), [])

    def test_each_query_member_was_sent(self):
        wanted = {f"{m} {path} ?{p['name']}" for m, _, path, op in self.contract.operations
                  for p in op.get("parameters", ()) if p["in"] == "query"}
        self.assertEqual(sorted(wanted - self.members), [])

    def test_each_code_occurred_and_no_other(self):
        documented = set(self.contract.spec["components"]["schemas"]["problem"]["properties"]["code"]["enum"])
        seen = {r["code"] for r in self.rows if r["code"]}
        self.assertEqual(seen - documented, set())
        unseen = documented - seen
        excused = set(UNSEEN_CODES)
        if os.getuid() != 0:
            excused.add("peer_not_allowed")  # another account can be had by root alone
        self.assertEqual(sorted(unseen - excused), [])
        self.assertEqual(sorted(set(UNSEEN_CODES) - unseen), [], "excused, and yet it occurs")

    def test_each_code_has_its_page_and_is_the_codes(self):
        """The table of the daemon, both ways."""
        with open(SOURCE + "/server/api/problem.c") as f:
            table = set(re.findall(r'^    \{"([a-z_]+)", \d{3},', f.read(), re.M))
        documented = set(self.contract.spec["components"]["schemas"]["problem"]["properties"]["code"]["enum"])
        self.assertEqual(table, documented)


if __name__ == "__main__":
    unittest.main(verbosity=2)
