/* flips.c -- flips a bit of a rank's memory now and then, to test what finds that.   SPDX-License-Identifier: MIT
 *
 * TUTTI_CHAOS_FLIP is RATE:KIND:KEEP:SEED, and from a launcher :START:COUNTER: how many processes had this worker's place before it, and
 * the descriptor in which it counts its flips. Whether, where and
 * which bit is a function of SEED, this process's place in the job (node and local rank), the launcher's round, START, and the step: a
 * step that is done again by this process is not disturbed again, and after a restart other steps are. KEEP workers of a node are left alone, the same ones always. */
#include "ddp/flips.h"

#include "comm/bootstrap/launcher_environment.h"
#include "ddp/persistent.h"
#include "elastic/agent_messages.h"
#include "optim/optim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum kind { PARAMETERS, STATE, BUFFERS, GRADIENTS, SUMS, MEANS, ANY, KINDS } kind;

static const char *const kind_names[KINDS] = {[PARAMETERS] = "parameters",
                                              [STATE] = "state",
                                              [BUFFERS] = "buffers",
                                              [GRADIENTS] = "gradients",
                                              [SUMS] = "sums",
                                              [MEANS] = "means",
                                              [ANY] = "any"};

struct tutti__flips {
    double rate;
    kind kind;
    uint64_t seed;
    uint32_t worker, round, start;
    uint64_t
        last; /* the last step for which this was drawn, from 1: forward passes of the context */
    kind now; /* of this step; KINDS: nothing, or done */
    uint32_t words[4]; /* of this step: words 0 and 1 choose the place, 2 the bit */
    int counter;       /* -1: none */
};

/* ---- Reading ---- */

static tutti_status refuse(const char *text)
{
    return tutti__fail(TUTTI_ERR_ARG,
                       "TUTTI_CHAOS_FLIP is \"%.80s\", expected RATE:KIND:KEEP:SEED with a rate of "
                       "0 to 1 a step, a kind of parameters, state, buffers, gradients, sums, "
                       "means or any, and two numbers, as in 0.01:parameters:1:7",
                       text);
}

static tutti_status read_flips(const char *text, tutti__flips *f, int64_t *keep_p)
{
    char copy[160], *rest = copy, *words[6] = {NULL};
    int64_t seed, start = 0, counter = -1;

    if (strlen(text) >= sizeof copy)
        return refuse(text);
    strcpy(copy, text);
    for (int i = 0; i < 6; i++)
        if (!(words[i] = strsep(&rest, ":")) && i < 4)
            return refuse(text);
    for (f->kind = 0; f->kind < KINDS && strcmp(words[1], kind_names[f->kind]) != 0; f->kind++)
        ;
    if (rest || f->kind == KINDS || !tutti__parse_double(words[0], &f->rate) || !(f->rate >= 0) ||
        f->rate > 1 || !tutti__parse_int64(words[2], keep_p) || *keep_p < 0 ||
        !tutti__parse_int64(words[3], &seed) || seed < 0 ||
        (words[4] && (!tutti__parse_int64(words[4], &start) || start < 0)) ||
        (words[5] && !tutti__parse_int64(words[5], &counter)))
        return refuse(text);
    f->seed = (uint64_t)seed;
    f->start = (uint32_t)start;
    f->counter = (int)counter;
    return TUTTI_OK;
}

/* Random words of this round; `what`: 0 and 2 of a step; those of workers (turn_of) have 1. */
static void draw(const tutti__flips *f, uint32_t a, uint32_t b, uint32_t what, uint32_t words[4])
{
    tutti__philox(f->seed,
                  (tutti__philox_counter){{a, b, f->round << 16 | (f->start & 0xffff), what}},
                  words);
}

/* The place of a worker in the order in which those of its node are taken. */
static uint32_t turn_of(const tutti__flips *f, uint32_t worker)
{
    uint32_t words[4];

    tutti__philox(f->seed, (tutti__philox_counter){{worker, 0, 0, 1}}, words);
    return words[0];
}

/* Whether this worker, number `local` of the n of its node, is among those that are not left alone. */
static bool is_taken(const tutti__flips *f, uint32_t node, int local, int n, int64_t keep)
{
    const uint32_t mine = turn_of(f, node << 16 | (uint32_t)local);
    int64_t before = 0;

    for (int i = 0; i < n; i++)
        before += turn_of(f, node << 16 | (uint32_t)i) < mine;
    return before < n - keep;
}

