/* peers.h -- operations between ranks that have parts of a layer (tensor parallel).   SPDX-License-Identifier: MIT
 *
 * What one rank has whole, all of them have, with the same bits. Each operation is the other's gradient:
 *
 *     copy   forward: nothing; backward: the sum of all ranks' gradients, of what each has computed from its part
 *     sum    forward: the sum of all ranks' parts of a result; backward: nothing
 *
 * All ranks run the same operations in the same order. Sums are those of tutti_peers, in rank order, in F32; of 16-bit tensors they
 * are rounded once. Peers are borrowed until backward. */
#ifndef TUTTI_TENSOR_OP_PEERS_H
#define TUTTI_TENSOR_OP_PEERS_H

#include "tensor/op.h"

/* x for a product whose result is divided; x itself if it is one already, or without gradients. */
tutti_tensor *tutti__peers_copy(tutti_tensor *x, const tutti_peers *peers);
/* What such a copy is of; else x. */
tutti_tensor *tutti__peers_original(tutti_tensor *x);
/* The sum over all ranks, + bias [last dimension], which every rank has; NULL: none. */
tutti_tensor *tutti__peers_sum(tutti_tensor *x, tutti_tensor *bias, const tutti_peers *peers);
/* The rows of a table that is divided by rows: y [shape.., D], of which row place[i] is row i of this rank's x [n,D], and the others are
 * other ranks'. `place`: memory of the step, ascending. */
tutti_tensor *tutti__peers_rows(tutti_tensor *x, const int64_t *place, tutti_shape shape,
                                const tutti_peers *peers);

/* Parts of each sum that a rank computes (tutti_peers.parts). */
static inline int tutti__peers_units(const tutti_peers *peers)
{
    return peers->parts > 0 ? peers->parts / peers->size : 1;
}
/* values = their sum over all ranks; stream: as for tutti_peers */
static inline tutti_status tutti__peers_sum_values(const tutti_peers *peers, tutti_stream *stream,
                                                   float *values, size_t n)
{
    return peers->size > 1 ? peers->sum(peers->self, stream, values, n) : TUTTI_OK;
}
/* all (size x n) = every rank's n values */
static inline tutti_status tutti__peers_gather_values(const tutti_peers *peers,
                                                      tutti_stream *stream, const float *values,
                                                      size_t n, float *all)
{
    return peers->size > 1
               ? peers->all_gather(peers->self, stream, values, n, all)
               : tutti__copy(stream ? stream : &tutti__cpu_stream, all, values, n * sizeof *all);
}
/* t, which has memory of its own, row-major, becomes its sum over all ranks. */
tutti_status tutti__peers_add_up(const tutti_peers *peers, tutti_tensor *t);

/* y [..,D], row-major, += bias [D] */
tutti_status tutti__peers_add_bias(tutti_tensor *y, const tutti_tensor *bias);
/* The context's stream, for peers' functions; NULL: its memory is the host's. */
static inline tutti_stream *tutti__peers_stream(const tutti_ctx *cx)
{
    return cx->device_ops->is_host ? NULL : cx->stream;
}
/* n elements between F32 and another dtype, in memory of the context. `half`: BF16 or F16. */
tutti_status tutti__peers_widen(tutti_ctx *cx, float *to, const void *half, size_t n,
                                tutti_dtype dtype);
tutti_status tutti__peers_narrow(tutti_ctx *cx, void *half, const float *from, size_t n,
                                 tutti_dtype dtype);
/* The gradient of that bias, n's source 1, if it is wanted. */
tutti_status tutti__peers_bias_gradient(tutti__node *n);

/* Part `index` of n elements among `count` ranks, each of which has `units` neighbours of all count * units parts in torch.chunk's sizes:
 * *begin_p, and how many. */
static inline int64_t tutti__chunk(int64_t n, int count, int units, int index, int64_t *begin_p)
{
    const int64_t each = (n + (int64_t)count * units - 1) / ((int64_t)count * units) * units;
    const int64_t begin = each * index < n ? each * index : n;

    *begin_p = begin;
    return n - begin < each ? n - begin : each;
}

/* The same of `rank` among peers. */
static inline int64_t tutti__peers_chunk(const tutti_peers *peers, int64_t n, int rank,
                                         int64_t *begin_p)
{
    return tutti__chunk(n, peers->size, tutti__peers_units(peers), rank, begin_p);
}

#endif
