/* safetensors: written files can be read; malformed ones are rejected.   SPDX-License-Identifier: MIT */
#include "checkpoint/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[64];
static char path[128];

static void write_raw(const void *p, size_t n)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(p, 1, n, file), n);
    fclose(file);
}

/* A file with this header (its length put before it) and `data_bytes` zero bytes of data. */
static void write_header(const char *header, size_t data_bytes)
{
    uint64_t n = strlen(header);
    size_t total = 8 + (size_t)n + data_bytes;
    char *p = calloc(1, total + 1);

    memcpy(p, &n, 8);
    memcpy(p + 8, header, (size_t)n);
    write_raw(p, total);
    free(p);
}

static void expect_refused(tutti_status expected, const char *part)
{
    tutti__safetensors *file;

    assert_int_equal(tutti__safetensors_open(&file, path), expected);
    assert_null(file);
    if (!strstr(tutti_last_error(), part))
        fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), part);
    assert_non_null(strstr(tutti_last_error(), path));
}

static void arrays_come_back_with_names_shapes_and_metadata(void **state)
{
    float a[6] = {1, 2, 3, 4, 5, 6};
    int64_t b = 7;
    uint8_t c[3] = {1, 2, 3};
    tutti__safetensors_source sources[] = {
        {"z.bytes", {c, TUTTI_SHAPE(3), TUTTI_U8}},
        {"fc.weight", {a, TUTTI_SHAPE(2, 3), TUTTI_F32}},
        {"bn.num_batches_tracked", {&b, {.n = 0}, TUTTI_I64}},
        {"empty", {a, TUTTI_SHAPE(0, 4), TUTTI_F32}},
        {"bias \"q\" é", {a, TUTTI_SHAPE(1), TUTTI_F32}},
    };
    tutti__safetensors_pair format = {"format", "pt"};
    const tutti__safetensors_entry *e;
    tutti__safetensors *file;
    float got[6];
    int64_t scalar;

    (void)state;
    assert_int_equal(tutti__safetensors_write(path, sources, 5, &format, 1), TUTTI_OK);
    assert_int_equal(tutti__safetensors_open(&file, path), TUTTI_OK);
    assert_int_equal(tutti__safetensors_count(file), 5);
    assert_string_equal(tutti__safetensors_metadata(file, "format"), "pt");
    assert_null(tutti__safetensors_metadata(file, "other"));
    assert_null(tutti__safetensors_find(file, "fc"));
    e = tutti__safetensors_find(file, "fc.weight");
    assert_non_null(e);
    assert_int_equal(e->dtype, TUTTI_F32);
    assert_true(tutti_shape_equal(e->shape, TUTTI_SHAPE(2, 3)));
    assert_int_equal(e->offset % 4, 0);
    assert_int_equal(tutti__safetensors_read(file, e, got), TUTTI_OK);
    assert_memory_equal(got, a, sizeof a);
    e = tutti__safetensors_at(file, 0); /* widest type first */
    assert_string_equal(e->name, "bn.num_batches_tracked");
    assert_int_equal(e->shape.n, 0);
    assert_int_equal(tutti__safetensors_read(file, e, &scalar), TUTTI_OK);
    assert_int_equal(scalar, 7);
    assert_non_null(tutti__safetensors_find(file, "bias \"q\" é"));
    tutti__safetensors_close(file);
}

static void the_data_start_is_a_multiple_of_eight(void **state)
{
    float a[1] = {1};
    char name[20] = "x";
    uint64_t n;

    (void)state;
    for (int i = 0; i < 9; i++) {
        tutti__safetensors_source source = {name, {a, TUTTI_SHAPE(1), TUTTI_F32}};
        FILE *file;

        assert_int_equal(tutti__safetensors_write(path, &source, 1, NULL, 0), TUTTI_OK);
        file = fopen(path, "rb");
        assert_non_null(file);
        assert_int_equal(fread(&n, 1, 8, file), 8);
        fclose(file);
        assert_int_equal(n % 8, 0);
        strcat(name, "y");
    }
}

static void every_truncation_is_refused(void **state)
{
    float a[6] = {1, 2, 3, 4, 5, 6};
    tutti__safetensors_source source = {"w", {a, TUTTI_SHAPE(6), TUTTI_F32}};
    struct stat st;
    tutti__safetensors *file;

    (void)state;
    assert_int_equal(tutti__safetensors_write(path, &source, 1, NULL, 0), TUTTI_OK);
    assert_int_equal(stat(path, &st), 0);
    for (off_t size = st.st_size - 1; size >= 0; size--) {
        assert_int_equal(truncate(path, size), 0);
        assert_int_equal(tutti__safetensors_open(&file, path), TUTTI_ERR_FORMAT);
    }
}

static void hostile_headers_are_refused(void **state)
{
    static const struct {
        const char *header;
        size_t data;
        const char *says;
    } cases[] = {
        {"", 0, "begin with '{'"},
        {" {}", 0, "begin with '{'"},
        {"{", 0, "header"},
        {"{} x", 0, "header"},
        {"{}", 4, "cover 0 bytes of 4"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "not a text"},
        {"{\"__metadata__\":[]}", 0, "not an object"},
        {"{\"a\":3}", 0, "must have dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "must have dtype"},
        {"{\"a\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "F99"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "holds 8 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "whole number"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "whole number"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", 4, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "hole"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0,
         "larger than any file"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
         "7 dimensions"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         4, "overlap"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8, "duplicate"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "whole bytes"},
    };

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(cases); i++) {
        write_header(cases[i].header, cases[i].data);
        expect_refused(TUTTI_ERR_FORMAT, cases[i].says);
    }
}

