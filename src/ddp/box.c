/* box.c -- which part of a whole tensor a rank's tensor is.   SPDX-License-Identifier: MIT
 *
 * The divided dimension is `parts` equal parts, of each of which the box has a chunk (torch.chunk's sizes):
 *
 *     whole   [before, parts, length, after]        one run of the box for each (before, part):
 *     box     [before, parts, own,    after]        own * after elements that are neighbours in both */
#include "ddp/pieces.h"

#include <string.h>

typedef struct runs {
    size_t run;    /* elements of a run */
    size_t stride; /* from run to run in the whole tensor */
    size_t base;   /* of the first */
    size_t n;
} runs;

static runs runs_of(const tutti__tensor_box *box, tutti_shape whole)
{
    size_t before = 1, after = 1, length, chunk, first, end;

    if (box->count == 0)
        return (runs){(size_t)tutti_shape_count(whole), 0, 0, 1};
    for (int d = 0; d < box->dim; d++)
        before *= (size_t)whole.d[d];
    for (int d = box->dim + 1; d < whole.n; d++)
        after *= (size_t)whole.d[d];
    length = (size_t)whole.d[box->dim] / (size_t)box->parts;
    chunk = (length + (size_t)box->count - 1) / (size_t)box->count;
    first = (size_t)box->index * chunk < length ? (size_t)box->index * chunk : length;
    end = first + chunk < length ? first + chunk : length;
    return (runs){(end - first) * after, length * after, first * after,
                  before * (size_t)box->parts};
}

size_t tutti__box_count(const tutti__tensor_box *box, tutti_shape whole)
{
    const runs r = runs_of(box, whole);

    return r.run * r.n;
}

bool tutti__box_is_one_run(const tutti__tensor_box *box, tutti_shape whole, size_t *first_p)
{
    const runs r = runs_of(box, whole);

    *first_p = r.base;
    return r.n == 1;
}

static void copy(const tutti__tensor_box *box, tutti_shape whole, size_t each, size_t begin,
                 size_t end, char *of_whole, char *piece, bool put)
{
    const runs r = runs_of(box, whole);

    for (size_t at = begin; at < end;) {
        const size_t k = at / r.run, rest = (k + 1) * r.run - at,
                     n = rest < end - at ? rest : end - at;
        char *there = of_whole + (k * r.stride + r.base + at % r.run) * each;
        char *here = piece + (at - begin) * each;

        memcpy(put ? there : here, put ? here : there, n * each);
        at += n;
    }
}

void tutti__box_pick(const tutti__tensor_box *box, tutti_shape whole, size_t each, size_t begin,
                     size_t end, const char *from, char *piece)
{
    copy(box, whole, each, begin, end, (char *)(uintptr_t)from, piece, false);
}

void tutti__box_put(const tutti__tensor_box *box, tutti_shape whole, size_t each, size_t begin,
                    size_t end, char *to, const char *piece)
{
    copy(box, whole, each, begin, end, to, (char *)(uintptr_t)piece, true);
}
