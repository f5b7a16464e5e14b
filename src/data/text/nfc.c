/* nfc.c -- Unicode's normalization form C: characters and their marks composed where there is a character for both.
 * SPDX-License-Identifier: MIT
 *
 * Characters below U+0300 are no marks, and compose with nothing in front of them: text is normalized in runs that begin with one of
 * them, and runs of one are as they are. Annex 15 of the Unicode Standard has the algorithm. */
#include "data/text/nfc.h"

#include <stdlib.h>
#include <string.h>

typedef struct nfc_row {
    uint32_t a, b, c;
} nfc_row;

#include "data/text/nfc.inc"

enum {
    FIRST_MARK = 0x300,
    HANGUL = 0xac00,
    HANGUL_L = 0x1100,
    HANGUL_V = 0x1161,
    HANGUL_T = 0x11a7,
    N_L = 19,
    N_V = 21,
    N_T = 28,
    N_HANGUL = N_L * N_V * N_T,
    MOST_PARTS = 8 /* of a character; Unicode has at most 4 */
};

/* Code points of a run, with their combining classes. */
typedef struct nfc_run {
    uint32_t *code;
    uint8_t *class;
    size_t n, room;
} nfc_run;

static int by_first(const void *key, const void *row)
{
    const uint32_t a = *(const uint32_t *)key, b = ((const nfc_row *)row)->a;

    return a < b ? -1 : a > b;
}

static int by_both(const void *key, const void *row)
{
    const nfc_row *a = key, *b = row;

    return a->a != b->a ? (a->a < b->a ? -1 : 1) : a->b != b->b ? (a->b < b->b ? -1 : 1) : 0;
}

static int by_range(const void *key, const void *row)
{
    const uint32_t code = *(const uint32_t *)key;
    const nfc_row *range = row;

    return code < range->a ? -1 : code > range->b;
}

static uint8_t class_of(uint32_t code)
{
    const nfc_row *row = code < FIRST_MARK ? NULL
                                           : bsearch(&code, CLASSES, TUTTI__COUNT_OF(CLASSES),
                                                     sizeof *CLASSES, by_range);

    return row ? (uint8_t)row->c : 0;
}

/* 0: there is none. */
static uint32_t composed(uint32_t a, uint32_t b)
{
    const nfc_row key = {.a = a, .b = b}, *row;

    if (a - HANGUL_L < N_L && b - HANGUL_V < N_V)
        return HANGUL + ((a - HANGUL_L) * N_V + b - HANGUL_V) * N_T;
    if (a - HANGUL < N_HANGUL && (a - HANGUL) % N_T == 0 && b > HANGUL_T && b - HANGUL_T < N_T)
        return a + b - HANGUL_T;
    row = bsearch(&key, COMPOSITIONS, TUTTI__COUNT_OF(COMPOSITIONS), sizeof key, by_both);
    return row ? row->c : 0;
}

/* All parts of a character, in order; their number. */
static size_t parts_of(uint32_t code, uint32_t parts[MOST_PARTS])
{
    const nfc_row *row;
    const uint32_t h = code - HANGUL;
    size_t n;

    if (h < N_HANGUL) {
        parts[0] = HANGUL_L + h / (N_V * N_T);
        parts[1] = HANGUL_V + h % (N_V * N_T) / N_T;
        parts[2] = HANGUL_T + h % N_T;
        return h % N_T ? 3 : 2;
    }
    row = bsearch(&code, DECOMPOSITIONS, TUTTI__COUNT_OF(DECOMPOSITIONS), sizeof *row, by_first);
    if (!row) {
        parts[0] = code;
        return 1;
    }
    n = parts_of(row->b, parts); /* only the first part has parts of its own */
    if (row->c)
        parts[n++] = row->c;
    return n;
}

/* ---- A run --------------------------------------------------------------------------------------------------- */

static tutti_status put_code(nfc_run *r, uint32_t code)
{
    uint32_t parts[MOST_PARTS];
    const size_t n = parts_of(code, parts);

    if (r->n + n > r->room) {
        const size_t room = 2 * r->room + 64;
        uint32_t *codes = realloc(r->code, room * sizeof *codes);
        uint8_t *classes;

        r->code = codes ? codes : r->code;
        classes = codes ? realloc(r->class, room) : NULL;
        if (!classes)
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory to normalize a text");
        r->class = classes;
        r->room = room;
    }
    for (size_t k = 0; k < n; k++, r->n++) {
        r->code[r->n] = parts[k];
        r->class[r->n] = class_of(parts[k]);
    }
    return TUTTI_OK;
}

/* Marks [begin, end) by their classes, those of one class as they were: few of them in place. */
static void order_few(nfc_run *r, size_t begin, size_t end)
{
    for (size_t i = begin + 1; i < end; i++) {
        const uint32_t code = r->code[i];
        const uint8_t class = r->class[i];
        size_t at = i;

        for (; at > begin && r->class[at - 1] > class; at--) {
            r->code[at] = r->code[at - 1];
            r->class[at] = r->class[at - 1];
        }
        r->code[at] = code;
        r->class[at] = class;
    }
}

