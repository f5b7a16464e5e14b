/* ddp: the laws of data parallelism in 16 bit, with the scaler and with gradients sent in 16 bit.
 * SPDX-License-Identifier: MIT
 * timeout: 120   breadth: 240
 * devices: strict cuda nccl */
#include "distributed/ddp_bodies.h"
#include "harness/device.h"
#include "harness/memory.h"
#include "tensor/tensor.h"
#include <tutti/tutti.h>

#include <math.h>

enum { FEATURES = 20, CLASSES = 5, BATCH = 12, STEPS = 4 };

typedef struct trainer {
    tutti_ctx *cx;
    tutti_module base;
    tutti_linear fc1, fc2;
    tutti_ddp *ddp; /* NULL: trains alone */
    tutti_optim *optim;
    tutti_scaler *scaler;
    tutti_dtype dtype;
} trainer;

/* group NULL: without DDP */
static int trainer_new(trainer *t, tutti_group *group, tutti_dtype dtype, bool scaled)
{
    const tutti_ctx_opts opts = {.threads = 1, .kernels = test_kernels()};
    tutti_scaler_opts scaler = {.disabled = !scaled};

    *t = (trainer){.dtype = dtype};
    if (group)
        scaler.peers = tutti_group_peers(group);
    CHECK_OK(tutti_ctx_new(&t->cx, test_device(), &opts));
    tutti_module_init(&t->base, t->cx);
    tutti_linear_init(&t->fc1, &t->base, "fc1", FEATURES, 16);
    tutti_linear_init(&t->fc2, &t->base, "fc2", 16, CLASSES);
    if (group)
        CHECK_OK(tutti_ddp_new(&t->ddp, &t->base, group,
                               &(tutti_ddp_opts){.nonfinite = TUTTI_NONFINITE_IGNORE}));
    CHECK_OK(tutti_sgd_new(&t->optim, &t->base, &(tutti_sgd_opts){.lr = 0.1f, .momentum = 0.9f}));
    CHECK_OK(tutti_scaler_new(&t->scaler, &scaler));
    return 0;
}

static void trainer_free(trainer *t)
{
    tutti_scaler_free(t->scaler);
    tutti_optim_free(t->optim);
    tutti_ddp_free(t->ddp);
    tutti_module_destroy(&t->base);
    tutti_ctx_free(t->cx);
}

/* Forward and backward over n samples of the step's batch from `first` on; `share`: weight of their loss. */
static int backward(trainer *t, int step, int first, int n, float share)
{
    float x[BATCH * FEATURES];
    int64_t y[BATCH];
    tutti_tensor *h;

    for (int i = 0; i < n; i++) {
        for (int k = 0; k < FEATURES; k++) {
            uint32_t out[4];

            tutti__philox(
                11,
                (tutti__philox_counter){{(uint32_t)step, (uint32_t)(first + i), (uint32_t)k, 0}},
                out);
            x[i * FEATURES + k] = 2 * tutti__unit_float(out[0]) - 1;
        }
        y[i] = (first + i) % CLASSES;
    }
    tutti_step_begin(t->cx, &(tutti_step_opts){.autocast = t->dtype});
    h = tutti_relu(tutti_linear_forward(
        &t->fc1, tutti_input(t->cx, (tutti_array){x, TUTTI_SHAPE(n, FEATURES), TUTTI_F32})));
    CHECK(tutti_tensor_dtype(h) == t->dtype);
    h = tutti_cross_entropy(tutti_linear_forward(&t->fc2, h),
                            tutti_input(t->cx, (tutti_array){y, TUTTI_SHAPE(n), TUTTI_I64}));
    CHECK_OK(tutti_backward(tutti_scaler_scale(t->scaler, tutti_scale(h, share))));
    tutti_step_end(t->cx);
    return 0;
}

static int update(trainer *t, bool *stepped_p)
{
    CHECK_OK(tutti_scaler_step(t->scaler, t->optim, stepped_p));
    CHECK_OK(tutti_scaler_update(t->scaler));
    return 0;
}

static int step_on(trainer *t, int step, int first, int n)
{
    bool stepped;

    tutti_optim_zero_grad(t->optim);
    CHECK_0(backward(t, step, first, n, 1));
    CHECK_0(update(t, &stepped));
    CHECK(stepped);
    return 0;
}

/* The largest difference between two models, relative to the largest change of the second by training. */
static double difference(const trainer *a, const trainer *b, const trainer *start)
{
    double largest = 0, change = 0;

    for (size_t i = 0; i < tutti_module_n_parameters(&a->base); i++) {
        const tutti_tensor *t = tutti_module_parameter(&a->base, i);
        const float *p = test_values(t);
        const float *q = test_values(tutti_module_parameter(&b->base, i));
        const float *r = test_values(tutti_module_parameter(&start->base, i));

        for (int64_t k = 0; k < tutti_shape_count(t->shape); k++) {
            largest = fmax(largest, fabs((double)p[k] - (double)q[k]));
            change = fmax(change, fabs((double)q[k] - (double)r[k]));
        }
    }
    return largest / change;
}

