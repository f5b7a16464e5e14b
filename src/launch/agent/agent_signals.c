/* agent_signals.c -- what a signal does: to the launcher from outside, or passed on by the front.   SPDX-License-Identifier: MIT */
#include "launch/agent/agent_parts.h"

#include "base/terminal.h"

#include <errno.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define MS 1000000u /* nanoseconds */

enum {
    REPEAT_MS = 250 /* the same signal within this time counts once: timeout(1) sends it twice */
};

void tutti__agent_stop(tutti__agent *a, int sig)
{
    bool final = a->job->opts.nodes.max <= 1 || sig == SIGINT || sig == SIGPIPE;
    /* clears a bar */
    const char *wipe = a->job->opts.rank0_direct ? tutti__wipe(STDERR_FILENO) : "";
    char why[64];

    a->stop_signal = sig;
    a->stop_ns = tutti__now_ns();
    a->interrupted = sig == SIGINT && a->workers.n_running > 0;
    if (a->workers.phase < TUTTI__STOPPING && sig != SIGPIPE && a->workers.n_running > 0) {
        if (sig == SIGINT && isatty(STDERR_FILENO)) /* the cursor is after "^C" */
            tutti__console_print(&a->console, "%s", *wipe ? wipe : "\n");
        tutti__console_say(&a->console, "SIG%s: stopping %d worker%s%s", sigabbrev_np(sig),
                           a->workers.n_running, a->workers.n_running == 1 ? "" : "s",
                           sig == SIGINT ? " (once more: kill)" : "");
    }
    snprintf(why, sizeof why, "SIG%s", sigabbrev_np(sig));
    tutti__agent_leave(a, final, 128 + sig, why);
    /* the coordinator decides whether others continue without them */
    if (!final && a->workers.elastic && a->workers.phase == TUTTI__RUNNING &&
        a->membership.connected) {
        double seconds = a->job->opts.shutdown_timeout_s;

        a->leaving = true;
        a->leave_ns = a->stop_ns + (uint64_t)((seconds > 0 ? seconds : 0) * 1e9);
    } else if (a->workers.phase < TUTTI__STOPPING)
        tutti__workers_stop(&a->workers, sig == SIGPIPE ? SIGTERM : sig);
    else
        tutti__workers_signal(&a->workers, sig);
}

static void on_signal(tutti__agent *a, int sig)
{
    if (sig == SIGTSTP || sig == SIGCONT) {
        tutti__workers_signal(&a->workers, sig == SIGTSTP ? SIGSTOP : SIGCONT);
    } else if (!a->stop_signal) {
        tutti__agent_stop(a, sig);
    } else if (tutti__now_ns() - a->stop_ns < REPEAT_MS * (uint64_t)MS) {
        return;
    } else if (a->leaving && a->workers.phase < TUTTI__STOPPING) {
        /* second request: do not wait for the end of the step */
        tutti__workers_stop(&a->workers, sig);
    } else if (sig == SIGINT) {
        a->abandoned = a->workers.childless;
        tutti__workers_kill(&a->workers);
    } else {
        tutti__workers_signal(&a->workers, sig);
    }
}

void tutti__agent_read_signals(void *agent, void *unused)
{
    tutti__agent *a = agent;
    struct signalfd_siginfo info;

    (void)unused;
    while (read(a->signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD)
            on_signal(a, (int)info.ssi_signo);
}

void tutti__agent_read_control(void *agent, void *unused)
{
    tutti__agent *a = agent;
    char bytes[64];
    ssize_t n = read(a->control, bytes, sizeof bytes);

    (void)unused;
    for (ssize_t i = 0; i < n; i++)
        on_signal(a, bytes[i]);
    if (n != 0)
        return;
    close(a->control); /* the front was killed */
    a->control = -1;
    a->abandoned = a->ended = true;
    a->code = 128 + SIGKILL;
    tutti__workers_kill(&a->workers); /* so that the other nodes treat this one as lost */
}
