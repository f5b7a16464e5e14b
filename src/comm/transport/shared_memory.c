/* shared_memory.c -- processes of one host that map the same anonymous files.   SPDX-License-Identifier: MIT
 *
 * A mapping is a memfd: it has no name, so it appears in no folder, needs no room in /dev/shm and is gone with its last
 * user however that one ends. Rank 0 makes it and sends the descriptor over its sockets to the others. The sockets stay
 * open: their end is a peer's death. */
#include "comm/transport/local.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int send_fd(int socket, int fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    char byte = 'F';
    struct iovec io = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);

    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    return sendmsg(socket, &message, MSG_NOSIGNAL) == 1 ? 0 : errno;
}

/* 0 or an errno. */
static int receive_fd(int socket, int *fd_p, double deadline)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    struct iovec io = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    const struct cmsghdr *head;
    ssize_t n;

    while ((n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC)) < 0) {
        if (errno != EAGAIN && errno != EINTR)
            return errno;
        if (poll(&(struct pollfd){socket, POLLIN, 0}, 1, tutti__poll_ms(deadline)) == 0)
            return ETIMEDOUT;
    }
    head = CMSG_FIRSTHDR(&message);
    if (n == 0 || !head || head->cmsg_type != SCM_RIGHTS)
        return n == 0 ? ECONNRESET : EPROTO;
    memcpy(fd_p, CMSG_DATA(head), sizeof *fd_p);
    return 0;
}

static int map(int fd, size_t bytes, void **mapping_p)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (p == MAP_FAILED)
        return errno;
    *mapping_p = p;
    return 0;
}

/* A memfd may be made larger than the machine's memory; who then writes to it is killed. */
static bool fits_memory(size_t bytes)
{
    return bytes / (size_t)sysconf(_SC_PAGESIZE) < (size_t)sysconf(_SC_PHYS_PAGES);
}

/* For rank 0: makes, maps and sends. The mapping begins with `head`, there before anyone sees it. */
static int make_on(const int *sockets, int size, size_t bytes, const tutti__control *head,
                   void **mapping_p)
{
    int fd, error;

    if (!fits_memory(bytes))
        return ENOMEM;
    fd = memfd_create("tutti", MFD_CLOEXEC);
    if (fd < 0)
        return errno;
    error = ftruncate(fd, (off_t)bytes) != 0 ? errno : map(fd, bytes, mapping_p);
    if (!error && head)
        memcpy(*mapping_p, head, sizeof *head);
    /* A peer that is gone is the watcher's business. */
    for (int r = 1; r < size && !error; r++) {
        int sent = send_fd(sockets[r], fd);

        error = sent == EPIPE || sent == ECONNRESET ? 0 : sent;
    }
    if (error && *mapping_p) {
        munmap(*mapping_p, bytes);
        *mapping_p = NULL;
    }
    close(fd);
    return error;
}

static int take_on(int socket, size_t bytes, void **mapping_p, double deadline)
{
    int fd, error = receive_fd(socket, &fd, deadline);

    if (error)
        return error;
    error = map(fd, bytes, mapping_p);
    close(fd);
    return error;
}

static int make(tutti_group *group, size_t bytes, void **mapping_p, uint64_t *handle_p)
{
    const tutti__local *local = group->transport_state;

    (void)handle_p;
    return make_on(local->sockets, group->size, bytes, NULL, mapping_p);
}

static int take(tutti_group *group, size_t bytes, uint64_t handle, void **mapping_p)
{
    const tutti__local *local = group->transport_state;

    (void)handle;
    return take_on(local->sockets[0], bytes, mapping_p, tutti__now_ms() + group->timeout_ms);
}

static void drop_control(tutti_group *group, tutti__control *control)
{
    (void)group;
    munmap(control, control->bytes);
}

static const tutti__memory_ops SHARED_MEMORY = {false, make, take, drop_control};

static const tutti__transport SHARED = {.name = "shared memory",
                                        .run = tutti__local_run,
                                        .announce = tutti__local_announce,
                                        .look = tutti__local_look,
                                        .see = tutti__local_see,
                                        .release = tutti__local_release,
                                        .close = tutti__local_close};

/* The first page tells the size of the whole; everyone but rank 0 maps twice. */
static int take_control(int socket, double deadline, tutti__control **control_p)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes;
    void *mapping = NULL;
    int fd, error = receive_fd(socket, &fd, deadline);

    if (error)
        return error;
    error = map(fd, page, &mapping);
    if (!error) {
        bytes = ((const tutti__control *)mapping)->bytes;
        munmap(mapping, page);
        error = map(fd, bytes, (void **)control_p);
    }
    close(fd);
    return error;
}

tutti_status tutti__shared_memory_open(tutti_group *group, int *sockets, double deadline)
{
    size_t chunk = tutti__chunk_bytes(group), bytes = tutti__control_bytes(group->size, chunk);
    const tutti__control head = {.bytes = bytes, .chunk_bytes = chunk};
    tutti__control *control = NULL;
    int error;

    if (group->rank == 0)
        error = make_on(sockets, group->size, bytes, &head, (void **)&control);
    else
        error = take_control(sockets[0], deadline, &control);
    if (error) {
        for (int r = 0; r < group->size; r++)
            if (sockets[r] >= 0)
                close(sockets[r]);
        free(sockets);
        if (error == ECONNRESET)
            return tutti__fail(TUTTI_ERR_PEER,
                               "group \"%s\": rank 0 was lost while the group was being made",
                               group->name);
        return tutti__fail_errno(error, "group \"%s\": rank %d cannot %s shared memory (%zu bytes)",
                                 group->name, group->rank,
                                 group->rank == 0 ? "make" : "receive rank 0's", bytes);
    }
    return tutti__local_open(group, &SHARED, &SHARED_MEMORY, control, sockets);
}
