/* ddp: the laws of data parallelism over a module, on 1 to 4 ranks as threads and as processes.
 * SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "base/base.h"
#include "harness/ranks.h"
#include "tensor/tensor.h"
#include <tutti/tutti.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define CHECK_OK(expression)   CHECK((expression) == TUTTI_OK)
#define CHECK_TEXT(text, part) CHECK(strstr(text, part) != NULL)
#define CHECK_0(helper)        CHECK((helper) == 0) /* of this file: has printed what failed */

enum { SIDE = 6, PIXELS = SIDE * SIDE, CLASSES = 5, BATCH = 12, STEPS = 4 };

/* ---- A model, its data, and one step ------------------------------------------------------------------------------- */

typedef struct trainer {
    tutti_ctx *cx;
    tutti_model *model;
    tutti_module *module;
    tutti_ddp *ddp; /* NULL: trains alone */
    tutti_optim *optim;
} trainer;

/* group NULL: without DDP. Each rank has a seed of its own, so that equal replicas prove the broadcast. */
static int trainer_new(trainer *t, tutti_group *group, const tutti_ddp_opts *opts, float lr)
{
    tutti_ctx_opts cx_opts = {.seed = group ? (uint64_t)tutti_group_rank(group) : 0,
                              .threads = 1,
                              .kernels = TUTTI_KERNELS_REFERENCE};
    tutti_model_opts shape = {1, SIDE, SIDE, CLASSES};

    *t = (trainer){0};
    CHECK_OK(tutti_ctx_new(&t->cx, (tutti_device){TUTTI_CPU, 0}, &cx_opts));
    CHECK_OK(tutti_model_new(&t->model, t->cx, "mlp", &shape));
    t->module = tutti_model_module(t->model);
    if (group)
        CHECK_OK(tutti_ddp_new(&t->ddp, t->module, group, opts));
    CHECK_OK(tutti_sgd_new(&t->optim, t->module, &(tutti_sgd_opts){.lr = lr, .momentum = 0.9f}));
    return 0;
}

static void trainer_free(trainer *t)
{
    tutti_optim_free(t->optim);
    tutti_ddp_free(t->ddp);
    tutti_model_free(t->model);
    tutti_ctx_free(t->cx);
}

/* Sample i of step s: a function of the two, so that every way to divide the work sees the same data. */
static void make_batch(int step, int first, int n, float *x, int64_t *y)
{
    for (int i = 0; i < n; i++) {
        uint32_t out[4];

        for (int k = 0; k < PIXELS; k++) {
            tutti__philox(
                11,
                (tutti__philox_counter){{(uint32_t)step, (uint32_t)(first + i), (uint32_t)k, 0}},
                out);
            x[i * PIXELS + k] = 2 * tutti__unit_float(out[0]) - 1;
        }
        y[i] = (int64_t)(out[1] % CLASSES);
    }
}

/* Forward and backward over n samples of the step's batch, from sample `first` on. */
static int backward(trainer *t, int step, int first, int n, float *loss_p)
{
    static _Thread_local float x[BATCH * PIXELS];
    static _Thread_local int64_t y[BATCH];
    tutti_array images = {x, TUTTI_SHAPE(n, 1, SIDE, SIDE), TUTTI_F32},
                labels = {y, TUTTI_SHAPE(n), TUTTI_I64};
    tutti_tensor *loss;

    make_batch(step, first, n, x, y);
    tutti_step_begin(t->cx, NULL);
    loss = tutti_cross_entropy(tutti_model_forward(t->model, tutti_input(t->cx, images)),
                               tutti_input(t->cx, labels));
    CHECK_OK(tutti_backward(loss));
    *loss_p = tutti_item(loss);
    tutti_step_end(t->cx);
    return 0;
}

static int step_on(trainer *t, int step, int first, int n, float *loss_p)
{
    tutti_optim_zero_grad(t->optim);
    CHECK_0(backward(t, step, first, n, loss_p));
    CHECK_OK(tutti_optim_step(t->optim));
    return 0;
}

