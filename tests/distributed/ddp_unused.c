/* ddp: parameters that are not used, not trained, or not shared.   SPDX-License-Identifier: MIT
 * timeout: 120   breadth: 240
 * devices: strict cuda nccl */
#include "distributed/ddp_bodies.h"
#include "harness/device.h"
#include "harness/memory.h"
#include "harness/stream.h"
#include "tensor/tensor.h"
#include <tutti/tutti.h>

#include <math.h>

/* y = a(x) [+ left(a)] [+ right(a)] [+ never(a)]: what a step uses is the caller's choice. */
typedef struct net {
    tutti_module base;
    tutti_linear a, left, right, never;
    tutti_tensor *count; /* a buffer */
} net;

enum { ROWS = 3, WIDTH = 4 };

typedef struct trainer {
    tutti_ctx *cx;
    net m;
    tutti_ddp *ddp;
    tutti_optim *optim;
} trainer;

static int trainer_new(trainer *t, tutti_group *group, const tutti_ddp_opts *opts)
{
    tutti_ctx_opts cx_opts = {.threads = 1, .kernels = test_kernels()};

    *t = (trainer){0};
    CHECK_OK(tutti_ctx_new(&t->cx, test_device(), &cx_opts));
    tutti_module_init(&t->m.base, t->cx);
    t->m.count = tutti_buffer_new(&t->m.base, "count", TUTTI_SHAPE(2), TUTTI_F32, TUTTI_INIT_ZEROS);
    tutti_linear_init(&t->m.a, &t->m.base, "a", WIDTH, WIDTH);
    tutti_linear_init(&t->m.left, &t->m.base, "left", WIDTH, WIDTH);
    tutti_linear_init(&t->m.right, &t->m.base, "right", WIDTH, WIDTH);
    tutti_linear_init(&t->m.never, &t->m.base, "never", WIDTH, WIDTH);
    if (group)
        CHECK_OK(tutti_ddp_new(&t->ddp, &t->m.base, group, opts));
    CHECK_OK(tutti_sgd_new(&t->optim, &t->m.base,
                           &(tutti_sgd_opts){.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.1f}));
    return 0;
}

static void trainer_free(trainer *t)
{
    tutti_optim_free(t->optim);
    tutti_ddp_free(t->ddp);
    tutti_module_destroy(&t->m.base);
    tutti_ctx_free(t->cx);
}

enum { LEFT = 1, RIGHT = 2, NEVER = 4 };

/* `rank` selects the data. */
static tutti_status backward(trainer *t, int uses, int rank, int step)
{
    static _Thread_local float x[ROWS * WIDTH], target[ROWS * WIDTH];
    tutti_array input = {x, TUTTI_SHAPE(ROWS, WIDTH), TUTTI_F32},
                wanted = {target, TUTTI_SHAPE(ROWS, WIDTH), TUTTI_F32};
    tutti_tensor *a, *y;
    tutti_status status;

    for (int i = 0; i < ROWS * WIDTH; i++) {
        x[i] = (float)((i * 7 + rank * 3 + step) % 11) / 11 - 0.5f;
        target[i] = (float)((i + rank) % 5) / 5;
    }
    tutti_step_begin(t->cx, NULL);
    a = y = tutti_linear_forward(&t->m.a, tutti_input(t->cx, input));
    if (uses & LEFT)
        y = tutti_add(y, tutti_linear_forward(&t->m.left, a));
    if (uses & RIGHT)
        y = tutti_add(y, tutti_linear_forward(&t->m.right, a));
    if (uses & NEVER)
        y = tutti_add(y, tutti_linear_forward(&t->m.never, a));
    status = tutti_backward(tutti_mse_loss(y, tutti_input(t->cx, wanted)));
    tutti_step_end(t->cx);
    return status;
}

/* Odd ranks use left, even ones right; in odd steps none uses left. */
static int uses_of(int rank, int step)
{
    return rank % 2 == 1 && step % 2 == 0 ? LEFT : RIGHT;
}

/* The mean of the gradients of all ranks, computed by one rank alone, on `t`, a copy of the parameters. NULL: none has
 * one. */
