/* finite.c -- NaN and infinities, found before they are averaged into all ranks' gradients.
 * SPDX-License-Identifier: MIT */
#include "reducer/internal.h"

static bool looks(const tutti_reducer *r)
{
    return r->nonfinite != TUTTI_NONFINITE_IGNORE && r->nonfinite_step != r->step;
}

tutti_status tutti__found_nonfinite(tutti_reducer *r, const tutti__gradient *g)
{
    /* with a mesh, not the data group's, whose ranks exist several times */
    const int rank = tutti_group_global_rank(r->group, tutti_group_rank(r->group));

    r->nonfinite_step = r->step; /* the first one of a step is the nearest to the loss */
    r->nonfinite_parameter = g->name;
    r->nonfinite_steps++;
    if (r->nonfinite == TUTTI_NONFINITE_ERROR)
        return tutti__fail(TUTTI_ERR_STATE,
                           "the gradient of \"%s\" has NaN or infinities on rank %d in step %llu, "
                           "before it is averaged: training has diverged, or this rank's data or "
                           "weights hold such values; lower the learning rate or clip gradients",
                           g->name, rank, (unsigned long long)r->step);
    if ((r->nonfinite_steps & (r->nonfinite_steps - 1)) == 0) /* 1, 2, 4, 8, ... */
        tutti_log(TUTTI_LOG_WARN, "ddp",
                  "the gradient of \"%s\" has NaN or infinities on rank %d in step %llu, before it "
                  "is averaged (%llu such steps so far)",
                  g->name, rank, (unsigned long long)r->step,
                  (unsigned long long)r->nonfinite_steps);
    return TUTTI_OK;
}

/* Reads what a device has found in all gradients. */
static tutti_status read_found(tutti_reducer *r)
{
    TUTTI_TRY(tutti__read(r->stream, r->seen, r->found, r->n * sizeof *r->seen));
    for (size_t place = 0; place < r->n_reduced; place++)
        if (r->seen[r->order[place]] && !r->gradients[r->order[place]].skipped)
            return tutti__found_nonfinite(r, &r->gradients[r->order[place]]);
    return TUTTI_OK;
}

tutti_status tutti__begin_finite(tutti_reducer *r)
{
    if (!r->stream || r->exact || r->nonfinite == TUTTI_NONFINITE_IGNORE)
        return TUTTI_OK;
    return r->stream->ops->zero(r->stream, r->found, r->n * sizeof *r->found);
}

tutti_status tutti__check_finite(tutti_reducer *r, size_t i)
{
    const tutti__gradient *g = &r->gradients[i];
    tutti_stream *stream = tutti__stream_or_cpu(r->stream);
    int32_t here = 0;

    if (!looks(r))
        return TUTTI_OK;
    TUTTI_TRY(stream->ops->flat->find_nonfinite(stream, r->block + g->offset, g->count, g->dtype,
                                                r->stream ? &r->found[i] : &here));
    return here ? tutti__found_nonfinite(r, g) : TUTTI_OK;
}

tutti_status tutti__check_all_finite(tutti_reducer *r)
{
    if (!r->stream || !looks(r) || r->nonfinite != TUTTI_NONFINITE_ERROR)
        return TUTTI_OK;
    return read_found(r);
}

tutti_status tutti__end_finite(tutti_reducer *r)
{
    if (!r->stream || !looks(r) || r->nonfinite != TUTTI_NONFINITE_WARN)
        return TUTTI_OK;
    return read_found(r);
}
