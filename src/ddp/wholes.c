/* wholes.c -- who has what of each whole tensor, and which rank it is given to.   SPDX-License-Identifier: MIT */
#include "ddp/pieces.h"

#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

enum { SMALL_BYTES = 4096 }; /* such tensors are not worth a balance */

/* A piece as ranks tell each other of it; its name follows. */
typedef struct record {
    uint32_t bytes; /* of the record and its name with a 0, rounded up to 8 */
    int32_t rank, dtype;
    tutti__parameter_split box;
    tutti_shape shape;
    uint64_t begin, end;
} record;

static const char *name_of(const record *r)
{
    return (const char *)(r + 1);
}

/* ---- Exchange ---------------------------------------------------------------------------------------------- */

static size_t record_bytes(const tutti__tensor_piece *piece)
{
    return (sizeof(record) + strlen(piece->name) + 1 + 7) / 8 * 8;
}

static size_t records_bytes(const tutti__pieces *of)
{
    size_t bytes = 0;

    for (size_t i = 0; i < of->n; i++)
        bytes += record_bytes(&of->p[i]);
    return bytes;
}

/* A rank's records back to back, at `at`. */
static void pack(const tutti__pieces *mine, int rank, char *at)
{
    for (size_t i = 0; i < mine->n; i++) {
        const tutti__tensor_piece *piece = &mine->p[i];
        record *r = (record *)(void *)at;

        *r = (record){.bytes = (uint32_t)record_bytes(piece),
                      .rank = rank,
                      .dtype = (int32_t)piece->dtype,
                      .box = piece->box,
                      .shape = piece->shape,
                      .begin = piece->begin,
                      .end = piece->end};
        strcpy((char *)(r + 1), piece->name);
        at += r->bytes;
    }
}

/* All ranks' records, in memory that the caller frees. */
static tutti_status exchange(tutti_group *group, const tutti__pieces *mine, char **all_p,
                             size_t *bytes_p)
{
    const size_t size = (size_t)tutti_group_size(group);
    int64_t own, *lengths = tutti__alloc(size * sizeof *lengths);
    size_t *counts = tutti__alloc(size * sizeof *counts), bytes = records_bytes(mine);
    char *packed = tutti__alloc(bytes + 8);
    tutti_status status =
        tutti__group_agree(group, lengths && counts && packed ? TUTTI_OK : TUTTI_ERR_MEMORY);

    *all_p = NULL;
    *bytes_p = 0;
    own = (int64_t)bytes;
    if (packed)
        pack(mine, tutti_group_rank(group), packed);
    if (status == TUTTI_OK)
        status = tutti_all_gather(group, TUTTI_CONST_BUF(&own, 1, TUTTI_I64),
                                  TUTTI_BUF(lengths, size, TUTTI_I64), NULL);
    for (size_t r = 0; r < size && status == TUTTI_OK; r++)
        *bytes_p += counts[r] = (size_t)lengths[r];
    if (status == TUTTI_OK) {
        *all_p = tutti__alloc(*bytes_p + 8);
        status = tutti__group_agree(group, *all_p ? TUTTI_OK : TUTTI_ERR_MEMORY);
    }
    if (status == TUTTI_OK)
        status = tutti_all_gather_v(group, TUTTI_CONST_BUF(packed, bytes, TUTTI_U8),
                                    TUTTI_BUF(*all_p, *bytes_p, TUTTI_U8), counts, NULL);
    free(packed);
    free(lengths);
    free(counts);
    return status;
}

/* ---- The table ---------------------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const record *x = *(const record *const *)a, *y = *(const record *const *)b;
    const int names = strcmp(name_of(x), name_of(y));

    if (names != 0)
        return names;
    if (x->box.index != y->box.index)
        return x->box.index < y->box.index ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static bool is_alike(const record *a, const record *b)
{
    return a->dtype == b->dtype && tutti_shape_equal(a->shape, b->shape) &&
           a->box.dim == b->box.dim && a->box.parts == b->box.parts &&
           a->box.count == b->box.count && a->box.units == b->box.units;
}

static tutti_status differ(const record *a, const record *b)
{
    return tutti__fail(
        TUTTI_ERR_MISMATCH,
        "ranks %d and %d differ in what \"%.120s\" is: %s %s, %d parts of dimension %d in %d, and "
        "%s %s, %d of %d in %d",
        a->rank, b->rank, name_of(a), tutti_dtype_name((tutti_dtype)a->dtype),
        tutti__shape_text(a->shape), a->box.parts, a->box.dim, a->box.count,
        tutti_dtype_name((tutti_dtype)b->dtype), tutti__shape_text(b->shape), b->box.parts,
        b->box.dim, b->box.count);
}

/* Elements of box `index`. */
static size_t box_count(const tutti__whole *w, int index)
{
    const tutti__parameter_split box = tutti__box_at(w, index);

    return tutti__box_count(&box, w->shape);
}

