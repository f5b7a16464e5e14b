/* ddp: sparse gradients, of which only some rows are sent.   SPDX-License-Identifier: MIT
 * timeout: 120   breadth: 240
 * devices: strict */
#include "distributed/ddp_bodies.h"
#include "harness/device.h"
#include "harness/memory.h"
#include "harness/stream.h"
#include "tensor/tensor.h"
#include <tutti/tutti.h>

enum { ROWS = 50, WIDTH = 3, N = ROWS * WIDTH };
static const tutti_reducer_parameter parameters[2] = {
    {.name = "table", .count = N, .dtype = TUTTI_F32, .rows = ROWS, .sparse = true},
    {.name = "dense", .count = 5, .dtype = TUTTI_F32}};

static float value(int rank, int step, size_t k)
{
    uint32_t out[4];

    tutti__philox(3, (tutti__philox_counter){{(uint32_t)rank, (uint32_t)step, (uint32_t)k, 0}},
                  out);
    return 2 * tutti__unit_float(out[0]) - 1;
}

/* The rows that a rank touches in a step: few, repeated, some of them shared by ranks; in step 3 rank 0 touches none. */
static size_t rows_of(int rank, int step, int64_t rows[4])
{
    const int64_t all[4] = {7, (rank * 11 + step) % ROWS, 7, ROWS - 1 - rank};

    memcpy(rows, all, sizeof all);
    return rank == 0 && step == 3 ? 0 : 4;
}

static void fill(float *gradient, int rank, int step)
{
    int64_t rows[4];
    size_t n = rows_of(rank, step, rows);
    float table[N] = {0};

    for (size_t k = 0; k < n; k++)
        for (int64_t i = rows[k] * WIDTH; i < (rows[k] + 1) * WIDTH; i++)
            table[i] = value(rank, step, (size_t)i);
    test_set(gradient, table, sizeof table);
}

/* The mean has the bits of the dense one, and a fraction of its bytes. */
static int sparse_equals_dense(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group), size = tutti_group_size(group);
    tutti_reducer_parameter dense[2] = {parameters[0], parameters[1]};
    tutti_reducer *a, *b;

    (void)arg;
    dense[0].sparse = false;
    CHECK_OK(tutti_reducer_new(&a, group, parameters, 2,
                               &(tutti_reducer_opts){.stream = test_stream()}));
    CHECK_OK(
        tutti_reducer_new(&b, group, dense, 2, &(tutti_reducer_opts){.stream = test_stream()}));
    CHECK(tutti_reducer_n_buckets(a) == 2 && tutti_reducer_n_buckets(b) == 1);
    for (int step = 0; step < 5; step++) {
        float *p = tutti_reducer_grad(a, 0), *q = tutti_reducer_grad(b, 0), means[2][N];
        int64_t rows[4];
        size_t n = rows_of(rank, step, rows), most = 0;

        CHECK_OK(tutti_reducer_begin(a));
        CHECK_OK(tutti_reducer_begin(b));
        fill(p, rank, step);
        fill(q, rank, step);
        if (step == 4)
            CHECK_OK(tutti_reducer_ready(a, 0)); /* all rows, also zero ones */
        else
            CHECK_OK(tutti_reducer_ready_rows(a, 0, rows, n));
        CHECK_OK(tutti_reducer_ready(b, 0));
        CHECK_OK(tutti_reducer_ready(a, 1));
        CHECK_OK(tutti_reducer_ready(b, 1));
        CHECK_OK(tutti_reducer_finish(a));
        CHECK_OK(tutti_reducer_finish(b));
        test_get(means[0], p, sizeof means[0]);
        test_get(means[1], q, sizeof means[1]);
        for (int k = 0; k < N; k++)
            CHECK(means[0][k] == means[1][k]);
        for (int r = 0; r < size; r++)
            most = rows_of(r, step, rows) > 0 ? 3 : most;
        if (step < 4 && size > 1)
            CHECK(tutti_reducer_bucket(a, 0).wire_bytes <= 8 + most * (8 + WIDTH * sizeof(float)));
    }
    if (size == 1) { /* abandoning a step would fail ranks that are still in the previous one */
        CHECK_OK(tutti_reducer_begin(a));
        CHECK(tutti_reducer_ready_rows(a, 0, (int64_t[]){3, ROWS}, 2) == TUTTI_ERR_ARG);
        CHECK_TEXT(tutti_last_error(), "\"table\" has 50 rows, and no row 50");
    }
    tutti_reducer_free(a);
    tutti_reducer_free(b);
    return 0;
}

static int rows_make_sense(tutti_group *group, void *arg)
{
    tutti_reducer_parameter p = parameters[0];
    tutti_reducer *r;

    (void)arg;
    p.rows = 7;
    CHECK(tutti_reducer_new(&r, group, &p, 1, NULL) == TUTTI_ERR_ARG);
    CHECK_TEXT(tutti_last_error(), "has 150 elements, which are not 7 rows");
    p.rows = 0;
    CHECK(tutti_reducer_new(&r, group, &p, 1, NULL) == TUTTI_ERR_ARG);
    CHECK_TEXT(tutti_last_error(), "is sparse and F32 with 0 rows");
    return 0;
}

