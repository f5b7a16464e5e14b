/* train: who may take the lock of a run folder from a process that still has it, and what its files then keep.
 * SPDX-License-Identifier: MIT */
#include "train/folder/run_folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct stand {
    char dir[32], lock[64], metrics[64];
    tutti__run_folder folder; /* of the first owner, in generation 1 */
    tutti__train_job job;
} stand;

static void open_stand(stand *s)
{
    *s = (stand){.dir = "/tmp/tutti-lock-XXXXXX", .job = {.id = "1", .generation = 1}};
    assert_non_null(mkdtemp(s->dir));
    snprintf(s->lock, sizeof s->lock, "%s/.lock", s->dir);
    snprintf(s->metrics, sizeof s->metrics, "%s/metrics.jsonl", s->dir);
    strcpy(s->folder.path, s->dir);
    s->folder.metrics = -1;
    assert_int_equal(tutti__run_lock_take(&s->folder.lock, s->dir, &s->job), TUTTI_OK);
}

static void close_stand(stand *s)
{
    tutti__run_folder_close(&s->folder);
    (void)unlink(s->lock);
    (void)unlink(s->metrics);
    assert_int_equal(rmdir(s->dir), 0); /* no temporary file is left */
}

typedef enum method { INHERIT, SEIZE, SEE_LATER } method;

