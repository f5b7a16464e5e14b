/* Every operation of tensor/op/ops.def, by its row: gradients against finite differences; agreement of every kernel family with
 * the reference (results, gradients; weights as parameters that accumulate; the same bits twice; no allocation after warm-up), also between
 * convolutions, where activations lie in blocks; in 16 bit; the same bits for any number of threads; empty batches; sources of a
 * wrong size.
 *   test_op_autograd_declared [NAME]           its tests, of this operation only
 *   test_op_autograd_declared --time [NAME]    its times instead
 * SPDX-License-Identifier: MIT
 * timeout: 120   devices: strict cuda */
#include "op/declared_rows.h"

static int n_inputs(const row *r)
{
    int n = 0;

    while (n < MAX_INPUTS && r->in[n].fill != NONE)
        n++;
    return n;
}

/* The same with a larger batch, so that its largest input has at least this many elements. */
static row enlarged(const row *r, int64_t elements)
{
    row big = *r;
    int64_t largest = 1, factor;

    for (int i = 0; i < n_inputs(r); i++) {
        int64_t count = tutti_shape_count(r->in[i].shape);

        if (!r->in[i].weight && count > largest)
            largest = count;
    }
    factor = (elements + largest - 1) / largest;
    for (int i = 0; i < n_inputs(r); i++)
        if (!r->in[i].weight && r->in[i].shape.n > 0)
            big.in[i].shape.d[0] *= factor;
    return big;
}

/* ---- Between convolutions ---------------------------------------------------------------------------- */

/* Convolves the inner row's inputs with the first input after them, and an image result with the same weight. Positive inputs
 * stay so. */
static tutti_tensor *between(const row *r, tutti_tensor *const *in, bench *b)
{
    const int n = n_inputs(r->inner);
    tutti_tensor *h[MAX_INPUTS] = {0}, *y;

    for (int i = 0; i < n; i++) {
        h[i] = tutti_functional_conv2d(in[i], in[n], NULL, (tutti_conv2d_opts){0});
        if (r->inner->in[i].fill == POSITIVE)
            h[i] = tutti_sigmoid(h[i]);
    }
    y = result_of(r->inner, h, b);
    if (tutti_tensor_shape(y).n == 4)
        y = tutti_functional_conv2d(y, in[n], NULL, (tutti_conv2d_opts){0});
    return y;
}

/* With 3 channels, which do not fill a block, and with 16. */
static void among_blocks(void **state)
{
    static const int64_t channels[] = {3, 16};
    const row *r = *state;
    const int n = n_inputs(r);

    for (int i = 0; i < n; i++)
        if (r->in[i].fill == LABELS || r->in[i].weight || r->in[i].shape.n != 4) {
            print_message("skipped: source %d is no activation of four dimensions\n", i);
            skip();
        }
    for (size_t k = 0; k < TUTTI__COUNT_OF(channels); k++) {
        row around = {.name = r->name, .build = between, .inner = r, .agree = 1e-4};

        for (int i = 0; i < n; i++) {
            around.in[i] = (input){UNIFORM, r->in[i].shape, false};
            around.in[i].shape.d[1] = channels[k];
        }
        around.in[n] = (input){UNIFORM, TUTTI_SHAPE(channels[k], channels[k], 1, 1), true};
        families_agree(&(void *){&around});
    }
}

/* ---- 16 bit ------------------------------------------------------------------------------------------ */

static tutti_tensor *of_half(const row *r, tutti_tensor *const *in, bench *b)
{
    tutti_tensor *h[MAX_INPUTS] = {0};

    for (int i = 0; i < n_inputs(r->inner); i++) {
        const input *given = &r->inner->in[i];

        h[i] = given->fill == LABELS || given->weight ? in[i] : tutti_cast(in[i], r->half);
    }
    return tutti_cast(result_of(r->inner, h, b), TUTTI_F32);
}

