/* For test_oracle.py: reads "host:port" spellings, each as a 16-bit length (little-endian) and its
 * bytes, and prints for each the canonical host, or an empty line when it is refused. */
#include "wire/host.h"
#include <stdio.h>

int main(void)
{
    unsigned char n[2];
    char text[65536], host[HOST_MAX];
    uint16_t port;
    while (fread(n, 1, 2, stdin) == 2) {
        size_t len = (size_t)(n[0] | n[1] << 8);
        if (fread(text, 1, len, stdin) != len)
            return 1;
        puts(host_port_parse(text, len, 0, host, &port) == HOST_BAD ? "" : host);
    }
    return 0;
}
