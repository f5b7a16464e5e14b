/* lines.h -- arithmetic over lines along a dimension: running sums and products, cosines, distances, order.   SPDX-License-Identifier: MIT
 * A line has n elements, `inner` apart; line i begins at i / inner * n * inner + i % inner. */
#ifndef TUTTI_TENSOR_JOB_LINES_H
#define TUTTI_TENSOR_JOB_LINES_H

#include "base/real.h"

#include <math.h>
#include <stdbool.h>

typedef struct tutti__job_lines {
    int64_t n, inner;
    int64_t first;  /* sort: elements of a line of the result */
    bool backwards; /* running sums: from the end; sort: descending */
    const float *x, *other, *y, *dy;
    float *to, *to_other; /* NULL: not wanted */
    const int64_t *index;
    int64_t *to_index;
    int32_t *rank; /* sort: where each element of x is in the result */
    double p, eps; /* of a distance, a cosine */
} tutti__job_lines;

TUTTI__FORMULA int64_t tutti__line_start(int64_t line, int64_t n, int64_t inner)
{
    return line / inner * n * inner + line % inner;
}

/* ---- Running sums and products ----------------------------------------------------------------------- */

TUTTI__FORMULA void tutti__do_run_sum(const tutti__job_lines *l, int64_t line)
{
    const int64_t start = tutti__line_start(line, l->n, l->inner);
    const int64_t step = l->backwards ? -l->inner : l->inner;
    int64_t at = start + (l->backwards ? (l->n - 1) * l->inner : 0);
    double total = 0;

    for (int64_t k = 0; k < l->n; k++, at += step) {
        total += (double)l->x[at];
        l->to[at] = (float)total;
    }
}

TUTTI__FORMULA void tutti__do_run_product(const tutti__job_lines *l, int64_t line)
{
    int64_t at = tutti__line_start(line, l->n, l->inner);
    double total = 1;

    for (int64_t k = 0; k < l->n; k++, at += l->inner) {
        total *= (double)l->x[at];
        l->to[at] = (float)total;
    }
}

/* dx_k = (dy_k y_k + dy_k+1 y_k+1 + ...) / x_k before the first zero; of that one, the sum of dy_i times the product of all others up
 * to i; behind it 0. */
TUTTI__FORMULA void tutti__do_run_product_gradient(const tutti__job_lines *l, int64_t line)
{
    const int64_t start = tutti__line_start(line, l->n, l->inner), step = l->inner;
    const float *x = l->x + start, *dy = l->dy + start;
    float *dx = l->to + start;
    double product = 1, sum = 0;
    int64_t zero = 0;

    for (; zero < l->n && x[zero * step] != 0; zero++) {
        product *= (double)x[zero * step];
        dx[zero * step] = (float)product;
    }
    for (int64_t k = zero - 1; k >= 0; k--) {
        sum += (double)dy[k * step] * (double)dx[k * step];
        dx[k * step] = (float)(sum / (double)x[k * step]);
    }
    if (zero == l->n)
        return;
    sum = (double)dy[zero * step] * product;
    for (int64_t k = zero + 1; k < l->n; k++) {
        product *= (double)x[k * step];
        sum += (double)dy[k * step] * product;
        dx[k * step] = 0;
    }
    dx[zero * step] = (float)sum;
}

/* Of the product of a line: dx_k = dy times the product of the others, of those before it and of those behind it. */
TUTTI__FORMULA void tutti__do_product_gradient(const tutti__job_lines *l, int64_t line)
{
    const int64_t start = tutti__line_start(line, l->n, l->inner), step = l->inner;
    const float *x = l->x + start;
    float *dx = l->to + start;
    double product = 1;

    for (int64_t k = 0; k < l->n; k++) {
        dx[k * step] = (float)product;
        product *= (double)x[k * step];
    }
    product = (double)l->dy[line];
    for (int64_t k = l->n - 1; k >= 0; k--) {
        dx[k * step] = (float)((double)dx[k * step] * product);
        product *= (double)x[k * step];
    }
}

