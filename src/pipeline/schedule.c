/* schedule.c -- tables of a pipeline's actions.   SPDX-License-Identifier: MIT
 *
 * A table is what ranks do that follow a simple rule on a clock of their own, on which a forward takes 1, and a backward 2 or twice 1.
 * Stage s of P; a forward is ready when the stage before has it, a backward when the stage after has.
 *   gpipe         forwards first (Huang et al.: "GPipe", 2019)
 *   1f1b          a backward as soon as one is ready; at most P - s forwards without their backward (Narayanan et al.: "Memory-
 *                 Efficient Pipeline-Parallel DNN Training", 2021, PipeDream-Flush)
 *   interleaved   the same over v chunks of a rank, which take turns every P micro-batches, with 2 (P - s - 1) + (v - 1) P + 1
 *                 forwards (Narayanan et al.: "Efficient Large-Scale Language Model Training on GPU Clusters", 2021)
 *   zero-bubble   1f1b in which the gradients of weights wait until there is nothing else to do, or P micro-batches are in memory
 *                 (Qi et al.: "Zero Bubble Pipeline Parallelism", 2023: ZB-H1)
 * Pure: no clock, memory of its own or messages, so that all ranks make the same table. */
#include "pipeline/pipeline.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- Memory ---------------------------------------------------------------------------------------------- */

typedef struct own_table {
    tutti_pipeline_table head; /* first; all arrays are behind, in the same memory */
    size_t room;               /* of each rank */
    size_t *n;
    tutti_pipeline_action **lists;
} own_table;

static tutti_status table_new(own_table **table_p, int ranks, int chunks, int micro_batches,
                              size_t room)
{
    const size_t of_rank =
        sizeof(size_t) + sizeof(tutti_pipeline_action *) + room * sizeof(tutti_pipeline_action);
    own_table *t = tutti__alloc(sizeof *t + (size_t)ranks * of_rank);

    *table_p = NULL;
    if (!t)
        return TUTTI_ERR_MEMORY;
    t->n = (size_t *)(t + 1);
    t->lists = (tutti_pipeline_action **)(t->n + ranks);
    for (int r = 0; r < ranks; r++)
        t->lists[r] = (tutti_pipeline_action *)(t->lists + ranks) + (size_t)r * room;
    t->room = room;
    t->head = (tutti_pipeline_table){.ranks = ranks,
                                     .chunks = chunks,
                                     .micro_batches = micro_batches,
                                     .n = t->n,
                                     .actions = (const tutti_pipeline_action *const *)t->lists};
    *table_p = t;
    return TUTTI_OK;
}

void tutti_pipeline_table_free(tutti_pipeline_table *table)
{
    free(table);
}

/* ---- The rule ----------------------------------------------------------------------------------------------- */

typedef struct one_rank {
    int forwards, backwards, weights; /* begun */
    int free_at;
} one_rank;

typedef struct clockwork {
    tutti_pipeline_kind kind;
    int ranks, chunks, micro_batches, extra; /* extra: forwards besides those of the rule */
    one_rank *rank;
    int *forward_at,
        *backward_at; /* [stage * micro_batches + m]: when it is done; INT_MAX: not begun */
} clockwork;

/* The i-th forward of a rank, or its i-th backward: chunks take turns every `ranks` micro-batches. */
static tutti_pipeline_action place(const clockwork *c, int i, bool backward)
{
    const int round = c->ranks * c->chunks, group = i / round;
    const int rest = c->micro_batches - group * c->ranks;
    const int size = rest < c->ranks ? rest : c->ranks, chunk = i % round / size;

    return (tutti_pipeline_action){.chunk = backward ? c->chunks - 1 - chunk : chunk,
                                   .micro_batch = group * c->ranks + i % round % size};
}

