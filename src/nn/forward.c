/* forward.c -- forward of any module, containers, and hooks.   SPDX-License-Identifier: MIT */
#include "nn/nn.h"

typedef struct recomputed {
    tutti_module *m;
    tutti_tensor *(*forward)(tutti_module *m, tutti_tensor *x);
} recomputed;

static tutti_tensor *run_block(tutti_tensor *const *inputs, void *arg)
{
    const recomputed *block = arg;

    return block->forward(block->m, inputs[0]);
}

tutti_tensor *tutti__module_run(tutti_module *m, tutti_tensor *x,
                                tutti_tensor *(*forward)(tutti_module *m, tutti_tensor *x))
{
    tutti_tensor *bad;

    if (tutti__module_refuses(m, x, &bad))
        return bad;
    return tutti__module_done(
        m, x,
        m->recompute ? tutti_recompute(run_block, &(recomputed){m, forward}, &x, 1) : forward(m, x),
        NULL);
}

void tutti_module_set_recompute(tutti_module *m, bool recompute)
{
    if (m)
        m->recompute = recompute;
}

static tutti_tensor *children_forward(tutti_module *m, tutti_tensor *x)
{
    for (tutti_module *child = m->first_child; child; child = child->next)
        x = tutti_module_forward(child, x);
    return x;
}

tutti_tensor *tutti_module_forward(tutti_module *m, tutti_tensor *x)
{
    return tutti__module_run(m, x, m && m->forward ? m->forward : children_forward);
}

void tutti_module_set_forward(tutti_module *m,
                              tutti_tensor *(*forward)(tutti_module *m, tutti_tensor *x))
{
    if (m)
        m->forward = forward;
}

void tutti_module_set_forward_hook(tutti_module *m,
                                   void (*hook)(tutti_module *m, tutti_tensor *x, tutti_tensor *y,
                                                void *arg),
                                   void *arg)
{
    if (!m)
        return;
    m->hook = hook;
    m->hook_arg = arg;
}

/* ---- Modules without parameters ---------------------------------------------------------------- */

static tutti_tensor *activation_forward(tutti_module *m, tutti_tensor *x)
{
    return ((tutti_activation *)m)->function(x);
}

void tutti_activation_init(tutti_activation *m, tutti_module *parent, const char *name,
                           tutti_tensor *(*function)(tutti_tensor *x))
{
    *m = (tutti_activation){.function = function};
    tutti_module_init_child(&m->base, parent, name);
    m->base.forward = activation_forward;
    if (!function)
        tutti__module_fail(&m->base, TUTTI_ERR_ARG, "%s: function is NULL",
                           tutti__module_path(&m->base));
}

static tutti_tensor *dropout_forward(tutti_module *m, tutti_tensor *x)
{
    return tutti_dropout(x, ((tutti_dropout_layer *)m)->p);
}

void tutti_dropout_init(tutti_dropout_layer *m, tutti_module *parent, const char *name, float p)
{
    *m = (tutti_dropout_layer){.p = p};
    tutti_module_init_child(&m->base, parent, name);
    m->base.forward = dropout_forward;
    if (!(p >= 0 && p <= 1))
        tutti__module_fail(&m->base, TUTTI_ERR_ARG,
                           "%s: p is %g, expected a probability from 0 to 1",
                           tutti__module_path(&m->base), (double)p);
}
