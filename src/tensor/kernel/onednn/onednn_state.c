/* onednn_state.c -- interned layouts, memory, tensors in other layouts; opening and closing.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/onednn/onednn_state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Bounded, so that changing shapes (images of all sizes) do not fill memory with generated code. */
#define MAX_PRIMITIVES 512

#define PART_ELEMENTS ((int64_t)1 << 16) /* of a reorder, per part, at least */

typedef struct tutti__onednn_layout_entry {
    tutti__layout layout; /* what tensors point to */
    struct tutti__onednn_layout_entry *next;
    tutti__md md;
    bool row_major;
    tutti__md_strides strides; /* n == 0: neither strided nor blocked */
} layout_entry;

tutti_status tutti__onednn_check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return TUTTI_OK;
    return tutti__fail(status == dnnl_out_of_memory   ? TUTTI_ERR_MEMORY
                       : status == dnnl_unimplemented ? TUTTI_ERR_UNSUPPORTED
                                                      : TUTTI_ERR_INTERNAL,
                       "oneDNN %d.%d.%d: %s: %s; TUTTI_KERNELS_REFERENCE works without oneDNN",
                       DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH, what,
                       dnnl_status2str(status));
}

bool tutti__onednn_is_fast(dnnl_primitive_desc_t pd)
{
    const char *name = "ref";
    const dnnl_status_t status =
        dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name);

    return status == dnnl_success && !strstr(name, "ref");
}

/* ---- Layouts ------------------------------------------------------------------------------------------ */

static dnnl_format_tag_t row_major_tag(int n)
{
    static const dnnl_format_tag_t tags[] = {dnnl_a,    dnnl_a,     dnnl_ab,    dnnl_abc,
                                             dnnl_abcd, dnnl_abcde, dnnl_abcdef};

    return tags[n];
}

dnnl_data_type_t tutti__onednn_type(tutti_dtype dtype)
{
    return dtype == TUTTI_BF16 ? dnnl_bf16 : dtype == TUTTI_F16 ? dnnl_f16 : dnnl_f32;
}

dnnl_status_t tutti__onednn_md_of(tutti__md *md_p, tutti_shape shape, const tutti__layout *layout,
                                  tutti_dtype dtype)
{
    const dnnl_dim_t one = 1;

    if (layout)
        return tutti__md_clone(md_p, ((const layout_entry *)layout)->md);
    return tutti__md_new(md_p, shape.n ? shape.n : 1, shape.n ? shape.d : &one,
                         tutti__onednn_type(dtype), row_major_tag(shape.n));
}

static dnnl_status_t is_row_major(tutti__const_md md, const tutti__md_strides *s, bool *result)
{
    tutti__md plain;
    dnnl_status_t status;

    *result = false;
    if (s->n == 0)
        return dnnl_success;
    status = tutti__md_new(&plain, s->n, s->dims, s->type, row_major_tag(s->n));
    if (status == dnnl_success) {
        *result = dnnl_memory_desc_equal(md, plain);
        tutti__md_free(plain);
    }
    return status;
}

tutti_status tutti__onednn_layout(tutti_ctx *cx, tutti__const_md md, const tutti__layout **layout_p)
{
    tutti__onednn *od = cx->kernel_state;
    layout_entry *e;

    for (e = od->layouts; e && !dnnl_memory_desc_equal(e->md, md); e = e->next)
        continue;
    if (!e) {
        dnnl_status_t status;

        e = tutti__alloc(sizeof *e);
        if (!e)
            return TUTTI_ERR_MEMORY;
        if (!tutti__md_query(md, &e->strides))
            e->strides.n = 0;
        status = is_row_major(md, &e->strides, &e->row_major);
        if (status == dnnl_success)
            status = tutti__md_clone(&e->md, md);
        if (status != dnnl_success) {
            free(e);
            return tutti__onednn_check(status, "describing a layout");
        }
        e->layout = (tutti__layout){.bytes = dnnl_memory_desc_get_size(md), .desc = e->md};
        e->next = od->layouts;
        od->layouts = e;
        cx->kernel_allocations++;
    }
    *layout_p = e->row_major ? NULL : &e->layout;
    return TUTTI_OK;
}

tutti_status tutti__onednn_tagged(tutti_ctx *cx, tutti_shape shape, dnnl_format_tag_t tag,
                                  const tutti__layout **layout_p)
{
    tutti__md md;
    tutti_status status = tutti__onednn_check(tutti__md_new(&md, 4, shape.d, dnnl_f32, tag),
                                              "describing a blocked layout");

    if (status == TUTTI_OK) {
        status = tutti__onednn_layout(cx, md, layout_p);
        tutti__md_free(md);
    }
    return status;
}

