/* parameter.h -- a parameter or buffer without a module, for tests of the tape.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_OP_PARAMETER_H
#define TUTTI_TESTS_OP_PARAMETER_H

#include "harness/memory.h"
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

/* For t's elements. */
static inline void *element_memory(const tutti_tensor *t)
{
    void *p = t->cx->device_ops->alloc(t->cx->device, tutti__tensor_bytes(t) + 1, true);

    test_must(p ? TUTTI_OK : TUTTI_ERR_MEMORY);
    return p;
}

static inline void element_free(const tutti_tensor *t, void *p)
{
    t->cx->device_ops->free(t->cx->device, p);
}

static inline tutti_status test_prepare(void *owner)
{
    test_parameter *parameter = owner;
    float *values = test_keep(tutti__tensor_bytes(parameter->t));

    parameter->prepared++;
    parameter->p.grad = element_memory(parameter->t);
    memset(values, 0x7f, tutti__tensor_bytes(parameter->t)); /* must be overwritten */
    test_grad_put(parameter->t, values);
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
    t->data = element_memory(t);
    t->needs_grad = true;
    t->parameter = &parameter->p;
    t->name = parameter->p.name;
    test_must(tutti_tensor_write(t, values));
    return t;
}

static inline void test_parameter_free(test_parameter *parameter)
{
    element_free(parameter->t, parameter->t->data);
    element_free(parameter->t, parameter->p.grad);
    free(parameter->t);
}

static inline tutti_tensor *test_buffer_new(tutti_ctx *cx, tutti_shape shape, float value)
{
    tutti_tensor *t = tutti__tensor_persistent(cx, shape, TUTTI_F32);
    float *values = test_keep(tutti__tensor_bytes(t));

    t->data = element_memory(t);
    for (int64_t i = 0; i < tutti_shape_count(shape); i++)
        values[i] = value;
    test_must(tutti_tensor_write(t, values));
    return t;
}

static inline void test_buffer_free(tutti_tensor *t)
{
    element_free(t, t->data);
    free(t);
}

#endif
