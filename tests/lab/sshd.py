"""A real sshd for the far side: sshd.py FOLDER HOME, on the ports 22 and 2222.

Runs as whoever runs it, root or an ordinary user whose namespace it is, in a mount namespace of its
own: sshd wants passwd entries and a folder in /run. The user is `lab`, whose home is HOME. It makes
in FOLDER: the client's key `id`, `known_hosts` for every name, and `sshd.log`, in which each
connection is a line "Connection from".
"""
import ctypes
import os
import subprocess
import sys

NEWNS = 0x00020000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
libc = ctypes.CDLL(None, use_errno=True)


def call(name, *args):
    if getattr(libc, name)(*args) != 0:
        err = ctypes.get_errno()
        raise OSError(err, f"{name}: {os.strerror(err)}")


def own_places(folder, home):
    """passwd, group and /run as sshd needs them, seen by it alone."""
    call("unshare", NEWNS)
    call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    passwd, group = f"{folder}/passwd", f"{folder}/group"
    with open(passwd, "w") as f:
        f.write(f"lab:x:{os.getuid()}:{os.getgid()}::{home}:/bin/sh\n"
                "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n")
    with open(group, "w") as f:
        f.write(f"lab:x:{os.getgid()}:\nnogroup:x:65534:\n")
    for made, path in ((passwd, b"/etc/passwd"), (group, b"/etc/group")):
        call("mount", made.encode(), path, None, MS_BIND, None)
    call("mount", b"none", b"/run", b"tmpfs", 0, b"mode=755")
    os.mkdir("/run/sshd", 0o755)


def keys(folder):
    for name in ("host", "id"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", f"{folder}/{name}"],
                       check=True)
    with open(f"{folder}/host.pub") as f, open(f"{folder}/known_hosts", "w") as out:
        out.write("* " + f.read())
    with open(f"{folder}/id.pub") as f, open(f"{folder}/authorized_keys", "w") as out:
        out.write(f.read())


def main():
    folder, home = sys.argv[1:]
    own_places(folder, home)
    keys(folder)
    conf = f"{folder}/sshd_config"
    with open(conf, "w") as f:
        f.write(f"""Port 22
Port 2222
HostKey {folder}/host
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
PermitRootLogin yes
LogLevel VERBOSE
Subsystem sftp internal-sftp
""")
    os.execv("/usr/sbin/sshd", ["/usr/sbin/sshd", "-D", "-f", conf, "-E", f"{folder}/sshd.log"])


if __name__ == "__main__":
    main()