/* The most forwards of rank r without their backward. */
static int limit(const clockwork *c, int r)
{
    if (c->kind == TUTTI_PIPELINE_GPIPE)
        return INT_MAX;
    if (c->chunks == 1)
        return c->ranks - r;
    return 2 * (c->ranks - r - 1) + (c->chunks - 1) * c->ranks + 1 + c->extra;
}

static bool forward_is_ready(const clockwork *c, int r, int now)
{
    const tutti_pipeline_action a = place(c, c->rank[r].forwards, false);
    const int stage = a.chunk * c->ranks + r;

    return stage == 0 || c->forward_at[(stage - 1) * c->micro_batches + a.micro_batch] <= now;
}

static bool backward_is_ready(const clockwork *c, int r, int now)
{
    const tutti_pipeline_action a = place(c, c->rank[r].backwards, true);
    const int stage = a.chunk * c->ranks + r;

    return c->forward_at[stage * c->micro_batches + a.micro_batch] <= now &&
           (stage == c->ranks * c->chunks - 1 ||
            c->backward_at[(stage + 1) * c->micro_batches + a.micro_batch] <= now);
}

/* What rank r does now; false: it waits. */
static bool choose(const clockwork *c, int r, int now, tutti_pipeline_action *action_p)
{
    const one_rank *k = &c->rank[r];
    const int all = c->chunks * c->micro_batches;
    const bool split = c->kind == TUTTI_PIPELINE_ZERO_BUBBLE;
    const bool has_forward = k->forwards < all && k->forwards - k->backwards < limit(c, r) &&
                             (!split || k->forwards - k->weights < c->ranks);
    const bool may_forward = has_forward && forward_is_ready(c, r, now);
    const bool may_backward =
        k->backwards < k->forwards && backward_is_ready(c, r, now) && (split || !has_forward);

    /* of stage s all but the last s wait no longer than for the next forward, which then takes their memory */
    const bool must_weight = split && k->backwards - k->weights > r && k->forwards < all;

    if (must_weight || (split && !may_backward && !may_forward && k->weights < k->backwards)) {
        *action_p = place(c, k->weights, true);
        action_p->pass = TUTTI_PIPELINE_WEIGHT;
        return true;
    }
    if (may_backward && !(split && may_forward)) {
        *action_p = place(c, k->backwards, true);
        action_p->pass = split ? TUTTI_PIPELINE_INPUT : TUTTI_PIPELINE_BACKWARD;
    } else if (may_forward) {
        *action_p = place(c, k->forwards, false);
        action_p->pass = TUTTI_PIPELINE_FORWARD;
    }
    return may_backward || may_forward;
}

static void begin(clockwork *c, int r, int now, const tutti_pipeline_action *a)
{
    const int at = (a->chunk * c->ranks + r) * c->micro_batches + a->micro_batch;
    one_rank *k = &c->rank[r];

    k->free_at = now + (a->pass == TUTTI_PIPELINE_BACKWARD ? 2 : 1);
    if (a->pass == TUTTI_PIPELINE_FORWARD) {
        c->forward_at[at] = k->free_at;
        k->forwards++;
    } else if (a->pass == TUTTI_PIPELINE_WEIGHT) {
        k->weights++;
    } else {
        c->backward_at[at] = k->free_at;
        k->backwards++;
    }
}

/* False: the ranks wait for each other, with that many forwards. */
static bool run(clockwork *c, own_table *t)
{
    const size_t stages = (size_t)c->ranks * (size_t)c->chunks;
    size_t left = (size_t)c->ranks * t->room;

    memset(c->rank, 0, (size_t)c->ranks * sizeof *c->rank);
    memset(t->n, 0, (size_t)c->ranks * sizeof *t->n);
    for (size_t i = 0; i < 2 * stages * (size_t)c->micro_batches; i++)
        c->forward_at[i] = INT_MAX; /* backward_at is behind it */
    for (int now = 0; left > 0; now++) {
        bool busy = false;

        for (int r = 0; r < c->ranks; r++) {
            tutti_pipeline_action a = {.chunk = 0};

            busy |= c->rank[r].free_at > now;
            if (c->rank[r].free_at > now || t->n[r] == t->room || !choose(c, r, now, &a))
                continue;
            begin(c, r, now, &a);
            t->lists[r][t->n[r]++] = a;
            left--;
            busy = true;
        }
        if (!busy)
            return false;
    }
    return true;
}

