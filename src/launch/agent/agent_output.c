/* agent_output.c -- what a job of many nodes says once, if all their launchers write to one place.   SPDX-License-Identifier: MIT
 *
 * What concerns all nodes is said by the one that coordinates. Workers' messages go there, so that those of all nodes are merged. The
 * report of a failure is held back until it is known which node's was the first. */
#include "launch/agent/agent_parts.h"

#include <unistd.h>

bool tutti__agent_speaks(const tutti__agent *a)
{
    return !a->job->merges || a->membership.coordinator;
}

void tutti__agent_show_held(tutti__agent *a, bool shown)
{
    tutti__console *held = &a->held;

    if (shown && !tutti__console_empty(held))
        tutti__console_add(&a->console, STDERR_FILENO, held->bytes + held->begin,
                           held->end - held->begin);
    held->begin = held->end = held->first = held->n_parts = 0;
}

static bool forward(void *context, int rank, const char *prefix, const char *line, size_t bytes)
{
    tutti__agent *a = context;
    char text[8192];

    if (!a->membership.connected || bytes >= sizeof text)
        return false;
    bytes -= bytes > 0 && line[bytes - 1] == '\n';
    snprintf(text, sizeof text, "%.*s", (int)bytes, line);
    tutti__membership_send(&a->membership, tutti__message_pack_line(&(tutti__message_line){
                                               .rank = rank, .prefix = prefix, .text = text}));
    return true;
}

void tutti__agent_merge_output(tutti__agent *a)
{
    if (!a->job->merges)
        return;
    a->held.title = a->console.title;
    a->workers.held = &a->held;
    a->console.forward = forward;
    a->console.context = a;
}
