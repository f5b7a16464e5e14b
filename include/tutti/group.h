/* group.h -- ranks that work together, and the collectives between them.
 * SPDX-License-Identifier: MIT
 *
 * A group is a fixed set of ranks 0..size-1. All of them issue the same collectives in the same order; each
 * call returns at once with a work handle, or blocks if no handle is requested. Collectives work on buffers
 * (pointer, count, dtype, stream), never on tensors. In a group of one every call works and nothing is sent,
 * so programs need no "if distributed".
 *
 * After an error of scope GROUP the group is dead: all calls return the first error; free it and make another.
 *
 * Threads: one thread issues calls (ranks must agree on their order); any thread may wait for a work handle.
 * Ranks may be processes, or threads of one process that share a memory store. */
#ifndef TUTTI_GROUP_H
#define TUTTI_GROUP_H

#include <stdbool.h>
#include <tutti/device.h>
#include <tutti/store.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_group tutti_group;
typedef struct tutti_work tutti_work;

/* ---- Group ------------------------------------------------------------------------------------- */

typedef enum tutti_transport {
    TUTTI_TRANSPORT_AUTO, /* shared memory inside a host, TCP between hosts */
    TUTTI_TRANSPORT_TCP   /* TCP (backend mpi: MPI) also inside a host */
} tutti_transport;

/* The transport of collectives. */
typedef enum tutti_backend {
    /* TUTTI_BACKEND; else native if ranks can find each other, with NCCL between GPUs if each rank has its own GPU; else MPI */
    TUTTI_BACKEND_AUTO,
    TUTTI_BACKEND_NATIVE, /* Tutti's own; data on GPUs go through host memory */
    TUTTI_BACKEND_MPI, /* between hosts the site's MPI, for ranks that mpirun or srun started; docs/mpi.md */
    TUTTI_BACKEND_NCCL /* native, with NCCL for data on GPUs; UNSUPPORTED if that is not possible; docs/nccl.md */
} tutti_backend;

/* Zero means default. */
typedef struct tutti_group_opts {
    tutti_store *store;               /* NULL: from the environment */
    int rank, world_size;             /* with a store only (ARG); else from the environment too */
    int local_rank, local_world_size; /* 0, 0: found by comparing hosts */
    const char *name;                 /* in messages and store keys; default "world" */
    int timeout_ms;                   /* of one collective and of set-up; default 600,000 */
    tutti_transport transport;
    /* A rank that is silent for this long (stopped, frozen, cut off) is considered dead by all. The largest value of all
     * ranks applies. Default TUTTI_HEARTBEAT_S, 5 s; -1 (on any rank): never, for debuggers. */
    int heartbeat_ms;
    tutti_backend backend; /* MPI cannot be combined with a store: MPI itself numbers the ranks */
    uint64_t reserved[4];  /* zero */
} tutti_group_opts;

/* Joins the group that the environment describes (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
 * MASTER_PORT; then Slurm's, Open MPI's and PMI's variables; none: a group of one), or the one in opts.
 * Errors: ARG for an incomplete environment, naming what is missing and the command that sets it; NOT_FOUND if DNS does not know
 * rank 0's host; IO, TIMEOUT, PEER (naming the ranks that never came). */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_group_init(tutti_group **group_p,
                                                        const tutti_group_opts *opts);
/* Leaves the group. Unfinished work is waited for if the group is healthy. NULL is fine. In a forked child it does
 * nothing: the group is the parent's. */
TUTTI_API void tutti_group_free(tutti_group *group);

