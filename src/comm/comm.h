/* comm.h -- what other layers may call on a group beyond its public header.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_COMM_H
#define TUTTI_COMM_COMM_H

#include "base/base.h"
#include "comm/engine/planned_engine.h"
#include "device/device.h"
#include <stdatomic.h>
#include <tutti/group.h>

/* ---- Groups of a process that joins one after another ------------------------------------------------------ */

/* The cause of a dead group's death, without setting the thread's message; OK if it is alive. *culprit_p: the rank that
 * caused it, -1: none in particular; of scope CALL or PROCESS: what this rank ends with, where other ranks' calls return
 * ABORTED. The text belongs to the group. */
tutti_status tutti__group_cause(tutti_group *group, int *culprit_p, const char **text_p);
/* Of a dead group: nothing has been received from the rank for a whole heartbeat interval. */
bool tutti__group_is_silent(tutti_group *group, int rank);
/* "rank 2 (host, process 71)", by its rank in the first group of the family. */
void tutti__group_rank_text(const tutti_group *group, int rank, char *text, size_t capacity);
/* As tutti_group_abort, because this rank ends with status `own`. */
void tutti__group_abort_with(tutti_group *group, tutti_status own, const char *why);
/* Kills the group on all ranks with a cause that is not a rank's failure (PEER). */
void tutti__group_give_up(tutti_group *group, const char *why);

/* ---- Groups ------------------------------------------------------------------------------------------ */

/* ARG for a NULL group, naming the call. */
tutti_status tutti__check_group(const char *call, const tutti_group *group);
/* "auto", "native", "mpi", "nccl"; false for anything else. */
bool tutti__backend_parse(const char *text, tutti_backend *backend_p);

/* The launcher that started this process, if it started several for one job: see tutti__launcher_find. */
typedef struct tutti__launcher {
    /* "tutti run", "torchrun", "mpirun", "srun", or what set the variables; NULL: none */
    const char *name;
    int n_ranks;        /* in the whole job */
    bool first_on_host; /* local rank 0, which prints what every rank of the host would */
    /* srun: it starts one process a node, which may be an agent that starts that node's ranks */
    bool may_start_agents;
} tutti__launcher;

/* Reads the launchers' variables. None if the job has one process, or if the variables only give the rendezvous (RANK
 * without LOCAL_RANK, as in a pod whose launcher has yet to start). */
tutti__launcher tutti__launcher_find(void);
/* For commands that start ranks themselves: ARG, with the intended command, under a launcher that has already started
 * ranks. `title`: "tutti train"; `again`: the flag that makes it start them, "-n 2" ("": it always does). */
tutti_status tutti__launcher_refuse(const tutti__launcher *launcher, const char *title,
                                    const char *again);

/* Waits for an event of the stream's device; GROUP errors if the group dies meanwhile or its time limit passes: "... timed
 * out after 600 s waiting for <what>". */
tutti_status tutti__group_await(tutti_group *group, tutti_stream *stream, tutti__event *event,
                                const char *what);
/* Labels the collectives that this thread calls on the group from now on as belonging to this reducer (below 65,536), step
 * and bucket (1 + its index; 0: none in particular): ranks compare them along with the call, and messages name them.
 * Reducer 0: the program's own again. */
void tutti__group_label(const tutti_group *group, unsigned reducer, size_t bucket, uint64_t step);
/* Asynchronous collectives that this thread calls on the group from now on start when their work is waited for: see
 * tutti__queue_hold. */
void tutti__group_hold(const tutti_group *group, bool held);
/* Waits until the work is done and returns when it ran, by tutti__now_ns. The handle stays valid: tutti_work_wait frees it. */
void tutti__work_times(tutti_work *work, uint64_t *begin_ns_p, uint64_t *end_ns_p);
/* Gives a collective constructor one result on all ranks: each passes its status, with the thread's message. OK if all
 * are; else the status of the first rank that failed, "rank 2: ...", on every rank, and the group stays alive. Collective,
 * also for ranks that failed; costs one small all_reduce if none failed. */
