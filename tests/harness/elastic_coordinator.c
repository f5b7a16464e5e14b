/* elastic_coordinator.c -- generations of elastic workers, on one host.   SPDX-License-Identifier: MIT */
#include "elastic_coordinator.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <tutti/group.h>
#include <unistd.h>

enum { STOPPED_MS = 200 };

/* ---- Processes ---- */

static pid_t start_store(int *port_p)
{
    int ends[2];
    pid_t pid, parent = getpid();

    if (pipe(ends) != 0 || (pid = fork()) < 0)
        abort();
    if (pid == 0) {
        tutti_store *store;
        int port;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || tutti_store_tcp_serve(&store, "127.0.0.1", 0) != TUTTI_OK)
            _exit(1);
        port = tutti_store_port(store);
        (void)!write(ends[1], &port, sizeof port);
        for (;;)
            pause();
    }
    close(ends[1]);
    if (read(ends[0], port_p, sizeof *port_p) != sizeof *port_p)
        abort();
    close(ends[0]);
    return pid;
}

static void start(elastic_job *job, int place)
{
    elastic_worker *w = &job->workers[job->n_workers];
    pid_t parent = getpid();
    int ends[2];

    if (job->n_workers == ELASTIC_MAX_WORKERS ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        abort();
    job->n_workers++;
    *w = (elastic_worker){.place = place, .fd = ends[0], .step = -1, .rank = -1, .before = -1};
    fflush(NULL);
    w->pid = fork();
    if (w->pid == 0) {
        char text[16];
        int result;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(97);
        /* a duplicate of another worker's socket would keep that open */
        for (int i = 0; i < job->n_workers; i++)
            if (job->workers[i].fd >= 0)
                close(job->workers[i].fd);
        snprintf(text, sizeof text, "%d", ends[1]);
        setenv("TUTTI_AGENT_FD", text, 1);
        result = job->opts->body(place, job->opts->arg);
        fflush(NULL);
        _exit(result);
    }
    close(ends[1]);
}

void elastic_start(elastic_job *job)
{
    start(job, job->n_places++);
}

/* ---- Messages ---- */

static void say(elastic_worker *w, const tutti__agent_message *message)
{
    tutti__agent_message whole = *message;

    whole.protocol = TUTTI__AGENT_PROTOCOL;
    (void)!send(w->fd, &whole, sizeof whole, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void elastic_tell_leave(elastic_worker *w)
{
    if (w->state >= ELASTIC_ENDING)
        return;
    w->sent_away = true;
    say(w, &(tutti__agent_message){.kind = TUTTI__AGENT_LEAVE});
}

/* Once in a generation. */
static void tell_regroup(elastic_job *job)
{
    for (int i = 0; i < job->n_workers; i++) {
        elastic_worker *w = &job->workers[i];

        if (w->state == ELASTIC_IN && !w->told)
            say(w, &(tutti__agent_message){.kind = TUTTI__AGENT_REGROUP,
                                           .generation = job->generation});
        w->told = w->told || w->state == ELASTIC_IN;
    }
}

static void hear(elastic_job *job, elastic_worker *w, const tutti__worker_message *message)
{
    if (message->protocol != TUTTI__AGENT_PROTOCOL)
        abort();
    if (message->step > w->step || message->kind == TUTTI__WORKER_READY)
        w->step = message->step;
    switch ((tutti__worker_message_kind)message->kind) {
    case TUTTI__WORKER_READY:
        if (w->state == ELASTIC_IN && message->generation < job->generation)
            return; /* sent before it received the new one */
        w->state = ELASTIC_WAITING;
        w->n_lost = message->generation == job->generation ? message->n_lost : 0;
        memcpy(w->lost, message->lost, sizeof w->lost);
        return;
    case TUTTI__WORKER_COMMITTED:
        job->formed = job->formed || message->generation == job->generation;
        return;
    case TUTTI__WORKER_LEAVES:
        job->left++;
        if (w->state == ELASTIC_IN)
            tell_regroup(job);
        w->state = ELASTIC_ENDING;
        return;
    case TUTTI__WORKER_FINISHED:
        job->finished = true;
        w->state = ELASTIC_ENDING;
        return;
    case TUTTI__WORKER_FAILS: /* of tests without replacements */
        return;
    }
}

/* ---- Rules ---- */

static int count(const elastic_job *job, elastic_state state)
{
    int n = 0;

    for (int i = 0; i < job->n_workers; i++)
        n += job->workers[i].state == state;
    return n;
}

static void bury(elastic_job *job, elastic_worker *w)
{
    elastic_state was = w->state;
    int status;

    while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(w->fd);
    w->fd = -1;
    w->state = ELASTIC_GONE;
    w->result = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    if (was == ELASTIC_IN)
        tell_regroup(job);
    if (was == ELASTIC_ENDING && w->result == 0)
        return;
    if (w->result != -SIGKILL) {
        printf("place %d (process %d), in state %d, ended with %d\n", w->place, (int)w->pid, was,
               w->result);
        job->failed += w->result != 3 && w->result != 4; /* these are replaced as if killed */
    }
    job->killed += w->result == -SIGKILL;
    if (!job->finished && !job->opts->no_replacement && (w->result >= 3 || w->result < 0))
        start(job, w->place);
}

/* The source of the state: the highest step, of several the lowest previous rank. */
static int better(const elastic_worker *a, const elastic_worker *b)
{
    if (a->step != b->step)
        return a->step > b->step;
    if (a->before != b->before)
        return b->before < 0 || (a->before >= 0 && a->before < b->before);
    return a < b;
}

static void form(elastic_job *job)
{
    elastic_worker *order[ELASTIC_MAX_WORKERS];
    int n = 0, size;

    for (int i = 0; i < job->n_workers; i++)
        if (job->workers[i].state == ELASTIC_WAITING) {
            int at = n++;

            for (; at > 0 && better(&job->workers[i], order[at - 1]); at--)
                order[at] = order[at - 1];
            order[at] = &job->workers[i];
        }
    size = n < job->opts->shards ? n : job->opts->shards;
    job->generation++;
    job->formed = false;
    job->longest = size > job->longest ? size : job->longest;
    for (int r = 0; r < size; r++) {
        tutti__agent_message message = {.kind = TUTTI__AGENT_GENERATION,
                                        .generation = job->generation,
                                        .rank = r,
                                        .size = size,
                                        .local_rank = r,
                                        .local_size = size,
                                        .fresh = order[0]->step < 0};

        snprintf(message.store, sizeof message.store, "127.0.0.1:%d", job->port);
        order[r]->state = ELASTIC_IN;
        order[r]->rank = order[r]->before = r;
        order[r]->told = false;
        order[r]->stopped_ms = 0;
        order[r]->n_lost = 0;
        say(order[r], &message);
    }
}

static bool is_stopped(pid_t pid)
{
    char path[40], stat[256] = "";
    const char *end;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    end = file && fgets(stat, sizeof stat, file) ? strrchr(stat, ')') : NULL;
    if (file)
        fclose(file);
    return end && end[1] == ' ' && end[2] == 'T';
}

/* Kills a worker that is IN a generation that others have left, if one of them considers it dead, or it is stopped. */
static void end_frozen(elastic_job *job)
{
    for (int i = 0; i < job->n_workers; i++)
        if (job->workers[i].state == ELASTIC_IN && is_stopped(job->workers[i].pid))
            kill(job->workers[i].pid, SIGKILL);
    for (int i = 0; i < job->n_workers; i++) {
        const elastic_worker *accuser = &job->workers[i];

        for (int k = 0; accuser->state == ELASTIC_WAITING && k < accuser->n_lost; k++)
            for (int j = 0; j < job->n_workers; j++)
                if (job->workers[j].state == ELASTIC_IN && job->workers[j].rank == accuser->lost[k])
                    kill(job->workers[j].pid, SIGKILL);
    }
}

/* Kills a stopped member of a generation that is being formed, in which another waits for it. */
static void end_stopped(elastic_job *job)
{
    const double now = tutti__now_ms();
    int running = 0;

    for (int i = 0; i < job->n_workers; i++) {
        elastic_worker *w = &job->workers[i];

        if (w->state != ELASTIC_IN)
            continue;
        if (!is_stopped(w->pid))
            w->stopped_ms = 0;
        else if (w->stopped_ms == 0)
            w->stopped_ms = now;
        running += w->stopped_ms == 0;
    }
    for (int i = 0; i < job->n_workers && running > 0; i++) {
        const elastic_worker *w = &job->workers[i];

        if (w->state == ELASTIC_IN && w->stopped_ms > 0 && now - w->stopped_ms >= STOPPED_MS)
            kill(w->pid, SIGKILL);
    }
}

static void decide(elastic_job *job)
{
    int waiting = count(job, ELASTIC_WAITING), in = count(job, ELASTIC_IN);

    if (job->finished && in == 0) /* remaining workers join those that are ending, or none */
        for (int i = 0; i < job->n_workers; i++)
            if (job->workers[i].state == ELASTIC_WAITING && job->workers[i].step < 0)
                elastic_tell_leave(&job->workers[i]);
    if (waiting > 0 && in == 0 && (job->generation > 0 || count(job, ELASTIC_STARTING) == 0)) {
        form(job);
    } else if (waiting > 0 && in > 0) {
        end_frozen(job);
        if (in < job->opts->shards)
            tell_regroup(job);
    } else if (in > 1 && !job->formed) {
        end_stopped(job);
    }
}

/* ---- The job ---- */

static void serve(elastic_job *job)
{
    struct pollfd polls[ELASTIC_MAX_WORKERS];
    int n = job->n_workers;
    tutti__worker_message message;

    for (int i = 0; i < n; i++)
        polls[i] = (struct pollfd){job->workers[i].fd, POLLIN, 0};
    (void)poll(polls, (nfds_t)n, 1);
    for (int i = 0; i < n; i++) {
        elastic_worker *w = &job->workers[i];
        ssize_t got = -1;

        if (w->fd < 0 || polls[i].revents == 0)
            continue;
        /* ECONNRESET: it ended without reading everything; its last messages can still be read. */
        while ((got = recv(w->fd, &message, sizeof message, MSG_DONTWAIT)) >=
                   TUTTI__WORKER_MESSAGE_LEAST ||
               (got < 0 && errno == ECONNRESET))
            if (got > 0)
                hear(job, w, &message);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            bury(job, w);
    }
}

int elastic_run(elastic_job *job, const elastic_job_opts *opts)
{
    pid_t store;
    int wrong = 0;

    *job = (elastic_job){.opts = opts, .begin_ms = tutti__now_ms()};
    store = start_store(&job->port);
    while (job->n_places < opts->n)
        elastic_start(job);
    while (count(job, ELASTIC_GONE) < job->n_workers) {
        serve(job);
        decide(job);
        if (opts->tick)
            opts->tick(job, opts->arg);
        if (tutti__now_ms() - job->begin_ms < opts->timeout_ms &&
            (job->failed == 0 || opts->patient))
            continue;
        for (int i = 0; i < job->n_workers; i++)
            if (job->workers[i].state != ELASTIC_GONE) {
                printf("place %d (process %d%s), in state %d of generation %u, step %lld: %s\n",
                       job->workers[i].place, (int)job->workers[i].pid,
                       is_stopped(job->workers[i].pid) ? ", stopped" : "", job->workers[i].state,
                       job->generation, (long long)job->workers[i].step,
                       job->failed ? "another has failed" : "the job's time is over");
                kill(job->workers[i].pid, SIGKILL);
                waitpid(job->workers[i].pid, NULL, 0);
                wrong++;
            }
        break;
    }
    kill(store, SIGKILL);
    waitpid(store, NULL, 0);
    for (int i = 0; i < job->n_workers; i++)
        if (job->workers[i].fd >= 0)
            close(job->workers[i].fd);
    return wrong + job->failed;
}
