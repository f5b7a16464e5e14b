/* module.c -- Tutti's table over NCCL; built into libtutti_nccl.so.   SPDX-License-Identifier: MIT
 *
 * See module.h. Functions of NCCL 2.14 are linked; newer ones are looked up in the loaded library, which may be older or
 * newer than the header at compile time. */
#include "comm/backend/nccl/module.h"

#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <string.h>

enum {
    OLDEST = NCCL_VERSION(2, 14, 0),    /* the first with non-blocking communicators */
    REGISTERS = NCCL_VERSION(2, 19, 3), /* ncclMemAlloc, ncclCommRegister */
    WINDOWS = NCCL_VERSION(2, 27, 3),
    WINDOW_SYMMETRIC = 1 /* NCCL_WIN_COLL_SYMMETRIC */
};
_Static_assert(NCCL_VERSION_CODE >= OLDEST, "NCCL 2.14 or newer is needed");
_Static_assert((int)TUTTI__NCCL_OK == ncclSuccess && (int)TUTTI__NCCL_PENDING == ncclInProgress &&
                   sizeof(tutti__nccl_id) == sizeof(ncclUniqueId),
               "what the table says is what NCCL says");

/* Of the loaded library; NULL if it lacks them. */
static struct newer {
    ncclResult_t (*alloc)(void **p, size_t bytes);
    ncclResult_t (*free)(void *p);
    ncclResult_t (*add)(ncclComm_t comm, void *p, size_t bytes, void **handle_p);
    ncclResult_t (*remove)(ncclComm_t comm, void *handle);
    ncclResult_t (*add_window)(ncclComm_t comm, void *p, size_t bytes, void **window_p, int flags);
    ncclResult_t (*remove_window)(ncclComm_t comm, void *window);
} newer;

/* ---- The library --------------------------------------------------------------------------------------- */

static void look_up(void *library, const char *name, void *function_p)
{
    void *symbol = dlsym(library, name);

    memcpy(function_p, &symbol, sizeof symbol);
}

/* The library that the dynamic linker has loaded. */
static void *open_library(void)
{
    ncclResult_t (*const known)(int *) = ncclGetVersion;
    const void *symbol;
    Dl_info info;

    memcpy(&symbol, &known, sizeof symbol);
    return dladdr(symbol, &info) ? dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
}

static void find_newer(int version)
{
    void *library = open_library();

    if (!library)
        return;
    if (version >= REGISTERS) {
        look_up(library, "ncclMemAlloc", &newer.alloc);
        look_up(library, "ncclMemFree", &newer.free);
        look_up(library, "ncclCommRegister", &newer.add);
        look_up(library, "ncclCommDeregister", &newer.remove);
    }
    if (version >= WINDOWS) {
        look_up(library, "ncclCommWindowRegister", &newer.add_window);
        look_up(library, "ncclCommWindowDeregister", &newer.remove_window);
    }
    dlclose(library);
    if (!newer.alloc || !newer.free || !newer.add || !newer.remove)
        newer = (struct newer){0};
    if (!newer.add_window || !newer.remove_window)
        newer.add_window = NULL;
}

static const char *start(tutti__nccl_library *library_p)
{
    int version = 0;

    *library_p = (tutti__nccl_library){0};
    if (ncclGetVersion(&version) != ncclSuccess)
        return "ncclGetVersion fails";
    library_p->version = version;
    if (version < OLDEST)
        return "it is older than 2.14, the first version with non-blocking communicators";
    if (version / 10000 != NCCL_MAJOR)
        return "Tutti was built with another major version";
    find_newer(version);
    library_p->registers = newer.add;
    library_p->windows = newer.add_window;
    return NULL;
}

static void error_text(tutti__nccl_comm *comm, int error, char *text, size_t capacity)
{
    const char *last = ncclGetLastError((ncclComm_t)comm);

    snprintf(text, capacity, "%s%s%s", ncclGetErrorString((ncclResult_t)error),
             last && *last ? ": " : "", last ? last : "");
}

/* ---- Communicators --------------------------------------------------------------------------------------- */

static int unique_id(tutti__nccl_id *id_p)
{
    ncclUniqueId id;
    ncclResult_t result = ncclGetUniqueId(&id);

    memcpy(id_p->bytes, id.internal, sizeof id.internal);
    return (int)result;
}

static int init(tutti__nccl_comm **comm_p, const tutti__nccl_id *id, int rank, int size)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    ncclUniqueId unique;
    ncclResult_t result;

    config.blocking = 0;
    memcpy(unique.internal, id->bytes, sizeof unique.internal);
    result = ncclCommInitRankConfig(&comm, size, unique, rank, &config);
    *comm_p = (tutti__nccl_comm *)comm;
    return (int)result;
}

static int state(tutti__nccl_comm *comm)
{
    ncclResult_t result = ncclSuccess, called = ncclCommGetAsyncError((ncclComm_t)comm, &result);

    return (int)(called == ncclSuccess ? result : called);
}

static int finalize(tutti__nccl_comm *comm)
{
    return (int)ncclCommFinalize((ncclComm_t)comm);
}

static int destroy(tutti__nccl_comm *comm)
{
    return (int)ncclCommDestroy((ncclComm_t)comm);
}

static int abort_comm(tutti__nccl_comm *comm)
{
    return (int)ncclCommAbort((ncclComm_t)comm);
}

