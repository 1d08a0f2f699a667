/* Runs in: cli. Reads: trusted (what the person typed). May block: no.
 *
 * The options that describe a session, as the body of POST /sessions. */
#include "base/path.h"
#include "cli/run.h"
#include "cli/sites.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The working folder as the person sees it: $PWD where it tells the truth. */
static int current_dir(char **ret)
{
    const char *pwd = getenv("PWD");
    struct stat a, b;
    if (pwd && pwd[0] == '/' && stat(pwd, &a) == 0 && stat(".", &b) == 0 && a.st_dev == b.st_dev &&
        a.st_ino == b.st_ino && path_canonical(pwd, ret) == 0)
        return 0;
    char *cwd = getcwd(NULL, 0);
    if (!cwd)
        return -errno;
    *ret = cwd;
    return 0;
}

static bool has_dot_dot(const char *path)
{
    for (const char *p = path; (p = strstr(p, "..")); p++)
        if ((p == path || p[-1] == '/') && (p[2] == '/' || p[2] == '\0'))
            return true;
    return false;
}

/* PATH as absolute text. ".." behind a link means the link's target, so only then links are
 * resolved; the spelling is kept otherwise. */
static int absolute(const char *path, char **ret, struct err *err)
{
    CLEANUP(freep) char *cwd = NULL;
    int r = has_dot_dot(path)       ? path_resolve(path, ret)
            : path[0] == '/'        ? path_canonical(path, ret)
            : current_dir(&cwd) < 0 ? -ENOENT
                                    : path_join(cwd, path, ret);
    if (r < 0)
        return err_set(err, r, "path_invalid", NULL, "%s: %s", path[0] ? path : "''", strerror(-r));
    if (!utf8_is_valid(*ret, strlen(*ret)))
        return err_set(err, -EILSEQ, "path_invalid", "rename it, or grant the folder above",
                       "%s: the path is not UTF-8", path);
    return 0;
}

/* PATH[:ro|:rw] -> {path, mode}. */
static json_t *folder_json(const char *typed, struct err *err)
{
    CLEANUP(freep) char *text = strdup(typed), *path = NULL;
    const char *mode = "rw";
    struct stat st;
    size_t n = strlen(typed);
    if (text && n > 3 && (strcmp(typed + n - 3, ":ro") == 0 || strcmp(typed + n - 3, ":rw") == 0)) {
        mode = strcmp(typed + n - 3, ":ro") == 0 ? "ro" : "rw";
        text[n - 3] = '\0';
    }
    if (!text || absolute(text, &path, err) < 0)
        return NULL;
    if (stat(path, &st) < 0) { /* the daemon judges; a slip of the pen is named here as typed */
        err_set(err, -errno, "path_invalid", NULL, "%s: %s", path, strerror(errno));
        return NULL;
    }
    return json_pack("{s:s, s:s}", "path", path, "mode", mode);
}

static int add_folders(json_t *folders, const struct args *a, const char *cwd, struct err *err)
{
    for (size_t i = 0; i < args_count(a, "folder"); i++) {
        json_t *one = folder_json(args_value(a, "folder", i), err);
        if (!one)
            return -EINVAL;
        json_array_append_new(folders, one);
    }
    if (json_array_size(folders) == 0)
        json_array_append_new(folders, json_pack("{s:s, s:s}", "path", cwd, "mode", "rw"));
    return 0;
}

/* The current directory when a folder holds it, else the first folder (told by no cwd at all). */
static void add_cwd(json_t *body, json_t *folders, const struct args *a, const char *cwd)
{
    size_t i;
    json_t *f;
    bool held = args_has(a, "cd");
    json_array_foreach(folders, i, f) held |= path_is_under(cwd, json_text(f, "path"));
    if (held)
        json_object_set_new(body, "cwd", json_string(cwd));
}

static int add_sites(json_t *body, const struct args *a, struct err *err)
{
    json_t *sites = json_array();
    for (size_t i = 0; i < args_count(a, "allow"); i++) {
        json_t *site = site_json(args_value(a, "allow", i), err);
        if (!site) {
            json_decref(sites);
            return -EINVAL;
        }
        json_array_append_new(sites, site);
    }
    if (json_array_size(sites))
        json_object_set_new(body, "sites", sites);
    else
        json_decref(sites);
    return 0;
}

