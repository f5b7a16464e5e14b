/* ddp: pieces of whole tensors, of simulated layouts: who has what, gathered to a rank, spread from one, their digest.
 * SPDX-License-Identifier: MIT
 * timeout: 60 */
#include "ddp/pieces.h"
#include "distributed/bodies.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Tensors, and how a layout of `boxes` ranks divides them; the ranks of a box then share its elements, or all hold all. */
typedef struct kind {
    const char *name;
    tutti_dtype dtype;
    tutti_shape shape;
    int dim, parts, boxes; /* boxes 0: not divided */
    bool shared;           /* by ranges */
} kind;

static const kind kinds[] = {
    {"whole", TUTTI_F32, {2, {3, 5}}, 0, 1, 0, false},
    {"rows", TUTTI_F32, {2, {7, 10}}, 0, 1, 3, false},
    {"columns", TUTTI_F32, {2, {5, 7}}, 1, 1, 2, false},
    {"fused", TUTTI_F32, {2, {9, 4}}, 0, 3, 2, false},
    {"inner", TUTTI_F32, {3, {4, 6, 3}}, 1, 2, 3, false},
    {"ranges", TUTTI_F32, {2, {11, 13}}, 0, 1, 0, true},
    {"both", TUTTI_F32, {2, {6, 9}}, 1, 3, 2, true},
    {"count", TUTTI_I64, {0, {0}}, 0, 1, 0, false},
    {"empty", TUTTI_F32, {1, {0}}, 0, 1, 0, false},
    {"large", TUTTI_F32, {2, {1100, 1001}}, 1, 1, 2, true}, /* several messages */
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static size_t count_of(const kind *k)
{
    return (size_t)tutti_shape_count(k->shape);
}

static char *values_of(const kind *k)
{
    const size_t each = tutti_dtype_size(k->dtype), n = count_of(k);
    char *p = calloc(n + 1, each);

    for (size_t i = 0; i < n * each; i++)
        p[i] = (char)(i * 31 + i / 251 + (size_t)(k - kinds) * 7);
    return p;
}

/* The whole tensor's element for element e of a box, by its coordinates. */
static size_t place_of(const kind *k, int index, int boxes, size_t e)
{
    int64_t length = k->shape.d[k->dim] / k->parts, chunk = (length + boxes - 1) / boxes,
            first = index * chunk < length ? index * chunk : length,
            own = (first + chunk < length ? first + chunk : length) - first, at[TUTTI_MAX_DIMS];
    size_t place = 0;

    for (int d = k->shape.n - 1; d >= 0; d--) {
        const int64_t size = d == k->dim ? own * k->parts : k->shape.d[d];

        at[d] = (int64_t)e % size;
        e /= (size_t)size;
    }
    at[k->dim] = at[k->dim] / own * length + first + at[k->dim] % own;
    for (int d = 0; d < k->shape.n; d++)
        place = place * (size_t)k->shape.d[d] + (size_t)at[d];
    return place;
}

/* What this rank holds of all of them; the caller frees the data. filled: the values; else zeros. */
static int list_pieces(tutti__pieces *mine, tutti_group *group, bool filled)
{
    const int rank = tutti_group_rank(group), size = tutti_group_size(group);

    for (int i = 0; i < KINDS; i++) {
        const kind *k = &kinds[i];
        const int boxes = k->boxes > size ? size : k->boxes;
        const size_t each = tutti_dtype_size(k->dtype);
        const int index = boxes ? rank % boxes : 0, apart = boxes ? boxes : 1,
                  sharers = (size - index + apart - 1) / apart, share = rank / apart;
        tutti__tensor_piece piece = {
            .name = k->name, .dtype = k->dtype, .host = true, .shape = k->shape};
        char *values = values_of(k);
        size_t n;

        if (boxes)
            piece.box = (tutti__parameter_split){
                .dim = k->dim, .parts = k->parts, .index = index, .count = boxes, .units = 1};
        n = tutti__box_count(&piece.box, k->shape);
        piece.begin = k->shared ? n * (size_t)share / (size_t)sharers : 0;
        piece.end = k->shared ? n * (size_t)(share + 1) / (size_t)sharers : n;
        piece.data = calloc(piece.end - piece.begin + 1, each);
        if (filled)
            tutti__box_pick(&piece.box, k->shape, each, piece.begin, piece.end, values, piece.data);
        for (size_t e = piece.begin; filled && boxes && e < piece.end; e++)
            CHECK(memcmp(piece.data + (e - piece.begin) * each,
                         values + place_of(k, index, boxes, e) * each, each) == 0);
        free(values);
        CHECK_OK(tutti__pieces_add(mine, &piece));
    }
    return 0;
}

static void free_pieces(tutti__pieces *mine)
{
    for (size_t i = 0; i < mine->n; i++)
        free(mine->p[i].data);
    tutti__pieces_free(mine);
}

static const kind *kind_of(const char *name)
{
    for (int i = 0; i < KINDS; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}

static int move_all(const tutti__wholes *wholes, const tutti__pieces *mine,
                    const tutti__pieces *empty, tutti__mover *mover)
{
    for (size_t i = 0; i < wholes->n; i++) {
        const tutti__whole *w = &wholes->p[i];
        char *values = values_of(kind_of(w->name)), *room = calloc(w->bytes + 1, 1);
        const bool own = w->rank == mover->rank;

        CHECK_OK(tutti__whole_gather(wholes, i, mine, mover, own ? room : NULL));
        CHECK(!own || memcmp(room, values, w->bytes) == 0);
        CHECK_OK(tutti__whole_spread(wholes, i, empty, mover, own ? room : NULL));
        free(room);
        free(values);
    }
    for (size_t i = 0; i < mine->n; i++)
        CHECK(memcmp(mine->p[i].data, empty->p[i].data,
                     (mine->p[i].end - mine->p[i].begin) * tutti_dtype_size(mine->p[i].dtype)) ==
              0);
    return 0;
}

static int check_digest(tutti__wholes *wholes, const tutti__pieces *mine, tutti__mover *mover)
{
    tutti__hash128_state *hash = tutti__hash128_new();
    char expected[33], digest[33];

    for (size_t i = 0; i < wholes->n; i++) {
        char *values = values_of(kind_of(wholes->p[i].name));

        CHECK(i == 0 || strcmp(wholes->p[i - 1].name, wholes->p[i].name) < 0);
        tutti__hash128_add(hash, values, wholes->p[i].bytes);
        free(values);
    }
    tutti__hash128_end(hash, expected);
    CHECK_OK(tutti__wholes_digest(wholes, mine, mover, digest));
    CHECK_TEXT(digest, mover->rank == 0 ? expected : "");
    return 0;
}

static int body(tutti_group *group, void *arg)
{
    const int size = tutti_group_size(group);
    tutti__pieces mine = {.n = 0}, empty = {.n = 0};
    tutti__wholes wholes;
    tutti__mover mover;
    uint64_t load[8] = {0}, all = 0;
    bool may[8];

    (void)arg;
    for (int r = 0; r < size; r++)
        may[r] = size < 3 || r != 1; /* rank 1 sees no folder */
    CHECK(list_pieces(&mine, group, true) == 0 && list_pieces(&empty, group, false) == 0);
    CHECK_OK(tutti__wholes_find(&wholes, &mine, group));
    CHECK(wholes.n == KINDS);
    CHECK(tutti__wholes_are_of(&wholes, 0) == (size == 1));
    CHECK_OK(tutti__wholes_assign(&wholes, may, load, size));
    CHECK_OK(tutti__mover_new(&mover, group, NULL, TUTTI__TAG_MOVE));
    CHECK(size < 3 || load[1] == 0);
    for (int r = 0; r < size; r++)
        all += load[r];
    for (size_t i = 0; i < wholes.n; i++)
        all -= wholes.p[i].bytes;
    CHECK(all == 0);
    CHECK(move_all(&wholes, &mine, &empty, &mover) == 0);
    CHECK(check_digest(&wholes, &mine, &mover) == 0);
    CHECK_OK(tutti__mover_end(&mover));
    tutti__mover_free(&mover);
    tutti__wholes_free(&wholes);
    free_pieces(&mine);
    free_pieces(&empty);
    return 0;
}

static void test_all_layouts(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++)
        assert_int_equal(tutti_run_ranks_as_threads(n, body, NULL), 0);
    assert_int_equal(tutti_run_ranks_as_processes(3, body, NULL, TUTTI_TRANSPORT_TCP), 0);
}

/* Bytes are balanced, and stay where they are if that is possible. */
static int balance(tutti_group *group, void *arg)
{
    enum { N = 24 };
    static char names[N][8];
    const int rank = tutti_group_rank(group), size = tutti_group_size(group);
    tutti__pieces mine = {.n = 0};
    tutti__wholes wholes;
    uint64_t load[8] = {0};
    bool may[8] = {true, true, true, true};
    char data[4] = "";

    (void)arg;
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "t%02d", i);
        if (i % size == rank)
            CHECK_OK(tutti__pieces_add(&mine, &(tutti__tensor_piece){.name = names[i],
                                                                     .host = true,
                                                                     .shape = {1, {5000}},
                                                                     .end = 5000,
                                                                     .data = data}));
    }
    CHECK_OK(tutti__wholes_find(&wholes, &mine, group));
    CHECK_OK(tutti__wholes_assign(&wholes, may, load, size));
    for (int i = 0; i < N; i++)
        CHECK(wholes.p[i].rank == i % size);
    load[0] = 1 << 30; /* it writes much else */
    for (int r = 1; r < size; r++)
        load[r] = 0;
    CHECK_OK(tutti__wholes_assign(&wholes, may, load, size));
    for (int i = 0; i < N; i++)
        CHECK(wholes.p[i].rank > 0);
    tutti__wholes_free(&wholes);
    tutti__pieces_free(&mine);
    return 0;
}

