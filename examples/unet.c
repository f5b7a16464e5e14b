/* unet.c -- a small U-Net labels each pixel of noisy images; unet.py is the same in PyTorch.   SPDX-License-Identifier: MIT
 *     tutti run -n 2 build/examples/example_unet */
#include <math.h>
#include <tutti/tutti.h>

enum { N = 16, SIDE = 32, STEPS = 101 };
static float images[N][SIDE][SIDE];
static int64_t labels[N][SIDE][SIDE]; /* 0 nothing, 1 square, 2 disc */

typedef struct {
    tutti_module base; /* first */
    tutti_conv2d down1, down2, bottom, conv2, conv1, head;
    tutti_conv_transpose2d up2, up1;
} unet;

static uint64_t state;
static float uniform(void) /* in [0, 1) */
{
    return (float)((state = state * 6364136223846793005u + 1442695040888963407u) >> 40) * 0x1p-24f;
}

static void make_batch(void)
{
    for (int n = 0; n < N; n++) {
        float p[4];
        for (int k = 0; k < 4; k++)
            p[k] = 6 + 20 * uniform();
        for (int i = 0; i < SIDE; i++)
            for (int k = 0; k < SIDE; k++) {
                bool square = fabsf((float)i - p[0]) < 5 && fabsf((float)k - p[1]) < 5;
                bool disc = hypotf((float)i - p[2], (float)k - p[3]) < 5;
                labels[n][i][k] = disc ? 2 : square;
                images[n][i][k] = (float)(disc || square) + uniform() - 0.5f;
            }
    }
}

static void conv(tutti_conv2d *layer, tutti_module *m, const char *name, int in, int out,
                 int kernel)
{
    tutti_conv2d_init(
        layer, m, name,
        &(tutti_conv2d_layer_opts){.in = in, .out = out, .kernel = kernel, .padding = kernel / 2});
}

static void init(unet *m, tutti_ctx *cx)
{
    tutti_conv2d_layer_opts up = {.in = 32, .out = 16, .kernel = 2, .stride = 2};
    tutti_module_init(&m->base, cx);
    conv(&m->down1, &m->base, "down1", 1, 8, 3);
    conv(&m->down2, &m->base, "down2", 8, 16, 3);
    conv(&m->bottom, &m->base, "bottom", 16, 32, 3);
    tutti_conv_transpose2d_init(&m->up2, &m->base, "up2", &up, 0);
    conv(&m->conv2, &m->base, "conv2", 32, 16, 3);
    up.in = 16, up.out = 8;
    tutti_conv_transpose2d_init(&m->up1, &m->base, "up1", &up, 0);
    conv(&m->conv1, &m->base, "conv1", 16, 8, 3);
    conv(&m->head, &m->base, "head", 8, 3, 1);
}

static tutti_tensor *forward(unet *m, tutti_tensor *x)
{
    const tutti_pool_opts half = {.kernel = 2};
    tutti_tensor *a = tutti_relu(tutti_conv2d_forward(&m->down1, x));
    tutti_tensor *b = tutti_relu(tutti_conv2d_forward(&m->down2, tutti_max_pool2d(a, half)));
    x = tutti_relu(tutti_conv2d_forward(&m->bottom, tutti_max_pool2d(b, half)));
    x = tutti_conv_transpose2d_forward(&m->up2, x);
    x = tutti_relu(tutti_conv2d_forward(&m->conv2, tutti_cat((tutti_tensor *[]){x, b}, 2, 1)));
    x = tutti_conv_transpose2d_forward(&m->up1, x);
    x = tutti_relu(tutti_conv2d_forward(&m->conv1, tutti_cat((tutti_tensor *[]){x, a}, 2, 1)));
    return tutti_conv2d_forward(&m->head, x);
}

static tutti_tensor *loss_of(unet *m, tutti_ctx *cx)
{
    tutti_tensor *x =
        tutti_input(cx, (tutti_array){images, TUTTI_SHAPE(N, 1, SIDE, SIDE), TUTTI_F32});
    tutti_tensor *y = tutti_input(cx, (tutti_array){labels, TUTTI_SHAPE(N, SIDE, SIDE), TUTTI_I64});
    return tutti_cross_entropy_with(forward(m, x), y, NULL);
}

int main(void)
{
    tutti_group *group;
    tutti_ctx *cx;
    tutti_ddp *ddp;
    tutti_optim *optim;
    unet m;

    TUTTI_MUST(tutti_group_init(&group, NULL));
    TUTTI_MUST(tutti_ctx_new(&cx, tutti_group_device(group), NULL));
    init(&m, cx);
    TUTTI_MUST(tutti_ddp_new(&ddp, &m.base, group, NULL)); /* gradients: the mean over all ranks */
    TUTTI_MUST(tutti_adam_new(&optim, &m.base, &(tutti_adam_opts){.lr = 3e-3f}));
    state = (uint64_t)tutti_group_rank(group); /* each rank has samples of its own */
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
