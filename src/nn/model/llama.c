/* llama.c -- Llama of any size.   SPDX-License-Identifier: MIT
 * Touvron et al.: "LLaMA: Open and Efficient Foundation Language Models", 2023. Names, shapes and order of the state are those of
 * Hugging Face's LlamaForCausalLM.
 *
 *   tokens [N,T] -> vectors [N,T,D] -> layers -> norm -> logits [N,T,V]
 *   layer      x = x + attention(norm(x));  x = x + mlp(norm(x)), mlp: (silu(x gate) * (x up)) down, D -> F -> D
 *   attention  queries and keys are rotated by their positions; several heads of queries may share one of keys and values
 *   dropout    of the attention's weights, and of what a layer adds */
#include "nn/kv_cache.h"
#include "nn/language.h"

#include <stdio.h>

#define STD 0.02f /* of initial weights */

typedef struct llama_layer {
    tutti_module base;
    tutti_module self_attn;
    tutti_linear q_proj, k_proj, v_proj, o_proj;
    tutti_module mlp;
    tutti_linear gate_proj, up_proj, down_proj;
    tutti_norm input_layernorm, post_attention_layernorm;
    int heads, kv_heads, first_head; /* of this rank */
    const struct llama *model;
} llama_layer;

typedef struct llama {
    tutti_module base;
    tutti_module model, layers;
    tutti_embedding embed_tokens;
    llama_layer *layer;
    tutti_norm norm;
    tutti_linear lm_head;
    tutti__language_sizes sizes;
    tutti_rope_opts rope;
    float dropout, eps;
} llama;

static void linear_init(tutti_linear *m, tutti_module *parent, const char *name, int64_t in,
                        int64_t out)
{
    tutti_linear_init_with(
        m, parent, name,
        &(tutti_linear_layer_opts){.in = in, .out = out, .no_bias = true, .normal_std = STD});
}

static tutti_tensor *attention(llama_layer *m, tutti_tensor *x)
{
    const tutti__language_sizes *s = &m->model->sizes;
    const tutti_attention_opts opts = {.is_causal = true,
                                       .dropout_p = m->model->dropout,
                                       .kv_heads = m->kv_heads,
                                       .first_head = m->first_head,
                                       .all_heads = s->heads};
    tutti_rope_opts rope = m->model->rope;
    tutti_tensor *q, *k, *v;

    x = tutti__parallel_shared_input(x, m->q_proj.weight);
    q = tutti_linear_forward(&m->q_proj, x);
    k = tutti_linear_forward(&m->k_proj, x);
    v = tutti_linear_forward(&m->v_proj, x);
    rope.position = tutti__kv_cache_length(m->base.cx);
    q = tutti_rope(q, m->heads, &rope);
    k = tutti_rope(k, m->kv_heads, &rope);
    x = m->base.cx->kv_cache ? tutti__cached_attention(q, k, v, m->heads, m->kv_heads)
                             : tutti_multi_head_attention(q, k, v, m->heads, &opts);
    return tutti_linear_forward(&m->o_proj, x);
}

/* x + what a branch of the layer, whose last part is `last`, adds to it. */
static tutti_tensor *add_branch(llama_layer *m, const tutti_linear *last, tutti_tensor *x,
                                tutti_tensor *y)
{
    if (m->model->dropout > 0)
        return tutti_add(x,
                         tutti__last_read(tutti_parallel_dropout(&m->base, y, m->model->dropout)));
    return tutti_add(x, last->base.hook ? y : tutti__last_read(y));
}

static tutti_tensor *layer_forward(tutti_module *module, tutti_tensor *x)
{
    llama_layer *m = (llama_layer *)module;
    tutti_tensor *y = attention(m, tutti_norm_forward(&m->input_layernorm, x)), *gate;

    x = add_branch(m, &m->o_proj, x, y);
    y = tutti_norm_forward(&m->post_attention_layernorm, x);
    y = tutti__parallel_shared_input(y, m->gate_proj.weight);
    gate = tutti_silu(tutti_linear_forward(&m->gate_proj, y));
    y = tutti_mul(gate, tutti_linear_forward(&m->up_proj, y));
    return add_branch(m, &m->down_proj, x, tutti_linear_forward(&m->down_proj, y));
}

