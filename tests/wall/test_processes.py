"""Processes, sockets and the kernel behind the wall (cases 37, 64, 67, 85, 88)."""
import os
import socket
import subprocess
import threading
import time

import wall_lab
from wall_lab import MARK, PYTHON, Wall

IS_ROOT = os.geteuid() == 0
CONNECT = ("import socket,sys\na=sys.argv[1]; a='\\0'+a[1:] if a[0]=='@' else a\n"
           "s=socket.socket(socket.AF_UNIX); s.connect(a); print('REACHED')")
SYSCALL = ("import ctypes,os,sys\nlibc=ctypes.CDLL(None,use_errno=True)\n"
           "r=libc.syscall(*[int(x) for x in sys.argv[1:]])\n"
           "print('REACHED' if r>=0 else os.strerror(ctypes.get_errno()))")


PID_1 = """
import ctypes, os
libc, bad = ctypes.CDLL(None, use_errno=True), []
for p in [x for x in os.listdir('/proc') if x.isdigit()]:
    for f in ('environ', 'cmdline', 'mem'):
        try:
            d = open('/proc/' + p + '/' + f, 'rb').read(65536)
        except OSError:
            continue
        if b'MARK' in d and int(p) != os.getpid():
            bad.append((p, f))
        if p == '1' and f != 'cmdline' and d:
            bad.append((p, f, 'read'))
for l in ('root', 'cwd', 'exe', 'fd/0', 'fd/3', 'ns/net'):
    try:
        os.readlink('/proc/1/' + l)
        bad.append(l)
    except OSError:
        pass
if libc.ptrace(16, 1, 0, 0) >= 0:
    bad.append('ptrace')
class V(ctypes.Structure):
    _fields_ = [('p', ctypes.c_void_p), ('n', ctypes.c_size_t)]
b = ctypes.create_string_buffer(8)
v, r = V(ctypes.addressof(b), 8), V(0x400000, 8)
if libc.process_vm_readv(1, ctypes.byref(v), 1, ctypes.byref(r), 1, 0) >= 0:
    bad.append('vm')
print('env', [k for k, x in os.environ.items() if 'MARK' in x])
print('bad', bad)
"""


class Server:
    """Accepts and forgets, until closed."""

    def __init__(self, family, address, kind=socket.SOCK_STREAM):
        self.socket = socket.socket(family, kind)
        self.socket.bind(address)
        self.got = []
        if kind == socket.SOCK_STREAM:
            self.socket.listen(8)
        self.address = self.socket.getsockname()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        try:
            while True:
                if self.socket.type == socket.SOCK_DGRAM:
                    self.got.append(self.socket.recv(100))
                else:
                    self.socket.accept()[0].close()
                    self.got.append(b"")
        except OSError:
            pass

    def close(self):
        self.socket.close()


class Sockets(Wall):
    def serve(self, *args):
        server = Server(*args)
        self.addCleanup(server.close)
        return server

    def test_unix(self):
        paths = [os.path.join(self.home, "s"), "/tmp/wall-%d.sock" % os.getpid(),
                 "@wall-%d" % os.getpid(), os.path.join(self.state, "cordond.sock")]
        if IS_ROOT:
            paths.append("/run/wall-%d.sock" % os.getpid())
        for path in paths:
            with self.subTest(path=path):
                server = self.serve(socket.AF_UNIX, "\0" + path[1:] if path[0] == "@" else path)
                self.try_thrice(CONNECT, path)
                self.assertEqual(len(server.got), 1)
                if path[0] != "@":
                    os.unlink(path)

    def test_loopback(self):
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            server = self.serve(family, (host, 0))
            self.try_thrice("import socket,sys; socket.create_connection((sys.argv[1],int(sys.argv[2])),3);"
                            "print('REACHED')", host, str(server.address[1]))

    def test_udp(self):
        server = self.serve(socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_DGRAM)
        script = ("import socket,sys\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
                  "s.sendto(sys.argv[2].encode(),('127.0.0.1',int(sys.argv[1])))")
        port = str(server.address[1])
        self.bare(script, port, "bare")
        self.assertTrue(wall_lab.wait_for(lambda: server.got == [b"bare"]))
        self.walled(script, port, "walled")
        self.bare(script, port, "after")  # loopback keeps the order: what had come would lie before it
        self.assertTrue(wall_lab.wait_for(lambda: b"after" in server.got))
        self.assertEqual(server.got, [b"bare", b"after"])

    def test_only_loopback_inside(self):
        done = self.walled("import socket\nprint([n for _,n in socket.if_nameindex()])\n"
                           "for h,p in (('192.0.2.1',443),('169.254.169.254',80),('2001:db8::1',443)):\n"
                           "    try: socket.create_connection((h,p),3); print('REACHED')\n"
                           "    except OSError as e: print(e)")
        self.assertFalse(self.crossed(done))
        self.assertIn(b"unreachable", done.stdout, done.stderr)

    def test_servers_inside(self):
        """Case 68: both loopback families work for servers made inside."""
        done = self.walled("import socket\nfor f,h in ((socket.AF_INET,'127.0.0.1'),(socket.AF_INET6,'::1')):\n"
                           "    s=socket.socket(f); s.bind((h,0)); s.listen(); c=socket.socket(f)\n"
                           "    c.connect(s.getsockname()); s.accept()\nprint('both')")
        self.assertEqual(done.stdout, b"both\n", done.stderr)

    def test_sockets_of_other_kinds(self):
        script = ("import socket,sys\nf,t,p=[int(x) for x in sys.argv[1:]]\n"
                  "socket.socket(f,t,p); print('REACHED')")
        for name, args, bare in (("AF_PACKET", (17, 3, 768), IS_ROOT), ("raw", (2, 3, 1), IS_ROOT),
                                 ("AF_VSOCK", (40, 1, 0), False), ("audit", (16, 3, 9), True)):
            with self.subTest(name=name):
                self.try_thrice(script, *map(str, args), bare=bare)


