/* group.h -- ranks that work together, and the collectives between them.
 * SPDX-License-Identifier: MIT
 *
 * A group is a fixed set of ranks 0..size-1. All of them issue the same collectives in the same order; each
 * call returns at once with a work handle, or waits if no handle is asked for. Collectives know buffers
 * (pointer, count, dtype, stream), never tensors. A group of one is a promise: every call works and nothing is sent,
 * so programs never ask "if distributed".
 *
 * After an error of scope GROUP the group is dead: calls return its first error; free it and make another.
 *
 * Threads: one thread issues (the order is the contract between ranks); any thread may wait on its work.
 * Ranks may be processes, or threads of one process that share a memory store. */
#ifndef TUTTI_GROUP_H
#define TUTTI_GROUP_H

#include <stdbool.h>
#include <tutti/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_group tutti_group;
typedef struct tutti_work tutti_work;
typedef struct tutti_store tutti_store;

/* ---- Store: the small shared dictionary through which ranks find each other ----------------------
 * Keys are text up to 255 bytes, values up to 1 MiB of bytes. Times are in milliseconds; a wait that
 * passes its deadline is TIMEOUT and the message names the key.
 * Threads: any thread may call. */

/* In one process, for ranks that are threads. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_memory_new(tutti_store **store_p);

/* In a file, for processes of one host, or of several with a file system that knows locks. It lives as long as anybody
 * has it open: who opens a file that nobody has open begins it anew (so nothing of a killed job is met again), and the
 * last one to free it removes it. Readable by its user only. Not to be used across fork.
 * Errors: ARG for a file that is no store or another user's; IO, NOT_FOUND, DISK. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_file_open(tutti_store **store_p,
                                                             const char *path);

/* Another handle on the same store (memory: shared by count; file: opened again; TCP: a connection of its own). Each is
 * freed. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_clone(tutti_store **store_p, tutti_store *store);

/* Hosts a TCP store in this process and connects to it. Port 0: the kernel chooses; read it with
 * tutti_store_port. Binds to `host` only, so 127.0.0.1 is never reachable from outside.
 * Errors: IO with the address, the owner's hint and the remedy when the port is taken. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_tcp_serve(tutti_store **store_p,
                                                             const char *host, int port);
/* Connects to a hosted store, retrying until timeout_ms. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_tcp_connect(tutti_store **store_p,
                                                               const char *host, int port,
                                                               int timeout_ms);
/* Where a TCP store listens; 0 of the others. */
TUTTI_API int tutti_store_port(const tutti_store *store);
/* Frees one handle; the store goes with its last. NULL is fine. */
TUTTI_API void tutti_store_free(tutti_store *store);

/* All of these: ARG for keys and values that are too large; IO when the store cannot be reached any more. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_set(tutti_store *store, const char *key,
                                                       const void *value, size_t bytes);
/* Waits for the key, then copies its value. *bytes: capacity on entry, length on return. ARG if too small. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_get(tutti_store *store, const char *key,
                                                       void *value, size_t *bytes, int timeout_ms);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_wait(tutti_store *store, const char *key,
                                                        int timeout_ms);
/* Adds to a decimal counter (0 if absent) and returns the sum. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_add(tutti_store *store, const char *key,
                                                       int64_t amount, int64_t *sum_p);
/* Stores `desired` if the value equals `expected` (expected_bytes 0 also matches an absent key). The value
 * afterwards is copied to `value`; for an absent key that did not match, it is `expected`. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_compare_set(
    tutti_store *store, const char *key, const void *expected, size_t expected_bytes,
    const void *desired, size_t desired_bytes, void *value, size_t *bytes);
/* *existed_p (may be NULL): whether the key was there. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_delete(tutti_store *store, const char *key,
                                                          bool *existed_p);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_num_keys(tutti_store *store, int64_t *n_p);

/* ---- Group ------------------------------------------------------------------------------------- */

typedef enum tutti_transport {
    TUTTI_TRANSPORT_AUTO, /* shared memory inside a host, TCP between hosts */
    TUTTI_TRANSPORT_TCP   /* TCP everywhere, also inside a host */
} tutti_transport;

/* What carries the collectives. */
typedef enum tutti_backend {
    /* TUTTI_BACKEND; else native where ranks can meet, with NCCL between GPUs if each rank has one of its own; else MPI */
    TUTTI_BACKEND_AUTO,
    TUTTI_BACKEND_NATIVE, /* Tutti's own; what is on GPUs goes through memory of the host */
    TUTTI_BACKEND_MPI,    /* the site's MPI, for ranks that mpirun or srun started; docs/mpi.md */
    TUTTI_BACKEND_NCCL /* native, and NCCL for what is on GPUs: UNSUPPORTED where it cannot be had; docs/nccl.md */
} tutti_backend;

