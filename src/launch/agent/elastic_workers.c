/* elastic_workers.c -- forwards messages of elastic workers to the coordinator, and its orders to them.
 * SPDX-License-Identifier: MIT
 *
 * Their messages are in messages.def: `worker` (its local rank) and `start` identify the process; late messages about one that has ended are
 * dropped. */
#include "launch/agent/elastic_workers.h"

#include "base/terminal.h"
#include "launch/process/descendants.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000u /* nanoseconds */

enum { COMMITS_MS = 100 }; /* faster steps are reported together */

/* Between two reports of a worker's commits. One coordinator hears those of all workers: no more than 1,000 a second. */
static uint64_t commits_ns(const tutti__workers *w)
{
    const int world_size = w->job->round.world_size;

    return (uint64_t)(world_size > COMMITS_MS ? world_size : COMMITS_MS) * MS;
}

/* Clears the progress bar of a worker that writes to the terminal itself; a living one draws it again. */
static void say(const tutti__workers *w, const char *format, ...) TUTTI_PRINTF(2, 3);
static void say(const tutti__workers *w, const char *format, ...)
{
    char text[2048];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (w->job->opts.rank0_direct)
        tutti__console_print(w->console, "%s", tutti__wipe(STDERR_FILENO));
    tutti__console_say(w->console, "%s", text);
}

/* ---- Messages to the coordinator ------------------------------------------------- */

static void report(const tutti__workers *w, tutti__membership *m, const tutti__worker *worker,
                   json_t *news)
{
    json_object_set_new(news, "round", json_integer(w->job->round.number));
    json_object_set_new(news, "worker", json_integer(worker->local_rank));
    json_object_set_new(news, "start", json_integer(worker->start));
    tutti__membership_send(m, news);
}

static void report_message(const tutti__workers *w, tutti__membership *m,
                           const tutti__worker *worker, const tutti__worker_message *message)
{
    json_t *lost = json_array();

    for (int i = 0; i < message->n_lost && i < TUTTI__AGENT_MAX_LOST; i++)
        json_array_append_new(lost, json_integer(message->lost[i]));
    report(w, m, worker,
           tutti__message_pack_said(&(tutti__message_said){.protocol = message->protocol,
                                                           .kind = message->kind,
                                                           .generation = message->generation,
                                                           .shards = message->shards,
                                                           .step = message->step,
                                                           .lost = lost,
                                                           .build = message->build,
                                                           .settings = message->settings,
                                                           .why = message->why}));
}

static bool has_commits(const tutti__worker_channel *channel)
{
    return channel->step > channel->reported_step && channel->step_generation > 0;
}

static void report_commits(const tutti__workers *w, tutti__membership *m, tutti__worker *worker)
{
    tutti__worker_channel *channel = &worker->channel;
    tutti__worker_message message = {.protocol = TUTTI__AGENT_PROTOCOL,
                                     .kind = TUTTI__WORKER_COMMITTED,
                                     .generation = channel->step_generation,
                                     .step = channel->step};

    if (!has_commits(channel))
        return;
    report_message(w, m, worker, &message);
    channel->reported_step = channel->step;
    channel->reported_generation = channel->step_generation;
    channel->reported_ns = tutti__now_ns();
}

static void note_step(tutti__worker_channel *channel, int64_t step)
{
    channel->step = step;
    channel->last_step = step > channel->last_step ? step : channel->last_step;
}

static void on_message(tutti__workers *w, tutti__membership *m, tutti__worker *worker,
                       const tutti__worker_message *message)
{
    tutti__worker_channel *channel = &worker->channel;

    if (message->kind == TUTTI__WORKER_COMMITTED) {
        note_step(channel, message->step > channel->step ? message->step : channel->step);
        channel->step_generation = message->generation;
        if (channel->step_generation != channel->reported_generation)
            report_commits(w, m, worker);
        return;
    }
    report_commits(w, m, worker);
    if (message->kind == TUTTI__WORKER_READY) {
        channel->was_ready = channel->waits = true;
        channel->ready = *message;
        note_step(channel, message->step);
        channel->reported_step = message->step;
    }
    channel->finished |= message->kind == TUTTI__WORKER_FINISHED;
    w->finished |= channel->finished;
    channel->fails |= message->kind == TUTTI__WORKER_FAILS;
    report_message(w, m, worker, message);
}

