/* recurrent.c -- one recurrent layer and direction over all steps.   SPDX-License-Identifier: MIT
 *   x [T,N,K]   weight_ih [gates H, K]   weight_hh [gates H, H]   biases [gates H] or NULL   h0, c0 [N,H] or NULL (zeros)
 *   ->   y [T,N,H]; if the last c is wanted, [T+1,N,H], of which the last is c
 * Products are those of linear layers, of the context's F32 kernels. On a device whose memory the host cannot read and whose kernels
 * have no jobs, all is computed on the host, and products are plain loops. */
#include "tensor/move.h"
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
    bool by_device;        /* memory is the device's */
    bool by_kernels;       /* products are */
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

static recurrence recurrence_of(const tutti_op_args *p, bool by_device)
{
    const attributes *a = p->attributes;
    const tutti_shape x = p->sources[X]->shape, w = p->sources[WEIGHT_HH]->shape;

    return (recurrence){.p = p,
                        .cell = a->cell,
                        .reverse = a->reverse,
                        .with_c = a->with_c,
                        .T = x.d[0],
                        .N = x.d[1],
                        .K = x.d[2],
                        .H = w.d[1],
                        .G = w.d[0],
                        .by_device = by_device,
                        .by_kernels = by_device || p->cx->device_ops->is_host};
}

static int64_t keeps(const tutti_op_args *p)
{
    const recurrence r = recurrence_of(p, false);

    return r.T * r.N * r.H * r.cell->kept;
}

