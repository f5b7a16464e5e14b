/* powersgd.c -- sends gradients as the product of two thin matrices.   SPDX-License-Identifier: MIT
 *
 *     M [n, m] of each rank, plus its last error              Q [m, r]: last step's, or random
 *     P = M Q          mean over ranks, orthogonalised       one power iteration towards the mean's largest
 *     Q = M^T P        mean over ranks                       singular vectors
 *     the mean is approximated by P Q^T;  error: M - P Q^T
 *
 * P and Q are stored transposed, vector by vector. The bucket's vectors are sent uncompressed, together with P. After the two
 * collectives every rank has the same bits. */
#include "reducer/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 16 };

typedef struct matrix {
    size_t offset, n, m, r;   /* offset: in the bucket */
    size_t p_at, q_at, error; /* in the state's memory */
} matrix;

/* Of a bucket; made in its first compressed step. */
typedef struct state {
    size_t n_matrices, n_plain, n_head, n_q;
    matrix *matrices;
    float *head; /* what is not compressed, back to back, then all P */
    float *q;
    float *error; /* NULL: no feedback */
    float *wide;  /* F32 on the host, for 16-bit buckets, and for a device */
    bool warm;
} state;

typedef struct powersgd {
    tutti_powersgd_opts opts;
    int64_t step;
    state *states; /* by bucket */
    size_t n_states;
    /* of an earlier process, for buckets that have no state yet; NULL: nothing */
    uint64_t *restored;
    size_t restored_bytes;
} powersgd;

/* ---- Arithmetic ------------------------------------------------------------------------------------------------------ */

/* In lanes and in a fixed order: vectorises, and has the same bits on every machine. */
TUTTI__CLONES static float dot(const float *restrict a, const float *restrict b, size_t n)
{
    float lanes[LANES] = {0}, sum = 0;
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            lanes[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        sum += a[i] * b[i];
    for (size_t k = 0; k < LANES; k++)
        sum += lanes[k];
    return sum;
}

TUTTI__CLONES static void add_times(float *restrict y, const float *restrict x, float a, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

/* Gram-Schmidt over r vectors of n numbers; a vector that vanishes becomes zero. */
static void orthogonalize(float *v, size_t r, size_t n, double epsilon)
{
    for (size_t k = 0; k < r; k++) {
        float *x = v + k * n;
        double norm = sqrt((double)dot(x, x, n)) + epsilon;
        float scale = norm > 0 ? (float)(1 / norm) : 0;

        for (size_t i = 0; i < n; i++)
            x[i] = isfinite(scale) ? x[i] * scale : 0;
        for (size_t j = k + 1; j < r; j++)
            add_times(v + j * n, x, -dot(x, v + j * n, n), n);
    }
}

/* Normal numbers, a function of (seed; step, bucket, place): the same on every rank. */
static void fill_normal(float *x, size_t n, const powersgd *p, size_t bucket)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t out[4];
        float u, angle;

        tutti__philox(p->opts.seed,
                      (tutti__philox_counter){
                          {(uint32_t)p->step, (uint32_t)bucket, (uint32_t)i, (uint32_t)(i >> 32)}},
                      out);
        u = 1 - tutti__unit_float(out[0]); /* (0, 1] */
        angle = 6.2831853f * tutti__unit_float(out[1]);
        x[i] = sqrtf(-2 * logf(u)) * cosf(angle);
    }
}

/* ---- A bucket's state ------------------------------------------------------------------------------------------------ */

static bool is_worth_it(const powersgd *p, size_t n, size_t m, size_t r)
{
    return (double)(n + m) * (double)r * p->opts.min_compression_rate < (double)n * (double)m;
}

static bool describe(const powersgd *p, const tutti_bucket_gradient *g, matrix *x)
{
    size_t r = (size_t)p->opts.rank;

    if (g->rows == 0 || g->count == 0)
        return false;
    *x = (matrix){.offset = g->offset, .n = g->rows, .m = g->count / g->rows};
    x->r = r < x->n ? r : x->n;
    x->r = x->r < x->m ? x->r : x->m;
    return is_worth_it(p, x->n, x->m, x->r);
}

static bool needs_wide(const tutti_bucket *bucket)
{
    return bucket->buf.dtype != TUTTI_F32 || bucket->buf.stream;
}

