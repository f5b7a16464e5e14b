/* shard_queue.c -- who computes which shard of a step.   SPDX-License-Identifier: MIT
 *
 * Work stealing. Each rank has a 64-bit atomic in the group (comm.h): the try, and the range of shards it has left. A rank that
 * exchanges it for one with a smaller range owns the difference, so no shard is taken twice or lost. A value of an earlier
 * try means that its owner has not begun this one, and has its whole initial range left: a thief then writes that range, less
 * what it takes, and the owner finds its try begun. */
#include "elastic/shard_queue.h"

#include "comm/comm.h"
#include "comm/core/operation.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct tutti__shard_queue {
    tutti_group *group;
    int rank, size;
    uint64_t number; /* of the try */
    int *first;      /* of the try; size + 1 */
    _Atomic uint64_t *own;
    /* Atomics of other ranks on this host, the next ranks first, so that thieves spread over equally loaded victims. */
    struct {
        int rank;
        _Atomic uint64_t *atomic;
    } * near;
    tutti__compare_and_swap *far; /* ranks on other hosts; expected: their last known value */
    int n_near, n_far;
};

/* ---- Values --------------------------------------------------------------------------------------------------- */

enum { BITS = 13, LOOKS = 16 };
_Static_assert(TUTTI__MAX_SHARDS < 1 << BITS, "a range fits an atomic");

typedef struct range {
    int next, end;
} range;

static uint64_t pack(uint64_t number, range r)
{
    return number << 2 * BITS | (uint64_t)r.next << BITS | (uint64_t)r.end;
}

static uint64_t number_of(uint64_t value)
{
    return value >> 2 * BITS;
}

/* What `rank` has left of the try, by its value. */
static range left_of(const tutti__shard_queue *queue, int rank, uint64_t value)
{
    const uint64_t mask = (1u << BITS) - 1;

    if (number_of(value) < queue->number)
        return (range){queue->first[rank], queue->first[rank + 1]};
    if (number_of(value) > queue->number)
        return (range){0, 0};
    return (range){(int)(value >> BITS & mask), (int)(value & mask)};
}

static int count(range r)
{
    return r.end - r.next;
}

