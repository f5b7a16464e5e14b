/* all_reduce_ring.c -- shards go round a ring twice: once each rank adds its own, once they are final. For large sizes: no rank sends or
 * receives more than 2 (n-1)/n of the data, to and from one neighbour.   SPDX-License-Identifier: MIT
 *
 * The shards are cut into chunks. Item q of a rank is chunk q mod C of the shard of step q / C; it sends it and at the same time receives
 * item q from the rank before, which is sent on as item q + C:
 *
 *     round q      send item q            receive item q
 *     round q+1                           add SRC to item q; after n-1 steps it is final, and goes to DST
 *
 * A shard with one chunk takes two rounds a step. Rank r ends the sum of shard r, which begins with rank r+1's contribution. */
#include "comm/algorithm/rounds.h"

static size_t n_items(const tutti__coll *call)
{
    return 2 * (size_t)(call->size - 1) * tutti__coll_n_chunks(call);
}

/* Rounds an item. */
static size_t stride(const tutti__coll *call)
{
    return tutti__coll_n_chunks(call) == 1 ? 2 : 1;
}

/* Before the first: sums that travel as F32 begin with a copy. */
static size_t lead(const tutti__coll *call)
{
    return tutti__coll_is_wide(call);
}

static size_t n_rounds(const tutti__coll *call)
{
    return lead(call) + (n_items(call) - 1) * stride(call) + 2;
}

static size_t most_actions(const tutti__coll *call)
{
    (void)call;
    return 5;
}

static size_t work(const tutti__coll *call, int rank)
{
    size_t largest = tutti__coll_shard(call, 0).count;

    (void)rank;
    return (tutti__coll_n_chunks(call) + 1) * (largest < call->chunk ? largest : call->chunk);
}

/* Of the item that the rank sends; it receives the same of the rank before. */
static tutti__piece item(const tutti__coll *call, int sender, size_t q)
{
    size_t chunks = tutti__coll_n_chunks(call), n = (size_t)call->size;
    int shard = (int)(((size_t)sender + 2 * n - q / chunks % n - 1) % n);

    return tutti__coll_chunk(call, tutti__coll_shard(call, shard), q % chunks);
}

/* Where item q is received and summed. What step 0 sends lies where an item before the first would. */
static tutti__coll_at slot(const tutti__coll *call, size_t q)
{
    size_t largest = tutti__coll_shard(call, 0).count, slots = tutti__coll_n_chunks(call) + 1;

    return tutti__coll_work(q % slots * (largest < call->chunk ? largest : call->chunk));
}

static void move(const tutti__coll *call, int rank, size_t q, tutti__coll_round *out)
{
    size_t n = (size_t)call->size, chunks = tutti__coll_n_chunks(call), step = q / chunks;
    int before = (rank + call->size - 1) % call->size;
    tutti__piece sent = item(call, rank, q), received = item(call, before, q);
    tutti__coll_at from = step >= n - 1                ? tutti__coll_dst(sent.at)
                          : step > 0 || lead(call) > 0 ? slot(call, q + 1)
                                                       : tutti__coll_src(sent.at);

    tutti__coll_send(out, (rank + 1) % call->size, from, sent.count);
    tutti__coll_recv(out, before, step >= n - 1 ? tutti__coll_dst(received.at) : slot(call, q),
                     received.count);
}

/* Adds this rank's part to item q, which has been received. */
static void add(const tutti__coll *call, int rank, size_t q, tutti__coll_round *out)
{
    size_t step = q / tutti__coll_n_chunks(call), last = (size_t)call->size - 2;
    tutti__piece part = item(call, (rank + call->size - 1) % call->size, q);

    if (step > last)
        return;
    tutti__coll_local(out, TUTTI__COLL_REDUCE, slot(call, q), tutti__coll_src(part.at), part.count);
    if (step == last)
        tutti__coll_local(out, TUTTI__COLL_FINISH, tutti__coll_dst(part.at), slot(call, q),
                          part.count);
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    size_t every = stride(call), now = round - lead(call), next = now + 1;

    if (round + 1 > lead(call) && round >= lead(call) + 1 && (now - 1) % every == 0)
        add(call, rank, (now - 1) / every, out);
    if (lead(call) > 0 && next % every == 0 && next / every < tutti__coll_n_chunks(call)) {
        tutti__piece first = item(call, rank, next / every);

        tutti__coll_local(out, TUTTI__COLL_COPY, slot(call, next / every + 1),
                          tutti__coll_src(first.at), first.count);
    }
    if (round >= lead(call) && now % every == 0 && now / every < n_items(call))
        move(call, rank, now / every, out);
}

const tutti__coll_algorithm tutti__coll_all_reduce_ring = {.op = TUTTI__OP_ALL_REDUCE,
                                                           .name = "ring",
                                                           .n_rounds = n_rounds,
                                                           .most_actions = most_actions,
                                                           .work = work,
                                                           .round = round_of};
