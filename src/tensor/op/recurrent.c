/* recurrent.c -- one recurrent layer and direction over all steps.   SPDX-License-Identifier: MIT
 *   x [T,N,K]   weight_ih [gates H, K]   weight_hh [gates H, H]   biases [gates H] or NULL   h0, c0 [N,H] or NULL (zeros)
 *   ->   y [T,N,H]; if the last c is wanted, [T+1,N,H], of which the last is c
 * Products are those of linear layers: of the context's F32 kernels if its memory is the host's, else plain loops. */
#include "tensor/op/recurrent.h"

#include <string.h>

#define SAMPLES 4 /* of a job */

enum { X, WEIGHT_IH, WEIGHT_HH, BIAS_IH, BIAS_HH, H0, C0, SOURCES };

typedef struct attributes {
    const tutti__recurrent_cell *cell;
    bool reverse, with_c;
} attributes;

/* ---- Shape ----------------------------------------------------------------------------------- */

static tutti_status check_shape(const tutti_op_args *p, int i, const char *what, const char *dims,
                                tutti_shape expected)
{
    TUTTI_TRY(tutti_op_check_source(p, i, what, dims, TUTTI_F32));
    if (!tutti_shape_equal(p->sources[i]->shape, expected))
        return tutti__fail(TUTTI_ERR_ARG, "x is %s and weight_ih %s but %s is %s, expected %s = %s",
                           tutti__shape_text(p->sources[X]->shape),
                           tutti__shape_text(p->sources[WEIGHT_IH]->shape), what,
                           tutti__shape_text(p->sources[i]->shape), dims,
                           tutti__shape_text(expected));
    return TUTTI_OK;
}

static tutti_status recurrent_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;
    const int gates = a->cell->gates;
    tutti_shape x, w;
    int64_t H;

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, X, "x", "[T,N,K]", TUTTI_F32));
    TUTTI_TRY(tutti_op_check_source(p, WEIGHT_IH, "weight_ih", "[gates*H,K]", TUTTI_F32));
    x = p->sources[X]->shape;
    w = p->sources[WEIGHT_IH]->shape;
    H = w.d[0] / gates;
    if (w.d[1] != x.d[2] || H * gates != w.d[0])
        return tutti__fail(TUTTI_ERR_ARG,
                           "x is %s but weight_ih is %s, expected [%d*H,%lld] with H features",
                           tutti__shape_text(x), tutti__shape_text(w), gates, (long long)x.d[2]);
    TUTTI_TRY(check_shape(p, WEIGHT_HH, "weight_hh", "[gates*H,H]", TUTTI_SHAPE(gates * H, H)));
    for (int i = BIAS_IH; i <= BIAS_HH; i++)
        if (p->sources[i])
            TUTTI_TRY(check_shape(p, i, i == BIAS_IH ? "bias_ih" : "bias_hh", "[gates*H]",
                                  TUTTI_SHAPE(gates * H)));
    for (int i = H0; i <= C0; i++)
        if (p->sources[i])
            TUTTI_TRY(check_shape(p, i, i == H0 ? "h0" : "c0", "[N,H]", TUTTI_SHAPE(x.d[1], H)));
    *y = TUTTI_SHAPE(x.d[0] + a->with_c, x.d[1], H);
    return TUTTI_OK;
}

/* ---- A run ----------------------------------------------------------------------------------- */

typedef struct recurrence {
    const tutti_op_args *p;
    const tutti__recurrent_cell *cell;
    bool reverse, with_c;
    int64_t T, N, K, H, G; /* G: gates * H */
    const float *zeros;    /* [N,H] */
} recurrence;

/* What a node's functions share with its plain forward and backward. */
typedef struct running {
    float *work;
    tutti_status status;
} running;

static running *running_of(const tutti_op_args *p)
{
    return ((const tutti__node *)p->internal)->saved[1];
}

static recurrence recurrence_of(const tutti_op_args *p)
{
    const attributes *a = p->attributes;
    const tutti_shape x = p->sources[X]->shape, w = p->sources[WEIGHT_HH]->shape;

    return (recurrence){p,      a->cell, a->reverse, a->with_c, x.d[0],
                        x.d[1], x.d[2],  w.d[1],     w.d[0],    NULL};
}

static int64_t keeps(const tutti_op_args *p)
{
    const recurrence r = recurrence_of(p);

    return r.T * r.N * r.H * r.cell->kept;
}

