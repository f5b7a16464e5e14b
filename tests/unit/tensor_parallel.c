/* tensor: jobs on a context's threads are each done exactly once.   SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "tensor/parallel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || HAS_FEATURE(thread_sanitizer)
#define THREAD_SANITIZER 1
#else
#define THREAD_SANITIZER 0
#endif
#if THREAD_SANITIZER || defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
#define SANITIZER 1 /* which map more address space than a limit allows */
#else
#define SANITIZER 0
#endif

enum { MOST_JOBS = 1000, MOST_THREADS = 16, CALLS = 3000, ENDS = 12000, MANY = 300 };

static tutti_ctx *new_ctx(int threads)
{
    tutti_ctx *cx;

    assert_int_equal(
        tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0},
                      &(tutti_ctx_opts){.kernels = TUTTI_KERNELS_REFERENCE, .threads = threads}),
        TUTTI_OK);
    return cx;
}

static int threads_of_process(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int n = -2; /* . and .. */

    assert_non_null(tasks);
    while (readdir(tasks))
        n++;
    closedir(tasks);
    return n;
}

/* Plain memory on purpose: ThreadSanitizer checks that a call orders its jobs' writes. */
typedef struct counts {
    tutti_ctx *cx;
    int done[MOST_JOBS];
    int64_t inner; /* jobs of a call from within each job */
} counts;

static void count(void *arg, int64_t i, int member)
{
    counts *c = arg;

    c->done[i] += member >= 0 && member < c->cx->threads ? 1 : 1000;
}

static bool each_once(const counts *c, int64_t n)
{
    for (int64_t i = 0; i < MOST_JOBS; i++)
        if (c->done[i] != (i < n))
            return false;
    return true;
}

static bool call_counts(tutti_ctx *cx, int64_t n)
{
    counts c = {.cx = cx};

    tutti__parallel(cx, count, &c, n);
    return each_once(&c, n);
}

static void every_job_is_done_once(void **state)
{
    static const int64_t numbers[] = {0, 1, 2, 3, 7, 16, 17, 100, MOST_JOBS, -1};

    (void)state;
    for (int threads = 1; threads <= MOST_THREADS; threads++) {
        tutti_ctx *cx = new_ctx(threads);

        for (int k = 0; k < 20; k++)
            for (size_t i = 0; i < TUTTI__COUNT_OF(numbers); i++)
                assert_true(call_counts(cx, numbers[i]));
        assert_int_equal(tutti_ctx_threads(cx), threads);
        tutti_ctx_free(cx);
    }
    assert_int_equal(threads_of_process(), 1 + THREAD_SANITIZER);
}

static void threads_are_made_when_they_are_needed(void **state)
{
    tutti_ctx *cx = new_ctx(4);
    const int before = threads_of_process();

    (void)state;
    assert_true(call_counts(cx, 1));
    assert_int_equal(threads_of_process(), before);
    assert_true(call_counts(cx, 2));
    assert_int_equal(threads_of_process(), before + 3);
    tutti_ctx_free(cx);
    assert_int_equal(threads_of_process(), before);
}

/* Members that come late to a call, whose jobs the caller has done, see the end at any point on their way back to sleep. */
static void threads_end_right_behind_a_call(void **state)
{
    const int ends = ENDS / (THREAD_SANITIZER ? 8 : 1);
    tutti_ctx *cx = new_ctx(8);

    (void)state;
    for (int k = 0; k < ends; k++) {
        alarm(30); /* ends the test if one keeps sleeping */
        assert_true(call_counts(cx, 2 + k % 3));
        for (volatile int delay = k * 37 % 2000; delay > 0; delay--)
            continue;
        tutti__parallel_end(cx);
    }
    alarm(0);
    assert_int_equal(threads_of_process(), 1 + THREAD_SANITIZER);
    tutti_ctx_free(cx);
}

static void add(void *arg, int64_t i, int member)
{
    (void)i;
    (void)member;
    ++*(int64_t *)arg;
}

