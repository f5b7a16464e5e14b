/* batch_norm.c -- batch norm with residual and relu in two passes, forward and backward.   SPDX-License-Identifier: MIT
 *
 * Group by group of channels (lanes.h), so that the second pass finds in the cache what the first has read. Forward: sums
 * of (x - k) and (x - k)^2 with k the mean of the first image, which is close enough to the mean of all that one pass
 * loses no precision; then normalise, add, relu. Backward: the sums of dy and dy * (x - mean); then dx. The relu's mask is
 * recomputed from x; with a residual it is taken from y, and the first pass stores dresidual for the second to read.
 *
 * Without a residual, forward need not store y (tensor.h: lazy): Winograd's transform, and the norm that has y as its
 * residual, read x and compute y again, in less time than it takes to write and read it. */
#include "tensor/kernel/onednn/lanes.h"

#include <math.h>

/* Bytes of y from which it is stored non-temporally, like Winograd's results: it is read only when it is complete. */
#define STREAM_BYTES ((size_t)512 << 10)

typedef struct batch_norm {
    tutti__onednn_view view;
    const tutti__runs *runs;
    const tutti__batch_norm *a;
    const float *w, *b;
    tutti__channel_norm norm;                 /* forward's */
    const tutti__channel_norm *residual_norm; /* NULL: residual is stored */
    tutti__elements x, residual, dy, y;       /* all of one dtype */
    tutti__elements out, dresidual;           /* y or dx */
    float *mean, *inv_std, *scale, *dw, *db, *running_mean, *running_var;
    bool add_dw, add_db;
    bool streams;                       /* y is stored non-temporally */
    double count;                       /* values per channel, on all ranks */
    double *squares, *sums, *sums_xhat; /* over several ranks, of every channel; else NULL */
} batch_norm;

/* ---- Forward -------------------------------------------------------------------------------------------- */

/* A value close to the mean of each channel, one per lane: the mean of the first image. */
static void shifts(const batch_norm *t, const tutti__lanes *g, float *of_channel, float *shift)
{
    double lane[TUTTI__WIDTH] = {0}, sum[TUTTI__WIDTH] = {0};
    tutti__lanes_buffer buffer;
    tutti__vector_run run, as;

    TUTTI__FOR_CHUNKS(1, &t->view, g, run, at)
    {
        const float *x = tutti__lanes_read(t->x, at, &run, buffer, &as);

        t->runs->sum(x, &as, lane);
    }
    tutti__lanes_fold(g, lane, sum);
    for (int c = 0; c < g->channels; c++)
        of_channel[c] = (float)(sum[c] / (double)t->view.s);
    tutti__lanes_spread(g, of_channel, shift);
}

static void statistics(const batch_norm *t, const tutti__lanes *g, float *mean, double *variance)
{
    const double count = (double)(t->view.n * t->view.s);
    double lane_sum[TUTTI__WIDTH] = {0}, lane_square[TUTTI__WIDTH] = {0};
    double sum[TUTTI__WIDTH] = {0}, square[TUTTI__WIDTH] = {0};
    float shift[TUTTI__WIDTH], shift_of[TUTTI__WIDTH];
    tutti__lanes_buffer buffer;
    tutti__vector_run run, as;

    shifts(t, g, shift_of, shift);
    TUTTI__FOR_CHUNKS(t->view.n, &t->view, g, run, at)
    {
        const float *x = tutti__lanes_read(t->x, at, &run, buffer, &as);

        t->runs->moments(x, &as, shift, lane_sum, lane_square);
    }
    tutti__lanes_fold(g, lane_sum, sum);
    tutti__lanes_fold(g, lane_square, square);
    for (int c = 0; c < g->channels; c++) {
        const double d = sum[c] / count, v = square[c] / count - d * d;

        mean[c] = (float)((double)shift_of[c] + d);
        variance[c] = v < 0 ? 0 : v; /* NaN stays */
    }
}

/* scale: of the lanes' channels; mean, bias: of all channels. bias NULL: p's stays. */
static void spread(const tutti__lanes *g, const float *mean, const float *scale, const float *bias,
                   tutti__norm *p)
{
    tutti__lanes_spread(g, mean + g->channel, p->mean);
    tutti__lanes_spread(g, scale, p->scale);
    if (bias)
        tutti__lanes_spread(g, bias + g->channel, p->bias);
}

static void spread_norm(const tutti__channel_norm *n, const tutti__lanes *g, tutti__norm *p)
{
    spread(g, n->mean, n->scale + g->channel, n->bias, p);
}

