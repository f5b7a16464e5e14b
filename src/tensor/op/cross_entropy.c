/* cross_entropy.c -- cross entropy of logits and labels or probabilities.   SPDX-License-Identifier: MIT
 *   logits [N,C,d1,...] or [C]   labels [N,d1,...] or [] I64, or probabilities of logits' shape   weight [C] or NULL
 * Labels are checked here, once for every kernel family: kernels trust them. Kernels compute means over labels [N] without weights.
 *
 * With p the softmax over the classes c, s the label smoothing, q the target ([c = t] for label t), w the weights:
 *   q' = (1 - s) q + s / C   loss = -sum w q' log p   gradients: p sum(w q') - w q', and for probabilities -(1 - s) w log p
 * A mean over labels is divided by the sum of the weights of those that are not ignored (NaN if all are ignored, as in PyTorch; the
 * gradient of ignored rows is 0). */
#include "base/real_f32.h"
#include "tensor/each.h"
#include "tensor/op/class_loss.h"
#include "tensor/op/softmax.h"
#include "tensor/op/vocabulary_logits.h"

#define COLUMNS ((int64_t)256)  /* positions that are computed together if S > 1 */
#define ROWS    ((int64_t)4096) /* elements of rows that are computed together if S = 1 */

static tutti_status cross_entropy_shape(const tutti_op_args *p, tutti_shape *loss,
                                        tutti_dtype *dtype)
{
    const tutti__class_loss *a = p->attributes;
    const double smoothing = (double)a->how.label_smoothing;

    (void)dtype;
    TUTTI_TRY(tutti__class_loss_shape(p, "logits", loss));
    if (!(smoothing >= 0 && smoothing <= 1))
        return tutti__fail(TUTTI_ERR_ARG, "label_smoothing is %g, expected 0 to 1", smoothing);
    if (p->sources[1]->dtype == TUTTI_I64)
        return tutti__class_loss_labels(p, "logits");
    TUTTI_TRY(tutti_op_check_source(p, 1, "labels", NULL, TUTTI_F32));
    if (!tutti_shape_equal(p->sources[0]->shape, p->sources[1]->shape))
        return tutti__fail(TUTTI_ERR_ARG,
                           "logits is %s but labels, which are F32 and so probabilities, %s; "
                           "expected the same shape (class indices are I64)",
                           tutti__shape_text(p->sources[0]->shape),
                           tutti__shape_text(p->sources[1]->shape));
    return TUTTI_OK;
}

/* log p, a loss for each position unless they are the result, and on devices the divisor of their sum. */
static int64_t keeps(const tutti_op_args *p)
{
    const tutti__classes k = tutti__classes_of(p);

    return k.N * k.C * k.S + k.N * k.S + 1;
}

/* ---- log p --------------------------------------------------------------------------------------- */

TUTTI__CLONES static void exps(float *restrict y, const float *restrict x, int64_t n, float minus)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = tutti__exp_f32(x[i] - minus);
}

TUTTI__CLONES static void differences(float *restrict y, const float *restrict x, int64_t n,
                                      double minus)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)((double)x[i] - minus);
}

static void log_softmax_of_row(float *y, const float *x, int64_t n)
{
    const float largest = tutti__largest_of(x, n);

    exps(y, x, n, largest);
    differences(y, x, n, (double)largest + tutti__log(tutti__sum(y, n)));
}

/* Of n <= COLUMNS neighbouring positions, whose classes are S apart. */
TUTTI__CLONES static void log_softmax_of_columns(float *restrict y, const float *restrict x,
                                                 int64_t n, int64_t C, int64_t S)
{
    float largest[COLUMNS];
    double sum[COLUMNS];

    for (int64_t s = 0; s < n; s++) {
        largest[s] = x[s];
        sum[s] = 0;
    }
    for (int64_t c = 1; c < C; c++)
        for (int64_t s = 0; s < n; s++)
            largest[s] = x[c * S + s] > largest[s] ? x[c * S + s] : largest[s];
    for (int64_t c = 0; c < C; c++)
        for (int64_t s = 0; s < n; s++)
            sum[s] += (double)tutti__exp_f32(x[c * S + s] - largest[s]);
    for (int64_t s = 0; s < n; s++)
        sum[s] = (double)largest[s] + tutti__log(sum[s]);
    for (int64_t c = 0; c < C; c++)
        for (int64_t s = 0; s < n; s++)
            y[c * S + s] = (float)((double)x[c * S + s] - sum[s]);
}

/* ---- Blocks of positions ------------------------------------------------------------------------- */

typedef struct blocks {
    const tutti_op_args *p;
    tutti__classes k;
    int64_t block; /* positions in each, of one n if S > 1 */
    float *loss;   /* of each position, in forward */
    double weights, divisor;
} blocks;

