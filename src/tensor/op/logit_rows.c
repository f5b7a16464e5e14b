/* logit_rows.c -- losses of rows of logits, which become their gradients.   SPDX-License-Identifier: MIT
 *
 * If ranks have parts of the classes, each has its logits of the rows, and all of them the few numbers of a row from which loss
 * and gradients follow: they are exchanged once for all rows, and added in order. */
#include "tensor/op/logit_rows.h"

#include "base/half.h"
#include "base/real_f32.h"
#include "tensor/op/softmax.h"
#include "tensor/parallel.h"

#include <stdlib.h>
#include <string.h>

/* Memory where the losses are. */
static void *host_or_device(const tutti__logit_rows *c, size_t bytes)
{
    return c->device_loss || c->cx->device_ops->is_host ? tutti__operation_memory(c->cx, bytes)
                                                        : tutti__step_alloc(c->cx, bytes);
}

tutti_status tutti__logit_rows_prepare(tutti__logit_rows *c, int64_t rows)
{
    const tutti__divided_classes *d = c->divided;

    if (!d)
        return TUTTI_OK;
    c->n_parts = d->peers->size * tutti__peers_units(d->peers);
    (void)tutti__peers_chunk(d->peers, d->classes, d->peers->rank, &c->first);
    c->sums = host_or_device(c, (size_t)(rows * c->n_parts) * sizeof *c->sums);
    return c->sums ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

TUTTI__CLONES static void exps(float *x, int64_t n, float minus)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = tutti__exp_f32(x[i] - minus);
}

TUTTI__CLONES static void scale_and_add(float *x, int64_t n, float scale, float add)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = x[i] * scale + add;
}

/* The loss of a row of logits, which become their gradient. */
static double row_loss(const tutti__logit_rows *c, float *x, int64_t label)
{
    const int64_t n = c->classes;
    const double smoothing = (double)c->how->label_smoothing;
    const double all = smoothing > 0 ? tutti__sum(x, n) : 0, own = (double)x[label];
    const float largest = tutti__largest_of(x, n);
    double sum, log_sum;

    exps(x, n, largest);
    sum = tutti__sum(x, n);
    log_sum = (double)largest + tutti__log(sum);
    if (c->gradients) {
        scale_and_add(x, n, (float)(1 / (sum * c->divisor)),
                      (float)(-smoothing / ((double)n * c->divisor)));
        x[label] = (float)((double)x[label] - (1 - smoothing) / c->divisor);
    }
    return (1 - smoothing) * (log_sum - own) +
           (smoothing > 0 ? smoothing * (log_sum - all / (double)n) : 0);
}

/* ---- Classes that are divided among ranks --------------------------------------------------------------------- */

/* Logits of F32 become exp(logit - largest). */
static void sums_of_row(const tutti__logit_rows *c, int64_t i, int member)
{
    const int64_t n = c->classes, label = c->label[i] - c->first;
    const bool half = c->logits->dtype != TUTTI_F32;
    const void *row =
        (char *)c->logits->data + (size_t)(i * n) * tutti_dtype_size(c->logits->dtype);
    float *x = half ? c->wide + member * n : (float *)(uintptr_t)row, largest;
    tutti__row_sums *sums = &c->sums[c->part * c->rows + i];

    *sums = (tutti__row_sums){0};
    if (c->label[i] == c->how->ignore_index)
        return;
    if (half)
        tutti__half_to_f32(x, row, (size_t)n, c->logits->dtype);
    sums->own = label >= 0 && label < n ? (double)x[label] : 0;
    sums->all = c->how->label_smoothing > 0 ? tutti__sum(x, n) : 0;
    largest = tutti__largest_of(x, n);
    exps(x, n, largest);
    sums->largest = (double)largest;
    sums->sum = tutti__sum(x, n);
}

