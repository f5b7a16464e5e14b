/* agent_client.c -- messages to and from the launcher's agent on this host.   SPDX-License-Identifier: MIT */
#include "elastic/elastic_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

tutti_status tutti__agent_find(int *fd_p)
{
    const char *text = tutti__env_text(TUTTI__ENV_AGENT_FD);
    int64_t fd;
    int type = 0;
    socklen_t size = sizeof type;

    *fd_p = -1;
    if (!*text)
        return TUTTI_OK;
    if (!tutti__parse_int64(text, &fd) || fd < 0 || fd > INT32_MAX ||
        getsockopt((int)fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "TUTTI_AGENT_FD is \"%.40s\", which is not an open socket of an agent: only "
            "tutti run sets it, and a wrapper around this program must pass the "
            "descriptor on, or unset the variable",
            text);
    fcntl((int)fd, F_SETFD, FD_CLOEXEC);
    *fd_p = (int)fd;
    return TUTTI_OK;
}

static tutti_status fail_gone(void)
{
    return tutti__fail(TUTTI_ERR_PEER, "the launcher's agent on this host (tutti run) has ended, "
                                       "and without it workers cannot form new groups");
}

tutti_status tutti__agent_say(tutti_elastic *e, tutti__worker_message_kind kind)
{
    tutti__worker_message message = {.protocol = TUTTI__AGENT_PROTOCOL,
                                     .kind = kind,
                                     .generation = e->generation,
                                     .shards = e->opts.shards,
                                     .step = e->has_state ? (int64_t)e->step
                                             : e->forgot  ? TUTTI__STATE_WAS_SHARED
                                                          : -1,
                                     .n_lost = e->n_lost};
    /* COMMITTED is only for monitoring: it is dropped rather than waited for. */
    const int flags = MSG_NOSIGNAL | (kind == TUTTI__WORKER_COMMITTED ? MSG_DONTWAIT : 0);
    ssize_t n;

    if (e->agent < 0)
        return TUTTI_OK;
    memcpy(message.lost, e->lost, sizeof message.lost);
    snprintf(message.build, sizeof message.build, "%s", tutti__build_text());
    snprintf(message.why, sizeof message.why, "%s", e->why);
    if (kind == TUTTI__WORKER_READY)
        snprintf(message.settings, sizeof message.settings, "%s", e->settings);
    do
        n = send(e->agent, &message, tutti__worker_message_bytes(&message), flags);
    while (n < 0 && errno == EINTR);
    return n >= 0 || errno == EAGAIN ? TUTTI_OK : fail_gone();
}

static tutti_status take(tutti_elastic *e, const tutti__agent_message *message)
{
    switch ((tutti__agent_message_kind)message->kind) {
    case TUTTI__AGENT_GENERATION:
        if (message->generation > e->generation) {
            e->call = *message;
            e->called = true;
        }
        return TUTTI_OK;
    case TUTTI__AGENT_REGROUP:
        if (e->called && message->generation == e->call.generation) {
            e->called = false; /* that generation ended before this worker began to form it */
            e->generation = message->generation;
            e->said_ready = false;
        } else if (message->generation == 0 || message->generation == e->generation) {
            e->asked_to_regroup = true;
        }
        return TUTTI_OK;
    case TUTTI__AGENT_LEAVE:
        e->asked_to_leave = true;
        return TUTTI_OK;
    case TUTTI__AGENT_LAST:
        e->no_other = true;
        return TUTTI_OK;
    case TUTTI__AGENT_REFUSED:
        return tutti__fail(TUTTI_ERR_ARG, "the job refuses this worker: %.*s",
                           (int)sizeof message->why, message->why);
    default:
        return tutti__fail(TUTTI_ERR_INTERNAL,
                           "the launcher's agent sent an unknown message of kind %u",
                           message->kind);
    }
}

tutti_status tutti__agent_hear(tutti_elastic *e, bool wait)
{
    tutti__agent_message message;

    while (e->agent >= 0) {
        ssize_t n = recv(e->agent, &message, sizeof message, wait ? 0 : MSG_DONTWAIT);

        /* ECONNRESET: the agent closed its end without reading all; its last messages can still be received. */
        if (n < 0 && (errno == EINTR || errno == ECONNRESET))
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (!wait)
                return TUTTI_OK;
            (void)poll(&(struct pollfd){e->agent, POLLIN, 0}, 1, -1);
            continue;
        }
        if (n <= 0)
            return fail_gone();
        if (n != sizeof message || message.protocol != TUTTI__AGENT_PROTOCOL)
            return tutti__fail(TUTTI_ERR_ARG,
                               "the launcher's agent (tutti run) speaks another protocol than this "
                               "program's library, %s: both must be of one version of Tutti",
                               TUTTI_VERSION);
        TUTTI_TRY(take(e, &message));
        wait = false;
    }
    return TUTTI_OK;
}
