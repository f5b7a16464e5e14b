/* optim_small_cnn.c -- a user's training program: how long it takes on a quiet or busy machine.   SPDX-License-Identifier: MIT
 *
 *     bench_optim_small_cnn [STEPS [BATCH [THREADS]]]
 *
 * conv3x3(3->32) ReLU pool, conv3x3(32->64) ReLU pool, linear to 10 classes, SGD, on random images 3x32x32; THREADS 0 (the
 * default): the context's own choice. Prints the threads, and wall-clock milliseconds per step over all steps but the
 * first. bench/busy.sh runs it next to busy programs. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#define CLASSES 10

typedef struct network {
    tutti_module module;
    tutti_conv2d conv1, conv2;
    tutti_linear fc;
} network;

static tutti_tensor *forward(network *n, tutti_tensor *x)
{
    const tutti_pool_opts pool = {.kernel = 2, .stride = 2};

    x = tutti_max_pool2d(tutti_relu(tutti_conv2d_forward(&n->conv1, x)), pool);
    x = tutti_max_pool2d(tutti_relu(tutti_conv2d_forward(&n->conv2, x)), pool);
    return tutti_linear_forward(&n->fc, tutti_flatten(x));
}

static void step(tutti_ctx *cx, network *n, tutti_optim *optim, tutti_array x, tutti_array y)
{
    tutti_step_begin(cx, NULL);
    tutti_tensor *loss = tutti_cross_entropy(forward(n, tutti_input(cx, x)), tutti_input(cx, y));
    tutti_optim_zero_grad(optim);
    TUTTI_MUST(tutti_backward(loss));
    TUTTI_MUST(tutti_optim_step(optim));
    (void)tutti_item(loss);
    tutti_step_end(cx);
}

int main(int argc, char **argv)
{
    const int steps = argc > 1 ? atoi(argv[1]) : 300;
    const int64_t batch = argc > 2 ? atoll(argv[2]) : 32;
    const tutti_ctx_opts opts = {.threads = argc > 3 ? atoi(argv[3]) : 0};
    const size_t pixels = (size_t)batch * 3 * 32 * 32;
    float *images = malloc(pixels * sizeof *images);
    int64_t *labels = malloc((size_t)batch * sizeof *labels);
    network n = {0};
    tutti_ctx *cx;
    tutti_optim *optim;
    double begin = 0;

    if (!images || !labels || steps < 2)
        return 1;
    for (size_t i = 0; i < pixels; i++)
        images[i] = (float)((i * 2654435761u >> 8) % 2000) / 1000 - 1;
    for (int64_t i = 0; i < batch; i++)
        labels[i] = i % CLASSES;
    TUTTI_MUST(tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, &opts));
    tutti_module_init(&n.module, cx);
    tutti_conv2d_init(&n.conv1, &n.module, "conv1",
                      &(tutti_conv2d_layer_opts){.in = 3, .out = 32, .kernel = 3, .padding = 1});
    tutti_conv2d_init(&n.conv2, &n.module, "conv2",
                      &(tutti_conv2d_layer_opts){.in = 32, .out = 64, .kernel = 3, .padding = 1});
    tutti_linear_init(&n.fc, &n.module, "fc", 64 * 8 * 8, CLASSES);
    TUTTI_MUST(tutti_module_status(&n.module));
    TUTTI_MUST(tutti_sgd_new(&optim, &n.module, &(tutti_sgd_opts){.lr = 0.01f}));
    for (int i = 0; i < steps; i++) {
        if (i == 1)
            begin = tutti__now_ms();
        step(cx, &n, optim, (tutti_array){images, TUTTI_SHAPE(batch, 3, 32, 32), TUTTI_F32},
             (tutti_array){labels, TUTTI_SHAPE(batch), TUTTI_I64});
    }
    printf("threads %d ms %.3f\n", tutti_ctx_threads(cx), (tutti__now_ms() - begin) / (steps - 1));
    tutti_optim_free(optim);
    tutti_module_destroy(&n.module);
    tutti_ctx_free(cx);
    free(images);
    free(labels);
    return 0;
}
