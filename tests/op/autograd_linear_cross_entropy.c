/* autograd_linear_cross_entropy.c -- in chunks or not, and of lazy logits: the loss and the gradients are those of the linear operation
 * and cross entropy.   SPDX-License-Identifier: MIT    timeout: 120   devices: cuda */
#include "harness/device.h"
#include "op/parameter.h"
#include "tensor/op/vocabulary_logits.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <tutti/autograd.h>

enum { ROWS = 37, WIDTH = 24, CLASSES = 131 };

typedef struct stand {
    tutti_ctx *cx;
    test_parameter w, b;
    float x[ROWS * WIDTH];
    int64_t target[ROWS];
    tutti_dtype autocast;
} stand;

typedef struct made {
    float loss, dx[ROWS * WIDTH], dw[CLASSES * WIDTH], db[CLASSES];
} made;

static float noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(*state >> 40) / 8388608.0 - 1.0);
}

static void stand_new(stand *s, tutti_kernels kernels, int threads)
{
    static float values[CLASSES * WIDTH];
    const tutti_device device = test_device();
    const tutti_ctx_opts opts = {
        .kernels = device.kind == TUTTI_CUDA ? TUTTI_KERNELS_AUTO : kernels, .threads = threads};
    uint64_t state = 3;

    *s = (stand){.autocast = TUTTI_F32};
    if (tutti_ctx_new(&s->cx, device, &opts) != TUTTI_OK)
        skip(); /* a build without oneDNN */
    for (int i = 0; i < CLASSES * WIDTH; i++)
        values[i] = noise(&state);
    test_parameter_init(&s->w, s->cx, "w", TUTTI_SHAPE(CLASSES, WIDTH), values);
    for (int i = 0; i < CLASSES; i++)
        values[i] = noise(&state);
    test_parameter_init(&s->b, s->cx, "b", TUTTI_SHAPE(CLASSES), values);
    for (int i = 0; i < ROWS * WIDTH; i++)
        s->x[i] = noise(&state);
    for (int i = 0; i < ROWS; i++)
        s->target[i] = i * 37 % CLASSES;
}

static void stand_free(stand *s)
{
    test_parameter_free(&s->w);
    test_parameter_free(&s->b);
    tutti_ctx_free(s->cx);
}

/* What a step may compute. */
typedef enum how {
    IN_TWO, /* linear, and cross entropy of its logits */
    IN_ONE,
    OF_LAZY,       /* cross entropy of lazy logits in another shape */
    OF_STORED_LAZY /* which were read before */
} how;

typedef struct options {
    how how;
    int64_t chunk_rows;
    float smoothing, factor; /* by which the loss is multiplied; 0: 1 */
    tutti_reduction reduction;
    bool twice;   /* the step, without zero_grad: gradients are added */
    bool ignored; /* every third row */
} options;

static tutti_tensor *loss_of(stand *s, const options *o, tutti_tensor *x, tutti_tensor *target)
{
    const tutti_cross_entropy_opts entropy = {.label_smoothing = o->smoothing,
                                              .reduction = o->reduction};
    tutti_tensor *y;

    if (o->how == IN_ONE)
        return tutti_linear_cross_entropy(
            x, s->w.t, s->b.t, target,
            &(tutti_linear_cross_entropy_opts){.label_smoothing = o->smoothing,
                                               .reduction = o->reduction,
                                               .chunk_rows = o->chunk_rows});
    if (o->how == IN_TWO)
        return tutti_cross_entropy_with(tutti_functional_linear(x, s->w.t, s->b.t), target,
                                        &entropy);
    y = tutti__lazy_linear(tutti_reshape(x, TUTTI_SHAPE(1, ROWS, WIDTH)), s->w.t, s->b.t, NULL);
    if (o->how == OF_STORED_LAZY) {
        static float logits[ROWS * CLASSES];

        assert_int_equal(tutti_tensor_read(y, logits), TUTTI_OK);
    } else {
        assert_true(y->lazy && !y->data);
    }
    y = tutti_view(y, TUTTI_SHAPE(-1, CLASSES));
    assert_int_equal(y->lazy && !y->data, o->how == OF_LAZY);
    return tutti_cross_entropy_with(y, target, &entropy);
}

static void step(stand *s, const options *o, made *out)
{
    const tutti_array x = {s->x, TUTTI_SHAPE(ROWS, WIDTH), TUTTI_F32};
    const tutti_array y = {s->target, TUTTI_SHAPE(ROWS), TUTTI_I64};

    s->w.round++;
    s->b.round++;
    for (int i = 0; i <= o->twice; i++) {
        tutti_tensor *leaf, *loss;

        tutti_step_begin(s->cx, &(tutti_step_opts){.autocast = s->autocast});
        leaf = tutti_input_with_grad(s->cx, x);
        loss = loss_of(s, o, leaf, tutti_input(s->cx, y));
        if (o->factor != 0)
            loss = tutti_scale(loss, o->factor);
        if (tutti_backward(loss) != TUTTI_OK)
            fail_msg("%s", tutti_last_error());
        out->loss = tutti_item(loss);
        assert_int_equal(tutti_tensor_grad_read(leaf, out->dx), TUTTI_OK);
        assert_int_equal(tutti_tensor_grad_read(s->w.t, out->dw), TUTTI_OK);
        assert_int_equal(tutti_tensor_grad_read(s->b.t, out->db), TUTTI_OK);
        tutti_step_end(s->cx);
    }
}