tutti_status tutti__flips_open(tutti_ddp *ddp)
{
    const char *text = tutti__env_text(TUTTI__ENV_CHAOS_FLIP);
    tutti__env_group env = {0};
    tutti__flips f = {.now = KINDS};
    int64_t keep;
    int node;

    if (!*text || tutti_module_ctx(ddp->module)->device_ops->plans)
        return TUTTI_OK;
    TUTTI_TRY(read_flips(text, &f, &keep));
    TUTTI_TRY(tutti__env_group_read_ranks(&env));
    node = env.local_world_size > 0 ? (env.rank - env.local_rank) / env.local_world_size : 0;
    f.round = (uint32_t)env.attempt;
    f.worker = (uint32_t)node << 16 | (uint32_t)env.local_rank;
    if (!is_taken(&f, (uint32_t)node, env.local_rank,
                  env.local_world_size > 0 ? env.local_world_size : 1, keep))
        return TUTTI_OK;
    ddp->flips = tutti__alloc(sizeof *ddp->flips);
    if (!ddp->flips)
        return TUTTI_ERR_MEMORY;
    *ddp->flips = f;
    return TUTTI_OK;
}

/* ---- A flip ---- */

/* For the launcher. */
static void count(const tutti__flips *f, uint64_t n)
{
    if (f->counter >= 0)
        (void)!write(f->counter, &n, sizeof n);
}

/* Ends this step's flip, which has hit nothing. */
static void miss(tutti__flips *f)
{
    const kind what = f->now;

    f->now = KINDS;
    if (what == KINDS)
        return;
    tutti_log(TUTTI_LOG_WARN, "chaos",
              "no bit is flipped in training step %llu: this rank has no %s to flip then",
              (unsigned long long)f->last, kind_names[what]);
    count(f, TUTTI__FLIP_MISSED);
}

void tutti__flips_free(tutti_ddp *ddp)
{
    if (ddp->flips)
        miss(ddp->flips);
    free(ddp->flips);
    ddp->flips = NULL;
}

/* A number below n, of this step's words. */
static uint64_t place(const tutti__flips *f, uint64_t n)
{
    return ((uint64_t)f->words[0] << 32 | f->words[1]) % n;
}

/* Flips a bit of word `at` (32 bits) of p: this step's. */
static void flip(const tutti_ddp *ddp, const char *name, void *p, bool on_host, size_t at)
{
    tutti_stream *stream = tutti__ddp_stream(ddp);
    const int bit = (int)(ddp->flips->words[2] % 32);
    char *there = (char *)p + at * 4;
    uint32_t before = 0, after;

    if (on_host || tutti__on_host(stream))
        memcpy(&before, there, 4);
    else if (tutti__read(stream, &before, there, 4) != TUTTI_OK)
        return;
    after = before ^ (uint32_t)1 << bit;
    if (on_host || tutti__on_host(stream))
        memcpy(there, &after, 4);
    else if (tutti__copy_in(stream, there, &after, 4) != TUTTI_OK ||
             tutti_stream_wait(stream) != TUTTI_OK)
        return;
    ddp->flips->now = KINDS;
    tutti_log(TUTTI_LOG_WARN, "chaos",
              "training step %llu: bit %d of element %zu of %s flipped, %08" PRIx32
              " -> %08" PRIx32,
              (unsigned long long)ddp->flips->last, bit, at, name, before, after);
    count(ddp->flips, 1);
}

/* Whether a bit of it may be flipped: a word of a tensor or of state, no count. */
static bool is_open(const tutti__persistent *piece, kind what)
{
    return (kind)piece->kind == what && piece->p &&
           !(piece->of && piece->on_host && piece->bytes == sizeof(uint64_t)) && piece->bytes >= 4;
}

static void flip_persistent(const tutti_ddp *ddp)
{
    const tutti__flips *f = ddp->flips;
    tutti__persistent *list;
    size_t n, words = 0;
    uint64_t at;
    char name[256];

    if (tutti__persistent_list(ddp, &list, &n) != TUTTI_OK)
        return;
    for (size_t i = 0; i < n; i++)
        words += is_open(&list[i], f->now) ? list[i].bytes / 4 : 0;
    at = words > 0 ? place(f, words) : 0;
    for (size_t i = 0; i < n && words > 0; i++) {
        if (!is_open(&list[i], f->now))
            continue;
        if (at < list[i].bytes / 4) {
            tutti__persistent_describe(&list[i], name, sizeof name);
            flip(ddp, name, list[i].p, list[i].on_host, (size_t)at);
            break;
        }
        at -= list[i].bytes / 4;
    }
    free(list);
}

