/* hosts.c -- network namespaces as hosts.   SPDX-License-Identifier: MIT */
#include "hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_HOSTS = 8 };

static int hub = -1, hosts[MAX_HOSTS]; /* namespaces */
static char reason[200];

static void go(int namespace)
{
    if (setns(namespace, CLONE_NEWNET) != 0) {
        perror("setns");
        abort();
    }
}

/* Runs the command there. */
static int run(int namespace, const char *format, ...)
{
    char command[300];
    va_list args;
    pid_t pid;
    int status;

    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    pid = fork();
    if (pid == 0) {
        go(namespace);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (status != 0 && !*reason)
        snprintf(reason, sizeof reason, "this fails here: %.150s", command);
    return status;
}

/* A child in a namespace of its own, as long as this process lives. */
static pid_t hold_namespace(void)
{
    int ready[2];
    char byte;
    pid_t pid, parent = getpid();

    if (pipe(ready) != 0)
        abort();
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || unshare(CLONE_NEWNET) != 0)
            _exit(1);
        if (write(ready[1], "", 1) != 1)
            _exit(1);
        close(ready[0]);
        close(ready[1]);
        for (;;)
            pause();
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1)
        pid = -1;
    close(ready[0]);
    return pid;
}

static int open_namespace(pid_t pid)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/ns/net", (int)pid);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static int make_host(int i)
{
    pid_t pid = hold_namespace();

    hosts[i] = pid > 0 ? open_namespace(pid) : -1;
    if (hosts[i] < 0)
        return 1;
    return run(hub, "ip link add port%d type veth peer name eth0 netns %d", i, (int)pid) ||
           run(hub, "ip link set port%d master eth0 up", i) ||
           run(hosts[i], "ip link set lo up && ip addr add 10.77.0.%d/24 dev eth0", i + 1) ||
           run(hosts[i], "ip -6 addr add fd77::%d/64 dev eth0 nodad", i + 1) ||
           run(hosts[i], "ip -6 addr add fe80::%d/64 dev eth0 nodad", i + 1) ||
           run(hosts[i], "ip link set eth0 addrgenmode none && ip link set eth0 up");
}

const char *tutti_hosts_make(int n)
{
    if (geteuid() != 0)
        return "network namespaces need root";
    if (system("ip -V >/dev/null 2>&1") != 0)
        return "there is no ip: install iproute2";
    if (unshare(CLONE_NEWNET) != 0) {
        snprintf(reason, sizeof reason, "no network namespaces here: %s", strerror(errno));
        return reason;
    }
    hub = open_namespace(getpid());
    if (run(hub, "ip link set lo up && ip link add eth0 type bridge && ip link set eth0 up") ||
        run(hub, "ip addr add " TUTTI_HUB_V4 "/24 dev eth0") ||
        run(hub, "ip -6 addr add " TUTTI_HUB_V6 "/64 dev eth0 nodad") ||
        run(hub, "ip -6 addr add fe80::fe/64 dev eth0 nodad"))
        return reason;
    for (int i = 0; i < n && i < MAX_HOSTS; i++)
        if (make_host(i))
            return *reason ? reason : "no network namespaces here";
    return NULL;
}

void tutti_host_enter(int host)
{
    go(hosts[host]);
}

void tutti_host_cut(int host)
{
    if (run(hub, "ip link set port%d down", host) != 0)
        abort();
}
