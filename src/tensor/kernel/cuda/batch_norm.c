/* batch_norm.c -- batch norm by our own kernels, over one rank or several.   SPDX-License-Identifier: MIT
 *
 * Over several ranks, the moments of this rank's values are copied to the host between the passes, and those of all ranks back. */
#include "tensor/kernel/cuda/cuda_kernels.h"

static tutti__cuda_batch_norm geometry_of(const tutti_tensor *x, const tutti_tensor *w,
                                          const tutti__batch_norm *a,
                                          const tutti__batch_norm_saved *saved)
{
    const int64_t *d = x->shape.d;

    return (tutti__cuda_batch_norm){.rows = d[0] * d[2] * d[3],
                                    .channels = d[1],
                                    .dtype = x->dtype,
                                    .relu = a->relu,
                                    .w = w->data,
                                    .mean = saved->mean,
                                    .inv_std = saved->inv_std};
}

/* Memory for the kernels' partial sums, after 2 C doubles for their totals. */
static tutti_status scratch_of(tutti_ctx *cx, const tutti__cuda_batch_norm *c, double **sums_p,
                               void **scratch_p)
{
    const size_t sums = ((size_t)c->channels * 2 * sizeof(double) + 63) / 64 * 64;
    void *p;

    TUTTI_TRY(tutti__cuda_scratch(
        cx, sums + tutti__cuda_state_of(cx)->own->batch_norm_scratch(c->rows, c->channels), &p));
    *sums_p = p;
    *scratch_p = (char *)p + sums;
    return TUTTI_OK;
}

/* Replaces `moments` (on the device) of this rank's values by those of all ranks'; updates the running statistics. */
static tutti_status join_peers(tutti_ctx *cx, const tutti__batch_norm *a,
                               tutti__batch_norm_saved *saved, double *moments,
                               tutti_tensor *running_mean, tutti_tensor *running_var)
{
    const size_t C = (size_t)running_mean->shape.d[0], bytes = C * sizeof(float);
    double *both = tutti__step_alloc(cx, 2 * C * sizeof *both);
    float *floats = tutti__step_alloc(cx, 3 * bytes);
    tutti__batch_norm_saved here = *saved;
    tutti_tensor mean = *running_mean, var = *running_var;

    if (!both || !floats)
        return TUTTI_ERR_MEMORY;
    here.mean = floats;
    mean.data = floats + C;
    var.data = floats + 2 * C;
    TUTTI_TRY(tutti__copy_out(cx->stream, both, moments, 2 * C * sizeof *both));
    TUTTI_TRY(tutti__copy_out(cx->stream, mean.data, running_mean->data, bytes));
    TUTTI_TRY(tutti__copy_out(cx->stream, var.data, running_var->data, bytes));
    TUTTI_TRY(cx->device_ops->stream_wait(cx->stream));
    for (size_t c = 0; c < C; c++)
        here.mean[c] = (float)both[c];
    TUTTI_TRY(tutti__peers_moments(a, &here, both + C, &mean, &var));
    for (size_t c = 0; c < C; c++)
        both[c] = (double)here.mean[c];
    saved->count = here.count;
    TUTTI_TRY(tutti__copy_in(cx->stream, moments, both, 2 * C * sizeof *both));
    TUTTI_TRY(tutti__copy_in(cx->stream, running_mean->data, mean.data, bytes));
    return tutti__copy_in(cx->stream, running_var->data, var.data, bytes);
}

static tutti_status statistics(const tutti__cuda_batch_norm *c, const void *x,
                               tutti_tensor *running_mean, tutti_tensor *running_var,
                               const tutti__batch_norm *a, tutti__batch_norm_saved *saved)
{
    tutti_ctx *cx = running_mean->cx;
    tutti__cuda_running running = {.mean = running_mean->data,
                                   .var = running_var->data,
                                   .momentum = a->momentum,
                                   .eps = a->eps,
                                   .count = saved->count};
    double *moments;
    void *scratch;

    if (!a->training) {
        TUTTI__CUDA(cx, own, batch_norm_statistics, c, NULL, &running);
        return TUTTI_OK;
    }
    TUTTI_TRY(scratch_of(cx, c, &moments, &scratch));
    TUTTI__CUDA(cx, own, batch_norm_moments, c, x, scratch, moments, a->peers ? NULL : &running);
    if (!a->peers)
        return TUTTI_OK;
    TUTTI_TRY(join_peers(cx, a, saved, moments, running_mean, running_var));
    running = (tutti__cuda_running){.eps = a->eps, .count = saved->count};
    TUTTI__CUDA(cx, own, batch_norm_statistics, c, moments, &running);
    return TUTTI_OK;
}

