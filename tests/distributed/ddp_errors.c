/* ddp: a failure on one rank is an error on all, at once and with its message.   SPDX-License-Identifier: MIT
 * timeout: 120   breadth: 240
 * devices: strict */
#include "distributed/ddp_bodies.h"
#include "harness/device.h"
#include "harness/memory.h"
#include "tensor/tensor.h"
#include <tutti/tutti.h>

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
    tutti_ctx_opts opts = {.threads = 1, .kernels = test_kernels()};

    CHECK_OK(tutti_ctx_new(cx_p, test_device(), &opts));
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

/* arg: the rank whose model differs. Every rank has the same message. */
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

/* The others get a rank's failure in any of their calls: a rank that is done does not wait for a late one. */
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

/* The tape reads c, but it does not reach the loss: the same error, not the gradient of the step before. */
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

/* Parameters used in a paused backward count as used, unless zero_grad has dropped their gradients (as in one_step). */
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

/* Frozen or unfrozen after construction on the last rank: an error on all, with names. */
static tutti_status freeze_c(tutti_ddp *ddp, net *m, tutti_ctx *cx, bool is_culprit)
{
    (void)ddp;
    TUTTI_TRY(one_step(m, cx, true, true, 0));
    tutti_parameter_set_requires_grad(m->c.weight, !is_culprit);
    return one_step(m, cx, true, true, 0);
}

static tutti_status free_a(tutti_ddp *ddp, net *m, tutti_ctx *cx, bool is_culprit)
{
    (void)ddp;
    TUTTI_TRY(one_step(m, cx, true, true, 0));
    tutti_parameter_set_requires_grad(m->a.bias, is_culprit);
    return one_step(m, cx, true, true, 0);
}

