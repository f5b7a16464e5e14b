/* ddp: steps over logical shards. The resulting parameters and buffers have the same bits on any number of ranks, whichever
 * rank computes which shard; and equal those of plain DDP on as many ranks as shards, within rounding.   SPDX-License-Identifier: MIT
 * timeout: 120   breadth: 240
 * devices: strict cuda nccl:long */
#include "distributed/ddp_trainer.h"
#include "ddp/ddp.h"
#include "harness/memory.h"
#include "nn/nn.h"
#include "tensor/tensor.h"

enum { SIDE = 4, CHANNELS = 6, CLASSES = 5, BATCH = 3, V = 8, STEPS = 4, PIXELS = SIDE * SIDE };

/* ---- A model with batch norm, dropout and a branch that a shard may leave out ------------------------------- */

typedef struct net {
    tutti_module base;
    tutti_conv2d conv;
    tutti_batch_norm2d norm;
    tutti_linear side, last;
    bool takes_side;
} net;

static void net_init(tutti_module *m, const tutti_model_opts *opts)
{
    net *n = (net *)m;

    (void)opts;
    tutti_conv2d_init(
        &n->conv, m, "conv",
        &(tutti_conv2d_layer_opts){.in = 1, .out = CHANNELS, .kernel = 3, .padding = 1});
    tutti_batch_norm2d_init(&n->norm, m, "norm", CHANNELS);
    tutti_linear_init(&n->side, m, "side", CHANNELS * PIXELS, CHANNELS * PIXELS);
    tutti_linear_init(&n->last, m, "last", CHANNELS * PIXELS, CLASSES);
}

static tutti_tensor *net_forward(tutti_module *m, tutti_tensor *x)
{
    net *n = (net *)m;

    x = tutti_batch_norm2d_relu_forward(&n->norm, tutti_conv2d_forward(&n->conv, x), NULL);
    x = tutti_flatten(x);
    if (n->takes_side)
        x = tutti_linear_forward(&n->side, x);
    return tutti_linear_forward(&n->last, tutti_dropout(x, 0.25f));
}

static const tutti_model_kind kind = {
    .name = "net", .bytes = sizeof(net), .init = net_init, .forward = net_forward};

/* How a network is trained. */
typedef struct variant {
    int batches;        /* of a shard */
    uint32_t seed;      /* of the assignment of shards; 0: rank r every r-th */
    bool late;          /* passes `last` one shard too early */
    float clip, growth; /* growth: of the loss in step 2 */
    bool adam;
    int zero, copies;
} variant;

static int trainer_new_by(trainer *t, tutti_group *group, const tutti_ddp_opts *opts,
                          const variant *w)
{
    const tutti_ctx_opts cx_opts = {.seed = 3, .threads = 1, .kernels = test_kernels()};
    tutti_ddp_opts own = opts ? *opts : (tutti_ddp_opts){0};

    *t = (trainer){0};
    CHECK_OK(tutti_ctx_new(&t->cx, test_device(), &cx_opts));
    CHECK_OK(tutti_model_new(
        &t->model, t->cx, "net",
        &(tutti_model_opts){
            .channels = 1, .height = SIDE, .width = SIDE, .classes = CLASSES, .kind = &kind}));
    t->module = tutti_model_module(t->model);
    ((net *)t->module)->takes_side = true;
    own.zero = w->zero;
    own.shard_copies = w->copies;
    CHECK_OK(tutti_ddp_new(&t->ddp, t->module, group, &own));
    if (w->adam)
        CHECK_OK(tutti_adam_new(&t->optim, t->module, &(tutti_adam_opts){.lr = 0.01f}));
    else
        CHECK_OK(
            tutti_sgd_new(&t->optim, t->module, &(tutti_sgd_opts){.lr = 0.1f, .momentum = 0.9f}));
    return 0;
}

static int trainer_new(trainer *t, tutti_group *group, const tutti_ddp_opts *opts)
{
    return trainer_new_by(t, group, opts, &(variant){0});
}

