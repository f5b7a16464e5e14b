/* heartbeat.c -- a peer that is silent for too long is dead.   SPDX-License-Identifier: MIT
 *
 * Every rank beats to each that it is connected with, its neighbours and a few more, five times per heartbeat interval, and any
 * frame counts as a beat. What one finds out all learn (flood.h). A rank is judged a
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

void tutti__heartbeat_start(tutti__links *links, int heartbeat_ms)
{
    links->heartbeat_ms = heartbeat_ms;
    links->limit_ms = heartbeat_ms * (15.0 / 16);
    links->beat_ms = heartbeat_ms / (double)BEATS;
    links->lap = links->next_beat = tutti__now_ms();
    links->judge_at = links->lap + links->limit_ms;
}

static bool is_alive(const tutti__control *control)
{
    return !atomic_load(&control->comm->failed);
}

static bool any_alive(const tutti__links *links)
{
    const tutti__control *c = links->controls;

    while (c && !is_alive(c))
        c = c->next;
    return c != NULL;
}

int tutti__heartbeat_wait(const tutti__links *links)
{
    double until = links->next_beat < links->judge_at ? links->next_beat : links->judge_at;

    if (links->limit_ms == 0 || !any_alive(links))
        return -1;
    return tutti__poll_ms(until);
}

/* Whether the group, which is alive, needs the rank behind the link. */
static bool needs(const tutti__control *control, int at)
{
    int rank = control->rank_at[at];

    return rank >= 0 && is_alive(control) && !atomic_load(&control->comm->peers[rank].left);
}

static bool watched(const tutti__links *links, int at)
{
    const tutti__link *link = &links->at[at];
    const tutti__control *c = links->controls;

    if (link->state != TUTTI__LINK_OPEN || link->over || !link->known)
        return false;
    while (c && !needs(c, at))
        c = c->next;
    return c != NULL;
}

static void beat(tutti__links *links, double now)
{
    const tutti__wire_head head = {.frame = {.kind = TUTTI__FRAME_BEAT, .id = links->tid}};

    pthread_mutex_lock(&links->lock);
    for (int i = 0; i < links->n_used; i++) {
        const tutti__link *link = &links->at[links->used[i]];

        /* a frame in transit counts as a beat */
        if (link->state == TUTTI__LINK_OPEN && !tutti__link_busy(link))
            tutti__link_send(links, links->used[i], &head, NULL, -1);
    }
    pthread_mutex_unlock(&links->lock);
    links->next_beat = now + links->beat_ms;
}

static void forgive(tutti__links *links, double now)
{
    for (int i = 0; i < links->n_used; i++)
        links->at[links->used[i]].heard = now;
    links->judge_at = now + links->limit_ms;
    tutti_log(TUTTI_LOG_INFO, "comm",
              "group \"%s\": this process did not run for %.3g s, so it ignores its peers' silence",
              links->name, (now - links->lap) / 1e3);
}

/* It has sent bytes that this rank has not read yet. */
static bool has_unread(const tutti__link *link)
{
    int bytes = 0;

    return ioctl(link->fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

/* On this host, its control thread is runnable but waits for a CPU: it is late, not stopped. In another PID namespace
 * /proc may show an unrelated thread under its number; then this errs, but not for long. */
static bool is_starved(const tutti__links *links, int at, double now)
{
    const tutti__link *link = &links->at[at];
    tutti__proc_stat stat;
    char path[80];

    if (!link->is_here || now - link->heard >= PATIENCE * links->limit_ms)
        return false;
    snprintf(path, sizeof path, "/proc/%lld/task/%llu/stat", (long long)link->pid,
             (unsigned long long)link->thread);
    return tutti__proc_stat_read(&stat, path) && stat.state == 'R';
}

/* The group's cause names all its silent ranks. */
static void accuse_in(tutti__control *control, double now)
{
    const tutti__links *links = control->links;
    tutti__comm *comm = control->comm;
    tutti__cause *cause = &control->verdict.cause;
    char names[512] = "", peer[128];
    size_t n = 0;
    int silent = 0, first = -1;

    for (int r = 0; r < comm->size; r++) {
        if (!needs(control, control->members[r].link) ||
            !links->at[control->members[r].link].silent)
            continue;
        first = first < 0 ? r : first;
        tutti__comm_peer_text(comm, r, peer, sizeof peer);
        if (n < sizeof names)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", peer);
        silent++;
    }
    if (silent == 0 || control->verdict.set)
        return;
    tutti__comm_peer_text(comm, comm->rank, peer, sizeof peer);
    control->verdict = (tutti__verdict){.set = true, .lost = -1};
    cause->status = TUTTI_ERR_PEER;
    cause->culprit = first;
    snprintf(
        cause->text, sizeof cause->text,
        "%s %s not been heard from for %.3g s (heartbeat %.3g s): stopped (SIGSTOP, a debugger), "
        "%s frozen, or the link to %s cut; reported by %s. TUTTI_HEARTBEAT_S sets the limit, 0 "
        "disables it",
        names, silent == 1 ? "has" : "have",
        (now - links->at[control->members[first].link].heard) / 1e3, links->heartbeat_ms / 1e3,
        silent == 1 ? "its machine" : "their machines", silent == 1 ? "it" : "them", peer);
}

/* Blames all peers that have missed beats, like `first`, in all groups. */
static void accuse(tutti__links *links, int first, double now)
{
    for (int i = 0; i < links->n_used; i++) {
        const int at = links->used[i];
        tutti__link *link = &links->at[at];
        bool late = now - link->heard >= links->limit_ms - links->beat_ms;

        /* `first` has been judged already: its state may look different now. */
        link->silent = at == first || (watched(links, at) && late && !has_unread(link) &&
                                       !is_starved(links, at, now));
    }
    for (tutti__control *c = links->controls; c; c = c->next)
        accuse_in(c, now);
}

static void judge(tutti__links *links, double now)
{
    double oldest = now;

    for (int i = 0; i < links->n_used; i++) {
        const int at = links->used[i];
        tutti__link *link = &links->at[at];

        if (!watched(links, at))
            continue;
        if (has_unread(link))
            link->heard = now;
        if (now - link->heard >= links->limit_ms && !is_starved(links, at, now)) {
            accuse(links, at, now);
            return;
        }
        oldest = link->heard < oldest ? link->heard : oldest;
    }
    links->judge_at = oldest + links->limit_ms;
    if (links->judge_at < now + links->beat_ms / 4)
        links->judge_at = now + links->beat_ms / 4;
}

void tutti__heartbeat_turn(tutti__links *links, bool all_read)
{
    double now = tutti__now_ms();

    if (links->limit_ms == 0 || !any_alive(links))
        return;
    if (now - links->lap > links->beat_ms + links->limit_ms / 4)
        forgive(links, now);
    links->lap = now;
    if (now >= links->next_beat)
        beat(links, now);
    if (now >= links->judge_at && all_read)
        judge(links, now);
}
