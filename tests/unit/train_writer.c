/* A checkpoint whose write cannot begin is an error, and the next one is written; none of a former owner of the folder.
 * SPDX-License-Identifier: MIT */
#include "train/save/writer.h"

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/state.h"
#include <tutti/tutti.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Sets the default stack size of threads. */
static void set_stack_size(size_t bytes)
{
    pthread_attr_t attr;

    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, bytes), 0);
    assert_int_equal(pthread_setattr_default_np(&attr), 0);
    pthread_attr_destroy(&attr);
}

static json_t *state_of(uint64_t step)
{
    return json_pack("{s:i, s:I}", "format", 1, "step", (json_int_t)step);
}

static void ignore(void *user, const char *file, const char *problem)
{
    (void)user;
    (void)file;
    (void)problem;
}

typedef struct stand {
    char dir[32], lock[64];
    tutti_ctx *cx;
    tutti_model *model;
    tutti_optim *optim;
    tutti__writer *writer;
    tutti__writing writing;
} stand;

static void open_stand(stand *s)
{
    tutti_device device;

    *s = (stand){.dir = "/tmp/tutti-writer-XXXXXX"};
    assert_non_null(mkdtemp(s->dir));
    snprintf(s->writing.dir, sizeof s->writing.dir, "%s/checkpoints", s->dir);
    snprintf(s->lock, sizeof s->lock, "%s/.lock", s->dir);
    assert_int_equal(tutti_device_parse(&device, "cpu", 0), TUTTI_OK);
    assert_int_equal(tutti_ctx_new(&s->cx, device, NULL), TUTTI_OK);
    assert_int_equal(
        tutti_model_new(&s->model, s->cx, "linear", &(tutti_model_opts){1, 2, 2, .classes = 3}),
        TUTTI_OK);
    assert_int_equal(
        tutti_sgd_new(&s->optim, tutti_model_module(s->model), &(tutti_sgd_opts){.momentum = 0.9f}),
        TUTTI_OK);
    assert_int_equal(
        tutti__writer_new(&s->writer, tutti_model_module(s->model), s->optim, NULL, NULL),
        TUTTI_OK);
}

static void close_stand(stand *s)
{
    tutti__writer_free(s->writer);
    tutti_optim_free(s->optim);
    tutti_model_free(s->model);
    tutti_ctx_free(s->cx);
    assert_int_equal(tutti__checkpoint_remove_all(s->writing.dir), TUTTI_OK);
    (void)unlink(s->lock);
    assert_int_equal(rmdir(s->dir), 0);
}

static void begin(stand *s, uint64_t step)
{
    s->writing.step = step;
    s->writing.state = state_of(step);
    assert_int_equal(tutti__writer_begin(s->writer, &s->writing), TUTTI_OK);
}

static void assert_intact(const stand *s, uint64_t step)
{
    char folder[TUTTI__CHECKPOINT_PATH];
    tutti__verify_counts counts;

    assert_int_equal(tutti__checkpoint_path(s->writing.dir, step, folder), TUTTI_OK);
    assert_int_equal(tutti__verify(folder, ignore, NULL, &counts), TUTTI_OK);
    assert_int_equal(counts.files, 3);
}

/* No address space has room for the thread's stack. */
static void test_no_thread(void **unused)
{
    json_t *first = state_of(1);
    stand s;

    (void)unused;
    open_stand(&s);
    s.writing.step = 1;
    s.writing.state = json_incref(first);
    set_stack_size((size_t)1 << 50);
    assert_int_equal(tutti__writer_begin(s.writer, &s.writing), TUTTI_ERR_MEMORY);
    assert_non_null(strstr(tutti_last_error(), "cannot start the thread"));
    assert_false(tutti__writer_is_busy(s.writer));
    assert_int_equal(tutti__writer_end(s.writer), TUTTI_OK);

    set_stack_size((size_t)1 << 20);
    begin(&s, 2);
    assert_int_equal(first->refcount, 1); /* the first attempt's was freed, once */
    assert_int_equal(tutti__writer_end(s.writer), TUTTI_OK);
    assert_intact(&s, 2);
    json_decref(first);
    close_stand(&s);
}

/* The run folder was taken over by another process while this one was frozen, before its checkpoint got its name. */
static void test_former_owner(void **unused)
{
    const tutti__train_job job = {.id = "1"}, later = {.id = "1", .generation = 1};
    tutti__run_folder folder = {.lock.fd = -1};
    tutti__run_lock other = {.fd = -1};
    uint64_t *steps;
    size_t n;
    stand s;

    (void)unused;
    open_stand(&s);
    snprintf(folder.path, sizeof folder.path, "%s", s.dir);
    assert_int_equal(tutti__run_lock_take(&folder.lock, s.dir, &job), TUTTI_OK);
    s.writing.folder = &folder;
    begin(&s, 1);
    assert_int_equal(tutti__writer_end(s.writer), TUTTI_OK);
    assert_true(tutti__run_lock_seize(&other, s.dir, folder.lock.token, &later));
    begin(&s, 2);
    assert_int_equal(tutti__writer_end(s.writer), TUTTI_ERR_STATE);
    assert_non_null(strstr(tutti_last_error(), "another process has taken over the folder"));
    assert_int_equal(tutti__checkpoint_list(s.writing.dir, &steps, &n), TUTTI_OK);
    assert_true(n == 1 && steps[0] == 1);
    free(steps);
    assert_intact(&s, 1);
    tutti__run_lock_release(&folder.lock);
    tutti__run_lock_release(&other);
    close_stand(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_thread),
                                       cmocka_unit_test(test_former_owner)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
