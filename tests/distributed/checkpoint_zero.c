/* checkpoint: ZeRO loads and saves between training, evaluation and the first step.   SPDX-License-Identifier: MIT
 * timeout: 60
 * devices: strict cuda */
#include "distributed/ddp_trainer.h"
#include "harness/checkpoint_path.h"
#include "tensor/tensor.h"

#include <unistd.h>

enum { SIDE = 6, PIXELS = SIDE * SIDE, CLASSES = 5, BATCH = 4 };

/* Buckets of a few KiB, so that there are several. */
static int trainer_new(trainer *t, tutti_group *group, int zero)
{
    const tutti_ctx_opts cx_opts = {.threads = 1, .defers_parameters = zero == 3};
    const tutti_model_opts shape = {
        .channels = 1, .height = SIDE, .width = SIDE, .classes = CLASSES};

    *t = (trainer){0};
    CHECK_OK(tutti_ctx_new(&t->cx, test_device(), &cx_opts));
    CHECK_OK(tutti_model_new(&t->model, t->cx, "mlp", &shape));
    t->module = tutti_model_module(t->model);
    CHECK_OK(
        tutti_ddp_new(&t->ddp, t->module, group,
                      &(tutti_ddp_opts){.first_bucket_mb = 1e-3, .bucket_mb = 1e-2, .zero = zero}));
    CHECK_OK(tutti_adam_new(&t->optim, t->module, &(tutti_adam_opts){.lr = 0.01f}));
    return 0;
}

static int train(trainer *t, tutti_group *group, int first, int steps)
{
    static _Thread_local float x[BATCH * PIXELS];
    static _Thread_local int64_t y[BATCH];

    for (int step = first; step < first + steps; step++) {
        const int salt = step * 16 + tutti_group_rank(group);

        for (int i = 0; i < BATCH * PIXELS; i++)
            x[i] = sinf((float)(i * 13 + salt * 101));
        for (int i = 0; i < BATCH; i++)
            y[i] = (i + salt) % CLASSES;
        tutti_optim_zero_grad(t->optim);
        tutti_step_begin(t->cx, NULL);
        CHECK_OK(tutti_backward(tutti_cross_entropy(
            tutti_model_forward(
                t->model,
                tutti_input(t->cx, (tutti_array){x, TUTTI_SHAPE(BATCH, 1, SIDE, SIDE), TUTTI_F32})),
            tutti_input(t->cx, (tutti_array){y, TUTTI_SHAPE(BATCH), TUTTI_I64}))));
        tutti_step_end(t->cx);
        CHECK_OK(tutti_optim_step(t->optim));
    }
    return 0;
}

static int evaluate(trainer *t, float y[CLASSES])
{
    static const float x[PIXELS] = {0.5f, -1, 2};

    tutti_step_begin(t->cx, &(tutti_step_opts){.eval = true});
    CHECK_OK(tutti_tensor_read(
        tutti_model_forward(
            t->model,
            tutti_input(t->cx, (tutti_array){x, TUTTI_SHAPE(1, 1, SIDE, SIDE), TUTTI_F32})),
        y));
    tutti_step_end(t->cx);
    return 0;
}

/* Both have trained; the first has what a run without ZeRO has. */
static int check_same(trainer *plain, trainer *zero, tutti_group *group)
{
    char digests[2][33];

    tutti_module_digest(plain->module, digests[0]);
    for (int r = 0; r < tutti_group_size(group); r++) {
        CHECK_OK(tutti_zero_consolidate(tutti_ddp_zero(zero->ddp), zero->optim, r));
        if (r == tutti_group_rank(group))
            tutti_module_digest(zero->module, digests[1]);
    }
    CHECK_TEXT(digests[1], digests[0]);
    return 0;
}

/* What was gathered for an evaluation, or on this rank for a program, is not what the checkpoint has. */
static int a_load_replaces_what_is_gathered(tutti_group *group, void *arg)
{
    float *weight = NULL, y[2][CLASSES], before[CLASSES];
    trainer t[2];

    (void)arg;
    for (int k = 0; k < 2; k++) {
        CHECK_0(trainer_new(&t[k], group, 3 * k));
        CHECK_0(train(&t[k], group, 0, 2));
        CHECK_OK(tutti_checkpoint_save(path, t[k].module, t[k].optim, group));
        CHECK_0(train(&t[k], group, 2, 2));
        CHECK_0(evaluate(&t[k], before));
        if (k > 0) { /* on all ranks */
            CHECK_OK(tutti_zero_consolidate(tutti_ddp_zero(t[k].ddp), t[k].optim, 0));
            CHECK_0(evaluate(&t[k], before));
        }
        CHECK_OK(tutti_checkpoint_load(path, t[k].module, t[k].optim, group));
        if (k > 0) {
            tutti_tensor *first = tutti_module_parameter(t[k].module, 0);

            weight = malloc(tutti__tensor_bytes(first));
            CHECK(tutti_tensor_read(first, weight) == TUTTI_ERR_STATE);
            free(weight);
        }
        CHECK_0(evaluate(&t[k], y[k]));
    }
    CHECK(memcmp(y[0], before, sizeof before) != 0);
    CHECK(memcmp(y[1], y[0], sizeof y[0]) == 0);
    CHECK_0(check_same(&t[0], &t[1], group));
    for (int k = 0; k < 2; k++)
        CHECK_0(train(&t[k], group, 2, 2));
    CHECK_0(check_same(&t[0], &t[1], group));
    trainer_free(&t[0]);
    trainer_free(&t[1]);
    return 0;
}

