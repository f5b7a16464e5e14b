/* process.c -- identifies this process and its machine.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/process.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static void read_line(const char *path, char *text, size_t capacity)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, capacity - 1) : 0;

    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

void tutti__process_text(char *text, size_t capacity)
{
    char boot[64], stat[512];
    const char *after_name;
    unsigned long long start = 0;

    read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    read_line("/proc/self/stat", stat, sizeof stat);
    after_name = strrchr(stat, ')');
    /* Field 22, the start time, distinguishes processes that reuse a pid. */
    if (after_name)
        (void)!sscanf(
            after_name + 1,
            " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
            &start);
    snprintf(text, capacity, "%s/%ld/%llu", boot, (long)getpid(), start);
}

uint64_t tutti__machine_id(void)
{
    char boot[64], text[256], net[64];
    ssize_t n = readlink("/proc/self/ns/net", net, sizeof net - 1);
    int length;

    read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    if (!*boot || n <= 0) {
        uint64_t id;

        randombytes_buf(&id, sizeof id); /* unknown: equal to no other */
        return id;
    }
    net[n] = '\0';
    length = snprintf(text, sizeof text, "%s %s %ld", boot, net, (long)geteuid());
    return tutti__hash64(text, (size_t)length);
}

int tutti__process_read(int64_t pid, void *to, uint64_t at, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        struct iovec ours = {(char *)to + done, bytes - done},
                     theirs = {(char *)(uintptr_t)at + done, bytes - done};
        ssize_t n = process_vm_readv((pid_t)pid, &ours, 1, &theirs, 1, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EFAULT;
        done += (size_t)n;
    }
    return 0;
}
