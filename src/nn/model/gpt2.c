/* gpt2.c -- GPT-2, and "gpt2" of any size.   SPDX-License-Identifier: MIT
 * Radford et al.: "Language Models are Unsupervised Multitask Learners", 2019. Names, shapes and order of the state are those of
 * Hugging Face's GPT2LMHeadModel: the c_* weights are [in, out].
 *
 *   tokens [N,T] -> vectors of tokens and of positions, added [N,T,D] -> blocks -> norm -> logits [N,T,V]; the head is wte's table
 *   block      x = x + attention(norm(x));  x = x + mlp(norm(x)), mlp: D -> 4 D -> gelu -> D
 *   dropout    of the sum of vectors, of the attention's weights, and of what a block adds */
#include "nn/kv_cache.h"
#include "nn/language.h"

#include <math.h>
#include <stdio.h>

#define EPS 1e-5f
#define STD 0.02f /* of initial weights */

typedef struct gpt2_block {
    tutti_module base;
    tutti_norm ln_1, ln_2;
    tutti_module attn;
    tutti__projection c_attn; /* to queries, keys and values, one behind the other */
    tutti__projection attn_proj;
    tutti_module mlp;
    tutti__projection c_fc, mlp_proj;
    int heads, first_head, all_heads; /* of this rank, and of all */
    float dropout;
} gpt2_block;

typedef struct gpt2 {
    tutti_module base;
    tutti_module transformer, h;
    tutti_embedding wte, wpe;
    gpt2_block *block;
    tutti_norm ln_f;
    tutti_linear lm_head;
    int64_t context;
    float dropout;
} gpt2;

static tutti_tensor *attention(gpt2_block *m, tutti_tensor *x)
{
    const tutti_attention_opts opts = {.is_causal = true,
                                       .dropout_p = m->dropout,
                                       .first_head = m->first_head,
                                       .all_heads = m->all_heads};
    tutti_tensor *qkv = tutti__projection_forward(&m->c_attn, x);

    if (m->base.cx->kv_cache)
        qkv = tutti__cached_attention(qkv, NULL, NULL, m->heads, m->heads);
    else
        qkv = tutti_multi_head_attention(qkv, NULL, NULL, m->heads, &opts);
    return tutti__projection_forward(&m->attn_proj, qkv);
}

/* x + what a branch of the block adds to it. */
static tutti_tensor *add_branch(gpt2_block *m, const tutti__projection *last, tutti_tensor *x,
                                tutti_tensor *y)
{
    if (m->dropout > 0)
        y = tutti_parallel_dropout(&m->base, y, m->dropout);
    return tutti_add(x, last->base.hook && m->dropout == 0 ? y : tutti__last_read(y));
}

static tutti_tensor *block_forward(tutti_module *module, tutti_tensor *x)
{
    gpt2_block *m = (gpt2_block *)module;
    tutti_tensor *y = attention(m, tutti_norm_forward(&m->ln_1, x));

    x = add_branch(m, &m->attn_proj, x, y);
    y = tutti__projection_forward(&m->c_fc, tutti_norm_forward(&m->ln_2, x));
    y = tutti__projection_forward(&m->mlp_proj, tutti_gelu(y, TUTTI_GELU_TANH));
    return add_branch(m, &m->mlp_proj, x, y);
}

