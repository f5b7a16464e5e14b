/* normalize.c -- x / max(norm, eps), the norm over one dimension.   SPDX-License-Identifier: MIT */
#include "tensor/op/elementwise.h"

static tutti_status shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    *y = p->sources[0]->shape;
    return tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32);
}

tutti_tensor *tutti_normalize(tutti_tensor *x, float p, int dim, float eps)
{
    static const tutti__op op = TUTTI__ELEMENTWISE("normalize", normalize, .shape = shape,
                                                   .activations = 3, .autocast = TUTTI_OP_WIDEST);
    const float least = (float)tutti__or((double)eps, 1e-12);

    return tutti__op_run(&op, (tutti_tensor *[]){x, tutti_vector_norm(x, p, TUTTI_DIMS(dim), true)},
                         2, &(tutti__constants){least, 0}, sizeof(tutti__constants));
}