/* Batch k of a shard in a step. */
static int backward(trainer *t, int step, int shard, int k, float weight)
{
    float x[BATCH * PIXELS];
    int64_t y[BATCH];
    tutti_array images = {x, TUTTI_SHAPE(BATCH, 1, SIDE, SIDE), TUTTI_F32},
                labels = {y, TUTTI_SHAPE(BATCH), TUTTI_I64};

    for (uint32_t i = 0; i < BATCH * PIXELS; i++) {
        uint32_t out[4];

        tutti__philox(
            11, (tutti__philox_counter){{(uint32_t)step, (uint32_t)shard, (uint32_t)k, i}}, out);
        x[i] = 2 * tutti__unit_float(out[0]) - 1;
        y[i % BATCH] = (int64_t)(out[1] % CLASSES);
    }
    tutti_step_begin(t->cx, NULL);
    CHECK_OK(tutti_backward(
        tutti_scale(tutti_cross_entropy(tutti_model_forward(t->model, tutti_input(t->cx, images)),
                                        tutti_input(t->cx, labels)),
                    weight)));
    tutti_step_end(t->cx);
    return 0;
}

static int owner(const variant *w, int step, int shard, int size)
{
    uint32_t out[4];

    tutti__philox(w->seed, (tutti__philox_counter){{(uint32_t)step, (uint32_t)shard, 0, 0}}, out);
    return (int)(w->seed ? out[0] % (uint32_t)size : (uint32_t)shard % (uint32_t)size);
}

static int shard_of(trainer *t, const variant *w, int step, int shard, bool last)
{
    const float growth = w->growth > 0 && step == 2 ? w->growth : 1;

    CHECK_OK(tutti_ddp_begin_shard(t->ddp, shard, last));
    tutti_module_zero_grad(t->module);
    for (int k = 0; k < w->batches; k++) {
        if (k + 1 < w->batches)
            tutti_ddp_pause(t->ddp);
        else
            tutti_ddp_resume(t->ddp);
        CHECK_0(backward(t, step, shard, k, growth / (float)w->batches));
    }
    return 0;
}

/* Counts attempts. */
static int run_step(trainer *t, tutti_group *group, const variant *w, int step, int *attempts_p)
{
    const int size = tutti_group_size(group), rank = tutti_group_rank(group);
    bool again = true;
    float norm;

    while (again) {
        int left = 0;

        ++*attempts_p;
        for (int v = 0; v < V; v++)
            left += owner(w, step, v, size) == rank;
        left -= w->late && left > 1;
        CHECK_OK(tutti_ddp_begin_step(t->ddp));
        for (int k = 0; k < V; k++) {
            const int v = (k * 3 + rank) % V;

            if (owner(w, step, v, size) == rank)
                CHECK_0(shard_of(t, w, step, v, --left == 0));
        }
        CHECK_OK(tutti_ddp_finish_step(t->ddp, &again));
        CHECK(tutti_ctx_step(t->cx) == (uint64_t)(w->batches * (step + !again)));
    }
    if (w->clip > 0)
        CHECK_OK(tutti_clip_grad_norm(t->module, w->clip, &norm));
    CHECK_OK(tutti_optim_step(t->optim));
    return 0;
}

/* A digest of the optimizer's state, all of which this rank has. */
static int state_digest(const trainer *t, char digest[33])
{
    uint64_t hash = 0;

    for (size_t i = 0; i < tutti_module_n_parameters(t->module); i++) {
        const tutti_tensor *p = tutti_module_parameter(t->module, i);
        const size_t bytes = tutti__tensor_bytes(p);
        float *values = tutti__alloc(bytes);

        CHECK(values != NULL);
        for (size_t k = 0; tutti_optim_state_name(t->optim, k); k++) {
            CHECK_OK(tutti_optim_state_read(t->optim, k, p, values));
            hash = hash * 31 + tutti__hash64(values, bytes);
        }
        hash = hash * 31 + tutti_optim_updates(t->optim, p);
        free(values);
    }
    snprintf(digest, 33, "%016llx", (unsigned long long)hash);
    return 0;
}