/* A new group of some of these ranks, in the order given. Collective over `group`: every rank calls it with the
 * same list and name; *sub_p is NULL on ranks outside it, which must not use it. Its traffic is separate.
 * For this and the next two: name NULL is "sub". If the call is invalid on one rank, all ranks return its ARG, and the group
 * stays usable; MISMATCH if ranks give different lists, names or sizes. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_group_split(tutti_group *group, const int *ranks,
                                                         int n_ranks, const char *name,
                                                         tutti_group **sub_p);

/* The same, called by the members alone, which do not wait for the other ranks: `ranks` is the same list on each of them, and
 * contains this rank. Such groups with the same ranks and name are told apart by their order, which must be the same on their members.
 * One thread at a time for a group. Errors: ARG on this rank only: the others wait for it until the time limit. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_group_split_members(tutti_group *group,
                                                                 const int *ranks, int n_ranks,
                                                                 const char *name,
                                                                 tutti_group **sub_p);

/* Splits into groups of `part_size` consecutive ranks each (a divisor of the size), named NAME-0, NAME-1, ...; every
 * rank gets its own. Collective over `group`. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_group_split_parts(tutti_group *group, int part_size,
                                                               const char *name,
                                                               tutti_group **sub_p);
/* Splits by colour: ranks with the same colour form a group, named NAME-COLOUR, in the order of their keys (equal keys: of
 * their ranks). Negative colour: this rank is in no group, and *sub_p is NULL. Collective over `group`; the name must be the same
 * on all ranks. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_group_split_by(tutti_group *group, int colour, int key,
                                                            const char *name, tutti_group **sub_p);

/* OK, or why the group is dead, as its next call would report: a peer that was lost or failed, an abort, a time limit. Issues
 * nothing and never blocks; any thread may call it while calls are in flight. A peer's death shows here in milliseconds.
 * Errors: ARG for NULL; PEER, TIMEOUT, MISMATCH, ABORTED. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_group_status(tutti_group *group);
/* Of a dead group: the rank in it that was lost, aborted, hung or is otherwise the cause. -1: the group is alive or NULL, or the
 * cause is no rank of it in particular. Never blocks; any thread. */
TUTTI_API int tutti_group_culprit(tutti_group *group);

/* Properties of the group. Any thread, also for a dead group; texts live as long as the group. For NULL: rank -1 of 0, the
 * CPU, empty texts. */
TUTTI_API int tutti_group_rank(const tutti_group *group);
TUTTI_API int tutti_group_size(const tutti_group *group);
TUTTI_API int tutti_group_local_rank(const tutti_group *group);
TUTTI_API int tutti_group_local_size(const tutti_group *group);
/* Translate between ranks of a sub-group and ranks of the group from tutti_group_init that it was split from. -1: no such
 * rank, or not in this group. */
TUTTI_API int tutti_group_global_rank(const tutti_group *group, int rank);
TUTTI_API int tutti_group_rank_of(const tutti_group *group, int global_rank);
/* How many collectives this rank has begun in the group (asynchronous ones begin in their turn), those inside
 * tutti_group_init, tutti_group_alloc and tutti_group_split included: the number that the next one has in messages.
 * It is the same on all ranks that have made the same calls. */
TUTTI_API uint64_t tutti_group_sequence(const tutti_group *group);
/* Sets the time limit of collectives issued from now on, counted from their start; those in flight keep theirs. A collective
 * that takes longer kills the group. 0: the timeout_ms that the group was made with. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_group_set_timeout(tutti_group *group, int timeout_ms);
TUTTI_API const char *tutti_group_name(const tutti_group *group);
/* The same number on all ranks of the group, and another one for every other group, so that ranks can find out whether they mean
 * the same one. 0 for NULL. */
TUTTI_API uint64_t tutti_group_id(const tutti_group *group);
/* "shared memory", "tcp", "shared memory + tcp", "mpi", "shared memory + mpi", "single". */
TUTTI_API const char *tutti_group_transport_name(const tutti_group *group);
/* The device of this rank: its local rank's GPU if there is one, else the CPU. */
TUTTI_API tutti_device tutti_group_device(const tutti_group *group);

/* Tells every rank, at once, that this one has failed and why; their pending and later calls return ABORTED with
 * this message and this rank's name. The group is dead afterwards. */
TUTTI_API void tutti_group_abort(tutti_group *group, const char *format, ...) TUTTI_PRINTF(2, 3);

/* Prints one line on standard output, from rank 0 only; NULL counts as rank 0. It is output of the program, not a log line:
 * TUTTI_LOG and the log callback do not apply. */
TUTTI_API void tutti_log0(const tutti_group *group, const char *format, ...) TUTTI_PRINTF(2, 3);

/* Memory that peers can read directly, zeroed and 64-byte aligned (page-aligned, in fact). Collective: every rank
 * calls it with the same size in the same order. Collectives on it copy nothing (backend mpi: except between
 * hosts whose ranks share memory). Release it in the same order on all ranks, or all at once by tutti_group_free. If one rank fails (ARG,
 * MEMORY), all return its error, which names it; the group stays usable. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_group_alloc(tutti_group *group, size_t bytes,
                                                         void **p);
/* The same on the stream's device, where the group moves buffers fastest; stream NULL: host memory. Each rank names its own
 * device. Peers read the memory directly only if all ranks ask for host memory. No stream may still use it when it is released.
 * A device buffer of a collective must be in such memory on all ranks or on none, at the same offset (except for a rank's own
 * piece of a larger one): backend nccl registers it, and NCCL derives the peers' addresses from this rank's. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_group_alloc_on(tutti_group *group,
                                                            tutti_stream *stream, size_t bytes,
                                                            void **p);
TUTTI_API void tutti_group_release(tutti_group *group, void *p);

/* ---- Pool: such memory in pieces, without communication ------------------------------------------------
 * For allocators: what is reserved by all ranks together is then taken by each alone. Collectives on pieces copy nothing either;
 * ranks may use pieces of different pools, or other memory. Threads: any. */
