/* clip.c -- the joint norm of all gradients, and scaling them down to a limit.   SPDX-License-Identifier: MIT
 *
 * The norm is summed in double, parameter by parameter in creation order, in eight lanes, so that its bits depend neither on
 * the layout of flat memory nor on the vectors' width. With gradients sharded over ranks, each rank sums its own ranges, and
 * the sums are added: the same to rounding. */
#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>

/* The gradients below m in creation order, as spans; with a sharding only this rank's ranges; `once`: what every rank has whole only on
 * rank 0. */
static tutti_status spans_of(const tutti_module *m, const tutti__sharding *sharding, bool once,
                             const tutti__flat_span **spans_p, size_t *n_p)
{
    struct tutti_root *root = m->root;
    const tutti__range all = {0, root->n_flat, false};
    const tutti__range *ranges = sharding ? sharding->ranges : &all;
    const size_t n_ranges = sharding ? sharding->n : 1;
    tutti__flat_span *spans = tutti__flat_spans(root, root->parameters.n + n_ranges);
    size_t n = 0;

    if (!spans)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < root->parameters.n; i++) {
        const tutti__state *state = root->parameters.p[i];
        const size_t begin = root->offsets ? root->offsets[i] : 0;
        const size_t end = begin + (size_t)tutti_shape_count(state->tensor->shape);

        if (!tutti__has_gradient(&state->parameter) || !tutti__state_below(state, m))
            continue;
        for (size_t k = 0; k < n_ranges; k++) {
            const size_t low = begin > ranges[k].begin ? begin : ranges[k].begin;
            const size_t high = end < ranges[k].end ? end : ranges[k].end;

            if (low < high && !(once && ranges[k].whole && sharding->peers.rank != 0))
                spans[n++] = (tutti__flat_span){root->flat_gradients + low, high - low};
        }
    }
    *spans_p = spans;
    *n_p = n;
    return TUTTI_OK;
}

static tutti_status norm_of(const tutti_module *m, const tutti__sharding *sharding, double *norm_p)
{
    tutti_stream *stream = m->cx->stream;
    const tutti__flat_span *spans;
    size_t n;
    double sum;

    TUTTI_TRY(spans_of(m, sharding, sharding != NULL, &spans, &n));
    TUTTI_TRY(stream->ops->flat->sum_squares(stream, spans, n, &sum));
    *norm_p = sqrt(sum);
    return TUTTI_OK;
}

static tutti_status norm_of_shares(const tutti_module *m, float max_norm, double *norm_p)
{
    const tutti__sharding *sharding = m->root->sharding;
    const tutti_peers *peers = &sharding->peers;
    float mine, *all;
    double sum = 0, norm;
    tutti_status status;

    TUTTI_TRY(sharding->prepare(sharding->self));
    TUTTI_TRY(sharding->begin(sharding->self, NULL, (double)max_norm));
    TUTTI_TRY(norm_of(m, sharding, &norm));
    mine = (float)norm;
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

tutti_status tutti__gradient_spans(const tutti_module *m, const tutti__flat_span **spans_p,
                                   size_t *n_p)
{
    const tutti__sharding *sharding = m->root->sharding;

    if (!sharding || !sharding->only_shares)
        return spans_of(m, NULL, false, spans_p, n_p);
    TUTTI_TRY(sharding->prepare(sharding->self));
    return spans_of(m, sharding, false, spans_p, n_p);
}

/* Gradients below m one by one, or, if that is the whole module, all memory with its padding in one pass. */
static tutti_status each_gradient(const tutti_module *m,
                                  tutti_status (*change)(tutti_stream *stream, float *p, size_t n,
                                                         float value),
                                  float value)
{
    const struct tutti_root *root = m->root;
    tutti_stream *stream = m->cx->stream;
    const tutti__flat_span *spans;
    size_t n;

    TUTTI_TRY(tutti__gradient_spans(m, &spans, &n));
    if (n == root->parameters.n && !(root->sharding && root->sharding->only_shares))
        return change(stream, root->flat_gradients, root->n_flat, value);
    for (size_t i = 0; i < n; i++)
        TUTTI_TRY(change(stream, spans[i].p, spans[i].n, value));
    return TUTTI_OK;
}

tutti_status tutti__scale_gradients(const tutti_module *m, float factor)
{
    return each_gradient(m, m->cx->stream->ops->flat->scale, factor);
}

tutti_status tutti_clip_grad_value(tutti_module *m, float limit)
{
    TUTTI_TRY(tutti_module_status(m));
    if (!(limit > 0))
        return tutti__fail(TUTTI_ERR_ARG, "clip_grad_value: limit is %g, expected a number above 0",
                           (double)limit);
    return each_gradient(m, m->cx->stream->ops->flat->clamp, limit);
}

tutti_status tutti_clip_grad_norm(tutti_module *m, float max_norm, float *norm_p)
{
    double norm, factor;
    const struct tutti_root *root;

    TUTTI_TRY(tutti_module_status(m));
    root = m->root;
    if (!(max_norm >= 0))
        return tutti__fail(TUTTI_ERR_ARG, "clip_grad_norm: max_norm is %g, expected a number >= 0",
                           (double)max_norm);
    TUTTI_TRY(root->sharding && !root->sharding->whole_gradients
                  ? norm_of_shares(m, max_norm, &norm)
                  : norm_of(m, NULL, &norm));
    if (norm_p)
        *norm_p = (float)norm;
    factor = (double)max_norm / (norm + 1e-6);
    if (max_norm == 0 || factor >= 1)
        return TUTTI_OK;
    return each_gradient(m, m->cx->stream->ops->flat->scale, (float)factor);
}