static tutti_status check_sizes(tutti_pipeline_kind kind, int ranks, int chunks, int micro_batches)
{
    if ((unsigned)kind > TUTTI_PIPELINE_ZERO_BUBBLE)
        return tutti__fail(TUTTI_ERR_ARG, "schedule: kind is %d, expected a tutti_pipeline_kind",
                           (int)kind);
    if (ranks < 1 || chunks < 1 || ranks > TUTTI_MAX_STAGES / chunks)
        return tutti__fail(TUTTI_ERR_ARG,
                           "schedule: %d ranks with %d stages each, expected 1 to %d stages", ranks,
                           chunks, TUTTI_MAX_STAGES);
    if (chunks > 1 && kind != TUTTI_PIPELINE_INTERLEAVED)
        return tutti__fail(TUTTI_ERR_ARG,
                           "schedule: %d stages a rank; expected 1, or an interleaved schedule",
                           chunks);
    if (micro_batches < 1 || micro_batches > TUTTI_MAX_MICRO_BATCHES)
        return tutti__fail(TUTTI_ERR_ARG, "schedule: micro_batches is %d, expected 1 to %d",
                           micro_batches, TUTTI_MAX_MICRO_BATCHES);
    return TUTTI_OK;
}

tutti_status tutti_pipeline_table_new(tutti_pipeline_table **table_p, tutti_pipeline_kind kind,
                                      int ranks, int chunks, int micro_batches)
{
    clockwork c = {.kind = kind, .ranks = ranks, .micro_batches = micro_batches};
    size_t passes = kind == TUTTI_PIPELINE_ZERO_BUBBLE ? 3 : 2;
    own_table *t;

    TUTTI_TRY(TUTTI__NOT_NULL(table_p));
    *table_p = NULL;
    c.chunks = chunks ? chunks : kind == TUTTI_PIPELINE_INTERLEAVED ? 2 : 1;
    TUTTI_TRY(check_sizes(kind, ranks, c.chunks, micro_batches));
    passes *= (size_t)c.chunks * (size_t)micro_batches;
    TUTTI_TRY(table_new(&t, ranks, c.chunks, micro_batches, passes));
    c.rank = tutti__alloc((size_t)ranks * sizeof *c.rank);
    c.forward_at = tutti__alloc(2 * (size_t)ranks * (size_t)c.chunks * (size_t)micro_batches *
                                sizeof *c.forward_at);
    if (c.rank && c.forward_at) {
        c.backward_at = c.forward_at + (size_t)ranks * (size_t)c.chunks * (size_t)micro_batches;
        while (!run(&c, t)) /* with all of them it is GPipe's order, which never stops */
            c.extra++;
        *table_p = &t->head;
    } else {
        tutti_pipeline_table_free(&t->head);
    }
    free(c.rank);
    free(c.forward_at);
    return *table_p ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

/* ---- From text ------------------------------------------------------------------------------------------------ */

typedef struct reading {
    const char *p;
    int line, stage, micro_batch;
    char pass;
} reading;

static bool read_number(const char **p, int *number_p)
{
    long n = 0;
    const char *from = *p;

    while (**p >= '0' && **p <= '9' && n <= TUTTI_MAX_MICRO_BATCHES)
        n = 10 * n + (*(*p)++ - '0');
    *number_p = (int)n;
    return *p > from && n <= TUTTI_MAX_MICRO_BATCHES;
}

/* The next action of the text, in a line whose number r->line has. FORMAT; *more_p false: the end. */
static tutti_status next_action(reading *r, bool *more_p)
{
    const char *from;

    while (*r->p && strchr(", \t\r\n", *r->p))
        r->line += *r->p++ == '\n';
    *more_p = *r->p != '\0';
    from = r->p;
    if (!*more_p)
        return TUTTI_OK;
    if (read_number(&r->p, &r->stage) && *r->p && strchr("FBIW", *r->p)) {
        r->pass = *r->p++;
        if (read_number(&r->p, &r->micro_batch) && (!*r->p || strchr(", \t\r\n", *r->p)) &&
            r->stage < TUTTI_MAX_STAGES)
            return TUTTI_OK;
    }
    return tutti__fail(TUTTI_ERR_FORMAT,
                       "schedule: line %d has \"%.*s\", expected a stage, F, B, I or W, and a "
                       "micro-batch, such as 0F0",
                       r->line + 1, (int)strcspn(from, ", \t\r\n"), from);
}

static tutti_pipeline_pass pass_of(char letter)
{
    return letter == 'F'   ? TUTTI_PIPELINE_FORWARD
           : letter == 'B' ? TUTTI_PIPELINE_BACKWARD
           : letter == 'I' ? TUTTI_PIPELINE_INPUT
                           : TUTTI_PIPELINE_WEIGHT;
}

/* Sizes: as many ranks as lines, and what the largest numbers say. */
static tutti_status measure(const char *text, int *ranks_p, int *stages_p, int *micro_batches_p,
                            size_t *most_p)
{
    reading r = {.p = text};
    int line = -1;
    size_t n = 0;
    bool more;

    *ranks_p = *stages_p = *micro_batches_p = 0;
    *most_p = 0;
    for (;;) {
        TUTTI_TRY(next_action(&r, &more));
        if (!more)
            break;
        n = r.line == line ? n + 1 : 1;
        *ranks_p += r.line != line;
        line = r.line;
        *most_p = n > *most_p ? n : *most_p;
        *stages_p = r.stage + 1 > *stages_p ? r.stage + 1 : *stages_p;
        *micro_batches_p =
            r.micro_batch + 1 > *micro_batches_p ? r.micro_batch + 1 : *micro_batches_p;
    }
    if (*ranks_p > 0 && *stages_p % *ranks_p == 0)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_FORMAT,
        "schedule: %d stages in %d lines, expected a line for each rank, and as many "
        "stages of each",
        *stages_p, *ranks_p);
}