/* Runs plain forward or backward with `floats` of memory. */
static tutti_status run_with(tutti__node *n, tutti_status (*function)(tutti__node *n),
                             int64_t floats)
{
    const size_t bytes = (size_t)floats * sizeof(float) + 1;
    running r = {tutti__scratch_take(n->cx, bytes), TUTTI_OK};
    tutti_status status;

    if (!r.work)
        return TUTTI_ERR_MEMORY;
    n->saved[1] = &r;
    status = function(n);
    n->saved[1] = NULL;
    tutti__scratch_give(n->cx, r.work, bytes);
    return status == TUTTI_OK ? r.status : status;
}

/* The position of the s-th step that is computed. */
static int64_t position_of(const recurrence *r, int64_t s)
{
    return r->reverse ? r->T - 1 - s : s;
}

/* ---- Products -------------------------------------------------------------------------------- */

/* [rows, columns] in host memory, as a tensor; data NULL: a destination. */
static tutti_tensor *matrix(const recurrence *r, const float *data, int64_t rows, int64_t columns)
{
    const tutti_shape shape = columns ? TUTTI_SHAPE(rows, columns) : TUTTI_SHAPE(rows);
    tutti_tensor *t = tutti__tensor_new(r->p->cx, shape, TUTTI_F32);

    if (t && data) {
        t->data = (void *)data;
        t->shared = true;
    }
    return t;
}

/* Copies a kernel's result, and releases it. */
static void take_result(float *to, tutti_tensor *t)
{
    memcpy(to, t->data, tutti__tensor_bytes(t));
    tutti__tensor_release(t);
}

/* y [R,M] = x [R,K] w[M,K]^T + b */
static tutti_status multiply(const recurrence *r, float *y, const float *x, const float *w,
                             const float *b, int64_t R, int64_t K, int64_t M)
{
    const tutti__kernels *kernels = r->p->cx->f32_kernels;

    if (r->p->cx->device_ops->is_host) {
        tutti_tensor *yt = matrix(r, NULL, R, M), *xt = matrix(r, x, R, K);
        tutti_tensor *wt = matrix(r, w, M, K), *bt = b ? matrix(r, b, M, 0) : NULL;

        if (!yt || !xt || !wt || (b && !bt))
            return TUTTI_ERR_MEMORY;
        TUTTI_TRY(kernels->linear_forward(yt, xt, wt, bt));
        take_result(y, yt);
        return TUTTI_OK;
    }
    for (int64_t i = 0; i < R; i++)
        for (int64_t m = 0; m < M; m++) {
            float sum = b ? b[m] : 0;

            for (int64_t k = 0; k < K; k++)
                sum += x[i * K + k] * w[m * K + k];
            y[i * M + m] = sum;
        }
    return TUTTI_OK;
}

/* dx [R,K] = dy [R,M] w [M,K] */
static tutti_status multiply_back(const recurrence *r, float *dx, const float *dy, const float *w,
                                  int64_t R, int64_t K, int64_t M)
{
    const tutti__kernels *kernels = r->p->cx->f32_kernels;

    if (r->p->cx->device_ops->is_host) {
        tutti_tensor *dxt = matrix(r, NULL, R, K), *dyt = matrix(r, dy, R, M);
        tutti_tensor *wt = matrix(r, w, M, K);

        if (!dxt || !dyt || !wt)
            return TUTTI_ERR_MEMORY;
        TUTTI_TRY(kernels->linear_backward_data(dxt, dyt, wt));
        take_result(dx, dxt);
        return TUTTI_OK;
    }
    memset(dx, 0, (size_t)(R * K) * sizeof *dx);
    for (int64_t i = 0; i < R; i++)
        for (int64_t m = 0; m < M; m++)
            for (int64_t k = 0; k < K; k++)
                dx[i * K + k] += dy[i * M + m] * w[m * K + k];
    return TUTTI_OK;
}

