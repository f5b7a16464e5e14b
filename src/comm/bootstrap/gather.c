/* gather.c -- each rank's information to all, up and down the tree.   SPDX-License-Identifier: MIT
 *
 * The ranks of a subtree are consecutive, so a rank's part of the table is its own entry and its children's parts. Entries are
 * much alike (one version, few hosts), so a table has some 40 bytes a rank. */
#include "comm/bootstrap/peer_info.h"
#include "comm/core/frame.h"
#include "comm/core/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A run of bytes in the table: how many bytes are as in the entry before, and how many follow that are not. */
enum { RUN_HEAD = 3, RUN_BYTES = 255, RUN_GAP = RUN_HEAD };

/* Of one entry: the most bytes that it takes. */
#define MOST_BYTES (2 * sizeof(tutti__peer_info) + 16)

/* ---- The table -------------------------------------------------------------------------------------------------- */

/* How many bytes from `at` on are equal. */
static size_t count_equal(const uint8_t *a, const uint8_t *b, size_t at)
{
    size_t n = 0;

    while (at + n < sizeof(tutti__peer_info) && a[at + n] == b[at + n])
        n++;
    return n;
}

static uint8_t *pack_one(uint8_t *to, const uint8_t *before, const uint8_t *entry)
{
    const size_t size = sizeof(tutti__peer_info);

    for (size_t at = 0; at < size;) {
        size_t equal = count_equal(before, entry, at), n = 0, gap;

        at += equal;
        while (at + n < size && n < RUN_BYTES) {
            gap = count_equal(before, entry, at + n);
            if (gap > RUN_GAP || at + n + gap == size)
                break;
            n += gap > 0 ? gap : 1;
        }
        n = n > RUN_BYTES ? RUN_BYTES : n;
        *to++ = (uint8_t)equal;
        *to++ = (uint8_t)(equal >> 8);
        *to++ = (uint8_t)n;
        memcpy(to, entry + at, n);
        to += n;
        at += n;
    }
    return to;
}

tutti_status tutti__peer_info_pack(const tutti__peer_info *infos, int n, uint8_t **bytes_p,
                                   size_t *n_bytes_p)
{
    static const tutti__peer_info none;
    uint8_t *to = tutti__alloc((size_t)n * MOST_BYTES);

    *bytes_p = to;
    if (!to)
        return TUTTI_ERR_MEMORY;
    for (int i = 0; i < n; i++)
        to = pack_one(to, (const uint8_t *)(i > 0 ? &infos[i - 1] : &none),
                      (const uint8_t *)&infos[i]);
    *n_bytes_p = (size_t)(to - *bytes_p);
    return TUTTI_OK;
}

bool tutti__peer_info_unpack(const uint8_t *bytes, size_t n_bytes, tutti__peer_info *infos, int n)
{
    const uint8_t *end = bytes + n_bytes;

    for (int i = 0; i < n; i++) {
        uint8_t *entry = (uint8_t *)&infos[i];
        size_t at = 0;

        if (i > 0)
            infos[i] = infos[i - 1];
        else
            infos[i] = (tutti__peer_info){0};
        while (at < sizeof infos[i]) {
            size_t equal, run;

            if (end - bytes < RUN_HEAD)
                return false;
            equal = (size_t)bytes[0] | (size_t)bytes[1] << 8;
            run = bytes[2];
            bytes += RUN_HEAD;
            if (equal + run > sizeof infos[i] - at || (ptrdiff_t)run > end - bytes ||
                equal + run == 0)
                return false;
            memcpy(entry + at + equal, bytes, run);
            bytes += run;
            at += equal + run;
        }
    }
    return bytes == end;
}

/* ---- Up and down -------------------------------------------------------------------------------------------------- */

static int fd_of(const int *ranks, const int *fds, int n, int rank)
{
    int i = 0;

    while (i < n - 1 && ranks[i] != rank)
        i++;
    return fds[i];
}

static tutti_status fail_transfer(const tutti__bootstrap *boot, int rank, int error)
{
    char peer[128];

    tutti__comm_peer_text(boot->comm, rank, peer, sizeof peer);
    if (error == ETIMEDOUT)
        return tutti__comm_fail(
            boot->comm, TUTTI_ERR_PEER, -1,
            "waited %.3g s for the addresses that %s collects: one of the ranks from "
            "%d to %d did not come, or is slow",
            boot->comm->timeout_ms / 1e3, peer, rank,
            rank + tutti__tree_subtree(rank, boot->comm->size) - 1);
    if (error == ECANCELED)
        return tutti__fail(TUTTI_ERR_PEER, "was told to give up making group \"%s\"",
                           boot->comm->name);
    return tutti__bootstrap_fail_lost(boot, rank, strerror(error));
}

/* The rank gives up, and has said why. */
static tutti_status hear_cause(const tutti__bootstrap *boot, int rank, int fd,
                               const tutti__frame *head, double deadline)
{
    char text[sizeof((tutti__cause *)0)->text] = "";
    int error = head->bytes < sizeof text && head->status != TUTTI_OK
                    ? tutti__receive_all(fd, text, head->bytes, deadline)
                    : EPROTO;

    return error ? fail_transfer(boot, rank, error)
                 : tutti__comm_fail(boot->comm, (tutti_status)head->status, head->culprit, "%s",
                                    text);
}