/* All families within rounding of each other, and of the results in F32. */
static void in_16_bit(void **state)
{
    static const struct {
        tutti_dtype dtype;
        double tolerance;
    } halves[] = {{TUTTI_BF16, 2e-2}, {TUTTI_F16, 3e-3}};
    const row *r = *state;
    results exact = run_family(r, reference_family);

    for (size_t k = 0; k < TUTTI__COUNT_OF(halves); k++) {
        row rounded = *r;
        results half;

        rounded.build = of_half;
        rounded.inner = r;
        rounded.half = halves[k].dtype;
        rounded.agree = halves[k].tolerance;
        families_agree(&(void *){&rounded});
        half = run_family(&rounded, reference_family);
        assert_agree(&rounded, "F32", &exact, &half);
        results_free(&half);
    }
    results_free(&exact);
}

/* ---- Threads, and empty batches ---------------------------------------------------------------------- */

static void check_threads(const row *r, family f)
{
    const row big = enlarged(r, 70000);
    results one = {0};

    for (int threads = 1; threads <= 3; threads += 2) {
        results out = {0};
        bench b;

        f.threads = threads;
        bench_init(&b, &big, f);
        train_step(&b, NULL, threads == 1 ? &one : &out);
        bench_free(&b);
        for (int i = 0; i < out.n; i++)
            if (memcmp(one.values[i], out.values[i], out.counts[i] * sizeof(float)) != 0)
                fail_msg("%s: %d threads give other bits than one", r->name, threads);
        results_free(&out);
    }
    results_free(&one);
}

static void same_bits_by_threads(void **state)
{
    if (test_device().kind == TUTTI_CUDA) /* whose kernels do not know the host's threads */
        skip();
    check_each(*state, check_threads);
}

static void check_empty(const row *r, family f)
{
    row empty = *r;
    tutti_tensor *in[MAX_INPUTS] = {0}, *y;
    bench b;

    for (int i = 0; i < n_inputs(r); i++)
        if (!r->in[i].weight)
            empty.in[i].shape.d[0] = 0;
    bench_init(&b, &empty, f);
    tutti_step_begin(b.cx, NULL);
    for (int i = 0; i < b.n_inputs; i++)
        in[i] = b.arrays[i].dtype == TUTTI_F32 ? tutti_input_with_grad(b.cx, b.arrays[i])
                                               : tutti_input(b.cx, b.arrays[i]);
    y = result_of(&empty, in, &b);
    if (tutti_tensor_status(y) != TUTTI_OK || tutti_backward(tutti_mean(y)) != TUTTI_OK)
        fail_msg("%s of an empty batch: %s", r->name, tutti_last_error());
    for (int i = 0; i < b.n_inputs; i++)
        for (int64_t k = 0; r->in[i].weight && k < tutti_shape_count(r->in[i].shape); k++)
            if (test_grad(in[i])[k] != 0)
                fail_msg("%s of an empty batch: its weights have a gradient", r->name);
    tutti_step_end(b.cx);
    bench_free(&b);
}

static void empty_batches_are_fine(void **state)
{
    const row *r = *state;

    if (r->in[0].shape.n == 0)
        skip();
    check_each(r, check_empty);
}

/* ---- Sources of a wrong size ------------------------------------------------------------------------- */

/* What may change in one source alone: its dimensions, '+' for one more at the end, '-' for one less. Any other change must be
 * refused. */
