"""Who may ask: every route by its scope, without a token, with a wrong one, and with an agent's."""
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest

SCOPES = ["read", "exec", "ask:create", "ask:decide", "sessions", "settings", "credentials", "admin"]
AGENT = {"read", "exec", "ask:create"}
# What an agent's token reads outside its session.
OUTSIDE = {"/v1/version", "/v1/openapi.json", "/v1/status", "/v1/auth/self", "/v1/events", "/v1/asks", "/v1/asks/{a}"}
ULID = "01" + "0" * 24


class Access(ApiTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.routes = cls.c.call("GET", "/v1/routes")["items"]

    def state(self):
        """What a refused request must not change: sessions, commands, tokens, sites, settings, files."""
        sessions = self.c.items("/v1/sessions?limit=500")
        commands = [c["id"] for s in sessions for c in self.c.items(f"/v1/sessions/{s['id']}/commands?limit=500")]
        return ([(s["id"], s["rev"]) for s in sessions], commands,
                [t["id"] for t in self.c.items("/v1/tokens")],
                [(s["id"], s["rev"]) for s in self.c.items("/v1/sites?limit=500")],
                self.c.call("GET", "/v1/settings"), sorted(os.listdir(self.work)))

    def targets(self, session, command="cmd_" + ULID):
        """Each route as (row, target): its session is SESSION, its other parameters name nothing."""
        for r in self.routes:
            path = r["path"].replace("{s}", session).replace("{c}", command).replace("{code}", "not_found").replace("{a}", "ask_" + ULID)
            path = re.sub(r"\{id\}", "tok_" + ULID, path).replace("{file}", "app.js")
            if path.endswith("/files") or path.endswith("/files/content"):
                path += "?path=" + self.work
            if path == "/v1/events":
                path += "?after=none"  # what is allowed ends too
            yield r, path

    def test_no_token_and_a_wrong_one(self):
        s = self.session()
        before = self.state()
        nobody = self.tcp.other(token=None)
        for r, target in self.targets(s["id"]):
            if r["scope"] is None:
                self.assertNotIn(nobody.ask(r["method"], target).status, (401, 403), r)
                continue
            self.assertEqual(nobody.problem(401, "token_missing", r["method"], target)["code"], "token_missing")
        # A wrong token costs a sign-in, of which a minute has 20: a daemon of its own for each handful.
        self.assertEqual(self.state(), before)

    def test_each_route_without_its_scope(self):
        s = self.session()
        holders = {scope: self.holder(*[x for x in SCOPES if x != scope]) for scope in SCOPES}
        before, n = self.state(), 0
        for r, target in self.targets(s["id"]):
            if r["scope"] in (None, "any"):
                continue
            self.assertIn(r["scope"], SCOPES, r)
            # Also with a body that would be taken, and one that is no JSON: the scope comes first.
            for body in (None, b"{", b"{}"):
                c = holders[r["scope"]].other(via="unix" if r["socket_only"] else "v4")
                p = c.problem(403, "scope_missing", r["method"], target, body,
                              {"Content-Type": "application/json"} if body else None)
                self.assertEqual(p["scope"], r["scope"], r)
            n += 1
        self.assertGreater(n, 55)
        self.assertEqual(self.state(), before)

    def test_one_scope_suffices(self):
        """The control: with its scope alone no route is 401 or 403 scope_missing."""
        s = self.session(keep=True)
        self.c.call("POST", f"/v1/sessions/{s['id']}/stop", {"grace_ms": 0}, 202)
        holders = {scope: self.holder(scope) for scope in SCOPES}
        for r, target in self.targets(s["id"]):
            if r["scope"] in (None, "any"):
                continue
            body = None if r["method"] in ("GET", "DELETE") else b"["
            a = holders[r["scope"]].ask(r["method"], target, body)
            if r["socket_only"]:
                self.assertEqual(a.json["code"], "socket_only", r)
            else:
                self.assertNotIn(a.status, (401, 403), (r, a))

    def test_an_agent_on_each_route(self):
        mine, other = self.session(), self.session()
        c = self.run_in(mine, "true")
        agent = self.agent(mine, "read", "exec", "ask:create")
        before, n = self.state(), 0
        for r, target in self.targets(other["id"], c["id"]):
            a = agent.ask(r["method"], target)
            if r["path"].startswith("/v1/sessions/{s}"):
                self.assertEqual((a.status, a.json["code"]), (404, "not_found"), r)  # also where it lacks the scope
            elif r["path"] in OUTSIDE and r["method"] == "GET" or r["scope"] is None:
                self.assertNotIn(a.status, (401, 403), r)
            elif r["path"] not in OUTSIDE:
                self.assertEqual((a.status, a.json["code"]), (403, "scope_missing"), (r, a))
            n += 1
            if r["path"] == "/v1/auth/self" and r["method"] == "DELETE":
                agent.problem(401, "token_invalid", "GET", "/v1/auth/self")  # it may sign itself out
                agent = self.agent(mine, "read", "exec", "ask:create")
        self.assertEqual(n, len(self.routes))
        after = self.state()
        self.assertEqual([x for i, x in enumerate(after) if i != 2], [x for i, x in enumerate(before) if i != 2])

    def test_an_agent_in_its_own_session(self):
        s = self.session()
        c = self.run_in(s, "true")
        agent = self.agent(s, *AGENT)
        allowed = {}
        for r, target in self.targets(s["id"], c["id"]):
            if not r["path"].startswith("/v1/sessions/{s}"):
                continue
            a = agent.ask(r["method"], target, None if r["method"] in ("GET", "DELETE") else b"[")
            if r["scope"] in AGENT:
                code = a.json["code"] if a.kind == "application/problem+json" else None
                self.assertNotIn(code, ("token_missing", "token_invalid", "scope_missing"), (r, a))
                allowed[r["method"] + " " + r["path"]] = a.status
            else:
                self.assertEqual((a.status, a.json["code"], a.json["scope"]), (403, "scope_missing", r["scope"]), r)
        self.assertEqual(allowed["GET /v1/sessions/{s}"], 200)
        self.assertEqual(allowed["GET /v1/sessions/{s}/commands/{c}/output"], 200)
        # With read alone it runs nothing.
        self.agent(s, "read").problem(403, "scope_missing", "POST", f"/v1/sessions/{s['id']}/commands",
                                      {"argv": ["true"]})

    def test_what_an_agents_token_may_hold(self):
        s = self.session()
        for scope in SCOPES:
            a = self.c.ask("POST", "/v1/tokens", {"name": "a", "scopes": ["read", scope], "session_id": s["id"]})
            if scope in AGENT:
                self.assertEqual(a.status, 201)
            else:
                self.assertEqual((a.status, a.json["errors"][0]["pointer"], a.json["errors"][0]["code"]),
                                 (422, "/scopes/1", "conflict"))
        for scopes in (["reads"], ["READ"], ["*"], ["read "]):
            p = self.c.problem(422, "body_invalid", "POST", "/v1/tokens", {"name": "a", "scopes": scopes})
            self.assertEqual(p["errors"][0]["pointer"], "/scopes/0")
        # A token for a session that is no more is refused; one whose session ended reaches only its records.
        agent = self.agent(s)
        self.c.call("POST", f"/v1/sessions/{s['id']}/stop", {"grace_ms": 0}, 202)
        self.c.problem(422, "body_invalid", "POST", "/v1/tokens",
                       {"name": "a", "scopes": ["read"], "session_id": "ses_" + ULID})
        self.assertIn(agent.ask("GET", f"/v1/sessions/{s['id']}").status, (200, 401))

    def test_a_token_by_any_other_way_is_none(self):
        t = self.d.token
        nobody = self.tcp.other(token=None)
        for target, headers in (("/v1/sessions?access_token=" + t, {}), ("/v1/sessions?token=" + t, {}),
                                ("/v1/sessions", {"Cookie": "token=" + t}), ("/v1/sessions", {"X-Api-Key": t}),
                                ("/v1/sessions", {"Proxy-Authorization": "Bearer " + t})):
            nobody.problem(401, "token_missing", "GET", target, headers=headers)
        for value in ("Basic " + t, "Bearer", "Bearer  " + t, "Bearer " + t + "x", "Bearer " + t[:-1], t,
                      ["Bearer " + t, "Bearer " + t], "Bearer " + t.upper()):
            nobody.problem(401, "token_invalid", "GET", "/v1/sessions", headers={"Authorization": value})
        nobody.call("GET", "/v1/sessions", headers={"Authorization": "bearer " + t})  # the scheme has no case
        self.assertNotIn(t, str(self.audit()))  # refusals are kept, no secret is
        self.assertNotIn(t, self.d.log())

    def test_a_revoked_token_ends_its_streams(self):
        s = self.session()
        c = self.start(s, "echo up; exec sleep 600")
        made = self.c.call("POST", "/v1/tokens", {"name": "r", "scopes": ["read"]}, 201)
        holder = self.tcp.other(token=made["token"])
        with holder.stream("GET", self.at(c) + "/output?follow=1") as out:
            self.assertEqual(out.frame()["text"], "up\n")
            self.c.call("DELETE", "/v1/tokens/" + made["id"], want=204)
            self.assertIsNone(out.frame())  # it ends, with no `end`: the command runs on
        holder.problem(401, "token_invalid", "GET", self.at(c))
        self.assertEqual(self.c.call("GET", self.at(c))["state"], "running")
        self.c.problem(404, "not_found", "DELETE", "/v1/tokens/" + made["id"])


class WrongTokens(unittest.TestCase):
    """A wrong token is 401 on every route, and 429 from the 21st of a minute on, also for a right shape;
    valid tokens are never held up. Several daemons, since each counts."""

    def test_wrong_tokens(self):
        from cordon_test.daemon import Daemon
        with Daemon() as d:
            c = d.client()
            wrong = d.client(via="v4", token="cordon_" + "A" * 43)
            routes = [r for r in c.call("GET", "/v1/routes")["items"] if r["scope"]]
            seen = []
            for r in routes:
                target = re.sub(r"\{\w+\}", "ses_" + ULID, r["path"])
                a = wrong.ask(r["method"], target, None)
                seen.append((a.status, a.json["code"]))
                if a.status == 429:
                    self.assertGreater(a.json["retry_after_ms"], 0)
                    self.assertIn("Retry-After", a.headers)
            self.assertEqual(seen[:20], [(401, "token_invalid")] * 20)
            self.assertEqual(seen[20:], [(429, "rate_limited")] * (len(routes) - 20))
            d.client(via="v6", token=d.token).call("GET", "/v1/sessions")
            d.client(via="v4", token=None).problem(429, "rate_limited", "POST", "/v1/auth/exchange", {"code": "x"})
            self.assertEqual(len([r for r in c.items("/v1/audit?action=auth.failed&limit=500")]), 20)


if __name__ == "__main__":
    unittest.main(verbosity=2)
