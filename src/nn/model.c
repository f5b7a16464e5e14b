/* model.c -- models by name: those of the list in nn.h, and the program's own.   SPDX-License-Identifier: MIT */
#include "nn/nn.h"
#include "tensor/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tutti_model {
    tutti_module *module; /* the kind's struct begins here */
};

static const tutti_model_kind *const KINDS[] = {
#define KIND(symbol, name) &tutti__model_##symbol,
    TUTTI__MODELS(KIND)
#undef KIND
};

const tutti_model_kind *tutti__model_find(const char *name)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(KINDS); i++)
        if (strcmp(name, KINDS[i]->name) == 0)
            return KINDS[i];
    return NULL;
}

tutti_status tutti__model_check(const tutti_model_kind *own)
{
    const char *lacks;

    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_model_kind, own));
    lacks = !own->name || !own->name[0]         ? "name is empty"
            : own->bytes < sizeof(tutti_module) ? "bytes is less than a tutti_module's"
            : !own->init                        ? "init is NULL"
            : !own->forward                     ? "forward is NULL"
                                                : NULL;
    if (!lacks)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_ARG,
        "model \"%.60s\": %s in its tutti_model_kind; expected a name, the size of a "
        "struct that begins with a tutti_module, and the functions init and forward",
        own->name ? own->name : "", lacks);
}

static tutti_status find_kind(const char *name, const tutti_model_kind *own,
                              const tutti_model_kind **kind_p)
{
    const char *names[TUTTI__COUNT_OF(KINDS) + 1], *near;
    const size_t count = TUTTI__COUNT_OF(KINDS) + (own != NULL);
    char list[512] = "";

    if (own)
        TUTTI_TRY(tutti__model_check(own));
    *kind_p = own && name && strcmp(name, own->name) == 0 ? own
              : name                                      ? tutti__model_find(name)
                                                          : NULL;
    if (*kind_p)
        return TUTTI_OK;
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(list);

        names[i] = i < TUTTI__COUNT_OF(KINDS) ? KINDS[i]->name : own->name;
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", names[i]);
    }
    near = name ? tutti__nearest(name, names, count) : NULL;
    return tutti__fail(TUTTI_ERR_ARG, "there is no model '%s'%s%s%s; expected one of %s",
                       name ? name : "(null)", near ? " (did you mean '" : "", near ? near : "",
                       near ? "'?)" : "", list);
}

/* Sizes that the kind has not are refused by their key of `tutti train`. */
static tutti_status check_sizes(const tutti_model_kind *kind, const tutti_model_opts *opts)
{
    const struct {
        const char *key;
        int value;
        unsigned bit;
    } rows[] = {{"layers", opts->layers, TUTTI_MODEL_LAYERS},
                {"width of its layers", opts->hidden, TUTTI_MODEL_HIDDEN},
                {"heads", opts->heads, TUTTI_MODEL_HEADS},
                {"patch_size", opts->patch, TUTTI_MODEL_PATCH},
                {"context", opts->context, TUTTI_MODEL_CONTEXT},
                {"kv_heads", opts->llama ? opts->llama->kv_heads : 0, TUTTI_MODEL_KV_HEADS}};

    if (opts->recompute && !(kind->sizes & TUTTI_MODEL_RECOMPUTE))
        return tutti__fail(TUTTI_ERR_ARG,
                           "recompute: model %s has no blocks; expected one that has, such as "
                           "mini_resnet, resnet18, mobilenet_v2, vit or gpt2",
                           kind->name);

    for (size_t i = 0; i < TUTTI__COUNT_OF(rows); i++) {
        if (rows[i].value != 0 && !(kind->sizes & rows[i].bit))
            return tutti__fail(TUTTI_ERR_ARG, "model %s has no %s that could be chosen", kind->name,
                               rows[i].key);
        if (rows[i].value < 0 || rows[i].value > 1 << 20)
            return tutti__fail(TUTTI_ERR_ARG, "model %s: %s is %d, expected 1 to %d", kind->name,
                               rows[i].key, rows[i].value, 1 << 20);
    }
    return TUTTI_OK;
}

