/* module.c -- Tutti's table over one MPI; compiled for each that is found, into libtutti_mpi_<name>.so.
 * SPDX-License-Identifier: MIT
 *
 * See module.h. Moved data go as bytes; reductions use MPI's own types and operations. MPI has none for 16-bit floats, and
 * does not define NaN in MIN and MAX: for these we give MPI our own operations. */
#include "comm/backend/mpi/module.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

/* Open MPI's non-blocking all_reduce runs at half its speed from a megabyte on; MPICH's does not. */
#ifdef OPEN_MPI
enum { CHUNK_BYTES = 128 << 10 };
#define NAME "Open MPI"
#else
enum { CHUNK_BYTES = 1 << 20 };
#define NAME "MPICH"
#endif

static tutti__mpi_host host;

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

/* ---- Our own reductions ---------------------------------------------------------------------------------- */

typedef struct own_op {
    tutti_dtype dtype;
    tutti_redop redop;
    MPI_User_function *function;
    MPI_Op op;
} own_op;

#define OWN(name, DTYPE, REDOP)                                                                    \
    static void name(void *in, void *inout, int *n, MPI_Datatype *type)                            \
    {                                                                                              \
        const void *src[2] = {in, inout};                                                          \
                                                                                                   \
        (void)type;                                                                                \
        host.reduce(DTYPE, REDOP, &inout, 1, src, 2, (size_t)*n);                                  \
    }

OWN(f16_sum, TUTTI_F16, TUTTI_SUM)
OWN(f16_product, TUTTI_F16, TUTTI_PRODUCT)
OWN(f16_min, TUTTI_F16, TUTTI_MIN)
OWN(f16_max, TUTTI_F16, TUTTI_MAX)
OWN(bf16_sum, TUTTI_BF16, TUTTI_SUM)
OWN(bf16_product, TUTTI_BF16, TUTTI_PRODUCT)
OWN(bf16_min, TUTTI_BF16, TUTTI_MIN)
OWN(bf16_max, TUTTI_BF16, TUTTI_MAX)
OWN(f32_min, TUTTI_F32, TUTTI_MIN)
OWN(f32_max, TUTTI_F32, TUTTI_MAX)
OWN(f64_min, TUTTI_F64, TUTTI_MIN)
OWN(f64_max, TUTTI_F64, TUTTI_MAX)

static own_op own_ops[] = {
    {TUTTI_F16, TUTTI_SUM, f16_sum, 0},   {TUTTI_F16, TUTTI_PRODUCT, f16_product, 0},
    {TUTTI_F16, TUTTI_MIN, f16_min, 0},   {TUTTI_F16, TUTTI_MAX, f16_max, 0},
    {TUTTI_BF16, TUTTI_SUM, bf16_sum, 0}, {TUTTI_BF16, TUTTI_PRODUCT, bf16_product, 0},
    {TUTTI_BF16, TUTTI_MIN, bf16_min, 0}, {TUTTI_BF16, TUTTI_MAX, bf16_max, 0},
    {TUTTI_F32, TUTTI_MIN, f32_min, 0},   {TUTTI_F32, TUTTI_MAX, f32_max, 0},
    {TUTTI_F64, TUTTI_MIN, f64_min, 0},   {TUTTI_F64, TUTTI_MAX, f64_max, 0},
};

static MPI_Op op_of(tutti_dtype dtype, tutti_redop redop)
{
    for (size_t i = 0; i < sizeof own_ops / sizeof own_ops[0]; i++)
        if (own_ops[i].dtype == dtype && own_ops[i].redop == redop)
            return own_ops[i].op;
    switch (redop) {
    case TUTTI_SUM:
        return MPI_SUM;
    case TUTTI_PRODUCT:
        return MPI_PROD;
    case TUTTI_MIN:
        return MPI_MIN;
    case TUTTI_MAX:
        return MPI_MAX;
    case TUTTI_BAND:
        return MPI_BAND;
    case TUTTI_BOR:
        return MPI_BOR;
    case TUTTI_BXOR:
        return MPI_BXOR;
    default:
        return MPI_OP_NULL;
    }
}

static MPI_Datatype type_of(tutti_dtype dtype)
{
    switch (dtype) {
    case TUTTI_F32:
        return MPI_FLOAT;
    case TUTTI_F64:
        return MPI_DOUBLE;
    case TUTTI_F16:
    case TUTTI_BF16:
        return MPI_UINT16_T;
    case TUTTI_I8:
        return MPI_INT8_T;
    case TUTTI_U8:
        return MPI_UINT8_T;
    case TUTTI_I16:
        return MPI_INT16_T;
    case TUTTI_U16:
        return MPI_UINT16_T;
    case TUTTI_I32:
        return MPI_INT32_T;
    case TUTTI_U32:
        return MPI_UINT32_T;
    case TUTTI_U64:
        return MPI_UINT64_T;
    case TUTTI_I64:
        return MPI_INT64_T;
    }
    return MPI_DATATYPE_NULL;
}