tutti_status tutti_pipeline_table_read(tutti_pipeline_table **table_p, const char *text)
{
    int ranks, stages, micro_batches, line = -1, rank = -1;
    reading r = {.p = text};
    size_t most;
    own_table *t;
    bool more;

    TUTTI_TRY(TUTTI__NOT_NULL(table_p));
    *table_p = NULL;
    TUTTI_TRY(TUTTI__NOT_NULL(text));
    TUTTI_TRY(measure(text, &ranks, &stages, &micro_batches, &most));
    TUTTI_TRY(table_new(&t, ranks, stages / ranks, micro_batches, most));
    for (;;) {
        TUTTI_TRY(next_action(&r, &more)); /* cannot fail the second time */
        if (!more)
            break;
        rank += r.line != line;
        line = r.line;
        if (r.stage % ranks != rank) {
            tutti_pipeline_table_free(&t->head);
            return tutti__fail(TUTTI_ERR_FORMAT,
                               "schedule: line %d, of rank %d, has stage %d, which is rank %d's: "
                               "of %d ranks, rank r has the stages r, r + %d, ...",
                               r.line + 1, rank, r.stage, r.stage % ranks, ranks, ranks);
        }
        t->lists[rank][t->n[rank]++] = (tutti_pipeline_action){
            .pass = pass_of(r.pass), .chunk = r.stage / ranks, .micro_batch = r.micro_batch};
    }
    *table_p = &t->head;
    return TUTTI_OK;
}
