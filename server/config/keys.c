/* Runs in: daemon. Reads: trusted. May block: no. */
#include "config/keys.h"
#include "base/mem.h"
#include "base/str.h"
#include "policy/upstream.h"
#include <errno.h>
#include <string.h>

const char *const APPLIES_NAMES[] = {"now", "new_sessions", "restart", NULL};

#define DAY_MAX   36500
#define BYTES_MAX ((int64_t)1 << 50)

static const char *const PROVIDERS[] = {"direct", "seatbelt", "bubblewrap", NULL};
static const char *const PROFILES[] = {"allowlist", "open", "none", NULL};
static const char *const TIERS[] = {"walled", "guarded", "airlock", "open", NULL};
static const char *const NOTIFY[] = {"badge", "system", "none", NULL};
static const char *const WEAKER[] = {"none", "landlock", NULL};
static const char *const ENGINES[] = {"brave", "tavily", "duckduckgo", NULL};
static const char *const THEMES[] = {"system", "light", "dark", NULL};

static int later(struct err *err, const char *what)
{
    return err_set(err, -ENOTSUP, "body_invalid", "leave the default", "%s: not in this version",
                   what);
}

static int check_tier(const json_t *value, struct err *err)
{
    const char *text = json_string_value(value);
    if (strcmp(text, "walled") != 0 && strcmp(text, "open") != 0)
        return later(err, text);
    return 0;
}

static int check_weaker(const json_t *value, struct err *err)
{
    const char *text = json_string_value(value);
    return strcmp(text, "none") == 0 ? 0 : later(err, text);
}

/* One byte to a limit is a session that cannot start: below this a limit helps nobody. */
static int check_output(const json_t *value, struct err *err)
{
    json_int_t v = json_integer_value(value);
    if (v == 0 || (v >= 64 << 10 && v <= (json_int_t)1 << 30))
        return 0;
    return err_set(err, -ERANGE, "body_invalid", NULL, "0, or 65536 to 1073741824 bytes");
}

/* A value as it is shown has stars for a password: it is not one. */
static int check_upstream(const json_t *value, struct err *err)
{
    const char *text = json_string_value(value);
    struct upstream up;
    if (strcmp(text, "env") == 0)
        return 0;
    const char *why = upstream_parse(text, &up);
    if (!why && up.user[0] && strcmp(strchr(up.user, ':'), ":***") == 0)
        why = "the password is shown as stars: give the password itself";
    return why ? err_set(err, -EINVAL, "body_invalid", "http://[user:pass@]host:port, or env",
                         "no proxy that can be used: %s", why)
               : 0;
}

#define ENUM(key, applies, def, names, help)                                                       \
    {                                                                                              \
        key, SETTING_ENUM, SETTING_OF_MACHINE, applies, def, 0, 0, names, false, false, NULL, help \
    }
#define INT(key, applies, def, min, max, help)                                                     \
    {                                                                                              \
        key, SETTING_INT, SETTING_OF_MACHINE, applies, def, min, max, NULL, false, false, NULL,    \
            help                                                                                   \
    }
#define LIST(key, help)                                                                            \
    {                                                                                              \
        key, SETTING_LIST, SETTING_OF_MACHINE, APPLIES_NOW, "[]", 0, 0, NULL, false, false, NULL,  \
            help                                                                                   \
    }
#define LATER(key, type, def, min, max, names, nullable, help)                                     \
    {                                                                                              \
        key, type, SETTING_OF_MACHINE, APPLIES_NOW, def, min, max, names, nullable, true, NULL,    \
            help                                                                                   \
    }

