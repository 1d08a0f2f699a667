/* Runs in: any. Reads: hostile. May block: no. */
#include "wire/msg.h"
#include "base/fd.h"
#include "base/mem.h"
#include "wire/fetch.h"
#include "wire/frame.h"
#include "wire/tool.h"
#include <errno.h>

#define SMALL ((uint32_t)16 << 10) /* a few numbers and short strings, a path among them */
#define LARGE ((uint32_t)FRAME_MAX)

static const struct msg_rule rules[] = {{M_STAGE_ORDER, 2, 5, LARGE, "stage_order"},
                                        {M_LOCKDOWN, 0, 0, LARGE, "lockdown"},
                                        {M_PROBE, 0, 0, SMALL, "probe"},
                                        {M_START, 4, 4, LARGE, "start"},
                                        {M_TOOL, 0, 1, LARGE, "tool"},
                                        {M_TERM_ALL, 0, 0, 0, "term_all"},
                                        {M_LISTEN, 0, 0, 6, "listen"},
                                        {M_CONNECT, 0, 0, 6, "connect"},
                                        {M_DOORS, 0, FDS_PER_MESSAGE, 1, "doors"},
                                        {M_STAGE_FAILED, 0, 0, SMALL, "stage_failed"},
                                        {M_READY, 0, 0, SMALL, "ready"},
                                        {M_PROBED, 0, 0, SMALL, "probed"},
                                        {M_START_FAILED, 0, 0, 9, "start_failed"},
                                        {M_TOOLED, 0, 1, LARGE, "tooled"},
                                        {M_LISTENING, 0, 2, 9, "listening"},
                                        {M_CONNECTED, 0, 1, 9, "connected"},
                                        {M_CMD_SIGNAL, 0, 0, 5, "cmd_signal"},
                                        {M_CMD_STARTED, 0, 0, 4, "cmd_started"},
                                        {M_CMD_FAILED, 0, 0, 5, "cmd_failed"},
                                        {M_CMD_EXIT, 0, 0, SMALL, "cmd_exit"},
                                        {M_CMD_GONE, 0, 0, 0, "cmd_gone"},
                                        {M_EG_START, 0, FDS_PER_MESSAGE, LARGE, "eg_start"},
                                        {M_EG_VERDICT, 0, 0, SMALL, "eg_verdict"},
                                        {M_EG_CUT, 0, 0, 4, "eg_cut"},
                                        {M_EG_FILE, 1, 1, 2, "eg_file"},
                                        {M_EG_NAMES, 1, 1, 0, "eg_names"},
                                        {M_EG_LISTEN, 1, 1, 3, "eg_listen"},
                                        {M_EG_UNLISTEN, 0, 0, 3, "eg_unlisten"},
                                        {M_EG_SOCKET, 1, 1, 8, "eg_socket"},
                                        {M_EG_READY, 0, 0, SMALL, "eg_ready"},
                                        {M_EG_CHECK, 0, 0, SMALL, "eg_check"},
                                        {M_EG_RESULT, 0, 0, SMALL, "eg_result"},
                                        {M_EG_CLOSED, 0, 0, 64, "eg_closed"},
                                        {M_EG_REFUSED, 0, 0, SMALL, "eg_refused"},
                                        {M_EG_STALE, 0, 0, 1, "eg_stale"},
                                        {M_FT_START, 0, 0, LARGE, "ft_start"},
                                        {M_FT_VERDICT, 0, 0, SMALL, "ft_verdict"},
                                        {M_FT_CHECK, 0, 0, 2 * SMALL, "ft_check"},
                                        {M_FT_OPENED, 0, 0, SMALL, "ft_opened"},
                                        {M_FT_HEAD, 0, 0, SMALL, "ft_head"},
                                        {M_FT_BODY, 0, 0, 2 * (FETCH_CHUNK), "ft_body"},
                                        {M_FT_RESULT, 0, 0, 3 * SMALL, "ft_result"},
                                        {M_FT_END, 0, 0, SMALL, "ft_end"}};

const struct msg_rule *msg_rule(uint8_t kind)
{
    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        if (rules[i].kind == kind)
            return &rules[i];
    return NULL;
}

/* Where the payload says how many: the byte at OFFSET, 0 when it is too short (the reader of the
 * payload finds that out). */
static size_t payload_byte(const struct frame *f, size_t offset)
{
    return f->len > offset ? f->payload[offset] : 0;
}

int msg_fds(const struct frame *f, size_t queued)
{
    const struct msg_rule *rule = msg_rule(f->kind);
    if (!rule || f->len > rule->payload_max)
        return -EBADMSG;
    size_t n = rule->fds_min;
    if (f->kind == M_DOORS)
        n = payload_byte(f, 0);
    else if (f->kind == M_TOOL) /* u32 id, u8 op */
        n = payload_byte(f, 4) == TOOL_WRITE;
    else if (f->kind == M_TOOLED) /* u32 id, u32 errno, u8 layer, u8 fds */
        n = payload_byte(f, 9);
    else if (f->kind == M_LISTENING || f->kind == M_CONNECTED) /* u32 id, u32 errno, u8 count */
        n = payload_byte(f, 8);
    else if (f->kind == M_EG_START || f->kind == M_STAGE_ORDER)
        n = queued;
    if (n > queued || n < rule->fds_min || n > rule->fds_max)
        return -EBADMSG;
    return (int)n;
}