static void layer_init(llama_layer *m, const llama *model, tutti_module *parent, int64_t ffn)
{
    const tutti__language_sizes *s = &model->sizes;
    const int64_t kv = s->width / s->heads * s->kv_heads;

    m->model = model;
    tutti_module_init_child(&m->base, parent, NULL);
    tutti_module_set_forward(&m->base, layer_forward);
    tutti_module_init_child(&m->self_attn, &m->base, "self_attn");
    linear_init(&m->q_proj, &m->self_attn, "q_proj", s->width, s->width);
    linear_init(&m->k_proj, &m->self_attn, "k_proj", s->width, kv);
    linear_init(&m->v_proj, &m->self_attn, "v_proj", s->width, kv);
    m->heads =
        tutti__parallel_heads(&m->base, m->q_proj.weight, "heads: llama", s->heads, &m->first_head);
    m->kv_heads =
        tutti__parallel_heads(&m->base, m->k_proj.weight, "kv_heads: llama", s->kv_heads, NULL);
    linear_init(&m->o_proj, &m->self_attn, "o_proj", s->width, s->width);
    tutti_module_init_child(&m->mlp, &m->base, "mlp");
    linear_init(&m->gate_proj, &m->mlp, "gate_proj", s->width, ffn);
    linear_init(&m->up_proj, &m->mlp, "up_proj", s->width, ffn);
    linear_init(&m->down_proj, &m->mlp, "down_proj", ffn, s->width);
    tutti_rms_norm_init(&m->input_layernorm, &m->base, "input_layernorm", TUTTI_SHAPE(s->width));
    tutti_rms_norm_init(&m->post_attention_layernorm, &m->base, "post_attention_layernorm",
                        TUTTI_SHAPE(s->width));
    m->input_layernorm.eps = m->post_attention_layernorm.eps = model->eps;
}

static void head_init(llama *m, bool tied)
{
    const tutti_linear_layer_opts opts = {.in = m->sizes.width,
                                          .out = m->sizes.vocab,
                                          .no_bias = true,
                                          .normal_std = tied ? 0 : STD,
                                          .zeros = tied};

    tutti_linear_init_with(&m->lm_head, &m->base, "lm_head", &opts);
    tutti__set_adaptable(m->lm_head.weight,
                         TUTTI__NOT_ADAPTABLE); /* its logits are not made here */
    if (tied)
        tutti_parameter_tie(&m->lm_head.weight, m->embed_tokens.weight);
}

static void init_sizes(llama *m, const tutti_llama_opts *opts, bool recompute)
{
    const tutti__language_sizes *s = &m->sizes;
    const int64_t ffn = opts->ffn_width ? opts->ffn_width : (s->width * 8 / 3 + 63) / 64 * 64;

    m->rope = opts->rope;
    m->eps = opts->norm_eps > 0 ? opts->norm_eps : 1e-5f;
    tutti_module_init_child(&m->model, &m->base, "model");
    tutti__embedding_init_normal(&m->embed_tokens, &m->model, "embed_tokens", s->vocab, s->width,
                                 STD);
    tutti_module_init_child(&m->layers, &m->model, "layers");
    m->layer = tutti_module_alloc(&m->base, (size_t)s->layers * sizeof *m->layer);
    for (int i = 0; m->layer && i < s->layers; i++) {
        layer_init(&m->layer[i], m, &m->layers, ffn);
        tutti_module_set_recompute(&m->layer[i].base, recompute);
    }
    tutti_rms_norm_init(&m->norm, &m->model, "norm", TUTTI_SHAPE(s->width));
    m->norm.eps = m->eps;
    head_init(m, opts->tie_embeddings);
}

static tutti_status check_opts(const tutti_llama_opts *opts)
{
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_llama_opts, opts));
    if (opts->ffn_width < 0)
        return tutti__fail(TUTTI_ERR_ARG, "model llama: ffn_width is %d, expected 1 or more",
                           opts->ffn_width);
    if (!(opts->norm_eps >= 0))
        return tutti__fail(TUTTI_ERR_ARG, "model llama: norm_eps is %g, expected 0 or more",
                           (double)opts->norm_eps);
    if (opts->rope.position != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "model llama: rope.position is %lld; the model counts positions itself: "
                           "leave it 0",
                           (long long)opts->rope.position);
    return TUTTI_OK;
}

