/* multi_label.c -- which of six tones a noisy signal contains; multi_label.py is the same in PyTorch.   SPDX-License-Identifier: MIT
 *     tutti run -n 2 build/examples/example_multi_label */
#include <math.h>
#include <tutti/tutti.h>

enum { N = 64, T = 64, TONES = 6, STEPS = 141 };
static float signals[N][T], labels[N][TONES]; /* 1: the tone is there */

typedef struct {
    tutti_module base; /* first */
    tutti_conv2d conv;
    tutti_norm norm;
    tutti_linear fc1, fc2;
} detector;

static tutti_random numbers;
#define UNIFORM ((float)tutti_random_uniform(&numbers)) /* in [0, 1) */

static void make_batch(void)
{
    for (int n = 0; n < N; n++) {
        float phase[TONES];
        for (int k = 0; k < TONES; k++) {
            labels[n][k] = UNIFORM < 0.3f;
            phase[k] = 6.2831853f * UNIFORM;
        }
        for (int t = 0; t < T; t++) {
            signals[n][t] = UNIFORM - 0.5f;
            for (int k = 0; k < TONES; k++)
                signals[n][t] += labels[n][k] * sinf(phase[k] + 0.4f * (float)((k + 1) * t));
        }
    }
}

static void init(detector *m, tutti_ctx *cx)
{
    tutti_module_init(&m->base, cx);
    tutti_conv1d_init(&m->conv, &m->base, "conv",
                      &(tutti_conv2d_layer_opts){.in = 1, .out = 32, .kernel = 16});
    tutti_layer_norm_init(&m->norm, &m->base, "norm", TUTTI_SHAPE(32));
    tutti_linear_init(&m->fc1, &m->base, "fc1", 32, 64);
    tutti_linear_init(&m->fc2, &m->base, "fc2", 64, TONES);
}

static tutti_tensor *loss_of(detector *m, tutti_ctx *cx)
{
    tutti_tensor *x = tutti_input(cx, (tutti_array){signals, TUTTI_SHAPE(N, 1, T), TUTTI_F32});
    tutti_tensor *y = tutti_input(cx, (tutti_array){labels, TUTTI_SHAPE(N, TONES), TUTTI_F32});
    x = tutti_square(tutti_conv1d_forward(&m->conv, x)); /* the power in each band */
    x = tutti_norm_forward(&m->norm, tutti_mean_dim(x, TUTTI_DIMS(-1), false));
    x = tutti_linear_forward(&m->fc2, tutti_relu(tutti_linear_forward(&m->fc1, x)));
    return tutti_binary_cross_entropy_with_logits(x, y, NULL);
}

int main(void)
{
    tutti_group *group;
    tutti_ctx *cx;
    tutti_ddp *ddp;
    tutti_optim *optim;
    detector m;

    TUTTI_MUST(tutti_group_init(&group, NULL));
    TUTTI_MUST(tutti_ctx_new(&cx, tutti_group_device(group), NULL));
    init(&m, cx);
    TUTTI_MUST(tutti_ddp_new(&ddp, &m.base, group, NULL)); /* gradients: the mean over all ranks */
    TUTTI_MUST(tutti_adam_new(&optim, &m.base, &(tutti_adam_opts){.lr = 1e-2f}));
    numbers.key = (uint64_t)tutti_group_rank(group); /* each rank has samples of its own */
    for (int step = 0; step < STEPS; step++) {
        make_batch();
        tutti_step_begin(cx, NULL);
        tutti_tensor *loss = loss_of(&m, cx);
        tutti_optim_zero_grad(optim);
        TUTTI_MUST(tutti_backward(loss));
        TUTTI_MUST(tutti_optim_step(optim));
        if (step % 20 == 0) /* of rank 0's samples */
            tutti_log0(group, "step %3d  loss %.4f", step, (double)tutti_item(loss));
        tutti_step_end(cx);
    }
    tutti_optim_free(optim);
    tutti_ddp_free(ddp);
    tutti_module_destroy(&m.base);
    tutti_ctx_free(cx);
    tutti_group_free(group);
}
