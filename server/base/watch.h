/* Who wants to know when a thing changes. A subject embeds a struct watched, an observer embeds a
 * struct watch; both on one loop, no threads. A callback may remove its own or any other watch. */
#pragma once

struct watch {
    struct watch *prev, *next;
    void (*changed)(struct watch *w); /* container_of() gives the observer */
};
struct watched {
    struct watch head; /* ring; zero-initialised is valid and empty */
};
void watch_add(struct watched *subject, struct watch *w);
void watch_remove(struct watch *w); /* does nothing when not added */
int watch_is_added(const struct watch *w);
void watched_notify(struct watched *subject); /* each watch once, in order of adding */