static const tutti_tensor *owner(const tutti_ddp *ddp, const float *gradient)
{
    for (size_t i = 0; i < ddp->n; i++) {
        const tutti_tensor *t = ddp->parameters[i];
        const float *g = t->parameter->grad;

        if (g && gradient >= g && gradient < g + tutti_shape_count(t->shape))
            return t;
    }
    return NULL;
}

static void flip_gradient(const tutti_ddp *ddp, float *p, size_t at, const char *what)
{
    const tutti_tensor *t = owner(ddp, p);
    char name[256];

    snprintf(name, sizeof name, "%s of %s", what, t ? t->name : "this rank's share");
    flip(ddp, name, p, false, at);
}

/* With shards. */
static void flip_sum(const tutti_ddp *ddp, size_t i, size_t at)
{
    const int bit = tutti__reducer_flip_sum(ddp->reducer, i, at, ddp->flips->words[2]);

    if (bit < 0)
        return;
    ddp->flips->now = KINDS;
    tutti_log(TUTTI_LOG_WARN, "chaos",
              "training step %llu: bit %d of element %zu of the sums of %s flipped",
              (unsigned long long)ddp->flips->last, bit, at, ddp->parameters[i]->name);
    count(ddp->flips, 1);
}

/* ---- A step ---- */

void tutti__flips_begin(tutti_ddp *ddp)
{
    tutti__flips *f = ddp->flips;
    uint32_t words[4];
    uint64_t step;

    if (!f)
        return;
    step = tutti_ctx_step(tutti_module_ctx(ddp->module)) + (ddp->shards != NULL);
    if (step == f->last)
        return;
    miss(f);
    f->last = step;
    draw(f, (uint32_t)step, f->worker, 0, words);
    f->now = KINDS;
    if (!((double)words[0] / 4294967296.0 < f->rate))
        return;
    f->now = f->kind;
    if (f->kind == ANY)
        f->now = (kind[]){PARAMETERS, STATE, GRADIENTS}[words[1] % 3];
    draw(f, (uint32_t)step, f->worker, 2, f->words);
    if (f->now > BUFFERS)
        return;
    flip_persistent(ddp);
    miss(f);
}

void tutti__flips_gradient(tutti_ddp *ddp, size_t i)
{
    tutti__flips *f = ddp->flips;
    uint64_t all = 0, at;

    if (!f || (f->now != GRADIENTS && f->now != SUMS))
        return;
    for (size_t k = 0; k < ddp->n; k++)
        if (ddp->roles[k] == TUTTI__AVERAGED)
            all += (uint64_t)tutti_shape_count(ddp->parameters[k]->shape);
    at = place(f, all);
    for (size_t k = 0; k < ddp->n; k++) {
        const tutti_tensor *t = ddp->parameters[k];
        const uint64_t count =
            ddp->roles[k] == TUTTI__AVERAGED ? (uint64_t)tutti_shape_count(t->shape) : 0;

        if (at < count && k == i) {
            if (f->now == SUMS)
                flip_sum(ddp, i, (size_t)at);
            else
                flip_gradient(ddp, t->parameter->grad, (size_t)at, "the gradient");
            miss(f);
        }
        if (at < count)
            return;
        at -= count;
    }
}

void tutti__flips_means(tutti_ddp *ddp)
{
    tutti__flips *f = ddp->flips;
    const tutti__flat_span *spans;
    size_t n;
    uint64_t all = 0, at;

    if (!f || f->now != MEANS)
        return;
    if (tutti__gradient_spans(ddp->module, &spans, &n) != TUTTI_OK)
        n = 0;
    for (size_t i = 0; i < n; i++)
        all += spans[i].n;
    at = all > 0 ? place(f, all) : 0;
    for (size_t i = 0; i < n && f->now == MEANS; i++) {
        if (at < spans[i].n)
            flip_gradient(ddp, spans[i].p, (size_t)at, "the mean gradient");
        else
            at -= spans[i].n;
    }
    miss(f);
}