tutti_status tutti__onednn_blocked(tutti_ctx *cx, tutti_shape shape, const tutti__layout **layout_p)
{
    const tutti__onednn *od = cx->kernel_state;

    return tutti__onednn_tagged(cx, shape,
                                od->isa->lanes == 16  ? dnnl_nChw16c
                                : od->isa->lanes == 8 ? dnnl_nChw8c
                                                      : dnnl_nChw4c,
                                layout_p);
}

bool tutti__onednn_view_of(tutti_shape shape, const tutti__layout *layout, tutti__onednn_view *v)
{
    const tutti__md_strides *s = layout ? &((const layout_entry *)layout)->strides : NULL;

    if (shape.n != 4)
        return false;
    *v = (tutti__onednn_view){.n = shape.d[0],
                              .c = shape.d[1],
                              .s = shape.d[2] * shape.d[3],
                              .inner = 1,
                              .step = 1,
                              .block = shape.d[2] * shape.d[3],
                              .image = shape.d[1] * shape.d[2] * shape.d[3],
                              .padded_c = shape.d[1]};
    if (!s)
        return true;
    if (s->n != 4 || s->n_blocks > 1 || (s->n_blocks == 1 && s->block_dims[0] != 1))
        return false;
    for (int i = 0; i < 4; i++)
        if (i != 1 && s->padded_dims[i] != s->dims[i])
            return false;
    if (s->strides[2] != s->strides[3] * shape.d[3])
        return false;
    v->padded_c = s->padded_dims[1];
    v->inner = s->n_blocks ? s->blocks[0] : s->strides[1] == 1 ? v->padded_c : 1;
    v->step = s->strides[3];
    v->block = s->strides[1];
    v->image = s->strides[0];
    return true;
}

const tutti__layout *tutti__onednn_usual_layout(tutti_ctx *cx, tutti_shape shape, tutti_dtype dtype)
{
    const tutti__onednn *od = cx->kernel_state;
    tutti__onednn_view view;

    for (const layout_entry *e = od->layouts; e; e = e->next)
        if (!e->row_major && e->strides.n == shape.n &&
            e->strides.type == tutti__onednn_type(dtype) &&
            memcmp(e->strides.dims, shape.d, (size_t)shape.n * sizeof shape.d[0]) == 0 &&
            tutti__onednn_view_of(shape, &e->layout, &view))
            return &e->layout;
    return NULL;
}

/* ---- Memory ---------------------------------------------------------------------------------------------- */

/* Only grows; large memory by whole huge pages, because all of it is accessed again and again. */
static tutti_status memory_grow(tutti_ctx *cx, tutti__onednn_memory *m, size_t bytes)
{
    const size_t huge = (size_t)2 << 20;

    if (bytes <= m->bytes)
        return TUTTI_OK;
    if (bytes >= 2 * huge)
        bytes = (bytes + huge - 1) / huge * huge;
    cx->device_ops->free(cx->device, m->p); /* nothing is kept from one call to the next */
    m->p = cx->device_ops->alloc(cx->device, bytes, false);
    m->bytes = m->p ? bytes : 0;
    if (!m->p)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu bytes of the kernels' scratch",
                           bytes);
    cx->kernel_allocations++;
    return TUTTI_OK;
}

tutti_status tutti__onednn_staging(tutti_ctx *cx, size_t bytes, void **p)
{
    tutti__onednn *od = cx->kernel_state;

    TUTTI_TRY(memory_grow(cx, &od->staging, bytes));
    *p = od->staging.p;
    return TUTTI_OK;
}

tutti_status tutti__onednn_scratch(tutti_ctx *cx, size_t bytes, void **p)
{
    tutti__onednn *od = cx->kernel_state;

    TUTTI_TRY(memory_grow(cx, &od->scratch, bytes));
    *p = od->scratch.p;
    return TUTTI_OK;
}

/* ---- Reorders -------------------------------------------------------------------------------------------- */

typedef struct reorder {
    tutti_shape shape;
    const tutti__onednn_place *from, *to;
    bool accumulate;
} reorder;

/* Frees both descriptors. status: whether they could be made. */
static dnnl_status_t reorder_between(tutti_ctx *cx, tutti__md src, tutti__md dst, bool accumulate,
                                     dnnl_status_t status, dnnl_primitive_desc_t *pd_p)
{
    tutti__onednn *od = cx->kernel_state;

    if (status == dnnl_success)
        status =
            dnnl_reorder_primitive_desc_create(pd_p, src, od->engine, dst, od->engine,
                                               accumulate ? od->add_attributes : od->attributes);
    tutti__md_free(src);
    tutti__md_free(dst);
    return status;
}

