"""What an answer covers, against the lab: the host and port asked for in that session, from the answer on until it
is taken back, which closes the tunnel that it opened; nobody is looked up or reached before. Case 124."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test import lab  # noqa: E402

lab.enter()
from cordon_test.api import ApiTest  # noqa: E402

# Inside: a tunnel to the first target as soon as it is open, and a request in it; then the status of each other
# target; then the tunnel's end.
TUNNEL = r"""
import os, socket, sys, time
port = int(os.environ["http_proxy"].strip("/").rsplit(":", 1)[1])
def connect(target):
    s = socket.create_connection(("127.0.0.1", port), 20)
    s.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        more = s.recv(1)
        if not more:
            break
        head += more
    return s, head.split(b" ")[1].decode()
while True:
    s, status = connect(sys.argv[1])
    if status == "200":
        break
    time.sleep(0.05)
s.sendall(b"GET /hello HTTP/1.1\r\nHost: ok.test\r\n\r\n")
print("open", s.recv(12).decode(), *(connect(t)[1] for t in sys.argv[2:]), flush=True)
s.settimeout(30)
try:
    while s.recv(65536):
        pass
except ConnectionResetError:
    pass
print("closed", connect(sys.argv[1])[1], flush=True)
"""


class Asks(ApiTest, lab.Case):
    def test_an_answer_and_its_end(self):
        with open(self.work + "/tunnel.py", "w") as f:
            f.write(TUNNEL)
        s, other = self.session(), self.session()
        c = self.start(s, argv=["/usr/bin/python3", "tunnel.py", "ok.test:8080", "ok.test:80", "ok.test:22", "sub.ok.test:8080"],
                       cwd=self.work)
        lab.wait_for(lambda: self.c.items(f"/v1/sessions/{s['id']}/blocked"), "blocked first")
        a = self.c.call("POST", f"/v1/sessions/{s['id']}/asks", {"kind": "site", "subject": {"host": "ok.test", "port": 8080}}, 201)
        self.assertEqual((a["evidence"]["blocked"], a["evidence"]["command_id"]), (True, c["id"]))
        self.nothing_happened()
        d = self.c.call("POST", f"/v1/asks/{a['id']}/decide", {"answer": "session"})

        def output():
            return self.c.ask("GET", self.at(c) + "/output?stream=stdout", None,
                              {"Accept": "application/octet-stream"}).body.decode()
        lab.wait_for(lambda: "open" in output(), "the site is open", 20)
        self.assertEqual(output(), "open HTTP/1.1 200 403 403 403\n")
        self.assertEqual({r["port"] for r in self.reached()}, {8080})
        # Not in another session; and the list shows whose it is.
        c2 = self.run_in(other, argv=["/usr/bin/python3", "-c", TUNNEL.split("while True")[0] + "print(connect('ok.test:8080')[1])"])
        self.assertEqual(c2["text"]["stdout"], "403\n")
        site = self.c.items(f"/v1/sessions/{s['id']}/sites")[0]
        self.assertEqual((site["source"], site["created_by"], site["hits"]), ("ask", "owner", 1))
        self.c.call("DELETE", f"/v1/sessions/{s['id']}/sites/{d['site_id']}", None, 204)
        lab.wait_for(lambda: "closed" in output(), "the tunnel is closed")
        self.assertEqual(self.wait_end(c)["state"], "exited")
        self.assertEqual(output().splitlines()[-1], "closed 403")
        closed = [r for r in self.audit(f"session={s['id']}&action=connection.closed") if r["target"] == "ok.test:8080"]
        self.assertEqual(len(closed), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
