/* op_profile.c -- rows per operation, in a hash table keyed by what they compute.   SPDX-License-Identifier: MIT */
#include "tensor/op_profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Compared as bytes, so unused parts are zero. */
typedef struct key {
    const char *op, *pass, *parameter;
    int64_t x[TUTTI_MAX_DIMS], w[TUTTI_MAX_DIMS], y[TUTTI_MAX_DIMS];
} key;

typedef struct entry {
    tutti__profile_row row;
    key key;
} entry;

struct tutti__profile {
    entry **slots; /* open addressing; NULL: free */
    size_t n_slots;
    entry **rows; /* in order; room for n_slots / 2 */
    size_t n;
};

/* ---- Life ------------------------------------------------------------------------------------------------- */

tutti__profile *tutti__profile_new(void)
{
    return tutti__alloc(sizeof(tutti__profile));
}

void tutti__profile_free(tutti__profile *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n; i++)
        free(p->rows[i]);
    free(p->rows);
    free(p->slots);
    free(p);
}

void tutti__profile_reset(tutti__profile *p)
{
    for (size_t i = 0; i < p->n; i++)
        p->rows[i]->row.calls = p->rows[i]->row.ns = 0;
}

size_t tutti__profile_n_rows(const tutti__profile *p)
{
    return p->n;
}

const tutti__profile_row *tutti__profile_at(const tutti__profile *p, size_t i)
{
    return &p->rows[i]->row;
}

/* ---- Rows ------------------------------------------------------------------------------------------------- */

static size_t hash_of(const key *k)
{
    uint64_t words[sizeof *k / sizeof(uint64_t)], hash = 0;

    memcpy(words, k, sizeof words);
    for (size_t i = 0; i < TUTTI__COUNT_OF(words); i++)
        hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(hash >> 20);
}

/* The slot of the key, or a free one for it. */
static entry **slot_of(const tutti__profile *p, const key *k)
{
    size_t i = hash_of(k) & (p->n_slots - 1);

    while (p->slots[i] && memcmp(&p->slots[i]->key, k, sizeof *k) != 0)
        i = (i + 1) & (p->n_slots - 1);
    return &p->slots[i];
}

/* Keeps at most half of the slots in use. */
static bool grow(tutti__profile *p)
{
    const size_t n_slots = p->n_slots ? 2 * p->n_slots : 256;
    entry **rows, **slots;

    if (2 * p->n < p->n_slots)
        return true;
    slots = calloc(n_slots, sizeof(entry *));
    rows = slots ? realloc(p->rows, n_slots / 2 * sizeof(entry *)) : NULL;
    if (!rows) {
        free(slots);
        return false;
    }
    free(p->slots);
    p->slots = slots;
    p->n_slots = n_slots;
    p->rows = rows;
    for (size_t i = 0; i < p->n; i++)
        *slot_of(p, &rows[i]->key) = rows[i];
    return true;
}

static void describe(tutti__profile_row *row, const tutti__profile_work *w)
{
    const char *parameter = w->parameter ? w->parameter : "", *dot = strrchr(parameter, '.');

    snprintf(row->name, sizeof row->name, "%s%s%s", w->op, *w->pass ? " " : "", w->pass);
    snprintf(row->layer, sizeof row->layer, "%.*s",
             dot ? (int)(dot - parameter) : (int)strlen(parameter), parameter);
    snprintf(row->shape, sizeof row->shape, "%s%s%s%s%s", w->x ? tutti__shape_text(*w->x) : "",
             w->w ? " * " : "", w->w ? tutti__shape_text(*w->w) : "",
             w->x && tutti_shape_equal(*w->x, *w->y) ? ""
             : w->x                                  ? " -> "
                                                     : "",
             w->x && tutti_shape_equal(*w->x, *w->y) ? "" : tutti__shape_text(*w->y));
    row->flops = w->flops;
    row->bytes = w->bytes;
}

static tutti__profile_row *row_of(tutti__profile *p, const tutti__profile_work *w)
{
    key k = {.op = w->op, .pass = w->pass, .parameter = w->parameter};
    entry **slot;

    if (w->x)
        memcpy(k.x, w->x->d, (size_t)w->x->n * sizeof *k.x);
    if (w->w)
        memcpy(k.w, w->w->d, (size_t)w->w->n * sizeof *k.w);
    memcpy(k.y, w->y->d, (size_t)w->y->n * sizeof *k.y);
    if (!grow(p))
        return NULL;
    slot = slot_of(p, &k);
    if (!*slot) {
        entry *made = calloc(1, sizeof *made);

        if (!made)
            return NULL;
        made->key = k;
        describe(&made->row, w);
        *slot = p->rows[p->n++] = made;
    }
    return &(*slot)->row;
}

void tutti__profile_add(tutti_ctx *cx, const tutti__profile_work *work, uint64_t begin_ns,
                        uint64_t end_ns)
{
    tutti__profile_row *row = row_of(cx->profile, work);

    if (!row) /* no memory */
        return;
    row->calls++;
    row->ns += end_ns - begin_ns;
    (void)tutti__record_open(cx->recorder,
                             &(tutti__time_span){.name = row->name,
                                                 .category = TUTTI__PROFILE_CATEGORY,
                                                 .begin_ns = begin_ns,
                                                 .end_ns = end_ns,
                                                 .arg = -1,
                                                 .detail = {(uint64_t)(uintptr_t)row}});
}
