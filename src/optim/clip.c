/* clip.c -- the joint norm of all gradients, and scaling them down to a limit.   SPDX-License-Identifier: MIT
 *
 * The norm is summed in double, parameter by parameter in creation order, in eight lanes: neither the layout of flat
 * memory nor the machine's vectors change its bits. */
#include "optim/optim.h"

#include <math.h>

#define LANES 8

TUTTI__CLONES
static void add_squares(const float *restrict g, size_t n, double lanes[restrict LANES])
{
    double sum[LANES];
    size_t i = 0;

    for (int k = 0; k < LANES; k++)
        sum[k] = lanes[k];
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            sum[k] += (double)g[i + (size_t)k] * (double)g[i + (size_t)k];
    for (int k = 0; i < n; i++, k++)
        sum[k] += (double)g[i] * (double)g[i];
    for (int k = 0; k < LANES; k++)
        lanes[k] = sum[k];
}

TUTTI__CLONES
static void scale(float *g, size_t n, float factor)
{
    for (size_t i = 0; i < n; i++)
        g[i] *= factor;
}

/* The i-th parameter's gradient and its length, if it has one that counts for m. */
static float *gradient_of(const tutti_module *m, size_t i, size_t *n_p)
{
    const tutti__state *state = m->root->parameters.p[i];

    *n_p = (size_t)tutti_shape_count(state->tensor->shape);
    return tutti__has_gradient(&state->parameter) && tutti__module_below(state->owner, m)
               ? state->parameter.grad
               : NULL;
}

tutti_status tutti_clip_grad_norm(tutti_module *m, float max_norm, float *norm_p)
{
    double lanes[LANES] = {0}, sum = 0, factor;
    const float *g;
    float *to_scale;
    size_t n;

    TUTTI_TRY(tutti_module_status(m));
    if (!(max_norm >= 0))
        return tutti__fail(TUTTI_ERR_ARG, "clip_grad_norm: max_norm is %g, expected a number >= 0",
                           (double)max_norm);
    for (size_t i = 0; i < m->root->parameters.n; i++)
        if ((g = gradient_of(m, i, &n)))
            add_squares(g, n, lanes);
    for (int k = 0; k < LANES; k++)
        sum += lanes[k];
    if (norm_p)
        *norm_p = (float)sqrt(sum);
    factor = (double)max_norm / (sqrt(sum) + 1e-6);
    if (max_norm == 0 || factor >= 1)
        return TUTTI_OK;
    for (size_t i = 0; i < m->root->parameters.n; i++)
        if ((to_scale = gradient_of(m, i, &n)))
            scale(to_scale, n, (float)factor);
    return TUTTI_OK;
}
