/* checkpoint: a run's folder of checkpoints, with foreign contents.   SPDX-License-Identifier: MIT */
#include "checkpoint/checkpoint_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[64];

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/tutti-folder-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(tutti__checkpoint_remove_all(dir), TUTTI_OK);
    return access(dir, F_OK) == 0 ? -1 : 0; /* fails if it could not be removed */
}

static const char *in_dir(const char *name)
{
    static char path[2][256];
    static int turn;

    snprintf(path[turn ^= 1], sizeof path[0], "%s/%s", dir, name);
    return path[turn];
}

static bool is_there(const char *name)
{
    struct stat st;

    return lstat(in_dir(name), &st) == 0;
}

static void write_file(tutti__draft *draft, const char *name, const char *text)
{
    assert_int_equal(tutti__checkpoint_file(draft, name), TUTTI_OK);
    assert_int_equal(tutti__checkpoint_write(draft, text, strlen(text)), TUTTI_OK);
}

static void save(uint64_t step)
{
    tutti__draft draft;

    assert_int_equal(tutti__checkpoint_begin(&draft, dir, step, NULL, NULL), TUTTI_OK);
    write_file(&draft, "state.json", "{}");
    assert_int_equal(tutti__checkpoint_commit(&draft), TUTTI_OK);
}

static void put_text(const char *folder, const char *name, const char *text)
{
    char path[400];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(tutti__write_file(path, text, strlen(text)), TUTTI_OK);
}

static void expect_steps(const uint64_t *expected, size_t n_expected)
{
    uint64_t *steps;
    size_t n;

    assert_int_equal(tutti__checkpoint_list(dir, &steps, &n), TUTTI_OK);
    assert_int_equal(n, n_expected);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(steps[i], expected[i]);
    free(steps);
}
#define EXPECT_STEPS(...)                                                                          \
    expect_steps((const uint64_t[]){__VA_ARGS__},                                                  \
                 TUTTI__COUNT_OF(((const uint64_t[]){__VA_ARGS__})))

static void expect_latest(const char *name)
{
    char text[64] = "";

    assert_true(readlink(in_dir("latest"), text, sizeof text - 1) > 0);
    assert_string_equal(text, name);
}

static void the_latest_come_first_and_only_they_are_kept(void **state)
{
    (void)state;
    save(9);
    save(100000000); /* nine digits: later than eight by number, not by name */
    save(20);
    EXPECT_STEPS(100000000, 20, 9);
    expect_latest("step-00000020");
    assert_int_equal(tutti__checkpoint_keep(dir, 0), TUTTI_OK);
    EXPECT_STEPS(100000000, 20, 9);
    assert_int_equal(tutti__checkpoint_keep(dir, 2), TUTTI_OK);
    EXPECT_STEPS(100000000, 20);
}

/* Whatever their number, the best one is kept; a link to nothing goes. */
static void the_best_is_kept_too(void **state)
{
    char text[64] = "";

    (void)state;
    for (uint64_t step = 1; step <= 5; step++)
        save(step);
    assert_int_equal(tutti__checkpoint_point_best(dir, 2), TUTTI_OK);
    assert_int_equal(tutti__checkpoint_keep(dir, 2), TUTTI_OK);
    EXPECT_STEPS(5, 4, 2);
    assert_int_equal(tutti__checkpoint_point_best(dir, 4), TUTTI_OK);
    assert_true(readlink(in_dir("best"), text, sizeof text - 1) > 0);
    assert_string_equal(text, "step-00000004");
    assert_int_equal(tutti__checkpoint_keep(dir, 2), TUTTI_OK);
    EXPECT_STEPS(5, 4);
    assert_int_equal(tutti__checkpoint_keep(dir, 1), TUTTI_OK);
    EXPECT_STEPS(5, 4);
    assert_int_equal(symlink("step-00000005", in_dir("best.tmp")), 0); /* what a kill leaves */
    assert_int_equal(tutti__checkpoint_keep_until(dir, 3), TUTTI_OK);
    assert_false(is_there("best") || is_there("best.tmp"));
    assert_true(readlink(in_dir("best"), text, sizeof text - 1) < 0);
}