/* A rank that gave up before it read this may have said why. */
static tutti_status fail_send(const tutti__bootstrap *boot, int rank, int fd, int error)
{
    tutti__wire_head head;

    if ((error == EPIPE || error == ECONNRESET) &&
        tutti__receive_all(fd, &head, sizeof head, tutti__now_ms()) == 0 &&
        head.frame.kind == TUTTI__FRAME_CAUSE)
        return hear_cause(boot, rank, fd, &head.frame, tutti__now_ms());
    return fail_transfer(boot, rank, error);
}

static tutti_status send_table(const tutti__bootstrap *boot, int rank, int fd, const uint8_t *bytes,
                               size_t n_bytes, double deadline)
{
    const tutti__wire_head head = {
        .frame = {.kind = TUTTI__FRAME_TABLE, .bytes = (uint32_t)n_bytes}};
    int error = tutti__send_all(fd, &head, sizeof head, deadline);

    if (!error)
        error = tutti__send_all(fd, bytes, n_bytes, deadline);
    return error ? fail_send(boot, rank, fd, error) : TUTTI_OK;
}

/* The caller frees *bytes_p. */
static tutti_status receive_table(const tutti__bootstrap *boot, int rank, int fd, int n,
                                  tutti__peer_info *infos, uint8_t **bytes_p, size_t *n_bytes_p,
                                  double deadline)
{
    tutti__wire_head head;
    int error = tutti__receive_all(fd, &head, sizeof head, deadline);

    *bytes_p = NULL;
    if (!error && head.frame.kind == TUTTI__FRAME_CAUSE)
        return hear_cause(boot, rank, fd, &head.frame, deadline);
    if (!error &&
        (head.frame.kind != TUTTI__FRAME_TABLE || head.frame.bytes > (size_t)n * MOST_BYTES))
        error = EPROTO;
    if (!error) {
        *n_bytes_p = head.frame.bytes;
        *bytes_p = tutti__alloc(*n_bytes_p + 1);
        if (!*bytes_p)
            return TUTTI_ERR_MEMORY;
        error = tutti__receive_all(fd, *bytes_p, *n_bytes_p, deadline);
    }
    if (!error && !tutti__peer_info_unpack(*bytes_p, *n_bytes_p, infos, n))
        error = EPROTO;
    return error ? fail_transfer(boot, rank, error) : TUTTI_OK;
}

/* The children's parts, in their order; each has sent its own when it had its children's. */
static tutti_status collect(const tutti__bootstrap *boot, const int *ranks, const int *fds, int n,
                            tutti__peer_info *infos, double deadline)
{
    const int rank = boot->comm->rank, size = boot->comm->size;
    tutti_status status = TUTTI_OK;

    for (int c = rank; status == TUTTI_OK && (c = tutti__tree_next_child(rank, c, size)) >= 0;) {
        uint8_t *bytes;
        size_t n_bytes;

        status = receive_table(boot, c, fd_of(ranks, fds, n, c), tutti__tree_subtree(c, size),
                               &infos[c], &bytes, &n_bytes, deadline);
        free(bytes);
    }
    return status;
}

static tutti_status hand_down(const tutti__bootstrap *boot, const int *ranks, const int *fds, int n,
                              const uint8_t *bytes, size_t n_bytes, double deadline)
{
    const int rank = boot->comm->rank, size = boot->comm->size;
    tutti_status status = TUTTI_OK;

    /* the largest part first: it has the longest way */
    for (int i = n - 1; i >= 0 && status == TUTTI_OK; i--)
        if (ranks[i] > rank && ranks[i] < size && tutti__tree_parent(ranks[i]) == rank)
            status = send_table(boot, ranks[i], fds[i], bytes, n_bytes, deadline);
    return status;
}

tutti_status tutti__peer_info_gather(const tutti__bootstrap *boot, const int *ranks, const int *fds,
                                     int n, tutti__peer_info *infos, uint64_t *id_p,
                                     double deadline)
{
    const int rank = boot->comm->rank, size = boot->comm->size;
    const int parent = rank > 0 ? tutti__tree_parent(rank) : -1,
              up = rank > 0 ? fd_of(ranks, fds, n, parent) : -1;
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    tutti_status status = collect(boot, ranks, fds, n, infos, deadline);

    if (status == TUTTI_OK)
        status =
            tutti__peer_info_pack(&infos[rank], tutti__tree_subtree(rank, size), &bytes, &n_bytes);
    if (status == TUTTI_OK && rank > 0) {
        status = send_table(boot, parent, up, bytes, n_bytes, deadline);
        free(bytes);
        bytes = NULL;
        if (status == TUTTI_OK)
            status = receive_table(boot, parent, up, size, infos, &bytes, &n_bytes, deadline);
    }
    if (status == TUTTI_OK)
        status = hand_down(boot, ranks, fds, n, bytes, n_bytes, deadline);
    if (status == TUTTI_OK)
        *id_p = tutti__hash64(bytes, n_bytes);
    free(bytes);
    return status;
}
