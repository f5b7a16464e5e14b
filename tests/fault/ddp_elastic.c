/* ddp: a network with batch norm, dropout and momentum in elastic training: whatever the number of workers, and whichever of them
 * dies, its weights, buffers and optimizer state are bit-identical.   SPDX-License-Identifier: MIT
 * timeout: 120
 * devices: strict */
#include "harness/device.h"
#include "harness/elastic_coordinator.h"
#include "harness/elastic_model.h"
#include "nn/nn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <tutti/ddp.h>
#include <cmocka.h>

enum { SHARDS = 6, BATCH = 4, SIDE = 4, CLASSES = 3, STEPS = 14 };

typedef struct network {
    tutti_module base;
    tutti_conv2d conv;
    tutti_batch_norm2d norm;
    tutti_linear fc;
} network;

static void init(network *net, tutti_ctx *cx)
{
    tutti_module_init(&net->base, cx);
    tutti_conv2d_init(
        &net->conv, &net->base, "conv",
        &(tutti_conv2d_layer_opts){.in = 2, .out = 4, .kernel = 3, .padding = 1, .no_bias = true});
    tutti_batch_norm2d_init(&net->norm, &net->base, "norm", 4);
    tutti_linear_init(&net->fc, &net->base, "fc", 4 * SIDE * SIDE, CLASSES);
}

/* Forward and backward of one shard, on data computed from step and shard. poor: without memory for it. */
static tutti_status compute(network *net, uint64_t step, int shard, bool poor)
{
    tutti_ctx *cx = net->base.cx;
    float x[BATCH * 2 * SIDE * SIDE];
    int64_t y[BATCH];
    tutti_tensor *out;
    tutti_status status;

    for (size_t i = 0; i < TUTTI__COUNT_OF(x); i++) {
        uint32_t random[4];

        tutti__philox(step, (tutti__philox_counter){{(uint32_t)shard, (uint32_t)i, 0, 3}}, random);
        x[i] = (float)random[0] * 0x1p-31f - 1;
        y[i % BATCH] = random[1] % CLASSES;
    }
    tutti_step_begin(cx, NULL);
    tutti_module_zero_grad(&net->base);
    out = tutti_input(cx, (tutti_array){x, TUTTI_SHAPE(BATCH, 2, SIDE, SIDE), TUTTI_F32});
    out = tutti_batch_norm2d_forward(&net->norm, tutti_conv2d_forward(&net->conv, out));
    out = tutti_dropout(tutti_flatten(tutti_relu(out)), 0.3f);
    out = tutti_linear_forward(&net->fc, out);
    if (poor)
        out = tutti_relu(
            tutti_input(cx, (tutti_array){x, TUTTI_SHAPE((int64_t)1 << 46, CLASSES), TUTTI_F32}));
    status = tutti_backward(
        tutti_cross_entropy(out, tutti_input(cx, (tutti_array){y, TUTTI_SHAPE(BATCH), TUTTI_I64})));
    tutti_step_end(cx);
    return status;
}

/* Digest of parameters, buffers and optimizer state. */
static uint64_t digest(const network *net, tutti_optim *optim)
{
    char text[33];
    float values[4096];
    uint64_t hash;

    tutti_module_digest(&net->base, text);
    hash = tutti__hash64(text, sizeof text);
    for (size_t i = 0; i < tutti_module_n_parameters(&net->base); i++) {
        const tutti_tensor *t = tutti_module_parameter(&net->base, i);

        if (tutti_optim_state_read(optim, 0, t, values) != TUTTI_OK)
            return 0;
        hash = hash * 31 + tutti__hash64(values, (size_t)tutti_shape_count(tutti_tensor_shape(t)) *
                                                     sizeof *values);
        hash = hash * 31 + tutti_optim_updates(optim, t);
    }
    return hash;
}

/* A registered state that dies where the plan says so, and counts restarts. */
static tutti_status bomb_regroup(void *self, tutti_group *group)
{
    model_worker *w = self;

    if (group && tutti_elastic_is_fresh(w->e) && atomic_load(&w->plan->newest) > 0)
        atomic_fetch_add(&w->plan->restarts, 1);
    if (group)
        model_pass(w, MODEL_REGROUP);
    return TUTTI_OK;
}

