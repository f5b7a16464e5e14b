/* A checkpoint whose write cannot begin is an error, and the next one is written.   SPDX-License-Identifier: MIT */
#include "train/save/writer.h"

#include "checkpoint/folder.h"
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

/* No address space has room for the thread's stack. */
static void test_no_thread(void **unused)
{
    char dir[] = "/tmp/tutti-writer-XXXXXX", folder[TUTTI__CHECKPOINT_PATH];
    tutti__writing writing = {.step = 1, .state = state_of(1)};
    json_t *first = json_incref(writing.state);
    tutti_ctx *cx;
    tutti_model *model;
    tutti_optim *optim;
    tutti_device device;
    tutti__writer *writer;
    tutti__verify_counts counts;

    (void)unused;
    assert_non_null(mkdtemp(dir));
    snprintf(writing.dir, sizeof writing.dir, "%s/checkpoints", dir);
    assert_int_equal(tutti_device_parse(&device, "cpu", 0), TUTTI_OK);
    assert_int_equal(tutti_ctx_new(&cx, device, NULL), TUTTI_OK);
    assert_int_equal(
        tutti_model_new(&model, cx, "linear", &(tutti_model_opts){1, 2, 2, .classes = 3}),
        TUTTI_OK);
    assert_int_equal(
        tutti_sgd_new(&optim, tutti_model_module(model), &(tutti_sgd_opts){.momentum = 0.9f}),
        TUTTI_OK);
    assert_int_equal(tutti__writer_new(&writer, tutti_model_module(model), optim, NULL), TUTTI_OK);

    set_stack_size((size_t)1 << 50);
    assert_int_equal(tutti__writer_begin(writer, &writing), TUTTI_ERR_MEMORY);
    assert_non_null(strstr(tutti_last_error(), "cannot start the thread"));
    assert_false(tutti__writer_is_busy(writer));
    assert_int_equal(tutti__writer_end(writer), TUTTI_OK);

    set_stack_size((size_t)1 << 20);
    writing.step = 2;
    writing.state = state_of(2);
    assert_int_equal(tutti__writer_begin(writer, &writing), TUTTI_OK);
    assert_int_equal(first->refcount, 1); /* the first attempt's was freed, once */
    assert_int_equal(tutti__writer_end(writer), TUTTI_OK);
    assert_int_equal(tutti__checkpoint_path(writing.dir, 2, folder), TUTTI_OK);
    assert_int_equal(tutti__verify(folder, ignore, NULL, &counts), TUTTI_OK);
    assert_int_equal(counts.files, 3);

    json_decref(first);
    tutti__writer_free(writer);
    tutti_optim_free(optim);
    tutti_model_free(model);
    tutti_ctx_free(cx);
    assert_int_equal(tutti__checkpoint_remove_all(writing.dir), TUTTI_OK);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_thread)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
