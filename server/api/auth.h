/* Who asks: bearer tokens, the owner on the unix socket, sign-in codes of browsers. Host and
 * Origin. No cookie, no query member. Nothing here is ever logged but ids. */
#pragma once
#include "api/request.h"

#define AUTH_FAILURES_MAX 20 /* failed sign-ins a minute */
#define AUTH_CODES_MAX    16 /* codes open at once; the oldest goes */
#define AUTH_CODE_MS      60000
#define AUTH_BROWSER_MS   (12 * 3600 * 1000)

struct auth;
/* Reads the owner's token at PATH (0600; repaired or refused else), or makes it. */
int auth_new(struct db *db, const char *path, struct auth **ret, struct err *err);
void auth_free(struct auth *a);
void auth_port(struct auth *a, uint16_t port); /* what Host must name */

/* Steps of route.h; < 0 with rq->err. */
int auth_host(struct auth *a, struct request *rq);   /* 1 */
int auth_origin(struct auth *a, struct request *rq); /* 2 */
int auth_caller(struct auth *a, struct request *rq); /* 4: fills rq->caller */
int auth_scope(struct request *rq);                  /* 5 */
/* Is the token that RQ came with still good? The owner's is for life. */
bool auth_is_valid(struct request *rq);

/* A new code (22 base64url characters) and when it ends (wall ms). */
#define AUTH_CODE_TEXT 23
int auth_code_new(struct auth *a, char ret[static AUTH_CODE_TEXT], int64_t *ret_expires_at);
/* Takes CODE once; else token_invalid, code_used, code_expired in rq->err, recorded. */
int auth_code_take(struct auth *a, struct request *rq, const char *code);
