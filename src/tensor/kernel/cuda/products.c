/* products.c -- a context's handle for cuDNN and cuBLASLt, and their workspace.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/cuda/glue.h"

#include <stdlib.h>

/* cuDNN's and cuBLASLt's requirement for a workspace; device.h guarantees less. */
#define WORKSPACE_ALIGNMENT 256

/* products_state */
typedef struct products {
    void *handle;
    void *staging;
    size_t staging_bytes;
} products;

static products *products_of(const tutti_ctx *cx)
{
    return tutti__cuda_state_of(cx)->products_state;
}

void *tutti__cuda_products_handle(const tutti_ctx *cx)
{
    return products_of(cx)->handle;
}

static void *workspace(void *arg, size_t bytes)
{
    void *p;

    if (tutti__cuda_scratch(arg, bytes + WORKSPACE_ALIGNMENT, &p) != TUTTI_OK)
        return NULL;
    return (char *)p +
           (WORKSPACE_ALIGNMENT - (uintptr_t)p % WORKSPACE_ALIGNMENT) % WORKSPACE_ALIGNMENT;
}

tutti_status tutti__cuda_products_open(tutti_ctx *cx)
{
    tutti__cuda_state *s = tutti__cuda_state_of(cx);
    tutti__cuda_products_options o = {
        .device = s->device, .stream = s->stream, .workspace = workspace, .arg = cx};
    tutti_status status;

    o.deterministic = !cx->nondeterministic;
    o.tf32 = cx->tf32;
    s->products_state = tutti__alloc(sizeof(products));
    if (!s->products_state)
        return TUTTI_ERR_MEMORY;
    status = s->products->open(&o, &products_of(cx)->handle);
    return tutti__cuda_check(cx, status, "making a handle for convolutions and matrix products");
}

void tutti__cuda_products_close(tutti_ctx *cx)
{
    tutti__cuda_state *s = tutti__cuda_state_of(cx);
    products *p = s->products_state;

    if (!p)
        return;
    s->products->close(p->handle);
    cx->device_ops->free(cx->device, p->staging);
    free(p);
    s->products_state = NULL;
}

tutti_status tutti__cuda_staging(tutti_ctx *cx, size_t bytes, void **p)
{
    products *state = products_of(cx);

    if (bytes > state->staging_bytes) {
        void *more = cx->device_ops->alloc(cx->device, bytes, false);

        if (!more)
            return TUTTI_ERR_MEMORY;
        cx->device_ops->free(cx->device, state->staging);
        state->staging = more;
        state->staging_bytes = bytes;
        cx->kernel_allocations++;
    }
    *p = state->staging;
    return TUTTI_OK;
}

tutti_status tutti__cuda_sum_of_nothing(tutti_tensor *dst)
{
    if (!dst || dst->accumulate)
        return TUTTI_OK;
    return dst->cx->device_ops->zero(dst->cx->stream, dst->data, tutti__tensor_bytes(dst));
}

tutti_status tutti__cuda_add_bias(tutti_tensor *y, tutti_tensor *b)
{
    TUTTI__CUDA(y->cx, own, add_bias, y->dtype, y->data, b->data, tutti_shape_count(y->shape),
                b->shape.d[0]);
    return TUTTI_OK;
}
