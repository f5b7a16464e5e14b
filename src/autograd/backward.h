/* backward.h -- backward of a part of a model, and in two parts.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_AUTOGRAD_BACKWARD_H
#define TUTTI_AUTOGRAD_BACKWARD_H

#include "tensor/op.h"

/* tutti_backward from any tensor y with its gradient dy (NULL: y is a loss). What tutti__backward_weights computes is left out: the
 * gradients of parameters that are `apart`, and with weights_later those of the products whose parameters nothing else on the tape reads.
 * The listener's end, then, does not mean that all gradients are final. */
tutti_status tutti__backward_from(tutti_tensor *y, tutti_tensor *dy, bool weights_later);
/* The rest, in the same step: of the parameters that are apart, or of the others. */
tutti_status tutti__backward_weights(tutti_ctx *cx, bool apart);
/* The node that reads the parameter, after a backward that has left it out; its dst->grad is the gradient of the result. NULL: none. */
tutti__node *tutti__backward_apart(const tutti_ctx *cx, const tutti_tensor *parameter);

#endif