static void many_small_calls(void **state)
{
    (void)state;
    for (int threads = 2; threads <= 8; threads *= 2) {
        tutti_ctx *cx = new_ctx(threads);
        int64_t sum[8] = {0};

        for (int k = 0; k < CALLS; k++) {
            counts c = {.cx = cx};

            tutti__parallel(cx, count, &c, 1 + k % 9);
            for (int64_t i = 0; i <= k % 9; i++)
                assert_int_equal(c.done[i], 1);
            tutti__parallel(cx, add, &sum[k % 8], 1);
        }
        assert_int_equal(sum[0], (CALLS + 7) / 8);
        tutti_ctx_free(cx);
    }
}

typedef struct outer {
    counts inner[20];
    int member[20];
} outer;

static void note_member(void *arg, int64_t i, int member)
{
    counts *c = arg;

    if (i == 0)
        c->inner = member;
    count(arg, i, member);
}

static void nest(void *arg, int64_t i, int member)
{
    outer *o = arg;

    o->member[i] = member;
    tutti__parallel(o->inner[i].cx, note_member, &o->inner[i], 50);
}

static void calls_within_jobs_are_done_by_that_thread(void **state)
{
    tutti_ctx *cx = new_ctx(4), *other = new_ctx(3);
    outer *o = calloc(1, sizeof *o);

    (void)state;
    assert_non_null(o);
    for (int i = 0; i < 20; i++)
        o->inner[i].cx = cx;
    tutti__parallel(cx, nest, o, 20);
    for (int i = 0; i < 20; i++) {
        assert_true(each_once(&o->inner[i], 50));
        assert_int_equal(o->inner[i].inner, o->member[i]);
    }
    memset(o, 0, sizeof *o); /* a context of its own within the one job */
    o->inner[0].cx = other;
    o->inner[1].cx = cx;
    tutti__parallel(cx, nest, o, 2);
    assert_true(each_once(&o->inner[0], 50) && each_once(&o->inner[1], 50));
    assert_true(call_counts(cx, 100));
    free(o);
    tutti_ctx_free(cx);
    tutti_ctx_free(other);
}

/* One context per thread of the program, as for ranks that are threads. */
static void *rank_main(void *ok)
{
    tutti_ctx *cx = new_ctx(3);

    *(bool *)ok = true;
    for (int k = 0; k < 500; k++)
        *(bool *)ok &= call_counts(cx, 1 + k % 20);
    tutti_ctx_free(cx);
    return NULL;
}

static void contexts_do_not_know_each_other(void **state)
{
    pthread_t ranks[4];
    bool ok[4] = {false};

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&ranks[i], NULL, rank_main, &ok[i]), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(ranks[i], NULL), 0);
        assert_true(ok[i]);
    }
}

static void blocked_signals(void *arg, int64_t i, int member)
{
    _Atomic int *seen = arg;
    sigset_t blocked;

    (void)i;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (member > 0)
        atomic_fetch_or(seen, sigismember(&blocked, SIGTERM) == 1 ? 1 : 2);
    while (atomic_load(seen) == 0) /* so that each of the others gets a job */
        continue;
}

static void signals_are_the_programs(void **state)
{
    tutti_ctx *cx = new_ctx(2);
    _Atomic int seen = 0;

    (void)state;
    tutti__parallel(cx, blocked_signals, &seen, 2);
    assert_int_equal(seen, 1);
    tutti_ctx_free(cx);
}

