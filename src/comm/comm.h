/* comm.h -- what other layers ask of a group beyond its public header.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_COMM_H
#define TUTTI_COMM_COMM_H

#include "base/base.h"
#include "device/device.h"
#include <stdatomic.h>
#include <tutti/group.h>

/* ---- Groups of a process that goes from one to the next --------------------------------------------------- */

/* Of a dead group: its cause, without making it the thread's message; OK while it lives. *culprit_p: the rank that caused it,
 * -1: none in particular. The text is the group's. */
tutti_status tutti__group_cause(tutti_group *group, int *culprit_p, const char **text_p);
/* Of a dead one: the rank has not been heard from for a whole heartbeat. */
bool tutti__group_is_silent(tutti_group *group, int rank);
/* Kills the group on all ranks, of a cause that is no rank's failure (PEER). */
void tutti__group_give_up(tutti_group *group, const char *why);

/* ---- Groups ------------------------------------------------------------------------------------------ */

/* ARG for a NULL group, naming the call. */
tutti_status tutti__check_group(const char *call, const tutti_group *group);
/* "auto", "native", "mpi", "nccl"; false for anything else. */
bool tutti__backend_parse(const char *text, tutti_backend *backend_p);

/* The launcher that has started this process, if that started others beside it for one job: see tutti__launcher_find. */
typedef struct tutti__launcher {
    const char *
        name; /* "tutti run", "torchrun", "mpirun", "srun", or the variables of another; NULL: none */
    int n_ranks;        /* in the whole job */
    bool first_on_host; /* of several that have the same to say, the one that says it */
    bool
        may_start_agents; /* srun, which starts a process a node, each to start that node's ranks */
} tutti__launcher;

/* Reads the launchers' variables. A job of one process is none, nor are variables that only tell where to meet (RANK without
 * LOCAL_RANK: a pod's, whose own launcher is yet to come). */
tutti__launcher tutti__launcher_find(void);
/* For commands that start ranks themselves: ARG, with the command that was meant, under a launcher that has done so already.
 * `title`: "tutti train"; `again`: what makes it start them, "-n 2" ("": always). */
tutti_status tutti__launcher_refuse(const tutti__launcher *launcher, const char *title,
                                    const char *again);

/* Waits until an event of the stream's device has passed; GROUP errors where the group dies meanwhile, or its time limit is over:
 * "... timed out after 600 s waiting for <what>". */
tutti_status tutti__group_await(tutti_group *group, tutti_stream *stream, tutti__event *event,
                                const char *what);
/* Runs `call` on the communication thread, in the order of the calls; collectives that it calls on this group run at once,
 * before what was called after it. Every rank submits it at the same place and calls the same within. */
tutti_status tutti__group_submit(tutti_group *group, tutti_status (*call)(void *arg), void *arg,
                                 tutti_work **work_p);
/* Collectives that this thread calls on the group from now on are of this reducer (below 65,536), step and bucket (1 + which; 0:
 * none in particular), which ranks compare along with the call, and messages name. Reducer 0: the program's again. */
void tutti__group_mark(const tutti_group *group, unsigned reducer, size_t bucket, uint64_t step);
/* Asynchronous collectives that this thread calls on the group from now on are begun by whoever waits for them: see tutti__queue_hold. */
void tutti__group_hold(const tutti_group *group, bool held);
/* Waits until the work is done and says when it ran, by tutti__now_ns. The handle stays: tutti_work_wait frees it. */
void tutti__work_times(tutti_work *work, uint64_t *begin_ns_p, uint64_t *end_ns_p);
/* How a collective constructor comes to one end on all ranks: each brings its status, with the thread's message. OK if all
 * are; else that of the first rank which failed, "rank 2: ...", on every rank, and the group lives. Collective, also for
 * who has failed; one small all_reduce where nobody has. */
tutti_status tutti__group_agree(tutti_group *group, tutti_status local);
/* And learns whether something is so on all ranks; of use only where the result is OK. */
tutti_status tutti__group_agree_all(tutti_group *group, tutti_status local, bool mine, bool *all_p);
/* Its second half, for who learns of it by other means: all ranks know that `from` is the first that has failed. */
tutti_status tutti__group_share_failure(tutti_group *group, tutti_status local, int from);
/* Each rank of a group has a word, 0 when the group is made, of which communication knows nothing: NULL where it lies on
 * another host, and can only be exchanged by messages. */
_Atomic uint64_t *tutti__group_word(tutti_group *group, int rank);
/* Several at once (comm/core/operation.h), of ranks on other hosts, which answer while they compute. GROUP errors. */
typedef struct tutti__word_exchange tutti__word_exchange;
tutti_status tutti__group_exchange_words(tutti_group *group, tutti__word_exchange *exchanges,
                                         int n);
/* Bytes that this rank has contributed to collectives of the group, so far; for who has the turn. */
uint64_t tutti__group_bytes(const tutti_group *group);

/* ---- What this machine allows, for `tutti doctor` ------------------------------------------------------ */

/* False if ranks of this host, `ranks` of them, would have to talk over TCP, and why: "memfd_create: Operation not permitted". */
bool tutti__can_share_memory(int ranks, char *why, size_t capacity);
/* The address that TUTTI_SOCKET_IFNAME chooses, as text; "" where it is unset. ARG, naming those there are, if it fits no
 * interface. */
tutti_status tutti__chosen_address(char *text, size_t capacity);
/* Tries each module for backend mpi. calls(user, kind, problem): "openmpi", and NULL or why it cannot be loaded. Loaded ones
 * stay: for a process that does nothing else. Returns how many there are. */
size_t tutti__try_mpi_modules(void (*calls)(void *user, const char *kind, const char *problem),
                              void *user);
/* "2.28.9": the NCCL that backend nccl would use here; it stays loaded. UNSUPPORTED with the remedy. */
tutti_status tutti__try_nccl(char *version, size_t capacity);

#endif
