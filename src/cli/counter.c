/* counter.c -- how far a command is, and whether it shall stop.   SPDX-License-Identifier: MIT */
#include "cli/counter.h"

#include <signal.h>
#include <unistd.h>

enum { REDRAW_NS = 100000000 };

static volatile sig_atomic_t stopped_by;

static void stop(int signal_number)
{
    stopped_by = signal_number;
}

void tutti__counter_catch_signals(void)
{
    static const int SIGNALS[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = stop, .sa_flags = (int)SA_RESETHAND | SA_RESTART};

    for (size_t i = 0; i < TUTTI__COUNT_OF(SIGNALS); i++)
        sigaction(SIGNALS[i], &action, NULL);
}

int tutti__counter_stopped(void)
{
    return stopped_by;
}

static bool show(void *user, size_t done, size_t total)
{
    tutti__counter *c = user;
    uint64_t now;

    if (stopped_by)
        return false;
    if (!c->terminal)
        return true;
    now = tutti__now_ns();
    if (done < total && now - c->shown_ns < REDRAW_NS)
        return true;
    c->shown_ns = now;
    c->drawn = true;
    fprintf(stderr, "\r%zu of %zu %s (%zu %%)", done, total, c->what,
            total ? done * 100 / total : 100);
    if (done == total)
        tutti__counter_clear(c);
    return true;
}

tutti__tick tutti__counter_begin(tutti__counter *counter, const char *what)
{
    *counter = (tutti__counter){.what = what, .terminal = isatty(STDERR_FILENO)};
    return (tutti__tick){show, counter};
}

void tutti__counter_clear(tutti__counter *counter)
{
    if (counter->drawn)
        fputs("\r\033[K", stderr);
    counter->drawn = false;
}
