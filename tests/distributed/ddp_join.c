/* ddp: ranks with different numbers of batches.   SPDX-License-Identifier: MIT
 * timeout: 120   breadth: 240
 * devices: strict */
#include "distributed/ddp_bodies.h"
#include "harness/device.h"
#include "harness/memory.h"
#include "tensor/tensor.h"
#include <tutti/tutti.h>

#include <math.h>

enum { IN = 6, HIDDEN = 20, OUT = 3, ROWS = 2 };

/* fc1, relu, fc2 or, where the input says so, other instead of fc2; optionally a batch norm before. */
typedef struct trainer {
    tutti_ctx *cx;
    tutti_module base;
    tutti_batch_norm2d norm;
    tutti_linear fc1, fc2, other;
    bool has_norm;
    tutti_ddp *ddp;
    tutti_optim *optim;
} trainer;

typedef struct setup {
    tutti_ddp_opts ddp;
    bool norm, sync, zero, plain;
} setup;

static int trainer_new(trainer *t, tutti_group *group, const setup *s)
{
    tutti_ddp_opts opts = s->ddp;

    *t = (trainer){.has_norm = s->norm};
    CHECK_OK(tutti_ctx_new(&t->cx, test_device(),
                           &(tutti_ctx_opts){.threads = 1, .kernels = test_kernels()}));
    tutti_module_init(&t->base, t->cx);
    if (s->norm)
        tutti_batch_norm2d_init(&t->norm, &t->base, "norm", IN);
    tutti_linear_init(&t->fc1, &t->base, "fc1", IN, HIDDEN);
    tutti_linear_init(&t->fc2, &t->base, "fc2", HIDDEN, OUT);
    if (s->ddp.find_unused || s->ddp.static_graph)
        tutti_linear_init(&t->other, &t->base, "other", HIDDEN, OUT);
    if (s->sync)
        tutti_convert_sync_batch_norm(&t->base, group);
    opts.zero = s->zero;
    CHECK_OK(tutti_ddp_new(&t->ddp, &t->base, group, &opts));
    CHECK_OK(tutti_sgd_new(&t->optim, &t->base,
                           &(tutti_sgd_opts){.lr = 0.1f, .momentum = s->plain ? 0 : 0.9f}));
    return 0;
}

static void trainer_free(trainer *t)
{
    tutti_optim_free(t->optim);
    tutti_ddp_free(t->ddp);
    tutti_module_destroy(&t->base);
    tutti_ctx_free(t->cx);
}

static tutti_status backward(trainer *t, int salt, bool other, int64_t label)
{
    static _Thread_local float x[ROWS * IN];
    static _Thread_local int64_t y[ROWS];
    tutti_tensor *h;
    tutti_status status;

    for (int i = 0; i < ROWS * IN; i++)
        x[i] = sinf((float)(i * 13 + salt * 101));
    y[0] = 1;
    y[1] = label;
    tutti_step_begin(t->cx, NULL);
    h = tutti_input(t->cx, (tutti_array){x, TUTTI_SHAPE(ROWS, IN, 1, 1), TUTTI_F32});
    if (t->has_norm)
        h = tutti_batch_norm2d_forward(&t->norm, h);
    h = tutti_relu(tutti_linear_forward(&t->fc1, tutti_flatten(h)));
    h = tutti_linear_forward(other ? &t->other : &t->fc2, h);
    status = tutti_backward(
        tutti_cross_entropy(h, tutti_input(t->cx, (tutti_array){y, TUTTI_SHAPE(ROWS), TUTTI_I64})));
    tutti_step_end(t->cx);
    return status;
}

static int train(trainer *t, tutti_group *group, int first, int steps, float clip)
{
    for (int step = first; step < first + steps; step++) {
        tutti_optim_zero_grad(t->optim);
        tutti_ddp_pause(t->ddp); /* a paused backward sends nothing but its step's announcement */
        CHECK_OK(backward(t, 1000 + step * 16 + tutti_group_rank(group), false, 2));
        tutti_ddp_resume(t->ddp);
        CHECK_OK(backward(t, step * 16 + tutti_group_rank(group), false, 2));
        if (clip > 0)
            CHECK_OK(tutti_clip_grad_norm(&t->base, clip, NULL));
        tutti_optim_set_lr(t->optim, 0.1f / (float)(1 + step));
        CHECK_OK(tutti_optim_step(t->optim));
    }
    return 0;
}