/* Over several ranks, before the exchange: this rank's statistics of the group's channels. */
static void statistics_group(void *arg, int64_t i, int member)
{
    const batch_norm *t = arg;
    const tutti__lanes g = tutti__lanes_at(&t->view, i);
    double variance[TUTTI__WIDTH];

    (void)member;
    statistics(t, &g, t->mean + g.channel, variance);
    for (int c = 0; c < g.channels; c++)
        t->squares[g.channel + c] = variance[c] * t->count;
}

/* The second pass: its output may overwrite the buffer to which x was widened. */
static void normalise_group(const batch_norm *t, const tutti__lanes *g)
{
    tutti__lanes_buffer x_buffer, residual_buffer;
    tutti__vector_run run, as;
    tutti__norm p = {0}, of_residual = {0};

    spread_norm(&t->norm, g, &p);
    p.streams = t->streams;
    if (t->residual_norm)
        spread_norm(t->residual_norm, g, &of_residual);
    TUTTI__FOR_CHUNKS_BACK(t->view.n, &t->view, g, run, at)
    {
        const float *x = tutti__lanes_read(t->x, at, &run, x_buffer, &as);
        const float *residual =
            t->residual.p ? tutti__lanes_read(t->residual, at, &run, residual_buffer, &as) : NULL;

        if (t->residual_norm) {
            t->runs->normalise(residual_buffer, residual, NULL, &as, &of_residual,
                               t->residual_norm->relu);
            residual = residual_buffer;
        }
        t->runs->normalise(tutti__lanes_write(t->out, at, x_buffer), x, residual, &as, &p,
                           t->norm.relu);
        tutti__lanes_written(t->out, at, &run, x_buffer);
    }
}

static void forward_group(void *arg, int64_t i, int member)
{
    const batch_norm *t = arg;
    const tutti__lanes g = tutti__lanes_at(&t->view, i);
    float *mean = t->mean + g.channel;
    double variance[TUTTI__WIDTH];

    (void)member;
    if (t->a->training && !t->squares)
        statistics(t, &g, mean, variance);
    for (int c = 0; c < g.channels; c++) {
        float *running_mean = t->running_mean + g.channel + c;
        float *running_var = t->running_var + g.channel + c;

        if (t->squares) {
            variance[c] = t->squares[g.channel + c] / t->count;
        } else if (t->a->training) {
            const float unbiased = (float)(variance[c] * t->count / (t->count - 1));

            *running_mean += t->a->momentum * (mean[c] - *running_mean);
            *running_var += t->a->momentum * (unbiased - *running_var);
        } else {
            mean[c] = *running_mean;
            variance[c] = (double)*running_var;
        }
        t->inv_std[g.channel + c] = (float)(1 / sqrt(variance[c] + (double)t->a->eps));
        t->scale[g.channel + c] = t->inv_std[g.channel + c] * t->w[g.channel + c];
    }
    if (t->out.p)
        normalise_group(t, &g);
}

/* ---- A result that is not stored -------------------------------------------------------------------------- */

static void compute_group(void *arg, int64_t i, int member)
{
    const tutti__lanes g = tutti__lanes_at(&((const batch_norm *)arg)->view, i);

    (void)member;
    normalise_group(arg, &g);
}

tutti_status tutti__onednn_norm_compute(tutti_tensor *y)
{
    const tutti__onednn_lazy *lazy = (const tutti__onednn_lazy *)y->lazy;
    batch_norm t = {
        .runs = tutti__runs_of(y->cx), .norm = lazy->norm, .x = {lazy->lazy.x->data, TUTTI_F32}};

    tutti__onednn_view_of(y->shape, y->layout, &t.view);
    TUTTI_TRY(tutti__tensor_alloc(y, y->layout));
    t.out = (tutti__elements){y->data, TUTTI_F32};
    tutti__parallel(y->cx, compute_group, &t, tutti__lanes_count(&t.view));
    return TUTTI_OK;
}

/* A part of it: lazy.read. */
static void read_norm(const tutti_tensor *y, int64_t from, int64_t n, float *to)
{
    const tutti__onednn_lazy *lazy = (const tutti__onednn_lazy *)y->lazy;
    const float *x = (const float *)lazy->lazy.x->data + from;
    tutti__onednn_view view;

    tutti__onednn_view_of(y->shape, y->layout, &view);
    for (int64_t count; n > 0; from += count, x += count, to += count, n -= count) {
        const int64_t left = view.block - from % view.block;
        const tutti__lanes g = tutti__lanes_at(&view, from % view.image / view.block);
        tutti__vector_run run = {.stride = TUTTI__WIDTH, .width = TUTTI__WIDTH};
        tutti__norm p = {0};

        count = n < left ? n : left;
        run.steps = count / TUTTI__WIDTH;
        spread_norm(&lazy->norm, &g, &p);
        tutti__runs_of(y->cx)->normalise(to, x, NULL, &run, &p, lazy->norm.relu);
        run = (tutti__vector_run){0, 1, TUTTI__WIDTH, (int)(count % TUTTI__WIDTH)};
        if (run.width > 0)
            tutti__runs_of(y->cx)->normalise(to + count - run.width, x + count - run.width, NULL,
                                             &run, &p, lazy->norm.relu);
    }
}

