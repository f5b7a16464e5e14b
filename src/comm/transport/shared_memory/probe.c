/* probe.c -- whether this process can share memory with others of its host.   SPDX-License-Identifier: MIT
 *
 * Tested before the ranks choose a transport, so that all learn of a refusal from the peer information and choose another:
 * a container's seccomp profile may forbid memfd_create, unix sockets or descriptors in messages, and limits may be too
 * low. */
#include "comm/core/shared_mapping.h"
#include "comm/transport/shared_memory/shm.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* Sends a descriptor to itself. 0 or an errno. */
static int pass_fd(int fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.align = {.cmsg_level = SOL_SOCKET,
                           .cmsg_type = SCM_RIGHTS,
                           .cmsg_len = CMSG_LEN(sizeof(int))}};
    char byte = 'F';
    struct iovec io = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int pair[2], error = 0, got;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return errno;
    memcpy(CMSG_DATA(&control.align), &fd, sizeof fd);
    if (sendmsg(pair[0], &message, MSG_NOSIGNAL) != 1 ||
        recvmsg(pair[1], &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != 1)
        error = errno;
    else if (!CMSG_FIRSTHDR(&message))
        /* dropped by a security module, or because the descriptor limit is reached */
        error = EPERM;
    close(pair[0]);
    close(pair[1]);
    if (error)
        return error;
    memcpy(&got, CMSG_DATA(&control.align), sizeof got);
    close(got);
    return 0;
}

bool tutti__shm_probe(const tutti__comm *comm, char *why, size_t capacity)
{
    size_t bytes = tutti__shm_block_bytes(comm->size, tutti__shm_chunk_bytes(comm));
    const char *step;
    void *mapping;
    int fd, error = tutti__shared_mapping_make(bytes, bytes, &fd, &mapping, &step);

    if (!error) {
        munmap(mapping, bytes);
        step = "passing a descriptor over a unix socket";
        error = pass_fd(fd);
        close(fd);
    }
    if (error)
        snprintf(why, capacity, "%s: %s", step, strerror(error));
    return error == 0;
}
