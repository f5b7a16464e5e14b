/* parallel.c -- a context's threads.   SPDX-License-Identifier: MIT
 *
 * They are started when first needed and sleep while there is no work. The caller works too, and each thread takes the next
 * job: a thread that comes late, because another program has its core, finds fewer jobs left, and nobody waits for a thread
 * that has taken none. After a call, threads spin for a short time before they sleep, since kernels follow each other, but only
 * if each has a core. The caller spins longer for the last jobs, because threads are running them, and a core that has gone
 * idle takes long to wake up (on virtual machines more than 50 us); but not if one of the threads has lately lost its core to
 * another program, which it would only delay further. */
#include "tensor/parallel.h"

#include "base/thread.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define SPIN_MS    0.05 /* for the next call */
#define JOB_MS     0.5  /* for the last job, unless disturbed */
#define LATELY_MS  10.0 /* about two time slices */
#define SPIN_LOOKS 64   /* between two readings of the clock */

typedef struct member {
    struct tutti__thread_pool *pool;
    pthread_t thread;
    int number;
    long losses; /* involuntary context switches so far */
} member;

struct tutti__thread_pool {
    /* Of the current call. Written while `left` is 0; read by threads that have taken a job, before which the call does not
     * end. */
    tutti__parallel_job *job;
    void *arg;
    int64_t n;
    int n_members; /* without the caller */
    bool spin;
    unsigned forks;                    /* `forks` when the threads were started */
    long losses;                       /* of the caller, as a member's */
    _Atomic int64_t disturbed_us;      /* threads count as disturbed until then, by tutti__now_ms */
    _Alignas(64) _Atomic int64_t left; /* jobs not taken yet */
    _Alignas(64) _Atomic int64_t undone; /* jobs not done yet */
    _Atomic uint32_t caller_sleeps;
    _Alignas(64) _Atomic uint32_t calls; /* number of calls; members wait for it to change */
    _Atomic int sleepers;
    _Atomic bool end;
    member members[];
};

/* The pool whose job this thread is running, and its member number there. */
typedef struct place {
    const tutti__thread_pool *pool;
    int number;
} place;
static _Thread_local place here;

/* Number of forks: a forked process does not have its parent's threads. */
static _Atomic unsigned forks;

static void after_fork(void)
{
    atomic_fetch_add(&forks, 1);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

static int64_t now_us(void)
{
    return (int64_t)(tutti__now_ms() * 1e3);
}

/* Notes whether this thread has lost its core since *losses was read, and updates that. */
static void note_losses(tutti__thread_pool *p, long *losses)
{
    struct rusage usage;

    if (getrusage(RUSAGE_THREAD, &usage) != 0 || usage.ru_nivcsw == *losses)
        return;
    *losses = usage.ru_nivcsw;
    atomic_store_explicit(&p->disturbed_us, now_us() + (int64_t)(LATELY_MS * 1e3),
                          memory_order_relaxed);
}

static bool disturbed(tutti__thread_pool *p)
{
    return atomic_load_explicit(&p->disturbed_us, memory_order_relaxed) > now_us();
}

static bool done_with(_Atomic int64_t *undone)
{
    return atomic_load_explicit(undone, memory_order_acquire) == 0;
}

/* ---- Members ---------------------------------------------------------------------------------------------- */

static bool take(tutti__thread_pool *p, int64_t *i)
{
    int64_t left = atomic_load_explicit(&p->left, memory_order_relaxed);

    while (left > 0)
        if (atomic_compare_exchange_weak_explicit(&p->left, &left, left - 1, memory_order_acquire,
                                                  memory_order_relaxed)) {
            *i = p->n - left;
            return true;
        }
    return false;
}

static void work(tutti__thread_pool *p, int number)
{
    for (int64_t i; take(p, &i);) {
        p->job(p->arg, i, number);
        if (atomic_fetch_sub(&p->undone, 1) == 1 && atomic_exchange(&p->caller_sleeps, 0))
            tutti__futex_wake(&p->caller_sleeps);
    }
}

/* Spins for the next call, for as long as that may be cheaper than sleeping. */
static bool look_for_call(member *m, uint32_t seen)
{
    tutti__thread_pool *p = m->pool;
    double end = 0;

    do {
        for (int i = 0; i < SPIN_LOOKS; i++) {
            if (atomic_load_explicit(&p->calls, memory_order_acquire) != seen)
                return true;
            tutti__relax();
        }
        if (end == 0) {
            end = tutti__now_ms() + SPIN_MS;
            note_losses(p, &m->losses);
        }
    } while (tutti__now_ms() < end);
    return false;
}

static void wait_for_call(member *m, uint32_t seen)
{
    tutti__thread_pool *p = m->pool;

    if (p->spin && look_for_call(m, seen))
        return;
    atomic_fetch_add(&p->sleepers, 1);
    while (atomic_load(&p->calls) == seen)
        tutti__futex_wait(&p->calls, seen, -1);
    atomic_fetch_sub(&p->sleepers, 1);
}

static void *member_main(void *arg)
{
    member *m = arg;
    tutti__thread_pool *p = m->pool;

    prctl(PR_SET_NAME, "tutti-kernels");
    here = (place){p, m->number};
    for (;;) {
        const uint32_t seen = atomic_load(&p->calls);

        if (atomic_load(&p->end)) /* set before the last increment of calls */
            return NULL;
        work(p, m->number);
        wait_for_call(m, seen);
    }
}

static void call_members(tutti__thread_pool *p, int most)
{
    atomic_fetch_add(&p->calls, 1);
    if (atomic_load(&p->sleepers))
        tutti__futex_wake_some(&p->calls, most);
}

/* ---- The pool --------------------------------------------------------------------------------------------- */

static void pool_free(tutti__thread_pool *p)
{
    if (p->forks == atomic_load(&forks)) {
        atomic_store(&p->end, true);
        call_members(p, p->n_members);
        for (int i = 0; i < p->n_members; i++)
            pthread_join(p->members[i].thread, NULL);
    }
    free(p);
}

static tutti__thread_pool *pool_new(tutti_ctx *cx)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const int wanted = cx->threads - 1;
    tutti__thread_pool *p = tutti__alloc(sizeof *p + (size_t)wanted * sizeof p->members[0]);
    int error = p ? 0 : ENOMEM;

    pthread_once(&once, watch_forks);
    if (p) {
        p->spin = cx->threads_have_cores;
        p->forks = atomic_load(&forks);
    }
    while (!error && p->n_members < wanted) {
        member *m = &p->members[p->n_members];

        *m = (member){.pool = p, .number = p->n_members + 1};
        error = tutti__thread_start(&m->thread, member_main, m);
        p->n_members += !error;
    }
    if (!error)
        return p;
    cx->threads = p ? p->n_members + 1 : 1;
    tutti_log(TUTTI_LOG_WARN, "tensor",
              "kernels compute with %d threads, not the %d of the context: no more can be started: "
              "%s; ask for fewer, or raise the limit (ulimit -u, the container's pids)",
              cx->threads, wanted + 1, strerror(error));
    if (cx->threads > 1)
        return p;
    free(p);
    return NULL;
}

