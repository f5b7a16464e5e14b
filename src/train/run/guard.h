/* guard.h -- finds memory and computations that went wrong silently.   SPDX-License-Identifier: MIT
 *
 *     step s: ... update | replicas compared, all sealed || step s + 1: forward, backward | seal compared | update ...
 *
 * Replicas have the same bits after each update, so one with others is wrong. Between two updates nothing writes parameters and
 * optimizer state, so what has changed there is faulty memory: that is found on a rank alone, also if it is the only one, and before
 * anything of it is in an update. docs/guard.md */
#ifndef TUTTI_TRAIN_GUARD_H
#define TUTTI_TRAIN_GUARD_H

#include "ddp/kept.h"

typedef struct tutti__guard {
    tutti__seal seal;     /* of the memory after step `sealed` */
    uint64_t sealed;      /* 0: none */
    double check_seconds; /* of the last comparison of replicas, and of memory */
    double memory_seconds;
    double step_seconds; /* of `steps` steps of this process, without the first */
    uint64_t steps;
    double seconds; /* of all checks of this process */
    uint64_t checks;
    bool caught; /* something was wrong: this process must end, */
    bool alone;  /* and only this one: nothing of it has reached others */
} tutti__guard;

struct tutti__train_run;

/* After a step: what it took. */
void tutti__guard_count_step(struct tutti__train_run *run);
/* Collective, between steps: compares replicas, seals memory, and decides when this is due again. DEVICE if the memory of ranks differs,
 * on all of them. */
tutti_status tutti__guard_check(struct tutti__train_run *run);
/* Before an update, or before this rank's part of it reaches others: DEVICE if what was sealed after the last one has changed. */
tutti_status tutti__guard_memory(struct tutti__train_run *run);
/* Compares replicas at the end of the run, also with guard=-1. Collective. */
tutti_status tutti__guard_compare(struct tutti__train_run *run);
/* The memory is about to be written by others than an update. */
void tutti__guard_forget(struct tutti__train_run *run);
void tutti__guard_close(struct tutti__train_run *run);

#endif
