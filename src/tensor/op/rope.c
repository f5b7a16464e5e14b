/* rope.c -- rotary positions (Su et al.: RoFormer, 2021).   SPDX-License-Identifier: MIT
 *   x [N,T,heads*D]: in each head the pair (a, b) = (x[i], x[i + D/2]) of row t becomes (a c - b s, b c + a s), where c and s are the
 *   cosine and sine of (position + t) f_i
 * Backward is the rotation back. Frequencies f_i and angles are rounded to float, as in Hugging Face's models: at far positions that is
 * more than the rounding of x. */
#include "base/base.h"
#include "base/real.h"
#include "tensor/each.h"

#include <math.h>

#define PAIRS 64                 /* rotated at once */
#define FAR   ((int64_t)1 << 19) /* positions, whose angles tutti__cos_near takes */

typedef struct attributes {
    int heads;
    tutti_rope_opts how;
} attributes;

static tutti_status shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", "[N,T,heads*D]", TUTTI_F32));
    *y = p->sources[0]->shape;
    if (a->how.position < 0 || a->how.position > FAR - y->d[1])
        return tutti__fail(TUTTI_ERR_ARG, "x is %s and position %lld, expected at most %lld rows",
                           tutti__shape_text(*y), (long long)a->how.position, (long long)FAR);
    if (a->heads < 1 || y->d[2] % (2 * (int64_t)a->heads) != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "x is %s: its %lld columns do not make %d heads of equal, even size",
                           tutti__shape_text(*y), (long long)y->d[2], a->heads);
    return TUTTI_OK;
}

/* The frequency of pair i of heads of this size. */
static float frequency(const tutti_rope_opts *how, int64_t i, int64_t size)
{
    const double exponent = (double)((float)(2 * i) / (float)size);
    const float plain = 1 / (float)tutti__exp(exponent * tutti__log(how->theta));
    const float factor = (float)how->factor, low = (float)how->low_freq_factor;
    const float high = (float)how->high_freq_factor;
    const float turns = (float)how->original_context / ((float)(2 * TUTTI__PI) / plain);
    const float share = (turns - low) / (high - low);

    if (how->scaling == TUTTI_ROPE_PLAIN)
        return plain;
    if (how->scaling == TUTTI_ROPE_LINEAR || turns < low)
        return plain / factor;
    return turns > high ? plain : (1 - share) * plain / factor + share * plain;
}

static int64_t keeps(const tutti_op_args *p)
{
    const attributes *a = p->attributes;

    return p->sources[0]->shape.d[2] / a->heads / 2;
}

typedef struct rotation {
    const tutti_op_args *p;
    const float *from;
    float *to;
    float sign; /* -1: back */
} rotation;

TUTTI__CLONES static void cosines(float *restrict cosine, float *restrict sine,
                                  const float *restrict frequencies, float position, float sign,
                                  int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        tutti__turn(position * frequencies[i], sign, &cosine[i], &sine[i]);
}

TUTTI__CLONES static void rotate(float *restrict to, const float *restrict from, int64_t half,
                                 const float *restrict cosine, const float *restrict sine,
                                 int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        tutti__rotate_pair(to + i, from + i, half, cosine[i], sine[i]);
}

/* Row t of all samples. */
static void rotate_rows(void *arg, int64_t t)
{
    const rotation *r = arg;
    const attributes *a = r->p->attributes;
    const tutti_shape x = r->p->sources[0]->shape;
    const int64_t size = x.d[2] / a->heads, half = size / 2;
    float cosine[PAIRS], sine[PAIRS];

    for (int64_t i = 0; i < half; i += PAIRS) {
        const int64_t n = half - i < PAIRS ? half - i : PAIRS;

        cosines(cosine, sine, r->p->kept + i, (float)(a->how.position + t), r->sign, n);
        for (int64_t h = 0; h < x.d[0] * a->heads; h++) {
            const int64_t at = (h / a->heads * x.d[1] + t) * x.d[2] + h % a->heads * size + i;

            rotate(r->to + at, r->from + at, half, cosine, sine, n);
        }
    }
}