static tutti_status bomb_state(void *self, tutti_status (*move)(void *arg, tutti_buf buf),
                               void *arg)
{
    (void)move;
    (void)arg;
    model_pass(self, MODEL_STATE);
    return TUTTI_OK;
}

static tutti_status bomb_finish(void *self, bool *again_p)
{
    model_worker *w = self;

    (void)again_p;
    model_pass(w, MODEL_REDUCED);
    if (w->plan->cut_worker == w->place + 1 && w->plan->cut_step == tutti_elastic_step(w->e) &&
        !atomic_exchange(&w->plan->cut, 1))
        return tutti_fail(TUTTI_ERR_PEER, "cut off, for a test");
    return TUTTI_OK;
}

/* Steps before which workers wait for an event in their job; in memory shared by all. */
enum { GATES = 2 };
static const uint64_t gate_steps[GATES] = {4, 8};
typedef struct gates {
    _Atomic int closed[GATES], waiting[GATES], ended, dying;
} gates;
static gates *at_gates;

static void wait_at_gates(const model_worker *w)
{
    for (int i = 0; i < GATES; i++) {
        if (tutti_elastic_step(w->e) != gate_steps[i] || !atomic_load(&at_gates->closed[i]))
            continue;
        atomic_fetch_add(&at_gates->waiting[i], 1);
        while (atomic_load(&at_gates->closed[i]))
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static int stage;   /* of ZeRO */
static bool copied; /* and each share has a copy */
static bool loses;  /* the plan's deaths take a share and its copy */

/* Once, in the plan's step: of any worker, since a slow one may get no shard. */
static bool is_poor(const model_worker *w)
{
    const model_plan *plan = w->plan;

    return plan->failing_step > 0 && tutti_elastic_step(w->e) == plan->failing_step &&
           atomic_exchange(&w->plan->failed, 1) == 0;
}

/* The two that die in the same place wait for each other: else the first one's death may end the group before the second comes. */
static void await_other(const model_worker *w)
{
    const model_death *d = w->plan->deaths;
    const bool one = w->place == d[0].worker, other = w->place == d[1].worker;

    if (d[1].signal == 0 || d[0].place != MODEL_REDUCE || d[1].place != MODEL_REDUCE ||
        d[0].step != d[1].step || d[0].step != tutti_elastic_step(w->e) ||
        atomic_load(&d[!one].happened) || !(one || other))
        return;
    atomic_fetch_add(&at_gates->dying, 1);
    while (atomic_load(&at_gates->dying) < 2)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void train_steps(model_worker *w, network *net, tutti_optim *optim)
{
    int shard;

    while (wait_at_gates(w),
           tutti_elastic_step(w->e) < w->plan->steps && tutti_elastic_begin(w->e)) {
        tutti_status status = TUTTI_OK;

        while (status == TUTTI_OK && (shard = tutti_elastic_shard(w->e)) >= 0) {
            model_pass(w, MODEL_SHARD);
            status = compute(net, tutti_elastic_step(w->e), shard, is_poor(w));
        }
        if (status != TUTTI_OK && tutti_elastic_recover(w->e, status))
            continue;
        await_other(w);
        model_pass(w, MODEL_REDUCE);
        if (!tutti_elastic_finish(w->e))
            continue;
        model_pass(w, MODEL_UPDATE);
        status = tutti_clip_grad_norm(&net->base, 0.5f, NULL);
        if (status == TUTTI_OK)
            status = tutti_optim_step(optim);
        if (status != TUTTI_OK) {
            (void)tutti_elastic_recover(w->e, status); /* begin reports it */
            continue;
        }
        tutti_elastic_commit(w->e);
        atomic_store(&w->plan->newest, 1);
        model_pass(w, MODEL_COMMITTED);
    }
}

/* After the end, on all ranks: gathers the full optimizer state on each in turn. 0: a rank has died meanwhile. */
static uint64_t digest_in_turn(tutti_elastic *e, tutti_zero *zero, const network *net,
                               tutti_optim *optim)
{
    tutti_group *group = tutti_elastic_group(e);
    uint64_t mine = 0;

    for (int r = 0; r < tutti_group_size(group); r++) {
        if (zero && tutti_zero_consolidate(zero, optim, r) != TUTTI_OK)
            return 0;
        if (r == tutti_group_rank(group))
            mine = digest(net, optim);
    }
    return mine;
}

/* ZeRO's calls in an update: a worker may die when all have agreed on it (MODEL_BEGIN), and when its first share is being sent. */
static model_worker *of_update;
static int unaware =
    -1; /* the place of a worker that does not know that all agreed on the step in which another dies */
static tutti__sharding before;

static tutti_status bomb_begin(void *self, const void *optim, double value)
{
    TUTTI_TRY(before.begin(self, optim, value));
    if (!optim) /* clipping */
        return TUTTI_OK;
    model_pass(of_update, MODEL_BEGIN);
    if (of_update->place != unaware ||
        tutti_elastic_step(of_update->e) != of_update->plan->deaths[0].step)
        return TUTTI_OK;
    /* agrees again, in vain: as if it had not heard the end of the first time */
    while (tutti_group_status(tutti_elastic_group(of_update->e)) == TUTTI_OK)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    unaware = -1;
    return before.begin(self, optim, value);
}

static tutti_status bomb_updated(void *self, size_t i)
{
    TUTTI_TRY(before.updated(self, i));
    model_pass(of_update, MODEL_OVER);
    return TUTTI_OK;
}

static void mine_update(model_worker *w, const network *net)
{
    tutti__sharding *sharding = net->base.root->sharding;

    if (!sharding)
        return;
    of_update = w;
    if (atomic_load(&w->plan->died_ns) > 0) /* a replacement */
        unaware = -1;
    before = *sharding;
    sharding->begin = bomb_begin;
    sharding->updated = bomb_updated;
}

static void note_digest(const model_worker *w, uint64_t digest)
{
    atomic_store(&at_gates->ended, 1);
    if (digest)
        w->plan->digests[atomic_fetch_add(&w->plan->n_digests, 1)] = digest;
}

static int train(int place, void *arg)
{
    model_worker w = {.plan = arg, .place = place};
    network net;
    tutti_ddp *ddp;
    tutti_optim *optim;
    tutti_ctx *cx;
    tutti_status status;

    TUTTI_MUST(tutti_ctx_new(&cx, test_device(), NULL));
    init(&net, cx);
    TUTTI_MUST(tutti_sgd_new(&optim, &net.base, &(tutti_sgd_opts){.lr = 0.05f, .momentum = 0.9f}));
    TUTTI_MUST(tutti_elastic_new(&w.e, &(tutti_elastic_opts){.shards = SHARDS}));
    TUTTI_MUST(tutti_elastic_keep_module(
        w.e, &net.base,
        &(tutti_ddp_opts){.check_replicas = 1, .zero = stage, .shard_copies = 1 + copied}, &ddp));
    TUTTI_MUST(tutti_elastic_keep(w.e, &(tutti_elastic_part){.name = "deaths",
                                                             .regroup = bomb_regroup,
                                                             .state = bomb_state,
                                                             .finish = bomb_finish,
                                                             .self = &w}));
    TUTTI_MUST(tutti_elastic_keep_optim(w.e, optim));
    mine_update(&w, &net);
    train_steps(&w, &net, optim);
    model_pass(&w, MODEL_END);
    status = tutti_elastic_end(w.e);
    if (status != TUTTI_OK)
        fprintf(stderr, "place %d: %s\n", place, tutti_last_error());
    else if (!tutti_elastic_left(w.e))
        note_digest(&w, digest_in_turn(w.e, tutti_ddp_zero(ddp), &net, optim));
    tutti_elastic_free(w.e);
    tutti_optim_free(optim);
    tutti_module_destroy(&net.base);
    tutti_ctx_free(cx);
    return tutti_status_exit_code(status);
}

static elastic_job job;
static uint64_t undisturbed; /* 0: not yet computed */

static double kill_ms;

static void kill_one(elastic_job *of, void *arg)
{
    (void)arg;
    if (of->killed > 0 || of->finished || tutti__now_ms() - of->begin_ms < kill_ms)
        return;
    for (int i = 0; i < of->n_workers && kill_ms < 1e9; i++)
        if (of->workers[i].state == ELASTIC_IN && of->workers[i].place == 1) {
            kill(of->workers[i].pid, SIGKILL);
            kill_ms = 1e9;
        }
}

static void run_with(const char *what, model_plan *plan, int n, int killed,
                     void (*tick)(elastic_job *job, void *arg))
{
    int wrong;

    plan->steps = STEPS;
    atomic_store(&at_gates->ended, 0);
    atomic_store(&at_gates->dying, 0);
    wrong = elastic_run(&job, &(elastic_job_opts){.n = n,
                                                  .shards = SHARDS,
                                                  .body = train,
                                                  .arg = plan,
                                                  .timeout_ms = 30000,
                                                  .tick = tick});
    print_message("%s, %d workers: %d killed, %u generations, %.0f ms\n", what, n, job.killed,
                  job.generation, tutti__now_ms() - job.begin_ms);
    assert_int_equal(wrong, 0);
    assert_true(job.killed >= killed);
    /* more may be killed: the coordinator believes one that accuses another while a group is formed */
    if (stage == 0 || job.killed == 0 || (copied && !loses && job.killed <= (killed ? killed : 1)))
        assert_int_equal(atomic_load(&plan->restarts), 0);
    if (copied && loses)
        assert_true(atomic_load(&plan->restarts) > 0);
    assert_true(atomic_load(&plan->n_digests) >= 1 ||
                (tick == kill_one && atomic_load(&at_gates->ended))); /* killed after the end */
    for (int i = 0; i < atomic_load(&plan->n_digests); i++) {
        undisturbed = undisturbed ? undisturbed : plan->digests[i];
        assert_int_equal(plan->digests[i], undisturbed);
    }
    assert_true(undisturbed != 0);
    munmap(plan, sizeof *plan);
}

static void run(const char *what, model_plan *plan, int n, int killed)
{
    run_with(what, plan, n, killed, NULL);
}

static int share_1(void **state)
{
    (void)state;
    stage = 1;
    return 0;
}

static int share_2(void **state)
{
    (void)state;
    stage = test_device().kind == TUTTI_CPU ? 2 : 1;
    return 0;
}

static int share_3(void **state)
{
    (void)state;
    stage = test_device().kind == TUTTI_CPU ? 3 : 1;
    return 0;
}

static int share_nothing(void **state)
{
    (void)state;
    stage = 0;
    copied = loses = false;
    return 0;
}

static int copy_1(void **state)
{
    copied = true;
    return share_1(state);
}

static int copy_2(void **state)
{
    copied = true;
    return share_2(state);
}

static int copy_3(void **state)
{
    copied = true;
    return share_3(state);
}

static void nobody_dies(void **state)
{
    (void)state;
    for (int n = 1; n <= (stage ? 3 : SHARDS); n++)
        run("undisturbed", model_plan_new(), n, 0);
}

static void one_in_each_place(void **state)
{
    static const model_place places[] = {MODEL_REGROUP, MODEL_STATE,  MODEL_SHARD,     MODEL_REDUCE,
                                         MODEL_REDUCED, MODEL_UPDATE, MODEL_COMMITTED, MODEL_END};

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(places); i++) {
        model_plan *plan = model_plan_new();

        plan->deaths[0] = (model_death){.place = places[i],
                                        .worker = model_worker_for(places[i], (int)i % 2),
                                        .signal = SIGKILL,
                                        .step = places[i] <= MODEL_STATE ? 0
                                                : places[i] == MODEL_END ? STEPS
                                                                         : 5};
        plan->deaths[1] = (model_death){MODEL_REDUCE, -1, SIGKILL, 9, 0};
        run("a death", plan, 3, 2); /* so that at least one survives */
    }
}

/* It dies with its shard of the state: the job restarts from the initial state. */
static void one_dies_with_its_share(void **state)
{
    static const model_place places[] = {MODEL_REGROUP, MODEL_SHARD, MODEL_REDUCE,    MODEL_REDUCED,
                                         MODEL_UPDATE,  MODEL_BEGIN, MODEL_COMMITTED, MODEL_OVER};

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(places); i++) {
        model_plan *plan = model_plan_new();
        const bool at_first = places[i] == MODEL_REGROUP; /* when no worker has a shard yet */

        plan->deaths[0] = (model_death){.place = places[i],
                                        .worker = model_worker_for(places[i], (int)i % 2),
                                        .signal = SIGKILL,
                                        .step = at_first ? 0 : 5};
        run("a death in shares", plan, 3, 1);
    }
}

/* Two of four in the same step: of neighbours one has the other's copy. */
static void two_die_with_their_shares(void **state)
{
    static const int second[] = {1, 2, 3};

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(second); i++) {
        model_plan *plan = model_plan_new();

        plan->deaths[0] = (model_death){MODEL_REDUCE, 0, SIGKILL, 5, 0};
        plan->deaths[1] = (model_death){MODEL_REDUCE, second[i], SIGKILL, 5, 0};
        loses = second[i] != 2;
        run(loses ? "neighbours" : "two that are no neighbours", plan, 4, 2);
    }
    loses = false;
}

