/* Runs in: daemon. Reads: trusted. May block: no.
 *
 * The table of all sessions that live, and what they share. */
#include "base/log.h"
#include "session/parts.h"
#include "store/records.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SWEEP_AGE_S 60 /* younger ones may be another daemon's */

/* ---- What was not written ----------------------------------------------------------------------
 */

/* Lists in memory may hold what the store did not take. */
static void rolled_back(struct watch *w)
{
    sessions_sites_changed(container_of(w, struct sessions, rollback_watch));
}

/* Whether anybody is asked may have changed. */
static void settings_changed(struct watch *w)
{
    struct sessions *ss = container_of(w, struct sessions, settings_watch);
    for (size_t i = 0; i < ss->n; i++)
        session_asks_recheck(ss->items[i]);
}

/* ---- Life -------------------------------------------------------------------------------------
 */

static void sessions_closed(struct closing *closing)
{
    struct sessions *ss = container_of(closing, struct sessions, closing);
    watch_remove(&ss->rollback_watch);
    watch_remove(&ss->settings_watch);
    fd_close(ss->control_fd);
    fd_close(ss->null_fd);
    sessions_sets_drop(ss);
    json_decref(ss->last_checks);
    free(ss);
}

void sessions_free(struct sessions *ss)
{
    if (!ss)
        return;
    closing_start(&ss->closing);
}

/* A listener on the host's loopback that nobody serves: from inside it must not be reached, from
 * here it is. */
static int open_control(struct sessions *ss)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (bind(fd, (struct sockaddr *)&at, n) < 0 || listen(fd, 1) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &n) < 0) {
        int r = -errno;
        fd_close(fd);
        return r;
    }
    ss->control_fd = fd;
    ss->control_port = ntohs(at.sin_port);
    return 0;
}

/* The same path inside: every wall shows the host's system folders. */
static const char *find_shell(void)
{
    static const char *const shells[] = {"/bin/bash", "/usr/bin/bash"};
    for (size_t i = 0; i < ARRAY_LEN(shells); i++)
        if (access(shells[i], X_OK) == 0)
            return shells[i];
    return "/bin/sh";
}

static void drain_passed(struct deadline *d);

int sessions_new(const struct sessions_deps *deps, struct sessions **ret, struct err *err)
{
    struct sessions *ss = calloc(1, sizeof *ss);
    if (!ss)
        return err_set(err, -ENOMEM, "internal", NULL, "out of memory");
    ss->deps = *deps;
    ss->control_fd = -1;
    closing_init(&ss->closing, sessions_closed);
    ss->rollback_watch.changed = rolled_back;
    watch_add(db_rolled_back(deps->db), &ss->rollback_watch);
    ss->settings_watch.changed = settings_changed;
    watch_add(settings_watched(deps->settings), &ss->settings_watch);
    deadline_init(deps->loop, &ss->drain, &ss->closing, drain_passed);
    ss->shell = find_shell();
    ss->umask = umask(077);
    ss->null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int r = ss->null_fd < 0 ? -errno : open_control(ss);
    if (r < 0) {
        closing_start(&ss->closing);
        return err_set(err, r, "internal", NULL, "no listener on the loopback: %s", strerror(-r));
    }
    *ret = ss;
    return 0;
}

/* Folders of status checks are empty, so that rmdir(2) takes only those of ours: no more is lost
 * than the name. */
static void sweep_checks(void)
{
    static const char prefix[] = "cordon.check.";
    DIR *dir = opendir("/tmp");
    struct stat st;
    if (!dir)
        return;
    for (struct dirent *e; (e = readdir(dir));)
        if (str_starts(e->d_name, prefix) &&
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            st.st_uid == geteuid() && time(NULL) - st.st_mtime > SWEEP_AGE_S)
            (void)unlinkat(dirfd(dir), e->d_name, AT_REMOVEDIR);
    (void)closedir(dir);
}

/* Canaries of proofs that a killed daemon left: the state folder has one daemon at a time. */
static void sweep_canaries(const struct machine *m)
{
    DIR *dir = opendir(m->state_dir);
    if (!dir)
        return;
    for (struct dirent *e; (e = readdir(dir));) {
        const char *name = e->d_name;
        if (str_starts(name, CANARY_PREFIX) &&
            strspn(name + sizeof CANARY_PREFIX - 1, "0123456789abcdef") == 16 &&
            strlen(name) == sizeof CANARY_PREFIX - 1 + 16)
            (void)unlinkat(dirfd(dir), name, 0);
    }
    (void)closedir(dir);
}

