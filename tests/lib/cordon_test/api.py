"""The frame of the API tests: one daemon a class, a session, a command, a look at the records."""
import os
import unittest

from .daemon import Daemon


class ApiTest(unittest.TestCase):
    """self.d the daemon, self.c its owner on the socket, self.tcp its owner over TCP."""
    env = {}

    @classmethod
    def setUpClass(cls):
        cls.d = Daemon(**cls.env)
        cls.c = cls.d.client()
        cls.tcp = cls.d.client(via="v4", token=cls.d.token)
        cls.work = cls.d.work

    @classmethod
    def tearDownClass(cls):
        cls.d.close()

    def folder(self, name):
        """A new folder that a session may be given."""
        path = os.path.join(self.d.base, name)
        os.mkdir(path)
        return path

    def session(self, keep=False, **more):
        """A session behind the wall; it is stopped when the test ends, unless it is kept."""
        s = self.c.call("POST", "/v1/sessions", {"folders": [{"path": self.work}], "require_wall": True, **more}, 201)
        if not keep:
            self.addCleanup(self.end_session, s["id"])
        return s

    def end_session(self, id):
        self.c.ask("POST", f"/v1/sessions/{id}/stop", {"grace_ms": 0})

    def start(self, s, shell=None, want=201, **more):
        body = {**({"shell": shell} if shell is not None else {}), **more}
        return self.c.call("POST", f"/v1/sessions/{s['id']}/commands", body, want)

    def run_in(self, s, shell=None, **more):
        """A command that has ended: its record with its text."""
        c = self.start(s, shell, **{"wait_ms": 60000, **more})
        self.assertNotIn(c["state"], ("queued", "starting", "running"), c)
        return c

    def wait_end(self, c):
        """The record of a command once it has ended."""
        got = self.c.call("GET", self.at(c) + "?wait_ms=60000")
        self.assertNotIn(got["state"], ("queued", "starting", "running"), got)
        return got

    @staticmethod
    def at(c):
        return f"/v1/sessions/{c['session_id']}/commands/{c['id']}"

    def agent(self, s, *scopes, **kw):
        """A client that holds an agent's token for the session."""
        t = self.c.call("POST", "/v1/tokens", {"name": "agent", "scopes": list(scopes or ("read", "exec")),
                                               "session_id": s["id"]}, 201)
        return self.d.client(**{"via": "v4", "token": t["token"], **kw})

    def holder(self, *scopes, **kw):
        """A client whose token has these scopes."""
        t = self.c.call("POST", "/v1/tokens", {"name": "holder", "scopes": list(scopes)}, 201)
        return self.d.client(**{"via": "v4", "token": t["token"], **kw})

    def audit(self, query=""):
        return self.c.items("/v1/audit?limit=500" + ("&" + query if query else ""))
