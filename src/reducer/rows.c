/* rows.c -- reduces a sparse gradient: only rows that some rank touched are sent.   SPDX-License-Identifier: MIT
 *
 *     rank 0: rows 3, 7        all_gather of counts, then of indices and values,      every rank adds them up
 *     rank 1: row 7            each list padded to the longest                         in rank order, and divides
 *
 * The sum has the bits of the dense one, because rows that a rank did not touch are zero. */
#include "reducer/internal.h"

#include <stdlib.h>
#include <string.h>

/* All ranks' lists, `most` places each, back to back. */
typedef struct lists {
    int64_t *n, *rows;
    float *values;
    size_t most, width;
    int rank, size;
} lists;

static void lists_free(lists *l)
{
    free(l->n);
    free(l->rows);
    free(l->values);
}

static tutti_status gather_counts(tutti_group *group, const tutti__gradient *g, lists *l)
{
    l->n = tutti__alloc((size_t)l->size * sizeof *l->n);
    if (!l->n)
        return TUTTI_ERR_MEMORY;
    for (size_t row = 0; row < g->rows; row++)
        l->n[l->rank] += g->touched[row];
    TUTTI_TRY(tutti_all_gather(group, TUTTI_CONST_BUF(&l->n[l->rank], 1, TUTTI_I64),
                               TUTTI_BUF(l->n, (size_t)l->size, TUTTI_I64), NULL));
    for (int r = 0; r < l->size; r++)
        l->most = (size_t)l->n[r] > l->most ? (size_t)l->n[r] : l->most;
    return TUTTI_OK;
}

static tutti_status gather_rows(tutti_group *group, const tutti__gradient *g, const float *values,
                                lists *l)
{
    size_t at = (size_t)l->rank * l->most, all = (size_t)l->size * l->most, w = l->width;

    l->rows = tutti__alloc((all + 1) * sizeof *l->rows);
    l->values = tutti__alloc((all * w + 1) * sizeof *l->values);
    if (!l->rows || !l->values)
        return TUTTI_ERR_MEMORY;
    for (size_t row = 0, k = at; row < g->rows; row++)
        if (g->touched[row]) {
            l->rows[k] = (int64_t)row;
            memcpy(l->values + k * w, values + row * w, w * sizeof *values);
            k++;
        }
    TUTTI_TRY(tutti_all_gather(group, TUTTI_CONST_BUF(l->rows + at, l->most, TUTTI_I64),
                               TUTTI_BUF(l->rows, all, TUTTI_I64), NULL));
    return tutti_all_gather(group, TUTTI_CONST_BUF(l->values + at * w, l->most * w, TUTTI_F32),
                            TUTTI_BUF(l->values, all * w, TUTTI_F32), NULL);
}

static void add_up(const lists *l, tutti__gradient *g, float *values)
{
    size_t w = l->width;

    for (size_t row = 0; row < g->rows; row++)
        if (g->touched[row])
            memset(values + row * w, 0, w * sizeof *values);
    for (int r = 0; r < l->size; r++)
        for (size_t k = 0; k < (size_t)l->n[r]; k++) {
            size_t from = (size_t)r * l->most + k, row = (size_t)l->rows[from];

            g->touched[row] = 1;
            for (size_t i = 0; i < w; i++)
                values[row * w + i] += l->values[from * w + i];
        }
    for (size_t row = 0; row < g->rows; row++)
        for (size_t i = 0; g->touched[row] && i < w; i++)
            values[row * w + i] /= (float)l->size;
}

static tutti_status reduce(tutti_group *group, tutti__gradient *g, float *values, lists *l)
{
    TUTTI_TRY(gather_counts(group, g, l));
    if (l->most == 0)
        return TUTTI_OK;
    TUTTI_TRY(gather_rows(group, g, values, l));
    add_up(l, g, values);
    return TUTTI_OK;
}

tutti_status tutti__reduce_rows(tutti_group *group, tutti__gradient *g, tutti_buf values)
{
    lists l = {.width = g->count / g->rows,
               .rank = tutti_group_rank(group),
               .size = tutti_group_size(group)};
    size_t bytes = g->count * sizeof(float);
    float *here = values.stream ? tutti__alloc_unset(bytes) : values.p;
    tutti_status status = here ? TUTTI_OK : TUTTI_ERR_MEMORY;

    if (status == TUTTI_OK && values.stream)
        status = tutti__read(values.stream, here, values.p, bytes);
    if (status == TUTTI_OK)
        status = reduce(group, g, here, &l);
    if (status == TUTTI_OK && values.stream)
        status = tutti__copy_in(values.stream, values.p, here, bytes);
    if (values.stream)
        free(here);
    lists_free(&l);
    return status;
}
