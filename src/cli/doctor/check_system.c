/* check_system.c -- kernel, limits of processes, clock.   SPDX-License-Identifier: MIT */
#include "cli/doctor/doctor.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#define MIB 1048576.0

/* ---- Kernel --------------------------------------------------------------------------------------------- */

static void check_seccomp(tutti__doctor *d)
{
    char text[8192], *mode;

    if (tutti__slurp("/proc/self/status", text, sizeof text) &&
        (mode = strstr(text, "\nSeccomp:")) && atoi(mode + strlen("\nSeccomp:")) == 2)
        tutti__find(d, TUTTI__NOTE, "seccomp",
                    "a filter of system calls is in force (a container's profile)");
}

void tutti__check_kernel(tutti__doctor *d)
{
    struct utsname name;
    char text[512];
    int fd;

    if (uname(&name) == 0)
        tutti__find(d, TUTTI__FINE, "kernel", "%s %s", name.sysname, name.release);
    if (!tutti__slurp("/proc/self/stat", text, sizeof text) || !*text) {
        tutti__find(d, TUTTI__PROBLEM, "/proc",
                    "not mounted: tutti run cannot find processes that workers leave behind");
        tutti__remedy(d, "mount -t proc proc /proc");
    }
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
        tutti__find(d, TUTTI__PROBLEM, "supervision",
                    "this process cannot become a subreaper (%s): orphans of workers would be lost",
                    strerror(errno));
        tutti__remedy(d, "allow prctl(PR_SET_CHILD_SUBREAPER) in the container's seccomp profile");
    }
    fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (fd >= 0) {
        tutti__find(d, TUTTI__FINE, "supervision", "subreaper and pidfd_open work");
        close(fd);
    } else {
        tutti__find(d, TUTTI__NOTE, "supervision",
                    "pidfd_open: %s: ends of processes are only seen by SIGCHLD", strerror(errno));
    }
    check_seccomp(d);
}

/* ---- Descriptors ---------------------------------------------------------------------------------------- */

static const char *limit_text(rlim_t limit, char text[32])
{
    if (limit == RLIM_INFINITY)
        snprintf(text, 32, "unlimited");
    else
        snprintf(text, 32, "%llu", (unsigned long long)limit);
    return text;
}

/* A rank has a connection to each other rank, two over TCP; the launcher, which raises its own limit as far as allowed, has two
 * pipes per worker and the connection to its store. */
void tutti__check_files(tutti__doctor *d)
{
    rlim_t rank = 16 + 2 * (rlim_t)d->ranks, launcher = 24 + 4 * (rlim_t)d->ranks;
    char soft[32], hard[32];
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit_text(limit.rlim_cur, soft);
    limit_text(limit.rlim_max, hard);
    if (limit.rlim_cur >= rank && limit.rlim_max >= launcher) {
        tutti__find(d, TUTTI__FINE, "open files",
                    "%s (hard limit %s); %d ranks need %llu each, their launcher %llu", soft, hard,
                    d->ranks, (unsigned long long)rank, (unsigned long long)launcher);
        return;
    }
    tutti__find(
        d, TUTTI__PROBLEM, "open files",
        "%s (hard limit %s), but each of %d ranks needs up to %llu, and their launcher %llu", soft,
        hard, d->ranks, (unsigned long long)rank, (unsigned long long)launcher);
    tutti__remedy(d,
                  "ulimit -n %llu, where the hard limit is too low as root or in "
                  "/etc/security/limits.conf (docker --ulimit "
                  "nofile=65536)",
                  (unsigned long long)(launcher > 1024 ? launcher : 1024));
}

/* ---- Processes ------------------------------------------------------------------------------------------ */

/* Counts threads of this user's processes, as far as /proc shows them. */
static long count_threads(void)
{
    char path[64], text[8192], *line;
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    struct stat info;
    long n = 0;

    while (dir && (entry = readdir(dir))) {
        snprintf(path, sizeof path, "/proc/%.20s/status", entry->d_name);
        if (!isdigit((unsigned char)entry->d_name[0]) || stat(path, &info) != 0 ||
            info.st_uid != geteuid() || !tutti__slurp(path, text, sizeof text) ||
            !(line = strstr(text, "\nThreads:")))
            continue;
        n += atol(line + strlen("\nThreads:"));
    }
    if (dir)
        closedir(dir);
    return n;
}