/* Whether another process succeeds in this, as rank 0 of a generation. It then ends. */
static bool another(const stand *s, method way, uint32_t generation)
{
    const tutti__train_job job = {.id = "1", .generation = generation};
    const char *token = s->folder.lock.token;
    tutti__run_lock lock = {.fd = -1};
    const pid_t child = fork();
    int status = 0;

    if (child == 0) {
        const bool done = way == INHERIT ? tutti__run_lock_inherit(&lock, s->dir, token, &job, 5000)
                          : way == SEIZE ? tutti__run_lock_seize(&lock, s->dir, token, &job)
                                         : tutti__run_lock_has_later(s->dir, token, &job);

        _exit(done && (way == SEE_LATER || tutti__run_lock_is_held(&lock, s->dir)));
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static bool is_held(const stand *s)
{
    return tutti__run_lock_is_held(&s->folder.lock, s->dir);
}

static bool is_lost(const stand *s)
{
    return tutti__run_lock_is_lost(&s->folder.lock, s->dir);
}

/* Rank 0 of generation 3 was cut off while it waited for the lock; its owner is at work in generation 4. */
static void test_only_a_later_generation(void **unused)
{
    const double begin_ms = tutti__now_ms();
    stand s;

    (void)unused;
    open_stand(&s);
    assert_true(another(&s, SEE_LATER, 1) && !another(&s, SEE_LATER, 2));
    s.job.generation = 4;
    tutti__run_lock_renew(&s.folder.lock, s.dir, &s.job);
    for (uint32_t generation = 0; generation <= 4; generation++) {
        assert_false(another(&s, SEIZE, generation));
        assert_true(another(&s, SEE_LATER, generation));
    }
    assert_false(another(&s, INHERIT, 3));
    assert_true(tutti__now_ms() - begin_ms < 4000); /* it does not wait for the owner to end */
    assert_true(is_held(&s) && tutti__run_lock_is_own(&s.folder.lock, s.dir) && !is_lost(&s));

    assert_true(another(&s, SEIZE, 5));
    assert_false(is_held(&s));
    assert_true(is_lost(&s));
    tutti__run_lock_renew(&s.folder.lock, s.dir, &s.job);
    assert_false(another(&s, INHERIT, 4)); /* its owner has ended, but generation 5 lives */
    assert_true(another(&s, INHERIT, 5));
    assert_true(another(&s, INHERIT, 6));
    close_stand(&s);
}

/* The owner changes while another waits for the lock, which it gives up then. */
static void test_overtaken_while_it_waits(void **unused)
{
    pid_t child;
    int status = 0;
    stand s;

    (void)unused;
    open_stand(&s);
    child = fork();
    if (child == 0) {
        const double begin_ms = tutti__now_ms();

        _exit(another(&s, INHERIT, 3) || tutti__now_ms() - begin_ms > 4000);
    }
    usleep(200000);
    s.job.generation = 4;
    tutti__run_lock_renew(&s.folder.lock, s.dir, &s.job);
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(is_held(&s));
    close_stand(&s);
}

/* A file system that hosts share, each with locks of its own: another host gets the lock at once, and the owner still has it. */
static void test_locks_that_are_not_shared(void **unused)
{
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    stand s;

    (void)unused;
    open_stand(&s);
    assert_int_equal(fcntl(s.folder.lock.fd, F_OFD_SETLK, &lock), 0);
    assert_false(another(&s, INHERIT, 0));
    assert_true(is_held(&s));
    assert_true(another(&s, INHERIT, 2));
    assert_true(!is_held(&s) && is_lost(&s));
    assert_false(tutti__run_lock_is_own(&s.folder.lock, s.dir));
    close_stand(&s);
}

/* What is no other group of this run ends nothing: the file is gone, empty, or another run's. */
static void test_other_changes(void **unused)
{
    stand s;

    (void)unused;
    open_stand(&s);
    assert_int_equal(truncate(s.lock, 0), 0);
    assert_true(is_held(&s) && !is_lost(&s));
    tutti__run_lock_renew(&s.folder.lock, s.dir, &s.job);
    assert_int_equal(unlink(s.lock), 0);
    assert_true(is_held(&s) && !is_lost(&s));
    assert_int_equal(tutti__write_file(s.lock, "{\"token\":\"x\"}", 13), TUTTI_OK);
    assert_true(!is_held(&s) && !is_lost(&s));
    close_stand(&s);
}

static void write_lines(const stand *s, int n)
{
    FILE *file = fopen(s->metrics, "w");

    assert_non_null(file);
    for (int i = 1; i <= n; i++)
        fprintf(file, "{\"step\": %d, \"loss\": 1}\n", i);
    fputs("{\"step\": 1", file); /* its writer was killed */
    assert_int_equal(fclose(file), 0);
}

static int count_lines(const stand *s)
{
    FILE *file = fopen(s->metrics, "r");
    int n = 0, c;

    assert_non_null(file);
    while ((c = getc(file)) != EOF)
        n += c == '\n';
    assert_int_equal(fclose(file), 0);
    return n;
}

/* Of `n` lines, after step 5: the last of those that are kept. */
static uint64_t lines_kept(stand *s, int n)
{
    tutti__logged logged = {.step = 5};

    write_lines(s, n);
    assert_int_equal(tutti__run_folder_take_over(&s->folder, 5, &logged), TUTTI_OK);
    close(s->folder.metrics);
    s->folder.metrics = -1;
    assert_int_equal(count_lines(s), logged.step);
    return logged.step;
}

/* A line of the step that was lost with its rank 0 is written again; lines of another group, which has gone on, are kept. */
static void test_lines_of_others(void **unused)
{
    stand s;
    int old;

    (void)unused;
    open_stand(&s);
    assert_int_equal(lines_kept(&s, 4), 4);
    assert_int_equal(lines_kept(&s, 5), 5);
    assert_int_equal(lines_kept(&s, 6), 5);
    assert_int_equal(lines_kept(&s, 7), 7);
    assert_int_equal(lines_kept(&s, 1000), 1000);
    /* A former owner that was frozen between its look at the lock and its line. */
    s.folder.lock.contested = true;
    old = open(s.metrics, O_WRONLY | O_APPEND);
    assert_int_equal(lines_kept(&s, 6), 5);
    assert_int_equal(write(old, "{}\n", 3), 3);
    assert_int_equal(count_lines(&s), 5);
    close(old);
    close_stand(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_a_later_generation),
        cmocka_unit_test(test_overtaken_while_it_waits),
        cmocka_unit_test(test_locks_that_are_not_shared),
        cmocka_unit_test(test_other_changes),
        cmocka_unit_test(test_lines_of_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
