/* choose.c -- the algorithm that ranks on simulated machines choose.   SPDX-License-Identifier: MIT */
#include "simulate/choose.h"

#include "comm/algorithm/tuner.h"

#include <string.h>

/* The costs as the algorithms' own estimate takes them: of a host's link, each of its ranks has a share. */
tutti__coll_links tutti__sim_coll_links(const tutti__sim_links *l, const tutti__machines *m)
{
    const tutti__level_costs *host = &l->level[TUTTI__LEVEL_HOST];
    tutti__coll_links to = {.reduce_ps = (uint64_t)(1000 / l->reduce_gbps)};

    for (int i = 0; i < TUTTI__LEVELS; i++) {
        const tutti__level_costs *c = &l->level[i];
        const bool far = i == TUTTI__LEVEL_SWITCH;

        to.level[i] = (tutti__coll_link){
            .latency_ns = (uint64_t)(1000 * (c->latency_us + (far ? host->latency_us : 0))),
            .message_ns = (uint64_t)(1000 * c->message_us),
            .byte_ps = (uint64_t)(i == TUTTI__LEVEL_CORE ? 1000 / c->gbps
                                                         : 1000 * m->per_host / host->gbps)};
    }
    return to;
}

/* As tutti__shape_of says of ranks with these places. */
static tutti__shape shape_of(const tutti__machines *m)
{
    const int block[] = {m->per_host, m->per_host * m->per_switch};
    tutti__shape shape = {.size = m->ranks,
                          .farthest = (m->hosts > 1) + (m->switches > 1),
                          .share = m->ranks % m->per_host == 0 ? m->per_host : 1};

    for (int i = 0; i < shape.farthest && (i == 0 || tutti__shape_has(&shape, i - 1)); i++)
        shape.block[i] = m->ranks % block[i] == 0 ? block[i] : m->ranks;
    return shape;
}

void tutti__sim_set_blocks(tutti__coll *call, const tutti__machines *m)
{
    const tutti__shape shape = shape_of(m);

    memcpy(call->block, shape.block, sizeof call->block);
}

uint64_t tutti__sim_steps(const tutti__coll_algorithm *a, const tutti__coll *call)
{
    const size_t rounds = a->n_rounds(call), most = a->most_actions(call);

    return (uint64_t)call->size * (rounds > most ? rounds : most);
}

tutti_status tutti__sim_choose(const tutti__coll_algorithm **algorithm_p, tutti__coll *call,
                               const tutti__sim_links *links, const tutti__machines *machines,
                               size_t chunk_bytes)
{
    tutti__tuner tuner;

    TUTTI_TRY(tutti__tuner_open(&tuner, chunk_bytes));
    tuner.has_links = true;
    tuner.links = tutti__sim_coll_links(links, machines);
    tuner.given = false;
    tuner.shapes[0] = shape_of(machines);
    *algorithm_p = tutti__tuner_choose(&tuner, call);
    tutti__tuner_close(&tuner);
    return TUTTI_OK;
}
