/* tensor.c -- making, reading and writing tensors; poisoned tensors.   SPDX-License-Identifier: MIT
 *
 * Memory of step tensors comes from the context's arena. Released memory is kept in a list for reuse: whole for the next
 * tensor of the same size, so that backward works in a few buffers that stay in the cache, else in pieces. */
#include "base/half.h"
#include "base/asan.h"
#include "tensor/kernel.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Memory ---------------------------------------------------------------------------------- */

void *tutti__step_alloc(tutti_ctx *cx, size_t bytes)
{
    return tutti__arena_alloc(&cx->arena, bytes);
}

/* Smaller memory has a separate arena, so that released large pieces are adjacent and can be joined. */
#define LARGE ((size_t)256 << 10)

void *tutti__step_memory(tutti_ctx *cx, size_t bytes)
{
    return tutti__arena_alloc(bytes < LARGE ? &cx->small : &cx->memory, bytes);
}

tutti_tensor *tutti__tensor_new(tutti_ctx *cx, tutti_shape shape, tutti_dtype dtype)
{
    tutti_tensor *t;

    if (tutti__shape_check(shape) != TUTTI_OK)
        return NULL;
    t = tutti__step_alloc(cx, sizeof *t);
    if (t)
        *t = (tutti_tensor){.cx = cx,
                            .shape = shape,
                            .dtype = dtype,
                            .name = "",
                            .serial = cx->serial,
                            .intermediate = cx->in_model};
    return t;
}

tutti_tensor *tutti__tensor_persistent(tutti_ctx *cx, tutti_shape shape, tutti_dtype dtype)
{
    tutti_tensor *t = tutti__alloc(sizeof *t);

    if (t)
        *t = (tutti_tensor){.cx = cx, .shape = shape, .dtype = dtype, .name = ""};
    return t;
}

size_t tutti__tensor_bytes(const tutti_tensor *t)
{
    return (size_t)tutti_shape_count(t->shape) * tutti_dtype_size(t->dtype);
}

/* Whole cache lines; at least one, so that no two tensors have the same address. */
static size_t whole_lines(size_t bytes)
{
    return bytes ? (bytes + 63) / 64 * 64 : 64;
}

static void spare_drop(tutti_ctx *cx, tutti__spare **link)
{
    tutti__spare *dropped = *link;

    *link = dropped->next;
    dropped->next = cx->spare_entries;
    cx->spare_entries = dropped;
}

/* The piece of that size released last, else, if large, the smallest larger one; NULL: none. */
static tutti__spare **spare_fit(tutti__spare **list, size_t bytes)
{
    tutti__spare **fit = NULL;

    for (tutti__spare **link = list; *link; link = &(*link)->next) {
        if ((*link)->bytes == bytes)
            return link;
        if (bytes >= LARGE && (*link)->bytes > bytes && (!fit || (*link)->bytes < (*fit)->bytes))
            fit = link;
    }
    return fit;
}

static tutti__spare *spare_merge(tutti__spare *a, tutti__spare *b)
{
    tutti__spare *all = NULL, **end = &all;

    while (a && b) {
        tutti__spare **least = (uintptr_t)a->data < (uintptr_t)b->data ? &a : &b;

        *end = *least;
        end = &(*end)->next;
        *least = *end;
    }
    *end = a ? a : b;
    return all;
}

/* Merge sort: run i has 2^i pieces, or none. */
static tutti__spare *spare_sort(tutti__spare *list)
{
    tutti__spare *runs[64] = {NULL}, *all = NULL;

    while (list) {
        tutti__spare *run = list;
        size_t i = 0;

        list = list->next;
        run->next = NULL;
        for (; runs[i]; runs[i++] = NULL)
            run = spare_merge(runs[i], run);
        runs[i] = run;
    }
    for (size_t i = 0; i < TUTTI__COUNT_OF(runs); i++)
        all = spare_merge(runs[i], all);
    return all;
}

