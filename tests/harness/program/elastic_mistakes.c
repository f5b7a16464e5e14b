/* elastic_mistakes.c -- an elastic program with one mistake, by its first argument, for the tests of what finds it.
 * SPDX-License-Identifier: MIT
 *
 *     elastic_mistakes none|rank|count|optimizer|part|death|blind|once|twice|always
 *
 * rank: data are chosen by rank; count: by how many shards this process has computed; optimizer: one rank changes its optimizer's
 * state; part: one changes memory that it has kept; death: none, but one dies after a shard was compared, before that step
 * ends; blind: a part takes shards, and cannot drop them. once, twice, always: rank 1, or the only one, computes wrong bits in a shard
 * that counts of step 6, in one of step 8 too, or from step 6 on. Prints the digest of the weights. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

enum { SHARDS = 6, STEPS = 12, WIDTH = 8, BATCH = 4 };

typedef struct net {
    tutti_module base;
    tutti_linear fc;
    tutti_batch_norm2d norm;
} net;

static tutti_status compute(net *m, uint64_t seed, bool wrong)
{
    tutti_ctx *cx = tutti_module_ctx(&m->base);
    float x[BATCH * WIDTH], y[BATCH];
    tutti_tensor *t;
    tutti_status status;

    for (size_t i = 0; i < BATCH * WIDTH; i++) {
        x[i] = (float)((seed * 7919 + i * 104729) % 1000) / 500 - 1;
        y[i % BATCH] = x[i];
    }
    x[5] += wrong ? 0x1p-20f : 0;
    tutti_step_begin(cx, NULL);
    tutti_module_zero_grad(&m->base);
    t = tutti_input(cx, (tutti_array){x, TUTTI_SHAPE(BATCH, WIDTH, 1, 1), TUTTI_F32});
    t = tutti_flatten(tutti_batch_norm2d_forward(&m->norm, t));
    t = tutti_linear_forward(&m->fc, tutti_dropout(t, 0.2f));
    status = tutti_backward(
        tutti_mse_loss(t, tutti_input(cx, (tutti_array){y, TUTTI_SHAPE(BATCH, 1), TUTTI_F32})));
    tutti_step_end(cx);
    return status;
}

static tutti_status begin_nothing(void *self)
{
    (void)self;
    return TUTTI_OK;
}

/* Whether this process, if it is one that does, computes its next shard wrong. */
static bool is_wrong(const char *mistake, uint64_t step, int attempt)
{
    static uint64_t next = 6;
    bool wrong = step >= next;

    if (strcmp(mistake, "always") == 0)
        return wrong;
    wrong &= attempt > 0 && (strcmp(mistake, "once") == 0 || strcmp(mistake, "twice") == 0);
    if (wrong)
        next = strcmp(mistake, "twice") == 0 ? next + 2 : UINT64_MAX;
    return wrong;
}

/* In the middle of training, on rank 1. */
static void spoil(const char *mistake, net *m, tutti_optim *optim, int64_t *kept)
{
    float momentum[WIDTH];

    if (strcmp(mistake, "part") == 0)
        ++*kept;
    if (strcmp(mistake, "optimizer") != 0)
        return;
    TUTTI_MUST(tutti_optim_state_read(optim, 0, m->fc.weight, momentum));
    momentum[3] += 1;
    TUTTI_MUST(tutti_optim_state_write(optim, 0, m->fc.weight, momentum));
}

int main(int argc, char **argv)
{
    const char *mistake = argc > 1 ? argv[1] : "none";
    int64_t kept = 0;
    uint64_t count = 0, at = STEPS;
    int compared = 0;
    bool faulty = false;
    tutti_ctx *cx;
    net m;
    tutti_elastic *e;
    tutti_optim *optim;
    char digest[33];

    TUTTI_MUST(tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, NULL));
    tutti_module_init(&m.base, cx);
    tutti_batch_norm2d_init(&m.norm, &m.base, "norm", WIDTH);
    tutti_linear_init(&m.fc, &m.base, "fc", WIDTH, 1);
    TUTTI_MUST(tutti_sgd_new(&optim, &m.base, &(tutti_sgd_opts){.lr = 0.05f, .momentum = 0.9f}));
    TUTTI_MUST(tutti_elastic_new(&e, &(tutti_elastic_opts){.shards = SHARDS}));
    TUTTI_MUST(tutti_elastic_keep_bytes(e, "steps seen", &kept, sizeof kept));
    TUTTI_MUST(tutti_elastic_keep_module(e, &m.base, NULL, NULL));
    TUTTI_MUST(tutti_elastic_keep_optim(e, optim));
    if (strcmp(mistake, "blind") == 0)
        TUTTI_MUST(
            tutti_elastic_keep(e, &(tutti_elastic_part){.name = "sums", .begin = begin_nothing}));
    while (tutti_elastic_step(e) < STEPS && tutti_elastic_begin(e)) {
        const int rank = tutti_group_rank(tutti_elastic_group(e));
        const uint64_t step = tutti_elastic_step(e);
        tutti_status status = TUTTI_OK;
        int shard;

        if (tutti_elastic_get_stats(e).groups == 1 && step == 0)
            faulty = rank == (tutti_group_size(tutti_elastic_group(e)) > 1) &&
                     !tutti_elastic_has_lost_all(e);
        compared = step != at ? 0 : compared + 1; /* the first attempt at a step compares */
        at = step;
        if (strcmp(mistake, "death") == 0 && step == 6 && rank == 1 && compared > 0 &&
            tutti_elastic_get_stats(e).steps > 0)
            raise(SIGKILL);
        for (bool first = true; status == TUTTI_OK && (shard = tutti_elastic_shard(e)) >= 0;
             first = false) {
            /* Each rank has its first shard before any takes one of another. */
            if (first && (status = tutti_barrier(tutti_elastic_group(e), NULL)) != TUTTI_OK)
                break;
            count++;
            status = compute(&m,
                             strcmp(mistake, "rank") == 0    ? step * 100 + (uint64_t)rank
                             : strcmp(mistake, "count") == 0 ? count
                                                             : step * 100 + (uint64_t)shard,
                             faulty && is_wrong(mistake, step, compared));
        }
        if ((status == TUTTI_OK || tutti_elastic_recover(e, status)) && tutti_elastic_finish(e)) {
            TUTTI_MUST(tutti_optim_step(optim));
            if (step == 6 && rank == 1)
                spoil(mistake, &m, optim, &kept);
            tutti_elastic_commit(e);
        }
    }
    TUTTI_MUST(tutti_elastic_end(e));
    tutti_module_digest(&m.base, digest);
    tutti_log0(tutti_elastic_group(e), "step %llu  digest %s",
               (unsigned long long)tutti_elastic_step(e), digest);
    tutti_elastic_free(e);
    tutti_optim_free(optim);
    tutti_module_destroy(&m.base);
    tutti_ctx_free(cx);
    return 0;
}
