/* formula.h -- what kernels can compute: the rows of op/elementwise.def, and folds over dimensions.   SPDX-License-Identifier: MIT */
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

/* What is computed of the elements v that are folded into one, in double, g being a number given for each result. */
typedef enum tutti__fold_kind {
    TUTTI__FOLD_SUM,     /* sum v / divisor */
    TUTTI__FOLD_SQUARES, /* sum (v - g)^2 / divisor */
    TUTTI__FOLD_EXPS,    /* g + log sum exp(v - g); g if that is infinite */
    TUTTI__FOLD_MAX,     /* NaN if there is one */
    TUTTI__FOLD_MIN,
    TUTTI__FOLD_PRODUCT,
    TUTTI__FOLD_COUNT,       /* of those that are not 0 */
    TUTTI__FOLD_MAGNITUDES,  /* sum |v| */
    TUTTI__FOLD_POWERS,      /* (sum |v|^power)^(1 / power) */
    TUTTI__FOLD_LARGEST,     /* of |v|; NaN if there is one */
    TUTTI__FOLD_SMALLEST,    /* of |v| */
    TUTTI__FOLD_EQUAL,       /* how many v == g */
    TUTTI__FOLD_EQUAL_SIZES, /* how many |v| == g */
    TUTTI__FOLD_FIRST,       /* the number of the first v that is g or NaN */
} tutti__fold_kind;

#endif
