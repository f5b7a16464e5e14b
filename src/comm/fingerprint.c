/* fingerprint.c -- what a call says about itself, in numbers and in words.   SPDX-License-Identifier: MIT */
#include "comm/group.h"

#include <stdio.h>
#include <string.h>

static const char *const REDOPS[] = {"sum", "avg", "product", "min", "max", "band", "bor", "bxor"};

/* " (F32 x 1000, sum, root 2)" */
static void print_details(const tutti__fingerprint *print, char *text, size_t capacity)
{
    const tutti__op_traits *traits = tutti__op_traits_of(&(tutti__op){.print = *print});
    const char *dtype = tutti_dtype_name((tutti_dtype)print->dtype),
               *redop = print->redop < TUTTI__COUNT_OF(REDOPS) ? REDOPS[print->redop] : "?";
    char count[32] = "", root[48] = "";

    if (!traits->uneven)
        snprintf(count, sizeof count, " x %llu", (unsigned long long)print->count);
    if (traits->from_root || traits->to_root)
        snprintf(root, sizeof root, ", root %u", print->root);
    if (print->op == TUTTI__OP_RECV && print->root == (uint32_t)TUTTI_ANY_RANK)
        snprintf(root, sizeof root, ", from any rank, tag %d", (int)print->tag);
    else if (print->op == TUTTI__OP_SEND || print->op == TUTTI__OP_RECV)
        snprintf(root, sizeof root, ", %s rank %u, tag %d",
                 print->op == TUTTI__OP_SEND ? "to" : "from", print->root, (int)print->tag);
    snprintf(text, capacity, " (%s%s%s%s%s)", dtype, count, traits->reduces ? ", " : "",
             traits->reduces ? redop : "", root);
}

void tutti__print_text(const tutti__fingerprint *print, char *text, size_t capacity)
{
    int n = snprintf(text, capacity, "%s #%llu", tutti__op_name((tutti__op_kind)print->op),
                     (unsigned long long)print->sequence);
    size_t used = n < 0 || (size_t)n >= capacity ? capacity : (size_t)n;
    char *rest = text + used;
    unsigned long long count = print->count;

    capacity -= used;
    if (print->op == TUTTI__OP_ALLOC)
        snprintf(rest, capacity, " (%llu bytes)", count);
    else if (print->op == TUTTI__OP_BARRIER || print->op >= TUTTI__N_OPS)
        return;
    else
        print_details(print, rest, capacity);
}

bool tutti__print_equal(const tutti__fingerprint *a, const tutti__fingerprint *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

tutti_status tutti__fail_different(tutti_group *group, int low, const tutti__fingerprint *low_print,
                                   int high, const tutti__fingerprint *high_print)
{
    char low_text[96], high_text[96], low_peer[128], high_peer[128];
    int culprit = low == group->rank ? high : low;

    if (low_print->group != high_print->group)
        return tutti__group_fail(group, TUTTI_ERR_MISMATCH, culprit,
                                 "rank %d sent a message of another group",
                                 tutti__outer_rank(group, culprit));
    tutti__print_text(low_print, low_text, sizeof low_text);
    tutti__print_text(high_print, high_text, sizeof high_text);
    tutti__peer_text(group, low, low_peer, sizeof low_peer);
    tutti__peer_text(group, high, high_peer, sizeof high_peer);
    return tutti__group_fail(group, TUTTI_ERR_MISMATCH, culprit,
                             "rank %d called %s, but rank %d called %s; all ranks must make the "
                             "same calls in the same order: %s, %s",
                             tutti__outer_rank(group, low), low_text,
                             tutti__outer_rank(group, high), high_text, low_peer, high_peer);
}

tutti_status tutti__check_print(tutti_group *group, const tutti__fingerprint *ours, int rank,
                                const tutti__fingerprint *theirs)
{
    atomic_store_explicit(&group->peers[rank].seen, theirs->sequence + 1, memory_order_relaxed);
    if (tutti__print_equal(ours, theirs))
        return TUTTI_OK;
    return rank < group->rank ? tutti__fail_different(group, rank, theirs, group->rank, ours)
                              : tutti__fail_different(group, group->rank, ours, rank, theirs);
}

tutti_status tutti__check_sent(tutti_group *group, const tutti__fingerprint *print, int from,
                               int to, size_t sent, size_t expected)
{
    char text[96];

    if (sent == expected)
        return TUTTI_OK;
    tutti__print_text(print, text, sizeof text);
    return tutti__group_fail(group, TUTTI_ERR_MISMATCH, from,
                             "in %s, rank %d sends rank %d %zu elements, but rank %d expects %zu; "
                             "the counts that two ranks give for what goes from one to the other "
                             "must be equal",
                             text, from, to, sent, to, expected);
}
