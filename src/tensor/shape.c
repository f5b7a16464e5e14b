/* shape.c -- shapes: counting, comparing, printing.   SPDX-License-Identifier: MIT */
#include "tensor/tensor.h"

#include <stdio.h>

int64_t tutti_shape_count(tutti_shape shape)
{
    int64_t count = 1;

    for (int i = 0; i < shape.n; i++)
        count *= shape.d[i];
    return count;
}

bool tutti_shape_equal(tutti_shape a, tutti_shape b)
{
    if (a.n != b.n)
        return false;
    for (int i = 0; i < a.n; i++)
        if (a.d[i] != b.d[i])
            return false;
    return true;
}

tutti_status tutti__shape_check(tutti_shape shape)
{
    int64_t bytes = sizeof(double);

    for (int i = 0; i < shape.n; i++)
        if (__builtin_mul_overflow(bytes, shape.d[i], &bytes))
            return tutti__fail(TUTTI_ERR_MEMORY, "a tensor of %s does not fit into any memory",
                               tutti__shape_text(shape));
    return TUTTI_OK;
}

const char *tutti__shape_text(tutti_shape shape)
{
    static _Thread_local char texts[8][TUTTI_MAX_DIMS * 21 + 3];
    static _Thread_local unsigned next;
    char *text = texts[next++ % 8];
    size_t at = 0;

    for (int i = 0; i < shape.n && i < TUTTI_MAX_DIMS; i++)
        at += (size_t)snprintf(text + at, sizeof texts[0] - at, "%c%lld", i ? ',' : '[',
                               (long long)shape.d[i]);
    snprintf(text + at, sizeof texts[0] - at, at ? "]" : "[]");
    return text;
}
