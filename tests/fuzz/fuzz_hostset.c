/* Typed sites: what is taken goes into a set, is canonical, is read again from its own text as the
 * same rule, and lets its own host through; what is refused suggests only what is taken. Two lines
 * are two sites: what the first is said to cover of the second it lets through. */
#include "policy/hostset.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        abort();
}

/* As a list keeps it, it is the same rule. */
static void kept_check(const struct host_rule *rule)
{
    char kept[HOST_MAX + 2], text[HOST_RULE_TEXT_MAX], again_text[HOST_RULE_TEXT_MAX];
    struct host_rule again = {.port = rule->port};
    (void)snprintf(kept, sizeof kept, "%s%s", rule->covers == COVERS_SUBDOMAINS ? "*." : "",
                   rule->covers == COVERS_ANY ? "*" : rule->host);
    enum covers bare = rule->covers == COVERS_HOST_AND_SUBDOMAINS ? rule->covers : COVERS_HOST;
    host_rule_kept(kept, bare, &again);
    must(again.covers == rule->covers);
    host_rule_text(rule, text);
    host_rule_text(&again, again_text);
    must(strcmp(text, again_text) == 0);
}

static void rule_check(const struct host_rule *rule)
{
    char text[HOST_RULE_TEXT_MAX], again_text[HOST_RULE_TEXT_MAX], host[HOST_MAX];
    char suggestion[HOST_RULE_TEXT_MAX];
    struct host_rule again;
    bool wide;
    host_rule_text(rule, text);
    must(host_rule_parse(text, COVERS_HOST, host, &again, &wide, suggestion, NULL) == 0);
    host_rule_text(&again, again_text);
    must(strcmp(text, again_text) == 0);
    struct hostset *set = hostset_new();
    must(set && hostset_add(set, rule, NULL) == 0);
    uint16_t port = rule->port ? rule->port : 443;
    enum verdict own = hostset_match(set, rule->host, port, NULL);
    bool is_pattern = rule->covers == COVERS_SUBDOMAINS || rule->covers == COVERS_ANY;
    must((own == VERDICT_ALLOW) == !is_pattern);
    must(hostset_match(set, rule->host, (uint16_t)(port == 22 ? 23 : 22), NULL) == VERDICT_DENY);
    const struct host_entry *over = hostset_covers(set, rule);
    must(over && over == hostset_at(set, 0)); /* at least itself does */
    hostset_free(set);
    kept_check(rule);
}

/* What OF lets through, OVER does too. */
static void probe(const struct hostset *over, const struct hostset *of, const char *host,
                  uint16_t port)
{
    if (hostset_match(of, host, port, NULL) == VERDICT_ALLOW)
        must(hostset_match(over, host, port, NULL) == VERDICT_ALLOW);
}

static void pair_check(const char *first, const char *second)
{
    char host[2][HOST_MAX], suggestion[HOST_RULE_TEXT_MAX], below[HOST_MAX + 4];
    struct host_rule rule[2] = {{0}, {0}};
    bool wide;
    if (host_rule_parse(first, COVERS_HOST_AND_SUBDOMAINS, host[0], &rule[0], &wide, suggestion,
                        NULL) < 0 ||
        host_rule_parse(second, strlen(second) % 2 ? COVERS_HOST : COVERS_HOST_AND_SUBDOMAINS,
                        host[1], &rule[1], &wide, suggestion, NULL) < 0)
        return;
    struct hostset *over = hostset_new(), *of = hostset_new();
    must(over && of && hostset_add(over, &rule[0], NULL) == 0 &&
         hostset_add(of, &rule[1], NULL) == 0);
    if (hostset_covers(over, &rule[1])) {
        const uint16_t ports[] = {80, 443, rule[0].port, rule[1].port, 22};
        (void)snprintf(below, sizeof below, "x.%s", rule[1].host);
        for (size_t i = 0; i < sizeof ports / sizeof ports[0]; i++) {
            probe(over, of, rule[1].host, ports[i]);
            probe(over, of, below, ports[i]);
            probe(over, of, "other.example", ports[i]);
        }
    }
    hostset_free(over);
    hostset_free(of);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    char host[HOST_MAX], suggestion[HOST_RULE_TEXT_MAX], second[HOST_RULE_TEXT_MAX];
    struct host_rule rule;
    struct err err = {0};
    bool wide;
    must(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    enum covers bare = size % 2 ? COVERS_HOST : COVERS_HOST_AND_SUBDOMAINS;
    if (host_rule_parse(text, bare, host, &rule, &wide, suggestion, &err) == 0)
        rule_check(&rule);
    else if (suggestion[0])
        must(host_rule_parse(suggestion, bare, host, &rule, &wide, second, NULL) == 0);
    struct hostset *set = hostset_new();
    must(set && hostset_add(set, &(struct host_rule){.host = "ok.test"}, NULL) == 0);
    bool same = strcmp(text, "ok.test") == 0;
    must((hostset_match(set, text, 443, NULL) == VERDICT_ALLOW) == same);
    hostset_free(set);
    char *second_line = strchr(text, '\n');
    if (second_line) {
        *second_line = '\0';
        pair_check(text, second_line + 1);
    }
    free(text);
    return 0;
}
