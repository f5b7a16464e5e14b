/* communicator.c -- the ranks of a group, their names in messages, and its observers.
 * SPDX-License-Identifier: MIT */
#include "comm/core/communicator.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

tutti_status tutti__comm_init(tutti__comm *comm)
{
    tutti__peer *self;

    pthread_mutex_init(&comm->failure_lock, NULL);
    comm->peers = tutti__alloc((size_t)comm->size * sizeof *comm->peers);
    if (!comm->peers)
        return TUTTI_ERR_MEMORY;
    self = &comm->peers[comm->rank];
    self->pid = (int64_t)getpid();
    gethostname(self->host, sizeof self->host - 1);
    return TUTTI_OK;
}

void tutti__comm_destroy(tutti__comm *comm)
{
    free(comm->peers);
    free(comm->outer_ranks);
    pthread_mutex_destroy(&comm->failure_lock);
}

void tutti__comm_observe(tutti__comm *comm, const tutti__observer *observer)
{
    int n = atomic_load(&comm->n_observers);

    comm->observers[n] = *observer;
    atomic_store(&comm->n_observers, n + 1);
    if (observer->look)
        atomic_store(&comm->looker, n + 1);
}

void tutti__comm_forget_observer(tutti__comm *comm, const void *self)
{
    for (int i = 0; i < atomic_load(&comm->n_observers); i++)
        if (comm->observers[i].self == self)
            comm->observers[i] = (tutti__observer){.self = NULL};
}

tutti__comm *tutti__comm_outermost(tutti__comm *comm)
{
    while (comm->outer)
        comm = comm->outer;
    return comm;
}

int tutti__comm_outer_rank(const tutti__comm *comm, int rank)
{
    for (; comm->outer && rank >= 0; comm = comm->outer)
        rank = comm->outer_ranks[rank];
    return rank;
}

void tutti__comm_peer_text(const tutti__comm *comm, int rank, char *text, size_t capacity)
{
    for (; comm->outer; comm = comm->outer)
        rank = comm->outer_ranks[rank];
    if (comm->peers)
        snprintf(text, capacity, "rank %d (%s, process %lld)", rank, comm->peers[rank].host,
                 (long long)comm->peers[rank].pid);
    else
        snprintf(text, capacity, "rank %d", rank);
}

bool tutti__comm_has_left(const tutti__comm *comm, int rank)
{
    for (; comm->outer; comm = comm->outer)
        rank = comm->outer_ranks[rank];
    return atomic_load(&comm->peers[rank].left);
}

bool tutti__comm_any_left(tutti__comm *comm)
{
    return atomic_load(&tutti__comm_outermost(comm)->any_left);
}

void tutti__comm_note_left(tutti__comm *comm, int rank)
{
    int n = atomic_load(&comm->n_observers);

    atomic_store(&comm->peers[rank].left, true);
    atomic_store(&comm->any_left, true);
    for (int i = 0; i < n; i++)
        if (comm->observers[i].left)
            comm->observers[i].left(comm->observers[i].self, rank);
}

size_t tutti__comm_chunk_bytes(const tutti__comm *comm, size_t standard)
{
    size_t bytes = comm->tuning.chunk_bytes ? comm->tuning.chunk_bytes : standard;

    return (bytes + 63) / 64 * 64;
}
