/* elementwise.h -- operations of elementwise.def: their loops on the host, and how one is declared.   SPDX-License-Identifier: MIT
 *
 *     static const tutti__op op = TUTTI__ELEMENTWISE("mul", mul, .activations = 3, .autocast = TUTTI_OP_WIDEST); */
#ifndef TUTTI_TENSOR_OP_ELEMENTWISE_H
#define TUTTI_TENSOR_OP_ELEMENTWISE_H

#include "tensor/op.h"

enum {
#define ROW(name, sources, reads, ...)     TUTTI__READS_##name = (reads),
#define OWN_ROW(name, sources, reads, ...) ROW(name, sources, reads)
#include "tensor/op/elementwise.def"
#undef ROW
#undef OWN_ROW
};

#define ROW(name, ...)                                                                             \
    void tutti__##name##_forward(const tutti_op_args *p);                                          \
    void tutti__##name##_backward(const tutti_op_args *p);
#define OWN_ROW(...)
#include "tensor/op/elementwise.def"
#undef ROW
#undef OWN_ROW

/* The attributes of a row that reads k0 and k1. */
typedef struct tutti__constants {
    float k0, k1;
} tutti__constants;

/* An operation called `called` with the arithmetic of a ROW; members of tutti_op follow. */
#define TUTTI__ELEMENTWISE(called, row, ...)                                                       \
    {                                                                                              \
        .plain = {.name = called,                                                                  \
                  .forward = tutti__##row##_forward,                                               \
                  .backward = tutti__##row##_backward,                                             \
                  .elementwise = true,                                                             \
                  .backward_reads = TUTTI__READS_##row,                                            \
                  __VA_ARGS__},                                                                    \
        .formula = TUTTI__FORMULA_##row                                                            \
    }

#endif
