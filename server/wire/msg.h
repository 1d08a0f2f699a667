/* Every message between Cordon's programs: kinds, who may send what and when, with how many
 * descriptors, and how each payload is laid out (wire/pack). The numbers of descriptors in
 * children.
 *
 * Channels, each an AF_UNIX stream socketpair made by the daemon:
 *   control   daemon <-> cordon-runner: first `stage` outside the wall, then, on the same socket,
 * the runner inside. The stage reads exactly one frame (the order) and not a byte more.
 *   command   daemon <-> the supervisor of one command, made for M_START and sent with it.
 *   egress    daemon <-> cordon-egress.
 *   fetch     daemon <-> cordon-fetch.
 * All that comes up a channel is hostile: the daemon checks kind, phase, length, ids
 * and the number of descriptors, and kills the sender on nonsense. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Descriptor numbers in children. 0, 1 are /dev/null, 2 is the daemon's log. */
enum child_fd {
    FD_CONTROL = 3,
    FD_EGRESS = 3,
    FD_FETCH = 3,
    FD_BWRAP_ARGS = 4, /* where the stage puts the two that come with M_STAGE_ORDER */
    FD_BWRAP_FILTER = 5
};

enum msg_kind {
    M_NONE = 0,
    /* control, down */
    M_STAGE_ORDER = 1, /* wire/order.h. 2 fds: bubblewrap's arguments, seccomp filter; up
                        * to 3 more: cgroup.procs of the groups to enter */
    M_LOCKDOWN = 2,    /* wire/rules.h. Once, before anything else reaches the runner */
    M_PROBE = 3,       /* u32 id, u8 kind (enum probe_kind), str path, u32 port, str text */
    M_START = 4,       /* u32 id, u32 flags (START_*), strv argv, strv env, str cwd, u64 umask.
                        * 4 fds: stdin, stdout, stderr, command channel (the supervisor's end) */
    M_TOOL = 5,        /* wire/tool.h: u32 id, u8 op, fields. 0 or 1 fd (content to write) */
    M_TERM_ALL = 6,    /* empty: SIGTERM to every process but the runner and its supervisors */
    M_LISTEN = 7,      /* u32 id, u16 port: on 127.0.0.1 and ::1 inside */
    M_CONNECT = 8,     /* u32 id, u16 port: to 127.0.0.1 inside, else ::1 */
    /* control, up */
    M_DOORS = 32,        /* u8 count; COUNT fds, listening sockets in the order's order */
    M_STAGE_FAILED = 33, /* u32 child exit code (base/err: enum child_exit), u32 errno, str what */
    M_READY = 34,        /* u32 landlock abi, str failure ("" = locked down and ready for calls) */
    M_PROBED = 35,       /* u32 id, u32 errno (0 = it worked), str text */
    M_START_FAILED = 36, /* u32 id, u8 stage (enum start_stage), u32 errno: it never ran */
    M_TOOLED = 37,       /* wire/tool.h: u32 id, u32 errno, u8 layer, u8 fds, fields. FDS fds */
    M_LISTENING = 38,    /* u32 id, u32 errno, u8 count. COUNT fds, listening: IPv4, then IPv6 */
    M_CONNECTED = 39,    /* u32 id, u32 errno, u8 count. COUNT fds (1), connected or about to be */
    /* command, down */
    M_CMD_SIGNAL = 64, /* u32 signal, u8 to (enum signal_to) */
    /* command, up */
    M_CMD_STARTED = 96, /* u32 pid inside */
    M_CMD_FAILED = 97,  /* u8 stage, u32 errno: it never ran; the channel closes */
    M_CMD_EXIT = 98,    /* u8 signaled, u32 code or signal, u64 cpu_us, u64 max_rss_bytes, str cwd:
                         * the command's own process ended */
    M_CMD_GONE = 99,    /* empty: no descendant lives any more; the channel closes */
    /* egress, down */
    M_EG_START = 128,   /* wire/egress.h. COUNT fds: the doors */
    M_EG_VERDICT = 129, /* u32 conn, u32 request, u8 verdict (enum eg_verdict), u8 flags
                         * (EG_ALLOW_PRIVATE), str reason, str rule, str hint, str via
                         * ("host:port" of the proxy to go through; empty = none), str
                         * authorization (for it) */
    M_EG_CUT = 130,     /* u32 conn: close it now (its site was taken back) */
    M_EG_FILE = 131,   /* u8 file (enum eg_file), u8 readable. 1 fd: a memfd with what it holds now,
                        * empty when it is not readable */
    M_EG_LISTEN = 132, /* u8 door (EG_DOOR_LOCAL, EG_DOOR_PUBLISH), u16 port. 1 fd, listening */
    M_EG_UNLISTEN = 133, /* u8 door, u16 port: no more of it */
    M_EG_SOCKET = 134,   /* u32 conn, u32 request. 1 fd: allowed, and this is the other side
                          */
    M_EG_NAMES = 135, /* empty; before M_EG_START, or never. 1 fd: SYNTHETIC_NAMES_BYTES of memory
                       * for the names inside, which outlives this egress */
    /* egress, up */
    M_EG_READY = 160, /* str failure ("" = locked down and accepting) */
    M_EG_CHECK =
        161, /* u32 conn, u32 request, u8 door (enum eg_door), str host (canonical), u16 port */
    M_EG_RESULT =
        162, /* u32 conn, u32 request, u8 outcome (enum eg_outcome), str address, str detail */
    M_EG_CLOSED = 163, /* u32 conn, u32 request, u64 bytes up, u64 bytes down, u8 opaque */
    M_EG_REFUSED =
        164,          /* u32 conn, str host as it came (escaped), str why: never reached a check */
    M_EG_STALE = 165, /* u8 file (enum eg_file): it changed, and the lock-down is of what it was */
    /* fetch, down */
    M_FT_START = 192,   /* wire/fetch.h. Once, before anything else */
    M_FT_VERDICT = 193, /* u8 verdict (enum eg_verdict), u8 flags (EG_ALLOW_PRIVATE), str via, str
                         * authorization (as M_EG_VERDICT): one for each M_FT_CHECK, whenever it is
                         * there */
    /* fetch, up */
    M_FT_CHECK = 224,  /* str url (canonical), str host (canonical), u16 port: the next hop */
    M_FT_OPENED = 225, /* str address: connected */
    M_FT_HEAD = 226,   /* u32 status, str content type: of the last answer */
    M_FT_BODY = 227,   /* bytes of what was made of it */
    M_FT_RESULT = 228, /* str title, str url, str snippet: one of a search */
    M_FT_END = 229     /* u8 end (enum fetch_end), u8 is text, u8 truncated, str detail */
};

