/* language.c -- parts that language models share.   SPDX-License-Identifier: MIT */
#include "nn/language.h"

#include "nn/kv_cache.h"

/* ---- A linear layer with its weight [in, out] -------------------------------------------------------- */

static tutti_tensor *projection_forward(tutti_module *module, tutti_tensor *x)
{
    const tutti__projection *m = (tutti__projection *)module;

    return tutti__add_adapter(tutti__parallel_product(x, m->weight, m->bias), x, m->weight);
}

void tutti__projection_init(tutti__projection *m, tutti_module *parent, const char *name,
                            int64_t in, int64_t out, float std)
{
    *m = (tutti__projection){0};
    tutti_module_init_child(&m->base, parent, name);
    m->base.forward = projection_forward;
    m->weight = tutti__parameter_make(&m->base, "weight", TUTTI_SHAPE(in, out), TUTTI_INIT_NORMAL,
                                      std, TUTTI__IN_OUT, NULL);
    m->bias = tutti_parameter_new(&m->base, "bias", TUTTI_SHAPE(out), TUTTI_INIT_ZEROS, 0);
}

tutti_tensor *tutti__projection_forward(tutti__projection *m, tutti_tensor *x)
{
    return tutti__module_run(&m->base, x, projection_forward);
}

/* ---- The head ---------------------------------------------------------------------------------------- */

tutti_tensor *tutti__vocabulary_logits(tutti_tensor *x, tutti_tensor *weight)
{
    if (x->cx->kv_cache && tutti_tensor_shape(x).n == 3)
        x = tutti_narrow(x, 1, -1, 1);
    return tutti__parallel_logits(x, weight, NULL);
}

/* ---- Sizes and input --------------------------------------------------------------------------------- */

bool tutti__language_sizes_of(tutti_module *m, const char *model, const tutti_model_opts *opts,
                              const tutti__language_sizes *defaults, tutti__language_sizes *sizes_p)
{
    const int kv_heads = opts->llama ? opts->llama->kv_heads : 0;
    const tutti__language_sizes s = {.layers = opts->layers ? opts->layers : defaults->layers,
                                     .heads = opts->heads ? opts->heads : defaults->heads,
                                     .kv_heads = kv_heads      ? kv_heads
                                                 : opts->heads ? opts->heads
                                                               : defaults->kv_heads,
                                     .width = opts->hidden ? opts->hidden : defaults->width,
                                     .context = opts->context ? opts->context : defaults->context,
                                     .vocab = opts->classes};

    *sizes_p = s;
    if (s.width % s.heads != 0)
        tutti__module_fail(m, TUTTI_ERR_ARG,
                           "width: %s of %lld features with %d heads; expected a number of heads "
                           "that divides the width",
                           model, (long long)s.width, s.heads);
    else if (s.heads % s.kv_heads != 0)
        tutti__module_fail(m, TUTTI_ERR_ARG,
                           "kv_heads: %s of %d heads with %d of keys and values; expected a number "
                           "that divides the heads",
                           model, s.heads, s.kv_heads);
    else if (opts->channels > s.context)
        tutti__module_fail(m, TUTTI_ERR_ARG,
                           "context: samples have %lld tokens and %s looks back over %lld; "
                           "expected samples of at most that many, or a larger context",
                           (long long)opts->channels, model, (long long)s.context);
    else
        return true;
    return false;
}

bool tutti__language_input_fits(tutti_module *m, tutti_tensor *x, int64_t context,
                                tutti_tensor **y_p)
{
    const tutti_shape shape = tutti_tensor_shape(x);
    tutti_status status;

    if (!x || x->poison != TUTTI_OK) {
        *y_p = x;
        return false;
    }
    if (x->dtype == TUTTI_I64 && shape.n == 2 && shape.d[1] >= 1 &&
        shape.d[1] <= context - tutti__kv_cache_length(m->cx))
        return true;
    status = tutti__fail(TUTTI_ERR_ARG,
                         "a language model's input is %s %s, expected tokens, I64 [N,T], of at "
                         "most %lld in a sample",
                         tutti_dtype_name(x->dtype), tutti__shape_text(shape), (long long)context);
    *y_p = tutti__poisoned(m->cx, status);
    return false;
}
