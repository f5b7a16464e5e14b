/* agent_run.c -- a node's part of a job: joins the rendezvous, and runs the workers of each round, until the job ends.
 * SPDX-License-Identifier: MIT
 *
 * One loop over signals, the front's control pipe, the rendezvous and the workers' streams. process/node_workers.c manages the workers of
 * a round; host/coordinator.c is the agreement between nodes, used with one node too. */
#include "launch/agent/agent_parts.h"
#include "launch/agent/elastic_workers.h"
#include "launch/process/job_files.h"
#include "launch/report/failure_report.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
    QUEUE_BYTES = 1 << 20, /* of queued output; above it, workers wait */
    N_OWN = 6              /* polled descriptors besides those of workers */
};

/* ---- Turns -------------------------------------------------------------------------------------------- */

/* After a signal, blocked output does not delay the end. */
static uint64_t output_deadline(const tutti__agent *a)
{
    double seconds = a->job->opts.shutdown_timeout_s;

    return a->stop_ns + (uint64_t)((seconds > 0.3 ? seconds : 0.3) * 1e9);
}

static void check_console(tutti__agent *a)
{
    if (a->stop_signal && a->workers.childless && tutti__now_ns() >= output_deadline(a))
        a->abandoned = true;
    if (!a->console.error || a->stop_signal)
        return;
    a->code = a->console.error == EPIPE ? 128 + SIGPIPE : 4;
    if (a->console.error != EPIPE) /* not if the reader has closed the pipe */
        dprintf(STDERR_FILENO, "%s: cannot write to standard output or error: %s; stopping\n",
                a->job->opts.title, strerror(a->console.error));
    tutti__agent_stop(a, SIGPIPE);
}

/* Workers whose last step takes too long are stopped like all others. */
static void check_leaving(tutti__agent *a)
{
    if (a->leaving && a->workers.phase < TUTTI__STOPPING && a->workers.n_running > 0 &&
        tutti__now_ns() >= a->leave_ns)
        tutti__workers_stop(&a->workers, a->stop_signal);
}

static bool is_done(tutti__agent *a)
{
    if (a->workers.phase != TUTTI__IDLE || !(a->ended || a->stop_signal))
        return false;
    tutti__chaos_close(&a->chaos);
    return (a->abandoned || tutti__console_empty(&a->console)) &&
           (a->control < 0 || tutti__membership_done(&a->membership));
}

static void serve_rendezvous(tutti__agent *a)
{
    bool connected = a->membership.connected;
    json_t *message;

    tutti__membership_serve(&a->membership);
    while ((message = tutti__membership_take(&a->membership)) != NULL) {
        tutti__agent_execute(a, message);
        json_decref(message);
    }
    if (connected && !a->membership.connected)
        tutti__agent_lost_coordinator(a);
}

/* ---- Waiting -------------------------------------------------------------------------------------------- */

static void register_deadlines(tutti__agent *a)
{
    tutti__poll_loop *loop = &a->loop;

    tutti__poll_loop_wake_at(loop, tutti__workers_deadline(&a->workers));
    tutti__poll_loop_wake_at(loop, tutti__elastic_deadline(&a->workers));
    tutti__poll_loop_wake_at(loop, tutti__chaos_deadline(&a->chaos));
    if (a->leaving && a->workers.phase < TUTTI__STOPPING)
        tutti__poll_loop_wake_at(loop, a->leave_ns);
    if (a->stop_signal && a->workers.childless)
        tutti__poll_loop_wake_at(loop, output_deadline(a));
    /* else the rendezvous is not needed any more */
    if (a->membership.connected || tutti__agent_lacks_rendezvous(a))
        tutti__poll_loop_wake_at_ms(loop, tutti__membership_deadline(&a->membership));
}

static void write_console(void *agent, void *unused)
{
    (void)unused;
    tutti__console_write(&((tutti__agent *)agent)->console);
}

static void read_stream(void *agent, void *pipe)
{
    tutti__log_pipe_read(pipe, &((tutti__agent *)agent)->console);
}

/* The agent's own descriptors. Those without a callback are served by each turn: at their deadlines too, and in its order, in which
 * what workers have said comes before what follows from it. */
static void register_own(tutti__agent *a)
{
    short events;
    int fd;

    tutti__poll_loop_watch(&a->loop, a->signals, POLLIN, tutti__agent_read_signals, a, NULL);
    tutti__poll_loop_watch(&a->loop, a->control, POLLIN, tutti__agent_read_control, a, NULL);
    tutti__poll_loop_watch(&a->loop, tutti__console_fd(&a->console), POLLOUT, write_console, a,
                           NULL);
    fd = tutti__membership_fd(&a->membership, &events);
    tutti__poll_loop_watch(&a->loop, fd, events, NULL, NULL, NULL);
    fd = tutti__membership_coordinator_fd(&a->membership);
    tutti__poll_loop_watch(&a->loop, fd, POLLIN, NULL, NULL, NULL);
    fd = tutti__search_fd(&a->membership, &events);
    tutti__poll_loop_watch(&a->loop, fd, events, NULL, NULL, NULL);
}

