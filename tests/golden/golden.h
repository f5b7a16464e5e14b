/* golden.h -- reading tests/golden/<name>.safetensors, and the numbers that tools/make_golden.py drew.
 * SPDX-License-Identifier: MIT
 *
 * For these tests only: it trusts the files, and a missing one or a missing tensor fails the test. */
#ifndef TESTS_GOLDEN_GOLDEN_H
#define TESTS_GOLDEN_GOLDEN_H

#include "base/base.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct golden {
    unsigned char *bytes; /* the file */
    json_t *header;
    const unsigned char *data;
} golden;

static void golden_path(char *path, size_t bytes, const char *name)
{
    const char *root = getenv("SOURCE_DIR");

    snprintf(path, bytes, "%s/tests/golden/%s.safetensors", root ? root : "..", name);
}

static void golden_open(golden *g, const char *name)
{
    char path[1024];
    uint64_t n_header;
    long n;
    FILE *file;

    golden_path(path, sizeof path, name);
    file = fopen(path, "rb");
    if (!file)
        fail_msg("cannot open %s", path);
    fseek(file, 0, SEEK_END);
    n = ftell(file);
    rewind(file);
    g->bytes = malloc((size_t)n);
    assert_int_equal(fread(g->bytes, 1, (size_t)n, file), n);
    fclose(file);
    memcpy(&n_header, g->bytes, 8);
    g->header = json_loadb((const char *)g->bytes + 8, n_header, 0, NULL);
    assert_non_null(g->header);
    g->data = g->bytes + 8 + n_header;
}

static void golden_close(golden *g)
{
    json_decref(g->header);
    free(g->bytes);
}

static inline const char *golden_metadata(const golden *g, const char *key)
{
    const char *text =
        json_string_value(json_object_get(json_object_get(g->header, "__metadata__"), key));

    if (!text)
        fail_msg("the golden file has no metadata %s", key);
    return text;
}

/* The elements of a tensor, of *n_p. */
static const void *golden_tensor(const golden *g, const char *name, const char *dtype, size_t *n_p)
{
    const json_t *row = json_object_get(g->header, name);
    const json_t *shape = json_object_get(row, "shape");

    if (!row)
        fail_msg("the golden file has no tensor %s", name);
    assert_string_equal(json_string_value(json_object_get(row, "dtype")), dtype);
    *n_p = 1;
    for (size_t i = 0; i < json_array_size(shape); i++)
        *n_p *= (size_t)json_integer_value(json_array_get(shape, i));
    return g->data + json_integer_value(json_array_get(json_object_get(row, "data_offsets"), 0));
}

static inline bool golden_has(const golden *g, const char *name)
{
    return json_object_get(g->header, name) != NULL;
}

/* In [-1, 1) with 24 bits, as Draws.uniform. */
static inline void draw_uniform(tutti__mt19937 *mt, float *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (float)(tutti__mt19937_next(mt) >> 8) * 0x1p-23f - 1;
}

#endif
