/* mlp_mixer.c -- an MLP-Mixer finds the quadrant of an image that has a square; mlp_mixer.py is the same in PyTorch.   SPDX-License-Identifier: MIT
 *     tutti run -n 2 build/examples/example_mlp_mixer */
#include <tutti/tutti.h>

enum { SIDE = 16, TOKENS = 16, D = 32, BLOCKS = 2 };

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

static void init(tutti_module *module, const tutti_model_opts *o)
{
    mixer *m = (mixer *)module;
    const tutti_conv2d_layer_opts patches = {o->channels, D, 4, .stride = 4};
    tutti_conv2d_init(&m->patches, module, "patches", &patches);
    for (mixer_block *b = m->blocks; b < m->blocks + BLOCKS; b++) {
        tutti_module_init_child(&b->base, module, NULL);
        tutti_layer_norm_init(&b->norm1, &b->base, "norm1", TUTTI_SHAPE(D));
        tutti_linear_init(&b->token1, &b->base, "token1", TOKENS, 32);
        tutti_linear_init(&b->token2, &b->base, "token2", 32, TOKENS);
        tutti_layer_norm_init(&b->norm2, &b->base, "norm2", TUTTI_SHAPE(D));
        tutti_linear_init(&b->channel1, &b->base, "channel1", D, 64);
        tutti_linear_init(&b->channel2, &b->base, "channel2", 64, D);
    }
    tutti_linear_init(&m->head, module, "head", D, o->classes);
}

static tutti_tensor *mlp(tutti_linear *fc1, tutti_linear *fc2, tutti_tensor *x)
{
    return tutti_linear_forward(fc2, tutti_gelu(tutti_linear_forward(fc1, x), TUTTI_GELU_EXACT));
}

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    mixer *m = (mixer *)module;
    x = tutti_transpose(tutti_flatten_dims(tutti_conv2d_forward(&m->patches, x), 2, -1), 1, 2);
    for (mixer_block *b = m->blocks; b < m->blocks + BLOCKS; b++) { /* x [N,TOKENS,D] */
        tutti_tensor *h = tutti_transpose(tutti_norm_forward(&b->norm1, x), 1, 2);
        x = tutti_add(x, tutti_transpose(mlp(&b->token1, &b->token2, h), 1, 2));
        x = tutti_add(x, mlp(&b->channel1, &b->channel2, tutti_norm_forward(&b->norm2, x)));
    }
    return tutti_linear_forward(&m->head, tutti_mean_dim(x, TUTTI_DIMS(1), false));
}

/* Sample n: noise with a bright square, and its quadrant. */
static tutti_status squares(void *self, size_t n, void *x, void *y)
{
    tutti_random random = {.key = n};
    int row = (int)(12 * tutti_random_uniform(&random));
    int column = (int)(12 * tutti_random_uniform(&random));
    for (int i = 0; i < SIDE * SIDE; i++) {
        int a = i / SIDE - row, b = i % SIDE - column;
        bool inside = a >= 0 && a < 5 && b >= 0 && b < 5;
        ((float *)x)[i] = (float)(inside + tutti_random_uniform(&random) - 0.5);
    }
    *(int64_t *)y = 2 * (row >= 6) + (column >= 6);
    return self ? TUTTI_ERR_INTERNAL : TUTTI_OK;
}

int main(int argc, char **argv)
{
    static const char *const keys[] = {"--epochs=4", "--optimizer=adam", "--lr=0.003", NULL};
    static const tutti_model_kind kind = {
        .name = "mixer", .bytes = sizeof(mixer), .init = init, .forward = forward};
    const tutti_samples s = {1600, {3, {1, SIDE, SIDE}}, .classes = 4, .read = squares};
    static tutti_dataset *train; /* until the program ends */
    TUTTI_MUST(tutti_dataset_new(&train, &s));
    return tutti_trainer_main(argc, argv, &(tutti_trainer_opts){&kind, train, .defaults = keys});
}