/* dw [M,K] += dy [R,M]^T x [R,K], db [M] += the sum of dy's rows; either may be NULL */
static tutti_status add_weights(const recurrence *r, float *dw, float *db, const float *dy,
                                const float *x, int64_t R, int64_t K, int64_t M)
{
    const tutti__kernels *kernels = r->p->cx->f32_kernels;

    if (R == 0 || (!dw && !db))
        return TUTTI_OK;
    if (r->p->cx->device_ops->is_host) {
        tutti_tensor *dwt = dw ? matrix(r, dw, M, K) : NULL, *dbt = db ? matrix(r, db, M, 0) : NULL;
        tutti_tensor *dyt = matrix(r, dy, R, M), *xt = matrix(r, x, R, K);

        if ((dw && !dwt) || (db && !dbt) || !dyt || !xt)
            return TUTTI_ERR_MEMORY;
        if (dwt)
            dwt->accumulate = true;
        if (dbt)
            dbt->accumulate = true;
        return kernels->linear_backward_weights(dwt, dbt, dyt, xt);
    }
    for (int64_t i = 0; i < R; i++)
        for (int64_t m = 0; m < M; m++) {
            for (int64_t k = 0; dw && k < K; k++)
                dw[m * K + k] += dy[i * M + m] * x[i * K + k];
            if (db)
                db[m] += dy[i * M + m];
        }
    return TUTTI_OK;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* Step `at` of all samples. */
typedef struct all_samples {
    const recurrence *r;
    void (*function)(const tutti__cell_step *s);
    tutti__cell_step first; /* of sample 0 */
} all_samples;

static const float *row(const float *p, int64_t n, int64_t width)
{
    return p ? p + n * width : NULL;
}

static float *row_to(float *p, int64_t n, int64_t width)
{
    return p ? p + n * width : NULL;
}

static void samples_job(void *arg, int64_t job)
{
    const all_samples *all = arg;
    const recurrence *r = all->r;
    const tutti__cell_step *f = &all->first;

    for (int64_t n = job * SAMPLES; n < (job + 1) * SAMPLES && n < r->N; n++)
        all->function(&(tutti__cell_step){.H = r->H,
                                          .gx = row(f->gx, n, r->G),
                                          .gh = row(f->gh, n, r->G),
                                          .h_prev = row(f->h_prev, n, r->H),
                                          .c_prev = row(f->c_prev, n, r->H * f->H),
                                          .h = row_to(f->h, n, r->H),
                                          .kept = row_to(f->kept, n, r->H * r->cell->kept),
                                          .dh = row(f->dh, n, r->H),
                                          .dc = row_to(f->dc, n, r->H),
                                          .dgx = row_to(f->dgx, n, r->G),
                                          .dgh = row_to(f->dgh, n, r->G),
                                          .dh_prev = row_to(f->dh_prev, n, r->H)});
}

/* The s-th step. c_prev is either c0 or in what the step before has kept; first.H says how many H its rows are apart. */
static tutti__cell_step step_of(const recurrence *r, int64_t s)
{
    const tutti_op_args *p = r->p;
    const int64_t at = position_of(r, s) * r->N, kept = r->H * r->cell->kept;
    const int64_t before = s > 0 ? position_of(r, s - 1) * r->N : 0;
    tutti__cell_step first = {.H = 1};

    first.kept = p->kept + at * kept;
    first.h_prev = s > 0 ? p->y + before * r->H : p->src[H0] ? p->src[H0] : r->zeros;
    first.c_prev = p->src[C0] ? p->src[C0] : r->zeros;
    if (s > 0 && r->cell->has_c) {
        first.c_prev = p->kept + before * kept + kept - r->H;
        first.H = r->cell->kept;
    }
    return first;
}

static void each_sample(const recurrence *r, void (*function)(const tutti__cell_step *s),
                        tutti__cell_step first)
{
    all_samples all = {r, function, first};

    tutti_op_parallel(r->p, samples_job, &all, (r->N + SAMPLES - 1) / SAMPLES);
}

/* ---- Forward --------------------------------------------------------------------------------- */

static int64_t forward_floats(const recurrence *r)
{
    return r->N * (r->H + r->G) + r->T * r->N * r->G;
}

static void copy_last_c(const recurrence *r)
{
    const float *c0 = r->p->src[C0] ? r->p->src[C0] : r->zeros;
    const int64_t kept = r->H * r->cell->kept;

    for (int64_t n = 0; r->with_c && n < r->N; n++)
        memcpy(r->p->y + (r->T * r->N + n) * r->H,
               r->T == 0 ? c0 + n * r->H
                         : r->p->kept + (position_of(r, r->T - 1) * r->N + n + 1) * kept - r->H,
               (size_t)r->H * sizeof(float));
}

static tutti_status steps_forward(recurrence *r, float *work)
{
    const tutti_op_args *p = r->p;
    float *gh = work + r->N * r->H, *gx = gh + r->N * r->G;

    memset(work, 0, (size_t)(r->N * r->H) * sizeof *work);
    r->zeros = work;
    if (r->T * r->N == 0) {
        copy_last_c(r);
        return TUTTI_OK;
    }
    TUTTI_TRY(
        multiply(r, gx, p->src[X], p->src[WEIGHT_IH], p->src[BIAS_IH], r->T * r->N, r->K, r->G));
    for (int64_t s = 0; s < r->T; s++) {
        const int64_t at = position_of(r, s) * r->N;
        tutti__cell_step first = step_of(r, s);

        TUTTI_TRY(
            multiply(r, gh, first.h_prev, p->src[WEIGHT_HH], p->src[BIAS_HH], r->N, r->H, r->G));
        first.gx = gx + at * r->G;
        first.gh = gh;
        first.h = p->y + at * r->H;
        each_sample(r, r->cell->forward, first);
    }
    copy_last_c(r);
    return TUTTI_OK;
}

static void plain_forward(const tutti_op_args *p)
{
    recurrence r = recurrence_of(p);

    running_of(p)->status = steps_forward(&r, running_of(p)->work);
}

static tutti_status forward(tutti__node *n)
{
    const tutti_op_args p = tutti__op_args(n);
    const recurrence r = recurrence_of(&p);

    return run_with(n, tutti__plain_forward, forward_floats(&r));
}

/* ---- Backward -------------------------------------------------------------------------------- */

static int64_t backward_floats(const recurrence *r)
{
    return r->N * r->H * 5 + r->T * r->N * r->G * (r->cell->separate ? 2 : 1);
}

/* Gradients of gx and gh of all steps. */
typedef struct gate_gradients {
    float *gx, *gh; /* [T,N,G] */
    float *dh, *dc; /* [N,H], of h0 and c0 in the end */
} gate_gradients;

static tutti_status steps_backward(const recurrence *r, const gate_gradients *d, float *sum,
                                   float *through)
{
    const tutti_op_args *p = r->p;
    const int64_t count = r->N * r->H;

    for (int64_t s = r->T - 1; s >= 0; s--) {
        const int64_t at = position_of(r, s) * r->N;
        tutti__cell_step first = step_of(r, s);

        for (int64_t i = 0; i < count; i++)
            sum[i] = p->dy[at * r->H + i] + d->dh[i];
        memset(d->dh, 0, (size_t)count * sizeof *d->dh);
        first.dh = sum;
        first.dc = d->dc;
        first.dgx = d->gx + at * r->G;
        first.dgh = d->gh + at * r->G;
        first.dh_prev = d->dh;
        each_sample(r, r->cell->backward, first);
        TUTTI_TRY(multiply_back(r, through, first.dgh, p->src[WEIGHT_HH], r->N, r->H, r->G));
        for (int64_t i = 0; i < count; i++)
            d->dh[i] += through[i];
    }
    return TUTTI_OK;
}

/* From the gradients of the gates. */
static tutti_status finish_backward(const recurrence *r, const gate_gradients *d)
{
    const tutti_op_args *p = r->p;
    const int64_t rows = r->T * r->N, later = (r->T - 1) * r->N, step = r->N * r->H;
    const int64_t first = position_of(r, 0) * r->N;
    /* the h before each step but the first is y, one step earlier */
    const float *gates = d->gh + (r->reverse ? 0 : r->N * r->G),
                *h = p->y + (r->reverse ? step : 0);

    if (p->dsrc[X])
        TUTTI_TRY(multiply_back(r, p->dsrc[X], d->gx, p->src[WEIGHT_IH], rows, r->K, r->G));
    TUTTI_TRY(
        add_weights(r, p->dsrc[WEIGHT_IH], p->dsrc[BIAS_IH], d->gx, p->src[X], rows, r->K, r->G));
    TUTTI_TRY(add_weights(r, p->dsrc[WEIGHT_HH], p->dsrc[BIAS_HH], gates, h, later, r->H, r->G));
    return add_weights(r, p->dsrc[WEIGHT_HH], p->dsrc[BIAS_HH], d->gh + first * r->G,
                       p->src[H0] ? p->src[H0] : r->zeros, r->N, r->H, r->G);
}

static void give_state(const recurrence *r, int source, const float *gradient)
{
    if (r->p->dsrc[source])
        memcpy(r->p->dsrc[source], gradient, (size_t)(r->N * r->H) * sizeof *gradient);
}

static void plain_backward(const tutti_op_args *p)
{
    recurrence r = recurrence_of(p);
    const int64_t count = r.N * r.H, gates = r.T * r.N * r.G;
    float *work = running_of(p)->work;
    gate_gradients d = {.dh = work, .dc = work + count, .gx = work + 5 * count};
    tutti_status status = TUTTI_OK;

    d.gh = r.cell->separate ? d.gx + gates : d.gx;
    memset(work, 0, (size_t)count * 3 * sizeof *work);
    r.zeros = work + 2 * count;
    if (r.with_c)
        memcpy(d.dc, p->dy + r.T * count, (size_t)count * sizeof *d.dc);
    for (int i = WEIGHT_IH; i <= BIAS_HH; i++)
        if (p->dsrc[i])
            memset(p->dsrc[i], 0, tutti__tensor_bytes(p->sources[i]));
    if (r.T * r.N > 0) {
        status = steps_backward(&r, &d, work + 3 * count, work + 4 * count);
        if (status == TUTTI_OK)
            status = finish_backward(&r, &d);
    }
    give_state(&r, H0, d.dh);
    give_state(&r, C0, d.dc);
    running_of(p)->status = status;
}

static tutti_status backward(tutti__node *n)
{
    const tutti_op_args p = tutti__op_args(n);
    const recurrence r = recurrence_of(&p);

    return run_with(n, tutti__plain_backward, backward_floats(&r));
}

/* ---- The operation --------------------------------------------------------------------------- */

static tutti_tensor *run_layer(const attributes *a, tutti_tensor *x,
                               const tutti_recurrent_args *args)
{
#define OP(called)                                                                                 \
    {                                                                                              \
        .plain = {.name = called,                                                                  \
                  .shape = recurrent_shape,                                                        \
                  .forward = plain_forward,                                                        \
                  .backward = plain_backward,                                                      \
                  .keeps = keeps,                                                                  \
                  .backward_reads = 1 << X | 1 << WEIGHT_IH | 1 << WEIGHT_HH | 1 << H0 | 1 << C0 | \
                                    TUTTI_OP_RESULT,                                               \
                  .activations = 1 << X | 1 << H0 | 1 << C0,                                       \
                  .autocast = TUTTI_OP_LOW},                                                       \
        .forward = forward, .backward = backward                                                   \
    }
    static const tutti__op lstm = OP("lstm"), gru = OP("gru"), rnn = OP("rnn");

    return tutti__op_run(a->cell->has_c      ? &lstm
                         : a->cell->separate ? &gru
                                             : &rnn,
                         (tutti_tensor *[]){x, args->weight_ih, args->weight_hh, args->bias_ih,
                                            args->bias_hh, args->h0, args->c0},
                         SOURCES, a, sizeof *a);
}

/* Step `at` of y, [N,H]. */
static tutti_tensor *state_at(tutti_tensor *y, int64_t at)
{
    return tutti_reshape(tutti_slice(y, 0, at, at + 1, 1),
                         TUTTI_SHAPE(y->shape.d[1], y->shape.d[2]));
}

tutti_tensor *tutti__recurrent_run(const tutti__recurrent_cell *cell, tutti_tensor *x,
                                   const tutti_recurrent_args *given, tutti_tensor **h_n_p,
                                   tutti_tensor **c_n_p)
{
    static const tutti_recurrent_args none;
    const tutti_recurrent_args *args = given ? given : &none; /* without weights: an error */
    const attributes a = {cell, args->reverse, c_n_p != NULL};
    tutti_status status = TUTTI__CHECK_RESERVED(tutti_recurrent_args, args);
    tutti_tensor *y, *h_n, *c_n;
    int64_t T;

    if (status == TUTTI_OK && args->c0 && !cell->has_c)
        status = tutti__fail(TUTTI_ERR_ARG, "%s: c0 is given, but only lstm has it", cell->name);
    if (x && status != TUTTI_OK)
        y = tutti__poisoned(x->cx, status);
    else
        y = run_layer(&a, args->batch_first && x ? tutti_transpose(x, 0, 1) : x, args);
    h_n = c_n = y;
    if (y && y->poison == TUTTI_OK) {
        T = y->shape.d[0] - a.with_c;
        h_n = h_n_p ? state_at(y, args->reverse ? 0 : T - 1) : NULL;
        c_n = c_n_p ? state_at(y, T) : NULL;
        y = c_n_p ? tutti_slice(y, 0, 0, T, 1) : y;
        y = args->batch_first ? tutti_transpose(y, 0, 1) : y;
    }
    if (h_n_p)
        *h_n_p = h_n;
    if (c_n_p)
        *c_n_p = c_n;
    return y;
}