static int check_equal_on_all_ranks(tutti_group *group, const tutti_module *module)
{
    char digest[33], all[8][33];

    tutti_module_digest(module, digest);
    CHECK_OK(tutti_all_gather(group, (tutti_buf){digest, 33, TUTTI_U8},
                              (tutti_buf){all, 33 * (size_t)tutti_group_size(group), TUTTI_U8},
                              NULL));
    for (int r = 0; r < tutti_group_size(group); r++)
        CHECK_TEXT(all[r], digest);
    return 0;
}

static double largest_difference(const tutti_module *a, const tutti_module *b)
{
    double largest = 0;

    for (size_t i = 0; i < tutti_module_n_parameters(a); i++) {
        const tutti_tensor *p = tutti_module_parameter(a, i), *q = tutti_module_parameter(b, i);

        for (int64_t k = 0; k < tutti_shape_count(p->shape); k++)
            largest =
                fmax(largest, fabs((double)((float *)p->data)[k] - (double)((float *)q->data)[k]));
    }
    return largest;
}

/* ---- Laws ---------------------------------------------------------------------------------------------------------- */

/* n ranks x b = 1 rank x nb to rounding; replicas are equal, bit for bit, after every step. */
static int ranks_share_the_work_of_one(tutti_group *group, void *arg)
{
    int share = BATCH / tutti_group_size(group);
    trainer all, one;

    (void)arg;
    CHECK_0(trainer_new(&all, group, NULL, 0.1f));
    CHECK_0(trainer_new(&one, NULL, NULL, 0.1f));
    CHECK(largest_difference(all.module, one.module) == 0); /* rank 0's weights came */
    for (int step = 0; step < STEPS; step++) {
        float loss, whole;

        CHECK_0(step_on(&all, step, share * tutti_group_rank(group), share, &loss));
        CHECK_0(step_on(&one, step, 0, share * tutti_group_size(group), &whole));

        CHECK_OK(tutti_all_reduce(group, (tutti_buf){&loss, 1, TUTTI_F32}, TUTTI_AVG, NULL));
        CHECK(fabsf(loss - whole) <= 1e-5f * fabsf(whole));
        CHECK_0(check_equal_on_all_ranks(group, all.module));
    }
    CHECK(largest_difference(all.module, one.module) <= 1e-6);
    trainer_free(&all);
    trainer_free(&one);
    return 0;
}

static int bucket_size_changes_no_bit(tutti_group *group, void *arg)
{
    static const double sizes[][2] = {{0, 0}, {1e-6, 1e-6}, {1e-3, 1e-2}, {1e-2, 1e-3}};
    int share = BATCH / tutti_group_size(group);
    char digests[TUTTI__COUNT_OF(sizes)][33];
    float loss;

    (void)arg;
    for (size_t s = 0; s < TUTTI__COUNT_OF(sizes); s++) {
        trainer t;

        CHECK_0(trainer_new(
            &t, group, &(tutti_ddp_opts){.first_bucket_mb = sizes[s][0], .bucket_mb = sizes[s][1]},
            0.1f));
        CHECK(tutti_ddp_reducer(t.ddp) == NULL);
        for (int step = 0; step < STEPS; step++)
            CHECK_0(step_on(&t, step, share * tutti_group_rank(group), share, &loss));
        CHECK(tutti_reducer_n_buckets(tutti_ddp_reducer(t.ddp)) >= (s == 0 ? 1u : 2u));
        tutti_module_digest(t.module, digests[s]);
        CHECK_TEXT(digests[s], digests[0]);
        trainer_free(&t);
    }
    return 0;
}

/* Two backwards of half the samples, the first paused, with half the rate = one backward of all of them. The very first
 * backward is a paused one: what it accumulates moves into the buckets that the second lays out. */
