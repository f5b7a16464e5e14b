/* watcher.c -- a thread that notices what happens on the sockets to peers.   SPDX-License-Identifier: MIT */
#include "comm/group.h"
#include "comm/thread.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { TELL_MS = 20 };

struct tutti__watcher {
    tutti_group *group;
    bool (*seen)(tutti_group *group, int rank, int fd);
    int n, stop;
    pthread_t thread;
    struct pollfd fds[]; /* one a rank, then `stop` */
};

/* The group is dead, and no call of this rank may ever say so: it computes, or hangs. One that is on its way comes first,
 * since it knows more. */
static void tell(tutti__watcher *w)
{
    if (atomic_load(&w->group->failed) && !atomic_load(&w->group->reported) &&
        poll(&w->fds[w->n], 1, TELL_MS) == 0)
        tutti__flight_report(w->group);
}

static void *watcher_main(void *arg)
{
    tutti__watcher *w = arg;

    tutti__log_set_rank(w->group->rank);
    for (;;) {
        if (poll(w->fds, (nfds_t)w->n + 1, -1) < 0) {
            if (errno == EINTR)
                continue; /* `revents` is that of the last time */
            tutti_log(TUTTI_LOG_ERROR, "comm", "group \"%s\" is no longer watched: %s",
                      w->group->name, strerror(errno));
            return NULL;
        }
        if (w->fds[w->n].revents)
            return NULL;
        for (int r = 0; r < w->n; r++)
            if (w->fds[r].fd >= 0 && w->fds[r].revents && !w->seen(w->group, r, w->fds[r].fd))
                w->fds[r].fd = -1;
        tell(w);
    }
}

tutti_status tutti__watcher_new(tutti__watcher **watcher_p, tutti_group *group, const int *fds,
                                bool reads, bool (*seen)(tutti_group *group, int rank, int fd))
{
    tutti__watcher *w = tutti__alloc(sizeof *w + ((size_t)group->size + 1) * sizeof w->fds[0]);
    int error;

    *watcher_p = NULL;
    if (!w)
        return TUTTI_ERR_MEMORY;
    w->group = group;
    w->seen = seen;
    w->n = group->size;
    for (int r = 0; r < w->n; r++)
        w->fds[r] = (struct pollfd){fds[r], (short)(POLLRDHUP | (reads ? POLLIN : 0)), 0};
    w->stop = eventfd(0, EFD_CLOEXEC);
    w->fds[w->n] = (struct pollfd){w->stop, POLLIN, 0};
    error = w->stop < 0 ? errno : tutti__thread_start(&w->thread, watcher_main, w);
    if (error) {
        if (w->stop >= 0)
            close(w->stop);
        free(w);
        return tutti__fail_errno(
            error, "cannot start the thread that watches the peers of group \"%s\"", group->name);
    }
    *watcher_p = w;
    return TUTTI_OK;
}

void tutti__watcher_free(tutti__watcher *w)
{
    if (!w)
        return;
    if (write(w->stop, &(uint64_t){1}, sizeof(uint64_t)) > 0)
        pthread_join(w->thread, NULL);
    close(w->stop);
    free(w);
}
