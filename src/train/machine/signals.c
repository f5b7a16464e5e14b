/* signals.c -- the first signal asks to stop; insisting ends the process.   SPDX-License-Identifier: MIT */
#include "train/machine/signals.h"

#include "base/base.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t first, n_seen;
static char word[256]; /* message printed at the first signal; "": none */

/* Runs may be threads: the first one installs the handlers, and the last one restores them. */
static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE, SIGXFSZ};
enum { WATCHED = 4 }; /* the first ones, which ask to stop */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before[TUTTI__COUNT_OF(numbers)];
static int n_runs;

enum { ONE_REQUEST_MS = 500 };

/* One request may arrive several times: Slurm signals every process of a step, and each launcher in between forwards the
 * signals that it got, as do those of other nodes. So signals within half a second count as one. */
static void on_signal(int number)
{
    static volatile sig_atomic_t last_ms; /* of a clock that wraps around: only differences count */
    const int error = errno;
    sig_atomic_t now_ms = (sig_atomic_t)((uint64_t)tutti__now_ms() & 0x3fffffff);

    if (first && now_ms >= last_ms && now_ms - last_ms < ONE_REQUEST_MS)
        return;
    last_ms = now_ms;
    if (!first) {
        first = number;
        if (write(STDERR_FILENO, word, strlen(word)) < 0)
            word[0] = '\0'; /* no reader */
    }
    n_seen++;
    if (n_seen > 3) {
        signal(number, SIG_DFL);
        raise(number);
    }
    errno = error;
}

void tutti__signals_begin(void)
{
    pthread_mutex_lock(&mutex);
    if (n_runs++ == 0) {
        first = n_seen = 0;
        for (size_t i = 0; i < TUTTI__COUNT_OF(numbers); i++)
            sigaction(numbers[i], NULL, &before[i]);
        signal(SIGPIPE, SIG_IGN);
        signal(SIGXFSZ, SIG_IGN);
    }
    pthread_mutex_unlock(&mutex);
}

void tutti__signals_watch(const char *said)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    pthread_mutex_lock(&mutex);
    if (!word[0]) /* else a run in another thread has set it */
        snprintf(word, sizeof word, "%s", said);
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < WATCHED; i++)
        /* Shell scripts make background jobs ignore SIGINT, which is not intended here. */
        if (numbers[i] == SIGINT || before[i].sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    pthread_mutex_unlock(&mutex);
}

void tutti__signals_end(void)
{
    pthread_mutex_lock(&mutex);
    if (--n_runs == 0) {
        for (size_t i = 0; i < TUTTI__COUNT_OF(numbers); i++)
            sigaction(numbers[i], &before[i], NULL);
        word[0] = '\0';
    }
    pthread_mutex_unlock(&mutex);
}

int tutti__signals_seen(void)
{
    return first;
}

void tutti__signals_reader_gone(void)
{
    if (!first)
        first = SIGPIPE;
}

void tutti__signals_end_by_pipe(void)
{
    signal(SIGPIPE, SIG_DFL);
    raise(SIGPIPE);
}