/* Two of three have agreed on an update: one dies, the other ends it. The third has not heard that, and must follow, since it alone
 * has the copy of the dead one's share. */
static void one_is_unaware(void **state)
{
    (void)state;
    for (int dies = 0; dies < 3; dies++) {
        model_plan *plan = model_plan_new();

        plan->deaths[0] = (model_death){MODEL_BEGIN, dies, SIGKILL, 5, 0};
        unaware = (dies + 1) % 3;
        run("a death that all but one had agreed before", plan, 3, 1);
    }
    unaware = -1;
}

/* The last steps are done, and a share of their state is lost: the others, who are at the end of their programs, cannot go back, and
 * are replaced. */
static void shares_are_lost_at_the_end(void **state)
{
    const int n = copied ? 2 : 1;

    (void)state;
    for (int survivors = 1; survivors <= 2; survivors++) {
        model_plan *plan = model_plan_new();

        for (int i = 0; i < n; i++)
            plan->deaths[i] = (model_death){MODEL_END, copied ? i : -1, SIGKILL, STEPS, 0};
        loses = true;
        run("lost at the end", plan, n + survivors, n);
    }
    loses = false;
}

/* At some time: in the middle of an update too, which some ranks have begun, and others not. */
static void one_dies_at_any_time(void **state)
{
    const char *jobs = getenv("JOBS");
    const int n = jobs ? atoi(jobs) : 20;

    (void)state;
    for (int i = 0; i < n; i++) {
        kill_ms = 4 + 16.0 * i / n;
        run_with("a death at some time", model_plan_new(), 3, kill_ms < 1e9 ? 0 : 1, kill_one);
    }
}

