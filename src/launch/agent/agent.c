/* agent.c -- a node's part of a job: joins the rendezvous, and runs the workers of each round, until the job ends.
 * SPDX-License-Identifier: MIT
 *
 * One loop over signals, the front's control pipe, the rendezvous and the workers' streams. workers.c manages the workers of a
 * round; coordinator.c is the agreement between nodes, used with one node too. */
#include "base/terminal.h"
#include "launch/chaos/chaos.h"
#include "launch/agent/agent.h"
#include "launch/agent/elastic_workers.h"
#include "launch/agent/rendezvous.h"
#include "launch/report/failure_report.h"
#include "launch/process/error_files.h"
#include "launch/process/files.h"
#include "launch/agent/membership.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define MS 1000000u /* nanoseconds */

enum {
    REPEAT_MS = 250, /* the same signal within this time counts once: timeout(1) sends it twice */
    QUEUE_BYTES = 1 << 20, /* of queued output; above it, workers wait */
    N_OWN = 6              /* polled descriptors besides the streams */
};

typedef struct agent {
    tutti__job *job;
    int control, signals; /* descriptors */
    const sigset_t *mask;
    struct sigaction sigpipe;
    tutti__console console;
    tutti__membership membership;
    tutti__workers workers;
    tutti__chaos chaos;
    struct pollfd *polled;
    bool told_failure; /* this round's failure was reported to the coordinator */
    bool told_why;     /* the reason for this round's end was printed */
    bool ended;        /* the job has ended, with end_code */
    int end_code;
    bool abandoned; /* queued output is dropped */
    /* the workers are paused since paused_ms, because it is unknown whether the coordinator is alive */
    bool paused;
    double paused_ms;
    bool leaving; /* workers are leaving the elastic round, at the latest by leave_ns */
    uint64_t leave_ns;
    int stop_signal;  /* the first one received; 0: none */
    uint64_t stop_ns; /* time of that */
    bool interrupted; /* it was Ctrl-C, while there were workers */
    int code;         /* exit code of the agent's own failure; 0: none */
} agent;

static void leave(agent *a, bool final, int code, const char *why)
{
    tutti__membership_send(&a->membership,
                           json_pack("{s:s, s:b, s:i, s:i, s:o}", "type", "leave", "final", final,
                                     "signal", a->stop_signal, "code", code, "why",
                                     tutti__message_string(why)));
}

/* A failure of this agent fails the job. */
static void fail(agent *a, tutti_status status)
{
    tutti__console_say(&a->console, "%s", tutti_last_error());
    a->told_why = true;
    a->code = tutti_status_exit_code(status);
    a->ended = true;
    leave(a, true, a->code, tutti_last_error());
    tutti__workers_kill(&a->workers);
}

/* ---- Signals ------------------------------------------------------------------------------------------ */

static void stop(agent *a, int sig)
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
    leave(a, final, 128 + sig, why);
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

