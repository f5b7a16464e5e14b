/* flood -- strangers that connect to a port of this host as fast as they can, and say nothing.   SPDX-License-Identifier: MIT
 *
 *     flood PORT SECONDS
 *
 * Two processes, each with its own loopback address and at most HELD connections, of which the oldest makes room for the next;
 * MOST in all. Prints how many there were. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES = 2, HELD = 400, MOST = 500000 };

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A reset, which leaves no TIME_WAIT behind. */
static void hang_up(int fd)
{
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    close(fd);
}

static int knock(int port, uint32_t from)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(from)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &(int){1}, sizeof(int));
    if (bind(fd, (struct sockaddr *)&own, sizeof own) == 0 &&
        (connect(fd, (struct sockaddr *)&at, sizeof at) == 0 || errno == EINPROGRESS))
        return fd;
    close(fd);
    return -1;
}

static int flood(int port, double seconds, uint32_t from)
{
    static int held[HELD];
    double end = now_s() + seconds;
    int n = 0;

    for (int i = 0; n < MOST && now_s() < end; i++) {
        int fd = knock(port, from);

        if (fd < 0)
            continue;
        if (n >= HELD)
            hang_up(held[n % HELD]);
        held[n++ % HELD] = fd;
    }
    return n;
}

int main(int argc, char **argv)
{
    int port = argc == 3 ? atoi(argv[1]) : 0, n = 0, total = 0, ends[2];
    double seconds = argc == 3 ? atof(argv[2]) : 0;

    if (port <= 0 || seconds <= 0 || seconds > 60 || pipe(ends) != 0) {
        fprintf(stderr, "usage: flood PORT SECONDS\n");
        return 2;
    }
    for (uint32_t i = 0; i < PROCESSES; i++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            n = flood(port, seconds, (INADDR_LOOPBACK + 1) + i);
            _exit(write(ends[1], &n, sizeof n) != sizeof n);
        }
    for (int i = 0; i < PROCESSES && wait(NULL) > 0; i++)
        if (read(ends[0], &n, sizeof n) == sizeof n)
            total += n;
    printf("%d\n", total);
    return 0;
}
