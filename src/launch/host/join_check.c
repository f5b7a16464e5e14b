/* join_check.c -- checks whether a node may take part in a job.   SPDX-License-Identifier: MIT */
#include "launch/message/connection.h"
#include "launch/host/coordinator.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CLOCK_S = 5 /* clocks that differ by more make logs and files hard to read */ };

/* As the user wrote it. */
static void write_nnodes(int min, int max, char *text, size_t bytes)
{
    if (min == max)
        snprintf(text, bytes, "%d", max);
    else
        snprintf(text, bytes, "%d:%d", min, max);
}

static bool is_out_of_range(const json_t *m, const char *name, int64_t lowest, int64_t highest)
{
    int64_t value = tutti__message_number(m, name, 0);

    return value < lowest || value > highest;
}

bool tutti__join_misfit(const tutti__job *job, const json_t *m, char *why, size_t bytes)
{
    const tutti__nodes *l = &job->opts.nodes;
    int min = (int)tutti__message_number(m, "min", 0),
        max = (int)tutti__message_number(m, "max", 0),
        rank = (int)tutti__message_number(m, "node_rank", -1);
    const char *version = tutti__message_text(m, "version");
    char its[32], ours[32];

    write_nnodes(min, max, its, sizeof its);
    write_nnodes(l->min, l->max, ours, sizeof ours);
    if (tutti__message_number(m, "protocol", 0) != TUTTI__RENDEZVOUS_PROTOCOL ||
        strcmp(version, TUTTI_VERSION) != 0)
        snprintf(why, bytes,
                 "it runs tutti %.20s, the rendezvous host %s: install the same on all nodes",
                 version, TUTTI_VERSION);
    else if (min != l->min || max != l->max)
        snprintf(
            why, bytes,
            "it was started with --nnodes %s, the rendezvous host with %s: all nodes need the same",
            its, ours);
    else if (json_is_true(json_object_get(m, "native")) != l->native)
        snprintf(why, bytes, "it was started with --rdzv-backend %s, the rendezvous host with %s",
                 l->native ? "static" : "native", l->native ? "native" : "static");
    else if (is_out_of_range(m, "workers", 1, 1 << 16) || is_out_of_range(m, "port", 1, 65535) ||
             is_out_of_range(m, "listens", 0, 65535))
        snprintf(why, bytes, "its message makes no sense (%lld workers, port %lld)",
                 (long long)tutti__message_number(m, "workers", 0),
                 (long long)tutti__message_number(m, "port", 0));
    else if (is_out_of_range(m, "rounds", 0, (1 << 30) - 1) ||
             is_out_of_range(m, "restarts", 0, (1 << 30) - 1) ||
             is_out_of_range(m, "group_rank", 0, 1 << 16) || is_out_of_range(m, "me", 0, 1 << 30) ||
             (json_is_true(json_object_get(m, "running")) &&
              tutti__message_number(m, "rounds", 0) < 1) ||
             is_out_of_range(m, "first_rank", 0, 1 << 30))
        snprintf(why, bytes, "its message makes no sense (%lld rounds, %lld restarts)",
                 (long long)tutti__message_number(m, "rounds", 0),
                 (long long)tutti__message_number(m, "restarts", 0));
    else if (!l->native && (rank < 0 || rank >= l->max))
        snprintf(why, bytes, "its --node-rank is %d, expected 0 to %d", rank, l->max - 1);
    else
        return false;
    return true;
}

void tutti__join_warn(const tutti__job *job, tutti__console *console, const json_t *m)
{
    int64_t clock = tutti__message_number(m, "clock", 0),
            ahead = (clock >> 40 == 0 ? clock : 0) - (int64_t)time(NULL);
    int restarts = (int)tutti__message_number(m, "max_restarts", 0);
    const char *host = tutti__message_text(m, "host");

    if (ahead > CLOCK_S || ahead < -CLOCK_S)
        tutti__console_say(
            console,
            "the clock of node %.63s is %lld s %s of this one's: times in logs will not fit "
            "(is NTP running?)",
            host, (long long)llabs(ahead), ahead > 0 ? "ahead" : "behind");
    if (restarts != job->opts.max_restarts)
        tutti__console_say(
            console,
            "node %.63s was started with --max-restarts %d; %d, of the rendezvous host, "
            "counts",
            host, restarts, job->opts.max_restarts);
}