static void blocks_init(blocks *b, const tutti_op_args *p)
{
    const float *weight = p->src[2];

    b->p = p;
    b->k = tutti__classes_of(p);
    b->block = b->k.S > 1 ? COLUMNS : (ROWS + b->k.C - 1) / b->k.C;
    b->weights = (double)b->k.C;
    b->divisor = tutti__class_loss_divisor(p);
    if (weight)
        b->weights = tutti__sum(weight, b->k.C);
}

/* Calls job for each block. */
static void run_blocks(blocks *b, void (*job)(void *arg, int64_t i))
{
    const int64_t S = b->k.S, n = b->k.N;

    tutti_op_parallel(b->p, job, b,
                      S > 1 ? n * ((S + b->block - 1) / b->block) : (n + b->block - 1) / b->block);
}

/* The positions from *from_p on of block i; returns how many. */
static int64_t block_at(const blocks *b, int64_t i, int64_t *from_p)
{
    const int64_t span = b->k.S > 1 ? b->k.S : b->k.N, each = (span + b->block - 1) / b->block;
    const int64_t at = i % each * b->block;

    *from_p = b->k.S > 1 ? i / each * b->k.S + at : at;
    return span - at < b->block ? span - at : b->block;
}

/* w q' of class c, and of position i whose element is at. */
static double wanted(const blocks *b, int64_t i, int64_t c, int64_t at)
{
    const tutti__class_loss *a = b->p->attributes;
    const float *weight = b->p->src[2];
    const double smoothing = (double)a->how.label_smoothing, w = weight ? (double)weight[c] : 1;
    const bool labels = b->p->sources[1]->dtype == TUTTI_I64;
    const double q = labels ? ((const int64_t *)b->p->src[1])[i] == c
                            : (double)((const float *)b->p->src[1])[at + c * b->k.S];

    return w * ((1 - smoothing) * q + smoothing / (double)b->k.C);
}

static bool is_ignored(const blocks *b, int64_t i)
{
    const tutti__class_loss *a = b->p->attributes;

    return b->p->sources[1]->dtype == TUTTI_I64 &&
           ((const int64_t *)b->p->src[1])[i] == a->how.ignore_index;
}

/* Whether all of q' is at the label. */
static bool is_one_hot(const blocks *b)
{
    const tutti__class_loss *a = b->p->attributes;

    return b->p->sources[1]->dtype == TUTTI_I64 && a->how.label_smoothing == 0;
}

/* ---- Forward --------------------------------------------------------------------------------------- */

static float loss_of(const blocks *b, int64_t i)
{
    const int64_t at = tutti__class_at(b->k, i), S = b->k.S;
    const float *log_p = b->p->kept + at;
    double sum = 0;

    if (is_ignored(b, i))
        return 0;
    if (is_one_hot(b)) {
        const int64_t t = ((const int64_t *)b->p->src[1])[i];

        return (float)(-wanted(b, i, t, at) * (double)log_p[t * S]);
    }
    for (int64_t c = 0; c < b->k.C; c++)
        sum -= wanted(b, i, c, at) * (double)log_p[c * S];
    return (float)sum;
}

static void forward_job(void *arg, int64_t block)
{
    const blocks *b = arg;
    const int64_t C = b->k.C, S = b->k.S;
    int64_t from, n = block_at(b, block, &from), at = tutti__class_at(b->k, from);
    const float *x = (const float *)b->p->src[0] + at;

    if (S > 1)
        log_softmax_of_columns(b->p->kept + at, x, n, C, S);
    else
        for (int64_t i = 0; i < n; i++)
            log_softmax_of_row(b->p->kept + at + i * C, x + i * C, C);
    for (int64_t i = from; i < from + n; i++)
        b->loss[i] = loss_of(b, i);
}

static void plain_forward(const tutti_op_args *p)
{
    const tutti__class_loss *a = p->attributes;
    blocks b;

    blocks_init(&b, p);
    b.loss = a->reduction == TUTTI_REDUCTION_NONE ? p->y : p->kept + b.k.N * b.k.C * b.k.S;
    run_blocks(&b, forward_job);
    if (a->reduction != TUTTI_REDUCTION_NONE)
        p->y[0] = (float)(tutti__sum(b.loss, b.k.N * b.k.S) / b.divisor);
}

/* ---- Backward -------------------------------------------------------------------------------------- */

TUTTI__CLONES static void scaled_exps(float *restrict y, const float *restrict x, int64_t n,
                                      float scale)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = tutti__exp_f32(x[i]) * scale;
}

TUTTI__CLONES static void scaled_exps_of_columns(float *restrict y, const float *restrict x,
                                                 int64_t n, int64_t C, int64_t S,
                                                 const float *restrict scale)
{
    for (int64_t c = 0; c < C; c++)
        for (int64_t s = 0; s < n; s++)
            y[c * S + s] = tutti__exp_f32(x[c * S + s]) * scale[s];
}

