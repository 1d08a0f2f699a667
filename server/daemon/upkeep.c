/* Runs in: daemon. Reads: trusted. May block: no (the spool is cut in a thread). */
#include "daemon/upkeep.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/mem.h"
#include "store/audit.h"
#include "store/owed.h"
#include "store/spool.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define RETRY_MS   500
#define LOOK_MS    60000 /* was there new output? */
#define EACH_MS    3600000
#define SLICE_MS   50 /* between two slices of rows, so that the loop stays free */
#define SLICE_ROWS 500
#define DAY_MS     86400000

/* One cut of the spool, in a thread: owns all it reads. */
struct spool_cut {
    uv_work_t work;
    char *dir;
    uint64_t bytes;
    unsigned days;
    struct strv running;
    char newest[ID_MAX]; /* commands made after this one may run too */
    struct upkeep *upkeep;
};
struct upkeep {
    struct closing closing;
    uv_prepare_t turn;
    struct deadline next, retry, gather;
    struct db *db;
    struct settings *settings;
    struct sessions *sessions;
    struct watch settings_watch;
    char *spool_dir;
    struct timespec spool_changed; /* its folder, when it was cut last */
    uint64_t all_due_ms;           /* rows, and the spool whether it changed or not */
    bool is_cutting, is_closed;
};

static void upkeep_free(struct closing *closing)
{
    struct upkeep *u = container_of(closing, struct upkeep, closing);
    free(u->spool_dir);
    free(u);
}

static void on_turn(uv_prepare_t *turn)
{
    struct upkeep *u = container_of(turn, struct upkeep, turn);
    uint64_t due = db_commit_due(u->db);
    if (due > 0 && due < UINT64_MAX)
        deadline_set(&u->gather, due);
    int r = due == 0 ? db_commit(u->db) : 0;
    if (r < 0)
        log_warn("db.commit", "errno=%d", -r);
    if (owed_count(u->db) > 0 && !uv_is_active((uv_handle_t *)&u->retry.timer))
        deadline_set(&u->retry, RETRY_MS);
}

/* What waited for company is due: committed this turn. */
static void on_gather(struct deadline *d)
{
    (void)d;
}

/* The disk may have room again. */
static void on_retry(struct deadline *d)
{
    owed_write(container_of(d, struct upkeep, retry)->db); /* committed this turn */
}

/* ---- Retention --------------------------------------------------------------------------------
 */

static bool is_running(const char *id, void *arg)
{
    struct spool_cut *cut = arg;
    return strv_has(&cut->running, id) || strcmp(id, cut->newest) > 0;
}

static void cut_spool(uv_work_t *work)
{
    struct spool_cut *cut = container_of(work, struct spool_cut, work);
    int r = spool_retain(cut->dir, cut->bytes, cut->days, is_running, cut);
    if (r < 0)
        log_warn("spool.retain", "errno=%d", -r);
}

static void cut_over(uv_work_t *work, int status)
{
    struct spool_cut *cut = container_of(work, struct spool_cut, work);
    struct upkeep *u = cut->upkeep;
    (void)status;
    u->is_cutting = false;
    strv_done(&cut->running);
    free(cut->dir);
    free(cut);
    if (u->is_closed)
        closing_start(&u->closing);
}

static void start_cut(struct upkeep *u)
{
    struct spool_cut *cut = u->is_cutting ? NULL : calloc(1, sizeof *cut);
    if (!cut)
        return;
    cut->dir = strdup(u->spool_dir);
    cut->bytes = (uint64_t)settings_int(u->settings, "retention.output_bytes");
    cut->days = (unsigned)settings_int(u->settings, "retention.output_days");
    cut->upkeep = u;
    id_new("cmd", cut->newest);
    sessions_running(u->sessions, &cut->running);
    u->is_cutting =
        cut->dir && uv_queue_work(u->next.timer.loop, &cut->work, cut_spool, cut_over) == 0;
    if (!u->is_cutting) {
        strv_done(&cut->running);
        free(cut->dir);
        free(cut);
    }
}

/* A command began, or a spool went. */
static bool spool_changed(struct upkeep *u)
{
    struct stat sb;
    if (stat(u->spool_dir, &sb) < 0)
        return false;
    bool changed = sb.st_mtim.tv_sec != u->spool_changed.tv_sec ||
                   sb.st_mtim.tv_nsec != u->spool_changed.tv_nsec;
    u->spool_changed = sb.st_mtim;
    return changed;
}

/* One slice of old rows; whether there may be more. A command's record outlives its output: it goes
 * with the rows of the audit. */
static bool cut_rows(struct upkeep *u)
{
    int64_t days = settings_int(u->settings, "retention.audit_days");
    int64_t output_days = settings_int(u->settings, "retention.output_days");
    int64_t now = clock_wall_ms();
    if (db_is_full(u->db))
        return false;
    int rows = audit_retain(u->db, now - days * DAY_MS, SLICE_ROWS);
    int64_t record_days = days > output_days ? days : output_days;
    int records = record_retain(u->db, now - record_days * DAY_MS, SLICE_ROWS);
    return rows >= SLICE_ROWS || records >= SLICE_ROWS;
}

static void on_next(struct deadline *d)
{
    struct upkeep *u = container_of(d, struct upkeep, next);
    bool is_due = clock_now_ms() >= u->all_due_ms;
    if (u->is_cutting) {
        deadline_set(&u->next, SLICE_MS);
        return;
    }
    if (is_due && cut_rows(u)) {
        deadline_set(&u->next, SLICE_MS);
        return;
    }
    if (is_due)
        u->all_due_ms = clock_now_ms() + EACH_MS;
    if (spool_changed(u) || is_due)
        start_cut(u);
    deadline_set(&u->next, LOOK_MS);
}

/* Perhaps less is to be kept now. */
static void settings_changed(struct watch *w)
{
    struct upkeep *u = container_of(w, struct upkeep, settings_watch);
    u->all_due_ms = 0;
    deadline_set(&u->next, 0);
}

/* ---- Life -------------------------------------------------------------------------------------
 */

int upkeep_new(uv_loop_t *loop, struct db *db, struct settings *settings, struct sessions *sessions,
               const char *spool_dir, struct upkeep **ret)
{
    struct upkeep *u = calloc(1, sizeof *u);
    if (!u || !(u->spool_dir = strdup(spool_dir))) {
        free(u);
        return -ENOMEM;
    }
    closing_init(&u->closing, upkeep_free);
    u->db = db;
    u->settings = settings;
    u->sessions = sessions;
    (void)uv_prepare_init(loop, &u->turn);
    closing_add(&u->closing, (uv_handle_t *)&u->turn);
    (void)uv_prepare_start(&u->turn, on_turn);
    uv_unref((uv_handle_t *)&u->turn);
    deadline_init(loop, &u->next, &u->closing, on_next);
    deadline_set(&u->next, LOOK_MS);
    uv_unref((uv_handle_t *)&u->next.timer);
    u->settings_watch.changed = settings_changed;
    watch_add(settings_watched(settings), &u->settings_watch);
    deadline_init(loop, &u->retry, &u->closing, on_retry);
    uv_unref((uv_handle_t *)&u->retry.timer);
    deadline_init(loop, &u->gather, &u->closing, on_gather);
    uv_unref((uv_handle_t *)&u->gather.timer);
    *ret = u;
    return 0;
}

void upkeep_close(struct upkeep *u)
{
    if (!u || u->is_closed)
        return;
    u->is_closed = true;
    watch_remove(&u->settings_watch);
    if (!u->is_cutting)
        closing_start(&u->closing);
}
