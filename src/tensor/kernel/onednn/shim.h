/* shim.h -- oneDNN 2.6 and 3 as one API.   SPDX-License-Identifier: MIT
 *
 * The differences: a memory descriptor is a struct (2) or an opaque object (3); a primitive descriptor is made in two
 * calls through an operation descriptor (2) or in one (3). Only shim.c and this file know that. Everything else of oneDNN
 * (engines, memory, execution) is called directly. */
#ifndef TUTTI_TENSOR_KERNEL_ONEDNN_SHIM_H
#define TUTTI_TENSOR_KERNEL_ONEDNN_SHIM_H

#include "tensor/kernel.h"

#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>
#include <stdbool.h>

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t tutti__md;
typedef const_dnnl_memory_desc_t tutti__const_md;
#else
typedef dnnl_memory_desc_t *tutti__md;
typedef const dnnl_memory_desc_t *tutti__const_md;
#endif

/* Free it with tutti__md_free. */
dnnl_status_t tutti__md_new(tutti__md *md_p, int n, const dnnl_dim_t *dims, dnnl_data_type_t type,
                            dnnl_format_tag_t tag);
dnnl_status_t tutti__md_clone(tutti__md *md_p, tutti__const_md md);
/* The layout of a tensor's first images, with the strides of the whole. */
dnnl_status_t tutti__md_images(tutti__md *md_p, tutti__const_md whole, int64_t images);
void tutti__md_free(tutti__md md);

/* The strides of a layout, if it is strided or blocked; false for other kinds. */
typedef struct tutti__md_strides {
    int n, n_blocks;
    dnnl_data_type_t type;
    dnnl_dims_t dims, padded_dims, strides; /* strides: of the outermost blocks */
    dnnl_dims_t blocks, block_dims; /* innermost last; block_dims: the dimension that each splits */
} tutti__md_strides;
bool tutti__md_query(tutti__const_md md, tutti__md_strides *strides_p);

/* A convolution or pooling window, the same in both directions. */
typedef struct tutti__window {
    dnnl_alg_kind_t algorithm;
    dnnl_dims_t kernel, stride; /* kernel: for pooling only */
    dnnl_dims_t dilation;       /* for convolution only; 0 is none */
    dnnl_dims_t padding, end;   /* padding at the start and at the end */
} tutti__window;

/* The data, or their gradients in backward; bias NULL: none. hint: forward's descriptor; NULL for forward. */
typedef struct tutti__window_mds {
    tutti__md src, weights, bias, dst;
} tutti__window_mds;

dnnl_status_t tutti__pd_convolution(dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine,
                                    tutti__direction direction, const tutti__window *window,
                                    const tutti__window_mds *mds, dnnl_primitive_desc_t hint,
                                    dnnl_primitive_attr_t attributes);
dnnl_status_t tutti__pd_pooling(dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine,
                                tutti__direction direction, const tutti__window *window,
                                const tutti__window_mds *mds, dnnl_primitive_desc_t hint,
                                dnnl_primitive_attr_t attributes);
/* dst [R,M] = src [R,K] weights [K,M] (+ bias [1,M], NULL: none) */
dnnl_status_t tutti__pd_matmul(dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine,
                               const tutti__window_mds *mds, dnnl_primitive_attr_t attributes);
/* Turns pd into the next implementation of the same; false: there is none, and pd is of no use any more. */
bool tutti__pd_next(dnnl_primitive_desc_t pd);
dnnl_status_t tutti__post_ops_append_sum(dnnl_post_ops_t post_ops);

#endif
