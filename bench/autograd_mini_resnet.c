/* autograd_mini_resnet.c -- where a training step of MiniResNet spends its time.   SPDX-License-Identifier: MIT
 *
 *     bench_autograd_mini_resnet [BATCH [STEPS [THREADS [f32 | bf16 | reference]]]]
 *
 * Forward and backward of the model that bench/step.sh trains (conv3x3(3->64) BN ReLU, three stages of two basic blocks of
 * 64, 128, 256 channels, global average pool, linear), on random images 3x32x32, without nn, optimizer or communication.
 * Kernels are timed by wrappers in the context's table. Prints the fastest step and its parts, in milliseconds
 * of this thread's CPU time, which a busy machine disturbs least. */
#include "tensor/kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_PARAMETERS 64

typedef struct parameter {
    tutti_tensor *t;
    tutti__parameter p;
} parameter;

typedef enum part {
    CONVOLUTION_FORWARD,
    CONVOLUTION_DATA,
    CONVOLUTION_WEIGHTS,
    BATCH_NORM_FORWARD,
    BATCH_NORM_BACKWARD,
    FORWARD,
    BACKWARD,
    N_PARTS
} part;

static const char *const part_names[N_PARTS] = {
    "conv forward",        "conv backward data", "conv backward weights", "batch norm forward",
    "batch norm backward", "forward in all",     "backward in all"};

/* Static because the wrappers below have no argument of their own. */
static struct {
    const tutti__kernels *kernels;
    tutti_dtype dtype; /* of autocast */
    double part[N_PARTS];
} timing;

typedef struct model {
    tutti_ctx *cx;
    parameter parameters[MAX_PARAMETERS];
    int n, used, n_buffers, used_buffers;
    tutti_tensor *buffers[MAX_PARAMETERS];
    uint64_t round;
} model;

static double cpu_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* ---- Standing in for kernels -------------------------------------------------------------------------------- */

#define TIMED(what, call)                                                                          \
    do {                                                                                           \
        const double begin_ = cpu_ms();                                                            \
        const tutti_status status_ = timing.kernels->call;                                         \
        timing.part[what] += cpu_ms() - begin_;                                                    \
        return status_;                                                                            \
    } while (0)

static tutti_status convolution_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                        tutti_tensor *b, const tutti__conv2d *a)
{
    TIMED(CONVOLUTION_FORWARD, conv2d_forward(y, x, w, b, a));
}

static tutti_status convolution_data(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *w,
                                     tutti_tensor *b, const tutti__conv2d *a)
{
    TIMED(CONVOLUTION_DATA, conv2d_backward_data(dx, dy, w, b, a));
}

static tutti_status convolution_weights(tutti_tensor *dw, tutti_tensor *db, tutti_tensor *dy,
                                        tutti_tensor *x, const tutti__conv2d *a)
{
    TIMED(CONVOLUTION_WEIGHTS, conv2d_backward_weights(dw, db, dy, x, a));
}

static tutti_status batch_norm_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                       tutti_tensor *b, tutti_tensor *residual, tutti_tensor *mean,
                                       tutti_tensor *var, const tutti__batch_norm *a,
                                       tutti__batch_norm_saved *saved)
{
    TIMED(BATCH_NORM_FORWARD, batch_norm_forward(y, x, w, b, residual, mean, var, a, saved));
}

static tutti_status batch_norm_backward(tutti_tensor *dx, tutti_tensor *dw, tutti_tensor *db,
                                        tutti_tensor *dresidual, tutti_tensor *dy, tutti_tensor *y,
                                        tutti_tensor *x, tutti_tensor *w,
                                        const tutti__batch_norm *a,
                                        const tutti__batch_norm_saved *saved)
{
    TIMED(BATCH_NORM_BACKWARD, batch_norm_backward(dx, dw, db, dresidual, dy, y, x, w, a, saved));
}

/* ---- The model ------------------------------------------------------------------------------------------------ */

