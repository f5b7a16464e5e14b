/* config_language.c -- keys of language models: their defaults, and what fits together.   SPDX-License-Identifier: MIT */
#include "train/config/config_language.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A default, unless the key is given. */
#define DEFAULT(key, value)                                                                        \
    do {                                                                                           \
        if (!given[TUTTI__KEY_OF_##key]) {                                                         \
            c->key = (value);                                                                      \
            given[TUTTI__KEY_OF_##key] = true;                                                     \
        }                                                                                          \
    } while (0)

/* nanoGPT's recipe for CPUs, with which a text of characters is learnt in a minute. */
static void settle_shakespeare(tutti__train_config *c, const tutti_model_kind *model, bool *given)
{
    if (model->sizes & TUTTI_MODEL_LAYERS)
        DEFAULT(layers, 4);
    if (model->sizes & TUTTI_MODEL_HEADS)
        DEFAULT(heads, 4);
    if (model->sizes & TUTTI_MODEL_HIDDEN)
        DEFAULT(width, 128);
    DEFAULT(context, 64);
    DEFAULT(max_steps, 2000);
    DEFAULT(lr, 1e-3);
    DEFAULT(final_lr, 1e-4);
    DEFAULT(beta2, 0.99);
}

void tutti__config_settle_language(tutti__train_config *c, const tutti_model_kind *model,
                                   bool *given)
{
    const bool cosine = strcmp(c->schedule, "cosine") == 0 || strcmp(c->schedule, "linear") == 0;

    if (!(model->sizes & TUTTI_MODEL_TOKENS))
        return;
    if (!given[TUTTI__KEY_OF_optimizer])
        snprintf(c->optimizer, sizeof c->optimizer, "adamw");
    given[TUTTI__KEY_OF_optimizer] = true;
    DEFAULT(batch_size, 12);
    DEFAULT(clip_grad_norm, c->clip_grad_value > 0 ? 0 : 1);
    DEFAULT(decay_biases, false);
    if (strcmp(c->optimizer, "adamw") == 0) {
        DEFAULT(weight_decay, 0.1);
        if (strcmp(c->data, "shakespeare") == 0 && cosine && !c->init[0])
            settle_shakespeare(c, model, given);
        DEFAULT(beta2, 0.95);
        DEFAULT(lr, c->init[0] ? 5e-5 : 6e-4);
        if (cosine)
            DEFAULT(final_lr, c->lr / 10);
    }
    /* An epoch of text may be longer than the run. */
    if (!given[TUTTI__KEY_OF_warmup_epochs] && strcmp(c->schedule, "onecycle") != 0)
        DEFAULT(warmup_steps, (c->max_steps + 19) / 20);
    if (model->sizes & TUTTI_MODEL_CONTEXT && c->context == 0)
        c->context = 1024;
}

/* ---- Llama's ------------------------------------------------------------------------------------------ */

bool tutti__config_rope(const char *text, tutti_rope_opts *rope)
{
    double context = 0;
    char rest;

    if (!*text)
        return true;
    if (sscanf(text, "linear:%lf%c", &rope->factor, &rest) == 1) {
        rope->scaling = TUTTI_ROPE_LINEAR;
        return rope->factor > 0;
    }
    if (sscanf(text, "llama3:%lf,%lf,%lf,%lf%c", &rope->factor, &rope->low_freq_factor,
               &rope->high_freq_factor, &context, &rest) != 4)
        return false;
    rope->scaling = TUTTI_ROPE_LLAMA3;
    rope->original_context = (int64_t)context;
    return rope->factor > 0 && rope->low_freq_factor > 0 &&
           rope->high_freq_factor > rope->low_freq_factor && context >= 1 && context < 1e9;
}

tutti_status tutti__config_check_language(const tutti__train_config *c,
                                          const tutti_model_kind *model)
{
    const char *name = c->ffn_width         ? "ffn_width"
                       : c->rope_theta > 0  ? "rope_theta"
                       : c->rope_scaling[0] ? "rope_scaling"
                       : c->norm_eps > 0    ? "norm_eps"
                                            : NULL;
    tutti_rope_opts rope = {.theta = 0};

    if (name && !(model->sizes & TUTTI_MODEL_KV_HEADS))
        return tutti__fail(TUTTI_ERR_ARG, "%s: it is for model=llama, and this is %s; leave %s out",
                           name, c->model, name);
    if (tutti__config_rope(c->rope_scaling, &rope))
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG,
                       "rope_scaling: \"%.60s\" is neither linear:FACTOR nor "
                       "llama3:FACTOR,LOW,HIGH,CONTEXT, as in llama3:32,1,4,8192",
                       c->rope_scaling);
}

tutti_model_opts tutti__config_model_opts(const tutti__train_config *c,
                                          const tutti_model_kind *model, tutti_llama_opts *llama)
{
    *llama = (tutti_llama_opts){.ffn_width = (int)c->ffn_width,
                                .kv_heads = (int)c->kv_heads,
                                .tie_embeddings = c->tie_embeddings,
                                .norm_eps = (float)c->norm_eps,
                                .rope = {.theta = c->rope_theta}};
    tutti__config_rope(c->rope_scaling, &llama->rope); /* valid: checked with the other keys */
    return (tutti_model_opts){.dropout = c->dropout,
                              .kind = model,
                              .layers = (int)c->layers,
                              .hidden = (int)c->width,
                              .heads = (int)c->heads,
                              .patch = (int)c->patch_size,
                              .recompute = c->recompute,
                              .context = model->sizes & TUTTI_MODEL_CONTEXT ? (int)c->context : 0,
                              .llama = llama};
}
