/* vit.c -- vision transformers: torchvision's vit_b_16, and "vit" of any size.   SPDX-License-Identifier: MIT
 * Dosovitskiy et al.: "An Image is Worth 16x16 Words", 2020. Names, shapes and order of the state are torchvision's.
 *
 *   x [N,C,H,W] -> patches as rows [N,P,D], a class token before them, + positions -> layers -> norm -> row of the class token -> head
 *   layer      x = x + attention(norm(x));  x = x + mlp(norm(x)), mlp: D -> 4 D -> gelu -> D */
#include "nn/nn.h"

#include <math.h>
#include <stdio.h>

#define EPS 1e-6f

typedef struct vit_layer {
    tutti_module base;
    tutti_norm ln_1, ln_2;
    tutti_module attention;
    tutti_tensor *in_weight,
        *in_bias; /* of queries, keys and values, one behind the other: [3 D, D], [3 D] */
    tutti_linear out;
    tutti_module mlp;
    tutti_linear fc1, fc2;
    int heads;
} vit_layer;

typedef struct vit {
    tutti_module base;
    tutti_tensor *class_token; /* [1,1,D] */
    tutti_conv2d projection;
    tutti_module encoder, layers, heads;
    tutti_tensor *positions; /* [1,P+1,D] */
    vit_layer *layer;
    tutti_norm ln;
    tutti_linear head;
    float dropout;
} vit;

/* Glorot's uniform distribution. */
static float glorot(int64_t in, int64_t out)
{
    return (float)sqrt(6 / (double)(in + out));
}

static void linear_init(tutti_linear *m, tutti_module *parent, const char *name, int64_t in,
                        int64_t out)
{
    tutti_linear_init_with(
        m, parent, name,
        &(tutti_linear_layer_opts){.in = in, .out = out, .uniform_bound = glorot(in, out)});
}

static tutti_tensor *attention(vit_layer *m, tutti_tensor *x)
{
    tutti_tensor *qkv = tutti__parallel_product(x, m->in_weight, m->in_bias);

    qkv = tutti__add_adapter(qkv, x, m->in_weight);
    return tutti_linear_forward(&m->out,
                                tutti_multi_head_attention(qkv, NULL, NULL, m->heads, NULL));
}

/* y of m, read for the last time next, unless a hook has seen it. */
static tutti_tensor *last_read_of(const tutti_linear *m, tutti_tensor *y)
{
    return m->base.hook ? y : tutti__last_read(y);
}

static tutti_tensor *layer_forward(tutti_module *module, tutti_tensor *x)
{
    vit_layer *m = (vit_layer *)module;
    tutti_tensor *y = attention(m, tutti_norm_forward(&m->ln_1, x));

    x = tutti_add(x, last_read_of(&m->out, y));
    y = tutti_linear_forward(&m->fc1, tutti_norm_forward(&m->ln_2, x));
    y = tutti_linear_forward(&m->fc2, tutti_gelu(y, TUTTI_GELU_EXACT));
    return tutti_add(x, last_read_of(&m->fc2, y));
}

