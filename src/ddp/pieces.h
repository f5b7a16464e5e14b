/* pieces.h -- whole tensors, of which each rank holds pieces.   SPDX-License-Identifier: MIT
 *
 * A layout divides a model: a rank's tensor may be a box of the whole one (tutti__state.split), and of the box's elements, row-major,
 * the rank may hold ranges only (tutti__sharding). Files, digests and exports speak of whole tensors, under the same names whatever
 * the layout:
 *
 *     each rank lists its pieces ─▶ all exchange the lists: who has what of each tensor ─▶ each tensor is given a rank
 *     ─▶ its pieces travel there (gather), or from there to all that hold some (spread), one tensor at a time */
#ifndef TUTTI_DDP_PIECES_H
#define TUTTI_DDP_PIECES_H

#include "nn/nn.h"
#include <tutti/group.h>
#include <tutti/optim.h>

/* Which part of a whole tensor a rank's tensor is, its box, is a tutti__parameter_split. */

/* Elements of the box of a whole tensor of this shape. */
size_t tutti__box_count(const tutti__parameter_split *box, tutti_shape whole);
/* Whether its elements are neighbours in the whole tensor, from element *first_p on. */
bool tutti__box_is_one_run(const tutti__parameter_split *box, tutti_shape whole, size_t *first_p);
/* Copies elements [begin,end) of the box, of `each` bytes, from their places in the whole tensor to `piece`, or (put) back. */
void tutti__box_pick(const tutti__parameter_split *box, tutti_shape whole, size_t each,
                     size_t begin, size_t end, const char *from, char *piece);
void tutti__box_put(const tutti__parameter_split *box, tutti_shape whole, size_t each, size_t begin,
                    size_t end, char *to, const char *piece);

/* What this rank holds: elements [begin,end) of its box. A tensor may have several, or none. */
typedef struct tutti__tensor_piece {
    const char *name; /* of the whole tensor */
    tutti_dtype dtype;
    bool host;         /* data is host memory; else the device's */
    tutti_shape shape; /* the whole tensor's */
    tutti__parameter_split box;
    size_t begin, end;
    char *data; /* of element begin */
} tutti__tensor_piece;

/* Starts as {0}. */
typedef struct tutti__pieces {
    tutti__tensor_piece *p;
    size_t n, capacity;
    void *names; /* which the list owns: blocks, linked by their first word */
} tutti__pieces;

/* Which part of a whole tensor t is. */
tutti__parameter_split tutti__box_of(const tutti_tensor *t);
/* The shape of the whole tensor of which t is all, or a box. */
tutti_shape tutti__whole_shape(const tutti_tensor *t);
void tutti__pieces_free(tutti__pieces *pieces);
tutti_status tutti__pieces_add(tutti__pieces *pieces, const tutti__tensor_piece *piece);
/* The list's names live as long as the list. */
tutti_status tutti__pieces_keep_names(tutti__pieces *pieces);
/* Adds the module's parameters and buffers; `average` is not NULL: the parameters' averages instead. Borrows names and memory. */
tutti_status tutti__pieces_of_module(tutti__pieces *pieces, const tutti_module *m,
                                     const tutti_ema *average);
/* Adds an optimizer's state, "exp_avg.fc1.weight", and the numbers of updates, "step.fc1.weight", of the module's parameters, as far
 * as this rank holds them. A parameter that is not trained, and had no updates, has no state. */
tutti_status tutti__pieces_of_optim(tutti__pieces *pieces, const tutti_optim *optim,
                                    const tutti_module *m);

/* ---- Who has what ------------------------------------------------------------------------------------------ */

typedef struct tutti__held {
    int rank, index; /* which box */
    size_t begin, end;
} tutti__held;

typedef struct tutti__whole {
    const char *name;
    tutti_dtype dtype;
    tutti_shape shape;
    tutti__parameter_split box; /* without index: what all ranks' boxes have in common */
    size_t bytes;
    size_t first, n; /* what ranks hold of it, in wholes.held: by box, then rank, then begin */
    int rank;        /* to which it was given; 0 */
} tutti__whole;

