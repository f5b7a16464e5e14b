/* declared_rows.h -- `rows`: every operation of tensor/op/ops.def.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_OP_DECLARED_ROWS_H
#define TUTTI_TESTS_OP_DECLARED_ROWS_H

#include "op/rows.h"

#define UNIFORM(...)                                                                               \
    {                                                                                              \
        UNIFORM, S(__VA_ARGS__), false                                                             \
    }
#define APART(...)                                                                                 \
    {                                                                                              \
        APART, S(__VA_ARGS__), false                                                               \
    }
#define POSITIVE(...)                                                                              \
    {                                                                                              \
        POSITIVE, S(__VA_ARGS__), false                                                            \
    }
#define WEIGHT(...)                                                                                \
    {                                                                                              \
        UNIFORM, S(__VA_ARGS__), true                                                              \
    }
#define LABELS(...)                                                                                \
    {                                                                                              \
        LABELS, S(__VA_ARGS__), false                                                              \
    }

#define OP(name, call, ...) BUILD(build_##name, call)
#include "tensor/op/ops.def"
#undef OP

static const row rows[] = {
#define OP(name, call, ...) {#name, build_##name, .in = {__VA_ARGS__}},
#include "tensor/op/ops.def"
#undef OP
};

#endif
