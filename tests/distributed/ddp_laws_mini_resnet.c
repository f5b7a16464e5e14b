/* ddp: the laws of data parallelism on MiniResNet, with batch norm and the fast kernels, and what DDP costs in memory.
 * SPDX-License-Identifier: MIT
 * timeout: 240   breadth: 240 */
#include "distributed/ddp_trainer.h"
#include "harness/memory.h"
#include "tensor/tensor.h"

#include <sys/mman.h>

enum { SIDE = 8, BATCH = 2, STEPS = 3 };

static int trainer_new(trainer *t, tutti_group *group, const tutti_ddp_opts *opts, int side)
{
    tutti_ctx_opts cx_opts = {.seed = group ? (uint64_t)tutti_group_rank(group) : 0, .threads = 1};

    *t = (trainer){0};
    CHECK_OK(tutti_ctx_new(&t->cx, test_device(), &cx_opts));
    CHECK_OK(tutti_model_new(
        &t->model, t->cx, "mini_resnet",
        &(tutti_model_opts){.channels = 3, .height = side, .width = side, .classes = 10}));
    t->module = tutti_model_module(t->model);
    if (group)
        CHECK_OK(tutti_ddp_new(&t->ddp, t->module, group, opts));
    CHECK_OK(tutti_sgd_new(&t->optim, t->module, &(tutti_sgd_opts){.lr = 0.01f, .momentum = 0.9f}));
    return 0;
}

/* Forward and backward over batch `batch` of a step, a function of the two; the loss times `weight`. */
static int backward(trainer *t, int step, int batch, int n, int side, float weight)
{
    size_t count = (size_t)(n * 3 * side * side);
    float *x = tutti__alloc(count * sizeof *x);
    int64_t *y = tutti__alloc((size_t)n * sizeof *y);
    tutti_tensor *logits;

    for (size_t k = 0; k < count; k++) {
        uint32_t out[4];

        tutti__philox(
            17, (tutti__philox_counter){{(uint32_t)step, (uint32_t)batch, (uint32_t)k, 0}}, out);
        x[k] = 2 * tutti__unit_float(out[0]) - 1;
        y[k % (size_t)n] = (int64_t)(out[1] % 10);
    }
    tutti_step_begin(t->cx, NULL);
    logits = tutti_model_forward(
        t->model, tutti_input(t->cx, (tutti_array){x, TUTTI_SHAPE(n, 3, side, side), TUTTI_F32}));
    CHECK_OK(tutti_backward(
        tutti_scale(tutti_cross_entropy(
                        logits, tutti_input(t->cx, (tutti_array){y, TUTTI_SHAPE(n), TUTTI_I64})),
                    weight)));
    tutti_step_end(t->cx);
    free(x);
    free(y);
    return 0;
}

static int check_trained_equally(tutti_group *group, const trainer *t, char digest[33])
{
    CHECK_OK(tutti_ddp_broadcast_buffers(t->ddp)); /* else each rank's own until the next step */
    tutti_module_digest(t->module, digest);
    CHECK_0(check_equal_on_all_ranks(group, t->module));
    return 0;
}

/* n ranks with a batch each = one rank that accumulates n batches: statistics are per batch in both. Replicas have
 * the same bits after every step. */
static int ranks_are_batches_accumulated_by_one(tutti_group *group, void *arg)
{
    int size = tutti_group_size(group);
    double largest = 0;
    trainer all, one;
    char digest[33];

    (void)arg;
    CHECK_0(trainer_new(&all, group, NULL, SIDE));
    CHECK_0(trainer_new(&one, NULL, NULL, SIDE));
    for (int step = 0; step < STEPS; step++) {
        tutti_optim_zero_grad(all.optim);
        tutti_optim_zero_grad(one.optim);
        CHECK_0(backward(&all, step, tutti_group_rank(group), BATCH, SIDE, 1));
        for (int batch = 0; batch < size; batch++)
            CHECK_0(backward(&one, step, batch, BATCH, SIDE, 1 / (float)size));
        CHECK_OK(tutti_optim_step(all.optim));
        CHECK_OK(tutti_optim_step(one.optim));
        CHECK_0(check_trained_equally(group, &all, digest));
    }
    for (size_t i = 0; i < tutti_module_n_parameters(all.module); i++) {
        const tutti_tensor *p = tutti_module_parameter(all.module, i),
                           *q = tutti_module_parameter(one.module, i);

        const float *a_values = test_values(p), *b_values = test_values(q);

        for (int64_t k = 0; k < tutti_shape_count(p->shape); k++)
            largest = fmax(largest, fabs((double)a_values[k] - (double)b_values[k]));
    }
    CHECK(largest <= 1e-4);
    trainer_free(&all);
    trainer_free(&one);
    return 0;
}

