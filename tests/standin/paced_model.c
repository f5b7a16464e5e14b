/* paced_model.c -- a model of `tutti train` whose computation takes the same time whatever else the machine does: PACE_LAYERS (8) layers of
 * PACE_WIDTH (256) squared weights, after each of which forward sleeps PACE_MS (5), and backward twice as long. So a step's communication
 * can be compared with what `tutti plan` says of it, also where ranks share cores.   SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/op.h>
#include <tutti/tutti.h>

enum { MOST = 64 };

typedef struct {
    tutti_module base;
    int n;
    tutti_linear in, out, layers[MOST];
} paced;

static int setting(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text && atoi(text) > 0 ? atoi(text) : otherwise;
}

static void pace(int times)
{
    const int ms = setting("PACE_MS", 5) * times;

    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static void sleep_forward(const tutti_op_args *p)
{
    pace(1);
    memcpy(p->y, p->src[0], (size_t)p->count * sizeof *p->y);
}

static void sleep_backward(const tutti_op_args *p)
{
    pace(2);
    if (p->dsrc[0])
        memcpy(p->dsrc[0], p->dy, (size_t)p->count * sizeof *p->y);
}

static const tutti_op sleeps = {.name = "pace",
                                .shape = tutti_op_broadcast,
                                .forward = sleep_forward,
                                .backward = sleep_backward,
                                .activations = 1};

static void init(tutti_module *module, const tutti_model_opts *opts)
{
    paced *m = (paced *)module;
    const int width = setting("PACE_WIDTH", 256), n = setting("PACE_LAYERS", 8);
    char name[24];

    m->n = n < MOST ? n : MOST;
    tutti_linear_init(&m->in, module, "in", opts->channels * opts->height * opts->width, width);
    for (int i = 0; i < m->n; i++) {
        snprintf(name, sizeof name, "layer%d", i);
        tutti_linear_init(&m->layers[i], module, name, width, width);
    }
    tutti_linear_init(&m->out, module, "out", width, opts->classes);
}

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    paced *m = (paced *)module;

    x = tutti_linear_forward(&m->in, tutti_flatten(x));
    for (int i = 0; i < m->n; i++) {
        x = tutti_linear_forward(&m->layers[i], x);
        x = tutti_op_run(&sleeps, &x, 1, NULL, 0);
    }
    return tutti_linear_forward(&m->out, x);
}

static const tutti_model_kind kind = {
    .name = "paced", .bytes = sizeof(paced), .init = init, .forward = forward};
TUTTI_SHARED_MODEL(kind);
