/* resnet18.c -- ResNet-18 tells stripes on images of 64x64 apart; resnet18.py is the same in PyTorch.   SPDX-License-Identifier: MIT
 *     tutti run -n 2 build/examples/example_resnet18 */
#include <tutti/tutti.h>

enum { SIDE = 64, BLOCKS = 8 };

typedef struct {
    tutti_module base;    /* first */
    tutti_conv2d conv[3]; /* the third, and its norm: of the skip, where size and channels change */
    tutti_batch_norm2d norm[3];
    bool has_skip;
} block;

typedef struct {
    tutti_module base;
    block stem, blocks[BLOCKS];
    tutti_linear fc;
} resnet18;

static void conv(block *b, int i, int64_t in, int64_t out, int kernel, int stride)
{
    tutti_conv2d_layer_opts o = {in, out, kernel, .stride = stride, .padding = kernel / 2};
    tutti_conv2d_init(&b->conv[i], &b->base, (char[]){'c', (char)('1' + i), 0}, &o);
    tutti_batch_norm2d_init(&b->norm[i], &b->base, (char[]){'n', (char)('1' + i), 0}, out);
}

static void init(tutti_module *module, const tutti_model_opts *o)
{
    resnet18 *m = (resnet18 *)module;
    tutti_module_init_child(&m->stem.base, module, "stem");
    conv(&m->stem, 0, o->channels, 64, 7, 2);
    for (int i = 0; i < BLOCKS; i++) {
        block *b = &m->blocks[i];
        const int64_t out = 64 << i / 2, in = i % 2 || i == 0 ? out : out / 2;
        tutti_module_init_child(&b->base, module, NULL);
        conv(b, 0, in, out, 3, in == out ? 1 : 2);
        conv(b, 1, out, out, 3, 1);
        if ((b->has_skip = in != out))
            conv(b, 2, in, out, 1, 2);
    }
    tutti_linear_init(&m->fc, module, "fc", 512, o->classes);
}

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    resnet18 *m = (resnet18 *)module;
    x = tutti_batch_norm2d_relu_forward(m->stem.norm, tutti_conv2d_forward(m->stem.conv, x), NULL);
    x = tutti_max_pool2d(x, (tutti_pool_opts){.kernel = 3, .stride = 2, .padding = 1});
    for (block *b = m->blocks; b < m->blocks + BLOCKS; b++) {
        tutti_tensor *y = tutti_conv2d_forward(b->conv, x);
        y = tutti_conv2d_forward(b->conv + 1, tutti_batch_norm2d_relu_forward(b->norm, y, NULL));
        if (b->has_skip)
            x = tutti_batch_norm2d_forward(&b->norm[2], tutti_conv2d_forward(&b->conv[2], x));
        x = tutti_batch_norm2d_relu_forward(&b->norm[1], y, x); /* relu(norm(y) + x) */
    }
    return tutti_linear_forward(&m->fc, tutti_flatten(tutti_global_avg_pool2d(x)));
}

static tutti_status stripes(void *self, size_t n, void *x, void *y) /* in noise */
{
    for (size_t i = 0; i < 3 * SIDE * SIDE; i++) {
        const size_t at = n + (n % 2 ? i / SIDE % SIDE : i % SIDE), width = n % 4 < 2 ? 4 : 8;
        const uint32_t noise = (uint32_t)((n + 1) * (i + 1) * (i + 7)) * 2654435761u;
        ((float *)x)[i] = (float)(at / width % 2) + (float)(noise >> 8) * 0x1p-24f - 1;
    }
    *(int64_t *)y = n % 4; /* their class: direction and width */
    return self ? TUTTI_ERR_INTERNAL : TUTTI_OK;
}

int main(int argc, char **argv)
{
    static const char *const keys[] = {"--epochs=1",    "--optimizer=adam", "--batch-size=8",
                                       "--log-every=4", "--lr=0.0003",      NULL};
    static const tutti_model_kind kind = {
        .name = "stripes", .bytes = sizeof(resnet18), .init = init, .forward = forward};
    const tutti_samples s = {192, {3, {3, SIDE, SIDE}}, .classes = 4, .read = stripes};
    static tutti_dataset *train; /* until the program ends */
    TUTTI_MUST(tutti_dataset_new(&train, &s));
    return tutti_trainer_main(argc, argv, &(tutti_trainer_opts){&kind, train, .defaults = keys});
}
