/* module.c -- Tutti's table over one MPI; compiled for each that is found, into libtutti_mpi_<name>.so.
 * SPDX-License-Identifier: MIT
 *
 * See module.h. MPI moves bytes, from rank to rank; its one collective here is for the set-up. */
#include "comm/backend/mpi/module.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

#ifdef OPEN_MPI
#define NAME "Open MPI"
#else
#define NAME "MPICH"
#endif

enum { AT_ONCE = 64 }; /* requests that are tested by one call */

/* ---- Handles: each fits an integer ----------------------------------------------------------------------------- */

_Static_assert(sizeof(MPI_Comm) <= sizeof(tutti__mpi_comm) &&
                   sizeof(MPI_Request) <= sizeof(tutti__mpi_request),
               "a handle fits into the integer");

static MPI_Comm comm_of(tutti__mpi_comm handle)
{
    MPI_Comm comm;

    memcpy(&comm, &handle, sizeof comm);
    return comm;
}

static tutti__mpi_comm handle_of_comm(MPI_Comm comm)
{
    tutti__mpi_comm handle = 0;

    memcpy(&handle, &comm, sizeof comm);
    return handle;
}

static MPI_Request request_of(tutti__mpi_request handle)
{
    MPI_Request request;

    memcpy(&request, &handle, sizeof request);
    return request;
}

static tutti__mpi_request handle_of_request(MPI_Request request)
{
    tutti__mpi_request handle = 0;

    memcpy(&handle, &request, sizeof request);
    return handle;
}

/* ---- Init, teardown -------------------------------------------------------------------------------------- */

static void error_text(int error, char *text, size_t capacity)
{
    char whole[MPI_MAX_ERROR_STRING] = "";
    int length = 0;

    if (MPI_Error_string(error, whole, &length) != MPI_SUCCESS)
        snprintf(whole, sizeof whole, "error %d", error);
    snprintf(text, capacity, "%s", whole);
}

/* The version of the loaded library, which may differ from the one compiled against. */
static void read_version(char *text, size_t capacity)
{
    char whole[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;

    if (MPI_Get_library_version(whole, &length) != MPI_SUCCESS)
        snprintf(whole, sizeof whole, "%s", NAME);
    whole[strcspn(whole, "\n,")] = '\0';
    for (char *c = whole; *c; c++)
        *c = *c == '\t' ? ' ' : *c;
    snprintf(text, capacity, "%.*s", (int)capacity - 1, whole);
}

static int start_failed(tutti__mpi_world *world, const char *call, int error)
{
    char text[256];

    error_text(error, text, sizeof text);
    snprintf(world->error, sizeof world->error, "%s failed: %s", call, text);
    return error;
}

static int start(tutti__mpi_world *world)
{
    int running = 0, over = 0, level = MPI_THREAD_SINGLE, error = 0;

    read_version(world->version, sizeof world->version);
    if ((strstr(world->version, "Open MPI") != NULL) != (strcmp(NAME, "Open MPI") == 0)) {
        snprintf(world->error, sizeof world->error,
                 "this process is linked with %s, but the module is for " NAME, world->version);
        return MPI_ERR_OTHER;
    }
    MPI_Initialized(&running);
    MPI_Finalized(&over);
    if (over) {
        snprintf(world->error, sizeof world->error,
                 "MPI_Finalize has been called in this process, and MPI starts only once");
        return MPI_ERR_OTHER;
    }
    if (running)
        error = MPI_Query_thread(&level);
    else
        error = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    if (error)
        return start_failed(world, running ? "MPI_Query_thread" : "MPI_Init_thread", error);
    world->ours = !running;
    world->multiple = level >= MPI_THREAD_MULTIPLE;
    world->comm = handle_of_comm(MPI_COMM_WORLD);
    if (world->ours)
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &world->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world->size);
    return MPI_SUCCESS;
}

static int finish(void)
{
    int over = 0;

    MPI_Finalized(&over);
    return over ? MPI_SUCCESS : MPI_Finalize();
}

/* ---- Communicators ------------------------------------------------------------------------------------------ */

/* MPI writes *dup_p when the request is done, and only a handle's size of it. */
static int dup_comm(tutti__mpi_comm comm, tutti__mpi_comm *dup_p, tutti__mpi_request *request_p)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int error;

    *dup_p = 0;
    error = MPI_Comm_idup(comm_of(comm), (void *)dup_p, &request);
    *request_p = handle_of_request(request);
    return error;
}

static int sub_comm(tutti__mpi_comm comm, const int *ranks, int n, int tag, tutti__mpi_comm *sub_p)
{
    MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    MPI_Comm sub = MPI_COMM_NULL;
    int error = MPI_Comm_group(comm_of(comm), &all);

    if (!error)
        error = MPI_Group_incl(all, n, ranks, &some);
    if (!error)
        error = MPI_Comm_create_group(comm_of(comm), some, tag, &sub);
    if (some != MPI_GROUP_NULL)
        MPI_Group_free(&some);
    if (all != MPI_GROUP_NULL)
        MPI_Group_free(&all);
    *sub_p = handle_of_comm(sub);
    return error;
}

