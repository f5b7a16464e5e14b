/* ddp: ZeRO trains as without sharding, and each rank holds a share of state, gradients and parameters.   SPDX-License-Identifier: MIT
 * timeout: 120   breadth: 240
 * devices: strict cuda:long nccl */
#include "distributed/ddp_trainer.h"
#include "harness/memory.h"
#include "nn/nn.h"
#include "reducer/reducer.h"
#include "tensor/tensor.h"

#include <unistd.h>

#define MOST 3 /* stage */
enum { SIDE = 6, PIXELS = SIDE * SIDE, CLASSES = 5, BATCH = 4, STEPS = 4 };

typedef enum rule { SGD, MOMENTUM, ADAM, ADAMW, GROUPS, LAMB, MUON, MUON_SGD, N_RULES } rule;

/* Parameter groups, whose runs of flat memory are cut by the ranks' shares. */
static tutti_status groups_new(tutti_optim **optim_p, tutti_module *m)
{
    tutti_tensor *fast[] = {tutti_module_find(m, "fc2.weight")};

    TUTTI_TRY(tutti_adamw_new(optim_p, m, &(tutti_adam_opts){.lr = 0.01f, .weight_decay = 0.1f}));
    TUTTI_TRY(tutti_optim_no_decay(*optim_p));
    return tutti_optim_add_group(*optim_p, fast, 1,
                                 &(tutti_optim_group_opts){.lr_factor = 3, .beta1 = 0.5f});
}

static tutti_status optim_new(tutti_optim **optim_p, tutti_module *m, rule r)
{
    const tutti_sgd_opts sgd = {
        .lr = 0.1f, .momentum = r == MOMENTUM ? 0.9f : 0, .weight_decay = 0.01f};
    const tutti_adam_opts adam = {.lr = 0.01f, .weight_decay = 0.1f};

    if (r == GROUPS)
        return groups_new(optim_p, m);
    if (r == LAMB) /* whose rates are by the norms of whole parameters */
        return tutti_lamb_new(optim_p, m, &(tutti_lamb_opts){.lr = 0.01f, .weight_decay = 0.1f});
    if (r >= MUON) /* which multiplies a whole matrix */
        return tutti_muon_new(optim_p, m,
                              &(tutti_muon_opts){.lr = 0.01f,
                                                 .adamw = "fc2.weight",
                                                 .normalize = r == MUON_SGD,
                                                 .others_by_sgd = r == MUON_SGD});
    return r == ADAM    ? tutti_adam_new(optim_p, m, &adam)
           : r == ADAMW ? tutti_adamw_new(optim_p, m, &adam)
                        : tutti_sgd_new(optim_p, m, &sgd);
}

static int trainer_begin(trainer *t, const tutti_ddp_opts *opts)
{
    tutti_ctx_opts cx_opts = {
        .threads = 1, .kernels = test_kernels(), .defers_parameters = opts->zero == 3};
    tutti_model_opts shape = {.channels = 1, .height = SIDE, .width = SIDE, .classes = CLASSES};

    *t = (trainer){0};
    CHECK_OK(tutti_ctx_new(&t->cx, test_device(), &cx_opts));
    CHECK_OK(tutti_model_new(&t->model, t->cx, "mlp", &shape));
    t->module = tutti_model_module(t->model);
    return 0;
}

static int trainer_new_with(trainer *t, tutti_group *group, rule r, const tutti_ddp_opts *opts)
{
    CHECK_0(trainer_begin(t, opts));
    CHECK_OK(tutti_ddp_new(&t->ddp, t->module, group, opts));
    CHECK_OK(optim_new(&t->optim, t->module, r));
    return 0;
}

/* With the first layer frozen, or not. */
static int trainer_new_frozen(trainer *t, tutti_group *group, const tutti_ddp_opts *opts,
                              bool frozen)
{
    CHECK_0(trainer_begin(t, opts));
    if (frozen)
        CHECK_OK(tutti_module_freeze(t->module, "fc1"));
    CHECK_OK(tutti_ddp_new(&t->ddp, t->module, group, opts));
    return optim_new(&t->optim, t->module, ADAM) == TUTTI_OK ? 0 : 1;
}

