/* own_model.c -- your own CNN on images in memory or in a folder; own_model.py is the same in PyTorch.   SPDX-License-Identifier: MIT
 *     tutti run -n 2 build/examples/example_own_model --epochs 5
 *     tutti run -n 2 build/examples/example_own_model --data folder --data-dir pictures */
#include <string.h>
#include <tutti/tutti.h>
typedef struct {
    tutti_module base; /* first */
    tutti_conv2d conv1, conv2;
    tutti_batch_norm2d norm1, norm2;
    tutti_linear fc;
} cnn;

static void init(tutti_module *module, const tutti_model_opts *o)
{
    cnn *m = (cnn *)module;
    tutti_conv2d_layer_opts conv = {
        .in = o->channels, .out = 16, .kernel = 3, .padding = 1, .no_bias = true};

    tutti_conv2d_init(&m->conv1, module, "conv1", &conv);
    tutti_batch_norm2d_init(&m->norm1, module, "norm1", 16);
    conv.in = conv.out;
    tutti_conv2d_init(&m->conv2, module, "conv2", &conv);
    tutti_batch_norm2d_init(&m->norm2, module, "norm2", 16);
    tutti_linear_init(&m->fc, module, "fc", 16 * (o->height / 2) * (o->width / 2), o->classes);
}

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    cnn *m = (cnn *)module;
    x = tutti_batch_norm2d_relu_forward(&m->norm1, tutti_conv2d_forward(&m->conv1, x), NULL);
    x = tutti_batch_norm2d_relu_forward(&m->norm2, tutti_conv2d_forward(&m->conv2, x), NULL);
    x = tutti_flatten(tutti_max_pool2d(x, (tutti_pool_opts){.kernel = 2}));
    return tutti_linear_forward(&m->fc, x);
}

static uint8_t images[1600][256]; /* noise, with a bright square in one of four columns */
static int64_t labels[1600];

static tutti_dataset *squares(size_t first, size_t end)
{
    tutti_samples s = {.count = end - first, .dtype = TUTTI_U8, .classes = 4};
    tutti_dataset *data;
    for (size_t i = first; i < end; i++)
        for (size_t k = 0, class = i % 4, row = i / 4 % 4; k < 256;
             k++, labels[i] = (int64_t) class)
            images[i][k] = (uint8_t)(rand() % 160 + (k / 64 == row && k % 16 / 4 == class) * 80);
    s.shape = TUTTI_SHAPE(1, 16, 16), s.x = images[first], s.labels = labels + first;
    TUTTI_MUST(tutti_dataset_new(&data, &s));
    return data;
}

int main(int argc, char **argv)
{
    tutti_model_kind kind = {.name = "cnn", .bytes = sizeof(cnn), .init = init, .forward = forward};
    static tutti_trainer_opts opts; /* keeps the data until the program ends */
    opts.model = &kind;
    if (argc < 2 || strncmp(argv[1], "--data", 6) != 0) /* else the data of --data */
        opts.train = squares(0, 1280), opts.test = squares(1280, 1600);
    return tutti_trainer_main(argc, argv, &opts);
}
