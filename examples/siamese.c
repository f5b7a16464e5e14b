/* siamese.c -- one network embeds three signals, for the triplet loss; siamese.py is the same in PyTorch.   SPDX-License-Identifier: MIT
 *     tutti run -n 2 build/examples/example_siamese */
#include <math.h>
#include <tutti/tutti.h>

enum { N = 32, T = 64, CLASSES = 8, STEPS = 141 };
static float signals[3][N][T]; /* anchor and positive of one frequency, negative of another */

typedef struct {
    tutti_module base; /* first */
    tutti_conv2d conv1, conv2;
    tutti_linear fc;
} encoder;

static tutti_random numbers;
#define UNIFORM ((float)tutti_random_uniform(&numbers)) /* in [0, 1) */

static void make_batch(void)
{
    for (int n = 0; n < N; n++) {
        int class = (int)(CLASSES * UNIFORM);
        int other = (class + 1 + (int)((CLASSES - 1) * UNIFORM)) % CLASSES;
        for (int k = 0; k < 3; k++) {
            float phase = 6.2831853f * UNIFORM;
            float frequency = 0.1f + 0.2f * (float)(k == 2 ? other : class);
            for (int t = 0; t < T; t++)
                signals[k][n][t] = sinf(phase + frequency * (float)t) + UNIFORM - 0.5f;
        }
    }
}

static void init(encoder *m, tutti_ctx *cx)
{
    tutti_conv2d_layer_opts conv = {.in = 1, .out = 16, .kernel = 9};
    tutti_module_init(&m->base, cx);
    tutti_conv1d_init(&m->conv1, &m->base, "conv1", &conv);
    conv.in = 16, conv.out = 32;
    tutti_conv1d_init(&m->conv2, &m->base, "conv2", &conv);
    tutti_linear_init(&m->fc, &m->base, "fc", 32, 8);
}

static tutti_tensor *forward(encoder *m, tutti_tensor *x)
{
    x = tutti_relu(tutti_conv1d_forward(&m->conv1, x));
    x = tutti_relu(tutti_conv1d_forward(&m->conv2, x));
    x = tutti_mean_dim(x, TUTTI_DIMS(-1), false);
    return tutti_normalize(tutti_linear_forward(&m->fc, x), 2, 1, 0);
}

static tutti_tensor *loss_of(encoder *m, tutti_ctx *cx)
{
    tutti_tensor *e[3]; /* [N,8] */
    for (int k = 0; k < 3; k++)
        e[k] =
            forward(m, tutti_input(cx, (tutti_array){signals[k], TUTTI_SHAPE(N, 1, T), TUTTI_F32}));
    return tutti_triplet_margin_loss(e[0], e[1], e[2],
                                     &(tutti_triplet_margin_loss_opts){.margin = 0.5f});
}

int main(void)
{
    tutti_group *group;
    tutti_ctx *cx;
    tutti_ddp *ddp;
    tutti_optim *optim;
    encoder m;

    TUTTI_MUST(tutti_group_init(&group, NULL));
    TUTTI_MUST(tutti_ctx_new(&cx, tutti_group_device(group), NULL));
    init(&m, cx);
    TUTTI_MUST(tutti_ddp_new(&ddp, &m.base, group, NULL)); /* gradients: the mean over all ranks */
    TUTTI_MUST(tutti_adam_new(&optim, &m.base, &(tutti_adam_opts){.lr = 3e-3f}));
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