static void note_readable(void *agent, void *worker)
{
    (void)agent;
    ((tutti__worker *)worker)->channel.readable = true;
}

/* After the last descendant has ended, a stream is only read until it is empty, even if another process holds it open. */
static void register_stream(tutti__agent *a, tutti__log_pipe *pipe)
{
    if (!a->workers.childless) {
        tutti__poll_loop_watch(&a->loop, pipe->fd, POLLIN, read_stream, a, pipe);
    } else if (pipe->fd >= 0) {
        if (tutti__log_pipe_read(pipe, &a->console) == 0)
            tutti__log_pipe_close(pipe, &a->console);
        tutti__poll_loop_wake_at(&a->loop, 0);
    }
}

/* The sockets to the workers, and their streams while the console is not behind. */
static void register_workers(tutti__agent *a)
{
    const bool reads = a->console.end - a->console.begin < QUEUE_BYTES;

    for (int i = 0; i < a->job->opts.n; i++) {
        tutti__worker *worker = &a->workers.list[i];

        tutti__poll_loop_watch(&a->loop, worker->channel.fd, POLLIN, note_readable, a, worker);
        if (!reads)
            continue;
        register_stream(a, &worker->out);
        register_stream(a, &worker->err);
    }
}

/* One turn: all state advances, and the next event or deadline is awaited. False: the job has ended. */
static bool turn(tutti__agent *a)
{
    tutti_status status;

    tutti__workers_reap(&a->workers);
    tutti__elastic_receive(&a->workers, &a->membership);
    tutti__agent_look_for_rendezvous(a);
    serve_rendezvous(a);
    tutti__workers_advance(&a->workers);
    check_leaving(a);
    tutti__chaos_advance(&a->chaos);
    tutti__agent_report_failure(a);
    check_console(a);
    tutti__agent_finish_round(a);
    tutti__elastic_tell_last(&a->workers);
    if (is_done(a))
        return false;
    register_own(a);
    register_workers(a);
    register_deadlines(a);
    status = tutti__poll_loop_wait(&a->loop);
    if (status != TUTTI_OK && !a->code)
        tutti__agent_fail(a, status);
    return true;
}

/* ---- Beginning and end -------------------------------------------------------------------------------- */

/* The nodes' group died: the ranks' flight recorders are complete when the last rank has ended. */
static void on_round_over(void *context)
{
    const tutti__agent *a = context;

    if (a->job->round.n_nodes > 1)
        tutti__report_flights(&a->workers, "");
}

static tutti_status prepare(tutti__agent *a)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigset_t signals;

    sigaction(SIGPIPE, &ignore, &a->job->sigpipe);
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    for (int i = 0; a->job->signals[i]; i++)
        sigaddset(&signals, a->job->signals[i]);
    TUTTI_TRY(tutti__workers_new(&a->workers, a->job, &a->console, tutti__report_failure));
    TUTTI_TRY(tutti__chaos_open(&a->chaos, &a->workers));
    TUTTI_TRY(tutti__poll_loop_new(&a->loop, N_OWN + 3 * (size_t)a->job->opts.n));
    a->signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (a->signals < 0)
        return tutti__fail_errno(errno, "no descriptor for signals");
    TUTTI_TRY(tutti__membership_open(&a->membership, a->job, &a->console));
    tutti__agent_merge_output(a);
    a->membership.round_over = on_round_over;
    a->membership.context = a;
    return TUTTI_OK;
}

static int exit_code(const tutti__agent *a)
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

int tutti__agent_run(tutti__job *job, int control)
{
    tutti__agent *a = calloc(1, sizeof *a); /* too large for a small stack */
    tutti_status status;
    int code;

    setsid(); /* Ctrl-C is forwarded by the front, and a kill of the front's group does not reach us */
    prctl(PR_SET_NAME, "run-agent"); /* nor does `pkill tutti` */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (!a) {
        dprintf(STDERR_FILENO, "%s: no memory for the agent\n", job->opts.title);
        return 4;
    }
    a->job = job;
    a->control = control;
    a->signals = -1;
    a->membership.connection.fd = a->membership.silent_fd = a->membership.standby.listener = -1;
    tutti__console_open(&a->console, job->opts.title);
    status = prepare(a);
    if (status == TUTTI_OK) {
        while (turn(a))
            continue;
        code = exit_code(a);
    } else {
        code = tutti_status_exit_code(status);
        dprintf(STDERR_FILENO, "%s: %s\n", job->opts.title, tutti_last_error());
    }
    tutti__chaos_close(&a->chaos);
    tutti__workers_free(&a->workers);
    tutti__membership_close(&a->membership);
    tutti_store_free(job->store);
    tutti__files_close(job);
    tutti__console_free(&a->console);
    tutti__console_free(&a->held);
    tutti__poll_loop_free(&a->loop);
    free(a);
    return code;
}