static int accumulation_is_a_larger_batch(tutti_group *group, void *arg)
{
    int share = BATCH / tutti_group_size(group), half = share / 2,
        first = share * tutti_group_rank(group);
    trainer halves, whole;
    float loss;

    (void)arg;
    share = 2 * half;
    CHECK_0(trainer_new(&halves, group, NULL, 0.05f));
    CHECK_0(trainer_new(&whole, group, NULL, 0.1f));
    for (int step = 0; step < STEPS; step++) {
        tutti_optim_zero_grad(halves.optim);
        tutti_ddp_pause(halves.ddp);
        CHECK_0(backward(&halves, step, first, half, &loss));
        tutti_ddp_resume(halves.ddp);
        CHECK_0(backward(&halves, step, first + half, half, &loss));
        CHECK_OK(tutti_optim_step(halves.optim));
        CHECK_0(step_on(&whole, step, first, share, &loss));
        CHECK_0(check_equal_on_all_ranks(group, halves.module));
    }
    CHECK(largest_difference(halves.module, whole.module) <= 1e-6);
    trainer_free(&halves);
    trainer_free(&whole);
    return 0;
}

static int paused_backward_is_local(tutti_group *group, void *arg)
{
    int share = BATCH / tutti_group_size(group), first = share * tutti_group_rank(group);
    trainer all, one;
    float loss;

    (void)arg;
    CHECK_0(trainer_new(&all, group, NULL, 0.1f));
    CHECK_0(trainer_new(&one, NULL, NULL, 0.1f));
    tutti_ddp_pause(all.ddp);
    CHECK_0(backward(&all, 0, first, share, &loss));
    CHECK_0(backward(&one, 0, first, share, &loss));
    for (size_t i = 0; i < tutti_module_n_parameters(all.module); i++) {
        tutti_tensor *p = tutti_module_parameter(all.module, i),
                     *q = tutti_module_parameter(one.module, i);

        CHECK(memcmp(tutti_tensor_grad(p), tutti_tensor_grad(q), tutti__tensor_bytes(p)) == 0);
    }
    CHECK(tutti_ddp_reducer(all.ddp) == NULL);
    trainer_free(&all);
    trainer_free(&one);
    return 0;
}

/* Parameters and gradients lie in one order, so that the optimizer's pass is straight; DDP gone, the module goes on. */
static int module_lives_in_the_buckets_and_survives_them(tutti_group *group, void *arg)
{
    int share = BATCH / tutti_group_size(group), first = share * tutti_group_rank(group);
    trainer t;
    tutti_flat flat;
    size_t n;
    float loss;

    (void)arg;
    CHECK_0(trainer_new(&t, group, NULL, 0.1f));
    CHECK_0(step_on(&t, 0, first, share, &loss));
    CHECK_OK(tutti_module_flat(t.module, &flat));
    n = flat.n_parameters;
    for (size_t i = 0; i < n; i++) {
        tutti_tensor *p = tutti_module_parameter(t.module, i);

        CHECK(tutti_tensor_grad(p) == tutti_reducer_grad(tutti_ddp_reducer(t.ddp), i));
        CHECK((const float *)tutti_tensor_grad(p) == flat.gradients + flat.offsets[i]);
        CHECK((float *)p->data == flat.parameters + flat.offsets[i]);
    }
    CHECK(flat.offsets[0] > flat.offsets[n - 1] &&
          flat.offsets[1] > flat.offsets[n - 2]); /* last layer first */
    tutti_ddp_free(t.ddp);
    t.ddp = NULL;
    for (int step = 1; step < STEPS; step++)
        CHECK_0(step_on(&t, step, 0, share, &loss)); /* alone, the same samples on all ranks */
    CHECK_0(check_equal_on_all_ranks(group, t.module));
    trainer_free(&t);
    return 0;
}

/* ---- Errors -------------------------------------------------------------------------------------------------------- */

typedef struct net {
    tutti_module base;
    tutti_linear a, b, c;
} net;

static tutti_tensor *net_loss(net *m, tutti_ctx *cx, bool use_b, bool use_c, int64_t label)
{
    static const float x[2 * 4] = {1, 2, 3, 4, 5, 6, 7, 8};
    int64_t *labels = tutti__step_alloc(cx, sizeof(int64_t) * 2);
    tutti_tensor *y = tutti_linear_forward(
        &m->a, tutti_input(cx, (tutti_array){x, TUTTI_SHAPE(2, 4), TUTTI_F32}));

    labels[0] = 1;
    labels[1] = label;
    if (use_b)
        y = tutti_linear_forward(&m->b, y);
    if (use_c)
        y = tutti_linear_forward(&m->c, y);
    return tutti_cross_entropy(y,
                               tutti_input(cx, (tutti_array){labels, TUTTI_SHAPE(2), TUTTI_I64}));
}