/* Buckets of a few KiB, so that there are several. */
static int trainer_new(trainer *t, tutti_group *group, rule r, int zero)
{
    return trainer_new_with(
        t, group, r, &(tutti_ddp_opts){.first_bucket_mb = 1e-3, .bucket_mb = 1e-2, .zero = zero});
}

static tutti_status backward(trainer *t, int salt)
{
    static _Thread_local float x[BATCH * PIXELS];
    static _Thread_local int64_t y[BATCH];
    tutti_tensor *logits;
    tutti_status status;

    for (int i = 0; i < BATCH * PIXELS; i++)
        x[i] = sinf((float)(i * 13 + salt * 101));
    for (int i = 0; i < BATCH; i++)
        y[i] = (i + salt) % CLASSES;
    tutti_step_begin(t->cx, NULL);
    logits = tutti_model_forward(
        t->model,
        tutti_input(t->cx, (tutti_array){x, TUTTI_SHAPE(BATCH, 1, SIDE, SIDE), TUTTI_F32}));
    status = tutti_backward(tutti_cross_entropy(
        logits, tutti_input(t->cx, (tutti_array){y, TUTTI_SHAPE(BATCH), TUTTI_I64})));
    tutti_step_end(t->cx);
    return status;
}

static int salt_of(tutti_group *group, int step)
{
    return step * 16 + tutti_group_rank(group);
}

static int train(trainer *t, tutti_group *group, int first, int steps)
{
    for (int step = first; step < first + steps; step++) {
        tutti_optim_zero_grad(t->optim);
        CHECK_OK(backward(t, salt_of(group, step)));
        CHECK_OK(tutti_optim_step(t->optim));
    }
    return 0;
}

static int check_same_trained(trainer *a, trainer *b, tutti_group *group)
{
    char digests[2][33];

    CHECK_0(digest_of(a, group, digests[0]));
    CHECK_0(digest_of(b, group, digests[1]));
    CHECK_TEXT(digests[1], digests[0]);
    return 0;
}

/* Compares both states, parameter by parameter. */
static int check_same_state(tutti_optim *a, const tutti_module *ma, tutti_optim *b,
                            const tutti_module *mb)
{
    for (size_t i = 0; i < tutti_module_n_parameters(ma); i++) {
        const tutti_tensor *p = tutti_module_parameter(ma, i), *q = tutti_module_parameter(mb, i);
        size_t bytes = tutti__tensor_bytes(p);
        float *x = malloc(bytes), *y = malloc(bytes);

        CHECK(tutti_optim_updates(a, p) == tutti_optim_updates(b, q));
        for (size_t k = 0; tutti_optim_state_name(a, k); k++) {
            CHECK_OK(tutti_optim_state_read(a, k, p, x));
            CHECK_OK(tutti_optim_state_read(b, k, q, y));
            CHECK(memcmp(x, y, bytes) == 0);
        }
        free(x);
        free(y);
    }
    return 0;
}

/* Case 49: parameters and consolidated state have the bits of DDP with a plain optimizer. */
static int shares_train_with_the_bits_of_the_whole(tutti_group *group, void *arg)
{
    const int root = tutti_group_size(group) - 1;
    float x[PIXELS * 256];

    (void)arg;
    for (int k = 0; k < N_RULES * MOST; k++) {
        const rule r = (rule)(k / MOST);
        trainer plain, zero;

        CHECK_0(trainer_new(&plain, group, r, 0));
        CHECK_0(trainer_new(&zero, group, r, 1 + k % MOST));
        CHECK_OK(tutti_zero_consolidate(tutti_ddp_zero(zero.ddp), zero.optim,
                                        0)); /* before the first step */
        for (int step = 0; step < STEPS; step++) {
            CHECK_0(train(&plain, group, step, 1));
            CHECK_0(train(&zero, group, step, 1));
            CHECK_0(check_same_trained(&plain, &zero, group));
        }
        CHECK(tutti_reducer_n_buckets(tutti_ddp_reducer(zero.ddp)) >= 3);
        CHECK_OK(tutti_zero_consolidate(tutti_ddp_zero(zero.ddp), zero.optim, root));
        if (tutti_group_rank(group) == root) {
            CHECK_0(check_same_state(plain.optim, plain.module, zero.optim, zero.module));
        } else if (r != SGD) {
            CHECK(tutti_optim_state_read(zero.optim, 0, tutti_module_parameter(zero.module, 0),
                                         x) == TUTTI_ERR_STATE);
        }
        CHECK_0(train(&plain, group, STEPS, 1)); /* continues */
        CHECK_0(train(&zero, group, STEPS, 1));
        CHECK_0(check_same_trained(&plain, &zero, group));
        trainer_free(&plain);
        trainer_free(&zero);
    }
    return 0;
}

