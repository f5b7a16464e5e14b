/* process.c -- identifies this process and its machine.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/process.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

void tutti__process_text(char *text, size_t capacity)
{
    tutti__proc_stat self;
    char boot[64];

    tutti__boot_text(boot);
    tutti__proc_stat_read(&self, "/proc/self/stat");
    snprintf(text, capacity, "%s/%ld/%llu", boot, (long)getpid(), (unsigned long long)self.start);
}

uint64_t tutti__machine_id(void)
{
    char boot[64], text[256], net[64];
    ssize_t n = readlink("/proc/self/ns/net", net, sizeof net - 1);
    int length;

    if (!tutti__boot_text(boot) || n <= 0) {
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