static void block_init(gpt2_block *m, tutti_module *parent, const tutti__language_sizes *s,
                       float dropout)
{
    /* each block adds twice to the sum that runs through all of them, whose size this keeps */
    const float added = STD / (float)sqrt(2.0 * s->layers);

    tutti_module_init_child(&m->base, parent, NULL);
    tutti_module_set_forward(&m->base, block_forward);
    m->dropout = dropout;
    tutti_layer_norm_init(&m->ln_1, &m->base, "ln_1", TUTTI_SHAPE(s->width));
    tutti_module_init_child(&m->attn, &m->base, "attn");
    tutti__projection_init(&m->c_attn, &m->attn, "c_attn", s->width, 3 * s->width, STD);
    m->all_heads = s->heads;
    m->heads =
        tutti__parallel_heads(&m->base, m->c_attn.weight, "heads: gpt2", s->heads, &m->first_head);
    tutti__projection_init(&m->attn_proj, &m->attn, "c_proj", s->width, s->width, added);
    tutti_layer_norm_init(&m->ln_2, &m->base, "ln_2", TUTTI_SHAPE(s->width));
    m->ln_1.eps = m->ln_2.eps = EPS;
    tutti_module_init_child(&m->mlp, &m->base, "mlp");
    tutti__projection_init(&m->c_fc, &m->mlp, "c_fc", s->width, 4 * s->width, STD);
    tutti__projection_init(&m->mlp_proj, &m->mlp, "c_proj", 4 * s->width, s->width, added);
}

static void init_with(tutti_module *module, const tutti_model_opts *opts, const char *name,
                      int layers, int heads, int64_t width)
{
    const tutti__language_sizes defaults = {
        .layers = layers, .heads = heads, .kv_heads = heads, .width = width, .context = 1024};
    gpt2 *m = (gpt2 *)module;
    tutti__language_sizes s;

    if (!tutti__language_sizes_of(module, name, opts, &defaults, &s))
        return;
    m->dropout = (float)opts->dropout;
    m->context = s.context;
    tutti_module_init_child(&m->transformer, module, "transformer");
    tutti__embedding_init_normal(&m->wte, &m->transformer, "wte", s.vocab, s.width, STD);
    tutti__embedding_init_normal(&m->wpe, &m->transformer, "wpe", s.context, s.width, STD);
    if (m->wpe.weight) /* trained on longer samples than these */
        m->wpe.weight->parameter->leading_rows = true;
    tutti_module_init_child(&m->h, &m->transformer, "h");
    m->block = tutti_module_alloc(module, (size_t)s.layers * sizeof *m->block);
    for (int i = 0; m->block && i < s.layers; i++) {
        block_init(&m->block[i], &m->h, &s, m->dropout);
        tutti_module_set_recompute(&m->block[i].base, opts->recompute);
    }
    tutti_layer_norm_init(&m->ln_f, &m->transformer, "ln_f", TUTTI_SHAPE(s.width));
    m->ln_f.eps = EPS;
    tutti_linear_init_with(
        &m->lm_head, module, "lm_head",
        &(tutti_linear_layer_opts){.in = s.width, .out = s.vocab, .no_bias = true, .zeros = true});
    tutti_parameter_tie(&m->lm_head.weight, m->wte.weight);
}

static tutti_tensor *embed(tutti_module *module, tutti_tensor *x, int i)
{
    gpt2 *m = (gpt2 *)module;
    tutti_tensor *positions = m->wpe.weight, *bad;
    int64_t t;

    (void)i;
    if (!tutti__language_input_fits(module, x, m->context, &bad))
        return bad;
    t = tutti_tensor_shape(x).d[1];
    if (t < m->context)
        positions = tutti_narrow(positions, 0, tutti__kv_cache_length(module->cx), t);
    x = tutti_add(tutti_embedding_forward(&m->wte, x), positions);
    return tutti_parallel_tokens(module, tutti__model_dropout(m->dropout, x));
}

static tutti_tensor *run_block(tutti_module *module, tutti_tensor *x, int i)
{
    return tutti_module_forward(&((gpt2 *)module)->block[i - 1].base, x);
}

static tutti_tensor *head(tutti_module *module, tutti_tensor *x, int i)
{
    gpt2 *m = (gpt2 *)module;

    (void)i;
    return tutti__vocabulary_logits(tutti_norm_forward(&m->ln_f, x), m->lm_head.weight);
}

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    x = tutti_module_forward(&((gpt2 *)module)->h, embed(module, x, 0));
    return head(module, x, 0);
}

