/* counter.c -- shows a command's progress, and stops it on a signal.   SPDX-License-Identifier: MIT */
#include "train/output/counter.h"

#include <signal.h>

static volatile sig_atomic_t stopped_by;

static void stop(int signal_number)
{
    stopped_by = signal_number;
}

void tutti__counter_catch_signals(void)
{
    static const int SIGNALS[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,   SIGUSR1, SIGUSR2,
                                  SIGALRM, SIGPOLL, SIGXCPU, SIGVTALRM, SIGPROF, SIGPWR};
    const struct sigaction action = {.sa_handler = stop,
                                     .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    struct sigaction before;

    for (size_t i = 0; i < TUTTI__COUNT_OF(SIGNALS); i++)
        /* nohup has SIGHUP ignored; shell scripts have these of background jobs, which is not intended here */
        if (SIGNALS[i] == SIGINT || SIGNALS[i] == SIGQUIT ||
            (sigaction(SIGNALS[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN))
            sigaction(SIGNALS[i], &action, NULL);
    signal(SIGXFSZ, SIG_IGN);
}

int tutti__counter_stopped(void)
{
    return stopped_by;
}

static bool show(void *user, size_t done, size_t total)
{
    tutti__counter *c = user;

    if (!stopped_by)
        tutti__bar_count(&c->bar, c->doing, c->what, done, total);
    return !stopped_by;
}

tutti__tick tutti__counter_begin(tutti__counter *counter, const char *doing, const char *what)
{
    *counter = (tutti__counter){.doing = doing, .what = what};
    tutti__bar_init(&counter->bar, stderr);
    return (tutti__tick){show, counter};
}

void tutti__counter_clear(tutti__counter *counter)
{
    tutti__bar_clear(&counter->bar);
}
