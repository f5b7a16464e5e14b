/* finite.c -- NaN and infinities, found where they come from: before they are averaged into everybody's gradient.
 * SPDX-License-Identifier: MIT
 */
#include "reducer/internal.h"

tutti_status tutti__check_finite(tutti_reducer *r, size_t i)
{
    const tutti__gradient *g = &r->gradients[i];
    int32_t found = 0; /* NEXT: of a device, at the end of the step */

    if (r->nonfinite == TUTTI_NONFINITE_IGNORE || r->nonfinite_step == r->step)
        return TUTTI_OK;
    TUTTI_TRY(tutti__cpu_flat_ops.find_nonfinite(&tutti__cpu_stream, r->block + g->offset, g->count,
                                                 g->dtype, &found));
    if (!found)
        return TUTTI_OK;
    r->nonfinite_step = r->step; /* the first of a step is the nearest to the loss */
    r->nonfinite_parameter = g->name;
    r->nonfinite_steps++;
    if (r->nonfinite == TUTTI_NONFINITE_ERROR)
        return tutti__fail(TUTTI_ERR_STATE,
                           "the gradient of \"%s\" has NaN or infinities on rank %d in step %llu, "
                           "before it is averaged: training has diverged, or this rank's data or "
                           "weights hold such values; lower the learning rate or clip gradients",
                           g->name, tutti_group_rank(r->group), (unsigned long long)r->step);
    if ((r->nonfinite_steps & (r->nonfinite_steps - 1)) == 0) /* 1, 2, 4, 8, ... */
        tutti_log(TUTTI_LOG_WARN, "ddp",
                  "the gradient of \"%s\" has NaN or infinities on rank %d in step %llu, before it "
                  "is averaged (%llu such steps so far)",
                  g->name, tutti_group_rank(r->group), (unsigned long long)r->step,
                  (unsigned long long)r->nonfinite_steps);
    return TUTTI_OK;
}
