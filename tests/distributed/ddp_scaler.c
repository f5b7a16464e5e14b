/* ddp: the scaler decides for all ranks together.   SPDX-License-Identifier: MIT
 * breadth: 120
 * devices: strict */
#include "distributed/ddp_bodies.h"
#include "harness/device.h"
#include "harness/memory.h"
#include "tensor/tensor.h"
#include <tutti/tutti.h>

#include <math.h>

typedef struct net {
    tutti_ctx *cx;
    tutti_module base;
    tutti_linear fc;
    tutti_ddp *ddp;
    tutti_optim *optim;
    tutti_scaler *scaler;
} net;

static int net_new(net *m, tutti_group *group, float scale)
{
    CHECK_OK(tutti_ctx_new(&m->cx, test_device(), &(tutti_ctx_opts){.threads = 1}));
    tutti_module_init(&m->base, m->cx);
    tutti_linear_init(&m->fc, &m->base, "fc", 4, 3);
    CHECK_OK(tutti_ddp_new(&m->ddp, &m->base, group, NULL));
    CHECK_OK(tutti_sgd_new(&m->optim, &m->base, &(tutti_sgd_opts){.lr = 0.1f}));
    CHECK_OK(tutti_scaler_new(
        &m->scaler, &(tutti_scaler_opts){.init_scale = scale, .peers = tutti_group_peers(group)}));
    return 0;
}

static void net_free(net *m)
{
    tutti_scaler_free(m->scaler);
    tutti_optim_free(m->optim);
    tutti_ddp_free(m->ddp);
    tutti_module_destroy(&m->base);
    tutti_ctx_free(m->cx);
}

/* Forward and backward of one row: x in all columns. */
static int backward(net *m, float x)
{
    const float row[4] = {x, x, x, x}, target[3] = {0};

    tutti_step_begin(m->cx, NULL);
    CHECK_OK(tutti_backward(tutti_scaler_scale(
        m->scaler,
        tutti_mse_loss(
            tutti_linear_forward(
                &m->fc, tutti_input(m->cx, (tutti_array){row, TUTTI_SHAPE(1, 4), TUTTI_F32})),
            tutti_input(m->cx, (tutti_array){target, TUTTI_SHAPE(1, 3), TUTTI_F32})))));
    tutti_step_end(m->cx);
    return 0;
}

/* Case 54, with accumulation: an infinity in the paused backward of one rank. */
static int an_infinity_on_one_rank_leaves_the_same_step_out_on_all(tutti_group *group, void *arg)
{
    const bool is_last = tutti_group_rank(group) == tutti_group_size(group) - 1;
    net m;

    (void)arg;
    CHECK_0(net_new(&m, group, 0));
    for (int step = 0; step < 4; step++) {
        bool stepped;
        float norm;

        tutti_optim_zero_grad(m.optim);
        tutti_ddp_pause(m.ddp);
        CHECK_0(backward(&m, is_last && step == 2 ? 1e38f : (float)tutti_group_rank(group)));
        tutti_ddp_resume(m.ddp);
        CHECK_0(backward(&m, 1));
        CHECK_OK(tutti_scaler_unscale(m.scaler, m.optim));
        CHECK_OK(tutti_clip_grad_norm(&m.base, 1, &norm));
        CHECK_OK(tutti_scaler_step(m.scaler, m.optim, &stepped));
        CHECK_OK(tutti_scaler_update(m.scaler));
        CHECK(stepped == (step != 2));
        CHECK(tutti_scaler_get_scale(m.scaler) == (step < 2 ? 65536 : 32768));
        CHECK_0(check_equal_on_all_ranks(group, &m.base));
    }
    net_free(&m);
    return 0;
}

/* Gradients that were not reduced, like sharded ones: what one rank finds applies to all. */
static int ranks_agree_without_having_the_same_gradients(tutti_group *group, void *arg)
{
    bool stepped;
    net m;

    (void)arg;
    CHECK_0(net_new(&m, group, 0));
    tutti_optim_zero_grad(m.optim);
    tutti_ddp_pause(m.ddp);
    CHECK_0(backward(&m, tutti_group_rank(group) == 0 ? 1e38f : 1));
    CHECK_OK(tutti_scaler_step(m.scaler, m.optim, &stepped));
    CHECK_OK(tutti_scaler_update(m.scaler));
    CHECK(!stepped && tutti_scaler_get_scale(m.scaler) == 32768);
    net_free(&m);
    return 0;
}

static int scales_that_differ_are_an_error_on_all_ranks(tutti_group *group, void *arg)
{
    net m;

    (void)arg;
    CHECK_0(net_new(&m, group, tutti_group_rank(group) == 1 ? 2 : 1024));
    CHECK_0(backward(&m, 1));
    CHECK(tutti_scaler_step(m.scaler, m.optim, NULL) == TUTTI_ERR_MISMATCH);
    CHECK_TEXT(tutti_last_error(), "the scale is 1024 on rank 0 but 2 on rank 1");
    net_free(&m);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(run_all, an_infinity_on_one_rank_leaves_the_same_step_out_on_all),
        TEST(run_all, ranks_agree_without_having_the_same_gradients),
        TEST(run_two, scales_that_differ_are_an_error_on_all_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