static void receive(tutti__workers *w, tutti__membership *m, tutti__worker *worker)
{
    tutti__worker_message message;
    ssize_t n;

    while (worker->channel.fd >= 0) {
        n = recv(worker->channel.fd, &message, sizeof message, MSG_DONTWAIT);
        if (n < 0 && (errno == EINTR || errno == ECONNRESET))
            continue; /* it ended without reading everything; its last messages can still be read */
        if (n <= 0) {
            if (n == 0 || errno != EAGAIN) { /* it has closed its end */
                close(worker->channel.fd);
                worker->channel.fd = -1;
            }
            return;
        }
        if (n < TUTTI__WORKER_MESSAGE_LEAST) /* of another version: so it is refused */
            message = (tutti__worker_message){.kind = TUTTI__WORKER_READY};
        else
            message.settings[n - TUTTI__WORKER_MESSAGE_LEAST] = '\0';
        message.build[sizeof message.build - 1] = message.why[sizeof message.why - 1] = '\0';
        on_message(w, m, worker, &message);
    }
}

/* A message that contains no more than its kind. */
static void report_kind(const tutti__workers *w, tutti__membership *m, const tutti__worker *worker,
                        tutti__worker_message_kind kind)
{
    report_message(w, m, worker,
                   &(tutti__worker_message){.protocol = TUTTI__AGENT_PROTOCOL,
                                            .kind = (uint32_t)kind,
                                            .generation = worker->channel.generation,
                                            .step = worker->channel.step});
}

static void report_end(tutti__workers *w, tutti__membership *m, tutti__worker *worker)
{
    int status = worker->status;

    worker->excused = worker->awaits_verdict = true;
    report_commits(w, m, worker);
    report(w, m, worker,
           tutti__message_pack_ended(
               &(tutti__message_ended){.code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                                       .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0}));
}

static void report_stopped(const tutti__workers *w, tutti__membership *m, tutti__worker *worker)
{
    bool stopped = worker->running && worker->stopped_ns != 0 && !worker->slowed;

    if (stopped == worker->channel.reported_stopped || w->suspended)
        return;
    worker->channel.reported_stopped = stopped;
    report(w, m, worker,
           tutti__message_pack_stopped(&(tutti__message_stopped){.stopped = stopped}));
}

/* Leaves the decision about ended workers to the coordinator, if none was decided here yet. */
static void report_ended(tutti__workers *w, tutti__membership *m)
{
    if (!w->elastic || w->blamed || w->phase > TUTTI__FAILING || w->phase == TUTTI__IDLE)
        return;
    for (int i = 0; i < w->job->opts.n; i++)
        if (w->list[i].pid && !w->list[i].running && !w->list[i].excused && !w->list[i].fails) {
            report_end(w, m, &w->list[i]);
            w->phase = TUTTI__RUNNING;
        }
}

void tutti__elastic_receive(tutti__workers *w, tutti__membership *m)
{
    for (int i = 0; i < w->job->opts.n; i++) {
        tutti__worker *worker = &w->list[i];

        if (worker->channel.readable || !worker->running) /* what it said before it ended */
            receive(w, m, worker);
        worker->channel.readable = false;
        w->elastic |= worker->channel.was_ready && w->phase != TUTTI__IDLE;
        report_stopped(w, m, worker);
        if (has_commits(&worker->channel) &&
            tutti__now_ns() >= worker->channel.reported_ns + commits_ns(w))
            report_commits(w, m, worker);
    }
    report_ended(w, m);
}

void tutti__elastic_begin(tutti__workers *w, tutti__membership *m)
{
    w->elastic = w->phase != TUTTI__IDLE;
    report_ended(w, m);
}

bool tutti__elastic_is_at_work(const tutti__workers *w)
{
    for (int i = 0; i < w->job->opts.n; i++)
        if (w->list[i].running && w->list[i].channel.generation > 0 && !w->list[i].channel.waits)
            return true;
    return false;
}

