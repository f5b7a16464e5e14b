/* parameter.h -- a parameter or buffer without a module, for tests of the tape.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_OP_PARAMETER_H
#define TUTTI_TESTS_OP_PARAMETER_H

#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct test_parameter {
    tutti_tensor *t;
    tutti__parameter p;
    uint64_t round; /* of zero_grad */
    int prepared;   /* calls of prepare */
} test_parameter;

static inline tutti_status test_prepare(void *owner)
{
    test_parameter *parameter = owner;

    parameter->prepared++;
    parameter->p.grad = tutti__alloc(tutti__tensor_bytes(parameter->t) + 1);
    memset(parameter->p.grad, 0x7f, tutti__tensor_bytes(parameter->t)); /* must be overwritten */
    return TUTTI_OK;
}

static inline tutti_tensor *test_parameter_init(test_parameter *parameter, tutti_ctx *cx,
                                                const char *name, tutti_shape shape,
                                                const float *values)
{
    tutti_tensor *t = tutti__tensor_persistent(cx, shape, TUTTI_F32);

    *parameter = (test_parameter){.t = t, .round = 1};
    snprintf(parameter->p.name, sizeof parameter->p.name, "%s", name);
    parameter->p.requires_grad = true;
    parameter->p.prepare = test_prepare;
    parameter->p.owner = parameter;
    parameter->p.round = &parameter->round;
    t->data = tutti__alloc(tutti__tensor_bytes(t));
    memcpy(t->data, values, tutti__tensor_bytes(t));
    t->needs_grad = true;
    t->parameter = &parameter->p;
    t->name = parameter->p.name;
    return t;
}

static inline void test_parameter_free(test_parameter *parameter)
{
    free(parameter->t->data);
    free(parameter->t);
    free(parameter->p.grad);
}

static inline tutti_tensor *test_buffer_new(tutti_ctx *cx, tutti_shape shape, float value)
{
    tutti_tensor *t = tutti__tensor_persistent(cx, shape, TUTTI_F32);

    t->data = tutti__alloc(tutti__tensor_bytes(t));
    for (int64_t i = 0; i < tutti_shape_count(shape); i++)
        ((float *)t->data)[i] = value;
    return t;
}

static inline void test_buffer_free(tutti_tensor *t)
{
    free(t->data);
    free(t);
}

#endif
