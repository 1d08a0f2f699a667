"""Values of environment variables reach the command and nothing else: no record, no answer, no log,
no audit row and no file of the state folder holds one, only the names."""
import hashlib
import http.client
import json
import os
import socket
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.cli import Home, wait_for  # noqa: E402

RUN, OWN, SESSION, REMOVED, CALLER = ("gx7-run-", "gx7-own-", "gx7-session-", "gx7-removed-",
                                      "gx7-caller-")
MARK = "gx7-"
TAIL = "4f9c2e81"


def files_with(folder, mark):
    """Files below FOLDER that hold MARK, as it stands or as UTF-16, and how many were read."""
    found, n = [], 0
    for at, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(at, name)
            if not os.path.isfile(path):
                continue
            with open(path, "rb") as f:
                data = f.read()
            n += 1
            if mark.encode() in data or mark.encode("utf-16-le") in data:
                found.append(path)
    return found, n


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


class Secrets(unittest.TestCase):
    def setUp(self):
        self.home = Home(CALLER_SECRET=CALLER + TAIL)
        self.addCleanup(self.home.close)
        self.answers = []

    def call(self, method, path, body=None, want=200, **headers):
        c = http.client.HTTPConnection("localhost", timeout=60)
        self.addCleanup(c.close)
        c.sock = socket.socket(socket.AF_UNIX)
        c.sock.connect(self.home.server()["socket"])
        if body is not None:
            headers["Content-Type"] = "application/json"
        if isinstance(body, str):
            body = body.encode("utf-8", "surrogateescape")
        elif body is not None:
            body = json.dumps(body)
        c.request(method, path, body, headers)
        r = c.getresponse()
        data = r.read()
        self.assertEqual(r.status, want, data[:500])
        self.answers.append((method, path, str(r.headers) + data.decode(errors="replace")))
        c.close()
        return json.loads(data) if data else None

    def digest(self, name):
        """A command that shows what a variable holds without saying it."""
        return f'printf %s "${name}" | sha256sum | cut -d" " -f1'

    def nothing_kept(self):
        for method, path, text in self.answers:
            self.assertNotIn(MARK, text, (method, path))
        found, n = files_with(self.home.state, MARK)
        self.assertEqual(found, [])
        self.assertGreater(n, 2)
        self.assertNotIn(MARK, self.home.log())

    def everything_read(self):
        for s in self.call("GET", "/v1/sessions")["items"]:
            base = f"/v1/sessions/{s['id']}"
            self.call("GET", base)
            if s["state"] == "ready":
                self.call("GET", base + "/access")
            for c in self.call("GET", base + "/commands")["items"]:
                self.call("GET", f"{base}/commands/{c['id']}")
                self.call("GET", f"{base}/commands/{c['id']}/output", Accept="application/json")
        self.call("GET", "/v1/audit?limit=500")
        self.call("GET", "/v1/status")

    def test_command_line(self):
        r = self.home.sh(self.digest("X"), "-e", "X=" + RUN + TAIL, "--keep")
        self.assertEqual((r.code, r.out.decode().strip()), (0, sha(RUN + TAIL)), r)
        r = self.home.sh(self.digest("CALLER_SECRET"), "-e", "CALLER_SECRET", "--json")
        self.assertEqual(r.code, 0, r)
        record = json.loads(r.out)
        self.assertEqual(record["text"]["stdout"].strip(), sha(CALLER + TAIL))
        self.assertEqual(record["env"], ["CALLER_SECRET"])
        self.assertNotIn(MARK, r.out.decode() + r.err.decode())
        # No wall: the whole environment is sent, unasked.
        r = self.home.sh(self.digest("CALLER_SECRET"), "-t", "open", "--json")
        self.assertEqual(r.code, 0, r)
        record = json.loads(r.out)
        self.assertEqual(record["text"]["stdout"].strip(), sha(CALLER + TAIL))
        self.assertIn("CALLER_SECRET", record["env"])
        self.assertIn("PATH", record["env"])
        self.assertEqual(record["env"], sorted(record["env"]))
        self.assertNotIn(MARK, r.out.decode() + r.err.decode())
        self.everything_read()
        self.nothing_kept()
        self.assertEqual(self.home.cordon("stop").code, 0)
        self.nothing_kept()

    def test_rest(self):
        self.assertEqual(self.home.cordon("serve").code, 0)
        s = self.call("POST", "/v1/sessions", {
            "folders": [{"path": self.home.work}], "require_wall": True,
            "env": {"S_KEY": SESSION + TAIL, "A": SESSION + "a", "R": REMOVED + TAIL}}, 201,
            **{"Idempotency-Key": "s1"})
        self.assertEqual(s["env"], ["A", "R", "S_KEY"])
        base = f"/v1/sessions/{s['id']}"
        body = {"shell": f'{self.digest("S_KEY")}; {self.digest("O")}; echo "${{R-gone}}"',
                "env": {"O": OWN + TAIL, "R": None}, "wait_ms": 30000}
        c = self.call("POST", base + "/commands", body, 201, **{"Idempotency-Key": "c1"})
        self.assertEqual(c["text"]["stdout"].split(), [sha(SESSION + TAIL), sha(OWN + TAIL), "gone"])
        self.assertEqual(c["env"], ["O", "R"])
        # The stored first answer, and its body as a hash.
        again = self.call("POST", base + "/commands", body, 201, **{"Idempotency-Key": "c1"})
        self.assertEqual(again["id"], c["id"])
        body["env"]["O"] = OWN + "other"
        self.call("POST", base + "/commands", body, 409, **{"Idempotency-Key": "c1"})
        # Refusals name the variable.
        self.call("POST", base + "/commands", {"argv": ["true"], "env": {"A=" + "B": OWN}}, 422)
        self.call("POST", base + "/commands", {"argv": ["true"], "env": {"N": OWN + "\0"}}, 400)
        self.call("POST", base + "/commands", {"argv": ["true"], "env": {"N": [OWN]}}, 422)
        self.call("POST", base + "/commands", {"argv": ["true"], "env": OWN + TAIL}, 422)
        self.call("POST", "/v1/sessions", {"folders": [{"path": self.home.work}],
                                           "env": {"N": None, "M": OWN}}, 422)
        for text in (f'{{"env":{{"N":"{OWN}\udc80"}}}}', f'{{"env":{{"N":"{OWN}" x}}}}',
                     f'{{"env":{{"N":"{OWN}\n"}}}}', f'{{"argv":["true"]}}{OWN}', OWN):
            self.call("POST", base + "/commands", text, 400)
        # Never started, killed while it runs, and left alive by a daemon that is killed.
        self.call("POST", base + "/commands", {"argv": ["/nowhere/x"], "wait_ms": 30000,
                                               "env": {"O": OWN + TAIL}}, 201)
        self.call("POST", base + "/commands", {"argv": ["sleep", "1000"],
                                               "env": {"O": OWN + TAIL}}, 201)
        self.everything_read()
        self.nothing_kept()
        self.home.kill_daemon()
        self.nothing_kept()
        self.assertEqual(self.home.cordon("serve").code, 0)
        self.everything_read()
        lost = [c for c in self.call("GET", base + "/commands")["items"] if c["state"] == "lost"]
        self.assertEqual([c["env"] for c in lost], [["O"]])
        self.nothing_kept()

    def test_the_look_itself(self):
        """The control: what is said in the words of a command is found."""
        r = self.home.sh("true " + MARK + "said")
        self.assertEqual(r.code, 0, r)
        wait_for(lambda: files_with(self.home.state, MARK)[0], "the words to be stored")


if __name__ == "__main__":
    unittest.main()
