/* formula.h -- the numbers of the rows of op/elementwise.def, by which kernels know them.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_FORMULA_H
#define TUTTI_TENSOR_FORMULA_H

typedef enum tutti__formula {
    TUTTI__FORMULA_NONE,
#define ROW(name, ...)     TUTTI__FORMULA_##name,
#define OWN_ROW(name, ...) TUTTI__FORMULA_##name,
#include "tensor/op/elementwise.def"
#undef ROW
#undef OWN_ROW
} tutti__formula;

#endif