static int new_ctx(tutti_ctx **cx_p)
{
    tutti_ctx_opts opts = {.threads = 1, .kernels = TUTTI_KERNELS_REFERENCE};

    CHECK_OK(tutti_ctx_new(cx_p, (tutti_device){TUTTI_CPU, 0}, &opts));
    return 0;
}

static void net_init(net *m, tutti_ctx *cx, const char *second, const char *third, int64_t width)
{
    tutti_module_init(&m->base, cx);
    tutti_linear_init(&m->a, &m->base, "a", 4, 4);
    tutti_linear_init(&m->b, &m->base, second, 4, 4);
    if (third)
        tutti_linear_init(&m->c, &m->base, third, 4, width);
}

static int expect_mismatch(tutti_group *group, net *m, const char *format, int other)
{
    char message[512];
    tutti_ddp *ddp;

    snprintf(message, sizeof message, format, other, other);
    CHECK(tutti_ddp_new(&ddp, &m->base, group, NULL) == TUTTI_ERR_MISMATCH);
    CHECK(ddp == NULL);
    CHECK_TEXT(tutti_last_error(), message);
    tutti_module_destroy(&m->base);
    return 0;
}

/* arg: the rank whose model differs. Every rank says the same. */
static int models_that_differ_are_refused_alike(tutti_group *group, void *arg)
{
    int other = *(const int *)arg;
    bool differs = tutti_group_rank(group) == other;
    tutti_ctx *cx;
    tutti_ddp *ddp;
    net m;

    CHECK_0(new_ctx(&cx));
    net_init(&m, cx, "b", "c", differs ? 5 : 4);
    CHECK_0(expect_mismatch(
        group, &m,
        "models differ between ranks: parameter 4 is \"c.weight\" [4,4] F32 on rank 0 but "
        "\"c.weight\" [5,4] F32 on rank %d",
        other));
    net_init(&m, cx, "b", differs ? NULL : "c", 4);
    expect_mismatch(
        group, &m,
        "models differ between ranks: rank 0 has 6 parameters but rank %d has 4; parameter 4, "
        "\"c.weight\" [4,4] F32, is only on rank 0",
        other);
    net_init(&m, cx, "b", differs ? "d" : "c", 4);
    CHECK_0(expect_mismatch(
        group, &m,
        "models differ between ranks: parameter 4 is \"c.weight\" [4,4] F32 on rank 0 but "
        "\"d.weight\" [4,4] F32 on rank %d",
        other));
    net_init(&m, cx, differs ? "c" : "b", differs ? "b" : "c", 4); /* the order */
    CHECK_0(expect_mismatch(
        group, &m,
        "models differ between ranks: parameter 2 is \"b.weight\" [4,4] F32 on rank 0 but "
        "\"c.weight\" [4,4] F32 on rank %d",
        other));
    net_init(&m, cx, "b", "c", 4);
    (void)tutti_buffer_new(&m.base, "count", TUTTI_SHAPE(2), differs ? TUTTI_I64 : TUTTI_F32,
                           TUTTI_INIT_ZEROS);
    CHECK_0(expect_mismatch(
        group, &m,
        "models differ between ranks: buffer 0 is \"count\" [2] F32 on rank 0 but \"count\" [2] "
        "I64 on rank %d",
        other));
    net_init(&m, cx, "b", "c", 4);
    CHECK(tutti_ddp_new(&ddp, &m.base, group, &(tutti_ddp_opts){.keep_buffers = differs}) ==
          TUTTI_ERR_MISMATCH);
    CHECK_TEXT(tutti_last_error(), "keep_buffers");
    CHECK_OK(tutti_ddp_new(&ddp, &m.base, group, NULL)); /* the group still works */
    tutti_ddp_free(ddp);
    tutti_module_destroy(&m.base);
    tutti_ctx_free(cx);
    return 0;
}

/* The others hear of a rank's failure in whichever call they are: a rank that is done does not wait for one that is late. */
typedef tutti_status train_fn(tutti_ddp *ddp, net *m, tutti_ctx *cx, bool is_culprit);

