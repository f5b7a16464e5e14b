/* work.c -- the work of a call: messages through mailboxes, and sums, in a stream.   SPDX-License-Identifier: MIT */
#include "standin_nccl.h"

#include "base/half.h"

size_t standin_size_of(ncclDataType_t type)
{
    static const size_t sizes[] = {
        [ncclInt8] = 1,    [ncclUint8] = 1,   [ncclInt32] = 4,   [ncclUint32] = 4,
        [ncclInt64] = 8,   [ncclUint64] = 8,  [ncclFloat16] = 2, [ncclFloat32] = 4,
        [ncclFloat64] = 8, [ncclBfloat16] = 2};

    return sizes[type];
}

/* ---- Arithmetic ------------------------------------------------------------------------------------------------ */

#define SAME(x) (x)
#define COMBINE(T, WIDE, LOAD, STORE)                                                              \
    for (size_t i = 0; i < n; i++) {                                                               \
        WIDE a = (WIDE)LOAD(((T *)sum)[i]), b = (WIDE)LOAD(((const T *)part)[i]);                  \
                                                                                                   \
        switch (op) {                                                                              \
        case ncclProd:                                                                             \
            a = (WIDE)(a * b);                                                                     \
            break;                                                                                 \
        case ncclMax:                                                                              \
            a = a > b ? a : b;                                                                     \
            break;                                                                                 \
        case ncclMin:                                                                              \
            a = a < b ? a : b;                                                                     \
            break;                                                                                 \
        default:                                                                                   \
            a = (WIDE)(a + b);                                                                     \
            break;                                                                                 \
        }                                                                                          \
        ((T *)sum)[i] = (T)STORE(a);                                                               \
    }                                                                                              \
    break

static void combine(void *sum, const void *part, size_t n, ncclDataType_t type, ncclRedOp_t op)
{
    switch (type) {
    case ncclInt8:
        COMBINE(int8_t, int32_t, SAME, SAME);
    case ncclUint8:
        COMBINE(uint8_t, uint32_t, SAME, SAME);
    case ncclInt32:
        COMBINE(int32_t, int64_t, SAME, SAME);
    case ncclUint32:
        COMBINE(uint32_t, uint64_t, SAME, SAME);
    case ncclInt64:
        COMBINE(int64_t, __int128, SAME, SAME);
    case ncclUint64:
        COMBINE(uint64_t, uint64_t, SAME, SAME);
    case ncclFloat16:
        COMBINE(uint16_t, float, tutti__f32_of_f16, tutti__f16_of_f32);
    case ncclFloat32:
        COMBINE(float, float, SAME, SAME);
    case ncclFloat64:
        COMBINE(double, double, SAME, SAME);
    case ncclBfloat16:
        COMBINE(uint16_t, float, tutti__f32_of_bf16, tutti__bf16_of_f32);
    default:
        break;
    }
}

#define DIVIDE(T, WIDE, LOAD, STORE)                                                               \
    for (size_t i = 0; i < n; i++)                                                                 \
        ((T *)part)[i] = STORE(LOAD(((T *)part)[i]) * LOAD(STORE((WIDE)1 / (WIDE)size)));          \
    break

/* As NCCL averages floats: each rank's are multiplied by 1 / size in their own type, then added. */
static void divide(void *part, size_t n, ncclDataType_t type, int size)
{
    switch (type) {
    case ncclFloat16:
        DIVIDE(uint16_t, float, tutti__f32_of_f16, tutti__f16_of_f32);
    case ncclFloat32:
        DIVIDE(float, float, SAME, SAME);
    case ncclFloat64:
        DIVIDE(double, double, SAME, SAME);
    case ncclBfloat16:
        DIVIDE(uint16_t, float, tutti__f32_of_bf16, tutti__bf16_of_f32);
    default:
        break;
    }
}

static void reduce_parts(work *w)
{
    size_t bytes = w->count * standin_size_of(w->type);

    for (int r = w->comm->size - 1; r >= 0; r--) {
        char *part = w->parts + (size_t)r * bytes;

        if (w->redop == ncclAvg)
            divide(part, w->count, w->type, w->comm->size);
        if (r == w->comm->size - 1)
            memcpy(w->dst, part, bytes);
        else
            combine(w->dst, part, w->count, w->type, w->redop);
    }
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

/* Sends a part of a message, if there is room. */
static bool put_some(work *w, message *m)
{
    mailbox *box = &w->comm->at->mail[w->comm->rank][m->peer];
    size_t n = m->bytes - m->done;
    uint64_t put = atomic_load(&box->put);

    if (n == 0 || put != atomic_load(&box->taken))
        return false;
    n = n < MAIL_BYTES ? n : MAIL_BYTES;
    memcpy(box->data, m->p + m->done, n);
    box->bytes = n;
    m->done += n;
    atomic_store(&box->put, put + 1);
    return true;
}

static bool take_some(work *w, message *m)
{
    mailbox *box = &w->comm->at->mail[m->peer][w->comm->rank];
    uint64_t taken = atomic_load(&box->taken);
    size_t n = m->bytes - m->done;

    if (n == 0 || atomic_load(&box->put) == taken)
        return false;
    n = box->bytes < n ? box->bytes : n;
    memcpy(m->p + m->done, box->data, n);
    m->done += n;
    atomic_store(&box->taken, taken + 1);
    return true;
}

/* Only the first incomplete message of a peer may advance. True if all are done. */
static bool progress(work *w, message *messages, int n, bool (*some)(work *, message *),
                     bool *moved)
{
    bool busy[MOST_RANKS] = {false}, done = true;

    for (int i = 0; i < n; i++) {
        message *m = &messages[i];

        if (!busy[m->peer])
            *moved = some(w, m) || *moved;
        busy[m->peer] = busy[m->peer] || m->done < m->bytes;
        done = done && m->done == m->bytes;
    }
    return done;
}

void standin_drop(work *w)
{
    free(w->parts);
    free(w);
}

static void run_work(void *arg)
{
    work *w = arg;
    struct ncclComm *comm = w->comm;
    bool done = false;

    atomic_fetch_add(&comm->running, 1);
    while (!done && !atomic_load(&comm->aborted)) {
        bool moved = false;

        if (!w->hangs) {
            done = progress(w, w->out, w->n_out, put_some, &moved);
            done = progress(w, w->in, w->n_in, take_some, &moved) && done;
        }
        if (!moved && !done)
            standin_nap();
    }
    if (done && w->reduces && w->dst)
        reduce_parts(w);
    atomic_fetch_sub(&comm->running, 1);
    standin_release_comm(comm);
    standin_drop(w);
}

ncclResult_t standin_launch(struct ncclComm *comm)
{
    work *w = comm->pending;

    comm->pending = NULL;
    atomic_fetch_add(&comm->references, 1);
    if (tutti_standin_enqueue(w->stream, run_work, w) == 0)
        return ncclSuccess;
    atomic_fetch_sub(&comm->references, 1);
    standin_drop(w);
    return ncclUnhandledCudaError;
}
