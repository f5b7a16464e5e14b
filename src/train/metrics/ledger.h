/* ledger.h -- where a run's time goes.   SPDX-License-Identifier: MIT
 *
 * For each step a rank knows its duration, its wait for data, and how long after backward the reduction of gradients continued
 * ("exposed"). The rank that arrives last at a reduction waits least, so over all ranks
 *     communication = the least exposed time       wait for the slowest = exposed - communication
 *     compute       = the step's time - data - exposed - what a rank of a pipeline has waited for other stages
 *
 * which needs no common clock. Ranks exchange these only at log lines and checkpoints, as at most 64 sums over consecutive
 * steps. */
#ifndef TUTTI_TRAIN_LEDGER_H
#define TUTTI_TRAIN_LEDGER_H

#include "base/base.h"
#include <jansson.h>
#include <tutti/group.h>

typedef enum tutti__time {
    TUTTI__TIME_COMPUTE,       /* forward, backward, optimizer */
    TUTTI__TIME_COMMUNICATION, /* not overlapped with backward */
    TUTTI__TIME_WAIT,          /* for the slowest rank */
    TUTTI__TIME_STAGES,        /* for what other stages of a pipeline send */
    TUTTI__TIME_DATA,          /* for the loader */
    TUTTI__TIME_CHECKPOINT,    /* for snapshots, and waiting for writes */
    TUTTI__TIME_EVALUATION,
    TUTTI__TIME_LOST, /* steps repeated after a failure, and the pause before */
    TUTTI__N_TIMES
} tutti__time;

enum { TUTTI__LEDGER_SLOTS = 64 };

typedef struct tutti__ledger {
    double total[TUTTI__N_TIMES]; /* seconds of the run so far, means over ranks */
    double line[TUTTI__N_TIMES];  /* since the last log line */
    double line_seconds;          /* of training steps in it */
    uint64_t line_steps;
    int size;
    json_t *failures;   /* on rank 0; see tutti__ledger_lose */
    double *waited_for; /* by rank: seconds that others waited for it, mean over all ranks */

    uint64_t steps, steps_a_slot; /* since the last exchange; in a slot */
    double step_seconds, data_seconds, stages_seconds,
        exposed[TUTTI__LEDGER_SLOTS]; /* of this rank since then */
} tutti__ledger;

/* For a group of `size` ranks that logs every `log_every` steps. */
tutti_status tutti__ledger_open(tutti__ledger *ledger, int size, uint64_t log_every);
/* The group has another size now: drops what was not exchanged yet, and waited_for. */
tutti_status tutti__ledger_resize(tutti__ledger *ledger, int size);
void tutti__ledger_close(tutti__ledger *ledger);

/* Adds a step of this rank: its seconds, and those of them for data, other stages, and exposed. */
void tutti__ledger_step(tutti__ledger *ledger, double seconds, double data, double stages,
                        double exposed);
/* Adds time outside of steps. */
void tutti__ledger_add(tutti__ledger *ledger, tutti__time what, double seconds);
/* A failure has cost `seconds`, and the run continues from `step`. reason: its message; NULL: killed without one. */
void tutti__ledger_lose(tutti__ledger *ledger, uint64_t step, double seconds, const char *reason);
/* Collective: adds all ranks' times since the last call to total, line and waited_for, the same on all ranks. */
tutti_status tutti__ledger_exchange(tutti__ledger *ledger, tutti_group *group);
/* Milliseconds per step since the last log line. */
double tutti__ledger_line_ms(const tutti__ledger *ledger, tutti__time what);
void tutti__ledger_begin_line(tutti__ledger *ledger);

/* {"compute_s": ..., ..., "waited_for_s": [rank 0's, ...], "failures": [{"step": ..., "lost_s": ..., "reason": ...}, ...]}; for
 * a resumed run: read back, without ranks that no longer exist. */
json_t *tutti__ledger_json(const tutti__ledger *ledger);
void tutti__ledger_restore(tutti__ledger *ledger, const json_t *json);

#endif