/* Box `index` of its whole tensor. */
static inline tutti__parameter_split tutti__box_at(const tutti__whole *w, int index)
{
    tutti__parameter_split box = w->box;

    box.index = index;
    return box;
}

/* Starts as {0}; the same on all ranks. */
typedef struct tutti__wholes {
    tutti__whole *p; /* in the order of their names */
    size_t n;
    tutti__held *held;
    char *names;
} tutti__wholes;

/* Collective. MISMATCH, the same on all ranks, if ranks differ in what a tensor is; STATE if nobody holds an element. */
tutti_status tutti__wholes_find(tutti__wholes *wholes, const tutti__pieces *mine,
                                tutti_group *group);
/* The same, by one rank that knows what each holds: for plans. */
tutti_status tutti__wholes_of_all(tutti__wholes *wholes, const tutti__pieces *by_rank, int ranks);
void tutti__wholes_free(tutti__wholes *wholes);
/* Whether rank holds all of each tensor. */
bool tutti__wholes_are_of(const tutti__wholes *wholes, int rank);
/* Gives each tensor to one of the n ranks that may take some: to one that holds most of it, unless that has more than its part
 * already. load: bytes that each rank has before; those given to it are added. ARG if no rank may. */
tutti_status tutti__wholes_assign(const tutti__wholes *wholes, const bool *may, uint64_t *load,
                                  int n);

/* ---- Moving ---------------------------------------------------------------------------------------------- */

enum { TUTTI__MOVE_BYTES = 4 << 20, TUTTI__MOVES = 64 };

/* How pieces travel: messages between two ranks, so that any thread may move some while collectives are in flight. */
typedef struct tutti__mover {
    tutti_group *group;
    int rank, size;
    tutti_stream *stream; /* of the device that has the pieces */
    int tag;
    char *room;                      /* host memory, TUTTI__MOVE_BYTES */
    tutti_work *sends[TUTTI__MOVES]; /* in flight, from the pieces' own memory */
    size_t n_sends;
    /* The first failure of this rank's own, with which it goes on, so that no rank waits for it; the message is `why`. */
    tutti_status status;
    char why[1024];
} tutti__mover;

/* Tags of messages, besides those of train/: MPI has few. */
enum { TUTTI__TAG_MOVE = 16, TUTTI__TAG_WRITER, TUTTI__TAG_SHARED };

/* MEMORY. Free it after a failure too. */
tutti_status tutti__mover_new(tutti__mover *mover, tutti_group *group, tutti_stream *stream,
                              int tag);
void tutti__mover_free(tutti__mover *mover);
/* Waits until the pieces' memory is not read any more. After gathering, on all ranks. */
tutti_status tutti__mover_wait(tutti__mover *mover);
/* mover->status, with its message. */
tutti_status tutti__mover_end(const tutti__mover *mover);

/* Brings tensor i together on its rank, in dst (host memory, row-major; else NULL). All ranks call these in the same order of
 * tensors; one that neither holds some of it nor gets it returns at once. Errors: those of the group. */
tutti_status tutti__whole_gather(const tutti__wholes *wholes, size_t i, const tutti__pieces *mine,
                                 tutti__mover *mover, char *dst);
/* Sends tensor i from its rank, where it is src, to all that hold some of it, into their pieces. Collective over the group, if all
 * ranks hold all of it. */
tutti_status tutti__whole_spread(const tutti__wholes *wholes, size_t i, const tutti__pieces *mine,
                                 tutti__mover *mover, const char *src);

/* XXH3-128 of all tensors in the order of their names, as tutti_module_digest; on rank 0, through which they pass one by one.
 * Collective. */
tutti_status tutti__wholes_digest(tutti__wholes *wholes, const tutti__pieces *mine,
                                  tutti__mover *mover, char digest[33]);
/* tutti_module_digest of the whole model, or of its averages, on all ranks. Collective. */
tutti_status tutti__digest_together(const tutti_module *m, const tutti_ema *average,
                                    tutti_group *group, char digest[33]);

#endif
