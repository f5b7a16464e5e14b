/* mlp_mixer.c -- an MLP-Mixer finds the quadrant of an image that has a square; mlp_mixer.py is the same in PyTorch.   SPDX-License-Identifier: MIT
 *     tutti run -n 2 build/examples/example_mlp_mixer */
#include <tutti/tutti.h>

enum { N = 32, SIDE = 16, TOKENS = 16, D = 32, BLOCKS = 2, STEPS = 101 };
static float images[N][SIDE][SIDE];
static int64_t labels[N];

typedef struct {
    tutti_module base;
    tutti_norm norm1, norm2;
    tutti_linear token1, token2, channel1, channel2;
} mixer_block;

typedef struct {
    tutti_module base; /* first */
    tutti_conv2d patches;
    mixer_block blocks[BLOCKS];
    tutti_linear head;
} mixer;

static uint64_t state;
static float uniform(void) /* in [0, 1) */
{
    return (float)((state = state * 6364136223846793005u + 1442695040888963407u) >> 40) * 0x1p-24f;
}

static void make_batch(void)
{
    for (int n = 0; n < N; n++) {
        int row = (int)(12 * uniform()), column = (int)(12 * uniform());
        labels[n] = 2 * (row >= 6) + (column >= 6);
        for (int i = 0; i < SIDE; i++)
            for (int k = 0; k < SIDE; k++) {
                bool square = i >= row && i < row + 5 && k >= column && k < column + 5;
                images[n][i][k] = (float)square + uniform() - 0.5f;
            }
    }
}

static void init(mixer *m, tutti_ctx *cx)
{
    tutti_module_init(&m->base, cx);
    tutti_conv2d_init(&m->patches, &m->base, "patches",
                      &(tutti_conv2d_layer_opts){.in = 1, .out = D, .kernel = 4, .stride = 4});
    for (mixer_block *b = m->blocks; b < m->blocks + BLOCKS; b++) {
        tutti_module_init_child(&b->base, &m->base, NULL);
        tutti_layer_norm_init(&b->norm1, &b->base, "norm1", TUTTI_SHAPE(D));
        tutti_linear_init(&b->token1, &b->base, "token1", TOKENS, 32);
        tutti_linear_init(&b->token2, &b->base, "token2", 32, TOKENS);
        tutti_layer_norm_init(&b->norm2, &b->base, "norm2", TUTTI_SHAPE(D));
        tutti_linear_init(&b->channel1, &b->base, "channel1", D, 64);
        tutti_linear_init(&b->channel2, &b->base, "channel2", 64, D);
    }
    tutti_linear_init(&m->head, &m->base, "head", D, 4);
}

static tutti_tensor *mlp(tutti_linear *fc1, tutti_linear *fc2, tutti_tensor *x)
{
    return tutti_linear_forward(fc2, tutti_gelu(tutti_linear_forward(fc1, x), TUTTI_GELU_EXACT));
}

static tutti_tensor *loss_of(mixer *m, tutti_ctx *cx)
{
    tutti_tensor *x =
        tutti_input(cx, (tutti_array){images, TUTTI_SHAPE(N, 1, SIDE, SIDE), TUTTI_F32});
    tutti_tensor *y = tutti_input(cx, (tutti_array){labels, TUTTI_SHAPE(N), TUTTI_I64});
    x = tutti_transpose(tutti_flatten_dims(tutti_conv2d_forward(&m->patches, x), 2, -1), 1, 2);
    for (mixer_block *b = m->blocks; b < m->blocks + BLOCKS; b++) { /* x [N,TOKENS,D] */
        tutti_tensor *h = tutti_transpose(tutti_norm_forward(&b->norm1, x), 1, 2);
        x = tutti_add(x, tutti_transpose(mlp(&b->token1, &b->token2, h), 1, 2));
        x = tutti_add(x, mlp(&b->channel1, &b->channel2, tutti_norm_forward(&b->norm2, x)));
    }
    return tutti_cross_entropy(
        tutti_linear_forward(&m->head, tutti_mean_dim(x, TUTTI_DIMS(1), false)), y);
}

int main(void)
{
    tutti_group *group;
    tutti_ctx *cx;
    tutti_ddp *ddp;
    tutti_optim *optim;
    mixer m;

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