/* A second worker joins when the first is at the first gate; the first leaves when both are at the second. */
static void one_joins_one_leaves(elastic_job *of, void *arg)
{
    (void)arg;
    if (atomic_load(&at_gates->waiting[0]) == 1 && of->n_workers == 1)
        elastic_start(of);
    if (of->workers[0].told)
        atomic_store(&at_gates->closed[0], 0);
    if (atomic_load(&at_gates->waiting[1]) == 2 && !of->workers[0].sent_away) {
        elastic_tell_leave(&of->workers[0]);
        atomic_store(&at_gates->closed[1], 0);
    }
}

static void shares_are_handed_over(void **state)
{
    (void)state;
    for (int i = 0; i < GATES; i++) {
        atomic_store(&at_gates->waiting[i], 0);
        atomic_store(&at_gates->closed[i], 1);
    }
    run_with("joined and left", model_plan_new(), 1, 0, one_joins_one_leaves);
    assert_int_equal(job.left, 1);
    assert_int_equal(job.generation, 3);
}

/* The module has finished the step on both, and a state registered after it fails on one, on the other, and on both: the step
 * is repeated with the same result. */
static void finished_in_vain(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++)
        for (uint64_t step = 0; step < 4; step += 3) {
            model_plan *plan = model_plan_new();

            plan->cut_worker = 1;
            plan->cut_step = step;
            run("finished in vain", plan, n, 0);
        }
}