tutti_status tutti__cuda_batch_norm_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                            tutti_tensor *b, tutti_tensor *residual,
                                            tutti_tensor *running_mean, tutti_tensor *running_var,
                                            const tutti__batch_norm *a,
                                            tutti__batch_norm_saved *saved)
{
    tutti__cuda_batch_norm c = geometry_of(x, w, a, saved);
    const void *x_data, *extra = NULL;

    c.b = b->data;
    TUTTI_TRY(tutti__cuda_nhwc(x, &x_data));
    if (residual)
        TUTTI_TRY(tutti__cuda_nhwc(residual, &extra));
    TUTTI_TRY(statistics(&c, x_data, running_mean, running_var, a, saved));
    TUTTI_TRY(tutti__cuda_alloc(y));
    TUTTI__CUDA(y->cx, own, batch_norm_apply, &c, y->data, x_data, extra);
    return TUTTI_OK;
}

static tutti_status sums_of_peers(tutti_ctx *cx, const tutti_peers *peers, int64_t C, double *sums)
{
    const size_t bytes = 2 * (size_t)C * sizeof *sums;
    double *here = tutti__step_alloc(cx, bytes);

    if (!here)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__read(cx->stream, here, sums, bytes));
    TUTTI_TRY(tutti__peers_sums(cx, peers, C, here, here + C));
    return tutti__copy_in(cx->stream, sums, here, bytes);
}

/* The tensors from which g, the gradient before the relu, is computed. */
typedef struct sources {
    const void *dy, *y, *x;
} sources;

static tutti_status gradient(tutti_tensor *dx, tutti__cuda_batch_norm *c, const double *sums,
                             double count, const sources *s, const tutti_tensor *dresidual)
{
    const void *dy = s->dy;

    TUTTI_TRY(tutti__cuda_alloc(dx));
    if (dresidual) { /* already contains g */
        dy = dresidual->data;
        c->relu = false;
    }
    TUTTI__CUDA(dx->cx, own, batch_norm_gradient, c, sums, count, dx->data, dy, s->y, s->x);
    return TUTTI_OK;
}

tutti_status tutti__cuda_batch_norm_backward(tutti_tensor *dx, tutti_tensor *dw, tutti_tensor *db,
                                             tutti_tensor *dresidual, tutti_tensor *dy,
                                             tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                             const tutti__batch_norm *a,
                                             const tutti__batch_norm_saved *saved)
{
    tutti_ctx *cx = x->cx;
    tutti__cuda_batch_norm c = geometry_of(x, w, a, saved);
    sources s = {0};
    double *sums;
    void *scratch;

    TUTTI_TRY(tutti__cuda_nhwc(dy, &s.dy));
    TUTTI_TRY(tutti__cuda_nhwc(x, &s.x));
    if (a->relu)
        TUTTI_TRY(tutti__cuda_nhwc(y, &s.y));
    if (dresidual)
        TUTTI_TRY(tutti__cuda_alloc(dresidual));
    TUTTI_TRY(scratch_of(cx, &c, &sums, &scratch));
    TUTTI__CUDA(cx, own, batch_norm_sums, &c, s.dy, s.y, s.x, dresidual ? dresidual->data : NULL,
                scratch,
                &((tutti__cuda_sums){.sums = sums,
                                     .db = db ? db->data : NULL,
                                     .dw = dw ? dw->data : NULL,
                                     .add_db = db && db->accumulate,
                                     .add_dw = dw && dw->accumulate}));
    if (a->peers)
        TUTTI_TRY(sums_of_peers(cx, a->peers, c.channels, sums));
    return dx ? gradient(dx, &c, sums, saved->count, &s, dresidual) : TUTTI_OK;
}
