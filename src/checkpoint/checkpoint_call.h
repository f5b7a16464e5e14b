/* checkpoint_call.h -- what a call of tutti_checkpoint_save or _load saves, or loads into.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CHECKPOINT_CHECKPOINT_CALL_H
#define TUTTI_CHECKPOINT_CHECKPOINT_CALL_H

#include "checkpoint/checkpoint_folder.h"
#include "comm/comm.h"
#include <tutti/checkpoint.h>

typedef struct tutti__checkpoint_call {
    tutti_module *m;
    tutti_optim *optim; /* NULL: none */
    tutti_group *group; /* NULL: alone */
    tutti_checkpoint_opts opts;
} tutti__checkpoint_call;

/* Checks the arguments, and that they are the same on all ranks, except PATH, of which rank 0's counts: it becomes `folder`,
 * without slashes at its end. Collective: all ranks return the same. */
tutti_status tutti__checkpoint_call_begin(tutti__checkpoint_call *call,
                                          const tutti_checkpoint_opts *opts, const char *path,
                                          char folder[TUTTI__CHECKPOINT_PATH]);
/* What is divided over the ranks: the model, and the average, or only the optimizer's state; by logical shards every rank has all of the
 * state in a file. Collective. */
tutti_status tutti__checkpoint_call_divided(const tutti__checkpoint_call *call, bool *model_p,
                                            bool *optim_p);
static inline tutti_status tutti__checkpoint_call_agree(const tutti__checkpoint_call *call,
                                                        tutti_status status)
{
    return call->group ? tutti__group_agree(call->group, status) : status;
}
static inline bool tutti__checkpoint_call_is_first(const tutti__checkpoint_call *call)
{
    return !call->group || tutti_group_rank(call->group) == 0;
}
static inline int tutti__checkpoint_call_ranks(const tutti__checkpoint_call *call)
{
    return call->group ? tutti_group_size(call->group) : 1;
}

#endif