void sessions_sweep(struct sessions *ss)
{
    sweep_checks();
    sweep_canaries(ss->deps.machine);
    (void)wall_sweep();
    int n = private_sweep();
    if (n != 0)
        log_info("private.swept", "folders=%d", n);
}

size_t sessions_alive(const struct sessions *ss)
{
    return ss->n;
}

void sessions_set_ports(struct sessions *ss, const uint16_t *ports, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(ss->deps.api_ports); i++)
        ss->deps.api_ports[i] = i < n ? ports[i] : 0;
}

struct session *session_find(struct sessions *ss, const char *id)
{
    for (size_t i = 0; i < ss->n; i++)
        if (strcmp(ss->items[i]->id, id) == 0)
            return ss->items[i];
    return NULL;
}

static void all_stopped(struct sessions *ss)
{
    void (*stopped)(void *arg) = ss->stopped;
    if (!ss->is_stopping || ss->n > 0 || !stopped)
        return;
    ss->stopped = NULL;
    stopped(ss->stopped_arg);
}

void sessions_remove(struct sessions *ss, struct session *s)
{
    for (size_t i = 0; i < ss->n; i++) {
        if (ss->items[i] != s)
            continue;
        ss->items[i] = ss->items[--ss->n];
        session_unref(s);
        break;
    }
    all_stopped(ss);
}

static void stop_all(struct sessions *ss)
{
    struct session *all[SESSIONS_MAX];
    size_t n = ss->n;
    ss->is_draining = false;
    deadline_clear(&ss->drain);
    for (size_t i = 0; i < n; i++) {
        all[i] = ss->items[i];
        session_ref(all[i]);
    }
    for (size_t i = 0; i < n; i++) {
        session_stop(all[i], SESSION_GRACE_MS, "shutdown", NULL);
        session_unref(all[i]);
    }
    all_stopped(ss);
}

static void drain_passed(struct deadline *d)
{
    stop_all(container_of(d, struct sessions, drain));
}

static bool any_running(const struct sessions *ss)
{
    for (size_t i = 0; i < ss->n; i++)
        if (ss->items[i]->n_running + ss->items[i]->n_queued > 0)
            return true;
    return false;
}

/* On the loop, as it is called from within a command's end. */
void sessions_command_ended(struct sessions *ss)
{
    if (ss->is_draining && !any_running(ss))
        deadline_set(&ss->drain, 0);
}

void sessions_shutdown(struct sessions *ss, uint64_t drain_ms, void (*done)(void *arg), void *arg)
{
    ss->is_stopping = true;
    ss->stopped = done;
    ss->stopped_arg = arg;
    if (drain_ms == 0 || !any_running(ss)) {
        stop_all(ss);
        return;
    }
    ss->is_draining = true;
    deadline_set(&ss->drain, drain_ms);
}

void sessions_running(const struct sessions *ss, struct strv *ret)
{
    for (size_t i = 0; i < ss->n; i++)
        for (struct command *c = ss->items[i]->commands; c; c = command_next(c))
            if (!command_is_ended(c))
                (void)strv_add(ret, command_id(c));
}

/* ---- The choice of a provider -----------------------------------------------------------------
 */

enum provider sessions_wall_provider(void)
{
#ifdef __APPLE__
    return PROVIDER_SEATBELT;
#else
    return PROVIDER_BUBBLEWRAP;
#endif
}

enum provider sessions_choose(const struct sessions *ss, enum tier tier, bool require_wall)
{
    const char *setting = settings_text(ss->deps.settings, "sandbox_provider");
    if (tier == TIER_OPEN)
        return PROVIDER_DIRECT;
    if (require_wall)
        return sessions_wall_provider();
    for (int i = 0; setting && PROVIDER_NAMES[i]; i++)
        if (strcmp(PROVIDER_NAMES[i], setting) == 0 && i != PROVIDER_UNKNOWN)
            return (enum provider)i;
    return sessions_wall_provider(); /* an unknown word is no leave to go without a wall */
}
