/* Typed sites: what is taken goes into a set, is canonical, is read again from its own text as the
 * same rule, and lets its own host through; what is refused suggests only what is taken. */
#include "policy/hostset.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        abort();
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
    hostset_free(set);
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
    free(text);
    return 0;
}
