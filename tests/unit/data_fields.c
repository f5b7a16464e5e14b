/* Samples of named arrays: masks, labels per token and targets beside an input, as loaders deliver them, and errors.
 * SPDX-License-Identifier: MIT */
#include "data/dataset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { N = 9, H = 8, W = 6, T = 5, FILL = 255 };
static uint8_t images[N][3][H][W], masks[N][H][W];
static int64_t tokens[N][T];
static float weights[N];

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < H * W; k++) {
            const uint8_t value = (uint8_t)(1 + (i * 31 + k * 7) % 200);

            for (int c = 0; c < 3; c++)
                images[i][c][k / W][k % W] = value;
            masks[i][k / W][k % W] = value;
        }
        for (int k = 0; k < T; k++)
            tokens[i][k] = i + k;
        weights[i] = (float)i / 3;
    }
    return 0;
}

static const tutti_field FIELDS[] = {
    {.name = "x", .dtype = TUTTI_U8, .shape = {3, {3, H, W}}, .data = images},
    {.name = "mask",
     .dtype = TUTTI_U8,
     .shape = {2, {H, W}},
     .moves = true,
     .fill = FILL,
     .data = masks},
    {.name = "tokens", .dtype = TUTTI_I64, .shape = {1, {T}}, .data = tokens},
    {.name = "weight", .dtype = TUTTI_F32, .data = weights},
};

static tutti_samples of_fields(tutti_field fields[4])
{
    memcpy(fields, FIELDS, sizeof FIELDS);
    return (tutti_samples){.count = N, .classes = 256, .fields = fields, .n_fields = 4};
}

static tutti_dataset *make(const tutti_samples *s)
{
    tutti_dataset *dataset;

    assert_int_equal(tutti_dataset_new(&dataset, s), TUTTI_OK);
    return dataset;
}

static void check_others(const tutti_batch *b)
{
    const tutti_array token = tutti_batch_array(b, "tokens"),
                      weight = tutti_batch_array(b, "weight");

    assert_int_equal(b->n_arrays, 4);
    assert_true(tutti_shape_equal(token.shape, TUTTI_SHAPE((int64_t)b->n, T)));
    assert_int_equal(token.dtype, TUTTI_I64);
    assert_true(tutti_shape_equal(weight.shape, TUTTI_SHAPE((int64_t)b->n)));
    assert_int_equal(weight.dtype, TUTTI_F32);
    for (size_t i = 0; i < b->n; i++) {
        assert_memory_equal((const int64_t *)token.p + i * T, tokens[b->samples[i]],
                            sizeof tokens[0]);
        assert_memory_equal((const float *)weight.p + i, &weights[b->samples[i]], sizeof(float));
    }
}

/* The image's value is the mask's, so they must agree wherever the image was moved to; a crop beyond it is 0, or the fill. */
static void check_mask(const tutti_batch *b, size_t *filled)
{
    const float *x = b->x.p;
    const int64_t *mask = b->y.p;

    assert_true(tutti_shape_equal(b->y.shape, TUTTI_SHAPE((int64_t)b->n, H, W)));
    assert_int_equal(b->y.dtype, TUTTI_I64);
    assert_ptr_equal(tutti_batch_array(b, "mask").p, b->y.p);
    for (size_t i = 0; i < b->n; i++)
        for (int k = 0; k < H * W; k++) {
            const int64_t byte = (int64_t)(x[(i * 3) * H * W + (size_t)k] * 255.0f + 0.5f);
            const int64_t cell = mask[i * H * W + (size_t)k];

            *filled += cell == FILL;
            assert_int_equal(cell == FILL ? 0 : cell, byte);
        }
}

static void load(const tutti_dataset *dataset, const tutti_loader_opts *more, size_t *filled)
{
    tutti_loader_opts opts = *more;
    tutti_loader *loader;
    tutti_batch b;
    size_t seen = 0;

    opts.batch = 4;
    assert_int_equal(tutti_loader_new(&loader, dataset, NULL, &opts), TUTTI_OK);
    if (opts.shards == 0)
        while (tutti_loader_next(loader, &b)) {
            check_others(&b);
            check_mask(&b, filled);
            seen += b.n;
        }
    for (int shard = 0; shard < opts.shards; shard++)
        for (size_t i = 0; tutti_loader_take(loader, i, shard, &b); i++) {
            check_others(&b);
            check_mask(&b, filled);
            seen += b.n;
        }
    assert_int_equal(tutti_loader_status(loader), TUTTI_OK);
    assert_in_range(seen, N, N + 1); /* shards are filled up */
    tutti_loader_free(loader);
}