static tutti_status check_whole(const tutti__wholes *wholes, const tutti__whole *w)
{
    const int boxes = w->box.count > 0 ? w->box.count : 1;

    for (int b = 0; b < boxes; b++) {
        const size_t end = box_count(w, b);

        for (size_t at = 0; at < end;) {
            size_t next = at;

            for (size_t k = w->first; k < w->first + w->n; k++)
                if (wholes->held[k].index == b && wholes->held[k].begin <= at &&
                    wholes->held[k].end > next)
                    next = wholes->held[k].end;
            if (next == at)
                return tutti__fail(TUTTI_ERR_STATE,
                                   "no rank holds element %zu of part %d of \"%.120s\" %s", at, b,
                                   w->name, tutti__shape_text(w->shape));
            at = next;
        }
    }
    return TUTTI_OK;
}

static tutti_status build(tutti__wholes *wholes, const record **sorted, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const record *r = sorted[i];
        tutti__whole *last = wholes->n > 0 ? &wholes->p[wholes->n - 1] : NULL;

        if (last && strcmp(last->name, name_of(r)) == 0) {
            if (!is_alike(sorted[last->first], r))
                return differ(sorted[last->first], r);
            last->n++;
        } else {
            wholes->p[wholes->n++] =
                (tutti__whole){.name = name_of(r),
                               .dtype = (tutti_dtype)r->dtype,
                               .shape = r->shape,
                               .box = r->box,
                               .bytes = (size_t)tutti_shape_count(r->shape) *
                                        tutti_dtype_size((tutti_dtype)r->dtype),
                               .first = i,
                               .n = 1};
        }
        wholes->held[i] = (tutti__held){r->rank, r->box.count > 0 ? r->box.index : 0,
                                        (size_t)r->begin, (size_t)r->end};
    }
    for (size_t i = 0; i < wholes->n; i++)
        TUTTI_TRY(check_whole(wholes, &wholes->p[i]));
    return TUTTI_OK;
}

/* From all ranks' records in wholes->names. group NULL: this rank has all of them by itself. */
static tutti_status make_table(tutti__wholes *wholes, size_t bytes, tutti_group *group)
{
    const record **sorted;
    tutti_status status;
    size_t n = 0;

    for (size_t at = 0; at < bytes; at += ((record *)(void *)(wholes->names + at))->bytes)
        n++;
    sorted = tutti__alloc((n + 1) * sizeof *sorted);
    wholes->p = tutti__alloc((n + 1) * sizeof *wholes->p);
    wholes->held = tutti__alloc((n + 1) * sizeof *wholes->held);
    status = sorted && wholes->p && wholes->held ? TUTTI_OK : TUTTI_ERR_MEMORY;
    if (group)
        status = tutti__group_agree(group, status);
    n = 0;
    for (size_t at = 0; at < bytes && status == TUTTI_OK; at += sorted[n++]->bytes)
        sorted[n] = (const record *)(const void *)(wholes->names + at);
    if (status == TUTTI_OK) {
        qsort(sorted, n, sizeof *sorted, by_place);
        status = build(wholes, sorted, n);
    }
    free(sorted);
    return status;
}

tutti_status tutti__wholes_find(tutti__wholes *wholes, const tutti__pieces *mine,
                                tutti_group *group)
{
    size_t bytes;

    *wholes = (tutti__wholes){.n = 0};
    TUTTI_TRY(exchange(group, mine, &wholes->names, &bytes));
    return make_table(wholes, bytes, group);
}

