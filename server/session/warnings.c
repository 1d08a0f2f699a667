/* Runs in: daemon. Reads: trusted. May block: briefly (stat, and the owner's name).
 *
 * What a session does not have though a person may count on it: said when it is made. */
#include "base/log.h"
#include "session/parts.h"
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

void session_warn(struct session *s, const char *code, const char *detail)
{
    log_warn("session.warning", "session=%s code=%s detail=%s", s->id, code, detail);
    (void)json_array_append_new(s->warnings,
                                json_pack("{s:s, s:s}", "code", code, "detail", detail));
}

static void owner_name(uid_t uid, char *ret, size_t size)
{
    char buf[4096];
    struct passwd pw, *found = NULL;
    if (getpwuid_r(uid, &pw, buf, sizeof buf, &found) == 0 && found)
        (void)snprintf(ret, size, "%s", pw.pw_name);
    else
        (void)snprintf(ret, size, "uid %u", (unsigned)uid);
}

static void warn_folder(struct session *s, const struct policy_folder *f)
{
    CLEANUP(str_done) struct str text = {0};
    char owner[64];
    struct stat st;
    if (stat(f->real, &st) < 0)
        return;
    owner_name(st.st_uid, owner, sizeof owner);
    (void)str_put_escaped(&text, f->path, strlen(f->path));
    if (st.st_uid == s->ss->deps.machine->uid)
        (void)str_printf(&text, " cannot be written to inside: its mode does not let %s", owner);
    else
        (void)str_printf(&text, " belongs to %s and cannot be written to inside: run as its owner",
                         owner);
    session_warn(s, "folder_not_writable", str_c(&text));
}

void session_warn_of(struct session *s, const struct policy *p)
{
    for (size_t i = 0; i < p->warnings.n; i++) {
        const char *text = p->warnings.items[i], *colon = strstr(text, ": ");
        char code[40];
        (void)snprintf(code, sizeof code, "%.*s", colon ? (int)(colon - text) : 0, text);
        session_warn(s, colon ? code : "path_dropped", colon ? colon + 2 : text);
    }
    if (s->provider == PROVIDER_DIRECT)
        return;
    for (size_t i = 0; i < p->n_folders; i++)
        if (p->folders[i].access == ACCESS_RW && !p->folders[i].missing &&
            !machine_folder_writable(s->ss->deps.machine, p->folders[i].real))
            warn_folder(s, &p->folders[i]);
    if (p->network != NET_NONE)
        session_warn_via(s);
}

void session_warn_unredirected(struct session *s)
{
    size_t i;
    json_t *w;
    json_array_foreach(s->warnings, i, w)
    {
        if (strcmp(json_string_value(json_object_get(w, "code")), "redirect_off") == 0)
            return;
    }
    session_warn(s, "redirect_off",
                 "this machine's kernel does not let Cordon redirect connections (see the daemon's "
                 "log): only programs that use the proxy variables reach a site");
}