/* NULL: only the caller. */
static tutti__thread_pool *pool_of(tutti_ctx *cx)
{
    if (cx->pool && cx->pool->forks != atomic_load_explicit(&forks, memory_order_relaxed))
        tutti__parallel_end(cx);
    if (!cx->pool && cx->threads > 1)
        cx->pool = pool_new(cx);
    return cx->pool;
}

void tutti__parallel_end(tutti_ctx *cx)
{
    if (cx->pool)
        pool_free(cx->pool);
    cx->pool = NULL;
}

static bool look_for_end(tutti__thread_pool *p)
{
    double end = 0;

    do {
        for (int i = 0; i < SPIN_LOOKS; i++) {
            if (done_with(&p->undone))
                return true;
            tutti__relax();
        }
        if (end == 0) {
            note_losses(p, &p->losses);
            end = tutti__now_ms() + JOB_MS;
        }
    } while (!disturbed(p) && tutti__now_ms() < end);
    return false;
}

static void wait_for_jobs(tutti__thread_pool *p)
{
    if (p->spin && look_for_end(p))
        return;
    for (;;) {
        atomic_store(&p->caller_sleeps, 1);
        if (atomic_load(&p->undone) == 0)
            break;
        tutti__futex_wait(&p->caller_sleeps, 1, -1);
    }
    atomic_store_explicit(&p->caller_sleeps, 0, memory_order_relaxed);
}

void tutti__parallel(tutti_ctx *cx, tutti__parallel_job *job, void *arg, int64_t n)
{
    const bool within = here.pool && here.pool == cx->pool;
    const place outer = here; /* the place in another context's call, if any */
    tutti__thread_pool *p = within || n < 2 ? NULL : pool_of(cx);

    if (cx->device_ops->plans)
        return; /* but the threads have been started, which takes memory */
    if (!p) {
        for (int64_t i = 0; i < n; i++)
            job(arg, i, within ? here.number : 0);
        return;
    }
    p->job = job;
    p->arg = arg;
    p->n = n;
    atomic_store_explicit(&p->undone, n, memory_order_relaxed);
    atomic_store_explicit(&p->left, n, memory_order_release);
    call_members(p, n - 1 < p->n_members ? (int)(n - 1) : p->n_members);
    here = (place){p, 0};
    work(p, 0);
    here = outer;
    if (!done_with(&p->undone))
        wait_for_jobs(p);
}
