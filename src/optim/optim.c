/* optim.c -- what all optimizers share: state in flat memory, and the walk over it.   SPDX-License-Identifier: MIT */
#include "optim/optim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Making one ------------------------------------------------------------------------------------------ */

tutti_status tutti__optim_check(const char *rule, const char *option, double value, double low,
                                double high)
{
    if (value >= low && value < high)
        return TUTTI_OK;
    if (isinf(high))
        return tutti__fail(TUTTI_ERR_ARG, "%s: %s is %g, expected a number >= %g", rule, option,
                           value, low);
    return tutti__fail(TUTTI_ERR_ARG, "%s: %s is %g, expected a number >= %g and < %g", rule,
                       option, value, low, high);
}

double tutti__optim_decimal(float value)
{
    char text[32];

    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            return strtod(text, NULL);
    }
    return (double)value; /* not a number */
}

tutti_status tutti__optim_new(tutti_optim **optim_p, tutti_module *m, const tutti__optim_rule *rule,
                              float lr, const tutti__optim_options *options)
{
    tutti_optim *optim;

    TUTTI_TRY(tutti_module_status(m));
    TUTTI_TRY(tutti__optim_check(rule->name, "lr", (double)lr, 0, INFINITY));
    if (tutti_module_n_parameters(m) == 0)
        return tutti__fail(TUTTI_ERR_ARG, "%s: %s has no parameters to train", rule->name,
                           tutti__module_path(m));
    optim = tutti__alloc(sizeof *optim);
    if (!optim)
        return TUTTI_ERR_MEMORY;
    *optim = (tutti_optim){.rule = rule, .module = m, .cx = m->cx, .lr = lr, .options = *options};
    *optim_p = optim;
    return TUTTI_OK;
}

static void free_state(const tutti_optim *optim, float *const state[TUTTI__OPTIM_STATES])
{
    const tutti_ctx *cx = optim->cx;

    for (int k = 0; k < TUTTI__OPTIM_STATES; k++)
        if (state[k])
            cx->device_ops->free(cx->device, state[k]);
}

void tutti_optim_free(tutti_optim *optim)
{
    if (!optim)
        return;
    free_state(optim, optim->state);
    free(optim->steps);
    free(optim->offsets);
    free(optim);
}

void tutti_optim_zero_grad(tutti_optim *optim)
{
    tutti_module_zero_grad(optim->module);
}

void tutti_optim_set_lr(tutti_optim *optim, float lr)
{
    optim->lr = lr;
}

float tutti_optim_lr(const tutti_optim *optim)
{
    return optim->lr;
}

/* ---- State ------------------------------------------------------------------------------------------------ */

static tutti_status alloc_state(const tutti_optim *optim, size_t n,
                                float *state[TUTTI__OPTIM_STATES])
{
    const tutti_ctx *cx = optim->cx;

    for (int k = 0; k < TUTTI__OPTIM_STATES && optim->rule->state_names[k]; k++) {
        state[k] = cx->device_ops->alloc(cx->device, n * sizeof(float));
        if (!state[k]) {
            free_state(optim, state);
            return TUTTI_ERR_MEMORY;
        }
    }
    return TUTTI_OK;
}

static void move_state(const tutti_optim *optim, const struct tutti_root *root,
                       float *const state[])
{
    for (int k = 0; k < TUTTI__OPTIM_STATES; k++)
        for (size_t i = 0; i < root->parameters.n && optim->state[k]; i++)
            memcpy(state[k] + root->offsets[i], optim->state[k] + optim->offsets[i],
                   tutti__tensor_bytes(root->parameters.p[i]->tensor));
}

tutti_status tutti__optim_prepare(tutti_optim *optim)
{
    struct tutti_root *root = optim->module->root;
    size_t n = root->parameters.n;
    float *state[TUTTI__OPTIM_STATES] = {0};

    TUTTI_TRY(tutti__flat_prepare(root));
    if (optim->layouts == root->layouts)
        return TUTTI_OK;
    if (!optim->steps)
        optim->steps = tutti__alloc(n * sizeof *optim->steps);
    if (!optim->offsets)
        optim->offsets = tutti__alloc(n * sizeof *optim->offsets);
    if (!optim->steps || !optim->offsets)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(alloc_state(optim, root->n_flat, state));
    move_state(optim, root, state);
    free_state(optim, optim->state);
    memcpy(optim->state, state, sizeof state);
    memcpy(optim->offsets, root->offsets, n * sizeof *optim->offsets);
    optim->layouts = root->layouts;
    return TUTTI_OK;
}

/* ---- The walk --------------------------------------------------------------------------------------------- */

static bool is_due(const tutti_optim *optim, const tutti__state *state)
{
    return tutti__has_gradient(&state->parameter) &&
           tutti__module_below(state->owner, optim->module);
}

static void update(tutti_optim *optim, size_t begin, size_t end, uint64_t step)
{
    const struct tutti_root *root = optim->module->root;
    tutti__run run = {.p = root->flat_parameters + begin,
                      .g = root->flat_gradients + begin,
                      .n = end - begin,
                      .step = step};

    for (int k = 0; k < TUTTI__OPTIM_STATES; k++)
        run.state[k] = optim->state[k] ? optim->state[k] + begin : NULL;
    optim->rule->update(optim, &run);
}

tutti_status tutti_optim_step(tutti_optim *optim)
{
    const struct tutti_root *root = optim->module->root;
    size_t begin = 0, end = 0; /* of the open run */
    uint64_t step = 0;

    TUTTI_TRY(tutti_module_status(optim->module));
    TUTTI_TRY(tutti__optim_check(optim->rule->name, "lr", (double)optim->lr, 0, INFINITY));
    TUTTI_TRY(tutti__optim_prepare(optim));
    for (size_t i = 0; i < root->parameters.n; i++) {
        size_t index = root->placement[i];
        tutti__state *state = root->parameters.p[index];
        size_t next =
            i + 1 < root->parameters.n ? root->offsets[root->placement[i + 1]] : root->n_flat;

        if (!is_due(optim, state))
            continue;
        optim->steps[index]++;
        state->tensor->kernel_cache_step = 0; /* of the old values */
        if (root->offsets[index] != end || optim->steps[index] != step) {
            if (end > begin)
                update(optim, begin, end, step);
            begin = root->offsets[index];
            step = optim->steps[index];
        }
        end = next;
    }
    if (end > begin)
        update(optim, begin, end, step);
    return TUTTI_OK;
}
