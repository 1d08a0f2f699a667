/* The seccomp filters: BPF bytes (struct sock_filter[]) and a readable listing. The only room that
 * knows libseccomp. Tables of refused calls are data in this file. */
#pragma once
#include "base/str.h"

int seccomp_render_wall(struct str *ret_bpf);   /* commands behind the wall (wall.md, 3) */
int seccomp_render_egress(struct str *ret_bpf); /* cordon-egress: no exec, no new processes … */
int seccomp_text_wall(struct str *out);
