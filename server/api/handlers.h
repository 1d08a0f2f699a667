/* The handlers of the table, a file a resource. Each is one domain call and one rendering. */
#pragma once
#include "api/route.h"

/* machine.c */
int health_show(struct request *rq);
int version_show(struct request *rq);
int status_show(struct request *rq);
int status_check(struct request *rq);
int openapi_show(struct request *rq);
int shutdown_run(struct request *rq);
int policy_show(struct request *rq);
int policy_preview(struct request *rq);
extern const struct shape SHUTDOWN_BODY, POLICY_QUERY, PREVIEW_QUERY;

/* blocked.c */
int blocked_show(struct request *rq);
int session_blocked_show(struct request *rq);
int stats_show(struct request *rq);
extern const struct shape BLOCKED_QUERY, SESSION_BLOCKED_QUERY, STATS_QUERY;

/* static.c */
int page_redirect(struct request *rq);
int page_file(struct request *rq);

/* signin.c */
int code_create(struct request *rq);
int code_exchange(struct request *rq);
int self_show(struct request *rq);
int self_delete(struct request *rq);
int tokens_show(struct request *rq);
int token_create(struct request *rq);
int token_remove(struct request *rq);
int browsers_show(struct request *rq);
int browser_remove(struct request *rq);
extern const struct shape EXCHANGE_BODY, TOKEN_BODY, LIST_QUERY;

/* settings.c */
int settings_show(struct request *rq);
int settings_change(struct request *rq);
extern const struct shape SETTINGS_QUERY;

/* sites.c, sites_many.c */
int sites_list(struct request *rq);
int site_show(struct request *rq);
int site_create(struct request *rq);
int site_change(struct request *rq);
int site_remove(struct request *rq);
int sites_preview(struct request *rq);
int sites_check(struct request *rq);
int sites_batch(struct request *rq);
extern const struct shape SITE_BODY, SITE_PATCH, SITES_QUERY, SITE_PREVIEW_BODY, SITE_CHECK_BODY,
    SITE_BATCH_BODY, CONFIRM_QUERY, BATCH_QUERY;

/* sessions.c, session_spec.c, session_parts.c */
int sessions_show(struct request *rq);
int session_create_route(struct request *rq);
int session_show(struct request *rq);
int session_change(struct request *rq);
int session_remove(struct request *rq);
int session_stop_route(struct request *rq);
int session_verify_route(struct request *rq);
int session_proof_show(struct request *rq);
int session_policy_show(struct request *rq);
int session_access_show(struct request *rq);
int session_folders_show(struct request *rq);
int session_sites_show(struct request *rq);
int session_site_create(struct request *rq);
int session_site_delete(struct request *rq);
extern const struct shape SESSION_BODY, SESSION_PATCH, SESSION_STOP_BODY, SESSION_VERIFY_BODY,
    SESSIONS_QUERY, RENDER_QUERY, SESSION_SITE_BODY;

/* commands.c */
int commands_show(struct request *rq);
int command_start(struct request *rq);
int command_show(struct request *rq);
int command_stdin_route(struct request *rq);
int command_signal_route(struct request *rq);
int command_stop_route(struct request *rq);
int command_remove(struct request *rq);
int command_output(struct request *rq);
extern const struct shape COMMAND_BODY, COMMANDS_QUERY, COMMAND_QUERY, STDIN_QUERY, SIGNAL_BODY,
    COMMAND_STOP_BODY, OUTPUT_QUERY;

/* files.c */
int files_list(struct request *rq);
int files_read(struct request *rq);
int files_write(struct request *rq);
int files_edit(struct request *rq);
int files_search(struct request *rq);
int files_glob(struct request *rq);
int files_mkdir(struct request *rq);
int files_move(struct request *rq);
int files_remove(struct request *rq);
extern const struct shape FILES_LIST_QUERY, FILE_QUERY, FILE_REMOVE_QUERY, EDIT_BODY, SEARCH_BODY,
    GLOB_BODY, MKDIR_BODY, MOVE_BODY;

/* asks.c */
int asks_show(struct request *rq);
int session_asks_show(struct request *rq);
int ask_show_route(struct request *rq);
int ask_create(struct request *rq);
int ask_decide_route(struct request *rq);
int ask_extend_route(struct request *rq);
extern const struct shape ASK_BODY, DECIDE_BODY, ASKS_QUERY, SESSION_ASKS_QUERY, ASK_QUERY;

/* events.c */
int events_follow(struct request *rq);
extern const struct shape EVENTS_QUERY;

/* web.c, web_providers.c */
int web_fetch(struct request *rq);
int web_search(struct request *rq);
extern const struct shape WEB_FETCH_BODY, WEB_SEARCH_BODY;
int web_providers_show(struct request *rq);
int web_provider_put(struct request *rq);
int web_provider_remove(struct request *rq);
extern const struct shape WEB_KEY_BODY;

/* audit.c */
int audit_show(struct request *rq);
int audit_check(struct request *rq);
extern const struct shape AUDIT_QUERY;
