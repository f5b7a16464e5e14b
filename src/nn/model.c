/* model.c -- models by name. A new one: its file in model/, a line in nn.h, a row here.   SPDX-License-Identifier: MIT */
#include "nn/nn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const tutti__model_kind *const kinds[] = {
    &tutti__model_mini_resnet,
    &tutti__model_mlp,
    &tutti__model_linear,
};

static tutti_status find_kind(const char *name, const tutti__model_kind **kind_p)
{
    const char *names[TUTTI__COUNT_OF(kinds)], *near;
    char list[256] = "";

    for (size_t i = 0; i < TUTTI__COUNT_OF(kinds); i++) {
        size_t n = strlen(list);

        names[i] = kinds[i]->name;
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", names[i]);
        if (name && strcmp(name, names[i]) == 0) {
            *kind_p = kinds[i];
            return TUTTI_OK;
        }
    }
    near = name ? tutti__nearest(name, names, TUTTI__COUNT_OF(kinds)) : NULL;
    return tutti__fail(TUTTI_ERR_ARG, "there is no model '%s'%s%s%s; expected one of %s",
                       name ? name : "(null)", near ? ", did you mean '" : "", near ? near : "",
                       near ? "'?" : "", list);
}

static tutti_status check_opts(const char *name, const tutti_model_opts *opts)
{
    const struct {
        const char *name;
        int64_t value;
    } rows[] = {{"channels", opts->channels},
                {"height", opts->height},
                {"width", opts->width},
                {"classes", opts->classes}};

    if (!opts)
        return tutti__fail(TUTTI_ERR_ARG, "model %s: no options, expected the input's size", name);
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

tutti_status tutti_model_new(tutti_model **model_p, tutti_ctx *cx, const char *name,
                             const tutti_model_opts *opts)
{
    const tutti__model_kind *kind;
    tutti_model *model;
    tutti_status status;

    TUTTI_TRY(find_kind(name, &kind));
    TUTTI_TRY(check_opts(name, opts));
    model = tutti__alloc(kind->bytes);
    if (!model)
        return TUTTI_ERR_MEMORY;
    model->kind = kind;
    model->dropout = (float)opts->dropout;
    tutti_module_init(&model->base, cx);
    kind->init(model, opts);
    status = tutti_module_status(&model->base);
    if (status == TUTTI_OK)
        *model_p = model;
    else
        tutti_model_free(model);
    return status;
}

void tutti_model_free(tutti_model *model)
{
    if (model)
        tutti_module_destroy(&model->base);
    free(model);
}

tutti_tensor *tutti__model_dropout(const tutti_model *model, tutti_tensor *x)
{
    return model->dropout > 0 ? tutti_dropout(x, model->dropout) : x;
}

tutti_module *tutti_model_module(tutti_model *model)
{
    return model ? &model->base : NULL;
}

tutti_tensor *tutti_model_forward(tutti_model *model, tutti_tensor *x)
{
    return TUTTI__NOT_NULL(model) == TUTTI_OK ? model->kind->forward(model, x) : NULL;
}
