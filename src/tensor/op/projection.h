/* projection.h -- a linear operation whose weight is stored transposed, as Hugging Face's Conv1D has it.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_OP_PROJECTION_H
#define TUTTI_TENSOR_OP_PROJECTION_H

#include "tensor/op.h"

/* x [..,K], weight [K,M], bias [M] or NULL -> x weight + bias [..,M] */
tutti_tensor *tutti__projection_of(tutti_tensor *x, tutti_tensor *weight, tutti_tensor *bias);

#endif
