/* worker.h -- one worker: its start, its streams, and how it ended.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_WORKER_H
#define TUTTI_LAUNCH_WORKER_H

#include "elastic/agent_messages.h"
#include "launch/console/log_pipe.h"
#include "launch/job/launch_job.h"

/* The last messages from and to an elastic worker (elastic_workers.h). */
typedef struct tutti__worker_channel {
    int fd;        /* our end of the socket pair; -1: none */
    bool readable; /* since it was last polled */
    bool was_ready;
    bool waits;           /* sent READY, and was assigned no generation since */
    bool finished, fails; /* sent FINISHED, FAILS */
    tutti__worker_message ready;
    uint32_t generation;   /* the last one sent to it; 0: none */
    int rank;              /* its rank there */
    int64_t step;          /* committed, as far as known; -1: none, or it has lost that state */
    int64_t last_step;     /* the last that was known; 0: none */
    int64_t reported_step; /* to the coordinator, for reported_generation, at reported_ns */
    uint32_t step_generation, reported_generation;
    uint64_t reported_ns;
    bool reported_stopped;
    bool told_last; /* was sent LAST */
} tutti__worker_channel;

typedef struct tutti__worker {
    const tutti__job *job;
    int rank, local_rank;
    int start; /* how many processes had this local rank before it, in this round */
    tutti__worker_channel channel;
    bool excused;        /* its end does not fail the round */
    bool fails;          /* the coordinator decided: it does */
    bool awaits_verdict; /* it has ended; the coordinator has not decided whether to replace it */
    bool rests;          /* the decision was: not yet */
    pid_t pid;           /* also its session's and process group's; 0: not started */
    bool running;
    uint64_t stopped_ns; /* since when it is stopped (SIGSTOP, a debugger); 0: not stopped */
    bool reported_stopped;
    bool slowed; /* by --chaos: only stopped for moments */
    int status;  /* from waitpid, after its end */
    uint64_t started_ns, ended_ns;
    tutti__log_pipe out, err;
} tutti__worker;

/* Starts the worker with its streams. */
tutti_status tutti__worker_start(tutti__worker *worker, const tutti__job *job);
/* Stopped by SIGSTOP or a debugger, according to /proc. */
bool tutti__worker_is_stopped(const tutti__worker *worker);
/* Signals its whole process group. */
void tutti__worker_signal(const tutti__worker *worker, int sig);
/* ended with a non-zero exit code, and not excused */
bool tutti__worker_failed(const tutti__worker *worker);
int tutti__worker_exit_code(const tutti__worker *worker); /* 128 + n for a signal */
/* "exit code 7", "killed by SIGSEGV (Segmentation fault)" */
void tutti__worker_describe(const tutti__worker *worker, char *text, size_t bytes);

#endif