tutti_status tutti__group_agree(tutti_group *group, tutti_status local);
/* The same, and *all_p: whether `mine` is true on all ranks; valid only if the result is OK. */
tutti_status tutti__group_agree_all(tutti_group *group, tutti_status local, bool mine, bool *all_p);
/* Whether a message begins with the rank that it is about: "rank 3: ...". That of a group's failure does, with the rank in the first
 * group of the family. */
bool tutti__names_rank(const char *message);
/* Its second half, if all ranks already know by other means that `from` is the first that failed. */
tutti_status tutti__group_share_failure(tutti_group *group, tutti_status local, int from);
/* Each rank of a group has one 64-bit atomic, 0 when the group is made, for the callers' use. NULL if the rank is on another
 * host: then it can only be changed by messages. */
_Atomic uint64_t *tutti__group_atomic(tutti_group *group, int rank);
/* Compare-and-swaps atomics of ranks on other hosts, several at once (comm/core/operation.h); those ranks answer while they
 * compute. GROUP errors. */
typedef struct tutti__compare_and_swap tutti__compare_and_swap;
tutti_status tutti__group_compare_and_swap(tutti_group *group, tutti__compare_and_swap *exchanges,
                                           int n);
/* Memory of this rank that others may read while it computes: window 0, 1, ..., the same number on all ranks. It must stay, with what is
 * in it, until all that read this version have done so; those that want a later one wait until it is exposed. p NULL: no more, and
 * nobody reads. MEMORY. */
tutti_status tutti__group_expose(tutti_group *group, int window, const void *p, size_t bytes,
                                 uint64_t version);
/* Reads bytes of another rank's window into host memory, asynchronously; in a planned group *work_p is NULL. One thread at a time
 * reads from a window. */
tutti_status tutti__group_read(tutti_group *group, int window, uint64_t version, int rank,
                               size_t offset, void *to, size_t bytes, tutti_work **work_p);
/* Bytes that this rank has contributed to the group's collectives so far; call it only while running an operation. */
uint64_t tutti__group_bytes(const tutti_group *group);
/* How long one of the group's collectives may take, in which peers wait for this rank. */
int tutti__group_timeout_ms(const tutti_group *group);

/* How the group chooses algorithms (comm/algorithm/tuner.h): over TCP and between hosts. NULL: it has no choice. */
struct tutti__tuner *tutti__group_tuner(const tutti_group *group);
/* Measures what links cost, if it has not been measured when the group was made, nor given in a file. Collective. */
tutti_status tutti__group_measure_links(tutti_group *group);

/* ---- Groups for planning ------------------------------------------------------------------------------- */

/* Rank `rank` of `size`, of which `local_size` are on its host, without the others: collectives send nothing and are counted, as are
 * messages, whose work handles are NULL; memory is that of device/planned. Not with atomics and other splits than tutti_group_split_parts; a mesh of it has such groups. */
tutti_status tutti__group_plan(tutti_group **group_p, int rank, int size, int local_size);
bool tutti__group_is_planned(const tutti_group *group);
/* What it has counted; the caller may reset it, between calls. */
tutti__planned_calls *tutti__group_planned_calls(tutti_group *group);

/* ---- What this machine allows, for `tutti doctor` ------------------------------------------------------ */

/* False if `ranks` ranks of this host would have to use TCP, and why: "memfd_create: Operation not permitted". */
bool tutti__can_share_memory(int ranks, char *why, size_t capacity);
/* The address that TUTTI_SOCKET_IFNAME chooses, as text; "" if it is unset. ARG, naming the interfaces there are, if none
 * matches. */
tutti_status tutti__chosen_address(char *text, size_t capacity);
/* Tries to load each module for backend mpi. calls(user, kind, problem): "openmpi", and NULL or why it cannot be loaded.
 * Loaded modules stay: use it only in a process that does nothing else. Returns how many there are. */
size_t tutti__try_mpi_modules(void (*calls)(void *user, const char *kind, const char *problem),
                              void *user);

#endif
