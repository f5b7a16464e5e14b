/* heartbeat.c -- a peer that is silent for too long is dead.   SPDX-License-Identifier: MIT
 *
 * Every rank beats to every other five times per heartbeat interval, and any frame counts as a beat. A rank is judged a
 * little before a whole interval of silence, so that all ranks know within one. A process that did not run itself
 * (stopped, suspended, starved of CPU) knows nothing of the others: it ignores their silence and starts anew; and a peer
 * on this host that is seen waiting for a CPU gets more time. A rank that has never been heard is still setting up, which
 * has its own time limit. */
#include "comm/control/control_state.h"

#include "comm/bootstrap/socket.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { BEATS = 5, PATIENCE = 4 };

void tutti__heartbeat_start(tutti__control *control, int heartbeat_ms)
{
    control->heartbeat_ms = heartbeat_ms;
    control->limit_ms = heartbeat_ms * (15.0 / 16);
    control->beat_ms = heartbeat_ms / (double)BEATS;
    control->lap = control->next_beat = tutti__now_ms();
    control->judge_at = control->lap + control->limit_ms;
}

int tutti__heartbeat_wait(const tutti__control *control)
{
    double until = control->next_beat < control->judge_at ? control->next_beat : control->judge_at;

    if (control->limit_ms == 0 || atomic_load(&control->comm->failed))
        return -1;
    return tutti__poll_ms(until);
}

static bool watched(const tutti__control *control, int rank)
{
    const tutti__link *link = &control->links[rank];

    return !link->over && link->known && !atomic_load(&control->comm->peers[rank].left);
}

static void beat(tutti__control *control, double now)
{
    const tutti__frame head = {.kind = TUTTI__FRAME_BEAT, .id = control->tid};

    pthread_mutex_lock(&control->lock);
    for (int r = 0; r < control->comm->size; r++)
        if (!tutti__link_busy(&control->links[r])) /* a frame in transit counts as a beat */
            tutti__link_send(control, r, &head, NULL, -1);
    pthread_mutex_unlock(&control->lock);
    control->next_beat = now + control->beat_ms;
}

static void forgive(tutti__control *control, double now)
{
    for (int r = 0; r < control->comm->size; r++)
        control->links[r].heard = now;
    control->judge_at = now + control->limit_ms;
    tutti_log(TUTTI_LOG_INFO, "comm",
              "group \"%s\": this process did not run for %.3g s, so it ignores its peers' silence",
              control->comm->name, (now - control->lap) / 1e3);
}

/* It has sent bytes that this rank has not read yet. */
static bool has_unread(const tutti__link *link)
{
    int bytes = 0;

    return ioctl(link->fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

/* On this host, its control thread is runnable but waits for a CPU: it is late, not stopped. In another PID namespace
 * /proc may show an unrelated thread under its number; then this errs, but not for long. */
static bool is_starved(const tutti__control *control, int rank, double now)
{
    const tutti__link *link = &control->links[rank];
    const tutti__peer *peer = &control->comm->peers[rank],
                      *self = &control->comm->peers[control->comm->rank];
    tutti__proc_stat stat;
    char path[80];

    if (strcmp(peer->host, self->host) != 0 || now - link->heard >= PATIENCE * control->limit_ms)
        return false;
    snprintf(path, sizeof path, "/proc/%lld/task/%llu/stat", (long long)peer->pid,
             (unsigned long long)link->thread);
    return tutti__proc_stat_read(&stat, path) && stat.state == 'R';
}

/* Blames all ranks that have missed beats, like `first`. */
static void accuse(tutti__control *control, int first, double now)
{
    tutti__comm *comm = control->comm;
    tutti__cause *cause = &control->verdict.cause;
    char names[512] = "", peer[128];
    size_t n = 0;
    int silent = 0;

    for (int r = 0; r < comm->size; r++) {
        bool late = now - control->links[r].heard >= control->limit_ms - control->beat_ms;

        /* `first` has been judged already: its state may look different now. */
        if (r != first && (!watched(control, r) || !late || has_unread(&control->links[r]) ||
                           is_starved(control, r, now)))
            continue;
        tutti__comm_peer_text(comm, r, peer, sizeof peer);
        if (n < sizeof names)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", peer);
        silent++;
    }
    tutti__comm_peer_text(comm, comm->rank, peer, sizeof peer);
    control->verdict = (tutti__verdict){.set = true, .lost = -1};
    cause->status = TUTTI_ERR_PEER;
    cause->culprit = first;
    snprintf(
        cause->text, sizeof cause->text,
        "%s %s not been heard from for %.3g s (heartbeat %.3g s): stopped (SIGSTOP, a debugger), "
        "%s frozen, or the link to %s cut; reported by %s. TUTTI_HEARTBEAT_S sets the limit, 0 "
        "disables it",
        names, silent == 1 ? "has" : "have", (now - control->links[first].heard) / 1e3,
        control->heartbeat_ms / 1e3, silent == 1 ? "its machine" : "their machines",
        silent == 1 ? "it" : "them", peer);
}

static void judge(tutti__control *control, double now)
{
    double oldest = now;

    for (int r = 0; r < control->comm->size; r++) {
        tutti__link *link = &control->links[r];

        if (!watched(control, r))
            continue;
        if (has_unread(link))
            link->heard = now;
        if (now - link->heard >= control->limit_ms && !is_starved(control, r, now)) {
            if (!control->verdict.set)
                accuse(control, r, now);
            return;
        }
        oldest = link->heard < oldest ? link->heard : oldest;
    }
    control->judge_at = oldest + control->limit_ms;
    if (control->judge_at < now + control->beat_ms / 4)
        control->judge_at = now + control->beat_ms / 4;
}

void tutti__heartbeat_turn(tutti__control *control, bool all_read)
{
    double now = tutti__now_ms();

    if (control->limit_ms == 0 || atomic_load(&control->comm->failed))
        return;
    if (now - control->lap > control->beat_ms + control->limit_ms / 4)
        forgive(control, now);
    control->lap = now;
    if (now >= control->next_beat)
        beat(control, now);
    if (now >= control->judge_at && all_read)
        judge(control, now);
}
