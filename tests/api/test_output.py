"""Output: every byte exact, in each form, whenever a reader comes, however slow; one `end`, and a gap where
the middle was left out."""
import base64
import json
import os
import shutil
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.environ["CORDON_SOURCE"], "tests/lib"))
from cordon_test.api import ApiTest
from cordon_test.cli import wait_for

OCTETS = {"Accept": "application/octet-stream"}
JSON = {"Accept": "application/json"}
SSE = {"Accept": "text/event-stream"}
MIB = 1 << 20


def joined(frames, stream):
    """The bytes of a stream, from its frames; offsets must follow one another."""
    out = bytearray()
    for f in frames:
        if f["kind"] == "data" and f["stream"] == stream:
            assert f["off"] == len(out), (f["off"], len(out))
            out += f["text"].encode() if "text" in f else base64.b64decode(f["b64"])
    return bytes(out)


class Output(ApiTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.s = cls.c.call("POST", "/v1/sessions", {"folders": [{"path": cls.work}], "require_wall": True}, 201)

    def out(self, c, query="", **headers):
        return self.c.ask("GET", self.at(c) + "/output" + query, headers=headers.get("headers"))

    def all_forms(self, c, stdout, stderr=b""):
        """Each form gives the same bytes; two readings are the same."""
        lines = self.out(c)
        self.assertEqual(lines.kind, "application/x-ndjson")
        frames = lines.frames()
        self.assertEqual([f["seq"] for f in frames], list(range(1, len(frames) + 1)))
        self.assertEqual([f["kind"] for f in frames].count("end"), 1)
        self.assertEqual(frames[-1]["kind"], "end")
        self.assertEqual((joined(frames, "stdout"), joined(frames, "stderr")), (stdout, stderr))
        self.assertEqual(self.out(c).body, lines.body)
        got = self.out(c, headers=JSON).json
        self.assertEqual((got["frames"], got["ended"], got["next_seq"]), (frames, True, len(frames) + 1))
        sse = self.out(c, headers=SSE)
        self.assertEqual(sse.frames(), frames)
        self.assertEqual([line for line in sse.body.decode().split("\n") if line.startswith(("id:", "event:"))],
                         [x for f in frames for x in (f"id: {f['seq']}", f"event: {f['kind']}")])
        for stream, data in (("stdout", stdout), ("stderr", stderr)):
            a = self.out(c, f"?stream={stream}", headers=OCTETS)
            self.assertEqual(a.body, data)
            self.assertEqual(json.loads(a.headers["Cordon-Enforcement"])["level"], "files+network")
            self.assertEqual(joined(self.out(c, f"?stream={stream}").frames(), stream), data)
        return frames

    def test_every_byte(self):
        c = self.run_in(self.s, "python3 -c \"import sys,os;os.write(1,bytes(range(256))*3);os.write(2,bytes(range(255,-1,-1)))\"")
        data = bytes(range(256))
        self.all_forms(c, data * 3, data[::-1])
        self.assertEqual((c["text"]["lossy"], c["text"]["truncated"]), (True, False))
        self.assertEqual((c["output"]["stdout_bytes"], c["output"]["stderr_bytes"]), (768, 256))

    def test_split_characters(self):
        """A character cut by two writes is whole again in the bytes; a frame of text is whole UTF-8."""
        text = "ünï\U0001f600日本\r\n\x00\x1b[31mred\x7f"
        with open(self.work + "/split.py", "w") as f:
            f.write("import os,sys,time\nfor b in open(sys.argv[1],'rb').read(): os.write(1, bytes([b])); time.sleep(0.003)\n")
        with open(self.work + "/text", "wb") as f:
            f.write(text.encode())
        c = self.run_in(self.s, argv=["python3", self.work + "/split.py", self.work + "/text"])
        self.all_forms(c, text.encode())
        self.assertEqual((c["text"]["stdout"], c["text"]["lossy"]), (text, False))

    def test_nothing_and_a_last_line_without_end(self):
        frames = self.all_forms(self.run_in(self.s, "true"), b"")
        self.assertEqual(len(frames), 1)
        self.all_forms(self.run_in(self.s, "printf last"), b"last")

    # case 83
    def test_closed_output_and_silence(self):
        c = self.run_in(self.s, "exec >&- 2>&-; exit 3")
        self.assertEqual((c["state"], c["result"]["exit_code"]), ("exited", 3))
        # The command ends though a child keeps its output open; what that writes later still comes.
        c = self.run_in(self.s, "(sleep 600) & echo parent; exit 5")
        self.assertEqual((c["state"], c["result"]["exit_code"], c["text"]["stdout"]), ("exited", 5, "parent\n"))

    def test_readers_at_each_moment(self):
        """At start, middle, end and after it: the same bytes and one end."""
        fifo = self.work + "/go"
        os.mkfifo(fifo)
        c = self.start(self.s, f"seq 1 20000; cat {fifo}; seq 20001 40000; cat {fifo}; echo done")
        got = {}

        def read(name):
            with self.c.stream("GET", self.at(c) + "/output?follow=1") as s:
                got[name] = s.frames()

        def reader(name):
            t = threading.Thread(target=read, args=(name,))
            t.start()
            return t

        threads = [reader(f"start{i}") for i in range(3)]
        with open(fifo, "w"):
            threads.append(reader("middle"))
        wait_for(lambda: self.c.call("GET", self.at(c))["output"]["stdout_bytes"] > 200000, "the second half", 30)
        threads.append(reader("late"))
        with open(fifo, "w"):
            pass
        self.wait_end(c)
        threads.append(reader("end"))
        for t in threads:
            t.join()
        want = self.out(c).frames()
        self.assertEqual(joined(want, "stdout"), "".join(f"{i}\n" for i in range(1, 40001)).encode() + b"done\n")
        for name, frames in got.items():
            self.assertEqual(frames, want, name)
        # From any number on: exactly what follows.
        for after in (1, 2, len(want) - 1, len(want)):
            self.assertEqual(self.out(c, f"?after={after}").frames(), want[after:])
        self.assertEqual(self.out(c, f"?after={len(want) + 5}").frames(), [])
        a = self.out(c, headers={**SSE, "Last-Event-ID": str(len(want) - 2)})
        self.assertEqual(a.frames(), want[-2:])

    def test_waiting_for_more(self):
        """wait_ms answers when something comes, not before and not late; follow and JSON by pages."""
        c = self.start(self.s, "cat", stdin="pipe")
        t = {"Content-Type": "application/octet-stream"}
        self.assertEqual(self.out(c, "?wait_ms=1", headers=JSON).json, {"frames": [], "next_seq": 1, "ended": False})
        self.c.call("POST", self.at(c) + "/stdin?offset=0", b"one\n", headers=t)
        got = self.out(c, "?wait_ms=60000", headers=JSON).json
        self.assertEqual(([f["text"] for f in got["frames"]], got["ended"]), (["one\n"], False))
        result = {}
        th = threading.Thread(target=lambda: result.update(self.out(c, f"?after={got['next_seq'] - 1}&wait_ms=60000",
                                                                    headers=JSON).json))
        th.start()
        self.c.call("POST", self.at(c) + "/stdin?offset=4", b"two\n", headers=t)
        th.join()
        self.assertEqual([f["text"] for f in result["frames"]], ["two\n"])
        self.c.call("POST", self.at(c) + "/stdin?offset=8&close=1", b"", headers=t)
        end = self.out(c, f"?after={result['next_seq'] - 1}&wait_ms=60000", headers=JSON).json
        self.assertEqual(([f["kind"] for f in end["frames"]], end["ended"]), (["end"], True))

    def test_max_bytes(self):
        c = self.run_in(self.s, "seq 1 100000")
        size = len("".join(f"{i}\n" for i in range(1, 100001)))
        data, after = b"", 0
        while True:
            page = self.out(c, f"?after={after}&max_bytes=50000", headers=JSON).json
            for f in page["frames"]:
                if f["kind"] == "data":
                    self.assertEqual(f["off"], len(data))
                    data += f["text"].encode()
            after = page["next_seq"] - 1
            if page["ended"]:
                break
            self.assertTrue(page["frames"])
        self.assertEqual(len(data), size)
        self.assertEqual(len(self.out(c, "?stream=stdout&max_bytes=1000", headers=OCTETS).body), 1000)

    def test_ranges(self):
        c = self.run_in(self.s, "printf 0123456789")
        q = "?stream=stdout"
        for value, status, want in (("bytes=0-0", 206, b"0"), ("bytes=3-5", 206, b"345"), ("bytes=8-", 206, b"89"),
                                    ("bytes=-3", 206, b"789"), ("bytes=5-500", 206, b"56789"), ("bytes=-500", 206, b"0123456789")):
            a = self.out(c, q, headers={**OCTETS, "Range": value})
            self.assertEqual((a.status, a.body), (status, want), value)
            first = 10 - len(want) if value.startswith("bytes=-") else int(value[6:].split("-")[0])
            self.assertEqual(a.headers["Content-Range"], f"bytes {first}-{first + len(want) - 1}/10", value)
        for value in ("bytes=10-", "bytes=11-12", "bytes=-0"):
            a = self.out(c, q, headers={**OCTETS, "Range": value})
            self.assertEqual((a.status, a.json["code"], a.headers["Content-Range"]), (416, "range_invalid", "bytes */10"), value)
        for value in ("lines=1-2", "bytes=5-3", "bytes=x-y", "bytes=1-2,4-5", "bytes="):
            a = self.out(c, q, headers={**OCTETS, "Range": value})  # not understood: all, or refused; never other bytes
            self.assertIn((a.status, a.body if a.status == 200 else a.json["code"]),
                          ((200, b"0123456789"), (416, "range_invalid")), value)
        self.assertEqual(self.out(c, q + "&offset=7", headers=OCTETS).body, b"789")
        self.assertEqual(self.out(c, q + "&offset=10", headers=OCTETS).body, b"")
        self.assertEqual(self.out(c, q + "&offset=11", headers=OCTETS).status, 416)

    def test_forms_that_are_none(self):
        c = self.run_in(self.s, "true")
        for accept in ("text/html", "image/*", "application/xml", "nonsense"):
            a = self.out(c, headers={"Accept": accept})
            self.assertEqual((a.status, a.json["code"]), (406, "not_acceptable"), accept)
        for accept, kind in (("*/*", "application/x-ndjson"), ("application/*", "application/x-ndjson"),
                             ("text/event-stream, application/json;q=0.5", "text/event-stream"),
                             ("application/json;q=0.4, text/event-stream;q=0.9", "text/event-stream"),
                             ("text/html, application/json", "application/json"), ("APPLICATION/JSON", "application/json")):
            a = self.out(c, headers={"Accept": accept})
            self.assertEqual((a.status, a.kind), (200, kind), accept)
        p = self.c.problem(422, "query_invalid", "GET", self.at(c) + "/output?stream=all", headers=OCTETS)
        self.assertEqual(p["errors"][0]["pointer"], "/stream")  # bytes are one stream's

    # case 89
    def test_a_gap(self):
        """Over the cap the head of 1 MiB and the newest rest stay, with a gap that says what is gone."""
        lines = 600000
        c = self.run_in(self.s, f"seq 1 {lines}; exit 7", max_output_bytes=2 * MIB, inline_bytes=1000)
        whole = "".join(f"{i}\n" for i in range(1, lines + 1)).encode()
        self.assertEqual((c["state"], c["result"]["exit_code"]), ("exited", 7))
        self.assertEqual(c["output"]["stdout_bytes"], len(whole))
        self.assertTrue(c["text"]["truncated"])
        frames = self.out(c).frames()
        gaps = [f for f in frames if f["kind"] == "gap"]
        self.assertEqual(len(gaps), 1)
        gap = gaps[0]
        at = frames.index(gap)
        head = b"".join(f["text"].encode() for f in frames[:at])
        tail = b"".join(f["text"].encode() for f in frames[at + 1:] if f["kind"] == "data")
        self.assertEqual((gap["stream"], gap["from"]), ("stdout", len(head)))
        self.assertGreaterEqual(len(head), MIB - 65536)
        self.assertEqual(head, whole[:len(head)])
        self.assertEqual(tail, whole[gap["to"]:])
        self.assertEqual(frames[at + 1]["off"], gap["to"])
        self.assertLessEqual(len(head) + len(tail), 2 * MIB)
        self.assertGreater(len(head) + len(tail), MIB + MIB // 2)
        self.assertEqual(c["output"]["dropped_bytes"], gap["to"] - gap["from"])
        self.assertEqual(self.out(c).frames(), frames)  # the same again
        self.assertEqual(self.out(c, f"?stream=stdout&offset={gap['to']}", headers=OCTETS).body, tail)
        self.assertEqual(self.out(c, "?stream=stdout&offset=0", headers=OCTETS).body, head)  # ends at the gap
        a = self.out(c, f"?stream=stdout&offset={gap['from'] + 1}", headers=OCTETS)
        self.assertEqual((a.status, a.json["resume"]), (416, gap["to"]), a)  # never other bytes in their place

    def test_slow_and_stopped_readers(self):
        """20 readers, one that reads nothing and one that reads a little: the command waits for none, nor do
        the others, and no memory grows."""
        before = self.memory()
        c = self.start(self.s, "head -c 24000000 /dev/zero | tr '\\0' x", max_output_bytes=128 * MIB)
        stopped = self.c.stream("GET", self.at(c) + "/output?follow=1")
        slow = self.c.stream("GET", self.at(c) + "/output?follow=1&stream=stdout", headers=OCTETS)
        slow.read(10)
        sums, threads = [], []

        def read():
            with self.c.stream("GET", self.at(c) + "/output?follow=1&stream=stdout", headers=OCTETS) as s:
                n = 0
                while part := s.response.read1(1 << 20):
                    n += len(part)
                    if part.strip(b"x"):
                        n = -1 << 60
                sums.append(n)

        for _ in range(6):
            threads.append(threading.Thread(target=read))
            threads[-1].start()
        done = self.wait_end(c)
        self.assertEqual((done["state"], done["output"]["stdout_bytes"]), ("exited", 24000000))
        for t in threads:
            t.join()
        self.assertEqual(sums, [24000000] * 6)
        self.assertLess(self.memory() - before, 64 << 10)  # KiB; the output is 23 MiB, times eight readers
        rest = 10
        while part := slow.response.read1(1 << 20):
            rest += len(part)
        self.assertEqual(rest, 24000000)  # it lost nothing
        self.assertEqual(joined(stopped.frames(), "stdout"), b"x" * 24000000)
        stopped.close()
        slow.close()

    def memory(self):
        with open(f"/proc/{self.d.pid}/status") as f:
            return int(next(line for line in f if line.startswith("VmRSS")).split()[1])

    def test_streams_of_a_token_and_in_all(self):
        """16 a token; the 17th is refused and named, and one that ends makes room."""
        c = self.start(self.s, "exec sleep 600")
        holder = self.holder("read")
        target = self.at(c) + "/output?follow=1"
        streams = [holder.stream("GET", target) for _ in range(16)]
        p = holder.problem(429, "too_many", "GET", target)
        self.assertIn("16 streams", p["detail"])
        self.c.ask("GET", self.at(c) + "/output")  # the owner is not held up
        streams.pop().close()
        wait_for(lambda: holder.ask("GET", self.at(c) + "/output?wait_ms=1", headers=JSON).status == 200, "room")
        for s in streams:
            s.close()
        self.c.call("POST", self.at(c) + "/stop", {"grace_ms": 0}, 202)

    def test_output_that_is_gone(self):
        """The spool is cut by age: the record stays and says so."""
        c = self.run_in(self.s, "echo kept")
        spool = self.d.state + "/spool"
        shutil.rmtree(os.path.join(spool, c["id"]))
        self.c.problem(410, "output_expired", "GET", self.at(c) + "/output")
        self.assertEqual(self.c.call("GET", self.at(c))["result"]["exit_code"], 0)

    def test_inline_text(self):
        c = self.run_in(self.s, "printf 'ä%.0s' $(seq 1000); printf 'b%.0s' $(seq 10) >&2", inline_bytes=501)
        self.assertTrue(c["text"]["truncated"])
        self.assertEqual((c["text"]["stdout"], c["text"]["stderr"]), ("ä" * 250, "b" * 10))  # of each stream
        self.assertFalse(c["text"]["lossy"])  # cut between characters
        c = self.run_in(self.s, "echo x", inline_bytes=0)
        self.assertEqual((c["text"]["stdout"], c["text"]["truncated"]), ("", True))
        got = self.c.call("GET", self.at(c) + "?inline_bytes=5")
        self.assertEqual(got["text"]["stdout"], "x\n")
        c = self.run_in(self.s, "printf 'a\\377'", inline_bytes=2)
        self.assertEqual((c["text"]["stdout"], c["text"]["lossy"]), ("a\ufffd", True))


if __name__ == "__main__":
    unittest.main(verbosity=2)
