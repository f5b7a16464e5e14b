/* comm: every algorithm of the table, run on symbols: what a rank gives is a name, and a sum is the expression that made it. Sends match
 * receives, nothing waits for ever, no two actions of a round touch the same memory, every result has each contribution exactly once, and
 * all ranks that receive it have it from the same expression, so with the same bits.   SPDX-License-Identifier: MIT
 * timeout: 100   breadth: 300
 * ALL: all calls of up to 17 ranks, and of more every third; else of up to 5, and of more every ninth, of each number of ranks others. */
#include "comm/algorithm/rounds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* An element: `hash` of its expression (0: undefined), the ranks whose contributions it has, and which element of theirs. */
typedef struct symbol {
    uint64_t hash, ranks;
    uint32_t index;
    bool finished;
} symbol;

enum { SEND_FROM = 1, RECV_INTO = 2, READ = 4, WRITTEN = 8 };

typedef struct node {
    symbol *place[TUTTI__COLL_PLACES];
    unsigned char *used[TUTTI__COLL_PLACES];
    size_t n[TUTTI__COLL_PLACES];
    size_t round, open; /* open: messages of the round that have not moved */
    bool begun, aliased;
    size_t alias_at; /* SRC is DST from here on */
    uint64_t heard;  /* of a barrier: ranks known to have come, also through others */
    tutti__coll_round out;
} node;

/* The oldest message of a pair that only one side has begun. */
typedef struct posted {
    struct posted *next;
    bool is_send;
    int from, to;
    size_t count, element;
    uint64_t heard;
    symbol *values; /* of a send: copied; of a receive: where they go */
} posted;

typedef struct world {
    const tutti__coll_algorithm *algorithm;
    tutti__coll call;
    bool in_place;
    node *nodes;
    posted **pairs; /* [from * size + to] */
    uint64_t *sums; /* of each element that is summed, in the common order; 0: not computed yet */
    char failure[256];
} world;

#define FAIL(w, ...)                                                                               \
    do {                                                                                           \
        if (!(w)->failure[0])                                                                      \
            snprintf((w)->failure, sizeof(w)->failure, __VA_ARGS__);                               \
    } while (0)

