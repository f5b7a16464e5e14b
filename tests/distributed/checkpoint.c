/* checkpoint: a loop of one's own saves, and continues with the same bits.   SPDX-License-Identifier: MIT
 * devices: strict cuda nccl */
#include "distributed/ddp_bodies.h"
#include "harness/checkpoint_path.h"
#include "harness/device.h"
#include <tutti/tutti.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COUNT = 60, WIDTH = 6, BATCH = 4, EPOCHS = 2, SAVE_AT = 5, SHARDS = 4 };

static float samples[COUNT * WIDTH], targets[COUNT];

/* Of rank 0 at the end. */
typedef struct outcome {
    char digest[33];
    float scale, lr;
    uint64_t steps;
} outcome;
static struct {
    atomic_int seen[EPOCHS][COUNT];
    outcome end;
} * shared; /* on a device, ranks are processes */

/* What a run does. */
typedef struct job {
    bool zero, scaler;
    bool load, late; /* from `path`, before (late: after) DDP is made */
    bool save, stop; /* after SAVE_AT steps, and stop then */
    outcome end;
} job;

typedef struct net {
    tutti_ctx *cx;
    tutti_module base;
    tutti_linear fc1, fc2;
    tutti_ddp *ddp;
    tutti_optim *optim;
    tutti_scaler *scaler;
    tutti_dataset *data;
    tutti_loader *loader;
    tutti_position at;
} net;

static int module_new(net *m, int64_t width, uint64_t seed)
{
    *m = (net){.cx = NULL};
    CHECK_OK(tutti_ctx_new(&m->cx, test_device(), &(tutti_ctx_opts){.threads = 1, .seed = seed}));
    tutti_module_init(&m->base, m->cx);
    tutti_linear_init(&m->fc1, &m->base, "fc1", WIDTH, width);
    tutti_linear_init(&m->fc2, &m->base, "fc2", width, 1);
    CHECK_OK(tutti_module_status(&m->base));
    return 0;
}

static tutti_checkpoint_opts opts_of(net *m)
{
    return (tutti_checkpoint_opts){.scaler = m->scaler, .loader = m->loader, .position = &m->at};
}

static int load(net *m, tutti_group *group)
{
    tutti_checkpoint_opts opts = opts_of(m);

    CHECK_OK(tutti_checkpoint_load_with(path, &m->base, m->optim, group, &opts));
    return 0;
}

static int net_new(net *m, tutti_group *group, const job *j)
{
    CHECK_0(module_new(m, 16, 7));
    CHECK_OK(tutti_dataset_from_memory(&m->data, samples, WIDTH, targets, 1, COUNT));
    CHECK_OK(tutti_loader_new(
        &m->loader, m->data, group,
        &(tutti_loader_opts){.batch = BATCH, .shuffle = true, .seed = UINT64_MAX}));
    CHECK_OK(tutti_adamw_new(&m->optim, &m->base,
                             &(tutti_adam_opts){.lr = 0.01f, .weight_decay = 0.1f}));
    if (j->scaler)
        CHECK_OK(
            tutti_scaler_new(&m->scaler, &(tutti_scaler_opts){.init_scale = 64,
                                                              .growth_interval = 2,
                                                              .peers = tutti_group_peers(group)}));
    if (j->load && !j->late)
        CHECK_0(load(m, group));
    CHECK_OK(tutti_ddp_new(&m->ddp, &m->base, group, &(tutti_ddp_opts){.zero = j->zero}));
    if (j->load && j->late)
        CHECK_0(load(m, group));
    return 0;
}

static void net_free(net *m)
{
    tutti_loader_free(m->loader);
    tutti_dataset_free(m->data);
    tutti_scaler_free(m->scaler);
    tutti_optim_free(m->optim);
    tutti_ddp_free(m->ddp);
    tutti_module_destroy(&m->base);
    tutti_ctx_free(m->cx);
}

static int step(net *m, const tutti_batch *b)
{
    tutti_tensor *loss;

    tutti_step_begin(m->cx, NULL);
    loss = tutti_relu(tutti_linear_forward(&m->fc1, tutti_input(m->cx, b->x)));
    loss = tutti_linear_forward(&m->fc2, tutti_dropout(loss, 0.5f));
    loss = tutti_mse_loss(loss, tutti_input(m->cx, b->y));
    tutti_optim_zero_grad(m->optim);
    CHECK_OK(tutti_backward(m->scaler ? tutti_scaler_scale(m->scaler, loss) : loss));
    if (m->scaler) {
        CHECK_OK(tutti_scaler_step(m->scaler, m->optim, NULL));
        CHECK_OK(tutti_scaler_update(m->scaler));
    } else
        CHECK_OK(tutti_optim_step(m->optim));
    tutti_step_end(m->cx);
    m->at.step++;
    if (m->at.step == 3)
        tutti_optim_set_lr(m->optim, 0.004f);
    return 0;
}

