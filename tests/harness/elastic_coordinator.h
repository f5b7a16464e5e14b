/* elastic_coordinator.h -- a small launcher for elastic workers: starts processes, decides generations, replaces the dead.
 * SPDX-License-Identifier: MIT
 *
 * The rules are those of docs/design/elasticity.md, on one host and without nodes. The store is in a separate process, so
 * that the test's has one thread and may fork workers at any time. */
#ifndef TUTTI_TESTS_ELASTIC_COORDINATOR_H
#define TUTTI_TESTS_ELASTIC_COORDINATOR_H

#include "elastic/agent_messages.h"

#include <sys/types.h>

enum { ELASTIC_MAX_WORKERS = 256 };

typedef enum elastic_state {
    ELASTIC_STARTING,
    ELASTIC_WAITING,
    ELASTIC_IN,
    ELASTIC_ENDING, /* has sent FINISHED or LEAVES */
    ELASTIC_GONE
} elastic_state;

/* One process; a replacement is another worker in the same place. */
typedef struct elastic_worker {
    pid_t pid;
    int place, fd;
    elastic_state state;
    int rank, before; /* in the generation; in the previous one, which decides who becomes rank 0 */
    int64_t step;     /* the last one it reported; -1: none */
    bool told;        /* to regroup, in this generation */
    bool sent_away;
    bool frozen;       /* by the test, which never continues it */
    double stopped_ms; /* when it was first seen stopped in this generation; 0: it was not */
    int n_lost, lost[TUTTI__AGENT_MAX_LOST];
    int result; /* of one that is gone: exit code, or -signal */
} elastic_worker;

typedef struct elastic_job {
    const struct elastic_job_opts *opts;
    elastic_worker workers[ELASTIC_MAX_WORKERS];
    int n_workers, n_places; /* started so far */
    uint32_t generation;     /* the last; 0: none yet */
    bool formed;             /* a member has committed in it */
    bool finished;           /* a worker has sent FINISHED */
    double begin_ms;
    int port;
    /* ends by a signal, normally before the end, with another code than 0 */
    int killed, left, failed;
    int longest; /* members of the largest generation */
} elastic_job;

typedef struct elastic_job_opts {
    int n; /* places at the beginning */
    int shards;
    int (*body)(int place, void *arg); /* of a worker: its exit code */
    void *arg;                         /* anything mutable must be in shared memory */
    int timeout_ms;                    /* for the whole job; it is killed then, and has failed */
    bool no_replacement;
    bool patient; /* the others of a worker that has failed are not killed, but waited for */
    /* Called about every millisecond while the job runs: kills, starts, sends messages. NULL: nothing. */
    void (*tick)(elastic_job *job, void *arg);
} elastic_job_opts;

/* 0: all workers that were present at the end ended with 0, and none failed on its own. Else the number of failures, which were printed. */
int elastic_run(elastic_job *job, const elastic_job_opts *opts);
/* For tick: another worker, in a new place. */
void elastic_start(elastic_job *job);
/* Tells one worker to leave. */
void elastic_tell_leave(elastic_worker *worker);

#endif
