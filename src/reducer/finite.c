/* finite.c -- NaN and infinities, found where they come from: before they are averaged into everybody's gradient.
 * SPDX-License-Identifier: MIT
 *
 * A number is neither if not all bits of its exponent are set; the loops below look at nothing else, and run at the speed of
 * memory. They see each gradient as it gets ready, which is soon after it was written. */
#include "reducer/internal.h"

#define FIND(name, T, MASK)                                                                        \
    TUTTI__CLONES static bool name(const T *x, size_t n)                                           \
    {                                                                                              \
        T found = 0;                                                                               \
                                                                                                   \
        for (size_t i = 0; i < n; i++)                                                             \
            found |= (T)((x[i] & (MASK)) == (MASK));                                               \
        return found != 0;                                                                         \
    }

FIND(find_f32, uint32_t, UINT32_C(0x7f800000))
FIND(find_f64, uint64_t, UINT64_C(0x7ff0000000000000))
FIND(find_f16, uint16_t, 0x7c00)
FIND(find_bf16, uint16_t, 0x7f80)

bool tutti__has_nonfinite(const void *p, size_t n, tutti_dtype dtype)
{
    switch (dtype) {
    case TUTTI_F32:
        return find_f32(p, n);
    case TUTTI_F64:
        return find_f64(p, n);
    case TUTTI_F16:
        return find_f16(p, n);
    case TUTTI_BF16:
        return find_bf16(p, n);
    default:
        return false;
    }
}

tutti_status tutti__check_finite(tutti_reducer *r, size_t i)
{
    const tutti__gradient *g = &r->gradients[i];

    if (r->nonfinite == TUTTI_NONFINITE_IGNORE || r->nonfinite_step == r->step ||
        !tutti__has_nonfinite(r->block + g->offset, g->count, g->dtype))
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