/* Joins adjacent pieces. */
static void spare_join(tutti_ctx *cx, tutti__spare **list)
{
    *list = spare_sort(*list);
    for (tutti__spare *a = *list; a; a = a->next)
        while (a->next && (char *)a->data + a->bytes == a->next->data) {
            a->bytes += a->next->bytes;
            spare_drop(cx, &a->next);
        }
}

/* Both lists as one. */
static tutti__spare *spare_chain(tutti__spare *a, tutti__spare *b)
{
    tutti__spare **end = &a;

    while (*end)
        end = &(*end)->next;
    *end = b;
    return a;
}

/* NULL if no piece is large enough. */
static void *spare_take(tutti_ctx *cx, tutti__spare **list, size_t bytes)
{
    tutti__spare **link = spare_fit(list, bytes);
    void *p;

    if (!link && bytes >= LARGE) {
        spare_join(cx, list);
        link = spare_fit(list, bytes);
    }
    if (!link)
        return NULL;
    p = (*link)->data;
    (*link)->data = (char *)p + bytes;
    (*link)->bytes -= bytes;
    if ((*link)->bytes == 0)
        spare_drop(cx, link);
    tutti__memory_taken(p, bytes);
    return p;
}

static void list_add(tutti_ctx *cx, tutti__spare **list, void *p, size_t bytes)
{
    tutti__spare *spare = cx->spare_entries;

    if (spare)
        cx->spare_entries = spare->next;
    else
        spare = tutti__step_alloc(cx, sizeof *spare);
    if (spare) { /* else it is reclaimed at the step's end */
        *spare = (tutti__spare){*list, p, bytes};
        *list = spare;
    }
}

static void spare_give(tutti_ctx *cx, tutti__spare **list, void *p, size_t bytes)
{
    list_add(cx, list, p, bytes);
    if (cx->device_ops->is_host) /* else work in the stream still reads it */
        tutti__memory_gone(p, bytes);
}

void *tutti__scratch_take(tutti_ctx *cx, size_t bytes)
{
    void *p = spare_take(cx, &cx->host_spare, whole_lines(bytes));

    return p ? p : tutti__step_alloc(cx, whole_lines(bytes));
}

void tutti__scratch_give(tutti_ctx *cx, void *p, size_t bytes)
{
    spare_give(cx, &cx->host_spare, p, whole_lines(bytes));
}

static size_t step_bytes(const tutti_tensor *t, const tutti__layout *layout)
{
    return whole_lines(layout ? layout->bytes : tutti__tensor_bytes(t));
}

static void *spare_or_new(tutti_ctx *cx, size_t bytes)
{
    void *p = spare_take(cx, &cx->spare, bytes);

    if (!p)
        p = spare_take(cx, &cx->spare_activations, bytes);
    if (!p && bytes >= LARGE) { /* pieces of one may be next to pieces of the other */
        cx->spare_activations = spare_chain(cx->spare, cx->spare_activations);
        cx->spare = NULL;
        p = spare_take(cx, &cx->spare_activations, bytes);
    }
    return p ? p : tutti__step_memory(cx, bytes);
}

