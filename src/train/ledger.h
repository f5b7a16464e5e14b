/* ledger.h -- where a run's time goes.   SPDX-License-Identifier: MIT
 *
 * Of each step a rank knows how long it took, how much of that it waited for data, and how long after its backward the
 * reduction of gradients went on ("exposed"). The rank that comes last to a reduction waits least, so over all ranks
 *
 *     communication = the least exposed time       wait for the slowest = exposed - communication
 *     compute       = the step's time - data - exposed
 *
 * which needs no common clock. Ranks exchange these at log lines and checkpoints only, in at most 64 sums of steps. */
#ifndef TUTTI_TRAIN_LEDGER_H
#define TUTTI_TRAIN_LEDGER_H

#include "base/base.h"
#include <jansson.h>
#include <tutti/group.h>

typedef enum tutti__time {
    TUTTI__TIME_COMPUTE,       /* forward, backward, optimizer */
    TUTTI__TIME_COMMUNICATION, /* not hidden behind backward */
    TUTTI__TIME_WAIT,          /* for the slowest rank */
    TUTTI__TIME_DATA,          /* for the loader */
    TUTTI__TIME_CHECKPOINT,    /* for snapshots and what must be waited for of their writing */
    TUTTI__TIME_EVALUATION,
    TUTTI__TIME_LOST, /* steps done anew after a failure, and the pause before */
    TUTTI__N_TIMES
} tutti__time;

enum { TUTTI__LEDGER_SLOTS = 64 };

typedef struct tutti__ledger {
    double total[TUTTI__N_TIMES]; /* seconds of the run so far, means over ranks */
    double line[TUTTI__N_TIMES];  /* since the last log line */
    double line_seconds;          /* of training steps in it */
    uint64_t line_steps;
    int size;
    json_t *failures;   /* rank 0's; see tutti__ledger_lose */
    double *waited_for; /* a rank: seconds that the others waited for it, mean over all ranks */

    uint64_t steps, steps_a_slot; /* since ranks exchanged; in a slot */
    double step_seconds, data_seconds, exposed[TUTTI__LEDGER_SLOTS]; /* this rank's since then */
} tutti__ledger;

/* For a group of `size` ranks that logs every `log_every` steps. */
tutti_status tutti__ledger_open(tutti__ledger *ledger, int size, uint64_t log_every);
/* The group has another size now: what ranks had not yet exchanged, and who was waited for, is forgotten. */
tutti_status tutti__ledger_resize(tutti__ledger *ledger, int size);
void tutti__ledger_close(tutti__ledger *ledger);

/* This rank's step. */
void tutti__ledger_step(tutti__ledger *ledger, double seconds, double data, double exposed);
/* What is not part of a step. */
void tutti__ledger_add(tutti__ledger *ledger, tutti__time what, double seconds);
/* A failure has cost `seconds`, and the run goes on from `step`. reason: its own words; NULL: it was killed without any. */
void tutti__ledger_lose(tutti__ledger *ledger, uint64_t step, double seconds, const char *reason);
/* Collective: adds what all ranks have done since the last call to total, line and waited_for, the same on all. */
tutti_status tutti__ledger_exchange(tutti__ledger *ledger, tutti_group *group);
/* Milliseconds a step since the last log line. */
double tutti__ledger_line_ms(const tutti__ledger *ledger, tutti__time what);
void tutti__ledger_begin_line(tutti__ledger *ledger);

/* {"compute_s": ..., ..., "waited_for_s": [rank 0's, ...], "failures": [{"step": ..., "lost_s": ..., "reason": ...}, ...]}; and
 * a run that goes on from one: ranks that are no more are left out. */
json_t *tutti__ledger_json(const tutti__ledger *ledger);
void tutti__ledger_restore(tutti__ledger *ledger, const json_t *json);

#endif
