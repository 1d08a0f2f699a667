/* What a session may do, compiled: the one truth that the renderers turn into rules of the kernel.
 *
 * Words: a tier is the policy's name; a provider is the mechanism that enforces it; a profile is
 * data on disk; settings are the user's wishes; a policy is what all of these come to. Pure: what
 * is true of the machine (which folders exist, the kernel's Landlock ABI …) comes in as struct
 * machine.
 *
 * Who may what
 *   decides hosts            cordond alone (hostset), asked by cordon-egress for each request
 *   opens sockets outside    cordon-egress alone, to the address it checked
 *   starts commands          cordon-runner, what cordond tells it, behind the wall it is in itself
 *   reads and writes files   the kernel decides (mounts, Landlock); the runner asks on behalf
 *   writes state and audit   cordond alone
 *
 *     struct policy p = {0};
 *     CHECK(policy_compile(&in, &machine, &p, &err));
 *     view_render(&p, &machine, &view); bwrap_render(…); landlock_render(…); seccomp_render(…);
 *     policy_done(&p); */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "policy/hostset.h"
#include "policy/pathset.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum tier { TIER_WALLED = 0, TIER_AIRLOCK, TIER_GUARDED, TIER_OPEN };
enum net_mode { NET_NONE = 0, NET_ALLOWLIST, NET_OPEN };
enum provider { PROVIDER_UNKNOWN = 0, PROVIDER_BUBBLEWRAP, PROVIDER_SEATBELT, PROVIDER_DIRECT };
enum level { LEVEL_FILES_NETWORK = 0, LEVEL_FILES, LEVEL_NONE }; /* as recorded; see policy_level */
enum read_mode { READS_ONLY_THESE = 0, READS_ALL_BUT };
enum access { ACCESS_NONE = 0, ACCESS_RO, ACCESS_RW };

extern const char *const TIER_NAMES[];     /* "walled" "airlock" "guarded" "open" NULL */
extern const char *const NET_NAMES[];      /* "none" "allowlist" "open" NULL */
extern const char *const PROVIDER_NAMES[]; /* "unknown" "bubblewrap" "seatbelt" "direct" NULL */
extern const char *const LEVEL_NAMES[];    /* "files+network" "files" "none" NULL */

#define POLICY_FOLDERS_MAX 32

/* What is true of this machine; gathered by sandbox/machine, plain data. */
struct machine {
    struct strv system_dirs;  /* real folders that exist: "/usr" "/opt" "/nix" "/snap" … */
    struct strv system_links; /* "bin=usr/bin" "lib64=usr/lib64" …: merged-usr links to make */
    struct strv
        etc_secrets; /* paths below /etc to hide, those that exist or may come: "/etc/shadow" */
    struct strv proc_secrets; /* files of /proc to hide, those that this kernel has: "/proc/keys" */
    int landlock_abi;         /* 0 = none */
    unsigned kernel_major, kernel_minor;
    char kernel[80];
    bool pid_max_per_namespace;
    char *runner, *egress, *fetch; /* absolute, beside the running program */
    char *programs_dir;            /* the folder they lie in: protected */
    char *home;                    /* the account's real home, resolved */
    struct strv home_links;        /* other spellings of it, which are links to it; may be empty */
    /* ~/.gitconfig and ~/.config/git with links resolved, when a regular file and a folder that lie
     * in no protected place. NULL: the plain path is tried. */
    char *gitconfig, *gitdir;
    char *user, *group; /* names, or "user" when there is no passwd entry */
    uid_t uid;
    gid_t gid;
    char *state_dir, *config_dir, *cache_dir, *run_dir; /* Cordon's own: protected */
    struct strv protected_dirs; /* all of them and the credential places, resolved, for grants */
};

struct policy_folder {
    char *id;   /* fol_… */
    char *path; /* as the person spelled it, canonical */
    char *real; /* links resolved */
    enum access access;
    uint64_t dev, ino;
    int64_t born_ns; /* path_born_ns() */
    bool missing;
};
struct policy_limits { /* 0 = none */
    uint64_t processes, open_files, memory_bytes, output_bytes, cpu_percent;
};

