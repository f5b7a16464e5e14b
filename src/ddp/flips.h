/* flips.h -- fault injection: flips a bit of a rank's memory now and then (TUTTI_CHAOS_FLIP; tutti run --chaos flip=RATE).
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_DDP_FLIPS_H
#define TUTTI_DDP_FLIPS_H

#include "ddp/ddp.h"

/* Reads the variable into ddp->flips; NULL: it is not set, or this process is left alone. ARG. */
tutti_status tutti__flips_open(tutti_ddp *ddp);
void tutti__flips_free(tutti_ddp *ddp);
/* At the beginning of a step, before anything reads parameters: draws, and flips a bit of what outlasts a step. */
void tutti__flips_begin(tutti_ddp *ddp);
/* When gradient i of this rank is final, before it is reduced (or, with shards, added to the sums); when all gradients are means. */
void tutti__flips_gradient(tutti_ddp *ddp, size_t i);
void tutti__flips_means(tutti_ddp *ddp);

#endif
