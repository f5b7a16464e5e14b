/* layer_norm.c -- normalisation over the last dimensions: layer norm, and RMS norm, which does not subtract the mean.
 * SPDX-License-Identifier: MIT
 *   x [.., D]   weight, bias as D or NULL   ->   y = (x - mean) inv_std weight + bias
 *   g = dy weight, h = (x - mean) inv_std:  dx = inv_std (g - mean g - h mean(g h)), dweight = sum dy h, dbias = sum dy
 * Kept: mean and inv_std of each row. The gradients of weight and bias are summed over parts of the rows, then over parts, which
 * depend on the shape only. */
#include "tensor/op/row_norm.h"

#include <string.h>

#define PARTS    16 /* at most */
#define PART     64 /* rows of one, at least */
#define TOGETHER 4  /* rows that are added to the weights' gradients at once */
#define LANES    32

typedef struct attributes {
    tutti_shape normalized;
    float eps;
    bool centred;
} attributes;

static tutti_status shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;
    bool fits;

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32));
    *y = p->sources[0]->shape;
    fits = a->normalized.n >= 1 && a->normalized.n <= y->n;
    for (int i = 1; fits && i <= a->normalized.n; i++)
        fits = y->d[y->n - i] == a->normalized.d[a->normalized.n - i];
    if (!fits)
        return tutti__fail(TUTTI_ERR_ARG,
                           "x is %s, which does not end with normalized_shape, %s (at least one "
                           "dimension)",
                           tutti__shape_text(*y),
                           a->normalized.n < 0 || a->normalized.n > TUTTI_MAX_DIMS
                               ? "of too many dimensions"
                               : tutti__shape_text(a->normalized));
    TUTTI_TRY(tutti__norm_weight(p, 1, "weight", a->normalized));
    return p->n_src < 3 ? TUTTI_OK : tutti__norm_weight(p, 2, "bias", a->normalized);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

typedef struct layer_rows {
    const tutti_op_args *p;
    const attributes *a;
    int64_t rows, width, in_part, parts;
    const float *weight; /* NULL: 1 */
    const float *bias;
    float *mean, *inv_std; /* [rows] */
    double *partial;       /* [parts][2][width]: gradients of weight and bias */
} layer_rows;

static layer_rows rows_of(const tutti_op_args *p)
{
    const attributes *a = p->attributes;
    layer_rows r = {.p = p, .a = a, .width = tutti_shape_count(a->normalized)};

    r.rows = tutti_shape_count(p->sources[0]->shape) / r.width;
    r.in_part = (r.rows + PARTS - 1) / PARTS;
    r.in_part = r.in_part < PART ? PART : r.in_part;
    r.parts = (r.rows + r.in_part - 1) / r.in_part;
    if (p->src) {
        r.weight = p->src[1];
        r.bias = p->n_src > 2 ? p->src[2] : NULL;
    }
    r.mean = p->kept;
    r.inv_std = p->kept ? p->kept + r.rows : NULL;
    return r;
}

static int64_t keeps(const tutti_op_args *p)
{
    return 2 * rows_of(p).rows;
}

TUTTI__CLONES static void normalize_row(float *restrict y, const float *restrict x,
                                        const float *restrict weight, const float *restrict bias,
                                        int64_t n, float mean, float inv_std)
{
    if (weight && bias) {
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * inv_std * weight[i] + bias[i];
        return;
    }
    for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) * inv_std;
    for (int64_t i = 0; weight && i < n; i++)
        y[i] *= weight[i];
    for (int64_t i = 0; bias && i < n; i++)
        y[i] += bias[i];
}

static void forward_job(void *arg, int64_t part)
{
    const layer_rows *r = arg;
    const int64_t end = (part + 1) * r->in_part < r->rows ? (part + 1) * r->in_part : r->rows;

    for (int64_t i = part * r->in_part; i < end; i++) {
        const float *x = (const float *)r->p->src[0] + i * r->width;

        tutti__row_moments(x, r->width, r->a->centred, (double)r->a->eps, &r->mean[i],
                           &r->inv_std[i]);
        normalize_row(r->p->y + i * r->width, x, r->weight, r->bias, r->width, r->mean[i],
                      r->inv_std[i]);
    }
}

