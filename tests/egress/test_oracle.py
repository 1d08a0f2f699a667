"""The canonical host beside two parsers that are not ours: whatever host:port we take, curl's URL parser
and a browser's (the URL of node, WHATWG) either refuse, or read as the very same host.
"""
import ctypes
import ipaddress
import json
import os
import random
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from cordon_test.cli import BIN  # noqa: E402

NODE = """
let text = "";
process.stdin.on("data", d => text += d);
process.stdin.on("end", () => console.log(JSON.stringify(JSON.parse(text).map(host => {
    try { return new URL("http://" + host + ":8080/").hostname } catch { return null }
}))));
"""
# Spellings that must be taken, and as what.
GOOD = {"ok.test": "ok.test", "OK.Test": "ok.test", "ok.test.": "ok.test", "a-b.ok_x.test": "a-b.ok_x.test",
        "xn--bcher-kva.test": "xn--bcher-kva.test", "203.0.113.10": "203.0.113.10", "[2001:DB8::0:10]": "2001:db8::10",
        "[::1]": "::1", "[2001:db8:0:0:1:0:0:1]": "2001:db8::1:0:0:1", "localhost": "localhost", "a": "a", "1a.test": "1a.test"}
PARTS = ["", "0", "1", "127", "255", "256", "00", "01", "0x7f", "0X1", "0x", "4294967295", "2130706433", "017700000001", "1e3", "a"]


def spellings():
    rand = random.Random(80)
    yield from GOOD
    for at in range(8):
        for byte in range(256):
            yield "ok.test"[:at] + chr(byte) + "ok.test"[at:]
    for a in PARTS:
        for b in PARTS:
            yield from (a, f"{a}.{b}", f"{a}.{b}.1", f"1.2.{a}.{b}", f"1.2.{a}.{b}.", f"ok.{a}.{b}", f"{a}.{b}.test",
                        f"[::{a}:{b}]", f"[::ffff:{a}.{b}.0.1]", f"[{a}::{b}]", f"[fe80::{a}%{b}]")
    for n in (62, 63, 64, 250, 253, 254, 300):
        yield "a" * n
        yield ".".join(["a" * 60] * 5)[:n]
    for _ in range(6000):
        yield "".join(rand.choice("ab01x.-_:[]%@/\\?#A \u00e9\u3002") for _ in range(rand.randint(1, 12)))


def canonical(texts):
    data = b"".join(struct.pack("<H", len(t)) + t for t in (s.encode("utf-8") + b":8080" for s in texts))
    out = subprocess.run([os.path.join(BIN, "hosts")], input=data, stdout=subprocess.PIPE, check=True).stdout
    return [line.decode() or None for line in out.split(b"\n")[:-1]]


def browser(texts):
    done = subprocess.run(["node", "-e", NODE], input=json.dumps(texts), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def curl(texts):
    lib = ctypes.CDLL("libcurl.so.4")
    lib.curl_url.restype = ctypes.c_void_p
    lib.curl_url_set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    lib.curl_url_get.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), ctypes.c_uint]
    lib.curl_url_cleanup.argtypes = [ctypes.c_void_p]
    for text in texts:
        url, part = lib.curl_url(), ctypes.c_char_p()
        ok = "\0" not in text and lib.curl_url_set(url, 0, f"http://{text}:8080/".encode(), 0) == 0  # CURLUPART_URL
        ok = ok and lib.curl_url_get(url, 5, ctypes.byref(part), 0) == 0  # CURLUPART_HOST
        yield part.value.decode("latin-1") if ok else None
        lib.curl_url_cleanup(url)


def plain(host):
    """Lower case, without the root's dot; IPv6 as the address it is, however it is written."""
    host = host.lower().strip("[]")
    if ":" in host:
        return ipaddress.ip_address(host)
    return host[:-1] if host.endswith(".") else host


class Oracles(unittest.TestCase):
    def test_no_other_host(self):
        texts = list(spellings())
        ours = canonical(texts)
        self.assertEqual(len(ours), len(texts))
        self.assertEqual(dict(zip(texts, ours[:len(GOOD)])), GOOD)
        for name, theirs in (("browser", browser(texts)), ("curl", list(curl(texts)))):
            other = [(t, o, h) for t, o, h in zip(texts, ours, theirs) if o and h is not None and plain(h) != plain(o)]
            self.assertEqual(other, [], name)
            n = sum(o is not None and h is not None for o, h in zip(ours, theirs))
            self.assertGreater(n, 500)
            print(f"  {name}: {len(texts)} spellings, {n} taken by both, "
                  f"{sum(o is None and h is not None for o, h in zip(ours, theirs))} refused by us alone")


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