static const struct {
    const char *op;
    int source;
    const char *changes;
} free_to_change[] = {
    /* clang-format off */
    /* elementwise: 1 is broadcast */
    {"add", 0, "0"}, {"add", 1, "0"}, {"sub", 0, "0"}, {"sub", 1, "0"}, {"mul", 0, "0"}, {"mul", 1, "0"},
    {"div", 0, "0"}, {"div", 1, "0"}, {"pow", 0, "0"}, {"pow", 1, "0"}, {"minimum", 0, "0"}, {"minimum", 1, "0"},
    {"maximum", 0, "0"}, {"maximum", 1, "0"}, {"masked_fill", 0, "0"}, {"masked_fill", 1, "0"}, {"eq", 0, "0"},
    {"eq", 1, "0"}, {"ne", 0, "0"}, {"ne", 1, "0"}, {"lt", 0, "0"}, {"lt", 1, "0"}, {"le", 0, "0"}, {"le", 1, "0"},
    {"gt", 0, "0"}, {"gt", 1, "0"}, {"ge", 0, "0"}, {"ge", 1, "0"}, {"where", 0, "0"}, {"where", 1, "0"},
    {"where", 2, "0"},
    /* moves */
    {"cat", 0, "2"}, {"cat", 1, "2"},
    /* products */
    {"functional_linear", 0, "0"}, {"matmul", 0, "012+-"}, {"matmul", 1, "1+-"},     {"mm", 0, "0"}, {"mm", 1, "1"}, {"bmm", 0, "1"}, {"bmm", 1, "2"}, {"mv", 0, "0"},
    {"addmm", 0, "-"}, {"baddbmm", 0, "-"},
    /* attention: 1 is broadcast */
    {"scaled_dot_product_attention", 0, "02-"}, {"scaled_dot_product_attention", 1, "0-"}, {"scaled_dot_product_attention", 2, "03-"}, {"multi_head_attention", 0, "1"},
    /* convolutions, pools */
    {"functional_conv2d", 0, "023"}, {"functional_conv2d", 1, "23"},
    {"functional_conv1d", 0, "02"}, {"functional_conv1d", 1, "2"},
    {"functional_conv_transpose2d", 0, "023"}, {"functional_conv_transpose2d", 1, "23"},
    {"functional_conv_transpose1d", 0, "02"}, {"functional_conv_transpose1d", 1, "2"},
    /* rows by index */
    {"functional_gather", 0, "01"}, {"functional_gather", 1, "01"}, {"take_along_dim", 0, "01"}, {"take_along_dim", 1, "01"},
    {"index_select", 0, "01+-"}, {"index_select", 1, "0-"}, {"scatter_value", 0, "01"}, {"scatter_value", 1, "01"},
    {"functional_scatter", 0, "01"}, {"functional_scatter", 1, "01"}, {"functional_scatter", 2, "01"}, {"scatter_add", 0, "01"}, {"scatter_add", 1, "01"}, {"scatter_add", 2, "01"},
    {"functional_embedding", 0, "01"}, {"functional_embedding", 1, "0+-"},
    /* normalisation */
    {"functional_layer_norm", 0, "01"}, {"functional_rms_norm", 0, "012"}, {"functional_group_norm", 0, "02+-"}, {"functional_instance_norm", 0, "02+-"},
    /* recurrent layers: steps, samples */
    {"functional_lstm", 0, "01"}, {"functional_gru", 0, "01"}, {"functional_rnn", 0, "01"},
    /* losses */
    {"cross_entropy", 0, "1"}, {"nll_loss", 0, "1"},
    /* distances: 1 is broadcast */
    {"cosine_similarity", 0, "0"}, {"cosine_similarity", 1, "0"},
    /* clang-format on */
};

static bool may_change(const row *r, int source, char change)
{
    if (n_inputs(r) == 1)
        return true;
    for (size_t k = 0; k < TUTTI__COUNT_OF(free_to_change); k++)
        if (strcmp(free_to_change[k].op, r->name) == 0 && free_to_change[k].source == source &&
            strchr(free_to_change[k].changes, change))
            return true;
    return false;
}

