/* Bearer tokens and browser sign-ins: only SHA-256 is kept, compared in constant time. */
#pragma once
#include "store/db.h"
#include <jansson.h>

enum scope {
    SCOPE_READ = 1,
    SCOPE_EXEC = 2,
    SCOPE_ASK_CREATE = 4,
    SCOPE_ASK_DECIDE = 8,
    SCOPE_SESSIONS = 16,
    SCOPE_SETTINGS = 32,
    SCOPE_CREDENTIALS = 64,
    SCOPE_ADMIN = 128
};
#define SCOPES_ALL   255u
#define SCOPES_AGENT (SCOPE_READ | SCOPE_EXEC | SCOPE_ASK_CREATE)
extern const struct scope_name {
    unsigned scope;
    const char *name;
} SCOPE_ROWS[]; /* ended by {0, NULL} */

enum token_kind { TOKEN_API = 0, TOKEN_BROWSER };
struct token {
    char id[32]; /* tok_… or brw_… */
    enum token_kind kind;
    char name[101];
    unsigned scopes;
    char session_id[32];                          /* an agent's, or empty */
    int64_t created_at, last_used_at, expires_at; /* wall ms; 0 = never */
};
#define TOKEN_TEXT_MAX 52 /* "cordon_", 43 of base64url (RFC 4648, 5), NUL, one spare */
#define TOKENS_MAX     256
#define BROWSERS_MAX   64
/* Makes id, created_at and the secret; TEXT is shown once. Expired ones make room. -E2BIG past
 * TOKENS_MAX (API); of BROWSERS_MAX browsers the one not used for longest goes. -EPERM: one with
 * session_id and more than SCOPES_AGENT. */
int token_new(struct db *db, struct token *t, char ret_text[static TOKEN_TEXT_MAX]);
int token_find(struct db *db, const char *text, struct token *ret); /* -ENOENT unknown or expired */
int token_get(struct db *db, const char *id, struct token *ret);    /* -ENOENT */
int token_delete(struct db *db, const char *id);                    /* -ENOENT */
/* Last used is now (kept to the minute); EXPIRES_AT > 0 slides a browser's. */
int token_touch(struct db *db, const char *id, int64_t expires_at);
/* The names in SCOPES, in the order of the rows. */
json_t *scopes_json(unsigned scopes);
/* {id, name, scopes[], session_id, created_at, last_used_at, expires_at} with null where there is
 * none; of a browser {id, created_at, last_used_at}. */
json_t *token_to_json(const struct token *t);
int tokens_list(struct db *db, enum token_kind kind, json_t **ret_items); /* newest first */