static tutti_status one_step(net *m, tutti_ctx *cx, bool use_b, bool use_c, int64_t label)
{
    tutti_status status;

    tutti_module_zero_grad(&m->base);
    tutti_step_begin(cx, NULL);
    status = tutti_backward(net_loss(m, cx, use_b, use_c, label));
    tutti_step_end(cx);
    return status;
}

/* In the second step, before any update. */
static tutti_status leave_b_out(tutti_ddp *ddp, net *m, tutti_ctx *cx, bool is_culprit)
{
    (void)ddp;
    TUTTI_TRY(one_step(m, cx, true, true, 0));
    return one_step(m, cx, !is_culprit, true, 0);
}

/* In the first. */
static tutti_status leave_c_out_at_once(tutti_ddp *ddp, net *m, tutti_ctx *cx, bool is_culprit)
{
    (void)ddp;
    return one_step(m, cx, true, !is_culprit, 0);
}

/* The tape reads c, but nothing of it reaches the loss: the same error, not the gradient of the step before. */
static tutti_status ignore_a_branch(tutti_ddp *ddp, net *m, tutti_ctx *cx, bool is_culprit)
{
    static const float x[4] = {1, 2, 3, 4};
    static const int64_t label[1] = {1};
    tutti_status status = TUTTI_OK;

    (void)ddp;
    for (int step = 0; step < 2 && status == TUTTI_OK; step++) {
        tutti_tensor *a, *b, *c;

        tutti_module_zero_grad(&m->base);
        tutti_step_begin(cx, NULL);
        a = tutti_linear_forward(&m->a,
                                 tutti_input(cx, (tutti_array){x, TUTTI_SHAPE(1, 4), TUTTI_F32}));
        b = tutti_linear_forward(&m->b, a);
        c = tutti_linear_forward(&m->c, a);
        status = tutti_backward(
            tutti_cross_entropy(is_culprit && step == 1 ? b : tutti_add(b, c),
                                tutti_input(cx, (tutti_array){label, TUTTI_SHAPE(1), TUTTI_I64})));
        tutti_step_end(cx);
    }
    return status;
}

/* What a paused backward gave counts as used, but not once zero_grad has dropped it (one_step does). */
static tutti_status drop_what_the_pause_gave(tutti_ddp *ddp, net *m, tutti_ctx *cx, bool is_culprit)
{
    TUTTI_TRY(one_step(m, cx, true, true, 0));
    tutti_ddp_pause(ddp);
    TUTTI_TRY(one_step(m, cx, true, true, 0));
    tutti_ddp_resume(ddp);
    return one_step(m, cx, !is_culprit, true, 0);
}

static tutti_status give_a_bad_label(tutti_ddp *ddp, net *m, tutti_ctx *cx, bool is_culprit)
{
    (void)ddp;
    TUTTI_TRY(one_step(m, cx, true, true, 0));
    return one_step(m, cx, true, true, is_culprit ? 99 : 0);
}

/* The last rank fails; all return, with its words, at once. */
static int all_ranks_hear_of_a_failure(tutti_group *group, void *arg)
{
    static const struct {
        train_fn *train;
        tutti_status status;
        const char *text;
    } rows[] = {
        {leave_b_out, TUTTI_ERR_STATE,
         "the loss of step 2 on rank %d does not use \"b.weight\", \"b.bias\""},
        {leave_c_out_at_once, TUTTI_ERR_STATE,
         "the loss of step 1 on rank %d does not use \"c.weight\", \"c.bias\""},
        {ignore_a_branch, TUTTI_ERR_STATE,
         "the loss of step 2 on rank %d does not use \"c.weight\""},
        {drop_what_the_pause_gave, TUTTI_ERR_STATE,
         "the loss of step 3 on rank %d does not use \"b.weight\""},
        {give_a_bad_label, TUTTI_ERR_ARG, "label of row 1 is 99"},
    };
    int row = *(const int *)arg, last = tutti_group_size(group) - 1;
    bool is_culprit = tutti_group_rank(group) == last;
    double begin_ms = tutti__now_ms();
    tutti_ddp *ddp;
    tutti_status status;
    tutti_ctx *cx;
    net m;
    char text[128];

    CHECK_0(new_ctx(&cx));
    net_init(&m, cx, "b", "c", 4);
    status = tutti_ddp_new(&ddp, &m.base, group, NULL);
    if (status == TUTTI_OK)
        status = rows[row].train(ddp, &m, cx, is_culprit);
    CHECK(status == (is_culprit ? rows[row].status : TUTTI_ERR_ABORTED));
    snprintf(text, sizeof text, rows[row].text, last);
    CHECK_TEXT(tutti_last_error(), text);
    CHECK(tutti__now_ms() - begin_ms < 10000); /* the group's limit is 30 s */
    tutti_ddp_free(ddp);
    tutti_module_destroy(&m.base);
    tutti_ctx_free(cx);
    return 0;
}