static int expect_mean(trainer *t, size_t i, int size, int step, int (*uses)(int rank, int step),
                       float *mean, bool *any)
{
    size_t n = (size_t)tutti_shape_count(tutti_tensor_shape(tutti_module_parameter(&t->m.base, i)));

    *any = false;
    for (size_t k = 0; k < n; k++)
        mean[k] = 0;
    for (int r = 0; r < size; r++) {
        const float *grad;

        tutti_module_zero_grad(&t->m.base);
        CHECK_OK(backward(t, uses(r, step), r, step));
        grad = test_grad(tutti_module_parameter(&t->m.base, i));
        for (size_t k = 0; grad && k < n; k++)
            mean[k] += grad[k];
        *any |= grad != NULL;
    }
    for (size_t k = 0; k < n; k++)
        mean[k] /= (float)size;
    return 0;
}

static int copy_parameters(trainer *to, const trainer *from)
{
    for (size_t i = 0; i < tutti_module_n_parameters(&from->m.base); i++)
        CHECK_OK(tutti_tensor_write(tutti_module_parameter(&to->m.base, i),
                                    test_values(tutti_module_parameter(&from->m.base, i))));
    return 0;
}

static int check_step(trainer *t, trainer *alone, tutti_group *group, int step,
                      int (*uses)(int rank, int step))
{
    float mean[WIDTH * WIDTH];

    CHECK_0(copy_parameters(alone, t));
    tutti_optim_zero_grad(t->optim);
    CHECK_OK(backward(t, uses(tutti_group_rank(group), step), tutti_group_rank(group), step));
    for (size_t i = 0; i < tutti_module_n_parameters(&t->m.base); i++) {
        tutti_tensor *p = tutti_module_parameter(&t->m.base, i);
        const float *grad = test_grad(p);
        bool any;

        CHECK_0(expect_mean(alone, i, tutti_group_size(group), step, uses, mean, &any));
        CHECK((grad != NULL) == any);
        for (int64_t k = 0; any && k < tutti_shape_count(tutti_tensor_shape(p)); k++)
            CHECK(fabsf(grad[k] - mean[k]) < 1e-6f);
    }
    CHECK_OK(tutti_optim_step(t->optim));
    return 0;
}

/* Control flow differs by rank and step: ranks that did not use a parameter get the mean too; one that none used has
 * no gradient, and its value and momentum do not change. */
static int find_unused_gives_the_mean_or_nothing(tutti_group *group, void *arg)
{
    int size = tutti_group_size(group), rank = tutti_group_rank(group);
    float before[WIDTH * WIDTH], never[WIDTH * WIDTH];
    trainer t, alone;

    (void)arg;
    CHECK_0(trainer_new(&t, group, &(tutti_ddp_opts){.find_unused = true, .bucket_mb = 1e-5}));
    CHECK_0(trainer_new(&alone, NULL, NULL));
    CHECK_OK(tutti_tensor_read(t.m.never.weight, never));
    for (int step = 0; step < 6; step++) {
        int left = (size / 2) * (step % 2 == 0);

        CHECK_OK(tutti_tensor_read(t.m.left.weight, before));
        CHECK_0(check_step(&t, &alone, group, step, uses_of));
        CHECK(tutti_reducer_users(tutti_ddp_reducer(t.ddp), t.m.left.weight->parameter->index) ==
              left);
        CHECK(tutti_reducer_users(tutti_ddp_reducer(t.ddp), t.m.a.weight->parameter->index) ==
              size);
        CHECK((memcmp(before, test_values(t.m.left.weight), sizeof before) == 0) == (left == 0));
        CHECK_0(check_equal_on_all_ranks(group, &t.m.base));
    }
    CHECK(memcmp(never, test_values(t.m.never.weight), sizeof never) == 0); /* not even decayed */
    /* without zero_grad: a parameter that none used keeps its gradient */
    if (size > 1) {
        const float *grad;
        float kept[WIDTH * WIDTH];

        tutti_optim_zero_grad(t.optim);
        CHECK_OK(backward(&t, uses_of(rank, 0), rank, 0));
        memcpy(kept, test_grad(t.m.left.weight), sizeof kept);
        CHECK_OK(backward(&t, uses_of(rank, 1), rank, 1));
        grad = test_grad(t.m.left.weight);
        for (int k = 0; k < WIDTH * WIDTH; k++)
            CHECK(fabsf(grad[k] - kept[k]) <= 1e-6f * fabsf(kept[k]));
    }
    trainer_free(&t);
    trainer_free(&alone);
    return 0;
}

static int by_rank(int rank, int step)
{
    (void)step;
    return rank % 2 == 1 ? LEFT : RIGHT;
}