static int owner_of(const tutti__shard_queue *queue, int shard)
{
    int low = 0, high = queue->size;

    while (high - low > 1) {
        int middle = (low + high) / 2;

        if (queue->first[middle] <= shard)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ---- New, begin ----------------------------------------------------------------------------------------------- */

static tutti_status find_atomics(tutti__shard_queue *queue)
{
    size_t n = (size_t)queue->size;

    queue->first = tutti__alloc((n + 1) * sizeof *queue->first);
    queue->near = tutti__alloc(n * sizeof *queue->near);
    queue->far = tutti__alloc(n * sizeof *queue->far);
    if (!queue->first || !queue->near || !queue->far)
        return TUTTI_ERR_MEMORY;
    for (int i = 1; i < queue->size; i++) {
        int rank = (queue->rank + i) % queue->size;
        _Atomic uint64_t *atomic = tutti__group_atomic(queue->group, rank);

        if (atomic) {
            queue->near[queue->n_near].rank = rank;
            queue->near[queue->n_near++].atomic = atomic;
        } else {
            queue->far[queue->n_far++].rank = rank;
        }
    }
    return TUTTI_OK;
}

tutti_status tutti__shard_queue_new(tutti__shard_queue **queue_p, tutti_group *group, int shards)
{
    tutti__shard_queue *queue = tutti__alloc(sizeof *queue);
    tutti_status status = queue ? TUTTI_OK : TUTTI_ERR_MEMORY;

    *queue_p = NULL;
    if (status == TUTTI_OK) {
        queue->group = group;
        queue->rank = tutti_group_rank(group);
        queue->size = tutti_group_size(group);
        queue->own = tutti__group_atomic(group, queue->rank);
        atomic_store(queue->own, 0); /* left by an earlier queue */
        status = find_atomics(queue);
    }
    if (status == TUTTI_OK && (shards < queue->size || shards > TUTTI__MAX_SHARDS))
        status = tutti__fail(TUTTI_ERR_ARG, "%d shards for %d ranks, expected %d to %d", shards,
                             queue->size, queue->size, TUTTI__MAX_SHARDS);
    status = tutti__group_agree(group, status); /* others may read the atomics from now on */
    if (status != TUTTI_OK)
        tutti__shard_queue_free(queue);
    else
        *queue_p = queue;
    return status;
}

void tutti__shard_queue_free(tutti__shard_queue *queue)
{
    if (!queue)
        return;
    free(queue->first);
    free(queue->near);
    free(queue->far);
    free(queue);
}

void tutti__shard_queue_begin(tutti__shard_queue *queue, uint64_t number, const int *first)
{
    uint64_t value = atomic_load(queue->own);

    queue->number = number;
    memcpy(queue->first, first, ((size_t)queue->size + 1) * sizeof *first);
    while (number_of(value) < number &&
           !atomic_compare_exchange_weak(queue->own, &value,
                                         pack(number, left_of(queue, queue->rank, value))))
        ;
}

/* ---- Taking --------------------------------------------------------------------------------------------------- */

static bool take_own(tutti__shard_queue *queue, int *shard_p)
{
    uint64_t value = atomic_load(queue->own);
    range r = left_of(queue, queue->rank, value);

    while (count(r) > 0) {
        if (atomic_compare_exchange_weak(queue->own, &value,
                                         pack(queue->number, (range){r.next + 1, r.end}))) {
            *shard_p = r.next;
            return true;
        }
        r = left_of(queue, queue->rank, value);
    }
    return false;
}

static bool take_near(tutti__shard_queue *queue, int *shard_p)
{
    for (;;) {
        range most = {0, 0};
        uint64_t expected = 0;
        int victim = -1;

        for (int i = 0; i < queue->n_near; i++) {
            uint64_t value = atomic_load(queue->near[i].atomic);
            range r = left_of(queue, queue->near[i].rank, value);

            if (count(r) <= count(most))
                continue;
            victim = i;
            most = r;
            expected = value;
        }
        if (victim < 0)
            return false;
        if (!atomic_compare_exchange_strong(queue->near[victim].atomic, &expected,
                                            pack(queue->number, (range){most.next, most.end - 1})))
            continue;
        *shard_p = most.end - 1;
        return true;
    }
}

/* Moves those with more than `least` left to the front, by their last known values. (One that has since stolen more is missed;
 * it has just begun that.) */
static int sort_far(tutti__shard_queue *queue, int least)
{
    int n = 0;

    for (int i = 0; i < queue->n_far; i++) {
        tutti__compare_and_swap far = queue->far[i];

        if (count(left_of(queue, far.rank, far.expected)) <= least)
            continue;
        queue->far[i] = queue->far[n];
        queue->far[n++] = far;
    }
    return n;
}

static tutti_status look_far(tutti__shard_queue *queue, int n)
{
    for (int i = 0; i < n; i++)
        queue->far[i].wanted = queue->far[i].expected;
    TUTTI_TRY(tutti__group_compare_and_swap(queue->group, queue->far, n));
    for (int i = 0; i < n; i++)
        queue->far[i].expected = queue->far[i].was;
    return TUTTI_OK;
}

static tutti__compare_and_swap *find_most(const tutti__shard_queue *queue, int n)
{
    tutti__compare_and_swap *found = NULL;
    int most = 0;

    for (int i = 0; i < n; i++) {
        tutti__compare_and_swap *far = &queue->far[i];
        int left = count(left_of(queue, far->rank, far->expected));

        if (left > most) {
            found = far;
            most = left;
        }
    }
    return found;
}

/* Stores what it took in this rank's own atomic: no other rank changes that while its range is empty. */
static tutti_status take_far(tutti__shard_queue *queue, bool *taken_p)
{
    int n = sort_far(queue, 0);
    tutti__compare_and_swap *victim;

    *taken_p = false;
    if (n == 0)
        return TUTTI_OK;
    TUTTI_TRY(look_far(queue, n));
    while (!*taken_p && (victim = find_most(queue, n)) != NULL) {
        range all = left_of(queue, victim->rank, victim->expected);
        int half = all.end - (count(all) + 1) / 2;

        victim->wanted = pack(queue->number, (range){all.next, half});
        TUTTI_TRY(tutti__group_compare_and_swap(queue->group, victim, 1));
        *taken_p = victim->was == victim->expected;
        victim->expected = *taken_p ? victim->wanted : victim->was;
        if (*taken_p)
            atomic_store(queue->own, pack(queue->number, (range){half, all.end}));
    }
    return TUTTI_OK;
}

/* Whether some rank has more than `least` left. A few ranks of other hosts suffice: the result is a guess anyway. */
static tutti_status find_work(tutti__shard_queue *queue, int least, bool *found_p)
{
    tutti__compare_and_swap *most;
    int n;

    *found_p = true;
    for (int i = 0; i < queue->n_near; i++)
        if (count(left_of(queue, queue->near[i].rank, atomic_load(queue->near[i].atomic))) > least)
            return TUTTI_OK;
    n = sort_far(queue, least);
    n = n < LOOKS ? n : LOOKS;
    TUTTI_TRY(look_far(queue, n));
    most = find_most(queue, n);
    *found_p = most && count(left_of(queue, most->rank, most->expected)) > least;
    return TUTTI_OK;
}

/* A rank with one shard left begins it while this one computes its own, so only ranks with more will be helped. But a rank that
 * this one has just helped is slower, and may not have begun its last shard by then. */
static tutti_status is_last(tutti__shard_queue *queue, bool helping, bool *last_p)
{
    bool more = true;

    if (tutti__shard_queue_left(queue) == 0)
        TUTTI_TRY(find_work(queue, helping ? 0 : 1, &more));
    *last_p = !more;
    return TUTTI_OK;
}

tutti_status tutti__shard_queue_take(tutti__shard_queue *queue, int *shard_p, bool *last_p,
                                     int *owner_p)
{
    bool taken;

    *shard_p = -1;
    *last_p = true;
    TUTTI_TRY(tutti_group_status(queue->group));
    do {
        taken = take_own(queue, shard_p) || take_near(queue, shard_p);
        if (taken)
            break;
        TUTTI_TRY(take_far(queue, &taken));
    } while (taken);
    if (*shard_p < 0)
        return TUTTI_OK;
    *owner_p = owner_of(queue, *shard_p);
    return is_last(queue, *owner_p != queue->rank, last_p);
}

int tutti__shard_queue_left(const tutti__shard_queue *queue)
{
    return count(left_of(queue, queue->rank, atomic_load(queue->own)));
}

/* ---- Ranges --------------------------------------------------------------------------------------------------- */

enum { MOST_NS_BITS = 40, SPEED_BITS = MOST_NS_BITS + 10, TOLERANCE = 8 };

/* Fills in times[r] > 0: known ones, and their mean for the others. */
static void complete(int size, const int64_t *ns, int64_t *times)
{
    const int64_t most = INT64_C(1) << MOST_NS_BITS;
    int64_t sum = 0, mean;
    int n = 0;

    for (int r = 0; r < size; r++) {
        times[r] = ns[r] < most ? ns[r] : most;
        sum += times[r] > 0 ? times[r] : 0;
        n += times[r] > 0;
    }
    mean = n > 0 && sum >= n ? sum / n : 1;
    for (int r = 0; r < size; r++)
        times[r] = times[r] > 0 ? times[r] : mean;
}

/* The rank that would finish first with one more shard, or that finishes last and can spare one. */
static int find(int size, const int64_t *times, const int *n, bool first)
{
    int found = -1;
    int64_t its = 0;

    for (int r = 0; r < size; r++) {
        int64_t time = (n[r] + first) * times[r];

        if (!first && n[r] < 2)
            continue;
        if (found < 0 || (first ? time < its : time > its)) {
            found = r;
            its = time;
        }
    }
    return found;
}

/* n[r]: so that the last rank finishes as early as possible. */
static void share_out(int shards, int size, const int64_t *times, int *n)
{
    int64_t all = 0;
    int left = shards;

    for (int r = 0; r < size; r++)
        all += (INT64_C(1) << SPEED_BITS) / times[r];
    /* no rank gets less than its proportional part, rounded down */
    for (int r = 0; r < size; r++) {
        n[r] = (int)(shards * ((INT64_C(1) << SPEED_BITS) / times[r]) / all);
        n[r] = n[r] > 0 ? n[r] : 1;
        left -= n[r];
    }
    for (; left > 0; left--)
        n[find(size, times, n, true)]++;
    for (; left < 0; left++)
        n[find(size, times, n, false)]--;
}

/* When the last rank finishes. */
static int64_t duration(int size, const int64_t *times, const int *first)
{
    int64_t most = 0;

    for (int r = 0; r < size; r++) {
        int64_t time = (first[r + 1] - first[r]) * times[r];

        most = time > most ? time : most;
    }
    return most;
}

static bool are_ranges(int shards, int size, const int *first)
{
    for (int r = 0; r < size; r++)
        if (first[r + 1] <= first[r])
            return false;
    return first[0] == 0 && first[size] == shards;
}

void tutti__shard_ranges(int shards, int size, const int64_t *ns, int *first)
{
    int64_t times[TUTTI__MAX_SHARDS], best;
    int n[TUTTI__MAX_SHARDS], better[TUTTI__MAX_SHARDS + 1] = {0};

    complete(size, ns, times);
    share_out(shards, size, times, n);
    for (int r = 0; r < size; r++)
        better[r + 1] = better[r] + n[r];
    best = duration(size, times, better);
    if (!are_ranges(shards, size, first) || duration(size, times, first) - best > best / TOLERANCE)
        memcpy(first, better, ((size_t)size + 1) * sizeof *first);
}
