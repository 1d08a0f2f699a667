/* Runs in: daemon. Reads: trusted. May block: no.
 *
 * Order: mount points come before what lies below them, since a later mount at a parent would
 * cover them; the rows of an overlay directly follow it. A folder that a wider grant of the same
 * access already holds gets no mount of its own: renames and links across it then go on working. */
#include "render/view.h"
#include "base/mem.h"
#include "base/path.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char *const EXTRA_DIRS[] = {"/proc", "/dev", "/run", "/var"};

void view_done(struct view *v)
{
    for (size_t i = 0; i < v->n; i++)
        join_done(&v->joins[i]);
    free(v->joins);
    *v = (struct view){0};
}

/* Appends a copy of ROW; its strings are borrowed. */
static int view_add(struct view *v, const struct join *row)
{
    if (v->n >= ORDER_JOINS_MAX)
        return -E2BIG;
    if (v->n == v->cap) {
        size_t cap = v->cap ? v->cap * 2 : 64;
        struct join *grown = realloc(v->joins, cap * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        v->joins = grown;
        v->cap = cap;
    }
    struct join j = *row;
    j.source = row->source ? strdup(row->source) : NULL;
    j.target = strdup(row->target);
    j.data = row->data ? strdup(row->data) : NULL;
    j.data_len = row->data ? strlen(row->data) : 0;
    v->joins[v->n++] = j;
    bool whole = j.target && (!row->source || j.source) && (!row->data || j.data);
    return whole ? 0 : -ENOMEM;
}

static int add_dir(struct view *v, const char *target)
{
    return view_add(
        v, &(struct join){.kind = JOIN_DIR, .mode = 0755, .target = (char *)(uintptr_t)target});
}

static int add_bind(struct view *v, const char *source, const char *target, uint32_t flags)
{
    return view_add(v, &(struct join){.kind = JOIN_BIND,
                                      .flags = flags,
                                      .source = (char *)(uintptr_t)source,
                                      .target = (char *)(uintptr_t)target});
}

static int add_link(struct view *v, const char *target, const char *text)
{
    return view_add(v, &(struct join){.kind = JOIN_LINK,
                                      .source = (char *)(uintptr_t)text,
                                      .target = (char *)(uintptr_t)target});
}

static int add_row(struct view *v, enum join_kind kind, const char *target, const char *data)
{
    return view_add(v, &(struct join){.kind = kind,
                                      .mode = 0644,
                                      .target = (char *)(uintptr_t)target,
                                      .data = (char *)(uintptr_t)data});
}

/* The nearest entry strictly above PATH; NULL for none. */
static const struct path_entry *entry_above(const struct policy *p, const char *path)
{
    const struct path_entry *why = NULL;
    char *parent CLEANUP(freep) = NULL;
    if (strcmp(path, "/") == 0 || path_join(path, "..", &parent) < 0)
        return NULL;
    pathset_match(&p->paths, parent, &why);
    return why;
}

/* ---- /etc ------------------------------------------------------------------------------------ */

/* passwd and group hold who is in the wall: its user, root and nobody, whose ids the kernel shows
 * for everybody else's files. */
static int passwd_text(const struct policy *p, const struct machine *m, struct str *out)
{
    const char *shell = policy_getenv(p, "SHELL");
    int r = str_printf(out, "%s:x:%u:%u::%s:%s\n", m->user, m->uid, m->gid, p->home,
                       shell && !strchr(shell, ':') && !strchr(shell, '\n') ? shell : "/bin/sh");
    if (r >= 0 && m->uid != 0)
        r = str_puts(out, "root:x:0:0:root:/root:/usr/sbin/nologin\n");
    if (r >= 0 && m->uid != 65534)
        r = str_puts(out, "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n");
    return r;
}

static int group_text(const struct machine *m, struct str *out)
{
    int r = str_printf(out, "%s:x:%u:\n", m->group, m->gid);
    if (r >= 0 && m->gid != 0)
        r = str_puts(out, "root:x:0:\n");
    if (r >= 0 && m->gid != 65534)
        r = str_puts(out, "nogroup:x:65534:\n");
    return r;
}

static const struct {
    const char *target, *text;
} COVERS[] = {
    {"/etc/hostname", "cordon\n"},
    {"/etc/hosts", "127.0.0.1 localhost cordon\n::1 localhost ip6-localhost ip6-loopback\n"},
    {"/etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
                           "networks: files\nprotocols: files\nservices: files\nethers: files\n"
                           "rpc: files\n"},
    {"/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:2 attempts:1\n"},
};

/* ---- ssh ------------------------------------------------------------------------------------- */

#define SSH_ALL     "Host *\n    SendEnv LANG LC_*\n    HashKnownHosts yes\n"
#define SSH_CONNECT "    ProxyCommand " RUNNER_INSIDE " connect %h %p"
/* With the socket passed ssh reads and writes it itself, and a refusal is our line, where ssh would
 * else add that an unknown host closed the connection. Not where the client may have a ProxyCommand
 * of its own, which knows nothing of that, and for ssh alone: others read the file too. */
#define SSH_OURS                                                                                   \
    "Match exec \"grep -qsx ssh /proc/$PPID/comm && "                                              \
    "! grep -aqis proxycommand /proc/$PPID/cmdline ~/.ssh/config\"\n"                              \
    "    ProxyUseFdpass yes\n" SSH_CONNECT " pass\n" SSH_ALL SSH_CONNECT "\n"

/* ssh refuses included files that belong to nobody, as root's files look inside: so the system's
 * file has no Include. */
static const char *ssh_config(const struct policy *p)
{
    return p->network == NET_NONE ? SSH_ALL : SSH_OURS;
}

/* For git, by GIT_SSH_COMMAND, whatever a person has set as core.sshCommand. */
static const char SSH_OF_GIT[] = "Include ~/.ssh/config\n" SSH_OURS;

static int etc_people(struct view *v, const struct policy *p, const struct machine *m)
{
    struct str passwd = {0}, group = {0};
    int r = passwd_text(p, m, &passwd);
    if (r >= 0)
        r = group_text(m, &group);
    if (r >= 0)
        r = add_row(v, JOIN_COVER, "/etc/passwd", str_c(&passwd));
    if (r >= 0)
        r = add_row(v, JOIN_COVER, "/etc/group", str_c(&group));
    str_done(&passwd);
    str_done(&group);
    return r;
}

/* The names below DIR that the policy hides. */
static int add_hides(struct view *v, const struct policy *p, const char *dir)
{
    int r = 0;
    for (size_t i = 0; i < p->paths.n && r >= 0; i++) {
        const struct path_entry *e = &p->paths.items[i];
        if (e->kind == PATH_PROTECTED && strcmp(e->path, dir) != 0 && path_is_under(e->path, dir))
            r = add_row(v, JOIN_HIDE, e->path, NULL);
    }
    return r;
}

static int add_overlay(struct view *v, const struct policy *p, const char *source,
                       const char *target, uint32_t flags)
{
    int r = view_add(v, &(struct join){.kind = JOIN_ETC,
                                       .flags = flags | JOIN_READ_ONLY,
                                       .source = (char *)(uintptr_t)source,
                                       .target = (char *)(uintptr_t)target});
    return r < 0 ? r : add_hides(v, p, target);
}

static int add_etc(struct view *v, const struct policy *p, const struct machine *m)
{
    int r = add_overlay(v, p, "/etc", "/etc", 0);
    for (size_t i = 0; i < ARRAY_LEN(COVERS) && r >= 0; i++)
        r = add_row(v, JOIN_COVER, COVERS[i].target, COVERS[i].text);
    if (r >= 0)
        r = add_row(v, JOIN_COVER, "/etc/ssh/ssh_config", ssh_config(p));
    return r < 0 ? r : etc_people(v, p, m);
}

/* ---- Grants ---------------------------------------------------------------------------------- */

static const struct policy_folder *folder_of(const struct policy *p, const char *real)
{
    for (size_t i = 0; i < p->n_folders; i++)
        if (!p->folders[i].missing && strcmp(p->folders[i].real, real) == 0)
            return &p->folders[i];
    return NULL;
}

static bool has_mount(const struct view *v, const char *target)
{
    for (size_t i = 0; i < v->n; i++)
        if (v->joins[i].kind == JOIN_BIND && strcmp(v->joins[i].target, target) == 0)
            return true;
    return false;
}

/* The grant that is mounted for E: itself, or the widest above it with the same access and nothing
 * of another access between. */
static const struct path_entry *mounted_grant(const struct policy *p, const struct path_entry *e)
{
    for (const struct path_entry *above; (above = entry_above(p, e->path)); e = above)
        if (above->kind != PATH_FOLDER || above->access != e->access)
            break;
    return e;
}

/* The folders between a writable grant (above) and a read-only one below it, bound onto themselves:
 * else the parent could be renamed and the path made anew with other content. */
static int add_pins(struct view *v, const struct path_entry *above, const char *path)
{
    char at[PATH_MAX];
    size_t n = strlen(above->path);
    if (snprintf(at, sizeof at, "%s", path) >= (int)sizeof at)
        return -ENAMETOOLONG;
    for (char *slash = strchr(at + n + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int r = has_mount(v, at) ? 0 : add_bind(v, at, at, JOIN_PIN);
        *slash = '/';
        if (r < 0)
            return r;
    }
    return 0;
}

static int add_folder(struct view *v, const struct policy *p, const struct path_entry *e)
{
    const struct path_entry *above = entry_above(p, e->path);
    const struct policy_folder *f = folder_of(p, e->path);
    bool in_folder = above && above->kind == PATH_FOLDER;
    if (!f || (in_folder && above->access == e->access))
        return f ? 0 : -EINVAL;
    int r = 0;
    if (in_folder && above->access == PATH_WRITE)
        r = add_pins(v, mounted_grant(p, above), e->path);
    return r < 0
               ? r
               : view_add(v, &(struct join){.kind = JOIN_BIND,
                                            .flags = JOIN_IDENTITY |
                                                     (e->access == PATH_WRITE ? 0 : JOIN_READ_ONLY),
                                            .dev = f->dev,
                                            .ino = f->ino,
                                            .source = e->path,
                                            .target = e->path});
}

static int add_private(struct view *v, const struct policy *p, const struct path_entry *e)
{
    char *source CLEANUP(freep) = NULL;
    int r = path_join(p->private_dir, strcmp(e->path, p->home) == 0 ? "home" : "tmp", &source);
    return r < 0 ? r : add_bind(v, source, e->path, 0);
}

static int add_toolchain(struct view *v, const struct policy *p, const struct path_entry *e)
{
    const struct path_entry *above = entry_above(p, e->path);
    int r = 0;
    if (above && above->kind == PATH_FOLDER && above->access == PATH_WRITE)
        r = add_pins(v, mounted_grant(p, above), e->path);
    if (r < 0)
        return r;
    if (strcmp(path_last(e->path), ".cargo") == 0)
        return add_overlay(v, p, e->path, e->path, JOIN_OPTIONAL);
    return add_bind(v, e->path, e->path, JOIN_READ_ONLY | JOIN_OPTIONAL);
}

/* Settings of git and certificate bundles. The source is the real home's, which the private home
 * covers inside. */
static int add_config(struct view *v, const struct policy *p, const struct machine *m,
                      const struct path_entry *e)
{
    const uint32_t flags = JOIN_READ_ONLY | JOIN_OPTIONAL;
    char *own CLEANUP(freep) = NULL;
    bool below_home = path_is_under(e->path, p->home);
    if (strv_has(&p->config_files, e->path))
        return add_bind(v, e->path, e->path, flags | JOIN_FILE);
    if (strv_has(&p->config_dirs, e->path))
        return add_bind(v, e->path, e->path, flags);
    int r = below_home ? path_join(m->home, e->path + strlen(p->home) + 1, &own) : -EINVAL;
    if (r < 0)
        return r;
    if (strcmp(path_last(e->path), ".gitconfig") == 0)
        return add_bind(v, m->gitconfig ? m->gitconfig : own, e->path, flags | JOIN_FILE);
    return add_overlay(v, p, m->gitdir ? m->gitdir : own, e->path, flags);
}

static int add_system(struct view *v, const struct policy *p, const struct machine *m,
                      const struct path_entry *e)
{
    if (strcmp(e->path, "/etc") == 0)
        return add_etc(v, p, m);
    bool listed = strv_has(&m->system_dirs, e->path);
    return add_bind(v, e->path, e->path, JOIN_READ_ONLY | (listed ? 0 : JOIN_OPTIONAL));
}

static int add_entry(struct view *v, const struct policy *p, const struct machine *m,
                     const struct path_entry *e)
{
    switch (e->kind) {
    case PATH_SYSTEM:
        return add_system(v, p, m, e);
    case PATH_FOLDER:
        return add_folder(v, p, e);
    case PATH_PRIVATE:
        return add_private(v, p, e);
    case PATH_TOOLCHAIN:
        return add_toolchain(v, p, e);
    case PATH_CONFIG:
        return add_config(v, p, m, e);
    case PATH_PROTECTED:
        return 0; /* with its overlay */
    }
    return -EINVAL;
}

/* ---- Links ----------------------------------------------------------------------------------- */

/* A link is ours to make only where the view itself or a private folder stands: a granted or a
 * system folder has the host's own link. Nothing may be mounted at or below it. */
static bool link_is_ours(const struct view *v, const struct policy *p, const char *target)
{
    const struct path_entry *above = entry_above(p, target);
    if (above && above->kind != PATH_PRIVATE)
        return false;
    for (size_t i = 0; i < v->n; i++)
        if (path_is_under(v->joins[i].target, target))
            return false;
    return true;
}

/* Another spelling of REAL: where the known links do not lead there already. */
static int add_spelling(struct view *v, const struct policy *p, const char *spelled,
                        const char *real)
{
    if (strcmp(spelled, real) == 0 || path_is_under(spelled, real) || !link_is_ours(v, p, spelled))
        return 0;
    return add_link(v, spelled, real);
}

static int folder_spelling(struct view *v, const struct policy *p, const struct machine *m,
                           const struct policy_folder *f)
{
    /* through the links of the system and of home first: those stand in the view */
    struct policy no_folders = {0};
    char *inside CLEANUP(freep) = NULL;
    int r = policy_spelling(&no_folders, m, f->path, &inside);
    return r < 0 ? r : add_spelling(v, p, inside, f->real);
}

static int add_links(struct view *v, const struct policy *p, const struct machine *m)
{
    int r = 0;
    for (size_t i = 0; i < m->system_links.n && r >= 0; i++) {
        char target[256];
        const char *link = m->system_links.items[i], *eq = strchr(link, '=');
        if (!eq)
            continue;
        snprintf(target, sizeof target, "/%.*s", (int)(eq - link), link);
        r = add_link(v, target, eq + 1);
    }
    if (r >= 0 && link_is_ours(v, p, "/var/run"))
        r = add_link(v, "/var/run", "/run");
    for (size_t i = 0; i < m->home_links.n && r >= 0; i++)
        if (strcmp(p->home, m->home) == 0)
            r = add_spelling(v, p, m->home_links.items[i], m->home);
    for (size_t i = 0; i < p->n_folders && r >= 0; i++)
        if (!p->folders[i].missing)
            r = folder_spelling(v, p, m, &p->folders[i]);
    return r;
}

static int walled_render(struct view *v, const struct policy *p, const struct machine *m)
{
    int r = 0;
    for (size_t i = 0; i < ARRAY_LEN(EXTRA_DIRS) && r >= 0; i++)
        r = add_dir(v, EXTRA_DIRS[i]);
    for (size_t i = 0; i < p->paths.n && r >= 0; i++)
        r = add_entry(v, p, m, &p->paths.items[i]);
    if (r >= 0)
        r = add_bind(v, m->runner, RUNNER_INSIDE, JOIN_READ_ONLY | JOIN_FILE);
    if (r >= 0 && p->network != NET_NONE)
        r = add_row(v, JOIN_DATA, SSH_CONFIG_INSIDE, SSH_OF_GIT);
    return r < 0 ? r : add_links(v, p, m);
}

int view_render(const struct policy *p, const struct machine *m, struct view *ret, struct err *err)
{
    struct view v = {0};
    if (p->reads != READS_ONLY_THESE || p->tier != TIER_WALLED)
        return err_set(err, -ENOTSUP, "internal", NULL, "tier %s has no view of its own",
                       TIER_NAMES[p->tier]);
    if (!p->private_dir)
        return err_set(err, -EINVAL, "internal", NULL, "a view needs the private folder");
    int r = walled_render(&v, p, m);
    if (r < 0) {
        view_done(&v);
        return err_set(err, r, "internal", NULL, "the view could not be made: %s", strerror(-r));
    }
    *ret = v;
    return 0;
}

/* ---- Text ------------------------------------------------------------------------------------ */

static const char *kind_name(enum join_kind kind)
{
    switch (kind) {
    case JOIN_DIR:
        return "dir";
    case JOIN_BIND:
        return "bind";
    case JOIN_LINK:
        return "link";
    case JOIN_DATA:
        return "data";
    case JOIN_ETC:
        return "overlay";
    case JOIN_HIDE:
        return "  hide";
    case JOIN_COVER:
        return "  cover";
    }
    return "?";
}

static int row_text(const struct join *j, struct str *out)
{
    bool is_mount = j->kind == JOIN_BIND || j->kind == JOIN_ETC;
    const char *access = !is_mount ? "" : j->flags & JOIN_READ_ONLY ? "ro" : "rw";
    int r = str_printf(out, "%-8s %-2s ", j->flags & JOIN_PIN ? "pin" : kind_name(j->kind),
                       j->flags & JOIN_PIN ? "" : access);
    if (r >= 0)
        r = str_put_escaped(out, j->target, strlen(j->target));
    if (r >= 0 && j->source && strcmp(j->source, j->target) != 0) {
        r = str_puts(out, j->kind == JOIN_LINK ? " -> " : " from ");
        if (r >= 0)
            r = str_put_escaped(out, j->source, strlen(j->source));
    }
    if (r >= 0 && j->flags & JOIN_OPTIONAL)
        r = str_puts(out, " [if there]");
    if (r >= 0 && j->flags & JOIN_IDENTITY)
        r = str_puts(out, " [the very folder that was granted]");
    return r < 0 ? r : str_putc(out, '\n');
}

int view_text(const struct view *v, struct str *out)
{
    int r = 0;
    for (size_t i = 0; i < v->n && r >= 0; i++)
        r = row_text(&v->joins[i], out);
    return r;
}