/* Graphs that differ by rank but not by step: the bits of find_unused, with one exchange. */
static int static_graph_equals_find_unused(tutti_group *group, void *arg)
{
    trainer dynamic, fixed, alone;

    (void)arg;
    CHECK_0(trainer_new(&dynamic, group, &(tutti_ddp_opts){.find_unused = true}));
    CHECK_0(trainer_new(&fixed, group, &(tutti_ddp_opts){.static_graph = true}));
    CHECK_0(trainer_new(&alone, NULL, NULL));
    for (int step = 0; step < 4; step++) {
        char digests[2][33];

        CHECK_0(check_step(&dynamic, &alone, group, step, by_rank));
        CHECK_0(check_step(&fixed, &alone, group, step, by_rank));
        tutti_module_digest(&dynamic.m.base, digests[0]);
        tutti_module_digest(&fixed.m.base, digests[1]);
        CHECK_TEXT(digests[0], digests[1]);
    }
    trainer_free(&dynamic);
    trainer_free(&fixed);
    trainer_free(&alone);
    return 0;
}

static int a_graph_that_changes_is_told(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group), last = tutti_group_size(group) - 1;
    tutti_status status;
    trainer t;
    char text[160];

    (void)arg;
    CHECK_0(trainer_new(&t, group, &(tutti_ddp_opts){.static_graph = true}));
    CHECK_OK(backward(&t, LEFT, rank, 0));
    CHECK_OK(tutti_meet(group, "one step is done"));
    tutti_module_zero_grad(&t.m.base);
    status = backward(&t, rank == last ? LEFT | RIGHT : LEFT, rank, 1);
    CHECK(status == (rank == last ? TUTTI_ERR_STATE : TUTTI_ERR_ABORTED));
    snprintf(text, sizeof text, "the graph has changed: \"right.");
    CHECK_TEXT(tutti_last_error(), text);
    snprintf(text, sizeof text, "has a gradient in step 2 on rank %d, and had none in step 1",
             last);
    CHECK_TEXT(tutti_last_error(), text);
    trainer_free(&t);
    return 0;
}

/* Parameters that only a paused backward used count, also with find_unused. */
static int use_while_paused_counts(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group), size = tutti_group_size(group);
    trainer t, alone;
    float mean[WIDTH * WIDTH] = {0};
    const float *grad;

    (void)arg;
    CHECK_0(trainer_new(&t, group, &(tutti_ddp_opts){.find_unused = true}));
    CHECK_0(trainer_new(&alone, NULL, NULL));
    CHECK_0(copy_parameters(&alone, &t));
    tutti_ddp_pause(t.ddp);
    CHECK_OK(backward(&t, LEFT, rank, 0));
    tutti_ddp_resume(t.ddp);
    CHECK_OK(backward(&t, RIGHT, rank, 1));
    for (int r = 0; r < size; r++) {
        tutti_module_zero_grad(&alone.m.base);
        CHECK_OK(backward(&alone, LEFT, r, 0));
        grad = test_grad(alone.m.left.weight);
        for (int k = 0; k < WIDTH * WIDTH; k++)
            mean[k] += grad[k] / (float)size;
    }
    grad = test_grad(t.m.left.weight);
    for (int k = 0; k < WIDTH * WIDTH; k++)
        CHECK(fabsf(grad[k] - mean[k]) < 1e-6f);
    CHECK(tutti_tensor_grad(t.m.never.weight) == NULL);
    trainer_free(&t);
    trainer_free(&alone);
    return 0;
}

