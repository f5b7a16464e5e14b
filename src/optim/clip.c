/* clip.c -- the joint norm of all gradients, and scaling them down to a limit.   SPDX-License-Identifier: MIT
 *
 * The norm has the same bits however gradients and parameters are divided among ranks (norm.c): each rank sums the squares of its
 * own, each element is counted by one rank, and the sums are added without rounding. */
#include "optim/optim.h"

#include <math.h>

/* The gradients below m in creation order, as spans. `once`: those that this rank counts in the norm: with a sharding only its
 * ranges, and what every rank has whole only on rank 0. */
static tutti_status spans_of(const tutti_module *m, const tutti__sharding *sharding, bool once,
                             const tutti__flat_span **spans_p, size_t *n_p)
{
    struct tutti_root *root = m->root;
    const tutti__range all = {.begin = 0, .end = root->n_flat};
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

        if (!tutti__has_gradient(&state->parameter) || !tutti__state_below(state, m) ||
            (once && state->parameter.counted_by_peer))
            continue;
        for (size_t k = 0; k < n_ranges; k++) {
            const size_t low = begin > ranges[k].begin ? begin : ranges[k].begin;
            const size_t high = end < ranges[k].end ? end : ranges[k].end;

            if (low < high &&
                !(once && (ranges[k].copy || (ranges[k].whole && sharding->peers.rank != 0))))
                spans[n++] = (tutti__flat_span){root->flat_gradients + low, high - low};
        }
    }
    *spans_p = spans;
    *n_p = n;
    return TUTTI_OK;
}

/* Collective if gradients, or parameters, are divided among ranks. */
static tutti_status norm_of(const tutti_module *m, float max_norm, double *norm_p)
{
    const struct tutti_root *root = m->root;
    const tutti__sharding *sharding =
        root->sharding && !root->sharding->whole_gradients ? root->sharding : NULL;
    const tutti__flat_span *spans;
    tutti__squares sum = {0};
    size_t n;

    if (sharding) {
        TUTTI_TRY(sharding->prepare(sharding->self));
        TUTTI_TRY(sharding->begin(sharding->self, NULL, (double)max_norm));
    }
    TUTTI_TRY(spans_of(m, sharding, true, &spans, &n));
    TUTTI_TRY(tutti__add_squares(m->cx, spans, n, &sum));
    if (sharding)
        TUTTI_TRY(tutti__add_peers_squares(&sharding->peers, &sum, 1));
    for (size_t i = 0; i < TUTTI__COUNT_OF(root->norm_peers); i++)
        TUTTI_TRY(tutti__add_peers_squares(&root->norm_peers[i], &sum, 1));
    *norm_p = sqrt(tutti__squares_value(&sum));
    return TUTTI_OK;
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

    TUTTI_TRY(tutti_module_status(m));
    if (!(max_norm >= 0))
        return tutti__fail(TUTTI_ERR_ARG, "clip_grad_norm: max_norm is %g, expected a number >= 0",
                           (double)max_norm);
    TUTTI_TRY(norm_of(m, max_norm, &norm));
    if (norm_p)
        *norm_p = (float)norm;
    factor = (double)max_norm / (norm + 1e-6);
    if (max_norm == 0 || factor >= 1)
        return TUTTI_OK;
    return each_gradient(m, m->cx->stream->ops->flat->scale, (float)factor);
}