static tutti_status state_open(const powersgd *p, const tutti_bucket *bucket, state *s)
{
    size_t n_p = 0, n_error = 0;

    s->matrices = tutti__alloc((bucket->n + 1) * sizeof *s->matrices);
    if (!s->matrices)
        return TUTTI_ERR_MEMORY;
    for (size_t k = 0; k < bucket->n; k++) {
        matrix *x = &s->matrices[s->n_matrices];

        if (!describe(p, &bucket->gradients[k], x)) {
            s->n_plain += bucket->gradients[k].count;
            continue;
        }
        x->p_at = n_p;
        x->q_at = s->n_q;
        x->error = n_error;
        n_p += x->n * x->r;
        s->n_q += x->m * x->r;
        n_error += x->n * x->m;
        s->n_matrices++;
    }
    for (size_t k = 0; k < s->n_matrices; k++)
        s->matrices[k].p_at += s->n_plain;
    s->n_head = s->n_plain + n_p;
    s->head = tutti__alloc((s->n_head + 1) * sizeof(float));
    s->q = tutti__alloc((s->n_q + 1) * sizeof(float));
    if (!p->opts.no_error_feedback)
        s->error = tutti__alloc((n_error + 1) * sizeof(float));
    if (needs_wide(bucket))
        s->wide = tutti__alloc((bucket->buf.count + 1) * sizeof(float));
    return s->head && s->q && (s->error || p->opts.no_error_feedback) &&
                   (s->wide || !needs_wide(bucket))
               ? TUTTI_OK
               : TUTTI_ERR_MEMORY;
}

static size_t errors_of(const state *s)
{
    size_t n = 0;

    for (size_t k = 0; k < s->n_matrices && s->error; k++)
        n += s->matrices[k].n * s->matrices[k].m;
    return n;
}

/* ---- State in checkpoints ----------------------------------------------------------------------------------------
 *     step, n, then for each bucket: numbers in q, numbers in error, warm | each bucket's q and error
 * in words of 8 bytes. A bucket's state is made in its first compressed step; restored state is kept until then. */
enum { HEAD_WORDS = 2, BUCKET_WORDS = 3 };

static size_t words(uint64_t n_floats)
{
    return ((size_t)n_floats + 1) / 2;
}

static const powersgd *powersgd_of(const tutti_comm_hook *hook);

size_t tutti__powersgd_bytes(const tutti_comm_hook *hook)
{
    const powersgd *p = powersgd_of(hook);
    size_t n = HEAD_WORDS;

    if (p && p->restored && p->n_states == 0)
        return p->restored_bytes;
    for (size_t k = 0; p && k < p->n_states; k++)
        n += BUCKET_WORDS + words(p->states[k].n_q) + words(errors_of(&p->states[k]));
    return p ? n * sizeof(uint64_t) : 0;
}

void tutti__powersgd_save(const tutti_comm_hook *hook, void *to)
{
    const powersgd *p = powersgd_of(hook);
    uint64_t *head = to, *at;

    if (p->restored && p->n_states == 0) { /* no compressed step since then */
        memcpy(to, p->restored, p->restored_bytes);
        return;
    }
    memset(to, 0, tutti__powersgd_bytes(hook));
    head[0] = (uint64_t)p->step;
    head[1] = p->n_states;
    at = head + HEAD_WORDS + BUCKET_WORDS * p->n_states;
    for (size_t k = 0; k < p->n_states; k++) {
        const state *s = &p->states[k];
        uint64_t *mine = head + HEAD_WORDS + BUCKET_WORDS * k;

        mine[0] = s->n_q;
        mine[1] = errors_of(s);
        mine[2] = s->warm;
        if (s->q)
            memcpy(at, s->q, s->n_q * sizeof(float));
        at += words(mine[0]);
        if (s->error)
            memcpy(at, s->error, mine[1] * sizeof(float));
        at += words(mine[1]);
    }
}

static tutti_status check_saved(const void *from, size_t bytes)
{
    const size_t n = bytes / sizeof(uint64_t);
    const uint64_t *head = from;
    size_t total = HEAD_WORDS;

    if (n < total || bytes % sizeof(uint64_t) || head[1] > (n - HEAD_WORDS) / BUCKET_WORDS)
        return tutti__fail(TUTTI_ERR_FORMAT, "the state of PowerSGD is damaged: %zu bytes", bytes);
    for (size_t k = 0; k < head[1]; k++) {
        const uint64_t *b = head + HEAD_WORDS + BUCKET_WORDS * k;

        if (b[0] > bytes || b[1] > bytes)
            return tutti__fail(TUTTI_ERR_FORMAT, "the state of PowerSGD is damaged: bucket %zu", k);
        total += BUCKET_WORDS + words(b[0]) + words(b[1]);
    }
    if (total != n)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "the state of PowerSGD is damaged: %zu bytes, expected %zu", bytes,
                           total * sizeof(uint64_t));
    return TUTTI_OK;
}

