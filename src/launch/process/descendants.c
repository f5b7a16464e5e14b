/* descendants.c -- finds this process's descendants in /proc.   SPDX-License-Identifier: MIT */
#include "launch/process/descendants.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct process {
    pid_t pid, parent, group;
    char state;
    bool ours;
} process;

/* False: it has ended, or cannot be read. */
static bool read_process(const char *name, process *p)
{
    tutti__proc_stat stat;
    char path[64];

    snprintf(path, sizeof path, "/proc/%.20s/stat", name);
    if (!tutti__proc_stat_read(&stat, path))
        return false;
    *p = (process){(pid_t)atoi(name), (pid_t)stat.parent, (pid_t)stat.group, stat.state, false};
    return true;
}

bool tutti__process_is_stopped(pid_t pid)
{
    char name[16];
    process p;

    snprintf(name, sizeof name, "%d", (int)pid);
    return read_process(name, &p) && (p.state == 'T' || p.state == 't');
}

/* All processes; the caller frees. NULL: no /proc, or no memory. */
static process *list_processes(size_t *n_p)
{
    process *list = NULL;
    size_t capacity = 0;
    DIR *dir = opendir("/proc");
    struct dirent *entry;

    *n_p = 0;
    while (dir && (entry = readdir(dir))) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
            continue;
        if (*n_p == capacity) {
            process *more = realloc(list, (capacity = capacity * 2 + 256) * sizeof *list);

            if (!more)
                break;
            list = more;
        }
        *n_p += read_process(entry->d_name, &list[*n_p]);
    }
    if (dir)
        closedir(dir);
    return list;
}

static int by_number(const void *a, const void *b)
{
    pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

    return (x > y) - (x < y);
}

void tutti__sort_pids(pid_t *list, size_t n)
{
    if (n > 0)
        qsort(list, n, sizeof *list, by_number);
}

static int by_pid(const void *a, const void *b)
{
    pid_t x = ((const process *)a)->pid, y = ((const process *)b)->pid;

    return (x > y) - (x < y);
}

/* Marks descendants until nothing changes: pids wrap around, so a parent's may be larger. spared: sorted. */
static void mark_descendants(process *list, size_t n, const pid_t *spared, size_t n_spared)
{
    pid_t self = getpid();
    bool changed = true;

    qsort(list, n, sizeof *list, by_pid);
    while (changed) {
        changed = false;
        for (size_t i = 0; i < n; i++) {
            process key = {.pid = list[i].parent}, *parent;

            if (list[i].ours)
                continue;
            parent = bsearch(&key, list, n, sizeof *list, by_pid);
            list[i].ours =
                (parent && parent->ours) ||
                (list[i].parent == self && !(n_spared > 0 && bsearch(&list[i].pid, spared, n_spared,
                                                                     sizeof *spared, by_number)));
            changed |= list[i].ours;
        }
    }
}

int tutti__signal_descendants(int sig, const pid_t *spared, size_t n_spared)
{
    size_t n;
    process *list = list_processes(&n);
    int found = 0;

    if (!list)
        return -1;
    mark_descendants(list, n, spared, n_spared);
    for (size_t i = 0; i < n; i++) {
        if (!list[i].ours || list[i].state == 'Z' || list[i].state == 'X')
            continue;
        kill(list[i].pid, sig);
        found++;
    }
    free(list);
    return found;
}

size_t tutti__list_children(pid_t *children, size_t capacity)
{
    size_t n, n_children = 0;
    siginfo_t unused;
    process *list;

    if (waitid(P_ALL, 0, &unused, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD)
        return 0; /* the usual case, without reading all of /proc */
    list = list_processes(&n);
    for (size_t i = 0; i < n && n_children < capacity; i++)
        if (list[i].parent == getpid())
            children[n_children++] = list[i].pid;
    tutti__sort_pids(children, n_children);
    free(list);
    return n_children;
}

size_t tutti__list_group(pid_t group, pid_t *members, size_t capacity)
{
    size_t n, n_members = 0;
    process *list = list_processes(&n);

    for (size_t i = 0; i < n && n_members < capacity; i++)
        if (list[i].group == group)
            members[n_members++] = list[i].pid;
    free(list);
    return n_members;
}

/* Of the nearest group that counts; it includes those below. */
static void note_kills(void *user, const char *text)
{
    const char *line = strstr(text, "oom_kill ");
    long *kills = user;

    if (*kills < 0 && line)
        *kills = atol(line + strlen("oom_kill "));
}

long tutti__oom_kills(void)
{
    char text[16384];
    long kills = -1;

    tutti__visit_cgroups("memory.events", "memory", "memory.oom_control", note_kills, &kills);
    if (kills < 0 && tutti__slurp("/proc/vmstat", text, sizeof text))
        note_kills(&kills, text);
    return kills;
}
