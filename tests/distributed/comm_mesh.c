/* comm: the ranks of a group as a grid.   SPDX-License-Identifier: MIT
 * timeout: 120   breadth: 240 */
#include "bodies.h"
#include <tutti/mesh.h>

static const tutti_mesh_dimension cube[] = {
    {.name = "pipeline", .size = 2}, {.name = "data"}, {.name = "tensor", .size = 2}};

/* The sum of the ranks in the group of a dimension. */
static int sum_of(tutti_group *group, const tutti_mesh *mesh, const char *name)
{
    int32_t sum = tutti_group_rank(group);

    if (tutti_all_reduce(tutti_mesh_group(mesh, name), TUTTI_BUF(&sum, 1, TUTTI_I32), TUTTI_SUM,
                         NULL) != TUTTI_OK)
        return -1;
    return sum;
}

static int numbers_rows(tutti_group *group, void *arg)
{
    const int rank = tutti_group_rank(group);
    const char *names[] = {"pipeline", "data", "tensor"};
    const int at[] = {rank / 4, rank / 2 % 2, rank % 2}, stride[] = {4, 2, 1};
    char name[32];
    tutti_mesh *mesh;

    (void)arg;
    CHECK_OK(tutti_mesh_new(&mesh, group, cube, 3));
    for (int i = 0; i < 3; i++) {
        tutti_group *line = tutti_mesh_group(mesh, names[i]);
        const int low = rank - at[i] * stride[i];
        const int number = low / (2 * stride[i]) * stride[i] + low % stride[i];

        CHECK(tutti_mesh_size(mesh, names[i]) == 2 && tutti_mesh_rank(mesh, names[i]) == at[i]);
        CHECK(tutti_group_size(line) == 2 && tutti_group_rank(line) == at[i]);
        CHECK(tutti_group_global_rank(line, 0) == low);
        snprintf(name, sizeof name, "%s-%d", names[i], number);
        CHECK(strcmp(tutti_group_name(line), name) == 0);
        CHECK(sum_of(group, mesh, names[i]) == 2 * low + stride[i]);
    }
    CHECK(tutti_mesh_size(mesh, "expert") == 1 && tutti_mesh_rank(mesh, "expert") == 0);
    CHECK(!tutti_mesh_group(mesh, "expert"));
    tutti_mesh_free(mesh);
    CHECK_OK(tutti_barrier(group, NULL));
    return 0;
}

static void ranks_are_numbered_row_by_row(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(8, numbers_rows, NULL), 0);
}

/* One dimension has all ranks, the others one. */
static int lines_of_all(tutti_group *group, void *arg)
{
    const int size = tutti_group_size(group), rank = tutti_group_rank(group);
    const tutti_mesh_dimension lines[] = {
        {.name = "pipeline", .size = 1}, {.name = "data", .size = size}, {.name = "tensor"}};
    tutti_mesh *mesh;

    (void)arg;
    CHECK_OK(tutti_mesh_new(&mesh, group, lines, 3));
    CHECK(tutti_mesh_group(mesh, "data") == group && tutti_mesh_rank(mesh, "data") == rank);
    CHECK(tutti_mesh_size(mesh, "tensor") == 1 && sum_of(group, mesh, "tensor") == rank);
    CHECK(sum_of(group, mesh, "pipeline") == rank);
    tutti_mesh_free(mesh);
    return 0;
}

static int is_refused(tutti_group *group, const char *why, const tutti_mesh_dimension *lines,
                      size_t n)
{
    tutti_mesh *mesh = (tutti_mesh *)group;

    CHECK(tutti_mesh_new(&mesh, group, lines, n) == TUTTI_ERR_ARG && !mesh);
    CHECK_TEXT(tutti_last_error(), why);
    CHECK_OK(tutti_barrier(group, NULL));
    return 0;
}

static int refuses(tutti_group *group, void *arg)
{
    const bool odd = tutti_group_rank(group) == 1;
    const tutti_mesh_dimension six[] = {{.name = "data", .size = 3}, {.name = "tensor", .size = 2}},
                               open[] = {{.name = "data"}, {.name = "tensor", .size = 3}},
                               both[] = {{.name = "data"}, {.name = "tensor"}},
                               twice[] = {{.name = "data"}, {.name = "data", .size = 2}},
                               below[] = {{.name = "data", .size = -1}},
                               nameless[] = {{.name = odd ? "" : "data", .size = 4}},
                               newer[] = {{.name = "data", .size = 4, .reserved = {0, 1}}},
                               other[] = {{.name = "data"}, {.name = "tensor", .size = 1 + odd}};
    tutti_mesh *mesh;

    (void)arg;
    CHECK_0(is_refused(group, "mesh data 3 x tensor 2: it does not have the 4 ranks", six, 2));
    CHECK_0(is_refused(group, "mesh data 0 x tensor 3: 4 ranks are not a multiple", open, 2));
    CHECK_0(is_refused(group, "the sizes of data and tensor are left out", both, 2));
    CHECK_0(is_refused(group, "two dimensions are named data", twice, 2));
    CHECK_0(is_refused(group, "dimension data is -1", below, 1));
    CHECK_0(is_refused(group, "rank 1: mesh of group \"world\": dimension 0 is named \"\"",
                       nameless, 1));
    CHECK_0(is_refused(group, "reserved", newer, 1));
    CHECK_0(is_refused(group, "0 dimensions, expected 1 to 8", NULL, 2));
    CHECK_0(is_refused(group, "9 dimensions, expected 1 to 8", six, 9));
    CHECK(tutti_mesh_new(&mesh, group, other, 2) == TUTTI_ERR_MISMATCH && !mesh);
    CHECK_TEXT(tutti_last_error(), "rank 1: mesh: this rank has data 2 x tensor 2, and rank 0 has "
                                   "data 4 x tensor 1");
    CHECK_OK(tutti_barrier(group, NULL));
    return 0;
}

static void what_does_not_fit_is_refused_on_all_ranks(void **state)
{
    (void)state;
    run(refuses, NULL, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_numbered_row_by_row),
        TEST(run_all, lines_of_all),
        cmocka_unit_test(what_does_not_fit_is_refused_on_all_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