typedef struct tutti_pool tutti_pool;

/* Reserves `bytes`, rounded up to whole pages, for each rank: collective, like tutti_group_alloc. Memory is in use only once it has been
 * written, so a large reservation costs address space. Free the pool before its group, in the same order on all ranks. Errors
 * as of tutti_group_alloc. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_pool_new(tutti_pool **pool_p, tutti_group *group,
                                                      size_t bytes);
/* A piece of the reservation, aligned to 64 bytes, of undefined contents; NULL: no piece of that size is left. */
TUTTI_API void *tutti_pool_alloc(tutti_pool *pool, size_t bytes);
/* Gives a piece back, from which later pieces are taken; its pages stay in use. NULL is fine. */
TUTTI_API void tutti_pool_release(tutti_pool *pool, void *p);
/* Pieces that are still in use become invalid. NULL is fine. */
TUTTI_API void tutti_pool_free(tutti_pool *pool);

/* ---- Collectives ------------------------------------------------------------------------------- */

/* If a rank has no memory to begin a collective, it returns MEMORY there and ABORTED on the others, and the group is dead. */

/* Borrowed until the call returns or, with a handle, the work is done; after that it is never accessed, whatever the status. */
typedef struct tutti_buf {
    void *p;
    size_t count; /* elements; 0 is fine */
    tutti_dtype dtype;
    /* NULL: host memory. Else memory of the stream's device: the call runs after all work submitted to the stream before it,
     * and when it is done, its result is visible to every stream. All buffers of one call must have the same stream; other ranks
     * may use other streams. Coalesced calls run after the work submitted before tutti_coalesce_end. */
    tutti_stream *stream;
} tutti_buf;

/* The same, for memory that is only read. */
typedef struct tutti_const_buf {
    const void *p;
    size_t count;
    tutti_dtype dtype;
    tutti_stream *stream;
} tutti_const_buf;

/* TUTTI_BUF(gradients, n, TUTTI_F32): a value, for host memory. */
#ifdef __cplusplus
inline tutti_buf TUTTI_BUF(void *p, size_t count, tutti_dtype dtype)
{
    return tutti_buf{p, count, dtype, nullptr};
}
inline tutti_const_buf TUTTI_CONST_BUF(const void *p, size_t count, tutti_dtype dtype)
{
    return tutti_const_buf{p, count, dtype, nullptr};
}
#else
#define TUTTI_BUF(p, count, dtype)       ((tutti_buf){p, count, dtype, NULL})
#define TUTTI_CONST_BUF(p, count, dtype) ((tutti_const_buf){p, count, dtype, NULL})
#endif

/* A buffer as a source. */
static inline __attribute__((unused)) tutti_const_buf tutti_buf_const(tutti_buf buf)
{
    tutti_const_buf source;

    source.p = buf.p;
    source.count = buf.count;
    source.dtype = buf.dtype;
    source.stream = buf.stream;
    return source;
}

typedef enum tutti_redop {
    TUTTI_SUM,
    TUTTI_AVG, /* the sum, divided once by the size; not for integers */
    TUTTI_PRODUCT,
    TUTTI_MIN,
    TUTTI_MAX,
    TUTTI_BAND, /* bitwise; for integers only */
    TUTTI_BOR,
    TUTTI_BXOR
} tutti_redop;

/* A factor for a sum, a time limit of one call, and the same calls without buffers by value: tutti/call.h.
 * For all of these: work_p NULL: blocks until done. Otherwise *work_p must be freed by tutti_work_wait.
 * Errors: ARG (nothing was sent); MISMATCH if ranks make different calls (all ranks name both calls);
 * PEER, TIMEOUT, ABORTED. Sums are in rank order (several hosts: within each, then over them; more than 8 over TCP or MPI: in
 * an order of their number, and of which of them share hosts and switches; NCCL: its own), so the bits do not depend on timing.
 * A buffer that only the root uses is {0} on other ranks. A piece may already be at its place in the larger buffer; otherwise
 * src and dst must not overlap. */

