/* Writes to standard output the lock-down that the daemon orders for cordon-egress on this machine,
 * as it stands in M_EG_START; for lib/cordon_test/egress.py. */
#include "wire/rules.h"
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/machine.h"
#include "sandbox/provider.h"
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    const struct machine_dirs dirs = {"/tmp/none/state", "/tmp/none/config", "/tmp/none/cache",
                                      "/tmp/none/run"};
    CLEANUP(machine_done) struct machine m = {0};
    CLEANUP(pack_done) struct pack p = {0};
    struct rules rules = {0};
    struct err err = {0};
    int r = machine_look(&dirs, &m, &err);
    if (r == 0)
        r = provider_egress_rules(&m, &rules);
    if (r == 0) {
        rules_put(&p, &rules);
        r = p.r < 0 ? p.r : fd_write_all(STDOUT_FILENO, p.out.data, p.out.len);
    }
    rules_done(&rules);
    if (r < 0)
        fprintf(stderr, "egress_rules: %d %s\n", r, err.detail);
    return r < 0;
}
