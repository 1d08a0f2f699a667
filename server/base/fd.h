/* Descriptors: all close-on-exec, passed on only by name. fd_ functions return a negative errno. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FDS_PER_MESSAGE 8 /* the most descriptors that travel with one frame */

static inline void fd_done(int *fd); /* closes and sets to -1; for CLEANUP(fd_done) */
void fd_close(int fd);               /* does nothing for a negative one; keeps errno */
static inline void fd_done(int *fd)
{
    fd_close(*fd);
    *fd = -1;
}
int fd_pair(int ret_fds[2]); /* AF_UNIX SOCK_STREAM, close-on-exec */
int fd_pipe(int ret_fds[2]); /* [0] read end, [1] write end, close-on-exec */
int fd_memfd(const char *name, const void *bytes, size_t n); /* rewound, sealed against writing */
int fd_nonblock(int fd, bool on);
int fd_cloexec(int fd, bool on);
int fd_write_all(int fd, const void *bytes, size_t n); /* blocking */
ssize_t fd_read_all(int fd, void *buf, size_t n);      /* until N or end of file; bytes read */
/* Whole small file of at most MAX bytes, NUL-terminated; -EFBIG when larger. *ret is malloc'ed. */
int fd_read_file(int at, const char *path, size_t max, char **ret, size_t *ret_n);
/* Writes PATH (below folder AT) by temporary file, fsync and rename, with MODE whatever the umask.
 */
int fd_write_file(int at, const char *path, const void *bytes, size_t n, mode_t mode);

/* sendmsg/recvmsg of bytes with descriptors (SCM_RIGHTS, unix(7)). Send: all FDS travel with the
 * first byte; returns bytes sent, MSG_NOSIGNAL. Receive: descriptors are close-on-exec; *ret_n_fds
 * of at most FDS_PER_MESSAGE; -EBADMSG when more came (all are closed then). */
ssize_t fd_send(int sock, const void *bytes, size_t n, const int *fds, size_t n_fds);
ssize_t fd_recv(int sock, void *buf, size_t n, int *ret_fds, size_t *ret_n_fds);

/* Marks every descriptor >= FROM close-on-exec (close_range(2)). */
int fd_cloexec_from(int from);

struct spawn {
    const char *file;  /* absolute */
    char *const *argv; /* NULL-terminated */
    char *const *envp; /* NULL-terminated; nothing is inherited */
    const int *fds;    /* descriptor in the parent for child number 0, 1, 2 …; -1 = /dev/null */
    size_t n_fds;
    const char *cwd; /* or NULL for / */
};
/* posix_spawn with exactly those descriptors; signals reset. The child's pid or a negative errno.
 */
pid_t fd_spawn(const struct spawn *sp);