/* Zero means default. */
typedef struct tutti_group_opts {
    tutti_store *store;               /* NULL: from the environment */
    int rank, world_size;             /* with a store only (ARG); else from the environment too */
    int local_rank, local_world_size; /* 0, 0: found by comparing hosts */
    const char *name;                 /* in messages and store keys; default "world" */
    int timeout_ms;                   /* of one collective and of set-up; default 600,000 */
    tutti_transport transport;
    /* A rank that is silent for so long (stopped, frozen, cut off) is dead for all. The most patient rank's counts.
     * Default TUTTI_HEARTBEAT_S, 5 s; -1 (of any rank): never, for debuggers. */
    int heartbeat_ms;
    tutti_backend backend; /* not MPI with a store given: its ranks and their numbers are MPI's */
    uint64_t reserved[4];  /* zero */
} tutti_group_opts;

/* Joins the group that the environment describes (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
 * MASTER_PORT; then Slurm's, Open MPI's and PMI's variables; none: a group of one), or the one in opts.
 * Errors: ARG for a half-set environment, naming what is missing and the command that sets it; IO, TIMEOUT,
 * PEER (who never came). */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_group_init(tutti_group **group_p,
                                                        const tutti_group_opts *opts);
/* Leaves the group. Unfinished work is waited for if the group is healthy. NULL is fine. In a forked child it does
 * nothing: the group is the parent's. */
TUTTI_API void tutti_group_free(tutti_group *group);

/* A new group of some of these ranks, in the order given. Collective over `group`: every rank calls it with the
 * same list and name; *sub_p is NULL on ranks that are not in it, and so not to be called with. Its traffic is its own.
 * For this and the next two: name NULL is "sub". What one rank is refused for (ARG) all ranks return, and the group lives;
 * MISMATCH where ranks give different lists, names or sizes. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_group_split(tutti_group *group, const int *ranks,
                                                         int n_ranks, const char *name,
                                                         tutti_group **sub_p);

/* Splits into groups of `part_size` consecutive ranks each (a divisor of the size), named NAME-0, NAME-1, ...; every
 * rank gets its own. Collective over `group`. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_group_split_parts(tutti_group *group, int part_size,
                                                               const char *name,
                                                               tutti_group **sub_p);
/* Splits by colour: ranks that give the same one form a group, named NAME-COLOUR, in the order of their keys, where those are
 * equal of their ranks. A negative colour: this rank is in no group, *sub_p is NULL. Collective over `group`; the name is the
 * same on all ranks. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_group_split_by(tutti_group *group, int colour, int key,
                                                            const char *name, tutti_group **sub_p);

/* OK, or why the group is dead, as its next call would say: a peer that was lost or failed, an abort, a time limit. Issues
 * nothing and never blocks; any thread may ask, beside calls in flight. A peer's death shows here in milliseconds.
 * Errors: ARG for NULL; PEER, TIMEOUT, MISMATCH, ABORTED. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_group_status(tutti_group *group);

/* What the group is. Any thread may ask, also of a dead group; texts live as long as the group. Of NULL: rank -1 of 0, the
 * CPU, empty texts. */
TUTTI_API int tutti_group_rank(const tutti_group *group);
TUTTI_API int tutti_group_size(const tutti_group *group);
TUTTI_API int tutti_group_local_rank(const tutti_group *group);
TUTTI_API int tutti_group_local_size(const tutti_group *group);
/* Ranks of a sub-group beside those of the group from tutti_group_init that it descends from. -1: no such rank, or not in
 * this group. */
TUTTI_API int tutti_group_global_rank(const tutti_group *group, int rank);
TUTTI_API int tutti_group_rank_of(const tutti_group *group, int global_rank);
/* How many collectives this rank has begun in the group (asynchronous ones begin in their turn), those inside
 * tutti_group_init, tutti_group_alloc and tutti_group_split included: the number that the next one bears in messages.
 * Ranks in step have the same. */
TUTTI_API uint64_t tutti_group_sequence(const tutti_group *group);
/* How long each collective issued from now on may take, from when it starts; those in flight keep theirs. A collective
 * that takes longer kills the group. 0: the timeout_ms that the group was made with. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_group_set_timeout(tutti_group *group, int timeout_ms);
TUTTI_API const char *tutti_group_name(const tutti_group *group);
/* "shared memory", "tcp", "shared memory + tcp", "mpi", "single". */
TUTTI_API const char *tutti_group_transport_name(const tutti_group *group);
/* The device of this rank: its local rank's GPU where there is one, else the CPU. */
TUTTI_API tutti_device tutti_group_device(const tutti_group *group);

