/* held_checkpoints.c -- a disk on which checkpoints do not become durable while the file $HOLD exists; a process that waits for that makes
 * $HOLD.PID: LD_PRELOAD=libheld_checkpoints.so.   SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_of_checkpoint(int fd)
{
    char name[64], path[4096] = "";

    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    return readlink(name, path, sizeof path - 1) > 0 && strstr(path, "/checkpoints/") != NULL;
}

int fsync(int fd)
{
    const char *hold = getenv("HOLD");
    char mark[4096];
    int (*real)(int);

    if (hold && is_of_checkpoint(fd) && access(hold, F_OK) == 0) {
        snprintf(mark, sizeof mark, "%s.%d", hold, (int)getpid());
        close(open(mark, O_WRONLY | O_CREAT, 0600));
        while (access(hold, F_OK) == 0)
            poll(NULL, 0, 5);
    }
    *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    return real(fd);
}
