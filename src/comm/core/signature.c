/* fingerprint.c -- what a call says about itself, in numbers and in words.   SPDX-License-Identifier: MIT */
#include "comm/group.h"

#include <stdio.h>
#include <string.h>

static const char *const REDOPS[] = {"sum", "avg", "product", "min", "max", "band", "bor", "bxor"};

/* " (F32 x 1000, sum, root 2)" */
static void print_details(const tutti__signature *signature, char *text, size_t capacity)
{
    const tutti__op_traits *traits = tutti__op_traits_of(&(tutti__op){.signature = *signature});
    const char *dtype = tutti_dtype_name((tutti_dtype)signature->dtype),
               *redop = signature->redop < TUTTI__COUNT_OF(REDOPS) ? REDOPS[signature->redop] : "?";
    char count[32] = "", root[48] = "";

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
    snprintf(text, capacity, " (%s%s%s%s%s)", dtype, count, traits->reduces ? ", " : "",
             traits->reduces ? redop : "", root);
}

void tutti__signature_text(const tutti__signature *signature, char *text, size_t capacity)
{
    int n = snprintf(text, capacity, "%s #%llu", tutti__op_name((tutti__op_kind)signature->op),
                     (unsigned long long)signature->sequence);
    size_t used = n < 0 || (size_t)n >= capacity ? capacity : (size_t)n;
    char *rest = text + used;
    unsigned long long count = signature->count;

    capacity -= used;
    if (signature->op == TUTTI__OP_ALLOC)
        snprintf(rest, capacity, " (%llu bytes)", count);
    else if (signature->op == TUTTI__OP_BARRIER || signature->op >= TUTTI__N_OPS)
        return;
    else
        print_details(signature, rest, capacity);
}

bool tutti__signature_equal(const tutti__signature *a, const tutti__signature *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

tutti_status tutti__fail_different(tutti_group *group, int low, const tutti__signature *low_print,
                                   int high, const tutti__signature *high_print)
{
    char low_text[96], high_text[96], low_peer[128], high_peer[128];
    int culprit = low == group->rank ? high : low;

    if (low_print->group != high_print->group)
        return tutti__group_fail(group, TUTTI_ERR_MISMATCH, culprit,
                                 "rank %d sent a message of another group",
                                 tutti__outer_rank(group, culprit));
    tutti__signature_text(low_print, low_text, sizeof low_text);
    tutti__signature_text(high_print, high_text, sizeof high_text);
    tutti__peer_text(group, low, low_peer, sizeof low_peer);
    tutti__peer_text(group, high, high_peer, sizeof high_peer);
    return tutti__group_fail(group, TUTTI_ERR_MISMATCH, culprit,
                             "rank %d called %s, but rank %d called %s; all ranks must make the "
                             "same calls in the same order: %s, %s",
                             tutti__outer_rank(group, low), low_text,
                             tutti__outer_rank(group, high), high_text, low_peer, high_peer);
}

tutti_status tutti__check_signature(tutti_group *group, const tutti__signature *ours, int rank,
                                    const tutti__signature *theirs)
{
    atomic_store_explicit(&group->peers[rank].seen, theirs->sequence + 1, memory_order_relaxed);
    if (tutti__signature_equal(ours, theirs))
        return TUTTI_OK;
    return rank < group->rank ? tutti__fail_different(group, rank, theirs, group->rank, ours)
                              : tutti__fail_different(group, group->rank, ours, rank, theirs);
}

tutti_status tutti__check_sent(tutti_group *group, const tutti__signature *signature, int from,
                               int to, size_t sent, size_t expected)
{
    char text[96];

    if (sent == expected)
        return TUTTI_OK;
    tutti__signature_text(signature, text, sizeof text);
    return tutti__group_fail(group, TUTTI_ERR_MISMATCH, from,
                             "in %s, rank %d sends rank %d %zu elements, but rank %d expects %zu; "
                             "the counts that two ranks give for what goes from one to the other "
                             "must be equal",
                             text, from, to, sent, to, expected);
}