static int each_rank_holds_its_share_of_state(tutti_group *group, void *arg)
{
    const size_t size = (size_t)tutti_group_size(group);
    size_t whole, share, tails;
    trainer plain, zero;

    (void)arg;
    CHECK_0(trainer_new(&plain, group, ADAM, 0));
    CHECK_0(train(&plain, group, 0, 1));
    whole = tutti_optim_state_bytes(plain.optim);
    for (int stage = 1; stage <= MOST; stage++) {
        CHECK_0(trainer_new(&zero, group, ADAM, stage));
        CHECK_0(train(&zero, group, 0, 1));
        share = tutti_optim_state_bytes(zero.optim);
        tails =
            tutti_reducer_n_buckets(tutti_ddp_reducer(zero.ddp)) * (size - 1) * 2 * sizeof(float);
        CHECK(whole >= 2 * sizeof(float) * (size_t)tutti_module_count(plain.module));
        CHECK(share >= whole / size && share <= whole / size + tails);
        trainer_free(&zero);
    }
    trainer_free(&plain);
    return 0;
}

/* What is not trained has no state: with ZeRO, too, in which every rank has whole what is in no bucket. */
static int frozen_parameters_take_no_state(tutti_group *group, void *arg)
{
    const size_t size = (size_t)tutti_group_size(group);

    (void)arg;
    for (int stage = 1; stage <= (test_device().kind == TUTTI_CPU ? 2 : 1); stage++) {
        size_t trained = 0, rest;
        trainer t;

        CHECK_0(trainer_new_frozen(&t, group, &(tutti_ddp_opts){.zero = stage}, true));
        CHECK_0(train(&t, group, 0, 2));
        for (size_t i = 0; i < tutti_module_n_parameters(t.module); i++) {
            const tutti_tensor *p = tutti_module_parameter(t.module, i);

            trained += p->parameter->requires_grad ? (tutti__tensor_bytes(p) + 63) / 64 * 64 : 0;
        }
        rest = tutti_reducer_n_buckets(tutti_ddp_reducer(t.ddp)) * (size - 1) * sizeof(float) + 64;
        CHECK(tutti_optim_state_bytes(t.optim) <= 2 * (trained / size + rest));
        CHECK(stage == 1 ||
              tutti_zero_get_stats(tutti_ddp_zero(t.ddp)).gradient_bytes <= trained / size + rest);
        trainer_free(&t);
        CHECK_0(trainer_new_frozen(&t, group, &(tutti_ddp_opts){.zero = stage}, true));
        CHECK_OK(tutti_optim_set_updates(t.optim, tutti_module_parameter(t.module, 0), 3));
        CHECK_0(train(&t, group, 0, 2)); /* it was trained once: its state stays */
        CHECK(tutti_optim_state_bytes(t.optim) >=
              2 * tutti__tensor_bytes(tutti_module_parameter(t.module, 0)));
        trainer_free(&t);
    }
    return 0;
}