tutti_status tutti__powersgd_mean(void *mean, const void *from, size_t bytes, size_t n)
{
    uint64_t *head = mean, *at;
    const uint64_t *theirs = from;

    TUTTI_TRY(check_saved(mean, bytes));
    TUTTI_TRY(check_saved(from, bytes));
    at = head + HEAD_WORDS + BUCKET_WORDS * head[1];
    for (size_t k = 0; k < head[1]; k++) {
        const uint64_t *b = head + HEAD_WORDS + BUCKET_WORDS * k;
        const size_t other = HEAD_WORDS + BUCKET_WORDS * k;
        float *x = (float *)(at + words(b[0]));
        const float *y = (const float *)(theirs + (at - head) + words(b[0]));

        if (theirs[1] != head[1] || theirs[other] != b[0] || theirs[other + 1] != b[1])
            return tutti__fail(TUTTI_ERR_FORMAT, "the states of PowerSGD have other buckets");
        for (size_t i = 0; i < b[1]; i++)
            x[i] += (y[i] - x[i]) / (float)n;
        at += words(b[0]) + words(b[1]);
    }
    return TUTTI_OK;
}

tutti_status tutti__powersgd_restore(const tutti_comm_hook *hook, const void *from, size_t bytes)
{
    powersgd *p = (powersgd *)powersgd_of(hook);
    const uint64_t *head = from;

    TUTTI_TRY(check_saved(from, bytes));
    free(p->restored);
    p->restored = tutti__alloc(bytes);
    if (!p->restored)
        return TUTTI_ERR_MEMORY;
    memcpy(p->restored, from, bytes);
    p->restored_bytes = bytes;
    p->step = (int64_t)head[0];
    return TUTTI_OK;
}

static tutti_status take_restored(const powersgd *p, size_t bucket, state *s)
{
    const uint64_t *head = p->restored, *b, *at;

    if (!head || bucket >= head[1])
        return TUTTI_OK;
    at = head + HEAD_WORDS + BUCKET_WORDS * head[1];
    for (size_t k = 0; k < bucket; k++) {
        b = head + HEAD_WORDS + BUCKET_WORDS * k;
        at += words(b[0]) + words(b[1]);
    }
    b = head + HEAD_WORDS + BUCKET_WORDS * bucket;
    if (b[0] == 0 && b[1] == 0)
        return TUTTI_OK;
    if (b[0] != s->n_q || b[1] != errors_of(s))
        return tutti__fail(TUTTI_ERR_STATE,
                           "powersgd: bucket %zu has %zu and %zu numbers of state, and what was "
                           "restored %llu and %llu: resume with the same buckets (bucket_mb, "
                           "first_bucket_mb)",
                           bucket, s->n_q, errors_of(s), (unsigned long long)b[0],
                           (unsigned long long)b[1]);
    memcpy(s->q, at, s->n_q * sizeof(float));
    if (s->error)
        memcpy(s->error, at + words(b[0]), (size_t)b[1] * sizeof(float));
    s->warm = b[2] != 0;
    return TUTTI_OK;
}

static void state_free(const state *s)
{
    free(s->matrices);
    free(s->head);
    free(s->q);
    free(s->error);
    free(s->wide);
}

static tutti_status state_of(powersgd *p, const tutti_bucket *bucket, state **s_p)
{
    if (bucket->index >= p->n_states) {
        size_t n = bucket->index + 1;
        state *states = realloc(p->states, n * sizeof *states);

        if (!states)
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu buckets of PowerSGD", n);
        memset(states + p->n_states, 0, (n - p->n_states) * sizeof *states);
        p->states = states;
        p->n_states = n;
    }
    *s_p = &p->states[bucket->index];
    if ((*s_p)->matrices)
        return TUTTI_OK;
    TUTTI_TRY(state_open(p, bucket, *s_p));
    return take_restored(p, bucket->index, *s_p);
}

/* ---- A step ---------------------------------------------------------------------------------------------------------- */

