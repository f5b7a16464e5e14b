/* ddp: ZeRO within parts of the ranks, which are replicas of each other: PyTorch's cases for hybrid sharding.   SPDX-License-Identifier: MIT
 * timeout: 120
 * devices: strict cuda nccl:long */
#include "ddp/zero.h"
#include "distributed/ddp_trainer.h"

enum { SIDE = 6, PIXELS = SIDE * SIDE, CLASSES = 5, BATCH = 3, STEPS = 3 };

/* Buckets of a few KiB, so that there are several. */
static tutti_ddp_opts opts_of(int zero, int ranks)
{
    return (tutti_ddp_opts){.first_bucket_mb = 1e-3,
                            .bucket_mb = 1e-2,
                            .check_replicas = 1,
                            .zero = zero,
                            .zero_ranks = ranks};
}

static int trainer_begin(trainer *t, int zero)
{
    const tutti_ctx_opts cx_opts = {
        .threads = 1, .kernels = test_kernels(), .defers_parameters = zero == 3};
    const tutti_model_opts shape = {
        .channels = 1, .height = SIDE, .width = SIDE, .classes = CLASSES};

    *t = (trainer){0};
    CHECK_OK(tutti_ctx_new(&t->cx, test_device(), &cx_opts));
    CHECK_OK(tutti_model_new(&t->model, t->cx, "mlp", &shape));
    t->module = tutti_model_module(t->model);
    return 0;
}

static bool
    offloads; /* of this run: the optimizer's state is in host memory, with zero 3 the parameters too */

static int trainer_new(trainer *t, tutti_group *group, int zero, int ranks)
{
    tutti_ddp_opts opts = opts_of(zero, ranks);

    opts.offload_parameters = offloads && zero == 3;
    CHECK_0(trainer_begin(t, zero));
    CHECK_OK(tutti_ddp_new(&t->ddp, t->module, group, &opts));
    CHECK_OK(tutti_adamw_new(&t->optim, t->module,
                             &(tutti_adam_opts){.lr = 0.01f, .weight_decay = 0.1f}));
    if (offloads && zero < 3)
        CHECK_OK(tutti_optim_offload(t->optim));
    return 0;
}

static tutti_status backward(trainer *t, int salt)
{
    static _Thread_local float x[BATCH * PIXELS];
    static _Thread_local int64_t y[BATCH];
    tutti_status status;

    for (int i = 0; i < BATCH * PIXELS; i++)
        x[i] = sinf((float)(i * 13 + salt * 101));
    for (int i = 0; i < BATCH; i++)
        y[i] = (i + salt) % CLASSES;
    tutti_step_begin(t->cx, NULL);
    status = tutti_backward(tutti_cross_entropy(
        tutti_model_forward(
            t->model,
            tutti_input(t->cx, (tutti_array){x, TUTTI_SHAPE(BATCH, 1, SIDE, SIDE), TUTTI_F32})),
        tutti_input(t->cx, (tutti_array){y, TUTTI_SHAPE(BATCH), TUTTI_I64})));
    tutti_step_end(t->cx);
    return status;
}

/* Two batches, of which the first is not averaged by itself; the norm is of all ranks. */
static int train(trainer *t, tutti_group *group, int first, int steps, float *norms)
{
    for (int step = first; step < first + steps; step++) {
        tutti_optim_zero_grad(t->optim);
        tutti_ddp_pause(t->ddp);
        CHECK_OK(backward(t, 100 + step * 16 + tutti_group_rank(group)));
        tutti_ddp_resume(t->ddp);
        CHECK_OK(backward(t, step * 16 + tutti_group_rank(group)));
        CHECK_OK(tutti_clip_grad_norm(t->module, 0.05f, &norms[step - first]));
        CHECK_OK(tutti_optim_step(t->optim));
    }
    return 0;
}

/* The optimizer's state, which `group`'s rank `root` has of both. */
static int check_same_state(const trainer *a, const trainer *b)
{
    for (size_t i = 0; i < tutti_module_n_parameters(a->module); i++) {
        const tutti_tensor *p = tutti_module_parameter(a->module, i);
        const size_t bytes = tutti__tensor_bytes(p);
        float *x = malloc(bytes), *y = malloc(bytes);

        for (size_t k = 0; tutti_optim_state_name(a->optim, k); k++) {
            CHECK_OK(tutti_optim_state_read(a->optim, k, p, x));
            CHECK_OK(tutti_optim_state_read(b->optim, k, tutti_module_parameter(b->module, i), y));
            CHECK(memcmp(x, y, bytes) == 0);
        }
        free(x);
        free(y);
    }
    return 0;
}

