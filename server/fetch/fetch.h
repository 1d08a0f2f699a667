/* cordon-fetch: one web call of an agent's own tools, in a process of its own, outside the wall.
 *
 * The daemon decides: each hop (the URL itself, then each redirect) is asked for by M_FT_CHECK
 * before its name is looked up, and nothing is dialled without an allow. Order of a life: order
 * read, certificates and resolver opened, locked down, hops, what was made of the answer, end. It
 * holds no list; the one secret it may be given is the key of the search that it makes. */
#pragma once

_Noreturn void fetch_run(int fd);
