/* ddp: its effects on the context and the memory of a module, and their undoing.   SPDX-License-Identifier: MIT
 * breadth: 120
 * devices: strict */
#include "distributed/ddp_bodies.h"
#include "harness/device.h"
#include "harness/memory.h"
#include "tensor/tensor.h"
#include <tutti/tutti.h>

enum { WIDTH = 64 };

typedef struct net {
    tutti_ctx *cx;
    tutti_module base;
    tutti_linear fc;
    tutti_ddp *ddp;
} net;

static int net_new(net *m, tutti_group *group, uint64_t shard)
{
    *m = (net){0};
    CHECK_OK(
        tutti_ctx_new(&m->cx, test_device(),
                      &(tutti_ctx_opts){.shard = shard, .threads = 1, .kernels = test_kernels()}));
    tutti_module_init(&m->base, m->cx);
    tutti_linear_init(&m->fc, &m->base, "fc", WIDTH, 1);
    CHECK_OK(tutti_ddp_new(&m->ddp, &m->base, group, NULL));
    return 0;
}

static void net_free(net *m)
{
    tutti_ddp_free(m->ddp);
    tutti_module_destroy(&m->base);
    tutti_ctx_free(m->cx);
}

static tutti_tensor *ones(net *m)
{
    static _Thread_local float x[WIDTH];

    for (int i = 0; i < WIDTH; i++)
        x[i] = 1;
    return tutti_input(m->cx, (tutti_array){x, TUTTI_SHAPE(1, WIDTH), TUTTI_F32});
}

static tutti_status backward(net *m)
{
    static const float target = 3;
    tutti_status status;

    tutti_step_begin(m->cx, NULL);
    tutti_module_zero_grad(&m->base);
    status = tutti_backward(
        tutti_mse_loss(tutti_linear_forward(&m->fc, ones(m)),
                       tutti_input(m->cx, (tutti_array){&target, TUTTI_SHAPE(1, 1), TUTTI_F32})));
    tutti_step_end(m->cx);
    return status;
}

/* ---- Dropout ------------------------------------------------------------------------------------------------------------ */

/* How many ranks draw this rank's mask in the next step; 0: a failure. */
static int masks_like_mine(net *m, tutti_group *group)
{
    float all[8 * WIDTH], mine[WIDTH];
    int n = 0;

    tutti_step_begin(m->cx, NULL);
    if (tutti_tensor_read(tutti_dropout(ones(m), 0.5f), mine) != TUTTI_OK)
        return 0;
    tutti_step_end(m->cx);
    if (tutti_all_gather(group, TUTTI_CONST_BUF(mine, WIDTH, TUTTI_F32),
                         TUTTI_BUF(all, WIDTH * (size_t)tutti_group_size(group), TUTTI_F32),
                         NULL) != TUTTI_OK)
        return 0;
    for (int r = 0; r < tutti_group_size(group); r++)
        n += memcmp(all + WIDTH * r, mine, sizeof mine) == 0;
    return n;
}

static int each_rank_draws_its_own_dropout(tutti_group *group, void *arg)
{
    net m;

    (void)arg;
    CHECK_0(net_new(&m, group, 0));
    CHECK(tutti_ctx_shard(m.cx) == (uint64_t)tutti_group_rank(group));
    CHECK(masks_like_mine(&m, group) == 1);
    tutti_ctx_set_shard(m.cx, 0); /* set explicitly to the value that also means "not set" */
    tutti_ddp_free(m.ddp);
    CHECK_OK(tutti_ddp_new(&m.ddp, &m.base, group, NULL));
    CHECK(masks_like_mine(&m, group) == tutti_group_size(group));
    net_free(&m);
    CHECK_0(net_new(&m, group, 7));
    CHECK(tutti_ctx_shard(m.cx) == 7);
    CHECK(masks_like_mine(&m, group) == tutti_group_size(group));
    net_free(&m);
    return 0;
}

/* ---- Gradients, when their buckets are freed -------------------------------------------------------------------------------------- */

static void *no_memory(tutti_device device, size_t bytes, bool zeroed)
{
    (void)device;
    (void)zeroed;
    tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu bytes", bytes);
    return NULL;
}

static int gradients_do_not_outlive_their_memory(tutti_group *group, void *arg)
{
    const tutti__device_ops *ops;
    tutti__device_ops poor;
    net m;

    (void)arg;
    CHECK_0(net_new(&m, group, 0));
    CHECK_OK(backward(&m));
    CHECK(tutti_tensor_grad(m.fc.weight) != NULL);
    ops = m.cx->device_ops;
    poor = *ops;
    poor.alloc = no_memory;
    m.cx->device_ops = &poor;
    tutti_ddp_free(m.ddp);
    m.ddp = NULL;
    CHECK(tutti_tensor_grad(m.fc.weight) == NULL);
    CHECK(backward(&m) == TUTTI_ERR_MEMORY);
    m.cx->device_ops = ops;
    CHECK_OK(backward(&m));
    CHECK(tutti_tensor_grad(m.fc.weight) != NULL);
    net_free(&m);
    return 0;
}

/* A module's sticky error does not keep its gradients in DDP's memory. */
static int a_module_with_an_error_gets_its_memory_back(tutti_group *group, void *arg)
{
    const float *before, *after;
    float first;
    net m;

    (void)arg;
    CHECK_0(net_new(&m, group, 0));
    CHECK_OK(backward(&m));
    before = m.fc.weight->parameter->grad;
    first = test_grad(m.fc.weight)[0];
    CHECK(tutti_parameter_new(&m.base, "late", TUTTI_SHAPE(1), TUTTI_INIT_ZEROS, 0) == NULL);
    CHECK(tutti_module_status(&m.base) == TUTTI_ERR_STATE);
    tutti_ddp_free(m.ddp);
    m.ddp = NULL;
    after = test_grad(m.fc.weight);
    CHECK(after && tutti_tensor_grad(m.fc.weight) != before && after[0] == first && first != 0);
    net_free(&m);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(run_all, each_rank_draws_its_own_dropout),
        TEST(run_all, gradients_do_not_outlive_their_memory),
        TEST(run_all, a_module_with_an_error_gets_its_memory_back),
    };

    setenv("TUTTI_LOG", "error", 1); /* the expected warning is not shown */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
