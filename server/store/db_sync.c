/* Runs in: daemon (a thread of its own). Reads: nothing. May block: yes, that is what it is for.
 *
 * SQLite with synchronous=NORMAL writes a commit into the WAL and leaves the fsync to checkpoints.
 * This thread does it DB_SYNC_MS after the first commit since the last fsync. It knows one
 * descriptor and two atomics. The WAL is never removed or replaced while the database is open, so
 * the descriptor stays the right one; it carries no lock (SQLite's are on the database file). */
#include "store/db_impl.h"
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define STACK_BYTES (256 << 10)

static void sync_if_dirty(struct db_syncer *s)
{
    if (atomic_exchange(&s->is_dirty, false) && fdatasync(s->fd) < 0)
        atomic_store(&s->failed, errno);
}

static void wait_ms(struct db_syncer *s, long ms)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ms * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    while (!s->stop && pthread_cond_timedwait(&s->wake, &s->lock, &until) != ETIMEDOUT)
        ;
}

static void *syncer_run(void *arg)
{
    struct db_syncer *s = arg;
    (void)pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        while (!s->stop && !atomic_load(&s->is_dirty))
            (void)pthread_cond_wait(&s->wake, &s->lock);
        wait_ms(s, DB_SYNC_MS);
        (void)pthread_mutex_unlock(&s->lock);
        sync_if_dirty(s);
        (void)pthread_mutex_lock(&s->lock);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

int db_syncer_start(struct db *db)
{
    struct db_syncer *s = &db->syncer;
    pthread_condattr_t cond_attr;
    pthread_attr_t attr;
    sigset_t all, before;
    if (pthread_mutex_init(&s->lock, NULL) != 0 || pthread_condattr_init(&cond_attr) != 0 ||
        pthread_condattr_setclock(&cond_attr, CLOCK_MONOTONIC) != 0 ||
        pthread_cond_init(&s->wake, &cond_attr) != 0 || pthread_attr_init(&attr) != 0)
        return -ENOMEM;
    (void)pthread_condattr_destroy(&cond_attr);
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
    /* Signals are the loop's. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pthread_create(&s->thread, &attr, syncer_run, s);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    s->is_started = e == 0;
    return -e;
}

void db_syncer_wake(struct db *db)
{
    struct db_syncer *s = &db->syncer;
    if (!s->is_started || atomic_exchange(&s->is_dirty, true))
        return;
    (void)pthread_mutex_lock(&s->lock);
    (void)pthread_cond_signal(&s->wake);
    (void)pthread_mutex_unlock(&s->lock);
}

void db_syncer_stop(struct db *db)
{
    struct db_syncer *s = &db->syncer;
    if (!s->is_started)
        return;
    (void)pthread_mutex_lock(&s->lock);
    s->stop = true;
    (void)pthread_cond_signal(&s->wake);
    (void)pthread_mutex_unlock(&s->lock);
    (void)pthread_join(s->thread, NULL);
    s->is_started = false;
    (void)pthread_cond_destroy(&s->wake);
    (void)pthread_mutex_destroy(&s->lock);
}

int db_sync(struct db *db)
{
    struct db_syncer *s = &db->syncer;
    if (s->is_started)
        sync_if_dirty(s);
    int failed = atomic_exchange(&s->failed, 0);
    if (failed)
        db->full = -failed;
    return -failed;
}
