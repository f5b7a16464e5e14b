/* ddp: a table that an embedding reads by rows and the head tied to it as a matrix, whose gradient is sent before the rows' part: the
 * bits of gradients that were averaged when all had been computed.   SPDX-License-Identifier: MIT
 * timeout: 120   breadth: 240 */
#include "distributed/ddp_bodies.h"
#include "ddp/ddp.h"
#include "nn/nn.h"
#include <tutti/tutti.h>

#include <math.h>

enum { ROWS = 50, WIDTH = 6, WORDS = 7, HIDDEN = 400, N = ROWS * WIDTH };

/* What a rank's loss reads in a step. */
typedef enum part {
    BOTH,
    HEAD_ONLY,
    ROWS_ONLY,
    NEITHER,
    TWICE,
    PADDED,
    SINGULAR,
    FRONT_LATE /* SINGULAR, and the bucket in front of the table is ready after it */
} part;

typedef struct net {
    tutti_ctx *cx;
    tutti_module base;
    tutti_embedding words;
    tutti_linear in, out, head;
    tutti_tensor *
        front; /* NULL; or a bias of the logits, whose gradient is final before any of the head's */
    tutti_ddp *ddp; /* NULL: alone */
} net;

static int net_new_with(net *m, tutti_group *group, const tutti_ddp_opts *opts, bool front)
{
    memset(m, 0, sizeof *m);
    CHECK_OK(tutti_ctx_new(&m->cx, (tutti_device){TUTTI_CPU, 0}, &(tutti_ctx_opts){.threads = 1}));
    tutti_module_init(&m->base, m->cx);
    tutti_embedding_init(&m->words, &m->base, "words", ROWS, WIDTH, false);
    tutti_linear_init(&m->in, &m->base, "in", WIDTH, HIDDEN);
    tutti_linear_init(&m->out, &m->base, "out", HIDDEN, WIDTH);
    tutti_linear_init_with(&m->head, &m->base, "head",
                           &(tutti_linear_layer_opts){.in = WIDTH, .out = ROWS, .no_bias = true});
    tutti_parameter_tie(&m->head.weight, m->words.weight);
    if (front)
        m->front = tutti_parameter_new(&m->base, "front", TUTTI_SHAPE(ROWS), TUTTI_INIT_ZEROS, 0);
    CHECK_OK(tutti_module_status(&m->base));
    if (group)
        CHECK_OK(tutti_ddp_new(&m->ddp, &m->base, group, opts));
    return 0;
}

static int net_new(net *m, tutti_group *group, const tutti_ddp_opts *opts)
{
    return net_new_with(m, group, opts, false);
}

static void net_free(net *m)
{
    tutti_ddp_free(m->ddp);
    tutti_module_destroy(&m->base);
    tutti_ctx_free(m->cx);
}

/* Ranks have words in common, and each some of its own; word 3 comes twice. */
static void words_of(int rank, int step, int64_t words[WORDS])
{
    const int64_t all[WORDS] = {3, (rank * 11 + step) % ROWS, 3, ROWS - 1 - rank, step, 8, 9};

    memcpy(words, all, sizeof all);
}

static tutti_tensor *vectors(net *m, const int64_t *words, part what)
{
    static const float x[WORDS * WIDTH] = {1, 2, 3};
    tutti_tensor *w = tutti_input(m->cx, (tutti_array){words, TUTTI_SHAPE(WORDS), TUTTI_I64});
    tutti_tensor *y;

    if (what == HEAD_ONLY || what == NEITHER)
        return tutti_input(m->cx, (tutti_array){x, TUTTI_SHAPE(WORDS, WIDTH), TUTTI_F32});
    if (what == PADDED)
        return tutti_functional_embedding_with(
            m->words.weight, w, &(tutti_embedding_opts){.has_padding_idx = true, .padding_idx = 3});
    y = tutti_embedding_forward(&m->words, w);
    if (what == SINGULAR || what == FRONT_LATE) /* 0, with an infinite derivative */
        return tutti_sqrt(tutti_scale(y, 0));
    return what == TWICE ? tutti_add(y, tutti_embedding_forward(&m->words, w)) : y;
}

static tutti_status backward(net *m, int rank, int step, part what)
{
    int64_t words[WORDS], next[WORDS];
    tutti_tensor *y, *first = NULL;
    tutti_status status;

    words_of(rank, step, words);
    words_of(rank, step + 1, next);
    tutti_step_begin(m->cx, NULL);
    if (what == FRONT_LATE) /* before the embedding: backward comes to it after that */
        first = tutti_mean(m->front);
    y = vectors(m, words, what);
    y = tutti_tanh(tutti_linear_forward(&m->in, first ? tutti_add(y, first) : y));
    y = tutti_tanh(tutti_linear_forward(&m->out, y));
    if (what == ROWS_ONLY || what == NEITHER)
        status = tutti_backward(tutti_mean(tutti_mul(y, y)));
    else {
        y = tutti_linear_forward(&m->head, y);
        status = tutti_backward(tutti_cross_entropy(
            m->front && !first ? tutti_add(y, m->front) : y,
            tutti_input(m->cx, (tutti_array){next, TUTTI_SHAPE(WORDS), TUTTI_I64})));
    }
    tutti_step_end(m->cx);
    return status;
}

