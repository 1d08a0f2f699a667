/* Folders inside folders: a mount at a path below a folder that the host shows writable falls off
 * when the host replaces what is there (a rename over it, rmdir and mkdir), and the path is then
 * what the outer folder is. So each is known by device, inode and birth: looked at before anything
 * starts (nested_is_replaced, the authority), and watched, so that a new wall is mostly there by
 * then.
 *
 * The watch is a hint: it sees the folder that holds the path, not those above, and sleeps for
 * NESTED_REST_MS after each event, so that a busy folder costs nothing. */
#pragma once
#include "base/loop.h"
#include "policy/policy.h"

#define NESTED_REST_MS 200

struct nested_watch;
struct nested {
    struct deadline clock;
    struct nested_watch *watches;
    void (*touched)(struct nested *n); /* something happened beside one of them */
};
/* Is another thing at the path of one of P's nested folders than P was made for? */
bool nested_is_replaced(const struct policy *p);
/* Looks at those of FOLDERS that lie inside another: device, inode and `missing` as they are now.
 * -ENOENT when one is gone, which is then marked; a thing that is no folder is left as it was, for
 * the stage to refuse. */
int nested_look(struct policy_folder *folders, size_t n);

void nested_init(struct nested *n, uv_loop_t *loop, struct closing *owner,
                 void (*touched)(struct nested *n));
void nested_watch(struct nested *n, const struct policy *p); /* from now on these, no others */
void nested_stop(struct nested *n);
