/* clip.c -- the joint norm of all gradients, and scaling them down to a limit.   SPDX-License-Identifier: MIT
 *
 * The norm is summed in double, parameter by parameter in creation order, in eight lanes: neither the layout of flat
 * memory nor the machine's vectors change its bits. Where flat memory is shared out between ranks, each sums its own
 * ranges, and the norms are joined: the same to rounding. */
#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>

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

static tutti_status norm_of_all(const tutti_module *m, double *norm_p)
{
    double lanes[LANES] = {0}, sum = 0;
    const float *g;
    size_t n;

    for (size_t i = 0; i < m->root->parameters.n; i++)
        if ((g = gradient_of(m, i, &n)))
            add_squares(g, n, lanes);
    for (int k = 0; k < LANES; k++)
        sum += lanes[k];
    *norm_p = sqrt(sum);
    return TUTTI_OK;
}

/* What every rank has whole counts on rank 0 only. */
static double norm_of_ranges(const tutti_module *m, const tutti__sharding *sharding)
{
    double lanes[LANES] = {0}, sum = 0;
    const float *g;
    size_t n;

    for (size_t i = 0; i < m->root->parameters.n; i++) {
        const size_t begin = m->root->offsets[i];

        g = gradient_of(m, i, &n);
        for (size_t r = 0; g && r < sharding->n; r++) {
            const tutti__range *range = &sharding->ranges[r];
            const size_t low = begin > range->begin ? begin : range->begin;
            const size_t high = begin + n < range->end ? begin + n : range->end;

            if (low < high && !(range->whole && sharding->peers.rank != 0))
                add_squares(g + (low - begin), high - low, lanes);
        }
    }
    for (int k = 0; k < LANES; k++)
        sum += lanes[k];
    return sqrt(sum);
}

static tutti_status norm_of_shares(const tutti_module *m, float max_norm, double *norm_p)
{
    const tutti__sharding *sharding = m->root->sharding;
    const tutti_peers *peers = &sharding->peers;
    float mine, *all;
    double sum = 0;
    tutti_status status;

    TUTTI_TRY(sharding->prepare(sharding->self));
    TUTTI_TRY(sharding->begin(sharding->self, NULL, (double)max_norm));
    mine = (float)norm_of_ranges(m, sharding);
    all = tutti__alloc((size_t)peers->size * sizeof *all);
    if (!all)
        return TUTTI_ERR_MEMORY;
    status = peers->all_gather(peers->self, &mine, 1, all);
    for (int r = 0; r < peers->size; r++)
        sum += (double)all[r] * (double)all[r];
    free(all);
    *norm_p = sqrt(sum);
    return status;
}

tutti_status tutti_clip_grad_norm(tutti_module *m, float max_norm, float *norm_p)
{
    double norm, factor;
    float *to_scale;
    size_t n;

    TUTTI_TRY(tutti_module_status(m));
    if (!(max_norm >= 0))
        return tutti__fail(TUTTI_ERR_ARG, "clip_grad_norm: max_norm is %g, expected a number >= 0",
                           (double)max_norm);
    TUTTI_TRY(m->root->sharding ? norm_of_shares(m, max_norm, &norm) : norm_of_all(m, &norm));
    if (norm_p)
        *norm_p = (float)norm;
    factor = (double)max_norm / (norm + 1e-6);
    if (max_norm == 0 || factor >= 1)
        return TUTTI_OK;
    for (size_t i = 0; i < m->root->parameters.n; i++)
        if ((to_scale = gradient_of(m, i, &n)))
            scale(to_scale, n, (float)factor);
    return TUTTI_OK;
}
