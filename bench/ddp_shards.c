/* ddp_shards.c -- the cost of a step over logical shards compared with plain DDP.   SPDX-License-Identifier: MIT
 *
 *     tutti run -n 2 build/bench/bench_ddp_shards [BATCH [SIDE [ROUNDS [WIRE_BITS]]]]
 *
 * Two MiniResNets alternate in steps on the same images of SIDE x SIDE: one averages over the ranks, the other over as many
 * shards, one per rank. Medians over all rounds, so that the machine's drift affects both alike: of the wall-clock time, and of
 * the processor time of rank 0's process, which other programs on the machine disturb less. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <tutti/tutti.h>

enum { MOST_ROUNDS = 500, WARM_UP = 3 };

static double now_ms(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

typedef struct trainer {
    tutti_group *group;
    tutti_ctx *cx;
    tutti_model *model;
    tutti_ddp *ddp;
    tutti_optim *optim;
    double times[MOST_ROUNDS], processor[MOST_ROUNDS];
} trainer;

static void trainer_new(trainer *t, tutti_group *group, int64_t side, const tutti_ddp_opts *opts)
{
    t->group = group;
    TUTTI_MUST(tutti_ctx_new(&t->cx, tutti_group_device(group), NULL));
    TUTTI_MUST(tutti_model_new(
        &t->model, t->cx, "mini_resnet",
        &(tutti_model_opts){.channels = 3, .height = side, .width = side, .classes = 10}));
    TUTTI_MUST(tutti_ddp_new(&t->ddp, tutti_model_module(t->model), group, opts));
    TUTTI_MUST(tutti_sgd_new(&t->optim, tutti_model_module(t->model),
                             &(tutti_sgd_opts){.lr = 1e-3f, .momentum = 0.9f}));
}

static void trainer_free(trainer *t)
{
    tutti_optim_free(t->optim);
    tutti_ddp_free(t->ddp);
    tutti_model_free(t->model);
    tutti_ctx_free(t->cx);
}

static void backward(const trainer *t, tutti_array x, tutti_array y)
{
    tutti_step_begin(t->cx, NULL);
    tutti_tensor *logits = tutti_model_forward(t->model, tutti_input(t->cx, x));

    tutti_optim_zero_grad(t->optim);
    TUTTI_MUST(tutti_backward(tutti_cross_entropy(logits, tutti_input(t->cx, y))));
}

static void step(trainer *t, tutti_array x, tutti_array y, bool sharded, int round)
{
    bool again = sharded;
    double begin, processor;

    TUTTI_MUST(tutti_barrier(t->group, NULL));
    begin = now_ms(CLOCK_MONOTONIC);
    processor = now_ms(CLOCK_PROCESS_CPUTIME_ID);
    if (!sharded)
        backward(t, x, y);
    while (again) {
        TUTTI_MUST(tutti_ddp_begin_step(t->ddp));
        TUTTI_MUST(tutti_ddp_begin_shard(t->ddp, tutti_group_rank(t->group), true));
        backward(t, x, y);
        TUTTI_MUST(tutti_ddp_finish_step(t->ddp, &again));
        if (again)
            tutti_step_end(t->cx);
    }
    TUTTI_MUST(tutti_optim_step(t->optim));
    tutti_step_end(t->cx);
    t->times[round] = now_ms(CLOCK_MONOTONIC) - begin;
    t->processor[round] = now_ms(CLOCK_PROCESS_CPUTIME_ID) - processor;
}

static void report(trainer *t, const char *name, int rounds, double median[2])
{
    const tutti_ddp_times mean = tutti_ddp_get_stats(t->ddp).mean;

    qsort(t->times, (size_t)rounds, sizeof(double), by_value);
    qsort(t->processor, (size_t)rounds, sizeof(double), by_value);
    median[0] = t->times[rounds / 2];
    median[1] = t->processor[rounds / 2];
    tutti_log0(t->group,
               "%-7s %8.2f ms a step, %8.2f of processor time; backward %.2f, buckets %.2f, "
               "exposed %.2f ms",
               name, median[0], median[1], mean.backward_ms, mean.comm_ms, mean.exposed_ms);
}

int main(int argc, char **argv)
{
    const int64_t batch = argc > 1 ? atoi(argv[1]) : 32, side = argc > 2 ? atoi(argv[2]) : 32;
    const int wished = argc > 3 ? atoi(argv[3]) : 40, rounds = wished < 1             ? 1
                                                               : wished > MOST_ROUNDS ? MOST_ROUNDS
                                                                                      : wished;
    float *pixels = calloc((size_t)(batch * 3 * side * side), sizeof *pixels);
    int64_t *labels = calloc((size_t)batch, sizeof *labels);
    const tutti_array x = {pixels, TUTTI_SHAPE(batch, 3, side, side), TUTTI_F32},
                      y = {labels, TUTTI_SHAPE(batch), TUTTI_I64};
    static trainer plain, sharded;
    tutti_group *group;
    double by_ranks[2], by_shards[2];

    TUTTI_MUST(tutti_group_init(&group, NULL));
    for (int64_t i = 0; i < batch * 3 * side * side; i++)
        pixels[i] = (float)((i * 7919 + tutti_group_rank(group)) % 256) / 128 - 1;
    for (int64_t i = 0; i < batch; i++)
        labels[i] = i % 10;
    trainer_new(&plain, group, side, NULL);
    trainer_new(&sharded, group, side,
                &(tutti_ddp_opts){.shards = tutti_group_size(group),
                                  .wire_bits = argc > 4 ? atoi(argv[4]) : 0});
    for (int i = 0; i < WARM_UP; i++) {
        step(&plain, x, y, false, 0);
        step(&sharded, x, y, true, 0);
    }
    for (int i = 0; i < rounds; i++) {
        step(&plain, x, y, false, i);
        step(&sharded, x, y, true, i);
    }
    report(&plain, "plain", rounds, by_ranks);
    report(&sharded, "shards", rounds, by_shards);
    tutti_log0(group, "mini_resnet %dx3x%dx%d, %d ranks, %s: %.3f, of processor time %.3f",
               (int)batch, (int)side, (int)side, tutti_group_size(group),
               tutti_group_transport_name(group), by_shards[0] / by_ranks[0],
               by_shards[1] / by_ranks[1]);
    trainer_free(&plain);
    trainer_free(&sharded);
    tutti_group_free(group);
    free(pixels);
    free(labels);
    return 0;
}