/* Each "[]," of three bytes would take a hundred of memory; those within strings take none. */
static void a_header_of_too_many_values_or_too_long_a_name_is_refused(void **state)
{
    const size_t n = 24000000;
    char *header = malloc(n + 32), *p;

    (void)state;
    p = stpcpy(header, "{\"a\":[");
    for (size_t i = 0; i < n / 3; i++)
        p = stpcpy(p, "[],");
    strcpy(p, "0]}");
    write_header(header, 0);
    expect_refused(TUTTI_ERR_FORMAT, "more than 8000000 values");
    memcpy(header + 4, ":\"\\\"", 4);
    strcpy(p, "\"}");
    write_header(header, 0);
    expect_refused(TUTTI_ERR_FORMAT, "must have dtype");
    header[0] = '{';
    memset(header + 1, 'n', 5000);
    header[1] = '"';
    strcpy(header + 5000, "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}");
    write_header(header, 4);
    expect_refused(TUTTI_ERR_FORMAT, "a tensor's name has 4998 bytes, at most 4096");
    free(header);
}

static void a_header_length_beyond_the_file_is_refused(void **state)
{
    static const uint64_t lengths[] = {9, 100000001, UINT64_MAX, UINT64_MAX - 7, 1ull << 63};
    char bytes[16] = {0};

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(lengths); i++) {
        memcpy(bytes, &lengths[i], 8);
        write_raw(bytes, sizeof bytes);
        expect_refused(TUTTI_ERR_FORMAT, "header claims");
    }
}

static void types_without_a_name_here_are_known_but_not_readable(void **state)
{
    tutti__safetensors *file;

    (void)state;
    write_header("{\"m\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]}}", 3);
    assert_int_equal(tutti__safetensors_open(&file, path), TUTTI_OK);
    assert_false(tutti__safetensors_at(file, 0)->readable);
    assert_string_equal(tutti__safetensors_at(file, 0)->dtype_text, "BOOL");
    tutti__safetensors_close(file);
}

static void other_files_are_named_for_what_they_are(void **state)
{
    tutti__safetensors *file;

    (void)state;
    write_raw("PK\3\4 archive/data.pkl and so on", 30);
    expect_refused(TUTTI_ERR_FORMAT, "its header claims");
    assert_int_equal(tutti__safetensors_open(&file, folder), TUTTI_ERR_FORMAT);
    assert_int_equal(unlink(path), 0);
    expect_refused(TUTTI_ERR_NOT_FOUND, "cannot open");
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refused(TUTTI_ERR_FORMAT, "not a regular file");
    assert_int_equal(unlink(path), 0);
}

static void a_failed_write_leaves_the_old_file_and_nothing_else(void **state)
{
    float a[6] = {1, 2, 3, 4, 5, 6};
    tutti__safetensors_source source = {"w", {a, TUTTI_SHAPE(6), TUTTI_F32}};
    tutti__safetensors_source twice[] = {source, source};
    struct rlimit before, small = {.rlim_cur = 50, .rlim_max = RLIM_INFINITY};
    char temporary[140];
    tutti__safetensors *file;
    tutti_status status;

    (void)state;
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    assert_int_equal(tutti__safetensors_write(path, &source, 1, NULL, 0), TUTTI_OK);
    assert_int_equal(tutti__safetensors_write(path, twice, 2, NULL, 0), TUTTI_ERR_ARG);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    status = tutti__safetensors_write(path, &source, 1, NULL, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, TUTTI_ERR_DISK);
    assert_non_null(strstr(tutti_last_error(), path));
    assert_int_not_equal(access(temporary, F_OK), 0);
    assert_int_equal(tutti__safetensors_open(&file, path), TUTTI_OK);
    tutti__safetensors_close(file);
}

/* Four processes write one path at once, as ranks of a program may by mistake; no write may fail, or mix with another. */
static void writers_of_one_path_take_turns(void **state)
{
    float a[1000];
    tutti__safetensors_source source = {"w", {a, TUTTI_SHAPE(1000), TUTTI_F32}};
    tutti__safetensors *file;
    int bad = 0;

    (void)state;
    for (int i = 0; i < 1000; i++)
        a[i] = (float)i;
    for (int rank = 0; rank < 4; rank++)
        if (fork() == 0) {
            for (int i = 0; i < 25 && !bad; i++)
                bad = tutti__safetensors_write(path, &source, 1, NULL, 0) != TUTTI_OK;
            if (bad)
                print_error("%s\n", tutti_last_error());
            _exit(bad);
        }
    for (int rank = 0, status; rank < 4; rank++) {
        assert_true(wait(&status) > 0);
        bad |= status;
    }
    assert_int_equal(bad, 0);
    assert_int_equal(tutti__safetensors_open(&file, path), TUTTI_OK);
    tutti__safetensors_close(file);
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/tutti-test-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/file.safetensors", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder); /* fails if anything else was left behind */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(arrays_come_back_with_names_shapes_and_metadata),
        TEST(the_data_start_is_a_multiple_of_eight),
        TEST(every_truncation_is_refused),
        TEST(hostile_headers_are_refused),
        TEST(a_header_of_too_many_values_or_too_long_a_name_is_refused),
        TEST(a_header_length_beyond_the_file_is_refused),
        TEST(types_without_a_name_here_are_known_but_not_readable),
        TEST(other_files_are_named_for_what_they_are),
        TEST(a_failed_write_leaves_the_old_file_and_nothing_else),
        TEST(writers_of_one_path_take_turns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