uint64_t tutti__elastic_deadline(const tutti__workers *w)
{
    uint64_t next = UINT64_MAX;

    for (int i = 0; i < w->job->opts.n && w->phase != TUTTI__IDLE; i++) {
        const tutti__worker_channel *channel = &w->list[i].channel;

        if (has_commits(channel) && channel->reported_ns + commits_ns(w) < next)
            next = channel->reported_ns + commits_ns(w);
    }
    return next;
}

/* Its end was decided on before. What counts for a new coordinator is that no worker will come there. */
static void report_no_replacement(const tutti__workers *w, tutti__membership *m,
                                  const tutti__worker *worker)
{
    report(w, m, worker,
           tutti__message_pack_ended(&(tutti__message_ended){.code = 0, .signal = 0}));
}

void tutti__elastic_report_all(tutti__workers *w, tutti__membership *m)
{
    for (int i = 0; i < w->job->opts.n; i++) {
        tutti__worker *worker = &w->list[i];
        tutti__worker_channel *channel = &worker->channel;
        const bool over = !worker->running && !worker->awaits_verdict;

        report(w, m, worker,
               tutti__message_pack_resumed(
                   &(tutti__message_resumed){.generation = over ? 0 : channel->generation,
                                             .rank = channel->rank,
                                             .step = channel->step}));
        channel->reported_step = channel->step;
        if (channel->waits && !over)
            report_message(w, m, worker, &channel->ready);
        if (channel->finished)
            report_kind(w, m, worker, TUTTI__WORKER_FINISHED);
        if (channel->fails)
            report_kind(w, m, worker, TUTTI__WORKER_FAILS);
        channel->reported_stopped = false;
        report_stopped(w, m, worker);
        if (over)
            report_no_replacement(w, m, worker);
        if (worker->awaits_verdict) {
            worker->rests = false;
            report_end(w, m, worker);
        }
    }
    tutti__membership_send(m, tutti__message_pack(TUTTI__MESSAGE_HERE));
}

/* ---- Orders -------------------------------------------------------------------------------------------- */

