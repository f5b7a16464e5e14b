/* nccl_choose.c -- what all ranks of a group must agree on before it may use NCCL.   SPDX-License-Identifier: MIT
 *
 * NCCL needs one GPU for each rank and the same NCCL on all; otherwise it fails late and with poor messages. So each rank
 * publishes what it has, through the group's own engine, and all decide alike. */
#include "comm/backend/nccl/nccl.h"
#include "device/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a rank has. */
typedef struct offer {
    int32_t status, version; /* OK, or `why` it has no NCCL */
    uint64_t machine;
    char gpu[32]; /* which GPU of the machine it is, whatever its number here */
    int32_t index;
    uint32_t zero;
    char why[360];
} offer;

static tutti__operation host_op(const tutti__nccl_backend *c, const tutti__operation *at,
                                tutti__op_kind kind, const void *src, void *dst, size_t bytes)
{
    tutti__operation op = {
        .src = src, .dst = dst, .timeout_ms = at->timeout_ms, .deadline = at->deadline};

    op.signature.op = (uint8_t)kind;
    op.signature.dtype = TUTTI_U8;
    op.signature.count = bytes;
    op.signature.group = c->base.comm->id;
    op.signature.sequence = at->signature.sequence;
    return op;
}

static tutti_status identify(tutti_device device, offer *mine)
{
    tutti__cuda_properties properties;

    TUTTI_TRY(tutti__cuda_done(device,
                               tutti__cuda_module()->runtime->properties(device.index, &properties),
                               "its properties"));
    snprintf(mine->gpu, sizeof mine->gpu, "%s", properties.bus);
    return TUTTI_OK;
}

static void make_offer(tutti__nccl_backend *c, offer *mine)
{
    const uint64_t machine[2] = {tutti__boot_id(), (uint64_t)c->base.comm->tuning.host};

    *mine = (offer){.index = c->device.index, .machine = tutti__hash64(machine, sizeof machine)};
    mine->status = (int32_t)tutti__nccl_load(&c->nccl, &c->library);
    if (mine->status == TUTTI_OK)
        mine->status = (int32_t)identify(c->device, mine);
    mine->version = c->library.version;
    if (mine->status != TUTTI_OK)
        snprintf(mine->why, sizeof mine->why, "%s", tutti_last_error());
}

/* Why NCCL cannot be used; the same text on all ranks. "": it can. */
static void judge(const tutti__comm *comm, const offer *all, char *why, size_t capacity)
{
    why[0] = '\0';
    for (int r = 0; r < comm->size && !*why; r++) {
        if (all[r].status != TUTTI_OK)
            snprintf(why, capacity, "rank %d on %s: %.*s", r, comm->peers[r].host,
                     (int)sizeof all[r].why - 1, all[r].why);
        else if (all[r].version != all[0].version)
            snprintf(
                why, capacity,
                "rank 0 on %s has NCCL %d.%d.%d, but rank %d on %s %d.%d.%d; give all the same",
                comm->peers[0].host, all[0].version / 10000, all[0].version / 100 % 100,
                all[0].version % 100, r, comm->peers[r].host, all[r].version / 10000,
                all[r].version / 100 % 100, all[r].version % 100);
        for (int q = 0; q < r && !*why; q++)
            if (all[q].machine == all[r].machine && strcmp(all[q].gpu, all[r].gpu) == 0)
                snprintf(why, capacity,
                         "rank %d and rank %d on %s are both on GPU %s (cuda:%d, cuda:%d), but "
                         "NCCL needs one for each rank: start one rank per GPU, or use backend "
                         "native, which copies through host memory",
                         q, r, comm->peers[r].host, all[r].gpu, all[q].index, all[r].index);
    }
}

tutti_status tutti__nccl_choose(tutti__nccl_backend *c, const tutti__operation *op)
{
    tutti__comm *comm = c->base.comm;
    offer *all = tutti__alloc((size_t)comm->size * sizeof *all), mine;
    tutti_status status = all ? TUTTI_OK : TUTTI_ERR_MEMORY;
    tutti__operation gather;
    char why[768];

    if (status != TUTTI_OK)
        return tutti__devices_fail(comm);
    make_offer(c, &mine);
    if (mine.status == TUTTI_ERR_DEVICE) { /* it is lost for every backend */
        free(all);
        return tutti__devices_fail(comm);
    }
    all[comm->rank] = mine;
    gather = host_op(c, op, TUTTI__OP_ALL_GATHER, &mine, all, sizeof mine);
    if (comm->size > 1)
        status = c->engine->ops->run(c->engine, &gather);
    if (status == TUTTI_OK) {
        judge(comm, all, why, sizeof why);
        c->choice = *why ? TUTTI__NCCL_STAGED : TUTTI__NCCL_CHOSEN;
        if (*why && c->required)
            status = tutti__fail(TUTTI_ERR_UNSUPPORTED, "group \"%s\", backend nccl: %s",
                                 comm->name, why);
        else if (*why && comm->rank == 0)
            tutti_log(TUTTI_LOG_WARN, "comm",
                      "group \"%s\" copies GPU memory through the host, without NCCL: %s",
                      comm->name, why);
    }
    free(all);
    return status;
}

tutti_status tutti__nccl_share_id(tutti__nccl_backend *c, const tutti__operation *op,
                                  tutti__nccl_id *id)
{
    tutti__comm *comm = c->base.comm;
    struct {
        int32_t error;
        char text[380];
        tutti__nccl_id id;
    } said = {0};
    tutti__operation broadcast = host_op(c, op, TUTTI__OP_BROADCAST, &said, &said, sizeof said);

    if (comm->rank == 0) {
        said.error = c->nccl->unique_id(&said.id);
        if (said.error)
            c->nccl->error_text(NULL, said.error, said.text, sizeof said.text);
    }
    if (comm->size > 1)
        TUTTI_TRY(c->engine->ops->run(c->engine, &broadcast));
    *id = said.id;
    if (!said.error)
        return TUTTI_OK;
    return tutti__comm_fail(
        comm, TUTTI_ERR_ABORTED, 0,
        "rank 0 on %s: NCCL cannot make a unique id: %.300s; NCCL_SOCKET_IFNAME names the "
        "network interface, NCCL_DEBUG=INFO says more",
        comm->peers[0].host, said.text);
}

tutti_status tutti__nccl_agree(tutti__nccl_backend *c, const tutti__operation *op,
                               tutti_status mine)
{
    uint8_t failed = mine != TUTTI_OK;
    tutti__operation most = host_op(c, op, TUTTI__OP_ALL_REDUCE, &failed, &failed, sizeof failed);

    most.signature.redop = TUTTI_MAX;
    if (c->base.comm->size > 1)
        TUTTI_TRY(c->engine->ops->run(c->engine, &most));
    return failed ? TUTTI_ERR_MEMORY : TUTTI_OK;
}