/* The loop as a user writes it. */
static int train(tutti_group *group, net *m, const job *j)
{
    for (; m->at.epoch < EPOCHS; m->at.epoch++) {
        tutti_loader_set_epoch(m->loader, m->at.epoch);
        for (tutti_batch b; tutti_loader_next(m->loader, &b);) {
            CHECK_0(step(m, &b));
            for (size_t i = 0; i < b.n; i++)
                shared->seen[m->at.epoch][b.samples[i]]++;
            if (j->save && m->at.step == SAVE_AT) {
                tutti_checkpoint_opts opts = opts_of(m);

                CHECK_OK(tutti_checkpoint_save_with(path, &m->base, m->optim, group, &opts));
                if (j->stop)
                    return 0;
            }
        }
        CHECK_OK(tutti_loader_status(m->loader));
    }
    return 0;
}

static int run_job(tutti_group *group, void *arg)
{
    const job *j = arg;
    net m;

    CHECK_0(net_new(&m, group, j));
    CHECK_0(train(group, &m, j));
    CHECK_0(check_equal_on_all_ranks(group, &m.base));
    if (tutti_group_rank(group) == 0) {
        shared->end = (outcome){.scale = tutti_scaler_get_scale(m.scaler),
                                .lr = tutti_optim_lr(m.optim),
                                .steps = m.at.step};
        tutti_module_digest(&m.base, shared->end.digest);
    }
    net_free(&m);
    return 0;
}

static void run_ranks(int ranks, job *j)
{
    if (!j->load)
        memset(shared, 0, sizeof *shared);
    assert_int_equal(tutti_run_ranks_as_threads(ranks, run_job, j), 0);
    assert_int_equal(strlen(shared->end.digest), 32);
    j->end = shared->end;
}

static void a_run_continues_in_the_middle_of_an_epoch_with_the_same_bits(void **state)
{
    job whole = {.save = true, .scaler = true};

    (void)state;
    run_ranks(2, &whole);
    assert_int_equal(whole.end.steps, 16);
    for (int late = 0; late < 2; late++) {
        job rest = {.load = true, .late = late, .scaler = true};

        run_ranks(2, &rest);
        assert_string_equal(rest.end.digest, whole.end.digest);
        assert_true(rest.end.scale == whole.end.scale && rest.end.scale > 64);
        assert_true(rest.end.lr == whole.end.lr && rest.end.lr == 0.004f);
        assert_int_equal(rest.end.steps, 16);
    }
}

static void zero_saves_all_of_the_state_and_continues(void **state)
{
    job whole = {.save = true, .zero = true}, plain = {.load = true};

    (void)state;
    run_ranks(3, &whole);
    for (int late = 0; late < 2; late++) {
        job rest = {.load = true, .late = late, .zero = true};

        run_ranks(3, &rest);
        assert_string_equal(rest.end.digest, whole.end.digest);
    }
    run_ranks(3, &plain); /* and without ZeRO: the same bits */
    assert_string_equal(plain.end.digest, whole.end.digest);
}

/* 5 batches of 4 on 2 ranks are 40 of 60 samples. */
static void another_number_of_ranks_divides_the_rest_of_the_epoch(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks += 2) {
        job half = {.save = true, .stop = true}, rest = {.load = true};
        int sum = 0;

        run_ranks(2, &half);
        run_ranks(ranks, &rest);
        for (int i = 0; i < COUNT; i++) {
            assert_true(shared->seen[0][i] > 0 && shared->seen[1][i] > 0);
            sum += shared->seen[0][i];
        }
        assert_int_equal(sum, ranks == 1 ? 60 : 61); /* 20 = 3 * 7 - 1 of padding */
        assert_int_equal(rest.end.steps, 5 + (ranks == 1 ? 5 + 15 : 2 + 5));
    }
}

/* ---- Steps over shards ---- */

