/* port_owner.c -- finds a port's socket (/proc/net/tcp), and the process that has it (/proc/PID/fd).
 * SPDX-License-Identifier: MIT */
#include "launch/process/port_owner.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LISTENING = 10 /* TCP_LISTEN of the kernel */ };

typedef struct listener {
    unsigned long inode;
    unsigned user;
} listener;

/* The first socket of this table that listens on the port. */
static bool find_listener(const char *table, int port, listener *found)
{
    FILE *file = fopen(table, "re");
    char line[512];
    bool done = false;

    while (file && !done && fgets(line, sizeof line, file)) {
        unsigned at, state;

        /* sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode */
        done = sscanf(line, " %*d: %*32[0-9A-Fa-f]:%x %*s %x %*s %*s %*s %u %*d %lu", &at, &state,
                      &found->user, &found->inode) == 4 &&
               at == (unsigned)port && state == LISTENING;
    }
    if (file)
        fclose(file);
    return done;
}

/* Whether one of the descriptors of /proc/PID is that socket. Other users' descriptors are not readable. */
static bool has_socket(const char *pid, const char *socket)
{
    char path[64], target[64];
    struct dirent *entry;
    bool found = false;
    DIR *dir;

    snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
    dir = opendir(path);
    while (dir && !found && (entry = readdir(dir))) {
        ssize_t n = readlinkat(dirfd(dir), entry->d_name, target, sizeof target - 1);

        target[n > 0 ? n : 0] = '\0';
        found = strcmp(target, socket) == 0;
    }
    if (dir)
        closedir(dir);
    return found;
}

static void read_name(const char *pid, char *name, size_t capacity)
{
    char path[64];
    FILE *file;

    snprintf(path, sizeof path, "/proc/%.20s/comm", pid);
    file = fopen(path, "re");
    if (!file || !fgets(name, (int)capacity, file))
        snprintf(name, capacity, "?");
    name[strcspn(name, "\n")] = '\0';
    if (file)
        fclose(file);
}

bool tutti__port_owner(int port, char *text, size_t bytes)
{
    char socket[64], name[32];
    struct dirent *entry;
    bool seen = false;
    listener found;
    DIR *dir;

    *text = '\0';
    if (!find_listener("/proc/net/tcp", port, &found) &&
        !find_listener("/proc/net/tcp6", port, &found))
        return false;
    snprintf(socket, sizeof socket, "socket:[%lu]", found.inode);
    dir = opendir("/proc");
    while (dir && !seen && (entry = readdir(dir))) {
        seen = isdigit((unsigned char)entry->d_name[0]) && has_socket(entry->d_name, socket);
        if (seen) {
            read_name(entry->d_name, name, sizeof name);
            snprintf(text, bytes, "process %.20s (%s) of user %u", entry->d_name, name, found.user);
        }
    }
    if (dir)
        closedir(dir);
    if (!seen)
        snprintf(text, bytes, "a process of user %u", found.user);
    return true;
}