struct policy_input {
    enum tier tier;
    enum net_mode network;
    const struct policy_folder *folders;
    size_t n_folders;
    const char *cwd;               /* or NULL: the first folder */
    const char *private_dir;       /* the session's folder below /tmp, outside */
    char *const *caller_env;       /* NAME=VALUE, NULL-terminated: the allow list passes of it */
    json_t *session_env;           /* object of strings: what the session names itself; wins */
    const struct strv *toolchains; /* folders below home, read-only; NULL = none */
    struct policy_limits limits;
    uint16_t door_port;
};

struct policy {
    enum tier tier;
    enum net_mode network;
    enum read_mode reads;
    struct pathset paths; /* every grant and denial, by the paths inside; most specific wins */
    /* Certificate bundles that variables name: read-only, in PATHS too. */
    struct strv config_files, config_dirs;
    struct policy_folder *folders;
    size_t n_folders;
    char *cwd;  /* as seen inside */
    char *home; /* HOME inside: the real home's path */
    char *private_dir;
    struct strv env; /* NAME=VALUE for commands, complete */
    struct policy_limits limits;
    uint16_t door_port;
    struct strv warnings; /* "code: detail" */
};

/* -EINVAL or -EPERM with ERR when it cannot be: code path_invalid or protected_place with pointer
 * /folders/N/path, path_invalid with /cwd, body_invalid with /env/NAME. -ENOTSUP with body_invalid
 * and /tier: guarded and airlock are not in this version. A folder marked missing is kept in
 * FOLDERS and grants nothing.
 *
 * Tier walled: reads only what is granted. Environment: LANG LC_* TERM TZ and the variables that
 * name certificates pass from CALLER_ENV, but for names that hold KEY TOKEN SECRET PASSW CREDENTIAL
 * or AUTH; PATH keeps the folders that are readable inside; HOME TMPDIR XDG_*, the caches and the
 * proxy are set; SESSION_ENV then adds, replaces, and (null) takes away. CORDON_SANDBOXED=1 always.
 * Tier open: everything, and CALLER_ENV whole. */
int policy_compile(const struct policy_input *in, const struct machine *m, struct policy *ret,
                   struct err *err);
void policy_done(struct policy *p);

/* May FOLDER be granted? -EPERM with protected_place when it is home itself, "/", "/tmp" whole, in
 * or around a protected place; -EINVAL/-ENOENT with path_invalid. Fills real, dev, ino. NOT pure:
 * looks at the file system; lives in sandbox/machine. */

/* PATH as it is inside once the links are followed that every view has (merged /usr, other
 * spellings of home and of granted folders). *ret is malloc'ed; PATH is canonical. -ENOMEM. */
int policy_spelling(const struct policy *p, const struct machine *m, const char *path, char **ret);
/* Names that hold logins in ~/.config/git and in a switched-on ~/.cargo: hidden. NULL-ended. */
extern const char *const POLICY_CREDENTIAL_FILES[];
/* A variable of the caller that no wall lets in: its name says that it holds a secret. */
bool env_name_is_secret(const char *name);
/* The value of NAME in P's environment, NULL when unset; borrowed. */
const char *policy_getenv(const struct policy *p, const char *name);

/* LEVEL_NONE for direct, an unknown provider and tier open. */
enum level policy_level(enum provider provider, enum tier tier, enum net_mode network);
/* Is TO at most as wide as FROM? (B4) */
bool tier_is_within(enum tier to, enum tier from);
/* {mode, readable[], writable[] or "unrestricted", protected[], sites[], enforced_by} of REST:
 * mode is the tier, the lists are texts (paths escaped where they are not UTF-8, sites as
 * host_rule_text writes them), enforced_by names the layers. HOSTS may be NULL. */
json_t *policy_to_json(const struct policy *p, const struct machine *m, enum provider provider,
                       const struct hostset *hosts);
void machine_done(struct machine *m);
