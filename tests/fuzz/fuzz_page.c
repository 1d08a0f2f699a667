/* fetch/content: whatever a server sends comes out within its bound, as UTF-8 without control
 * characters where it is said to be text. First byte: form; second: type; third: the bound. */
#include "fetch/content.h"
#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const TYPES[] = {"text/html",
                                        "",
                                        "text/html; charset=iso-8859-1",
                                        "text/plain; charset=utf-16",
                                        "application/json",
                                        "image/png"};
    static const char TARGET[] = "/a/b/c?d";
    char target[sizeof TARGET];
    memcpy(target, TARGET, sizeof TARGET);
    const struct url url = {.is_tls = true, .host = "ok.test", .port = 443, .target = target};
    if (size < 3)
        return 0;
    const struct content in = {.form = (enum fetch_form)(data[0] % 3),
                               .type = TYPES[data[1] % 6],
                               .url = &url,
                               .bytes = (const char *)data + 3,
                               .n = size - 3,
                               .is_cut = data[0] & 0x80};
    struct str out = {.max = data[2] ? data[2] : 1 << 20};
    bool is_text = false, is_cut = false;
    assert(content_make(&in, &out, &is_text, &is_cut) == 0);
    assert(out.len <= out.max);
    if (is_text && out.len > 0)
        assert(utf8_is_valid(out.data, out.len) && !memchr(out.data, '\0', out.len));
    str_done(&out);
    return 0;
}