/* The third has gradients that are a million times larger, so that the fourth begins with other ranges. */
static int step_by_shards(net *m, tutti_group *group)
{
    const int rank = tutti_group_rank(group), size = tutti_group_size(group);
    float norm;

    for (bool again = true; again;) {
        CHECK_OK(tutti_ddp_begin_step(m->ddp));
        for (int v = rank; v < SHARDS; v += size) {
            tutti_array x = {samples + v * BATCH * WIDTH, TUTTI_SHAPE(BATCH, WIDTH), TUTTI_F32},
                        y = {targets + v * BATCH, TUTTI_SHAPE(BATCH, 1), TUTTI_F32};
            tutti_tensor *t;

            CHECK_OK(tutti_ddp_begin_shard(m->ddp, v, v + size >= SHARDS));
            tutti_step_begin(m->cx, NULL);
            tutti_module_zero_grad(&m->base);
            t = tutti_relu(tutti_linear_forward(&m->fc1, tutti_input(m->cx, x)));
            t = tutti_mse_loss(tutti_linear_forward(&m->fc2, t), tutti_input(m->cx, y));
            CHECK_OK(tutti_backward(tutti_scale(t, m->at.step == 2 ? 0x1p20f : 1)));
            tutti_step_end(m->cx);
        }
        CHECK_OK(tutti_ddp_finish_step(m->ddp, &again));
    }
    CHECK_OK(tutti_clip_grad_norm(&m->base, 1, &norm));
    CHECK_OK(tutti_optim_step(m->optim));
    m->at.step++;
    return 0;
}

static int continue_by_shards(tutti_group *group, void *arg)
{
    char digest[33], expected[33];

    (void)arg;
    for (int k = 0; k < 3; k++) { /* undisturbed; loaded before DDP is made; after it */
        tutti_checkpoint_opts opts;
        net m;

        CHECK_0(module_new(&m, 16, 7));
        opts = opts_of(&m);
        CHECK_OK(tutti_sgd_new(&m.optim, &m.base, &(tutti_sgd_opts){.lr = 0.1f}));
        if (k == 1)
            CHECK_OK(tutti_checkpoint_load_with(path, &m.base, m.optim, group, &opts));
        CHECK_OK(tutti_ddp_new(&m.ddp, &m.base, group, &(tutti_ddp_opts){.shards = SHARDS}));
        if (k == 2)
            CHECK_OK(tutti_checkpoint_load_with(path, &m.base, m.optim, group, &opts));
        while (m.at.step < 4) {
            if (k == 0 && m.at.step == 3)
                CHECK_OK(tutti_checkpoint_save_with(path, &m.base, m.optim, group, &opts));
            CHECK_0(step_by_shards(&m, group));
        }
        tutti_module_digest(&m.base, k == 0 ? expected : digest);
        if (k > 0)
            CHECK_TEXT(digest, expected);
        net_free(&m);
    }
    return 0;
}

static void steps_by_shards_continue_with_the_same_ranges(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(2, continue_by_shards, NULL), 0);
}

/* ---- Failures ----------------------------------------------------------------------------------------------------- */

/* Loads into a net of this width; expects this status and message on all ranks, and nothing changed. */
typedef struct refusal {
    int64_t width;
    bool sgd;
    tutti_status status;
    const char *message;
} refusal;

static int refuse(tutti_group *group, void *arg)
{
    const refusal *r = arg;
    char before[33], after[33];
    tutti_position at = {.step = 99};
    tutti_checkpoint_opts opts = {.position = &at};
    tutti_status status;
    net m;

    CHECK_0(module_new(&m, r->width, 11));
    CHECK_OK(r->sgd ? tutti_sgd_new(&m.optim, &m.base, NULL)
                    : tutti_adamw_new(&m.optim, &m.base, NULL));
    tutti_module_digest(&m.base, before);
    status = tutti_checkpoint_load_with(path, &m.base, m.optim, group, &opts);
    CHECK(status == r->status);
    CHECK_TEXT(tutti_last_error(), r->message);
    tutti_module_digest(&m.base, after);
    CHECK_TEXT(after, before);
    CHECK(at.step == 99 && tutti_ctx_step(m.cx) == 0);
    CHECK(tutti_optim_updates(m.optim, m.fc1.weight) == 0);
    net_free(&m);
    return 0;
}

static void refuses(int64_t width, bool sgd, tutti_status status, const char *message)
{
    refusal r = {width, sgd, status, message};

    assert_int_equal(tutti_run_ranks_as_threads(2, refuse, &r), 0);
}

static void damage(const char *file)
{
    char name[160];
    char last = 0;
    int fd;

    snprintf(name, sizeof name, "%s/%s", path, file);
    fd = open(name, O_RDWR);
    assert_true(fd >= 0 && lseek(fd, -5, SEEK_END) > 0 && read(fd, &last, 1) == 1);
    last ^= 1;
    assert_true(lseek(fd, -5, SEEK_END) > 0 && write(fd, &last, 1) == 1);
    close(fd);
}