class Kernel(Wall):
    def test_calls(self):
        """Bare only where this user may; x86-64 numbers (asm/unistd_64.h)."""
        if os.uname().machine != "x86_64":
            self.skipTest("numbers of another machine")
        for name, args, bare in (
                ("unshare user", (272, 0x10000000), True), ("unshare mount", (272, 0x20000), IS_ROOT),
                ("keyctl", (250, 0, -3, 1), True), ("io_uring_setup", (425, 0, 0), False),
                ("userfaultfd", (323, 1), IS_ROOT), ("bpf", (321, 0, 0, 0), False),
                ("perf_event_open", (298, 0, 0, -1, -1, 0), False),
                ("setns", (308, 0, 0), False), ("mount", (165, 0, 0, 0, 0, 0), False),
                ("pivot_root", (155, 0, 0), False), ("init_module", (175, 0, 0, 0), False),
                ("open_tree", (428, -100, 0, 1), False), ("fsopen", (430, 0, 0), False)):
            with self.subTest(name=name):
                done = self.try_thrice(SYSCALL, *map(str, args), bare=bare)
                self.assertRegex(done.stdout.decode(), "not permitted|not implemented", name)

    def test_privileges(self):
        done = self.walled("print(open('/proc/self/status').read())")
        status = dict(l.split(":\t", 1) for l in done.stdout.decode().splitlines() if ":\t" in l)
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(status[name], 16), 0, name)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))

    def test_terminal_input(self):
        """TIOCSTI and TIOCLINUX: refused by the filter, whatever the kernel is set to."""
        script = ("import fcntl,os,pty\nm,s=pty.openpty()\n"
                  "for call,arg in ((0x5412,b'x'),(0x541C,b'\\x03'),(0x100005412,b'x')):\n"
                  "    try: fcntl.ioctl(s,call & 0xffffffff,arg); print('REACHED')\n"
                  "    except OSError as e: print(e.errno)")
        done = self.try_thrice(script, bare=False)  # off by default since Linux 6.2
        self.assertEqual(done.stdout.split(), [b"1"] * 3, done.stderr)

    def test_debuggers_of_own_children(self):
        """Case 92: ptrace of own children stays."""
        script = ("import ctypes,os,signal\nlibc=ctypes.CDLL(None,use_errno=True)\np=os.fork()\n"
                  "if p==0:\n    libc.ptrace(0,0,0,0); os.kill(os.getpid(),signal.SIGSTOP); os._exit(7)\n"
                  "os.waitpid(p,0); libc.ptrace(7,p,0,0); print(os.WEXITSTATUS(os.waitpid(p,0)[1]))")
        self.assertEqual(self.walled(script).stdout, b"7\n")


