/* check_memory.c -- memory, its limits, and sharing it between processes.   SPDX-License-Identifier: MIT */
#include "cli/doctor/doctor.h"
#include "comm/comm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB 1048576.0

enum {
    RANK_MIB = 256,    /* memory of a rank that trains a small model */
    LEAST_MIB = 64,    /* least memory of a rank */
    SMALL_SHM_MIB = 64 /* Docker's default for /dev/shm */
};

static tutti__severity judge(double bytes, int ranks)
{
    return bytes < LEAST_MIB * MIB * ranks  ? TUTTI__PROBLEM
           : bytes < RANK_MIB * MIB * ranks ? TUTTI__WARNING
                                            : TUTTI__FINE;
}

void tutti__check_memory(tutti__doctor *d)
{
    tutti__size_text a, b, c;
    const double available = (double)tutti__meminfo("MemAvailable");
    tutti__severity severity;

    if (available < 0) {
        tutti__find(d, TUTTI__NOTE, "memory", "/proc/meminfo cannot be read");
        return;
    }
    severity = judge(available, d->ranks);
    tutti__find(d, severity, "memory", "%s free of %s, %s for each of %d rank%s",
                tutti__size(&a, available), tutti__size(&b, (double)tutti__meminfo("MemTotal")),
                tutti__size(&c, available / d->ranks), d->ranks, tutti__s((uint64_t)d->ranks));
    if (severity != TUTTI__FINE)
        tutti__remedy(d, "stop other programs (ps --sort=-rss -eo rss,pid,args | head), or "
                         "start fewer ranks");
    tutti__find(
        d, TUTTI__NOTE, "swap", "%s",
        tutti__meminfo("SwapTotal") > 0
            ? "exists: ranks that do not fit into memory become slow instead of being killed"
            : "none: the kernel kills a process when memory runs out");
}

/* ---- Limits --------------------------------------------------------------------------------------------- */

void tutti__check_memory_limits(tutti__doctor *d)
{
    tutti__size_text a, b;
    int64_t limit, used;
    struct rlimit space;

    if (tutti__cgroup_memory(&limit, &used)) {
        tutti__severity severity = judge((double)(limit - used), d->ranks);

        tutti__find(d, severity, "memory limit", "the cgroup allows %s, of which %s are in use",
                    tutti__size(&a, (double)limit), tutti__size(&b, (double)used));
        if (severity != TUTTI__FINE)
            tutti__remedy(
                d,
                "raise the limit (docker --memory, MemoryMax=, Slurm --mem), or start fewer ranks");
    } else {
        tutti__find(d, TUTTI__FINE, "memory limit", "none by cgroup");
    }
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
        tutti__find(d, TUTTI__WARNING, "address space",
                    "limited to %s per process (ulimit -v); shared memory counts in each",
                    tutti__size(&a, (double)space.rlim_cur));
        tutti__remedy(d, "ulimit -v unlimited");
    }
}

void tutti__check_overcommit(tutti__doctor *d)
{
    int64_t mode = 0, panic = 0, score = 0;
    tutti__size_text a;
    char text[8192], *kills;
    long killed = 0;

    if (tutti__slurp_int64("/proc/sys/vm/overcommit_memory", &mode) && mode == 2) {
        double left = (double)(tutti__meminfo("CommitLimit") - tutti__meminfo("Committed_AS"));
        bool little = left < RANK_MIB * MIB * d->ranks;

        tutti__find(d, little ? TUTTI__WARNING : TUTTI__NOTE, "overcommit",
                    "off (vm.overcommit_memory = 2): %s may still be allocated, used or not",
                    tutti__size(&a, left > 0 ? left : 0));
        if (little)
            tutti__remedy(d, "sysctl vm.overcommit_memory=0, or raise vm.overcommit_ratio");
    }
    if (tutti__slurp_int64("/proc/sys/vm/panic_on_oom", &panic) && panic != 0) {
        tutti__find(d, TUTTI__WARNING, "out of memory",
                    "restarts the machine (vm.panic_on_oom = %d)", (int)panic);
        tutti__remedy(d, "sysctl vm.panic_on_oom=0");
    }
    if (tutti__slurp_int64("/proc/self/oom_score_adj", &score) && score > 0)
        tutti__find(d, TUTTI__NOTE, "out of memory",
                    "processes of this shell are killed before others (oom_score_adj %d)",
                    (int)score);
    if (tutti__slurp("/proc/vmstat", text, sizeof text) && (kills = strstr(text, "\noom_kill ")) &&
        (killed = atol(kills + strlen("\noom_kill "))) > 0)
        tutti__find(d, TUTTI__NOTE, "out of memory",
                    "the out-of-memory killer has killed %ld process%s since the machine started",
                    killed, killed == 1 ? "" : "es");
}