/* The mean of x over ranks, sent in the bucket's dtype. */
static tutti_status mean(tutti_group *group, float *x, size_t n, tutti_dtype dtype)
{
    tutti_status status;

    if (n == 0)
        return TUTTI_OK;
    if (dtype != TUTTI_F32)
        (void)tutti__cpu_flat_ops.narrow(&tutti__cpu_stream, x, n, dtype);
    status = tutti_all_reduce(group, TUTTI_BUF(x, n, dtype), TUTTI_AVG, NULL);
    if (dtype != TUTTI_F32)
        (void)tutti__cpu_flat_ops.widen(&tutti__cpu_stream, x, n, dtype);
    return status;
}

/* Copies what is not a matrix between bucket and head. */
static void move_plain(const state *s, const tutti_bucket *bucket, float *values, bool out)
{
    float *at = s->head;

    for (size_t k = 0, next = 0; k < bucket->n; k++) {
        const tutti_bucket_gradient *g = &bucket->gradients[k];

        if (next < s->n_matrices && s->matrices[next].offset == g->offset && g->count > 0) {
            next++;
            continue;
        }
        memcpy(out ? values + g->offset : at, out ? at : values + g->offset,
               g->count * sizeof(float));
        at += g->count;
    }
}

static void add_what_was_lost(const state *s, float *values)
{
    for (size_t k = 0; k < s->n_matrices && s->error; k++) {
        const matrix *x = &s->matrices[k];

        add_times(values + x->offset, s->error + x->error, 1, x->n * x->m);
        memcpy(s->error + x->error, values + x->offset, x->n * x->m * sizeof(float));
    }
}

static void start_q(const powersgd *p, state *s, size_t bucket)
{
    if (!s->warm || p->opts.no_warm_start)
        fill_normal(s->q, s->n_q, p, bucket);
    s->warm = true;
    for (size_t k = 0; k < s->n_matrices; k++)
        orthogonalize(s->q + s->matrices[k].q_at, s->matrices[k].r, s->matrices[k].m,
                      p->opts.orthogonalization_epsilon);
}

/* P = M Q */
static void multiply(const state *s, const float *values)
{
    for (size_t k = 0; k < s->n_matrices; k++) {
        const matrix *x = &s->matrices[k];

        for (size_t i = 0; i < x->n; i++)
            for (size_t j = 0; j < x->r; j++)
                s->head[x->p_at + j * x->n + i] =
                    dot(values + x->offset + i * x->m, s->q + x->q_at + j * x->m, x->m);
    }
}

/* Q = M^T P */
static void multiply_back(const powersgd *p, const state *s, const float *values)
{
    memset(s->q, 0, s->n_q * sizeof(float));
    for (size_t k = 0; k < s->n_matrices; k++) {
        const matrix *x = &s->matrices[k];

        orthogonalize(s->head + x->p_at, x->r, x->n, p->opts.orthogonalization_epsilon);
        for (size_t i = 0; i < x->n; i++)
            for (size_t j = 0; j < x->r; j++)
                add_times(s->q + x->q_at + j * x->m, values + x->offset + i * x->m,
                          s->head[x->p_at + j * x->n + i], x->m);
    }
}

/* M = P Q^T, and this rank's error */
static void expand(const state *s, float *values)
{
    for (size_t k = 0; k < s->n_matrices; k++) {
        const matrix *x = &s->matrices[k];

        memset(values + x->offset, 0, x->n * x->m * sizeof(float));
        for (size_t i = 0; i < x->n; i++)
            for (size_t j = 0; j < x->r; j++)
                add_times(values + x->offset + i * x->m, s->q + x->q_at + j * x->m,
                          s->head[x->p_at + j * x->n + i], x->m);
        if (s->error)
            add_times(s->error + x->error, values + x->offset, -1, x->n * x->m);
    }
}

static bool is_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

/* An infinity (of a loss scaled too high) reaches every rank's P. It makes this step's gradients NaN, so that the scaler skips
 * the step, but is not kept for the next. */
static void give_up(state *s, float *values)
{
    for (size_t k = 0; k < s->n_matrices; k++) {
        const matrix *x = &s->matrices[k];

        for (size_t i = 0; i < x->n * x->m; i++)
            values[x->offset + i] = NAN;
        if (s->error)
            memset(s->error + x->error, 0, x->n * x->m * sizeof(float));
    }
    s->warm = false;
}

static tutti_status widen(float *wide, const tutti_buf *buf)
{
    TUTTI_TRY(tutti__read(tutti__stream_or_cpu(buf->stream), wide, buf->p,
                          buf->count * tutti_dtype_size(buf->dtype)));
    if (buf->dtype == TUTTI_F32)
        return TUTTI_OK;
    return tutti__cpu_flat_ops.widen(&tutti__cpu_stream, wide, buf->count, buf->dtype);
}

