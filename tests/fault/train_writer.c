/* train: the writer of parts without a thread, and without room.   SPDX-License-Identifier: MIT
 * timeout: 60 */
#include "distributed/ddp_trainer.h"
#include "harness/checkpoint_path.h"
#include "train/save/writer.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { PIXELS = 36, CLASSES = 5, BATCH = 4 };

/* In the calling rank: threads cannot be started. */
static _Thread_local bool no_threads;

/* Takes precedence over the C library's. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *),
                   void *arg)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    void *symbol = dlsym(RTLD_NEXT, "pthread_create");

    memcpy(&real, &symbol, sizeof real);
    return no_threads ? EAGAIN : real(thread, attributes, body, arg);
}

static int trainer_new(trainer *t, tutti_group *group)
{
    static const float x[BATCH * PIXELS] = {1, 2, 3};
    static const int64_t y[BATCH] = {0, 1, 2, 3};
    const tutti_model_opts shape = {.channels = 1, .height = 6, .width = 6, .classes = CLASSES};

    *t = (trainer){0};
    CHECK_OK(tutti_ctx_new(&t->cx, test_device(), &(tutti_ctx_opts){.threads = 1}));
    CHECK_OK(tutti_model_new(&t->model, t->cx, "mlp", &shape));
    t->module = tutti_model_module(t->model);
    CHECK_OK(tutti_ddp_new(&t->ddp, t->module, group, &(tutti_ddp_opts){.zero = 1}));
    CHECK_OK(tutti_adam_new(&t->optim, t->module, &(tutti_adam_opts){.lr = 0.01f}));
    tutti_step_begin(t->cx, NULL);
    CHECK_OK(tutti_backward(tutti_cross_entropy(
        tutti_model_forward(
            t->model, tutti_input(t->cx, (tutti_array){x, TUTTI_SHAPE(BATCH, 1, 6, 6), TUTTI_F32})),
        tutti_input(t->cx, (tutti_array){y, TUTTI_SHAPE(BATCH), TUTTI_I64}))));
    tutti_step_end(t->cx);
    CHECK_OK(tutti_optim_step(t->optim));
    return 0;
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;

    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
}

static int begin(tutti__writer *w, tutti_group *group, uint64_t step)
{
    tutti__writing it = {.step = step, .keep = 9, .ranks = tutti_group_size(group)};

    if (tutti_group_rank(group) == 0) {
        snprintf(it.dir, sizeof it.dir, "%s", dir);
        it.state = json_pack("{s:i, s:I}", "format", 1, "step", (json_int_t)step);
        CHECK(it.state);
    }
    CHECK_OK(tutti__writer_begin(w, &it));
    return 0;
}

/* On one rank no thread starts, so it writes at once: its end says what the others' says. */
static int a_rank_without_a_thread_hears_of_failures(tutti_group *group, void *arg)
{
    const int rank = tutti_group_rank(group);
    tutti__writer *w;
    trainer t;

    (void)arg;
    CHECK_0(trainer_new(&t, group));
    CHECK_OK(tutti__writer_new(&w, t.module, t.optim, NULL, NULL));
    for (int without = 0; without < 2; without++) {
        CHECK_OK(tutti__writer_divide(w, group));
        CHECK(tutti__writer_is_divided(w));
        if (rank == 0)
            limit_files(600);
        CHECK_OK(tutti_barrier(group, NULL));
        no_threads = rank == without;
        CHECK_0(begin(w, group, 1 + (uint64_t)without));
        no_threads = false;
        CHECK(tutti__writer_end(w) != TUTTI_OK);
        CHECK_TEXT(tutti_last_error(), "File too large");
        CHECK_OK(tutti_barrier(group, NULL));
        if (rank == 0)
            limit_files(RLIM_INFINITY);
        CHECK_OK(tutti_barrier(group, NULL));
        CHECK(tutti__writer_has_copy(w));
        no_threads = rank == without;
        CHECK_OK(tutti__writer_again(w));
        no_threads = false;
        CHECK_OK(tutti__writer_end(w));
    }
    tutti__writer_free(w);
    trainer_free(&t);
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    return path_new();
}

static int tear_down(void **state)
{
    (void)state;
    return path_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"a_rank_without_a_thread_hears_of_failures", run_two, set_up, tear_down,
         (void *)a_rank_without_a_thread_hears_of_failures},
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
