"""Every system call number from inside the wall, by every ABI of the machine, against the table that
the renderer prints; the same calls by the same user without capabilities are the control."""
import json
import os
import re
import subprocess
import unittest

import wall_lab
from wall_lab import PYTHON, Wall

NUMBERS = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"
BEYOND = 64  # numbers above the highest known that are tried
SIGSEGV, SIGSYS = 11, 31
X32, I386 = 0x40000000, "i386"

# Each call in a child of its own, every argument -1: {number: errno, 0 (worked), -signal or "none"}.
# i386: int 0x80 with the number in eax and -1 in all else (arch/x86/entry/entry_64_compat.S).
CALLS = r"""
import ctypes, json, mmap, os, select, signal, sys, time
abi, numbers = sys.argv[1], json.loads(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
M = [ctypes.c_long(-1)] * 6
# push rbx rbp r12..r15; mov eax,edi; -1 to ebx ecx edx esi edi ebp; int 0x80; movsxd rax,eax; pop; ret
CODE = bytes.fromhex('53555657 4154 4155 4156 4157 89f8'
                     'bbffffffff b9ffffffff baffffffff beffffffff bfffffffff bdffffffff'
                     'cd80 4863c0 415f 415e 415d 415c 5f5e5d5b c3'.replace(' ', ''))
if abi == 'i386':
    room = mmap.mmap(-1, 4096, prot=7)
    room.write(CODE)
    at = ctypes.addressof(ctypes.c_char.from_buffer(room))
    compat = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long)(at)
def call(n):
    if abi == 'i386':
        r = compat(n)
        return -r if r < 0 else 0
    r = libc.syscall(ctypes.c_long(n), *M)
    return ctypes.get_errno() if r < 0 else 0
seen, BATCH = {}, 90
for at in range(0, len(numbers), BATCH):
    waiting = {}
    for n in numbers[at:at + BATCH]:
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            me = os.getpid()
            for other in waiting.values():
                os.close(other[0])
            os.close(r)
            e = call(n)
            if os.getpid() == me:
                os.write(w, b'%d' % e)
            os._exit(0)
        os.close(w)
        waiting[n] = (r, pid)
    end = time.monotonic() + 2  # exit, pause and their kind never answer
    while waiting:
        ready = select.select([r for r, _ in waiting.values()], [], [], max(0, end - time.monotonic()))[0]
        if not ready:
            break
        for n in [n for n, (r, _) in waiting.items() if r in ready]:
            r, pid = waiting.pop(n)
            text = os.read(r, 16)
            os.close(r)
            status = os.waitpid(pid, 0)[1]
            seen[n] = int(text) if text else -os.WTERMSIG(status) if os.WIFSIGNALED(status) else 'none'
    for n, (r, pid) in waiting.items():
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(r)
        seen[n] = 'none'
print(json.dumps(seen))
"""
ERRNO = {"EPERM": 1, "ENOSYS": 38}

# Allowed, and still another answer than bare, since the place is another one (not the filter).
ELSEWHERE = {"msgget", "semget", "shmget",  # bare they would leave an object of the machine
             "close_range", "getpgid", "getsid", "getpriority", "ptrace", "kcmp", "migrate_pages"}


def numbers_by_name():
    with open(NUMBERS) as f:
        return {m[1]: int(m[2]) for m in re.finditer(r"#define __NR_(\w+) (\d+)", f.read())}


@unittest.skipIf(os.uname().machine != "x86_64", "numbers of another machine")
class Calls(Wall):
    def table(self):
        """(highest, {name: errno}, names that are judged by their arguments)."""
        text = self.drive("--rw", self.w, "--render", "seccomp").stdout.decode()
        highest = int(re.search(r"^calls above (\d+) ENOSYS$", text, re.M)[1])
        refused = {m[1]: ERRNO[m[2]] for m in re.finditer(r"^(\w+) (EPERM|ENOSYS)$", text, re.M)}
        judged = {m[1] for m in re.finditer(r"^(\w+) E\w+ (?:with|for|but)", text, re.M)}
        self.assertGreaterEqual(highest, 450)
        self.assertGreater(len(refused), 50)
        self.assertLessEqual({"clone", "unshare", "socket", "ioctl"}, judged)
        return highest, refused, judged

    def inside(self, abi, numbers):
        done = self.walled(CALLS, abi, json.dumps(numbers))
        self.assertEqual(done.returncode, 0, done.stderr)
        return {int(k): v for k, v in json.loads(done.stdout).items()}

    def outside(self, abi, numbers):
        """By this user without any capability."""
        argv = ["setpriv", "--no-new-privs", PYTHON, "-c", CALLS, abi, json.dumps(numbers)]
        if os.geteuid() == 0:
            argv = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *argv]
        done = subprocess.run(argv, capture_output=True, env=self.env, cwd=self.w, timeout=120,
                              stdin=subprocess.DEVNULL, start_new_session=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {int(k): v for k, v in json.loads(done.stdout).items()}

    def test_every_number(self):
        highest, refused, judged = self.table()
        by_name = numbers_by_name()
        names = {n: name for name, n in by_name.items()}
        unknown = {n for n in range(highest + 1) if n not in names}
        self.assertFalse(set(refused.values()) - set(ERRNO.values()))
        wanted = {by_name[name]: e for name, e in refused.items() if name in by_name}
        self.assertGreater(len(wanted), 45)
        got = self.inside("native", list(range(highest + 1 + BEYOND)))
        for n, e in wanted.items():
            self.assertEqual(got[n], e, names[n])
        for n in range(highest + 1, highest + 1 + BEYOND):
            self.assertEqual(got[n], ERRNO["ENOSYS"], n)
        allowed = [n for n in range(highest + 1)
                   if n not in wanted and n not in unknown and names[n] not in judged | ELSEWHERE]
        self.assertGreater(len(allowed), 250)
        bare = self.outside("native", allowed)
        for n in allowed:
            self.assertEqual(got[n], bare[n], names[n])

    def test_what_the_filter_refuses_is_there_bare(self):
        """The control: without the wall none of these is unknown to the kernel but the removed ones."""
        _, refused, _ = self.table()
        by_name = numbers_by_name()
        asked = {name: by_name[name] for name in ("clone3", "io_uring_setup", "keyctl", "add_key", "request_key",
                                                  "mount", "open_tree", "fsopen", "bpf", "chroot",
                                                  "open_by_handle_at") if name in refused}
        bare = self.outside("native", list(asked.values()))
        for name, n in asked.items():
            self.assertNotEqual(bare[n], ERRNO["ENOSYS"], name)
        self.assertGreater(len(asked), 8)

    def test_x32(self):
        """Numbers with the x32 bit: killed, known or not (asm/unistd_x32.h starts its own at 512)."""
        numbers = [X32 | n for n in list(range(0, 451)) + list(range(512, 548))]
        got = self.inside("native", numbers)
        self.assertEqual({v for v in got.values()}, {-SIGSYS})

    def test_i386(self):
        """By int 0x80. A kernel that has no 32-bit calls ends the process bare as well."""
        numbers = list(range(0, 460))
        bare = self.outside(I386, [20])[20]  # getpid
        self.assertIn(bare, (0, -SIGSEGV))
        got = self.inside(I386, numbers)
        self.assertEqual(set(got.values()), {-SIGSYS if bare == 0 else -SIGSEGV})


if __name__ == "__main__":
    wall_lab.main()
