/* NumPy arrays: values and shapes as NumPy saves them, and files that are refused, with the reason.
 * SPDX-License-Identifier: MIT */
#include "data_support.h"

#include "data/dataset.h"
#include "data/npy_header.h"
#include "data_numpy.h"

static tutti_dataset *open_spec(const char *spec)
{
    tutti_dataset *dataset;

    if (tutti_dataset_open(&dataset, spec) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    return dataset;
}

static void compressed_arrays_are_fields(void **state)
{
    static const float X[2][3] = {{0, 1.5f, -2}, {3, 4, 5}}, WEIGHT[] = {0.5f, 2};
    tutti_dataset *dataset;
    tutti_loader *loader;
    tutti_batch b;

    (void)state;
    put("n/train.npz", NPZ_COMPRESSED, sizeof NPZ_COMPRESSED);
    dataset = open_spec("npy:n/train");
    assert_int_equal(tutti_dataset_describe(dataset).classes, 2);
    assert_int_equal(tutti_loader_new(&loader, dataset, NULL, &(tutti_loader_opts){.batch = 2}),
                     TUTTI_OK);
    assert_true(tutti_loader_next(loader, &b));
    assert_true(tutti_shape_equal(b.x.shape, TUTTI_SHAPE(2, 3)));
    assert_memory_equal(b.x.p, X, sizeof X);
    assert_true(tutti_shape_equal(b.y.shape, TUTTI_SHAPE(2)));
    assert_int_equal(((const int64_t *)b.y.p)[0], 1);
    assert_memory_equal(tutti_batch_array(&b, "weight").p, WEIGHT, sizeof WEIGHT);
    tutti_loader_free(loader);
    tutti_dataset_free(dataset);
}

static void files_are_read_where_they_are(void **state)
{
    tutti_dataset *dataset;
    float x[3];
    int64_t y;

    (void)state;
    put("m/train/x.npy", NPY_ROWS, sizeof NPY_ROWS - 1);
    put("m/train/y.npy", NPY_LABELS, sizeof NPY_LABELS - 1);
    dataset = open_spec("npy:m/train");
    assert_int_equal(tutti__dataset_read(dataset, 1, NULL, (void *const[]){x, &y}), TUTTI_OK);
    assert_true(x[0] == 3 && x[2] == 5);
    assert_int_equal(y, 0);
    assert_true(tutti__dataset_has_labels(dataset));
    assert_string_equal(tutti_dataset_fitted(dataset), "{\"format\":\"npy\",\"classes\":2}");
    tutti_dataset_free(dataset);
}

/* An array of zeros. */
static void put_zeros(const char *path, const char *descr, const char *shape, size_t bytes)
{
    char file[4096] = "\x93NUMPY\x01\x00\x76\x00";

    assert_true(128 + bytes <= sizeof file);
    snprintf(file + 10, 119, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }%60s", descr,
             shape, "");
    memset(file + 10 + strlen(file + 10), ' ', 118 - strlen(file + 10));
    file[127] = '\n';
    memset(file + 128, 0, bytes);
    put(path, file, 128 + bytes);
}

static void shapes_of_y_say_what_it_is(void **state)
{
    static const struct {
        const char *x, *x_shape, *y, *y_shape;
        size_t x_bytes, y_bytes;
        int dtype, classes, targets;
        bool moves;
        tutti_shape x_is, y_is;
    } rows[] = {
        {"<f4", "(2, 4)", "<i8", "(2,)", 32, 16, TUTTI_I64, 2, 0, false, {1, {4}}, {0}},
        {"<f8", "(2, 4)", "<f4", "(2,)", 64, 8, TUTTI_F32, 0, 1, false, {1, {4}}, {1, {1}}},
        {"<i4", "(2, 5)", "<i4", "(2, 5)", 40, 40, TUTTI_I64, 2, 0, false, {1, {5}}, {1, {5}}},
        {"|u1",
         "(2, 4, 6)",
         "|u1",
         "(2, 4, 6)",
         48,
         48,
         TUTTI_I64,
         2,
         0,
         true,
         {3, {1, 4, 6}},
         {2, {4, 6}}},
        {"<f4",
         "(2, 3, 4, 6)",
         "<f8",
         "(2, 7)",
         576,
         112,
         TUTTI_F32,
         0,
         7,
         false,
         {3, {3, 4, 6}},
         {1, {7}}},
        {"<f4", "(2, 9, 5)", "|b1", "(2,)", 360, 2, TUTTI_I64, 2, 0, false, {2, {9, 5}}, {0}},
    };

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(rows); i++) {
        tutti_dataset *dataset;
        tutti_dataset_info info;

        put_zeros("s/train/x.npy", rows[i].x, rows[i].x_shape, rows[i].x_bytes);
        put_zeros("s/train/y.npy", rows[i].y, rows[i].y_shape, rows[i].y_bytes);
        dataset = open_spec("npy:s/train");
        info = tutti_dataset_describe(dataset);
        assert_int_equal(info.count, 2);
        assert_true(tutti_shape_equal(info.fields[0].shape, rows[i].x_is));
        assert_true(tutti_shape_equal(info.fields[1].shape, rows[i].y_is));
        assert_int_equal(info.fields[1].dtype, rows[i].dtype);
        assert_int_equal(info.fields[1].moves, rows[i].moves);
        assert_int_equal(info.classes, rows[i].classes);
        assert_int_equal(info.targets, rows[i].targets);
        tutti_dataset_free(dataset);
    }
}