/* The same on all ranks: each says its own, or what it has heard. */
static int what_all_forget_is_named_by_all(tutti_group *group, void *arg)
{
    tutti_ddp *ddp;
    tutti_status status;
    tutti_ctx *cx;
    net m;

    (void)arg;
    CHECK_0(new_ctx(&cx));
    net_init(&m, cx, "b", "c", 4);
    status = tutti_ddp_new(&ddp, &m.base, group, NULL);
    if (status == TUTTI_OK)
        status = one_step(&m, cx, true, false, 0);
    CHECK(status == TUTTI_ERR_STATE || status == TUTTI_ERR_ABORTED);
    CHECK_TEXT(tutti_last_error(), "does not use \"c.weight\", \"c.bias\"");
    tutti_ddp_free(ddp);
    tutti_module_destroy(&m.base);
    tutti_ctx_free(cx);
    return 0;
}

/* A parameter that only the paused backward used has its gradient all the same. */
static int use_in_a_paused_backward_counts(tutti_group *group, void *arg)
{
    int64_t label = tutti_group_rank(group) % 2;
    tutti_ddp *ddp;
    tutti_ctx *cx;
    net m;

    (void)arg;
    CHECK_0(new_ctx(&cx));
    net_init(&m, cx, "b", "c", 4);
    CHECK_OK(tutti_ddp_new(&ddp, &m.base, group, NULL));
    for (int step = 0; step < STEPS; step++) {
        float mean;

        tutti_ddp_pause(ddp);
        CHECK_OK(one_step(&m, cx, true, false, label));
        mean = *(const float *)tutti_tensor_grad(m.b.bias);
        CHECK(tutti_tensor_grad(m.c.bias) == NULL);
        tutti_ddp_resume(ddp);
        tutti_step_begin(cx, NULL);
        CHECK_OK(tutti_backward(net_loss(&m, cx, false, true, label)));
        tutti_step_end(cx);
        CHECK(tutti_tensor_grad(m.c.bias) != NULL);
        CHECK_OK(tutti_all_reduce(group, (tutti_buf){&mean, 1, TUTTI_F32}, TUTTI_AVG, NULL));
        CHECK(*(const float *)tutti_tensor_grad(m.b.bias) == mean);
    }
    tutti_ddp_free(ddp);
    tutti_module_destroy(&m.base);
    tutti_ctx_free(cx);
    return 0;
}

static int bad_arguments_are_refused(tutti_group *group, void *arg)
{
    tutti_ctx *cx;
    tutti_ddp *ddp, *second;
    tutti_module empty;
    net m;

    (void)arg;
    CHECK_0(new_ctx(&cx));
    tutti_module_init(&empty, cx);
    CHECK(tutti_ddp_new(&ddp, &empty, group, NULL) == TUTTI_ERR_ARG);
    CHECK_TEXT(tutti_last_error(), "no parameters");
    net_init(&m, cx, "b", "c", 4);
    CHECK(tutti_ddp_new(&ddp, &m.a.base, group, NULL) == TUTTI_ERR_ARG);
    CHECK_TEXT(tutti_last_error(), "\"a\" is a child");
    CHECK(tutti_ddp_new(&ddp, &m.base, group, &(tutti_ddp_opts){.bucket_mb = -3}) == TUTTI_ERR_ARG);
    CHECK_TEXT(tutti_last_error(), "bucket_mb -3");
    CHECK_OK(tutti_ddp_new(&ddp, &m.base, group, NULL));
    CHECK(tutti_ddp_new(&second, &m.base, group, NULL) == TUTTI_ERR_STATE);
    tutti_ddp_free(ddp);
    tutti_ddp_free(NULL);
    tutti_module_destroy(&m.base);
    tutti_module_destroy(&empty);
    tutti_ctx_free(cx);
    return 0;
}