/* It ends, the others do the step without it, and a replacement comes. */
static void one_has_no_memory(void **state)
{
    model_plan *plan = model_plan_new();
    int poor = 0;

    (void)state;
    plan->failing_step = 5;
    run("no memory", plan, 3, 0);
    for (int i = 0; i < job.n_workers; i++) {
        assert_true(job.workers[i].result == 0 || job.workers[i].result == 4);
        poor += job.workers[i].result == 4;
    }
    assert_int_equal(poor, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_dies),
        cmocka_unit_test(one_has_no_memory),
        cmocka_unit_test(one_in_each_place),
        cmocka_unit_test(finished_in_vain),
        cmocka_unit_test(shares_are_handed_over),
        cmocka_unit_test_setup_teardown(nobody_dies, share_1, share_nothing),
        cmocka_unit_test_setup_teardown(one_dies_with_its_share, share_1, share_nothing),
        cmocka_unit_test_setup_teardown(shares_are_handed_over, share_1, share_nothing),
        cmocka_unit_test_setup_teardown(shares_are_lost_at_the_end, share_1, share_nothing),
        cmocka_unit_test_setup_teardown(nobody_dies, share_2, share_nothing),
        cmocka_unit_test_setup_teardown(one_dies_with_its_share, share_2, share_nothing),
        cmocka_unit_test_setup_teardown(shares_are_handed_over, share_2, share_nothing),
        cmocka_unit_test_setup_teardown(nobody_dies, share_3, share_nothing),
        cmocka_unit_test_setup_teardown(one_dies_with_its_share, share_3, share_nothing),
        cmocka_unit_test_setup_teardown(shares_are_handed_over, share_3, share_nothing),
        cmocka_unit_test_setup_teardown(nobody_dies, copy_1, share_nothing),
        cmocka_unit_test_setup_teardown(one_in_each_place, copy_1, share_nothing),
        cmocka_unit_test_setup_teardown(one_dies_with_its_share, copy_1, share_nothing),
        cmocka_unit_test_setup_teardown(two_die_with_their_shares, copy_1, share_nothing),
        cmocka_unit_test_setup_teardown(one_is_unaware, copy_1, share_nothing),
        cmocka_unit_test_setup_teardown(one_dies_at_any_time, copy_1, share_nothing),
        cmocka_unit_test_setup_teardown(shares_are_handed_over, copy_1, share_nothing),
        cmocka_unit_test_setup_teardown(shares_are_lost_at_the_end, copy_1, share_nothing),
        cmocka_unit_test_setup_teardown(nobody_dies, copy_2, share_nothing),
        cmocka_unit_test_setup_teardown(finished_in_vain, copy_2, share_nothing),
        cmocka_unit_test_setup_teardown(one_in_each_place, copy_2, share_nothing),
        cmocka_unit_test_setup_teardown(one_dies_with_its_share, copy_2, share_nothing),
        cmocka_unit_test_setup_teardown(two_die_with_their_shares, copy_2, share_nothing),
        cmocka_unit_test_setup_teardown(one_is_unaware, copy_2, share_nothing),
        cmocka_unit_test_setup_teardown(one_dies_at_any_time, copy_2, share_nothing),
        cmocka_unit_test_setup_teardown(shares_are_handed_over, copy_2, share_nothing),
        cmocka_unit_test_setup_teardown(shares_are_lost_at_the_end, copy_2, share_nothing),
        cmocka_unit_test_setup_teardown(nobody_dies, copy_3, share_nothing),
        cmocka_unit_test_setup_teardown(finished_in_vain, copy_3, share_nothing),
        cmocka_unit_test_setup_teardown(one_in_each_place, copy_3, share_nothing),
        cmocka_unit_test_setup_teardown(one_dies_with_its_share, copy_3, share_nothing),
        cmocka_unit_test_setup_teardown(two_die_with_their_shares, copy_3, share_nothing),
        cmocka_unit_test_setup_teardown(one_is_unaware, copy_3, share_nothing),
        cmocka_unit_test_setup_teardown(one_dies_at_any_time, copy_3, share_nothing),
        cmocka_unit_test_setup_teardown(shares_are_handed_over, copy_3, share_nothing),
        cmocka_unit_test_setup_teardown(shares_are_lost_at_the_end, copy_3, share_nothing)};

    at_gates =
        mmap(NULL, sizeof *at_gates, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at_gates == MAP_FAILED)
        return 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