/* ---- Over a module: an embedding, and a linear layer after it --------------------------------------------------------- */

typedef struct net {
    tutti_module base;
    tutti_embedding words;
    tutti_linear fc;
} net;

typedef struct trainer {
    tutti_ctx *cx;
    net m;
    tutti_ddp *ddp;
    tutti_optim *optim;
} trainer;

static int trainer_new(trainer *t, tutti_group *group, bool sparse, bool find_unused)
{
    tutti_ctx_opts cx_opts = {.threads = 1, .kernels = test_kernels()};
    tutti_ddp_opts opts = {.find_unused = find_unused};

    *t = (trainer){0};
    CHECK_OK(tutti_ctx_new(&t->cx, test_device(), &cx_opts));
    tutti_module_init(&t->m.base, t->cx);
    tutti_embedding_init(&t->m.words, &t->m.base, "words", ROWS, WIDTH, sparse);
    tutti_linear_init(&t->m.fc, &t->m.base, "fc", WIDTH, 4);
    CHECK_OK(tutti_ddp_new(&t->ddp, &t->m.base, group, &opts));
    CHECK_OK(tutti_sgd_new(&t->optim, &t->m.base, &(tutti_sgd_opts){.lr = 0.5f, .momentum = 0.9f}));
    return 0;
}

static void trainer_free(trainer *t)
{
    tutti_optim_free(t->optim);
    tutti_ddp_free(t->ddp);
    tutti_module_destroy(&t->m.base);
    tutti_ctx_free(t->cx);
}

/* Rank and step determine the indices; without `uses` the embedding is not used. */
static tutti_status backward(trainer *t, int rank, int step, bool uses)
{
    const int64_t words[4] = {(rank * 5 + step) % ROWS, 3, 3, (rank + 20) % ROWS},
                  labels[4] = {0, 1, 2, 3};
    const float x[4 * WIDTH] = {1, 2, 3};
    tutti_tensor *y;
    tutti_status status;

    tutti_step_begin(t->cx, NULL);
    if (uses)
        y = tutti_embedding_forward(
            &t->m.words, tutti_input(t->cx, (tutti_array){words, TUTTI_SHAPE(4), TUTTI_I64}));
    else
        y = tutti_input(t->cx, (tutti_array){x, TUTTI_SHAPE(4, WIDTH), TUTTI_F32});
    status = tutti_backward(
        tutti_cross_entropy(tutti_linear_forward(&t->m.fc, y),
                            tutti_input(t->cx, (tutti_array){labels, TUTTI_SHAPE(4), TUTTI_I64})));
    tutti_step_end(t->cx);
    return status;
}

/* Trained sparsely, with accumulation, and with ranks that do not use the embedding, parameters have the bits of dense
 * training; the embedding has its own bucket, of which few bytes are sent. */
static int a_sparse_embedding_trains_as_a_dense_one(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group), size = tutti_group_size(group);
    char digests[2][33];
    trainer t[2];

    (void)arg;
    for (int sparse = 0; sparse < 2; sparse++) {
        CHECK_0(trainer_new(&t[sparse], group, sparse, true));
        for (int step = 0; step < 6; step++) {
            bool uses = step != 4 && !(step == 2 && rank == size - 1 && size > 1);

            tutti_optim_zero_grad(t[sparse].optim);
            if (step % 2) {
                tutti_ddp_pause(t[sparse].ddp);
                CHECK_OK(backward(&t[sparse], rank + 3, step, uses));
                tutti_ddp_resume(t[sparse].ddp);
            }
            CHECK_OK(backward(&t[sparse], rank, step, uses));
            CHECK((tutti_tensor_grad(t[sparse].m.words.weight) != NULL) == (step != 4));
            CHECK_OK(tutti_optim_step(t[sparse].optim));
        }
        tutti_module_digest(&t[sparse].m.base, digests[sparse]);
    }
    CHECK_TEXT(digests[0], digests[1]);
    CHECK(tutti_reducer_n_buckets(tutti_ddp_reducer(t[0].ddp)) == 1);
    CHECK(tutti_reducer_n_buckets(tutti_ddp_reducer(t[1].ddp)) == 2);
    if (size > 1)
        CHECK(tutti_reducer_bucket(tutti_ddp_reducer(t[1].ddp), 1).wire_bytes <
              N * sizeof(float) / 2);
    trainer_free(&t[0]);
    trainer_free(&t[1]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(run_all, sparse_equals_dense),
        TEST(run_one, rows_make_sense),
        TEST(run_all, a_sparse_embedding_trains_as_a_dense_one),
        TEST(run_over_tcp, sparse_equals_dense),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
