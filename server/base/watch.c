/* Runs in: any. Reads: trusted. May block: no. */
#include "base/watch.h"
#include <stddef.h>

/* Not inlined: gcc would take the marks of watched_notify, which leave with it, for dangling. */
__attribute__((noinline)) static void ring_insert_before(struct watch *at, struct watch *w)
{
    w->prev = at->prev;
    w->next = at;
    at->prev->next = w;
    at->prev = w;
}

static struct watch *watched_head(struct watched *subject)
{
    struct watch *head = &subject->head;
    if (!head->next)
        head->next = head->prev = head;
    return head;
}

void watch_add(struct watched *subject, struct watch *w)
{
    watch_remove(w);
    ring_insert_before(watched_head(subject), w);
}

void watch_remove(struct watch *w)
{
    if (!w->next)
        return;
    w->prev->next = w->next;
    w->next->prev = w->prev;
    w->prev = w->next = NULL;
}

int watch_is_added(const struct watch *w)
{
    return w->next != NULL;
}

/* Two marks travel in the ring: HERE says how far this round has come, whatever callbacks remove;
 * END stops it before watches that were added meanwhile. Marks have no callback. */
void watched_notify(struct watched *subject)
{
    struct watch *head = watched_head(subject), here = {0}, end = {0};
    ring_insert_before(head->next, &here);
    ring_insert_before(head, &end);
    while (here.next != &end) {
        struct watch *w = here.next;
        watch_remove(&here);
        ring_insert_before(w->next, &here);
        if (w->changed)
            w->changed(w);
    }
    watch_remove(&here);
    watch_remove(&end);
}
