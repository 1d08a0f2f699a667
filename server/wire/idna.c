/* Runs in: daemon, cli. Reads: hostile. May block: no. */
#include "wire/idna.h"
#include "base/mem.h"
#include "base/str.h"
#include <idn2.h>
#include <stdio.h>
#include <string.h>

static bool is_ascii(const char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text >= 0x80)
            return false;
    return true;
}

static void text_free(char **text)
{
    if (*text != NULL)
        idn2_free(*text);
}

enum host_kind host_from_typed(const char *text, char ret[static HOST_MAX])
{
    CLEANUP(text_free) char *ascii = NULL;
    size_t n = strlen(text);
    if (is_ascii(text))
        return host_canonical(text, n, text[0] == '[', ret);
    if (n > (size_t)4 * HOST_MAX || !utf8_is_valid(text, n) ||
        idn2_to_ascii_8z(text, &ascii, IDN2_NFC_INPUT | IDN2_NONTRANSITIONAL) != IDN2_OK)
        return HOST_BAD;
    return host_canonical(ascii, strlen(ascii), false, ret);
}

/* ---- For showing ---------------------------------------------------------------------------- */

enum script { /* one bit each; COMMON fits every script */
              COMMON = 0,
              LATIN = 1,
              GREEK = 2,
              CYRILLIC = 4,
              HAN = 8,
              KANA = 16,
              HANGUL = 32,
              ARABIC = 64,
              HEBREW = 128,
              DEVANAGARI = 256,
              THAI = 512,
              OTHER = 1024
};

/* Unicode's Scripts.txt, by blocks; what is in no row is never shown as it is. */
static const struct {
    uint32_t from, to;
    enum script script;
} SCRIPTS[] = {
    {'-', '-', COMMON},       {'0', '9', COMMON},         {'_', '_', COMMON},
    {'a', 'z', LATIN},        {0xb7, 0xb7, LATIN},        {0xdf, 0x24f, LATIN},
    {0x370, 0x3ff, GREEK},    {0x400, 0x52f, CYRILLIC},   {0x5d0, 0x5ea, HEBREW},
    {0x620, 0x669, ARABIC},   {0x900, 0x97f, DEVANAGARI}, {0xe01, 0xe5b, THAI},
    {0x1e00, 0x1eff, LATIN},  {0x1f00, 0x1fff, GREEK},    {0x3005, 0x3007, HAN},
    {0x3041, 0x30fe, KANA},   {0x3400, 0x4dbf, HAN},      {0x4e00, 0x9fff, HAN},
    {0xac00, 0xd7a3, HANGUL},
};

static enum script script_of(uint32_t c)
{
    for (size_t i = 0; i < ARRAY_LEN(SCRIPTS); i++)
        if (c >= SCRIPTS[i].from && c <= SCRIPTS[i].to)
            return SCRIPTS[i].script;
    return OTHER;
}

/* One code point of valid UTF-8; how many bytes it took. */
static size_t utf8_decode(const unsigned char *s, uint32_t *ret)
{
    size_t n = s[0] < 0x80 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    uint32_t c = n == 1 ? s[0] : s[0] & (0xffU >> (n + 1));
    for (size_t i = 1; i < n; i++)
        c = c << 6 | (s[i] & 0x3f);
    *ret = c;
    return n;
}

/* A label of Cyrillic or Greek letters that all look like Latin ones is as bad as a mixed one. */
static bool looks_latin(uint32_t c)
{
    static const uint32_t LOOKALIKES[] = {0x430, 0x435, 0x43e, 0x440, 0x441, 0x443, 0x445,
                                          0x455, 0x456, 0x458, 0x4bb, 0x4cf, 0x501, 0x51b,
                                          0x51d, 0x3b1, 0x3b9, 0x3bd, 0x3bf, 0x3c1, 0x3c5};
    for (size_t i = 0; i < ARRAY_LEN(LOOKALIKES); i++)
        if (LOOKALIKES[i] == c)
            return true;
    return false;
}

/* Unicode Technical Standard 39, 5.2, "highly restrictive": one script, or the mixtures in which
 * Chinese, Japanese and Korean are written. */
static bool scripts_go_together(unsigned scripts)
{
    static const unsigned TOGETHER[] = {LATIN | HAN | KANA, LATIN | HAN | HANGUL};
    if ((scripts & OTHER) != 0)
        return false;
    if ((scripts & (scripts - 1)) == 0)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(TOGETHER); i++)
        if ((scripts & ~TOGETHER[i]) == 0)
            return true;
    return false;
}

static bool label_may_show(const unsigned char *label, size_t n)
{
    unsigned scripts = 0;
    bool all_latin_looks = true;
    for (size_t i = 0; i < n;) {
        uint32_t c;
        i += utf8_decode(label + i, &c);
        scripts |= (unsigned)script_of(c);
        if (script_of(c) != COMMON && !looks_latin(c))
            all_latin_looks = false;
    }
    return scripts_go_together(scripts) && !((scripts & (CYRILLIC | GREEK)) && all_latin_looks);
}

static bool name_may_show(const char *name)
{
    for (const char *at = name;;) {
        size_t n = strcspn(at, ".");
        if (!label_may_show((const unsigned char *)at, n))
            return false;
        if (at[n] == '\0')
            return true;
        at += n + 1;
    }
}

void host_to_unicode(const char *host, char *ret, size_t size)
{
    CLEANUP(text_free) char *shown = NULL;
    bool usable = strstr(host, "xn--") != NULL &&
                  idn2_to_unicode_8z8z(host, &shown, IDN2_NONTRANSITIONAL) == IDN2_OK &&
                  utf8_is_valid(shown, strlen(shown)) && name_may_show(shown);
    snprintf(ret, size, "%s", usable ? shown : host);
}
