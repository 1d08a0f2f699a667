/* Const data: sites with a tick box (table S), credential places (T4), secrets of /etc.
 * All of it is borrowed for the life of the program. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct catalog_site {
    const char *host;
    uint16_t port;
    const char *group; /* "code_hosts" "registries" "search" */
    const char *label;
};
/* Table S. The npm registry's host is held as label and domain and joined when first asked for. */
const struct catalog_site *catalog_sites(size_t *ret_n);
/* Below home, without "~/": ".ssh", ".aws", … what no grant may be in or around, and T4 masks. Ends
 * with a NULL behind the N. */
const char *const *catalog_credential_places(size_t *ret_n);
/* Names below /etc that hold secrets: "shadow", "gshadow", "sudoers", "sudoers.d", "ssl/private", …
 * One may have a '*' in its last component (host keys of ssh): who fills
 * machine.etc_secrets puts in what matches then. Ends with a NULL behind the N. */
const char *const *catalog_etc_secrets(size_t *ret_n);
/* Names of files in /proc (proc(5)) that no session reads, whatever their mode; as above. */
const char *const *catalog_proc_secrets(size_t *ret_n);