static int train(tutti_group *group, const tutti_ddp_opts *opts, const variant *w, char digest[33],
                 int *attempts_p)
{
    tutti_ddp_stats stats;
    trainer t;

    *attempts_p = 0;
    CHECK_0(trainer_new_by(&t, group, opts, w));
    for (int step = 0; step < STEPS; step++)
        CHECK_0(run_step(&t, group, w, step, attempts_p));
    CHECK_0(check_equal_on_all_ranks(group, t.module));
    CHECK_OK(tutti_ddp_check_replicas(t.ddp));
    stats = tutti_ddp_get_stats(t.ddp);
    CHECK(stats.steps == STEPS && stats.n_buckets > 0 && !stats.broadcast_buffers);
    CHECK(stats.traffic.gradient_bytes > 0 && stats.mean.exposed_ms > 0);
    CHECK(tutti_group_size(group) == 1 ||
          stats.traffic.wire_bytes >=
              stats.traffic.gradient_bytes * (opts->wire_bits == 32 ? 1 : 2));
    tutti_module_digest(t.module, digest);
    trainer_free(&t);
    return 0;
}

/* ---- Laws ---------------------------------------------------------------------------------------------------- */

/* What rank 0 has found alone, for all: computed by each of n ranks it would be most of the test's time. */
typedef struct alone {
    char digest[33], state[33];
    int attempts;
    uint64_t bytes; /* of the optimizer's state */
} alone;

static int share(tutti_group *group, alone *found)
{
    CHECK_OK(tutti_broadcast(group, TUTTI_BUF(found, sizeof *found, TUTTI_U8), 0, NULL));
    return 0;
}

/* One rank alone has the same result as all together. */
static int ranks_change_no_bit(tutti_group *group, void *arg)
{
    static const variant variants[] = {{.batches = 1},
                                       {.batches = 1, .seed = 7},
                                       {.batches = 1, .seed = 8, .late = true},
                                       {.batches = 2, .seed = 9, .clip = 0.1f},
                                       {.batches = 1, .seed = 9, .clip = 1, .growth = 0x1p20f}};
    static const tutti_ddp_opts opts[] = {
        {.shards = V},
        {.shards = V, .bucket_mb = 1e-3, .first_bucket_mb = 1e-3},
        {.shards = V, .find_unused = true, .bucket_mb = TUTTI_ZERO, .check_replicas = 2},
        {.shards = V, .wire_bits = 32}};
    const size_t n = TUTTI__COUNT_OF(variants), n_opts = TUTTI__COUNT_OF(opts);
    alone found[TUTTI__COUNT_OF(variants)][2] = {0}; /* with 64 and 32 bits on the wire */
    tutti_group *self;

    (void)arg;
    CHECK_OK(tutti_group_split_by(group, tutti_group_rank(group), 0, "self", &self));
    for (size_t k = 0; k < n * n_opts; k++) {
        const variant *w = &variants[k % n],
                      one = {.batches = w->batches, .clip = w->clip, .growth = w->growth};
        const size_t o = k % n_opts;
        alone *by_one = &found[k % n][o == 3];
        char digest[33];
        int attempts;

        if (!by_one->digest[0] && tutti_group_rank(group) == 0)
            CHECK_0(
                train(self, o == 3 ? &opts[3] : &opts[0], &one, by_one->digest, &by_one->attempts));
        CHECK_0(share(group, by_one));
        CHECK_0(train(group, &opts[o], w, digest, &attempts));
        CHECK_TEXT(digest, by_one->digest);
        CHECK(attempts == by_one->attempts);
        CHECK(o == 3 || attempts == STEPS + (w->growth > 0));
    }
    tutti_group_free(self);
    return 0;
}