static void run(const tutti_op_args *p, const float *from, float *to, float sign)
{
    rotation r = {p, from, to, sign};

    tutti_op_parallel(p, rotate_rows, &r, p->sources[0]->shape.d[1]);
}

static void forward(const tutti_op_args *p)
{
    const attributes *a = p->attributes;
    const int64_t half = keeps(p);

    for (int64_t i = 0; i < half; i++)
        p->kept[i] = frequency(&a->how, i, 2 * half);
    run(p, p->src[0], p->y, 1);
}

static void backward(const tutti_op_args *p)
{
    run(p, p->dy, p->dsrc[0], -1);
}

/* ---- On a device ------------------------------------------------------------------------------------------- */

static tutti_status rotate_on_device(const tutti_op_args *p, const float *from, float *to,
                                     float sign)
{
    const attributes *a = p->attributes;
    const tutti_shape x = p->sources[0]->shape;
    const tutti__each_job job = {TUTTI__JOB_rotate,
                                 {.rotations = {x.d[0], x.d[1], a->heads, keeps(p), a->how.position,
                                                sign, p->kept, from, to}}};

    return tutti__each_on_device(p, &job, x.d[1] * keeps(p));
}

static tutti_status device_forward(const tutti_op_args *p)
{
    const attributes *a = p->attributes;
    const int64_t half = keeps(p);
    float *frequencies = tutti__step_alloc(p->cx, (size_t)half * sizeof *frequencies);

    if (!frequencies)
        return TUTTI_ERR_MEMORY;
    for (int64_t i = 0; i < half; i++)
        frequencies[i] = frequency(&a->how, i, 2 * half);
    TUTTI_TRY(
        tutti__copy_in(p->cx->stream, p->kept, frequencies, (size_t)half * sizeof *frequencies));
    return rotate_on_device(p, p->src[0], p->y, 1);
}

static tutti_status device_backward(const tutti_op_args *p)
{
    return rotate_on_device(p, p->dy, p->dsrc[0], -1);
}

tutti_tensor *tutti_rope(tutti_tensor *x, int heads, const tutti_rope_opts *opts)
{
    static const tutti__op op = {.plain = {.name = "rope",
                                           .shape = shape,
                                           .forward = forward,
                                           .backward = backward,
                                           .keeps = keeps,
                                           .activations = 1},
                                 .device_forward = device_forward,
                                 .device_backward = device_backward};
    attributes a = {.heads = heads, .how = opts ? *opts : (tutti_rope_opts){0}};
    tutti_rope_opts *o = &a.how;
    bool valid;

    o->theta = tutti__or(o->theta, 10000);
    o->factor = tutti__or(o->factor, 8);
    o->low_freq_factor = tutti__or(o->low_freq_factor, 1);
    o->high_freq_factor = tutti__or(o->high_freq_factor, 4);
    o->original_context = o->original_context ? o->original_context : 8192;
    valid = o->theta > 0 && o->factor > 0 && o->scaling <= TUTTI_ROPE_LLAMA3 &&
            o->high_freq_factor > o->low_freq_factor && o->original_context > 0;
    if (x && TUTTI__CHECK_RESERVED(tutti_rope_opts, opts) != TUTTI_OK)
        return tutti__poisoned(x->cx, TUTTI_ERR_ARG);
    if (x && !valid)
        return tutti__poisoned(
            x->cx, tutti__fail(TUTTI_ERR_ARG,
                               "rope: theta is %g, factor %g, scaling %d, "
                               "frequency factors %g and %g, original_context %lld; expected theta "
                               "and factor above 0, the first frequency factor less than the "
                               "second",
                               o->theta, o->factor, (int)o->scaling, o->low_freq_factor,
                               o->high_freq_factor, (long long)o->original_context));
    return tutti__op_run(&op, &x, 1, &a, sizeof a);
}
