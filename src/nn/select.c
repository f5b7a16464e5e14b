/* select.c -- parameters and buffers by name: lists of names and patterns, and freezing by them.   SPDX-License-Identifier: MIT */
#include "nn/nn.h"
#include "nn/part.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

/* The n characters at `pattern`: a tensor, a module above it, or a pattern. */
static bool selects(const char *pattern, size_t n, const char *name)
{
    char text[256];

    if (n > 0 && pattern[n - 1] == '.')
        n--;
    if (n == 0 || n >= sizeof text)
        return false;
    memcpy(text, pattern, n);
    text[n] = '\0';
    if (strpbrk(text, "*?["))
        return fnmatch(text, name, 0) == 0;
    return strncmp(name, text, n) == 0 && (name[n] == '\0' || name[n] == '.');
}

bool tutti__name_selected(const char *name, const char *patterns)
{
    for (; *patterns; patterns += strcspn(patterns, ","), patterns += *patterns == ',')
        if (selects(patterns, strcspn(patterns, ","), name))
            return true;
    return false;
}

/* Any of its names is pattern's, of n characters. */
static bool selects_tensor(const char *pattern, size_t n, const tutti_tensor *t)
{
    if (!t->parameter)
        return selects(pattern, n, t->name);
    for (const tutti__state *s = tutti__state_of(t); s; s = s->next_tied)
        if (selects(pattern, n, s->parameter.name))
            return true;
    return false;
}

/* t of the whole model, which knows all of its names. */
static const tutti_tensor *with_all_names(const tutti_tensor *t)
{
    const struct tutti_root *root = t->parameter ? t->parameter->owner : NULL;
    const tutti_tensor *of_whole =
        root && root->whole ? tutti_module_find(root->whole, t->name) : NULL;

    return of_whole ? of_whole : t;
}

bool tutti__tensor_selected(const tutti_tensor *t, const char *patterns)
{
    t = with_all_names(t);
    for (; *patterns; patterns += strcspn(patterns, ","), patterns += *patterns == ',')
        if (selects_tensor(patterns, strcspn(patterns, ","), t))
            return true;
    return false;
}

/* The first words of the names, as "conv1, layer1, fc". */
static void list_parts(const tutti_module *m, size_t n, bool parameters_only, char text[400])
{
    const char *before = "";
    size_t used = 0, length = 0;

    for (size_t i = 0; i < n && used < 380; i++) {
        const tutti_tensor *t =
            parameters_only ? tutti_module_parameter(m, i) : tutti_module_state(m, i);
        const bool again =
            i > 0 && strncmp(t->name, before, length) == 0 && strcspn(t->name, ".") == length;

        before = t->name;
        length = strcspn(t->name, ".");
        if (!again)
            used += (size_t)snprintf(text + used, 400 - used, "%s%.*s", used ? ", " : "",
                                     (int)length, t->name);
    }
    if (used >= 380)
        strcpy(text + 376, ", ...");
}

tutti_status tutti__check_selection(const tutti_module *m, const char *patterns,
                                    bool parameters_only, const char *what)
{
    char parts[400] = "(none)";
    size_t n;

    m = tutti__whole_of(m);
    n = parameters_only ? tutti_module_n_parameters(m) : tutti_module_n_state(m);

    for (; *patterns; patterns += strcspn(patterns, ","), patterns += *patterns == ',') {
        const size_t length = strcspn(patterns, ",");
        const char *first = "(none)";
        bool found = length == 0;

        for (size_t i = 0; i < n && !found; i++) {
            const tutti_tensor *t =
                parameters_only ? tutti_module_parameter(m, i) : tutti_module_state(m, i);

            first = i == 0 ? t->name : first;
            found = selects_tensor(patterns, length, t);
        }
        if (!found) {
            list_parts(m, n, parameters_only, parts);
            return tutti__fail(
                TUTTI_ERR_ARG,
                "%s: \"%.*s\" is not a %s or part of the model, such as %s; its parts are %s", what,
                (int)(length < 100 ? length : 100), patterns,
                parameters_only ? "parameter" : "tensor", first, parts);
        }
    }
    return TUTTI_OK;
}

void tutti_parameter_set_requires_grad(tutti_tensor *parameter, bool requires_grad)
{
    if (parameter && parameter->parameter)
        parameter->needs_grad = parameter->parameter->requires_grad = requires_grad;
}

tutti_status tutti_module_freeze(tutti_module *m, const char *patterns)
{
    tutti_tensor *p;

    TUTTI_TRY(tutti_module_status(m));
    TUTTI_TRY(TUTTI__NOT_NULL(patterns));
    TUTTI_TRY(tutti__check_selection(m, patterns, true, "freeze"));
    if (tutti__whole_of(m) != m)
        TUTTI_TRY(tutti_module_freeze(tutti__whole_of(m), patterns));
    for (size_t i = 0; (p = tutti_module_parameter(m, i)) != NULL; i++)
        if (tutti__tensor_selected(p, patterns))
            tutti_parameter_set_requires_grad(p, false);
    return TUTTI_OK;
}

bool tutti__is_left_out(const tutti_module *m, const char *name)
{
    char text[sizeof((tutti__parameter *)0)->name];

    if (!m || !m->root || !m->root->part || !name)
        return false;
    snprintf(text, sizeof text, "%s%s%s", m->parent ? tutti__module_path(m) : "",
             m->parent ? "." : "", name);
    return !tutti__name_selected(text, m->root->part);
}