static void forward(const tutti_op_args *p)
{
    layer_rows r = rows_of(p);

    tutti_op_parallel(p, forward_job, &r, r.parts);
}

/* ---- Backward -------------------------------------------------------------------------------- */

/* *sum_p = sum g, *product_p = sum g h. Pairs are added in float, then in double. */
__attribute__((always_inline)) static inline void sums(const float *restrict x,
                                                       const float *restrict dy,
                                                       const float *restrict weight, bool weighted,
                                                       int64_t n, float mean, float inv_std,
                                                       double *sum_p, double *product_p)
{
    double sum[LANES] = {0}, product[LANES] = {0};
    int64_t i = 0;

    for (; i + 2 * LANES <= n; i += 2 * LANES)
        for (int k = 0; k < LANES; k++) {
            const float g0 = weighted ? dy[i + k] * weight[i + k] : dy[i + k];
            const float g1 =
                weighted ? dy[i + LANES + k] * weight[i + LANES + k] : dy[i + LANES + k];

            sum[k] += (double)(g0 + g1);
            product[k] += (double)(g0 * (x[i + k] - mean) + g1 * (x[i + LANES + k] - mean));
        }
    for (; i < n; i++) {
        const float g = weighted ? dy[i] * weight[i] : dy[i];

        sum[0] += (double)g;
        product[0] += (double)(g * (x[i] - mean));
    }
    *sum_p = *product_p = 0;
    for (int k = 0; k < LANES; k++) {
        *sum_p += sum[k];
        *product_p += product[k];
    }
    *product_p *= (double)inv_std;
}

/* dx = (g - mean_g - h mean_gh) inv_std */
TUTTI__CLONES static void dx_of_row(float *restrict dx, const float *restrict x,
                                    const float *restrict dy, const float *restrict weight,
                                    int64_t n, float mean, float inv_std, bool centred)
{
    double sum, product;
    float mean_g, slope;

    if (weight)
        sums(x, dy, weight, true, n, mean, inv_std, &sum, &product);
    else
        sums(x, dy, NULL, false, n, mean, inv_std, &sum, &product);
    mean_g = centred ? (float)(sum / (double)n) : 0;
    slope = (float)(product / (double)n * (double)inv_std);
    if (weight)
        for (int64_t i = 0; i < n; i++)
            dx[i] = (dy[i] * weight[i] - mean_g - (x[i] - mean) * slope) * inv_std;
    else
        for (int64_t i = 0; i < n; i++)
            dx[i] = (dy[i] - mean_g - (x[i] - mean) * slope) * inv_std;
}

/* Adds `rows` rows, at most TOGETHER, to the gradients. */
TUTTI__CLONES static void add_rows(double *restrict dweight, double *restrict dbias,
                                   const float *restrict x, const float *restrict dy, int64_t n,
                                   const float *mean, const float *inv_std, int64_t rows)
{
    if (rows == TOGETHER) {
        for (int64_t i = 0; i < n; i++) {
            const float d0 = dy[i], d1 = dy[n + i], d2 = dy[2 * n + i], d3 = dy[3 * n + i];
            const float h0 = d0 * ((x[i] - mean[0]) * inv_std[0]),
                        h1 = d1 * ((x[n + i] - mean[1]) * inv_std[1]),
                        h2 = d2 * ((x[2 * n + i] - mean[2]) * inv_std[2]),
                        h3 = d3 * ((x[3 * n + i] - mean[3]) * inv_std[3]);

            dbias[i] += (double)((d0 + d1) + (d2 + d3));
            dweight[i] += (double)((h0 + h1) + (h2 + h3));
        }
        return;
    }
    for (int64_t k = 0; k < rows; k++)
        for (int64_t i = 0; i < n; i++) {
            dbias[i] += (double)dy[k * n + i];
            dweight[i] += (double)(dy[k * n + i] * ((x[k * n + i] - mean[k]) * inv_std[k]));
        }
}

