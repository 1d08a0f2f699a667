/* For tests of the store: a folder of their own, a database in it, and SQL beside it. */
#pragma once
#include "unit.h"

#include "base/path.h"
#include "store/db.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct place {
    char dir[64], path[96];
    struct db *db;
    struct err err;
};

static inline void place_make(struct place *p)
{
    memset(p, 0, sizeof *p);
    (void)snprintf(p->dir, sizeof p->dir, "/tmp/cordon-test-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    (void)snprintf(p->path, sizeof p->path, "%s/cordon.db", p->dir);
}

static inline void place_open(struct place *p)
{
    memset(&p->err, 0, sizeof p->err);
    int r = db_open(p->path, &p->db, &p->err);
    if (r < 0)
        fail_msg("db_open: %d %s", r, p->err.detail);
}

static inline void place_close(struct place *p)
{
    db_close(p->db);
    p->db = NULL;
}

static inline void place_done(struct place *p)
{
    place_close(p);
    assert_int_equal(path_remove_tree(AT_FDCWD, p->dir), 0);
}

/* A database for each test. */
static inline int db_setup(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    place_make(p);
    place_open(p);
    *state = p;
    return 0;
}

static inline int db_teardown(void **state)
{
    place_done(*state);
    free(*state);
    return 0;
}

/* What somebody else does to the file, while it is not open. */
static inline void sql_outside(const char *path, const char *sql)
{
    sqlite3 *other = NULL;
    char *why = NULL;
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    if (sqlite3_exec(other, sql, NULL, NULL, &why) != SQLITE_OK)
        fail_msg("%s: %s", sql, why);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
}

static inline long mode_of(const char *path)
{
    struct stat sb;
    return stat(path, &sb) < 0 ? -errno : (long)(sb.st_mode & 07777);
}