static void refuse(const char *descr, const char *shape, size_t bytes, const char *expected)
{
    tutti_dataset *dataset;

    put_zeros("r/train/x.npy", descr, shape, bytes);
    put_zeros("r/train/y.npy", "<i8", "(2,)", 16);
    assert_int_equal(tutti_dataset_open(&dataset, "npy:r/train"), TUTTI_ERR_FORMAT);
    assert_null(dataset);
    assert_error_says("r/train/x.npy", expected, NULL);
}

static void wrong_arrays_are_refused_with_the_reason(void **state)
{
    tutti_dataset *dataset;

    (void)state;
    refuse("<f2", "(2, 3)", 12, "has dtype <f2; expected uint8, bool, int32");
    refuse(">f4", "(2, 3)", 24, "has dtype >f4");
    refuse("|O", "(2, 3)", 48, "has dtype |O");
    refuse("<f4", "(3, 3)", 36, "and r/train/x.npy has 3: their first dimensions must be equal");
    refuse("<f4", "(2, 3)", 20, "has 20 bytes of data, and its shape means 24: is it truncated?");
    refuse("<f4", "(2, 0)", 0, "a dimension is 0");
    refuse("<f4", "()", 4, "is a scalar");
    refuse("<f4", "(2, 3000000000, 3000000000)", 4, "its shape is too large");
    refuse("<f4", "(2, 99999999999999999999)", 4, "its shape is not a tuple of numbers");
    refuse("<f4", "(1, 1, 1, 1, 1, 1, 1)", 4, "more than 6 dimensions");
    refuse("<f4", "[2, 3]", 24, "its shape is not a tuple");
    refuse("<f4", "(2, 3), 'shape': (2, 3)", 24, "another or a repeated key");
    put_text("r/train/x.npy", "text, not an array");
    assert_int_equal(tutti_dataset_open(&dataset, "npy:r/train"), TUTTI_ERR_FORMAT);
    assert_error_says("r/train/x.npy is not a valid .npy array: it does not begin as one", NULL,
                      NULL);
}

static void missing_parts_are_named(void **state)
{
    tutti_dataset *dataset;

    (void)state;
    put_zeros("p/train/x.npy", "<f4", "(2, 3)", 24);
    assert_int_equal(tutti_dataset_open(&dataset, "npy:p/train"), TUTTI_ERR_FORMAT);
    assert_error_says("p/train has 1 array, without x or y", NULL, NULL);
    assert_int_equal(tutti_dataset_open(&dataset, "npy:p/test"), TUTTI_ERR_NOT_FOUND);
    assert_error_says("there is no p/test.npz, nor a folder p/test with x.npy and y.npy", NULL,
                      NULL);
    put_zeros("p/train/y.npy", "<i8", "(2,)", 16);
    put_zeros("p/test/x.npy", "<f4", "(2, 3)", 24);
    put_zeros("p/test/y.npy", "<i8", "(2,)", 16);
    assert_int_equal(tutti_dataset_open_with(&dataset, "npy:p/test",
                                             &(tutti_dataset_opts){.fit = "{\"classes\": 9}"}),
                     TUTTI_OK);
    assert_int_equal(tutti_dataset_describe(dataset).classes, 9);
    tutti_dataset_free(dataset);
    assert_int_equal(
        tutti_dataset_open_with(&dataset, "npy:p/test", &(tutti_dataset_opts){.fit = "[]"}),
        TUTTI_ERR_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(compressed_arrays_are_fields),
        IN_FOLDER(files_are_read_where_they_are),
        IN_FOLDER(shapes_of_y_say_what_it_is),
        IN_FOLDER(wrong_arrays_are_refused_with_the_reason),
        IN_FOLDER(missing_parts_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
