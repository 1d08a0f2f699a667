"""Compilers, build tools, debuggers and sanitizers behind the wall (case 92)."""
import unittest
from pathlib import Path

from box import BoxCase, need

HELLO = '#include <stdio.h>\nint main(void){puts("hello");return 0;}\n'


class Build(BoxCase):
    def test_gcc_and_make(self):
        need(self, "gcc", "make")
        (self.dir / "h.c").write_text(HELLO)
        (self.dir / "Makefile").write_text("h: h.o\n\tcc -o $@ $^\nh.o: h.c\n\tcc -c -O2 -o $@ $<\n")
        self.assertIn("hello", self.inside("make -j2 -s; ./h"))

    def test_cargo_offline(self):
        need(self, "cargo", "rustc")
        self.inside("cargo new -q --vcs none app; cd app; cargo build -q --offline; ./target/debug/app;"
                    "cargo test -q --offline", timeout=300)

    def test_address_sanitizer(self):
        """Its leak checker traces its own process: a refused ptrace ends each test as failed."""
        need(self, "gcc")
        (self.dir / "h.c").write_text(HELLO)
        (self.dir / "leak.c").write_text("#include <stdlib.h>\nint main(void){volatile char*p=malloc(9);p=0;(void)p;return 0;}\n")
        self.assertIn("hello", self.inside("gcc -fsanitize=address,undefined -g h.c -o h && ./h"))
        done = self.session.run("sh", "-c", "gcc -fsanitize=address -g leak.c -o leak && ./leak", cwd=self.dir)
        self.assertIn(b"detected memory leaks", done.stderr)

    def test_strace(self):
        need(self, "strace")
        self.inside("strace -f -o out sh -c 'true; /bin/true'; grep -q exited out")

    def test_gdb(self):
        need(self, "gdb", "gcc")
        (self.dir / "h.c").write_text(HELLO)
        out = self.inside("gcc -g h.c -o h; gdb -q -batch -ex 'break main' -ex run -ex bt -ex continue ./h 2>&1", timeout=200)
        self.assertIn("main () at h.c", out)
        self.assertIn("exited normally", out)

    def test_valgrind(self):
        if not Path("/usr/bin/valgrind").exists():
            self.skipTest("not installed: valgrind (optional)")
        (self.dir / "h.c").write_text(HELLO)
        self.inside("gcc -g h.c -o h; valgrind -q --error-exitcode=9 ./h", timeout=200)

    def test_new_calls_are_absent_rather_than_forbidden(self):
        """A libc that meets EPERM on a call it does not know gives up; on ENOSYS it falls back."""
        need(self, "gcc")
        (self.dir / "c.c").write_text(
            "#define _GNU_SOURCE\n#include <errno.h>\n#include <stdio.h>\n#include <unistd.h>\n#include <sys/syscall.h>\n"
            "int main(void){int e;"
            "e=syscall(435,0,0)<0?errno:0;printf(\"clone3 %d\\n\",e==ENOSYS);"
            "e=syscall(425,1,0)<0?errno:0;printf(\"uring %d\\n\",e==ENOSYS);"
            "e=syscall(SYS_keyctl,0)<0?errno:0;printf(\"keyctl %d\\n\",e==ENOSYS);"
            "e=syscall(999)<0?errno:0;printf(\"above %d\\n\",e==ENOSYS);"
            "e=syscall(SYS_memfd_create,\"x\",0)<0?errno:0;printf(\"memfd %d\\n\",e==0);"
            "e=syscall(SYS_personality,-1)<0?errno:0;printf(\"personality %d\\n\",e==0);return 0;}\n")
        self.assertEqual(self.inside("gcc c.c -o c && ./c").split()[1::2], ["1"] * 6)


if __name__ == "__main__":
    unittest.main()