tutti_status tutti__tensor_alloc(tutti_tensor *t, const tutti__layout *layout)
{
    t->layout = layout;
    t->data = spare_or_new(t->cx, step_bytes(t, layout));
    return t->data ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

void *tutti__operation_memory(tutti_ctx *cx, size_t bytes)
{
    void *p = spare_or_new(cx, whole_lines(bytes));

    if (p)
        list_add(cx, &cx->of_operation, p, whole_lines(bytes));
    return p;
}

void tutti__operation_memory_end(tutti_ctx *cx)
{
    while (cx->of_operation) {
        const tutti__spare given = *cx->of_operation;

        spare_drop(cx, &cx->of_operation);
        spare_give(cx, &cx->spare, given.data, given.bytes);
    }
}

void tutti__tensor_release(tutti_tensor *t)
{
    if (!t->data)
        return;
    spare_give(t->cx, &t->cx->spare, t->data, step_bytes(t, t->layout));
    t->data = NULL;
}

void tutti__activation_release(tutti_tensor *t)
{
    if (!t->data)
        return;
    if (!t->shared) /* else the tensor of which it is a view frees it */
        spare_give(t->cx, &t->cx->spare_activations, t->data, step_bytes(t, t->layout));
    t->data = NULL;
    t->released = true;
}

tutti_tensor *tutti__last_read(tutti_tensor *t)
{
    if (t && t->intermediate)
        t->last_read = true;
    return t;
}

tutti_status tutti__tensor_take(tutti_tensor *t, tutti_tensor *from)
{
    if (from->shared)
        return tutti__tensor_alloc(t, from->layout);
    t->layout = from->layout;
    t->data = from->data;
    from->data = NULL;
    return TUTTI_OK;
}

tutti_status tutti__tensor_need(const tutti_tensor *t, bool first, tutti_dtype as)
{
    tutti_tensor *p = t ? t->viewed : NULL;

    if (!p && t && t->parameter)
        p = (tutti_tensor *)(uintptr_t)t;
    return p && p->parameter->store ? p->parameter->store->need(p, first, as) : TUTTI_OK;
}

tutti_status tutti__tensor_compute(tutti_tensor *t)
{
    return t->lazy && !t->data ? t->lazy->compute(t) : TUTTI_OK;
}

tutti_status tutti__tensor_row_major(tutti_tensor *t, const void **p)
{
    TUTTI_TRY(tutti__tensor_compute(t));
    if (t->layout) {
        tutti_tensor *copy = tutti__tensor_new(t->cx, t->shape, t->dtype);

        if (!copy)
            return TUTTI_ERR_MEMORY;
        TUTTI_TRY(tutti__tensor_alloc(copy, NULL));
        TUTTI_TRY(t->cx->kernels->reorder(copy, t));
        t = copy;
    }
    *p = t->data;
    return TUTTI_OK;
}

tutti_tensor *tutti__tensor_view(tutti_tensor *t, tutti_shape shape)
{
    tutti_tensor *view = tutti__tensor_new(t->cx, shape, t->dtype);
    const void *p;

    if (!view || tutti__tensor_row_major(t, &p) != TUTTI_OK)
        return NULL;
    view->data = (void *)p;
    view->shared = t->shared && p == t->data;
    view->viewed = p != t->data ? NULL : t->parameter ? t : t->viewed;
    return view;
}

tutti_shape tutti__shape_rows(tutti_shape shape)
{
    const int64_t last = shape.d[shape.n - 1];

    return TUTTI_SHAPE(tutti_shape_count(shape) / last, last);
}

tutti_tensor *tutti__tensor_rows(tutti_tensor *t)
{
    return t->shape.n == 2 ? t : tutti__tensor_view(t, tutti__shape_rows(t->shape));
}

/* ---- Poison ---------------------------------------------------------------------------------- */

tutti_tensor *tutti__poisoned(tutti_ctx *cx, tutti_status status)
{
    size_t bytes = strlen(tutti_last_error()) + 1;
    tutti_tensor *t = tutti__tensor_new(cx, (tutti_shape){0}, TUTTI_F32);
    char *text = t ? tutti__step_alloc(cx, bytes) : NULL;

    if (!text)
        return &cx->out_of_memory;
    t->poison = status;
    t->poison_text = memcpy(text, tutti_last_error(), bytes);
    return t;
}

tutti_status tutti__tensor_alive(const tutti_tensor *t)
{
    if (!t)
        return tutti__fail(TUTTI_ERR_ARG, "the tensor is NULL");
    if (t->serial && t->serial != t->cx->serial)
        return tutti__fail(TUTTI_ERR_STATE,
                           "the tensor %s belongs to a step that has ended; "
                           "read what you need of it before tutti_step_end",
                           tutti__shape_text(t->shape));
    if (t->released || (t->lazy && t->lazy->x->released))
        return tutti__fail(
            TUTTI_ERR_STATE,
            "the tensor %s was made inside a model or a block of tutti_recompute, and its memory "
            "has been used again; read it before tutti_backward (in such a block: before its end), "
            "or let the forward return it",
            tutti__shape_text(t->shape));
    return TUTTI_OK;
}

tutti_status tutti_tensor_status(const tutti_tensor *t)
{
    TUTTI_TRY(tutti__tensor_alive(t));
    return t->poison == TUTTI_OK ? TUTTI_OK : tutti__fail_again(t->poison, t->poison_text);
}

/* ---- Inputs ---------------------------------------------------------------------------------- */

static tutti_status check_input(const tutti_ctx *cx, const tutti_array *array)
{
    if (!cx->in_step)
        return tutti__fail(TUTTI_ERR_STATE,
                           "tutti_input: no step is open; call tutti_step_begin first");
    if (cx->step_status != TUTTI_OK)
        return tutti__fail_again(cx->step_status, cx->step_text);
    if (array->shape.n < 0 || array->shape.n > TUTTI_MAX_DIMS)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_input: the shape has %d dimensions, expected 0 to %d",
                           array->shape.n, TUTTI_MAX_DIMS);
    for (int i = 0; i < array->shape.n; i++)
        if (array->shape.d[i] < (i > 0 || (array->shape.n == 1 && array->dtype == TUTTI_F32)))
            return tutti__fail(TUTTI_ERR_ARG,
                               "tutti_input: the shape is %s; every dimension must be at least 1 "
                               "(the first may be 0: an empty batch)",
                               tutti__shape_text(array->shape));
    TUTTI_TRY(tutti__shape_check(array->shape));
    if (array->dtype != TUTTI_F32 && array->dtype != TUTTI_I64)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_input: the dtype is %s; convert data to F32, labels to I64",
                           tutti_dtype_name(array->dtype));
    if (!array->p && tutti_shape_count(array->shape) > 0)
        return tutti__fail(TUTTI_ERR_ARG, "tutti_input: array.p is NULL");
    return TUTTI_OK;
}

