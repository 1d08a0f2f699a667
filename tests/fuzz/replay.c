/* Runs in: tests. Reads: hostile. May block: files.
 * Stands in for libFuzzer in ordinary builds: feeds each file of the corpus folders to the target.
 */
#include "base/fd.h"
#include "base/mem.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(int dir, const char *name)
{
    CLEANUP(freep) char *bytes = NULL;
    size_t n = 0;
    int r = fd_read_file(dir, name, (size_t)16 << 20, &bytes, &n);
    if (r < 0) {
        (void)fprintf(stderr, "%s: %s\n", name, strerror(-r));
        return r;
    }
    /* exactly as large as the input, so that a sanitizer sees a read behind it */
    CLEANUP(freep) uint8_t *exact = malloc(n ? n : 1);
    if (!exact)
        return -1;
    memcpy(exact, bytes, n);
    return LLVMFuzzerTestOneInput(exact, n);
}

static int replay_folder(const char *path)
{
    DIR *dir = opendir(path);
    if (!dir) {
        perror(path);
        return -1;
    }
    int count = 0, r = 0;
    const struct dirent *e;
    while (r == 0 && (e = readdir(dir))) {
        if (e->d_name[0] == '.')
            continue;
        r = replay_file(dirfd(dir), e->d_name);
        count++;
    }
    (void)closedir(dir);
    if (r == 0 && count == 0)
        (void)fprintf(stderr, "%s: the corpus is empty\n", path);
    return r != 0 || count == 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        (void)fprintf(stderr, "usage: %s CORPUS…\n", argv[0]);
        return 2;
    }
    for (int i = 1; i < argc; i++)
        if (replay_folder(argv[i]) < 0)
            return 1;
    return 0;
}
