/* tied.c -- parameters with several names.   SPDX-License-Identifier: MIT
 *
 * A tied parameter's entry leaves the lists of state; its name stays in the table of names, and points to the other. */
#include "nn/nn.h"

#include <stdlib.h>
#include <string.h>

static tutti_status check(const tutti_tensor *t, const tutti_tensor *to)
{
    const tutti__parameter *p = t->parameter, *q = to->parameter;
    const struct tutti_root *root = p ? p->owner : NULL;

    if (!p || !q || p->owner != q->owner)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tie: \"%s\" and \"%s\" are not two parameters of one root module",
                           t->name, to->name);
    if (!tutti_shape_equal(t->shape, to->shape))
        return tutti__fail(TUTTI_ERR_ARG, "tie: %s is %s but %s is %s", p->name,
                           tutti__shape_text(t->shape), q->name, tutti__shape_text(to->shape));
    if (p->index < q->index)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tie: %s was made before %s; tie the later one to the earlier one, "
                           "whose name the parameter keeps",
                           p->name, q->name);
    if (tutti__state_of(t)->next_tied)
        return tutti__fail(TUTTI_ERR_ARG, "tie: %s has a further name already, %s; tie that to %s",
                           p->name, tutti__state_of(t)->next_tied->parameter.name, q->name);
    if (root->flat_parameters || root->optims)
        return tutti__fail(TUTTI_ERR_STATE,
                           "tie: %s is laid out already; tie before the first backward, optimizer "
                           "or DDP",
                           p->name);
    return TUTTI_OK;
}

static void take_out(tutti__state_list *list, const tutti__state *state)
{
    size_t i = 0;

    while (list->p[i] != state)
        i++;
    list->n--;
    memmove(list->p + i, list->p + i + 1, (list->n - i) * sizeof *list->p);
}

static void tie(struct tutti_root *root, tutti__state *state, tutti__state *to)
{
    const tutti_ctx *cx = root->module->cx;
    tutti__state *last = to;

    take_out(&root->state, state);
    take_out(&root->parameters, state);
    for (size_t i = 0; i < root->parameters.n; i++)
        root->parameters.p[i]->parameter.index = i;
    memset(root->cursors, 0, sizeof root->cursors);
    cx->device_ops->free(cx->device, state->memory);
    free(state->tensor);
    state->tensor = NULL;
    state->memory = NULL;
    state->tied_to = to;
    while (last->next_tied)
        last = last->next_tied;
    last->next_tied = state;
    root->tied.p[root->tied.n++] = state;
}

void tutti_parameter_tie(tutti_tensor **parameter_p, tutti_tensor *to)
{
    tutti_tensor *t = parameter_p ? *parameter_p : NULL;
    const tutti__parameter *p = t && t->parameter ? t->parameter : to ? to->parameter : NULL;
    struct tutti_root *root = p ? p->owner : NULL;
    tutti_status status;

    if (!t || !to || !root || t == to)
        return;
    status = check(t, to);
    if (status == TUTTI_OK && !tutti__state_list_reserve(&root->tied))
        status = TUTTI_ERR_MEMORY;
    if (status != TUTTI_OK) {
        tutti__module_fail(root->module, status, "%s", tutti_last_error());
        return;
    }
    tie(root, tutti__state_of(t), tutti__state_of(to));
    *parameter_p = to;
}

size_t tutti_module_n_tied(const tutti_module *m)
{
    size_t n = 0;

    while (tutti_module_tied(m, n, NULL))
        n++;
    return n;
}

const char *tutti_module_tied(const tutti_module *m, size_t i, tutti_tensor **parameter_p)
{
    const struct tutti_root *root = m ? m->root : NULL;
    size_t n = 0;

    for (size_t k = 0; root && k < root->tied.n; k++) {
        const tutti__state *state = root->tied.p[k];

        if (!tutti__module_below(state->owner, m) || n++ < i)
            continue;
        if (parameter_p)
            *parameter_p = state->tied_to->tensor;
        return state->parameter.name;
    }
    return NULL;
}