/* ---- Buffers ------------------------------------------------------------------------------------------------------- */

typedef struct normed {
    tutti_module base;
    tutti_conv2d conv;
    tutti_batch_norm2d norm;
} normed;

/* Each rank writes its own running mean, then opens a step: whose is it? */
static int check_mean_in_step(tutti_group *group, normed *m, tutti_ctx *cx,
                              const tutti_step_opts *opts, float expected)
{
    float mine[2] = {(float)tutti_group_rank(group) + 1, 0}, seen[2];
    int64_t steps = tutti_group_rank(group) + 10, steps_seen;

    CHECK_OK(tutti_tensor_write(m->norm.running_mean, mine));
    CHECK_OK(tutti_tensor_write(m->norm.num_batches_tracked, &steps));
    tutti_step_begin(cx, opts);
    CHECK_OK(tutti_tensor_read(m->norm.running_mean, seen));
    CHECK_OK(tutti_tensor_read(m->norm.num_batches_tracked, &steps_seen));
    tutti_step_end(cx);
    CHECK(steps_seen == (int64_t)seen[0] + 9);
    CHECK(seen[0] == expected);
    return 0;
}

static int training_steps_begin_with_rank_0s_buffers(tutti_group *group, void *arg)
{
    float mine = (float)tutti_group_rank(group) + 1;
    tutti_ctx *cx;
    tutti_ddp *ddp;
    normed m;

    (void)arg;
    CHECK_0(new_ctx(&cx));
    tutti_module_init(&m.base, cx);
    tutti_conv2d_init(&m.conv, &m.base, "conv",
                      &(tutti_conv2d_layer_opts){.in = 1, .out = 2, .kernel = 1});
    tutti_batch_norm2d_init(&m.norm, &m.base, "norm", 2);
    for (int keep = 0; keep < 2; keep++) {
        CHECK_OK(tutti_ddp_new(&ddp, &m.base, group, &(tutti_ddp_opts){.keep_buffers = keep}));
        CHECK_0(check_mean_in_step(group, &m, cx, NULL, (keep ? mine : 1)));
        CHECK_0(check_mean_in_step(group, &m, cx, &(tutti_step_opts){.eval = true}, mine));
        tutti_ddp_pause(ddp);
        CHECK_0(check_mean_in_step(group, &m, cx, NULL, mine));
        tutti_ddp_resume(ddp);
        CHECK_OK(tutti_ddp_broadcast_buffers(ddp));
        CHECK_0(check_equal_on_all_ranks(group, &m.base));
        tutti_ddp_free(ddp);
    }
    tutti_module_destroy(&m.base);
    tutti_ctx_free(cx);
    return 0;
}

/* ---- Overlap ------------------------------------------------------------------------------------------------------- */

