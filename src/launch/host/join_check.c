/* join_check.c -- checks whether a node may take part in a job.   SPDX-License-Identifier: MIT */
#include "launch/host/coordinator.h"

#include <stdlib.h>
#include <string.h>

enum { CLOCK_S = 5 /* clocks that differ by more make logs and files hard to read */ };

/* As the user wrote it. */
static void write_nnodes(int min, int max, char *text, size_t bytes)
{
    if (min == max)
        snprintf(text, bytes, "%d", max);
    else
        snprintf(text, bytes, "%d:%d", min, max);
}

bool tutti__join_misfit(const tutti__job *job, const tutti__message_join *m, char *why,
                        size_t bytes)
{
    const tutti__nodes *l = &job->opts.nodes;
    char its[32], ours[32];

    write_nnodes(m->min, m->max, its, sizeof its);
    write_nnodes(l->min, l->max, ours, sizeof ours);
    if (m->protocol != TUTTI__RENDEZVOUS_PROTOCOL || strcmp(m->version, TUTTI_VERSION) != 0)
        snprintf(why, bytes,
                 "it runs tutti %.20s, the rendezvous host %s: install the same on all nodes",
                 m->version, TUTTI_VERSION);
    else if (m->min != l->min || m->max != l->max)
        snprintf(
            why, bytes,
            "it was started with --nnodes %s, the rendezvous host with %s: all nodes need the same",
            its, ours);
    else if (m->native != l->native)
        snprintf(why, bytes, "it was started with --rdzv-backend %s, the rendezvous host with %s",
                 l->native ? "static" : "native", l->native ? "native" : "static");
    else if (m->invalid)
        snprintf(why, bytes, "its message makes no sense (%s)", m->invalid);
    else if (m->running && m->rounds < 1)
        snprintf(why, bytes, "its message makes no sense (running without a round)");
    else if (!l->native && (m->node_rank < 0 || m->node_rank >= l->max))
        snprintf(why, bytes, "its --node-rank is %d, expected 0 to %d", m->node_rank, l->max - 1);
    else
        return false;
    return true;
}

void tutti__join_warn(const tutti__job *job, tutti__console *console, const tutti__message_join *m)
{
    int64_t ahead = (m->clock >> 40 == 0 ? m->clock : 0) - (int64_t)tutti__wall_seconds();

    if (ahead > CLOCK_S || ahead < -CLOCK_S)
        tutti__console_say(
            console,
            "the clock of node %.63s is %lld s %s of this one's: times in logs will not fit "
            "(is NTP running?)",
            m->host, (long long)llabs(ahead), ahead > 0 ? "ahead" : "behind");
    if (m->max_restarts != job->opts.max_restarts)
        tutti__console_say(
            console,
            "node %.63s was started with --max-restarts %d; %d, of the rendezvous host, "
            "counts",
            m->host, m->max_restarts, job->opts.max_restarts);
}
