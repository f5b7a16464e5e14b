/* thread.h -- starting threads; waiting; spinning; sleeping on a 32-bit word, between threads or processes.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_BASE_THREAD_H
#define TUTTI_BASE_THREAD_H

#include "base/base.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Whether OpenMP has bound the calling thread to one of its places; if so, *cpus_p is the union of all places. */
bool tutti__openmp_binds(cpu_set_t *cpus_p);

/* Starts a thread that takes no signals (they belong to the program's own threads) and does not inherit OpenMP's binding of
 * the calling thread. Returns 0 or an errno. */
static inline int tutti__thread_start(pthread_t *thread, void *(*body)(void *), void *arg)
{
    pthread_attr_t attributes;
    sigset_t all, kept;
    cpu_set_t cpus;
    int error = pthread_attr_init(&attributes);

    if (error)
        return error;
    if (tutti__openmp_binds(&cpus))
        pthread_attr_setaffinity_np(&attributes, sizeof cpus, &cpus);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &kept);
    error = pthread_create(thread, &attributes, body, arg);
    pthread_sigmask(SIG_SETMASK, &kept, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

/* Lets signals wait, but not those that this thread itself raises by an error; restore `kept` with pthread_sigmask. Threads of
 * the library take none. */
static inline void tutti__hold_signals(sigset_t *kept)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t set;

    sigfillset(&set);
    for (size_t i = 0; i < TUTTI__COUNT_OF(own); i++)
        sigdelset(&set, own[i]);
    pthread_sigmask(SIG_SETMASK, &set, kept);
}

/* A time of tutti__now_ms() as a timespec. */
static inline struct timespec tutti__timespec(double ms)
{
    const time_t seconds = (time_t)(ms / 1e3);

    return (struct timespec){seconds, (long)((ms - 1e3 * (double)seconds) * 1e6)};
}

/* False if the thread has not ended by the deadline; then it can still be joined or detached. */
static inline bool tutti__thread_join_by(pthread_t thread, double deadline)
{
#ifdef TUTTI__SANITIZED /* gcc 12's ThreadSanitizer does not see pthread_clockjoin_np join */
    const struct timespec until =
        tutti__timespec(1e3 * tutti__wall_seconds() + deadline - tutti__now_ms());

    return pthread_timedjoin_np(thread, NULL, &until) == 0;
#else
    const struct timespec until = tutti__timespec(deadline);

    return pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &until) == 0;
#endif
}

/* A condition variable on the clock of tutti__now_ms(). */
static inline void tutti__cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* False after the deadline. May wake up spuriously. */
static inline bool tutti__cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, double deadline)
{
    const struct timespec until = tutti__timespec(deadline);

    return pthread_cond_timedwait(cond, lock, &until) == 0;
}

/* Milliseconds until the deadline, at least 0, because a negative wait has no limit. */
static inline double tutti__ms_left(double deadline)
{
    double left = deadline - tutti__now_ms();

    return left > 0 ? left : 0;
}

/* Sleeps while *word == value, at most `ms` (< 0: no limit). May wake up spuriously. */
static inline void tutti__futex_wait(_Atomic uint32_t *word, uint32_t value, double ms)
{
    const struct timespec t = tutti__timespec(ms);

    syscall(SYS_futex, word, FUTEX_WAIT, value, ms < 0 ? NULL : &t, NULL, 0);
}

static inline void tutti__futex_wake_some(_Atomic uint32_t *word, int most)
{
    syscall(SYS_futex, word, FUTEX_WAKE, most, NULL, NULL, 0);
}

static inline void tutti__futex_wake(_Atomic uint32_t *word)
{
    tutti__futex_wake_some(word, INT32_MAX);
}

/* A pause instruction, for spin loops. */
static inline void tutti__relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