/* opts: not NULL. */
static tutti_status check_opts(const char *name, const tutti_model_opts *opts)
{
    const struct {
        const char *name;
        int64_t value;
    } rows[] = {{"channels", opts->channels},
                {"height", opts->height},
                {"width", opts->width},
                {"classes", opts->classes}};

    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_model_opts, opts));
    for (size_t i = 0; i < TUTTI__COUNT_OF(rows); i++)
        if (rows[i].value < 1 || rows[i].value > 1 << 20)
            return tutti__fail(TUTTI_ERR_ARG, "model %s: %s is %lld, expected 1 to %d", name,
                               rows[i].name, (long long)rows[i].value, 1 << 20);
    if (!(opts->dropout >= 0 && opts->dropout <= 1))
        return tutti__fail(TUTTI_ERR_ARG, "model %s: dropout is %g, expected a probability, 0 to 1",
                           name, opts->dropout);
    return TUTTI_OK;
}

static tutti_status check(const char *name, const tutti_model_opts *opts,
                          const tutti_model_kind **kind_p)
{
    TUTTI_TRY(find_kind(name, opts ? opts->kind : NULL, kind_p));
    if (!opts)
        return tutti__fail(TUTTI_ERR_ARG, "model %s: no options, expected the input's size", name);
    TUTTI_TRY(check_opts(name, opts));
    return check_sizes(*kind_p, opts);
}

/* opts->parallel: before the layers are made. */
static tutti_status divide(tutti_module *m, const tutti_model_kind *kind,
                           const tutti_model_opts *opts)
{
    char list[256] = "";
    tutti_parallel_rule rules[32];
    size_t n = 0;

    if (!opts->parallel || (opts->parallel->size <= 1 && opts->parallel->parts == 0))
        return TUTTI_OK;
    if (kind->plan && kind->n_plan > TUTTI__COUNT_OF(rules))
        return tutti__fail(TUTTI_ERR_ARG, "model %s: its plan has %zu rules, expected at most %zu",
                           kind->name, kind->n_plan, TUTTI__COUNT_OF(rules));
    for (size_t i = 0; kind->plan && i < kind->n_plan; i++)
        if (opts->parallel_tokens || kind->plan[i].how != TUTTI_PARALLEL_TOKENS)
            rules[n++] = kind->plan[i];
    if (kind->plan)
        return tutti_module_parallelize(m, opts->parallel, rules, n);
    for (size_t i = 0; i < TUTTI__COUNT_OF(KINDS); i++)
        if (KINDS[i]->plan)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", list[0] ? ", " : "",
                     KINDS[i]->name);
    return tutti__fail(TUTTI_ERR_ARG,
                       "model %s has no plan by which its layers could be divided among ranks "
                       "(tutti_model_kind.plan); those that have one: %s",
                       kind->name, list);
}

tutti_status tutti_model_new(tutti_model **model_p, tutti_ctx *cx, const char *name,
                             const tutti_model_opts *opts)
{
    return tutti__model_new_part(model_p, cx, name, opts, NULL, false);
}

tutti_status tutti__model_new_part(tutti_model **model_p, tutti_ctx *cx, const char *name,
                                   const tutti_model_opts *opts, const char *state, bool no_values)
{
    const tutti_model_kind *kind;
    tutti_model *model;
    tutti_status status;

    TUTTI_TRY(check(name, opts, &kind));
    model = tutti__alloc(sizeof *model);
    if (model)
        model->module = tutti__alloc(kind->bytes);
    if (!model || !model->module) {
        free(model);
        return TUTTI_ERR_MEMORY;
    }
    tutti_module_init(model->module, cx);
    tutti_module_set_forward(model->module, kind->forward);
    if (model->module->root) {
        model->module->root->part = state;
        model->module->root->no_values = no_values;
    }
    status = divide(model->module, kind, opts);
    if (status == TUTTI_OK) {
        kind->init(model->module, opts);
        status = tutti_module_status(model->module);
    }
    if (status == TUTTI_OK && !state) /* else a rule may be for another part */
        status = tutti__parallel_check(model->module);
    if (model->module->root)
        model->module->root->part = NULL;
    if (status == TUTTI_OK)
        *model_p = model;
    else
        tutti_model_free(model);
    return status;
}

