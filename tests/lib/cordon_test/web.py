"""The web sites of the lab (tests/lab/web.py) for tests: their certificates, and what reached them."""
import json
import os
import subprocess

from . import lab

NAMES = ("web.test", "other.test", "web6.test", "api.search.brave.com", "api.tavily.com", "html.duckduckgo.com")


def certificates():
    """An authority of this lab's own; the path of its certificate. The servers get theirs."""
    folder = os.environ["LAB_DIR"]

    def openssl(*words, **kw):
        return subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder, **kw).stdout

    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-batch")
    openssl(*new, "-x509", "-days", "2", "-subj", "/CN=lab", "-keyout", "ca.key", "-out", "ca.pem")
    for name, at in (("tls", NAMES), ("self", ("selfsigned.test",))):
        with open(f"{folder}/{name}.ext", "w") as f:
            f.write("subjectAltName=" + ",".join("DNS:" + n for n in at) + "\n")
        openssl(*new, "-subj", f"/CN={at[0]}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signer = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial") if name == "tls" else ("-key", f"{name}.key")
        openssl("x509", "-req", "-in", f"{name}.csr", *signer, "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.crt")
        with open(f"{folder}/{name}.pem", "w") as f:
            for part in ("key", "crt"):
                with open(f"{folder}/{name}.{part}") as g:
                    f.write(g.read())
    return folder + "/ca.pem"


def served():
    """Each request that reached them, in order."""
    with open(os.path.join(os.environ["LAB_DIR"], "web.jsonl")) as f:
        return [json.loads(line) for line in f if line.endswith("\n")]


class Since:
    """What reached the far side since this was made."""

    def __init__(self):
        self.mark, self.n = lab.mark(), len(served())

    def requests(self):
        return served()[self.n:]

    def paths(self):
        return [(r["host"], r["path"]) for r in self.requests()]

    def connections(self, **wanted):
        lab.mark()
        return lab.reached(self.mark, **wanted)

    def names(self):
        lab.mark()
        return lab.asked(self.mark)
