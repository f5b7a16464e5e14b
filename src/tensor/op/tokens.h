/* tokens.h -- operations on rows that are divided among ranks (sequence parallel).   SPDX-License-Identifier: MIT
 *
 * Of x [..,D] that all ranks would have, each has its rows of [R,D], by tutti__chunk. As in peers.h, all ranks run the same operations:
 *
 *     divide    takes this rank's rows of what is whole;              backward: gathers all ranks'
 *     gather    all ranks' rows, for a product whose result is divided: backward: sums what each has computed, and takes its rows
 *     sum       sums parts of a result, and takes this rank's rows;   backward: gathers all ranks'
 */
#ifndef TUTTI_TENSOR_OP_TOKENS_H
#define TUTTI_TENSOR_OP_TOKENS_H

#include "tensor/op/peers.h"

/* ARG, if a rank would have no row. */
tutti_tensor *tutti__tokens_divide(tutti_tensor *x, const tutti_peers *peers);
typedef enum tutti__gathering {
    TUTTI__GATHER_PARTS, /* each rank's gradient is a part of the sum */
    TUTTI__GATHER_AGAIN, /* the same, and backward gathers again what it reads, for one reader */
    TUTTI__GATHER_WHOLE  /* each rank's gradient is whole already */
} tutti__gathering;
/* x [R,D] -> [..,D], whose leading dimensions are those of `whole`; x itself if it is one already. */
tutti_tensor *tutti__tokens_gather(tutti_tensor *x, tutti_shape whole, tutti__gathering how,
                                   const tutti_peers *peers);
/* What such a result was gathered from; else x. */
tutti_tensor *tutti__tokens_original(tutti_tensor *x);
/* x [..,D] -> [R,D]; bias [D] (NULL: none) is added to the sum, and has in backward its part of the gradient. */
tutti_tensor *tutti__tokens_sum(tutti_tensor *x, tutti_tensor *bias, const tutti_peers *peers);

/* How the rows of a tensor are divided. */
typedef struct tutti__rows_division {
    const tutti_peers *peers;
    tutti_dtype dtype;
    int64_t rows, width, each; /* each: rows exchanged by a rank */
    int64_t part;       /* rows of a part (tutti_peers.parts); the last ones may have fewer */
    int64_t begin, own; /* this rank's */
    size_t bytes;       /* of a row */
} tutti__rows_division;

/* Of the rows of `whole`. */
tutti__rows_division tutti__rows_divided(const tutti_peers *peers, tutti_shape whole,
                                         tutti_dtype dtype);
/* to [rows,width] = all ranks' rows; own: this one's. */
tutti_status tutti__rows_gather(tutti_ctx *cx, const tutti__rows_division *d, const void *own,
                                void *to);
/* own, of d's dtype, = this rank's rows of the sum over ranks of `from` [rows,width]. */
tutti_status tutti__rows_sum(tutti_ctx *cx, const tutti__rows_division *d, const void *from,
                             tutti_dtype from_dtype, void *own);

/* Dropout of elements from `first` on of what x is a part of, whose numbers it draws. */
tutti_tensor *tutti__dropout_of_part(tutti_tensor *x, float p, int64_t first);

#endif