static _Thread_local float gradients[2][HIDDEN * WIDTH];

/* The gradient of a parameter: of the rank alone, averaged here; and DDP's. Both have the same bits. */
static int same_gradient(tutti_group *group, net *alone, net *averaged, size_t i)
{
    tutti_tensor *p = tutti_module_parameter(&alone->base, i);
    tutti_tensor *q = tutti_module_parameter(&averaged->base, i);
    const size_t n = (size_t)tutti_shape_count(tutti_tensor_shape(p));
    bool any = tutti_tensor_grad(p) != NULL;

    memset(gradients, 0, sizeof gradients);
    if (any)
        CHECK_OK(tutti_tensor_grad_read(p, gradients[0]));
    CHECK_OK(tutti_all_reduce(group, TUTTI_BUF(gradients[0], n, TUTTI_F32), TUTTI_AVG, NULL));
    if (tutti_tensor_grad(q))
        CHECK_OK(tutti_tensor_grad_read(q, gradients[1]));
    CHECK(memcmp(gradients[0], gradients[1], n * sizeof(float)) == 0);
    return 0;
}

static int compare(tutti_group *group, net m[2], int paused, int step, part what)
{
    const int rank = tutti_group_rank(group);

    for (int k = 0; k < 2; k++) {
        tutti_module_zero_grad(&m[k].base);
        if (paused && m[k].ddp)
            tutti_ddp_pause(m[k].ddp);
        for (int i = 0; i < paused; i++)
            CHECK_OK(backward(&m[k], rank + 5, step + i, BOTH));
        if (paused && m[k].ddp)
            tutti_ddp_resume(m[k].ddp);
        CHECK_OK(backward(&m[k], rank, step, what));
    }
    for (size_t i = 0; i < tutti_module_n_parameters(&m[0].base); i++)
        CHECK_0(same_gradient(group, &m[0], &m[1], i));
    return 0;
}

static int pair_new(net m[2], tutti_group *group, const tutti_ddp_opts *opts)
{
    CHECK_0(net_new(&m[0], NULL, NULL));
    return net_new(&m[1], group, opts);
}

static int end(net m[2])
{
    net_free(&m[0]);
    net_free(&m[1]);
    return 0;
}

/* Also with several embeddings of the table, a row without a gradient, and accumulated batches. */
static int means_have_the_same_bits(tutti_group *group, void *arg)
{
    net m[2];

    (void)arg;
    CHECK_0(pair_new(m, group, NULL));
    for (int step = 0; step < 8; step++)
        CHECK_0(compare(group, m, step % 3, step, step == 3 ? TWICE : step == 5 ? PADDED : BOTH));
    return end(m);
}

/* Each rank reads the table in its own way; in the first step, too, on which the buckets depend. */
static int ranks_may_differ(tutti_group *group, void *arg)
{
    static const part parts[] = {BOTH, HEAD_ONLY, ROWS_ONLY, NEITHER, TWICE};
    const int rank = tutti_group_rank(group);

    (void)arg;
    for (int first = 0; first < 3; first++) {
        net m[2];

        CHECK_0(pair_new(m, group, &(tutti_ddp_opts){.find_unused = true}));
        for (int step = 0; step < 6; step++)
            CHECK_0(compare(group, m, 0, step, parts[(rank * 2 + step + first) % 5]));
        CHECK_0(end(m));
    }
    return 0;
}

/* The table is the first bucket, though its gradient is the last to be final. */
static int the_table_is_sent_first(tutti_group *group, void *arg)
{
    const tutti_reducer *r;
    tutti_bucket_info info;
    net m;

    (void)arg;
    CHECK_0(net_new(&m, group, &(tutti_ddp_opts){.bucket_mb = 0.001, .first_bucket_mb = 0.001}));
    CHECK_OK(backward(&m, tutti_group_rank(group), 0, BOTH));
    r = tutti_ddp_reducer(m.ddp);
    info = tutti_reducer_bucket(r, 0);
    if (tutti_group_size(group) > 1) {
        CHECK_TEXT(tutti_reducer_name(r, tutti_reducer_at(r, 0)), "words.weight");
        CHECK(info.n == 1 && info.bytes == N * sizeof(float));
        CHECK(info.ready_ms <= tutti_reducer_bucket(r, 1).ready_ms);
    } else
        CHECK_TEXT(
            tutti_reducer_name(r, tutti_reducer_at(r, tutti_module_n_parameters(&m.base) - 1)),
            "words.weight");
    net_free(&m);
    return 0;
}