static void backward_job(void *arg, int64_t part)
{
    const layer_rows *r = arg;
    const tutti_op_args *p = r->p;
    const int64_t end = (part + 1) * r->in_part < r->rows ? (part + 1) * r->in_part : r->rows;
    double *dweight = r->partial + 2 * part * r->width;
    const bool weights = p->dsrc[1] || (p->n_src > 2 && p->dsrc[2]);

    if (weights)
        memset(dweight, 0, 2 * (size_t)r->width * sizeof *dweight);
    for (int64_t i = part * r->in_part, n; i < end; i += n) {
        n = end - i < TOGETHER ? end - i : TOGETHER;
        for (int64_t k = i; p->dsrc[0] && k < i + n; k++)
            dx_of_row(p->dsrc[0] + k * r->width, (const float *)p->src[0] + k * r->width,
                      p->dy + k * r->width, r->weight, r->width, r->mean[k], r->inv_std[k],
                      r->a->centred);
        if (weights)
            add_rows(dweight, dweight + r->width, (const float *)p->src[0] + i * r->width,
                     p->dy + i * r->width, r->width, r->mean + i, r->inv_std + i, n);
    }
}

static void sum_parts(const layer_rows *r, float *to, int which)
{
    for (int64_t i = 0; i < r->width; i++) {
        double sum = 0;

        for (int64_t part = 0; part < r->parts; part++)
            sum += r->partial[(2 * part + which) * r->width + i];
        to[i] = (float)sum;
    }
}

static void backward(const tutti_op_args *p)
{
    layer_rows r = rows_of(p);

    r.partial = tutti__norm_work(p);
    tutti_op_parallel(p, backward_job, &r, r.parts);
    if (p->dsrc[1])
        sum_parts(&r, p->dsrc[1], 0);
    if (p->n_src > 2 && p->dsrc[2])
        sum_parts(&r, p->dsrc[2], 1);
}

static tutti__row_norm norm_of(const layer_rows *r)
{
    return (tutti__row_norm){.rows = r->rows,
                             .width = r->width,
                             .groups = 1,
                             .length = 1,
                             .eps = r->a->eps,
                             .centred = r->a->centred};
}

static tutti_status node_forward(tutti__node *n)
{
    const tutti_op_args p = tutti__op_args(n);
    const layer_rows r = rows_of(&p);
    const tutti__row_norm norm = norm_of(&r);

    return tutti__norm_forward(n, &norm);
}

static tutti_status node_backward(tutti__node *n)
{
    const tutti_op_args p = tutti__op_args(n);
    const layer_rows r = rows_of(&p);
    const tutti__row_norm norm = norm_of(&r);

    return tutti__norm_backward(n, &norm, 2 * r.parts * r.width);
}

/* ---- The operations --------------------------------------------------------------------------- */

#define OP(called)                                                                                 \
    {                                                                                              \
        .plain = {.name = called,                                                                  \
                  .shape = shape,                                                                  \
                  .forward = forward,                                                              \
                  .backward = backward,                                                            \
                  .keeps = keeps,                                                                  \
                  .backward_reads = 1 << 0 | 1 << 1,                                               \
                  .activations = 1,                                                                \
                  .autocast = TUTTI_OP_F32},                                                       \
        .forward = node_forward, .backward = node_backward, .again = true                          \
    }

tutti_tensor *tutti_functional_layer_norm(tutti_tensor *x, tutti_shape normalized_shape,
                                          tutti_tensor *weight, tutti_tensor *bias, float eps)
{
    static const tutti__op op = OP("layer_norm");
    const attributes a = {normalized_shape, (float)tutti__or((double)eps, 1e-5), true};

    return tutti__op_run(&op, (tutti_tensor *[]){x, weight, bias}, 3, &a, sizeof a);
}

tutti_tensor *tutti_functional_rms_norm(tutti_tensor *x, tutti_shape normalized_shape,
                                        tutti_tensor *weight, float eps)
{
    static const tutti__op op = OP("rms_norm");
    const attributes a = {normalized_shape, (float)tutti__or((double)eps, 0x1p-23), false};

    return tutti__op_run(&op, (tutti_tensor *[]){x, weight}, 2, &a, sizeof a);
}