static void arrays_of_any_shape_reach_the_batch(void **state)
{
    tutti_field fields[4];
    const tutti_samples s = of_fields(fields);
    tutti_dataset *dataset = make(&s);
    const tutti_dataset_info info = tutti_dataset_describe(dataset);
    size_t filled = 0;

    (void)state;
    assert_int_equal(info.n_fields, 4);
    assert_string_equal(info.fields[1].name, "mask");
    assert_int_equal(info.targets, 0);
    for (int workers = 0; workers < 3; workers++)
        for (int shards = 0; shards < 3; shards += 2)
            load(dataset, &(tutti_loader_opts){.workers = workers, .shards = shards}, &filled);
    assert_int_equal(filled, 0);
    tutti_dataset_free(dataset);
}

static void a_mask_moves_with_its_image(void **state)
{
    tutti_field fields[4];
    const tutti_samples s = of_fields(fields);
    tutti_dataset *dataset = make(&s);
    size_t filled = 0;

    (void)state;
    for (uint64_t seed = 1; seed < 20; seed++)
        load(dataset, &(tutti_loader_opts){.workers = 1, .augment = true, .seed = seed}, &filled);
    assert_true(filled > 0);
    tutti_dataset_free(dataset);
}

static tutti_status read_arrays(void *self, size_t index, void *const *arrays)
{
    const tutti_field *fields = self;
    const size_t bytes[] = {sizeof images[0], sizeof masks[0], sizeof tokens[0], sizeof weights[0]};

    for (int i = 0; i < 4; i++)
        memcpy(arrays[i], (const char *)fields[i].data + index * bytes[i], bytes[i]);
    return TUTTI_OK;
}

static void a_function_writes_the_arrays(void **state)
{
    tutti_field fields[4];
    tutti_samples s = of_fields(fields);
    tutti_dataset *dataset;
    size_t filled = 0;

    (void)state;
    for (int i = 0; i < 4; i++)
        fields[i].data = NULL;
    s.read_arrays = read_arrays;
    s.self = (void *)FIELDS;
    dataset = make(&s);
    assert_string_equal(tutti_dataset_describe(dataset).name, "own");
    memset(fields, 0, sizeof fields); /* the list was copied */
    load(dataset, &(tutti_loader_opts){.workers = 2}, &filled);
    tutti_dataset_free(dataset);
}

static void a_pair_has_the_names_of_its_kind(void **state)
{
    static const int64_t labels[N];
    static const float sequences[N][T][2];
    tutti_dataset *dataset = make(&(tutti_samples){
        .count = N, .shape = TUTTI_SHAPE(T, 2), .classes = 2, .x = sequences, .labels = labels});
    tutti_dataset_info info = tutti_dataset_describe(dataset);
    tutti_loader *loader;
    tutti_batch b;

    (void)state;
    assert_string_equal(info.fields[0].name, "x");
    assert_string_equal(info.fields[1].name, "labels");
    assert_int_equal(info.channels, 1);
    assert_int_equal(info.height, T);
    assert_int_equal(info.width, 2);
    assert_int_equal(tutti_loader_new(&loader, dataset, NULL, &(tutti_loader_opts){.batch = 2}),
                     TUTTI_OK);
    assert_true(tutti_loader_next(loader, &b));
    assert_true(tutti_shape_equal(b.x.shape, TUTTI_SHAPE(2, T, 2)));
    assert_null(tutti_batch_array(&b, "targets").p);
    assert_string_equal(tutti_last_error(), "the batch has no array \"targets\"; it has x, labels");
    tutti_loader_free(loader);
    tutti_dataset_free(dataset);
    assert_int_equal(
        tutti_dataset_from_memory(&dataset, &sequences[0][0][0], T, &sequences[0][0][0], 2, N),
        TUTTI_OK);
    info = tutti_dataset_describe(dataset);
    assert_string_equal(info.fields[1].name, "targets");
    assert_int_equal(info.targets, 2);
    tutti_dataset_free(dataset);
}

