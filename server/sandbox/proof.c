/* Runs in: daemon. Reads: hostile (what the runner answers). May block: no. */
#include "sandbox/proof.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "sandbox/provider.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TEXT_MAX 4096 /* of an answer that is kept */

static const char *const KIND_NAMES[] = {
    [PROBE_NONE] = "nothing",
    [PROBE_WRITE_DIR] = "write to",
    [PROBE_READ_DIR] = "list",
    [PROBE_READ_FILE] = "read",
    [PROBE_LINK_FILE] = "link",
    [PROBE_STAT] = "find",
    [PROBE_TCP] = "connect to",
    [PROBE_UDP] = "send to",
    [PROBE_UNIX] = "connect to",
    [PROBE_PROXY] = "ask the door for",
    [PROBE_FDS] = "descriptors",
    [PROBE_PRIVILEGES] = "privileges",
    [PROBE_USERNS] = "namespace",
    [PROBE_FOREIGN_ABI] = "foreign system call",
    [PROBE_PROC] = "processes",
    [PROBE_LIMITS] = "limits",
    [PROBE_READ_ONLY] = "read-only",
    [PROBE_WRITE_FILE] = "open for writing",
    [PROBE_NAME] = "connect by name to",
    [PROBE_END] = "connect to",
    [PROBE_STAYS] = "send to",
};

void proof_answer(struct proof *p, size_t probe, uint32_t errno_inside, const char *text)
{
    if (probe >= p->n_probes || p->probes[probe].answered)
        return;
    struct proof_probe *it = &p->probes[probe];
    it->got_text = strndup(text ? text : "", TEXT_MAX);
    it->answered = it->got_text != NULL;
    it->got_errno = errno_inside;
}

/* ---- One probe ------------------------------------------------------------------------------- */

static bool has_status(const char *line, const char *status)
{
    const char *at = strchr(line, ' ');
    return str_starts(line, "HTTP/1.") && at && str_starts(at + 1, status);
}

/* The number behind NAME= in TEXT, by BASE, or FALLBACK. */
static unsigned long long number_of(const char *text, const char *name, int base,
                                    unsigned long long fallback)
{
    size_t n = strlen(name);
    for (const char *at = text; (at = strstr(at, name)) != NULL; at += n)
        if ((at == text || at[-1] == ' ') && at[n] == '=')
            return strtoull(at + n + 1, NULL, base);
    return fallback;
}

/* TEXT is "DEV INO …" of what was found, WANTED "DEV INO" of what must not be; anything else is no
 * proof. */
static bool is_other_file(const char *wanted, const char *text)
{
    unsigned long long dev[2], ino[2];
    return wanted && sscanf(wanted, "%llu %llu", &dev[0], &ino[0]) == 2 &&
           sscanf(text, "%llu %llu", &dev[1], &ino[1]) == 2 &&
           (dev[0] != dev[1] || ino[0] != ino[1]);
}

static bool is_bare(const struct proof *p, const char *text)
{
    return number_of(text, "cap", 16, 1) == 0 && number_of(text, "bnd", 16, 0) == 0 &&
           number_of(text, "nnp", 10, 0) == 1 && number_of(text, "seccomp", 10, 0) == 2 &&
           (p->landlock_abi_wanted < 1 || p->landlock_abi >= 1);
}

/* Host processes would have numbers far from these; pid 1 inside is the runner. */
static bool is_own_pids(const char *text)
{
    unsigned n = 0;
    if ((strcmp(text, "1") != 0 && !str_starts(text, "1 ")) || strstr(text, "canary="))
        return false;
    for (const char *at = text; *at; at++)
        n += *at == ' ';
    return n < 64;
}

static bool is_limited(const struct proof *p, const char *text)
{
    unsigned long long files = number_of(text, "nofile", 10, 0);
    unsigned long long nproc = number_of(text, "nproc", 10, 0);
    if (p->limits.open_files != 0 && (files == 0 || files > p->limits.open_files))
        return false;
    unsigned long long memory = number_of(text, "as", 10, 0); /* "none" is 0 too */
    if (p->limits.memory_bytes != 0 && !(p->held & WALL_MEMORY) &&
        (memory == 0 || memory > p->limits.memory_bytes))
        return false;
    if (p->limits.cpu_percent != 0 && !(p->held & WALL_CPU))
        return false;
    return p->limits.processes == 0 || p->has_pid_limit || p->held & WALL_PROCESSES ||
           (!p->is_root && nproc != 0 && nproc <= p->limits.processes);
}

static bool is_expected(const struct proof *p, const struct proof_probe *it)
{
    const char *text = it->got_text;
    if (!it->answered)
        return false;
    switch (it->expect) {
    case EXPECT_FAILURE:
        return it->got_errno != 0;
    case EXPECT_SUCCESS:
        return it->got_errno == 0;
    case EXPECT_RESET:
        return it->got_errno == ECONNRESET;
    case EXPECT_UNREACHABLE:
        return it->got_errno != 0 && it->got_errno != ECONNREFUSED && it->got_errno != ETIMEDOUT;
    case EXPECT_OTHER_FILE:
        return it->got_errno != 0 || is_other_file(it->compare, text);
    case EXPECT_STATUS_200:
        return it->got_errno == 0 && has_status(text, "200");
    case EXPECT_STATUS_OTHER:
        return it->got_errno != 0 || !has_status(text, "2");
    case EXPECT_STATUS_403:
        return it->got_errno == 0 && has_status(text, "403");
    case EXPECT_BARE:
        return it->got_errno == 0 && is_bare(p, text);
    case EXPECT_OWN_PIDS:
        return it->got_errno != 0 && is_own_pids(text);
    case EXPECT_LIMITS:
        return it->got_errno == 0 && is_limited(p, text);
    }
    return false;
}