/* In the first step, as the trace shows it: the first bucket's all_reduce begins before backward ends. */
static int communication_starts_before_backward_ends(tutti_group *group, void *arg)
{
    enum { N_EVENTS = 64, IMAGES = 2, N_X = IMAGES * 3 * 8 * 8 };
    tutti_ctx_opts cx_opts = {.threads = 1, .kernels = TUTTI_KERNELS_REFERENCE};
    tutti_model_opts shape = {3, 8, 8, 10};
    const int64_t y[IMAGES] = {0, 1};
    float *x = calloc(N_X, sizeof *x);
    tutti__recorder *recorder = tutti__recorder_new(N_EVENTS);
    tutti__event events[N_EVENTS];
    tutti_ctx *cx;
    tutti_model *model;
    tutti_ddp *ddp;
    uint64_t first_begin = 0, backward_end = 0;
    size_t n_events, n_spans = 0, n_buckets;

    (void)arg;
    CHECK_OK(tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, &cx_opts));
    CHECK_OK(tutti_model_new(&model, cx, "mini_resnet", &shape));
    CHECK_OK(
        tutti_ddp_new(&ddp, tutti_model_module(model), group, &(tutti_ddp_opts){.bucket_mb = 2}));
    cx->recorder = recorder;
    tutti_step_begin(cx, NULL);
    CHECK_OK(tutti_backward(tutti_cross_entropy(
        tutti_model_forward(
            model, tutti_input(cx, (tutti_array){x, TUTTI_SHAPE(IMAGES, 3, 8, 8), TUTTI_F32})),
        tutti_input(cx, (tutti_array){y, TUTTI_SHAPE(IMAGES), TUTTI_I64}))));
    tutti_step_end(cx);
    n_buckets = tutti_reducer_n_buckets(tutti_ddp_reducer(ddp));
    CHECK(n_buckets >= 4);
    for (size_t b = 0; b < n_buckets; b++) {
        tutti_bucket_info info = tutti_reducer_bucket(tutti_ddp_reducer(ddp), b);

        CHECK(info.bytes > 0 && info.ready_ms > 0 && info.ready_ms <= info.done_ms);
    }
    n_events = tutti__recorder_read(recorder, events, N_EVENTS);
    for (size_t i = 0; i < n_events; i++) {
        if (strcmp(events[i].name, "backward") == 0)
            backward_end = events[i].end_ns;
        if (strcmp(events[i].category, "comm") != 0)
            continue;
        CHECK_TEXT(events[i].name, "all_reduce");
        CHECK(events[i].thread == 1 && events[i].arg == (int64_t)n_spans);
        first_begin = n_spans++ == 0 ? events[i].begin_ns : first_begin;
    }
    CHECK(n_spans == n_buckets);
    CHECK(first_begin > 0 && first_begin < backward_end);
    tutti_ddp_free(ddp);
    tutti_model_free(model);
    tutti_ctx_free(cx);
    tutti__recorder_free(recorder);
    free(x);
    return 0;
}

/* ---- Every law on 1 to 4 ranks, as threads and as processes -------------------------------------------------------- */

static void run(tutti_rank_body *body, void *arg, int n)
{
    assert_int_equal(tutti_run_ranks_as_threads(n, body, arg), 0);
    assert_int_equal(tutti_run_ranks_as_processes(n, body, arg, TUTTI_TRANSPORT_AUTO), 0);
}

static void run_all(void **state)
{
    for (int n = 1; n <= 4; n++)
        run((tutti_rank_body *)*state, NULL, n);
}

static void run_two(void **state)
{
    run((tutti_rank_body *)*state, NULL, 2);
}

static void run_with_a_rank_that_differs(void **state)
{
    for (int n = 2; n <= 4; n++)
        for (int other = 1; other < n; other += 2)
            run((tutti_rank_body *)*state, &other, n);
}

static void run_failures(void **state)
{
    for (int n = 1; n <= 4; n++)
        for (int row = 0; row < 5; row++)
            run((tutti_rank_body *)*state, &row, n);
}

static void work_is_shared_over_tcp(void **state)
{
    (void)state;
    assert_int_equal(
        tutti_run_ranks_as_processes(3, ranks_share_the_work_of_one, NULL, TUTTI_TRANSPORT_TCP), 0);
}

#define TEST(run, body)                                                                            \
    {                                                                                              \
#body, run, NULL, NULL, (void *)body                                                       \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(run_all, ranks_share_the_work_of_one),
        TEST(run_all, bucket_size_changes_no_bit),
        TEST(run_all, accumulation_is_a_larger_batch),
        TEST(run_all, paused_backward_is_local),
        TEST(run_all, module_lives_in_the_buckets_and_survives_them),
        TEST(run_with_a_rank_that_differs, models_that_differ_are_refused_alike),
        TEST(run_failures, all_ranks_hear_of_a_failure),
        TEST(run_all, what_all_forget_is_named_by_all),
        TEST(run_all, use_in_a_paused_backward_counts),
        TEST(run_all, bad_arguments_are_refused),
        TEST(run_all, training_steps_begin_with_rank_0s_buffers),
        TEST(run_two, communication_starts_before_backward_ends),
        cmocka_unit_test(work_is_shared_over_tcp),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
