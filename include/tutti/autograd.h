/* autograd.h -- backward over the tape, and its listener.
 * SPDX-License-Identifier: MIT
 *
 * Creation order of the tape's nodes is topological order, so backward is one reverse scan. Each node that reads a
 * parameter counted one use of it; the scan takes the uses back, and at zero the parameter's gradient is final and
 * the listener is called, once. Parameters without uses are known before the scan starts.
 * Limits: one backward per step (add the losses first); no gradient of a gradient.
 * Threads: the context's thread. */
#ifndef TUTTI_AUTOGRAD_H
#define TUTTI_AUTOGRAD_H

#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Computes the gradient of the scalar `loss` with respect to every parameter that it used. A parameter's first
 * contribution since zero_grad overwrites, later ones add.
 * Errors: the first cause if loss is poisoned; STATE outside a training step or the second time in one; what a
 * listener reports (PEER, TIMEOUT, ...). */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_backward(tutti_tensor *loss);

/* y = fn(inputs, arg), whose inner results are not kept for backward but computed again there: less memory, for the time of about
 * one more forward of the block. All bits are as without: fn runs once, and what backward repeats are its operations, with the same
 * random numbers, dtypes and batch statistics; running statistics and forward hooks do not see the repetition. inputs: not NULL.
 * What fn makes, except y, is a STATE error to read after it returns; so is what an operation of one's own computes from other than
 * its sources and attributes. Within another block or without a tape it is fn(inputs, arg). NULL, with the message set, without
 * inputs. For modules: tutti_module_set_recompute (nn.h). */
TUTTI_API tutti_tensor *tutti_recompute(tutti_tensor *(*fn)(tutti_tensor *const *inputs, void *arg),
                                        void *arg, tutti_tensor *const *inputs, int n_inputs);

/* One listener per context (DDP is one). Any function may be NULL. */
typedef struct tutti_backward_listener {
    void *self;
    /* In tutti_step_begin of a training step. A failure poisons the step's results. */
    tutti_status (*step_begin)(void *self);
    /* Before the scan. `order`: the parameters that the loss depends on, in the order in which their gradients will be
     * final. A failure stops backward before anything is computed. */
    tutti_status (*begin)(void *self, tutti_tensor *const *order, size_t n_order);
    /* The gradient of a parameter of `order` is final; once for each. */
    void (*ready)(void *self, tutti_tensor *parameter);
    /* At the end of every backward, also after a failure (status and tutti_last_error() then hold the cause: a poisoned loss,
     * begin, the scan). Its result is tutti_backward's, unless status was already a failure. Not called for STATE:
     * outside a training step, or the second backward in one. */
    tutti_status (*end)(void *self, tutti_status status);
    uint64_t reserved[4]; /* zero */
} tutti_backward_listener;

/* NULL removes it. STATE if there is one already. */
TUTTI_API TUTTI_NODISCARD tutti_status
tutti_ctx_set_backward_listener(tutti_ctx *cx, const tutti_backward_listener *listener);

/* Compares backward with central differences: `build` makes a scalar loss from the inputs; each input is copied,
 * perturbed by eps element by element (at most max_elements of each, spread evenly), and the largest
 * |analytic - numeric| / max(1, |analytic|, |numeric|) is returned. Runs its own steps. */
typedef struct tutti_gradient_check_opts {
    double eps;           /* default 1e-3 */
    int max_elements;     /* of each input; default 64 */
    uint64_t reserved[4]; /* zero */
} tutti_gradient_check_opts;
TUTTI_API TUTTI_NODISCARD tutti_status
tutti_gradient_check(tutti_ctx *cx, tutti_tensor *(*build)(tutti_tensor *const *inputs, void *arg),
                     void *arg, const tutti_array *inputs, int n_inputs,
                     const tutti_gradient_check_opts *opts, double *error_p);

#ifdef __cplusplus
}
#endif
#endif