static void a_failed_load_changes_nothing_on_any_rank(void **state)
{
    job half = {.save = true, .stop = true};
    char name[160], good[96];

    (void)state;
    run_ranks(2, &half);
    refuses(17, false, TUTTI_ERR_FORMAT,
            "model.safetensors does not hold the weights of this model");
    refuses(16, true, TUTTI_ERR_ARG, "is of the optimizer adamw, and this one is sgd");
    damage("model.safetensors");
    refuses(16, false, TUTTI_ERR_FORMAT, "fc2.weight");
    damage("model.safetensors");
    damage("optimizer.safetensors");
    refuses(16, false, TUTTI_ERR_FORMAT, "optimizer.safetensors");
    damage("optimizer.safetensors");
    damage("state.json");
    refuses(16, false, TUTTI_ERR_FORMAT, "state.json is damaged");
    damage("state.json");
    snprintf(name, sizeof name, "%s/optimizer.safetensors", path);
    assert_int_equal(unlink(name), 0);
    refuses(16, false, TUTTI_ERR_ARG, "holds no state of an optimizer");
    snprintf(name, sizeof name, "%s/model.safetensors", path);
    assert_int_equal(unlink(name), 0);
    refuses(16, false, TUTTI_ERR_FORMAT, "is not a checkpoint");
    strcpy(good, path);
    strcat(path, "x");
    refuses(16, false, TUTTI_ERR_NOT_FOUND, "No such file");
    strcpy(path, good);
}

static int differ(tutti_group *group, void *arg)
{
    net m;

    (void)arg;
    CHECK_0(module_new(&m, tutti_group_rank(group) ? 17 : 16, 7));
    CHECK(tutti_checkpoint_load(path, &m.base, NULL, group) == TUTTI_ERR_MISMATCH);
    CHECK_TEXT(tutti_last_error(),
               "\"fc1.weight\" [16,6] F32 on rank 0 but \"fc1.weight\" [17,6] F32 on rank 1");
    CHECK(tutti_checkpoint_load(tutti_group_rank(group) ? NULL : path, &m.base, NULL, group) ==
          TUTTI_ERR_ARG);
    CHECK_TEXT(tutti_last_error(), "rank 1: checkpoint: the path is NULL");
    net_free(&m);
    return 0;
}

static void ranks_that_differ_are_an_error_on_all(void **state)
{
    job half = {.save = true, .stop = true};

    (void)state;
    run_ranks(2, &half);
    assert_int_equal(tutti_run_ranks_as_threads(2, differ, NULL), 0);
}

/* ---- Saving --------------------------------------------------------------------------------------------------------- */

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static int save_fails(tutti_group *group, void *arg)
{
    net m;

    CHECK_0(module_new(&m, 16, 11));
    CHECK(tutti_checkpoint_save(path, &m.base, NULL, group) != TUTTI_OK);
    CHECK_TEXT(tutti_last_error(), (const char *)arg);
    net_free(&m);
    return 0;
}

static void a_failed_save_leaves_the_older_checkpoint(void **state)
{
    job whole = {.save = true}, rest = {.load = true};
    struct dirent *entry;
    DIR *list;

    (void)state;
    run_ranks(2, &whole);
    signal(SIGXFSZ, SIG_IGN);
    limit_files(100);
    assert_int_equal(tutti_run_ranks_as_threads(2, save_fails, "File too large"), 0);
    limit_files(RLIM_INFINITY);
    run_ranks(2, &rest);
    assert_string_equal(rest.end.digest, whole.end.digest);
    list = opendir(dir);
    while ((entry = readdir(list)))
        assert_null(strstr(entry->d_name, ".tmp"));
    closedir(list);
}

static int save_twice(tutti_group *group, void *arg)
{
    char name[200], digest[33], loaded[33];
    net m;

    (void)arg;
    CHECK_0(module_new(&m, 16, 11));
    tutti_module_digest(&m.base, digest);
    snprintf(name, sizeof name, "%s/new/folders/mlp.ckpt/", dir);
    for (int i = 0; i < 2; i++)
        CHECK_OK(tutti_checkpoint_save(name, &m.base, NULL, group));
    net_free(&m);
    CHECK_0(module_new(&m, 16, 12));
    CHECK_OK(tutti_module_load(&m.base, name));
    tutti_module_digest(&m.base, loaded);
    CHECK_TEXT(loaded, digest);
    net_free(&m);
    /* as a kill leaves it between the two renames of a file system that cannot exchange */
    CHECK_OK(tutti_barrier(group, NULL));
    if (tutti_group_rank(group) == 0) {
        char from[200], to[220];

        snprintf(from, sizeof from, "%s/new/folders/mlp.ckpt", dir);
        snprintf(to, sizeof to, "%s.previous.tmp", from);
        CHECK(rename(from, to) == 0);
    }
    CHECK_0(module_new(&m, 16, 12));
    CHECK_OK(tutti_checkpoint_load(name, &m.base, NULL, group));
    tutti_module_digest(&m.base, loaded);
    CHECK_TEXT(loaded, digest);
    net_free(&m);
    return 0;
}

