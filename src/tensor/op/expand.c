/* expand.c -- dimensions of size 1, and missing leading ones, repeated.   SPDX-License-Identifier: MIT
 * Elementwise: the source is broadcast to the result, and its gradient summed, as for every such operation. */
#include "tensor/op/elementwise.h"

static tutti_status expand_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const tutti_shape *wanted = p->attributes;
    tutti_shape x;
    bool fits;

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32));
    x = p->sources[0]->shape;
    fits = wanted->n >= x.n && wanted->n <= TUTTI_MAX_DIMS;
    *y = *wanted;
    for (int i = 0; fits && i < y->n; i++) {
        const int k = i - (y->n - x.n);
        const int64_t size = k < 0 ? 1 : x.d[k];

        if (y->d[i] == -1 && k >= 0)
            y->d[i] = size;
        fits = y->d[i] >= (i > 0) && (size == 1 || size == y->d[i]);
    }
    if (!fits)
        return tutti__fail(TUTTI_ERR_ARG,
                           "x is %s, which cannot be expanded to %s: from the last dimension on, "
                           "sizes of x must be 1 or equal (-1 keeps one)",
                           tutti__shape_text(x), tutti__shape_text(*wanted));
    return TUTTI_OK;
}

tutti_tensor *tutti_expand(tutti_tensor *x, tutti_shape shape)
{
    static const tutti__op op =
        TUTTI__ELEMENTWISE("expand", expand, .shape = expand_shape, .activations = 1);

    return tutti__op_run(&op, &x, 1, &shape, sizeof shape);
}