/* The same for a text that is nothing but marks. */
static tutti_status order_many(nfc_run *r, size_t begin, size_t end)
{
    size_t next[257] = {0};
    uint32_t *code = malloc((end - begin) * sizeof *code);

    if (!code)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to normalize a text");
    for (size_t i = begin; i < end; i++)
        next[r->class[i] + 1]++;
    for (int class = 0; class < 256; class ++)
        next[class + 1] += next[class];
    for (size_t i = begin; i < end; i++)
        code[next[r->class[i]]++] = r->code[i];
    for (size_t i = begin; i < end; i++) {
        r->code[i] = code[i - begin];
        r->class[i] = class_of(r->code[i]);
    }
    free(code);
    return TUTTI_OK;
}

static tutti_status order_marks(nfc_run *r)
{
    enum { FEW = 32 };
    size_t end;

    for (size_t begin = 0; begin < r->n; begin = end) {
        for (end = begin; end < r->n && r->class[end] > 0; end++)
            ;
        if (end - begin > FEW)
            TUTTI_TRY(order_many(r, begin, end));
        else if (end > begin)
            order_few(r, begin, end);
        end += end == begin;
    }
    return TUTTI_OK;
}

static void compose(nfc_run *r)
{
    size_t out = 0, starter = SIZE_MAX;
    int last = -1; /* the class in front, behind the starter; -1: nothing is between */

    for (size_t i = 0; i < r->n; i++) {
        const int class = r->class[i];
        const uint32_t both = starter != SIZE_MAX && last < (last < 0 ? 0 : class)
                                  ? composed(r->code[starter], r->code[i])
                                  : 0;

        if (both) {
            r->code[starter] = both;
            continue;
        }
        if (class == 0)
            starter = out;
        last = class == 0 ? -1 : class;
        r->code[out++] = r->code[i];
    }
    r->n = out;
}

static size_t decode(const uint8_t *p, uint32_t *code_p)
{
    if (p[0] < 0x80)
        return *code_p = p[0], 1;
    if (p[0] < 0xe0)
        return *code_p = (uint32_t)(p[0] & 31) << 6 | (p[1] & 63), 2;
    if (p[0] < 0xf0)
        return *code_p = (uint32_t)(p[0] & 15) << 12 | (uint32_t)(p[1] & 63) << 6 | (p[2] & 63), 3;
    *code_p = (uint32_t)(p[0] & 7) << 18 | (uint32_t)(p[1] & 63) << 12 |
              (uint32_t)(p[2] & 63) << 6 | (p[3] & 63);
    return 4;
}

static size_t encode(uint32_t code, char *to)
{
    const int n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint8_t heads[] = {0, 0, 0xc0, 0xe0, 0xf0};

    for (int i = n - 1; i > 0; i--, code >>= 6)
        to[i] = (char)(0x80 | (code & 63));
    to[0] = (char)(heads[n] | code);
    return (size_t)n;
}

/* ---- The text ------------------------------------------------------------------------------------------------ */

typedef struct nfc_text {
    char *p;
    size_t n, room;
} nfc_text;

static tutti_status append(nfc_text *out, const char *p, size_t n)
{
    if (out->n + n > out->room) {
        const size_t room = 2 * out->room + n + 256;
        char *more = realloc(out->p, room);

        if (!more)
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory to normalize a text");
        out->p = more;
        out->room = room;
    }
    memcpy(out->p + out->n, p, n);
    out->n += n;
    return TUTTI_OK;
}

/* The end of the run that begins at `at`: characters from U+0300 on, behind any one. */
static size_t end_of_run(const uint8_t *p, size_t n, size_t at)
{
    uint32_t code;

    at += decode(p + at, &code);
    while (at < n && p[at] >= 0xcc)
        at += decode(p + at, &code);
    return at;
}

static tutti_status normalize_run(nfc_run *r, const uint8_t *p, size_t n, nfc_text *out)
{
    char text[4];
    uint32_t code;

    r->n = 0;
    for (size_t at = 0; at < n;) {
        at += decode(p + at, &code);
        TUTTI_TRY(put_code(r, code));
    }
    TUTTI_TRY(order_marks(r));
    compose(r);
    for (size_t i = 0; i < r->n; i++)
        TUTTI_TRY(append(out, text, encode(r->code[i], text)));
    return TUTTI_OK;
}

static tutti_status normalize(nfc_run *r, const uint8_t *p, size_t n, nfc_text *out)
{
    size_t begin = 0, at = 0, end;

    while (at < n) {
        end = end_of_run(p, n, at);
        if (p[at] >= 0xcc || p[end - 1] >= 0x80) { /* else it is one of ASCII */
            TUTTI_TRY(append(out, (const char *)p + begin, at - begin));
            TUTTI_TRY(normalize_run(r, p + at, end - at, out));
            begin = end;
        }
        at = end;
    }
    return append(out, (const char *)p + begin, n - begin);
}

tutti_status tutti__nfc(const char *text, size_t n, char **out_p, size_t *n_p)
{
    const uint8_t *p = (const uint8_t *)text;
    nfc_run run = {.code = NULL};
    nfc_text out = {.p = NULL};
    tutti_status status;
    size_t at = 0;

    *out_p = NULL;
    *n_p = n;
    while (at < n && p[at] < 0xcc)
        at++;
    if (at == n)
        return TUTTI_OK;
    status = normalize(&run, p, n, &out);
    free(run.code);
    free(run.class);
    if (status == TUTTI_OK && (out.n != n || memcmp(out.p, text, n) != 0)) {
        *out_p = out.p;
        *n_p = out.n;
        return TUTTI_OK;
    }
    free(out.p);
    return status;
}
