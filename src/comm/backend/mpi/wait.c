/* wait.c -- waiting for an MPI request.   SPDX-License-Identifier: MIT
 *
 * A blocking MPI call could not be abandoned. So the thread that runs the operation, the communication thread or a waiting
 * caller, makes progress by testing the request, and checks for failures and the deadline in between. */
#include "comm/backend/mpi/mpi_engine.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum {
    TESTS = 16, /* between two checks of the clock */
    NAP_NS = 20000
};

/* After how many milliseconds a waiting rank yields its core, and naps between tests. */
static const double SPIN_MS = 0.05, NAP_AFTER_MS = 0.5, NAP_AFTER_MOVING_MS = 100;

tutti_status tutti__mpi_fail(tutti__mpi_engine *e, const char *what, int error)
{
    tutti__comm *comm = e->base.comm;
    char text[256];

    e->mpi->error_text(error, text, sizeof text);
    if (!e->op)
        return tutti__fail(TUTTI_ERR_PEER, "%s reports, in %s: %s", e->mpi->name, what, text);
    return tutti__comm_fail(comm, TUTTI_ERR_PEER, -1, "rank %d: %s reports, in %s: %s", comm->rank,
                            e->mpi->name, what, text);
}

/* In init ranks have no names yet. */
static tutti_status fail_init_late(const tutti__comm *comm)
{
    return tutti__fail(
        TUTTI_ERR_PEER,
        "timed out after %.3g s waiting for the other %d rank%s: one has died, hangs, or "
        "makes its groups in another order",
        comm->timeout_ms / 1e3, comm->size - 1, comm->size == 2 ? "" : "s");
}

static tutti_status fail_late(tutti__mpi_engine *e)
{
    tutti__comm *comm = e->base.comm;
    bool *missing = calloc((size_t)comm->size, sizeof *missing);
    tutti_status status;
    char text[TUTTI__SIGNATURE_TEXT];
    int n = 0;

    if (!missing)
        return tutti__comm_fail(comm, TUTTI_ERR_TIMEOUT, -1, "timed out");
    tutti__mpi_find_missing(e, missing);
    for (int r = 0; r < comm->size; r++)
        n += missing[r];
    tutti__signature_text(&e->op->signature, text, sizeof text);
    status = n > 0 ? tutti__comm_fail_late(comm, e->op, missing)
                   : tutti__comm_fail(comm, TUTTI_ERR_TIMEOUT, -1,
                                      "%s has not ended in %.3g s, although all ranks are in it: "
                                      "the network is slow or has failed (TUTTI_TIMEOUT_S or "
                                      "tutti_group_set_timeout sets the limit)",
                                      text, e->op->timeout_ms / 1e3);
    free(missing);
    return status;
}

/* A rank that has left, and had not made this call, will not. One that had may leave before this rank has completed it. */
static tutti_status check_left(const tutti__mpi_engine *e)
{
    tutti__comm *comm = e->base.comm;

    for (int r = 0; r < comm->size; r++)
        if (tutti__comm_has_left(comm, r) &&
            atomic_load(&comm->peers[r].seen) <= e->op->signature.sequence)
            return tutti__comm_fail_lost(comm, r);
    return TUTTI_OK;
}

/* Between tests: TUTTI_OK to continue. */
static tutti_status check(tutti__mpi_engine *e, double now, double waited)
{
    tutti__comm *comm = e->base.comm;

    if (!e->op && comm->parent && tutti__comm_failed(comm->parent))
        return tutti__comm_error(comm->parent, NULL);
    if (e->op && tutti__comm_failed(comm))
        return tutti__comm_status(comm);
    if (e->op && waited > NAP_AFTER_MS) {
        tutti__mpi_reply(e);
        TUTTI_TRY(check_left(e));
    }
    if (now < e->deadline)
        return TUTTI_OK;
    return e->op ? fail_late(e) : fail_init_late(comm);
}

static void relax(double waited, bool crowded, double nap_after)
{
    if (waited > nap_after)
        nanosleep(&(struct timespec){0, NAP_NS}, NULL);
    else if (crowded || waited > SPIN_MS)
        sched_yield();
}

tutti_status tutti__mpi_wait(tutti__mpi_engine *e, tutti__mpi_request *request)
{
    double begin = tutti__now_ms();

    for (;;) {
        double now;

        for (int i = 0; i < TESTS; i++) {
            bool done = false;
            int error = e->mpi->test(request, &done);

            if (error)
                return tutti__mpi_fail(e, e->op ? "a collective" : "init", error);
            if (done)
                return TUTTI_OK;
        }
        now = tutti__now_ms();
        TUTTI_TRY(check(e, now, now - begin));
        relax(now - begin, e->base.comm->local_size > e->cores,
              e->moving ? NAP_AFTER_MOVING_MS : NAP_AFTER_MS);
    }
}

tutti_status tutti__mpi_run_call(tutti__mpi_engine *e, const tutti__mpi_call *call)
{
    tutti__mpi_request request;
    int error = e->mpi->begin(call, &request);

    if (error)
        return tutti__mpi_fail(e, tutti__op_name(call->kind), error);
    return tutti__mpi_wait(e, &request);
}