/* With sharded optimizer state and gradients, too: parameters, norm, and the gathered state have the same bits. */
static int shares_change_no_bit(tutti_group *group, void *arg)
{
    static const tutti_ddp_opts opts[] = {
        {.shards = V},
        {.shards = V, .bucket_mb = 1e-3, .first_bucket_mb = 1e-3},
        {.shards = V, .find_unused = true, .bucket_mb = TUTTI_ZERO, .check_replicas = 2},
        {.shards = V, .bucket_mb = 1e-3, .wire_bits = 32}};
    static const variant variants[] = {
        {.batches = 1, .seed = 7, .clip = 0.5f, .zero = 1},
        {.batches = 1, .seed = 7, .clip = 0.5f, .zero = 1, .adam = true, .copies = 2},
        {.batches = 2, .seed = 7, .clip = 0.5f, .zero = 2, .growth = 0x1p20f},
        {.batches = 1, .seed = 7, .clip = 0.5f, .zero = 2, .adam = true, .late = true},
        {.batches = 2, .seed = 8, .clip = 0.5f, .zero = 2, .copies = 2, .late = true},
        {.batches = 1, .clip = 0.5f, .zero = 2, .adam = true, .copies = 2, .growth = 0x1p20f},
        {.batches = 1, .seed = 7, .clip = 0.5f, .zero = 3, .adam = true, .late = true},
        {.batches = 2, .seed = 8, .clip = 0.5f, .zero = 3, .copies = 2, .growth = 0x1p20f}};
    const size_t size = (size_t)tutti_group_size(group);
    const int rank = tutti_group_rank(group), last = (int)size - 1;
    tutti_group *self;

    (void)arg;
    CHECK_OK(tutti_group_split_by(group, rank, 0, "self", &self));
    for (size_t k = 0; k < TUTTI__COUNT_OF(variants) * TUTTI__COUNT_OF(opts); k++) {
        const variant *shared = &variants[k / TUTTI__COUNT_OF(opts)];
        const size_t o = k % TUTTI__COUNT_OF(opts);
        variant one = *shared;
        alone found = {.attempts = 0};
        char digest[33];
        int attempts = 0;
        size_t most;
        trainer a, b;

        if (shared->zero >= 2 && test_device().kind != TUTTI_CPU)
            continue;
        one.zero = one.copies = 0;
        one.seed = 0;
        one.late = false;
        if (rank == 0)
            CHECK_0(trainer_new_by(&a, self, o == 3 ? &opts[3] : &opts[0], &one));
        CHECK_0(trainer_new_by(&b, group, &opts[o], shared));
        for (int step = 0; step < STEPS; step++) {
            if (rank == 0) {
                CHECK_0(run_step(&a, self, &one, step, &found.attempts));
                tutti_module_digest(a.module, found.digest);
                found.bytes = tutti_optim_state_bytes(a.optim);
                CHECK_0(state_digest(&a, found.state));
            }
            CHECK_0(share(group, &found));
            CHECK_0(run_step(&b, group, shared, step, &attempts));
            CHECK(attempts == found.attempts);
            tutti_module_digest(b.module, digest);
            CHECK_TEXT(digest, found.digest);
        }
        most = (shared->copies && size > 1 ? 2 : 1) * found.bytes / size;
        CHECK(tutti_optim_state_bytes(b.optim) >= found.bytes / size);
        CHECK(size == 1 || tutti_optim_state_bytes(b.optim) < most + found.bytes / 4);
        CHECK(shared->zero < 2 || size == 1 ||
              tutti_zero_get_stats(tutti_ddp_zero(b.ddp)).gradient_bytes <
                  most / (shared->adam ? 2 : 1) + found.bytes / 4);
        CHECK_OK(tutti_zero_consolidate(tutti_ddp_zero(b.ddp), b.optim, last));
        if (rank == last) {
            CHECK_0(state_digest(&b, digest));
            CHECK_TEXT(digest, found.state);
        }
        if (rank == 0)
            trainer_free(&a);
        trainer_free(&b);
    }
    tutti_group_free(self);
    return 0;
}

/* Pages of gradients, and with stage 3 of parameters: within a shard those of a few buckets; after the step those of this rank's share
 * (and the copy), and at most six of each bucket, in which its parts begin or end. */