static void saves_weights_alone_and_again(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(2, save_twice, NULL), 0);
}

static void what_is_not_a_checkpoint_is_not_replaced(void **state)
{
    (void)state;
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(tutti_run_ranks_as_threads(2, save_fails, "is not a checkpoint"), 0);
    assert_int_equal(rmdir(path), 0);
    close(open(path, O_WRONLY | O_CREAT, 0666));
    assert_int_equal(tutti_run_ranks_as_threads(2, save_fails, "is not a checkpoint"), 0);
}

static void without_a_group_one_process_saves_and_loads(void **state)
{
    char before[33], after[33];
    net m;

    (void)state;
    assert_int_equal(module_new(&m, 16, 11), 0);
    tutti_module_digest(&m.base, before);
    assert_int_equal(tutti_checkpoint_save(path, &m.base, NULL, NULL), TUTTI_OK);
    net_free(&m);
    assert_int_equal(module_new(&m, 16, 12), 0);
    assert_int_equal(tutti_checkpoint_load(path, &m.base, NULL, NULL), TUTTI_OK);
    tutti_module_digest(&m.base, after);
    assert_string_equal(after, before);
    assert_int_equal(tutti_checkpoint_save("", &m.base, NULL, NULL), TUTTI_ERR_ARG);
    net_free(&m);
}

/* A parameter that was frozen begins anew where it no longer is. */
static void what_was_frozen_is_loaded_to_be_trained(void **state)
{
    static const float ones[WIDTH] = {1, 1, 1, 1, 1, 1}, one[] = {1};
    const tutti_batch b = {.x = {ones, TUTTI_SHAPE(1, WIDTH), TUTTI_F32},
                           .y = {one, TUTTI_SHAPE(1, 1), TUTTI_F32},
                           .n = 1};
    float average[16 * WIDTH];

    (void)state;
    for (int i = 0; i < 2; i++) {
        net m;

        assert_int_equal(module_new(&m, 16, 11), 0);
        assert_int_equal(tutti_adamw_new(&m.optim, &m.base, NULL), TUTTI_OK);
        tutti_parameter_set_requires_grad(m.fc1.weight, i == 1);
        assert_int_equal(step(&m, &b), 0);
        if (i == 0)
            assert_int_equal(tutti_checkpoint_save(path, &m.base, m.optim, NULL), TUTTI_OK);
        else if (tutti_checkpoint_load(path, &m.base, m.optim, NULL) != TUTTI_OK)
            fail_msg("%s", tutti_last_error());
        assert_int_equal(tutti_optim_updates(m.optim, m.fc1.weight), 0);
        assert_int_equal(tutti_optim_updates(m.optim, m.fc2.weight), 1);
        if (i == 1)
            assert_int_equal(tutti_optim_state_read(m.optim, 0, m.fc1.weight, average), TUTTI_OK);
        for (int k = 0; i == 1 && k < 16 * WIDTH; k++)
            assert_true(average[k] == 0);
        net_free(&m);
    }
}

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT * WIDTH; i++)
        samples[i] = (float)(i * 37 % 101) / 50 - 1;
    for (int i = 0; i < COUNT; i++)
        targets[i] = samples[i * WIDTH] - samples[i * WIDTH + 1];
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return -1;
    return path_new();
}

static int tear_down(void **state)
{
    (void)state;
    munmap(shared, sizeof *shared);
    return path_remove();
}

#define EACH(body) cmocka_unit_test_setup_teardown(body, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH (a_run_continues_in_the_middle_of_an_epoch_with_the_same_bits),
        EACH (zero_saves_all_of_the_state_and_continues),
        EACH (steps_by_shards_continue_with_the_same_ranges),
        EACH (another_number_of_ranks_divides_the_rest_of_the_epoch),
        EACH (a_failed_load_changes_nothing_on_any_rank),
        EACH (ranks_that_differ_are_an_error_on_all),
        EACH (a_failed_save_leaves_the_older_checkpoint),
        EACH (saves_weights_alone_and_again),
        EACH (what_is_not_a_checkpoint_is_not_replaced),
        EACH (without_a_group_one_process_saves_and_loads),
        EACH (what_was_frozen_is_loaded_to_be_trained),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
