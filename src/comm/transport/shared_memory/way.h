/* way.h -- how what peers cannot read where it lies gets to them.   SPDX-License-Identifier: MIT
 *
 *     by stores, by strings    through staging buffers, copied in by one or the other of core/copy.h
 *     by the kernel            read by who takes it, from where it lies (cma.c); of all_reduce so the results, while
 *                              contributions are staged by the quicker of the other two
 *
 * Which is quickest depends on the processor, on where the hypervisor has put its cores, on the size of pages and of the
 * message: each is up to four times as slow as another somewhere. So a group times its first calls of each operation and
 * size by each of them in turn, takes the quickest, and tries the others again now and then. All ranks see the same
 * times. The bytes that come out are the same whichever it was. */
#ifndef TUTTI_COMM_TRANSPORT_WAY_H
#define TUTTI_COMM_TRANSPORT_WAY_H

#include "comm/transport/shared_memory/shm.h"

/* Before the operation is entered: sets shm->way. */
void tutti__way_choose(tutti__shm *shm, const tutti__op *op);
/* Around what this rank copies in before the operation is entered. */
void tutti__way_stage_begin(tutti__shm *shm);
void tutti__way_stage_end(tutti__shm *shm);
/* Of an operation in which at least one contribution goes by shm->way, on all ranks: once it is entered, and when this rank
 * has all that it takes. */
void tutti__way_begin(tutti__shm *shm);
void tutti__way_end(tutti__shm *shm, const tutti__op *op);
/* Bytes of a rank: below, reading them through the kernel does not pay. */
size_t tutti__way_least_read(const tutti__shm *shm);
/* Copies into a staging buffer, or out of one, by the running operation's way. */
void tutti__way_copy(const tutti__shm *shm, void *restrict to, const void *restrict from,
                     size_t bytes);

#endif