static void compare(const char *what, const float *a, const float *b, int n, double tolerance)
{
    double largest = 0, apart = 0;

    for (int i = 0; i < n; i++) {
        largest = fmax(largest, fabs((double)b[i]));
        apart = fmax(apart, fabs((double)a[i] - (double)b[i]));
    }
    if (!(apart <= tolerance * largest))
        fail_msg("%s: %g apart, the largest is %g", what, apart, largest);
}

static void agree(const made *a, const made *b, double tolerance)
{
    compare("loss", &a->loss, &b->loss, 1, tolerance);
    compare("dx", a->dx, b->dx, ROWS * WIDTH, tolerance);
    compare("dw", a->dw, b->dw, CLASSES * WIDTH, tolerance);
    compare("db", a->db, b->db, CLASSES, tolerance);
}

static const options variants[] = {
    {.smoothing = 0},
    {.smoothing = 0.1f, .ignored = true},
    {.reduction = TUTTI_REDUCTION_SUM, .smoothing = 1, .factor = 0.5f},
    {.twice = true, .ignored = true, .factor = -2},
};

static void it_is_linear_and_cross_entropy(void **state)
{
    static const int64_t chunks[] = {0, ROWS - 1, 8, 1, INT64_MAX};
    static made plain, result;

    (void)state;
    for (int kernels = TUTTI_KERNELS_REFERENCE; kernels <= TUTTI_KERNELS_ONEDNN; kernels++)
        for (size_t v = 0; v < TUTTI__COUNT_OF(variants); v++) {
            options o = variants[v];
            stand s;

            stand_new(&s, (tutti_kernels)kernels, 2);
            for (int i = 0; i < ROWS && o.ignored; i += 3)
                s.target[i] = -100;
            o.how = IN_TWO;
            step(&s, &o, &plain);
            o.how = IN_ONE;
            for (size_t c = 0; c < TUTTI__COUNT_OF(chunks); c++) {
                o.chunk_rows = chunks[c];
                step(&s, &o, &result);
                agree(&result, &plain, 2e-6);
            }
            stand_free(&s);
        }
}

static void in_16_bit_it_is_as_near_as_in_two(void **state)
{
    static made plain, result;
    options o = {.smoothing = 0.1f};
    stand s;

    (void)state;
    stand_new(&s, TUTTI_KERNELS_REFERENCE, 2);
    o.how = IN_TWO;
    step(&s, &o, &plain);
    s.autocast = TUTTI_BF16;
    for (o.how = IN_TWO; o.how <= OF_LAZY; o.how++)
        for (o.chunk_rows = 0; o.chunk_rows <= 8; o.chunk_rows += 8) {
            step(&s, &o, &result);
            agree(&result, &plain, 2e-2);
        }
    stand_free(&s);
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    static made one, more;

    (void)state;
    for (int64_t chunk = 0; chunk <= 8; chunk += 8) {
        const options o = {.how = IN_ONE, .chunk_rows = chunk, .smoothing = 0.1f, .factor = 3};

        for (int threads = 1; threads <= 7; threads += 2) {
            stand s;

            stand_new(&s, TUTTI_KERNELS_AUTO, threads);
            step(&s, &o, threads == 1 ? &one : &more);
            stand_free(&s);
            if (threads > 1)
                assert_memory_equal(&one, &more, sizeof one);
        }
    }
}

static void lazy_logits_are_not_stored_for_it(void **state)
{
    static made direct, lazy, stored, plain;
    stand s;

    (void)state;
    stand_new(&s, TUTTI_KERNELS_AUTO, 2);
    step(&s, &(options){.how = IN_ONE, .smoothing = 0.1f}, &direct);
    step(&s, &(options){.how = OF_LAZY, .smoothing = 0.1f}, &lazy);
    assert_memory_equal(&direct, &lazy, sizeof direct);
    step(&s, &(options){.how = OF_STORED_LAZY, .smoothing = 0.1f}, &stored);
    step(&s, &(options){.how = IN_TWO, .smoothing = 0.1f}, &plain);
    assert_memory_equal(&stored, &plain, sizeof stored);
    stand_free(&s);
}