/* More files than are kept open at a time; and one that changes on the disk before it has its name. */
static void files_are_read_back_before_they_count(void **state)
{
    tutti__draft draft;
    char name[64];

    (void)state;
    assert_int_equal(tutti__checkpoint_begin(&draft, dir, 7, NULL, NULL), TUTTI_OK);
    for (int i = 0; i < 2 * TUTTI__DRAFT_FILES + 1; i++) {
        snprintf(name, sizeof name, "file-%d", i);
        write_file(&draft, name, name);
    }
    assert_int_equal(tutti__checkpoint_commit(&draft), TUTTI_OK);
    assert_true(is_there("step-00000007/file-0") && is_there("step-00000007/file-32"));

    assert_int_equal(tutti__checkpoint_begin(&draft, dir, 8, NULL, NULL), TUTTI_OK);
    write_file(&draft, "model", "whole");
    assert_int_equal(truncate(in_dir("step-00000008.tmp/model"), 3), 0);
    assert_int_equal(tutti__checkpoint_commit(&draft), TUTTI_ERR_IO);
    assert_non_null(strstr(tutti_last_error(), "step-00000008.tmp/model is damaged"));
    assert_int_equal(tutti__checkpoint_abandon(&draft, TUTTI_ERR_IO), TUTTI_ERR_IO);
    EXPECT_STEPS(7);
    expect_latest("step-00000007");
}

static void one_of_the_same_step_is_replaced(void **state)
{
    (void)state;
    save(3);
    put_text(in_dir("step-00000003"), "other", "x");
    save(3);
    assert_true(is_there("step-00000003/state.json"));
    assert_false(is_there("step-00000003/other"));
    EXPECT_STEPS(3);
}

/* As where a damaged one has a folder in place of a file. */
static void folders_in_one_are_removed_with_it(void **state)
{
    (void)state;
    save(3);
    assert_int_equal(mkdir(in_dir("step-00000003/inner"), 0777), 0);
    put_text(in_dir("step-00000003/inner"), "x", "x");
    save(3);
    assert_true(is_there("step-00000003/state.json"));
    assert_false(is_there("step-00000003/inner"));
    assert_false(is_there("step-00000003.tmp"));
    EXPECT_STEPS(3);
}

static bool is_set(const void *owner)
{
    return *(const bool *)owner;
}

/* Whoever has taken over the folder may have begun one of the same name, which stays. */
static void one_of_a_former_owner_gets_no_name(void **state)
{
    tutti__draft draft;
    bool owner = true;

    (void)state;
    save(1);
    assert_int_equal(tutti__checkpoint_begin(&draft, dir, 2, is_set, &owner), TUTTI_OK);
    write_file(&draft, "model", "late");
    owner = false;
    assert_int_equal(tutti__checkpoint_file(&draft, "optimizer"), TUTTI_ERR_STATE);
    assert_int_equal(tutti__checkpoint_commit(&draft), TUTTI_ERR_STATE);
    assert_int_equal(tutti__checkpoint_abandon(&draft, TUTTI_ERR_STATE), TUTTI_ERR_STATE);
    assert_true(is_there("step-00000002.tmp/model"));
    assert_false(is_there("step-00000002.tmp/optimizer"));
    assert_int_equal(tutti__checkpoint_begin(&draft, dir, 2, is_set, &owner), TUTTI_ERR_STATE);
    assert_int_equal(tutti__checkpoint_abandon(&draft, TUTTI_ERR_STATE), TUTTI_ERR_STATE);
    assert_true(is_there("step-00000002.tmp/model"));
    EXPECT_STEPS(1);
}

