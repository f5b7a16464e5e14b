/* tutti_checkpoint_save and _load: what may be at the path, and several programs at one path.   SPDX-License-Identifier: MIT */
#include "distributed/bodies.h"
#include "harness/checkpoint_path.h"
#include <tutti/tutti.h>

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { IN = 6, WIDTH = 64 };

typedef struct net {
    tutti_ctx *cx;
    tutti_module base;
    tutti_linear fc1, fc2;
    tutti_optim *optim;
    tutti_position at;
} net;

static int net_new(net *m)
{
    *m = (net){.cx = NULL};
    CHECK_OK(tutti_ctx_new(&m->cx, (tutti_device){TUTTI_CPU, 0}, &(tutti_ctx_opts){.threads = 1}));
    tutti_module_init(&m->base, m->cx);
    tutti_linear_init(&m->fc1, &m->base, "fc1", IN, WIDTH);
    tutti_linear_init(&m->fc2, &m->base, "fc2", WIDTH, 1);
    CHECK_OK(tutti_sgd_new(&m->optim, &m->base, NULL));
    return 0;
}

static void net_free(net *m)
{
    tutti_optim_free(m->optim);
    tutti_module_destroy(&m->base);
    tutti_ctx_free(m->cx);
}

static void make_file(const char *name, const char *text)
{
    FILE *f = fopen(name, "w");

    assert_non_null(f);
    assert_int_equal(fputs(text, f) < 0, 0);
    fclose(f);
}

static tutti_status save_alone(const char *to)
{
    tutti_status status;
    net m;

    assert_int_equal(net_new(&m), 0);
    status = tutti_checkpoint_save(to, &m.base, NULL, NULL);
    net_free(&m);
    return status;
}

/* What the program or its user has put there would go with the folder. */
static void folders_with_files_of_others_are_not_replaced(void **state)
{
    static const char *const ends[] = {"", ".tmp", ".previous.tmp"};

    (void)state;
    assert_int_equal(save_alone(path), TUTTI_OK);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char folder[160], name[200];

        snprintf(folder, sizeof folder, "%s%s", path, ends[i]);
        snprintf(name, sizeof name, "%s/notes", folder);
        assert_int_equal(i > 0 ? mkdir(folder, 0777) : 0, 0);
        make_file(name, "read me");
        assert_int_equal(save_alone(path), TUTTI_ERR_ARG);
        assert_non_null(strstr(tutti_last_error(), "holds \"notes\""));
        assert_int_equal(unlink(name), 0);
        assert_int_equal(save_alone(path), TUTTI_OK);
    }
    {
        char name[160];

        snprintf(name, sizeof name, "%s/state.json", path);
        make_file(name, "{\"format\": 1, \"config\": {}}");
    }
    assert_int_equal(save_alone(path), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "is a checkpoint of a run of `tutti train`"));
}

static void names_that_are_too_long_are_refused_before_anything_is_made(void **state)
{
    char name[4096];
    struct stat st;

    (void)state;
    snprintf(name, sizeof name, "%s/new/", dir);
    while (strlen(name) < 4050)
        strcat(name, "folder/");
    assert_int_equal(save_alone(name), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "bytes, expected at most 4031"));
    snprintf(name, sizeof name, "%s/new", dir);
    assert_int_equal(stat(name, &st), -1);
    snprintf(name, sizeof name, "%s/%0255d", dir, 1);
    assert_int_equal(save_alone(name), TUTTI_ERR_IO);
    assert_non_null(strstr(tutti_last_error(), "cannot make "));
}

static void a_position_that_cannot_be_loaded_is_not_saved(void **state)
{
    tutti_position at = {.step = 3};
    const tutti_checkpoint_opts opts = {.position = &at};
    net m;

    (void)state;
    assert_int_equal(net_new(&m), 0);
    assert_int_equal(tutti_checkpoint_save_with(path, &m.base, NULL, NULL, &opts), TUTTI_OK);
    at.epoch = UINT64_MAX;
    assert_int_equal(tutti_checkpoint_save_with(path, &m.base, NULL, NULL, &opts), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "epoch 18446744073709551615"));
    assert_int_equal(tutti_checkpoint_load_with(path, &m.base, NULL, NULL, &opts), TUTTI_OK);
    assert_true(at.step == 3 && at.epoch == 0);
    net_free(&m);
}

static void an_optimizer_of_other_options_is_named(void **state)
{
    net m;

    (void)state;
    assert_int_equal(net_new(&m), 0);
    assert_int_equal(tutti_checkpoint_save(path, &m.base, m.optim, NULL), TUTTI_OK);
    tutti_optim_free(m.optim);
    assert_int_equal(tutti_sgd_new(&m.optim, &m.base, &(tutti_sgd_opts){.momentum = 0.9f}),
                     TUTTI_OK);
    assert_int_equal(tutti_checkpoint_load(path, &m.base, m.optim, NULL), TUTTI_ERR_FORMAT);
    assert_non_null(strstr(tutti_last_error(), "with no state for each parameter, and this one, "
                                               "sgd, has momentum_buffer"));
    net_free(&m);
}

/* Else a program would begin from the start, and replace what it could not read. */
static void only_a_path_that_is_not_there_is_not_found(void **state)
{
    char link[160];
    net m;

    (void)state;
    snprintf(link, sizeof link, "%s/link", dir);
    assert_int_equal(symlink("nothing", link), 0);
    assert_int_equal(net_new(&m), 0);
    assert_int_equal(tutti_checkpoint_load(link, &m.base, NULL, NULL), TUTTI_ERR_FORMAT);
    assert_non_null(strstr(tutti_last_error(), "is a symbolic link to nothing"));
    assert_int_equal(tutti_checkpoint_load(path, &m.base, NULL, NULL), TUTTI_ERR_NOT_FOUND);
    net_free(&m);
}

