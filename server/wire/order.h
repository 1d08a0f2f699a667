/* What the stage is to do before it execs bubblewrap (M_STAGE_ORDER), as bytes. The view is a list
 * of joins in the order of execution; no path is looked up twice, no link is followed.
 *
 * The stage makes a tmpfs, the root of the view, and joins everything to it with open_tree,
 * mount_setattr and move_mount on descriptors; bubblewrap then gets it by one recursive bind. */
#pragma once
#include "wire/pack.h"

enum join_kind {
    JOIN_DIR = 1, /* make TARGET in the view: a folder, MODE */
    JOIN_BIND,    /* clone SOURCE (with all mounts below) to TARGET; made there when missing */
    JOIN_LINK,    /* symbolic link TARGET -> SOURCE (text) */
    JOIN_DATA,    /* file TARGET with DATA, read-only */
    JOIN_ETC,  /* TARGET is an overlay of SOURCE with a layer of our own above it: the JOIN_HIDE and
                * JOIN_COVER rows that follow name what is in it */
    JOIN_HIDE, /* TARGET (below the last JOIN_ETC) is a whiteout */
    JOIN_COVER /* TARGET (below the last JOIN_ETC) is a file of ours with DATA */
};
enum {
    JOIN_READ_ONLY = 1,
    JOIN_OPTIONAL = 2, /* a SOURCE that is absent is passed over */
    JOIN_FILE = 4,     /* SOURCE is no folder */
    JOIN_IDENTITY = 8, /* SOURCE must have DEV and INO, else the session is refused */
    JOIN_PIN = 16      /* bind onto itself, so that it cannot be renamed (EBUSY) */
};
struct join {
    enum join_kind kind;
    uint32_t flags;
    uint32_t mode;
    uint64_t dev, ino;
    char *source, *target; /* canonical; target is the path inside */
    char *data;
    size_t data_len;
};
void join_done(struct join *j);
void order_put_join(struct pack *p, const struct join *j);
int order_get_join(struct unpack *u,
                   struct join *ret); /* -EBADMSG; paths checked for canonical form */

#define ORDER_JOINS_MAX 512
/* The head of an order, before its joins. */
struct order_head {
    uint32_t ppid; /* the daemon's, to see whether it died before the parent-death signal was set */
    uint32_t uid, gid;  /* mapped one to one */
    uint32_t pid_max;   /* 0 = leave; set where the kernel has it per namespace (>= 6.14) */
    uint8_t net;        /* enum order_net */
    uint16_t door_port; /* TCP on 127.0.0.1 and ::1 */
    uint8_t redirect;   /* try to redirect all other TCP, and make the name server's door */
    uint32_t n_joins;
    char *root; /* folder of the private folder that becomes the mount point of the view's tmpfs */
    char *runner; /* cordon-runner's own path outside; joined at RUNNER_INSIDE */
};
enum order_net { ORDER_NET_NONE = 0, ORDER_NET_DOORS };
#define RUNNER_INSIDE     "/run/cordon/cordon-runner"
#define RUNNER_FOLDER     "/run/cordon"            /* what every view has of ours */
#define SSH_CONFIG_INSIDE "/run/cordon/ssh_config" /* with a network: ssh by git, whole */
#define DOOR_PORT         7410 /* of the doors, in the session's own network namespace */
void order_head_done(struct order_head *h);
void order_put_head(struct pack *p, const struct order_head *h);
int order_get_head(struct unpack *u, struct order_head *ret);