/* Runs plain forward or backward with `floats` of memory. */
static tutti_status run_with(tutti__node *n, tutti_status (*function)(tutti__node *n),
                             int64_t floats)
{
    const size_t bytes = (size_t)floats * sizeof(float) + 1;
    running r = {NULL, TUTTI_OK};
    tutti_status status;

    if (!n->cx->device_ops->is_host && n->cx->f32_kernels->job)
        return function(n);
    r.work = tutti__scratch_take(n->cx, bytes);
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

/* ---- Memory ---------------------------------------------------------------------------------- */

static tutti_status copy(const recurrence *r, float *to, const float *from, int64_t n)
{
    if (r->by_device)
        return tutti__copy(r->p->cx->stream, to, from, (size_t)n * sizeof *to);
    memcpy(to, from, (size_t)n * sizeof *to);
    return TUTTI_OK;
}

static tutti_status clear(const recurrence *r, float *p, int64_t n)
{
    if (r->by_device)
        return r->p->cx->device_ops->zero(r->p->cx->stream, p, (size_t)n * sizeof *p);
    memset(p, 0, (size_t)n * sizeof *p);
    return TUTTI_OK;
}

/* ---- Products -------------------------------------------------------------------------------- */

/* [rows, columns] as a tensor; data NULL: a destination. */
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
static tutti_status take_result(const recurrence *r, float *to, tutti_tensor *t)
{
    TUTTI_TRY(copy(r, to, t->data, tutti_shape_count(t->shape)));
    tutti__tensor_release(t);
    return TUTTI_OK;
}

/* y [R,M] = x [R,K] w[M,K]^T + b */
static tutti_status multiply(const recurrence *r, float *y, const float *x, const float *w,
                             const float *b, int64_t R, int64_t K, int64_t M)
{
    const tutti__kernels *kernels = r->p->cx->f32_kernels;

    if (r->by_kernels) {
        tutti_tensor *yt = matrix(r, NULL, R, M), *xt = matrix(r, x, R, K);
        tutti_tensor *wt = matrix(r, w, M, K), *bt = b ? matrix(r, b, M, 0) : NULL;

        if (!yt || !xt || !wt || (b && !bt))
            return TUTTI_ERR_MEMORY;
        TUTTI_TRY(kernels->linear_forward(yt, xt, wt, bt));
        return take_result(r, y, yt);
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

    if (r->by_kernels) {
        tutti_tensor *dxt = matrix(r, NULL, R, K), *dyt = matrix(r, dy, R, M);
        tutti_tensor *wt = matrix(r, w, M, K);

        if (!dxt || !dyt || !wt)
            return TUTTI_ERR_MEMORY;
        TUTTI_TRY(kernels->linear_backward_data(dxt, dyt, wt));
        return take_result(r, dx, dxt);
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
    if (r->by_kernels) {
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

/* A step of all samples on the host. */
typedef struct all_samples {
    const recurrence *r;
    void (*function)(const tutti__job_cells *s);
    const tutti__job_cells *step;
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

    for (int64_t n = job * SAMPLES; n < (job + 1) * SAMPLES && n < r->N; n++) {
        tutti__job_cells s = *all->step;

        s.gx = row(s.gx, n, r->G);
        s.gh = row(s.gh, n, r->G);
        s.h_prev = row(s.h_prev, n, r->H);
        s.c_prev = row(s.c_prev, n, s.c_apart);
        s.h = row_to(s.h, n, r->H);
        s.kept = row_to(s.kept, n, r->H * r->cell->kept);
        s.dy = row(s.dy, n, r->H);
        s.dh = row(s.dh, n, r->H);
        s.through = row(s.through, n, r->H);
        s.dc = row_to(s.dc, n, r->H);
        s.dgx = row_to(s.dgx, n, r->G);
        s.dgh = row_to(s.dgh, n, r->G);
        s.dh_prev = row_to(s.dh_prev, n, r->H);
        all->function(&s);
    }
}

/* The s-th step. c_prev is either c0 or in what the step before has kept. */
static tutti__job_cells step_of(const recurrence *r, int64_t s)
{
    const tutti_op_args *p = r->p;
    const int64_t at = position_of(r, s) * r->N, kept = r->H * r->cell->kept;
    const int64_t before = s > 0 ? position_of(r, s - 1) * r->N : 0;
    tutti__job_cells step = {
        .H = r->H, .gates = r->cell->gates, .kept_size = r->cell->kept, .c_apart = r->H};

    step.kept = p->kept + at * kept;
    step.h_prev = s > 0 ? p->y + before * r->H : p->src[H0] ? p->src[H0] : r->zeros;
    step.c_prev = p->src[C0] ? p->src[C0] : r->zeros;
    if (s > 0 && r->cell->has_c) {
        step.c_prev = p->kept + before * kept + kept - r->H;
        step.c_apart = kept;
    }
    return step;
}

static tutti_status each_sample(const recurrence *r, const tutti__cell_function *function,
                                tutti__job_cells step)
{
    const tutti__each_job job = {function->job, {.cells = step}};
    all_samples all = {r, function->on_host, &step};

    if (r->by_device)
        return tutti__each_on_device(r->p, &job, r->N * r->H);
    tutti_op_parallel(r->p, samples_job, &all, (r->N + SAMPLES - 1) / SAMPLES);
    return TUTTI_OK;
}

/* ---- Forward --------------------------------------------------------------------------------- */

static int64_t forward_floats(const recurrence *r)
{
    return r->N * (r->H + r->G) + r->T * r->N * r->G;
}

/* The last c follows y. */
static tutti_status copy_last_c(const recurrence *r)
{
    const tutti_op_args *p = r->p;
    const int64_t kept = r->H * r->cell->kept;
    tutti__move c = {.n = 2,
                     .size = {r->N, r->H},
                     .to_stride = {r->H, 1},
                     .from_stride = {kept, 1},
                     .element = sizeof(float),
                     .to = p->y + r->T * r->N * r->H};

    if (!r->with_c || r->N == 0)
        return TUTTI_OK;
    if (r->T == 0)
        return copy(r, c.to, p->src[C0] ? p->src[C0] : r->zeros, r->N * r->H);
    c.from = p->kept + (position_of(r, r->T - 1) * r->N + 1) * kept - r->H;
    if (r->by_device)
        return p->cx->f32_kernels->move(p->cx, &c);
    tutti__move_on_host(p->cx, &c);
    return TUTTI_OK;
}

static tutti_status steps_forward(recurrence *r, float *work)
{
    const tutti_op_args *p = r->p;
    float *gh = work + r->N * r->H, *gx = gh + r->N * r->G;

    TUTTI_TRY(clear(r, work, r->N * r->H));
    r->zeros = work;
    if (r->T * r->N == 0)
        return copy_last_c(r);
    TUTTI_TRY(
        multiply(r, gx, p->src[X], p->src[WEIGHT_IH], p->src[BIAS_IH], r->T * r->N, r->K, r->G));
    for (int64_t s = 0; s < r->T; s++) {
        const int64_t at = position_of(r, s) * r->N;
        tutti__job_cells step = step_of(r, s);

        TUTTI_TRY(
            multiply(r, gh, step.h_prev, p->src[WEIGHT_HH], p->src[BIAS_HH], r->N, r->H, r->G));
        step.gx = gx + at * r->G;
        step.gh = gh;
        step.h = p->y + at * r->H;
        TUTTI_TRY(each_sample(r, &r->cell->forward, step));
    }
    return copy_last_c(r);
}

static void plain_forward(const tutti_op_args *p)
{
    recurrence r = recurrence_of(p, false);

    running_of(p)->status = steps_forward(&r, running_of(p)->work);
}

static tutti_status device_forward(const tutti_op_args *p)
{
    recurrence r = recurrence_of(p, true);
    float *work = tutti__operation_memory(p->cx, (size_t)forward_floats(&r) * sizeof *work + 1);

    return work ? steps_forward(&r, work) : TUTTI_ERR_MEMORY;
}

static tutti_status forward(tutti__node *n)
{
    const tutti_op_args p = tutti__op_args(n);
    const recurrence r = recurrence_of(&p, false);

    return run_with(n, tutti__plain_forward, forward_floats(&r));
}

/* ---- Backward -------------------------------------------------------------------------------- */

static int64_t backward_floats(const recurrence *r)
{
    return r->N * r->H * 4 + r->T * r->N * r->G * (r->cell->separate ? 2 : 1);
}

/* Gradients of gx and gh of all steps. */
typedef struct gate_gradients {
    float *gx, *gh;           /* [T,N,G] */
    float *dh, *through, *dc; /* [N,H]; in the end dh + through is that of h0, and dc that of c0 */
} gate_gradients;

static tutti_status steps_backward(const recurrence *r, const gate_gradients *d)
{
    const tutti_op_args *p = r->p;

    for (int64_t s = r->T - 1; s >= 0; s--) {
        const int64_t at = position_of(r, s) * r->N;
        tutti__job_cells step = step_of(r, s);

        step.dy = p->dy + at * r->H;
        step.dh = step.dh_prev = d->dh;
        step.through = d->through;
        step.dc = d->dc;
        step.dgx = d->gx + at * r->G;
        step.dgh = d->gh + at * r->G;
        TUTTI_TRY(each_sample(r, &r->cell->backward, step));
        TUTTI_TRY(multiply_back(r, d->through, step.dgh, p->src[WEIGHT_HH], r->N, r->H, r->G));
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

/* dh0 = dh + through */
static tutti_status give_h0(const recurrence *r, const gate_gradients *d)
{
    float *to = r->p->dsrc[H0];
    tutti_tensor *sum, *through;

    if (!to || r->N == 0)
        return TUTTI_OK;
    TUTTI_TRY(copy(r, to, d->dh, r->N * r->H));
    if (!r->by_device) {
        for (int64_t i = 0; i < r->N * r->H; i++)
            to[i] += d->through[i];
        return TUTTI_OK;
    }
    sum = matrix(r, to, r->N, r->H);
    through = matrix(r, d->through, r->N, r->H);
    return sum && through ? r->p->cx->f32_kernels->add_to(sum, through) : TUTTI_ERR_MEMORY;
}

static tutti_status all_backward(recurrence *r, float *work)
{
    const tutti_op_args *p = r->p;
    const int64_t count = r->N * r->H, gates = r->T * r->N * r->G;
    gate_gradients d = {.dh = work, .through = work + count, .dc = work + 2 * count};

    d.gx = work + 4 * count;
    d.gh = r->cell->separate ? d.gx + gates : d.gx;
    TUTTI_TRY(clear(r, work, 4 * count));
    r->zeros = work + 3 * count;
    if (r->with_c)
        TUTTI_TRY(copy(r, d.dc, p->dy + r->T * count, count));
    for (int i = WEIGHT_IH; i <= BIAS_HH; i++)
        if (p->dsrc[i])
            TUTTI_TRY(clear(r, p->dsrc[i], tutti_shape_count(p->sources[i]->shape)));
    if (r->T * r->N > 0) {
        TUTTI_TRY(steps_backward(r, &d));
        TUTTI_TRY(finish_backward(r, &d));
    }
    if (p->dsrc[C0])
        TUTTI_TRY(copy(r, p->dsrc[C0], d.dc, count));
    return give_h0(r, &d);
}

static void plain_backward(const tutti_op_args *p)
{
    recurrence r = recurrence_of(p, false);

    running_of(p)->status = all_backward(&r, running_of(p)->work);
}

static tutti_status device_backward(const tutti_op_args *p)
{
    recurrence r = recurrence_of(p, true);
    float *work = tutti__operation_memory(p->cx, (size_t)backward_floats(&r) * sizeof *work + 1);

    return work ? all_backward(&r, work) : TUTTI_ERR_MEMORY;
}

static tutti_status backward(tutti__node *n)
{
    const tutti_op_args p = tutti__op_args(n);
    const recurrence r = recurrence_of(&p, false);

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
        .forward = forward, .backward = backward, .device_forward = device_forward,                \
        .device_backward = device_backward                                                         \
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