void tutti__check_huge_pages(tutti__doctor *d)
{
    char text[128], *begin, *end;

    if (!tutti__slurp("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text) ||
        !(begin = strchr(text, '[')) || !(end = strchr(begin, ']')))
        return;
    *end = '\0';
    if (strcmp(begin + 1, "never") != 0) {
        tutti__find(d, TUTTI__FINE, "huge pages", "%s: large buffers get them", begin + 1);
        return;
    }
    tutti__find(d, TUTTI__NOTE, "huge pages",
                "never: large buffers use small pages, which is a little slower");
    tutti__remedy(d, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
}

/* ---- /dev/shm ------------------------------------------------------------------------------------------- */

/* Makes a file there, maps it and writes to it. 0 or an errno. */
static int try_dev_shm(size_t bytes)
{
    char path[] = "/dev/shm/tutti-doctor-XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC), error = fd < 0 ? errno : 0;
    void *p;

    if (error)
        return error;
    unlink(path);
    /* writing to a page without memory would end this process */
    error = posix_fallocate(fd, 0, (off_t)bytes);
    if (!error) {
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            error = errno;
        else
            memset(p, 1, bytes);
    }
    close(fd);
    return error;
}

void tutti__check_dev_shm(tutti__doctor *d)
{
    static const char others[] =
        "Tutti itself does not need it; MPI, NCCL and PyTorch's loaders need it";
    tutti__size_text a, b;
    struct statvfs info;
    double size, left;
    int error;

    if (statvfs("/dev/shm", &info) != 0) {
        tutti__find(d, TUTTI__WARNING, "/dev/shm", "%s; %s", strerror(errno), others);
        tutti__remedy(d, "mount -t tmpfs -o mode=1777 tmpfs /dev/shm");
        return;
    }
    size = (double)info.f_blocks * (double)info.f_frsize;
    left = (double)info.f_bavail * (double)info.f_frsize;
    error = try_dev_shm(1 << 20);
    if (error) {
        tutti__find(d, TUTTI__WARNING, "/dev/shm",
                    "a file of 1 MiB cannot be made there: %s (%s free of %s); %s", strerror(error),
                    tutti__size(&a, left), tutti__size(&b, size), others);
        tutti__remedy(d, error == ENOSPC ? "remove files there, or mount -o remount,size=1G "
                                           "/dev/shm (docker --shm-size=1g)"
                                         : "chmod 1777 /dev/shm, and mount it read-write");
        return;
    }
    if (size <= SMALL_SHM_MIB * MIB) {
        tutti__find(d, TUTTI__WARNING, "/dev/shm", "writable, but only %s (%s free); %s",
                    tutti__size(&b, size), tutti__size(&a, left), others);
        tutti__remedy(d, "mount -o remount,size=1G /dev/shm (docker --shm-size=1g)");
        return;
    }
    tutti__find(d, TUTTI__FINE, "/dev/shm", "%s free of %s, writable", tutti__size(&a, left),
                tutti__size(&b, size));
}

/* ---- Sharing between ranks ------------------------------------------------------------------------------ */

/* Whether a process may read a sibling's memory, as ranks do. */
typedef struct reading {
    uint64_t value; /* different in each process */
    pid_t from;
    int error;
} reading;

static int read_sibling(void *arg)
{
    reading *r = arg;
    uint64_t got = 0;
    struct iovec ours = {&got, sizeof got}, theirs = {&r->value, sizeof got};

    if (process_vm_readv(r->from, &ours, 1, &theirs, 1, 0) != (ssize_t)sizeof got)
        return errno;
    return got == 1 ? 0 : EIO;
}

static bool siblings_read(void)
{
    reading r = {.value = 1};
    bool can;

    r.from = fork();
    if (r.from == 0) {
        pause();
        _exit(0);
    }
    if (r.from < 0)
        return false;
    r.value = 0; /* the sibling has its own copy */
    can = tutti__in_child(read_sibling, &r, 1000);
    kill(r.from, SIGKILL);
    waitpid(r.from, NULL, 0);
    return can;
}

static void explain_no_reading(tutti__doctor *d)
{
    int64_t scope = 0;

    tutti__find(d, TUTTI__NOTE, "reading peers",
                "refused (process_vm_readv): collectives on memory that is not from "
                "tutti_group_alloc are staged, "
                "at about half the speed; gradients of tutti train are not affected");
    if (tutti__slurp_int64("/proc/sys/kernel/yama/ptrace_scope", &scope) && scope > 0)
        tutti__remedy(d, "sysctl kernel.yama.ptrace_scope=0 (it is %d)", (int)scope);
    else
        tutti__remedy(d, "the container's seccomp profile forbids it: docker --cap-add SYS_PTRACE");
}

void tutti__check_sharing(tutti__doctor *d)
{
    char why[256];

    if (tutti__can_share_memory(d->ranks, why, sizeof why)) {
        tutti__find(d, TUTTI__FINE, "shared memory",
                    "%d ranks can share memory (memfd_create, descriptors over unix sockets)",
                    d->ranks);
    } else {
        tutti__find(d, TUTTI__WARNING, "shared memory",
                    "%s: ranks of this host talk over TCP, which is slower", why);
        tutti__remedy(d, "allow it (the container's seccomp profile, ulimit -f, ulimit -n)");
    }
    if (siblings_read())
        tutti__find(d, TUTTI__FINE, "reading peers",
                    "allowed (process_vm_readv): buffers of any memory are copied once");
    else
        explain_no_reading(d);
}
