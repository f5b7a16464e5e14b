/* PyTorch's .pt files: written files can be read; pickles without weights are rejected, and none is executed.
 * SPDX-License-Identifier: MIT */
#include "checkpoint/pytorch.h"
#include "checkpoint/weights.h"
#include "checkpoint/zip.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[64], path[128];

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/tutti-pytorch-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/w.pt", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void expect_refused(tutti_status expected, const char *part)
{
    tutti__pytorch *file;

    if (tutti__pytorch_open(&file, path) != expected)
        fail_msg("not refused as expected: %s", part);
    assert_null(file);
    if (!strstr(tutti_last_error(), part) || !strstr(tutti_last_error(), path))
        fail_msg("\"%s\" does not say \"%s\" and the path", tutti_last_error(), part);
}

/* ---- Written files --------------------------------------------------------------------------------------------- */

static void arrays_come_back_in_order_with_names_types_and_shapes(void **state)
{
    float a[6] = {1, 2, 3, 4, 5, 6};
    double d[2] = {0.5, -1e300};
    int64_t scalar = -7, got_scalar = 0;
    uint16_t half[3] = {0x3c00, 0xc000, 0x7bff}, got_half[3];
    const tutti__safetensors_source sources[] = {
        {"fc.weight", {a, TUTTI_SHAPE(2, 3), TUTTI_F32}},
        {"wide \"q\" é", {d, TUTTI_SHAPE(2), TUTTI_F64}},
        {"bn.num_batches_tracked", {&scalar, {.n = 0}, TUTTI_I64}},
        {"half", {half, TUTTI_SHAPE(3), TUTTI_F16}},
        {"empty", {a, TUTTI_SHAPE(0, 4), TUTTI_F32}},
        {"empty of many", {a, TUTTI_SHAPE(0, INT64_C(1) << 62, 3), TUTTI_F32}}};
    const tutti__safetensors_entry *e;
    tutti__pytorch *file;
    float got[6];

    (void)state;
    assert_int_equal(tutti__pytorch_write(path, sources, TUTTI__COUNT_OF(sources), NULL, 0, NULL),
                     TUTTI_OK);
    assert_int_equal(tutti__pytorch_open(&file, path), TUTTI_OK);
    assert_int_equal(tutti__pytorch_count(file), TUTTI__COUNT_OF(sources));
    assert_string_equal(tutti__pytorch_key(file), "");
    for (size_t i = 0; i < TUTTI__COUNT_OF(sources); i++) {
        e = tutti__pytorch_at(file, i);
        assert_string_equal(e->name, sources[i].name);
        assert_true(e->readable && e->dtype == sources[i].array.dtype);
        assert_true(tutti_shape_equal(e->shape, sources[i].array.shape));
    }
    assert_int_equal(tutti__pytorch_read(file, 0, got), TUTTI_OK);
    assert_memory_equal(got, a, sizeof a);
    assert_int_equal(tutti__pytorch_read(file, 2, &got_scalar), TUTTI_OK);
    assert_int_equal(got_scalar, -7);
    assert_int_equal(tutti__pytorch_read(file, 3, got_half), TUTTI_OK);
    assert_memory_equal(got_half, half, sizeof half);
    assert_int_equal(tutti__pytorch_read(file, 4, got), TUTTI_OK);
    tutti__pytorch_close(file);
}

static void every_truncation_is_refused_and_every_changed_number_seen(void **state)
{
    float a[64] = {1};
    const tutti__safetensors_source source = {"w", {a, TUTTI_SHAPE(64), TUTTI_F32}};
    tutti__pytorch *file;
    struct stat st;
    uint8_t *good;
    FILE *f;

    (void)state;
    assert_int_equal(tutti__pytorch_write(path, &source, 1, NULL, 0, NULL), TUTTI_OK);
    assert_int_equal(stat(path, &st), 0);
    good = malloc((size_t)st.st_size);
    f = fopen(path, "rb");
    assert_int_equal(fread(good, 1, (size_t)st.st_size, f), st.st_size);
    fclose(f);
    for (off_t n = st.st_size - 1; n >= 0; n -= n > 200 ? 37 : 1) {
        assert_int_equal(truncate(path, n), 0);
        assert_int_not_equal(tutti__pytorch_open(&file, path), TUTTI_OK);
        assert_null(file);
    }
    for (off_t i = 0; i + 4 < st.st_size; i++)
        if (memcmp(good + i, "\0\0\x80\x3f", 4) == 0) { /* 1.0f: the data */
            good[i] = 1;
            break;
        }
    f = fopen(path, "wb");
    assert_int_equal(fwrite(good, 1, (size_t)st.st_size, f), st.st_size);
    fclose(f);
    free(good);
    assert_int_equal(tutti__pytorch_open(&file, path), TUTTI_OK);
    assert_int_equal(tutti__pytorch_read(file, 0, a), TUTTI_ERR_FORMAT);
    assert_non_null(strstr(tutti_last_error(), "w/data/0"));
    tutti__pytorch_close(file);
}