/* The gradient of position i's loss. */
static double dloss_of(const blocks *b, int64_t i)
{
    const tutti__class_loss *a = b->p->attributes;

    if (is_ignored(b, i) || b->divisor == 0)
        return 0;
    return (double)b->p->dy[a->reduction == TUTTI_REDUCTION_NONE ? i : 0] / b->divisor;
}

/* sum w q' */
static double all_wanted(const blocks *b, int64_t i)
{
    const tutti__class_loss *a = b->p->attributes;
    const int64_t at = tutti__class_at(b->k, i);
    double sum = 0;

    if (b->p->sources[1]->dtype == TUTTI_I64) {
        const int64_t t = is_ignored(b, i) ? 0 : ((const int64_t *)b->p->src[1])[i];
        const double smoothing = (double)a->how.label_smoothing;
        const float *weight = b->p->src[2];

        return (1 - smoothing) * (weight ? (double)weight[t] : 1) +
               smoothing / (double)b->k.C * b->weights;
    }
    for (int64_t c = 0; c < b->k.C; c++)
        sum += wanted(b, i, c, at);
    return sum;
}

/* dx -= dloss w q' */
static void subtract_wanted(const blocks *b, int64_t i)
{
    const int64_t at = tutti__class_at(b->k, i), S = b->k.S;
    const double dloss = dloss_of(b, i);
    float *dx = b->p->dsrc[0] + at;

    if (is_ignored(b, i))
        return;
    if (is_one_hot(b)) {
        const int64_t t = ((const int64_t *)b->p->src[1])[i];

        dx[t * S] = (float)((double)dx[t * S] - dloss * wanted(b, i, t, at));
        return;
    }
    for (int64_t c = 0; c < b->k.C; c++)
        dx[c * S] = (float)((double)dx[c * S] - dloss * wanted(b, i, c, at));
}

static void probability_gradient(const blocks *b, int64_t i)
{
    const tutti__class_loss *a = b->p->attributes;
    const int64_t at = tutti__class_at(b->k, i), S = b->k.S;
    const double scale = -dloss_of(b, i) * (1 - (double)a->how.label_smoothing);
    const float *weight = b->p->src[2];

    for (int64_t c = 0; c < b->k.C; c++)
        b->p->dsrc[1][at + c * S] =
            (float)(scale * (weight ? (double)weight[c] : 1) * (double)b->p->kept[at + c * S]);
}

static void backward_job(void *arg, int64_t block)
{
    const blocks *b = arg;
    const int64_t C = b->k.C, S = b->k.S;
    int64_t from, n = block_at(b, block, &from), at = tutti__class_at(b->k, from);
    float *dx = b->p->dsrc[0] ? b->p->dsrc[0] + at : NULL, scale[COLUMNS];

    for (int64_t i = 0; dx && i < n; i++) {
        const float each = (float)(dloss_of(b, from + i) * all_wanted(b, from + i));

        if (S > 1)
            scale[i] = each;
        else
            scaled_exps(dx + i * C, b->p->kept + at + i * C, C, each);
    }
    if (dx && S > 1)
        scaled_exps_of_columns(dx, b->p->kept + at, n, C, S, scale);
    for (int64_t i = from; i < from + n; i++) {
        if (dx)
            subtract_wanted(b, i);
        if (b->p->dsrc[1])
            probability_gradient(b, i);
    }
}

static void plain_backward(const tutti_op_args *p)
{
    blocks b;

    blocks_init(&b, p);
    run_blocks(&b, backward_job);
}

/* ---- On a device, where kernels do not compute it ----------------------------------------------------- */

static tutti__each_job positions_of(const tutti_op_args *p)
{
    const tutti__class_loss *a = p->attributes;
    const tutti__classes k = tutti__classes_of(p);
    const bool labels = p->sources[1]->dtype == TUTTI_I64;
    tutti__each_job job = {
        p->dsrc ? TUTTI__JOB_entropy_gradient : TUTTI__JOB_entropy,
        {.labels = {.C = k.C,
                    .S = k.S,
                    .ignored = a->how.ignore_index,
                    .smoothing = a->how.label_smoothing,
                    .each = a->reduction == TUTTI_REDUCTION_NONE,
                    .log_p = p->kept,
                    .loss = p->kept + k.N * k.C * k.S,
                    .dy = p->dy,
                    .dx = p->dsrc ? p->dsrc[0] : NULL,
                    .dtarget = p->dsrc ? p->dsrc[1] : NULL,
                    .divisor = a->reduction == TUTTI_REDUCTION_MEAN ? (double)(k.N * k.S) : 1}}};

    job.of.labels.x = p->src[0];
    job.of.labels.weight = p->src[2];
    if (labels)
        job.of.labels.label = p->src[1];
    else
        job.of.labels.target = p->src[1];
    if (a->reduction == TUTTI_REDUCTION_MEAN)
        job.of.labels.total = job.of.labels.loss + k.N * k.S;
    if (!p->dsrc && job.of.labels.each)
        job.of.labels.loss = p->y;
    return job;
}

