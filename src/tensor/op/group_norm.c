/* group_norm.c -- normalisation over groups of channels of each sample; instance norm is that of single channels.
 * SPDX-License-Identifier: MIT
 *   x [N,C,..]   weight, bias [C] or NULL   ->   y = (x - mean) inv_std weight + bias
 *   g = dy weight, h = (x - mean) inv_std:  dx = inv_std (g - mean g - h mean(g h)), dweight = sum dy h, dbias = sum dy
 * Kept: mean and inv_std of each group. Backward sums dy and dy h over each channel of each sample first. */
#include "tensor/op/row_norm.h"

typedef struct attributes {
    int groups; /* 0: of one channel each */
    float eps;
} attributes;

static tutti_status shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32));
    *y = p->sources[0]->shape;
    if (y->n < 2)
        return tutti__fail(TUTTI_ERR_ARG, "x is %s, expected [N,C,..]", tutti__shape_text(*y));
    if (a->groups < 0 || (a->groups > 0 && y->d[1] % a->groups != 0))
        return tutti__fail(TUTTI_ERR_ARG, "x is %s: its %lld channels do not make %d equal groups",
                           tutti__shape_text(*y), (long long)y->d[1], a->groups);
    TUTTI_TRY(tutti__norm_weight(p, 1, "weight", TUTTI_SHAPE(y->d[1])));
    return tutti__norm_weight(p, 2, "bias", TUTTI_SHAPE(y->d[1]));
}

typedef struct channel_groups {
    const tutti_op_args *p;
    float eps;
    int64_t samples, channels, groups, length; /* groups: of a sample; length: of a channel */
    int64_t in_group;                          /* channels */
    float *mean, *inv_std;                     /* [samples * groups] */
    double *sum, *product;                     /* [samples * channels]: of dy, of dy h */
} channel_groups;

static channel_groups groups_of(const tutti_op_args *p)
{
    const attributes *a = p->attributes;
    const tutti_shape x = p->sources[0]->shape;
    channel_groups g = {.p = p, .eps = a->eps, .samples = x.d[0], .channels = x.d[1], .length = 1};

    g.groups = a->groups ? a->groups : g.channels;
    g.in_group = g.channels / g.groups;
    for (int i = 2; i < x.n; i++)
        g.length *= x.d[i];
    g.mean = p->kept;
    g.inv_std = p->kept ? p->kept + g.samples * g.groups : NULL;
    return g;
}

static int64_t keeps(const tutti_op_args *p)
{
    const channel_groups g = groups_of(p);

    return 2 * g.samples * g.groups;
}

static float weight_of(const channel_groups *g, int64_t channel)
{
    const float *weight = g->p->src[1];

    return weight ? weight[channel] : 1;
}

/* ---- Forward --------------------------------------------------------------------------------- */

TUTTI__CLONES static void scale_channel(float *restrict y, const float *restrict x, int64_t n,
                                        float mean, float factor, float bias)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) * factor + bias;
}

static void forward_job(void *arg, int64_t i)
{
    const channel_groups *g = arg;
    const float *bias = g->p->src[2];
    const int64_t first = i % g->groups * g->in_group, at = i * g->in_group * g->length;
    const float *x = (const float *)g->p->src[0] + at;

    tutti__row_moments(x, g->in_group * g->length, true, (double)g->eps, &g->mean[i],
                       &g->inv_std[i]);
    for (int64_t c = 0; c < g->in_group; c++)
        scale_channel(g->p->y + at + c * g->length, x + c * g->length, g->length, g->mean[i],
                      g->inv_std[i] * weight_of(g, first + c), bias ? bias[first + c] : 0);
}

static void forward(const tutti_op_args *p)
{
    channel_groups g = groups_of(p);

    tutti_op_parallel(p, forward_job, &g, g.samples * g.groups);
}

/* ---- Backward -------------------------------------------------------------------------------- */

#define LANES 32

TUTTI__CLONES static void channel_sums(const float *restrict x, const float *restrict dy, int64_t n,
                                       float mean, double *sum_p, double *product_p)
{
    double sum[LANES] = {0}, product[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            sum[k] += (double)dy[i + k];
            product[k] += (double)dy[i + k] * (double)(x[i + k] - mean);
        }
    for (; i < n; i++) {
        sum[0] += (double)dy[i];
        product[0] += (double)dy[i] * (double)(x[i] - mean);
    }
    *sum_p = *product_p = 0;
    for (int k = 0; k < LANES; k++) {
        *sum_p += sum[k];
        *product_p += product[k];
    }
}

