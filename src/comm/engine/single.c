/* single.c -- a group of one: every call works and nothing is sent.   SPDX-License-Identifier: MIT
 *
 * Also tutti_group_alloc for transports whose ranks share no memory. */
#include "comm/group.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

tutti_status tutti__plain_alloc(tutti_group *group, const tutti__op *op)
{
    tutti__plain *plain = malloc(sizeof *plain);
    size_t bytes = op->signature.count ? (size_t)op->signature.count : 1;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (!plain || p == MAP_FAILED) {
        free(plain);
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu bytes", bytes);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    pthread_mutex_lock(&group->plain_lock);
    *plain = (tutti__plain){group->plain, p, bytes};
    group->plain = plain;
    pthread_mutex_unlock(&group->plain_lock);
    *(void **)op->dst = p;
    return TUTTI_OK;
}

static tutti__plain *take(tutti_group *group, const void *p)
{
    tutti__plain **place, *plain;

    pthread_mutex_lock(&group->plain_lock);
    for (place = &group->plain; *place && p && (*place)->p != p;)
        place = &(*place)->next;
    plain = *place;
    if (plain)
        *place = plain->next;
    pthread_mutex_unlock(&group->plain_lock);
    return plain;
}

static void drop(tutti__plain *plain)
{
    munmap(plain->p, plain->bytes);
    free(plain);
}

void tutti__plain_release(tutti_group *group, void *p)
{
    tutti__plain *plain = take(group, p);

    if (plain)
        drop(plain);
    else
        tutti_log(TUTTI_LOG_WARN, "comm",
                  "tutti_group_release: %p is not from tutti_group_alloc of group \"%s\"", p,
                  group->comm.name);
}

void tutti__plain_free_all(tutti_group *group)
{
    tutti__plain *plain;

    while ((plain = take(group, NULL)) != NULL)
        drop(plain);
}

static tutti_status single_run(tutti_group *group, tutti__op *op)
{
    size_t element = tutti_dtype_size((tutti_dtype)op->signature.dtype),
           bytes = tutti__op_given(group->comm.rank, group->comm.size, op) * element;

    if (op->signature.op == TUTTI__OP_ALLOC)
        return tutti__plain_alloc(group, op);
    if (tutti__op_traits_of(op)->uneven)
        TUTTI_TRY(tutti__comm_check_sent(&group->comm, &op->signature, 0, 0,
                                         tutti__piece_out(op, 0, 0).count,
                                         tutti__piece_in(group->comm.rank, op, 0).count));
    if (bytes > 0 && op->dst != op->src)
        memmove(op->dst, op->src, bytes);
    return TUTTI_OK;
}

const tutti__transport tutti__single_transport = {.name = "single",
                                                  .run = single_run,
                                                  .release = tutti__plain_release,
                                                  .close = tutti__plain_free_all};