static void test_balance(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(4, balance, NULL), 0);
}

static int wrong(tutti_group *group, void *arg)
{
    const int rank = tutti_group_rank(group);
    float data[8] = {0};
    tutti__pieces mine = {.n = 0};
    tutti__wholes wholes;
    tutti__tensor_piece piece = {.name = "w",
                                 .dtype = TUTTI_F32,
                                 .host = true,
                                 .shape = {1, {rank == 1 ? 7 : 8}},
                                 .end = rank == 1 ? 7 : 8,
                                 .data = (char *)data};

    (void)arg;
    CHECK_OK(tutti__pieces_add(&mine, &piece));
    CHECK(tutti__wholes_find(&wholes, &mine, group) == TUTTI_ERR_MISMATCH);
    CHECK(strstr(tutti_last_error(), "ranks 0 and 1 differ in what \"w\" is"));
    tutti__wholes_free(&wholes);
    mine.p[0].shape.d[0] = 8;
    mine.p[0].begin = rank == 0 ? 0 : 3;
    mine.p[0].end = rank == 0 ? 2 : 8;
    CHECK(tutti__wholes_find(&wholes, &mine, group) == TUTTI_ERR_STATE);
    CHECK(strstr(tutti_last_error(), "no rank holds element 2 of part 0 of \"w\""));
    tutti__wholes_free(&wholes);
    tutti__pieces_free(&mine);
    return 0;
}

static void test_wrong(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(2, wrong, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_layouts),
                                       cmocka_unit_test(test_balance),
                                       cmocka_unit_test(test_wrong)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
