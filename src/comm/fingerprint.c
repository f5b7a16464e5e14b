/* fingerprint.c -- what a call says about itself, in numbers and in words.   SPDX-License-Identifier: MIT */
#include "comm/group.h"

#include <stdio.h>
#include <string.h>

static const char *const OPS[TUTTI__N_OPS] = {"all_reduce",     "broadcast", "all_gather",
                                              "reduce_scatter", "barrier",   "alloc"};
static const char *const REDOPS[] = {"sum", "avg", "product", "min", "max"};

const char *tutti__op_name(tutti__op_kind kind)
{
    return (unsigned)kind < TUTTI__N_OPS ? OPS[kind] : "?";
}

size_t tutti__op_bytes(const tutti__fingerprint *print)
{
    return (size_t)print->count * tutti_dtype_size((tutti_dtype)print->dtype);
}

void tutti__print_text(const tutti__fingerprint *print, char *text, size_t capacity)
{
    int n = snprintf(text, capacity, "%s #%llu", tutti__op_name((tutti__op_kind)print->op),
                     (unsigned long long)print->sequence);
    size_t used = n < 0 || (size_t)n >= capacity ? capacity : (size_t)n;
    char *rest = text + used;
    unsigned long long count = print->count;
    const char *dtype = tutti_dtype_name((tutti_dtype)print->dtype);

    capacity -= used;
    switch (print->op) {
    case TUTTI__OP_ALL_REDUCE:
    case TUTTI__OP_REDUCE_SCATTER:
        snprintf(rest, capacity, " (%s x %llu, %s)", dtype, count,
                 print->redop < TUTTI__COUNT_OF(REDOPS) ? REDOPS[print->redop] : "?");
        break;
    case TUTTI__OP_BROADCAST:
        snprintf(rest, capacity, " (%s x %llu, root %u)", dtype, count, print->root);
        break;
    case TUTTI__OP_ALL_GATHER:
        snprintf(rest, capacity, " (%s x %llu)", dtype, count);
        break;
    case TUTTI__OP_ALLOC:
        snprintf(rest, capacity, " (%llu bytes)", count);
        break;
    default:
        break;
    }
}

bool tutti__print_equal(const tutti__fingerprint *a, const tutti__fingerprint *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

tutti_status tutti__check_print(tutti_group *group, const tutti__fingerprint *ours, int rank,
                                const tutti__fingerprint *theirs)
{
    char our_text[96], their_text[96];
    int low = rank < group->rank ? rank : group->rank,
        high = rank < group->rank ? group->rank : rank;

    if (tutti__print_equal(ours, theirs))
        return TUTTI_OK;
    if (ours->group != theirs->group)
        return tutti__group_fail(group, TUTTI_ERR_MISMATCH, rank,
                                 "rank %d sent a message of another group", rank);
    tutti__print_text(ours, our_text, sizeof our_text);
    tutti__print_text(theirs, their_text, sizeof their_text);
    return tutti__group_fail(group, TUTTI_ERR_MISMATCH, rank,
                             "rank %d called %s, but rank %d called %s; all ranks must make the "
                             "same calls in the same order",
                             low, low == rank ? their_text : our_text, high,
                             high == rank ? their_text : our_text);
}