/* Also if it was frozen after it was asked whether it is the owner. */
static void the_folder_of_another_stays_as_it_is(void **state)
{
    tutti__draft draft, others;

    (void)state;
    assert_int_equal(tutti__checkpoint_begin(&draft, dir, 2, NULL, NULL), TUTTI_OK);
    write_file(&draft, "model", "late");
    assert_int_equal(tutti__checkpoint_begin(&others, dir, 2, NULL, NULL), TUTTI_OK);
    write_file(&others, "model", "other");
    assert_int_equal(tutti__checkpoint_file(&draft, "optimizer"), TUTTI_ERR_STATE);
    assert_int_equal(tutti__checkpoint_commit(&draft), TUTTI_ERR_STATE);
    assert_int_equal(tutti__checkpoint_abandon(&draft, TUTTI_ERR_DISK), TUTTI_ERR_DISK);
    assert_int_equal(tutti__checkpoint_commit(&others), TUTTI_OK);
    assert_true(is_there("step-00000002/model"));
    EXPECT_STEPS(2);
}

static void what_was_not_finished_is_no_checkpoint_and_goes(void **state)
{
    tutti__draft draft;

    (void)state;
    save(1);
    assert_int_equal(tutti__checkpoint_begin(&draft, dir, 2, NULL, NULL), TUTTI_OK);
    write_file(&draft, "model", "half");
    assert_int_equal(tutti__checkpoint_abandon(&draft, TUTTI_ERR_DISK), TUTTI_ERR_DISK);
    assert_false(is_there("step-00000002.tmp"));
    assert_int_equal(mkdir(in_dir("step-00000002.tmp"), 0777), 0);
    put_text(in_dir("step-00000002.tmp"), "model", "half");
    EXPECT_STEPS(1);
    assert_int_equal(tutti__checkpoint_begin(&draft, dir, 2, NULL, NULL),
                     TUTTI_OK); /* again: empty */
    assert_false(is_there("step-00000002.tmp/model"));
    assert_int_equal(tutti__checkpoint_abandon(&draft, TUTTI_ERR_DISK), TUTTI_ERR_DISK);
    assert_false(is_there("step-00000002.tmp"));

    assert_int_equal(tutti__checkpoint_begin(&draft, dir, 5, NULL, NULL), TUTTI_OK);
    assert_int_equal(rename(in_dir("step-00000001"), in_dir("step-00000001.old.tmp")), 0);
    assert_int_equal(symlink("step-00000001", in_dir("latest.tmp")), 0);
    assert_int_equal(tutti__checkpoint_keep_until(dir, 5), TUTTI_OK);
    assert_false(is_there("step-00000005.tmp"));
    assert_false(is_there("step-00000001.old.tmp"));
    assert_false(is_there("latest.tmp"));
    assert_false(is_there("latest")); /* it pointed at what was being removed */
}

/* A kill between the renames of a file system that cannot exchange names. */
static void the_one_that_moved_aside_is_recovered(void **state)
{
    (void)state;
    save(1);
    save(2);
    assert_int_equal(rename(in_dir("step-00000002"), in_dir("step-00000002.previous.tmp")), 0);
    assert_int_equal(mkdir(in_dir("step-00000002.tmp"), 0777), 0);
    tutti__checkpoint_recover_all(dir);
    EXPECT_STEPS(2, 1);
    assert_int_equal(rename(in_dir("step-00000002"), in_dir("step-00000002.previous.tmp")), 0);
    assert_int_equal(mkdir(in_dir("step-00000001.previous.tmp"), 0777), 0);
    assert_int_equal(tutti__checkpoint_keep_until(dir, 5), TUTTI_OK);
    EXPECT_STEPS(2, 1);
    assert_true(is_there("step-00000002/state.json") && is_there("step-00000001/state.json"));
    assert_false(is_there("step-00000001.previous.tmp"));
    assert_false(is_there("step-00000002.tmp"));
    expect_latest("step-00000002");
}