/* Sets the device's elements of an input: those that the loader has copied ahead, or a new copy. */
static tutti_status bring_in(tutti_ctx *cx, tutti_tensor *t)
{
    const size_t bytes = tutti__tensor_bytes(t);

    for (size_t i = 0; i < TUTTI__COUNT_OF(cx->ahead); i++) {
        const tutti__copied *c = &cx->ahead[i];

        if (c->host == t->host && bytes <= c->bytes) {
            t->data = c->device;
            t->shared = true;
            return cx->device_ops->event_wait(c->event, cx->stream);
        }
    }
    TUTTI_TRY(tutti__tensor_alloc(t, NULL));
    return tutti__copy_in(cx->stream, t->data, t->host, bytes);
}

tutti_tensor *tutti_input(tutti_ctx *cx, tutti_array array)
{
    tutti_status status = TUTTI__NOT_NULL(cx);
    tutti_tensor *t;

    if (!cx)
        return NULL;
    status = check_input(cx, &array);
    if (status != TUTTI_OK)
        return tutti__poisoned(cx, status);
    t = tutti__tensor_new(cx, array.shape, array.dtype);
    if (!t)
        return &cx->out_of_memory;
    t->host = array.p ? array.p : t; /* an empty batch is not read */
    t->data = (void *)t->host;
    if (!cx->device_ops->is_host) {
        status = bring_in(cx, t);
        if (status != TUTTI_OK)
            return tutti__poisoned(cx, status);
    }
    return t;
}