/* In a process of a user who may not read it: 0, or a line. */
static int without_rights(const char *file)
{
    net m;

    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0)
        return 0;
    CHECK_0(net_new(&m));
    CHECK(tutti_checkpoint_load(path, &m.base, NULL, NULL) == TUTTI_ERR_IO);
    CHECK_TEXT(tutti_last_error(), "Permission denied");
    if (*file)
        return 0;
    CHECK(tutti_checkpoint_save(path, &m.base, NULL, NULL) == TUTTI_ERR_IO);
    CHECK_TEXT(tutti_last_error(), "cannot replace the checkpoint");
    return 0;
}

static void a_checkpoint_without_permission_is_neither_damaged_nor_something_else(void **state)
{
    static const char *const files[] = {"", "/state.json", "/model.safetensors"};

    (void)state;
    assert_int_equal(chmod(dir, 0777), 0);
    assert_int_equal(save_alone(path), TUTTI_OK);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char name[160];
        int status;
        pid_t child;

        snprintf(name, sizeof name, "%s%s", path, files[i]);
        assert_int_equal(chmod(name, 0), 0);
        child = fork();
        if (child == 0)
            _exit(without_rights(files[i]) != 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_int_equal(chmod(name, 0755), 0);
    }
}

/* ---- Several programs at one path --------------------------------------------------------------------------- */

enum { SAVES = 40 };
static atomic_bool saved_all;

/* Weights, position and the optimizer's count of each checkpoint are the same number. */
static int set_all(net *m, float value)
{
    float room[IN * WIDTH];

    for (size_t i = 0; i < sizeof room / sizeof *room; i++)
        room[i] = value;
    for (size_t i = 0; i < tutti_module_n_parameters(&m->base); i++) {
        CHECK_OK(tutti_tensor_write(tutti_module_parameter(&m->base, i), room));
        CHECK_OK(tutti_optim_set_updates(m->optim, tutti_module_parameter(&m->base, i),
                                         (uint64_t)value));
    }
    m->at.step = (uint64_t)value;
    return 0;
}

static int save_often(int first)
{
    net m;

    CHECK_0(net_new(&m));
    for (int i = 0; i < SAVES; i++) {
        const tutti_checkpoint_opts opts = {.position = &m.at};
        tutti_status status;

        CHECK_0(set_all(&m, (float)(first + i)));
        status = tutti_checkpoint_save_with(path, &m.base, m.optim, NULL, &opts);
        if (status == TUTTI_ERR_STATE) /* a slow disk */
            CHECK_TEXT(tutti_last_error(), "is saving to");
        else
            CHECK_OK(status);
    }
    net_free(&m);
    return 0;
}

static int load_once(net *m)
{
    const tutti_checkpoint_opts opts = {.position = &m->at};
    float bias[WIDTH];

    CHECK_OK(tutti_checkpoint_load_with(path, &m->base, m->optim, NULL, &opts));
    CHECK_OK(tutti_tensor_read(m->fc1.bias, bias));
    CHECK((uint64_t)bias[0] == m->at.step && m->at.step > 0);
    CHECK(tutti_optim_updates(m->optim, m->fc2.weight) == m->at.step);
    return 0;
}

static int load_often(void)
{
    net m;

    CHECK_0(net_new(&m));
    while (!atomic_load(&saved_all))
        CHECK_0(load_once(&m));
    CHECK_0(load_once(&m));
    net_free(&m);
    return 0;
}

static void *in_thread(void *arg)
{
    const int first = *(const int *)arg;
    const int line = first ? save_often(first) : load_often();

    return (void *)(intptr_t)line;
}

/* Each of two threads saves numbers from this one on, or loads (0) until the first has ended. */
static void side_by_side(int a, int b)
{
    int first[2] = {a, b};
    pthread_t threads[2];
    void *line[2];

    atomic_store(&saved_all, false);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, in_thread, &first[i]), 0);
    assert_int_equal(pthread_join(threads[0], &line[0]), 0);
    atomic_store(&saved_all, true);
    assert_int_equal(pthread_join(threads[1], &line[1]), 0);
    assert_null(line[0]);
    assert_null(line[1]);
}

static void several_programs_save_to_and_load_from_one_path(void **state)
{
    struct dirent *entry;
    DIR *list;
    net m;

    (void)state;
    side_by_side(1, 1000);
    side_by_side(2000, 0);
    assert_int_equal(net_new(&m), 0);
    assert_int_equal(load_once(&m), 0);
    assert_int_equal(m.at.step, 2000 + SAVES - 1);
    net_free(&m);
    list = opendir(dir);
    while ((entry = readdir(list)))
        assert_null(strstr(entry->d_name, ".tmp"));
    closedir(list);
}

static int set_up(void **state)
{
    (void)state;
    return path_new();
}

static int tear_down(void **state)
{
    (void)state;
    return path_remove();
}

#define EACH(body) cmocka_unit_test_setup_teardown(body, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH (folders_with_files_of_others_are_not_replaced),
        EACH (names_that_are_too_long_are_refused_before_anything_is_made),
        EACH (a_position_that_cannot_be_loaded_is_not_saved),
        EACH (an_optimizer_of_other_options_is_named),
        EACH (only_a_path_that_is_not_there_is_not_found),
        EACH (a_checkpoint_without_permission_is_neither_damaged_nor_something_else),
        EACH (several_programs_save_to_and_load_from_one_path),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
