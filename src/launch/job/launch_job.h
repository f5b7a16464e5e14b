/* launch_job.h -- what a job runs, and how: the options with the defaults filled in, and the current start of its workers.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_JOB_H
#define TUTTI_LAUNCH_JOB_H

#include "base/base.h"

#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <tutti/group.h>

enum {
    TUTTI__MOST_WORKERS = 65536, /* of a node; also the most nodes */
    TUTTI__FEW_NODES = 16        /* each of which may say what concerns all */
};

/* Which of a worker's standard streams: a set of bits, as in --tee and --redirects. */
typedef enum tutti__streams {
    TUTTI__STREAM_NONE = 0,
    TUTTI__STREAM_OUT = 1,
    TUTTI__STREAM_ERR = 2,
    TUTTI__STREAM_BOTH = 3
} tutti__streams;

/* The nodes of a job, with one agent each, and their rendezvous. Zero means default. */
typedef struct tutti__nodes {
    int min, max;       /* number of nodes; default 1 */
    bool has_node_rank; /* this node's number was given (static rendezvous needs it) */
    int node_rank;
    /* nodes may join and leave, and are numbered automatically; else static: a fixed number */
    bool native;
    /* of the rendezvous: the endpoint, or master_addr; NULL: one node needs none */
    const char *host;
    int port;
    int hosts; /* whether this node hosts the rendezvous: 1 yes, -1 no, 0: if it has that address */
    /* whether all nodes' launchers write to one terminal or file: 1 yes, -1 no, 0: under srun, with more than a few nodes */
    int merges;
    /* address of this node for the others; default: the one from which it reaches the endpoint */
    const char *local_addr;
    double join_timeout_s; /* for `min` nodes to come; default 600 */
    double last_call_s;    /* for more, once there are `min`; default 30; negative: none */
    double keep_alive_s;   /* interval of each node's pings; default 5 */
    int keep_alive_misses; /* pings that may be missed; default 3 */
} tutti__nodes;

/* Zero means default. Everything is borrowed until tutti__launch returns. */
typedef struct tutti__launch_opts {
    const char *title;   /* prefix of messages; default "tutti run" */
    const char *program; /* searched in PATH if it has no '/'; NULL: this executable */
    /* the file that the program, a python3, runs: its existence is checked before the start; or NULL */
    const char *script;
    char *const *argv; /* of every worker: argv[0], arguments, NULL */
    int n;             /* workers, at least 1 */

    /* Rank 0 inherits our standard output and error: a progress bar sees the terminal, and its lines have no
     * prefix. */
    bool rank0_direct;
    bool quiet; /* no line about an elastic job that has succeeded */

    const char *id;          /* of the job; default: the time and our process */
    const char *role;        /* ROLE_NAME; default "default" */
    const char *master_addr; /* default 127.0.0.1 */
    int master_port;         /* default: a free one */
    int max_restarts;        /* of all workers, after a failure */
    tutti__nodes nodes;
    double shutdown_timeout_s; /* from SIGTERM to SIGKILL; 0: default, 30 s; negative: none */

    /* Signals that are forwarded to the workers, 0-terminated; NULL: TERM INT HUP QUIT USR1, but not HUP or TERM if our
     * parent ignores it (nohup). */
    const int *signals;

    const char *log_dir;            /* NULL: no log files */
    const tutti__streams *redirect; /* [n], streams that go to a file only; NULL: none */
    const tutti__streams *tee;      /* [n], streams that go to a file too; NULL: none */
    const bool *shown;              /* [n], ranks whose output is shown; NULL: all */

    /* Prefix of lines, a template with ${role_name} ${local_rank} ${rank} ${hostname}; "": none. NULL: the rank, if
     * there are several. */
    const char *prefix;
    /* Words, NULL-terminated: lines of standard output, standard error with one of them are copied to a file. */
    const char *const *filters[2];
    bool virtual_local_rank;               /* LOCAL_RANK 0 for all, and one device each */
    const cpu_set_t *binding;              /* [n], the CPUs of each worker; NULL: all */
    const struct tutti__chaos_plan *chaos; /* fault injection (chaos.h); NULL: none */
    const char *flips; /* and TUTTI_CHAOS_FLIP of the workers; NULL: what this process has */
} tutti__launch_opts;

/* One start of all workers; TUTTI_ATTEMPT and the folders attempt_K have its number. */
typedef struct tutti__round {
    int number;              /* how many there were before it */
    int restarts;            /* after failures so far */
    int group_rank, n_nodes; /* this node's number; number of nodes */
    int first_rank;          /* the first rank on this node */
    int world_size;
    int first_role_rank, role_world_size; /* among the workers of all nodes with this --role */
    char master_addr[256], store[280];    /* store: host:port */
    int master_port;
} tutti__round;

typedef struct tutti__job {
    tutti__launch_opts opts;
    char id[128], program[PATH_MAX], host[64]; /* host: this node's name */
    int signals[NSIG];                         /* forwarded signals, 0-terminated */
    const char *omp_threads; /* OMP_NUM_THREADS: from the environment, or omp_text */
    char omp_text[16], secret[65];
    tutti_store *store;      /* hosted here; NULL: by another node */
    char store_address[280]; /* host:port of our store */
    tutti__round round;
    /* What workers inherit, as it was when the launcher started. */
    struct rlimit descriptors;
    sigset_t mask;
    struct sigaction sigpipe;
    char private_folder[PATH_MAX]; /* see job_files.c; "": none */
    int folder_lock;               /* of it, shared by the launcher and the agent; -1: none */
    bool keeps_folder;             /* keep it when the job ends: it contains the user's output */
    bool merges;                   /* the output of all nodes' launchers (nodes.merges) */
    int flip_counter; /* an eventfd, in which workers count flipped bits (chaos.h); -1: none */
} tutti__job;

/* Fills in the defaults and finds the program. Returns 0 or the exit code; the message is tutti_last_error(). */
int tutti__job_init(tutti__job *job, const tutti__launch_opts *opts);

#endif