/* n ranks x batch b = 1 rank x batch nb, within rounding to 16 bit; replicas have the same bits. */
static int shares_in(tutti_group *group, tutti_dtype dtype)
{
    const int rank = tutti_group_rank(group), share = BATCH / tutti_group_size(group);
    trainer ranks, alone, start;

    CHECK_0(trainer_new(&ranks, group, dtype, dtype == TUTTI_F16));
    CHECK_0(trainer_new(&alone, NULL, dtype, dtype == TUTTI_F16));
    CHECK_0(trainer_new(&start, NULL, dtype, dtype == TUTTI_F16));
    for (int step = 0; step < STEPS; step++) {
        CHECK_0(step_on(&ranks, step, rank * share, share));
        CHECK_0(step_on(&alone, step, 0, BATCH));
        CHECK_0(check_equal_on_all_ranks(group, &ranks.base));
    }
    CHECK(difference(&ranks, &alone, &start) < (dtype == TUTTI_BF16 ? 0.03 : 0.004));
    CHECK(difference(&start, &alone, &start) == 1);
    trainer_free(&ranks);
    trainer_free(&alone);
    trainer_free(&start);
    return 0;
}

static int shares_of_a_batch_in_bf16_are_the_batch(tutti_group *group, void *arg)
{
    (void)arg;
    return shares_in(group, TUTTI_BF16);
}

static int shares_of_a_batch_in_fp16_are_the_batch(tutti_group *group, void *arg)
{
    (void)arg;
    return shares_in(group, TUTTI_F16);
}

/* k batches of b = one of kb; and only the last of them communicates. */
static int accumulated_parts_are_the_whole_and_only_the_last_communicates(tutti_group *group,
                                                                          void *arg)
{
    enum { PARTS = 3 };
    const int rank = tutti_group_rank(group), share = BATCH / tutti_group_size(group);
    trainer parts, whole, start;
    bool stepped;

    (void)arg;
    CHECK_0(trainer_new(&parts, group, TUTTI_F16, true));
    CHECK_0(trainer_new(&whole, group, TUTTI_F16, true));
    CHECK_0(trainer_new(&start, NULL, TUTTI_F16, true));
    for (int step = 0; step < STEPS; step++) {
        tutti_optim_zero_grad(parts.optim);
        for (int k = 0; k < PARTS; k++) {
            const tutti_ddp_stats before = tutti_ddp_get_stats(parts.ddp);
            tutti_ddp_stats after;

            if (k < PARTS - 1)
                tutti_ddp_pause(parts.ddp);
            else
                tutti_ddp_resume(parts.ddp);
            CHECK_0(backward(&parts, step, rank * share + k * (share / PARTS), share / PARTS,
                             1.0f / PARTS));
            after = tutti_ddp_get_stats(parts.ddp);
            CHECK(after.steps - before.steps == (k == PARTS - 1));
            CHECK((after.traffic.gradient_bytes > before.traffic.gradient_bytes) ==
                  (k == PARTS - 1));
        }
        CHECK_0(update(&parts, &stepped));
        CHECK(stepped);
        CHECK_0(step_on(&whole, step, rank * share, share / PARTS * PARTS));
        CHECK_0(check_equal_on_all_ranks(group, &parts.base));
    }
    CHECK(difference(&parts, &whole, &start) < 0.004);
    trainer_free(&parts);
    trainer_free(&whole);
    trainer_free(&start);
    return 0;
}

/* Gradients times 2^20, which BF16 can represent, overflow in a bucket of fp16: all ranks find an infinity, until the scale is
 * small enough; then training is as without the hook. */
static int a_sum_that_overflows_on_the_way_leaves_the_step_out(tutti_group *group, void *arg)
{
    const int rank = tutti_group_rank(group), share = BATCH / tutti_group_size(group);
    int skipped = 0, done = 0;
    trainer ranks, alone, start;
    tutti_comm_hook hook;

    (void)arg;
    CHECK_0(trainer_new(&ranks, group, TUTTI_BF16, true));
    CHECK_0(trainer_new(&alone, NULL, TUTTI_BF16, true));
    CHECK_0(trainer_new(&start, NULL, TUTTI_BF16, true));
    CHECK_OK(tutti_comm_hook_fp16(&hook, NULL));
    CHECK_OK(tutti_ddp_set_hook(ranks.ddp, &hook));
    CHECK_OK(tutti_scaler_state_set(ranks.scaler, &(tutti_scaler_state){.scale = 0x1p20f,
                                                                        .growth_factor = 2,
                                                                        .backoff_factor = 0.5f,
                                                                        .growth_interval = 2000}));
    while (done < STEPS && skipped < 40) {
        bool stepped;

        tutti_optim_zero_grad(ranks.optim);
        CHECK_0(backward(&ranks, done, rank * share, share, 1));
        CHECK_0(update(&ranks, &stepped));
        CHECK_0(check_equal_on_all_ranks(group, &ranks.base));
        skipped += !stepped;
        if (stepped)
            CHECK_0(step_on(&alone, done++, 0, BATCH));
    }
    CHECK(skipped >= 1);
    CHECK(done == STEPS);
    CHECK(tutti_scaler_get_scale(ranks.scaler) == ldexpf(1, 20 - skipped));
    CHECK(difference(&ranks, &alone, &start) < 0.03);
    trainer_free(&ranks);
    trainer_free(&alone);
    trainer_free(&start);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(run_all, shares_of_a_batch_in_bf16_are_the_batch),
        TEST(run_all, shares_of_a_batch_in_fp16_are_the_batch),
        TEST(run_all, accumulated_parts_are_the_whole_and_only_the_last_communicates),
        TEST(run_all, a_sum_that_overflows_on_the_way_leaves_the_step_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
