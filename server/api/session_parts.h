/* What the files of sessions, commands and files share. */
#pragma once
#include "api/request.h"
#include "policy/hostset.h"
#include "store/records.h"

/* The session of the path: alive, or NULL and only its document. *ret_doc is a new reference. */
int session_any(struct request *rq, struct session **ret_live, json_t **ret_doc);
/* The same, but an ended one is 409 session_ended. */
int session_need(struct request *rq, struct session **ret);
/* The body of POST /sessions as a spec; done with session_spec_done also on failure. */
int session_spec_take(struct request *rq, struct session_spec *ret);
int session_spec_confirm(struct request *rq, const struct session_spec *spec);
int64_t session_spec_wait(const struct request *rq); /* ms */
/* Removes an ended session's record, its commands and their output. */
int session_forget(struct request *rq, const char *id);
/* The ids of all that live: those that a change of sites or settings reaches. */
json_t *sessions_alive_ids(struct request *rq);
/* A page of documents. */
int records_reply(struct request *rq, struct record_query *q);
/* The daemon's environment, for sessions. */
char *const *api_env(void);

/* A typed site: checked and normalised. POINTER names the host's member. */
struct site_typed {
    char host[HOST_MAX + 2]; /* with "*." where it means that */
    int port;
    bool allow_private; /* also where the host itself is a private address */
    bool is_wide;       /* it is confirmed, or refused */
};
int site_typed_take(struct request *rq, const char *pointer, const char *text, int port,
                    enum site_list list, bool allow_private, struct site_typed *ret);
/* WIDE: the hosts of what is_wide; the value that ?confirm= must have are these, by commas. */
int sites_confirm(struct request *rq, const struct strv *wide);
json_t *site_to_json(const struct site *s);

/* An object of strings (or null, where NULLS). */
int env_check(struct request *rq, const json_t *env, bool nulls);
