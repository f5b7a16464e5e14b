/* schedule_check.c -- whether a table of actions can be run, and what it costs.   SPDX-License-Identifier: MIT
 *
 * All ranks do their lists in order, each action when what it needs is there; if all wait, that is a deadlock. */
#include "pipeline/pipeline.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct one_stage {
    int forwards, backwards, weights; /* the next of each */
    bool split;                       /* its backward is in two parts */
} one_stage;

typedef struct run {
    const tutti_pipeline_table *s;
    const tutti_pipeline_times *times;
    int stages;
    one_stage *stage;
    double *forward, *backward,
        *weight; /* [stage * micro_batches + m]: when it is done, and where it is needed; -1: not yet */
    size_t *at; /* [ranks] */
    double *now, *busy;
    double *next_free, *previous_free; /* when its last message to that rank has come */
    int *live, *peak;
} run;

static void run_close(run *r)
{
    free(r->stage);
    free(r->forward);
    free(r->at);
    free(r->now);
    free(r->live);
}

static tutti_status run_open(run *r, const tutti_pipeline_table *s)
{
    const size_t ranks = (size_t)s->ranks, m = (size_t)s->micro_batches;
    const size_t cells = ranks * (size_t)s->chunks * m;

    r->s = s;
    r->stages = s->ranks * s->chunks;
    r->stage = tutti__alloc((size_t)r->stages * sizeof *r->stage);
    r->forward = tutti__alloc(3 * cells * sizeof *r->forward);
    r->at = tutti__alloc(ranks * sizeof *r->at);
    r->now = tutti__alloc(4 * ranks * sizeof *r->now);
    r->live = tutti__alloc(2 * ranks * sizeof *r->live);
    if (!r->stage || !r->forward || !r->at || !r->now || !r->live)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < 3 * cells; i++)
        r->forward[i] = -1;
    r->backward = r->forward + cells;
    r->weight = r->backward + cells;
    r->busy = r->now + ranks;
    r->next_free = r->busy + ranks;
    r->previous_free = r->next_free + ranks;
    r->peak = r->live + ranks;
    return TUTTI_OK;
}

static const char *text_of(const run *r, int rank, const tutti_pipeline_action *a)
{
    static _Thread_local char text[48];

    snprintf(text, sizeof text, "%d%c%d", a->chunk * r->s->ranks + rank, "FBIW"[a->pass],
             a -> micro_batch);
    return text;
}

static tutti_status wrong(const run *r, int rank, const tutti_pipeline_action *a, const char *why)
{
    return tutti__fail(TUTTI_ERR_FORMAT, "schedule: rank %d's action %zu, %s, %s", rank,
                       r->at[rank], text_of(r, rank, a), why);
}

/* What no waiting can mend. */
static tutti_status check_action(const run *r, int rank, const tutti_pipeline_action *a)
{
    const tutti_pipeline_table *s = r->s;
    const one_stage *stage;
    size_t at;

    if ((unsigned)a->pass > TUTTI_PIPELINE_WEIGHT || a->chunk < 0 || a->chunk >= s->chunks ||
        a->micro_batch < 0 || a->micro_batch >= s->micro_batches)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "schedule: rank %d's action %zu has pass %d, chunk %d, micro-batch %d; "
                           "the table has %d chunks and %d micro-batches",
                           rank, r->at[rank], (int)a->pass, a->chunk, a->micro_batch, s->chunks,
                           s->micro_batches);
    stage = &r->stage[a->chunk * s->ranks + rank];
    at = (size_t)(a->chunk * s->ranks + rank) * (size_t)s->micro_batches + (size_t)a->micro_batch;
    if (a->pass == TUTTI_PIPELINE_FORWARD)
        return r->forward[at] >= 0                 ? wrong(r, rank, a, "is there twice")
               : a->micro_batch != stage->forwards ? wrong(r, rank, a,
                                                           "is not in the order of micro-batches, "
                                                           "in which stages send them")
                                                   : TUTTI_OK;
    if (r->forward[at] < 0)
        return wrong(r, rank, a, "comes before its forward");
    if (a->pass != TUTTI_PIPELINE_WEIGHT) {
        if (r->backward[at] >= 0)
            return wrong(r, rank, a, "is there twice");
        if (a->micro_batch != stage->backwards)
            return wrong(r, rank, a,
                         "is not in the order of micro-batches, in which gradients are added");
        if (stage->backwards > 0 && stage->split != (a->pass == TUTTI_PIPELINE_INPUT))
            return wrong(r, rank, a,
                         "divides a backward, and others of its stage are whole, so that gradients "
                         "of weights would be added in another order");
        return TUTTI_OK;
    }
    if (r->backward[at] < 0 || !stage->split)
        return wrong(r, rank, a, "comes before the gradient of its input (I)");
    if (a->micro_batch != stage->weights)
        return wrong(r, rank, a,
                     r->weight[at] >= 0
                         ? "is there twice"
                         : "is not in the order of micro-batches, in which gradients are added");
    return TUTTI_OK;
}

