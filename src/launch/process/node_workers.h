/* node_workers.h -- the workers of this node, from their start to the end of their last descendant.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_NODE_WORKERS_H
#define TUTTI_LAUNCH_NODE_WORKERS_H

#include "launch/process/worker.h"

typedef enum tutti__workers_phase {
    TUTTI__IDLE, /* no worker left */
    TUTTI__RUNNING,
    TUTTI__FAILING,  /* a worker has failed, the others get a moment to notice it and end */
    TUTTI__STOPPING, /* workers were told to end, and have the shutdown timeout to do so */
    TUTTI__SWEEPING, /* only descendants of workers run; they were told to end */
    TUTTI__KILLING
} tutti__workers_phase;

typedef struct tutti__workers tutti__workers;
/* Reports a failure, and returns the cause, usually `first`. */
typedef const tutti__worker *tutti__report_function(const tutti__workers *workers,
                                                    const tutti__worker *first);

struct tutti__workers {
    tutti__job *job;
    tutti__console *console;
    tutti__console *
        held; /* takes the report of a failure, of which others may be the cause; NULL: `console` does */
    tutti__report_function *report_failure;
    tutti__worker *list; /* [job->opts.n] */
    int n_running;
    tutti__workers_phase phase; /* never goes back within a round */
    uint64_t deadline_ns, failing_ns, killing_ns;
    bool childless;              /* no descendant is left */
    bool abandoned;              /* remaining processes do not end, not even by SIGKILL */
    bool blind;                  /* /proc cannot be read */
    bool suspended;              /* by us, with Ctrl-Z */
    const tutti__worker *blamed; /* the first to fail; NULL: none yet */
    /* usually the same; or a stopped rank that the others considered lost */
    const tutti__worker *cause;
    long oom_kills; /* count when they were started */
    bool elastic;   /* workers of this round that die may be replaced */
    bool finished;  /* a worker has reported that the job's work is done */
    bool sweeps;    /* `advance` ends what workers have left that have ended */
};

tutti_status tutti__workers_new(tutti__workers *workers, tutti__job *job, tutti__console *console,
                                tutti__report_function *report_failure);
/* Starts all, for the job's round. */
tutti_status tutti__workers_start(tutti__workers *workers);
/* Starts a replacement of one that has ended, whose remaining processes are ended. */
tutti_status tutti__workers_replace(tutti__workers *workers, tutti__worker *worker);
/* It has ended without replacement: `advance` ends its remaining processes, and those of all others of which this was said. */
void tutti__workers_sweep_after(tutti__workers *workers, tutti__worker *worker);
void tutti__workers_signal(tutti__workers *workers, int sig);
/* Tells them to end; reports an earlier failure first. */
void tutti__workers_stop(tutti__workers *workers, int sig);
void tutti__workers_kill(tutti__workers *workers);
/* Handles workers that have ended or were stopped, and enters the next phase when it is due. */
void tutti__workers_reap(tutti__workers *workers);
void tutti__workers_advance(tutti__workers *workers);
/* When the next phase begins (tutti__now_ns); UINT64_MAX: at the next event. */
uint64_t tutti__workers_deadline(const tutti__workers *workers);
/* Whether no process and no open stream is left. */
bool tutti__workers_over(const tutti__workers *workers);
/* 0 if all ended with 0; else an exit code of one's own choice (not 3), or -1. */
int tutti__workers_chosen_code(const tutti__workers *workers);
/* Closes all streams: no process is left that could write to them. */
void tutti__workers_close(tutti__workers *workers);
void tutti__workers_free(tutti__workers *workers);

#endif
