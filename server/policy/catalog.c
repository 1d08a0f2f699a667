/* Runs in: any. Reads: trusted. May block: no. */
#include "policy/catalog.h"
#include "base/mem.h"
#include <stdbool.h>
#include <stdio.h>

/* The host is LABEL and DOMAIN joined when LABEL is given. */
static const struct {
    const char *label, *domain, *group, *title;
} SITES[] = {
    {NULL, "github.com", "code_hosts", "GitHub"},
    {NULL, "gitlab.com", "code_hosts", "GitLab"},
    {NULL, "pypi.org", "registries", "PyPI"},
    {NULL, "files.pythonhosted.org", "registries", "PyPI"},
    {"registry", "npmjs.org", "registries", "npm"},
    {NULL, "crates.io", "registries", "crates"},
    {NULL, "static.crates.io", "registries", "crates"},
    {NULL, "index.crates.io", "registries", "crates"},
    {NULL, "proxy.golang.org", "registries", "Go"},
    {NULL, "sum.golang.org", "registries", "Go"},
    {NULL, "api.search.brave.com", "search", "Brave"},
    {NULL, "api.tavily.com", "search", "Tavily"},
    {NULL, "duckduckgo.com", "search", "DuckDuckGo"},
    {NULL, "html.duckduckgo.com", "search", "DuckDuckGo"},
};

const struct catalog_site *catalog_sites(size_t *ret_n)
{
    static struct catalog_site sites[ARRAY_LEN(SITES)];
    static char hosts[ARRAY_LEN(SITES)][64];
    for (size_t i = 0; i < ARRAY_LEN(SITES) && !sites[ARRAY_LEN(SITES) - 1].host; i++) {
        snprintf(hosts[i], sizeof hosts[i], "%s%s%s", SITES[i].label ? SITES[i].label : "",
                 SITES[i].label ? "." : "", SITES[i].domain);
        sites[i] = (struct catalog_site){hosts[i], 443, SITES[i].group, SITES[i].title};
    }
    *ret_n = ARRAY_LEN(SITES);
    return sites;
}

static const char *const CREDENTIAL_PLACES[] = {
    /* keys and logins of command line programs (T4, table C) */
    ".ssh", ".aws", ".gnupg", ".gpg", ".kube", ".docker", ".azure", ".gcloud", ".config/gcloud",
    ".config/gh", ".env", ".netrc", ".npmrc", ".pypirc", ".git-credentials",
    ".config/git/credentials", ".cargo/credentials", ".cargo/credentials.toml", ".terraform.d",
    /* others of the same kind */
    ".config/hub", ".config/glab-cli", ".config/containers/auth.json", ".config/rclone",
    ".config/doctl", ".config/op", ".config/sops", ".config/age", ".vault-token", ".oci", ".boto",
    ".s3cfg", ".fly", ".pgpass", ".my.cnf", ".mylogin.cnf", ".gem/credentials",
    ".local/share/gem/credentials", ".composer/auth.json", ".config/composer/auth.json",
    ".password-store", ".local/share/keyrings", ".local/share/kwalletd", ".pki", ".config/keybase",
    ".local/share/keybase",
    /* browser and mail profiles: cookies, saved passwords */
    ".mozilla", ".thunderbird", ".config/google-chrome", ".config/google-chrome-beta",
    ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge", ".config/opera",
    ".config/vivaldi", ".librewolf", ".waterfox", "snap/firefox", "snap/chromium", "snap/brave",
    "snap/thunderbird", ".var/app/org.mozilla.firefox", ".var/app/org.mozilla.Thunderbird",
    ".var/app/org.chromium.Chromium", ".var/app/com.google.Chrome", ".var/app/com.brave.Browser",
    NULL};

const char *const *catalog_credential_places(size_t *ret_n)
{
    *ret_n = ARRAY_LEN(CREDENTIAL_PLACES) - 1;
    return CREDENTIAL_PLACES;
}

static const char *const ETC_SECRETS[] = {"shadow",
                                          "shadow-",
                                          "gshadow",
                                          "gshadow-",
                                          "sudoers",
                                          "sudoers.d",
                                          "sudo.conf",
                                          "security/opasswd",
                                          "ssh/ssh_host_rsa_key",
                                          "ssh/ssh_host_ecdsa_key",
                                          "ssh/ssh_host_ed25519_key",
                                          "ssh/ssh_host_dsa_key",
                                          "ssh/*_key",
                                          "ssl/private",
                                          "pki/tls/private",
                                          "letsencrypt",
                                          "krb5.keytab",
                                          "ppp/chap-secrets",
                                          "ppp/pap-secrets",
                                          "NetworkManager/system-connections",
                                          "netplan",
                                          "wpa_supplicant",
                                          "wireguard",
                                          "openvpn",
                                          "ipsec.secrets",
                                          "ipsec.d/private",
                                          "swanctl/private",
                                          "apt/auth.conf",
                                          "apt/auth.conf.d",
                                          "docker/key.json",
                                          "kubernetes",
                                          "rancher",
                                          "mysql/debian.cnf",
                                          "postfix/sasl_passwd",
                                          "postfix/sasl_passwd.db",
                                          "exim4/passwd.client",
                                          "msmtprc",
                                          "ldap.secret",
                                          "libnss-ldap.secret",
                                          "pam_ldap.secret",
                                          "sssd",
                                          "samba/smbpasswd",
                                          "davfs2/secrets",
                                          "cifs-credentials",
                                          "crypttab",
                                          "luks",
                                          "cups/ssl",
                                          "bind/rndc.key",
                                          "tinc",
                                          "borgmatic",
                                          "credstore",
                                          "credstore.encrypted",
                                          NULL};

/* Keys of the machine's people, and what tells of the kernel's memory. */
static const char *const PROC_SECRETS[] = {"keys",        "timer_list", "slabinfo",   "vmallocinfo",
                                           "kpagecgroup", "kpagecount", "kpageflags", NULL};

const char *const *catalog_proc_secrets(size_t *ret_n)
{
    *ret_n = ARRAY_LEN(PROC_SECRETS) - 1;
    return PROC_SECRETS;
}

const char *const *catalog_etc_secrets(size_t *ret_n)
{
    *ret_n = ARRAY_LEN(ETC_SECRETS) - 1;
    return ETC_SECRETS;
}