/* dx = dy * factor - (x - mean) * slope - offset */
TUTTI__CLONES static void channel_gradient(float *restrict dx, const float *restrict x,
                                           const float *restrict dy, int64_t n, float mean,
                                           float factor, float slope, float offset)
{
    for (int64_t i = 0; i < n; i++)
        dx[i] = dy[i] * factor - (x[i] - mean) * slope - offset;
}

static void backward_job(void *arg, int64_t i)
{
    const channel_groups *g = arg;
    const tutti_op_args *p = g->p;
    const int64_t first = i % g->groups * g->in_group, from = i * g->in_group;
    const double count = (double)(g->in_group * g->length), inv_std = (double)g->inv_std[i];
    double sum = 0, product = 0;

    for (int64_t c = 0; c < g->in_group; c++) {
        const int64_t at = (from + c) * g->length;
        const double weight = (double)weight_of(g, first + c);

        channel_sums((const float *)p->src[0] + at, p->dy + at, g->length, g->mean[i],
                     &g->sum[from + c], &g->product[from + c]);
        g->product[from + c] *= inv_std;
        sum += weight * g->sum[from + c];
        product += weight * g->product[from + c];
    }
    for (int64_t c = 0; p->dsrc[0] && c < g->in_group; c++) {
        const int64_t at = (from + c) * g->length;

        channel_gradient(p->dsrc[0] + at, (const float *)p->src[0] + at, p->dy + at, g->length,
                         g->mean[i], (float)(inv_std * (double)weight_of(g, first + c)),
                         (float)(inv_std * inv_std * product / count),
                         (float)(inv_std * sum / count));
    }
}

static void sum_samples(const channel_groups *g, float *to, const double *of_channels)
{
    for (int64_t c = 0; c < g->channels; c++) {
        double sum = 0;

        for (int64_t n = 0; n < g->samples; n++)
            sum += of_channels[n * g->channels + c];
        to[c] = (float)sum;
    }
}

static void backward(const tutti_op_args *p)
{
    channel_groups g = groups_of(p);

    g.sum = tutti__norm_work(p);
    g.product = g.sum + g.samples * g.channels;
    tutti_op_parallel(p, backward_job, &g, g.samples * g.groups);
    if (p->dsrc[1])
        sum_samples(&g, p->dsrc[1], g.product);
    if (p->dsrc[2])
        sum_samples(&g, p->dsrc[2], g.sum);
}

static tutti__row_norm norm_of(const tutti__node *n)
{
    const tutti_op_args p = tutti__op_args(n);
    const channel_groups g = groups_of(&p);

    return (tutti__row_norm){.rows = g.samples * g.groups,
                             .width = g.in_group * g.length,
                             .groups = g.groups,
                             .length = g.length,
                             .eps = g.eps,
                             .centred = true};
}

static tutti_status node_forward(tutti__node *n)
{
    const tutti__row_norm norm = norm_of(n);

    return tutti__norm_forward(n, &norm);
}

static tutti_status node_backward(tutti__node *n)
{
    const tutti__row_norm norm = norm_of(n);

    return tutti__norm_backward(n, &norm, 2 * n->src[0]->shape.d[0] * n->src[0]->shape.d[1]);
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
        .forward = node_forward, .backward = node_backward                                         \
    }

tutti_tensor *tutti_functional_group_norm(tutti_tensor *x, int groups, tutti_tensor *weight,
                                          tutti_tensor *bias, float eps)
{
    static const tutti__op op = OP("group_norm");
    const attributes a = {groups > 0 ? groups : -1, (float)tutti__or((double)eps, 1e-5)};

    return tutti__op_run(&op, (tutti_tensor *[]){x, weight, bias}, 3, &a, sizeof a);
}

tutti_tensor *tutti_functional_instance_norm(tutti_tensor *x, tutti_tensor *weight,
                                             tutti_tensor *bias, float eps)
{
    static const tutti__op op = OP("instance_norm");
    const attributes a = {0, (float)tutti__or((double)eps, 1e-5)};

    return tutti__op_run(&op, (tutti_tensor *[]){x, weight, bias}, 3, &a, sizeof a);
}
