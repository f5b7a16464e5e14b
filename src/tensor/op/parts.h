/* parts.h -- linear operations of divided layers, made of the same parts whatever the number of ranks (tutti_peers.parts).
 * SPDX-License-Identifier: MIT
 *
 * Of V parts of a layer's features, a rank has the V / size that are neighbours. Each product is V products, one for each part, with
 * the same sizes whatever the number of ranks, since kernels' bits may depend on sizes. Where a sum goes over the features, those of the
 * parts are added in one binary tree: ((p0 + p1) + (p2 + p3)) + ...; a rank's parts are a complete subtree, and tutti_peers.sum adds the rest.
 * So the bits are a function of V. */
#ifndef TUTTI_TENSOR_OP_PARTS_H
#define TUTTI_TENSOR_OP_PARTS_H

#include "tensor/op/vocabulary_logits.h"

enum { TUTTI__MOST_PARTS = 1024 }; /* of all ranks */

/* A layer of columns, or of rows, whose weight is [out,in] or [in,out]. */
typedef struct tutti__layer_in_parts {
    const tutti_peers *peers;
    bool rows, in_out;
    int groups;         /* of columns: what is one behind the other in the outputs; 1 */
    int64_t each;       /* features of a part of each group; the last one may have fewer */
    tutti_shape tokens; /* whose rows are divided; n 0: they are not */
} tutti__layer_in_parts;

/* Columns: y [..,M] of this rank = x w + b; rows: their sum over the ranks, + b. With tokens, x or y has this rank's rows. */
tutti_tensor *tutti__linear_in_parts(tutti_tensor *x, tutti_tensor *weight, tutti_tensor *bias,
                                     const tutti__layer_in_parts *layer);
/* Of columns, without tokens, for operations that contain it: to, without data, = x weight + bias; and the gradients of sources 0 to 2,
 * for dy, this rank's. */
tutti_status tutti__columns_forward(tutti_tensor *to, tutti_tensor *x, tutti_tensor *weight,
                                    tutti_tensor *bias, const tutti__layer_in_parts *layer);
tutti_status tutti__columns_backward(tutti__node *n, tutti_tensor *dy,
                                     const tutti__layer_in_parts *layer);
/* The head of a language model as such a layer. */
tutti__layer_in_parts tutti__classes_in_parts(const tutti__divided_classes *classes);

/* A parameter, whole on all ranks, for its uses with each part of the tokens: [parts of this rank, ..]. */
tutti_tensor *tutti__weight_of_parts(tutti_tensor *parameter, const tutti_peers *peers);

/* ---- Sums of parts ---- */

/* Starts as {.cx, .n}: n floats of each part, in memory of the operation. */
typedef struct tutti__part_sum {
    tutti_ctx *cx;
    size_t n;
    float *part;      /* the present one; NULL: none */
    float *level[12]; /* [i]: the sum of 2^i parts; NULL: none */
    float *unused[12];
    int n_unused;
} tutti__part_sum;

/* Adds t, of n elements, to the present part; `ends`: with that it is complete. */
tutti_status tutti__part_sum_add(tutti__part_sum *sum, tutti_tensor *t, bool ends);
/* Of this rank's parts, a power of two. */
float *tutti__part_sum_here(const tutti__part_sum *sum);
/* t, without data, = the sum over all ranks. */
tutti_status tutti__part_sum_over_ranks(const tutti__part_sum *sum, const tutti_peers *peers,
                                        tutti_tensor *t);

#endif