/* In F32 and blocks of a vector's channels, as Winograd reads it. */
static bool is_blocked(const batch_norm *t, const tutti__onednn *od)
{
    return t->x.dtype == TUTTI_F32 && t->view.inner == od->isa->lanes &&
           tutti__lanes_contiguous(&t->view) && t->view.c % t->view.inner == 0;
}

/* The result must not outlive x, which is needed to compute it later, and kept only if it is not lazy. In 16 bit it would not be
 * rounded. */
static bool can_be_lazy(const batch_norm *t, const tutti_tensor *y, const tutti_tensor *x)
{
    return t->x.dtype == TUTTI_F32 && t->x.p == x->data && !x->lazy && !t->residual.p &&
           (y->intermediate || !x->intermediate);
}

static tutti_status make_lazy(tutti_tensor *y, tutti_tensor *x, const batch_norm *t)
{
    const bool in_parts =
        tutti__lanes_contiguous(&t->view) && t->view.c % t->view.inner == 0; /* no padding */
    tutti__onednn_lazy *lazy = tutti__step_alloc(y->cx, sizeof *lazy);

    if (!lazy)
        return TUTTI_ERR_MEMORY;
    *lazy =
        (tutti__onednn_lazy){{x, tutti__onednn_norm_compute, in_parts ? read_norm : NULL}, t->norm};
    y->lazy = &lazy->lazy;
    y->layout = x->layout;
    return TUTTI_OK;
}

tutti_status tutti__onednn_batch_norm_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                              tutti_tensor *b, tutti_tensor *residual,
                                              tutti_tensor *running_mean, tutti_tensor *running_var,
                                              const tutti__batch_norm *a,
                                              tutti__batch_norm_saved *saved)
{
    const size_t bytes = (size_t)x->shape.d[1] * sizeof(float);
    float *scale = tutti__step_memory(y->cx, bytes), *bias = tutti__step_memory(y->cx, bytes);
    batch_norm t = {.runs = tutti__runs_of(x->cx),
                    .a = a,
                    .w = w->data,
                    .norm = {saved->mean, scale, bias, a->relu},
                    .mean = saved->mean,
                    .inv_std = saved->inv_std,
                    .scale = scale,
                    .count = saved->count};
    const tutti__layout *layout;
    void *data;

    if (!scale || !bias)
        return TUTTI_ERR_MEMORY;
    /* The current biases: backward recomputes the relu's mask with them, unless there is a residual. */
    memcpy(bias, b->data, bytes);
    saved->mask = a->relu && !residual ? bias : NULL;
    t.running_mean = running_mean->data;
    t.running_var = running_var->data;
    TUTTI_TRY(tutti__onednn_walk(x, &t.view, &layout, &data));
    t.x = (tutti__elements){data, x->dtype};
    if (a->peers) {
        t.squares = tutti__step_alloc(x->cx, (size_t)t.view.c * sizeof *t.squares);
        if (!t.squares)
            return TUTTI_ERR_MEMORY;
        tutti__parallel(x->cx, statistics_group, &t, tutti__lanes_count(&t.view));
        TUTTI_TRY(tutti__peers_moments(a, saved, t.squares, running_mean, running_var));
        t.count = saved->count;
    }
    if (residual) {
        TUTTI_TRY(tutti__onednn_in_norm(residual, layout, &data, &t.residual_norm));
        t.residual = (tutti__elements){data, residual->dtype};
    }
    if (can_be_lazy(&t, y, x)) {
        TUTTI_TRY(make_lazy(y, x, &t));
    } else {
        TUTTI_TRY(tutti__tensor_alloc(y, layout));
        t.out = (tutti__elements){y->data, y->dtype};
        t.streams = is_blocked(&t, y->cx->kernel_state) && layout->bytes >= STREAM_BYTES;
    }
    tutti__parallel(y->cx, forward_group, &t, tutti__lanes_count(&t.view));
    return TUTTI_OK;
}

