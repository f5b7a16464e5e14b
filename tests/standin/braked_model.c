/* braked_model.c -- a model of `tutti train` for scripts that disturb a training: until the file $GO exists, each forward pass takes
 * $BRAKE_MS longer, so that the training does not end before the script acts, however slow that is.   SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>
#include <tutti/tutti.h>
#include <unistd.h>

typedef struct {
    tutti_module base;
    tutti_linear fc1, fc2;
    float dropout;
} braked;

static void init(tutti_module *module, const tutti_model_opts *opts)
{
    braked *m = (braked *)module;

    m->dropout = (float)opts->dropout;
    tutti_linear_init(&m->fc1, module, "fc1", opts->channels * opts->height * opts->width, 64);
    tutti_linear_init(&m->fc2, module, "fc2", 64, opts->classes);
}

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    braked *m = (braked *)module;
    const char *go = getenv("GO"), *ms = getenv("BRAKE_MS");

    if (go && ms && access(go, F_OK) != 0)
        nanosleep(&(struct timespec){.tv_nsec = atol(ms) * 1000000}, NULL);
    x = tutti_relu(tutti_linear_forward(&m->fc1, tutti_flatten(x)));
    return tutti_linear_forward(&m->fc2, tutti_dropout(x, m->dropout));
}

static const tutti_model_kind kind = {
    .name = "braked", .bytes = sizeof(braked), .init = init, .forward = forward};
TUTTI_SHARED_MODEL(kind);
