/* ddp: backward calls that do not correspond between ranks.   SPDX-License-Identifier: MIT
 * breadth: 120 */
#include "ddp/ddp.h"
#include "distributed/ddp_bodies.h"
#include "harness/device.h"
#include "harness/memory.h"
#include "tensor/tensor.h"
#include <tutti/tutti.h>

/* Two models of one shape: their collectives have the same sizes. */
typedef struct net {
    tutti_ctx *cx;
    tutti_module base;
    tutti_linear fc;
    tutti_ddp *ddp;
} net;

static int net_new(net *m, tutti_group *group)
{
    *m = (net){0};
    CHECK_OK(tutti_ctx_new(&m->cx, test_device(),
                           &(tutti_ctx_opts){.threads = 1, .kernels = test_kernels()}));
    tutti_module_init(&m->base, m->cx);
    tutti_linear_init(&m->fc, &m->base, "fc", 4, 1);
    CHECK_OK(tutti_ddp_new(&m->ddp, &m->base, group, NULL));
    return 0;
}

static void net_free(net *m)
{
    tutti_ddp_free(m->ddp);
    tutti_module_destroy(&m->base);
    tutti_ctx_free(m->cx);
}

static tutti_status backward(net *m)
{
    static const float x[4] = {1, 2, 3, 4}, target = 3;
    tutti_tensor *y;
    tutti_status status;

    tutti_step_begin(m->cx, NULL);
    tutti_module_zero_grad(&m->base);
    y = tutti_linear_forward(&m->fc,
                             tutti_input(m->cx, (tutti_array){x, TUTTI_SHAPE(1, 4), TUTTI_F32}));
    status = tutti_backward(tutti_mse_loss(
        y, tutti_input(m->cx, (tutti_array){&target, TUTTI_SHAPE(1, 1), TUTTI_F32})));
    tutti_step_end(m->cx);
    return status;
}

/* ---- Before there are buckets -------------------------------------------------------------------------------------------- */

static int first_backwards_of_swapped_models_are_refused(tutti_group *group, void *arg)
{
    const bool swaps = tutti_group_rank(group) == *(const int *)arg;
    net m[2];

    for (int i = 0; i < 2; i++)
        CHECK_0(net_new(&m[i], group));
    CHECK(backward(&m[swaps]) == TUTTI_ERR_MISMATCH);
    CHECK_TEXT(tutti_last_error(), "first backwards differ between ranks");
    CHECK_TEXT(tutti_last_error(), "of the model of \"fc.weight\"");
    for (int i = 0; i < 2; i++) /* the group stays usable */
        net_free(&m[i]);
    CHECK_OK(tutti_barrier(group, NULL));
    return 0;
}

static int a_first_backward_that_one_rank_paused_is_refused(tutti_group *group, void *arg)
{
    const int other = *(const int *)arg;
    char expected[64];
    net m;

    CHECK_0(net_new(&m, group));
    if (tutti_group_rank(group) == other) {
        tutti_ddp_pause(m.ddp);
        CHECK_OK(backward(&m));
        tutti_ddp_resume(m.ddp);
    }
    CHECK(backward(&m) == TUTTI_ERR_MISMATCH);
    CHECK_TEXT(tutti_last_error(), "in training step 1 on rank 0");
    snprintf(expected, sizeof expected, "in training step 2 on rank %d", other);
    CHECK_TEXT(tutti_last_error(), expected);
    net_free(&m);
    return 0;
}

/* ---- With buckets: of which model, in which step ------------------------------------------------------------------------------ */

typedef enum mistake { SWAPS, PAUSES, LEAVES_OUT, N_MISTAKES } mistake;

typedef struct blunder {
    int other; /* the rank that makes it */
    mistake mistake;
    bool narrow; /* buckets are sent by a hook */
} blunder;

static void blunder_once(const blunder *b, net *m)
{
    if (b->mistake == PAUSES) {
        tutti_ddp_pause(m->ddp);
        (void)!backward(m);
        tutti_ddp_resume(m->ddp);
    } else if (b->mistake == LEAVES_OUT) {
        tutti_step_begin(m->cx, NULL);
        tutti_step_end(m->cx);
    }
}

