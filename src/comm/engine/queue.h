/* queue.h -- operations in the order of the calls, and the handles of those that are not waited for at once.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_ENGINE_QUEUE_H
#define TUTTI_COMM_ENGINE_QUEUE_H

#include "comm/engine/device.h"
#include "comm/engine/flight.h"
#include "comm/p2p/p2p.h"

typedef struct tutti__queue tutti__queue;

/* `flight` and `devices` outlive the queue. */
tutti_status tutti__queue_new(tutti__queue **queue_p, tutti__comm *comm, tutti__flight *flight,
                              tutti__devices *devices);
/* Before the first operation. */
void tutti__queue_set_engine(tutti__queue *queue, tutti__engine *engine);
/* Finishes what is queued (at once where the group is dead) and ends the thread. NULL is fine. */
void tutti__queue_free(tutti__queue *queue);

/* Runs or queues the operation, of which `op` is no longer what it was; see tutti_work. The group's time limit counts from when
 * it starts. Of one on a device's buffers whose mark is NULL, it comes behind all that its stream was given so far; other marks
 * stay the caller's. */
tutti_status tutti__submit(tutti__queue *queue, tutti__op *op, tutti_work **work_p);
/* Runs `call` in the order of the calls; collectives that it calls on this group run at once, before what was called after
 * it. Every rank submits it at the same place and calls the same within. On a dead group it is not called; `drop` (may be
 * NULL) is, in any case and last. */
tutti_status tutti__submit_call(tutti__queue *queue, tutti_status (*call)(void *arg),
                                void (*drop)(void *arg), void *arg, tutti_work **work_p);
/* Operations that this thread submits from now on are a reducer's, and say so (signature.h: reducer, bucket, tag); reducer 0:
 * they are not. */
void tutti__queue_mark(const tutti__queue *queue, unsigned reducer, size_t bucket, uint64_t step);
/* Asynchronous operations on the CPU's memory that this thread submits from now on wake nobody: whoever waits for one runs it, and those
 * before it, in the order of the calls, unless another operation, a look (tutti_work_done) or a wait with a deadline wakes the
 * thread. For who has nothing to do before waiting, and saves two thread switches. */
void tutti__queue_hold(const tutti__queue *queue, bool held);
/* How long operations submitted from now on may take; of those that run, the number of the next, and the bytes that this
 * rank has contributed. */
void tutti__queue_set_timeout(tutti__queue *queue, int timeout_ms);
int tutti__queue_timeout(const tutti__queue *queue);
uint64_t tutti__queue_sequence(const tutti__queue *queue);
uint64_t tutti__queue_bytes(const tutti__queue *queue);

/* The handle of a send or receive, which starts at once: see tutti__p2p_start. Takes the parcel over, whose memory is then `p`. */
tutti_status tutti__submit_p2p(tutti__queue *queue, tutti__p2p *p2p,
                               const tutti__signature *signature, void *p, int timeout_ms,
                               tutti__parcel *parcel, tutti_work **work_p);

/* Of a collective: waits until the work is done and says when it ran, by tutti__now_ns. The handle stays: tutti_work_wait frees it. */
void tutti__work_times(tutti_work *work, uint64_t *begin_ns_p, uint64_t *end_ns_p);

#endif
