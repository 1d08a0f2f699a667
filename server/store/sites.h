/* Machine, guarded and session sites as rows. One row a list, session, host and port. */
#pragma once
#include "store/db.h"
#include <jansson.h>

enum site_list { SITES_MACHINE = 0, SITES_GUARDED, SITES_SESSION };
extern const char *const SITE_LIST_NAMES[]; /* NULL-terminated */
struct site {
    char id[32];
    enum site_list list;
    char session_id[32]; /* empty but for SITES_SESSION */
    char host[256];      /* canonical, "*.x" and "*" as they are */
    int port;            /* 0 = 80 and 443 */
    bool enabled, allow_private;
    char note[201];
    char source[16]; /* catalogue user ask credential tier file */
    char group[16];  /* or empty */
    char created_by[32];
    int64_t created_at, last_used_at, hits, blocked_hits, rev; /* wall ms; 0 = never */
};
/* Catalogue rows (table S) are made once, not enabled: a list, host and port that is there already
 * stays as it is. Id, created_at and rev are filled where they are empty. */
int sites_seed(struct db *db, const struct site *rows, size_t n);
/* Insert, or update by id (all but created_at, last_used_at and the hits). -EEXIST: another row has
 * that list, session, host and port. */
int site_put(struct db *db, const struct site *s);
int site_get(struct db *db, const char *id, struct site *ret); /* -ENOENT */
int site_find(struct db *db, enum site_list list, const char *session_id /* or NULL */,
              const char *host, int port, struct site *ret); /* -ENOENT */
int site_delete(struct db *db, const char *id);              /* -ENOENT */
int sites_of_session_delete(struct db *db, const char *session_id);
/* Rows in order of id, newest first; CB returning non-zero stops and is returned. Filters NULL/-1 =
 * any; without session_id the rows that belong to no session; q: part of the host or note;
 * limit 0 = all. CB may read the store, but not call sites_each. */
int sites_each(struct db *db, int list, const char *session_id, const char *source, const char *q,
               const char *before_id, unsigned limit, int (*cb)(const struct site *s, void *arg),
               void *arg);
int64_t sites_count(struct db *db, int list, const char *session_id);
/* Counts in memory; rows are written once a second, with the group at hand or in one of their own
 * (past 64 sites in that second: into the present group). Whoever reads a site sees what is not
 * written too. */
int site_used(struct db *db, const char *id, bool was_blocked);