/* A worker that does not read will be ended for being late; the death of a dead one will be reported. */
static void send_to_worker(const tutti__worker *worker, const tutti__agent_message *message)
{
    if (worker->channel.fd >= 0)
        (void)!send(worker->channel.fd, message, sizeof *message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void tutti__elastic_pause(tutti__workers *w)
{
    for (int i = 0; i < w->job->opts.n && !w->finished; i++) {
        const tutti__worker_channel *channel = &w->list[i].channel;

        if (channel->generation > 0 && !channel->waits)
            send_to_worker(&w->list[i], &(tutti__agent_message){.protocol = TUTTI__AGENT_PROTOCOL,
                                                                .kind = TUTTI__AGENT_REGROUP,
                                                                .generation = channel->generation});
    }
}

void tutti__elastic_tell_last(tutti__workers *w)
{
    for (int i = 0; i < w->job->opts.n && w->phase == TUTTI__STOPPING; i++) {
        tutti__worker *worker = &w->list[i];

        if (!worker->running || !worker->channel.was_ready || worker->channel.told_last)
            continue;
        worker->channel.told_last = true;
        send_to_worker(worker, &(tutti__agent_message){.protocol = TUTTI__AGENT_PROTOCOL,
                                                       .kind = TUTTI__AGENT_LAST});
    }
}

static void send_message(tutti__worker *worker, const tutti__message_message *m)
{
    tutti__worker_channel *channel = &worker->channel;
    tutti__agent_message message = {
        .protocol = TUTTI__AGENT_PROTOCOL,
        .kind = (uint32_t)m->kind,
        .generation = (uint32_t)m->generation,
        .rank = m->rank,
        .size = m->size,
        .local_rank = m->local_rank,
        .local_size = m->local_size,
        .attempt = m->attempt,
        .fresh = m->fresh,
        .committed = m->committed,
        .left = m->left,
    };

    snprintf(message.store, sizeof message.store, "%s", m->store);
    snprintf(message.why, sizeof message.why, "%s", m->why);
    if (message.kind == TUTTI__AGENT_GENERATION) {
        channel->generation = message.generation;
        channel->rank = message.rank;
        channel->waits = false;
    }
    send_to_worker(worker, &message);
}

static void describe_end(const tutti__workers *w, const tutti__worker *worker, char *text,
                         size_t bytes)
{
    int status = worker->status;
    char step[80] = "", how[64];
    const char *why = "";

    if (worker->channel.step >= 0)
        snprintf(step, sizeof step, " at step %lld", (long long)worker->channel.step);
    else if (worker->channel.last_step > 0)
        snprintf(step, sizeof step, " after step %lld, whose state is lost",
                 (long long)worker->channel.last_step);
    else
        snprintf(step, sizeof step, " before its first step");
    if (WIFSIGNALED(status) && sigabbrev_np(WTERMSIG(status)))
        snprintf(how, sizeof how, "was killed by SIG%s", sigabbrev_np(WTERMSIG(status)));
    else if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "was killed by signal %d", WTERMSIG(status));
    else
        snprintf(how, sizeof how, "ended with exit code %d", WEXITSTATUS(status));
    if (status == SIGKILL && tutti__oom_kills() > w->oom_kills)
        why = " (the kernel's out-of-memory killer ran meanwhile)";
    snprintf(text, bytes, "rank %d%s%.80s (process %d) %s%s%s", worker->rank,
             w->job->round.n_nodes > 1 ? " on " : "", w->job->round.n_nodes > 1 ? w->job->host : "",
             (int)worker->pid, how, step, why);
}

static tutti_status execute_verdict(tutti__workers *w, tutti__worker *worker,
                                    const tutti__message_verdict *m)
{
    const char *verdict = m->verdict, *why = m->why;
    char text[512];

    if (!worker->awaits_verdict)
        return TUTTI_OK;
    describe_end(w, worker, text, sizeof text);
    if (strcmp(verdict, "rest") == 0) {
        say(w, "%s: %s", text, why);
        worker->rests = true;
        tutti__workers_sweep_after(w, worker);
        return TUTTI_OK;
    }
    worker->awaits_verdict = false;
    if (strcmp(verdict, "replace") == 0 && w->phase == TUTTI__RUNNING) {
        if (worker->rests)
            say(w, "rank %d: another worker is tried", worker->rank);
        else
            say(w, "%s: a replacement takes its place", text);
        return tutti__workers_replace(w, worker);
    }
    if (strcmp(verdict, "fail") == 0) {
        worker->excused = false;
        worker->fails = true;
        if (*why)
            say(w, "%s: %s, and no worker is left", text, why);
        return TUTTI_OK;
    }
    if (*why)
        say(w, "%s: %s; it is not replaced", text, why);
    if (!worker->rests)
        tutti__workers_sweep_after(w, worker);
    return TUTTI_OK;
}

static void kill_worker(const tutti__workers *w, const tutti__worker *worker, const char *why)
{
    const char *said = worker->channel.waits ? worker->channel.ready.why : "";

    if (worker->running && *why)
        say(w, "rank %d (process %d) is killed: %s%s%s%s", worker->rank, (int)worker->pid, why,
            *said ? " (it says: " : "", said, *said ? ")" : "");
    tutti__worker_signal(worker, SIGKILL);
}

tutti_status tutti__elastic_execute(tutti__workers *w, const json_t *m)
{
    const tutti__message_worker about = tutti__message_read_worker(m);
    tutti__message_message message;
    tutti__message_verdict verdict;
    tutti__worker *worker;

    if (about.worker < 0 || about.worker >= w->job->opts.n || w->phase == TUTTI__IDLE)
        return TUTTI_OK;
    worker = &w->list[about.worker];
    if (about.start != worker->start)
        return TUTTI_OK;
    switch (tutti__message_type_of(m)) {
    case TUTTI__MESSAGE_MESSAGE:
        message = tutti__message_read_message(m);
        send_message(worker, &message);
        return TUTTI_OK;
    case TUTTI__MESSAGE_KILL:
        kill_worker(w, worker, tutti__message_read_kill(m).why);
        return TUTTI_OK;
    case TUTTI__MESSAGE_VERDICT:
        verdict = tutti__message_read_verdict(m);
        return execute_verdict(w, worker, &verdict);
    default:
        return TUTTI_OK;
    }
}
