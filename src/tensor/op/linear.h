/* linear.h -- what the linear operation shares with those that contain it.   SPDX-License-Identifier: MIT
 *   x [..,K]   weight [M,K]   bias [M] or NULL: sources 0 to 2 */
#ifndef TUTTI_TENSOR_OP_LINEAR_H
#define TUTTI_TENSOR_OP_LINEAR_H

#include "tensor/op.h"

tutti_status tutti__linear_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype);
/* to, without data, = x weight^T + bias */
tutti_status tutti__linear_into(tutti_tensor *to, tutti_tensor *x, tutti_tensor *weight,
                                tutti_tensor *bias);
tutti_status tutti__linear_backward(tutti__node *n);
double tutti__linear_flops(const tutti__node *n);

#endif
