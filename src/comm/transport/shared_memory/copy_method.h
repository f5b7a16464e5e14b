/* copy_method.h -- chooses how data that peers cannot read directly are moved.   SPDX-License-Identifier: MIT
 *
 *     BY_STORES, BY_STRINGS   through staging buffers, copied by loads and stores, or by rep movsb (core/copy.h)
 *     BY_KERNEL               read directly by cross-memory attach (cma.c); in an all_reduce so the results, while
 *                             contributions are staged by the faster of the other two
 *
 * Which is fastest depends on the processor, on the hypervisor's placement of its cores, on the page size and on the
 * message size: each is up to four times as slow as another on some machine. So a group times its first calls of each
 * operation and size with each of them in turn, uses the fastest, and tries the others again now and then. All ranks see
 * the same times. The results are the same bytes with each. */
#ifndef TUTTI_COMM_TRANSPORT_COPY_METHOD_H
#define TUTTI_COMM_TRANSPORT_COPY_METHOD_H

#include "comm/transport/shared_memory/shm.h"

/* Before the operation is entered: sets shm->copy_method. */
void tutti__copy_method_choose(tutti__shm *shm, const tutti__operation *op);
/* Around this rank's copies before the operation is entered. */
void tutti__copy_method_stage_begin(tutti__shm *shm);
void tutti__copy_method_stage_end(tutti__shm *shm);
/* In an operation in which at least one contribution is moved by shm->copy_method, on all ranks: when it is entered, and when this
 * rank has all that it takes. */
void tutti__copy_method_begin(tutti__shm *shm);
void tutti__copy_method_end(tutti__shm *shm, const tutti__operation *op);
/* Bytes of a rank below which cross-memory attach does not pay. */
size_t tutti__copy_method_least_read(const tutti__shm *shm);
/* Copies into or out of a staging buffer, by the running operation's method. */
void tutti__copy_by_method(const tutti__shm *shm, void *restrict to, const void *restrict from,
                           size_t bytes);

#endif