static const struct setting_key KEYS[] = {
    ENUM("sandbox_provider", APPLIES_NEW_SESSIONS, "\"direct\"", PROVIDERS,
         "what enforces the wall; direct is none"),
    ENUM("sandbox_network_profile", APPLIES_NEW_SESSIONS, "\"allowlist\"", PROFILES,
         "what a new walled session reaches"),
    LIST("sandbox_network_hosts", "the sites of list machine: change them through /v1/sites"),
    LIST("sandbox.allowedDomains", "the sites of list guarded: change them through /v1/sites"),
    LIST("sandbox.allowedPaths", "paths that guarded may write"),
    LIST("sandbox.escape_hatch_binaries", "programs that run outside the wall"),
    {"sandbox.default_tier", SETTING_ENUM, SETTING_OF_ANY, APPLIES_NEW_SESSIONS, "\"walled\"", 0, 0,
     TIERS, false, false, check_tier, "the tier of a new session that names none"},
    LATER("sandbox.proxy.enabled", SETTING_BOOL, "true", 0, 0, NULL, false,
          "false: guarded has no network"),
    {"sandbox.proxy.upstream", SETTING_TEXT, SETTING_OF_MACHINE, APPLIES_NOW, "\"env\"", 1, 512,
     NULL, false, false, check_upstream,
     "the proxy sessions go through: http://[user:pass@]host:port, or env: HTTPS_PROXY and its "
     "kin"},
    LATER("keybindings.cycle_sandbox_tier", SETTING_TEXT, "\"Alt+S\"", 1, 32, NULL, false,
          "the key that cycles the tier"),
    INT("server.port", APPLIES_RESTART, "7411", 1024, 65535, "the port tried first"),
    {"sandbox.weaker", SETTING_ENUM, SETTING_OF_MACHINE, APPLIES_NEW_SESSIONS, "\"none\"", 0, 0,
     WEAKER, false, false, check_weaker, "a weaker wall to fall back to; landlock is reserved"},
    INT("asks.expiry_ms", APPLIES_NOW, "300000", 1000, 3600000, "how long an ask waits"),
    LATER("asks.notify", SETTING_ENUM, "\"badge\"", 0, 0, NOTIFY, false, "how an ask is told"),
    {"asks.learn", SETTING_BOOL, SETTING_OF_MACHINE, APPLIES_NOW, "false", 0, 0, NULL, false, false,
     NULL, "true: no asks, refusals are collected"},
    INT("limits.command_timeout_ms", APPLIES_NOW, "0", 0, 86400000,
        "time a command may run, 0 = no end"),
    INT("limits.memory_bytes", APPLIES_NEW_SESSIONS, "0", 0, BYTES_MAX,
        "memory of a session, or address space of a process; 0 = no limit"),
    INT("limits.processes", APPLIES_NEW_SESSIONS, "1024", 0, 4000000,
        "processes of a session, 0 = no limit"),
    INT("limits.cpu_percent", APPLIES_NEW_SESSIONS, "0", 0, 100000,
        "share of one processor that a session gets, 0 = no limit"),
    INT("limits.open_files", APPLIES_NEW_SESSIONS, "4096", 0, 1048576,
        "open files of a process, 0 = no limit"),
    {"limits.output_bytes", SETTING_INT, SETTING_OF_MACHINE, APPLIES_NOW, "16777216", 0,
     (int64_t)1 << 30, NULL, false, false, check_output, "output kept of a command"},
    INT("retention.output_days", APPLIES_NOW, "7", 1, DAY_MAX, "days that output is kept"),
    INT("retention.output_bytes", APPLIES_NOW, "1073741824", 1 << 20, BYTES_MAX,
        "bytes of output kept in all"),
    INT("retention.audit_days", APPLIES_NOW, "90", 1, DAY_MAX,
        "days that the audit, and records of what ended, are kept"),
    {"web.search_provider", SETTING_ENUM, SETTING_OF_MACHINE, APPLIES_NOW, "null", 0, 0, ENGINES,
     true, false, NULL, "who answers web searches"},
    LATER("ui.theme", SETTING_ENUM, "\"system\"", 0, 0, THEMES, false, "of the page"),
    LATER("ui.locale", SETTING_TEXT, "\"auto\"", 1, 35, NULL, false, "language tag of the page"),
    LATER("ui.single_keys", SETTING_BOOL, "true", 0, 0, NULL, false, "single-key shortcuts"),
    LIST("permissions.rules", "rules of the user's file"),
};

const struct setting_key *setting_keys(size_t *ret_n)
{
    *ret_n = ARRAY_LEN(KEYS);
    return KEYS;
}

const struct setting_key *setting_key_find(const char *key)
{
    for (size_t i = 0; i < ARRAY_LEN(KEYS); i++)
        if (strcmp(KEYS[i].key, key) == 0)
            return &KEYS[i];
    return NULL;
}

static int refuse_type(const char **kind, const char *wanted, struct err *err)
{
    *kind = "type";
    return err_set(err, -EINVAL, "body_invalid", NULL, "wants %s", wanted);
}

static int check_enum(const struct setting_key *key, const json_t *value, const char **kind,
                      struct err *err)
{
    struct str names = {0};
    const char *text = json_string_value(value);
    if (!text)
        return refuse_type(kind, "a text", err);
    for (size_t i = 0; key->names[i]; i++) {
        if (strcmp(key->names[i], text) == 0) {
            str_done(&names);
            return 0;
        }
        (void)str_printf(&names, "%s%s", i ? ", " : "", key->names[i]);
    }
    *kind = "range";
    int r = err_set(err, -EINVAL, "body_invalid", NULL, "one of %s", str_c(&names));
    str_done(&names);
    return r;
}

static int check_int(const struct setting_key *key, const json_t *value, const char **kind,
                     struct err *err)
{
    if (!json_is_integer(value))
        return refuse_type(kind, "a whole number", err);
    json_int_t v = json_integer_value(value);
    if (v >= key->min && v <= key->max)
        return 0;
    *kind = "range";
    return err_set(err, -ERANGE, "body_invalid", NULL, "%lld to %lld", (long long)key->min,
                   (long long)key->max);
}

static int check_text(const struct setting_key *key, const json_t *value, const char **kind,
                      struct err *err)
{
    if (!json_is_string(value))
        return refuse_type(kind, "a text", err);
    int64_t n = (int64_t)json_string_length(value);
    if (n >= key->min && n <= key->max)
        return 0;
    *kind = "range";
    return err_set(err, -ERANGE, "body_invalid", NULL, "%lld to %lld bytes", (long long)key->min,
                   (long long)key->max);
}

static int check_shape(const struct setting_key *key, const json_t *value, const char **kind,
                       struct err *err)
{
    switch (key->type) {
    case SETTING_BOOL:
        return json_is_boolean(value) ? 0 : refuse_type(kind, "true or false", err);
    case SETTING_INT:
        return check_int(key, value, kind, err);
    case SETTING_ENUM:
        return check_enum(key, value, kind, err);
    case SETTING_TEXT:
        return check_text(key, value, kind, err);
    case SETTING_LIST:
        break;
    }
    return err_set(err, -EPERM, "list_setting", key->help, "%s is a list", key->key);
}

static bool is_default(const struct setting_key *key, const json_t *value)
{
    json_t *def = json_loads(key->default_json, JSON_DECODE_ANY, NULL);
    bool same = json_equal(def, value);
    json_decref(def);
    return same;
}

int setting_check(const struct setting_key *key, const json_t *value, const char **ret_kind,
                  struct err *err)
{
    const char *ignored, **kind = ret_kind ? ret_kind : &ignored;
    *kind = "format";
    if (key->nullable && json_is_null(value))
        return 0;
    int r = check_shape(key, value, kind, err);
    if (r < 0)
        return r;
    if (key->is_later && !is_default(key, value))
        return later(err, key->key);
    return key->check ? key->check(value, err) : 0;
}