tutti_tensor *tutti_input_with_grad(tutti_ctx *cx, tutti_array array)
{
    tutti_tensor *t = tutti_input(cx, array);

    if (!t || t->poison != TUTTI_OK)
        return t;
    if (t->dtype != TUTTI_F32)
        return tutti__poisoned(
            cx, tutti__fail(TUTTI_ERR_ARG,
                            "tutti_input_with_grad: the dtype is %s; only F32 has a gradient",
                            tutti_dtype_name(t->dtype)));
    t->needs_grad = true;
    return t;
}

/* ---- Inspecting -------------------------------------------------------------------------------- */

tutti_shape tutti_tensor_shape(const tutti_tensor *t)
{
    return t ? t->shape : (tutti_shape){0};
}

tutti_dtype tutti_tensor_dtype(const tutti_tensor *t)
{
    return t ? t->dtype : TUTTI_F32;
}

const char *tutti_tensor_name(const tutti_tensor *t)
{
    return t ? t->name : "";
}

tutti_status tutti_tensor_read(tutti_tensor *t, void *dst)
{
    const void *p;

    TUTTI_TRY(tutti_tensor_status(t));
    if (t->parameter && t->parameter->store && t->parameter->store->read)
        return t->parameter->store->read(t, dst);
    TUTTI_TRY(tutti__tensor_need(t, true, TUTTI_F32));
    TUTTI_TRY(tutti__tensor_row_major(t, &p));
    return tutti__read(t->cx->stream, dst, p, tutti__tensor_bytes(t));
}

tutti_status tutti_tensor_write(tutti_tensor *t, const void *src)
{
    TUTTI_TRY(tutti_tensor_status(t));
    if (t->serial)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_tensor_write: the tensor %s is a result or an input; "
                           "only parameters and buffers can be written",
                           tutti__shape_text(t->shape));
    t->kernel_cache_step = 0;
    if (t->parameter && t->parameter->store && t->parameter->store->write)
        return t->parameter->store->write(t, src);
    TUTTI_TRY(tutti__tensor_need(t, true, TUTTI_F32));
    return tutti__copy_in(t->cx->stream, t->data, src, tutti__tensor_bytes(t));
}

const void *tutti_tensor_grad(tutti_tensor *t)
{
    const void *p;

    if (tutti_tensor_status(t) != TUTTI_OK)
        return NULL;
    if (t->parameter)
        return t->parameter->grad_round == *t->parameter->round ? t->parameter->grad : NULL;
    if (!t->grad || tutti__tensor_row_major(t->grad, &p) != TUTTI_OK)
        return NULL;
    return p;
}

tutti_status tutti_tensor_grad_read(tutti_tensor *t, void *dst)
{
    const void *p;

    TUTTI_TRY(tutti_tensor_status(t));
    p = tutti_tensor_grad(t);
    if (!p)
        return tutti__fail(TUTTI_ERR_STATE, "tutti_tensor_grad_read: no gradient has arrived%s%s%s",
                           *t->name ? " for \"" : "", t->name, *t->name ? "\"" : "");
    return tutti__read(t->cx->stream, dst, p,
                       (size_t)tutti_shape_count(t->shape) *
                           tutti_dtype_size(t->grad ? t->grad->dtype : t->dtype));
}

float tutti_item(tutti_tensor *t)
{
    union {
        float f32;
        int64_t i64;
        uint16_t half;
    } value;

    if (tutti_tensor_status(t) != TUTTI_OK)
        return NAN;
    if (tutti_shape_count(t->shape) != 1) {
        tutti__fail(TUTTI_ERR_ARG,
                    "tutti_item: the tensor is %s, expected a single element; read it with "
                    "tutti_tensor_read",
                    tutti__shape_text(t->shape));
        return NAN;
    }
    if (tutti_tensor_read(t, &value) != TUTTI_OK)
        return NAN;
    if (tutti__is_half(t->dtype))
        return t->dtype == TUTTI_BF16 ? tutti__f32_of_bf16(value.half)
                                      : tutti__f32_of_f16(value.half);
    return t->dtype == TUTTI_I64 ? (float)value.i64 : value.f32;
}
