/* queue.h -- runs operations in call order, and the handles of asynchronous ones.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_ENGINE_QUEUE_H
#define TUTTI_COMM_ENGINE_QUEUE_H

#include "comm/engine/device_buffers.h"
#include "comm/engine/flight_recorder.h"
#include "comm/p2p/p2p.h"

typedef struct tutti__queue tutti__queue;

/* `flight` and `devices` outlive the queue. */
tutti_status tutti__queue_new(tutti__queue **queue_p, tutti__comm *comm, tutti__flight *flight,
                              tutti__devices *devices);
/* Call it before the first operation. */
void tutti__queue_set_engine(tutti__queue *queue, tutti__engine *engine);
/* Finishes what is queued (at once if the group is dead) and ends the thread. NULL is fine. */
void tutti__queue_free(tutti__queue *queue);

/* Runs or queues the operation, and may modify `op`; see tutti_work. Its time limit (0: tutti__queue_timeout) counts from its start. With
 * device buffers and `after` NULL, it runs after all work submitted to its stream so far; other events remain the caller's. */
tutti_status tutti__submit(tutti__queue *queue, tutti__operation *op, tutti_work **work_p);
/* Runs `call` in call order; collectives that it calls on this group run at once, before anything submitted after it.
 * Every rank submits it at the same place and calls the same within. On a dead group `call` is not called; `drop` (may be
 * NULL) always is, last. timeout_ms: the limit of calls within that have none; 0: the group's. */
tutti_status tutti__submit_call(tutti__queue *queue, tutti_status (*call)(void *arg),
                                void (*drop)(void *arg), void *arg, int timeout_ms,
                                tutti_work **work_p);
/* Labels the operations that this thread submits from now on as a reducer's (signature.h: reducer, bucket, tag); reducer 0:
 * no longer. */
void tutti__queue_label(const tutti__queue *queue, unsigned reducer, size_t bucket, uint64_t step);
/* Asynchronous operations on host memory that this thread submits from now on do not wake the communication thread: the
 * waiter runs them, and those before them, in call order, unless another operation, tutti_work_done or a wait with a
 * deadline wakes the thread first. For callers that do nothing before waiting: saves two thread switches. */
void tutti__queue_hold(const tutti__queue *queue, bool held);
/* The time limit of operations submitted from now on that have none; of the function that this thread runs, if that has one.
 * Of operations that run: the next one's number, and the bytes that this rank has contributed. */
void tutti__queue_set_timeout(tutti__queue *queue, int timeout_ms);
int tutti__queue_timeout(const tutti__queue *queue);
uint64_t tutti__queue_sequence(const tutti__queue *queue);
uint64_t tutti__queue_bytes(const tutti__queue *queue);

/* The handle of a send or receive, which starts at once: see tutti__p2p_start. Takes ownership of the bounce buffer, whose memory
 * is then `p`. */
tutti_status tutti__submit_p2p(tutti__queue *queue, tutti__p2p *p2p,
                               const tutti__signature *signature, void *p, int timeout_ms,
                               tutti__bounce *bounce, tutti_work **work_p);

/* Of a collective: waits until the work is done and returns when it ran, by tutti__now_ns. The handle stays valid:
 * tutti_work_wait frees it. */
void tutti__work_times(tutti_work *work, uint64_t *begin_ns_p, uint64_t *end_ns_p);

#endif