static tutti_tensor *tensor_new(model *m, tutti_shape shape, float low, float high)
{
    tutti_tensor *t = tutti__tensor_persistent(m->cx, shape, TUTTI_F32);
    const int64_t n = tutti_shape_count(shape);

    t->data = tutti__alloc((size_t)n * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        ((float *)t->data)[i] = low + (high - low) * (float)rand() / (float)RAND_MAX;
    return t;
}

static tutti_tensor *parameter_next(model *m, tutti_shape shape, float low, float high)
{
    parameter *p = &m->parameters[m->used++];

    if (m->used > m->n) {
        m->n = m->used;
        p->t = tensor_new(m, shape, low, high);
        p->p = (tutti__parameter){.requires_grad = true, .round = &m->round};
        p->p.grad = tutti__alloc(tutti__tensor_bytes(p->t));
        p->t->needs_grad = true;
        p->t->parameter = &p->p;
    }
    return p->t;
}

static tutti_tensor *buffer_next(model *m, int64_t n, float value)
{
    if (m->used_buffers == m->n_buffers)
        m->buffers[m->n_buffers++] = tensor_new(m, TUTTI_SHAPE(n), value, value);
    return m->buffers[m->used_buffers++];
}

static tutti_tensor *convolution(model *m, tutti_tensor *x, int64_t out, int kernel, int stride)
{
    return tutti_functional_conv2d(
        x,
        parameter_next(m, TUTTI_SHAPE(out, tutti_tensor_shape(x).d[1], kernel, kernel), -.05f,
                       .05f),
        NULL, (tutti_conv2d_opts){.stride = stride, .padding = kernel / 2});
}

static tutti_tensor *batch_norm(model *m, tutti_tensor *x, bool relu, tutti_tensor *residual)
{
    const int64_t n = tutti_tensor_shape(x).d[1];
    tutti_batch_norm2d_args args = {.relu = relu, .residual = residual};

    args.weight = parameter_next(m, TUTTI_SHAPE(n), 1, 1);
    args.bias = parameter_next(m, TUTTI_SHAPE(n), 0, 0);
    args.running_mean = buffer_next(m, n, 0);
    args.running_var = buffer_next(m, n, 1);
    return tutti_functional_batch_norm2d(x, &args);
}

static tutti_tensor *block(model *m, tutti_tensor *x, int64_t out, int stride)
{
    tutti_tensor *y = batch_norm(m, convolution(m, x, out, 3, stride), true, NULL);

    y = convolution(m, y, out, 3, 1);
    if (stride > 1)
        x = batch_norm(m, convolution(m, x, out, 1, stride), false, NULL);
    return batch_norm(m, y, true, x);
}

static tutti_tensor *forward(model *m, tutti_tensor *x)
{
    m->used = m->used_buffers = 0;
    x = batch_norm(m, convolution(m, x, 64, 3, 1), true, NULL);
    for (int64_t channels = 64; channels <= 256; channels *= 2) {
        x = block(m, x, channels, channels == 64 ? 1 : 2);
        x = block(m, x, channels, 1);
    }
    x = tutti_flatten(tutti_global_avg_pool2d(x));
    return tutti_functional_linear(x, parameter_next(m, TUTTI_SHAPE(10, 256), -.06f, .06f),
                                   parameter_next(m, TUTTI_SHAPE(10), -.06f, .06f));
}

static void model_free(model *m)
{
    for (int i = 0; i < m->n; i++) {
        free(m->parameters[i].p.grad);
        free(m->parameters[i].t->data);
        free(m->parameters[i].t);
    }
    for (int i = 0; i < m->n_buffers; i++) {
        free(m->buffers[i]->data);
        free(m->buffers[i]);
    }
}

/* ---- Measuring ------------------------------------------------------------------------------------------------- */

static tutti_status step(model *m, const float *images, const int64_t *labels, int64_t batch)
{
    double t[3];
    tutti_tensor *loss;
    tutti_status status;

    m->round++;
    memset(timing.part, 0, sizeof timing.part);
    tutti_step_begin(m->cx, &(tutti_step_opts){.autocast = timing.dtype});
    t[0] = cpu_ms();
    loss = tutti_cross_entropy(
        forward(
            m, tutti_input(m->cx, (tutti_array){images, TUTTI_SHAPE(batch, 3, 32, 32), TUTTI_F32})),
        tutti_input(m->cx, (tutti_array){labels, TUTTI_SHAPE(batch), TUTTI_I64}));
    t[1] = cpu_ms();
    status = tutti_backward(loss);
    t[2] = cpu_ms();
    tutti_step_end(m->cx);
    timing.part[FORWARD] = t[1] - t[0];
    timing.part[BACKWARD] = t[2] - t[1];
    return status;
}

static void print(const double best[N_PARTS], double wall, int64_t batch, const tutti_ctx *cx)
{
    double other = best[FORWARD] + best[BACKWARD];

    for (int i = 0; i < N_PARTS; i++) {
        printf("%-24s %8.2f ms\n", part_names[i], best[i]);
        if (i < FORWARD)
            other -= best[i];
    }
    printf("%-24s %8.2f ms\n", "all else", other);
    printf("%-24s %8.2f ms CPU, %.2f ms wall: %.1f images/s\n", "step",
           best[FORWARD] + best[BACKWARD], wall, 1e3 * (double)batch / wall);
    printf("%-24s %8.1f MiB, allocated %llu times\n", "arena",
           (double)tutti_ctx_memory_stats(cx).arena_bytes / 1048576,
           (unsigned long long)tutti_ctx_memory_stats(cx).allocations);
}

static tutti_status run(model *m, int64_t batch, int steps)
{
    float *images = tutti__alloc((size_t)batch * 3072 * sizeof *images);
    int64_t *labels = tutti__alloc((size_t)batch * sizeof *labels);
    double best[N_PARTS] = {0}, wall = 1e30;
    tutti_status status = images && labels ? TUTTI_OK : TUTTI_ERR_MEMORY;

    for (int64_t i = 0; status == TUTTI_OK && i < batch * 3072; i++)
        images[i] = (float)rand() / (float)RAND_MAX * 2 - 1;
    for (int64_t i = 0; status == TUTTI_OK && i < batch; i++)
        labels[i] = i % 10;
    for (int i = 0; i < steps + 2 && status == TUTTI_OK; i++) { /* two to warm up */
        const double begin = tutti__now_ms();

        status = step(m, images, labels, batch);
        if (tutti__now_ms() - begin < wall)
            wall = tutti__now_ms() - begin;
        if (i == 0 || timing.part[FORWARD] + timing.part[BACKWARD] < best[FORWARD] + best[BACKWARD])
            memcpy(best, timing.part, sizeof best);
    }
    if (status == TUTTI_OK)
        print(best, wall, batch, m->cx);
    free(images);
    free(labels);
    return status;
}

int main(int argc, char **argv)
{
    const int64_t batch = argc > 1 ? atoll(argv[1]) : 32;
    const int steps = argc > 2 ? atoi(argv[2]) : 10;
    const tutti_ctx_opts opts = {.threads = argc > 3 ? atoi(argv[3]) : 1,
                                 .kernels = argc > 4 && strcmp(argv[4], "reference") == 0
                                                ? TUTTI_KERNELS_REFERENCE
                                                : TUTTI_KERNELS_AUTO};
    static model m; /* large */
    tutti__kernels timed;
    tutti_status status = tutti_ctx_new(&m.cx, (tutti_device){TUTTI_CPU, 0}, &opts);

    timing.dtype = argc > 4 && strcmp(argv[4], "bf16") == 0 ? TUTTI_BF16 : TUTTI_F32;
    if (status == TUTTI_OK)
        status = tutti__kernels_of(m.cx, timing.dtype, &timing.kernels);
    if (status == TUTTI_OK) {
        timed = *timing.kernels;
        timed.conv2d_forward = convolution_forward;
        timed.conv2d_backward_data = convolution_data;
        timed.conv2d_backward_weights = convolution_weights;
        timed.batch_norm_forward = batch_norm_forward;
        timed.batch_norm_backward = batch_norm_backward;
        if (timing.dtype == TUTTI_F32)
            m.cx->kernels = m.cx->f32_kernels = &timed;
        else
            m.cx->bf16_kernels = &timed;
        printf("%s, %s, batch %lld, %d thread%s\n", tutti_ctx_kernels_name(m.cx),
               tutti_dtype_name(timing.dtype), (long long)batch, tutti_ctx_threads(m.cx),
               tutti_ctx_threads(m.cx) == 1 ? "" : "s");
        status = run(&m, batch, steps);
    }
    if (status != TUTTI_OK)
        fprintf(stderr, "%s\n", tutti_last_error());
    if (m.cx)
        model_free(&m);
    tutti_ctx_free(m.cx);
    return tutti_status_exit_code(status);
}