static dnnl_status_t reorder_pd(tutti_ctx *cx, const reorder *r, dnnl_primitive_desc_t *pd_p)
{
    tutti__md src = NULL, dst = NULL;
    dnnl_status_t status = tutti__onednn_md_of(&src, r->shape, r->from->layout, r->from->dtype);

    if (status == dnnl_success)
        status = tutti__onednn_md_of(&dst, r->shape, r->to->layout, r->to->dtype);
    return reorder_between(cx, src, dst, r->accumulate, status, pd_p);
}

static dnnl_status_t reorder_part(tutti_ctx *cx, const void *self,
                                  const tutti__onednn_primitive *whole, int64_t images,
                                  dnnl_primitive_desc_t *pd_p)
{
    const reorder *r = self;
    tutti__md src = NULL, dst = NULL;
    dnnl_status_t status = tutti__onednn_md_images(&src, whole, 0, images);

    if (status == dnnl_success)
        status = tutti__onednn_md_images(&dst, whole, 1, images);
    return reorder_between(cx, src, dst, r->accumulate, status, pd_p);
}

static tutti_status reorder_get(tutti_ctx *cx, const tutti__onednn_key *key, const reorder *r,
                                tutti__onednn_primitive **primitive_p)
{
    static const tutti__onednn_arg args[] = {
        {DNNL_ARG_FROM, dnnl_query_src_md, 0, TUTTI__ONEDNN_IMAGES},
        {DNNL_ARG_TO, dnnl_query_dst_md, 0, TUTTI__ONEDNN_IMAGES}};
    dnnl_primitive_desc_t pd = NULL;
    int kept = tutti__onednn_alone_begin();
    dnnl_status_t status = reorder_pd(cx, r, &pd);

    tutti__onednn_alone_end(kept);
    TUTTI_TRY(tutti__onednn_check(status, "a reorder between layouts"));
    TUTTI_TRY(tutti__onednn_add(cx, key, pd, args, 2, primitive_p));
    return tutti__onednn_cut(
        cx, *primitive_p,
        &(tutti__onednn_parts){
            reorder_part, r, r->shape.d[0],
            tutti__onednn_parts_of(tutti_shape_count(r->shape) / PART_ELEMENTS)});
}

tutti_status tutti__onednn_reorder(tutti_ctx *cx, tutti_shape shape,
                                   const tutti__onednn_place *from, const tutti__onednn_place *to,
                                   bool accumulate)
{
    tutti__onednn_key key = {{TUTTI__ONEDNN_REORDER, accumulate, (int64_t)(intptr_t)from->layout,
                              from->dtype, (int64_t)(intptr_t)to->layout, to->dtype, shape.n}};
    tutti__onednn_primitive *p;

    if (tutti_shape_count(shape) == 0)
        return TUTTI_OK;
    memcpy(key.v + 7, shape.d, (size_t)shape.n * sizeof(int64_t));
    p = tutti__onednn_find(cx, &key);
    if (!p)
        TUTTI_TRY(reorder_get(cx, &key, &(reorder){shape, from, to, accumulate}, &p));
    return tutti__onednn_run(cx, p, (void *[]){from->data, to->data});
}

/* A tensor's elements in another layout, in the arena. */
typedef struct copy {
    struct copy *next;
    const tutti__layout *layout;
    tutti_dtype dtype;
    void *data;
} copy;

tutti_status tutti__onednn_in(tutti_tensor *t, const tutti__layout *layout, void **data_p)
{
    return tutti__onednn_in_as(t, t->shape, layout, t->dtype, data_p);
}

tutti_status tutti__onednn_in_as(tutti_tensor *t, tutti_shape shape, const tutti__layout *layout,
                                 tutti_dtype dtype, void **data_p)
{
    const size_t bytes =
        layout ? layout->bytes : (size_t)tutti_shape_count(shape) * tutti_dtype_size(dtype);
    const tutti__onednn_place from = {t->layout, t->dtype, t->data};
    copy *c;

    if (t->layout == layout && t->dtype == dtype) {
        TUTTI_TRY(tutti__tensor_compute(t));
        *data_p = t->data;
        return TUTTI_OK;
    }
    if (t->parameter) { /* backward reads weights in other layouts */
        *data_p = tutti__operation_memory(t->cx, bytes);
        if (!*data_p)
            return TUTTI_ERR_MEMORY;
        return tutti__onednn_reorder(t->cx, shape, &from,
                                     &(tutti__onednn_place){layout, dtype, *data_p}, false);
    }
    if (t->kernel_cache_step != t->cx->round)
        t->kernel_cache = NULL;
    t->kernel_cache_step = t->cx->round;
    for (c = t->kernel_cache; c && (c->layout != layout || c->dtype != dtype); c = c->next)
        continue;
    if (!c) {
        c = tutti__step_alloc(t->cx, sizeof *c);
        if (!c)
            return TUTTI_ERR_MEMORY;
        *c = (copy){.next = t->kernel_cache, .layout = layout, .dtype = dtype};
        c->data = tutti__step_memory(t->cx, bytes);
        if (!c->data)
            return TUTTI_ERR_MEMORY;
        TUTTI_TRY(tutti__tensor_compute(t));
        TUTTI_TRY(tutti__onednn_reorder(t->cx, shape,
                                        &(tutti__onednn_place){t->layout, t->dtype, t->data},
                                        &(tutti__onednn_place){layout, dtype, c->data}, false));
        t->kernel_cache = c;
    }
    *data_p = c->data;
    return TUTTI_OK;
}