static tutti_status narrow(const tutti_buf *buf, float *wide)
{
    if (buf->dtype != TUTTI_F32)
        TUTTI_TRY(tutti__cpu_flat_ops.narrow(&tutti__cpu_stream, wide, buf->count, buf->dtype));
    return tutti__copy_in(tutti__stream_or_cpu(buf->stream), buf->p, wide,
                          buf->count * tutti_dtype_size(buf->dtype));
}

static tutti_status compress(powersgd *p, tutti_group *group, const tutti_bucket *bucket)
{
    tutti_dtype dtype = bucket->buf.dtype;
    float *values;
    state *s = NULL;

    TUTTI_TRY(state_of(p, bucket, &s));
    values = s->wide ? s->wide : bucket->buf.p;
    if (s->wide)
        TUTTI_TRY(widen(s->wide, &bucket->buf));
    add_what_was_lost(s, values);
    start_q(p, s, bucket->index);
    multiply(s, values);
    move_plain(s, bucket, values, false);
    TUTTI_TRY(mean(group, s->head, s->n_head, dtype));
    move_plain(s, bucket, values, true);
    if (is_finite(s->head + s->n_plain, s->n_head - s->n_plain)) {
        multiply_back(p, s, values);
        TUTTI_TRY(mean(group, s->q, s->n_q, dtype));
        expand(s, values);
    } else {
        give_up(s, values);
    }
    return s->wide ? narrow(&bucket->buf, s->wide) : TUTTI_OK;
}

static tutti_status run(void *self, tutti_group *group, const tutti_bucket *bucket)
{
    powersgd *p = self;
    int64_t step = p->step;

    if (step < p->opts.start_step || bucket->buf.dtype == TUTTI_F64)
        TUTTI_TRY(tutti_all_reduce(group, bucket->buf, TUTTI_AVG, NULL));
    else
        TUTTI_TRY(compress(p, group, bucket));
    p->step = step + bucket->is_last;
    return TUTTI_OK;
}

static void powersgd_free(void *self)
{
    powersgd *p = self;

    for (size_t k = 0; k < p->n_states; k++)
        state_free(&p->states[k]);
    free(p->states);
    free(p->restored);
    free(p);
}

static const powersgd *powersgd_of(const tutti_comm_hook *hook)
{
    return hook->run == run ? hook->self : NULL;
}

static tutti_status check(const tutti_powersgd_opts *o)
{
    if (o->rank < 1 || o->start_step < -1)
        return tutti__fail(TUTTI_ERR_ARG,
                           "powersgd: rank %d and start_step %lld, expected at least 1 (0: the "
                           "defaults, 1 and 1000; start_step -1: from the first step on)",
                           o->rank, (long long)o->start_step);
    if (o->start_step <= 1 && !(o->no_error_feedback && o->no_warm_start))
        return tutti__fail(TUTTI_ERR_ARG,
                           "powersgd: start_step %lld with error feedback or warm start, expected "
                           "at least 2: the first gradients are not like those that follow",
                           (long long)o->start_step);
    if (!(o->min_compression_rate >= 0) || !(o->orthogonalization_epsilon >= 0))
        return tutti__fail(TUTTI_ERR_ARG,
                           "powersgd: min_compression_rate %g and orthogonalization_epsilon %g, "
                           "expected at least 0",
                           o->min_compression_rate, o->orthogonalization_epsilon);
    return TUTTI_OK;
}

tutti_status tutti_comm_hook_powersgd(tutti_comm_hook *hook_p, const tutti_powersgd_opts *given)
{
    tutti_powersgd_opts opts = given ? *given : (tutti_powersgd_opts){0};
    powersgd *p;

    *hook_p = (tutti_comm_hook){0};
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_powersgd_opts, given));
    opts.rank = opts.rank ? opts.rank : 1;
    opts.start_step = opts.start_step ? opts.start_step : 1000;
    opts.min_compression_rate = tutti__or(opts.min_compression_rate, 2);
    opts.orthogonalization_epsilon = tutti__or(opts.orthogonalization_epsilon, 0);
    TUTTI_TRY(check(&opts));
    p = tutti__alloc(sizeof *p);
    if (!p)
        return TUTTI_ERR_MEMORY;
    p->opts = opts;
    *hook_p = (tutti_comm_hook){.name = "powersgd", .run = run, .free = powersgd_free, .self = p};
    return TUTTI_OK;
}
