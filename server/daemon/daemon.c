/* Runs in: daemon. Reads: trusted. May block: yes (at start). */
#include "daemon/daemon.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "policy/catalog.h"
#include "sandbox/machine.h"
#include "store/records.h"
#include "store/spool.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define REPLY_MS 20 /* the answer to POST /shutdown leaves before the listeners close */

/* ---- The store --------------------------------------------------------------------------------
 */

static void finish_spool(const char *command_id, void *arg)
{
    struct daemon *d = arg;
    (void)spool_finish(d->places.spool, command_id, "{\"state\":\"lost\"}");
}

/* Table S, once: rows that exist stay as the person left them. */
static int seed_sites(struct db *db)
{
    size_t n = 0;
    const struct catalog_site *from = catalog_sites(&n);
    CLEANUP(freep) struct site *rows = calloc(n, sizeof *rows);
    if (!rows)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        struct site *row = &rows[i];
        id_new("sit", row->id);
        row->list = SITES_MACHINE;
        row->port = from[i].port;
        row->created_at = clock_wall_ms();
        row->rev = 1;
        (void)snprintf(row->host, sizeof row->host, "%s", from[i].host);
        (void)snprintf(row->note, sizeof row->note, "%s", from[i].label);
        (void)snprintf(row->source, sizeof row->source, "catalogue");
        (void)snprintf(row->group, sizeof row->group, "%s", from[i].group);
        (void)snprintf(row->created_by, sizeof row->created_by, "daemon");
    }
    return sites_seed(db, rows, n);
}

int daemon_open_store(struct daemon *d, struct err *err)
{
    int r = db_open(d->places.database, &d->db, err);
    if (r < 0)
        return r;
    int lost = record_mark_lost(d->db, finish_spool, d);
    if (lost > 0)
        log_warn("daemon.lost", "records=%d", lost);
    r = lost < 0 ? lost : seed_sites(d->db);
    if (r == 0)
        r = db_commit(d->db);
    if (r < 0)
        return err_set(err, r, "disk_full", "free some space for the state folder",
                       "the database cannot be written: %s", strerror(-r));
    return settings_new(d->db, &d->settings, err);
}

/* ---- Sessions and the API ---------------------------------------------------------------------
 */

int daemon_open_sessions(struct daemon *d, struct err *err)
{
    struct machine_dirs dirs = {.state = d->places.state,
                                .config = d->places.config,
                                .cache = d->places.cache,
                                .run = d->places.run};
    int r = machine_look(&dirs, &d->machine, err);
    if (r < 0)
        return r;
    struct sessions_deps deps = {.loop = d->loop,
                                 .db = d->db,
                                 .settings = d->settings,
                                 .machine = &d->machine,
                                 .spool_dir = d->places.spool,
                                 .api_socket = d->places.socket,
                                 .version = CORDON_VERSION};
    r = sessions_new(&deps, &d->sessions, err);
    if (r < 0)
        return r;
    sessions_sweep(d->sessions);
    r = upkeep_new(d->loop, d->db, d->settings, d->sessions, d->places.spool, &d->upkeep);
    return r < 0 ? err_set(err, r, "internal", NULL, "out of memory") : 0;
}

static void api_closed(void *arg)
{
    struct daemon *d = arg;
    d->api = NULL;
    upkeep_close(TAKE(d->upkeep));
    sessions_free(TAKE(d->sessions));
    closing_start(&d->closing);
}

static void sessions_stopped(void *arg)
{
    struct daemon *d = arg;
    if (d->api)
        api_close(d->api, api_closed, d);
    else
        api_closed(d);
}

static void go_down(struct deadline *dl)
{
    struct daemon *d = container_of(dl, struct daemon, shutdown);
    log_info("daemon.stopping", "sessions=%zu", sessions_alive(d->sessions));
    sessions_shutdown(d->sessions, d->drain_ms, sessions_stopped, d);
}

static void shut_down(uint64_t drain_ms, void *arg)
{
    struct daemon *d = arg;
    if (d->is_going_down)
        return;
    d->is_going_down = true;
    d->drain_ms = drain_ms;
    deadline_set(&d->shutdown, REPLY_MS);
}

int daemon_open_api(struct daemon *d, struct err *err)
{
    int port = d->options.port ? d->options.port : (int)settings_int(d->settings, "server.port");
    struct api_deps deps = {.loop = d->loop,
                            .db = d->db,
                            .settings = d->settings,
                            .sessions = d->sessions,
                            .machine = &d->machine,
                            .port = port,
                            .port_fixed = d->options.port != 0,
                            .socket_path = d->places.socket,
                            .token_path = d->places.token,
                            .spool_dir = d->places.spool,
                            .instance_id = d->instance_id,
                            .version = CORDON_VERSION,
                            .shutdown = shut_down,
                            .arg = d};
    int r = api_new(&deps, &d->api, err);
    if (r < 0)
        return r;
    uint16_t got = api_port(d->api);
    sessions_set_ports(d->sessions, &got, 1);
    return 0;
}

int daemon_announce(struct daemon *d, struct err *err)
{
    char url[40];
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u", (unsigned)api_port(d->api));
    json_t *doc = json_pack("{s:s, s:i, s:s, s:s, s:s, s:s}", "instance_id", d->instance_id, "pid",
                            (int)getpid(), "start_time", d->start_time, "url", url, "socket",
                            d->places.socket, "version", CORDON_VERSION);
    CLEANUP(freep) char *text = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
    json_decref(doc);
    if (!text)
        return err_set(err, -ENOMEM, "internal", NULL, "out of memory");
    log_info("daemon.ready", "url=%s socket=%s", url, d->places.socket);
    return places_notice(&d->places, text, err);
}

void daemon_tell(struct daemon *d, int r, const struct err *err)
{
    CLEANUP(str_done) struct str line = {0};
    if (r == 0)
        (void)str_puts(&line, "ready\n");
    else if (r == -EBUSY && d->places.lock < 0)
        (void)str_puts(&line, "running\n");
    else
        (void)str_printf(&line, "failed %s\t%s\n", err->detail, err->hint);
    if (d->options.ready_fd >= 0) {
        (void)fd_write_all(d->options.ready_fd, line.data, line.len);
        fd_done(&d->options.ready_fd);
    }
    if (r < 0)
        log_error("daemon.failed", "detail=%s hint=%s", err->detail, err->hint);
}

/* ---- Signals ----------------------------------------------------------------------------------
 */

static void on_signal(uv_signal_t *handle, int signo)
{
    (void)signo;
    shut_down(0, container_of((struct closing *)handle->data, struct daemon, closing));
}

static void all_closed(struct closing *closing)
{
    struct daemon *d = container_of(closing, struct daemon, closing);
    uv_stop(d->loop);
}

void daemon_watch_signals(struct daemon *d)
{
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    closing_init(&d->closing, all_closed);
    deadline_init(d->loop, &d->shutdown, &d->closing, go_down);
    (void)uv_signal_init(d->loop, &d->term);
    closing_add(&d->closing, (uv_handle_t *)&d->term);
    (void)uv_signal_start(&d->term, on_signal, SIGTERM);
    (void)uv_signal_init(d->loop, &d->intr);
    closing_add(&d->closing, (uv_handle_t *)&d->intr);
    (void)uv_signal_start(&d->intr, on_signal, SIGINT);
}

void daemon_done(struct daemon *d)
{
    settings_free(d->settings);
    db_close(d->db);
    machine_done(&d->machine);
    places_close(&d->places);
}
