"""The file routes: odd names, links out, read-only folders, conditions, pages and limits. The runner does the
work, so the wall decides; each refusal is followed by a look at the host."""
import os
import stat
import sys
import unittest
import urllib.parse

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest

OCTETS = {"Content-Type": "application/octet-stream"}
MIB = 1 << 20


class Files(ApiTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ro = cls.d.base + "/ro"
        os.mkdir(cls.ro)
        with open(cls.ro + "/kept", "w") as f:
            f.write("kept")
        cls.secret = cls.d.base + "/secret"
        os.mkdir(cls.secret)
        with open(cls.secret + "/marker", "w") as f:
            f.write("host only")
        cls.s = cls.c.call("POST", "/v1/sessions", {"folders": [{"path": cls.work}, {"path": cls.ro, "mode": "ro"}],
                                                    "require_wall": True}, 201)
        cls.base = f"/v1/sessions/{cls.s['id']}/files"

    def at(self, path, what="/content"):
        return f"{self.base}{what}?path={urllib.parse.quote(path, safe='/')}"

    def put(self, path, data, want=201, **headers):
        return self.c.call("PUT", self.at(path), data, want, {**OCTETS, **headers})

    def get(self, path):
        return self.c.ask("GET", self.at(path))

    def host(self, path):
        with open(path, "rb") as f:
            return f.read()

    # cases 20, 22
    def test_odd_names(self):
        names = ["p[1]", "a*b", "q?", "with space", "ümläut-日本", "tab\tx", "nl\nx", "-dash", "$(id)", "'\"", "a..b", "...",
                 "..c", "%41", "a%2fb", "back\\slash", "#hash", "a&b=c", "+plus", "x" * 200, "\x01\x7f", "~", "*", "{}"]
        for name in names:
            path = f"{self.work}/odd/{name}"
            if not os.path.isdir(self.work + "/odd"):
                self.c.call("POST", self.base + "/mkdir", {"path": self.work + "/odd"}, 201)
            data = name.encode() + bytes(range(256))
            self.assertEqual(self.put(path, data)["path"], path)
            self.assertEqual(self.host(path), data, name)
            self.assertEqual(self.get(path).body, data, name)
            self.assertEqual(self.c.call("GET", self.at(path, ""))["path"], path)
            moved = path + ".m"
            self.c.call("POST", self.base + "/move", {"from": path, "to": moved})
            self.assertFalse(os.path.lexists(path))
            self.assertEqual(self.host(moved), data)
        listed = self.c.call("GET", self.at(self.work + "/odd", ""))["items"]
        self.assertEqual(sorted(e["path"] for e in listed), sorted(f"{self.work}/odd/{n}.m" for n in names))
        hits = self.c.call("POST", self.base + "/search", {"pattern": "with space", "path": self.work + "/odd"})
        self.assertLessEqual({h["path"] for h in hits["items"]}, {f"{self.work}/odd/with space.m"})
        for name in names:
            self.c.call("DELETE", self.at(f"{self.work}/odd/{name}.m", ""), want=204)
        self.assertEqual(os.listdir(self.work + "/odd"), [])

    def test_a_name_that_is_not_utf8(self):
        os.makedirs(self.work + "/raw", exist_ok=True)
        with open(os.fsencode(self.work) + b"/raw/\xff\xfe", "wb") as f:
            f.write(b"x")
        [entry] = self.c.call("GET", self.at(self.work + "/raw", ""))["items"]
        self.assertIsNone(entry["path"])
        self.assertTrue(entry["path_b64"])

    def test_what_is_no_path(self):
        for path in ("", "/", "..", "/..", "/etc/passwd", self.work + "/../secret/marker", self.secret + "/marker",
                     "/proc/self/environ", "/dev/mem", self.d.state + "/token", self.work + "x"):
            for method, target, body in (("GET", self.at(path), None), ("PUT", self.at(path), b"evil"),
                                         ("DELETE", self.at(path, ""), None)):
                a = self.c.ask(method, target, body, OCTETS if body else None)
                self.assertGreaterEqual(a.status, 400, (method, path, a))
                self.assertIn(a.json["code"], ("outside_session", "path_invalid", "query_invalid"), (method, path, a))
        self.assertEqual(self.host(self.secret + "/marker"), b"host only")
        for body in ({"from": self.work + "/x", "to": self.secret + "/x"}, {"from": self.secret + "/marker", "to": self.work + "/x"}):
            self.c.problem(403, "outside_session", "POST", self.base + "/move", body)
        self.assertEqual(os.listdir(self.secret), ["marker"])
        for path in (self.work + "/gone", self.work + "/gone/deeper"):
            a = self.get(path)
            self.assertIn((a.status, a.json["code"]), ((404, "not_found"), (422, "path_invalid")), a)

    # case 16
    def test_links_lead_nowhere_else(self):
        for name, target in (("abs", self.secret), ("rel", "../secret"), ("root", "/"), ("state", self.d.state),
                             ("file", self.secret + "/marker"), ("loop", "loop"), ("proc", "/proc/self/root")):
            os.symlink(target, f"{self.work}/{name}")
        os.makedirs(self.work + "/real", exist_ok=True)
        with open(self.work + "/real/f", "w") as f:
            f.write("inside")
        os.symlink("real", self.work + "/fine")
        self.assertEqual(self.get(self.work + "/fine/f").body, b"inside")  # within it is followed
        for path in ("abs/marker", "rel/marker", f"root{self.secret}/marker", "state/token", "file", "loop", "loop/x",
                     f"proc{self.secret}/marker", "root/etc/shadow"):
            a = self.get(f"{self.work}/{path}")
            self.assertGreaterEqual(a.status, 400, (path, a))
            self.assertNotIn(b"host only", a.body)
            a = self.c.ask("PUT", self.at(f"{self.work}/{path}"), b"evil", OCTETS)
            if a.status < 300:  # a link itself may be replaced, never what it leads to
                self.assertIn(path, ("file", "loop"))
                os.unlink(f"{self.work}/{path}")
        self.assertEqual((self.host(self.secret + "/marker"), os.listdir(self.secret)), (b"host only", ["marker"]))
        for name in ("abs", "root", "state"):
            self.c.call("DELETE", self.at(f"{self.work}/{name}", "") + "&recursive=1", want=204)  # the link goes, no more
        self.assertEqual(self.host(self.secret + "/marker"), b"host only")
        self.assertTrue(os.path.exists(self.d.state + "/token"))
        hits = self.c.call("POST", self.base + "/search", {"pattern": "host only"})["items"]
        self.assertEqual(hits, [])

    def test_a_read_only_folder(self):
        kept = self.ro + "/kept"
        self.assertEqual(self.get(kept).body, b"kept")
        self.assertEqual(self.c.call("GET", self.at(kept, ""))["access"], "ro")
        for method, target, body in (("PUT", self.at(kept), b"x"), ("PUT", self.at(self.ro + "/new"), b"x"),
                                     ("DELETE", self.at(kept, ""), None),
                                     ("POST", self.base + "/edit", {"path": kept, "old": "kept", "new": "x"}),
                                     ("POST", self.base + "/mkdir", {"path": self.ro + "/d"}),
                                     ("POST", self.base + "/move", {"from": kept, "to": self.work + "/kept"}),
                                     ("POST", self.base + "/move", {"from": self.work + "/try", "to": self.ro + "/try"})):
            if isinstance(body, dict) and body.get("from", "").endswith("/try"):
                with open(self.work + "/try", "w"):
                    pass
            self.c.problem(403, "folder_read_only", method, target, body, OCTETS if isinstance(body, bytes) else None)
        self.assertEqual((self.host(kept), os.listdir(self.ro)), (b"kept", ["kept"]))
        c = self.run_in(self.s, f"echo x > {kept}; rm -f {kept}; touch {self.ro}/new; cat {kept}")  # a command the same
        self.assertEqual((c["text"]["stdout"], os.listdir(self.ro)), ("kept", ["kept"]))

    def test_conditions(self):
        path = self.work + "/cond"
        made = self.c.ask("PUT", self.at(path), b"one", {**OCTETS, "If-None-Match": "*"})
        self.assertEqual(made.status, 201)
        self.c.problem(409, "exists", "PUT", self.at(path), b"two", {**OCTETS, "If-None-Match": "*"})
        self.assertEqual(self.host(path), b"one")
        tag = self.get(path).etag
        self.assertEqual(tag, made.etag)
        two = self.c.ask("PUT", self.at(path), b"two!", {**OCTETS, "If-Match": tag})
        self.assertEqual((two.status, self.host(path)), (200, b"two!"))
        self.c.problem(412, "rev_mismatch", "PUT", self.at(path), b"three", {**OCTETS, "If-Match": tag})
        with open(path, "w") as f:  # by somebody else
            f.write("other")
        self.c.problem(412, "rev_mismatch", "PUT", self.at(path), b"three", {**OCTETS, "If-Match": two.etag})
        self.assertEqual(self.host(path), b"other")
        self.c.problem(412, "rev_mismatch", "PUT", self.at(self.work + "/cond-new"), b"x", {**OCTETS, "If-Match": tag})
        self.assertFalse(os.path.exists(self.work + "/cond-new"))

    def test_a_file_is_replaced_whole(self):
        path = self.work + "/whole"
        self.put(path, b"a" * 100000)
        os.chmod(path, 0o754)
        reader = open(path, "rb")
        self.put(path, b"b" * 50000, 200)
        self.assertEqual(reader.read(), b"a" * 100000)  # who had it open sees the old one
        reader.close()
        self.assertEqual(self.host(path), b"b" * 50000)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o754)
        self.assertEqual([n for n in os.listdir(self.work) if n.startswith((".whole", ".cordon", "whole."))], [])
        self.put(self.work + "/empty", b"")
        self.assertEqual(self.get(self.work + "/empty").body, b"")
        a = self.c.ask("PUT", self.at(self.work), b"x", OCTETS)  # a folder is no file
        self.assertGreaterEqual(a.status, 400)

    def test_edit(self):
        path = self.work + "/edit"
        edit = lambda old, new, **kw: self.c.ask("POST", self.base + "/edit", {"path": path, "old": old, "new": new, **kw})
        self.put(path, "eins zwei drei zwei\r\n\u00fc\n".encode())
        self.assertEqual(edit("eins", "1").json["replaced"], 1)
        a = edit("zwei", "2")
        self.assertEqual((a.status, a.json["code"]), (409, "edit_mismatch"))
        a = edit("vier", "4")
        self.assertEqual((a.status, a.json["code"]), (409, "edit_mismatch"))
        self.assertEqual(edit("zwei", "", all=True).json["replaced"], 2)
        self.assertEqual(edit("\r\n\u00fc", "\n$&\\1").json["replaced"], 1)
        self.assertEqual(self.host(path), b"1  drei \n$&\\1\n")

    def test_search_and_glob(self):
        os.makedirs(self.work + "/tree/a/b", exist_ok=True)
        for name, text in (("x.py", "import os\nneedle one\n"), ("a/y.py", "two needle\n"), ("a/b/z.txt", "needle.\nNEEDLE\n"),
                           ("bin", "needle\0needle")):
            with open(f"{self.work}/tree/{name}", "w") as f:
                f.write(text)
        tree = self.work + "/tree"
        hits = self.c.call("POST", self.base + "/search", {"pattern": "needle", "path": tree})
        at = sorted((h["path"].removeprefix(tree), h["line"], h["column"]) for h in hits["items"])
        self.assertEqual([h for h in at if h[0] != "/bin"], [("/a/b/z.txt", 1, 1), ("/a/y.py", 1, 5), ("/x.py", 2, 1)])
        hits = self.c.call("POST", self.base + "/search", {"pattern": "^needle\\.", "path": tree, "regex": True})
        self.assertEqual([h["text"] for h in hits["items"]], ["needle."])
        for wrong in ("(", "[[:none:]]", "a{2,1}", "(e)\\1"):
            self.c.problem(422, "body_invalid", "POST", self.base + "/search", {"pattern": wrong, "regex": True, "path": tree})
        with open(tree + "/strange", "wb") as f:
            f.write(b"\n" * 8192 + "a\xffézé\nN\0L\n".encode("latin-1").replace(b"\xe9", "é".encode()) + b"x" * 70000 + b"y\nend")
        for pattern, line in (("^a.é.é$", 8193), ("^N.L$", 8194), ("^(e|f)n[[:alpha:]]$", 8196), ("\\bend\\b", 8196), ("xy", None)):
            hits = self.c.call("POST", self.base + "/search", {"pattern": pattern, "path": tree, "regex": True})
            self.assertEqual([h["line"] for h in hits["items"]], [line] if line else [], pattern)
        found = self.c.call("POST", self.base + "/glob", {"pattern": "**/*.py", "path": tree})
        self.assertEqual(sorted(e["path"].removeprefix(tree) for e in found["items"]), ["/a/y.py", "/x.py"])
        self.c.problem(403, "outside_session", "POST", self.base + "/search", {"pattern": "x", "path": self.secret})
        self.c.problem(403, "outside_session", "POST", self.base + "/glob", {"pattern": "*", "path": "/etc"})

    def test_folders(self):
        d = self.work + "/dir"
        self.c.call("POST", self.base + "/mkdir", {"path": d + "/deep/er"}, 201)
        self.assertTrue(os.path.isdir(d + "/deep/er"))
        a = self.c.ask("DELETE", self.at(d, ""))  # not empty: not without recursive
        self.assertGreaterEqual(a.status, 400, a)
        self.assertTrue(os.path.isdir(d + "/deep/er"))
        self.c.call("DELETE", self.at(d, "") + "&recursive=1", want=204)
        self.assertFalse(os.path.lexists(d))
        a = self.c.ask("DELETE", self.at(self.work, "") + "&recursive=1")  # never the granted folder itself
        self.assertGreaterEqual(a.status, 400)
        self.assertTrue(os.path.isdir(self.work))
        for i in range(30):
            with open(f"{self.work}/many{i:02}", "w"):
                pass
        page = self.c.call("GET", self.at(self.work, "") + "&limit=10")
        self.assertEqual((len(page["items"]), page["truncated"]), (10, True))
        entry = self.c.call("GET", self.at(self.work + "/many00", ""))
        self.assertEqual((entry["type"], entry["size_bytes"], entry["access"]), ("file", 0, "rw"))

    def test_ranges_and_pages(self):
        path = self.work + "/big"
        with open(path, "wb") as f:
            f.write(os.urandom(MIB))
            f.truncate(16 * MIB + 5)
        p = self.c.problem(416, "range_invalid", "GET", self.at(path))  # over a page: in ranges
        a = self.c.ask("GET", self.at(path), headers={"Range": "bytes=0-"})
        self.assertEqual((a.status, len(a.body), a.headers["Content-Range"]),
                         (206, 16 * MIB, f"bytes 0-{16 * MIB - 1}/{16 * MIB + 5}"))
        rest = self.c.ask("GET", self.at(path), headers={"Range": f"bytes={16 * MIB}-"})
        self.assertEqual((a.body + rest.body), self.host(path))
        self.c.problem(416, "range_invalid", "GET", self.at(path), headers={"Range": f"bytes={16 * MIB + 5}-"})
        os.truncate(path, 16 * MIB)
        self.assertEqual(len(self.get(path).body), 16 * MIB)

    def test_an_upload_over_the_limit(self):
        """Refused by its length, before a byte of it is read."""
        path = self.work + "/huge"
        data = self.c.head("PUT", self.at(path), None, {**OCTETS, "Content-Length": str((1 << 30) + 1)})
        a = self.c.send(data, "PUT", self.at(path))
        self.assertEqual((a.status, a.json["code"]), (413, "body_too_large"))
        self.assertFalse(os.path.exists(path))

    def test_an_upload_that_is_cut(self):
        """The client goes in the middle: the file stays as it was, and nothing lies beside it."""
        path = self.work + "/cut"
        self.put(path, b"old")
        before = sorted(os.listdir(self.work))
        with self.c.connect() as sock:
            sock.sendall(self.c.head("PUT", self.at(path), None, {**OCTETS, "Content-Length": str(8 * MIB)}) + b"n" * MIB)
        self.assertEqual(self.get(path).body, b"old")
        self.assertEqual(sorted(os.listdir(self.work)), before)

    def test_a_mebibyte_and_more(self):
        data = os.urandom(40 * MIB)
        self.put(self.work + "/upload", data)
        self.assertEqual(self.host(self.work + "/upload"), data)
        os.unlink(self.work + "/upload")

    def test_what_is_no_file(self):
        os.mkfifo(self.work + "/fifo")
        for path in (self.work + "/fifo", self.work):
            a = self.get(path)  # answers at once, waits for no writer
            self.assertGreaterEqual(a.status, 400, (path, a))
        self.assertEqual(self.c.call("GET", self.at(self.work + "/fifo", ""))["type"], "other")
        os.unlink(self.work + "/fifo")

    def test_the_wall_decides(self):
        """What the account itself may not read: the wall's answer, with its layer."""
        path = self.work + "/closed"
        with open(path, "w") as f:
            f.write("x")
        os.chmod(path, 0)
        a = self.get(path)
        if a.status == 403:
            self.assertEqual(a.json["code"], "access_denied")
        else:
            self.assertEqual((os.getuid(), a.status), (0, 200))
        os.unlink(path)

    def test_every_call_is_recorded_once(self):
        s = self.session()
        base = f"/v1/sessions/{s['id']}/files"
        q = "?path=" + self.work + "/rec"
        self.c.call("PUT", base + "/content" + q, b"x", 201, OCTETS)
        self.c.call("GET", base + "/content" + q)
        self.c.call("GET", base + "?path=" + self.work)
        self.c.call("POST", base + "/edit", {"path": self.work + "/rec", "old": "x", "new": "y"})
        self.c.call("POST", base + "/search", {"pattern": "qqq"})
        self.c.call("POST", base + "/glob", {"pattern": "qqq*"})
        self.c.call("POST", base + "/mkdir", {"path": self.work + "/recd"}, 201)
        self.c.call("POST", base + "/move", {"from": self.work + "/rec", "to": self.work + "/recd/rec"})
        self.c.call("DELETE", base + "?recursive=1&path=" + self.work + "/recd", want=204)
        self.c.problem(403, "outside_session", "GET", base + "/content?path=/etc/passwd")
        rows = [(r["action"], r["outcome"]) for r in reversed(self.audit(f"session={s['id']}")) if r["action"].startswith("file.")]
        self.assertEqual(rows, [("file.written", "ok"), ("file.read", "ok"), ("file.listed", "ok"), ("file.written", "ok"),
                                ("file.searched", "ok"), ("file.searched", "ok"), ("file.written", "ok"),
                                ("file.moved", "ok"), ("file.removed", "ok"), ("file.read", "refused")])


if __name__ == "__main__":
    unittest.main(verbosity=2)
