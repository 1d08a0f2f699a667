/* Requests and answers of the file tools: what is read and written again is the same bytes. */
#include "base/path.h"
#include "wire/tool.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same_again(const uint8_t *data, size_t used, struct pack *p)
{
    if (p->r < 0 || p->out.len != used || memcmp(p->out.data, data, used) != 0)
        abort();
    pack_done(p);
}

static void read_request(const uint8_t *data, size_t size)
{
    struct unpack u = unpack_from(data, size);
    struct tool_request rq;
    if (tool_request_get(&u, &rq) == 0) {
        struct pack p = {0};
        if (!path_is_canonical(rq.path))
            abort();
        tool_request_put(&p, &rq);
        same_again(data, size, &p);
    }
    tool_request_done(&rq);
}

static void read_answer(const uint8_t *data, size_t size)
{
    struct unpack u = unpack_from(data, size);
    struct tool_answer a;
    if (tool_answer_get(&u, &a) == 0) {
        struct pack p = {0};
        struct tool_stat st;
        char tag[TOOL_ETAG_MAX];
        tool_answer_put(&p, &a);
        tool_get_stat(&u, &st);
        if (u.r == 0) {
            tool_put_stat(&p, &st);
            same_again(data, (size_t)(u.at - data), &p);
        } else {
            pack_done(&p);
        }
        tool_etag(&st, tag);
    }
    tool_answer_done(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_request(data, size);
    read_answer(data, size);
    return 0;
}