static int each_rank_holds_its_share(tutti_group *group, void *arg)
{
    const size_t size = (size_t)tutti_group_size(group), page = (size_t)sysconf(_SC_PAGESIZE);
    const tutti_ddp_opts opts = {.shards = V, .bucket_mb = 1.0 / 32, .first_bucket_mb = 1.0 / 32};

    (void)arg;
    if (test_device().kind != TUTTI_CPU)
        return 0;
    for (int k = 0; k < 4; k++) {
        const int copies = 1 + k % 2;
        const variant w = {.batches = 1, .zero = 2 + k / 2, .copies = copies};
        const size_t shares = size < (size_t)copies ? 1 : (size_t)copies;
        const struct tutti_root *root;
        tutti_group *own;
        int attempts = 0;
        size_t whole;
        char key[64];
        trainer t;

        CHECK_OK(tutti_group_split_by(group, 0, tutti_group_rank(group), "own", &own));
        CHECK_0(trainer_new_by(&t, own, &opts, &w));
        root = t.module->root;
        whole = root->n_flat * sizeof(float);
        for (int step = 0; step < 2; step++) {
            CHECK_0(run_step(&t, own, &w, step, &attempts));
            CHECK(test_resident(root->flat_gradients, whole) <=
                  whole * shares / size + 6 * page * tutti_ddp_get_stats(t.ddp).n_buckets);
            CHECK(w.zero < 3 ||
                  test_resident(root->flat_parameters, whole) <=
                      whole * shares / size + 6 * page * tutti_ddp_get_stats(t.ddp).n_buckets);
        }
        CHECK_OK(tutti_ddp_begin_step(t.ddp));
        CHECK_0(shard_of(&t, &w, 2, tutti_group_rank(group), false));
        CHECK(test_resident(root->flat_gradients, whole) <=
              2 * page * tutti_ddp_get_stats(t.ddp).n_buckets);
        snprintf(key, sizeof key, "all have computed a shard of variant %d", k);
        CHECK_OK(tutti_meet(group, key));
        CHECK_OK(tutti_ddp_regroup(t.ddp, NULL)); /* which ends the group, in a step */
        trainer_free(&t);
        tutti_group_free(own);
    }
    return 0;
}

/* A shard's infinity: all of the mean is NaN, on all ranks, whichever has which share. */
static int infinities_reach_all_shares(tutti_group *group, void *arg)
{
    const variant plain = {.batches = 1, .growth = INFINITY}, *w = &plain;
    variant shared = plain;
    char digest[33], expected[33];
    int attempts;

    (void)arg;
    if (test_device().kind != TUTTI_CPU)
        return 0;
    shared.zero = shared.copies = 2;
    CHECK_0(train(group, &(tutti_ddp_opts){.shards = V, .nonfinite = TUTTI_NONFINITE_IGNORE}, w,
                  expected, &attempts));
    CHECK_0(train(group, &(tutti_ddp_opts){.shards = V, .nonfinite = TUTTI_NONFINITE_IGNORE},
                  &shared, digest, &attempts));
    CHECK_TEXT(digest, expected);
    return 0;
}

static double largest_difference(const tutti_module *a, const tutti_module *b)
{
    double largest = 0;

    for (size_t i = 0; i < tutti_module_n_state(a); i++) {
        const tutti_tensor *p = tutti_module_state(a, i), *q = tutti_module_state(b, i);
        const float *a_values = test_values(p), *b_values = test_values(q);

        for (int64_t k = 0; k < tutti_shape_count(p->shape) && p->dtype == TUTTI_F32; k++)
            largest = fmax(largest, fabs((double)a_values[k] - (double)b_values[k]));
    }
    return largest;
}