/* Ranks that have no more inputs bring zeros for both parts. */
static int uneven_inputs(tutti_group *group, void *arg)
{
    const int rank = tutti_group_rank(group), size = tutti_group_size(group);

    (void)arg;
    for (int divide = 0; divide < 2; divide++) {
        const tutti_join_opts opts = {.divide_by_present = divide == 1};
        tutti_optim *optim;
        tutti_join *join;
        net m;

        CHECK_0(net_new(&m, group, NULL));
        CHECK_OK(tutti_sgd_new(&optim, &m.base, &(tutti_sgd_opts){.lr = 0.1f}));
        CHECK_OK(tutti_join_begin(&join, &m.ddp, 1, &opts));
        for (int step = 0; step < 2 + rank; step++) {
            tutti_optim_zero_grad(optim);
            CHECK_OK(backward(&m, rank, step, BOTH));
            if (rank == size - 1 && step == size && size > 1) { /* alone: its gradient, divided */
                net alone;
                float g[N], h[N];

                CHECK_0(net_new(&alone, NULL, NULL));
                for (size_t i = 0; i < tutti_module_n_parameters(&m.base); i++) {
                    static _Thread_local float values[HIDDEN * WIDTH];

                    CHECK_OK(tutti_tensor_read(tutti_module_parameter(&m.base, i), values));
                    CHECK_OK(tutti_tensor_write(tutti_module_parameter(&alone.base, i), values));
                }
                CHECK_OK(backward(&alone, rank, step, BOTH));
                CHECK_OK(tutti_tensor_grad_read(alone.words.weight, g));
                CHECK_OK(tutti_tensor_grad_read(m.words.weight, h));
                for (int i = 0; i < N; i++)
                    CHECK(g[i] / (float)(divide ? 1 : size) == h[i]);
                net_free(&alone);
            }
            CHECK_OK(tutti_optim_step(optim));
        }
        CHECK_OK(tutti_join_end(join));
        tutti_join_free(join);
        CHECK_0(check_equal_on_all_ranks(group, &m.base));
        tutti_optim_free(optim);
        net_free(&m);
    }
    return 0;
}

/* Only the embedding's part of rank 0's second step has a NaN: it is found before it is averaged. */
static int name_nan(tutti_group *group, bool front)
{
    const tutti_ddp_opts opts = {
        .nonfinite = TUTTI_NONFINITE_ERROR, .bucket_mb = 0.001, .first_bucket_mb = 0.0001};
    const part singular = front ? FRONT_LATE : SINGULAR;
    const tutti_reducer *r;
    net m;

    CHECK_0(net_new_with(&m, group, &opts, front));
    CHECK_OK(backward(&m, tutti_group_rank(group), 0, BOTH));
    r = tutti_ddp_reducer(m.ddp);
    CHECK_TEXT(tutti_reducer_name(r, tutti_reducer_at(r, 0)), front ? "front" : "words.weight");
    tutti_module_zero_grad(&m.base);
    CHECK(backward(&m, tutti_group_rank(group), 1, tutti_group_rank(group) ? BOTH : singular) !=
          TUTTI_OK);
    CHECK_TEXT(tutti_last_error(),
               "the gradient of \"words.weight\" has NaN or infinities on rank 0");
    net_free(&m);
    return 0;
}

static int a_nan_in_late_rows_is_named(tutti_group *group, void *arg)
{
    (void)arg;
    return name_nan(group, false);
}

/* The table waits for the bucket in front of it, so that its rows are added to its own gradient. */
static int a_nan_in_rows_of_a_waiting_table_is_named(tutti_group *group, void *arg)
{
    (void)arg;
    return name_nan(group, true);
}

/* With the optimizer's state divided over ranks: the bits of training without. */
static int zero_has_the_same_bits(tutti_group *group, void *arg)
{
    char digests[3][33];

    (void)arg;
    for (int k = 0; k < 3; k++) {
        tutti_optim *optim;
        net m;

        CHECK_0(net_new(&m, group, &(tutti_ddp_opts){.zero = k}));
        CHECK_OK(tutti_adamw_new(&optim, &m.base, &(tutti_adam_opts){.lr = 0.01f}));
        for (int step = 0; step < 5; step++) {
            tutti_optim_zero_grad(optim);
            CHECK_OK(backward(&m, tutti_group_rank(group), step, step == 2 ? TWICE : BOTH));
            CHECK_OK(tutti_optim_step(optim));
        }
        tutti_module_digest(&m.base, digests[k]);
        tutti_optim_free(optim);
        net_free(&m);
    }
    CHECK_TEXT(digests[0], digests[1]);
    CHECK_TEXT(digests[0], digests[2]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(run_all, means_have_the_same_bits),
        TEST(run_all, ranks_may_differ),
        TEST(run_all, the_table_is_sent_first),
        TEST(run_all, uneven_inputs),
        TEST(run_all, zero_has_the_same_bits),
        TEST(run_over_tcp, means_have_the_same_bits),
        TEST(run_over_tcp, ranks_may_differ),
        TEST(run_two, a_nan_in_late_rows_is_named),
        TEST(run_two, a_nan_in_rows_of_a_waiting_table_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
