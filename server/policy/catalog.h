/* Const data: sites with a tick box (table S), credential places (T4), protected names, toolchains.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct catalog_site {
    const char *host;
    uint16_t port;
    const char *group; /* "code_hosts" "registries" "search" */
    const char *label;
};
/* The npm registry's host is held as domain and label and joined when first asked for. */
const struct catalog_site *catalog_sites(size_t *ret_n);
/* Below home, without "~/": ".ssh", ".aws", … what no grant may be in or around, and T4 masks. */
const char *const *catalog_credential_places(size_t *ret_n);
/* Names below /etc that hold secrets: "shadow", "gshadow", "sudoers", "sudoers.d", "ssl/private", …
 */
const char *const *catalog_etc_secrets(size_t *ret_n);