/* The sums over all parts, in their order. */
static tutti__row_sums add_parts(const tutti__logit_rows *c, int64_t i)
{
    tutti__row_sums of = c->sums[i];

    for (int r = 1; r < c->n_parts; r++)
        if (c->sums[r * c->rows + i].largest > of.largest)
            of.largest = c->sums[r * c->rows + i].largest;
    of.sum = of.own = of.all = 0;
    for (int r = 0; r < c->n_parts; r++) {
        const tutti__row_sums *part = &c->sums[r * c->rows + i];

        of.sum += part->sum * tutti__exp(part->largest - of.largest);
        of.own += part->own;
        of.all += part->all;
    }
    return of;
}

/* The loss of a row, and the gradient of this rank's logits in place of them. */
static void divided_row(const tutti__logit_rows *c, int64_t i, int member)
{
    const int64_t n = c->classes, label = c->label[i] - c->first, V = c->divided->classes;
    const double smoothing = (double)c->how->label_smoothing;
    const bool half = c->logits->dtype != TUTTI_F32;
    void *row = (char *)c->logits->data + (size_t)(i * n) * tutti_dtype_size(c->logits->dtype);
    float *x = half ? c->wide + member * n : row;
    const double largest = c->sums[c->part * c->rows + i].largest;
    const tutti__row_sums of = add_parts(c, i);
    const double log_sum = of.largest + tutti__log(of.sum);

    c->loss[i] = (1 - smoothing) * (log_sum - of.own) +
                 (smoothing > 0 ? smoothing * (log_sum - of.all / (double)V) : 0);
    if (!c->gradients)
        return;
    if (half) {
        tutti__half_to_f32(x, row, (size_t)n, c->logits->dtype);
        exps(x, n, (float)largest);
    }
    scale_and_add(x, n, (float)(tutti__exp(largest - of.largest) / (of.sum * c->divisor)),
                  (float)(-smoothing / ((double)V * c->divisor)));
    if (label >= 0 && label < n)
        x[label] = (float)((double)x[label] - (1 - smoothing) / c->divisor);
    if (half)
        tutti__half_from_f32(row, x, (size_t)n, c->logits->dtype);
}

static void sums_job(void *arg, int64_t job, int member)
{
    const tutti__logit_rows *c = arg;
    const int64_t end = (job + 1) * c->in_job < c->rows ? (job + 1) * c->in_job : c->rows;

    for (int64_t i = job * c->in_job; i < end; i++)
        sums_of_row(c, i, member);
}

/* All ranks' sums of the chunk's rows. */
static tutti_status exchange_sums(tutti__logit_rows *c)
{
    const tutti_peers *peers = c->divided->peers;
    const int units = c->n_parts / peers->size;
    const size_t n = (size_t)(c->rows * units) * sizeof(tutti__row_sums) / sizeof(float);
    const tutti__row_sums *own = c->sums + peers->rank * units * c->rows;
    tutti_stream *stream = c->device_loss ? c->cx->stream : NULL;
    float *mine = host_or_device(c, n * sizeof *mine + 1);

    if (!mine)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__copy(stream ? stream : &tutti__cpu_stream, mine, own, n * sizeof *mine));
    return tutti__peers_gather_values(peers, stream, mine, n, (float *)c->sums);
}

/* ---- Rows ------------------------------------------------------------------------------------------------------ */

static void row_of_chunk(const tutti__logit_rows *c, int64_t i, int member)
{
    const int64_t n = c->classes;
    const bool half = c->logits->dtype != TUTTI_F32;
    const size_t bytes = (size_t)n * tutti_dtype_size(c->logits->dtype);
    void *row = (char *)c->logits->data + (size_t)i * bytes;
    float *x = half ? c->wide + member * n : row;

    if (c->label[i] == c->how->ignore_index) {
        c->loss[i] = 0;
        if (c->gradients)
            memset(row, 0, bytes);
        return;
    }
    if (c->sums) {
        divided_row(c, i, member);
        return;
    }
    if (half)
        tutti__half_to_f32(x, row, (size_t)n, c->logits->dtype);
    c->loss[i] = row_loss(c, x, c->label[i]);
    if (half && c->gradients)
        tutti__half_from_f32(row, x, (size_t)n, c->logits->dtype);
}

