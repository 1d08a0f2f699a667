"""Real clients behind the wall, through cordond and its egress, to real servers of the lab.

"Reached" is judged at the far side's logs; each allowed way has its refused twin.
"""
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402

lab.enter()
from cordon_test.api import ApiTest  # noqa: E402

SERVICES = os.path.join(lab.SOURCE, "tests", "lab", "services.py")
HELLO = "hello from 203.0.113.10\n"  # v4.test
GIT = "git -c protocol.version=2 -c user.name=Lab -c user.email=lab@lab.test"


class Done:
    """A command that has ended."""

    def __init__(self, record):
        self.record = record
        self.code = record.get("result", {}).get("exit_code")
        self.out, self.err = record["text"]["stdout"], record["text"]["stderr"]
        self.blocked = record.get("result", {}).get("blocked", [])

    def __repr__(self):
        return json.dumps(self.record, indent=1)


class Clients(ApiTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.git_root = os.path.join(cls.d.base, "git")
        cls.repository()
        cls.far = lab.Far([sys.executable, SERVICES, os.environ["LAB_DIR"], cls.git_root])
        for port in (3000, 4873, 3141):
            lab.far_listens(port)

    @classmethod
    def tearDownClass(cls):
        cls.far.close()
        super().tearDownClass()

    @classmethod
    def repository(cls):
        """r.git with one commit on main, and push allowed."""
        bare, seed = os.path.join(cls.git_root, "r.git"), os.path.join(cls.d.base, "seed")
        env = {"PATH": os.environ["PATH"], "HOME": cls.d.base, "GIT_CONFIG_NOSYSTEM": "1"}

        def git(*args):
            subprocess.run([*GIT.split(), *args], env=env, check=True, capture_output=True)

        git("init", "-q", "--bare", "-b", "main", bare)
        git("-C", bare, "config", "http.receivepack", "true")
        git("init", "-q", "-b", "main", seed)
        with open(os.path.join(seed, "README"), "w") as f:
            f.write("seed\n" * 10000)
        git("-C", seed, "add", "README")
        git("-C", seed, "commit", "-qm", "seed")
        git("-C", seed, "push", "-q", bare, "main")

    def setUp(self):
        subprocess.run(["find", self.work, "-mindepth", "1", "-delete"], check=True)
        self.n_services = len(lab.served())
        self.mark = lab.mark()

    def served(self, service):
        return [line for line in lab.served()[self.n_services:] if line["service"] == service]

    def done(self, s, shell, **more):
        return Done(self.run_in(s, shell, **more))

    def run_ok(self, s, shell, **more):
        c = self.done(s, shell, **more)
        self.assertEqual(c.code, 0, c)
        return c.out

    def run_refused(self, s, shell, host, port):
        """It fails, names the host, is told on the record, and nothing reached the far side."""
        c = self.done(s, shell)
        self.assertNotEqual(c.code, 0, c)
        self.assertEqual([(b["host"], b["port"]) for b in c.blocked], [(host, port)], c)
        self.assertIn(f"{host}:{port}", c.out + c.err, c)
        return c

    # ---- git -----------------------------------------------------------------------------------

    def test_git_clone_commit_branch_worktree_push(self):
        s = self.session(sites=[{"host": "git.test", "port": 3000}])
        self.run_ok(s, f"""set -e
            {GIT} clone -q http://git.test:3000/r.git r && cd r
            test "$(wc -l < README)" = 10000
            {GIT} switch -qc feature
            echo more > more && {GIT} add more && {GIT} commit -qm more
            {GIT} worktree add -q ../wt -b other main
            echo else > ../wt/else && {GIT} -C ../wt add else && {GIT} -C ../wt commit -qm else
            {GIT} push -q origin feature other
            {GIT} fetch -q && {GIT} ls-remote origin | sort -k2""")
        heads = subprocess.run(["git", "--git-dir", os.path.join(self.git_root, "r.git"), "for-each-ref",
                                "--format=%(refname:short) %(contents:subject)"], capture_output=True, text=True,
                               check=True).stdout.split("\n")[:-1]
        self.assertEqual(heads, ["feature more", "main seed", "other else"])
        self.assertIn(("POST", "/r.git/git-receive-pack", 200),
                      [(r["method"], r["path"], r["status"]) for r in self.served("git")])

    def test_git_is_refused_with_the_host_named(self):
        s = self.session(sites=[{"host": "ok.test", "port": 443}])
        c = self.run_refused(s, f"{GIT} clone -q http://git.test:3000/r.git r", "git.test", 3000)
        self.assertIn("403", c.err)
        self.assertFalse(os.path.exists(os.path.join(self.work, "r", "README")))
        self.assertEqual(self.served("git"), [])
        self.assertEqual(lab.asked(self.mark), [])

    # ---- npm and pip ---------------------------------------------------------------------------

    NPM = ("cd \"$(mktemp -d -p .)\" && npm install --no-audit --no-fund --no-update-notifier --fetch-retries=0 "
           "--registry http://registry.test:4873/ lab-top")

    def test_npm_install(self):
        s = self.session(sites=[{"host": "registry.test", "port": 4873}])
        print("  npm: the lab's own registry")
        self.assertIn("<top", self.run_ok(s, self.NPM + " >&2 && node -p 'require(\"lab-top\")'"))
        self.assertEqual(sorted(r["path"] for r in self.served("npm") if r["path"].endswith(".tgz")),
                         ["/lab-left/-/lab-left-1.0.0.tgz", "/lab-top/-/lab-top-2.1.0.tgz"])

    def test_npm_is_refused(self):
        c = self.run_refused(self.session(), self.NPM, "registry.test", 4873)
        self.assertIn("403", c.out + c.err)
        self.assertEqual(self.served("npm"), [])

    PIP = ("/usr/bin/python3 -m pip install -q --no-cache-dir --disable-pip-version-check --retries 0 --target lib "
           "--index-url http://registry.test:3141/simple/ --trusted-host registry.test lab-wheel")

    def test_pip_install(self):
        s = self.session(sites=[{"host": "registry.test", "port": 3141}])
        self.assertEqual(self.run_ok(s, self.PIP + " >&2 && PYTHONPATH=lib /usr/bin/python3 -c "
                                     "'import lab_wheel; print(lab_wheel.VALUE)'"), "rolls\n")
        self.assertEqual([r["path"] for r in self.served("pip")],
                         ["/simple/lab-wheel/", "/files/lab_wheel-0.3-py3-none-any.whl"])

    def test_pip_is_refused(self):
        c = self.done(self.session(), self.PIP)
        self.assertNotEqual(c.code, 0)
        self.assertEqual({(b["host"], b["port"]) for b in c.blocked}, {("registry.test", 3141)})
        self.assertEqual(self.served("pip"), [])

    # ---- curl, wget, node, python ----------------------------------------------------------------

    def test_curl(self):
        s = self.session(sites=[{"host": "v4.test"}, {"host": "ok.test", "port": 8080}])
        self.assertEqual(self.run_ok(s, "curl -sS http://v4.test/hello"), HELLO)
        self.assertEqual(self.run_ok(s, "head -c 3000000 /dev/zero > big && curl -sS -T big "
                                     "http://ok.test:8080/count"), "3000000")
        self.assertEqual(self.run_ok(s, "curl -sS -H 'Transfer-Encoding: chunked' -T big http://ok.test:8080/count"),
                         "3000000")
        self.assertEqual(self.run_ok(s, "curl -sS -p http://ok.test:8080/head | head -1"), "GET /head HTTP/1.1\r\n")
        c = self.run_refused(s, "curl -sSf http://no.test/hello?secret=1; r=$?; curl -sS http://no.test/; exit $r",
                             "no.test", 80)
        self.assertEqual(c.code, 22)
        self.assertIn("What to do: cordon sites add no.test:80", c.out)
        c = self.done(s, "curl -sS https://no.test/")
        self.assertIn("403", c.err)
        self.assertEqual(lab.reached(self.mark, at=lab.NO4) + lab.reached(self.mark, at=lab.NO6), [])
        self.assertNotIn("no.test", lab.asked(self.mark))

    def test_wget_and_urllib(self):
        s = self.session(sites=[{"host": "v4.test"}])
        for client in ("wget -nv -O - {}", "/usr/bin/python3 -c 'import urllib.request as u; "
                       "print(u.urlopen(\"{}\").read().decode(), end=\"\")'"):
            self.assertEqual(self.run_ok(s, client.format("http://v4.test/hello")), HELLO)
            c = self.done(s, client.format("http://no.test/hello"))
            self.assertNotEqual(c.code, 0)
            self.assertIn("403", c.err)
        lab.mark()
        self.assertEqual(lab.reached(self.mark, at=lab.NO4), [])

    FETCH = """node -e '
        const [major, minor] = process.versions.node.split(".").map(Number);
        const way = major > 24 || (major == 24 && minor >= 5) || (major == 22 && minor >= 21);
        const http = require("http"), proxy = new URL(process.env.http_proxy);
        const get = url => way ? fetch(url).then(async r => [r.status, await r.text()])
            : new Promise((ok, bad) => http.get({host: proxy.hostname, port: proxy.port, path: url,
                headers: {host: new URL(url).host}}, r => { let t = ""; r.on("data", d => t += d);
                r.on("end", () => ok([r.statusCode, t])); }).on("error", bad));
        get(process.argv[1]).then(([status, text]) => {
            console.log(process.env.NODE_USE_ENV_PROXY, way ? "fetch" : "http", status, text.split("\\n")[0]) });
    ' """

    def test_node(self):
        s = self.session(sites=[{"host": "v4.test"}])
        out = self.run_ok(s, self.FETCH + "http://v4.test/hello")
        print("  node:", out.split()[1])
        self.assertEqual(out.split()[0], "1")
        self.assertEqual(out.split(" ", 2)[2], "200 " + HELLO)
        self.assertEqual(self.run_ok(s, self.FETCH + "http://no.test/hello").split()[2], "403")
        lab.mark()
        self.assertEqual(lab.reached(self.mark, at=lab.NO4), [])


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
