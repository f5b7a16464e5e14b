/* refuse.c -- a sandbox that refuses a system call: refuse CALL ERRNO COMMAND...   SPDX-License-Identifier: MIT
 *
 * The call fails with this errno in COMMAND and its descendants. Exit code 77: there are no such filters here. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CALL(name) #name, SYS_##name
static const struct {
    const char *name;
    long number;
} calls[] = {{CALL(close_range)},
             {CALL(copy_file_range)},
             {CALL(fadvise64)},
             {CALL(fallocate)},
             {CALL(flock)},
             {CALL(getcpu)},
             {CALL(getrandom)},
             {CALL(getrusage)},
             {CALL(linkat)},
             {CALL(madvise)},
             {CALL(mbind)},
             {CALL(memfd_create)},
             {CALL(mremap)},
             {CALL(pidfd_open)},
             {CALL(pipe2)},
             {CALL(prctl)},
             {CALL(prlimit64)},
             {CALL(process_vm_readv)},
             {CALL(renameat2)},
             {CALL(rseq)},
             {CALL(sched_getaffinity)},
             {CALL(sched_setaffinity)},
             {CALL(setpriority)},
             {CALL(statx)},
             {CALL(sync_file_range)},
             {CALL(sysinfo)}};

int main(int argc, char **argv)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    size_t i = 0, n = sizeof calls / sizeof *calls;

    while (argc > 3 && i < n && strcmp(calls[i].name, argv[1]) != 0)
        i++;
    if (argc <= 3 || i == n) {
        fprintf(stderr, "refuse CALL ERRNO COMMAND...: no such call in refuse.c\n");
        return 2;
    }
    filter[1].k = (unsigned)calls[i].number;
    filter[2].k |= (unsigned)atoi(argv[2]);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        fprintf(stderr, "no filters of system calls: %s\n", strerror(errno));
        return 77;
    }
    execvp(argv[3], argv + 3);
    fprintf(stderr, "%s: %s\n", argv[3], strerror(errno));
    return 127;
}