/* The last rank fails; all return its message at once. */
static int all_ranks_hear_of_a_failure(tutti_group *group, void *arg)
{
    static const struct {
        train_fn *train;
        tutti_status status;
        const char *text;
    } rows[] = {
        {leave_b_out, TUTTI_ERR_STATE,
         "the loss of step 2 on rank %d does not use \"b.weight\", \"b.bias\""},
        {ignore_a_branch, TUTTI_ERR_STATE,
         "the loss of step 2 on rank %d does not use \"c.weight\""},
        {drop_what_the_pause_gave, TUTTI_ERR_STATE,
         "the loss of step 3 on rank %d does not use \"b.weight\""},
        {give_a_bad_label, TUTTI_ERR_ARG, "label of row 1 is 99"},
        {freeze_c, TUTTI_ERR_STATE,
         "\"c.weight\" required a gradient when DDP was made, and no longer does on rank %d"},
        {free_a, TUTTI_ERR_STATE,
         "\"a.bias\" was frozen when DDP was made, and requires a gradient now on rank %d"},
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
    if (rows[row].train == free_a)
        tutti_parameter_set_requires_grad(m.a.bias, false);
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

/* In the first step ranks exchange uses: all have the same message about every parameter and rank, and the group stays usable. */
static int the_first_step_names_every_parameter_and_rank(tutti_group *group, void *arg)
{
    int size = tutti_group_size(group), last = size - 1, rank = tutti_group_rank(group);
    const char *few = size == 1 ? "does not use \"c.weight\", \"c.bias\" on rank 0; every rank"
                                : "does not use \"b.weight\", \"b.bias\" on rank 1, and "
                                  "\"c.weight\", \"c.bias\" on all ranks; every rank";
    tutti_ddp *ddp;
    tutti_ctx *cx;
    net m;
    char text[256];

    (void)arg;
    CHECK_0(new_ctx(&cx));
    net_init(&m, cx, "b", "c", 4);
    CHECK_OK(tutti_ddp_new(&ddp, &m.base, group, NULL));
    for (int again = 0; again < 2; again++) {
        CHECK(one_step(&m, cx, rank < last || size == 1, rank > 0 && rank < last, 0) ==
              TUTTI_ERR_STATE);
        CHECK_TEXT(tutti_last_error(), "the loss of step");
        if (size > 2)
            snprintf(text, sizeof text,
                     "does not use \"b.weight\", \"b.bias\" on rank %d, and \"c.weight\", "
                     "\"c.bias\" on ranks 0, %d; every rank",
                     last, last);
        CHECK_TEXT(tutti_last_error(), size > 2 ? text : few);
    }
    CHECK_OK(one_step(&m, cx, true, true, 0));
    tutti_ddp_free(ddp);
    tutti_module_destroy(&m.base);
    tutti_ctx_free(cx);
    return 0;
}

/* A parameter that only the paused backward used has a gradient. */
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
    for (int step = 0; step < 3; step++) {
        float mean;

        tutti_ddp_pause(ddp);
        CHECK_OK(one_step(&m, cx, true, false, label));
        mean = *test_grad(m.b.bias);
        CHECK(tutti_tensor_grad(m.c.bias) == NULL);
        tutti_ddp_resume(ddp);
        tutti_step_begin(cx, NULL);
        CHECK_OK(tutti_backward(net_loss(&m, cx, false, true, label)));
        tutti_step_end(cx);
        CHECK(tutti_tensor_grad(m.c.bias) != NULL);
        CHECK_OK(tutti_all_reduce(group, TUTTI_BUF(&mean, 1, TUTTI_F32), TUTTI_AVG, NULL));
        CHECK(*test_grad(m.b.bias) == mean);
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
    CHECK(tutti_ddp_new(&ddp, &m.base, group,
                        &(tutti_ddp_opts){.bucket_mb_list = (double[]){1, -1},
                                          .n_bucket_mb_list = 2}) == TUTTI_ERR_ARG);
    CHECK_TEXT(tutti_last_error(), "bucket_mb_list: -1");
    for (size_t i = 0; i < tutti_module_n_parameters(&m.base); i++)
        tutti_parameter_set_requires_grad(tutti_module_parameter(&m.base, i), false);
    if (tutti_group_size(group) == 1) { /* peers would get the error */
        CHECK(tutti_ddp_new(&ddp, &m.base, group, NULL) == TUTTI_ERR_ARG);
        CHECK_TEXT(tutti_last_error(), "none of the module's 6 parameters requires a gradient");
    }
    for (size_t i = 0; i < tutti_module_n_parameters(&m.base); i++)
        tutti_parameter_set_requires_grad(tutti_module_parameter(&m.base, i), true);
    CHECK_OK(tutti_ddp_new(&ddp, &m.base, group, NULL));
    CHECK(tutti_ddp_new(&second, &m.base, group, NULL) == TUTTI_ERR_STATE);
    tutti_ddp_free(ddp);
    tutti_ddp_free(NULL);
    tutti_module_destroy(&m.base);
    tutti_module_destroy(&empty);
    tutti_ctx_free(cx);
    return 0;
}

static void run_failures(void **state)
{
    for (int n = 1; n <= 4; n++)
        for (int row = 0; row < 6; row++)
            run((tutti_rank_body *)*state, &row, n);
}

static int options_that_point_nowhere_are_refused(tutti_group *group, void *arg)
{
    static const tutti_ddp_opts bad[] = {
        {.n_ignored = 1}, {.n_bucket_mb_list = 2}, {.nonfinite = (tutti_nonfinite)9}};
    static const char *const says[] = {"ignored is NULL", "bucket_mb_list is NULL",
                                       "nonfinite 9 is unknown"};
    tutti_ctx *cx;
    tutti_ddp *ddp;
    tutti_reducer *reducer;
    net m;

    (void)arg;
    CHECK_0(new_ctx(&cx));
    net_init(&m, cx, "b", NULL, 0);
    for (int i = 0; i < 3; i++) {
        CHECK(tutti_ddp_new(&ddp, &m.base, group, &bad[i]) == TUTTI_ERR_ARG && ddp == NULL);
        CHECK_TEXT(tutti_last_error(), says[i]);
    }
    CHECK(tutti_ddp_new(&ddp, &m.base, NULL, NULL) == TUTTI_ERR_ARG && ddp == NULL);
    CHECK_TEXT(tutti_last_error(), "no group given");
    CHECK(tutti_reducer_new(&reducer, NULL, NULL, 0, NULL) == TUTTI_ERR_ARG && reducer == NULL);
    CHECK_OK(tutti_ddp_new(&ddp, &m.base, group, NULL)); /* nothing was sent */
    tutti_ddp_free(ddp);
    tutti_module_destroy(&m.base);
    tutti_ctx_free(cx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(run_with_a_rank_that_differs, models_that_differ_are_refused_alike),
        TEST(run_failures, all_ranks_hear_of_a_failure),
        TEST(run_all, the_first_step_names_every_parameter_and_rank),
        TEST(run_all, use_in_a_paused_backward_counts),
        TEST(run_all, bad_arguments_are_refused),
        TEST(run_all, options_that_point_nowhere_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
