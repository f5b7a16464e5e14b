/* nn_convolutions.c -- Winograd compared with oneDNN's direct convolution, by shape and direction.   SPDX-License-Identifier: MIT
 *
 *     bench_nn_convolutions [ROUNDS]
 *
 * Each 3x3 convolution is placed between others, so that it has all gradients and a network's layouts. One thread; the fastest of
 * ROUNDS (12) steps of each way in turn; GFLOP/s of a direct convolution's FLOPs, over the core's measured peak. The rule in
 * kernel/onednn/convolution.c follows from this table, for each TUTTI_CPU_ISA. */
#include "device/cpu/peak.h"
#include "tensor/op_profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

typedef struct shape {
    int64_t batch, in, out, size;
    int stride;
} shape;

static const shape shapes[] = {
    {32, 16, 16, 32, 1},   {32, 32, 32, 32, 1},  {32, 64, 64, 32, 1},  {32, 128, 128, 16, 1},
    {32, 256, 256, 8, 1},  {32, 512, 512, 4, 1}, {8, 64, 64, 56, 1},   {8, 512, 512, 7, 1},
    {8, 64, 64, 32, 1},    {8, 128, 128, 16, 1}, {8, 256, 256, 8, 1},  {1, 64, 64, 32, 1},
    {1, 128, 128, 16, 1},  {1, 16, 16, 8, 1},    {1, 512, 512, 8, 1},  {8, 512, 512, 4, 1},
    {1, 256, 256, 8, 1},   {32, 16, 32, 32, 2},  {32, 32, 64, 32, 2},  {32, 64, 128, 32, 2},
    {32, 128, 256, 16, 2}, {32, 256, 512, 8, 2}, {8, 128, 256, 16, 2}, {1, 64, 128, 32, 2},
};
static const char *const ways[] = {"direct", "winograd"};
static const char *const passes[] = {"conv2d forward", "conv2d data", "conv2d weights"};

typedef struct network {
    tutti_module module;
    tutti_conv2d before, conv;
    tutti_linear fc;
    tutti_ctx *cx;
    tutti__profile *profile;
} network;

static void network_init(network *n, const shape *s, const char *way)
{
    setenv("TUTTI_CONV", way, 1);
    TUTTI_MUST(
        tutti_ctx_new(&n->cx, (tutti_device){TUTTI_CPU, 0}, &(tutti_ctx_opts){.threads = 1}));
    n->profile = tutti__profile_new();
    if (!n->profile)
        abort();
    n->cx->profile = n->profile;
    tutti_module_init(&n->module, n->cx);
    tutti_conv2d_init(&n->before, &n->module, "before",
                      &(tutti_conv2d_layer_opts){
                          .in = 3, .out = s->in, .kernel = 3, .padding = 1, .no_bias = true});
    tutti_conv2d_init(&n->conv, &n->module, "conv",
                      &(tutti_conv2d_layer_opts){.in = s->in,
                                                 .out = s->out,
                                                 .kernel = 3,
                                                 .stride = s->stride,
                                                 .padding = 1,
                                                 .no_bias = true});
    tutti_linear_init(&n->fc, &n->module, "fc", s->out, 2);
    TUTTI_MUST(tutti_module_status(&n->module));
}

static void network_free(network *n)
{
    tutti_module_destroy(&n->module);
    n->cx->profile = NULL;
    tutti_ctx_free(n->cx);
    tutti__profile_free(n->profile);
}

/* Lowers `ms` to the times of this step where they are less; returns the FLOPs of a direction. */
static double step(network *n, tutti_array x, tutti_array y, double ms[3])
{
    double flops = 0;

    tutti__profile_reset(n->profile);
    tutti_step_begin(n->cx, NULL);
    tutti_tensor *t = tutti_relu(tutti_conv2d_forward(&n->before, tutti_input(n->cx, x)));
    t = tutti_relu(tutti_conv2d_forward(&n->conv, t));
    t = tutti_linear_forward(&n->fc, tutti_flatten(tutti_global_avg_pool2d(t)));
    t = tutti_cross_entropy(t, tutti_input(n->cx, y));
    TUTTI_MUST(tutti_backward(t));
    tutti_step_end(n->cx);
    tutti_module_zero_grad(&n->module);
    for (size_t i = 0; i < tutti__profile_n_rows(n->profile); i++) {
        const tutti__profile_row *r = tutti__profile_at(n->profile, i);

        for (int p = 0; p < 3; p++)
            if (strcmp(r->layer, "conv") == 0 && strcmp(r->name, passes[p]) == 0) {
                flops = r->flops;
                if (ms[p] == 0 || (double)r->ns * 1e-6 < ms[p])
                    ms[p] = (double)r->ns * 1e-6;
            }
    }
    return flops;
}

static void compare(const shape *s, int rounds, double peak)
{
    const size_t pixels = (size_t)(s->batch * 3 * s->size * s->size);
    float *x = malloc(pixels * sizeof *x);
    int64_t *y = calloc((size_t)s->batch, sizeof *y);
    network n[2] = {0};
    double ms[2][3] = {{0}}, flops = 0;

    if (!x || !y)
        abort();
    for (size_t i = 0; i < pixels; i++)
        x[i] = (float)((i * 2654435761u >> 8) % 2000) / 1000 - 1;
    for (int w = 0; w < 2; w++)
        network_init(&n[w], s, ways[w]);
    for (int i = 0; i < rounds; i++)
        for (int w = 0; w < 2; w++)
            flops =
                step(&n[w], (tutti_array){x, TUTTI_SHAPE(s->batch, 3, s->size, s->size), TUTTI_F32},
                     (tutti_array){y, TUTTI_SHAPE(s->batch), TUTTI_I64}, ms[w]);
    printf("%5lld %4lld %4lld %5lldx%-3lld %6d ", (long long)s->batch, (long long)s->in,
           (long long)s->out, (long long)s->size, (long long)s->size, s->stride);
    for (int p = 0; p < 3; p++)
        printf("   %5.2f %5.2f %5.2fx", flops / ms[0][p] * 1e-6 / peak,
               flops / ms[1][p] * 1e-6 / peak, ms[0][p] / ms[1][p]);
    printf("\n");
    for (int w = 0; w < 2; w++)
        network_free(&n[w]);
    free(x);
    free(y);
}

int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? atoi(argv[1]) : 12;
    tutti__cpu_peak peak;

    if (rounds < 1)
        return 1;
    TUTTI_MUST(tutti__cpu_peak_measure(&peak));
    printf("# %s, measured peak %.1f GFLOP/s; of peak: direct, Winograd; Winograd's speed over "
           "direct's\n",
           peak.isa, peak.gflops);
    printf("#batch   in  out      size stride    forward               data                  "
           "weights\n");
    for (size_t i = 0; i < TUTTI__COUNT_OF(shapes); i++)
        compare(&shapes[i], rounds, peak.gflops);
    return 0;
}
