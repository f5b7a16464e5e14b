/* unet.c -- segmentation: a small U-Net labels each pixel of noisy images; unet.py is the same in PyTorch.   SPDX-License-Identifier: MIT
 *     tutti run -n 2 build/examples/example_unet --run-dir RUN
 *     build/examples/example_unet --predict RUN --split train --out masks.safetensors */
#include <math.h>
#include <tutti/tutti.h>

enum { SIDE = 32 };

typedef struct {
    tutti_module base; /* first */
    tutti_conv2d down1, down2, bottom, conv2, conv1, head;
    tutti_conv_transpose2d up2, up1;
} unet;

static void conv(tutti_module *m, tutti_conv2d *layer, const char *name, int64_t in, int64_t out,
                 int kernel)
{
    const tutti_conv2d_layer_opts o = {in, out, kernel, .padding = kernel / 2};
    tutti_conv2d_init(layer, m, name, &o);
}

static void init(tutti_module *module, const tutti_model_opts *o)
{
    unet *m = (unet *)module;
    tutti_conv2d_layer_opts up = {.in = 32, .out = 16, .kernel = 2, .stride = 2};
    conv(module, &m->down1, "down1", o->channels, 8, 3);
    conv(module, &m->down2, "down2", 8, 16, 3);
    conv(module, &m->bottom, "bottom", 16, 32, 3);
    tutti_conv_transpose2d_init(&m->up2, module, "up2", &up, 0);
    conv(module, &m->conv2, "conv2", 32, 16, 3);
    up.in = 16, up.out = 8;
    tutti_conv_transpose2d_init(&m->up1, module, "up1", &up, 0);
    conv(module, &m->conv1, "conv1", 16, 8, 3);
    conv(module, &m->head, "head", 8, o->classes, 1);
}

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    unet *m = (unet *)module;
    const tutti_pool_opts half = {.kernel = 2};
    tutti_tensor *a = tutti_relu(tutti_conv2d_forward(&m->down1, x));
    tutti_tensor *b = tutti_relu(tutti_conv2d_forward(&m->down2, tutti_max_pool2d(a, half)));
    x = tutti_relu(tutti_conv2d_forward(&m->bottom, tutti_max_pool2d(b, half)));
    x = tutti_conv_transpose2d_forward(&m->up2, x);
    x = tutti_relu(tutti_conv2d_forward(&m->conv2, tutti_cat((tutti_tensor *[]){x, b}, 2, 1)));
    x = tutti_conv_transpose2d_forward(&m->up1, x);
    x = tutti_relu(tutti_conv2d_forward(&m->conv1, tutti_cat((tutti_tensor *[]){x, a}, 2, 1)));
    return tutti_conv2d_forward(&m->head, x); /* [N,classes,SIDE,SIDE] */
}

/* Sample n: its image, and its mask of classes: 0 nothing, 1 square, 2 disc. */
static tutti_status shapes(void *self, size_t n, void *const *arrays)
{
    tutti_random random = {.key = n};
    double p[4];
    for (int k = 0; k < 4; k++)
        p[k] = 6 + 20 * tutti_random_uniform(&random);
    for (int i = 0; i < SIDE * SIDE; i++) {
        bool square = fabs(i / SIDE - p[0]) < 5 && fabs(i % SIDE - p[1]) < 5;
        bool disc = hypot(i / SIDE - p[2], i % SIDE - p[3]) < 5;
        ((int64_t *)arrays[1])[i] = disc ? 2 : square;
        ((float *)arrays[0])[i] = (float)((disc || square) + tutti_random_uniform(&random) - 0.5);
    }
    return self ? TUTTI_ERR_INTERNAL : TUTTI_OK;
}

int main(int argc, char **argv)
{
    static const char *const keys[] = {"--epochs=8", "--optimizer=adam", "--lr=0.01", NULL};
    static const tutti_model_kind kind = {
        .name = "unet", .bytes = sizeof(unet), .init = init, .forward = forward};
    static const tutti_field fields[] = {
        {.name = "x", .dtype = TUTTI_F32, .shape = {3, {1, SIDE, SIDE}}},
        {.name = "y", .dtype = TUTTI_I64, .shape = {2, {SIDE, SIDE}}}};
    const tutti_samples s = {1600, .classes = 3, .fields = fields, .n_fields = 2,
                             .read_arrays = shapes};
    static tutti_dataset *train; /* until the program ends */
    TUTTI_MUST(tutti_dataset_new(&train, &s));
    return tutti_trainer_main(argc, argv, &(tutti_trainer_opts){&kind, train, .defaults = keys});
}