/* Frozen at construction: rank 0's value, in no bucket, no gradient, no update, and the loss need not use it. */
static int frozen_parameters_are_left_out(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group);
    float before[WIDTH * WIDTH];
    size_t bytes = 0, n = 0;
    tutti_ddp *ddp;
    trainer t;

    (void)arg;
    CHECK_0(trainer_new(&t, NULL, NULL));
    tutti_parameter_set_requires_grad(t.m.left.weight, false);
    tutti_parameter_set_requires_grad(t.m.never.weight, false);
    tutti_parameter_set_requires_grad(t.m.never.bias, false);
    test_put(t.cx, t.m.left.weight->data, &(float){(float)rank}, sizeof(float));
    CHECK_OK(tutti_ddp_new(&ddp, &t.m.base, group, NULL));
    CHECK(test_values(t.m.left.weight)[0] == 0);
    CHECK_OK(tutti_tensor_read(t.m.left.weight, before));
    for (int step = 0; step < 3; step++) {
        tutti_optim_zero_grad(t.optim);
        CHECK_OK(backward(&t, LEFT | RIGHT, rank, step));
        CHECK_OK(tutti_optim_step(t.optim));
        CHECK_0(check_equal_on_all_ranks(group, &t.m.base));
    }
    for (size_t b = 0; b < tutti_reducer_n_buckets(tutti_ddp_reducer(ddp)); b++) {
        bytes += tutti_reducer_bucket(tutti_ddp_reducer(ddp), b).bytes;
        n += tutti_reducer_bucket(tutti_ddp_reducer(ddp), b).n;
    }
    CHECK(n == 5 && bytes == (2 * WIDTH * WIDTH + 3 * WIDTH) * sizeof(float));
    CHECK(tutti_tensor_grad(t.m.left.weight) == NULL);
    CHECK(memcmp(before, test_values(t.m.left.weight), sizeof before) == 0);
    tutti_ddp_free(ddp);
    trainer_free(&t);
    return 0;
}

/* Ignored: neither compared, copied, nor averaged; ranks may differ in them, in size and in number. */
static int ignored_ones_are_each_ranks_own(tutti_group *group, void *arg)
{
    const char *const ignored[] = {"right.weight", "count", "own", "right.bias", "more"};
    int rank = tutti_group_rank(group);
    float own = (float)rank + 1, seen[2], norm, most;
    tutti_ddp_opts opts = {.ignored = ignored, .n_ignored = 4, .bucket_mb = 1e-5};
    tutti_ddp *ddp;
    trainer t;
    const float *grad;

    (void)arg;
    CHECK_0(trainer_new(&t, NULL, NULL));
    (void)tutti_parameter_new(&t.m.base, "own", TUTTI_SHAPE(rank % 2 + 1, 40), TUTTI_INIT_ONES, 0);
    if (rank % 2 == 1) { /* has one that the others lack */
        (void)tutti_parameter_new(&t.m.base, "more", TUTTI_SHAPE(3), TUTTI_INIT_ONES, 0);
        opts.n_ignored = 5;
    }
    test_put(t.cx, t.m.right.weight->data, &own, sizeof own);
    CHECK_OK(tutti_tensor_write(t.m.count, (float[]){own, own}));
    CHECK_OK(tutti_ddp_new(&ddp, &t.m.base, group, &opts));
    CHECK(test_values(t.m.right.weight)[0] == own);
    for (int step = 0; step < 2; step++) {
        float mine[WIDTH];

        tutti_optim_zero_grad(t.optim);
        tutti_ddp_pause(ddp);
        CHECK_OK(backward(&t, LEFT | RIGHT | NEVER, rank, step));
        memcpy(mine, test_grad(t.m.right.bias), sizeof mine);
        tutti_optim_zero_grad(t.optim);
        tutti_ddp_resume(ddp);
        CHECK_OK(backward(&t, LEFT | RIGHT | NEVER, rank, step));
        grad = test_grad(t.m.right.bias);
        CHECK(memcmp(grad, mine, sizeof mine) == 0);
        grad = test_grad(t.m.left.bias);
        memcpy(mine, grad, sizeof mine);
        CHECK_OK(tutti_all_reduce(group, TUTTI_BUF(mine, WIDTH, TUTTI_F32), TUTTI_AVG, NULL));
        for (int k = 0; k < WIDTH; k++)
            CHECK(fabsf(mine[k] - grad[k]) <= 1e-6f * fabsf(grad[k])); /* equal on all ranks */
        CHECK_OK(tutti_clip_grad_norm(&t.m.base, 1e-3f, &norm));
        most = norm;
        CHECK_OK(tutti_all_reduce(group, TUTTI_BUF(&most, 1, TUTTI_F32), TUTTI_MAX, NULL));
        CHECK(most == norm); /* what is each rank's own does not change it */
        CHECK_OK(tutti_optim_step(t.optim));
    }
    CHECK_OK(tutti_tensor_read(t.m.count, seen));
    CHECK(seen[0] == own);
    tutti_ddp_free(ddp);
    opts.ignored = (const char *[]){"rigth.weight"};
    opts.n_ignored = 1;
    CHECK(tutti_ddp_new(&ddp, &t.m.base, group, &opts) == TUTTI_ERR_ARG ||
          tutti_group_size(group) > 1);
    CHECK_TEXT(tutti_last_error(),
               "no parameter or buffer \"rigth.weight\" to ignore; did you mean \"right.weight\"?");
    trainer_free(&t);
    return 0;
}

