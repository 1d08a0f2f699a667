/* Runs in: any. Reads: trusted rules, hostile names. May block: no. */
#include "policy/hostset.h"
#include "base/mem.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const COVERS_NAMES[] = {"host", "host_and_subdomains", "subdomains", "any", NULL};
const char *const SITE_SOURCE_NAMES[] = {"catalogue", "user", "ask",   "credential",
                                         "tier",      "file", "proof", NULL};

/* One allocation an entry; all rules of one host hang in one chain. */
struct node {
    struct host_entry entry;
    struct node *next;
    uint32_t hash;
    char strings[]; /* host, text, id */
};
struct hostset {
    struct node **buckets; /* n_buckets of them, a power of two */
    size_t n_buckets;
    struct node **order; /* as added */
    size_t n, cap;
};

/* FNV-1a. The set holds only what a person allowed, so nobody hostile chooses the keys. */
static uint32_t host_hash(const char *host)
{
    uint32_t h = 2166136261U;
    for (; *host; host++)
        h = (h ^ (unsigned char)*host) * 16777619U;
    return h;
}

struct hostset *hostset_new(void)
{
    return calloc(1, sizeof(struct hostset));
}

void hostset_free(struct hostset *set)
{
    if (!set)
        return;
    for (size_t i = 0; i < set->n; i++)
        free(set->order[i]);
    free(set->order);
    free(set->buckets);
    free(set);
}

void host_rule_text(const struct host_rule *rule, char ret[static HOST_RULE_TEXT_MAX])
{
    bool v6 = strchr(rule->host, ':') != NULL;
    const char *before = rule->covers == COVERS_SUBDOMAINS ? "*." : v6 ? "[" : "";
    const char *host = rule->covers == COVERS_ANY ? "*" : rule->host;
    int n = snprintf(ret, HOST_RULE_TEXT_MAX, "%s%.*s%s", before, HOST_MAX - 1, host,
                     v6 && rule->covers != COVERS_ANY ? "]" : "");
    if (rule->port && n > 0 && n < HOST_RULE_TEXT_MAX)
        snprintf(ret + n, (size_t)(HOST_RULE_TEXT_MAX - n), ":%u", rule->port);
}

static int rule_check(const struct host_rule *rule, struct err *err)
{
    char canonical[HOST_MAX];
    if (!rule->host)
        return err_set(err, -EINVAL, "site_invalid", NULL, "a rule without a host");
    if (rule->covers == COVERS_ANY)
        return 0;
    enum host_kind kind = host_canonical(rule->host, strlen(rule->host), false, canonical);
    if (kind == HOST_BAD || strcmp(canonical, rule->host) != 0)
        return err_set(err, -EINVAL, "site_invalid", NULL, "a rule's host is not canonical");
    if (kind != HOST_NAME && rule->covers == COVERS_SUBDOMAINS)
        return err_set(err, -EINVAL, "site_invalid", NULL, "an address has no subdomains");
    return 0;
}

static struct node *node_new(const struct host_rule *rule)
{
    char text[HOST_RULE_TEXT_MAX];
    const char *host = rule->covers == COVERS_ANY ? "" : rule->host;
    host_rule_text(rule, text);
    size_t n_host = strlen(host) + 1, n_text = strlen(text) + 1;
    size_t n_id = rule->id ? strlen(rule->id) + 1 : 0;
    struct node *node = calloc(1, sizeof *node + n_host + n_text + n_id);
    if (!node)
        return NULL;
    memcpy(node->strings, host, n_host);
    memcpy(node->strings + n_host, text, n_text);
    if (rule->id)
        memcpy(node->strings + n_host + n_text, rule->id, n_id);
    node->entry.rule = *rule;
    node->entry.rule.host = node->strings;
    node->entry.rule.id = rule->id ? node->strings + n_host + n_text : NULL;
    node->entry.text = node->strings + n_host;
    node->hash = host_hash(host);
    return node;
}

/* Room for one more in both arrays; at most three quarters of the buckets are used. */
static int set_grow(struct hostset *set)
{
    if (set->n == set->cap) {
        size_t cap = set->cap ? set->cap * 2 : 16;
        struct node **order = realloc(set->order, cap * sizeof(struct node *));
        if (!order)
            return -ENOMEM;
        set->order = order;
        set->cap = cap;
    }
    if (set->n_buckets && set->n * 4 < set->n_buckets * 3)
        return 0;
    size_t n = set->n_buckets ? set->n_buckets * 2 : 32;
    struct node **buckets = calloc(n, sizeof(struct node *));
    if (!buckets)
        return -ENOMEM;
    for (size_t i = 0; i < set->n; i++) {
        struct node *node = set->order[i], **at = &buckets[node->hash & (n - 1)];
        node->next = *at;
        *at = node;
    }
    free(set->buckets);
    set->buckets = buckets;
    set->n_buckets = n;
    return 0;
}

int hostset_add(struct hostset *set, const struct host_rule *rule, struct err *err)
{
    int r = rule_check(rule, err);
    if (r < 0)
        return r;
    if (set->n >= HOSTSET_MAX)
        return err_set(err, -E2BIG, "too_many", NULL, "more than %d sites", HOSTSET_MAX);
    struct node *node = set_grow(set) < 0 ? NULL : node_new(rule);
    if (!node)
        return err_set(err, -ENOMEM, "internal", NULL, "no memory for a site");
    struct node **at = &set->buckets[node->hash & (set->n_buckets - 1)];
    node->next = *at;
    *at = node;
    set->order[set->n++] = node;
    return 0;
}