/* V shards equal V ranks, within rounding, except for running statistics, of which plain DDP takes rank 0's. */
static int shards_are_ranks(tutti_group *group, void *arg)
{
    const int rank = tutti_group_rank(group);
    const tutti_ddp_opts opts = {.shards = tutti_group_size(group)};
    trainer plain, sharded;

    (void)arg;
    CHECK_0(trainer_new(&plain, group, NULL));
    CHECK_0(trainer_new(&sharded, group, &opts));
    for (int step = 0; step < STEPS; step++) {
        bool again;

        tutti_module_zero_grad(plain.module);
        CHECK_0(backward(&plain, step, rank, 0, 1));
        CHECK_OK(tutti_optim_step(plain.optim));
        CHECK_OK(tutti_ddp_begin_step(sharded.ddp));
        CHECK_0(shard_of(&sharded, &(variant){.batches = 1}, step, rank, true));
        CHECK_OK(tutti_ddp_finish_step(sharded.ddp, &again));
        CHECK(!again);
        CHECK_OK(tutti_optim_step(sharded.optim));
    }
    CHECK_OK(tutti_ddp_broadcast_buffers(plain.ddp));
    for (size_t i = 0; i < tutti_module_n_buffers(plain.module); i++) {
        tutti_tensor *to = tutti_module_buffer(plain.module, i),
                     *from = tutti_module_buffer(sharded.module, i);

        CHECK_OK(tutti__copy(plain.cx->stream, to->data, from->data, tutti__tensor_bytes(to)));
    }
    CHECK(largest_difference(plain.module, sharded.module) <= 1e-5);
    trainer_free(&plain);
    trainer_free(&sharded);
    return 0;
}

/* A part of the model that no shard uses is unchanged; one that some use gets the mean over all, on all ranks. */
static int unused_parameters_wait(tutti_group *group, void *arg)
{
    const int size = tutti_group_size(group), rank = tutti_group_rank(group);
    tutti_ddp_opts opts = {.shards = V, .find_unused = true};
    char before[33], after[33];
    trainer t;

    (void)arg;
    CHECK_0(trainer_new(&t, group, &opts));
    tutti_module_digest(&((net *)t.module)->side.base, before);
    for (int step = 0; step < 3; step++) {
        bool again;

        CHECK_OK(tutti_ddp_begin_step(t.ddp));
        for (int v = rank; v < V; v += size) {
            ((net *)t.module)->takes_side = step == 1 && v == 5;
            CHECK_0(shard_of(&t, &(variant){.batches = 1}, step, v, v + size >= V));
        }
        CHECK_OK(tutti_ddp_finish_step(t.ddp, &again));
        CHECK((tutti_tensor_grad(((net *)t.module)->side.weight) != NULL) == (step == 1));
        CHECK_OK(tutti_optim_step(t.optim));
        CHECK_0(check_equal_on_all_ranks(group, t.module));
        tutti_module_digest(&((net *)t.module)->side.base, after);
        CHECK((strcmp(before, after) == 0) == (step == 0));
        memcpy(before, after, sizeof before);
        if (step == 1)
            before[0] ^= 1; /* its momentum is not used in the third */
        if (step == 2)
            break;
    }
    trainer_free(&t);
    return 0;
}