static int add_publish(json_t *body, const struct args *a, struct err *err)
{
    json_t *ports = args_has(a, "publish") ? json_array() : NULL;
    for (size_t i = 0; i < args_count(a, "publish"); i++) {
        uint64_t port = 0;
        const char *text = args_value(a, "publish", i);
        if (parse_u64(text, 1, 65535, &port) < 0) {
            json_decref(ports);
            return err_set(err, -EINVAL, "usage", "a number, 1 to 65535", "no port: '%s'", text);
        }
        json_array_append_new(ports, json_integer((json_int_t)port));
    }
    if (ports)
        json_object_set_new(body, "publish", ports);
    return 0;
}

static int add_tier(json_t *body, const struct args *a, struct err *err)
{
    const char *tier = args_value(a, "tier", 0), *network = args_value(a, "network", 0);
    const char *shown = tier ? tier : "walled";
    if (strcmp(shown, "guarded") == 0 || strcmp(shown, "airlock") == 0)
        return err_set(err, -ENOTSUP, "not_in_this_version", "walled and open are",
                       "tier %s: not in this version", shown);
    if (strcmp(shown, "walled") != 0 && strcmp(shown, "open") != 0)
        return err_set(err, -EINVAL, "usage", "walled or open", "unknown tier '%s'", shown);
    if (network && strcmp(network, "allowlist") != 0 && strcmp(network, "open") != 0 &&
        strcmp(network, "none") != 0)
        return err_set(err, -EINVAL, "usage", "allowlist, open or none", "unknown network '%s'",
                       network);
    bool is_open = strcmp(shown, "open") == 0;
    if (is_open && network && strcmp(network, "open") != 0)
        return err_set(err, -EINVAL, "usage", "leave --network away, or use the tier walled",
                       "tier open has no wall, so its network is open");
    if (is_open && args_has(a, "allow"))
        return err_set(err, -EINVAL, "usage", "leave --allow away, or use the tier walled",
                       "tier open has no wall, so every site is open");
    if (is_open && args_has(a, "publish"))
        return err_set(err, -EINVAL, "usage", "leave --publish away, or use the tier walled",
                       "tier open has no wall, so a port that is opened is this machine's own");
    if (args_has(a, "publish") && network && strcmp(network, "none") == 0)
        return err_set(err, -EINVAL, "usage", "use --network allowlist, whose list may be empty",
                       "network none has no egress that could publish a port");
    json_object_set_new(body, "tier", json_string(shown));
    json_object_set_new(body, "require_wall", json_boolean(!is_open));
    if (network)
        json_object_set_new(body, "network", json_string(network));
    return 0;
}

json_t *session_body(const struct args *a, struct err *err)
{
    CLEANUP(freep) char *cwd = NULL;
    CLEANUP(json_decrefp) json_t *body = json_object();
    json_t *folders = json_array();
    struct stat st;
    json_object_set_new(body, "folders", folders);
    const char *cd = args_value(a, "cd", 0);
    int r = cd ? absolute(cd, &cwd, err) : current_dir(&cwd);
    if (r < 0) {
        err_set(err, r, "path_invalid", "cd to a folder that exists, or name one with -f",
                "the current directory is gone: %s", strerror(-r));
        return NULL;
    }
    if (cd && stat(cwd, &st) < 0) {
        err_set(err, -errno, "path_invalid", NULL, "%s: %s", cwd, strerror(errno));
        return NULL;
    }
    if (add_folders(folders, a, cwd, err) < 0 || add_tier(body, a, err) < 0 ||
        add_sites(body, a, err) < 0 || add_publish(body, a, err) < 0)
        return NULL;
    add_cwd(body, folders, a, cwd);
    if (args_has(a, "ask") && args_has(a, "no-ask")) {
        err_set(err, -EINVAL, "usage", "one of them", "--ask and --no-ask exclude each other");
        return NULL;
    }
    json_object_set_new(body, "approvals", json_string(args_has(a, "no-ask") ? "full" : "ask"));
    if (args_has(a, "no-ask"))
        json_object_set_new(body, "unattended", json_true());
    return TAKE(body);
}
