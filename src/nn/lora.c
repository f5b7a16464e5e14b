/* lora.c -- low-rank adapters of layers that multiply by a matrix.   SPDX-License-Identifier: MIT
 * Hu et al.: "LoRA: Low-Rank Adaptation of Large Language Models", 2021. Names and initial values are PEFT's.
 *
 *   y = W x + b + alpha / rank * B A dropout(x)        W, b frozen; A [rank,in]; B [out,rank], zeros at first
 *
 * An adapter belongs to the parameter W: a layer declares W adaptable, and adds the adapter's part to its result, however it computed
 * that. A and B are ordinary parameters below the layer's module, so that everything else (tape, DDP, optimizers, files) sees no
 * difference. The factor is applied to A x, which is small. */
#include "nn/nn.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What is below the adapted layer: two modules with a parameter each, as in PEFT. */
typedef struct adapter_memory {
    tutti__adapter adapter;
    tutti_module a, b;
} adapter_memory;

void tutti__set_adaptable(tutti_tensor *weight, tutti__adaptable shape)
{
    if (weight && weight->parameter)
        tutti__state_of(weight)->adaptable = shape;
}

bool tutti__is_of_adapter(const tutti_tensor *t)
{
    const tutti_module *owner = t && t->parameter ? tutti__state_of(t)->owner : NULL;

    return owner && owner->root->lora.rank > 0 &&
           (strcmp(owner->name, "lora_A") == 0 || strcmp(owner->name, "lora_B") == 0);
}

tutti_tensor *tutti__add_adapter(tutti_tensor *y, tutti_tensor *x, const tutti_tensor *weight)
{
    const tutti__adapter *l = weight && weight->parameter ? tutti__state_of(weight)->adapter : NULL;
    tutti_tensor *low;

    if (!l)
        return y;
    x = tutti__parallel_original(x); /* B, not A, is divided as the columns of the weight are */
    low = tutti__parallel_product(l->dropout > 0 ? tutti_dropout(x, l->dropout) : x,
                                  tutti__parallel_weight(l->a, weight), NULL);
    low = l->scale == 1 ? low : tutti_scale(low, l->scale);
    return tutti_add(y, tutti__parallel_product(low, tutti__parallel_weight(l->b, weight), NULL));
}

/* ---- Which layers ------------------------------------------------------------------------------------ */

/* One of the weight's names, its layer's path, or its layer's name alone is in `targets`. */
static bool is_target(const tutti_tensor *weight, const char *targets)
{
    const tutti_module *layer = tutti__state_of(weight)->owner;

    return tutti__tensor_selected(weight, targets) ||
           tutti__name_selected(tutti__module_path(layer), targets) ||
           tutti__name_selected(layer->name, targets);
}

static bool is_adaptable(const tutti_tensor *t)
{
    return tutti__state_of(t)->adaptable != TUTTI__NOT_ADAPTABLE;
}

static bool is_chosen(const tutti_tensor *t, const tutti_lora_opts *o)
{
    return is_adaptable(t) && !(o->train && tutti__tensor_selected(t, o->train)) &&
           (!o->targets || !*o->targets || is_target(t, o->targets));
}

/* That each word of `targets` names a layer that can have an adapter. */
static tutti_status check_targets(const tutti_module *m, const char *targets)
{
    char word[256];

    m = tutti__whole_of(m);
    for (; *targets; targets += strcspn(targets, ","), targets += *targets == ',') {
        const size_t n = strcspn(targets, ",");
        const tutti_module *first = NULL;
        const tutti_tensor *t;
        bool found = n == 0;

        if (n < sizeof word)
            memcpy(word, targets, n);
        word[n < sizeof word ? n : 0] = '\0';
        for (size_t i = 0; !found && (t = tutti_module_parameter(m, i)) != NULL; i++)
            if (is_adaptable(t)) {
                first = first ? first : tutti__state_of(t)->owner;
                found = is_target(t, word);
            }
        if (!found)
            return tutti__fail(TUTTI_ERR_ARG,
                               "lora: \"%.100s\" is no layer that can have an adapter; expected a "
                               "linear layer, or a pattern of some, such as %s",
                               word, first ? tutti__module_path(first) : "(the model has none)");
    }
    return TUTTI_OK;
}

static tutti_status check_opts(const tutti_lora_opts *o)
{
    if (o->rank < 1 || o->rank > 1 << 16)
        return tutti__fail(TUTTI_ERR_ARG, "lora: rank is %d, expected 1 to %d", o->rank, 1 << 16);
    if (!(o->alpha >= 0 && o->alpha <= 1e6))
        return tutti__fail(TUTTI_ERR_ARG, "lora: alpha is %g, expected 0 (the rank) to 1e6",
                           o->alpha);
    if (!(o->dropout >= 0 && o->dropout < 1))
        return tutti__fail(TUTTI_ERR_ARG,
                           "lora: dropout is %g, expected a probability of at least 0 and below 1",
                           o->dropout);
    return TUTTI_OK;
}