/* A step with one source changed: an error that names the operation, and not a crash; or if it may change, success. */
static void try_changed(const row *r, family f, const row *changed, int source, char change)
{
    const char *name = strncmp(r->name, "functional_", 11) == 0 ? r->name + 11 : r->name;
    tutti_tensor *in[MAX_INPUTS] = {0}, *y;
    tutti_status status;
    bench b;

    bench_init(&b, changed, f);
    tutti_step_begin(b.cx, NULL);
    for (int i = 0; i < b.n_inputs; i++)
        in[i] = b.arrays[i].dtype == TUTTI_F32 ? tutti_input_with_grad(b.cx, b.arrays[i])
                                               : tutti_input(b.cx, b.arrays[i]);
    y = result_of(changed, in, &b);
    status = tutti_tensor_status(y);
    if (tutti_backward(tutti_mean(y)) != status)
        fail_msg("%s, source %d, change %c: backward gives another status than the result: %s",
                 r->name, source, change, tutti_last_error());
    if (status == TUTTI_OK && !may_change(r, source, change))
        fail_msg("%s takes source %d with another size in place %c", r->name, source, change);
    if (status != TUTTI_OK && (status != TUTTI_ERR_ARG || !strstr(tutti_last_error(), name)))
        fail_msg("%s, source %d, change %c: %s", r->name, source, change, tutti_last_error());
    tutti_step_end(b.cx);
    bench_free(&b);
}

static void check_sizes(const row *r, family f)
{
    for (int i = 0; i < n_inputs(r); i++) {
        const int dims = r->in[i].shape.n;
        row changed;

        for (int d = 0; d < dims; d++)
            for (int64_t by = -1; by <= 1; by += 2) {
                changed = *r;
                changed.in[i].shape.d[d] += by;
                if (changed.in[i].shape.d[d] < 1)
                    continue;
                try_changed(r, f, &changed, i, (char)('0' + d));
            }
        changed = *r;
        changed.in[i].shape.d[changed.in[i].shape.n++] = 2;
        try_changed(r, f, &changed, i, '+');
        changed = *r;
        changed.in[i].shape.n -= dims > 0;
        try_changed(r, f, &changed, i, '-');
    }
}

static void sources_of_a_wrong_size_are_refused(void **state)
{
    check_each(*state, check_sizes);
}

/* ---- All of it --------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    enum { MODES = 8 };
    static struct CMUnitTest tests[TUTTI__COUNT_OF(rows) * MODES];
    const bool timed = argc > 1 && strcmp(argv[1], "--time") == 0;
    const char *only = argc > 1 + timed ? argv[1 + timed] : NULL;
    size_t n = 0;
    int failed;

    setenv("TUTTI_EMULATE_HALF", "1", 1);
    if (timed)
        print_times_head();
    for (size_t i = 0; i < TUTTI__COUNT_OF(rows); i++) {
        const row *r = &rows[i];
        bool weights = false;

        if (only && strcmp(only, r->name) != 0)
            continue;
        if (timed) {
            const row big = enlarged(r, 1 << 20);

            print_times(&big);
            continue;
        }
        for (int k = 0; k < MAX_INPUTS; k++)
            weights |= r->in[k].weight;
        tests[n++] = test_of(r, "gradient", gradient_matches_differences);
        tests[n++] = test_of(r, "agreement", families_agree);
        if (weights)
            tests[n++] = test_of(r, "parameters", weights_as_parameters_accumulate);
        tests[n++] = test_of(r, "among blocks", among_blocks);
        tests[n++] = test_of(r, "16 bit", in_16_bit);
        tests[n++] = test_of(r, "threads", same_bits_by_threads);
        tests[n++] = test_of(r, "empty batch", empty_batches_are_fine);
        tests[n++] = test_of(r, "sizes", sources_of_a_wrong_size_are_refused);
    }
    if (timed)
        return 0;
    if (n == 0) {
        fprintf(stderr, "there is no operation %s in ops.def\n", only);
        return 1;
    }
    failed = _cmocka_run_group_tests("operations", tests, n, NULL, NULL);
    for (size_t i = 0; i < n; i++)
        free((char *)tests[i].name);
    return failed;
}