/* Tells every rank, at once, that this one has failed and why; their pending and later calls return ABORTED with
 * this message and this rank's name. The group is dead afterwards. */
TUTTI_API void tutti_group_abort(tutti_group *group, const char *format, ...) TUTTI_PRINTF(2, 3);

/* Prints one line on standard output, from rank 0 only; NULL is alone, and so rank 0. It is the program's own line, not a
 * log's: no TUTTI_LOG, no callback. */
TUTTI_API void tutti_log0(const tutti_group *group, const char *format, ...) TUTTI_PRINTF(2, 3);

/* Memory that peers can read directly, zeroed and 64-byte aligned (page-aligned, in fact). Collective: every rank
 * calls it with the same size in the same order. Collectives on it copy nothing (backend mpi: all_reduce, reduce and
 * broadcast in place). Released in the same order, or all at once by tutti_group_free. ARG, MEMORY: of one rank, named,
 * on all of them; the group lives. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_group_alloc(tutti_group *group, size_t bytes,
                                                         void **p);
/* The same on the stream's device, from which the group moves buffers best; stream NULL: the host's. Each rank names its own
 * device. Peers read the memory directly only if all ranks ask for the host's. When it is released, no stream uses it.
 * A device's buffer of a collective lies in such memory on all ranks or on none, and equally far from its beginning (but for a
 * rank's own piece of a larger one): backend nccl registers it, and NCCL finds the peers' buffers by this rank's. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_group_alloc_on(tutti_group *group,
                                                            tutti_stream *stream, size_t bytes,
                                                            void **p);
TUTTI_API void tutti_group_release(tutti_group *group, void *p);

/* ---- Collectives ------------------------------------------------------------------------------- */

/* Borrowed until the call returns or, with a handle, the work is done: from then on, whatever the status, nobody accesses it. */
typedef struct tutti_buf {
    void *p;
    size_t count; /* elements; 0 is fine */
    tutti_dtype dtype;
    /* NULL: memory of the host. Else of the stream's device: the call comes behind all that was given to the stream before
     * it, and is over for every stream when its work is done. The buffers of one call bear one stream; what other ranks' do
     * is theirs. Calls that are coalesced come behind what was given before tutti_coalesce_end. */
    tutti_stream *stream;
} tutti_buf;

/* The same of what is only read: nobody writes there. */
typedef struct tutti_const_buf {
    const void *p;
    size_t count;
    tutti_dtype dtype;
    tutti_stream *stream;
} tutti_const_buf;

/* TUTTI_BUF(gradients, n, TUTTI_F32), a value: of the host. */
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

/* What lies in a buffer, as a source. */
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

/* For all of these. work_p NULL: waits before returning. Otherwise *work_p is freed by tutti_work_wait.
 * Errors: ARG (nothing was sent); MISMATCH when ranks call differently (both calls are named on all ranks);
 * PEER, TIMEOUT, ABORTED. Sums are in rank order (on several hosts those of each host's ranks, then of the hosts; with MPI
 * and NCCL in their own): the bits do not depend on timing.
 * A buffer that a rank does not use, being not the root, is {0}. A piece may already lie at its place in the larger
 * buffer; otherwise src and dst do not overlap. */

/* Reduces over all ranks, in place; everyone gets the result. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_all_reduce(tutti_group *group, tutti_buf buf,
                                                        tutti_redop op, tutti_work **work_p);
/* Reduces over all ranks, in place at root; the others' buffers stay as they are. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_reduce(tutti_group *group, tutti_buf buf,
                                                    tutti_redop op, int root, tutti_work **work_p);
/* The same of what lies in src, into dst, which has as many elements of the same dtype and is apart from src, or is src's
 * own memory: then they are those above. Some ranks may call these and others those. Of reduce_from, dst is root's alone, {0}
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
/* Copies root's buffer to everyone. */
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
/* The same of srcs that differ in size: counts[r] elements are rank r's (src.count = counts[own rank], dst.count = their
 * sum). `counts` is copied, as are all counts below; MISMATCH names who sends another number than somebody expects. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_all_gather_v(tutti_group *group, tutti_const_buf src,
                                                          tutti_buf dst, const size_t *counts,
                                                          tutti_work **work_p);
/* Piece r of src goes to rank r; piece r of dst comes from rank r. All pieces are src.count / size = dst.count / size
 * elements. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_all_to_all(tutti_group *group, tutti_const_buf src,
                                                        tutti_buf dst, tutti_work **work_p);
/* The same of pieces that differ in size, one behind the other: src_counts[r] elements go to rank r, dst_counts[r] come
 * from it (src.count, dst.count = their sums). */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_all_to_all_v(tutti_group *group, tutti_const_buf src,
                                                          const size_t *src_counts, tutti_buf dst,
                                                          const size_t *dst_counts,
                                                          tutti_work **work_p);
