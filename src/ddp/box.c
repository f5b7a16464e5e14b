/* box.c -- which part of a whole tensor a rank's tensor is.   SPDX-License-Identifier: MIT */
#include "ddp/pieces.h"

#include <string.h>

size_t tutti__box_count(const tutti__parameter_split *box, tutti_shape whole)
{
    const tutti__split_places r = tutti__split_find(box, whole);

    return (size_t)(r.run * r.n);
}

bool tutti__box_is_one_run(const tutti__parameter_split *box, tutti_shape whole, size_t *first_p)
{
    const tutti__split_places r = tutti__split_find(box, whole);

    *first_p = (size_t)r.first;
    return r.n == 1;
}

static void copy(const tutti__parameter_split *box, tutti_shape whole, size_t each, size_t begin,
                 size_t end, char *of_whole, char *piece, bool put)
{
    const tutti__split_places r = tutti__split_find(box, whole);
    const size_t run = (size_t)r.run;

    for (size_t at = begin; at < end;) {
        const size_t k = at / run, rest = (k + 1) * run - at, n = rest < end - at ? rest : end - at;
        char *there = of_whole + (k * (size_t)r.stride + (size_t)r.first + at % run) * each;
        char *here = piece + (at - begin) * each;

        memcpy(put ? there : here, put ? here : there, n * each);
        at += n;
    }
}

void tutti__box_pick(const tutti__parameter_split *box, tutti_shape whole, size_t each,
                     size_t begin, size_t end, const char *from, char *piece)
{
    copy(box, whole, each, begin, end, (char *)(uintptr_t)from, piece, false);
}

void tutti__box_put(const tutti__parameter_split *box, tutti_shape whole, size_t each, size_t begin,
                    size_t end, char *to, const char *piece)
{
    copy(box, whole, each, begin, end, to, (char *)(uintptr_t)piece, true);
}