/* Leaving a group in the middle of a step, and entering another: buffers and counts are those of the step's beginning. */
static int goes_on_in_another_group(tutti_group *group, void *arg)
{
    const int size = tutti_group_size(group), rank = tutti_group_rank(group);
    const variant w = {.batches = 1};
    char digest[33], expected[33];
    int ranks[8], attempts = 0;
    tutti_group *first, *second;
    trainer t;

    (void)arg;
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    CHECK_0(train(group, &(tutti_ddp_opts){.shards = V}, &w, expected, &attempts));
    CHECK_OK(tutti_group_split(group, ranks, size, "first", &first));
    CHECK_OK(tutti_group_split(group, ranks, size - 1, "second", &second));
    CHECK_0(trainer_new(&t, NULL, &(tutti_ddp_opts){.shards = V}));
    CHECK(tutti_ddp_reducer(t.ddp) && tutti_reducer_ranges(tutti_ddp_reducer(t.ddp)));
    CHECK(tutti_ddp_begin_step(t.ddp) == TUTTI_ERR_STATE);
    CHECK_OK(tutti_ddp_regroup(t.ddp, first));
    CHECK_0(run_step(&t, first, &w, 0, &attempts));
    CHECK_OK(tutti_meet(group, "one step is done"));
    CHECK_OK(tutti_ddp_begin_step(t.ddp));
    CHECK_OK(tutti_ddp_begin_shard(t.ddp, rank, false));
    tutti_module_zero_grad(t.module);
    CHECK_0(backward(&t, 1, rank, 0, 1));
    if (rank == size - 1) {
        CHECK_OK(tutti_ddp_regroup(t.ddp, NULL));
    } else {
        bool again;

        CHECK(tutti_ddp_finish_step(t.ddp, &again) == TUTTI_ERR_ABORTED);
        CHECK_OK(tutti_ddp_regroup(t.ddp, second));
        for (int step = 1; step < STEPS; step++)
            CHECK_0(run_step(&t, second, &w, step, &attempts));
        tutti_module_digest(t.module, digest);
        CHECK_TEXT(digest, expected);
        CHECK_OK(tutti_ddp_regroup(t.ddp, NULL));
    }
    tutti_group_free(first);
    tutti_group_free(second);
    trainer_free(&t);
    return 0;
}

/* Gathered state is sharded again in another group; state that was not gathered is dropped. */
static int shares_follow(tutti_group *group, int zero)
{
    const int size = tutti_group_size(group), rank = tutti_group_rank(group);
    const variant w = {.batches = 1, .adam = true},
                  shared = {.batches = 1, .adam = true, .zero = zero};
    char digest[33], expected[33];
    int ranks[8], attempts = 0;
    tutti_group *fewer;
    trainer t;

    for (int i = 0; i < size; i++)
        ranks[i] = i;
    CHECK_0(train(group, &(tutti_ddp_opts){.shards = V}, &w, expected, &attempts));
    CHECK_OK(tutti_group_split(group, ranks, size - 1, "fewer", &fewer));
    CHECK_0(trainer_new_by(&t, NULL, &(tutti_ddp_opts){.shards = V}, &shared));
    CHECK(tutti_optim_step(t.optim) == TUTTI_ERR_STATE);
    CHECK_TEXT(tutti_last_error(), "in no group");
    CHECK_OK(tutti_ddp_regroup(t.ddp, group));
    for (int step = 0; step < 2; step++)
        CHECK_0(run_step(&t, group, &shared, step, &attempts));
    CHECK_OK(tutti__zero_gather(t.ddp));
    CHECK(!tutti__zero_regroup(t.ddp, NULL));
    if (rank < size - 1) {
        CHECK_OK(tutti_ddp_regroup(t.ddp, fewer));
        for (int step = 2; step < STEPS; step++)
            CHECK_0(run_step(&t, fewer, &shared, step, &attempts));
        tutti_module_digest(t.module, digest);
        CHECK_OK(tutti_barrier(fewer, NULL)); /* in stage 3 others may still read from this rank */
        CHECK_TEXT(digest, expected);
        CHECK(tutti_optim_updates(t.optim, tutti_module_parameter(t.module, 0)) == STEPS);
        CHECK(tutti__zero_regroup(t.ddp, NULL));
        CHECK(tutti_optim_updates(t.optim, tutti_module_parameter(t.module, 0)) == 0);
        CHECK(tutti_optim_state_bytes(t.optim) == 0);
        CHECK_OK(tutti_ddp_regroup(t.ddp, NULL));
    }
    tutti_group_free(fewer);
    trainer_free(&t);
    return 0;
}

static int shares_follow_the_group(tutti_group *group, void *arg)
{
    (void)arg;
    for (int zero = 1; zero <= (test_device().kind == TUTTI_CPU ? 3 : 1); zero++)
        CHECK_0(shares_follow(group, zero));
    return 0;
}

static tutti_status any_buffers(void *arg, tutti_group *group, tutti_tensor *const *buffers,
                                size_t n)
{
    (void)arg;
    (void)group;
    (void)buffers;
    (void)n;
    return TUTTI_OK;
}