/* ---- Case 38 -------------------------------------------------------------------------------------------------------------- */

/* The gradient is 50 on all ranks; rank 0 has three batches, the others five. */
static int means_are_over_all_ranks_or_over_those_that_are_left(tutti_group *group, void *arg)
{
    static const float ones[5] = {1, 1, 1, 1, 1};
    const int size = tutti_group_size(group), rank = tutti_group_rank(group);

    (void)arg;
    for (int present = 0; present < 2; present++) {
        const tutti_join_opts opts = {.divide_by_present = present};
        tutti_ctx *cx;
        tutti_module base;
        tutti_linear fc;
        tutti_ddp *ddp;
        tutti_join *join;

        CHECK_OK(tutti_ctx_new(&cx, test_device(), &(tutti_ctx_opts){.threads = 1}));
        tutti_module_init(&base, cx);
        tutti_linear_init(&fc, &base, "fc", 5, 1);
        CHECK_OK(tutti_ddp_new(&ddp, &base, group, NULL));
        CHECK_OK(tutti_join_begin(&join, &ddp, 1, &opts));
        for (int i = 0; i < (rank == 0 ? 3 : 5); i++) {
            const float expected = i < 3 || present ? 50 : 50 * (float)(size - 1) / (float)size;
            const float *g;

            tutti_module_zero_grad(&base);
            tutti_step_begin(cx, NULL);
            CHECK_OK(tutti_backward(tutti_scale(
                tutti_linear_forward(
                    &fc, tutti_input(cx, (tutti_array){ones, TUTTI_SHAPE(1, 5), TUTTI_F32})),
                50)));
            tutti_step_end(cx);
            g = test_grad(fc.weight);
            for (int k = 0; k < 5; k++)
                CHECK(g[k] == expected);
        }
        CHECK_OK(tutti_join_end(join));
        CHECK(!tutti_join_exhausted(join));
        tutti_join_free(join);
        tutti_ddp_free(ddp);
        tutti_module_destroy(&base);
        tutti_ctx_free(cx);
    }
    return 0;
}

/* ---- Every sequence of collectives ----------------------------------------------------------------------------------------- */

static int steps_of(tutti_group *group, int round)
{
    return (tutti_group_rank(group) + round) % tutti_group_size(group) * 2; /* one rank has none */
}

/* Whichever rank runs out first, at the end all have the same model and optimizer state, and continue together. */
static int uneven(tutti_group *group, const setup *s, float clip, char digest[33])
{
    trainer t;

    CHECK_0(trainer_new(&t, group, s));
    for (int round = 0; round < 3; round++) {
        tutti_join *join;

        CHECK_OK(tutti_join_begin(&join, &t.ddp, 1,
                                  &(tutti_join_opts){.optims = &t.optim, .n_optims = 1}));
        CHECK_0(train(&t, group, 10 * round, steps_of(group, round), clip));
        CHECK_OK(tutti_join_end(join));
        tutti_join_free(join);
        CHECK_0(check_equal_on_all_ranks(group, &t.base));
    }
    /* without a join: momentum is the same on all ranks too */
    CHECK_0(train(&t, group, 100, 2, clip));
    if (s->norm)
        CHECK_OK(tutti_ddp_broadcast_buffers(t.ddp));
    CHECK_0(check_equal_on_all_ranks(group, &t.base));
    tutti_module_digest(&t.base, digest);
    trainer_free(&t);
    return 0;
}