/* When another rank has done what the action needs; -1: not yet. */
static double needed_at(const run *r, int rank, const tutti_pipeline_action *a)
{
    const int stage = a->chunk * r->s->ranks + rank, m = r->s->micro_batches;

    if (a->pass == TUTTI_PIPELINE_FORWARD)
        return stage == 0 ? 0 : r->forward[(stage - 1) * m + a->micro_batch];
    if (a->pass == TUTTI_PIPELINE_WEIGHT || stage == r->stages - 1)
        return 0;
    return r->backward[(stage + 1) * m + a->micro_batch];
}

static double seconds_of(const run *r, int stage, tutti_pipeline_pass pass)
{
    const tutti_pipeline_times *t = r->times;
    const double forward = t && t->forward ? t->forward[stage] : 1;
    const double input = t && t->input ? t->input[stage] : 1;
    const double weight = t && t->weight ? t->weight[stage] : 1;

    return pass == TUTTI_PIPELINE_FORWARD  ? forward
           : pass == TUTTI_PIPELINE_INPUT  ? input
           : pass == TUTTI_PIPELINE_WEIGHT ? weight
                                           : input + weight;
}

/* When a message that this rank sends now is there. */
static double sent(const run *r, int rank, bool to_next)
{
    double *link = to_next ? &r->next_free[rank] : &r->previous_free[rank];

    *link = (*link > r->now[rank] ? *link : r->now[rank]) + (r->times ? r->times->message : 0);
    return *link;
}

static void act(run *r, int rank, const tutti_pipeline_action *a, double from)
{
    const int stage = a->chunk * r->s->ranks + rank;
    const int at = stage * r->s->micro_batches + a->micro_batch;
    const double seconds = seconds_of(r, stage, a->pass);

    r->now[rank] = (from > r->now[rank] ? from : r->now[rank]) + seconds;
    r->busy[rank] += seconds;
    switch (a->pass) {
    case TUTTI_PIPELINE_FORWARD:
        r->forward[at] = stage + 1 < r->stages ? sent(r, rank, true) : r->now[rank];
        r->stage[stage].forwards++;
        r->live[rank]++;
        break;
    case TUTTI_PIPELINE_BACKWARD:
    case TUTTI_PIPELINE_INPUT:
        r->backward[at] = stage > 0 ? sent(r, rank, false) : r->now[rank];
        r->stage[stage].backwards++;
        r->stage[stage].split = a->pass == TUTTI_PIPELINE_INPUT;
        r->live[rank] -= a->pass == TUTTI_PIPELINE_BACKWARD;
        break;
    case TUTTI_PIPELINE_WEIGHT:
        r->weight[at] = r->now[rank];
        r->stage[stage].weights++;
        r->live[rank]--;
        break;
    }
    if (r->live[rank] > r->peak[rank])
        r->peak[rank] = r->live[rank];
    r->at[rank]++;
}

/* Does all that rank can do now. */
static tutti_status advance(run *r, int rank, bool *moved_p)
{
    while (r->at[rank] < r->s->n[rank]) {
        const tutti_pipeline_action *a = &r->s->actions[rank][r->at[rank]];
        double from;

        TUTTI_TRY(check_action(r, rank, a));
        from = needed_at(r, rank, a);
        if (from < 0)
            break;
        act(r, rank, a, from);
        *moved_p = true;
    }
    return TUTTI_OK;
}

