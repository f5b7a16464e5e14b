/* plain_attention.h -- attention in plain C, over F32 in host memory.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_OP_PLAIN_ATTENTION_H
#define TUTTI_TENSOR_OP_PLAIN_ATTENTION_H

#include "tensor/attention.h"
#include "tensor/op.h"

void tutti__plain_attention_forward(const tutti_op_args *p, const tutti__attention *c);
/* dmask: the gradient of the mask is added to it; NULL: not wanted */
void tutti__plain_attention_backward(const tutti_op_args *p, const tutti__attention *c,
                                     float *dmask);

#endif