/* A label for a row of integers makes them no text, of which each token has a next one. */
static void tokens_have_a_next_one_each(void **state)
{
    static const int64_t labels[N];
    const tutti_field x = {
        .name = "x", .dtype = TUTTI_I64, .shape = TUTTI_SHAPE(T), .data = tokens};
    tutti_field pair[2] = {
        x, {.name = "y", .dtype = TUTTI_I64, .shape = TUTTI_SHAPE(T), .data = tokens}};
    const tutti_samples s = {.count = N, .classes = 256, .fields = pair, .n_fields = 2};
    tutti_dataset *dataset = make(&s);

    (void)state;
    assert_true(tutti__dataset_has_tokens(dataset));
    tutti_dataset_free(dataset);
    pair[1].shape = (tutti_shape){0};
    pair[1].data = labels;
    dataset = make(&s);
    assert_false(tutti__dataset_has_tokens(dataset));
    tutti_dataset_free(dataset);
}

/* Changes one thing in a good list. */
static void refuse(void (*change)(tutti_samples *s, tutti_field *fields), const char *expected)
{
    tutti_field fields[4];
    tutti_samples s = of_fields(fields);
    tutti_dataset *dataset;

    change(&s, fields);
    assert_int_equal(tutti_dataset_new(&dataset, &s), TUTTI_ERR_ARG);
    assert_null(dataset);
    if (!strstr(tutti_last_error(), expected))
        fail_msg("\"%s\" does not contain \"%s\"", tutti_last_error(), expected);
}

static void same_name(tutti_samples *s, tutti_field *f)
{
    (void)s;
    f[3].name = "mask";
}

static void no_name(tutti_samples *s, tutti_field *f)
{
    (void)s;
    f[2].name = "";
}

static void one_field(tutti_samples *s, tutti_field *f)
{
    (void)f;
    s->n_fields = 1;
}

static void no_classes(tutti_samples *s, tutti_field *f)
{
    (void)f;
    s->classes = 0;
}

static void wrong_dtype(tutti_samples *s, tutti_field *f)
{
    (void)s;
    f[3].dtype = TUTTI_F64;
}

static void other_size(tutti_samples *s, tutti_field *f)
{
    (void)s;
    f[1].shape = TUTTI_SHAPE(W, H);
}

static void huge(tutti_samples *s, tutti_field *f)
{
    (void)s;
    f[2].shape = TUTTI_SHAPE(1 << 20, 1 << 20);
}

static void no_data(tutti_samples *s, tutti_field *f)
{
    (void)s;
    f[3].data = NULL;
}

static void also_a_shape(tutti_samples *s, tutti_field *f)
{
    (void)f;
    s->shape = TUTTI_SHAPE(3);
}

static void wrong_lists_are_refused_with_the_field(void **state)
{
    (void)state;
    refuse(same_name, "field \"mask\"");
    refuse(no_name, "a name of 1 to 31 characters");
    refuse(one_field, "1 fields; expected at least 2, x and y, and at most 8");
    refuse(no_classes, "field \"mask\" [8,6] of U8: integers are classes");
    refuse(wrong_dtype, "field \"weight\" [] of F64: expected U8, F32 or I64");
    refuse(other_size, "field \"mask\" [6,8] of U8: only an array [H,W]");
    refuse(huge, "field \"tokens\" [1048576,1048576] of I64: expected up to 5 dimensions");
    refuse(no_data, "field \"weight\": data NULL, read_arrays NULL");
    refuse(also_a_shape, "leave them 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_of_any_shape_reach_the_batch),
        cmocka_unit_test(a_mask_moves_with_its_image),
        cmocka_unit_test(a_function_writes_the_arrays),
        cmocka_unit_test(a_pair_has_the_names_of_its_kind),
        cmocka_unit_test(tokens_have_a_next_one_each),
        cmocka_unit_test(wrong_lists_are_refused_with_the_field),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}
