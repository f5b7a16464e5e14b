/* gradient_check.c -- backward against central differences.   SPDX-License-Identifier: MIT
 *
 * The inputs are copied; one recorded step gives the analytic gradients, then two steps without
 * tape per element give the numeric ones. All of them count as the same training step, so that
 * dropout draws the same mask. */
#include "tensor/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_INPUTS 16

typedef struct check {
    tutti_ctx *cx;
    tutti_tensor *(*build)(tutti_tensor *const *inputs, void *arg);
    void *arg;
    int n_inputs;
    tutti_array inputs[MAX_INPUTS]; /* over `values` */
    float *values[MAX_INPUTS];      /* copies; F32 inputs only */
    float *grads[MAX_INPUTS];
    uint64_t step;
} check;

static void check_free(check *c)
{
    for (int i = 0; i < c->n_inputs; i++) {
        free(c->values[i]);
        free(c->grads[i]);
    }
}

static tutti_status copy_inputs(check *c)
{
    for (int i = 0; i < c->n_inputs; i++) {
        size_t bytes = (size_t)tutti_shape_count(c->inputs[i].shape) * sizeof(float);

        if (c->inputs[i].dtype != TUTTI_F32)
            continue;
        c->values[i] = tutti__alloc(bytes);
        c->grads[i] = tutti__alloc(bytes);
        if (!c->values[i] || !c->grads[i])
            return TUTTI_ERR_MEMORY;
        memcpy(c->values[i], c->inputs[i].p, bytes);
        c->inputs[i].p = c->values[i];
    }
    return TUTTI_OK;
}

/* Builds the loss in the current step. */
static tutti_tensor *build(const check *c, tutti_tensor **inputs)
{
    for (int i = 0; i < c->n_inputs; i++)
        inputs[i] = c->values[i] ? tutti_input_with_grad(c->cx, c->inputs[i])
                                 : tutti_input(c->cx, c->inputs[i]);
    return c->build(inputs, c->arg);
}

static tutti_status analytic(check *c)
{
    tutti_tensor *inputs[MAX_INPUTS];
    tutti_status status;

    tutti_ctx_set_step(c->cx, c->step);
    tutti_step_begin(c->cx, NULL);
    status = tutti_backward(build(c, inputs));
    for (int i = 0; i < c->n_inputs && status == TUTTI_OK; i++) {
        if (c->values[i] && tutti_tensor_grad(inputs[i]))
            status = tutti_tensor_grad_read(inputs[i], c->grads[i]);
    }
    tutti_step_end(c->cx);
    return status;
}

static tutti_status loss_of(const check *c, double *loss_p)
{
    tutti_tensor *inputs[MAX_INPUTS], *loss;
    tutti_status status;

    tutti_step_begin(c->cx, &(tutti_step_opts){.no_grad = true});
    loss = build(c, inputs);
    status = tutti_tensor_status(loss);
    *loss_p = (double)tutti_item(loss);
    tutti_step_end(c->cx);
    return status;
}

/* The largest error among elements of input i. */
static tutti_status compare(const check *c, int i, const tutti_gradient_check_opts *opts,
                            double *error_p)
{
    int64_t count = tutti_shape_count(c->inputs[i].shape);
    int64_t tries = count < opts->max_elements ? count : opts->max_elements;

    for (int64_t k = 0; k < tries; k++) {
        int64_t at = k * count / tries;
        float *element = &c->values[i][at], value = *element;
        float above = value + (float)opts->eps, below = value - (float)opts->eps;
        double loss_above, loss_below, a, b, scale, error;

        *element = above;
        TUTTI_TRY(loss_of(c, &loss_above));
        *element = below;
        TUTTI_TRY(loss_of(c, &loss_below));
        *element = value;
        a = (double)c->grads[i][at];
        b = (loss_above - loss_below) / ((double)above - (double)below);
        scale = fmax(1, fmax(fabs(a), fabs(b)));
        error = fabs(a - b) / scale;
        if (*error_p == *error_p && !(error <= *error_p)) /* NaN counts as the largest */
            *error_p = error;
    }
    return TUTTI_OK;
}

static tutti_status run(check *c, const tutti_gradient_check_opts *opts, double *error_p)
{
    TUTTI_TRY(copy_inputs(c));
    TUTTI_TRY(analytic(c));
    for (int i = 0; i < c->n_inputs; i++)
        if (c->values[i])
            TUTTI_TRY(compare(c, i, opts, error_p));
    return TUTTI_OK;
}

tutti_status tutti_gradient_check(
    tutti_ctx *cx, tutti_tensor *(*build_loss)(tutti_tensor *const *inputs, void *arg), void *arg,
    const tutti_array *inputs, int n_inputs, const tutti_gradient_check_opts *opts, double *error_p)
{
    const tutti_gradient_check_opts chosen = {
        .eps = opts && tutti__or(opts->eps, 0) > 0 ? opts->eps : 1e-3,
        .max_elements = opts && opts->max_elements > 0 ? opts->max_elements : 64,
    };
    tutti_backward_listener listener;
    void (*ready_but_rows)(void *self, tutti_tensor *parameter);
    check c = {.cx = cx,
               .build = build_loss,
               .arg = arg,
               .n_inputs = n_inputs,
               .step = tutti_ctx_step(cx)};
    tutti_status status;

    TUTTI_TRY(TUTTI__NOT_NULL(cx));
    listener = cx->listener;
    ready_but_rows = cx->ready_but_rows;
    *error_p = 0;
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_gradient_check_opts, opts));
    if (n_inputs < 1 || n_inputs > MAX_INPUTS)
        return tutti__fail(TUTTI_ERR_ARG, "tutti_gradient_check: %d inputs, expected 1 to %d",
                           n_inputs, MAX_INPUTS);
    if (cx->in_step)
        return tutti__fail(
            TUTTI_ERR_STATE,
            "tutti_gradient_check: a step is open; it runs its own, end yours first");
    memcpy(c.inputs, inputs, (size_t)n_inputs * sizeof *inputs);
    /* the steps of the check must not reach the listener */
    cx->listener = (tutti_backward_listener){0};
    cx->ready_but_rows = NULL;
    status = run(&c, &chosen, error_p);
    cx->listener = listener;
    cx->ready_but_rows = ready_but_rows;
    tutti_ctx_set_step(cx, c.step);
    check_free(&c);
    return status;
}