static int what_cannot_be_is_refused(tutti_group *group, void *arg)
{
    static const char *const ignored[] = {"side.bias"};
    const struct {
        tutti_ddp_opts opts;
        const char *text;
    } wrong[] = {{{.shards = V, .keep_buffers = true}, "keep_buffers"},
                 {{.shards = V, .buffer_hook = any_buffers}, "buffer_hook"},
                 {{.shards = V, .ignored = ignored, .n_ignored = 1}, "ignored"},
                 {{.shards = 4097}, "4097 shards"},
                 {{.shards = V, .wire_bits = 16}, "wire_bits is 16"}};
    tutti_comm_hook hook;
    tutti_join *join;
    bool again;
    trainer t;

    (void)arg;
    CHECK_0(trainer_new(&t, group, &(tutti_ddp_opts){.shards = V}));
    CHECK(tutti_ddp_begin_shard(t.ddp, 0, false) == TUTTI_ERR_STATE);
    CHECK(tutti_ddp_finish_step(t.ddp, &again) == TUTTI_ERR_STATE);
    CHECK_OK(tutti_ddp_begin_step(t.ddp));
    CHECK(tutti_ddp_begin_shard(t.ddp, V, false) == TUTTI_ERR_ARG);
    CHECK_OK(tutti_comm_hook_bf16(&hook, NULL));
    CHECK(tutti_ddp_set_hook(t.ddp, &hook) == TUTTI_ERR_UNSUPPORTED);
    CHECK_TEXT(tutti_last_error(), "\"bf16\"");
    CHECK(tutti_join_begin(&join, &t.ddp, 1, NULL) == TUTTI_ERR_ARG);
    CHECK_TEXT(tutti_last_error(), "shards");
    CHECK_OK(tutti_barrier(group, NULL));
    CHECK_OK(tutti_ddp_regroup(t.ddp, NULL));
    tutti_ddp_free(t.ddp);
    for (size_t i = 0; i < TUTTI__COUNT_OF(wrong); i++) {
        CHECK(tutti_ddp_new(&t.ddp, t.module, NULL, &wrong[i].opts) != TUTTI_OK);
        CHECK_TEXT(tutti_last_error(), wrong[i].text);
    }
    t.ddp = NULL;
    tutti_convert_sync_batch_norm(t.module, group);
    CHECK(tutti_ddp_new(&t.ddp, t.module, NULL, &(tutti_ddp_opts){.shards = V}) ==
          TUTTI_ERR_UNSUPPORTED);
    CHECK_TEXT(tutti_last_error(), "batch norm over all ranks");
    trainer_free(&t);
    return 0;
}

static void run_on_all_sizes(void **state)
{
    const char *device = getenv("TUTTI_TEST_DEVICE");
    const int most = device && *device ? 2 : 8;

    for (int n = most == 2 ? 2 : 1; n <= most; n += 1 + (n == 5))
        run((tutti_rank_body *)*state, NULL, n);
}

static void run_to_four(void **state)
{
    const char *device = getenv("TUTTI_TEST_DEVICE");

    for (int n = device && *device ? 2 : 1; n <= (device && *device ? 2 : 4); n++)
        run((tutti_rank_body *)*state, NULL, n);
}

static void run_three(void **state)
{
    run((tutti_rank_body *)*state, NULL, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(run_on_all_sizes, ranks_change_no_bit),
                                       TEST(run_over_tcp, ranks_change_no_bit),
                                       TEST(run_to_four, shares_change_no_bit),
                                       TEST(run_over_tcp, shares_change_no_bit),
                                       TEST(run_to_four, each_rank_holds_its_share),
                                       TEST(run_to_four, infinities_reach_all_shares),
                                       TEST(run_all, shards_are_ranks),
                                       TEST(run_three, unused_parameters_wait),
                                       TEST(run_three, goes_on_in_another_group),
                                       TEST(run_three, shares_follow_the_group),
                                       TEST(run_two, what_cannot_be_is_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
