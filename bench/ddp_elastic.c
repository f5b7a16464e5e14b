/* ddp_elastic.c -- a worker that may be killed: for bench/elastic.sh, which compares it with bench/peer/torchft_recovery.py.
 * SPDX-License-Identifier: MIT
 *
 *     tutti run -n WORKERS bench_ddp_elastic FOLDER SHARDS [SHARD_MS [ZERO]]
 *
 * Trains linear(64 -> 256) ReLU linear(256 -> 10) by SGD, or with ZERO (1, 2, 3) by AdamW and clipping, in shares that have copies; a shard is 32
 * samples, drawn from (step, shard), and SHARD_MS (5) of waiting in place of a larger model's arithmetic. Runs until the step in the file FOLDER/end, which may be created later. Lines of
 * FOLDER/log: "SECONDS PROCESS STEP" for each commit, and in the end "digest PROCESS DIGEST". */
#include "base/base.h"
#include <tutti/tutti.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 32, FEATURES = 64, HIDDEN = 256, CLASSES = 10 };

static const char *folder;
static int log_fd;

/* Writes a whole line at once: workers share the file. */
static void say(const char *format, ...) TUTTI_PRINTF(1, 2);
static void say(const char *format, ...)
{
    char line[128];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (write(log_fd, line, (size_t)n) != n)
        perror("bench_ddp_elastic: log");
}

/* The step at which to stop; UINT64_MAX: not yet known. */
static uint64_t read_end(void)
{
    char path[4096];
    uint64_t end = UINT64_MAX;
    FILE *f;

    snprintf(path, sizeof path, "%s/end", folder);
    f = fopen(path, "r");
    if (f && fscanf(f, "%" SCNu64, &end) != 1)
        end = UINT64_MAX;
    if (f)
        fclose(f);
    return end;
}

static void draw(uint64_t step, int shard, float *x, int64_t *labels)
{
    static uint32_t bits[BATCH * (FEATURES + 1)];

    tutti__philox_fill(
        4711, (tutti__philox_counter){{0, (uint32_t)shard, (uint32_t)step, (uint32_t)(step >> 32)}},
        0, bits, TUTTI__COUNT_OF(bits));
    for (int i = 0; i < BATCH * FEATURES; i++)
        x[i] = (float)(bits[i] >> 8) * 0x1p-23f - 1;
    for (int i = 0; i < BATCH; i++)
        labels[i] = (int64_t)(bits[BATCH * FEATURES + i] % CLASSES);
}

static void wait_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static void log_commit(uint64_t step)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    say("%lld.%06ld %ld %llu\n", (long long)now.tv_sec, now.tv_nsec / 1000, (long)getpid(),
        (unsigned long long)step);
}

typedef struct trainer {
    tutti_ctx *cx;
    tutti_module module;
    tutti_linear hidden, out;
    tutti_optim *optim;
    tutti_elastic *e;
    bool clips;
} trainer;

/* Forward and backward of a batch. */
static tutti_status compute(trainer *t, uint64_t step, int shard)
{
    static float x[BATCH * FEATURES];
    static int64_t labels[BATCH];
    tutti_tensor *loss, *y;
    tutti_status status;

    draw(step, shard, x, labels);
    tutti_step_begin(t->cx, NULL);
    y = tutti_input(t->cx, (tutti_array){x, TUTTI_SHAPE(BATCH, FEATURES), TUTTI_F32});
    y = tutti_linear_forward(&t->out, tutti_relu(tutti_linear_forward(&t->hidden, y)));
    loss = tutti_cross_entropy(
        y, tutti_input(t->cx, (tutti_array){labels, TUTTI_SHAPE(BATCH), TUTTI_I64}));
    tutti_optim_zero_grad(t->optim);
    status = tutti_backward(loss);
    tutti_step_end(t->cx);
    return status;
}

static void open_trainer(trainer *t, int shards, int zero)
{
    const tutti_ddp_opts opts = {.zero = zero, .shard_copies = zero ? 2 : 1};

    TUTTI_MUST(tutti_ctx_new(&t->cx, (tutti_device){TUTTI_CPU, 0},
                             &(tutti_ctx_opts){.seed = 1, .threads = 1}));
    tutti_module_init(&t->module, t->cx);
    tutti_linear_init(&t->hidden, &t->module, "hidden", FEATURES, HIDDEN);
    tutti_linear_init(&t->out, &t->module, "out", HIDDEN, CLASSES);
    t->clips = zero > 0;
    if (zero)
        TUTTI_MUST(tutti_adamw_new(&t->optim, &t->module, &(tutti_adam_opts){.lr = 1e-3f}));
    else
        TUTTI_MUST(tutti_sgd_new(&t->optim, &t->module, &(tutti_sgd_opts){.lr = 0.05f}));
    TUTTI_MUST(
        compute(t, 0, 0)); /* creates kernels before joining a group, which would have to wait */
    TUTTI_MUST(tutti_elastic_new(&t->e, &(tutti_elastic_opts){.shards = shards}));
    TUTTI_MUST(tutti_elastic_keep_module(t->e, &t->module, &opts, NULL));
    TUTTI_MUST(tutti_elastic_keep_optim(t->e, t->optim));
}

static tutti_status update(trainer *t)
{
    if (t->clips)
        TUTTI_TRY(tutti_clip_grad_norm(&t->module, 0.5f, NULL));
    return tutti_optim_step(t->optim);
}

static void train(trainer *t, long shard_ms)
{
    tutti_status status;
    int shard;

    while (tutti_elastic_step(t->e) < read_end() && tutti_elastic_begin(t->e)) {
        while ((shard = tutti_elastic_shard(t->e)) >= 0) {
            wait_ms(shard_ms);
            status = compute(t, tutti_elastic_step(t->e), shard);
            if (tutti_status_scope(status) != TUTTI_SCOPE_GROUP) /* finish reports it */
                TUTTI_MUST(status);
        }
        if (!tutti_elastic_finish(t->e))
            continue;
        status = update(t);
        if (status != TUTTI_OK) { /* in shares it may fail, and the step is done again */
            if (!tutti_elastic_recover(t->e, status))
                TUTTI_MUST(status);
            continue;
        }
        tutti_elastic_commit(t->e);
        log_commit(tutti_elastic_step(t->e));
    }
    TUTTI_MUST(tutti_elastic_end(t->e));
}

int main(int argc, char **argv)
{
    trainer t;
    char path[4096], digest[33];

    if (argc < 3 || atoi(argv[2]) < 1) {
        fprintf(stderr, "usage: %s FOLDER SHARDS [SHARD_MS [ZERO]]\n", argv[0]);
        return 2;
    }
    folder = argv[1];
    snprintf(path, sizeof path, "%s/log", folder);
    log_fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (log_fd < 0) {
        perror(path);
        return 1;
    }
    open_trainer(&t, atoi(argv[2]), argc > 4 ? atoi(argv[4]) : 0);
    train(&t, argc > 3 ? atol(argv[3]) : 5);
    tutti_module_digest(&t.module, digest);
    if (tutti_elastic_group(t.e)) /* with ZERO 3 others may still read from this worker */
        TUTTI_MUST(tutti_barrier(tutti_elastic_group(t.e), NULL));
    say("digest %ld %s\n", (long)getpid(), digest);
    tutti_elastic_free(t.e);
    tutti_optim_free(t.optim);
    tutti_module_destroy(&t.module);
    tutti_ctx_free(t.cx);
    close(log_fd);
    return 0;
}