static int return_errors(tutti__mpi_comm comm)
{
    return MPI_Comm_set_errhandler(comm_of(comm), MPI_ERRORS_RETURN);
}

static int free_comm(tutti__mpi_comm *comm_p)
{
    MPI_Comm comm = comm_of(*comm_p);
    int error = MPI_Comm_free(&comm);

    *comm_p = handle_of_comm(comm);
    return error;
}

/* ---- Messages ----------------------------------------------------------------------------------------------- */

static int all_gather(tutti__mpi_comm comm, const void *mine, void *all, size_t bytes,
                      tutti__mpi_request *request_p)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int error = MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, comm_of(comm),
                               &request);

    *request_p = handle_of_request(request);
    return error;
}

static int send_bytes(tutti__mpi_comm comm, const void *p, size_t bytes, int rank, int tag,
                      tutti__mpi_request *request_p)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int error = MPI_Isend(p, (int)bytes, MPI_BYTE, rank, tag, comm_of(comm), &request);

    *request_p = handle_of_request(request);
    return error;
}

static int recv_bytes(tutti__mpi_comm comm, void *p, size_t bytes, int rank, int tag,
                      tutti__mpi_request *request_p)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int error = MPI_Irecv(p, (int)bytes, MPI_BYTE, rank, tag, comm_of(comm), &request);

    *request_p = handle_of_request(request);
    return error;
}

/* The error of the first that failed. */
static int error_in(const MPI_Status *statuses, int n, int error)
{
    for (int i = 0; i < n && error == MPI_ERR_IN_STATUS; i++)
        if (statuses[i].MPI_ERROR != MPI_SUCCESS && statuses[i].MPI_ERROR != MPI_ERR_PENDING)
            error = statuses[i].MPI_ERROR;
    return error;
}

static int test_some(tutti__mpi_request *requests, int n, bool *done, size_t *bytes)
{
    MPI_Request here[AT_ONCE];
    MPI_Status statuses[AT_ONCE];
    int indices[AT_ONCE], n_done = 0, error;

    for (int i = 0; i < n; i++) {
        here[i] = request_of(requests[i]);
        done[i] = false;
    }
    error = MPI_Testsome(n, here, &n_done, indices, statuses);
    if (error)
        return n_done == MPI_UNDEFINED ? error : error_in(statuses, n_done, error);
    for (int k = 0; k < n_done; k++) {
        int count = 0;

        MPI_Get_count(&statuses[k], MPI_BYTE, &count);
        done[indices[k]] = true;
        bytes[indices[k]] = count > 0 ? (size_t)count : 0; /* of a send it is not defined */
        requests[indices[k]] = handle_of_request(here[indices[k]]);
    }
    return MPI_SUCCESS;
}

static int test(tutti__mpi_request *requests, size_t n, bool *done, size_t *bytes)
{
    for (size_t i = 0; i < n; i += AT_ONCE) {
        int some = n - i < AT_ONCE ? (int)(n - i) : AT_ONCE,
            error = test_some(requests + i, some, done + i, bytes + i);

        if (error)
            return error;
    }
    return MPI_SUCCESS;
}

static int take(tutti__mpi_comm comm, void *p, size_t capacity, int tag, int *rank_p,
                size_t *bytes_p)
{
    MPI_Status status;
    int found = 0, count = 0,
        error = MPI_Iprobe(MPI_ANY_SOURCE, tag, comm_of(comm), &found, &status);

    *rank_p = -1;
    if (error || !found)
        return error;
    error = MPI_Recv(p, (int)capacity, MPI_BYTE, status.MPI_SOURCE, tag, comm_of(comm), &status);
    if (error)
        return error;
    *rank_p = status.MPI_SOURCE;
    MPI_Get_count(&status, MPI_BYTE, &count);
    *bytes_p = (size_t)count;
    return MPI_SUCCESS;
}

extern TUTTI_API const tutti__mpi tutti_mpi_table;
const tutti__mpi tutti_mpi_table = {.table = TUTTI__MPI_TABLE,
                                    .version = TUTTI_VERSION,
                                    .name = NAME,
                                    .start = start,
                                    .finish = finish,
                                    .error_text = error_text,
                                    .dup = dup_comm,
                                    .sub = sub_comm,
                                    .return_errors = return_errors,
                                    .free = free_comm,
                                    .all_gather = all_gather,
                                    .send = send_bytes,
                                    .recv = recv_bytes,
                                    .test = test,
                                    .take = take};