/* ---- Cosines ----------------------------------------------------------------------------------------- */

/* Of a line of x and of the other: sums of their products, and of their squares. */
TUTTI__FORMULA void tutti__line_products(const tutti__job_lines *l, int64_t start, double *sums)
{
    sums[0] = sums[1] = sums[2] = 0;
    for (int64_t k = 0; k < l->n; k++) {
        const double a = (double)l->x[start + k * l->inner];
        const double b = (double)l->other[start + k * l->inner];

        sums[0] += a * b;
        sums[1] += a * a;
        sums[2] += b * b;
    }
}

TUTTI__FORMULA void tutti__do_cosine(const tutti__job_lines *l, int64_t line)
{
    double sums[3];

    tutti__line_products(l, tutti__line_start(line, l->n, l->inner), sums);
    l->to[line] = (float)(sums[0] / (fmax(sqrt(sums[1]), l->eps) * fmax(sqrt(sums[2]), l->eps)));
}

/* Of one of the two vectors, x: dx = dy (o / (U V) - sum(x o) x / (U^2 V u)), with norms u, v of x and the other, o, and U, V those at
 * least eps. */
TUTTI__FORMULA void tutti__cosine_gradient_of(const tutti__job_lines *l, const float *x,
                                              const float *other, float *dx, double dy,
                                              double product, double norm, double other_norm)
{
    const double U = fmax(norm, l->eps), V = fmax(other_norm, l->eps);
    const double own = norm > 0 ? product / (U * U * V * norm) : 0;

    for (int64_t k = 0; dx && k < l->n; k++)
        dx[k * l->inner] =
            (float)(dy * ((double)other[k * l->inner] / (U * V) - own * (double)x[k * l->inner]));
}

/* PyTorch, too, takes the derivative of a norm below eps as if it were not replaced. */
TUTTI__FORMULA void tutti__do_cosine_gradient(const tutti__job_lines *l, int64_t line)
{
    const int64_t start = tutti__line_start(line, l->n, l->inner);
    const float *a = l->x + start, *b = l->other + start;
    const double dy = (double)l->dy[line];
    double sums[3];

    tutti__line_products(l, start, sums);
    tutti__cosine_gradient_of(l, a, b, l->to ? l->to + start : NULL, dy, sums[0], sqrt(sums[1]),
                              sqrt(sums[2]));
    tutti__cosine_gradient_of(l, b, a, l->to_other ? l->to_other + start : NULL, dy, sums[0],
                              sqrt(sums[2]), sqrt(sums[1]));
}

/* ---- Distances: the p-norm of x - other + eps ---------------------------------------------------------- */

/* x^e, x >= 0 */
TUTTI__FORMULA double tutti__size_power(double x, double e)
{
    const double v = e * tutti__log_normal(x), far = v > 709 ? (double)INFINITY : 0;

    if (e == 1 || x != x)
        return x;
    if (e == 2)
        return x * x;
    if (e == 0)
        return 1;
    if (x < 0x1p-1022)
        return e > 0 ? 0 : (double)INFINITY;
    if (x == (double)INFINITY)
        return e > 0 ? x : 0;
    return v > 709 || v < -708 ? far : tutti__exp_normal(v);
}

TUTTI__FORMULA double tutti__line_difference(const tutti__job_lines *l, int64_t at)
{
    return (double)(l->x[at] - l->other[at] + (float)l->eps);
}

TUTTI__FORMULA double tutti__line_distance(const tutti__job_lines *l, int64_t start)
{
    const bool is_largest = l->p == (double)INFINITY;
    double sum = 0, largest = 0;

    for (int64_t k = 0; k < l->n; k++) {
        const double d = fabs(tutti__line_difference(l, start + k * l->inner));

        if (is_largest)
            largest = d > largest || d != d ? d : largest;
        else
            sum += tutti__size_power(d, l->p);
    }
    return is_largest ? largest : l->p == 2 ? sqrt(sum) : tutti__size_power(sum, 1 / l->p);
}

