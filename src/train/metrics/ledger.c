/* ledger.c -- where a run's time goes.   SPDX-License-Identifier: MIT */
#include "train/metrics/ledger.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_FAILURES = 100 }; /* the last ones are kept */

static const char *const names[TUTTI__N_TIMES] = {"compute_s",    "communication_s", "wait_s",
                                                  "stages_s",     "data_s",          "checkpoint_s",
                                                  "evaluation_s", "lost_s"};

tutti_status tutti__ledger_open(tutti__ledger *l, int size, uint64_t log_every)
{
    *l = (tutti__ledger){
        .size = size, .steps_a_slot = (log_every + TUTTI__LEDGER_SLOTS - 1) / TUTTI__LEDGER_SLOTS};
    l->waited_for = tutti__alloc((size_t)size * sizeof *l->waited_for);
    return l->waited_for ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

tutti_status tutti__ledger_resize(tutti__ledger *l, int size)
{
    double *waited_for = tutti__alloc((size_t)size * sizeof *waited_for);

    if (!waited_for)
        return TUTTI_ERR_MEMORY;
    if (size == l->size)
        memcpy(waited_for, l->waited_for, (size_t)size * sizeof *waited_for);
    free(l->waited_for);
    l->waited_for = waited_for;
    l->size = size;
    l->steps = 0;
    l->step_seconds = l->data_seconds = l->stages_seconds = 0;
    memset(l->exposed, 0, sizeof l->exposed);
    return TUTTI_OK;
}

void tutti__ledger_close(tutti__ledger *l)
{
    free(l->waited_for);
    json_decref(l->failures);
    l->waited_for = NULL;
    l->failures = NULL;
}

void tutti__ledger_step(tutti__ledger *l, double seconds, double data, double stages,
                        double exposed)
{
    uint64_t slot = l->steps / l->steps_a_slot;

    l->steps++;
    l->step_seconds += seconds;
    l->data_seconds += data;
    l->stages_seconds += stages;
    l->exposed[slot < TUTTI__LEDGER_SLOTS ? slot : TUTTI__LEDGER_SLOTS - 1] += exposed;
}

void tutti__ledger_add(tutti__ledger *l, tutti__time what, double seconds)
{
    l->total[what] += seconds;
}

void tutti__ledger_lose(tutti__ledger *l, uint64_t step, double seconds, const char *reason)
{
    l->total[TUTTI__TIME_LOST] += seconds;
    if (!l->failures)
        l->failures = json_array();
    if (json_array_size(l->failures) == MOST_FAILURES)
        json_array_remove(l->failures, 0);
    json_array_append_new(l->failures, json_pack("{s:I, s:f, s:s?}", "step", (json_int_t)step,
                                                 "lost_s", seconds, "reason", reason));
}

static void add(tutti__ledger *l, tutti__time what, double seconds)
{
    l->total[what] += seconds;
    l->line[what] += seconds;
}

/* Adds one slot: `exposed` points to rank 0's value; each rank's is `stride` after the previous rank's. */
static void add_slot(tutti__ledger *l, const double *exposed, size_t stride)
{
    double sum = exposed[0], least = exposed[0], waits;
    int slowest = 0;

    for (int r = 1; r < l->size; r++) {
        const double seconds = exposed[(size_t)r * stride];

        sum += seconds;
        if (seconds < least) {
            least = seconds;
            slowest = r;
        }
    }
    waits = sum / l->size - least;
    add(l, TUTTI__TIME_COMMUNICATION, least);
    add(l, TUTTI__TIME_WAIT, waits);
    add(l, TUTTI__TIME_COMPUTE, -least - waits);
    l->waited_for[slowest] += waits;
}

tutti_status tutti__ledger_exchange(tutti__ledger *l, tutti_group *group)
{
    const uint64_t filled = (l->steps + l->steps_a_slot - 1) / l->steps_a_slot;
    const size_t slots = filled < TUTTI__LEDGER_SLOTS ? (size_t)filled : TUTTI__LEDGER_SLOTS;
    const size_t stride = 3 + slots;
    double mine[3 + TUTTI__LEDGER_SLOTS] = {l->step_seconds, l->data_seconds, l->stages_seconds},
                    *all;
    tutti_status status;

    if (l->steps == 0)
        return TUTTI_OK;
    memcpy(mine + 3, l->exposed, slots * sizeof *mine);
    all = tutti__alloc((size_t)l->size * stride * sizeof *all);
    if (!all) {
        tutti_group_abort(group, "%s", tutti_last_error());
        return TUTTI_ERR_MEMORY;
    }
    status = tutti_all_gather(group, TUTTI_CONST_BUF(mine, stride, TUTTI_F64),
                              TUTTI_BUF(all, (size_t)l->size * stride, TUTTI_F64), NULL);
    for (int r = 0; status == TUTTI_OK && r < l->size; r++) {
        const double *its = all + (size_t)r * stride;

        l->line_seconds += its[0] / l->size;
        add(l, TUTTI__TIME_COMPUTE, (its[0] - its[1] - its[2]) / l->size);
        add(l, TUTTI__TIME_DATA, its[1] / l->size);
        add(l, TUTTI__TIME_STAGES, its[2] / l->size);
    }
    for (size_t slot = 0; status == TUTTI_OK && slot < slots; slot++)
        add_slot(l, all + 3 + slot, stride);
    free(all);
    l->line_steps += l->steps;
    l->steps = 0;
    l->step_seconds = l->data_seconds = l->stages_seconds = 0;
    memset(l->exposed, 0, sizeof l->exposed);
    return status;
}

double tutti__ledger_line_ms(const tutti__ledger *l, tutti__time what)
{
    return l->line_steps ? 1000 * l->line[what] / (double)l->line_steps : 0;
}

void tutti__ledger_begin_line(tutti__ledger *l)
{
    memset(l->line, 0, sizeof l->line);
    l->line_seconds = 0;
    l->line_steps = 0;
}

json_t *tutti__ledger_json(const tutti__ledger *l)
{
    json_t *json = json_object(), *ranks = json_array();

    for (int i = 0; i < TUTTI__N_TIMES; i++)
        json_object_set_new(json, names[i], json_real(l->total[i]));
    for (int r = 0; r < l->size; r++)
        json_array_append_new(ranks, json_real(l->waited_for[r]));
    json_object_set_new(json, "waited_for_s", ranks);
    json_object_set_new(
        json, "failures", /* a copy, because another thread may write it to a checkpoint */
        l->failures ? json_deep_copy(l->failures) : json_array());
    return json;
}

void tutti__ledger_restore(tutti__ledger *l, const json_t *json)
{
    const json_t *ranks = json_object_get(json, "waited_for_s"),
                 *failures = json_object_get(json, "failures");

    for (int i = 0; i < TUTTI__N_TIMES; i++)
        l->total[i] = json_number_value(json_object_get(json, names[i]));
    for (int r = 0; r < l->size; r++)
        l->waited_for[r] = json_number_value(json_array_get(ranks, (size_t)r));
    json_decref(l->failures);
    l->failures = json_is_array(failures) ? json_deep_copy(failures) : NULL;
}