/* ---- Files of others: a zip made here around a pickle, with 12 floats in data/0 ------------------------- */

static void write_zip(const char *pickle, size_t n, uint64_t limit, bool whole)
{
    float numbers[12];
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    tutti__zip_writer *zip;

    for (int i = 0; i < 12; i++)
        numbers[i] = (float)i;
    assert_true(fd >= 0);
    assert_int_equal(tutti__zip_writer_new(&zip, fd, path, limit), TUTTI_OK);
    assert_int_equal(tutti__zip_add(zip, "archive/data.pkl", pickle, n), TUTTI_OK);
    assert_int_equal(tutti__zip_add(zip, "archive/data/0", numbers, sizeof numbers), TUTTI_OK);
    if (whole)
        assert_int_equal(tutti__zip_add(zip, "archive/version", "3\n", 2), TUTTI_OK);
    assert_int_equal(tutti__zip_finish(zip), TUTTI_OK);
    tutti__zip_writer_free(zip);
    close(fd);
}

#define BEGIN   "\x80\x02"
#define DICT    "ccollections\nOrderedDict\n)R"
#define NAME(c) "X\1\0\0\0" c
#define STORAGE(type)                                                                              \
    "(X\7\0\0\0storagectorch\n" type "\nX\1\0\0\0"                                                 \
    "0"                                                                                            \
    "X\3\0\0\0cpuK\x0ctQ"
#define REBUILD(storage, offset, size, stride)                                                     \
    "ctorch._utils\n_rebuild_tensor_v2\n(" storage offset "(" size "t(" stride "t\x89" DICT "tR"
#define FLOATS(offset, size, stride) REBUILD(STORAGE("FloatStorage"), offset, size, stride)
#define MATRIX                       FLOATS("K\0", "K\3K\4", "K\4K\1")

#define WRITE(pickle) write_zip(pickle, sizeof(pickle) - 1, 0, true)