static uint64_t mix(uint64_t a, uint64_t b)
{
    a = (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xff51afd7ed558ccdu;
    return (a ^ (a >> 32)) | 1;
}

static symbol leaf(int rank, size_t index)
{
    return (symbol){mix((uint64_t)rank + 1, index + 77), (uint64_t)1 << rank, (uint32_t)index,
                    false};
}

/* ---- Memory ------------------------------------------------------------------------------------------------------- */

static const tutti__op_traits *traits_of(const world *w)
{
    return &tutti__op_table[w->call.op];
}

static size_t given(const world *w, int rank)
{
    const tutti__op_traits *t = traits_of(w);

    if (t->from_root && rank != w->call.root)
        return 0;
    return w->call.count * (t->scatters ? (size_t)w->call.size : 1);
}

static size_t taken(const world *w, int rank)
{
    const tutti__op_traits *t = traits_of(w);

    if (w->call.op == TUTTI__OP_BARRIER || (t->to_root && rank != w->call.root))
        return 0;
    return w->call.count * (t->gathers ? (size_t)w->call.size : 1);
}

static void open_node(world *w, int rank)
{
    const tutti__coll_algorithm *a = w->algorithm;
    node *me = &w->nodes[rank];
    size_t pieces = (size_t)rank * w->call.count;

    me->n[TUTTI__COLL_SRC] = given(w, rank);
    me->n[TUTTI__COLL_DST] = taken(w, rank);
    me->n[TUTTI__COLL_WORK] = a->work ? a->work(&w->call, rank) : 0;
    me->n[TUTTI__COLL_HELD] = a->held ? a->held(&w->call, rank) : 0;
    for (int p = 0; p < TUTTI__COLL_PLACES; p++) {
        me->place[p] = calloc(me->n[p] + 1, sizeof(symbol));
        me->used[p] = calloc(me->n[p] + 1, 1);
    }
    me->out.capacity = a->most_actions(&w->call);
    me->out.actions = calloc(me->out.capacity + 1, sizeof *me->out.actions);
    me->heard = (uint64_t)1 << rank;
    for (size_t i = 0; i < me->n[TUTTI__COLL_SRC]; i++)
        me->place[TUTTI__COLL_SRC][i] = leaf(rank, i);
    me->aliased = w->in_place && me->n[TUTTI__COLL_SRC] > 0 && me->n[TUTTI__COLL_DST] > 0;
    if (!me->aliased)
        return;
    /* the smaller one lies in the larger one */
    me->alias_at = traits_of(w)->gathers || traits_of(w)->scatters ? pieces : 0;
    if (traits_of(w)->scatters)
        return; /* DST is this rank's piece of SRC */
    memcpy(me->place[TUTTI__COLL_DST] + me->alias_at, me->place[TUTTI__COLL_SRC],
           me->n[TUTTI__COLL_SRC] * sizeof(symbol));
}

/* Where an element is, if SRC and DST are the same memory. */
static void resolve(const world *w, const node *me, int *place, size_t *at)
{
    if (me->aliased && !traits_of(w)->scatters && *place == TUTTI__COLL_SRC) {
        *place = TUTTI__COLL_DST;
        *at += me->alias_at;
    } else if (me->aliased && traits_of(w)->scatters && *place == TUTTI__COLL_DST) {
        *place = TUTTI__COLL_SRC;
        *at += me->alias_at;
    }
}

static symbol *element_of(world *w, int rank, tutti__coll_at at, size_t i)
{
    node *me = &w->nodes[rank];
    int place = at.place;
    size_t k = at.at + i;

    if (k >= me->n[place]) {
        FAIL(w, "rank %d round %zu: element %zu of place %d, which has %zu", rank, me->round, k,
             place, me->n[place]);
        return &me->place[place][me->n[place]];
    }
    resolve(w, me, &place, &k);
    return &me->place[place][k];
}

static void use(world *w, int rank, tutti__coll_at at, size_t count, int how)
{
    node *me = &w->nodes[rank];
    int against = how == RECV_INTO   ? SEND_FROM | RECV_INTO | READ | WRITTEN
                  : how == SEND_FROM ? RECV_INTO | WRITTEN
                  : how == WRITTEN   ? RECV_INTO | SEND_FROM
                                     : RECV_INTO;

    if (how >= WRITTEN && at.place == TUTTI__COLL_SRC)
        FAIL(w, "rank %d round %zu writes SRC", rank, me->round);
    for (size_t i = 0; i < count; i++) {
        int place = at.place;
        size_t k = at.at + i;

        (void)element_of(w, rank, at, i);
        if (w->failure[0])
            return;
        resolve(w, me, &place, &k);
        if (me->used[place][k] & against)
            FAIL(w, "rank %d round %zu: conflict at element %zu of place %d (%d, %d)", rank,
                 me->round, k, place, me->used[place][k], how);
        me->used[place][k] |= (unsigned char)how;
    }
}

/* ---- Actions ---------------------------------------------------------------------------------------------------- */

/* A copy of memory to itself, where SRC and DST are the same, is none. */
static bool is_nothing(const world *w, int rank, const tutti__coll_action *a)
{
    int to = a->to.place, from = a->from.place;
    size_t to_at = a->to.at, from_at = a->from.at;

    resolve(w, &w->nodes[rank], &to, &to_at);
    resolve(w, &w->nodes[rank], &from, &from_at);
    return a->kind == TUTTI__COLL_COPY && to == from && to_at == from_at;
}

static void check_uses(world *w, int rank)
{
    node *me = &w->nodes[rank];

    for (int p = 0; p < TUTTI__COLL_PLACES; p++)
        memset(me->used[p], 0, me->n[p]);
    for (size_t i = 0; i < me->out.n; i++) {
        const tutti__coll_action *a = &me->out.actions[i];

        if (a->kind == TUTTI__COLL_RECV) {
            use(w, rank, a->to, a->count, RECV_INTO);
        } else if (a->kind == TUTTI__COLL_SEND) {
            use(w, rank, a->from, a->count, SEND_FROM);
        } else if (!is_nothing(w, rank, a)) {
            use(w, rank, a->from, a->count, READ);
            use(w, rank, a->to, a->count, WRITTEN);
        }
    }
}

static size_t bytes_in(const world *w, tutti__coll_at at)
{
    return tutti__coll_element(&w->call, at.place);
}

static symbol joined(world *w, int rank, symbol left, symbol right)
{
    if (left.ranks & right.ranks)
        FAIL(w, "rank %d: a contribution twice", rank);
    if (left.finished || right.finished || left.index != right.index)
        FAIL(w, "rank %d: reduces what is finished, or another element", rank);
    return (symbol){mix(mix(left.hash, 5), right.hash), left.ranks | right.ranks, left.index,
                    false};
}

static void act_locally(world *w, int rank, const tutti__coll_action *a)
{
    if (bytes_in(w, a->to) < bytes_in(w, a->from) && a->kind != TUTTI__COLL_FINISH)
        FAIL(w, "rank %d: narrows a sum", rank);
    if (a->kind >= TUTTI__COLL_REDUCE && a->kind != TUTTI__COLL_FINISH &&
        tutti__coll_is_wide(&w->call) && a->to.place != TUTTI__COLL_WORK)
        FAIL(w, "rank %d: reduces in 16 bits", rank);
    for (size_t i = 0; i < a->count; i++) {
        symbol from = *element_of(w, rank, a->from, i), *to = element_of(w, rank, a->to, i);

        if (!from.hash ||
            (a->kind >= TUTTI__COLL_REDUCE && a->kind != TUTTI__COLL_FINISH && !to->hash))
            FAIL(w, "rank %d round %zu: reads what is undefined", rank, w->nodes[rank].round);
        if (a->kind == TUTTI__COLL_REDUCE)
            from = joined(w, rank, *to, from);
        else if (a->kind == TUTTI__COLL_REDUCE_LEFT)
            from = joined(w, rank, from, *to);
        else if (a->kind == TUTTI__COLL_FINISH && from.finished)
            FAIL(w, "rank %d finishes twice", rank);
        from.finished = from.finished || a->kind == TUTTI__COLL_FINISH;
        *to = from;
    }
}

static void move(world *w, posted *send, posted *recv)
{
    if (send->count != recv->count || send->element != recv->element)
        FAIL(w, "rank %d sends %zu of %zu bytes to rank %d, which expects %zu of %zu", send->from,
             send->count, send->element, send->to, recv->count, recv->element);
    else
        for (size_t i = 0; i < send->count; i++)
            recv->values[i] = send->values[i];
    w->nodes[send->to].heard |= send->heard;
    w->nodes[send->from].open--;
    w->nodes[send->to].open--;
    free(send->values);
    free(send);
    free(recv);
}

/* Messages of a pair meet in order: a round's send ends when its receive has begun, as if nothing were buffered. */
static void post(world *w, posted *p)
{
    posted **list = &w->pairs[p->from * w->call.size + p->to], **end = list;

    w->nodes[p->is_send ? p->from : p->to].open++;
    if (*list && (*list)->is_send != p->is_send) {
        posted *first = *list;

        *list = first->next;
        move(w, p->is_send ? p : first, p->is_send ? first : p);
        return;
    }
    while (*end)
        end = &(*end)->next;
    *end = p;
}

static void message(world *w, int rank, const tutti__coll_action *a)
{
    bool is_send = a->kind == TUTTI__COLL_SEND;
    posted *p = calloc(1, sizeof *p);

    *p = (posted){.is_send = is_send,
                  .from = is_send ? rank : a->peer,
                  .to = is_send ? a->peer : rank,
                  .count = a->count,
                  .element = bytes_in(w, a->to),
                  .heard = w->nodes[rank].heard};
    if (a->peer < 0 || a->peer >= w->call.size || a->peer == rank) {
        FAIL(w, "rank %d: a message with rank %d", rank, a->peer);
        free(p);
        return;
    }
    p->values = is_send ? calloc(a->count, sizeof *p->values) : element_of(w, rank, a->to, 0);
    for (size_t i = 0; is_send && i < a->count; i++) {
        p->values[i] = *element_of(w, rank, a->from, i);
        if (!p->values[i].hash)
            FAIL(w, "rank %d round %zu sends what is undefined", rank, w->nodes[rank].round);
    }
    post(w, p);
}

/* Messages first: they may not see what local actions of the round write. */
static void begin_round(world *w, int rank)
{
    node *me = &w->nodes[rank];

    tutti__coll_actions(w->algorithm, &w->call, rank, me->round, &me->out);
    if (me->out.n > me->out.capacity) {
        FAIL(w, "rank %d round %zu: %zu actions, at most %zu were announced", rank, me->round,
             me->out.n, me->out.capacity);
        return;
    }
    check_uses(w, rank);
    for (size_t i = 0; i < me->out.n && !w->failure[0]; i++)
        if (me->out.actions[i].kind <= TUTTI__COLL_RECV)
            message(w, rank, &me->out.actions[i]);
    for (size_t i = 0; i < me->out.n && !w->failure[0]; i++)
        if (me->out.actions[i].kind > TUTTI__COLL_RECV)
            act_locally(w, rank, &me->out.actions[i]);
    me->begun = true;
}

/* ---- A run ------------------------------------------------------------------------------------------------------- */

static void run_all(world *w)
{
    size_t n_rounds = w->algorithm->n_rounds(&w->call);
    bool moved = true;
    int left = w->call.size;

    while (left > 0 && moved && !w->failure[0]) {
        moved = false;
        left = 0;
        for (int r = 0; r < w->call.size && !w->failure[0]; r++) {
            node *me = &w->nodes[r];

            while (me->round < n_rounds && (!me->begun || me->open == 0) && !w->failure[0]) {
                if (!me->begun)
                    begin_round(w, r);
                if (me->open > 0)
                    break;
                me->begun = false;
                me->round++;
                moved = true;
            }
            left += me->round < n_rounds;
        }
    }
    if (left > 0)
        FAIL(w, "ranks wait for each other, rank 0 in round %zu of %zu", w->nodes[0].round,
             n_rounds);
}

static uint64_t sum_of(uint64_t left, uint64_t right)
{
    return mix(mix(left, 5), right);
}

/* The smallest radix that divides n; 1: none. */
static int radix_of(int n)
{
    for (int r = 2; r <= 7; r++)
        if (n % r == 0)
            return r;
    return 1;
}

static bool is_product(int n)
{
    while (radix_of(n) > 1)
        n /= radix_of(n);
    return n == 1;
}

/* The common order of a level's places, from its definition in order.h. */
static uint64_t sum_of_places(uint64_t *sum, int places, bool near_first)
{
    int kept = places, n, divided = 1;
    bool given = false;

    while (!is_product(kept))
        kept--;
    for (n = kept; n > 1 || !given;) {
        const int r = radix_of(n);

        n /= r;
        divided *= r;
        for (int i = 0; i < n; i++) {
            uint64_t left = sum[near_first ? i * r : i];

            for (int k = 1; k < r; k++)
                left = sum_of(left, sum[near_first ? i * r + k : i + k * n]);
            sum[i] = left;
        }
        if (given || (n > 1 && divided < 12 && divided * radix_of(n) <= 28))
            continue;
        for (int x = kept; x < places; x++)
            sum[(x - kept) % n] = sum_of(sum[(x - kept) % n], sum[x]);
        given = true;
    }
    return sum[0];
}

/* Of the block of a level that begins with a rank. A block of all ranks says that they stand in the order of a topology. */
static uint64_t sum_of_block(const tutti__coll *call, int level, int first, size_t index)
{
    int block = level < TUTTI__COLL_LEVELS && call->block[level] ? call->block[level] : call->size,
        below = level > 0 ? call->block[level - 1] : 1;
    uint64_t sum[64];

    for (int i = 0; i < block / below; i++)
        sum[i] = level > 0 ? sum_of_block(call, level - 1, first + i * below, index)
                           : leaf(first + i, index).hash;
    return sum_of_places(sum, block / below, call->block[0] > 1 || call->block[1] > 1);
}

static uint64_t common_sum(const world *w, size_t index)
{
    int levels = 0;

    while (levels < TUTTI__COLL_LEVELS && w->call.block[levels] &&
           w->call.block[levels] < w->call.size)
        levels++;
    if (!w->sums[index])
        w->sums[index] = sum_of_block(&w->call, levels, 0, index);
    return w->sums[index];
}

/* What an element of rank's DST must have: who contributes, and which element of theirs. */
static symbol expected(const world *w, int rank, size_t i)
{
    const tutti__op_traits *t = traits_of(w);
    size_t count = w->call.count, piece = t->gathers ? i / count : 0;
    int from = t->from_root ? w->call.root : (int)piece;
    size_t index = (t->scatters ? (size_t)rank * count : 0) + (t->gathers ? i % count : i);

    if (!t->reduces)
        return leaf(from, index);
    return (symbol){w->algorithm->in_common_order ? common_sum(w, index) : 0,
                    w->call.size == 64 ? UINT64_MAX : ((uint64_t)1 << w->call.size) - 1,
                    (uint32_t)index, true};
}

static void check_results(world *w)
{
    uint64_t all = w->call.size == 64 ? UINT64_MAX : ((uint64_t)1 << w->call.size) - 1;
    symbol *first = NULL;

    for (int r = 0; r < w->call.size; r++) {
        node *me = &w->nodes[r];

        if (w->call.op == TUTTI__OP_BARRIER && me->heard != all)
            FAIL(w, "rank %d leaves the barrier before all have come", r);
        for (size_t i = 0; i < me->n[TUTTI__COLL_DST] && !w->failure[0]; i++) {
            symbol want = expected(w, r, i), got = *element_of(w, r, tutti__coll_dst(i), 0);

            if (want.ranks != got.ranks || want.index != got.index ||
                want.finished != got.finished || (want.hash && want.hash != got.hash))
                FAIL(w, "rank %d: element %zu is of ranks %llx, element %u", r, i,
                     (unsigned long long)got.ranks, got.index);
            if (first && !traits_of(w)->scatters && traits_of(w)->reduces &&
                first[i].hash != got.hash)
                FAIL(w, "rank %d: element %zu is summed in another order than on a rank before", r,
                     i);
        }
        if (w->call.op == TUTTI__OP_ALL_REDUCE)
            first = w->nodes[0].place[TUTTI__COLL_DST];
    }
    for (int i = 0; i < w->call.size * w->call.size; i++)
        if (w->pairs[i])
            FAIL(w, "rank %d and %d: a message is left over", i / w->call.size, i % w->call.size);
}

static void close_world(world *w)
{
    for (int r = 0; r < w->call.size; r++) {
        for (int p = 0; p < TUTTI__COLL_PLACES; p++) {
            free(w->nodes[r].place[p]);
            free(w->nodes[r].used[p]);
        }
        free(w->nodes[r].out.actions);
    }
    for (int i = 0; i < w->call.size * w->call.size; i++)
        while (w->pairs[i]) {
            posted *p = w->pairs[i];

            w->pairs[i] = p->next;
            if (p->is_send)
                free(p->values);
            free(p);
        }
    free(w->nodes);
    free(w->pairs);
    free(w->sums);
}

static void check_call(const tutti__coll_algorithm *algorithm, const tutti__coll *call,
                       bool in_place)
{
    world w = {.algorithm = algorithm, .call = *call, .in_place = in_place};

    if (!tutti__coll_fits(algorithm, call))
        return;
    w.nodes = calloc((size_t)call->size, sizeof *w.nodes);
    w.pairs = calloc((size_t)call->size * (size_t)call->size, sizeof *w.pairs);
    w.sums = calloc(given(&w, call->root) + 1, sizeof *w.sums);
    for (int r = 0; r < call->size; r++)
        open_node(&w, r);
    run_all(&w);
    if (!w.failure[0])
        check_results(&w);
    close_world(&w);
    if (w.failure[0])
        fail_msg("%s:%s, %d ranks, root %d, count %zu, chunk %zu, dtype %d%s: %s",
                 tutti__op_name(call->op), algorithm->name, call->size, call->root, call->count,
                 call->chunk, call->dtype, in_place ? ", in place" : "", w.failure);
}

/* ---- All calls ----------------------------------------------------------------------------------------------------- */

static const tutti_dtype DTYPES[] = {TUTTI_F32, TUTTI_BF16};

/* block: two of them; 0: none. */
static void check_counts(const tutti__coll_algorithm *algorithm, int size, int root,
                         const int block[2])
{
    const tutti__op_traits *t = &tutti__op_table[algorithm->op];
    const size_t n = (size_t)size, chunks[] = {1, 2, 3, 8, 1000};
    size_t counts[] = {1, 2, 5, n - 1, n, n + 1, 2 * n + 1, 3 * n, 8 * n + 1};
    bool pieces = t->scatters || t->gathers, few = size > (getenv("ALL") ? 17 : 5);
    size_t every = getenv("ALL") ? 3 : 9; /* no multiple of the number of chunks */

    for (size_t c = 0; c < TUTTI__COUNT_OF(counts); c++)
        for (size_t k = 0; k < TUTTI__COUNT_OF(chunks); k++)
            for (size_t d = 0; d < (t->reduces ? TUTTI__COUNT_OF(DTYPES) : 1); d++)
                for (int in_place = 0; in_place < 2; in_place++) {
                    size_t count = pieces ? (counts[c] + 2) / 3 : counts[c];

                    if (algorithm->op == TUTTI__OP_BARRIER
                            ? c > 0 || k > 0
                            : few && ((c * TUTTI__COUNT_OF(chunks) + k + n) % every != 0 ||
                                      (pieces && count > 5)))
                        continue;
                    if (count == 0 || (in_place && (algorithm->op == TUTTI__OP_REDUCE_SCATTER ||
                                                    algorithm->op == TUTTI__OP_ALL_TO_ALL)))
                        continue; /* the memory of those does not overlap */
                    check_call(algorithm,
                               &(tutti__coll){.op = algorithm->op,
                                              .dtype = DTYPES[d],
                                              .redop = TUTTI_AVG,
                                              .size = size,
                                              .root = root,
                                              .count = count,
                                              .chunk = chunks[k],
                                              .block = {block[0], block[1]}},
                               in_place);
                }
}

static void test_every_algorithm(void **state)
{
    static const int SIZES[] = {2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                13, 14, 15, 16, 17, 23, 31, 32, 33, 47, 64};

    (void)state;
    for (size_t a = 0; a < tutti__coll_n_algorithms; a++) {
        const tutti__coll_algorithm *algorithm = tutti__coll_algorithms[a];
        const tutti__op_traits *t = &tutti__op_table[algorithm->op];

        for (size_t s = 0; s < TUTTI__COUNT_OF(SIZES); s++) {
            int size = SIZES[s], roots = t->from_root || t->to_root ? size : 1;

            for (int root = 0; root<roots; root += size> 9 ? size / 3 : 1)
                check_counts(algorithm, size, root,
                             (int[2]){size == 2       ? 0
                                      : size % 3 == 0 ? size / 3
                                      : size % 2 == 0 ? 2
                                                      : 0});
        }
    }
}

/* Hosts below switches; those of a group with a rank a host; blocks, and numbers of them, of which some are no powers of two, or no products of 2, 3, 5, 7; and unequal ones. */
static void test_levels(void **state)
{
    static const struct {
        int size, block[2];
    } LAYOUTS[] = {{16, {2, 8}}, {16, {1, 4}},  {32, {4, 8}},  {24, {2, 8}},  {27, {3, 9}},
                   {22, {11}},   {33, {3}},     {44, {2, 22}}, {63, {7, 21}}, {52, {13}},
                   {61, {0}},    {61, {1, 61}}, {23, {23}},    {44, {2, 44}}, {33, {1, 33}}};

    (void)state;
    for (size_t a = 0; a < tutti__coll_n_algorithms; a++)
        for (size_t i = 0; i < TUTTI__COUNT_OF(LAYOUTS); i++) {
            const tutti__op_traits *t = &tutti__op_table[tutti__coll_algorithms[a]->op];
            const int size = LAYOUTS[i].size;

            check_counts(tutti__coll_algorithms[a], size, 0, LAYOUTS[i].block);
            if (t->from_root || t->to_root)
                check_counts(tutti__coll_algorithms[a], size, size / 2 + 1, LAYOUTS[i].block);
        }
}

/* Pieces between the hosts are of two sizes, of which the smaller one needs more memory: it is cut into fewer parts. */
static void test_pieces_of_hosts(void **state)
{
    const tutti__coll_algorithm *algorithm = tutti__coll_find(TUTTI__OP_ALL_REDUCE, "hierarchical");

    (void)state;
    assert_non_null(algorithm);
    check_call(algorithm,
               &(tutti__coll){.op = TUTTI__OP_ALL_REDUCE,
                              .dtype = TUTTI_BF16,
                              .redop = TUTTI_AVG,
                              .size = 4,
                              .count = 48 * 2 * 8 * 8 * 34 - 1, /* parts, places, parts of chunks */
                              .chunk = 34,
                              .block = {2}},
               false);
}

/* An operation's rows stand together, `direct` first, and no name twice: what the choice and its messages rely on. */
static void test_table(void **state)
{
    (void)state;
    for (size_t a = 0; a < tutti__coll_n_algorithms; a++) {
        const tutti__coll_algorithm *algorithm = tutti__coll_algorithms[a];

        assert_ptr_equal(tutti__coll_find(algorithm->op, algorithm->name), algorithm);
        if (a == 0 || tutti__coll_algorithms[a - 1]->op != algorithm->op)
            assert_string_equal(algorithm->name, "direct");
        for (size_t b = 0; b + 1 < a; b++)
            if (tutti__coll_algorithms[b]->op == algorithm->op)
                assert_int_equal(tutti__coll_algorithms[b + 1]->op, algorithm->op);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table), cmocka_unit_test(test_every_algorithm),
        cmocka_unit_test(test_levels), cmocka_unit_test(test_pieces_of_hosts)};

    return cmocka_run_group_tests_name("comm/rounds", tests, NULL, NULL);
}
