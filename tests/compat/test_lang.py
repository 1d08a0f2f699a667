"""Interpreters and their package tools behind the wall (cases 28, 29, 38, 40)."""
import os
import unittest

from box import BoxCase, need


class Python(BoxCase):
    def test_venv_and_pip(self):
        need(self, "python3")
        out = self.inside("python3 -m venv v; v/bin/pip --version; v/bin/python -c 'import ssl,sqlite3,json;print(1)'", timeout=300)
        self.assertIn("pip", out)

    def test_pip_installs_a_local_package(self):
        need(self, "python3")
        (self.dir / "p").mkdir()
        (self.dir / "p" / "m.py").write_text("X = 7\n")
        (self.dir / "p" / "pyproject.toml").write_text(
            '[build-system]\nrequires=[]\nbuild-backend="b"\nbackend-path=["."]\n[project]\nname="m"\nversion="1"\n')
        (self.dir / "p" / "b.py").write_text(
            "import zipfile\n"
            "def build_wheel(d, config_settings=None, metadata_directory=None):\n"
            "    n='m-1-py3-none-any.whl'\n"
            "    with zipfile.ZipFile(d+'/'+n,'w') as z:\n"
            "        z.write('m.py')\n"
            "        z.writestr('m-1.dist-info/METADATA','Metadata-Version: 2.1\\nName: m\\nVersion: 1\\n')\n"
            "        z.writestr('m-1.dist-info/WHEEL','Wheel-Version: 1.0\\nGenerator: b\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n"
            "        z.writestr('m-1.dist-info/RECORD','m.py,,\\nm-1.dist-info/METADATA,,\\nm-1.dist-info/WHEEL,,\\nm-1.dist-info/RECORD,,\\n')\n"
            "    return n\n")
        out = self.inside("python3 -m venv v; v/bin/pip install -q --no-index --no-build-isolation ./p; v/bin/python -c 'import m;print(m.X)'", timeout=300)
        self.assertEqual(out, "7\n")

    def test_multiprocessing(self):
        """Case 28: semaphores live in /dev/shm."""
        (self.dir / "m.py").write_text(
            "import multiprocessing as m\nfrom concurrent.futures import ProcessPoolExecutor as P\n"
            "if __name__ == '__main__':\n"
            "    m.Semaphore(); m.Queue(); s = m.Manager().list([1]); s.append(2)\n"
            "    print(list(P(2).map(abs, [-1, 2])), list(s))\n")
        self.assertEqual(self.inside("python3 m.py"), "[1, 2] [1, 2]\n")

    def test_shared_memory_is_private(self):
        self.inside("dd if=/dev/zero of=/dev/shm/mine bs=1M count=200 2>/dev/null; df /dev/shm >/dev/null")
        self.assertFalse(os.path.exists("/dev/shm/mine"))
        other = self.box.sb("ls -A /dev/shm")
        self.assertEqual((other.returncode, other.stdout), (0, b""))
        self.inside("rm /dev/shm/mine")

    def test_sockets_below_tmpdir(self):
        """Case 38: TMPDIR inside is short whatever it is outside."""
        env = dict(self.box.env, TMPDIR="/tmp/" + "a" * 120)
        done = self.box.run("python3", "-c", "import tempfile,socket;s=socket.socket(socket.AF_UNIX);"
                            "s.bind(tempfile.mkdtemp()+'/s.sock');print('bound')", env=env)
        self.assertEqual(self.ok(done), "bound\n")

    def test_who_am_i(self):
        """Case 40: the name resolves inside by every way of asking, and HOME agrees."""
        out = self.inside("id -u; id -un; whoami; getent passwd $(id -u) | cut -d: -f6; echo $HOME;"
                          "python3 -c 'import getpass,os,pathlib;print(getpass.getuser(),pathlib.Path.home())'").split()
        self.assertEqual(out[0], str(os.getuid()))
        self.assertEqual(len({out[1], out[2], out[5]}), 1)
        self.assertEqual(len({out[3], out[4], out[6]}), 1)
        self.assertEqual(out[4], str(self.box.home))


class Node(BoxCase):
    def setUp(self):
        need(self, "node", "npm")
        super().setUp()

    def test_node(self):
        out = self.inside("node -p 'require(\"os\").userInfo().username + \" \" + require(\"os\").cpus().length'", timeout=200)
        self.assertEqual(out.split()[0], self.inside("id -un").strip())
        self.assertGreater(int(out.split()[1]), 0)

    def test_worker_threads_and_children(self):
        (self.dir / "w.js").write_text(
            "const {Worker,isMainThread,parentPort}=require('worker_threads');\n"
            "if(isMainThread){const w=new Worker(__filename);w.on('message',m=>{console.log(m,"
            "require('child_process').execSync('echo child').toString().trim())})}else parentPort.postMessage('thread')\n")
        self.assertEqual(self.inside("node w.js", timeout=200), "thread child\n")

    def test_npm_installs_a_local_package(self):
        """Cases 8 and 29: its cache goes to the private home."""
        (self.dir / "lib").mkdir()
        (self.dir / "lib" / "package.json").write_text('{"name":"lib","version":"1.0.0","main":"i.js"}')
        (self.dir / "lib" / "i.js").write_text("module.exports=7\n")
        out = self.inside("npm pack --silent ./lib >/dev/null; mkdir app; cd app; npm init -y >/dev/null;"
                          "npm install --silent --offline ../lib-1.0.0.tgz; node -p 'require(\"lib\")'; npm config get cache", timeout=300)
        self.assertIn("7\n", out)
        self.assertIn(str(self.box.home / ".cache" / "npm"), out)
        self.assertFalse((self.box.home / ".npm").exists())
        self.assertFalse((self.box.home / ".cache" / "npm").exists())


if __name__ == "__main__":
    unittest.main()