class Proc(Wall):
    def test_own(self):
        script = ("import os,sys\nfor p in os.listdir('/proc'):\n"
                  "    if p.isdigit():\n"
                  "        try:\n"
                  "            if sys.argv[1].encode() in open('/proc/'+p+'/cmdline','rb').read() and \\\n"
                  "               int(p)!=os.getpid(): print('REACHED')\n"
                  "        except OSError: pass")
        other = subprocess.Popen([PYTHON, "-c", "import time; time.sleep(60)", MARK + "-other"])
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        self.try_thrice(script, MARK + "-other")

    def test_secrets_of_pid_1(self):
        """Case 88: the launcher's environment holds the mark; nothing inside shows it."""
        done = self.walled(PID_1.replace("MARK", MARK))
        self.assertIn(b"env []", done.stdout, done.stderr)
        self.assertIn(b"bad []", done.stdout, done.stderr)

    def test_nothing_of_the_machine_is_writable(self):
        """/proc and /sys outside /proc/PID: as root the mode alone would decide. Nothing is written.
        /proc/pressure is for everyone (Documentation/accounting/psi.rst): it sets the reader's own alarms."""
        script = ("import os,stat\nn=0\nfor top in ('/proc','/sys','/dev'):\n"
                  "    for at,dirs,files in os.walk(top):\n"
                  "        if at=='/proc': dirs[:]=[d for d in dirs if not d.isdigit() and 'self' not in d]\n"
                  "        if at=='/dev': dirs[:]=[d for d in dirs if d not in ('shm','pts','fd')]\n"
                  "        for f in files:\n"
                  "            p=os.path.join(at,f)\n"
                  "            if p.startswith('/proc/pressure/'): continue\n"
                  "            if p in ('/dev/null','/dev/zero','/dev/full','/dev/random','/dev/urandom','/dev/tty'): continue\n"
                  "            if not stat.S_ISREG(os.lstat(p).st_mode): continue\n"
                  "            n+=1\n"
                  "            try: os.close(os.open(p,os.O_WRONLY)); print('REACHED',p)\n"
                  "            except OSError: pass\nprint('looked',n)")
        done = self.walled(script)
        self.assertFalse(self.crossed(done), done.stdout)
        self.assertGreater(int(done.stdout.split()[-1]), 100, done.stderr)

    def test_no_inherited_descriptors(self):
        script = ("import os\nbad=[]\nfor f in os.listdir('/proc/self/fd'):\n"
                  "    try: l=os.readlink('/proc/self/fd/'+f)\n"
                  "    except OSError: continue\n"
                  "    if int(f)>2: bad.append(l)\nprint('bad',[b for b in bad if 'proc' not in b])")
        with open(self.write(self.home, "open.txt", MARK)) as secret:
            os.set_inheritable(secret.fileno(), True)
            done = self.walled(script, pass_fds=(secret.fileno(),))
        self.assertEqual(done.stdout, b"bad []\n", done.stderr)

    def test_process_limit(self):
        """Also for root, whom RLIMIT_NPROC does not hold."""
        script = ("import os,time\nn=0\ntry:\n    while n<600:\n"
                  "        if os.fork()==0: time.sleep(60); os._exit(0)\n        n+=1\n"
                  "except OSError as e: print('refused', e.errno)\nprint(n)")
        done = self.walled(script, options=["--processes", "60"])
        self.assertIn(b"refused 11", done.stdout, done.stderr)
        self.assertLess(int(done.stdout.split()[-1]), 60 + 20)

    def test_background_dies_with_the_session(self):
        """Case 85: setsid and a deaf ear to TERM do not help."""
        mark = MARK + "-bg-%d" % os.getpid()
        done = self.walled("import subprocess,sys\n"
                           "subprocess.Popen(['setsid',%r,'-c','import signal,time; "
                           "signal.signal(15,1); time.sleep(99)',sys.argv[1]])" % PYTHON, mark)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(wall_lab.processes_with(mark), [])

    def test_exit_codes(self):
        for script, code in (("import sys; sys.exit(7)", 7), ("import os; os.kill(os.getpid(),15)", 143)):
            self.assertEqual(self.walled(script).returncode, code)
        self.assertEqual(self.drive("--rw", self.w, "--", "/no/such").returncode, 127)
        self.assertEqual(self.drive("--rw", self.w, "--", "/etc/passwd").returncode, 126)


class Bubblewrap(Wall):
    def test_another_in_path(self):
        """Case 37."""
        for name in ("bwrap", "cordon-runner", "setsid", "sh"):
            path = self.write(self.w, "bin", name, "#!/bin/sh\ntouch %s/PWN\n" % self.root) \
                if os.makedirs(self.w + "/bin", exist_ok=True) is None else ""
            os.chmod(path, 0o755)
        done = self.walled("print('up')", env={"PATH": f"{self.w}/bin:.:/usr/bin:/bin"})
        self.assertEqual(done.stdout, b"up\n", done.stderr)
        self.assertFalse(os.path.exists(self.root + "/PWN"))

    def test_refusal_names_cause_and_cure(self):
        """No namespaces left for this user: by the kernel's own setting in a namespace of ours."""
        script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\""
        done = subprocess.run(["unshare", "-Ur", "sh", "-c", script, "sh", wall_lab.DRIVER, "--rw", self.w,
                               "--", "/usr/bin/true"], env=self.env, capture_output=True, text=True)
        self.assertEqual(done.returncode, 125, done)
        self.assertRegex(done.stderr, "session_refused: .*namespaces.* \\| .*sysctl")


if __name__ == "__main__":
    wall_lab.main()
