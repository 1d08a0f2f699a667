/* The seccomp filters: BPF bytes (struct sock_filter[], seccomp(2)) and a readable listing. The
 * only room that knows libseccomp. Tables of refused calls are data in seccomp.c.
 *
 * The wall's filter allows what the table knows minus what it refuses: a call above
 * SECCOMP_HIGHEST is ENOSYS, as on a kernel that is older than the call, so that libraries fall
 * back; foreign ABIs (x32, i386) are killed. The egress' filter is the other way round: what a
 * single-process proxy needs, everything else EPERM, starting programs kills.
 *
 * Rendering is done once a process; the second call costs a copy. */
#pragma once
#include "base/str.h"

/* The highest call number that the table was reviewed for (set_mempolicy_home_node, Linux 5.17).
 * From 424 on the numbers are the same on every architecture. */
#define SECCOMP_HIGHEST 450

int seccomp_render_wall(struct str *ret_bpf);   /* appended; -ENOMEM, or libseccomp's error */
int seccomp_render_egress(struct str *ret_bpf); /* the same for cordon-egress */
/* The table of the wall, one line a call or a condition: "bpf EPERM". */
int seccomp_text_wall(struct str *out);
/* The errno that the wall gives to call number NR whatever its arguments; 0: it passes, or its
 * arguments decide. For tests. */
int seccomp_wall_errno(int nr);
