/* shim.c -- the calls of oneDNN that changed between 2.6 and 3, each as one function.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/onednn/shim.h"

#include <stdlib.h>
#include <string.h>

#define TRY(expression)                                                                            \
    do {                                                                                           \
        const dnnl_status_t status_ = (expression);                                                \
        if (status_ != dnnl_success)                                                               \
            return status_;                                                                        \
    } while (0)

#if DNNL_VERSION_MAJOR >= 3

dnnl_status_t tutti__md_new(tutti__md *md_p, int n, const dnnl_dim_t *dims, dnnl_data_type_t type,
                            dnnl_format_tag_t tag)
{
    dnnl_dims_t copy = {0};

    memcpy(copy, dims, (size_t)n * sizeof(copy[0]));
    return dnnl_memory_desc_create_with_tag(md_p, n, copy, type, tag);
}

dnnl_status_t tutti__md_clone(tutti__md *md_p, tutti__const_md md)
{
    return dnnl_memory_desc_clone(md_p, md);
}

dnnl_status_t tutti__md_images(tutti__md *md_p, tutti__const_md whole, int64_t images)
{
    const dnnl_dims_t offsets = {0}, *dims = NULL;
    dnnl_dims_t part;

    TRY(dnnl_memory_desc_query(whole, dnnl_query_dims, (void *)&dims));
    memcpy(part, *dims, sizeof(part));
    part[0] = images;
    return dnnl_memory_desc_create_submemory(md_p, whole, part, offsets);
}

void tutti__md_free(tutti__md md)
{
    if (md)
        dnnl_memory_desc_destroy(md);
}

static bool query_dims(tutti__const_md md, dnnl_query_t what, dnnl_dims_t to, int n)
{
    const dnnl_dims_t *from = NULL;

    if (dnnl_memory_desc_query(md, what, (void *)&from) != dnnl_success || !from)
        return false;
    memcpy(to, *from, (size_t)n * sizeof(to[0]));
    return true;
}

bool tutti__md_query(tutti__const_md md, tutti__md_strides *s)
{
    dnnl_format_kind_t kind;

    *s = (tutti__md_strides){0};
    return dnnl_memory_desc_query(md, dnnl_query_format_kind, &kind) == dnnl_success &&
           kind == dnnl_blocked &&
           dnnl_memory_desc_query(md, dnnl_query_ndims_s32, &s->n) == dnnl_success &&
           dnnl_memory_desc_query(md, dnnl_query_data_type, &s->type) == dnnl_success &&
           dnnl_memory_desc_query(md, dnnl_query_inner_nblks_s32, &s->n_blocks) == dnnl_success &&
           query_dims(md, dnnl_query_dims, s->dims, s->n) &&
           query_dims(md, dnnl_query_padded_dims, s->padded_dims, s->n) &&
           query_dims(md, dnnl_query_strides, s->strides, s->n) &&
           (s->n_blocks == 0 ||
            (query_dims(md, dnnl_query_inner_blks, s->blocks, s->n_blocks) &&
             query_dims(md, dnnl_query_inner_idxs, s->block_dims, s->n_blocks)));
}

dnnl_status_t tutti__pd_convolution(dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine,
                                    tutti__direction direction, const tutti__window *w,
                                    const tutti__window_mds *m, dnnl_primitive_desc_t hint,
                                    dnnl_primitive_attr_t attributes)
{
    switch (direction) {
    case TUTTI__FORWARD:
        return dnnl_convolution_forward_primitive_desc_create(
            pd_p, engine, dnnl_forward_training, w->algorithm, m->src, m->weights, m->bias, m->dst,
            w->stride, w->dilation, w->padding, w->end, attributes);
    case TUTTI__BACKWARD_DATA:
        return dnnl_convolution_backward_data_primitive_desc_create(
            pd_p, engine, w->algorithm, m->src, m->weights, m->dst, w->stride, w->dilation,
            w->padding, w->end, hint, attributes);
    case TUTTI__BACKWARD_WEIGHTS:
        return dnnl_convolution_backward_weights_primitive_desc_create(
            pd_p, engine, w->algorithm, m->src, m->weights, m->bias, m->dst, w->stride, w->dilation,
            w->padding, w->end, hint, attributes);
    }
    return dnnl_invalid_arguments;
}

dnnl_status_t tutti__pd_pooling(dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine,
                                tutti__direction direction, const tutti__window *w,
                                const tutti__window_mds *m, dnnl_primitive_desc_t hint,
                                dnnl_primitive_attr_t attributes)
{
    const dnnl_dims_t no_dilation = {0};

    if (direction == TUTTI__FORWARD)
        return dnnl_pooling_forward_primitive_desc_create(
            pd_p, engine, dnnl_forward_training, w->algorithm, m->src, m->dst, w->stride, w->kernel,
            no_dilation, w->padding, w->end, attributes);
    return dnnl_pooling_backward_primitive_desc_create(pd_p, engine, w->algorithm, m->src, m->dst,
                                                       w->stride, w->kernel, no_dilation,
                                                       w->padding, w->end, hint, attributes);
}

dnnl_status_t tutti__pd_matmul(dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine,
                               const tutti__window_mds *m, dnnl_primitive_attr_t attributes)
{
    return dnnl_matmul_primitive_desc_create(pd_p, engine, m->src, m->weights, m->bias, m->dst,
                                             attributes);
}

bool tutti__pd_next(dnnl_primitive_desc_t pd)
{
    return dnnl_primitive_desc_next_impl(pd) == dnnl_success;
}

dnnl_status_t tutti__post_ops_append_sum(dnnl_post_ops_t post_ops)
{
    return dnnl_post_ops_append_sum(post_ops, 1.0f, 0, dnnl_data_type_undef);
}

#else

static dnnl_status_t md_box(tutti__md *md_p, const dnnl_memory_desc_t *md)
{
    *md_p = malloc(sizeof(*md));
    if (!*md_p)
        return dnnl_out_of_memory;
    **md_p = *md;
    return dnnl_success;
}

dnnl_status_t tutti__md_new(tutti__md *md_p, int n, const dnnl_dim_t *dims, dnnl_data_type_t type,
                            dnnl_format_tag_t tag)
{
    dnnl_dims_t copy = {0};
    dnnl_memory_desc_t md;

    memcpy(copy, dims, (size_t)n * sizeof(copy[0]));
    TRY(dnnl_memory_desc_init_by_tag(&md, n, copy, type, tag));
    return md_box(md_p, &md);
}

dnnl_status_t tutti__md_clone(tutti__md *md_p, tutti__const_md md)
{
    return md_box(md_p, md);
}

dnnl_status_t tutti__md_images(tutti__md *md_p, tutti__const_md whole, int64_t images)
{
    const dnnl_dims_t offsets = {0};
    dnnl_dims_t dims;
    dnnl_memory_desc_t md;

    memcpy(dims, whole->dims, sizeof(dims));
    dims[0] = images;
    TRY(dnnl_memory_desc_init_submemory(&md, whole, dims, offsets));
    return md_box(md_p, &md);
}

void tutti__md_free(tutti__md md)
{
    free(md);
}

bool tutti__md_query(tutti__const_md md, tutti__md_strides *s)
{
    const dnnl_blocking_desc_t *blocking = &md->format_desc.blocking;

    *s = (tutti__md_strides){0};
    if (md->format_kind != dnnl_blocked)
        return false;
    s->n = md->ndims;
    s->type = md->data_type;
    s->n_blocks = blocking->inner_nblks;
    memcpy(s->dims, md->dims, sizeof(s->dims));
    memcpy(s->padded_dims, md->padded_dims, sizeof(s->padded_dims));
    memcpy(s->strides, blocking->strides, sizeof(s->strides));
    memcpy(s->blocks, blocking->inner_blks, sizeof(s->blocks));
    memcpy(s->block_dims, blocking->inner_idxs, sizeof(s->block_dims));
    return true;
}

dnnl_status_t tutti__pd_convolution(dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine,
                                    tutti__direction direction, const tutti__window *w,
                                    const tutti__window_mds *m, dnnl_primitive_desc_t hint,
                                    dnnl_primitive_attr_t attributes)
{
    dnnl_convolution_desc_t desc;

    switch (direction) {
    case TUTTI__FORWARD:
        TRY(dnnl_dilated_convolution_forward_desc_init(&desc, dnnl_forward_training, w->algorithm,
                                                       m->src, m->weights, m->bias, m->dst,
                                                       w->stride, w->dilation, w->padding, w->end));
        break;
    case TUTTI__BACKWARD_DATA:
        TRY(dnnl_dilated_convolution_backward_data_desc_init(&desc, w->algorithm, m->src,
                                                             m->weights, m->dst, w->stride,
                                                             w->dilation, w->padding, w->end));
        break;
    case TUTTI__BACKWARD_WEIGHTS:
        TRY(dnnl_dilated_convolution_backward_weights_desc_init(
            &desc, w->algorithm, m->src, m->weights, m->bias, m->dst, w->stride, w->dilation,
            w->padding, w->end));
        break;
    }
    return dnnl_primitive_desc_create(pd_p, &desc, attributes, engine, hint);
}

dnnl_status_t tutti__pd_pooling(dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine,
                                tutti__direction direction, const tutti__window *w,
                                const tutti__window_mds *m, dnnl_primitive_desc_t hint,
                                dnnl_primitive_attr_t attributes)
{
    dnnl_pooling_desc_t desc;

    if (direction == TUTTI__FORWARD)
        TRY(dnnl_pooling_forward_desc_init(&desc, dnnl_forward_training, w->algorithm, m->src,
                                           m->dst, w->stride, w->kernel, w->padding, w->end));
    else
        TRY(dnnl_pooling_backward_desc_init(&desc, w->algorithm, m->src, m->dst, w->stride,
                                            w->kernel, w->padding, w->end));
    return dnnl_primitive_desc_create(pd_p, &desc, attributes, engine, hint);
}

dnnl_status_t tutti__pd_matmul(dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine,
                               const tutti__window_mds *m, dnnl_primitive_attr_t attributes)
{
    dnnl_matmul_desc_t desc;

    TRY(dnnl_matmul_desc_init(&desc, m->src, m->weights, m->bias, m->dst));
    return dnnl_primitive_desc_create(pd_p, &desc, attributes, engine, NULL);
}

/* 2.6 has an iterator for that; its first choice has always been fast. */
bool tutti__pd_next(dnnl_primitive_desc_t pd)
{
    (void)pd;
    return false;
}

dnnl_status_t tutti__post_ops_append_sum(dnnl_post_ops_t post_ops)
{
    return dnnl_post_ops_append_sum(post_ops, 1.0f);
}

#endif