/* Counts and dtypes are those of the others: only reducer and step differ. */
static int a_later_blunder(tutti_group *group, void *arg)
{
    const blunder *b = arg;
    const bool other = tutti_group_rank(group) == b->other;
    tutti_comm_hook hook;
    char expected[64];
    net m[2];

    for (int i = 0; i < 2; i++) {
        CHECK_0(net_new(&m[i], group));
        if (b->narrow)
            CHECK(tutti_comm_hook_bf16(&hook, NULL) == TUTTI_OK &&
                  tutti_ddp_set_hook(m[i].ddp, &hook) == TUTTI_OK);
        for (int step = 0; step < 2; step++)
            CHECK_OK(backward(&m[i]));
    }
    CHECK_OK(tutti_meet(group, "two steps are done"));
    if (other)
        blunder_once(b, &m[0]);
    CHECK(backward(&m[other && b->mistake == SWAPS]) == TUTTI_ERR_MISMATCH);
    snprintf(expected, sizeof expected, "but rank %d called all_reduce #", b->other);
    CHECK_TEXT(tutti_last_error(), expected);
    CHECK_TEXT(tutti_last_error(), "; reducer ");
    CHECK_TEXT(tutti_last_error(), ", step 3, bucket 0)");
    CHECK((strstr(tutti_last_error(), ", step 4, bucket 0)") != NULL) == (b->mistake != SWAPS));
    for (int i = 0; i < 2; i++)
        net_free(&m[i]);
    return 0;
}

static void later_backwards_that_differ_are_refused(void **state)
{
    (void)state;
    for (mistake kind = SWAPS; kind < N_MISTAKES; kind++)
        for (int narrow = 0; narrow < 2; narrow++) {
            blunder b = {1, kind, narrow};

            run(a_later_blunder, &b, 2);
            b.other = 2;
            assert_int_equal(
                tutti_run_ranks_as_processes(3, a_later_blunder, &b,
                                             narrow ? TUTTI_TRANSPORT_TCP : TUTTI_TRANSPORT_AUTO),
                0);
        }
}

/* Also reducers without DDP, for a program's own gradients. */
static int a_reducer_is_taken_for_another(tutti_group *group, void *arg)
{
    const bool other = tutti_group_rank(group) == *(const int *)arg;
    const tutti_reducer_parameter parameter = {.name = "w", .count = 5, .dtype = TUTTI_F32};
    tutti_reducer *r[2];

    for (int i = 0; i < 2; i++) {
        CHECK_OK(tutti_reducer_new(&r[i], group, &parameter, 1, NULL));
        CHECK_OK(tutti_reducer_begin(r[i]));
        CHECK_OK(tutti_reducer_ready(r[i], 0));
        CHECK_OK(tutti_reducer_finish(r[i]));
    }
    CHECK_OK(tutti_reducer_begin(r[other]));
    (void)!tutti_reducer_ready(r[other], 0);
    CHECK(tutti_reducer_finish(r[other]) == TUTTI_ERR_MISMATCH);
    CHECK_TEXT(tutti_last_error(), ", step 2, bucket 0)");
    for (int i = 0; i < 2; i++)
        tutti_reducer_free(r[i]);
    return 0;
}

/* ---- Steps ------------------------------------------------------------------------------------------------------------------ */

static int check_alike(tutti_group *group, uint64_t tag, bool alike)
{
    uint64_t all[8];
    int n = 0;

    CHECK_OK(tutti_all_gather(
        group, TUTTI_CONST_BUF(&tag, sizeof tag, TUTTI_U8),
        TUTTI_BUF(all, sizeof tag * (size_t)tutti_group_size(group), TUTTI_U8), NULL));
    for (int r = 0; r < tutti_group_size(group); r++)
        n += all[r] == all[0];
    CHECK((n == tutti_group_size(group)) == alike);
    return 0;
}

/* The step number also counts a step that is paused on one rank, and one without a backward there. */
static int steps_are_counted_whatever_becomes_of_them(tutti_group *group, void *arg)
{
    const bool alone = tutti_group_size(group) == 1, differs = tutti_group_rank(group) > 0;
    net m;

    (void)arg;
    CHECK_0(net_new(&m, group));
    CHECK_OK(backward(&m));
    CHECK_0(check_alike(group, m.ddp->training_steps, true));
    if (differs) {
        tutti_ddp_pause(m.ddp);
        CHECK_OK(backward(&m));
        tutti_ddp_resume(m.ddp);
    }
    CHECK_0(check_alike(group, m.ddp->training_steps, alone));
    if (!differs) { /* the same number again */
        tutti_step_begin(m.cx, NULL);
        tutti_step_end(m.cx);
    }
    CHECK_0(check_alike(group, m.ddp->training_steps, true));
    net_free(&m);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(run_with_a_rank_that_differs, first_backwards_of_swapped_models_are_refused),
        TEST(run_with_a_rank_that_differs, a_first_backward_that_one_rank_paused_is_refused),
        cmocka_unit_test(later_backwards_that_differ_are_refused),
        TEST(run_with_a_rank_that_differs, a_reducer_is_taken_for_another),
        TEST(run_all, steps_are_counted_whatever_becomes_of_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