/* Of `whole` bytes: 1 / ranks, and of each bucket a rest of less than one element a rank of the group. */
static bool is_share(size_t bytes, size_t whole, int ranks, size_t rests)
{
    return bytes >= whole / (size_t)ranks && bytes <= whole / (size_t)ranks + rests;
}

static int check_sizes(const trainer *t, tutti_group *group, int zero, int ranks)
{
    const tutti_zero *z = tutti_ddp_zero(t->ddp);
    const tutti_zero_stats s = tutti_zero_get_stats(z);
    const size_t whole = sizeof(float) * (size_t)tutti_module_count(t->module);
    const size_t rests =
        z->n_noted * ((size_t)tutti_group_size(group) * sizeof(float) + 64 /* between tensors */);

    CHECK(z->replicas == tutti_group_size(group) / ranks);
    CHECK(is_share(tutti_optim_state_bytes(t->optim), 2 * whole, ranks, 2 * rests));
    CHECK(zero < 2 || is_share(s.gradient_bytes, whole, ranks, rests));
    CHECK(zero < 3 || (offloads ? s.parameter_bytes <= rests
                                : is_share(s.parameter_bytes, whole, ranks, rests)));
    CHECK((s.gathered_bytes > 0) == (zero == 3 && ranks > 1));
    return 0;
}

/* By all divisors of the ranks: parameters, norms and consolidated state have the bits of DDP without ZeRO. */
static int replicas_train_with_the_bits_of_the_whole(tutti_group *group, void *arg)
{
    const int size = tutti_group_size(group), root = size - 1;
    const bool slow = test_on("strict") || test_on("cuda"); /* there only replicas of 2 */
    char digests[2][33];
    float norms[2][STEPS];
    trainer plain, t;

    (void)arg;
    CHECK_0(trainer_new(&plain, group, 0, 0));
    CHECK_0(train(&plain, group, 0, STEPS, norms[0]));
    CHECK_0(digest_of(&plain, group, digests[0]));
    for (int k = 0; k < 3 * size; k++) {
        const int zero = 1 + k % 3, ranks = 1 + k / 3;

        if (size % ranks != 0 || (slow && ranks != 2))
            continue;
        CHECK_0(trainer_new(&t, group, zero, ranks));
        CHECK_0(train(&t, group, 0, STEPS, norms[1]));
        CHECK_0(check_sizes(&t, group, zero, ranks));
        CHECK_0(digest_of(&t, group, digests[1]));
        CHECK_TEXT(digests[1], digests[0]);
        CHECK(memcmp(norms[0], norms[1], sizeof norms[0]) == 0);
        CHECK_OK(tutti_zero_consolidate(tutti_ddp_zero(t.ddp), t.optim, root));
        if (tutti_group_rank(group) == root)
            CHECK_0(check_same_state(&plain, &t));
        CHECK_0(train(&t, group, STEPS, 1, norms[1])); /* and goes on */
        trainer_free(&t);
    }
    trainer_free(&plain);
    return 0;
}

/* What a rank contributes to the sums of a bucket of n elements: n to the first, and its means once for each replica. */
static int the_wire_carries_what_is_said(tutti_group *group, void *arg)
{
    const int size = tutti_group_size(group);
    float norm;
    trainer t;

    (void)arg;
    for (int ranks = 1; ranks <= size; ranks++) {
        if (size % ranks != 0)
            continue;
        CHECK_0(trainer_new(&t, group, 2, ranks));
        CHECK_0(train(&t, group, 0, 1, &norm));
        for (size_t b = 0; b < tutti_reducer_n_buckets(tutti_ddp_reducer(t.ddp)); b++) {
            const size_t n = tutti_ddp_zero(t.ddp)->buckets[b].count;
            const size_t share = n / (size_t)size * (size_t)(size / ranks);

            CHECK(tutti_reducer_bucket(tutti_ddp_reducer(t.ddp), b).wire_bytes ==
                  sizeof(float) * (n + (ranks < size ? share : 0)));
        }
        trainer_free(&t);
    }
    return 0;
}