/* Saved again as it was loaded, by optimizers that have updated and by new ones. */
static int what_was_loaded_is_saved_before_a_step(tutti_group *group, void *arg)
{
    (void)arg;
    for (int stage = 1; stage <= 3; stage++)
        for (int trained = 0; trained < 2; trained++) {
            trainer plain, t;
            size_t whole;

            CHECK_0(trainer_new(&plain, group, 0));
            CHECK_0(train(&plain, group, 0, 2));
            CHECK_OK(tutti_checkpoint_save(path, plain.module, plain.optim, group));
            whole = tutti_optim_state_bytes(plain.optim);
            CHECK_0(train(&plain, group, 2, 2));
            CHECK_0(trainer_new(&t, group, stage));
            CHECK_0(train(&t, group, 7, 3 * trained));
            CHECK_OK(tutti_checkpoint_load(path, t.module, t.optim, group));
            CHECK_OK(tutti_checkpoint_save(path, t.module, t.optim, group));
            if (stage == 3 || trained) /* else there are no shares yet */
                CHECK(tutti_optim_state_bytes(t.optim) < 0.6 * (double)whole);
            trainer_free(&t);
            CHECK_0(trainer_new(&t, group, stage));
            CHECK_OK(tutti_checkpoint_load(path, t.module, t.optim, group));
            CHECK_0(train(&t, group, 2, 2));
            CHECK_0(check_same(&plain, &t, group));
            trainer_free(&t);
            trainer_free(&plain);
        }
    return 0;
}

/* The lists of tensors are compared only if there may be parts: with an optimizer, a plain save has as many collectives as without. */
static int a_plain_save_compares_no_lists(tutti_group *group, void *arg)
{
    uint64_t n[2];
    trainer t;

    (void)arg;
    CHECK_0(trainer_new(&t, group, 0));
    CHECK_0(train(&t, group, 0, 1));
    for (int k = 0; k < 2; k++) {
        n[k] = tutti_group_sequence(group);
        CHECK_OK(tutti_checkpoint_save(path, t.module, k ? t.optim : NULL, group));
        n[k] = tutti_group_sequence(group) - n[k];
    }
    CHECK(n[1] == n[0] && n[0] <= 4);
    trainer_free(&t);
    return 0;
}

static tutti_group *ended;

/* While a buffer is copied. */
static tutti_status end_group(tutti_stream *stream, void *dst, const void *src, size_t bytes)
{
    const tutti__device_ops *ops;
    tutti_status status = tutti__device_ops_of(stream->device.kind, &ops);

    if (status == TUTTI_OK)
        status = ops->copy_out(stream, dst, src, bytes);
    tutti_group_abort(ended, "this test ends it");
    return status;
}

/* Not the folder with which it began, and not its lock. */
static int a_save_whose_group_fails_leaves_nothing(tutti_group *group, void *arg)
{
    const tutti_model_opts shape = {.channels = 1, .height = 8, .width = 8, .classes = CLASSES};
    const tutti_ctx_opts cx_opts = {.threads = 1, .defers_parameters = true};
    static tutti__device_ops ending;
    char draft[128];
    trainer t = {0};

    (void)arg;
    CHECK_OK(tutti_ctx_new(&t.cx, test_device(), &cx_opts));
    CHECK_OK(tutti_model_new(&t.model, t.cx, "mini_resnet", &shape));
    t.module = tutti_model_module(t.model);
    CHECK_OK(tutti_ddp_new(&t.ddp, t.module, group, &(tutti_ddp_opts){.zero = 3}));
    if (tutti_group_rank(group) == 1) {
        ended = group;
        ending = *t.cx->stream->ops;
        ending.copy_out = end_group;
        t.cx->stream->ops = &ending;
    }
    CHECK(tutti_checkpoint_save(path, t.module, NULL, group) != TUTTI_OK);
    CHECK_TEXT(tutti_last_error(), "this test ends it");
    snprintf(draft, sizeof draft, "%s.tmp", path);
    trainer_free(&t);
    if (tutti_group_rank(group) == 0) {
        CHECK(access(draft, F_OK) != 0);
        CHECK_OK(tutti_ctx_new(&t.cx, test_device(), NULL));
        CHECK_OK(tutti_model_new(&t.model, t.cx, "mini_resnet", &shape));
        CHECK_OK(tutti_checkpoint_save(path, tutti_model_module(t.model), NULL, NULL));
        tutti_model_free(t.model);
        tutti_ctx_free(t.cx);
    }
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    return path_new();
}

static int tear_down(void **state)
{
    (void)state;
    return path_remove();
}

#define EACH(body)                                                                                 \
    {                                                                                              \
#body, run_two, set_up, tear_down, (void *)body                                            \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH (a_load_replaces_what_is_gathered),
        EACH (a_plain_save_compares_no_lists),
        EACH (a_save_whose_group_fails_leaves_nothing),
        EACH (what_was_loaded_is_saved_before_a_step),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
