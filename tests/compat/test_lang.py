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

    def test_npm_asks_a_registry(self):
        """Cases 8, 29 and 68: from a registry on a loopback port inside, by npm and npx; versions and
        files land in the folder, the cache in the private home."""
        (self.dir / "r.py").write_text(REGISTRY)
        out = self.inside("python3 r.py >port & timeout 60 sh -c 'until test -s port; do sleep 0.05; done'; r=http://localhost:$(cat port); mkdir app; cd app;"
                          "npm init -y >/dev/null; npm install --silent --registry $r pad@1; node -p 'require(\"pad\")';"
                          "npx -y --registry $r cow hi; npm version --no-git-tag-version patch; npm ls --parseable | wc -l", timeout=400)
        self.assertEqual(out.split(), ["1.0.0", "cow:hi", "v1.0.1", "2"])
        self.assertEqual(sorted(os.listdir(self.dir / "app")), ["node_modules", "package-lock.json", "package.json"])
        self.assertFalse((self.box.home / ".npm").exists())

    def test_npm_installs_a_folder_as_a_link(self):
        """Case 8: `npm i ../repo` in a repository within a repository."""
        out = self.inside("git init -q repo; cd repo; npm init -y >/dev/null; echo 'module.exports=8' >index.js; cd ..; mkdir sub; cd sub;"
                          "git init -q; git clone -q ../repo c 2>/dev/null; npm init -y >/dev/null; npm i --silent --offline ../repo;"
                          "node -p 'require(\"repo\")'; test -L node_modules/repo; ls .git/hooks | head -1", timeout=400)
        self.assertTrue(out.startswith("8\n"), out)
        self.assertIn(".sample", out)


REGISTRY = r"""
import base64, hashlib, http.server, io, json, tarfile
def packed(name, files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w:gz') as tar:
        for path, text in files.items():
            info = tarfile.TarInfo('package/' + path)
            info.size, info.mode = len(text), 0o755
            tar.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()
META = {'pad': {'main': 'i.js'}, 'cow': {'bin': {'cow': 'c.js'}}}
FILES = {'pad': {'i.js': "module.exports = require('./package.json').version\n"},
         'cow': {'c.js': "#!/usr/bin/env node\nconsole.log('cow:' + process.argv[2])\n"}}
TAR = {n: packed(n, {**f, 'package.json': json.dumps({'name': n, 'version': '1.0.0', **META[n]})}) for n, f in FILES.items()}
class H(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a):
        pass
    def do_GET(self):
        name = self.path.strip('/').split('/')[0]
        body = TAR.get(name)
        if body and not self.path.endswith('.tgz'):
            url = 'http://%s/%s/-/%s-1.0.0.tgz' % (self.headers['Host'], name, name)
            sri = 'sha512-' + base64.b64encode(hashlib.sha512(body).digest()).decode()
            v = {'name': name, 'version': '1.0.0', **META[name], 'dist': {'tarball': url, 'integrity': sri}}
            body = json.dumps({'name': name, 'dist-tags': {'latest': '1.0.0'}, 'versions': {'1.0.0': v}}).encode()
        self.send_response(200 if body else 404)
        self.send_header('Content-Length', str(len(body or b'')))
        self.end_headers()
        self.wfile.write(body or b'')
s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), H)
print(s.server_port, flush=True)
s.serve_forever()
"""

if __name__ == "__main__":
    unittest.main()
