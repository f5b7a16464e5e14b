/* group_descriptors.c -- whether a group's descriptors are within the limit of open files.   SPDX-License-Identifier: MIT */
#include "comm/group_join.h"

#include "comm/algorithm/tuner.h"
#include "comm/bootstrap/store/store.h"
#include "comm/core/tree.h"

#include <dirent.h>
#include <sys/resource.h>

/* LISTENING: a socket, and the acceptor's two; CONTROL: the control channel's own. */
enum { LISTENING = 3, CONTROL = 2 };

/* How many this process has open; without /proc, the three that every process has. */
static int count_open(void)
{
    DIR *folder = opendir("/proc/self/fd");
    const struct dirent *entry;
    int n = 0;

    while (folder && (entry = readdir(folder)) != NULL)
        n += *entry->d_name != '.';
    if (folder)
        closedir(folder);
    return n > 0 ? n - 1 : 3; /* without the folder's */
}

/* Over TCP, the peers with which a rank is connected when the group is made: all in a small one, else the ranks 1, 2, 4, ... before and
 * after it, in which it measures links and waits for all. */
static int count_data_peers(int size)
{
    int n = 0;

    if (size <= TUTTI__TUNER_DIRECT)
        return size - 1;
    for (int step = 1; step < size; step *= 2) {
        bool new = true, other = 2 * step != size;

        for (int before = 1; before < step; before *= 2)
            new = new &&before != size - step;
        n += new + (new &&other);
    }
    return n;
}

tutti_status tutti__check_descriptors(const tutti_group *group, bool known)
{
    const tutti__bootstrap *boot = &group->boot;
    const int size = group->comm.size,
              clients = boot->store && boot->store->hosted && !known
                            ? size - 1 - tutti__store_n_clients(boot->store)
                            : 0;
    const bool tcp = (known ? group->plan.tcp : boot->tcp) && !boot->mpi;
    struct rlimit limit;
    int near[TUTTI__NEIGHBOURS];
    int least = count_open() + (known ? 0 : LISTENING + !tcp) + CONTROL +
                tutti__tree_neighbours(group->comm.rank, size, near) + (clients > 0 ? clients : 0) +
                (tcp ? 1 + count_data_peers(size) : 0);

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= (rlim_t)least)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_MEMORY,
                       "it needs connections to other ranks%s and a few files more, at least %d, "
                       "but may open %llu (ulimit -n): raise that",
                       clients > 0 ? ", one from each to the store that it hosts," : "", least,
                       (unsigned long long)limit.rlim_cur);
}