/* Before a step's first write to them: memory that appears under the writes is zeroed by the system, which takes longer. */
static int all_gradients_come_back(trainer *t)
{
    tutti_reducer *r = tutti_ddp_reducer(t->ddp);

    CHECK_OK(tutti_reducer_begin(r));
    for (size_t i = 0; i < tutti_module_n_parameters(t->module); i++)
        CHECK_OK(tutti__reducer_bring(r, i));
    CHECK(test_resident(t->module->root->flat_gradients, t->module->root->n_flat * sizeof(float)) >=
          sizeof(float) * (size_t)tutti_module_count(t->module));
    return 0;
}

/* Its pages: those of the shares, and at most four of each bucket, in which they begin or end, or the bucket does. */
static int each_rank_holds_its_share_of_gradients(tutti_group *group, void *arg)
{
    const size_t size = (size_t)tutti_group_size(group), page = (size_t)sysconf(_SC_PAGESIZE);
    trainer t;

    (void)arg;
    if (test_device().kind != TUTTI_CPU)
        return 0;
    CHECK_0(trainer_new_with(&t, group, ADAM, &(tutti_ddp_opts){.bucket_mb = 0.25, .zero = 2}));
    for (int step = 0; step < 3; step++) {
        const size_t whole = sizeof(float) * (size_t)tutti_module_count(t.module);
        const tutti_reducer *r;

        tutti_optim_zero_grad(t.optim);
        tutti_ddp_pause(t.ddp); /* whole gradients */
        CHECK_OK(backward(&t, salt_of(group, 100 + step)));
        tutti_ddp_resume(t.ddp);
        CHECK_OK(backward(&t, salt_of(group, step)));
        CHECK_OK(tutti_clip_grad_norm(t.module, 0.05f, NULL));
        CHECK_OK(tutti_optim_step(t.optim));
        r = tutti_ddp_reducer(t.ddp);
        CHECK(
            test_resident(t.module->root->flat_gradients, t.module->root->n_flat * sizeof(float)) <=
            whole / size + 4 * page * tutti_reducer_n_buckets(r));
    }
    CHECK_0(all_gradients_come_back(&t));
    trainer_free(&t);
    return 0;
}

/* Frozen ones too. Between steps: the shares and what is of no share; in a step two or three buckets more. */
static int each_rank_holds_its_share_of_parameters(tutti_group *group, void *arg)
{
    const size_t size = (size_t)tutti_group_size(group);
    const tutti_ddp_opts opts = {.first_bucket_mb = 1e-2, .bucket_mb = 1e-2, .zero = 3};
    size_t largest = 0, n, whole;
    tutti_zero_stats s;
    trainer t;

    (void)arg;
    for (int frozen = 0; frozen < 2; frozen++) {
        const char *digests[2] = {"", ""};
        char ends[2][33];

        for (int zero = 0; zero < 2; zero++) {
            CHECK_0(trainer_new_frozen(&t, group, zero ? &opts : &(tutti_ddp_opts){0}, frozen));
            CHECK_0(train(&t, group, 0, 3));
            CHECK_0(digest_of(&t, group, ends[zero]));
            digests[zero] = ends[zero];
            if (!zero)
                trainer_free(&t);
        }
        CHECK_TEXT(digests[1], digests[0]);
        s = tutti_zero_get_stats(tutti_ddp_zero(t.ddp));
        n = tutti_reducer_n_buckets(tutti_ddp_reducer(t.ddp)) + 8;
        whole = sizeof(float) * (size_t)tutti_module_count(t.module);
        for (size_t i = 0; i < tutti_module_n_parameters(t.module); i++) {
            const size_t bytes = tutti__tensor_bytes(tutti_module_parameter(t.module, i));

            largest = bytes > largest ? bytes : largest;
        }
        largest += 16 << 10; /* a bucket's limit and what was in it before */
        CHECK(s.stage == 3 && s.parameter_bytes <= whole / size + n * 128);
        CHECK(s.most_parameter_bytes <= s.parameter_bytes + 3 * largest);
        CHECK((s.gathered_bytes > 0) == (size > 1));
        trainer_free(&t);
    }
    return 0;
}