static void init(tutti_module *module, const tutti_model_opts *opts)
{
    static const tutti__language_sizes defaults = {
        .layers = 12, .heads = 12, .kv_heads = 4, .width = 768, .context = 1024};
    static const tutti_llama_opts plain;
    const tutti_llama_opts *of_llama = opts->llama ? opts->llama : &plain;
    llama *m = (llama *)module;

    if (check_opts(of_llama) != TUTTI_OK) {
        tutti__module_fail(module, TUTTI_ERR_ARG, "%s", tutti_last_error());
        return;
    }
    m->dropout = (float)opts->dropout;
    if (!tutti__language_sizes_of(module, "llama", opts, &defaults, &m->sizes))
        return;
    if (m->sizes.width / m->sizes.heads % 2 != 0) {
        tutti__module_fail(module, TUTTI_ERR_ARG,
                           "width: llama of %lld features with %d heads; expected heads of an even "
                           "number of features, of which pairs are rotated",
                           (long long)m->sizes.width, m->sizes.heads);
        return;
    }
    init_sizes(m, of_llama, opts->recompute);
}

static tutti_tensor *embed(tutti_module *module, tutti_tensor *x, int i)
{
    llama *m = (llama *)module;
    tutti_tensor *bad;

    (void)i;
    if (!tutti__language_input_fits(module, x, m->sizes.context, &bad))
        return bad;
    return tutti_parallel_tokens(module, tutti_embedding_forward(&m->embed_tokens, x));
}

static tutti_tensor *run_layer(tutti_module *module, tutti_tensor *x, int i)
{
    return tutti_module_forward(&((llama *)module)->layer[i - 1].base, x);
}

static tutti_tensor *head(tutti_module *module, tutti_tensor *x, int i)
{
    llama *m = (llama *)module;

    (void)i;
    return tutti__vocabulary_logits(tutti_norm_forward(&m->norm, x), m->lm_head.weight);
}

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    x = tutti_module_forward(&((llama *)module)->layers, embed(module, x, 0));
    return head(module, x, 0);
}

static bool block(const tutti_model_opts *opts, int i, tutti_model_block *block_p)
{
    const int last = (opts->layers ? opts->layers : 12) + 1;

    *block_p = (tutti_model_block){.forward = i == 0 ? embed : i == last ? head : run_layer};
    if (i == 0) {
        snprintf(block_p->name, sizeof block_p->name, "embedding");
        snprintf(block_p->state, sizeof block_p->state, "model.embed_tokens");
    } else if (i == last) {
        snprintf(block_p->name, sizeof block_p->name, "head");
        snprintf(block_p->state, sizeof block_p->state, "model.norm,lm_head%s",
                 opts->llama && opts->llama->tie_embeddings ? ",model.embed_tokens" : "");
    } else {
        snprintf(block_p->name, sizeof block_p->name, "layers.%d", i - 1);
        snprintf(block_p->state, sizeof block_p->state, "model.layers.%d", i - 1);
    }
    return i <= last;
}

/* How its layers are divided among ranks. */
static const tutti_parallel_rule plan[] = {
    {.name = "model.embed_tokens,lm_head", .how = TUTTI_PARALLEL_VOCABULARY},
    {.name = "model.layers.*.self_attn.o_proj,model.layers.*.mlp.down_proj",
     .how = TUTTI_PARALLEL_ROWS},
    {.name = "model.layers.*_proj", .how = TUTTI_PARALLEL_COLUMNS},
    {.name = "model.layers.*norm,model.norm", .how = TUTTI_PARALLEL_TOKENS}};

const tutti_model_kind tutti__model_llama = {
    .name = "llama",
    .bytes = sizeof(llama),
    .init = init,
    .forward = forward,
    .block = block,
    .sizes = TUTTI_MODEL_TOKENS | TUTTI_MODEL_LAYERS | TUTTI_MODEL_HIDDEN | TUTTI_MODEL_HEADS |
             TUTTI_MODEL_KV_HEADS | TUTTI_MODEL_CONTEXT | TUTTI_MODEL_RECOMPUTE,
    .plan = plan,
    .n_plan = TUTTI__COUNT_OF(plan),
};