/* Of lazy logits that something else reads as well. */
static void other_readers_have_them_stored(void **state)
{
    static float dw[2][CLASSES * WIDTH], values[2][ROWS * CLASSES];
    stand s;

    (void)state;
    stand_new(&s, TUTTI_KERNELS_AUTO, 2);
    for (int lazy = 0; lazy < 2; lazy++) {
        tutti_tensor *x, *target, *y;

        s.w.round++;
        tutti_step_begin(s.cx, NULL);
        x = tutti_input(s.cx, (tutti_array){s.x, TUTTI_SHAPE(ROWS, WIDTH), TUTTI_F32});
        target = tutti_input(s.cx, (tutti_array){s.target, TUTTI_SHAPE(ROWS), TUTTI_I64});
        y = lazy ? tutti__lazy_linear(x, s.w.t, s.b.t, NULL)
                 : tutti_functional_linear(x, s.w.t, s.b.t);
        assert_int_equal(
            tutti_backward(tutti_add(tutti_cross_entropy(y, target), tutti_mean(tutti_square(y)))),
            TUTTI_OK);
        assert_int_equal(tutti_tensor_read(y, values[lazy]), TUTTI_OK);
        assert_int_equal(tutti_tensor_grad_read(s.w.t, dw[lazy]), TUTTI_OK);
        tutti_step_end(s.cx);
    }
    assert_memory_equal(values[0], values[1], sizeof values[0]);
    compare("dw", dw[1], dw[0], CLASSES * WIDTH, 2e-6);
    tutti_step_begin(s.cx, &(tutti_step_opts){.eval = true});
    assert_int_equal(
        tutti_tensor_read(
            tutti__lazy_linear(
                tutti_input(s.cx, (tutti_array){s.x, TUTTI_SHAPE(ROWS, WIDTH), TUTTI_F32}), s.w.t,
                s.b.t, NULL),
            values[1]),
        TUTTI_OK);
    assert_memory_equal(values[0], values[1], sizeof values[0]);
    tutti_step_end(s.cx);
    stand_free(&s);
}

static void if_all_rows_are_ignored_the_mean_is_nan_and_gradients_are_0(void **state)
{
    static made result;
    stand s;

    (void)state;
    stand_new(&s, TUTTI_KERNELS_AUTO, 2);
    for (int i = 0; i < ROWS; i++)
        s.target[i] = -100;
    for (int64_t chunk = 0; chunk <= 8; chunk += 8) {
        step(&s, &(options){.how = IN_ONE, .chunk_rows = chunk}, &result);
        assert_true(isnan(result.loss));
        for (int i = 0; i < CLASSES * WIDTH; i++)
            assert_true(result.dw[i] == 0);
        for (int i = 0; i < ROWS * WIDTH; i++)
            assert_true(result.dx[i] == 0);
    }
    stand_free(&s);
}

static void refused(tutti_tensor *loss, const char *message)
{
    assert_int_equal(tutti_tensor_status(loss), TUTTI_ERR_ARG);
    if (!strstr(tutti_last_error(), message))
        fail_msg("\"%s\" is not in \"%s\"", message, tutti_last_error());
}

static void wrong_sources_are_named(void **state)
{
    tutti_tensor *x, *target, *few;
    stand s;

    (void)state;
    stand_new(&s, TUTTI_KERNELS_AUTO, 1);
    s.target[5] = CLASSES;
    tutti_step_begin(s.cx, NULL);
    x = tutti_input(s.cx, (tutti_array){s.x, TUTTI_SHAPE(ROWS, WIDTH), TUTTI_F32});
    target = tutti_input(s.cx, (tutti_array){s.target, TUTTI_SHAPE(ROWS), TUTTI_I64});
    few = tutti_input(s.cx, (tutti_array){s.target, TUTTI_SHAPE(4), TUTTI_I64});
    refused(tutti_linear_cross_entropy(x, s.w.t, s.b.t, target, NULL),
            "linear_cross_entropy \"w\": the label of row 5 is 131, but there are 131 classes");
    refused(tutti_linear_cross_entropy(x, s.w.t, s.b.t, few, NULL),
            "x is [37,24] but target is [4], expected [37]");
    refused(tutti_linear_cross_entropy(x, s.w.t, s.w.t, target, NULL),
            "weight is [131,24] but bias is F32 [131,24], expected F32 [131]");
    refused(tutti_linear_cross_entropy(x, s.b.t, NULL, target, NULL),
            "weight is [131], expected [V,K]");
    refused(tutti_linear_cross_entropy(x, s.w.t, s.b.t, target,
                                       &(tutti_linear_cross_entropy_opts){.label_smoothing = 1.5f}),
            "label_smoothing is 1.5, expected 0 to 1");
    refused(tutti_linear_cross_entropy(x, s.w.t, s.b.t, target,
                                       &(tutti_linear_cross_entropy_opts){.chunk_rows = -1}),
            "chunk_rows is -1, expected at least 0");
    tutti_step_end(s.cx);
    stand_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_linear_and_cross_entropy),
        cmocka_unit_test(in_16_bit_it_is_as_near_as_in_two),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(lazy_logits_are_not_stored_for_it),
        cmocka_unit_test(other_readers_have_them_stored),
        cmocka_unit_test(if_all_rows_are_ignored_the_mean_is_nan_and_gradients_are_0),
        cmocka_unit_test(wrong_sources_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