/* All wait. */
static tutti_status deadlock(const run *r)
{
    char text[600] = "";
    size_t n = 0;

    for (int k = 0; k < r->s->ranks && n < sizeof text; k++)
        if (r->at[k] < r->s->n[k])
            n += (size_t)snprintf(text + n, sizeof text - n, "%srank %d at %s", n ? ", " : "", k,
                                  text_of(r, k, &r->s->actions[k][r->at[k]]));
    return tutti__fail(TUTTI_ERR_FORMAT,
                       "schedule: a deadlock: ranks that do their actions in order wait for each "
                       "other: %s",
                       text);
}

static tutti_status check_complete(const run *r)
{
    for (int k = 0; k < r->stages; k++)
        for (int m = 0; m < r->s->micro_batches; m++) {
            const int at = k * r->s->micro_batches + m;
            const char *what = r->forward[at] < 0                       ? "forward (F)"
                               : r->backward[at] < 0                    ? "backward (B, or I and W)"
                               : r->stage[k].split && r->weight[at] < 0 ? "gradients of weights (W)"
                                                                        : NULL;

            if (what)
                return tutti__fail(TUTTI_ERR_FORMAT,
                                   "schedule: stage %d, of rank %d, has no %s of micro-batch %d", k,
                                   k % r->s->ranks, what, m);
        }
    return TUTTI_OK;
}

static tutti_status simulate(run *r)
{
    bool moved = true, left = true;

    while (left && moved) {
        moved = left = false;
        for (int k = 0; k < r->s->ranks; k++)
            TUTTI_TRY(advance(r, k, &moved));
        for (int k = 0; k < r->s->ranks; k++)
            left |= r->at[k] < r->s->n[k];
    }
    return left ? deadlock(r) : check_complete(r);
}

static void sum_up(const run *r, tutti_pipeline_facts *facts)
{
    double busy = 0;

    *facts = (tutti_pipeline_facts){.peak = 0};
    for (int k = 0; k < r->s->ranks; k++) {
        busy += r->busy[k];
        if (r->now[k] > facts->seconds)
            facts->seconds = r->now[k];
        if (r->peak[k] > facts->peak) {
            facts->peak = r->peak[k];
            facts->peak_rank = k;
        }
    }
    if (facts->seconds > 0)
        facts->bubble = 1 - busy / (facts->seconds * r->s->ranks);
}

tutti_status tutti__table_ends(const tutti_pipeline_table *table, double *ends)
{
    const size_t cells =
        3 * (size_t)table->ranks * (size_t)table->chunks * (size_t)table->micro_batches;
    run r = {.times = NULL};
    tutti_status status = run_open(&r, table);

    if (status == TUTTI_OK)
        status = simulate(&r);
    for (size_t i = 0; i < cells && status == TUTTI_OK; i++)
        ends[i] = r.forward[i];
    run_close(&r);
    return status;
}

tutti_status tutti_pipeline_table_check(const tutti_pipeline_table *table,
                                        const tutti_pipeline_times *times,
                                        tutti_pipeline_facts *facts_p)
{
    run r = {.times = times};
    tutti_status status;

    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_pipeline_times, times));
    TUTTI_TRY(TUTTI__NOT_NULL(table));
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_pipeline_table, table));
    if (table->ranks < 1 || table->chunks < 1 || table->micro_batches < 1 ||
        table->ranks > TUTTI_MAX_STAGES / table->chunks ||
        table->micro_batches > TUTTI_MAX_MICRO_BATCHES || !table->n || !table->actions)
        return tutti__fail(TUTTI_ERR_ARG, "schedule: %d ranks, %d chunks, %d micro-batches",
                           table->ranks, table->chunks, table->micro_batches);
    status = run_open(&r, table);
    if (status == TUTTI_OK)
        status = simulate(&r);
    if (status == TUTTI_OK && facts_p)
        sum_up(&r, facts_p);
    run_close(&r);
    return status;
}