static size_t bytes_of(tutti_dtype dtype)
{
    int bytes = 0;

    return MPI_Type_size(type_of(dtype), &bytes) == MPI_SUCCESS ? (size_t)bytes : 0;
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

static int start(const tutti__mpi_host *given, tutti__mpi_world *world)
{
    int running = 0, over = 0, level = MPI_THREAD_SINGLE, error = 0;

    host = *given;
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
    for (size_t i = 0; i < sizeof own_ops / sizeof own_ops[0] && !error; i++)
        error = MPI_Op_create(own_ops[i].function, 1, &own_ops[i].op);
    return error ? start_failed(world, "MPI_Op_create", error) : MPI_SUCCESS;
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

/* ---- Collectives and messages ------------------------------------------------------------------------------- */

/* Pieces of equal size. */
static int begin_even(const tutti__mpi_call *c, MPI_Request *request)
{
    const char *src = c->src, *dst = c->dst;
    MPI_Comm comm = comm_of(c->comm);
    int n = (int)(c->count * bytes_of(c->dtype)), rank, error = MPI_Comm_rank(comm, &rank);
    bool in_dst = src == dst + (size_t)rank * (size_t)n,
         in_src = dst == src + (size_t)rank * (size_t)n;

    if (error)
        return error;
    switch (c->kind) {
    case TUTTI__OP_BROADCAST:
        return MPI_Ibcast(c->dst, n, MPI_BYTE, c->root, comm, request);
    case TUTTI__OP_GATHER:
        return MPI_Igather(in_dst && rank == c->root ? MPI_IN_PLACE : c->src, n, MPI_BYTE, c->dst,
                           n, MPI_BYTE, c->root, comm, request);
    case TUTTI__OP_ALL_GATHER:
        return MPI_Iallgather(in_dst ? MPI_IN_PLACE : c->src, n, MPI_BYTE, c->dst, n, MPI_BYTE,
                              comm, request);
    case TUTTI__OP_SCATTER:
        return MPI_Iscatter(c->src, n, MPI_BYTE, in_src && rank == c->root ? MPI_IN_PLACE : c->dst,
                            n, MPI_BYTE, c->root, comm, request);
    default:
        return MPI_Ialltoall(c->src, n, MPI_BYTE, c->dst, n, MPI_BYTE, comm, request);
    }
}

static int begin_uneven(const tutti__mpi_call *c, MPI_Request *request)
{
    MPI_Datatype type = type_of(c->dtype);
    MPI_Comm comm = comm_of(c->comm);
    const char *place = c->dst;
    int rank, error;

    if (c->kind == TUTTI__OP_ALL_TO_ALL_V)
        return MPI_Ialltoallv(c->src, c->src_counts, c->src_at, type, c->dst, c->dst_counts,
                              c->dst_at, type, comm, request);
    error = MPI_Comm_rank(comm, &rank);
    if (error)
        return error;
    place += (size_t)c->dst_at[rank] * bytes_of(c->dtype);
    return MPI_Iallgatherv(c->src == place ? MPI_IN_PLACE : c->src, c->dst_counts[rank], type,
                           c->dst, c->dst_counts, c->dst_at, type, comm, request);
}

static int begin_reduction(const tutti__mpi_call *c, MPI_Request *request)
{
    MPI_Op op = op_of(c->dtype, c->redop == TUTTI_AVG ? TUTTI_SUM : c->redop);
    MPI_Datatype type = type_of(c->dtype);
    MPI_Comm comm = comm_of(c->comm);
    const void *src = c->src == c->dst ? MPI_IN_PLACE : c->src;
    int n = (int)c->count, rank, error;

    if (c->kind == TUTTI__OP_ALL_REDUCE)
        return MPI_Iallreduce(src, c->dst, n, type, op, comm, request);
    if (c->kind == TUTTI__OP_REDUCE_SCATTER)
        return MPI_Ireduce_scatter_block(c->src, c->dst, n, type, op, comm, request);
    error = MPI_Comm_rank(comm, &rank);
    if (error)
        return error;
    return MPI_Ireduce(rank == c->root ? src : c->src, rank == c->root ? c->dst : NULL, n, type, op,
                       c->root, comm, request);
}

static int begin(const tutti__mpi_call *c, tutti__mpi_request *request_p)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int error;

    switch (c->kind) {
    case TUTTI__OP_ALL_REDUCE:
    case TUTTI__OP_REDUCE:
    case TUTTI__OP_REDUCE_SCATTER:
        error = begin_reduction(c, &request);
        break;
    case TUTTI__OP_ALL_GATHER_V:
    case TUTTI__OP_ALL_TO_ALL_V:
        error = begin_uneven(c, &request);
        break;
    default:
        error = begin_even(c, &request);
        break;
    }
    *request_p = handle_of_request(request);
    return error;
}

static int send_bytes(tutti__mpi_comm comm, const void *p, int bytes, int rank, int tag,
                      tutti__mpi_request *request_p)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int error = MPI_Isend(p, bytes, MPI_BYTE, rank, tag, comm_of(comm), &request);

    *request_p = handle_of_request(request);
    return error;
}

static int test(tutti__mpi_request *request_p, bool *done_p)
{
    MPI_Request request = request_of(*request_p);
    int done = 0, error = MPI_Test(&request, &done, MPI_STATUS_IGNORE);

    *request_p = handle_of_request(request);
    *done_p = done != 0;
    return error;
}

/* Probes and receives in one step, since several threads may call it. */
static int take(tutti__mpi_comm comm, void *p, int bytes, int tag, int *rank_p)
{
    MPI_Message message;
    MPI_Status status;
    int found = 0;
    int error = MPI_Improbe(MPI_ANY_SOURCE, tag, comm_of(comm), &found, &message, &status);

    *rank_p = -1;
    if (error || !found)
        return error;
    *rank_p = status.MPI_SOURCE;
    return MPI_Mrecv(p, bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE);
}

extern TUTTI_API const tutti__mpi tutti_mpi_table;
const tutti__mpi tutti_mpi_table = {.table = TUTTI__MPI_TABLE,
                                    .version = TUTTI_VERSION,
                                    .name = NAME,
                                    .chunk_bytes = CHUNK_BYTES,
                                    .start = start,
                                    .finish = finish,
                                    .error_text = error_text,
                                    .dup = dup_comm,
                                    .sub = sub_comm,
                                    .return_errors = return_errors,
                                    .free = free_comm,
                                    .begin = begin,
                                    .send = send_bytes,
                                    .test = test,
                                    .take = take};
