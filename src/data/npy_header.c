/* npy_header.c -- the header of NumPy's .npy format.   SPDX-License-Identifier: MIT
 *
 *   \x93NUMPY, version (2 bytes), length of the text (2 bytes; from version 2 on 4), text, data
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 *
 * The text is a Python literal; exactly these three keys are read, in any order. */
#include "data/npy_header.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>

/* The rest of the text. */
typedef struct parser {
    const char *p, *end;
    const char *what;
} parser;

static tutti_status fail_header(const char *what, const char *why)
{
    return tutti__fail(TUTTI_ERR_FORMAT, "%s is not a valid .npy array: %s", what, why);
}

static void skip_blanks(parser *t)
{
    while (t->p < t->end && isspace((unsigned char)*t->p))
        t->p++;
}

static bool take(parser *t, const char *word)
{
    const size_t n = strlen(word);

    skip_blanks(t);
    if ((size_t)(t->end - t->p) < n || memcmp(t->p, word, n) != 0)
        return false;
    t->p += n;
    return true;
}

/* A string in single or double quotes, without escapes. */
static bool take_string(parser *t, char *text, size_t size)
{
    const char *begin;
    char quote;

    skip_blanks(t);
    if (t->p == t->end || (*t->p != '\'' && *t->p != '"'))
        return false;
    quote = *t->p++;
    begin = t->p;
    while (t->p < t->end && *t->p != quote)
        t->p++;
    if (t->p == t->end || (size_t)(t->p - begin) >= size)
        return false;
    memcpy(text, begin, (size_t)(t->p - begin));
    text[t->p - begin] = '\0';
    t->p++;
    return true;
}

static bool take_number(parser *t, int64_t *value_p)
{
    int64_t value = 0;
    const char *begin;

    skip_blanks(t);
    for (begin = t->p; t->p < t->end && isdigit((unsigned char)*t->p); t->p++) {
        if (value > (INT64_MAX - 9) / 10)
            return false;
        value = 10 * value + (*t->p - '0');
    }
    *value_p = value;
    return t->p > begin;
}

static tutti_status take_shape(parser *t, tutti__npy *npy)
{
    tutti_shape *shape = &npy->shape;

    if (!take(t, "("))
        return fail_header(t->what, "its shape is not a tuple");
    while (!take(t, ")")) {
        if (shape->n == TUTTI_MAX_DIMS)
            return fail_header(t->what, "it has more than 6 dimensions");
        if (!take_number(t, &shape->d[shape->n++]))
            return fail_header(t->what, "its shape is not a tuple of numbers");
        if (!take(t, ",")) {
            if (!take(t, ")"))
                return fail_header(t->what, "its shape is not a tuple of numbers");
            break;
        }
    }
    return TUTTI_OK;
}

static const struct type_row {
    const char *name;
    tutti__npy_type type;
    size_t bytes;
} TYPES[] = {{"|u1", TUTTI__NPY_U8, 1},  {"|b1", TUTTI__NPY_U8, 1},  {"<i4", TUTTI__NPY_I32, 4},
             {"<i8", TUTTI__NPY_I64, 8}, {"<f4", TUTTI__NPY_F32, 4}, {"<f8", TUTTI__NPY_F64, 8}};

static tutti_status take_type(parser *t, tutti__npy *npy)
{
    char name[32], shown[64];

    if (!take_string(t, name, sizeof name))
        return fail_header(t->what, "its dtype is not a plain one");
    for (size_t i = 0; i < TUTTI__COUNT_OF(TYPES); i++)
        if (strcmp(TYPES[i].name, name) == 0) {
            npy->type = TYPES[i].type;
            npy->element = TYPES[i].bytes;
            return TUTTI_OK;
        }
    return tutti__fail(TUTTI_ERR_FORMAT,
                       "%s has dtype %s; expected uint8, bool, int32, int64, float32 or float64, "
                       "little-endian: save array.astype('float32')",
                       t->what, tutti__printable(name, shown, sizeof shown));
}

/* The keys. */
static tutti_status read_text(parser *t, tutti__npy *npy)
{
    bool has_type = false, has_order = false, has_shape = false;
    char key[32];

    if (!take(t, "{"))
        return fail_header(t->what, "its header is not a dictionary");
    while (!take(t, "}")) {
        if (!take_string(t, key, sizeof key) || !take(t, ":"))
            return fail_header(t->what, "its header is not a dictionary of texts");
        if (strcmp(key, "descr") == 0 && !has_type) {
            TUTTI_TRY(take_type(t, npy));
            has_type = true;
        } else if (strcmp(key, "shape") == 0 && !has_shape) {
            TUTTI_TRY(take_shape(t, npy));
            has_shape = true;
        } else if (strcmp(key, "fortran_order") == 0 && !has_order) {
            if (take(t, "True"))
                return tutti__fail(TUTTI_ERR_FORMAT,
                                   "%s is in Fortran order; save numpy.ascontiguousarray(array)",
                                   t->what);
            if (!take(t, "False"))
                return fail_header(t->what, "its fortran_order is neither True nor False");
            has_order = true;
        } else
            return fail_header(t->what, "its header has another or a repeated key");
        (void)take(t, ",");
    }
    skip_blanks(t);
    if (t->p != t->end || !has_type || !has_order || !has_shape)
        return fail_header(t->what, "its header lacks descr, fortran_order or shape, or has more");
    return TUTTI_OK;
}

/* The data must be exactly the rest. */
static tutti_status check_size(tutti__npy *npy, uint64_t bytes, const char *what)
{
    npy->count = 1;
    for (int i = 0; i < npy->shape.n; i++) {
        if (npy->shape.d[i] < 1)
            return fail_header(what, "it is empty: a dimension is 0");
        if (npy->count > (uint64_t)INT64_MAX / 8 / (uint64_t)npy->shape.d[i])
            return fail_header(what, "its shape is too large");
        npy->count *= (uint64_t)npy->shape.d[i];
    }
    npy->data_bytes = npy->count * npy->element;
    if (npy->data_bytes == bytes - npy->header_bytes)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_FORMAT, "%s has %llu bytes of data, and its shape means %llu: is it truncated?",
        what, (unsigned long long)(bytes - npy->header_bytes), (unsigned long long)npy->data_bytes);
}

tutti_status tutti__npy_header(tutti__npy *npy, const uint8_t *p, size_t n, uint64_t bytes,
                               const char *what)
{
    size_t text, length;
    parser t = {.what = what};

    *npy = (tutti__npy){.count = 0};
    if (n < 12 || memcmp(p, "\x93NUMPY", 6) != 0)
        return fail_header(what, "it does not begin as one");
    if (p[6] < 1 || p[6] > 3)
        return fail_header(what, "it has an unknown version; expected 1, 2 or 3");
    text = p[6] == 1 ? 10 : 12;
    length = (size_t)p[8] | (size_t)p[9] << 8;
    if (p[6] > 1)
        length |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (length > n - text)
        return fail_header(what, "its header is longer than the file, or than 65536 bytes");
    npy->header_bytes = text + length;
    t.p = (const char *)p + text;
    t.end = t.p + length;
    TUTTI_TRY(read_text(&t, npy));
    return check_size(npy, bytes, what);
}
