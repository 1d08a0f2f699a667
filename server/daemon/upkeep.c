/* Runs in: daemon. Reads: trusted. May block: no (the spool is cut in a thread). */
#include "daemon/upkeep.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/mem.h"
#include "store/audit.h"
#include "store/records.h"
#include "store/spool.h"
#include <errno.h>
#include <string.h>

#define FIRST_MS   60000
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
    struct upkeep *upkeep;
};
struct upkeep {
    struct closing closing;
    uv_prepare_t turn;
    struct deadline next;
    struct db *db;
    struct settings *settings;
    struct sessions *sessions;
    char *spool_dir;
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
    int r = db_commit(u->db);
    if (r < 0)
        log_warn("db.commit", "errno=%d", -r);
}

/* ---- Retention --------------------------------------------------------------------------------
 */

static bool is_running(const char *id, void *arg)
{
    return strv_has(arg, id);
}

static void cut_spool(uv_work_t *work)
{
    struct spool_cut *cut = container_of(work, struct spool_cut, work);
    int r = spool_retain(cut->dir, cut->bytes, cut->days, is_running, &cut->running);
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
    sessions_running(u->sessions, &cut->running);
    u->is_cutting =
        cut->dir && uv_queue_work(u->next.timer.loop, &cut->work, cut_spool, cut_over) == 0;
    if (!u->is_cutting) {
        strv_done(&cut->running);
        free(cut->dir);
        free(cut);
    }
}

/* One slice of old rows; whether there may be more. */
static bool cut_rows(struct upkeep *u)
{
    int64_t days = settings_int(u->settings, "retention.audit_days");
    int64_t output_days = settings_int(u->settings, "retention.output_days");
    int64_t now = clock_wall_ms();
    int rows = 0, records = 0;
    if (db_is_full(u->db))
        return false;
    if (days > 0)
        rows = audit_retain(u->db, now - days * DAY_MS, SLICE_ROWS);
    if (output_days > 0)
        records = record_retain(u->db, now - output_days * DAY_MS, SLICE_ROWS);
    return rows == SLICE_ROWS || records == SLICE_ROWS;
}

static void on_next(struct deadline *d)
{
    struct upkeep *u = container_of(d, struct upkeep, next);
    if (cut_rows(u)) {
        deadline_set(&u->next, SLICE_MS);
        return;
    }
    start_cut(u);
    deadline_set(&u->next, EACH_MS);
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
    deadline_set(&u->next, FIRST_MS);
    uv_unref((uv_handle_t *)&u->next.timer);
    *ret = u;
    return 0;
}

void upkeep_close(struct upkeep *u)
{
    if (!u || u->is_closed)
        return;
    u->is_closed = true;
    if (!u->is_cutting)
        closing_start(&u->closing);
}