static void layer_init(vit_layer *m, tutti_module *parent, int index, int64_t width, int heads)
{
    char name[32];

    snprintf(name, sizeof name, "encoder_layer_%d", index);
    tutti_module_init_child(&m->base, parent, name);
    tutti_module_set_forward(&m->base, layer_forward);
    tutti_layer_norm_init(&m->ln_1, &m->base, "ln_1", TUTTI_SHAPE(width));
    tutti_module_init_child(&m->attention, &m->base, "self_attention");
    m->in_weight =
        tutti__parameter_make(&m->attention, "in_proj_weight", TUTTI_SHAPE(3 * width, width),
                              TUTTI_INIT_UNIFORM, glorot(width, 3 * width), TUTTI__OUT_IN, NULL);
    m->heads = tutti__parallel_heads(&m->base, m->in_weight, "heads: vit", heads, NULL);
    m->in_bias = tutti_parameter_new(&m->attention, "in_proj_bias", TUTTI_SHAPE(3 * width),
                                     TUTTI_INIT_ZEROS, 0);
    tutti_linear_init_with(
        &m->out, &m->attention, "out_proj",
        &(tutti_linear_layer_opts){
            .in = width, .out = width, .uniform_bound = (float)(1 / sqrt((double)width))});
    tutti_layer_norm_init(&m->ln_2, &m->base, "ln_2", TUTTI_SHAPE(width));
    m->ln_1.eps = m->ln_2.eps = EPS;
    tutti_module_init_child(&m->mlp, &m->base, "mlp");
    linear_init(&m->fc1, &m->mlp, "0", width, 4 * width);
    linear_init(&m->fc2, &m->mlp, "3", 4 * width, width); /* 1 and 2: gelu and dropout */
}

/* The largest patch of at most 16 x 16 that leaves at least 4 x 4 of them. */
static int default_patch(const tutti_model_opts *opts)
{
    int patch = 16;

    while (patch > 1 && (opts->height % patch != 0 || opts->width % patch != 0 ||
                         opts->height < 4 * patch || opts->width < 4 * patch))
        patch /= 2;
    return patch;
}

static void init_with(tutti_module *module, const tutti_model_opts *opts, int layers, int64_t width,
                      int heads, int patch)
{
    vit *m = (vit *)module;

    if (width % heads != 0 || opts->height % patch != 0 || opts->width % patch != 0) {
        tutti__module_fail(
            module, TUTTI_ERR_ARG,
            "vit: images of %lld x %lld, patches of %d x %d, width %lld, %d heads; "
            "expected patches that divide the image, and heads that divide the width",
            (long long)opts->height, (long long)opts->width, patch, patch, (long long)width, heads);
        return;
    }
    m->dropout = (float)opts->dropout;
    m->class_token =
        tutti_parameter_new(module, "class_token", TUTTI_SHAPE(1, 1, width), TUTTI_INIT_ZEROS, 0);
    tutti_conv2d_init(&m->projection, module, "conv_proj",
                      &(tutti_conv2d_layer_opts){
                          .in = opts->channels,
                          .out = width,
                          .kernel = patch,
                          .stride = patch,
                          .normal_std = (float)sqrt(1 / (double)(opts->channels * patch * patch))});
    tutti_module_init_child(&m->encoder, module, "encoder");
    m->positions =
        tutti_parameter_new(&m->encoder, "pos_embedding",
                            TUTTI_SHAPE(1, opts->height / patch * (opts->width / patch) + 1, width),
                            TUTTI_INIT_NORMAL, 0.02f);
    tutti_module_init_child(&m->layers, &m->encoder, "layers");
    m->layer = tutti_module_alloc(module, (size_t)layers * sizeof *m->layer);
    for (int i = 0; m->layer && i < layers; i++)
        layer_init(&m->layer[i], &m->layers, i, width, heads);
    for (int i = 0; m->layer && i < layers; i++)
        tutti_module_set_recompute(&m->layer[i].base, opts->recompute);
    tutti_layer_norm_init(&m->ln, &m->encoder, "ln", TUTTI_SHAPE(width));
    m->ln.eps = EPS;
    tutti_module_init_child(&m->heads, module, "heads");
    tutti_linear_init_with(
        &m->head, &m->heads, "head",
        &(tutti_linear_layer_opts){.in = width, .out = opts->classes, .zeros = true});
}

