/* heartbeat.c -- a peer that is silent for too long is dead.   SPDX-License-Identifier: MIT
 *
 * Every rank beats to every other five times in the heartbeat, and any frame counts as a beat. A rank is judged a little
 * before a whole heartbeat of silence, so that all know within one. Who was itself away (stopped, suspended, starved of
 * its processor) knows nothing of the others: it forgives them and starts anew; and one of this host that is seen to wait
 * for a processor is given more time. A rank that has never been heard is still setting up, which has its own time limit. */
#include "comm/post.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { BEATS = 5, PATIENCE = 4 };

void tutti__heartbeat_start(tutti__post *post, int heartbeat_ms)
{
    post->heartbeat_ms = heartbeat_ms;
    post->limit_ms = heartbeat_ms * (15.0 / 16);
    post->beat_ms = heartbeat_ms / (double)BEATS;
    post->lap = post->next_beat = tutti__now_ms();
    post->judge_at = post->lap + post->limit_ms;
}

int tutti__heartbeat_wait(const tutti__post *post)
{
    double until = post->next_beat < post->judge_at ? post->next_beat : post->judge_at;

    if (post->limit_ms == 0 || atomic_load(&post->group->failed))
        return -1;
    return tutti__poll_ms(until);
}

static bool watched(const tutti__post *post, int rank)
{
    const tutti__link *link = &post->links[rank];

    return !link->over && link->known && !atomic_load(&post->group->peers[rank].left);
}

static void beat(tutti__post *post, double now)
{
    const tutti__frame head = {.kind = TUTTI__FRAME_BEAT, .id = post->tid};

    for (int r = 0; r < post->group->size; r++)
        if (!tutti__link_busy(&post->links[r])) /* what is under way will be heard as well */
            tutti__post_say(post, r, &head, NULL, -1);
    post->next_beat = now + post->beat_ms;
}

static void forgive(tutti__post *post, double now)
{
    for (int r = 0; r < post->group->size; r++)
        post->links[r].heard = now;
    post->judge_at = now + post->limit_ms;
    tutti_log(TUTTI_LOG_INFO, "comm",
              "group \"%s\": this process was away for %.3g s, so it forgives its peers' silence",
              post->group->name, (now - post->lap) / 1e3);
}

/* Something lies there that this rank has not come to read. */
static bool has_unread(const tutti__link *link)
{
    int bytes = 0;

    return ioctl(link->fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

/* Its post has work and no processor, on this host: it is late, not stopped. Where /proc shows another's threads under its
 * numbers, this errs, but not for long. */
static bool is_starved(const tutti__post *post, int rank, double now)
{
    const tutti__link *link = &post->links[rank];
    const tutti__peer *peer = &post->group->peers[rank],
                      *self = &post->group->peers[post->group->rank];
    char path[80], stat[128] = "";
    const char *end;
    ssize_t n;
    int fd;

    if (strcmp(peer->host, self->host) != 0 || now - link->heard >= PATIENCE * post->limit_ms)
        return false;
    snprintf(path, sizeof path, "/proc/%lld/task/%llu/stat", (long long)peer->pid,
             (unsigned long long)link->thread);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd >= 0 ? read(fd, stat, sizeof stat - 1) : 0;
    if (fd >= 0)
        close(fd);
    end = n > 0 ? strrchr(stat, ')') : NULL; /* "4711 (name) R ..." */
    return end && end[1] == ' ' && end[2] == 'R';
}

/* All that have missed beats, as the first to be judged has. */
static void accuse(tutti__post *post, int first, double now)
{
    tutti_group *group = post->group;
    tutti__cause *cause = &post->verdict.cause;
    char names[512] = "", peer[128];
    size_t n = 0;
    int silent = 0;

    for (int r = 0; r < group->size; r++) {
        if (!watched(post, r) || now - post->links[r].heard < post->limit_ms - post->beat_ms ||
            has_unread(&post->links[r]) || is_starved(post, r, now))
            continue;
        tutti__peer_text(group, r, peer, sizeof peer);
        if (n < sizeof names)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", peer);
        silent++;
    }
    tutti__peer_text(group, group->rank, peer, sizeof peer);
    post->verdict = (tutti__verdict){.set = true, .lost = -1};
    cause->status = TUTTI_ERR_PEER;
    cause->culprit = first;
    snprintf(
        cause->text, sizeof cause->text,
        "%s %s not been heard for %.3g s (heartbeat %.3g s): stopped (SIGSTOP, a debugger), "
        "%s frozen, or the link to %s cut; so %s declared. TUTTI_HEARTBEAT_S sets the limit, 0 "
        "lifts it",
        names, silent == 1 ? "has" : "have", (now - post->links[first].heard) / 1e3,
        post->heartbeat_ms / 1e3, silent == 1 ? "its machine" : "their machines",
        silent == 1 ? "it" : "them", peer);
}

static void judge(tutti__post *post, double now)
{
    double oldest = now;

    for (int r = 0; r < post->group->size; r++) {
        tutti__link *link = &post->links[r];

        if (!watched(post, r))
            continue;
        if (has_unread(link))
            link->heard = now;
        if (now - link->heard >= post->limit_ms && !is_starved(post, r, now)) {
            if (!post->verdict.set)
                accuse(post, r, now);
            return;
        }
        oldest = link->heard < oldest ? link->heard : oldest;
    }
    post->judge_at = oldest + post->limit_ms;
    if (post->judge_at < now + post->beat_ms / 4)
        post->judge_at = now + post->beat_ms / 4;
}

void tutti__heartbeat_turn(tutti__post *post, bool all_read)
{
    double now = tutti__now_ms();

    if (post->limit_ms == 0 || atomic_load(&post->group->failed))
        return;
    if (now - post->lap > post->beat_ms + post->limit_ms / 4)
        forgive(post, now);
    post->lap = now;
    if (now >= post->next_beat)
        beat(post, now);
    if (now >= post->judge_at && all_read)
        judge(post, now);
}