/* Nobody leaves before everybody has come. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_barrier(tutti_group *group, tutti_work **work_p);

/* ---- Coalesced calls -----------------------------------------------------------------------------
 * Many small reductions as one: what n calls would do, bit for bit, for about the price of one call for all of their bytes.
 * All ranks coalesce the same calls, in the same order: MISMATCH names both sides by the number of calls, the elements of
 * those that travel together, and a digest of kind, count, dtype and reduction of all. tutti_group_sequence counts them as
 * they travel, and each time they do may take the group's time limit. */

/* tutti_all_reduce of each of n buffers, whose dtypes may differ and which do not overlap. The list is borrowed until the
 * call returns, the buffers until the work is done. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_all_reduce_list(tutti_group *group,
                                                             const tutti_buf *bufs, size_t n,
                                                             tutti_redop op, tutti_work **work_p);
/* Collectives that this thread calls on the group from begin to end (all those above, and tutti_barrier) are only noted, with
 * work_p NULL, and return OK or ARG; end issues them as one, whose work is done when all are. They may run in any order, so
 * none uses what another gives; all_reduces of up to 16 KiB travel together. Nothing else uses the group in between,
 * be it a send, a split or a backward: STATE. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_coalesce_begin(tutti_group *group);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_coalesce_end(tutti_group *group, tutti_work **work_p);

/* ---- Between two ranks --------------------------------------------------------------------------
 * Outside the order of the collectives: any thread may call these, before, after and beside collectives in flight. The
 * messages from one rank with one tag (0 and up) are received in the order in which they were sent. A send is done when
 * its buffer may be used again, not when the message is received; a rank that then leaves the group, or just ends, loses
 * nothing of it. A send of a device's buffer waits for its stream, and the buffer may be used again on return; a receive into one
 * brings the message to the device when the receive is waited for. Unexpected messages wait at the receiver if they are small (up
 * to 16 KiB each, 4 KiB among more than 64 ranks of a host, and 256 KiB from each rank), all others at the sender, and nothing waits
 * behind them. To itself a rank can send too.
 * Errors: ARG; MISMATCH when the two name different dtypes or counts (both are named); PEER, TIMEOUT (that of
 * tutti_group_set_timeout, from the call on), ABORTED. All of scope GROUP kill the group, like a collective's. */

enum { TUTTI_ANY_RANK = -1 };

TUTTI_API TUTTI_NODISCARD tutti_status tutti_send(tutti_group *group, tutti_const_buf buf, int to,
                                                  int tag, tutti_work **work_p);
/* `from` may be TUTTI_ANY_RANK: whoever's comes first. tutti_work_source tells whose it was. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_recv(tutti_group *group, tutti_buf buf, int from,
                                                  int tag, tutti_work **work_p);
/* Waits until the work of a receive is done. The rank that sent; -1 if it failed. The handle stays. */
TUTTI_API int tutti_work_source(tutti_work *work);

/* A barrier that says who is missing: rank 0 waits timeout_ms (0: the group's limit) for all others, then names the first
 * rank that has not come, or with wait_all each, on all ranks (TIMEOUT). Slower than tutti_barrier, and like sends outside
 * the order of the collectives: for finding out who is stuck. The group is dead after a failure, as after any TIMEOUT:
 * ranks that come late get the same message. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_monitored_barrier(tutti_group *group, int timeout_ms,
                                                               bool wait_all);

/* ---- Work --------------------------------------------------------------------------------------- */

/* Waits and frees the handle, whatever the outcome, which it returns: OK, or the call's error. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_work_wait(tutti_work *work);
/* Waits at most `ms` milliseconds (0: only looks). TIMEOUT: the handle stays, the work goes on and the group lives, unless
 * it was the collective's own time limit that has passed, which the next wait says again. Otherwise as tutti_work_wait. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_work_wait_for(tutti_work *work, int ms);
/* True once tutti_work_wait would not block; so of NULL. */
TUTTI_API bool tutti_work_done(const tutti_work *work);

#ifdef __cplusplus
}
#endif
#endif
