"""The dependency table of the rooms, as data. A room's files may include headers of their own room
and of those listed here. Change it together with the code that needs it, with a reason."""

ROOMS = {
    "base": set(),
    "wire": {"base"},
    "policy": {"base", "wire"},
    # The view and the lock-down are rendered straight into wire/order and wire/rules, so that what
    # the golden files show is what travels.
    "render": {"base", "policy", "wire"},
    "store": {"base"},
    "config": {"base", "policy", "store"},
    "sandbox": {"base", "wire", "policy", "render"},
    "session": {"base", "wire", "policy", "store", "config", "sandbox"},
    "api": {"base", "policy", "store", "config", "session"},
    "daemon": {"base", "wire", "policy", "render", "store", "config", "sandbox", "session", "api"},
    "egress": {"base", "wire"},
    # It dials by the egress's own dialler and locks itself down like it: one guard of addresses.
    "fetch": {"base", "wire", "egress"},
    "runner": {"base", "wire"},
    "cli": {"base", "wire"},
}

# Generated headers (server/embed.cmake) and the room that reads each.
GENERATED = {
    "schema_sql.h": {"store"},
    "schema_openapi.h": {"api"},
    "webui_files.h": {"api"},
    "profiles.h": {"render"},
}

# A library's header -> the only places that may include it: a file, or a room.
LIBRARIES = {
    "microhttpd.h": {"api/http.c", "api/http_intake.c", "api/http_gate.c", "api/http_wait.c", "api/http_reply.c"},
    "sqlite3.h": {"store"},
    "seccomp.h": {"render/seccomp.c"},
    "curl/curl.h": {"fetch"},
}

# Rooms that know no clock, file, socket, process or log: what they may not call.
PURE = {"wire", "policy", "render"}
IMPURE_HEADERS = {
    "base/log.h", "base/loop.h", "base/child.h", "base/fd.h", "uv.h", "fcntl.h", "unistd.h",
    "sys/wait.h", "spawn.h", "signal.h", "dirent.h", "sys/prctl.h", "netdb.h", "time.h",
}
# wire/msg takes the number of descriptors a message may carry from base/fd, and nothing else.
IMPURE_ALLOWED = {
    ("wire/msg.c", "base/fd.h"),
    # libseccomp hands its program out through a descriptor only: a memfd, closed at once
    ("render/seccomp.c", "unistd.h"),
}