tutti_status tutti__onednn_in_norm(tutti_tensor *t, const tutti__layout *layout, void **data_p,
                                   const tutti__channel_norm **norm_p)
{
    const bool as_norm =
        t->lazy && t->lazy->compute == tutti__onednn_norm_compute && t->layout == layout;

    *norm_p = as_norm ? &((const tutti__onednn_lazy *)t->lazy)->norm : NULL;
    return tutti__onednn_in(as_norm ? t->lazy->x : t, layout, data_p);
}

tutti_status tutti__onednn_walk(tutti_tensor *x, tutti__onednn_view *view,
                                const tutti__layout **layout_p, void **data_p)
{
    *layout_p = x->layout;
    if (!tutti__onednn_view_of(x->shape, x->layout, view)) {
        *layout_p = NULL;
        tutti__onednn_view_of(x->shape, NULL, view);
    }
    return tutti__onednn_in(x, *layout_p, data_p);
}

/* ---- Memory for generated code ------------------------------------------------------------------------------ */

/* More than is allocated at once: 14 MiB by the first primitive made of F32 products, 256 KiB to 1 MiB by others. */
#define CODE_BYTES ((size_t)16 << 20)

tutti_status tutti__onednn_room_for_code(void)
{
    void *p = mmap(NULL, CODE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %zu bytes of oneDNN's generated code",
                          CODE_BYTES);
    munmap(p, CODE_BYTES);
    return TUTTI_OK;
}

/* ---- Opening and closing -------------------------------------------------------------------------------- */

static dnnl_status_t attributes_new(dnnl_primitive_attr_t *attributes_p, bool add)
{
    dnnl_post_ops_t sum = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(attributes_p);

    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(*attributes_p, dnnl_scratchpad_mode_user);
    if (status != dnnl_success || !add)
        return status;
    status = dnnl_post_ops_create(&sum);
    if (status == dnnl_success)
        status = tutti__post_ops_append_sum(sum);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(*attributes_p, sum);
    if (sum)
        dnnl_post_ops_destroy(sum);
    return status;
}

tutti_status tutti__onednn_open(tutti_ctx *cx)
{
    tutti__onednn *od;
    tutti__onednn_conv conv;
    dnnl_status_t status;

    TUTTI_TRY(tutti__onednn_check_runtime());
    TUTTI_TRY(tutti__onednn_isa_choose());
    TUTTI_TRY(tutti__onednn_conv_choose(&conv));
    od = tutti__alloc(sizeof *od);
    if (!od)
        return TUTTI_ERR_MEMORY;
    cx->kernel_state = od;
    od->isa = tutti__onednn_isa();
    od->conv = conv;
    status = dnnl_engine_create(&od->engine, dnnl_cpu, 0);
    if (status == dnnl_success)
        status = dnnl_stream_create(&od->stream, od->engine, dnnl_stream_default_flags);
    if (status == dnnl_success)
        status = attributes_new(&od->attributes, false);
    if (status == dnnl_success)
        status = attributes_new(&od->add_attributes, true);
    if (status != dnnl_success)
        tutti__onednn_close(cx);
    return tutti__onednn_check(status, "opening the CPU engine");
}

void tutti__onednn_close(tutti_ctx *cx)
{
    tutti__onednn *od = cx->kernel_state;

    if (!od)
        return;
    tutti__onednn_primitives_free(od);
    while (od->layouts) {
        layout_entry *next = od->layouts->next;

        tutti__md_free(od->layouts->md);
        free(od->layouts);
        od->layouts = next;
    }
    if (od->add_attributes)
        dnnl_primitive_attr_destroy(od->add_attributes);
    if (od->attributes)
        dnnl_primitive_attr_destroy(od->attributes);
    if (od->stream)
        dnnl_stream_destroy(od->stream);
    if (od->engine)
        dnnl_engine_destroy(od->engine);
    cx->device_ops->free(cx->device, od->scratch.p);
    cx->device_ops->free(cx->device, od->staging.p);
    free(od);
    cx->kernel_state = NULL;
}

void tutti__onednn_step_end(tutti_ctx *cx)
{
    tutti__onednn *od = cx->kernel_state;

    if (od->n_primitives > MAX_PRIMITIVES)
        tutti__onednn_primitives_free(od);
}