static int what_does_not_fit_is_refused(tutti_group *group, void *arg)
{
    const struct {
        int zero, ranks, shards;
        tutti_status status;
        const char *says;
    } cases[] = {
        {2, 3, 0, TUTTI_ERR_ARG,
         "zero_ranks is 3, expected 0 (all ranks) or a divisor of the group's 4"},
        {2, 8, 0, TUTTI_ERR_ARG, "zero_ranks is 8"},
        {2, -1, 0, TUTTI_ERR_ARG, "zero_ranks is -1"},
        {0, 2, 0, TUTTI_ERR_ARG, "zero is 0; set zero to 1, 2 or 3"},
        {1, 2, 4, TUTTI_ERR_UNSUPPORTED, "zero_ranks cannot be used with shards"},
    };
    trainer t;

    (void)arg;
    for (size_t i = 0; i < TUTTI__COUNT_OF(cases); i++) {
        tutti_ddp_opts opts = opts_of(cases[i].zero, cases[i].ranks);

        opts.shards = cases[i].shards;
        CHECK_0(trainer_begin(&t, 0));
        CHECK(tutti_ddp_new(&t.ddp, t.module, group, &opts) == cases[i].status);
        CHECK_TEXT(tutti_last_error(), cases[i].says);
        trainer_free(&t);
    }
    return 0;
}

static int ranks_that_disagree_are_told(tutti_group *group, void *arg)
{
    const tutti_ddp_opts opts = opts_of(1, tutti_group_rank(group) == 1 ? 2 : 1);
    trainer t;

    (void)arg;
    CHECK_0(trainer_begin(&t, 0));
    CHECK(tutti_ddp_new(&t.ddp, t.module, group, &opts) == TUTTI_ERR_MISMATCH);
    CHECK_TEXT(tutti_last_error(), "is zero_ranks 1 on rank 0 but zero_ranks 2 on rank 1");
    trainer_free(&t);
    return 0;
}

static tutti_status no_pages(tutti_device device, void *p, size_t bytes, bool stays)
{
    (void)device;
    (void)p;
    (void)stays;
    return tutti__fail(TUTTI_ERR_MEMORY, "no pages for %zu bytes in this test", bytes);
}

/* In one replica, before a gather: its other rank waits there, those of the other replica in the reduction. */
static int a_rank_without_memory_fails_all(tutti_group *group, void *arg)
{
    static tutti__device_ops without;
    float norm;
    trainer t;

    (void)arg;
    CHECK_0(trainer_new(&t, group, 3, 2));
    CHECK_0(train(&t, group, 0, 1, &norm));
    if (tutti_group_rank(group) == 1) {
        without = *t.cx->device_ops;
        without.back = no_pages;
        t.cx->device_ops = &without;
    }
    tutti_optim_zero_grad(t.optim);
    CHECK(backward(&t, 7) != TUTTI_OK);
    CHECK_TEXT(tutti_last_error(), "no pages for");
    trainer_free(&t);
    return 0;
}

static void run_four(void **state)
{
    run((tutti_rank_body *)*state, NULL, 4);
}

/* And 6: three replicas of two, two of three. On CUDA's stand-ins, where a step takes much longer, only 4 processes. */
static void run_four_and_six(void **state)
{
    if (!test_on("cuda"))
        assert_int_equal(tutti_run_ranks_as_threads(6, (tutti_rank_body *)*state, NULL), 0);
    assert_int_equal(
        tutti_run_ranks_as_processes(4, (tutti_rank_body *)*state, NULL, TUTTI_TRANSPORT_AUTO), 0);
}

/* Ranks 0 and 1 on one host, 2 and 3 on another: sums are made per host first, as those of all_reduce are. */
static void run_on_two_hosts(void **state)
{
    static const int hosts[] = {0, 0, 1, 1};

    assert_int_equal(tutti_run_ranks(4, (tutti_rank_body *)*state, NULL,
                                     &(tutti_ranks_opts){.processes = true, .hosts = hosts}),
                     0);
}

static void run_offloaded(void **state)
{
    offloads = test_on("strict") || test_on("cuda");
    if (!offloads) {
        print_message("on device cpu state is in host memory already\n");
        skip();
    }
    assert_int_equal(
        tutti_run_ranks_as_processes(4, (tutti_rank_body *)*state, NULL, TUTTI_TRANSPORT_AUTO), 0);
    offloads = false;
}

static void run_four_over_tcp(void **state)
{
    assert_int_equal(
        tutti_run_ranks_as_processes(4, (tutti_rank_body *)*state, NULL, TUTTI_TRANSPORT_TCP), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(run_four_and_six, replicas_train_with_the_bits_of_the_whole),
        TEST(run_four_over_tcp, replicas_train_with_the_bits_of_the_whole),
        TEST(run_on_two_hosts, replicas_train_with_the_bits_of_the_whole),
        TEST(run_offloaded, replicas_train_with_the_bits_of_the_whole),
        TEST(run_four, the_wire_carries_what_is_said),
        TEST(run_four, what_does_not_fit_is_refused),
        TEST(run_two, ranks_that_disagree_are_told),
        TEST(run_four, a_rank_without_memory_fails_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