static bool block_of(int layers, int i, tutti_model_block *block_p)
{
    const int last = layers + 1;

    *block_p = (tutti_model_block){.forward = i == 0 ? embed : i == last ? head : run_block};
    if (i == 0) {
        snprintf(block_p->name, sizeof block_p->name, "embedding");
        snprintf(block_p->state, sizeof block_p->state, "transformer.wte,transformer.wpe");
    } else if (i == last) {
        snprintf(block_p->name, sizeof block_p->name, "head");
        snprintf(block_p->state, sizeof block_p->state, "transformer.wte,transformer.ln_f,lm_head");
    } else {
        snprintf(block_p->name, sizeof block_p->name, "h.%d", i - 1);
        snprintf(block_p->state, sizeof block_p->state, "transformer.h.%d", i - 1);
    }
    return i <= last;
}

static void init(tutti_module *m, const tutti_model_opts *opts)
{
    init_with(m, opts, "gpt2", 12, 12, 768);
}

static void init_medium(tutti_module *m, const tutti_model_opts *opts)
{
    init_with(m, opts, "gpt2-medium", 24, 16, 1024);
}

static void init_large(tutti_module *m, const tutti_model_opts *opts)
{
    init_with(m, opts, "gpt2-large", 36, 20, 1280);
}

static void init_xl(tutti_module *m, const tutti_model_opts *opts)
{
    init_with(m, opts, "gpt2-xl", 48, 25, 1600);
}

static bool block(const tutti_model_opts *opts, int i, tutti_model_block *block_p)
{
    return block_of(opts->layers ? opts->layers : 12, i, block_p);
}

static bool block_medium(const tutti_model_opts *opts, int i, tutti_model_block *block_p)
{
    (void)opts;
    return block_of(24, i, block_p);
}

static bool block_large(const tutti_model_opts *opts, int i, tutti_model_block *block_p)
{
    (void)opts;
    return block_of(36, i, block_p);
}

static bool block_xl(const tutti_model_opts *opts, int i, tutti_model_block *block_p)
{
    (void)opts;
    return block_of(48, i, block_p);
}

/* How its layers are divided among ranks. */
static const tutti_parallel_rule plan[] = {
    {.name = "transformer.wte,lm_head", .how = TUTTI_PARALLEL_VOCABULARY},
    {.name = "transformer.h.*.attn.c_attn", .how = TUTTI_PARALLEL_COLUMNS, .parts = 3},
    {.name = "transformer.h.*.mlp.c_fc", .how = TUTTI_PARALLEL_COLUMNS},
    {.name = "transformer.h.*.c_proj", .how = TUTTI_PARALLEL_ROWS},
    {.name = "transformer.*ln_?", .how = TUTTI_PARALLEL_TOKENS}};

#define PLAN  .plan = plan, .n_plan = TUTTI__COUNT_OF(plan)
#define SIZES (TUTTI_MODEL_TOKENS | TUTTI_MODEL_CONTEXT | TUTTI_MODEL_RECOMPUTE)

const tutti_model_kind tutti__model_gpt2 = {
    .name = "gpt2",
    .bytes = sizeof(gpt2),
    .init = init,
    .forward = forward,
    .block = block,
    .sizes = SIZES | TUTTI_MODEL_LAYERS | TUTTI_MODEL_HIDDEN | TUTTI_MODEL_HEADS,
    PLAN,
};

const tutti_model_kind tutti__model_gpt2_medium = {
    .name = "gpt2-medium",
    .bytes = sizeof(gpt2),
    .init = init_medium,
    .forward = forward,
    .block = block_medium,
    .sizes = SIZES,
    PLAN,
};

const tutti_model_kind tutti__model_gpt2_large = {
    .name = "gpt2-large",
    .bytes = sizeof(gpt2),
    .init = init_large,
    .forward = forward,
    .block = block_large,
    .sizes = SIZES,
    PLAN,
};

const tutti_model_kind tutti__model_gpt2_xl = {
    .name = "gpt2-xl",
    .bytes = sizeof(gpt2),
    .init = init_xl,
    .forward = forward,
    .block = block_xl,
    .sizes = SIZES,
    PLAN,
};