static tutti_status device_forward(const tutti_op_args *p)
{
    const tutti__classes k = tutti__classes_of(p);
    const int64_t n = k.N * k.S;
    tutti__each_job job = positions_of(p);
    tutti__job_labels *c = &job.of.labels;

    if (c->total) {
        c->weight_of = tutti__operation_memory(p->cx, (size_t)n * sizeof *c->weight_of + 1);
        if (!c->weight_of)
            return TUTTI_ERR_MEMORY;
    }
    TUTTI_TRY(tutti__each_on_device(p, &job, n));
    if (c->total)
        TUTTI_TRY(tutti__class_loss_sum(p, c->loss + n, c->weight_of, n, NULL));
    return c->each ? TUTTI_OK : tutti__class_loss_sum(p, p->y, c->loss, n, c->total);
}

static tutti_status device_backward(const tutti_op_args *p)
{
    const tutti__classes k = tutti__classes_of(p);
    const tutti__each_job job = positions_of(p);

    return tutti__each_on_device(p, &job, k.N * k.S);
}

/* ---- The operation --------------------------------------------------------------------------------- */

/* Whether it is what kernels compute. */
static bool is_basic(const tutti__node *n)
{
    const tutti__class_loss *a = n->attributes;

    return n->src[0]->shape.n == 2 && n->src[1]->dtype == TUTTI_I64 && !n->src[2] &&
           a->reduction == TUTTI_REDUCTION_MEAN;
}

static tutti_status cross_entropy_forward(tutti__node *n)
{
    const tutti__kernels *k = n->dst->cx->kernels;

    if (!k->cross_entropy_forward || !is_basic(n))
        return tutti__plain_forward(n);
    return k->cross_entropy_forward(n->dst, n->src[0], n->src[1], n->attributes, &n->saved[0]);
}

static tutti_status cross_entropy_backward(tutti__node *n)
{
    const tutti__kernels *k = n->dst->cx->kernels;
    tutti_tensor *dx;

    if (!k->cross_entropy_backward || !is_basic(n))
        return tutti__plain_backward(n);
    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    return k->cross_entropy_backward(dx, n->dst->grad, n->src[0], n->src[1], n->attributes,
                                     n->saved[0]);
}

/* Logits that need not exist for it; NULL: they are others, or the loss is. */
static tutti_tensor *without_logits(const tutti_tensor *logits, tutti_tensor *labels,
                                    const tutti_cross_entropy_opts *o)
{
    tutti__logits_sources of;

    if (!tutti__vocabulary_logits_of(logits, &of) || logits->shape.n != 2 || !labels ||
        labels->dtype != TUTTI_I64 || o->weight || o->reduction == TUTTI_REDUCTION_NONE)
        return NULL;
    return tutti__logits_cross_entropy(&of, labels, o);
}

tutti_tensor *tutti_cross_entropy_with(tutti_tensor *logits, tutti_tensor *labels,
                                       const tutti_cross_entropy_opts *opts)
{
    static const tutti__op op = {.plain = {.name = "cross_entropy",
                                           .shape = cross_entropy_shape,
                                           .forward = plain_forward,
                                           .backward = plain_backward,
                                           .keeps = keeps,
                                           .backward_reads = 7,
                                           .activations = 3,
                                           .autocast = TUTTI_OP_F32},
                                 .forward = cross_entropy_forward,
                                 .backward = cross_entropy_backward,
                                 .device_forward = device_forward,
                                 .device_backward = device_backward};
    const tutti_cross_entropy_opts o = opts ? *opts : (tutti_cross_entropy_opts){0};
    const tutti__class_loss a = {{(float)tutti__or((double)o.label_smoothing, 0),
                                  o.has_ignore_index ? o.ignore_index : TUTTI__IGNORED_BY_DEFAULT},
                                 o.reduction};
    tutti_tensor *loss;

    if (logits && TUTTI__CHECK_RESERVED(tutti_cross_entropy_opts, opts) != TUTTI_OK)
        return tutti__poisoned(logits->cx, TUTTI_ERR_ARG);
    loss = without_logits(logits, labels, &o);
    if (loss)
        return loss;
    return tutti__op_run(&op, (tutti_tensor *[]){logits, labels, o.weight}, 3, &a, sizeof a);
}

tutti_tensor *tutti_cross_entropy(tutti_tensor *logits, tutti_tensor *labels)
{
    return tutti_cross_entropy_with(logits, labels, NULL);
}
