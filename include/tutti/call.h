/* call.h -- any call of a group, described by one structure: for bindings, and for calls with options.
 * SPDX-License-Identifier: MIT
 *
 * The functions of group.h pass buffers by value, which is short in C. Here a call is a structure that is passed by its address,
 * so a language needs neither structures by value nor a declaration for each collective; and it has what those functions lack:
 * a factor, and a time limit of its own. Both forms are the same calls: some ranks may use one, others the other. */
#ifndef TUTTI_CALL_H
#define TUTTI_CALL_H

#include <tutti/group.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What it does as the function of that name in group.h, and the members that it reads beside scale and timeout_ms. */
typedef enum tutti_call_kind {
    TUTTI_CALL_ALL_REDUCE =
        1,             /* dst, op; src: {0} for in place, else as in tutti_all_reduce_from */
    TUTTI_CALL_REDUCE, /* op, rank: the root; in place in dst on all ranks, or as in tutti_reduce_from */
    TUTTI_CALL_REDUCE_SCATTER, /* src, dst, op */
    TUTTI_CALL_BROADCAST,      /* dst, also on the root; rank: the root */
    TUTTI_CALL_SCATTER,        /* src, dst, rank: the root */
    TUTTI_CALL_GATHER,         /* src, dst, rank: the root */
    TUTTI_CALL_ALL_GATHER,     /* src, dst */
    TUTTI_CALL_ALL_GATHER_V,   /* src, dst, dst_counts */
    TUTTI_CALL_ALL_TO_ALL,     /* src, dst */
    TUTTI_CALL_ALL_TO_ALL_V,   /* src, src_counts, dst, dst_counts */
    TUTTI_CALL_BARRIER,
    TUTTI_CALL_SEND,    /* src, rank: the receiver, tag */
    TUTTI_CALL_RECV,    /* dst, rank: the sender or TUTTI_ANY_RANK, tag */
    TUTTI_CALL_FUNCTION /* function, drop, arg: as in tutti_group_submit */
} tutti_call_kind;

/* Zero means default; members that the kind does not read are ignored. Pointers are borrowed as in the function of group.h: counts
 * and the structure itself until the call returns. */
typedef struct tutti_call {
    tutti_call_kind kind;
    tutti_redop op;
    int rank, tag;
    /* Milliseconds from the call's start, of a message from the call on, after which the group is dead. 0: the group's limit. Of a
     * function: that of each call within it that has none of its own. Ranks may differ. Calls that are coalesced are sent under the
     * shortest limit of those that are sent together. */
    int timeout_ms;
    tutti_const_buf src;
    tutti_buf dst;
    const size_t *src_counts, *dst_counts;
    /* Of a reduction by TUTTI_SUM of F32, F64, F16 or BF16: this rank's elements are multiplied by it, and rounded to their type once,
     * before they are added. Ranks may have different factors, but all or none of them must have one (MISMATCH). TUTTI_ZERO for 0;
     * default: they are not multiplied. A src is never written; a dst that is reduced in place may be multiplied even if
     * the call fails. Buffers of devices are staged through the host, and coalesced calls are sent one by one. */
    double scale;
    tutti_status (*function)(void *arg);
    void (*drop)(void *arg);
    void *arg;
    uint64_t reserved[4]; /* zero */
} tutti_call;

/* Makes the call. Threads, work_p and errors: as of the function of group.h; ARG for an unknown kind, and for a scale where there is
 * none. If a call of kind TUTTI_CALL_FUNCTION fails, `drop` has run. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_group_call(tutti_group *group, const tutti_call *call,
                                                        tutti_work **work_p);

#ifdef __cplusplus
}
#endif
#endif
