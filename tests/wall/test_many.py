"""Sessions beside each other: many in one folder, none reaches another, none takes the machine along."""
import os
import socket
import subprocess

import wall_lab
from wall_lab import DRIVER, MARK, PYTHON, Wall

PAIRS = int(os.environ.get("WALL_PAIRS", "40"))


class Pairs(Wall):
    def test_forty_pairs_in_one_folder_at_once(self):
        """All are up at the same time, each pair exchanges a file, and nothing else is made."""
        mark = "pairs-%d" % os.getpid()
        line = ('echo >"$TMPDIR/$4"; echo $1 >"up.$1"; while [ "$(ls up.* | wc -l)" -lt "$2" ]; do sleep 0.1; done; '
                'read a <"up.$3"; echo "got $a"')
        n = 2 * PAIRS
        running = [subprocess.Popen([DRIVER, "--rw", self.w, "--", "/bin/sh", "-c", line, "sh", str(i), str(n),
                                     str(i ^ 1), mark], env=self.env, cwd="/", stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for i in range(n)]
        for i, p in enumerate(running):
            out, err = p.communicate(timeout=300)
            self.assertEqual((p.returncode, out), (0, "got %d\n" % (i ^ 1)), err)
        self.assertEqual(sorted(os.listdir(self.w)), sorted("up.%d" % i for i in range(n)))
        self.assertEqual(wall_lab.left_folders(mark), set())


FIRST = r"""
import os, socket, sys, time
name, ready, flag = sys.argv[1:]
t = socket.socket(); t.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
t.bind(('127.0.0.1', 5555)); t.listen()
u = socket.socket(socket.AF_UNIX); u.bind('\0' + name); u.listen()
open('/dev/shm/' + name, 'w').write('MARK'); open('/tmp/' + name, 'w').write('MARK')
c = socket.create_connection(('127.0.0.1', 5555)); d = socket.create_connection(('127.0.0.1', 3128))
a = socket.socket(socket.AF_UNIX); a.connect('\0' + name)
open(ready, 'w').write(os.environ['TMPDIR'])
while not os.path.exists(flag):
    time.sleep(0.02)
"""
SECOND = r"""
import os, signal, socket, sys
name, private = sys.argv[1:]
def trial(what, f):
    try:
        f()
        print('REACHED', what)
    except OSError as e:
        print(what, e.errno)
trial('server', lambda: socket.create_connection(('127.0.0.1', 5555), 3))
trial('server6', lambda: socket.create_connection(('::1', 5555), 3))
trial('door', lambda: socket.create_connection(('127.0.0.1', 3128), 3))
trial('door6', lambda: socket.create_connection(('::1', 3128), 3))
trial('abstract', lambda: socket.socket(socket.AF_UNIX).connect('\0' + name))
trial('shm', lambda: open('/dev/shm/' + name))
trial('tmp', lambda: open('/tmp/' + name))
trial('private', lambda: os.listdir(private))
trial('private tmp', lambda: open(private + '/tmp/' + name))
for p in os.listdir('/proc'):
    if p.isdigit() and b'MARK' in open('/proc/' + p + '/cmdline', 'rb').read() and int(p) != os.getpid():
        print('REACHED process', p)
"""


class Others(Wall):
    def test_a_session_reaches_nothing_of_another(self):
        """Servers, doors, abstract sockets, memory files, private folders, processes. The control is the
        first session itself, which reaches each of them."""
        name, ready, flag = MARK + "-%d" % os.getpid(), self.w + "/ready", self.w + "/flag"
        before = {n for n in os.listdir("/tmp") if n.startswith("cordon-")}
        first = subprocess.Popen([DRIVER, "--rw", self.w, "--", PYTHON, "-c", FIRST.replace("MARK", MARK), name,
                                  ready, flag], env=self.env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            self.assertTrue(wall_lab.wait_for(lambda: os.path.exists(ready) and os.path.getsize(ready)),
                            "the first session did not come up")
            mine = [n for n in set(os.listdir("/tmp")) - before if n.startswith("cordon-") and
                    os.path.exists("/tmp/%s/tmp/%s" % (n, name))]
            self.assertEqual(len(mine), 1, "the host sees the file of the first session")
            done = self.walled(SECOND.replace("MARK", MARK), name, "/tmp/" + mine[0], options=["--net", "none"])
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertFalse(self.crossed(done), done.stdout)
            self.assertEqual(len(done.stdout.splitlines()), 9, done.stdout)
            for port in (5555, 3128):  # nor does the host: the doors are in the session's own network
                with socket.socket() as s:
                    self.assertNotEqual(s.connect_ex(("127.0.0.1", port)), 0, port)
        finally:
            open(flag, "w").close()
            err = first.communicate(timeout=60)[1]
        self.assertEqual(first.returncode, 0, err)


BOMB = r"""
import os, sys, time
end, most = time.monotonic() + 3, 0
first = os.getpid()
while time.monotonic() < end:
    try:
        if os.fork() == 0:
            continue
    except OSError:
        time.sleep(0.01)
    if os.getpid() == first:
        most = max(most, len([p for p in os.listdir('/proc') if p.isdigit()]))
if os.getpid() == first:
    print(most)
"""


class Bombs(Wall):
    def test_a_fork_bomb_is_held_and_the_host_lives(self):
        mark = MARK + "-bomb-%d" % os.getpid()
        bomb = subprocess.Popen([DRIVER, "--rw", self.w, "--processes", "80", "--", PYTHON, "-c", BOMB, mark],
                                env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
        self.assertTrue(wall_lab.wait_for(lambda: len(wall_lab.processes_with(mark)) > 40), "it does not fork")
        for _ in range(20):
            self.assertEqual(subprocess.run(["/usr/bin/true"]).returncode, 0)
        self.assertLess(len(wall_lab.processes_with(mark)), 80 + 20)
        out, err = bomb.communicate(timeout=60)
        self.assertEqual(bomb.returncode, 0, err)
        self.assertGreater(int(out), 40)
        self.assertLess(int(out), 80 + 20)
        self.assertEqual(wall_lab.processes_with(mark), [], "it outlived its session")

    def test_memory_files_are_bounded_and_gone(self):
        """Case 28: /dev/shm is the session's own file system, with a size."""
        done = self.walled("import os\ns=os.statvfs('/dev/shm'); print(s.f_blocks*s.f_frsize)\n"
                           "f=open('/dev/shm/x','wb')\nfor _ in range(20): f.write(bytes(1<<20))\nf.close()\n"
                           "print(os.stat('/dev/shm/x').st_size>>20)")
        self.assertEqual(done.stdout.split(), [b"%d" % (1 << 30), b"20"], done.stderr)
        self.assertFalse(os.path.exists("/dev/shm/x"))

    def test_a_session_that_fills_its_private_folder_takes_no_other_along(self):
        """Open files: the limit holds, and the next session has its own."""
        done = self.walled("import os\nn=0\ntry:\n    while n<5000: os.dup(1); n+=1\nexcept OSError as e: print(e.errno)\nprint(n)",
                           options=["--files", "256"])
        self.assertEqual(done.stdout.split()[0], b"24", done.stderr)
        self.assertLess(int(done.stdout.split()[1]), 256)


class Signals(Wall):
    def test_pid_1_and_supervisors_stand_what_commands_send_them(self):
        """Case 88: whoever runs inside cannot end the runner, look into it or stop it."""
        script = ("import os,signal\n"
                  "for s in (signal.SIGTERM,signal.SIGKILL,signal.SIGSTOP,signal.SIGINT,signal.SIGHUP,signal.SIGUSR1):\n"
                  "    try: os.kill(1,s)\n    except OSError: pass\n"
                  "print('still')")
        done = self.walled(script)
        self.assertEqual((done.returncode, done.stdout), (0, b"still\n"), done.stderr)

    def test_a_signal_reaches_nobody_outside(self):
        other = subprocess.Popen(["/usr/bin/sleep", "600"])
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        done = self.walled("import os,sys\n"
                           "for p in (int(sys.argv[1]),-int(sys.argv[1])):\n"
                           "    try: os.kill(p,10)\n    except OSError as e: print(e.errno)", str(other.pid))
        self.assertEqual(done.stdout.split(), [b"3", b"3"], done.stderr)
        self.walled("import os; os.kill(-1,9)")  # everything it can reach, its own supervisor too
        self.assertIsNone(other.poll())


if __name__ == "__main__":
    wall_lab.main()