/* ---- A check --------------------------------------------------------------------------------- */

static void probe_text(const struct proof_probe *it, struct str *out)
{
    (void)str_puts(out, KIND_NAMES[it->kind]);
    if (it->kind == PROBE_PROXY || it->kind == PROBE_NAME)
        (void)str_printf(out, " %s", it->text);
    else if (it->port != 0)
        (void)str_printf(out, " %s port %u", it->path, it->port);
    else if (it->path[0] != '\0' && it->kind != PROBE_PROC) {
        (void)str_putc(out, ' ');
        (void)str_put_escaped(out, it->path, strlen(it->path));
    }
    (void)str_puts(out, it->is_control ? " (control): " : ": ");
    if (!it->answered)
        (void)str_puts(out, "no answer");
    else if (it->got_errno != 0)
        (void)str_puts(out, strerror((int)it->got_errno));
    else
        (void)str_puts(out, "worked");
    if (it->answered && it->got_text[0] != '\0' && it->kind != PROBE_READ_FILE) {
        (void)str_puts(out, " (");
        (void)str_put_escaped(out, it->got_text, strnlen(it->got_text, 120));
        (void)str_putc(out, ')');
    }
}

static void limit_text(struct str *out, const char *what, uint64_t n, const char *held_by)
{
    (void)str_printf(out, "%s%s ", out->len ? "; " : "", what);
    if (n == 0)
        (void)str_puts(out, "no limit set");
    else
        (void)str_printf(out, "%llu (%s)", (unsigned long long)n, held_by);
}

/* Which limits are set, and what holds each of them: is_limited has judged whether it does. */
static void limits_text(const struct proof *p, struct str *out)
{
    const struct policy_limits *l = &p->limits;
    limit_text(out, "processes", l->processes,
               p->held & WALL_PROCESSES ? "a session: its control group"
               : p->has_pid_limit       ? "a session: the maximum of its pid namespace"
               : p->is_root ? "NOT HELD: root, and this kernel has no maximum a pid namespace"
                            : "RLIMIT_NPROC, counted over all that this user runs");
    limit_text(out, "open files", l->open_files, "a process: RLIMIT_NOFILE");
    limit_text(out, "memory", l->memory_bytes,
               p->held & WALL_MEMORY ? "bytes a session: its control group"
                                     : "bytes of address space a process: RLIMIT_AS");
    limit_text(out, "cpu", l->cpu_percent,
               p->held & WALL_CPU ? "percent of one CPU a session: its control group"
                                  : "NOT HELD: no control group here");
}

/* "N tried, K controls; first: …" or the probe that did not fit. */
static void judge_check(struct proof *p, int check)
{
    struct proof_check *c = &p->checks[check];
    const struct proof_probe *wrong = NULL, *first = NULL;
    unsigned n = 0, n_controls = 0;
    for (size_t i = 0; i < p->n_probes; i++) {
        const struct proof_probe *it = &p->probes[i];
        if (it->check != check)
            continue;
        n++;
        n_controls += it->is_control;
        if (!first)
            first = it;
        if (!wrong && !is_expected(p, it))
            wrong = it;
    }
    struct str text = {0};
    const struct proof_probe *shown = wrong ? wrong : first;
    c->ok = n > 0 && !wrong;
    if (shown && shown->expect == EXPECT_LIMITS && shown->answered) {
        limits_text(p, &text);
        snprintf(c->detail, sizeof c->detail, "%s", str_c(&text));
    } else {
        if (shown)
            probe_text(shown, &text);
        snprintf(c->detail, sizeof c->detail, "%s%u tried, %u of them controls; %s%.200s",
                 c->ok ? "" : "failed: ", n, n_controls, wrong ? "" : "e.g. ", str_c(&text));
    }
    size_t len = strlen(c->detail);
    while (len > 0 && !utf8_is_valid(c->detail, len)) /* cut within a character */
        c->detail[--len] = '\0';
    str_done(&text);
}

bool proof_judge(struct proof *p)
{
    bool ok = p->n_checks > 0;
    for (size_t i = 0; i < p->n_checks; i++) {
        judge_check(p, (int)i);
        if (p->checks[i].required && !p->checks[i].ok)
            ok = false;
    }
    p->verified_at = clock_wall_ms();
    return ok;
}

json_t *proof_to_json(const struct proof *p)
{
    char at[CLOCK_TEXT_MAX];
    clock_text(p->verified_at, at);
    json_t *checks = json_array();
    for (size_t i = 0; i < p->n_checks; i++) {
        const struct proof_check *c = &p->checks[i];
        json_array_append_new(checks, json_pack("{s:s, s:b, s:b, s:s}", "id", c->id, "ok", c->ok,
                                                "required", c->required, "detail", c->detail));
    }
    return json_pack("{s:s, s:s, s:o, s:{s:s, s:s}, s:o}", "verified_at", at, "kernel",
                     p->kernel ? p->kernel : "", "landlock_abi",
                     p->landlock_abi > 0 ? json_integer(p->landlock_abi) : json_null(), "versions",
                     "bubblewrap", wall_bwrap_version(), "cordon", CORDON_VERSION, "checks",
                     checks);
}