/* Another order of gathers than that of training, and none between. */
/* Averages of all parameters become those of this rank's shares when there are some. */
static int averages_may_begin_before_shares(tutti_group *group, void *arg)
{
    char digests[4][33];

    (void)arg;
    for (int zero = 0; zero < 4; zero++) {
        const tutti_ddp_opts opts = {.first_bucket_mb = 1e-3, .bucket_mb = 1e-2, .zero = zero};
        tutti_ema *ema;
        trainer t;

        CHECK_0(trainer_begin(&t, &(tutti_ddp_opts){0}));
        CHECK_OK(tutti_ema_new(&ema, t.module, &(tutti_ema_opts){.decay = 0.5f}));
        CHECK_OK(tutti_ema_update(ema));
        CHECK_OK(tutti_ddp_new(&t.ddp, t.module, group, &opts));
        CHECK_OK(optim_new(&t.optim, t.module, ADAM));
        for (int step = 0; step < STEPS; step++) {
            CHECK_0(train(&t, group, step, 1));
            CHECK_OK(tutti_ema_update(ema));
        }
        CHECK_OK(tutti_ema_swap(ema));
        CHECK_0(digest_of(&t, group, digests[zero]));
        CHECK_TEXT(digests[zero], digests[0]);
        tutti_ema_free(ema);
        trainer_free(&t);
    }
    return 0;
}

static int evaluation_changes_nothing(tutti_group *group, void *arg)
{
    float x[PIXELS] = {0}, y[2][CLASSES];
    trainer t[2];

    (void)arg;
    for (int k = 0; k < 2; k++) {
        CHECK_0(trainer_new(&t[k], group, ADAM, k * MOST));
        for (int step = 0; step < STEPS; step++) {
            CHECK_0(train(&t[k], group, step, 1));
            for (int i = 0; i < 2; i++) {
                tutti_step_begin(t[k].cx, &(tutti_step_opts){.eval = true});
                CHECK_OK(tutti_tensor_read(
                    tutti_model_forward(
                        t[k].model,
                        tutti_input(t[k].cx,
                                    (tutti_array){x, TUTTI_SHAPE(1, 1, SIDE, SIDE), TUTTI_F32})),
                    y[k]));
                tutti_step_end(t[k].cx);
            }
        }
    }
    CHECK(memcmp(y[0], y[1], sizeof y[0]) == 0);
    CHECK_0(check_same_trained(&t[0], &t[1], group));
    trainer_free(&t[0]);
    trainer_free(&t[1]);
    return 0;
}

/* Without consolidation; and what needs all parameters at once. */
static int parameters_of_others_cannot_be_read(tutti_group *group, void *arg)
{
    float x[PIXELS * 256];
    char digest[33];
    tutti_flat flat;
    trainer t;

    (void)arg;
    CHECK_0(trainer_new(&t, group, ADAM, 3));
    CHECK(tutti_tensor_read(tutti_module_parameter(t.module, 0), x) == TUTTI_ERR_STATE);
    CHECK_TEXT(tutti_last_error(), "each rank has a share of it (zero 3)");
    tutti_module_digest(t.module, digest);
    CHECK(!digest[0]);
    CHECK(tutti_module_flat(t.module, &flat) == TUTTI_ERR_STATE);
    CHECK_0(train(&t, group, 0, 1));
    tutti_optim_free(t.optim);
    t.optim = NULL;
    tutti_ddp_free(t.ddp);
    t.ddp = NULL;
    CHECK(tutti_module_status(t.module) == TUTTI_ERR_STATE);
    CHECK_TEXT(tutti_last_error(), "their DDP is gone");
    trainer_free(&t);
    return 0;
}

