/* Runs in: daemon. Reads: trusted (the setting, the daemon's environment). May block: no.
 *
 * The proxy of this host's network that sessions' connections go through, if there is one. */
#include "session/parts.h"
#include <stdlib.h>
#include <string.h>

/* As clients do: the lower case first; those of plain HTTP have a variable of their own. */
static const char *const TUNNEL_NAMES[] = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY",
                                           NULL};
static const char *const HTTP_NAMES[] = {"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY",
                                         NULL};

static const char *first_set(const char *const *names, const char **ret_name)
{
    for (; *names; names++) {
        const char *value = getenv(*names);
        if (value && *value) {
            *ret_name = *names;
            return value;
        }
    }
    return NULL;
}

static const char *wish(const struct sessions *ss, const char *const *names, const char **ret_name)
{
    const char *setting = settings_text(ss->deps.settings, "sandbox.proxy.upstream");
    *ret_name = "sandbox.proxy.upstream";
    return setting && strcmp(setting, "env") != 0 ? setting : first_set(names, ret_name);
}

bool session_via(const struct sessions *ss, const char *host, uint16_t port, bool is_http,
                 struct upstream *ret)
{
    const char *name, *list = getenv("no_proxy");
    const char *text = wish(ss, is_http ? HTTP_NAMES : TUNNEL_NAMES, &name);
    if (!list || !*list)
        list = getenv("NO_PROXY");
    return text && !upstream_parse(text, ret) && !upstream_is_bypassed(list, host, port);
}

void session_warn_via(struct session *s)
{
    const char *const *const LISTS[] = {TUNNEL_NAMES, HTTP_NAMES};
    const char *said = "";
    for (size_t i = 0; i < ARRAY_LEN(LISTS); i++) {
        CLEANUP(str_done) struct str text = {0};
        struct upstream up;
        const char *name, *value = wish(s->ss, LISTS[i], &name);
        const char *why = value ? upstream_parse(value, &up) : NULL;
        if (!why || strcmp(name, said) == 0)
            continue;
        said = name;
        if (str_printf(&text, "%s of the daemon's environment is not used as a proxy: %s", name,
                       why) == 0)
            session_warn(s, "key_ignored", str_c(&text));
    }
}