tutti_status tutti__wholes_of_all(tutti__wholes *wholes, const tutti__pieces *by_rank, int ranks)
{
    size_t bytes = 0, at = 0;

    *wholes = (tutti__wholes){.n = 0};
    for (int r = 0; r < ranks; r++)
        bytes += records_bytes(&by_rank[r]);
    wholes->names = tutti__alloc(bytes + 8);
    if (!wholes->names)
        return TUTTI_ERR_MEMORY;
    for (int r = 0; r < ranks; r++) {
        pack(&by_rank[r], r, wholes->names + at);
        at += records_bytes(&by_rank[r]);
    }
    return make_table(wholes, bytes, NULL);
}

void tutti__wholes_free(tutti__wholes *wholes)
{
    free(wholes->p);
    free(wholes->held);
    free(wholes->names);
    *wholes = (tutti__wholes){.n = 0};
}

/* ---- Which rank a tensor is given to ------------------------------------------------------------------------- */

/* Elements of it that the rank holds. */
static size_t held_by(const tutti__wholes *wholes, const tutti__whole *w, int rank)
{
    size_t n = 0;

    for (size_t k = w->first; k < w->first + w->n; k++)
        if (wholes->held[k].rank == rank)
            n += wholes->held[k].end - wholes->held[k].begin;
    return n;
}

bool tutti__wholes_are_of(const tutti__wholes *wholes, int rank)
{
    for (size_t i = 0; i < wholes->n; i++)
        if (held_by(wholes, &wholes->p[i], rank) < (size_t)tutti_shape_count(wholes->p[i].shape))
            return false;
    return true;
}

static int by_size(const void *a, const void *b)
{
    const tutti__whole *x = *(tutti__whole *const *)a, *y = *(tutti__whole *const *)b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x < y ? -1 : x > y;
}

/* Of the ranks that may, and are not above the limit: one that holds at least nine tenths of what any of them holds, with the least
 * load. -1: none. */
static int choose(const size_t *held, const bool *may, const uint64_t *load, uint64_t limit,
                  bool small, int n)
{
    size_t most = 0;
    int best = -1;

    for (int r = 0; r < n; r++)
        if (may[r] && load[r] <= limit && held[r] > most)
            most = held[r];
    for (int r = 0; r < n; r++)
        if (may[r] && load[r] <= limit && held[r] >= most - most / 10 &&
            (best < 0 || (!small && load[r] < load[best])))
            best = r;
    return best;
}

tutti_status tutti__wholes_assign(const tutti__wholes *wholes, const bool *may, uint64_t *load,
                                  int n)
{
    tutti__whole **sorted = tutti__alloc((wholes->n + 1) * sizeof *sorted);
    size_t *held = tutti__alloc((size_t)n * sizeof *held);
    uint64_t total = 0, able = 0;
    tutti_status status = sorted && held ? TUTTI_OK : TUTTI_ERR_MEMORY;

    for (int r = 0; r < n; r++) {
        able += may[r];
        total += load[r];
    }
    if (able == 0 && status == TUTTI_OK)
        status = tutti__fail(TUTTI_ERR_ARG, "no rank may take a tensor");
    for (size_t i = 0; i < wholes->n && status == TUTTI_OK; i++) {
        total += wholes->p[i].bytes;
        sorted[i] = &wholes->p[i];
    }
    if (status == TUTTI_OK && wholes->n > 0)
        qsort(sorted, wholes->n, sizeof *sorted, by_size);
    for (size_t i = 0; i < wholes->n && status == TUTTI_OK; i++) {
        tutti__whole *w = sorted[i];
        const bool small = w->bytes < SMALL_BYTES;
        const uint64_t part = total / able + total / able / 4;

        memset(held, 0, (size_t)n * sizeof *held);
        for (size_t k = w->first; k < w->first + w->n; k++)
            held[wholes->held[k].rank] += wholes->held[k].end - wholes->held[k].begin;
        w->rank = choose(held, may, load,
                         small             ? UINT64_MAX
                         : part > w->bytes ? part - w->bytes
                                           : 0,
                         small, n);
        if (w->rank < 0) {
            memset(held, 0, (size_t)n * sizeof *held);
            w->rank = choose(held, may, load, UINT64_MAX, false, n);
        }
        load[w->rank] += w->bytes;
    }
    free(sorted);
    free(held);
    return status;
}
