/* Rooms measured by themselves: audit rows a second in groups, a page out of many rows, a site
 * among 10,000 rules. bench_rooms DIR ROWS prints "NAME VALUE" lines. */
#include "base/clock.h"
#include "policy/hostset.h"
#include "store/audit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int bench_audit(const char *dir, long rows)
{
    char path[4096];
    struct db *db = NULL;
    struct err err = {0};
    snprintf(path, sizeof path, "%s/bench.db", dir);
    if (db_open(path, &db, &err) < 0) {
        fprintf(stderr, "bench_rooms: %s\n", err.detail);
        return 1;
    }
    json_t *enforcement = json_pack("{s:s, s:s, s:s}", "provider", "bubblewrap", "tier", "walled",
                                    "level", "files+network");
    struct actor actor = {.kind = ACTOR_OWNER, .peer_uid = 1000};
    struct audit_entry e = {.actor = &actor,
                            .action = "command.started",
                            .session_id = "ses_01J00000000000000000000000",
                            .command_id = "cmd_01J00000000000000000000000",
                            .target = "npm ci",
                            .outcome = OUTCOME_OK,
                            .enforcement = enforcement};
    double begin = now_us();
    for (long i = 0; i < rows; i++) {
        if (audit_add(db, &e) < 0)
            return 1;
        if (i % 100 == 99 && db_commit(db) < 0)
            return 1;
    }
    if (db_commit(db) < 0)
        return 1;
    printf("audit_rows_per_s %.0f\n", (double)rows / (now_us() - begin) * 1e6);
    double us[101];
    for (int i = 0; i < 101; i++) {
        struct audit_query q = {.before_seq = rows - (long)i * (rows / 120), .limit = 50};
        json_t *items = NULL;
        int64_t next;
        begin = now_us();
        if (audit_list(db, &q, &items, &next) < 0 || json_array_size(items) != 50)
            return 1;
        us[i] = now_us() - begin;
        json_decref(items);
    }
    qsort(us, 101, sizeof us[0], by_value);
    printf("audit_page_us %.0f\n", us[50]);
    json_decref(enforcement);
    db_close(db);
    return 0;
}

static int bench_sites(void)
{
    struct hostset *set = hostset_new();
    char host[64];
    const long rounds = 2000000;
    long allowed = 0;
    for (int i = 0; set && i < 10000; i++) {
        snprintf(host, sizeof host, "%c%d.example%d.test", 'a' + i % 26, i, i % 97);
        struct host_rule rule = {.host = host,
                                 .port = i % 3 ? 443 : 0,
                                 .covers = i % 2 ? COVERS_HOST : COVERS_SUBDOMAINS};
        if (hostset_add(set, &rule, NULL) < 0)
            return 1;
    }
    double begin = now_us();
    for (long k = 0; k < rounds; k++) {
        const struct host_entry *why;
        long i = k * 7919 % 20000; /* half of them are in no rule */
        snprintf(host, sizeof host, "%c%ld.example%ld.test", (char)('a' + i % 26), i, i % 97);
        allowed += hostset_match(set, host, 443, &why) == VERDICT_ALLOW;
    }
    double with_text = now_us() - begin;
    begin = now_us();
    for (long k = 0; k < rounds; k++) {
        long i = k * 7919 % 20000;
        snprintf(host, sizeof host, "%c%ld.example%ld.test", (char)('a' + i % 26), i, i % 97);
        allowed += host[0] == '?';
    }
    printf("site_lookup_ns %.0f\n", (with_text - (now_us() - begin)) * 1e3 / (double)rounds);
    hostset_free(set);
    return allowed > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int r = bench_audit(argv[1], atol(argv[2]));
    return r ? r : bench_sites();
}