/* Training has the same bits with other buckets, another slow rank, and options (find_unused, static_graph) that hold. */
static int buckets_timing_and_options_change_no_bit(tutti_group *group, void *arg)
{
    static const double list[] = {0.1, 3, 0.5};
    static const tutti_ddp_opts opts[] = {{.bucket_mb = 0},
                                          {.bucket_mb = 0},
                                          {.bucket_mb = 1e-3, .first_bucket_mb = 1e-3},
                                          {.bucket_mb_list = list, .n_bucket_mb_list = 3},
                                          {.bucket_mb = 2, .find_unused = true},
                                          {.first_bucket_mb = 100, .static_graph = true}};
    char digests[TUTTI__COUNT_OF(opts)][33];

    (void)arg;
    for (size_t s = 0; s < TUTTI__COUNT_OF(opts); s++) {
        trainer t;

        CHECK_0(trainer_new(&t, group, &opts[s], SIDE));
        for (int step = 0; step < STEPS; step++) {
            if (((int)s + step) % tutti_group_size(group) == tutti_group_rank(group))
                be_slow(5);
            tutti_optim_zero_grad(t.optim);
            CHECK_0(backward(&t, step, tutti_group_rank(group), BATCH, SIDE, 1));
            CHECK_OK(tutti_optim_step(t.optim));
        }
        CHECK_0(check_trained_equally(group, &t, digests[s]));
        CHECK_TEXT(digests[s], digests[0]);
        trainer_free(&t);
    }
    return 0;
}

/* The last bucket, which cannot overlap, is no larger than the first limit, and those before it are sent earlier. */
static int the_last_bucket_is_short(tutti_group *group, void *arg)
{
    tutti_reducer *r;
    tutti_bucket_info last, before;
    trainer t;

    (void)arg;
    CHECK_0(trainer_new(&t, group, NULL, SIDE));
    CHECK_0(backward(&t, 0, 0, BATCH, SIDE, 1));
    r = tutti_ddp_reducer(t.ddp);
    CHECK(tutti_reducer_n_buckets(r) == 3);
    before = tutti_reducer_bucket(r, 1);
    last = tutti_reducer_bucket(r, 2);
    CHECK(last.bytes <= 1 << 20 && last.bytes > 1 << 19);
    CHECK(before.bytes > 7 << 20 && before.ready_ms < last.ready_ms);
    trainer_free(&t);
    return 0;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------------- */

enum { LARGE_SIDE = 32, LARGE_BATCH = 32 };

/* This process's share of anonymous and shared memory, in KiB; 0: unknown. */
static long memory_kib(void)
{
    char line[256];
    long kib, sum = 0;
    FILE *f = fopen("/proc/self/smaps_rollup", "r");

    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Pss_Anon: %ld", &kib) == 1 || sscanf(line, "Pss_Shmem: %ld", &kib) == 1)
            sum += kib;
    if (f)
        fclose(f);
    return sum;
}

/* Both ranks train alone, then the same with DDP, in processes of their own. arg: {with DDP?, KiB}, in shared memory. */
static int train_and_weigh(tutti_group *group, void *arg)
{
    long *row = arg;
    trainer t;

    CHECK_0(trainer_new(&t, row[0] ? group : NULL, NULL, LARGE_SIDE));
    for (int step = 0; step < 3; step++) {
        tutti_optim_zero_grad(t.optim);
        CHECK_0(backward(&t, step, 0, LARGE_BATCH, LARGE_SIDE, 1));
        CHECK_OK(tutti_optim_step(t.optim));
    }
    CHECK_OK(tutti_barrier(group, NULL)); /* shared memory is now mapped by both */
    row[1 + tutti_group_rank(group)] = memory_kib();
    CHECK_OK(tutti_barrier(group, NULL));
    trainer_free(&t);
    return 0;
}

static void ddp_needs_hardly_more_memory(void **state)
{
    long *rows[2];
    double plain, ddp;

    (void)state;
#ifdef TUTTI__SANITIZED
    print_message("skipped: a sanitizer's own memory would be weighed too\n");
    skip();
#endif
    for (int with = 0; with < 2; with++) {
        rows[with] = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(rows[with] != MAP_FAILED);
        rows[with][0] = with;
        assert_int_equal(
            tutti_run_ranks_as_processes(2, train_and_weigh, rows[with], TUTTI_TRANSPORT_AUTO), 0);
    }
    if (rows[0][1] == 0) {
        print_message(
            "skipped: /proc/self/smaps_rollup does not tell anonymous from shared memory\n");
        skip();
    }
    plain = (double)(rows[0][1] + rows[0][2]) / 2048;
    ddp = (double)(rows[1][1] + rows[1][2]) / 2048;
    print_message("a rank needs %.1f MiB alone, %.1f with DDP: %+.2f %%\n", plain, ddp,
                  100 * (ddp / plain - 1));
    assert_true(ddp <= 1.02 * plain);
    for (int with = 0; with < 2; with++)
        munmap(rows[with], 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(run_all_as_processes, ranks_are_batches_accumulated_by_one),
        TEST(run_all_as_processes, buckets_timing_and_options_change_no_bit),
        TEST(run_all_as_processes, the_last_bucket_is_short),
        cmocka_unit_test(ddp_needs_hardly_more_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