static bool port_matches(const struct host_rule *rule, uint16_t port)
{
    return rule->port ? rule->port == port : port == 443 || port == 80;
}

static bool covers_matches(enum covers covers, bool is_itself)
{
    switch (covers) {
    case COVERS_HOST:
        return is_itself;
    case COVERS_HOST_AND_SUBDOMAINS:
        return true;
    case COVERS_SUBDOMAINS:
        return !is_itself;
    case COVERS_ANY:
        return false;
    }
    return false;
}

static bool is_better(const struct host_rule *a, const struct host_rule *b)
{
    if ((a->port != 0) != (b->port != 0))
        return a->port != 0;
    return a->allow_private && !b->allow_private;
}

/* The best rule of exactly this NAME ("" holds the rules for any host). */
static const struct host_entry *name_find(const struct hostset *set, const char *name,
                                          bool is_itself, uint16_t port)
{
    const struct host_entry *best = NULL;
    uint32_t hash = host_hash(name);
    for (const struct node *n = set->buckets[hash & (set->n_buckets - 1)]; n; n = n->next) {
        const struct host_rule *rule = &n->entry.rule;
        if (n->hash != hash || strcmp(rule->host, name) != 0 || !port_matches(rule, port))
            continue;
        bool fits = name[0] ? covers_matches(rule->covers, is_itself) : rule->covers == COVERS_ANY;
        if (fits && (!best || is_better(rule, &best->rule)))
            best = &n->entry;
    }
    return best;
}

static const struct host_entry *set_find(const struct hostset *set, const char *host, uint16_t port)
{
    char canonical[HOST_MAX];
    enum host_kind kind = host_canonical(host, strlen(host), false, canonical);
    if (kind == HOST_BAD || port == 0 || strcmp(canonical, host) != 0)
        return NULL;
    const struct host_entry *found = name_find(set, host, true, port);
    const char *dot = kind == HOST_NAME ? strchr(host, '.') : NULL; /* addresses have no labels */
    for (; !found && dot; dot = strchr(dot + 1, '.'))
        found = name_find(set, dot + 1, false, port);
    return found ? found : name_find(set, "", false, port);
}

enum verdict hostset_match(const struct hostset *set, const char *host, uint16_t port,
                           const struct host_entry **why)
{
    const struct host_entry *found = set && set->n && host ? set_find(set, host, port) : NULL;
    if (why)
        *why = found;
    return found ? VERDICT_ALLOW : VERDICT_DENY;
}

const struct host_entry *host_entry_better(const struct host_entry *a, const struct host_entry *b)
{
    if (!a || !b)
        return a ? a : b;
    /* Both are the host itself or above it: the longer name is the nearer one; "*" is "". */
    size_t n_a = strlen(a->rule.host), n_b = strlen(b->rule.host);
    if (n_a != n_b)
        return n_a > n_b ? a : b;
    return is_better(&b->rule, &a->rule) ? b : a;
}

static bool port_covers(const struct host_rule *over, const struct host_rule *rule)
{
    return over->port == rule->port || (rule->port != 0 && port_matches(over, rule->port));
}

/* Of the rules of exactly this NAME. IS_ITSELF: it is RULE's own, else one above it. */
static const struct host_entry *name_covers(const struct hostset *set, const char *name,
                                            bool is_itself, const struct host_rule *rule)
{
    uint32_t hash = host_hash(name);
    for (const struct node *n = set->buckets[hash & (set->n_buckets - 1)]; n; n = n->next) {
        const struct host_rule *over = &n->entry.rule;
        if (n->hash != hash || strcmp(over->host, name) != 0 || !port_covers(over, rule) ||
            (rule->allow_private && !over->allow_private))
            continue;
        bool all = over->covers == COVERS_HOST_AND_SUBDOMAINS;
        if (!name[0] ? over->covers == COVERS_ANY
                     : all || over->covers == (is_itself ? rule->covers : COVERS_SUBDOMAINS))
            return &n->entry;
    }
    return NULL;
}

const struct host_entry *hostset_covers(const struct hostset *set, const struct host_rule *rule)
{
    struct in_addr v4;
    if (!set || !set->n)
        return NULL;
    const char *name = rule->covers == COVERS_ANY ? "" : rule->host;
    const struct host_entry *found = name[0] ? name_covers(set, name, true, rule) : NULL;
    bool is_address = strchr(name, ':') || inet_pton(AF_INET, name, &v4) == 1;
    const char *dot = is_address ? NULL : strchr(name, '.');
    for (; !found && dot; dot = strchr(dot + 1, '.'))
        found = name_covers(set, dot + 1, false, rule);
    return found ? found : name_covers(set, "", false, rule);
}

size_t hostset_count(const struct hostset *set)
{
    return set ? set->n : 0;
}

const struct host_entry *hostset_at(const struct hostset *set, size_t i)
{
    return set && i < set->n ? &set->order[i]->entry : NULL;
}