static void rows_job(void *arg, int64_t job, int member)
{
    const tutti__logit_rows *c = arg;
    const int64_t end = (job + 1) * c->in_job < c->rows ? (job + 1) * c->in_job : c->rows;

    for (int64_t i = job * c->in_job; i < end; i++)
        row_of_chunk(c, i, member);
}

#define JOB ((int64_t)1 << 14) /* logits of a job, at least */

/* The same in a device's memory. */
static tutti_status device_rows(tutti__logit_rows *c)
{
    const tutti__divided_classes *d = c->divided;
    tutti__label_rows a = {.rows = c->rows,
                           .classes = c->classes,
                           .ignore_index = c->how->ignore_index,
                           .label_smoothing = c->how->label_smoothing,
                           .gradients = c->gradients,
                           .divisor = c->divisor,
                           .first = c->first};
    const tutti__kernels *k = c->cx->f32_kernels;

    if (d) {
        a.ranks = d->peers->size;
        a.rank = d->peers->rank;
        a.all_classes = d->classes;
        TUTTI_TRY(k->label_sums(c->logits, c->label, c->sums + a.rank * c->rows, &a));
        TUTTI_TRY(exchange_sums(c));
        a.sums = c->sums;
    }
    return k->label_rows(c->logits, c->label, c->device_loss, &a);
}

/* Part k of this rank's. */
static void take_part(tutti__logit_rows *c, int k)
{
    const tutti__divided_classes *d = c->divided;
    int64_t classes;

    if (!d)
        return;
    c->part = d->peers->rank * (c->n_parts / d->peers->size) + k;
    classes = tutti__chunk(d->classes, c->n_parts, 1, c->part, &c->first);
    if (c->parts) {
        c->logits = c->parts[k];
        c->classes = classes;
    }
}

static void each_part(tutti__logit_rows *c, void (*job)(void *arg, int64_t job, int member))
{
    const int n = c->divided ? c->n_parts / c->divided->peers->size : 1;

    for (int k = 0; k < n; k++) {
        take_part(c, k);
        tutti__parallel(c->cx, job, c, (c->rows + c->in_job - 1) / c->in_job);
    }
}

static tutti_status host_rows(tutti__logit_rows *c)
{
    take_part(c, 0);
    c->in_job = (JOB + c->classes - 1) / c->classes;
    if (c->logits->dtype != TUTTI_F32 && !c->wide) { /* the first part is the largest */
        c->wide = host_or_device(c, (size_t)(c->cx->threads * c->classes) * sizeof *c->wide);
        if (!c->wide)
            return TUTTI_ERR_MEMORY;
    }
    if (c->sums) {
        each_part(c, sums_job);
        TUTTI_TRY(exchange_sums(c));
    }
    each_part(c, rows_job);
    return TUTTI_OK;
}

/* On a device whose kernels have no such loops: in a copy on the host. */
static tutti_status staged_rows(tutti__logit_rows *c)
{
    const size_t bytes = tutti__tensor_bytes(c->logits);
    tutti_tensor here = *c->logits, *there = c->logits;
    tutti_status status = TUTTI_ERR_MEMORY;

    here.data = tutti__alloc_unset(bytes + 1);
    if (here.data)
        status = tutti__read(c->cx->stream, here.data, there->data, bytes);
    c->logits = &here;
    if (status == TUTTI_OK)
        status = host_rows(c);
    c->logits = there;
    if (status == TUTTI_OK && c->gradients)
        status = tutti__copy_in(c->cx->stream, there->data, here.data, bytes);
    free(here.data);
    return status;
}

tutti_status tutti__logit_rows_run(tutti__logit_rows *c)
{
    if (c->device_loss)
        return device_rows(c);
    return c->cx->device_ops->is_host ? host_rows(c) : staged_rows(c);
}