/* A parameter used twice by the program: one gradient, ready once, the mean of the sums. */
static int a_shared_parameter_comes_once(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group), size = tutti_group_size(group);
    trainer t, alone;
    float mean[WIDTH] = {0};
    size_t n = 0;
    const float *grad;

    (void)arg;
    CHECK_0(trainer_new(&t, group, NULL));
    CHECK_0(trainer_new(&alone, NULL, NULL));
    t.m.right = t.m.left;
    alone.m.right = alone.m.left;
    CHECK_0(copy_parameters(&alone, &t));
    tutti_ddp_free(t.ddp);
    tutti_parameter_set_requires_grad(tutti_module_find(&t.m.base, "right.weight"), false);
    tutti_parameter_set_requires_grad(tutti_module_find(&t.m.base, "right.bias"), false);
    CHECK_OK(tutti_ddp_new(&t.ddp, &t.m.base, group, NULL));
    CHECK_OK(backward(&t, LEFT | RIGHT | NEVER, rank, 0));
    for (int r = 0; r < size; r++) {
        tutti_module_zero_grad(&alone.m.base);
        CHECK_OK(backward(&alone, LEFT | RIGHT | NEVER, r, 0));
        grad = test_grad(alone.m.left.bias);
        for (int k = 0; k < WIDTH; k++)
            mean[k] += grad[k] / (float)size;
    }
    grad = test_grad(t.m.left.bias);
    for (int k = 0; k < WIDTH; k++)
        CHECK(fabsf(grad[k] - mean[k]) < 1e-6f);
    for (size_t b = 0; b < tutti_reducer_n_buckets(tutti_ddp_reducer(t.ddp)); b++)
        n += tutti_reducer_bucket(tutti_ddp_reducer(t.ddp), b).n;
    CHECK(n == 6);
    trainer_free(&t);
    trainer_free(&alone);
    return 0;
}

/* ---- Buffers, by a hook ------------------------------------------------------------------------------------------- */

static tutti_status average(void *arg, tutti_group *group, tutti_tensor *const *buffers, size_t n)
{
    ++*(int *)arg;
    for (size_t i = 0; i < n; i++)
        TUTTI_TRY(tutti_all_reduce(group,
                                   (tutti_buf){buffers[i]->data,
                                               (size_t)tutti_shape_count(buffers[i]->shape),
                                               TUTTI_F32, tutti_ctx_stream(buffers[i]->cx)},
                                   TUTTI_AVG, NULL));
    return TUTTI_OK;
}

static int a_buffer_hook_replaces_the_broadcast(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group), size = tutti_group_size(group), calls = 0;
    tutti_ddp_opts opts = {.buffer_hook = average, .buffer_hook_arg = &calls};
    float seen[2];
    trainer t;

    (void)arg;
    CHECK_0(trainer_new(&t, group, &opts));
    CHECK_OK(tutti_tensor_write(t.m.count, (float[]){(float)rank, 1}));
    CHECK_OK(backward(&t, LEFT | RIGHT | NEVER, rank, 0));
    CHECK_OK(tutti_tensor_read(t.m.count, seen));
    CHECK(calls == 1 && seen[0] == (float)(size - 1) / 2 && seen[1] == 1);
    trainer_free(&t);
    return 0;
}

/* ---- The reducer by itself ------------------------------------------------------------------------------------------ */