void tutti_model_free(tutti_model *model)
{
    if (!model)
        return;
    tutti_module_destroy(model->module);
    free(model->module);
    free(model);
}

tutti_module *tutti_model_module(tutti_model *model)
{
    return model ? model->module : NULL;
}

/* What a view, or a lazy tensor, gets its elements from; NULL: t has its own. */
static tutti_tensor *looks_at(const tutti_tensor *t)
{
    return t->lazy ? t->lazy->x : t->shared && t->node ? t->node->src[0] : NULL;
}

/* Forward of blocks first to end - 1; blocks NULL: of all. */
static tutti_tensor *run_in_model(tutti_model *model, const tutti_model_block *blocks, int first,
                                  int end, tutti_tensor *x)
{
    tutti_ctx *cx = tutti_module_ctx(model->module);
    const bool in_model = cx->in_model;
    tutti_tensor *y = x;

    cx->in_model = true;
    if (!blocks)
        y = tutti_module_forward(model->module, x);
    for (int i = first; blocks && y && i < end; i++)
        y = blocks[i].forward(model->module, y, i);
    cx->in_model = in_model;
    for (tutti_tensor *t = y; t && !in_model; t = looks_at(t))
        t->intermediate = false;
    return y;
}

tutti_tensor *tutti_model_forward(tutti_model *model, tutti_tensor *x)
{
    if (TUTTI__NOT_NULL(model) != TUTTI_OK)
        return NULL;
    return run_in_model(model, NULL, 0, 0, x);
}

tutti_tensor *tutti__model_run(tutti_model *model, const tutti_model_block *blocks, int first,
                               int end, tutti_tensor *x)
{
    return run_in_model(model, blocks, first, end, x);
}

bool tutti__model_reads_tokens(const char *name, const tutti_model_opts *opts)
{
    const tutti_model_kind *kind;

    return find_kind(name, opts ? opts->kind : NULL, &kind) == TUTTI_OK &&
           (kind->sizes & TUTTI_MODEL_TOKENS);
}

tutti_status tutti__model_blocks(const char *name, const tutti_model_opts *opts,
                                 tutti_model_block **blocks_p, int *n_p)
{
    const tutti_model_kind *kind;
    tutti_model_block block;
    int n = 0;

    *blocks_p = NULL;
    TUTTI_TRY(check(name, opts, &kind));
    if (!kind->block)
        return tutti__fail(TUTTI_ERR_ARG,
                           "model %s is no list of blocks, so that it cannot be cut into stages; "
                           "expected one that is, such as gpt2, llama, vit, resnet18, mini_resnet "
                           "or mlp",
                           name);
    while (n < 65536 && kind->block(opts, n, &block))
        n++;
    *blocks_p = tutti__alloc((size_t)(n + 1) * sizeof **blocks_p);
    if (!*blocks_p)
        return TUTTI_ERR_MEMORY;
    for (int i = 0; i < n; i++) {
        (void)kind->block(opts, i, &(*blocks_p)[i]);
        TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_model_block, &(*blocks_p)[i]));
        if (!(*blocks_p)[i].forward || !(*blocks_p)[i].name[0])
            return tutti__fail(TUTTI_ERR_ARG,
                               "model %s: block %d has no name, or no forward function; expected "
                               "both (tutti_model_block)",
                               name, i);
    }
    *n_p = n;
    return TUTTI_OK;
}
