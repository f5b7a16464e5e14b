/* signature.c -- a call's signature as text.   SPDX-License-Identifier: MIT */
#include "comm/core/signature.h"

#include <stdio.h>
#include <string.h>

static const char *const REDOPS[] = {"sum", "avg", "product", "min", "max", "band", "bor", "bxor"};

/* "; 100 calls in one, digest 5f3a0c11", "; reducer 2, step 7, bucket 3", or "". */
static void print_origin(const tutti__signature *s, char *text, size_t capacity)
{
    char calls[32] = "", bucket[24] = "";

    *text = 0;
    if (s->op == TUTTI__OP_ALL_REDUCE || s->op == TUTTI__OP_ALLOC)
        snprintf(calls, sizeof calls, "%u calls in one", s->root);
    if (s->bucket)
        snprintf(bucket, sizeof bucket, ", bucket %u", s->bucket - 1u);
    if (s->coalesced)
        snprintf(text, capacity, "; %s, digest %08x", *calls ? calls : "of calls in one",
                 (unsigned)s->tag);
    else if (s->reducer)
        snprintf(text, capacity, "; reducer %u, step %d%s", s->reducer, (int)s->tag, bucket);
}

/* " (F32 x 1000, sum, root 2)" */
static void print_details(const tutti__signature *signature, const char *origin, char *text,
                          size_t capacity)
{
    const tutti__op_traits *traits = &tutti__op_table[signature->op];
    const char *dtype = tutti_dtype_name((tutti_dtype)signature->dtype),
               *redop = signature->redop < TUTTI__COUNT_OF(REDOPS) ? REDOPS[signature->redop] : "?";
    char count[32] = "", root[48] = "";
    const char *scaled = signature->scaled ? ", scaled" : "",
               *on_device = signature->on_device ? ", of devices" : "";

    if (!traits->uneven)
        snprintf(count, sizeof count, " x %llu", (unsigned long long)signature->count);
    if (traits->from_root || traits->to_root)
        snprintf(root, sizeof root, ", root %u", signature->root);
    if (signature->op == TUTTI__OP_RECV && signature->root == (uint32_t)TUTTI_ANY_RANK)
        snprintf(root, sizeof root, ", from any rank, tag %d", (int)signature->tag);
    else if (signature->op == TUTTI__OP_SEND || signature->op == TUTTI__OP_RECV)
        snprintf(root, sizeof root, ", %s rank %u, tag %d",
                 signature->op == TUTTI__OP_SEND ? "to" : "from", signature->root,
                 (int)signature->tag);
    snprintf(text, capacity, " (%s%s%s%s%s%s%s%s)", dtype, count, traits->reduces ? ", " : "",
             traits->reduces ? redop : "", scaled, root, on_device, origin);
}

/* Messages with tags that programs cannot use: of a window, or of the monitored barrier. */
static bool is_internal(const tutti__signature *signature)
{
    return (signature->op == TUTTI__OP_SEND || signature->op == TUTTI__OP_RECV) &&
           signature->tag < 0;
}

void tutti__signature_text(const tutti__signature *signature, char *text, size_t capacity)
{
    int n =
        is_internal(signature)
            ? snprintf(text, capacity, "%s",
                       signature->tag <= TUTTI__TAG_WINDOWS ? "a read of another rank's memory"
                                                            : "monitored_barrier")
            : snprintf(text, capacity, "%s #%llu", tutti__op_name((tutti__op_kind)signature->op),
                       (unsigned long long)signature->sequence);
    size_t used = n < 0 || (size_t)n >= capacity ? capacity : (size_t)n;
    char *rest = text + used, origin[64];
    unsigned long long count = signature->count;

    capacity -= used;
    print_origin(signature, origin, sizeof origin);
    if (signature->op == TUTTI__OP_ALLOC)
        snprintf(rest, capacity, " (%llu bytes%s)", count, origin);
    else if (signature->op == TUTTI__OP_BARRIER || signature->op >= TUTTI__OP_COMPARE_AND_SWAP ||
             is_internal(signature))
        return;
    else
        print_details(signature, origin, rest, capacity);
}

size_t tutti__signature_bytes(const tutti__signature *signature)
{
    return (size_t)signature->count * tutti__element(signature->dtype);
}
