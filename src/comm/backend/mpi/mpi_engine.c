/* mpi_engine.c -- init, running an operation, teardown.   SPDX-License-Identifier: MIT
 *
 * Once ranks have agreed on an operation, each begins it, even if it has learnt of a failure meanwhile: others wait for it. */
#include "comm/backend/backend.h"
#include "comm/backend/mpi/mpi_engine.h"

#include <stdlib.h>
#include <string.h>

static tutti_status run(tutti__engine *engine, tutti__operation *op)
{
    tutti__mpi_engine *e = (tutti__mpi_engine *)engine;

    e->op = op;
    e->deadline = op->deadline;
    e->moving = false;
    TUTTI_TRY(tutti__mpi_agree(e));
    if (tutti__op_allocates(op))
        return tutti__mpi_alloc(e); /* afterwards ranks agree on whether all have their memory */
    return tutti__op_is_empty(op) ? TUTTI_OK : tutti__mpi_move(e);
}

static void release(tutti__engine *engine, void *p)
{
    tutti__mpi_release((tutti__mpi_engine *)engine, p);
}

/* ---- Teardown ----------------------------------------------------------------------------------------------- */

static void free_engine(tutti__mpi_engine *e)
{
    free(e->signatures);
    free(e->counts);
    free(e->pieces);
    free(e->slot_counts);
    free(e->staging);
    free(e);
}

/* MPI may still read and write the memory of an abandoned request, and needs its communicator. */
static void keep_for_ever(tutti__mpi_engine *e)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static tutti__mpi_engine *kept;

    pthread_mutex_lock(&lock);
    e->next = kept;
    kept = e;
    pthread_mutex_unlock(&lock);
}

static void close_engine(tutti__engine *engine)
{
    tutti__mpi_engine *e = (tutti__mpi_engine *)engine;
    bool failed = !e->usable || tutti__comm_failed(engine->comm);

    tutti__mpi_note_closed(failed);
    tutti__mpi_release_all(e);
    if (failed) {
        keep_for_ever(e);
        return;
    }
    (void)e->mpi->free(&e->comm);
    free_engine(e);
}

/* ---- Init ----------------------------------------------------------------------------------------------------- */

static const tutti__engine_ops MPI = {
    .name = "mpi", .run = run, .release = release, .close = close_engine};

static tutti__mpi_engine *engine_new(tutti__comm *comm)
{
    size_t n = (size_t)comm->size;
    tutti__mpi_engine *e = tutti__alloc(sizeof *e);

    if (!e)
        return NULL;
    e->base = (tutti__engine){&MPI, comm};
    e->mpi = tutti__mpi_loaded();
    e->cores = tutti__cores();
    e->slot_bytes = tutti__mpi_slot_bytes(e);
    e->signatures = calloc(n, sizeof *e->signatures);
    e->counts = calloc(2 * n, sizeof *e->counts);
    e->pieces = calloc(2 * n, sizeof *e->pieces);
    e->slot_counts = calloc(TUTTI__MPI_WINDOW * 4 * n, sizeof *e->slot_counts);
    e->staging = tutti__alloc_unset(TUTTI__MPI_WINDOW * e->slot_bytes);
    tutti__plain_init(&e->memory);
    pthread_mutex_init(&e->views_lock, NULL);
    if (e->signatures && e->counts && e->pieces && e->slot_counts && e->staging)
        return e;
    free_engine(e);
    (void)tutti__fail(TUTTI_ERR_MEMORY, "no memory for %d ranks", comm->size);
    return NULL;
}

static tutti_status make_comm(tutti__mpi_engine *e, const tutti__mpi_engine *parent,
                              const int *ranks, int tag)
{
    tutti__mpi_request request;
    int error;

    if (parent) {
        error = e->mpi->sub(parent->comm, ranks, e->base.comm->size, tag, &e->comm);
    } else {
        error = e->mpi->dup(tutti__mpi_world_comm(), &e->comm, &request);
        if (!error)
            TUTTI_TRY(tutti__mpi_wait(e, &request));
    }
    if (!error)
        error = e->mpi->return_errors(e->comm);
    if (error)
        return tutti__mpi_fail(e, "making a communicator", error);
    e->usable = true;
    return TUTTI_OK;
}

tutti_status tutti__mpi_open(tutti__engine **engine_p, tutti__comm *comm, tutti__engine *parent,
                             const int *ranks, int tag, double deadline)
{
    tutti__mpi_engine *e = engine_new(comm);

    *engine_p = e ? &e->base : NULL;
    if (!e)
        return TUTTI_ERR_MEMORY;
    e->deadline = deadline;
    tutti__mpi_note_open();
    return make_comm(e, (tutti__mpi_engine *)parent, ranks, tag);
}

tutti_status tutti__mpi_exchange(tutti__engine *engine, const void *mine, void *all, size_t bytes,
                                 double deadline)
{
    tutti__mpi_engine *e = (tutti__mpi_engine *)engine;
    size_t n = (size_t)engine->comm->size;
    char *staging = tutti__alloc((n + 1) * bytes);
    tutti__mpi_call gather;
    tutti_status status;

    if (!staging)
        return TUTTI_ERR_MEMORY;
    memcpy(staging + n * bytes, mine, bytes);
    gather = tutti__mpi_bytes_call(e, TUTTI__OP_ALL_GATHER, staging + n * bytes, staging, bytes);
    e->deadline = deadline;
    status = tutti__mpi_run_call(e, &gather);
    e->usable = status == TUTTI_OK;
    if (!e->usable) /* the staging stays: the request is abandoned */
        return status;
    memcpy(all, staging, n * bytes);
    free(staging);
    return TUTTI_OK;
}