enum start_stage { START_AT_WALL = 0, START_AT_CWD, START_AT_EXEC, START_AT_LIMIT };
enum { START_STDIN_NULL = 1 }; /* the stdin descriptor is /dev/null: told for the record only */
enum signal_to { SIGNAL_TO_LEADER = 0, SIGNAL_TO_GROUP, SIGNAL_TO_TREE };

/* What the proof asks the runner to try (session/proof judges). errno 0 = it worked. */
enum probe_kind {
    PROBE_NONE = 0,
    PROBE_WRITE_DIR, /* O_TMPFILE in PATH; text: "tmpfile", or "access" where not supported */
    PROBE_READ_DIR,  /* open and list PATH; text: number of entries */
    PROBE_READ_FILE, /* open PATH and read; text: first bytes */
    PROBE_LINK_FILE, /* linkat(PATH, a name in TMPDIR) */
    PROBE_STAT,      /* lstat PATH; text: "DEV INO MODE", decimal, decimal, octal */
    PROBE_TCP,       /* connect to PATH (address) : PORT */
    PROBE_UDP,       /* connect and send to PATH : PORT */
    PROBE_UNIX,      /* connect to the socket PATH */
    PROBE_PROXY,     /* CONNECT text (host:port) through the door PATH:PORT; text: status line */
    PROBE_FDS, /* text: the open descriptors that are not the runner's own; errno EBADF if any */
    PROBE_PRIVILEGES,  /* text: "cap=… nnp=… seccomp=…" of /proc/self/status */
    PROBE_USERNS,      /* unshare(CLONE_NEWUSER) in a child */
    PROBE_FOREIGN_ABI, /* a foreign-ABI system call in a child; text: how it ended */
    PROBE_PROC,        /* PATH read through /proc/PID/root of every PID; text: the pids in /proc */
    PROBE_LIMITS, /* text: "nofile=… nproc=… pids=…"; pids: which task was refused when PORT of
                   * them were tried, 0 = none, or not tried (PORT 0) */
    PROBE_READ_ONLY,  /* PATH lies on a read-only mount, whatever its mode; errno EACCES if not */
    PROBE_WRITE_FILE, /* open PATH for writing; nothing is written */
    PROBE_NAME,       /* ask the name server inside for the host TEXT (PATH "v4" or "v6": which
                       * kind of address), then as PROBE_END there; text: the address */
    PROBE_END,        /* connect to PATH:PORT and wait for its end: errno ECONNRESET, or 0 when it
                       * came in order */
    PROBE_STAYS       /* a datagram for PATH comes to a socket of our own */
};

