/* places.h -- elements at indices along a dimension: gather, scatter, index_select.   SPDX-License-Identifier: MIT
 *     for each place of the index:  small[i][j][k]  <->  large[i][index[i][j][k]][k]      (dim 1) */
#ifndef TUTTI_TENSOR_JOB_PLACES_H
#define TUTTI_TENSOR_JOB_PLACES_H

#include "base/real.h"
#include <tutti/tensor.h>

typedef struct tutti__job_places {
    int n, dim; /* dimensions of the index; which of them is indexed */
    int64_t size[TUTTI_MAX_DIMS];
    int64_t index_stride[TUTTI_MAX_DIMS], small_stride[TUTTI_MAX_DIMS],
        large_stride[TUTTI_MAX_DIMS]; /* 0: the index is the same for all */
    const int64_t *index;
    int64_t wrap; /* added to negative indices */
    bool is_i64;  /* elements are; else F32 */
    bool add;
    float value; /* put where small is NULL */
    void *large, *small;
} tutti__job_places;

typedef struct tutti__place {
    int64_t index, small, large;
} tutti__place;

/* Place i; without dim, of all that are the first along it. */
TUTTI__FORMULA tutti__place tutti__place_of(const tutti__job_places *p, int64_t i, bool with_dim)
{
    tutti__place at = {0, 0, 0};

    for (int k = p->n - 1; k >= 0; k--) {
        int64_t here;

        if (k == p->dim && !with_dim)
            continue;
        here = i % p->size[k];
        i /= p->size[k];
        at.index += here * p->index_stride[k];
        at.small += here * p->small_stride[k];
        at.large += k == p->dim ? 0 : here * p->large_stride[k];
    }
    return at;
}

TUTTI__FORMULA int64_t tutti__place_in_large(const tutti__job_places *p, tutti__place at)
{
    const int64_t index = p->index[at.index];

    return at.large + (index + (index < 0 ? p->wrap : 0)) * p->large_stride[p->dim];
}

/* small = large, of place i */
TUTTI__FORMULA void tutti__do_take(const tutti__job_places *p, int64_t i)
{
    const tutti__place at = tutti__place_of(p, i, true);
    const int64_t from = tutti__place_in_large(p, at);

    if (p->is_i64)
        ((int64_t *)p->small)[at.small] = ((const int64_t *)p->large)[from];
    else
        ((float *)p->small)[at.small] = ((const float *)p->large)[from];
}

/* The next place of a line. */
TUTTI__FORMULA void tutti__place_step(const tutti__job_places *p, tutti__place *at, int64_t by)
{
    at->index += by * p->index_stride[p->dim];
    at->small += by * p->small_stride[p->dim];
}

/* large = or += small, of line i */
TUTTI__FORMULA void tutti__do_put(const tutti__job_places *p, int64_t i)
{
    tutti__place at = tutti__place_of(p, i, false);
    float *large = (float *)p->large;

    for (int64_t k = 0; k < p->size[p->dim]; k++, tutti__place_step(p, &at, 1)) {
        const int64_t to = tutti__place_in_large(p, at);
        const float v = p->small ? ((const float *)p->small)[at.small] : p->value;

        large[to] = p->add ? large[to] + v : v;
    }
}

/* small, if there is, = large, which becomes 0: of line i, from its end. So what a later place has overwritten gets 0. */
TUTTI__FORMULA void tutti__do_take_back(const tutti__job_places *p, int64_t i)
{
    tutti__place at = tutti__place_of(p, i, false);
    float *large = (float *)p->large;

    tutti__place_step(p, &at, p->size[p->dim] - 1);
    for (int64_t k = 0; k < p->size[p->dim]; k++, tutti__place_step(p, &at, -1)) {
        const int64_t from = tutti__place_in_large(p, at);

        if (p->small)
            ((float *)p->small)[at.small] = large[from];
        large[from] = 0;
    }
}

#endif