/* Reduces over all ranks, in place; all ranks get the result. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_all_reduce(tutti_group *group, tutti_buf buf,
                                                        tutti_redop op, tutti_work **work_p);
/* Reduces over all ranks, in place at root; the others' buffers are not changed. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_reduce(tutti_group *group, tutti_buf buf,
                                                    tutti_redop op, int root, tutti_work **work_p);
/* The same from src into dst, which has the same count and dtype and does not overlap src, or is the same memory (then they
 * equal those above). Some ranks may call these while others call those. In reduce_from only root has a dst; it is {0}
 * elsewhere. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_all_reduce_from(tutti_group *group,
                                                             tutti_const_buf src, tutti_buf dst,
                                                             tutti_redop op, tutti_work **work_p);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_reduce_from(tutti_group *group, tutti_const_buf src,
                                                         tutti_buf dst, tutti_redop op, int root,
                                                         tutti_work **work_p);
/* dst = this rank's share (src.count / size elements) of the reduction of all src. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_reduce_scatter(tutti_group *group, tutti_const_buf src,
                                                            tutti_buf dst, tutti_redop op,
                                                            tutti_work **work_p);
/* Copies root's buffer to all ranks. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_broadcast(tutti_group *group, tutti_buf buf, int root,
                                                       tutti_work **work_p);
/* dst = this rank's piece (dst.count elements) of root's src (size × dst.count); src is {0} elsewhere. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_scatter(tutti_group *group, tutti_const_buf src,
                                                     tutti_buf dst, int root, tutti_work **work_p);
/* Root's dst (size × src.count) = every rank's src, in rank order; dst is {0} elsewhere. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_gather(tutti_group *group, tutti_const_buf src,
                                                    tutti_buf dst, int root, tutti_work **work_p);
/* dst (size × src.count) = every rank's src, in rank order. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_all_gather(tutti_group *group, tutti_const_buf src,
                                                        tutti_buf dst, tutti_work **work_p);
/* The same with srcs of different sizes: rank r has counts[r] elements (src.count = counts[own rank], dst.count = their sum).
 * `counts` is copied, as are all counts below; MISMATCH names the ranks whose counts disagree. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_all_gather_v(tutti_group *group, tutti_const_buf src,
                                                          tutti_buf dst, const size_t *counts,
                                                          tutti_work **work_p);
/* Piece r of src goes to rank r; piece r of dst comes from rank r. All pieces are src.count / size = dst.count / size
 * elements. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_all_to_all(tutti_group *group, tutti_const_buf src,
                                                        tutti_buf dst, tutti_work **work_p);
/* The same with pieces of different sizes, one after the other: src_counts[r] elements go to rank r, dst_counts[r] come
 * from it (src.count, dst.count = their sums). */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_all_to_all_v(tutti_group *group, tutti_const_buf src,
                                                          const size_t *src_counts, tutti_buf dst,
                                                          const size_t *dst_counts,
                                                          tutti_work **work_p);
/* Returns when all ranks have called it. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_barrier(tutti_group *group, tutti_work **work_p);

/* ---- Coalesced calls -----------------------------------------------------------------------------
 * Many small reductions as one: the same bits as n calls, for about the time of one call with all of their bytes.
 * All ranks must coalesce the same calls in the same order: MISMATCH names both sides by the number of calls, the elements of
 * those sent together, and a digest of kind, count, dtype and reduction of all. tutti_group_sequence counts the messages that
 * are sent, and the group's time limit applies to each. */

/* tutti_all_reduce of each of n buffers, whose dtypes may differ and which do not overlap. The list is borrowed until the
 * call returns, the buffers until the work is done. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_all_reduce_list(tutti_group *group,
                                                             const tutti_buf *bufs, size_t n,
                                                             tutti_redop op, tutti_work **work_p);
/* Between begin and end, collectives that this thread calls on the group (all those above, and tutti_barrier; with work_p
 * NULL) are only recorded, and return OK or ARG; end issues them as one, whose work is done when all are. They may run in any
 * order, so none may use another's result; all_reduces of up to 16 KiB are sent together. Other uses of the group in between
 * (a send, a split, a backward) return STATE. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_coalesce_begin(tutti_group *group);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_coalesce_end(tutti_group *group, tutti_work **work_p);

/* ---- Calls of the program's own, in call order ----------------------------------------------------- */

