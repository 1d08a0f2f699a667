"""What a session sees and gets: environment, /dev, /etc, home under its other names, and that the proof
itself leaves no trace."""
import os
import resource
import shutil
import socket
import subprocess
import unittest

import wall_lab
from wall_lab import DRIVER, MARK, PYTHON, Wall

IS_ROOT = os.geteuid() == 0
ENV = "import json,os; print(json.dumps(dict(os.environ)))"


def times(root):
    return {p: (os.lstat(p).st_mtime_ns, os.lstat(p).st_ctime_ns, os.lstat(p).st_nlink)
            for at, dirs, files in os.walk(root) for p in [at] + [os.path.join(at, n) for n in files]}


class Environment(Wall):
    def environment(self, env, options=()):
        import json
        done = self.walled(ENV, env=env, options=options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_hooks_of_loaders_and_interpreters_and_secrets_do_not_pass(self):
        hooks = ["LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "BASH_ENV", "ENV", "NODE_OPTIONS", "PYTHONSTARTUP",
                 "PYTHONPATH", "PERL5OPT", "RUBYOPT", "GIT_SSH_COMMAND", "GIT_CONFIG_COUNT", "GIT_DIR",
                 "SSH_AUTH_SOCK", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY",
                 "XAUTHORITY", "DOCKER_HOST", "JAVA_TOOL_OPTIONS", "PROMPT_COMMAND", "IFS", "EDITOR", "PAGER"]
        secrets = ["AWS_ACCESS_KEY_ID", "my_token", "GITHUB_TOKEN", "DB_PASSWORD", "X_SECRET", "LC_AUTH",
                   "LC_KEY", "LC_CREDENTIAL", "LC_Token"]
        # a library named in LD_PRELOAD would be looked for by the launcher itself
        given = {n: "/nonexistent/" + MARK for n in hooks + secrets if n != "LD_PRELOAD"}
        given["LD_PRELOAD"] = ""
        inside = self.environment(given)
        self.assertEqual([n for n in hooks + secrets if n in inside and MARK in inside[n]], [])
        self.assertEqual([n for n, v in inside.items() if MARK in v], [])

    def test_what_is_set_and_what_passes(self):
        inside = self.environment({"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TERM": "dumb", "TZ": "Asia/Tokyo"})
        self.assertEqual((inside["LANG"], inside["LC_ALL"], inside["TERM"], inside["TZ"]),
                         ("C.UTF-8", "C.UTF-8", "dumb", "Asia/Tokyo"))
        self.assertEqual((inside["CORDON_SANDBOXED"], inside["GIT_TERMINAL_PROMPT"]), ("1", "0"))
        self.assertEqual(inside["HOME"], self.home)
        for name in ("npm_config_cache", "PIP_CACHE_DIR", "UV_CACHE_DIR", "GOCACHE", "GOMODCACHE",
                     "YARN_CACHE_FOLDER", "XDG_CACHE_HOME", "TMPDIR"):
            self.assertTrue(inside[name].startswith((self.home, "/tmp", "/var/tmp")), (name, inside[name]))
        self.assertNotIn(self.state, " ".join(inside.values()), "no policy and no state of ours")

    def test_path_is_rebuilt_from_what_is_readable(self):
        hidden = next(d for d in ("/srv", "/media", "/mnt", "/boot") if os.path.isdir(d))
        inside = self.environment({"PATH": f"{hidden}:relative::.:/no/such:/usr/bin:/bin"})
        path = inside["PATH"].split(":")
        self.assertIn("/usr/bin", path)
        for bad in (hidden, "relative", "", ".", "/no/such"):
            self.assertNotIn(bad, path)

    def test_a_certificate_bundle_is_bound_read_only(self):
        bundle = self.write(self.root, "pki", "corp.pem", MARK)
        script = ("import os\np=os.environ['SSL_CERT_FILE']; print(open(p).read())\n"
                  "try: open(p,'a'); print('REACHED')\nexcept OSError as e: print(e.errno)\n"
                  "print(os.listdir(os.path.dirname(p)))")
        self.write(self.root, "pki", "other.key", "no")
        done = self.walled(script, env={"SSL_CERT_FILE": bundle})
        self.assertIn(MARK.encode(), done.stdout, done.stderr)
        self.assertFalse(self.crossed(done), done.stdout)
        self.assertNotIn(b"other.key", done.stdout)


class Devices(Wall):
    def test_dev_is_our_own_and_nothing_can_be_made_in_it(self):
        script = ("import os\nfor p in ('/dev/x','/dev/pts/x','/proc/x','/sys/x','/run/x','/var/x','/x'):\n"
                  "    try: open(p,'w'); print('REACHED',p)\n    except OSError: pass\n"
                  "open('/dev/shm/y','w').close()\n"
                  "for n,t in (('null',1),('zero',5),('mem',1),('kmsg',11)):\n"
                  "    print(n, os.path.exists('/dev/'+n))\n"
                  "try: os.mknod('/dev/shm/sda', 0o60600, os.makedev(8,0)); print('REACHED mknod')\n"
                  "except OSError as e: print('mknod', e.errno)\n"
                  "print(sorted(os.listdir('/dev')))")
        done = self.walled(script)
        self.assertFalse(self.crossed(done), done.stdout)
        for line in (b"null True", b"zero True", b"mem False", b"kmsg False", b"mknod 1"):
            self.assertIn(line, done.stdout)
        for name in (b"sda", b"vda", b"kvm", b"fuse", b"loop", b"'dm-"):
            self.assertNotIn(name, done.stdout)

    @unittest.skipUnless(IS_ROOT, "root alone can make a device node")
    def test_a_device_node_in_the_workspace_is_dead(self):
        """Bare, as root, it opens; inside the mount has no devices."""
        node = self.w + "/null"
        os.mknod(node, 0o20666, os.makedev(1, 3))
        os.chmod(node, 0o666)
        script = "import sys; open(sys.argv[1],'w').write('x'); print('REACHED')"
        if not self.crossed(self.bare(script, node)):
            self.skipTest("this file system has no devices")
        self.try_thrice(script, node)

    def test_keys_and_kernel_memory_of_proc_are_closed(self):
        script = ("import sys\nfor n in sys.argv[1:]:\n"
                  "    try: open('/proc/'+n,'rb').read(1); print('REACHED', n)\n"
                  "    except OSError as e: print(n, e.errno)")
        names = ["keys"] + (["timer_list", "vmallocinfo", "kpagecount"] if IS_ROOT else [])
        names = [n for n in names if os.path.exists("/proc/" + n)]
        self.assertGreater(len(names), 0)
        self.try_thrice(script, *names)

    def test_setuid_programs_give_nothing(self):
        program = self.w + "/id"
        shutil.copy("/usr/bin/id", program)
        os.chmod(program, 0o6755)
        done = self.walled("import os,subprocess,sys; s=subprocess.run([sys.argv[1]],capture_output=True,text=True).stdout;"
                           "print(s); print(os.statvfs(os.path.dirname(sys.argv[1])).f_flag & os.ST_NOSUID)", program)
        self.assertEqual(done.stdout.split()[-1], b"2", done.stderr)
        self.assertIn(b"uid=%d(" % os.geteuid(), done.stdout)


class Crash(Wall):
    def test_a_crash_leaves_no_core_and_starts_no_handler_of_the_host(self):
        """core(5): 1 is the value for which the kernel starts no program of core_pattern."""
        done = self.walled("import os,resource\nprint(resource.getrlimit(resource.RLIMIT_CORE))\n"
                           "try: resource.setrlimit(resource.RLIMIT_CORE,(2,2)); print('REACHED')\n"
                           "except ValueError: pass\n"
                           "if os.fork()==0: os.abort()\nprint(os.WCOREDUMP(os.wait()[1]))")
        inherited = resource.getrlimit(resource.RLIMIT_CORE)[1]
        want = "(0, 0)" if inherited == 0 else "(1, 1)"
        self.assertEqual(done.stdout.decode(), want + "\nFalse\n", done.stderr)
        self.assertEqual(os.listdir(self.w), [])


class Supervisors(Wall):
    # case 88
    def test_neither_pid_1_nor_the_supervisor_can_be_looked_into(self):
        script = ("import ctypes,os\nlibc=ctypes.CDLL(None,use_errno=True)\nown=os.getpid()\n"
                  "def trial(pid):\n"
                  "    bad=[]\n"
                  "    for f in ('environ','mem','maps','syscall'):\n"
                  "        try: open('/proc/%d/%s'%(pid,f),'rb').read(1); bad.append(f)\n"
                  "        except OSError: pass\n"
                  "    for f in ('exe','root','cwd','fd/0','fd/3'):\n"
                  "        try: os.readlink('/proc/%d/%s'%(pid,f)); bad.append(f)\n"
                  "        except OSError: pass\n"
                  "    p=libc.syscall(434,pid,0)\n"
                  "    if p<0 or libc.syscall(438,p,0,0)>=0: bad.append('pidfd')\n"
                  "    if libc.ptrace(0x4206,pid,0,0)==0: bad.append('ptrace')\n"
                  "    return bad\n"
                  "child=os.fork()\n"
                  "if child==0: os.read(os.pipe()[0],1)\n"
                  "print('control', 'pidfd' in trial(child), 'environ' in trial(child))\nos.kill(child,9)\n"
                  "print(trial(1), trial(os.getppid()), os.getppid()!=1)")
        done = self.walled(script)
        self.assertEqual(done.stdout.decode().splitlines(), ["control True True", "[] [] True"], done.stderr)


class Homes(Wall):
    def test_a_home_that_is_a_link_works_by_both_names(self):
        link = self.root + "/link"
        os.symlink("home", link)
        project = self.home + "/project"
        os.mkdir(project)
        for home in (self.home, link):
            for granted in (project, link + "/project"):
                done = self.walled("import os,sys\nfor p in sys.argv[1:]: open(p+'/f','a').close()\n"
                                   "h=os.path.expanduser('~'); open(h+'/own','w').close()\n"
                                   "print(os.path.realpath(h)==os.path.realpath(os.environ['HOME']),"
                                   "'secret.txt' in os.listdir(h))", project, rw=[granted],
                                   env={"HOME": home}, options=["--state", self.root + "/state"])
                self.assertEqual(done.stdout, b"True False\n", done.stderr)
                self.assertFalse(os.path.exists(self.home + "/own"))
        self.assertEqual(os.listdir(project), ["f"])


class Traces(Wall):
    def test_the_proof_changes_no_name_and_no_time(self):
        keep = self.root + "/keep"
        os.mkdir(keep)
        self.write(self.w, "file", "x")
        before = times(self.w), times(keep)
        done = self.drive("--state", self.root + "/state", "--rw", self.w, "--ro", keep, "--proof")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual((times(self.w), times(keep)), before)

    def test_a_hard_link_to_a_secret_made_by_the_host_is_the_hosts_to_see(self):
        """Case 19: a name in the workspace is granted with what it names; the agent can make none itself."""
        secret = self.write(self.home, "private.txt", MARK)
        os.link(secret, self.w + "/linked")
        done = self.walled("import os\nprint(open('linked').read())\n"
                           "try: os.link('/etc/passwd','p'); print('REACHED')\nexcept OSError as e: print(e.errno)")
        self.assertIn(MARK.encode(), done.stdout)
        self.assertFalse(self.crossed(done))


class Start(Wall):
    @unittest.skipUnless(IS_ROOT, "root alone can give ambient capabilities away")
    def test_ambient_capabilities_of_the_launcher_are_dropped(self):
        """bubblewrap refuses to start with them."""
        os.chmod(self.root, 0o755)
        for d in (self.home, self.w):
            os.chown(d, 61235, 61235)
        os.chown(self.state, 61235, 61235)
        args = [DRIVER, "--state", self.root + "/state", "--rw", self.w, "--", PYTHON, "-c",
                "print([l.split()[1] for l in open('/proc/self/status') if l.startswith('Cap')])"]
        done = subprocess.run(["setpriv", "--reuid=61235", "--regid=61235", "--clear-groups", "--inh-caps=+net_bind_service,+sys_nice",
                               "--ambient-caps=+net_bind_service,+sys_nice", *args], env=self.env,
                              capture_output=True, cwd="/")
        self.assertEqual(done.stdout, b"%s\n" % str(["0" * 16] * 5).encode(), done.stderr)


class Sockets(Wall):
    # case 67
    def test_sockets_where_services_have_theirs(self):
        """docker, D-Bus, agents, tmux: made where this user can, reached bare, absent inside."""
        places = ["%s/run/%s" % (self.home, n) for n in ("docker.sock", "bus", "S.gpg-agent", "ssh-agent")]
        places.append("/tmp/tmux-%d-%d" % (os.geteuid(), os.getpid()))
        if IS_ROOT:
            places += ["/run/docker-%d.sock" % os.getpid(), "/run/dbus-%d.sock" % os.getpid(), "/var/tmp/x-%d" % os.getpid()]
        connect = "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('REACHED')"
        os.mkdir(self.home + "/run")
        for path in places:
            with self.subTest(path=path), socket.socket(socket.AF_UNIX) as s:
                s.bind(path)
                self.addCleanup(os.unlink, path)
                s.listen(8)
                self.try_thrice(connect, path)

    # case 67
    def test_a_socket_in_the_workspace_is_reachable_as_the_readme_says(self):
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(self.w + "/s")
            s.listen(1)
            done = self.walled("import socket; socket.socket(socket.AF_UNIX).connect('s'); print('REACHED')")
        self.assertTrue(self.crossed(done), done.stderr)
        with open(os.path.join(wall_lab.SOURCE, "README.md")) as f:
            self.assertIn("a socket of the host inside a granted writable folder | reachable", f.read())


if __name__ == "__main__":
    wall_lab.main()