static void a_name_that_cannot_be_taken_is_told(void **state)
{
    tutti__draft draft;

    (void)state;
    assert_int_equal(tutti__checkpoint_begin(&draft, dir, 3, NULL, NULL), TUTTI_OK);
    write_file(&draft, "state.json", "{}");
    strcpy(draft.path, in_dir("gone/step-00000003"));
    assert_int_not_equal(tutti__checkpoint_commit(&draft), TUTTI_OK);
    assert_non_null(strstr(tutti_last_error(), "step-00000003.tmp to "));
    assert_null(strstr(tutti_last_error(), "previous"));
    (void)tutti__checkpoint_abandon(&draft, TUTTI_ERR_IO);
    assert_false(is_there("step-00000003.tmp"));
}

static void later_ones_go_when_a_run_goes_back(void **state)
{
    (void)state;
    save(10);
    save(20);
    save(30);
    assert_int_equal(tutti__checkpoint_keep_until(dir, 20), TUTTI_OK);
    EXPECT_STEPS(20, 10);
    expect_latest("step-00000020");

    /* as after a kill between the two renames */
    assert_int_equal(unlink(in_dir("latest")), 0);
    assert_int_equal(symlink("step-00000010", in_dir("latest")), 0);
    assert_int_equal(tutti__checkpoint_keep_until(dir, 25), TUTTI_OK);
    EXPECT_STEPS(20, 10);
    expect_latest("step-00000020");
}

static void other_names_are_left_alone(void **state)
{
    static const char *const names[] = {"step-1", "step-0000000x", "step-", "mine",
                                        "step-00000001.bak"};
    uint64_t step;

    (void)state;
    save(4);
    for (size_t i = 0; i < TUTTI__COUNT_OF(names); i++) {
        assert_int_equal(mkdir(in_dir(names[i]), 0777), 0);
        assert_false(tutti__checkpoint_step(names[i], &step));
    }
    EXPECT_STEPS(4);
    assert_int_equal(tutti__checkpoint_keep_until(dir, 0), TUTTI_OK);
    assert_int_equal(tutti__checkpoint_remove_all(dir), TUTTI_OK);
    for (size_t i = 0; i < TUTTI__COUNT_OF(names); i++) {
        assert_true(is_there(names[i]));
        assert_int_equal(rmdir(in_dir(names[i])), 0);
    }
    assert_true(tutti__checkpoint_step("a/b/step-00000012", &step));
    assert_int_equal(step, 12);
}

/* A checkpoint may be a link to another disk. */
static void of_a_link_only_the_link_goes(void **state)
{
    (void)state;
    save(1);
    assert_int_equal(rename(in_dir("step-00000001"), in_dir("elsewhere")), 0);
    assert_int_equal(symlink("elsewhere", in_dir("step-00000001")), 0);
    EXPECT_STEPS(1);
    assert_int_equal(tutti__checkpoint_remove_all(dir), TUTTI_OK);
    EXPECT_STEPS();
    assert_true(is_there("elsewhere/state.json"));
    assert_int_equal(unlink(in_dir("elsewhere/state.json")), 0);
    assert_int_equal(rmdir(in_dir("elsewhere")), 0);
}

static void a_file_in_the_place_of_a_folder_is_told(void **state)
{
    tutti__draft draft;
    const char *path = in_dir("file");
    char copy[256], below[300];

    (void)state;
    snprintf(copy, sizeof copy, "%s", path);
    put_text(dir, "file", "x");
    snprintf(below, sizeof below, "%s/checkpoints", copy);
    assert_int_not_equal(tutti__checkpoint_begin(&draft, below, 1, NULL, NULL), TUTTI_OK);
    assert_non_null(strstr(tutti_last_error(), copy));
    unlink(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_latest_come_first_and_only_they_are_kept, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_best_is_kept_too, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_are_read_back_before_they_count, set_up, tear_down),
        cmocka_unit_test_setup_teardown(folders_in_one_are_removed_with_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_of_a_former_owner_gets_no_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_folder_of_another_stays_as_it_is, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_of_the_same_step_is_replaced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_not_finished_is_no_checkpoint_and_goes, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_one_that_moved_aside_is_recovered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_name_that_cannot_be_taken_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(later_ones_go_when_a_run_goes_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_names_are_left_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(of_a_link_only_the_link_goes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_in_the_place_of_a_folder_is_told, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