/* Runs `call` in its place in the order of the group's collectives, with work_p on the communication thread; collectives that
 * it calls on this group with work_p NULL run at once, before anything submitted after it. So what follows a collective, such
 * as a division or the next collective, needs no second wake-up. All ranks submit it at the same place and call the same
 * within. Its status is the work's. `drop` (may be NULL) runs last and always, on the same thread, even if `call` does not run
 * because the group is dead: it frees what `arg` owns. If this call itself fails, with work_p too, `drop` has run on the caller's
 * thread. Errors: ARG; STATE in a forked child, or while calls are coalesced; MEMORY; those of the group. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_group_submit(tutti_group *group,
                                                          tutti_status (*call)(void *arg),
                                                          void (*drop)(void *arg), void *arg,
                                                          tutti_work **work_p);

/* ---- Between two ranks --------------------------------------------------------------------------
 * Independent of the order of collectives: any thread may call these, also while collectives are in flight. Messages from one
 * rank with one tag (0 or more) are received in the order in which they were sent. A send is done when its buffer may be used
 * again, not when the message is received; the message is not lost if the sender then leaves the group or ends. A send from a
 * device buffer waits for its stream, and the buffer may be used again on return; a receive into one copies the message to the
 * device when the receive is waited for. Unexpected messages are buffered by the receiver if they are small (up to 16 KiB each,
 * 4 KiB with more than 64 ranks on a host, and 256 KiB from each rank); others wait at the sender, and block no other message. A
 * rank can also send to itself.
 * Errors: ARG; MISMATCH if the two ranks give different dtypes or counts (both are named); PEER, TIMEOUT (the limit of
 * tutti_group_set_timeout, from the call on), ABORTED. All of scope GROUP kill the group, as in a collective. */

enum { TUTTI_ANY_RANK = -1 };

TUTTI_API TUTTI_NODISCARD tutti_status tutti_send(tutti_group *group, tutti_const_buf buf, int to,
                                                  int tag, tutti_work **work_p);
/* `from` may be TUTTI_ANY_RANK: the message that comes first; tutti_work_source returns its sender. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_recv(tutti_group *group, tutti_buf buf, int from,
                                                  int tag, tutti_work **work_p);
/* Waits until a receive is done and returns the rank that sent; -1 if it failed. The handle stays valid. */
TUTTI_API int tutti_work_source(tutti_work *work);

/* A barrier that names missing ranks: rank 0 waits timeout_ms (0: the group's limit) for all others, then names the first
 * missing rank, or with wait_all every one, on all ranks (TIMEOUT). Slower than tutti_barrier, and like sends independent of
 * the order of collectives: for finding out which rank is stuck. The group is dead after a failure, as after any TIMEOUT; late
 * ranks get the same message. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_monitored_barrier(tutti_group *group, int timeout_ms,
                                                               bool wait_all);

/* ---- Work --------------------------------------------------------------------------------------- */

/* Another reference to the handle, which a second thread may wait for or release on its own; returns `work`. All waits for a
 * message, and releases of one that is not done, must have returned before tutti_group_free is called. */
TUTTI_API tutti_work *tutti_work_retain(tutti_work *work);
/* Gives a reference back without waiting: the work goes on, and its buffers stay borrowed until it is done. Of a receive into a
 * device's memory it waits, to copy the message. NULL is fine. */
TUTTI_API void tutti_work_release(tutti_work *work);
/* Waits, gives this reference to the handle back in any case, and returns OK or the call's error. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_work_wait(tutti_work *work);
/* Waits at most `ms` milliseconds (0: only polls). TIMEOUT: the handle stays valid, the work continues and the group lives;
 * or it was the collective's own time limit, which the next wait reports again. Otherwise as tutti_work_wait. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_work_wait_for(tutti_work *work, int ms);
/* Calls done(arg) once, when tutti_work_wait would not block: in this call if it is so already, else on the thread that ends the
 * work, mostly one of the library's. Other calls may wait for that thread, so `done` returns soon: it notes the fact, wakes a thread,
 * completes a promise. Of the library it may call only tutti_work_done, _wait, _source, _retain and _release of this work. The
 * handle may be given back at once, also by `done`. The time limit of a message for which nobody waits is enforced with a delay of up to a fifth of
 * the heartbeat interval; without heartbeats, and in a group of one, not before somebody waits.
 * Errors: ARG; STATE if the work has such a function already. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_work_on_done(tutti_work *work, void (*done)(void *arg),
                                                          void *arg);
/* True if tutti_work_wait would not block, and for NULL. */
TUTTI_API bool tutti_work_done(const tutti_work *work);

#ifdef __cplusplus
}
#endif
#endif