static int joined_ranks_answer_for_everything_that_is_sent(tutti_group *group, void *arg)
{
    static const setup setups[] = {
        {.ddp = {.bucket_mb = 1e-4, .first_bucket_mb = 1e-4}},
        {.norm = true},
        {.ddp = {.find_unused = true}},
        {.ddp = {.static_graph = true}},
    };
    char digest[33];

    (void)arg;
    for (size_t i = 0; i < TUTTI__COUNT_OF(setups); i++) {
        CHECK_0(uneven(group, &setups[i], 0, digest));
    }
    return 0;
}

/* With ZeRO a joined rank updates its share like the others: the same bits as without. */
static int several_joinables_shadow_together(tutti_group *group, void *arg)
{
    const setup whole = {.ddp = {.bucket_mb = 1e-4, .first_bucket_mb = 1e-4}};
    setup shares = whole;
    char digests[2][33];

    (void)arg;
    shares.zero = true;
    CHECK_0(uneven(group, &whole, 0, digests[0]));
    CHECK_0(uneven(group, &shares, 0, digests[1]));
    CHECK_TEXT(digests[1], digests[0]);
    CHECK_0(uneven(group, &shares, 0.01f, digests[1]));
    return 0;
}

/* Used by one rank, by another, by none: joined ranks do not count as users. */
static int unused_parameters_are_told_from_joined_ranks(tutti_group *group, void *arg)
{
    const int rank = tutti_group_rank(group);
    const setup s = {.ddp = {.find_unused = true}, .plain = true};
    tutti_join *join;
    trainer t;

    (void)arg;
    CHECK_0(trainer_new(&t, group, &s));
    CHECK_OK(tutti_join_begin(&join, &t.ddp, 1, NULL));
    for (int i = 0; i < 1 + rank; i++) {
        tutti_optim_zero_grad(t.optim);
        CHECK_OK(backward(&t, i * 16 + rank, i == 0 && rank == 0, 2));
        CHECK((tutti_tensor_grad(t.other.weight) != NULL) == (i == 0));
        CHECK((tutti_tensor_grad(t.fc2.weight) != NULL) == (i > 0 || tutti_group_size(group) > 1));
        CHECK_OK(tutti_optim_step(t.optim));
    }
    CHECK_OK(tutti_join_end(join));
    tutti_join_free(join);
    CHECK_0(check_equal_on_all_ranks(group, &t.base));
    trainer_free(&t);
    return 0;
}

/* ---- Case 40 ------------------------------------------------------------------------------------------------------------------- */

static int a_failure_reaches_ranks_that_have_joined(tutti_group *group, void *arg)
{
    const int rank = tutti_group_rank(group), last = tutti_group_size(group) - 1;
    const setup s = {.plain = true};
    tutti_join *join;
    trainer t;

    (void)arg;
    CHECK_0(trainer_new(&t, group, &s));
    CHECK_OK(tutti_join_begin(&join, &t.ddp, 1, NULL));
    CHECK_0(train(&t, group, 0, 1, 0));
    CHECK_OK(tutti_meet(group, "one step is done"));
    if (rank == last) {
        CHECK(backward(&t, 7, false, 99) == TUTTI_ERR_ARG); /* its own error, unchanged */
        CHECK_TEXT(tutti_last_error(), "99");
    } else {
        CHECK(tutti_join_end(join) == TUTTI_ERR_ABORTED);
        CHECK_TEXT(tutti_last_error(), "99");
    }
    tutti_join_free(join);
    trainer_free(&t);
    return 0;
}

static int a_rank_that_leaves_is_not_waited_for(tutti_group *group, void *arg)
{
    const int rank = tutti_group_rank(group);
    const setup s = {.plain = true};
    tutti_join *join;
    trainer t;

    (void)arg;
    CHECK_0(trainer_new(&t, group, &s));
    CHECK_OK(tutti_join_begin(&join, &t.ddp, 1, NULL));
    CHECK_0(train(&t, group, 0, 1, 0));
    CHECK_OK(tutti_meet(group, "one step is done"));
    if (rank != 0) {
        CHECK(tutti_join_end(join) == TUTTI_ERR_ABORTED);
        CHECK_TEXT(tutti_last_error(), "rank 0 left a join before tutti_join_end");
    }
    tutti_join_free(join);
    trainer_free(&t);
    return 0;
}