/* Rank 1 gives up instead of taking part: rank 0 has nothing that it could read. */
static int a_consolidation_that_fails_leaves_nothing(tutti_group *group, void *arg)
{
    float x[PIXELS * 256];
    trainer t;

    (void)arg;
    CHECK_0(trainer_new(&t, group, ADAM, 3));
    CHECK_0(train(&t, group, 0, 1));
    CHECK_OK(tutti_barrier(group, NULL));
    if (tutti_group_rank(group) == 1) {
        tutti_group_abort(group, "this test ends it");
    } else {
        CHECK(tutti_zero_consolidate(tutti_ddp_zero(t.ddp), t.optim, 0) != TUTTI_OK);
        CHECK(tutti_tensor_read(tutti_module_parameter(t.module, 0), x) == TUTTI_ERR_STATE);
    }
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

/* While buckets get their initial values, which the other ranks wait for. */
static int a_rank_without_memory_fails_all(tutti_group *group, void *arg)
{
    static tutti__device_ops without;
    trainer t;

    (void)arg;
    CHECK_0(trainer_begin(&t, &(tutti_ddp_opts){.zero = 3}));
    if (tutti_group_rank(group) == 1) {
        without = *t.cx->device_ops;
        without.back = no_pages;
        t.cx->device_ops = &without;
    }
    CHECK(tutti_ddp_new(&t.ddp, t.module, group, &(tutti_ddp_opts){.zero = 3}) != TUTTI_OK);
    CHECK_TEXT(tutti_last_error(), "no pages for");
    trainer_free(&t);
    return 0;
}

/* Of gradients only shares are left, which nobody can use: they go, and nothing is allocated or moved. */
static int the_end_of_ddp_allocates_no_gradients(tutti_group *group, void *arg)
{
    const float *p;
    char digests[2][33];
    trainer t;

    (void)arg;
    CHECK_0(trainer_new(&t, group, SGD, 2));
    CHECK_0(train(&t, group, 0, 2));
    tutti_module_digest(t.module, digests[0]);
    p = tutti_module_parameter(t.module, 0)->data;
    tutti_optim_free(t.optim);
    t.optim = NULL;
    tutti_ddp_free(t.ddp);
    t.ddp = NULL;
    CHECK(tutti_module_parameter(t.module, 0)->data == (const void *)p);
    CHECK(t.module->root->flat_gradients == NULL);
    tutti_module_digest(t.module, digests[1]);
    CHECK_TEXT(digests[1], digests[0]);
    CHECK_OK(optim_new(&t.optim, t.module, ADAM)); /* each alone */
    CHECK_0(train(&t, group, 2, 1));
    trainer_free(&t);
    return 0;
}

/* Paused and clipped: the norm is of all shares, with the bits of the norm of the whole. */
static int accumulation_and_clipping_work_on_shares(tutti_group *group, void *arg)
{
    trainer plain, zero, *both[] = {&plain, &zero};

    (void)arg;
    CHECK_0(trainer_new(&plain, group, MOMENTUM, 0));
    CHECK_0(trainer_new(&zero, group, MOMENTUM, MOST));
    for (int step = 0; step < STEPS; step++) {
        float norms[2];

        for (int i = 0; i < 2; i++) {
            trainer *t = both[i];

            tutti_optim_zero_grad(t->optim);
            tutti_ddp_pause(t->ddp);
            CHECK_OK(backward(t, salt_of(group, 100 + step)));
            tutti_ddp_resume(t->ddp);
            CHECK_OK(backward(t, salt_of(group, step)));
            CHECK_OK(tutti_clip_grad_norm(t->module, 0.05f, &norms[i]));
            CHECK_OK(tutti_optim_step(t->optim));
        }
        CHECK(norms[0] == norms[1] && norms[0] > 0.05f);
        CHECK_0(check_same_trained(&plain, &zero, group));
    }
    trainer_free(&plain);
    trainer_free(&zero);
    return 0;
}

/* Case 54 with shares: the infinity is only in one rank's share. */
static int the_scaler_skips_on_all_ranks(tutti_group *group, void *arg)
{
    char before[33], after[33];
    tutti_scaler *scaler;
    trainer t;
    bool stepped;

    (void)arg;
    CHECK_0(trainer_new(&t, group, MOMENTUM, MOST));
    CHECK_OK(tutti_scaler_new(&scaler, &(tutti_scaler_opts){.peers = tutti_group_peers(group)}));
    for (int step = 0; step < 3; step++) {
        tutti_optim_zero_grad(t.optim);
        tutti_ddp_pause(t.ddp);
        CHECK_OK(backward(&t, salt_of(group, step)));
        if (step == 1 && tutti_group_rank(group) == 0)
            test_put(t.cx, tutti_module_parameter(t.module, 0)->parameter->grad + 3,
                     &(float){INFINITY}, sizeof(float));
        tutti_ddp_resume(t.ddp);
        CHECK_OK(backward(&t, salt_of(group, 50 + step)));
        CHECK_0(digest_of(&t, group, before));
        CHECK_OK(tutti_scaler_step(scaler, t.optim, &stepped));
        CHECK_OK(tutti_scaler_update(scaler));
        CHECK_0(digest_of(&t, group, after));
        CHECK(stepped == (step != 1));
        CHECK((strcmp(before, after) == 0) == (step == 1));
    }
    tutti_scaler_free(scaler);
    trainer_free(&t);
    return 0;
}

/* State that is consolidated on one rank and written on all continues with the same bits. */
static int consolidated_state_can_be_loaded_again(tutti_group *group, void *arg)
{
    trainer t, other;

    (void)arg;
    CHECK_0(trainer_new(&t, group, ADAM, MOST));
    CHECK_0(train(&t, group, 0, 3));
    CHECK_OK(tutti_zero_consolidate(tutti_ddp_zero(t.ddp), t.optim, 0));
    CHECK_0(trainer_new(&other, group, ADAM, MOST));
    for (size_t i = 0; i < tutti_module_n_parameters(t.module); i++) {
        tutti_tensor *p = tutti_module_parameter(t.module, i),
                     *q = tutti_module_parameter(other.module, i);
        size_t n = (size_t)tutti_shape_count(p->shape);
        float *x = calloc(n, sizeof *x);

        if (tutti_group_rank(group) == 0)
            CHECK_OK(tutti_tensor_read(p, x));
        CHECK_OK(tutti_broadcast(group, TUTTI_BUF(x, n, TUTTI_F32), 0, NULL));
        CHECK_OK(tutti_tensor_write(q, x));
        for (size_t k = 0; tutti_optim_state_name(t.optim, k); k++) {
            if (tutti_group_rank(group) == 0)
                CHECK_OK(tutti_optim_state_read(t.optim, k, p, x));
            CHECK_OK(tutti_broadcast(group, TUTTI_BUF(x, n, TUTTI_F32), 0, NULL));
            CHECK_OK(tutti_optim_state_write(other.optim, k, q, x));
        }
        CHECK_OK(tutti_optim_set_updates(other.optim, q, tutti_optim_updates(t.optim, p)));
        free(x);
    }
    CHECK_0(train(&t, group, 3, 2));
    CHECK_0(train(&other, group, 3, 2));
    CHECK_0(check_same_trained(&t, &other, group));
    trainer_free(&t);
    trainer_free(&other);
    return 0;
}

static int misuse_is_told(tutti_group *group, void *arg)
{
    trainer t;

    (void)arg;
    CHECK_0(trainer_new(&t, group, SGD, 2));
    CHECK(tutti_optim_step(t.optim) == TUTTI_ERR_STATE); /* nothing was averaged */
    CHECK_TEXT(tutti_last_error(), "no backward has averaged gradients");
    CHECK(tutti_zero_consolidate(tutti_ddp_zero(t.ddp), t.optim, 99) == TUTTI_ERR_ARG);
    CHECK_OK(backward(&t, 1));
    /* Another rank may have failed in its second backward while this one still waits for the parameters. */
    CHECK(tutti_optim_step(t.optim) == TUTTI_OK || strstr(tutti_last_error(), "sharded already"));
    CHECK(backward(&t, 2) != TUTTI_OK); /* without zero_grad */
    CHECK_TEXT(tutti_last_error(), "sharded already");
    trainer_free(&t);
    return 0;
}

/* An optimizer for each child, each with its own zero_grad (generator and discriminator, body and head). */
static int train_children(trainer *t, tutti_optim *const optims[2], tutti_group *group, int step)
{
    for (int i = 0; i < 2; i++)
        tutti_optim_zero_grad(optims[i]);
    CHECK_OK(backward(t, salt_of(group, step)));
    for (int i = 0; i < 2; i++)
        CHECK_OK(tutti_optim_step(optims[i]));
    return 0;
}

static int optimizers_of_children_train_as_without_shares(tutti_group *group, void *arg)
{
    trainer t[2];
    tutti_optim *optims[2][2];

    (void)arg;
    for (int zero = 0; zero < 2; zero++) {
        CHECK_0(trainer_new(&t[zero], group, SGD, zero * MOST));
        CHECK_OK(optim_new(&optims[zero][0], t[zero].module->first_child, ADAM));
        CHECK_OK(optim_new(&optims[zero][1], t[zero].module->last_child, MOMENTUM));
        for (int step = 0; step < STEPS; step++)
            CHECK_0(train_children(&t[zero], optims[zero], group, step));
    }
    CHECK_0(check_same_trained(&t[0], &t[1], group));
    /* no rank is in a step that the following error would end */
    CHECK_OK(tutti_barrier(group, NULL));
    tutti_optim_zero_grad(optims[1][0]); /* but not the other child's */
    CHECK(backward(&t[1], 7) != TUTTI_OK);
    CHECK_TEXT(tutti_last_error(), "the gradient of \"fc2.");
    CHECK_TEXT(tutti_last_error(), "sharded already");
    for (int zero = 0; zero < 2; zero++) {
        for (int i = 0; i < 2; i++)
            tutti_optim_free(optims[zero][i]);
        trainer_free(&t[zero]);
    }
    return 0;
}

/* Each rank updates only its share, so replicas stay equal and the difference would not be noticed. */
static int a_rank_with_other_hyper_parameters_is_named(tutti_group *group, void *arg)
{
    const int other = *(const int *)arg;
    char before[33], after[33], expected[128];
    trainer t;

    CHECK_0(trainer_new(&t, group, MOMENTUM, MOST));
    CHECK_0(train(&t, group, 0, 1));
    if (tutti_group_rank(group) == other)
        tutti_optim_set_lr(t.optim, 0.3f);
    tutti_optim_zero_grad(t.optim);
    CHECK_OK(backward(&t, salt_of(group, 1)));
    CHECK_0(digest_of(&t, group, before));
    CHECK(tutti_optim_step(t.optim) == TUTTI_ERR_MISMATCH);
    snprintf(expected, sizeof expected, "is lr 0.1 of sgd on rank 0 but lr 0.3 of sgd on rank %d",
             other);
    CHECK_TEXT(tutti_last_error(), expected);
    CHECK_0(digest_of(&t, group, after));
    CHECK_TEXT(after, before);
    tutti_optim_set_lr(t.optim, 0.1f); /* and the group stays usable */
    CHECK_OK(tutti_optim_step(t.optim));
    CHECK_0(train(&t, group, 2, 1));
    trainer_free(&t);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(run_all, shares_train_with_the_bits_of_the_whole),
        TEST(run_all, each_rank_holds_its_share_of_state),
        TEST(run_all, frozen_parameters_take_no_state),
        TEST(run_all, each_rank_holds_its_share_of_gradients),
        TEST(run_all, each_rank_holds_its_share_of_parameters),
        TEST(run_all, averages_may_begin_before_shares),
        TEST(run_all, evaluation_changes_nothing),
        TEST(run_two, parameters_of_others_cannot_be_read),
        TEST(run_two, a_consolidation_that_fails_leaves_nothing),
        TEST(run_two, a_rank_without_memory_fails_all),
        TEST(run_all, the_end_of_ddp_allocates_no_gradients),
        TEST(run_all, accumulation_and_clipping_work_on_shares),
        TEST(run_all, the_scaler_skips_on_all_ranks),
        TEST(run_all, consolidated_state_can_be_loaded_again),
        TEST(run_two, misuse_is_told),
        TEST(run_all, optimizers_of_children_train_as_without_shares),
        TEST(run_with_a_rank_that_differs, a_rank_with_other_hyper_parameters_is_named),
        TEST(run_over_tcp, shares_train_with_the_bits_of_the_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