static void expect_floats(size_t i, const char *name, tutti_shape shape, const float *expected)
{
    const tutti__safetensors_entry *e;
    tutti__pytorch *file;
    float got[24];

    if (tutti__pytorch_open(&file, path) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    e = tutti__pytorch_at(file, i);
    assert_non_null(e);
    assert_string_equal(e->name, name);
    assert_true(tutti_shape_equal(e->shape, shape));
    assert_int_equal(tutti__pytorch_read(file, i, got), TUTTI_OK);
    for (int64_t k = 0; k < tutti_shape_count(shape); k++)
        assert_true(got[k] == expected[k]);
    tutti__pytorch_close(file);
}

static void views_parameters_and_shared_storages_are_read(void **state)
{
    const float transposed[] = {0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}, part[] = {5, 7, 9, 11};
    const float repeated[] = {3, 3, 3, 3};

    (void)state;
    WRITE(BEGIN DICT "(" NAME("a") FLOATS("K\0", "K\4K\3", "K\1K\4") NAME("b")
              FLOATS("K\5", "K\2K\2", "K\4K\2") NAME("c") FLOATS("K\3", "K\4", "K\0")
                  NAME("d") "ctorch._utils\n_rebuild_parameter\n(" MATRIX "\x89" DICT "tR" NAME("e")
                      FLOATS("K\7", "", "") "u}" NAME("m") "}sb.");
    expect_floats(0, "a", TUTTI_SHAPE(4, 3), transposed);
    expect_floats(1, "b", TUTTI_SHAPE(2, 2), part);
    expect_floats(2, "c", TUTTI_SHAPE(4), repeated);
    expect_floats(3, "d", TUTTI_SHAPE(3, 4), (const float[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    expect_floats(4, "e", (tutti_shape){.n = 0}, (const float[]){7});
}

static void a_state_dict_is_found_inside_a_training_checkpoint(void **state)
{
    tutti__pytorch *file;

    (void)state;
    /* {"e": 3, "r": a tensor, "model": {"w": ...}, "o": {"state": {0: {"m": ...}}}} */
    WRITE(BEGIN "}(" NAME("e") "K\3" NAME("r") FLOATS("K\0", "K\2", "K\1") "X\5\0\0\0model}" NAME(
        "w") MATRIX "s" NAME("o") "}X\5\0\0\0state}K\0}" NAME("m") MATRIX "sssu.");
    expect_floats(0, "w", TUTTI_SHAPE(3, 4), (const float[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    assert_int_equal(tutti__pytorch_open(&file, path), TUTTI_OK);
    assert_string_equal(tutti__pytorch_key(file), "model");
    assert_int_equal(tutti__pytorch_count(file), 1);
    tutti__pytorch_close(file);
    /* Two dictionaries, neither with a usual key. */
    WRITE(BEGIN "}(" NAME("x") "}" NAME("w") MATRIX "s" NAME("y") "}" NAME("w") MATRIX "su.");
    expect_refused(TUTTI_ERR_UNSUPPORTED, "its keys: x, y");
    WRITE(BEGIN "]" MATRIX "a.");
    expect_refused(TUTTI_ERR_UNSUPPORTED, "it is not a dictionary");
}

static void zip64_is_written_and_read(void **state)
{
    const char pickle[] = BEGIN DICT NAME("w") MATRIX "s.";

    (void)state;
    write_zip(pickle, sizeof pickle - 1, 1, true);
    expect_floats(0, "w", TUTTI_SHAPE(3, 4), (const float[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
}

/* Known attacks on torch.load(weights_only=True), and simpler ones. */
static void what_is_no_weights_is_refused_by_name(void **state)
{
    (void)state;
    WRITE(BEGIN "cposix\nsystem\n(X\4\0\0\0truetR.");
    expect_refused(TUTTI_ERR_UNSUPPORTED,
                   "holds a posix.system, which is not part of plain weights");
    WRITE(BEGIN "cbuiltins\neval\n(X\1\0\0\0"
                "1"
                "tR.");
    expect_refused(TUTTI_ERR_UNSUPPORTED, "holds a builtins.eval");
    WRITE(BEGIN "cargparse\nNamespace\x1b[31m\n)R.");
    expect_refused(TUTTI_ERR_UNSUPPORTED, "argparse.Namespace\\x1b[31m");
    WRITE("\x80\x04\x8c\1w.");
    expect_refused(TUTTI_ERR_FORMAT, "protocol 4, expected 2");
    WRITE(BEGIN "(i.");
    expect_refused(TUTTI_ERR_FORMAT, "operation 0x69 is not one");
    WRITE(BEGIN "}");
    expect_refused(TUTTI_ERR_FORMAT, "it ends too early");
    WRITE(BEGIN "X\xff\xff\xff\x7f"
                "a.");
    expect_refused(TUTTI_ERR_FORMAT, "it ends too early");
    WRITE(BEGIN ".");
    expect_refused(TUTTI_ERR_FORMAT, "the stack is empty");
    WRITE(BEGIN "t.");
    expect_refused(TUTTI_ERR_FORMAT, "there is no mark");
    WRITE(BEGIN "}}.");
    expect_refused(TUTTI_ERR_FORMAT, "values are left over");
    WRITE(BEGIN "}r\xff\xff\xff\xff.");
    expect_refused(TUTTI_ERR_FORMAT, "the memo has no such place");
    WRITE(BEGIN "h\7.");
    expect_refused(TUTTI_ERR_FORMAT, "the memo is empty there");
    WRITE(BEGIN "]" NAME("k") "K\1s.");
    expect_refused(TUTTI_ERR_FORMAT, "sets a key of something that is not a dictionary");
    WRITE(BEGIN "(" MATRIX "t" NAME("k") "K\1s.");
    expect_refused(TUTTI_ERR_FORMAT, "sets a key of something that is not a dictionary");
    WRITE(BEGIN STORAGE("FloatStorage") "}b.");
    expect_refused(TUTTI_ERR_FORMAT, "gives attributes to what has none");
    WRITE(BEGIN "K\1)R.");
    expect_refused(TUTTI_ERR_FORMAT, "it calls something that is not a function");
    WRITE(BEGIN "ctorch\nFloatStorage\n)R.");
    expect_refused(TUTTI_ERR_FORMAT, "it calls something that is not a function");
    WRITE(BEGIN "(X\7\0\0\0storage" NAME("x") "tQ.");
    expect_refused(TUTTI_ERR_FORMAT, "a storage is not named by type, key and size");
}

static void tensors_outside_of_their_storage_are_refused(void **state)
{
    (void)state;
#define ONE(tensor) WRITE(BEGIN DICT NAME("w") tensor "s.")
    ONE(FLOATS("K\1", "K\3K\4", "K\4K\1"));
    expect_refused(TUTTI_ERR_FORMAT, "tensor \"w\" reaches beyond its storage of 48 bytes");
    ONE(FLOATS("K\0", "K\3", "K\6"));
    expect_refused(TUTTI_ERR_FORMAT, "reaches beyond");
    ONE(FLOATS("K\0", "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fK\2",
               "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fK\1"));
    expect_refused(TUTTI_ERR_FORMAT, "reaches beyond");
    ONE(FLOATS("K\0", "J\xff\xff\xff\xff", "K\1"));
    expect_refused(TUTTI_ERR_FORMAT, "is not a natural number");
    ONE(FLOATS("J\xff\xff\xff\xff", "K\1", "K\1"));
    expect_refused(TUTTI_ERR_FORMAT, "is not made of a storage");
    ONE(FLOATS("K\0", "K\3", "K\1K\1"));
    expect_refused(TUTTI_ERR_FORMAT, "is not made of a storage");
    ONE(FLOATS("K\0", "M\xff\xffM\xff\xff", "K\0K\0"));
    expect_refused(TUTTI_ERR_UNSUPPORTED, "a view that repeats its elements, larger than the file");
    ONE(FLOATS("K\0", "K\1K\1K\1K\1K\1K\1K\1", "K\1K\1K\1K\1K\1K\1K\1"));
    expect_refused(TUTTI_ERR_FORMAT, "has 7 dimensions, at most 6");
    ONE(REBUILD(STORAGE("DoubleStorage"), "K\0", "K\1", "K\1")); /* says 12 doubles: 96 bytes */
    expect_refused(TUTTI_ERR_FORMAT, "is smaller than it says");
    WRITE(BEGIN DICT "(" NAME("w") MATRIX NAME("w") MATRIX "u.");
    expect_refused(TUTTI_ERR_FORMAT, "there are two tensors \"w\"");
    write_zip(BEGIN DICT ".", sizeof(BEGIN DICT ".") - 1, 0, false);
    expect_refused(TUTTI_ERR_FORMAT, "archive/version is missing");
}

/* A file with `pickle`, which is closed, and a megabyte of zeros in data/0. */
static void write_large(FILE *pickle, char **text, size_t *n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    void *zeros = calloc(1, 1 << 20);
    tutti__zip_writer *zip;

    fclose(pickle);
    assert_true(fd >= 0 && zeros);
    assert_int_equal(tutti__zip_writer_new(&zip, fd, path, 0), TUTTI_OK);
    assert_int_equal(tutti__zip_add(zip, "archive/data.pkl", *text, *n), TUTTI_OK);
    assert_int_equal(tutti__zip_add(zip, "archive/data/0", zeros, 1 << 20), TUTTI_OK);
    assert_int_equal(tutti__zip_add(zip, "archive/version", "3\n", 2), TUTTI_OK);
    assert_int_equal(tutti__zip_finish(zip), TUTTI_OK);
    tutti__zip_writer_free(zip);
    close(fd);
    free(zeros);
    free(*text);
}

static void put(FILE *to, const void *p, size_t n, int times)
{
    for (int i = 0; i < times; i++)
        assert_int_equal(fwrite(p, 1, n, to), n);
}

#define PUT(bytes, times) put(pickle, bytes, sizeof(bytes) - 1, times)

/* A few bytes that would take hours, or all memory. */
static void what_is_out_of_proportion_is_refused(void **state)
{
    char *text;
    size_t n;
    FILE *pickle = open_memstream(&text, &n);

    (void)state;
    /* OrderedDict(LIST), again and again, of one list of a million pairs */
    PUT(BEGIN "K\1K\1\x86q\1](", 1);
    PUT("h\1", 1000000);
    PUT("e\x85q\2ccollections\nOrderedDict\nq\3h\2R", 1);
    PUT("h\3h\2R", 100000);
    PUT(".", 1);
    write_large(pickle, &text, &n);
    expect_refused(TUTTI_ERR_FORMAT, "out of proportion to its length");
    /* A million times the key "model", and under it a dictionary of a million keys without a tensor */
    pickle = open_memstream(&text, &n);
    PUT(BEGIN "}(X\5\0\0\0modelq\1}q\2(", 1);
    PUT("NN", 1000000);
    PUT("u", 1);
    PUT("h\1h\2", 1000000);
    PUT("u.", 1);
    write_large(pickle, &text, &n);
    expect_refused(TUTTI_ERR_UNSUPPORTED, "does not hold a dictionary of tensors");
    /* Views of the same megabyte */
    pickle = open_memstream(&text, &n);
    PUT(BEGIN "}(" NAME("-") FLOATS("K\0", "J\0\0\4\0", "K\1") "q\1", 1);
    for (char c = '0'; c < '0' + 75; c++) {
        PUT("X\1\0\0\0", 1);
        put(pickle, &c, 1, 1);
        PUT("h\1", 1);
    }
    PUT("u.", 1);
    write_large(pickle, &text, &n);
    expect_refused(TUTTI_ERR_UNSUPPORTED, "views of the same bytes, more than 64 times the file");
}

/* Refused as expected, by a process that takes at most `most` bytes for it. */
static void expect_refused_within(long most, tutti_status expected, const char *part)
{
    struct rusage before, after;
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        tutti__pytorch *file = NULL;

        getrusage(RUSAGE_SELF, &before);
        if (tutti__pytorch_open(&file, path) != expected || !strstr(tutti_last_error(), part)) {
            fprintf(stderr, "\"%.300s\" does not say \"%s\"\n", tutti_last_error(), part);
            _exit(1);
        }
        getrusage(RUSAGE_SELF, &after);
        after.ru_maxrss -= before.ru_maxrss;
        if (after.ru_maxrss > most / 1024)
            fprintf(stderr, "%ld KiB for \"%s\"\n", after.ru_maxrss, part);
        _exit(after.ru_maxrss > most / 1024);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* A dictionary of `times` pairs: one name of n bytes, and one tensor, both from the memo. */
static void write_repeated_name(int n, int times)
{
    char *text;
    size_t bytes;
    FILE *pickle = open_memstream(&text, &bytes);
    const uint32_t length = (uint32_t)n;

    PUT(BEGIN "}(X", 1);
    put(pickle, &length, 4, 1);
    PUT("n", n);
    PUT("q\1" MATRIX "q\2", 1);
    PUT("h\1h\2", times - 1);
    PUT("u.", 1);
    write_large(pickle, &text, &bytes);
}

static void names_take_memory_in_proportion_to_the_file(void **state)
{
    (void)state;
    write_repeated_name(100000, 10000); /* copied, they would be a gigabyte */
    expect_refused_within(40 << 20, TUTTI_ERR_FORMAT,
                          "a tensor's name has 100000 bytes, at most 4096 are read: \"nnnn");
    write_repeated_name(4096, 100000);
    expect_refused_within(40 << 20, TUTTI_ERR_FORMAT, "there are two tensors \"nnnn");
}

static void entries_that_overlap_are_refused(void **state)
{
    static const char central[] = "PK\1\2";
    const uint32_t size = 400;
    char bytes[4096];
    size_t n;
    FILE *f;

    (void)state;
    WRITE(BEGIN DICT NAME("w") MATRIX "s.");
    f = fopen(path, "r+b");
    assert_non_null(f);
    n = fread(bytes, 1, sizeof bytes, f);
    for (size_t i = 0; i + 46 < n; i++)
        if (memcmp(bytes + i, central, 4) == 0) { /* all as large as half of the file */
            memcpy(bytes + i + 20, &size, 4);
            memcpy(bytes + i + 24, &size, 4);
        }
    rewind(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    assert_true(n < 3 * size);
    expect_refused(TUTTI_ERR_FORMAT, "its entries overlap");
}

static void files_of_old_pytorch_are_refused_with_the_remedy(void **state)
{
    static const char old[] = "\x80\x02\x8a\nl\xfc\x9c"
                              "F\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.";
    FILE *f = fopen(path, "wb");
    tutti__weights *weights;

    (void)state;
    fwrite(old, 1, sizeof old, f);
    fclose(f);
    expect_refused(TUTTI_ERR_UNSUPPORTED, "torch.save(torch.load(FILE), NEW)");
    assert_int_equal(tutti__weights_open(&weights, path), TUTTI_ERR_UNSUPPORTED);
}

static void weights_are_read_as_another_type(void **state)
{
    const double wide[] = {0.1, 1e300};
    const double counts[] = {0x1p40 + 1, -2};
    const uint16_t half[] = {0x3c00, 0xc000};
    const tutti__safetensors_source sources[] = {{"wide", {wide, TUTTI_SHAPE(2), TUTTI_F64}},
                                                 {"half", {half, TUTTI_SHAPE(2), TUTTI_BF16}},
                                                 {"one", {wide, TUTTI_SHAPE(1), TUTTI_F64}},
                                                 {"counts", {counts, TUTTI_SHAPE(2), TUTTI_F64}}};
    tutti__weights *file;
    int64_t whole[2];
    float got[2];

    (void)state;
    assert_int_equal(tutti__pytorch_write(path, sources, TUTTI__COUNT_OF(sources), NULL, 0, NULL),
                     TUTTI_OK);
    assert_int_equal(tutti__weights_open(&file, path), TUTTI_OK);
    assert_string_equal(tutti__weights_kind(file), "PyTorch");
    assert_int_equal(tutti__weights_read_as(file, 1, TUTTI_F32, got), TUTTI_OK);
    assert_true(got[0] == 0.0078125f && got[1] == -2.0f);
    assert_int_equal(tutti__weights_read_as(file, 2, TUTTI_F32, got), TUTTI_OK);
    assert_true(got[0] == 0.1f);
    assert_int_equal(tutti__weights_read_as(file, 0, TUTTI_F32, got), TUTTI_ERR_FORMAT);
    assert_non_null(strstr(tutti_last_error(), "element 1 of \"wide\" is too large for F32"));
    assert_int_equal(tutti__weights_read_as(file, 0, TUTTI_I64, whole), TUTTI_ERR_FORMAT);
    assert_non_null(
        strstr(tutti_last_error(), "element 0 of \"wide\" (F64) is not a whole number"));
    assert_int_equal(tutti__weights_read_as(file, 1, TUTTI_I64, whole), TUTTI_ERR_FORMAT);
    assert_int_equal(tutti__weights_read_as(file, 3, TUTTI_I64, whole), TUTTI_OK);
    assert_true(whole[0] == (INT64_C(1) << 40) + 1 && whole[1] == -2);
    tutti__weights_close(file);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(names_take_memory_in_proportion_to_the_file), /* first: the others take more */
        TEST(arrays_come_back_in_order_with_names_types_and_shapes),
        TEST(every_truncation_is_refused_and_every_changed_number_seen),
        TEST(views_parameters_and_shared_storages_are_read),
        TEST(a_state_dict_is_found_inside_a_training_checkpoint),
        TEST(zip64_is_written_and_read),
        TEST(what_is_no_weights_is_refused_by_name),
        TEST(tensors_outside_of_their_storage_are_refused),
        TEST(what_is_out_of_proportion_is_refused),
        TEST(entries_that_overlap_are_refused),
        TEST(files_of_old_pytorch_are_refused_with_the_remedy),
        TEST(weights_are_read_as_another_type),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
