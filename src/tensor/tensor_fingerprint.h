/* tensor_fingerprint.h -- the fingerprint of a tensor, wherever its elements are.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_TENSOR_FINGERPRINT_H
#define TUTTI_TENSOR_TENSOR_FINGERPRINT_H

#include "device/fingerprint.h"
#include "tensor/tensor.h"

/* Of its row-major elements, in its own dtype, which are stored only meanwhile: the step goes on as if nothing had read them. *known_p
 * false: logits that are not stored, and whose storing would cost more than the step (op/vocabulary_logits.h). */
tutti_status tutti__tensor_fingerprint(tutti__fingerprint *f, tutti_tensor *t, bool *known_p);

#endif