/* ---- Memory ------------------------------------------------------------------------------------------------ */

static int alloc(void **p, size_t bytes)
{
    return (int)newer.alloc(p, bytes);
}

static int free_memory(void *p)
{
    return (int)newer.free(p);
}

static int add(tutti__nccl_comm *comm, tutti__nccl_memory *memory)
{
    memory->handle = NULL;
    memory->window = newer.add_window;
    return (int)(memory->window
                     ? newer.add_window((ncclComm_t)comm, memory->p, memory->bytes, &memory->handle,
                                        WINDOW_SYMMETRIC)
                     : newer.add((ncclComm_t)comm, memory->p, memory->bytes, &memory->handle));
}

static int remove_memory(tutti__nccl_comm *comm, tutti__nccl_memory *memory)
{
    void *handle = memory->handle;

    memory->handle = NULL;
    if (!handle)
        return TUTTI__NCCL_OK;
    return (int)(memory->window ? newer.remove_window((ncclComm_t)comm, handle)
                                : newer.remove((ncclComm_t)comm, handle));
}

/* ---- Collectives --------------------------------------------------------------------------------------------- */

/* 16-bit integers are only moved (nccl_backend.c): any type of their size does. */
static ncclDataType_t type_of(tutti_dtype dtype)
{
    static const ncclDataType_t types[] = {
        [TUTTI_F32] = ncclFloat32,   [TUTTI_F64] = ncclFloat64, [TUTTI_F16] = ncclFloat16,
        [TUTTI_BF16] = ncclBfloat16, [TUTTI_I8] = ncclInt8,     [TUTTI_U8] = ncclUint8,
        [TUTTI_I32] = ncclInt32,     [TUTTI_I64] = ncclInt64,   [TUTTI_I16] = ncclFloat16,
        [TUTTI_U16] = ncclFloat16,   [TUTTI_U32] = ncclUint32,  [TUTTI_U64] = ncclUint64};

    return types[dtype];
}

static ncclRedOp_t reduction_of(tutti_redop redop)
{
    static const ncclRedOp_t reductions[] = {[TUTTI_SUM] = ncclSum,
                                             [TUTTI_AVG] = ncclAvg,
                                             [TUTTI_PRODUCT] = ncclProd,
                                             [TUTTI_MIN] = ncclMin,
                                             [TUTTI_MAX] = ncclMax};

    return reductions[redop];
}

/* Messages between pairs, all at once. A piece whose src is its dst does not move. */
static ncclResult_t exchange(const tutti__nccl_call *c)
{
    ncclDataType_t type = type_of(c->dtype);
    ncclComm_t comm = (ncclComm_t)c->comm;
    ncclResult_t result = ncclGroupStart(), ended;

    if (result != ncclSuccess)
        return result;
    for (int r = 0; r < c->size && (result == ncclSuccess || result == ncclInProgress); r++) {
        const char *out = tutti__piece_of(c->src, c->out[r], c->element);
        char *in = tutti__piece_of(c->dst, c->in[r], c->element);

        if (r == c->rank && out == in)
            continue;
        if (c->out[r].count > 0)
            result = ncclSend(out, c->out[r].count, type, r, comm, c->stream);
        if (c->in[r].count > 0 && (result == ncclSuccess || result == ncclInProgress))
            result = ncclRecv(in, c->in[r].count, type, r, comm, c->stream);
    }
    ended = ncclGroupEnd();
    return result == ncclSuccess || result == ncclInProgress ? ended : result;
}

static int begin(const tutti__nccl_call *c)
{
    ncclComm_t comm = (ncclComm_t)c->comm;
    ncclDataType_t type = type_of(c->dtype);

    switch (c->kind) {
    case TUTTI__OP_ALL_REDUCE:
        return (int)ncclAllReduce(c->src, c->dst, c->count, type, reduction_of(c->redop), comm,
                                  c->stream);
    case TUTTI__OP_REDUCE:
        return (int)ncclReduce(c->src, c->rank == c->root ? c->dst : NULL, c->count, type,
                               reduction_of(c->redop), c->root, comm, c->stream);
    case TUTTI__OP_REDUCE_SCATTER:
        return (int)ncclReduceScatter(c->src, c->dst, c->count, type, reduction_of(c->redop), comm,
                                      c->stream);
    case TUTTI__OP_BROADCAST:
        return (int)ncclBroadcast(c->src, c->dst, c->count, type, c->root, comm, c->stream);
    case TUTTI__OP_ALL_GATHER:
        return (int)ncclAllGather(c->src, c->dst, c->count, type, comm, c->stream);
    default:
        return (int)exchange(c);
    }
}

extern TUTTI_API const tutti__nccl tutti_nccl_table;
const tutti__nccl tutti_nccl_table = {.table = TUTTI__NCCL_TABLE,
                                      .version = TUTTI_VERSION,
                                      .header = NCCL_VERSION_CODE,
                                      .start = start,
                                      .error_text = error_text,
                                      .unique_id = unique_id,
                                      .init = init,
                                      .state = state,
                                      .begin = begin,
                                      .finalize = finalize,
                                      .destroy = destroy,
                                      .abort = abort_comm,
                                      .alloc = alloc,
                                      .free = free_memory,
                                      .add = add,
                                      .remove = remove_memory};