/* ---- Backward ------------------------------------------------------------------------------------------- */

/* Stores the parameters' gradients, from this rank's sums. */
static void store_sums(const batch_norm *t, const tutti__lanes *g, const double *sum,
                       const double *product)
{
    for (int c = 0; c < g->channels; c++) {
        const double inv_std = (double)t->inv_std[g->channel + c];

        if (t->dw)
            t->dw[g->channel + c] =
                (float)(product[c] * inv_std) + (t->add_dw ? t->dw[g->channel + c] : 0.0f);
        if (t->db)
            t->db[g->channel + c] = (float)sum[c] + (t->add_db ? t->db[g->channel + c] : 0.0f);
    }
}

static void spread_scale(const batch_norm *t, const tutti__lanes *g, tutti__norm *p)
{
    float scale[TUTTI__WIDTH] = {0};

    for (int c = 0; c < g->channels; c++)
        scale[c] = t->inv_std[g->channel + c] * t->w[g->channel + c];
    spread(g, t->mean, scale, t->b, p);
}

/* Sets what dx subtracts from dy, from the sums over all ranks. */
static void spread_sums(const batch_norm *t, const tutti__lanes *g, const double *sum,
                        const double *product, tutti__norm *p)
{
    float dy_mean[TUTTI__WIDTH] = {0}, slope[TUTTI__WIDTH] = {0};

    for (int c = 0; c < g->channels && t->a->training; c++) {
        const double inv_std = (double)t->inv_std[g->channel + c];

        dy_mean[c] = (float)(sum[c] / t->count);
        slope[c] = (float)(product[c] / t->count * inv_std * inv_std);
    }
    tutti__lanes_spread(g, dy_mean, p->dy_mean);
    tutti__lanes_spread(g, slope, p->slope);
}

static tutti__mask mask_of(const batch_norm *t)
{
    return !t->a->relu ? TUTTI__MASK_NONE : t->b ? TUTTI__MASK_FROM_X : TUTTI__MASK_FROM_Y;
}

static void sums_of_group(const batch_norm *t, const tutti__lanes *g, const tutti__norm *p,
                          double *sum, double *product)
{
    double lane_sum[TUTTI__WIDTH] = {0}, lane_product[TUTTI__WIDTH] = {0};
    tutti__lanes_buffer x_buffer, dy_buffer, y_buffer;
    tutti__vector_run run, as;

    TUTTI__FOR_CHUNKS(t->view.n, &t->view, g, run, at)
    {
        const float *x = tutti__lanes_read(t->x, at, &run, x_buffer, &as);
        const float *dy = tutti__lanes_read(t->dy, at, &run, dy_buffer, &as);
        const float *y = t->y.p ? tutti__lanes_read(t->y, at, &run, y_buffer, &as) : NULL;
        float *masked = t->dresidual.p ? tutti__lanes_write(t->dresidual, at, dy_buffer) : NULL;

        t->runs->norm_sums(dy, x, y, masked, &as, p, mask_of(t), lane_sum, lane_product);
        if (masked)
            tutti__lanes_written(t->dresidual, at, &run, dy_buffer);
    }
    tutti__lanes_fold(g, lane_sum, sum);
    tutti__lanes_fold(g, lane_product, product);
    store_sums(t, g, sum, product);
}

static void dx_of_group(const batch_norm *t, const tutti__lanes *g, const tutti__norm *p)
{
    /* dresidual is dy with the mask applied */
    const tutti__elements behind_relu = t->dresidual.p ? t->dresidual : t->dy;
    const tutti__mask from = t->dresidual.p ? TUTTI__MASK_NONE : mask_of(t);
    tutti__lanes_buffer x_buffer, dy_buffer, y_buffer;
    tutti__vector_run run, as;

    if (!t->out.p)
        return;
    TUTTI__FOR_CHUNKS_BACK(t->view.n, &t->view, g, run, at)
    {
        const float *x = tutti__lanes_read(t->x, at, &run, x_buffer, &as);
        const float *dy = tutti__lanes_read(behind_relu, at, &run, dy_buffer, &as);
        const float *y =
            from == TUTTI__MASK_FROM_Y ? tutti__lanes_read(t->y, at, &run, y_buffer, &as) : NULL;

        t->runs->norm_dx(tutti__lanes_write(t->out, at, dy_buffer), dy, x, y, &as, p, from);
        tutti__lanes_written(t->out, at, &run, dy_buffer);
    }
}

