/* histories.c -- `tutti simulate --histories`: random histories of a job.   SPDX-License-Identifier: MIT */
#include "cli/simulate/simulate.h"

#include "checkpoint/json_text.h"
#include "simulate/history.h"

#include <stdlib.h>

enum { SHOWN = 10 /* of those that broke an invariant, with the state at their end */ };

typedef struct totals {
    uint64_t virtual_ms, messages, broken, first;
    double seconds;
} totals;

static tutti_status run(const tutti__simulate_histories *ask, totals *t)
{
    FILE *out = tutti__simulate_out(ask->json);
    tutti__history *history;
    tutti__history_result result;
    const double begun = tutti__cpu_seconds();
    tutti_status status =
        tutti__history_new(&history, &(tutti__history_opts){.nodes = ask->nodes,
                                                            .workers = ask->workers,
                                                            .events = ask->verbose ? out : NULL});

    for (uint64_t i = 0; i < ask->n && status == TUTTI_OK; i++) {
        status = tutti__history_run(history, ask->seed + i, &result);
        if (status != TUTTI_OK)
            break;
        t->virtual_ms += result.virtual_ms;
        t->messages += result.messages;
        if (!result.broken)
            continue;
        if (t->broken++ == 0)
            t->first = ask->seed + i;
        if (t->broken > SHOWN)
            continue;
        fprintf(out,
                "seed %llu: %s\n  tutti simulate --histories 1 --seed %llu --nodes %d --workers %d "
                "--verbose\n",
                (unsigned long long)(ask->seed + i), result.broken,
                (unsigned long long)(ask->seed + i), ask->nodes, ask->workers);
        tutti__history_show(history, out);
        fflush(out);
    }
    t->seconds = tutti__cpu_seconds() - begun;
    tutti__history_free(history);
    return status;
}

static tutti_status write_json(const tutti__simulate_histories *ask, const totals *t)
{
    json_t *root = json_object();
    const bool failed =
        !root || json_object_set_new(root, "histories", json_integer((json_int_t)ask->n)) ||
        json_object_set_new(root, "seed", json_integer((json_int_t)ask->seed)) ||
        json_object_set_new(root, "nodes", json_integer(ask->nodes)) ||
        json_object_set_new(root, "workers", json_integer(ask->workers)) ||
        json_object_set_new(root, "broken", json_integer((json_int_t)t->broken)) ||
        json_object_set_new(root, "first_broken_seed",
                            t->broken ? json_integer((json_int_t)t->first) : json_null()) ||
        json_object_set_new(root, "virtual_s", json_real((double)t->virtual_ms * 1e-3)) ||
        json_object_set_new(root, "messages", json_integer((json_int_t)t->messages)) ||
        json_object_set_new(root, "cpu_s", json_real(t->seconds));

    return tutti__simulate_write(ask->json, tutti__json_complete(root, failed));
}

tutti_status tutti__simulate_histories_run(const tutti__simulate_histories *ask, uint64_t *broken_p)
{
    totals t = {0};

    TUTTI_TRY(run(ask, &t));
    *broken_p = t.broken;
    if (ask->json)
        TUTTI_TRY(write_json(ask, &t));
    fprintf(tutti__simulate_out(ask->json),
            "result: histories=%llu seed=%llu nodes=%d workers=%d broken=%llu virtual_s=%.1f "
            "messages=%llu cpu_s=%.2f\n",
            (unsigned long long)ask->n, (unsigned long long)ask->seed, ask->nodes, ask->workers,
            (unsigned long long)t.broken, (double)t.virtual_ms * 1e-3,
            (unsigned long long)t.messages, t.seconds);
    return TUTTI_OK;
}