enum eg_door {
    EG_DOOR_CONNECT = 0,
    EG_DOOR_HTTP,
    EG_DOOR_SOCKS5,
    EG_DOOR_SOCKS4,
    EG_DOOR_REDIRECT,
    EG_DOOR_TLS_NAME, /* not a door: the server name within an open tunnel, when it is not the
                       * tunnel's host. No result and no end is told of it */
    EG_DOOR_LOCAL,    /* inside, on a port that stands for a service of the host's loopback */
    EG_DOOR_PUBLISH   /* on the host's loopback, a port that stands for a server inside */
};
/* Set in the request number of an EG_DOOR_TLS_NAME check; the other bits are the tunnel's. */
#define EG_NAME_REQUEST 0x80000000u
enum eg_verdict {
    EG_DENY = 0,
    EG_ALLOW,
    EG_ANSWER_SELF, /* the proof's own name: answered by the egress with 200, never dialled */
    EG_HOLD         /* a person is asked: a further verdict follows. A client that gives up
                     * meanwhile is told by M_EG_CLOSED */
};
enum {
    EG_ALLOW_PRIVATE = 1,
    EG_ALLOW_LOOPBACK = 2 /* "localhost" is the host's 127.0.0.1, else ::1, and nothing else */
};
/* What the resolver of the egress reads, and the daemon reads again for it. */
enum eg_file { EG_FILE_RESOLV = 0, EG_FILE_HOSTS, EG_FILES };
enum eg_outcome {
    EG_FAILED = 0,     /* anything not below */
    EG_OPENED,         /* connected to ADDRESS */
    EG_ADDRESS_CLASS,  /* resolved to refused addresses only; detail: class and address */
    EG_OWN_PORT,       /* Cordon's own port */
    EG_RESOLVE_FAILED, /* no such name, or the resolver failed */
    EG_CONNECT_FAILED, /* refused, unreachable */
    EG_TIMED_OUT
};

/* One row a kind. */
struct msg_rule {
    uint8_t kind;
    uint8_t fds_min, fds_max;
    uint32_t payload_max;
    const char *name;
};
/* NULL for an unknown kind. */
const struct msg_rule *msg_rule(uint8_t kind);

/* How many of the QUEUED descriptors (received so far and not yet taken) belong to this frame; for
 * M_EG_START all of them. -EBADMSG: unknown kind, too long a payload, or fewer queued than needed.
 * The owner of a socket asks this for each frame, and treats descriptors that are left when no
 * frame is under way as nonsense. */
struct frame;
int msg_fds(const struct frame *f, size_t queued);
