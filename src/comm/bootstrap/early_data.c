/* early_data.c -- connections for data that nobody has taken yet.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/early_data.h"

#include "comm/bootstrap/peer_info.h"

#include <stdlib.h>
#include <unistd.h>

enum { MOST = 65536 };

static tutti__early_data *find(const tutti__early_data *list, uint64_t group, int rank, int channel)
{
    const tutti__early_data *e = list;

    while (e && (e->group != group || e->rank != rank || e->channel != channel))
        e = e->next;
    return (tutti__early_data *)(uintptr_t)e;
}

char tutti__early_data_decide(const tutti__early_data *list, const tutti__claim *claim, int own)
{
    const int rank = (int)claim->rank - 1;
    int n = 0;

    /* the higher of two ranks connects */
    if (rank <= own || claim->channel > TUTTI__MAX_SOCKETS)
        return TUTTI__UNKNOWN;
    for (const tutti__early_data *e = list; e; e = e->next)
        n++;
    return find(list, claim->group, rank, (int)claim->channel) ? TUTTI__TAKEN
           : n < MOST                                          ? TUTTI__WELCOME
                                                               : TUTTI__UNKNOWN;
}

void tutti__early_data_keep(tutti__early_data **list_p, int fd, const tutti__claim *claim)
{
    tutti__early_data *early = malloc(sizeof *early);

    if (!early) {
        close(fd);
        return;
    }
    *early = (tutti__early_data){.next = *list_p,
                                 .group = claim->group,
                                 .rank = (int)claim->rank - 1,
                                 .channel = (int)claim->channel,
                                 .fd = fd,
                                 .came_ms = tutti__now_ms()};
    *list_p = early;
}

void tutti__early_data_drop(tutti__early_data **list_p)
{
    tutti__early_data *early = *list_p;

    *list_p = early->next;
    if (early->fd >= 0)
        close(early->fd);
    free(early);
}

int tutti__early_data_take(tutti__early_data **list_p, uint64_t group, int rank, int channel)
{
    tutti__early_data *early = find(*list_p, group, rank, channel);
    int fd;

    if (!early)
        return -1;
    fd = early->fd;
    early->fd = -1;
    while (*list_p != early)
        list_p = &(*list_p)->next;
    tutti__early_data_drop(list_p);
    return fd;
}
