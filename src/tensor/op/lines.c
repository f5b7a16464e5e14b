/* lines.c -- elements at indices along a dimension.   SPDX-License-Identifier: MIT */
#include "tensor/op/lines.h"
#include "tensor/move.h"

#define JOB ((int64_t)1 << 12) /* places, at least */

tutti_status tutti__check_indices(const tutti_tensor *index, const char *name, int64_t first,
                                  int64_t size, const char *because)
{
    const int64_t *at = index->host;

    for (int64_t i = 0; i < tutti_shape_count(index->shape); i++)
        if (at[i] < first || at[i] >= size)
            return tutti__fail(TUTTI_ERR_ARG,
                               "element %lld of %s %s is %lld, but %s: expected %lld to %lld",
                               (long long)i, name, tutti__shape_text(index->shape),
                               (long long)at[i], because, (long long)first, (long long)size - 1);
    return TUTTI_OK;
}

static tutti_shape at_least_one_dimension(tutti_shape shape)
{
    return shape.n ? shape : TUTTI_SHAPE(1);
}

tutti_status tutti__lines_check(int dim, const tutti_tensor *large, const tutti_tensor *index,
                                const tutti_tensor *small, bool from_the_end)
{
    const tutti_shape x = at_least_one_dimension(large->shape);
    const tutti_shape i = at_least_one_dimension(index->shape);
    const tutti_shape s = at_least_one_dimension(small->shape);
    const int at = tutti__dim_index(dim, x.n);
    bool fits = i.n == x.n && s.n == x.n;
    char what[64];

    if (at < 0)
        return TUTTI_ERR_ARG;
    for (int k = 0; fits && k < x.n; k++)
        fits = i.d[k] <= s.d[k] && (k == at || i.d[k] <= x.d[k]);
    if (!fits)
        return tutti__fail(TUTTI_ERR_ARG,
                           "x is %s, index %s%s%s: expected as many dimensions, and index no "
                           "larger than x but in dim %d%s",
                           tutti__shape_text(large->shape), tutti__shape_text(index->shape),
                           small == index ? "" : ", src ",
                           small == index ? "" : tutti__shape_text(small->shape), at,
                           small == index ? "" : ", nor than src");
    snprintf(what, sizeof what, "dim %d of x has %lld elements", at, (long long)x.d[at]);
    return tutti__check_indices(index, "index", from_the_end ? -x.d[at] : 0, x.d[at], what);
}

tutti__lines tutti__lines_of(int dim, tutti_shape large, tutti_shape index, tutti_shape small)
{
    const tutti_shape x = at_least_one_dimension(large), i = at_least_one_dimension(index);
    const int at = tutti__dim_index(dim, x.n), last = x.n - 1;
    int64_t of_x[TUTTI_MAX_DIMS], of_small[TUTTI_MAX_DIMS];
    tutti__lines l = {.rows = 1, .width = i.d[last], .n = last, .group = 1};

    tutti__strides(x, of_x);
    tutti__strides(at_least_one_dimension(small), of_small);
    for (int k = 0; k < last; k++) {
        l.size[k] = i.d[k];
        l.rows *= i.d[k];
        l.small_stride[k] = of_small[k];
        l.large_stride[k] = k == at ? 0 : of_x[k];
        l.group *= k >= at ? i.d[k] : 1;
    }
    l.step = of_x[at];
    l.last = at == last ? 0 : 1;
    l.columns = at == last || l.width < 64 ? l.width : 64;
    l.groups = 1;
    if (l.group > 0 && l.columns > 0 && l.group * l.columns < JOB)
        l.groups = JOB / (l.group * l.columns);
    return l;
}

tutti__job_places tutti__job_places_of(int dim, tutti_shape large, tutti_shape index,
                                       tutti_shape small, const int64_t *indices, int64_t *lines_p)
{
    const tutti_shape i = at_least_one_dimension(index);
    tutti__job_places p = {.n = i.n, .dim = tutti__dim_index(dim, i.n), .index = indices};

    tutti__strides(at_least_one_dimension(large), p.large_stride);
    tutti__strides(at_least_one_dimension(small), p.small_stride);
    tutti__strides(i, p.index_stride);
    *lines_p = i.d[p.dim] > 0 ? tutti_shape_count(i) / i.d[p.dim] : 0;
    for (int k = 0; k < i.n; k++)
        p.size[k] = i.d[k];
    return p;
}

static int64_t columns_in_row(const tutti__lines *l)
{
    return l->columns > 0 ? (l->width + l->columns - 1) / l->columns : 0;
}

int64_t tutti__lines_jobs(const tutti__lines *l)
{
    const int64_t groups = l->group > 0 ? l->rows / l->group : 0;

    return (groups + l->groups - 1) / l->groups * columns_in_row(l);
}

int64_t tutti__lines_rows(const tutti__lines *l, int64_t job)
{
    const int64_t first = job / columns_in_row(l) * l->groups * l->group;
    const int64_t rows = l->groups * l->group;

    return rows < l->rows - first ? rows : l->rows - first;
}

tutti__lines_run tutti__lines_row(const tutti__lines *l, int64_t job, int64_t i)
{
    const int64_t row = job / columns_in_row(l) * l->groups * l->group + i;
    const int64_t column = job % columns_in_row(l) * l->columns;
    const int64_t left = l->width - column;
    tutti__lines_run r = {.n = left < l->columns ? left : l->columns,
                          .large = column * l->last,
                          .small = column,
                          .index = row * l->width + column};
    int64_t rest = row;

    for (int k = l->n - 1; k >= 0; k--) {
        r.large += rest % l->size[k] * l->large_stride[k];
        r.small += rest % l->size[k] * l->small_stride[k];
        rest /= l->size[k];
    }
    return r;
}