static int a_step_may_skip_gradients(tutti_group *group, void *arg)
{
    const tutti_reducer_parameter p[] = {
        {.name = "all", .count = 5, .dtype = TUTTI_F32},
        {.name = "first", .count = 3, .dtype = TUTTI_F64},
        {.name = "none", .count = 2, .dtype = TUTTI_F32},
        {.name = "own", .count = 7, .dtype = TUTTI_F32, .local = true}};
    tutti_reducer_opts opts = {.find_unused = true, .bucket_mb = 1e-5, .stream = test_stream()};
    int rank = tutti_group_rank(group), size = tutti_group_size(group);
    tutti_reducer *r;

    (void)arg;
    CHECK_OK(tutti_reducer_new(&r, group, p, 4, &opts));
    for (int step = 0; step < 3; step++) {
        float *all = (float *)tutti_reducer_grad(r, 0) + 4,
              *own = (float *)tutti_reducer_grad(r, 3) + 6, mine = (float)rank, seen[2];
        double *first = (double *)tutti_reducer_grad(r, 1) + 2, six = 6;

        CHECK_OK(tutti_reducer_begin(r));
        test_set(all, &mine, sizeof mine);
        test_set(own, &mine, sizeof mine);
        test_set(first, &six, sizeof six);
        CHECK_OK(tutti_reducer_ready(r, 0));
        if (rank == 0)
            CHECK_OK(tutti_reducer_ready(r, 1));
        else if (step % 2)
            CHECK_OK(tutti_reducer_skip(r, 1)); /* otherwise finish does */
        CHECK_OK(tutti_reducer_finish(r));
        test_get(&seen[0], all, sizeof mine);
        test_get(&seen[1], own, sizeof mine);
        test_get(&six, first, sizeof six);
        CHECK(seen[0] == (float)(size - 1) / 2 && six == 6.0 / size && seen[1] == mine);
        CHECK(tutti_reducer_users(r, 0) == size && tutti_reducer_users(r, 1) == 1);
        CHECK(tutti_reducer_users(r, 2) == 0 && tutti_reducer_users(r, 3) == 0);
    }
    CHECK_OK(tutti_reducer_begin(r));
    CHECK(tutti_reducer_ready(r, 3) == TUTTI_ERR_ARG);
    CHECK_TEXT(tutti_last_error(), "\"own\", is local");
    CHECK(tutti_reducer_finish(r) == TUTTI_ERR_ARG || size > 1);
    tutti_reducer_free(r);
    return 0;
}

/* Each step leaves out what the first did: exchanged once, then checked locally. */
static int a_static_reducer_asks_once(tutti_group *group, void *arg)
{
    const tutti_reducer_parameter p[] = {{.name = "all", .count = 5, .dtype = TUTTI_F32},
                                         {.name = "first", .count = 3, .dtype = TUTTI_F32}};
    int rank = tutti_group_rank(group), size = tutti_group_size(group);
    tutti_reducer *r, *strict;

    (void)arg;
    CHECK_OK(tutti_reducer_new(&strict, group, p, 2, NULL));
    CHECK_OK(tutti_reducer_new(
        &r, group, p, 2, &(tutti_reducer_opts){.static_graph = true, .stream = test_stream()}));
    for (int step = 0; step < 3; step++) {
        float *first = (float *)tutti_reducer_grad(r, 1) + 2, six = 6;

        CHECK_OK(tutti_reducer_begin(r));
        test_set(first, &six, sizeof six);
        CHECK_OK(tutti_reducer_ready(r, 0));
        CHECK_OK(rank == 0 ? tutti_reducer_ready(r, 1) : tutti_reducer_skip(r, 1));
        CHECK_OK(tutti_reducer_finish(r));
        test_get(&six, first, sizeof six);
        CHECK(six == 6.0f / (float)size && tutti_reducer_users(r, 1) == 1);
    }
    CHECK_OK(tutti_barrier(group, NULL));
    if (rank == 0) { /* the others get the error in any call */
        CHECK_OK(tutti_reducer_begin(r));
        CHECK(tutti_reducer_skip(r, 1) == TUTTI_ERR_STATE);
        CHECK_TEXT(tutti_last_error(),
                   "\"first\" has no gradient in step 4 on rank 0, and had one in step 1");
        CHECK(tutti_reducer_finish(r) == TUTTI_ERR_STATE);
    }
    tutti_reducer_free(r);
    if (tutti_reducer_begin(strict) == TUTTI_OK) {
        CHECK(tutti_reducer_skip(strict, 0) == TUTTI_ERR_STATE);
        CHECK_TEXT(tutti_last_error(), "\"all\", is skipped in step 1");
    }
    tutti_reducer_free(strict);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(run_all, find_unused_gives_the_mean_or_nothing),
        TEST(run_all, static_graph_equals_find_unused),
        TEST(run_all, a_graph_that_changes_is_told),
        TEST(run_all, use_while_paused_counts),
        TEST(run_all, frozen_parameters_are_left_out),
        TEST(run_all, ignored_ones_are_each_ranks_own),
        TEST(run_all, a_shared_parameter_comes_once),
        TEST(run_all, a_buffer_hook_replaces_the_broadcast),
        TEST(run_all, a_step_may_skip_gradients),
        TEST(run_all, a_static_reducer_asks_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