static void judge_tasks(tutti__doctor *d, const char *what, long limit, long used,
                        const char *remedy)
{
    long needed = 4 + d->ranks * (4 + 2L * tutti__cores() / d->ranks);

    if (limit - used >= needed) {
        tutti__find(d, TUTTI__FINE, what, "%ld allowed, %ld in use", limit, used);
        return;
    }
    tutti__find(d, TUTTI__PROBLEM, what, "%ld allowed and %ld in use, but %d ranks need about %ld",
                limit, used, d->ranks, needed);
    tutti__remedy(d, "%s", remedy);
}

void tutti__check_processes(tutti__doctor *d)
{
    int64_t allowed, used;
    struct rlimit limit;

    if (tutti__cgroup_room("pids.max pids.current", "pids", "pids.max pids.current", &allowed,
                           &used))
        judge_tasks(d, "tasks of the cgroup", (long)allowed, (long)used,
                    "raise the limit (docker --pids-limit, TasksMax=)");
    if (getrlimit(RLIMIT_NPROC, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        tutti__find(d, TUTTI__FINE, "processes", "no limit for this user");
    else if (geteuid() == 0)
        tutti__find(d, TUTTI__FINE, "processes", "%lu a user; root is exempt",
                    (unsigned long)limit.rlim_cur);
    else
        judge_tasks(d, "processes", (long)limit.rlim_cur, count_threads(),
                    "end some of this user's processes, or ulimit -u");
}

/* ---- Other limits --------------------------------------------------------------------------------------- */

static void limited(tutti__doctor *d, int which, tutti__severity severity, const char *subject,
                    rlim_t least, const char *meaning, const char *remedy)
{
    struct rlimit limit;
    tutti__size_text a;

    if (getrlimit((__rlimit_resource_t)which, &limit) != 0 || limit.rlim_cur >= least)
        return; /* RLIM_INFINITY is the largest */
    tutti__find(d, severity, subject, "%s: %s", tutti__size(&a, (double)limit.rlim_cur), meaning);
    if (remedy)
        tutti__remedy(d, "%s", remedy);
}

void tutti__check_other_limits(tutti__doctor *d)
{
    struct rlimit cpu;

    limited(d, RLIMIT_FSIZE, TUTTI__WARNING, "file size", RLIM_INFINITY,
            "a process that writes a larger file, or shares more memory, is ended by SIGXFSZ",
            "ulimit -f unlimited");
    limited(d, RLIMIT_STACK, TUTTI__WARNING, "stack", 1 << 20, "threads may run out of it",
            "ulimit -s 8192");
    limited(d, RLIMIT_MEMLOCK, TUTTI__NOTE, "locked memory", 64 << 20,
            "enough for Tutti; RDMA networks (MPI, NCCL over InfiniBand) need ulimit -l unlimited",
            NULL);
    limited(d, RLIMIT_CORE, TUTTI__NOTE, "core files", 1,
            "none are written when a rank crashes (ulimit -c unlimited, to debug one)", NULL);
    if (getrlimit(RLIMIT_CPU, &cpu) == 0 && cpu.rlim_cur != RLIM_INFINITY) {
        tutti__find(d, TUTTI__WARNING, "processor time",
                    "a process is killed after %llu s of it (ulimit -t)",
                    (unsigned long long)cpu.rlim_cur);
        tutti__remedy(d, "ulimit -t unlimited");
    }
}

/* ---- Clock ---------------------------------------------------------------------------------------------- */

void tutti__check_clock(tutti__doctor *d)
{
    struct timex state = {0};
    int result = adjtimex(&state);
    bool nano = state.status & STA_NANO;

    if (result < 0) {
        tutti__find(d, TUTTI__NOTE, "clock",
                    "adjtimex: %s: whether it is synchronised is not known", strerror(errno));
    } else if (result == TIME_ERROR || (state.status & STA_UNSYNC)) {
        tutti__find(
            d, TUTTI__WARNING, "clock",
            "not synchronised, according to the kernel: times in logs and traces of several "
            "hosts will not match "
            "(on one host this does not matter)");
        tutti__remedy(d, "timedatectl set-ntp true, or install chrony");
    } else {
        tutti__find(d, TUTTI__FINE, "clock", "synchronised, %.3f ms off by the kernel's estimate",
                    (double)labs(state.offset) * (nano ? 1e-6 : 1e-3));
    }
}