static void on_signal(agent *a, int sig)
{
    if (sig == SIGTSTP || sig == SIGCONT) {
        tutti__workers_signal(&a->workers, sig == SIGTSTP ? SIGSTOP : SIGCONT);
    } else if (!a->stop_signal) {
        stop(a, sig);
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

static void read_signals(agent *a)
{
    struct signalfd_siginfo info;

    while (read(a->signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD)
            on_signal(a, (int)info.ssi_signo);
}

static void read_control(agent *a)
{
    char bytes[64];
    ssize_t n = read(a->control, bytes, sizeof bytes);

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

/* ---- The round ---------------------------------------------------------------------------------------- */

static void tell_failure(agent *a)
{
    const tutti__worker *w = a->workers.blamed;
    tutti__reason reason;
    char why[512];

    if (!w || a->told_failure)
        return;
    a->told_failure = true;
    tutti__describe_failure(a->workers.cause ? a->workers.cause : w, why, sizeof why);
    tutti__membership_send(&a->membership,
                           json_pack("{s:s, s:i, s:i, s:b, s:o}", "type", "failed", "round",
                                     a->job->round.number, "code", tutti__worker_exit_code(w),
                                     "permanent",
                                     tutti__error_file_read(w, &reason) && reason.permanent, "why",
                                     tutti__message_string(why)));
}

/* No process of the round is left on this node. */
static void finish_round(agent *a)
{
    int port = 0;

    if (a->workers.phase == TUTTI__IDLE ||
        !(a->abandoned ? a->workers.childless : tutti__workers_over(&a->workers)))
        return;
    tell_failure(a);
    tutti__workers_close(&a->workers);
    a->workers.phase = TUTTI__IDLE;
    if (a->workers.finished && !a->membership.connected)
        a->ended = true; /* no coordinator is left to end it */
    if (a->control < 0)
        return; /* treated as lost by the others, since the front was killed */
    if (tutti__job_choose_port(a->job, &port) != TUTTI_OK)
        port = a->job->round.master_port;
    tutti__membership_send(&a->membership, json_pack("{s:s, s:i, s:i}", "type", "over", "round",
                                                     a->job->round.number, "port", port));
}

static void tell_round(agent *a)
{
    const tutti__round *round = &a->job->round;
    char nodes[48] = "", restarts[48] = "";

    if (a->job->opts.nodes.max > 1)
        snprintf(nodes, sizeof nodes, " on %d node%s", round->n_nodes,
                 round->n_nodes == 1 ? "" : "s");
    if (a->job->opts.max_restarts > 0)
        snprintf(restarts, sizeof restarts, ", restart %d of %d", round->restarts,
                 a->job->opts.max_restarts);
    tutti__console_say(&a->console, "starting the workers again: %d rank%s%s%s", round->world_size,
                       round->world_size == 1 ? "" : "s", nodes, restarts);
}

static void begin_round(agent *a, const json_t *m)
{
    tutti__round *round = &a->job->round;
    tutti_status status;

    *round = (tutti__round){.number = (int)tutti__message_number(m, "round", 0),
                            .restarts = (int)tutti__message_number(m, "restarts", 0),
                            .group_rank = (int)tutti__message_number(m, "group_rank", 0),
                            .n_nodes = (int)tutti__message_number(m, "nodes", 1),
                            .first_rank = (int)tutti__message_number(m, "first_rank", 0),
                            .world_size = (int)tutti__message_number(m, "world_size", 1),
                            .master_port = (int)tutti__message_number(m, "master_port", 0)};
    snprintf(round->master_addr, sizeof round->master_addr, "%s",
             tutti__message_text(m, "master_addr"));
    snprintf(round->store, sizeof round->store, "%s", tutti__message_text(m, "store"));
    if (!a->job->opts.id)
        snprintf(a->job->id, sizeof a->job->id, "%s", tutti__message_text(m, "id"));
    a->job->opts.max_restarts = (int)tutti__message_number(m, "max_restarts", 0);
    a->told_failure = a->told_why = false;
    if (a->stop_signal || a->ended)
        return; /* the coordinator must be told first */
    if (a->membership.rounds > 0)
        tell_round(a);
    a->membership.rounds = round->number + 1;
    a->membership.restarts = round->restarts;
    status = tutti__workers_start(&a->workers, a->mask, &a->sigpipe);
    if (status != TUTTI_OK)
        fail(a, status);
    else if (json_is_true(json_object_get(m, "elastic")))
        tutti__elastic_begin(&a->workers, &a->membership);
}

/* ---- The rendezvous ----------------------------------------------------------------------------------- */

static void on_end(agent *a, const json_t *m)
{
    const char *why = tutti__message_text(m, "why");

    a->ended = true;
    a->end_code = (int)tutti__message_number(m, "code", 1);
    if (*why && !a->stop_signal && !a->told_failure && !a->told_why)
        tutti__console_say(&a->console, "%s", why);
    if (json_is_true(json_object_get(m, "permanent")) &&
        a->job->round.restarts < a->job->opts.max_restarts && !a->stop_signal)
        tutti__console_say(&a->console, "no restart (--max-restarts %d): each attempt would end so",
                           a->job->opts.max_restarts);
    if (a->end_code != 0 && a->job->round.restarts > 0 &&
        a->job->round.restarts >= a->job->opts.max_restarts && !a->stop_signal)
        tutti__console_say(&a->console, "no restart is left (--max-restarts %d)",
                           a->job->opts.max_restarts);
    tutti__workers_stop(&a->workers, a->leaving ? a->stop_signal : SIGTERM);
    if (!a->membership.coordinator)
        tutti__connection_close(&a->membership.connection); /* acknowledges the end */
}

static void on_message(agent *a, const json_t *m)
{
    const char *why = tutti__message_text(m, "why");
    tutti_status status;

    if (tutti__elastic_obey(&a->workers, m, a->mask, &a->sigpipe, &status)) {
        if (status != TUTTI_OK)
            fail(a, status);
    } else if (tutti__message_is(m, "round")) {
        begin_round(a, m);
    } else if (tutti__message_is(m, "wait")) {
        tutti__console_say(&a->console, "%s", why);
    } else if (tutti__message_is(m, "stop") &&
               tutti__message_number(m, "round", -1) == a->job->round.number) {
        if (*why && !a->told_failure && !a->stop_signal) {
            tutti__console_say(&a->console, "%s; stopping the workers", why);
            a->told_why = true;
        }
        tutti__workers_stop(&a->workers, a->leaving ? a->stop_signal : SIGTERM);
    } else if (tutti__message_is(m, "elastic") &&
               tutti__message_number(m, "round", -1) == a->job->round.number) {
        tutti__elastic_begin(&a->workers, &a->membership);
    } else if (tutti__message_is(m, "refuse")) {
        tutti__console_say(&a->console, "this node is refused: %s", why);
        a->code = 2;
        a->ended = true;
    } else if (tutti__message_is(m, "end")) {
        on_end(a, m);
    }
}

/* Elastic workers need no rendezvous until one of them dies. */
static bool keeps_running(const agent *a)
{
    return a->workers.elastic && a->workers.phase == TUTTI__RUNNING;
}

/* The connection was lost. */
static void on_lost(agent *a)
{
    tutti__membership *m = &a->membership;

    if (a->leaving && a->workers.phase < TUTTI__STOPPING)
        tutti__workers_stop(&a->workers, a->stop_signal);
    if (a->ended || a->stop_signal)
        return;
    if (keeps_running(a) && tutti__search_is_on(m)) {
        tutti__console_say(&a->console,
                           "the coordinator node at %s was lost: %s; the next one takes over",
                           m->succession.roster.list[0].address, m->trouble);
        return;
    }
    if (keeps_running(a)) {
        tutti__console_say(
            &a->console,
            "the rendezvous host %s:%d was lost: %s; the workers continue while it is looked for",
            a->job->opts.nodes.host, a->job->opts.nodes.port, m->trouble);
        return;
    }
    if (a->workers.phase != TUTTI__IDLE) {
        tutti__console_say(&a->console,
                           "the rendezvous host %s:%d was lost: %s; stopping the workers",
                           a->job->opts.nodes.host, a->job->opts.nodes.port, m->trouble);
        tutti__workers_stop(&a->workers, SIGTERM);
    }
    if (m->rounds == 0)
        return; /* no round has begun */
    if (m->restarts < a->job->opts.max_restarts) {
        m->restarts++;
        return;
    }
    tutti__fail(TUTTI_ERR_PEER,
                "the rendezvous host %s:%d was lost: %s; no restart is left to wait for it "
                "(--max-restarts %d)",
                a->job->opts.nodes.host, a->job->opts.nodes.port, m->trouble,
                a->job->opts.max_restarts);
    fail(a, TUTTI_ERR_PEER);
}

static bool lacks_rendezvous(const agent *a)
{
    return !a->membership.connected && !a->ended && !a->stop_signal &&
           (a->workers.phase == TUTTI__IDLE || keeps_running(a));
}

static void serve_rendezvous(agent *a)
{
    bool connected = a->membership.connected;
    json_t *message;

    tutti__membership_serve(&a->membership);
    while ((message = tutti__membership_take(&a->membership)) != NULL) {
        on_message(a, message);
        json_decref(message);
    }
    if (connected && !a->membership.connected)
        on_lost(a);
}

static void look_for_successor(agent *a)
{
    double limit_s = tutti__or(a->job->opts.nodes.join_timeout_s, 600);
    bool found;
    tutti_status status;

    a->membership.running = true;
    status = tutti__search_advance(&a->membership, &found);
    if (a->membership.succession.uncertain && !a->paused) {
        tutti__elastic_pause(&a->workers);
        a->paused_ms = tutti__now_ms();
    }
    a->paused = a->membership.succession.uncertain;
    if (status == TUTTI_OK && a->paused && !a->membership.coordinator && !found &&
        tutti__now_ms() >= a->paused_ms + limit_s * 1e3)
        status = tutti__fail(
            TUTTI_ERR_PEER,
            "gave up after %g s of trying to reach the coordinator node at %s, or its successor "
            "(--rdzv-conf join_timeout=%g)",
            limit_s, a->membership.succession.roster.list[0].address, limit_s);
    if (status != TUTTI_OK)
        fail(a, status);
    else if (found)
        tutti__elastic_tell_all(&a->workers, &a->membership);
}

static void look_for_rendezvous(agent *a)
{
    bool searched = a->membership.searches;
    tutti_status status;

    a->membership.searches =
        keeps_running(a) && !a->ended && !a->stop_signal && tutti__search_is_on(&a->membership);
    if (a->membership.searches) {
        look_for_successor(a);
        return;
    }
    if (searched || !(a->membership.connected || lacks_rendezvous(a)))
        tutti__dial_close(&a->membership.dial);
    a->paused = false;
    if (!lacks_rendezvous(a))
        return;
    a->membership.running = keeps_running(a);
    status = tutti__membership_try(&a->membership);
    if (status == TUTTI_ERR_TIMEOUT && keeps_running(a))
        a->membership.since_ms = 0; /* workers need it only for the next death */
    else if (status != TUTTI_OK)
        fail(a, status);
    if (a->membership.joined && a->membership.running)
        tutti__elastic_tell_all(&a->workers, &a->membership);
}

/* ---- Loop --------------------------------------------------------------------------------------------- */

/* After a signal, blocked output does not delay the end. */
static uint64_t output_deadline(const agent *a)
{
    double seconds = a->job->opts.shutdown_timeout_s;

    return a->stop_ns + (uint64_t)((seconds > 0.3 ? seconds : 0.3) * 1e9);
}

static void check_console(agent *a)
{
    if (a->stop_signal && a->workers.childless && tutti__now_ns() >= output_deadline(a))
        a->abandoned = true;
    if (!a->console.error || a->stop_signal)
        return;
    a->code = a->console.error == EPIPE ? 128 + SIGPIPE : 4;
    if (a->console.error != EPIPE) /* not if the reader has closed the pipe */
        dprintf(STDERR_FILENO, "%s: cannot write to standard output or error: %s; stopping\n",
                a->job->opts.title, strerror(a->console.error));
    stop(a, SIGPIPE);
}

/* Workers whose last step takes too long are stopped like all others. */
static void check_leaving(agent *a)
{
    if (a->leaving && a->workers.phase < TUTTI__STOPPING && a->workers.n_running > 0 &&
        tutti__now_ns() >= a->leave_ns)
        tutti__workers_stop(&a->workers, a->stop_signal);
}

static bool is_done(agent *a)
{
    if (a->workers.phase != TUTTI__IDLE || !(a->ended || a->stop_signal))
        return false;
    tutti__chaos_close(&a->chaos);
    return (a->abandoned || tutti__console_empty(&a->console)) &&
           (a->control < 0 || tutti__membership_done(&a->membership));
}

static int poll_timeout(const agent *a)
{
    uint64_t now = tutti__now_ns(), next = tutti__workers_deadline(&a->workers);
    uint64_t elastic = tutti__elastic_deadline(&a->workers);
    double ms = a->membership.connected || lacks_rendezvous(a)
                    ? tutti__membership_deadline(&a->membership) - tutti__now_ms()
                    : 1e300; /* the rendezvous is not needed any more */

    next = elastic < next ? elastic : next;
    if (a->leaving && a->workers.phase < TUTTI__STOPPING && a->leave_ns < next)
        next = a->leave_ns;
    if (tutti__chaos_deadline(&a->chaos) < next)
        next = tutti__chaos_deadline(&a->chaos);
    if (a->stop_signal && a->workers.childless && output_deadline(a) < next)
        next = output_deadline(a);
    if (next != UINT64_MAX && (next <= now ? 0 : (double)((next - now + MS - 1) / MS)) < ms)
        ms = next <= now ? 0 : (double)((next - now + MS - 1) / MS);
    return ms <= 0 ? 0 : ms > 1e9 ? -1 : (int)ms + 1;
}

/* Fills a->polled: our own descriptors, then every open stream in order. Returns how many streams. */
static int fill_polled(agent *a, bool reads)
{
    short events, dialled;
    int n = 0, connection = tutti__membership_fd(&a->membership, &events);

    a->polled[0] = (struct pollfd){a->signals, POLLIN, 0};
    a->polled[1] = (struct pollfd){a->control, POLLIN, 0};
    a->polled[2] = (struct pollfd){tutti__console_fd(&a->console), POLLOUT, 0};
    a->polled[3] = (struct pollfd){connection, events, 0};
    a->polled[4] = (struct pollfd){tutti__membership_coordinator_fd(&a->membership), POLLIN, 0};
    a->polled[5] = (struct pollfd){tutti__search_fd(&a->membership, &dialled), 0, 0};
    a->polled[5].events = dialled;
    for (int i = 0; reads && i < 2 * a->job->opts.n; i++)
        if (tutti__workers_stream(&a->workers, i)->fd >= 0)
            a->polled[N_OWN + n++] =
                (struct pollfd){tutti__workers_stream(&a->workers, i)->fd, POLLIN, 0};
    return n;
}

/* After the streams: the sockets to the workers, which are always read. Returns how many. */
static int poll_voices(agent *a, int at)
{
    int n = 0;

    for (int i = 0; i < a->job->opts.n; i++)
        if (a->workers.list[i].voice.fd >= 0)
            a->polled[at + n++] = (struct pollfd){a->workers.list[i].voice.fd, POLLIN, 0};
    return n;
}

/* After the last descendant has ended, streams are only read until they are empty, even if another process holds them open. */
static void serve_streams(agent *a, int n)
{
    const struct pollfd *p = a->polled;

    for (int i = 0, next = N_OWN; i < 2 * a->job->opts.n && next < N_OWN + n; i++) {
        tutti__log_pipe *pipe = tutti__workers_stream(&a->workers, i);

        if (pipe->fd != p[next].fd)
            continue; /* not polled */
        if (p[next++].revents)
            tutti__log_pipe_read(pipe, &a->console);
        else if (a->workers.childless)
            tutti__log_pipe_close(pipe, &a->console);
    }
}

/* Waits for events, and handles them. */
static void serve(agent *a)
{
    bool reads = a->console.end - a->console.begin < QUEUE_BYTES;
    int n = fill_polled(a, reads), voices = poll_voices(a, N_OWN + n);

    if (poll(a->polled, N_OWN + (nfds_t)n + (nfds_t)voices,
             a->workers.childless && n > 0 ? 0 : poll_timeout(a)) < 0)
        return;
    if (a->polled[0].revents)
        read_signals(a);
    if (a->polled[1].revents)
        read_control(a);
    if (a->polled[2].revents)
        tutti__console_write(&a->console);
    serve_streams(a, n);
}

static void loop(agent *a)
{
    for (;;) {
        tutti__workers_reap(&a->workers);
        tutti__elastic_hear(&a->workers, &a->membership);
        look_for_rendezvous(a);
        serve_rendezvous(a);
        tutti__workers_advance(&a->workers);
        check_leaving(a);
        tutti__chaos_advance(&a->chaos);
        tell_failure(a);
        check_console(a);
        finish_round(a);
        if (is_done(a))
            return;
        serve(a);
    }
}

/* ---- Beginning and end -------------------------------------------------------------------------------- */

/* The nodes' group died: the ranks' flight recorders are complete when the last rank has ended. */
static void on_round_over(void *context)
{
    agent *a = context;
    if (a->job->round.n_nodes > 1)
        tutti__report_flights(&a->workers, "");
}

static tutti_status prepare(agent *a)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigset_t signals;

    sigaction(SIGPIPE, &ignore, &a->sigpipe);
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    for (int i = 0; a->job->signals[i]; i++)
        sigaddset(&signals, a->job->signals[i]);
    TUTTI_TRY(tutti__workers_new(&a->workers, a->job, &a->console, tutti__report_failure));
    TUTTI_TRY(tutti__chaos_open(&a->chaos, &a->workers));
    a->polled = calloc(N_OWN + 3 * (size_t)a->job->opts.n, sizeof *a->polled);
    if (!a->polled)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %d workers", a->job->opts.n);
    a->signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (a->signals < 0)
        return tutti__fail_errno(errno, "no descriptor for signals");
    TUTTI_TRY(tutti__membership_open(&a->membership, a->job, &a->console));
    a->membership.round_over = on_round_over;
    a->membership.context = a;
    return TUTTI_OK;
}

static int exit_code(const agent *a)
{
    int chosen = tutti__workers_chosen_code(&a->workers);

    if (a->code)
        return a->code;
    if (!a->stop_signal)
        return a->end_code;
    if (a->workers.blamed)
        return tutti__worker_exit_code(a->workers.blamed);
    /* so that `tutti run ... && publish` does not publish half a job */
    if (chosen == 0 && a->interrupted)
        return 128 + SIGINT;
    return chosen >= 0 && a->membership.rounds > 0 ? chosen : 128 + a->stop_signal;
}

int tutti__agent(tutti__job *job, int control, const sigset_t *mask)
{
    agent a = {.job = job,
               .control = control,
               .signals = -1,
               .mask = mask,
               .membership.connection.fd = -1};
    tutti_status status;
    int code;

    setsid(); /* Ctrl-C is forwarded by the front, and a kill of the front's group does not reach us */
    prctl(PR_SET_NAME, "run-agent"); /* nor does `pkill tutti` */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    tutti__console_open(&a.console, job->opts.title);
    status = prepare(&a);
    if (status == TUTTI_OK) {
        loop(&a);
        code = exit_code(&a);
    } else {
        code = tutti_status_exit_code(status);
        dprintf(STDERR_FILENO, "%s: %s\n", job->opts.title, tutti_last_error());
    }
    tutti__chaos_close(&a.chaos);
    tutti__workers_free(&a.workers);
    tutti__membership_close(&a.membership);
    tutti_store_free(job->store);
    tutti__files_close(job);
    tutti__console_free(&a.console);
    free(a.polled);
    return code;
}
