/* Runs in: cli. Reads: trusted. May block: yes. */
#include "cli/settings.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

const struct option SETTINGS_GET_OPTIONS[] = {{"json", 0, NULL, "print the document of the API", 0},
                                              {NULL, 0, NULL, NULL, 0}};

/* "a.b.c" in nested VALUES; borrowed, NULL when there is none. */
static const json_t *find_value(const json_t *values, const char *key)
{
    const json_t *at = json_object_get(values, key);
    if (at)
        return at;
    at = values;
    while (at && *key) {
        CLEANUP(freep) char *name = strndup(key, strcspn(key, "."));
        at = name ? json_object_get(at, name) : NULL;
        key += strcspn(key, ".");
        key += *key == '.';
    }
    return at;
}

/* The merge patch that sets KEY: nested, but for keys that stand flat at the top. */
static json_t *patch_of(const char *key, json_t *take_value)
{
    const char *dot = strchr(key, '.');
    if (!dot)
        return json_pack("{s:o}", key, take_value);
    CLEANUP(freep) char *name = strndup(key, (size_t)(dot - key));
    return json_pack("{s:o}", name, patch_of(dot + 1, take_value));
}

static void print_value(const json_t *value)
{
    CLEANUP(freep)
    char *text =
        json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    if (json_is_string(value))
        cli_print(json_string_value(value));
    else
        fputs(text ? text : "", stdout);
}

static int unknown_key(const json_t *meta, const char *key, struct err *err)
{
    const char *name, *best = NULL;
    json_t *row;
    unsigned best_distance = 5;
    char hint[160] = "cordon settings get";
    json_object_foreach((json_t *)(uintptr_t)meta, name, row)
    {
        unsigned d = str_distance(key, name);
        if (d < best_distance) {
            best_distance = d;
            best = name;
        }
    }
    if (best)
        snprintf(hint, sizeof hint, "did you mean %s?", best);
    return err_set(err, -ENOENT, "usage", hint, "no setting '%s'", key);
}

static void print_all(const json_t *doc)
{
    const char *key;
    json_t *row;
    json_object_foreach(json_object_get(doc, "meta"), key, row)
    {
        const json_t *value = find_value(json_object_get(doc, "values"), key);
        printf("%-34s ", key);
        print_value(value);
        printf("  (");
        cli_print(json_text(row, "source"));
        if (json_text(row, "file")[0]) {
            printf(" ");
            cli_print(json_text(row, "file"));
            printf(":%lld", (long long)json_int(row, "line"));
        }
        puts(")");
    }
}

int settings_get_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    CLEANUP(json_decrefp) json_t *doc = NULL;
    if (cli_call(cli, "GET", "/v1/settings", NULL, &doc, &err) < 0)
        return cli_fail(&err);
    if (!a->n_args) {
        if (args_has(a, "json"))
            cli_print_json(doc);
        else
            print_all(doc);
        return EXIT_DONE;
    }
    const json_t *meta = json_object_get(doc, "meta");
    const json_t *value = find_value(json_object_get(doc, "values"), a->args[0]);
    if (!json_object_get(meta, a->args[0])) {
        (void)unknown_key(meta, a->args[0], &err);
        return cli_fail(&err);
    }
    print_value(value);
    putchar('\n');
    return EXIT_DONE;
}

/* Typed text -> the type the key has: a string stays one whatever it looks like. */
static json_t *typed_value(const json_t *now, const char *text)
{
    json_t *value = json_is_string(now) ? NULL : json_loads(text, JSON_DECODE_ANY, NULL);
    if (value && (json_is_integer(value) || json_is_boolean(value) || json_is_null(value)))
        return value;
    json_decref(value);
    return json_string(text);
}

static int change(struct cli *cli, const char *key, const char *text /* NULL = unset */)
{
    struct err err = {0};
    CLEANUP(json_decrefp) json_t *doc = NULL, *patch = NULL, *answer = NULL;
    if (cli_call(cli, "GET", "/v1/settings", NULL, &doc, &err) < 0)
        return cli_fail(&err);
    const json_t *meta = json_object_get(doc, "meta");
    const json_t *now = find_value(json_object_get(doc, "values"), key);
    if (!json_object_get(meta, key)) {
        (void)unknown_key(meta, key, &err);
        return cli_fail(&err);
    }
    json_t *value = text ? typed_value(now, text) : json_null();
    patch = value ? patch_of(key, value) : NULL;
    if (!patch) {
        err_set(&err, -EILSEQ, "usage", NULL, "the value is not UTF-8 text");
        return cli_fail(&err);
    }
    if (cli_patch(cli, "/v1/settings", json_int(doc, "rev"), patch, &answer, &err) < 0)
        return cli_fail(&err);
    const char *applies = json_text(json_object_get(meta, key), "applies");
    if (strcmp(applies, "restart") == 0)
        cli_note("%s counts from the daemon's next start: cordon stop", key);
    else if (strcmp(applies, "new_sessions") == 0)
        cli_note("%s counts for new sessions", key);
    return EXIT_DONE;
}

int settings_set_command(struct cli *cli, struct args *a)
{
    return change(cli, a->args[0], a->args[1]);
}

int settings_unset_command(struct cli *cli, struct args *a)
{
    return change(cli, a->args[0], NULL);
}