static int in_a_child(int (*body)(tutti_ctx *cx), tutti_ctx *cx)
{
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        alarm(60); /* ends it if it hangs */
        _exit(body(cx));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int compute(tutti_ctx *cx)
{
    const int before = threads_of_process();
    bool ok = before == 1;

    for (int k = 0; k < 200; k++)
        ok &= call_counts(cx, 10);
    ok &= threads_of_process() == 4;
    tutti_ctx_free(cx);
    return ok ? 42 : 1;
}

static int only_free(tutti_ctx *cx)
{
    tutti_ctx_free(cx);
    return 42;
}

static void a_forked_process_makes_its_own(void **state)
{
    tutti_ctx *cx = new_ctx(4);

    (void)state;
    if (THREAD_SANITIZER) { /* refuses threads after a fork */
        tutti_ctx_free(cx);
        skip();
    }
    assert_true(call_counts(cx, 100));
    for (int k = 0; k < 10; k++) {
        assert_int_equal(in_a_child(compute, cx), 42);
        assert_int_equal(in_a_child(only_free, cx), 42);
        assert_true(call_counts(cx, 100));
    }
    tutti_ctx_free(cx);
}

static int with_little_memory(tutti_ctx *cx)
{
    struct rlimit limit;
    int threads;

    if (getrlimit(RLIMIT_AS, &limit) != 0)
        return 2;
    limit.rlim_cur = (rlim_t)1 << 20; /* less than there is: no further stack */
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return 2;
    if (!call_counts(cx, 100))
        return 3;
    threads = tutti_ctx_threads(cx);
    return threads < MANY && call_counts(cx, 100) ? 42 : 4;
}

static void where_no_thread_can_be_had_fewer_do_it(void **state)
{
    tutti_ctx *cx = new_ctx(MANY);

    (void)state;
    if (!SANITIZER)
        assert_int_equal(in_a_child(with_little_memory, cx), 42);
    tutti_ctx_free(cx);
    if (SANITIZER)
        skip();
}

/* ---- OpenMP, which binds the thread that loads it */

typedef struct meeting {
    pthread_barrier_t all;
    _Atomic int cpus; /* sum over members */
} meeting;

static int my_cpus(void)
{
    cpu_set_t set;

    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    return CPU_COUNT(&set);
}

static void meet(void *arg, int64_t i, int number)
{
    meeting *m = arg;

    (void)i;
    pthread_barrier_wait(&m->all); /* each thread takes one job */
    if (number > 0)
        atomic_fetch_add(&m->cpus, my_cpus());
}

/* In a separate process, with OpenMP's variables set: there are as many threads as without them, and they are not bound. */
static int where_openmp_binds(int cores, int cpus)
{
    meeting m = {.cpus = 0};
    tutti_ctx *cx = new_ctx(0);
    const int threads = tutti_ctx_threads(cx);

    pthread_barrier_init(&m.all, NULL, (unsigned)threads);
    tutti__parallel(cx, meet, &m, threads);
    pthread_barrier_destroy(&m.all);
    tutti_ctx_free(cx);
    if (threads == cores && m.cpus == (threads - 1) * cpus)
        return 42;
    fprintf(stderr, "%d threads of %d cores; members may use %d CPUs together, of %d each\n",
            threads, cores, m.cpus, cpus);
    return 4;
}

static int start_bound(tutti_ctx *cx)
{
    char cores[16], cpus[16];

    (void)cx;
    snprintf(cores, sizeof cores, "%d", tutti__cores());
    snprintf(cpus, sizeof cpus, "%d", my_cpus());
    setenv("OMP_PROC_BIND", "true", 1);
    setenv("OMP_PLACES", "threads", 1);
    execl("/proc/self/exe", "tensor_parallel", cores, cpus, (char *)NULL);
    return 5;
}

static void threads_are_not_bound_where_openmp_bound_the_caller(void **state)
{
    (void)state;
    unsetenv("LOCAL_WORLD_SIZE");
    assert_int_equal(in_a_child(start_bound, NULL), 42);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_job_is_done_once),
        cmocka_unit_test(threads_are_made_when_they_are_needed),
        cmocka_unit_test(threads_end_right_behind_a_call),
        cmocka_unit_test(many_small_calls),
        cmocka_unit_test(calls_within_jobs_are_done_by_that_thread),
        cmocka_unit_test(contexts_do_not_know_each_other),
        cmocka_unit_test(signals_are_the_programs),
        cmocka_unit_test(a_forked_process_makes_its_own),
        cmocka_unit_test(where_no_thread_can_be_had_fewer_do_it),
        cmocka_unit_test(threads_are_not_bound_where_openmp_bound_the_caller),
    };

    if (argc == 3)
        return where_openmp_binds(atoi(argv[1]), atoi(argv[2]));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
