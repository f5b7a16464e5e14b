/* ddp_overlap.c -- how much of a step is communication that backward does not hide?   SPDX-License-Identifier: MIT
 *
 *     tutti run -n 2 build/bench/bench_ddp_overlap [BATCH [SIDE [BUCKET_MB]]]
 *
 * Steps of MiniResNet on images of SIDE x SIDE, alternating in blocks: with gradients averaged, and paused (nothing is
 * sent, but a barrier ends backward, so that both wait for the slower rank). The medians over all steps are compared, so that the
 * machine's drift affects both alike; then the last step's buckets. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <tutti/tutti.h>

enum { ROUNDS = 8, STEPS = 5, WARM_UP = 3 };

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
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
} trainer;

static double step(const trainer *t, tutti_array x, tutti_array y, bool paused)
{
    double begin = now_ms();

    tutti_step_begin(t->cx, NULL);
    tutti_tensor *logits = tutti_model_forward(t->model, tutti_input(t->cx, x));

    tutti_optim_zero_grad(t->optim);
    TUTTI_MUST(tutti_backward(tutti_cross_entropy(logits, tutti_input(t->cx, y))));
    if (paused)
        TUTTI_MUST(tutti_barrier(t->group, NULL));
    TUTTI_MUST(tutti_optim_step(t->optim));
    tutti_step_end(t->cx);
    return now_ms() - begin;
}

static void report(const trainer *t, double times[2][ROUNDS * STEPS], tutti_shape shape)
{
    double averaged, alone;

    for (int paused = 0; paused < 2; paused++)
        qsort(times[paused], ROUNDS * STEPS, sizeof(double), by_value);
    averaged = times[0][ROUNDS * STEPS / 2];
    alone = times[1][ROUNDS * STEPS / 2];
    tutti_log0(t->group, "mini_resnet %dx3x%dx%d, %d ranks, %s, %s, %d threads", (int)shape.d[0],
               (int)shape.d[2], (int)shape.d[3], tutti_group_size(t->group),
               tutti_group_transport_name(t->group), tutti_ctx_kernels_name(t->cx),
               tutti_ctx_threads(t->cx));
    tutti_log0(t->group,
               "step, median of %d: averaged %.2f ms, paused %.2f ms, ratio %.3f, exposed %.2f ms",
               ROUNDS * STEPS, averaged, alone, averaged / alone, averaged - alone);
    for (size_t b = 0; b < tutti_reducer_n_buckets(tutti_ddp_reducer(t->ddp)); b++) {
        tutti_bucket_info info = tutti_reducer_bucket(tutti_ddp_reducer(t->ddp), b);

        tutti_log0(t->group,
                   "bucket %zu: %zu gradients, %.2f MiB, full at %.2f ms, reduced at %.2f ms", b,
                   info.n, (double)info.bytes / 1048576, info.ready_ms, info.done_ms);
    }
}

int main(int argc, char **argv)
{
    int64_t batch = argc > 1 ? atoi(argv[1]) : 32, side = argc > 2 ? atoi(argv[2]) : 32;
    double times[2][ROUNDS * STEPS]; /* averaged, paused */
    float *pixels = calloc((size_t)(batch * 3 * side * side), sizeof *pixels);
    int64_t *labels = calloc((size_t)batch, sizeof *labels);
    tutti_array x = {pixels, TUTTI_SHAPE(batch, 3, side, side), TUTTI_F32},
                y = {labels, TUTTI_SHAPE(batch), TUTTI_I64};
    tutti_ddp_opts opts = {.bucket_mb = argc > 3 ? atof(argv[3]) : 0, .keep_buffers = true};
    trainer t;

    TUTTI_MUST(tutti_group_init(&t.group, NULL));
    TUTTI_MUST(tutti_ctx_new(&t.cx, tutti_group_device(t.group), NULL));
    TUTTI_MUST(tutti_model_new(
        &t.model, t.cx, "mini_resnet",
        &(tutti_model_opts){.channels = 3, .height = side, .width = side, .classes = 10}));
    TUTTI_MUST(tutti_ddp_new(&t.ddp, tutti_model_module(t.model), t.group, &opts));
    TUTTI_MUST(tutti_sgd_new(&t.optim, tutti_model_module(t.model),
                             &(tutti_sgd_opts){.lr = 1e-3f, .momentum = 0.9f}));
    for (int i = 0; i < WARM_UP; i++)
        step(&t, x, y, false);
    for (int round = 0; round < ROUNDS; round++)
        for (int paused = 1; paused >= 0; paused--) {
            (paused ? tutti_ddp_pause : tutti_ddp_resume)(t.ddp);
            for (int i = 0; i < STEPS; i++)
                times[paused][round * STEPS + i] = step(&t, x, y, paused);
        }
    report(&t, times, x.shape);
    tutti_optim_free(t.optim);
    tutti_ddp_free(t.ddp);
    tutti_model_free(t.model);
    tutti_ctx_free(t.cx);
    tutti_group_free(t.group);
    free(pixels);
    free(labels);
    return 0;
}