static void backward_group(void *arg, int64_t i, int member)
{
    const batch_norm *t = arg;
    const tutti__lanes g = tutti__lanes_at(&t->view, i);
    double sum[TUTTI__WIDTH] = {0}, product[TUTTI__WIDTH] = {0};
    tutti__norm p = {0};

    (void)member;
    spread_scale(t, &g, &p);
    sums_of_group(t, &g, &p, sum, product);
    spread_sums(t, &g, sum, product, &p);
    dx_of_group(t, &g, &p);
}

/* Over several ranks: the same in two halves. */
static void sums_group(void *arg, int64_t i, int member)
{
    const batch_norm *t = arg;
    const tutti__lanes g = tutti__lanes_at(&t->view, i);
    double sum[TUTTI__WIDTH] = {0}, product[TUTTI__WIDTH] = {0};
    tutti__norm p = {0};

    (void)member;
    spread_scale(t, &g, &p);
    sums_of_group(t, &g, &p, sum, product);
    for (int c = 0; c < g.channels; c++) {
        t->sums[g.channel + c] = sum[c];
        t->sums_xhat[g.channel + c] = product[c] * (double)t->inv_std[g.channel + c];
    }
}

static void dx_group(void *arg, int64_t i, int member)
{
    const batch_norm *t = arg;
    const tutti__lanes g = tutti__lanes_at(&t->view, i);
    double product[TUTTI__WIDTH] = {0};
    tutti__norm p = {0};

    (void)member;
    spread_scale(t, &g, &p);
    for (int c = 0; c < g.channels; c++)
        product[c] = t->sums_xhat[g.channel + c] / (double)t->inv_std[g.channel + c];
    spread_sums(t, &g, t->sums + g.channel, product, &p);
    dx_of_group(t, &g, &p);
}

static tutti_status backward_over_all_ranks(batch_norm *t, tutti_ctx *cx)
{
    const int64_t n = tutti__lanes_count(&t->view);

    t->sums = tutti__step_alloc(cx, 2 * (size_t)t->view.c * sizeof *t->sums);
    if (!t->sums)
        return TUTTI_ERR_MEMORY;
    t->sums_xhat = t->sums + t->view.c;
    tutti__parallel(cx, sums_group, t, n);
    TUTTI_TRY(tutti__peers_sums(cx, t->a->peers, t->view.c, t->sums, t->sums_xhat));
    tutti__parallel(cx, dx_group, t, n);
    return TUTTI_OK;
}

/* Memory for a gradient: that of dy, if possible, because dy is read for the last time where this is written, so its lines
 * are in the cache. dy may be NULL, if its memory is taken already. */
static tutti_status gradient_memory(tutti_tensor *t, tutti_tensor *dy, const tutti__layout *layout)
{
    return dy && dy->layout == layout ? tutti__tensor_take(t, dy) : tutti__tensor_alloc(t, layout);
}

tutti_status tutti__onednn_batch_norm_backward(tutti_tensor *dx, tutti_tensor *dw, tutti_tensor *db,
                                               tutti_tensor *dresidual, tutti_tensor *dy,
                                               tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                               const tutti__batch_norm *a,
                                               const tutti__batch_norm_saved *saved)
{
    batch_norm t = {.runs = tutti__runs_of(x->cx),
                    .a = a,
                    .w = w->data,
                    .b = saved->mask,
                    .mean = saved->mean,
                    .inv_std = saved->inv_std,
                    .count = saved->count};
    const tutti__layout *layout;
    void *data;

    TUTTI_TRY(tutti__onednn_walk(x, &t.view, &layout, &data));
    t.x = (tutti__elements){data, x->dtype};
    TUTTI_TRY(tutti__onednn_in(dy, layout, &data));
    t.dy = (tutti__elements){data, dy->dtype};
    if (a->relu && !t.b) {
        TUTTI_TRY(tutti__onednn_in(y, layout, &data));
        t.y = (tutti__elements){data, y->dtype};
    }
    if (dw) {
        t.dw = dw->data;
        t.add_dw = dw->accumulate;
    }
    if (db) {
        t.db = db->data;
        t.add_db = db->accumulate;
    }
    if (dresidual) {
        TUTTI_TRY(gradient_memory(dresidual, dy, layout));
        t.dresidual = (tutti__elements){dresidual->data, dresidual->dtype};
    }
    if (dx) {
        TUTTI_TRY(gradient_memory(dx, dresidual ? NULL : dy, layout));
        t.out = (tutti__elements){dx->data, dx->dtype};
    }
    if (a->peers)
        return backward_over_all_ranks(&t, dy->cx);
    tutti__parallel(dy->cx, backward_group, &t, tutti__lanes_count(&t.view));
    return TUTTI_OK;
}
