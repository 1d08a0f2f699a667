"""What a session does not have is said when it is made: a folder that cannot be written to inside.
That connections are not redirected: tests/egress/test_redirect_off.py."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest


class Warnings(ApiTest):
    def codes(self, s):
        return [w["code"] for w in s["warnings"]]

    def write_in(self, s, path):
        return self.run_in(s, f"echo x > '{path}/mark' && echo wrote || echo refused")["text"]["stdout"]

    def test_folder_of_another(self):
        mine, other = self.folder("mine"), self.folder("other")
        if os.geteuid() == 0:
            os.chown(other, 20001, 20001)
        else:
            os.chmod(other, 0o555)
            self.addCleanup(os.chmod, other, 0o755)
        s = self.session(folders=[{"path": mine}, {"path": other}])
        said = [w for w in s["warnings"] if w["code"] == "folder_not_writable"]
        self.assertEqual(len(said), 1, s["warnings"])
        self.assertIn(other, said[0]["detail"])
        self.assertIn("run as its owner" if os.geteuid() == 0 else "its mode", said[0]["detail"])
        self.assertEqual(self.write_in(s, mine), "wrote\n")
        self.assertEqual(self.write_in(s, other), "refused\n")
        self.assertEqual(os.listdir(other), [])
        read_only = self.session(folders=[{"path": mine}, {"path": other, "mode": "ro"}])
        self.assertNotIn("folder_not_writable", self.codes(read_only))

    def test_nothing_to_say(self):
        self.assertEqual(self.codes(self.session()), [])
        self.assertEqual(self.codes(self.session(network="none")), [])
        bare = self.c.call("POST", "/v1/sessions?confirm=open", {"folders": [{"path": self.work}], "tier": "open"}, 201)
        self.addCleanup(self.end_session, bare["id"])
        self.assertEqual(bare["warnings"], [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
