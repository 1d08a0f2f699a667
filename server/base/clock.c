/* Runs in: any. Reads: hostile (clock_parse). May block: no. */
#include "base/clock.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

uint64_t clock_now_ms(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

int64_t clock_wall_ms(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void clock_text(int64_t wall_ms, char ret[static CLOCK_TEXT_MAX])
{
    int64_t ms = wall_ms % 1000;
    if (ms < 0)
        ms += 1000;
    time_t seconds = (time_t)((wall_ms - ms) / 1000);
    struct tm tm = {0};
    if (!gmtime_r(&seconds, &tm) || tm.tm_year + 1900 < 0 || tm.tm_year + 1900 > 9999) {
        (void)snprintf(ret, CLOCK_TEXT_MAX, "0000-00-00T00:00:00.000Z");
        return;
    }
    char day[64];
    (void)strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(ret, CLOCK_TEXT_MAX, "%.19s.%03dZ", day, (int)ms);
}

/* N digits at *P, which moves on; -1 when they are not digits. */
static int digits(const char **p, int n)
{
    int v = 0;
    for (; n > 0; n--, (*p)++) {
        if (!isdigit((unsigned char)**p))
            return -1;
        v = v * 10 + (**p - '0');
    }
    return v;
}

static int expect(const char **p, const char *any)
{
    if (**p == '\0' || !strchr(any, **p))
        return 0;
    return *(*p)++;
}

/* "Z" or "+hh:mm" -> minutes east of UTC (RFC 3339, 5.6). */
static int parse_offset(const char **p, int *ret)
{
    int sign = expect(p, "Zz+-");
    *ret = 0;
    if (sign == 'Z' || sign == 'z')
        return 0;
    if (!sign)
        return -EINVAL;
    int h = digits(p, 2);
    if (!expect(p, ":"))
        return -EINVAL;
    int m = digits(p, 2);
    if (h < 0 || h > 23 || m < 0 || m > 59)
        return -EINVAL;
    *ret = (h * 60 + m) * (sign == '-' ? -1 : 1);
    return 0;
}

int clock_parse(const char *text, int64_t *ret_wall_ms)
{
    const char *p = text;
    struct tm tm = {0};
    int ms = 0, offset;
    int year = digits(&p, 4), ok = expect(&p, "-"), month = ok ? digits(&p, 2) : -1;
    ok = ok && expect(&p, "-");
    int day = ok ? digits(&p, 2) : -1;
    ok = ok && expect(&p, "Tt ");
    int hour = ok ? digits(&p, 2) : -1;
    ok = ok && expect(&p, ":");
    int minute = ok ? digits(&p, 2) : -1;
    ok = ok && expect(&p, ":");
    int second = ok ? digits(&p, 2) : -1;
    if (year < 0 || month < 1 || month > 12 || day < 1 || day > 31 || hour < 0 || hour > 23 ||
        minute < 0 || minute > 59 || second < 0 || second > 60)
        return -EINVAL;
    if (expect(&p, ".")) {
        if (!isdigit((unsigned char)*p))
            return -EINVAL;
        for (int unit = 100; isdigit((unsigned char)*p); p++, unit /= 10)
            ms += unit * (*p - '0');
    }
    if (parse_offset(&p, &offset) < 0 || *p != '\0')
        return -EINVAL;
    tm.tm_year = year - 1900;
    tm.tm_mon = month - 1;
    tm.tm_mday = day;
    tm.tm_hour = hour;
    tm.tm_min = minute;
    tm.tm_sec = second;
    int64_t seconds = (int64_t)timegm(&tm);
    if (tm.tm_mday != day && !(second == 60)) /* 31 of a month of 30 days */
        return -EINVAL;
    *ret_wall_ms = (seconds - (int64_t)offset * 60) * 1000 + ms;
    return 0;
}

int random_bytes(void *ret, size_t n)
{
    unsigned char *p = ret;
    while (n > 0) {
        ssize_t got = getrandom(p, n, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        p += got;
        n -= (size_t)got;
    }
    return 0;
}

static const char ulid_digits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/* A system call for 16 of them, not for each. */
static int ulid_random(unsigned char ret[static 10])
{
    static unsigned char pool[160];
    static size_t used = sizeof pool;
    if (used == sizeof pool) {
        int r = random_bytes(pool, sizeof pool);
        if (r < 0)
            return r;
        used = 0;
    }
    memcpy(ret, pool + used, 10);
    memset(pool + used, 0, 10);
    used += 10;
    return 0;
}

/* 80 random bits; within one millisecond the last ones plus 1, so that ids sort as they were made.
 */
static void ulid_next(unsigned char ret[static 16])
{
    static unsigned char last[16];
    uint64_t now = (uint64_t)clock_wall_ms();
    unsigned char fresh[16];
    for (int i = 0; i < 6; i++)
        fresh[i] = (unsigned char)(now >> (40 - 8 * i));
    if (memcmp(fresh, last, 6) > 0) {
        if (ulid_random(fresh + 6) < 0)
            abort(); /* ids that can be guessed are worse than no daemon */
        memcpy(last, fresh, sizeof(last));
    } else { /* the same millisecond, or the clock was set back */
        for (int i = 15; i >= 0 && ++last[i] == 0; i--)
            ;
    }
    memcpy(ret, last, 16);
}

void id_new(const char *prefix, char ret[static ID_MAX])
{
    unsigned char raw[16];
    ulid_next(raw);
    int n = snprintf(ret, ID_MAX, "%.3s_", prefix);
    for (int i = 0; i < 26; i++) { /* 130 bits, the first two are zero */
        unsigned v = 0;
        for (int bit = i * 5 - 2; bit < i * 5 + 3; bit++)
            v = v << 1 | (bit < 0 ? 0 : raw[bit / 8] >> (7 - bit % 8) & 1U);
        ret[n++] = ulid_digits[v];
    }
    ret[n] = '\0';
}

int id_is(const char *text, const char *prefix)
{
    size_t n = strlen(prefix);
    if (strncmp(text, prefix, n) != 0 || text[n] != '_')
        return 0;
    text += n + 1;
    return strlen(text) == 26 && text[0] <= '7' && strspn(text, ulid_digits) == 26;
}

void base64url(const void *bytes, size_t n, char *ret)
{
    static const char digits64[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const unsigned char *p = bytes;
    unsigned bits = 0;
    uint32_t v = 0;
    for (size_t i = 0; i < n; i++) {
        v = v << 8 | p[i];
        for (bits += 8; bits >= 6; bits -= 6)
            *ret++ = digits64[v >> (bits - 6) & 63];
    }
    if (bits > 0)
        *ret++ = digits64[v << (6 - bits) & 63];
    *ret = '\0';
}