TUTTI__FORMULA void tutti__do_distance(const tutti__job_lines *l, int64_t line)
{
    l->to[line] = (float)tutti__line_distance(l, tutti__line_start(line, l->n, l->inner));
}

/* d norm / d x_k = sign(x_k) (|x_k| / norm)^(p - 1); for infinity, shared among those of the largest size. 0 if the norm is. */
TUTTI__FORMULA void tutti__do_distance_gradient(const tutti__job_lines *l, int64_t line)
{
    const int64_t start = tutti__line_start(line, l->n, l->inner);
    const double norm = tutti__line_distance(l, start), dy = (double)l->dy[line];
    const bool is_largest = l->p == (double)INFINITY;
    double ties = 0;

    for (int64_t k = 0; is_largest && k < l->n; k++)
        ties += fabs(tutti__line_difference(l, start + k * l->inner)) == norm;
    for (int64_t k = 0; k < l->n; k++) {
        const double x = tutti__line_difference(l, start + k * l->inner), size = fabs(x);
        double d = 0;

        if (is_largest)
            d = size == norm ? 1 / ties : 0;
        else if (norm != 0 && size != 0)
            d = tutti__size_power(size / norm, l->p - 1);
        d = x > 0 ? d : x < 0 ? -d : x != x ? x : 0;
        if (l->to)
            l->to[start + k * l->inner] = (float)(dy * d);
        if (l->to_other)
            l->to_other[start + k * l->inner] = (float)(-dy * d);
    }
}

/* ---- Order ----------------------------------------------------------------------------------------------- */

/* Of element i of x: dy of its line where the line's index is this element, else 0. */
TUTTI__FORMULA void tutti__do_first_gradient(const tutti__job_lines *l, int64_t i)
{
    const int64_t line = i / (l->n * l->inner) * l->inner + i % l->inner;

    l->to[i] = l->index[line] == i / l->inner % l->n ? l->dy[line] : 0;
}

/* Unsigned integers in the order of floats; -0 as 0, NaN last. */
TUTTI__FORMULA uint32_t tutti__sort_key(float x)
{
    uint32_t bits;

    if (x != x)
        return UINT32_MAX;
    x += 0.f; /* -0 becomes 0 */
    memcpy(&bits, &x, sizeof bits);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* Element i of x goes to its place in the sorted line: as many are before it as are less, or equal and earlier. */
TUTTI__FORMULA void tutti__do_sort(const tutti__job_lines *l, int64_t i)
{
    const int64_t line = i / (l->n * l->inner) * l->inner + i % l->inner, k = i / l->inner % l->n;
    const float *x = l->x + tutti__line_start(line, l->n, l->inner);
    const uint32_t turn = l->backwards ? UINT32_MAX : 0;
    const uint32_t key = tutti__sort_key(x[k * l->inner]) ^ turn;
    int64_t rank = 0, at;

    for (int64_t j = 0; j < l->n; j++) {
        const uint32_t other = tutti__sort_key(x[j * l->inner]) ^ turn;

        rank += other < key || (other == key && j < k);
    }
    l->rank[i] = (int32_t)rank;
    if (rank >= l->first)
        return;
    at = tutti__line_start(line, l->first, l->inner) + rank * l->inner;
    if (l->to_index)
        l->to_index[at] = k;
    else
        l->to[at] = x[k * l->inner];
}

TUTTI__FORMULA void tutti__do_sort_gradient(const tutti__job_lines *l, int64_t i)
{
    const int64_t line = i / (l->n * l->inner) * l->inner + i % l->inner, rank = l->rank[i];

    l->to[i] =
        rank < l->first ? l->dy[tutti__line_start(line, l->first, l->inner) + rank * l->inner] : 0;
}

#endif
