/* chaos_cut.c -- shuts down the TCP connections of descendant processes.   SPDX-License-Identifier: MIT
 *
 * pidfd_getfd duplicates a socket of theirs; shutting it down ends the connection for both. A pidfd refers to one process, so
 * that a later process with the same number is not affected. */
#include "launch/chaos/chaos.h"
#include "launch/process/descendants.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int open_process(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

static int get_descriptor(int process, int fd)
{
    return (int)syscall(SYS_pidfd_getfd, process, fd, 0);
}

static bool option(int fd, int name, int *value_p)
{
    socklen_t bytes = sizeof *value_p;

    return getsockopt(fd, SOL_SOCKET, name, value_p, &bytes) == 0;
}

static bool is_tcp_connection(int fd)
{
    struct sockaddr_storage peer;
    socklen_t bytes = sizeof peer;
    int domain, type;

    return option(fd, SO_DOMAIN, &domain) && (domain == AF_INET || domain == AF_INET6) &&
           option(fd, SO_TYPE, &type) && type == SOCK_STREAM &&
           getpeername(fd, (struct sockaddr *)&peer, &bytes) == 0;
}

static bool is_socket(int fds, const char *name)
{
    char target[16];

    return readlinkat(fds, name, target, sizeof target) >= 8 && memcmp(target, "socket:[", 8) == 0;
}

static int cut_process(pid_t pid, pid_t group, int *error_p)
{
    char path[32];
    struct dirent *entry;
    int process = open_process(pid), n = 0;
    DIR *dir = NULL;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    if (process >= 0)
        dir = opendir(path);
    if (!dir && errno != ESRCH && errno != ENOENT) /* else it has ended */
        *error_p = errno;
    while (dir && getpgid(pid) == group && (entry = readdir(dir))) {
        int fd;

        if (!is_socket(dirfd(dir), entry->d_name))
            continue;
        fd = get_descriptor(process, atoi(entry->d_name));
        if (fd < 0 && errno != EBADF && errno != ESRCH)
            *error_p = errno;
        if (fd < 0)
            continue;
        n += is_tcp_connection(fd) && shutdown(fd, SHUT_RDWR) == 0;
        close(fd);
    }
    if (dir)
        closedir(dir);
    if (process >= 0)
        close(process);
    return n;
}

int tutti__chaos_cut(pid_t group, int *error_p)
{
    pid_t members[256];
    size_t n_members = tutti__list_group(group, members, TUTTI__COUNT_OF(members));
    int n = 0;

    *error_p = 0;
    for (size_t i = 0; i < n_members; i++)
        n += cut_process(members[i], group, error_p);
    return n;
}

int tutti__chaos_try_cut(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), process = -1, got = -1, error;
    pid_t child = fd < 0 ? -1 : fork();

    if (child == 0)
        for (;;)
            pause();
    if (child > 0)
        process = open_process(child);
    if (process >= 0)
        got = get_descriptor(process, fd);
    error = got >= 0 ? 0 : errno;
    if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    for (int i = 0; i < 3; i++) {
        int opened = i == 0 ? fd : i == 1 ? process : got;

        if (opened >= 0)
            close(opened);
    }
    return error;
}