static tutti_status check(const tutti_module *m, const tutti_lora_opts *o)
{
    const tutti_tensor *t;
    bool any = false;

    TUTTI_TRY(tutti_module_status(m));
    TUTTI_TRY(TUTTI__NOT_NULL(o));
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_lora_opts, o));
    TUTTI_TRY(check_opts(o));
    if (m->root->flat_parameters || m->root->optims)
        return tutti__fail(TUTTI_ERR_STATE, "lora: the parameters are laid out already; add "
                                            "adapters before the first backward, optimizer or DDP");
    if (m->root->lora.rank > 0)
        return tutti__fail(TUTTI_ERR_STATE, "lora: the model has adapters already, of rank %d",
                           m->root->lora.rank);
    TUTTI_TRY(tutti__parallel_check_adapters(m));
    if (o->targets)
        TUTTI_TRY(check_targets(m, o->targets));
    if (o->train)
        TUTTI_TRY(tutti__check_selection(m, o->train, true, "lora train"));
    for (size_t i = 0; !any && (t = tutti_module_parameter(tutti__whole_of(m), i)) != NULL; i++)
        any = is_chosen(t, o);
    if (!any)
        return tutti__fail(TUTTI_ERR_ARG, "lora: no layer is left to adapt: %s",
                           o->train && *o->train ? "all that could be are trained as a whole"
                                                 : "the model has no linear layer");
    return TUTTI_OK;
}

/* ---- Making them ------------------------------------------------------------------------------------- */

/* Of the whole weight. */
static int64_t whole_size(const tutti__state *state, int dim)
{
    return state->split.count > 0 && state->split.dim == dim ? state->split.whole
                                                             : state->tensor->shape.d[dim];
}

/* A parameter of m that is made next draws the numbers that it has in the whole model, whose adapters are made. */
static void number_as_in_whole(const tutti_module *m)
{
    char name[sizeof((tutti__parameter *)0)->name];
    const tutti_tensor *t;

    snprintf(name, sizeof name, "%s.weight", tutti__module_path(m));
    t = m->root->whole ? tutti_module_find(m->root->whole, name) : NULL;
    if (t)
        m->root->n_drawn = tutti__state_of(t)->later.drawn;
}

/* PEFT's: A as nn.Linear's weight, B zeros. */
static void adapt(tutti_tensor *weight, const tutti_lora_opts *o)
{
    tutti__state *state = tutti__state_of(weight);
    tutti_module *layer = (tutti_module *)(uintptr_t)state->owner;
    const bool out_in = state->adaptable == TUTTI__OUT_IN;
    const tutti__division whole = {0},
                          same = {state->how, state->split.count ? state->split.parts : 1};
    const bool rows = state->how == TUTTI_PARALLEL_ROWS;
    const int64_t out = whole_size(state, out_in ? 0 : 1), in = whole_size(state, out_in ? 1 : 0);
    const double alpha = o->alpha > 0 ? o->alpha : o->rank;
    adapter_memory *memory = tutti_module_alloc(layer, sizeof *memory);

    if (!memory)
        return;
    tutti_module_init_child(&memory->a, layer, "lora_A");
    tutti_module_init_child(&memory->b, layer, "lora_B");
    number_as_in_whole(&memory->a);
    memory->adapter.a = tutti__parameter_make(&memory->a, "weight", TUTTI_SHAPE(o->rank, in),
                                              TUTTI_INIT_UNIFORM, (float)(1 / sqrt((double)in)),
                                              TUTTI__NOT_ADAPTABLE, rows ? &same : &whole);
    memory->adapter.b =
        tutti__parameter_make(&memory->b, "weight", TUTTI_SHAPE(out, o->rank), TUTTI_INIT_ZEROS, 0,
                              TUTTI__NOT_ADAPTABLE, rows ? &whole : &same);
    memory->adapter.scale = (float)(alpha / o->rank);
    memory->adapter.dropout = (float)o->dropout;
    if (memory->adapter.a && memory->adapter.b)
        state->adapter = &memory->adapter;
}

tutti_status tutti_lora_apply(tutti_module *m, const tutti_lora_opts *o)
{
    size_t n;

    TUTTI_TRY(check(m, o));
    if (tutti__whole_of(m) != m)
        TUTTI_TRY(tutti_lora_apply(tutti__whole_of(m), o));
    n = tutti_module_n_parameters(m);
    m->root->lora.rank = o->rank;
    m->root->lora.alpha = o->alpha > 0 ? o->alpha : o->rank;
    m->root->lora.dropout = o->dropout;
    for (size_t i = 0; i < n; i++) {
        tutti_tensor *t = tutti_module_parameter(m, i);

        tutti_parameter_set_requires_grad(t, o->train && tutti__tensor_selected(t, o->train));
        if (is_chosen(t, o))
            adapt(t, o);
    }
    return tutti_module_status(m);
}