/* Also with batch norm over all ranks, in whose forward a joined rank takes no part. The group stays usable. */
static int early_termination_is_told_to_all_and_kills_nothing(tutti_group *group, void *arg)
{
    const int rank = tutti_group_rank(group);

    (void)arg;
    for (int sync = 0; sync < 2; sync++) {
        const setup s = {.norm = sync, .sync = sync, .plain = true};
        const tutti_join_opts opts = {.throw_on_early_termination = true};
        tutti_join *join;
        trainer t;

        CHECK_0(trainer_new(&t, group, &s));
        CHECK_OK(tutti_join_begin(&join, &t.ddp, 1, &opts));
        CHECK_0(train(&t, group, 0, 2, 0));
        if (rank == 0) {
            CHECK(tutti_join_end(join) == TUTTI_ERR_STATE);
            CHECK_TEXT(tutti_last_error(), "rank 0 has exhausted its inputs");
        } else {
            CHECK(backward(&t, 5, false, 2) == TUTTI_ERR_STATE);
            CHECK_TEXT(tutti_last_error(), "at least one rank has exhausted its inputs");
        }
        CHECK(tutti_join_exhausted(join));
        tutti_join_free(join);
        CHECK_OK(tutti_join_begin(&join, &t.ddp, 1, &opts)); /* possible again */
        CHECK_0(train(&t, group, 3, 2, 0));
        CHECK_OK(tutti_join_end(join));
        CHECK(!tutti_join_exhausted(join));
        tutti_join_free(join);
        CHECK_0(check_equal_on_all_ranks(group, &t.base));
        trainer_free(&t);
    }
    return 0;
}

static int what_cannot_be_joined_is_refused(tutti_group *group, void *arg)
{
    const setup sync = {.norm = true, .sync = true}, zero = {.zero = true};
    tutti_join *join, *second;
    trainer t;

    (void)arg;
    CHECK_0(trainer_new(&t, group, &sync));
    CHECK(tutti_join_begin(&join, &t.ddp, 0, NULL) == TUTTI_ERR_ARG);
    CHECK(tutti_join_begin(&join, &t.ddp, 1, NULL) == TUTTI_ERR_ARG && join == NULL);
    CHECK_TEXT(tutti_last_error(), "throw_on_early_termination");
    tutti_convert_sync_batch_norm(&t.base, NULL);
    CHECK_OK(tutti_join_begin(&join, &t.ddp, 1, NULL));
    CHECK(tutti_join_begin(&second, &t.ddp, 1, NULL) == TUTTI_ERR_STATE);
    CHECK_OK(tutti_join_end(join));
    CHECK(tutti_join_end(join) == TUTTI_ERR_STATE);
    tutti_join_free(join);
    CHECK(tutti_join_begin(&join, &t.ddp, 1,
                           &(tutti_join_opts){.divide_by_present = tutti_group_rank(group) == 1}) ==
          TUTTI_ERR_MISMATCH);
    CHECK_TEXT(tutti_last_error(), "divide_by_present");
    trainer_free(&t);
    CHECK_0(trainer_new(&t, group, &zero));
    CHECK(tutti_join_begin(&join, &t.ddp, 1, NULL) == TUTTI_ERR_ARG);
    CHECK_TEXT(tutti_last_error(), "optims");
    trainer_free(&t);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(run_all, means_are_over_all_ranks_or_over_those_that_are_left),
        TEST(run_all, joined_ranks_answer_for_everything_that_is_sent),
        TEST(run_all, several_joinables_shadow_together),
        TEST(run_all, unused_parameters_are_told_from_joined_ranks),
        TEST(run_two, a_failure_reaches_ranks_that_have_joined),
        TEST(run_two, a_rank_that_leaves_is_not_waited_for),
        TEST(run_two, early_termination_is_told_to_all_and_kills_nothing),
        TEST(run_two, what_cannot_be_joined_is_refused),
        TEST(run_over_tcp, several_joinables_shadow_together),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