static tutti_tensor *embed(tutti_module *module, tutti_tensor *x, int i)
{
    vit *m = (vit *)module;
    const int64_t n = tutti_tensor_shape(x).d[0];
    tutti_tensor *rows = tutti_conv2d_forward(&m->projection, x); /* [N,D,H',W'] */
    tutti_shape shape = tutti_tensor_shape(rows);

    (void)i;
    rows = tutti_transpose(tutti_reshape(rows, TUTTI_SHAPE(n, shape.d[1], -1)), 1, 2);
    rows = tutti_cat((tutti_tensor *[]){tutti_expand(m->class_token, TUTTI_SHAPE(n, 1, -1)), rows},
                     2, 1);
    return tutti_parallel_tokens(module, tutti_add(rows, m->positions));
}

static tutti_tensor *run_layer(tutti_module *module, tutti_tensor *x, int i)
{
    return tutti_module_forward(&((vit *)module)->layer[i - 1].base, x);
}

static tutti_tensor *head(tutti_module *module, tutti_tensor *x, int i)
{
    vit *m = (vit *)module;

    (void)i;
    x = tutti_parallel_whole(module, tutti_norm_forward(&m->ln, x));
    x = tutti_select(x, 1, 0);
    return tutti_linear_forward(&m->head, tutti__model_dropout(m->dropout, x));
}

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    x = tutti_module_forward(&((vit *)module)->layers, embed(module, x, 0));
    return head(module, x, 0);
}

static bool block(const tutti_model_opts *opts, int i, tutti_model_block *block_p)
{
    const int last = (opts->layers ? opts->layers : 12) + 1;

    *block_p =
        i == 0 ? (tutti_model_block){.name = "conv_proj",
                                     .state = "class_token,conv_proj,encoder.pos_embedding",
                                     .forward = embed}
               : (tutti_model_block){.name = "heads", .state = "encoder.ln,heads", .forward = head};
    if (i == 0 || i >= last)
        return i <= last;
    block_p->forward = run_layer;
    snprintf(block_p->name, sizeof block_p->name, "encoder_layer_%d", i - 1);
    snprintf(block_p->state, sizeof block_p->state, "encoder.layers.encoder_layer_%d", i - 1);
    return true;
}

static void init(tutti_module *module, const tutti_model_opts *opts)
{
    init_with(module, opts, opts->layers ? opts->layers : 12, opts->hidden ? opts->hidden : 192,
              opts->heads ? opts->heads : 3, opts->patch ? opts->patch : default_patch(opts));
}

static void init_b_16(tutti_module *module, const tutti_model_opts *opts)
{
    init_with(module, opts, 12, 768, 12, 16);
}

/* How its layers are divided among ranks. */
static const tutti_parallel_rule plan[] = {
    {.name = "encoder.layers.*.self_attention.in_proj_*",
     .how = TUTTI_PARALLEL_COLUMNS,
     .parts = 3},
    {.name = "encoder.layers.*.self_attention.out_proj", .how = TUTTI_PARALLEL_ROWS},
    {.name = "encoder.layers.*.mlp.0", .how = TUTTI_PARALLEL_COLUMNS},
    {.name = "encoder.layers.*.mlp.3", .how = TUTTI_PARALLEL_ROWS},
    {.name = "encoder.layers.*.ln_?,encoder.ln", .how = TUTTI_PARALLEL_TOKENS}};

const tutti_model_kind tutti__model_vit = {
    .name = "vit",
    .bytes = sizeof(vit),
    .init = init,
    .forward = forward,
    .block = block,
    .sizes = TUTTI_MODEL_LAYERS | TUTTI_MODEL_HIDDEN | TUTTI_MODEL_HEADS | TUTTI_MODEL_PATCH |
             TUTTI_MODEL_RECOMPUTE,
    .plan = plan,
    .n_plan = TUTTI__COUNT_OF(plan),
};

const tutti_model_kind tutti__model_vit_b_16 = {
    .name = "vit_b_16",
    .bytes = sizeof(vit),
    .init = init_b_16,
    .forward = forward,
    .block = block,
    .channels = 3,
    .sizes = TUTTI_MODEL_RECOMPUTE,
    .plan = plan,
    .n_plan = TUTTI__COUNT_OF(plan),
};
