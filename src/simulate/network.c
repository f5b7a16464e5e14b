/* network.c -- messages between simulated ranks.   SPDX-License-Identifier: MIT */
#include "simulate/network.h"

#include "simulate/chance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

tutti_status tutti__network_new(tutti__network *n, const tutti__sim_links *links,
                                const tutti__machines *m, const tutti__disturbance *disturbance)
{
    const size_t ranks = (size_t)m->ranks, hosts = (size_t)m->hosts, switches = (size_t)m->switches;
    tutti__sim_link *all = tutti__alloc((ranks + 3 * hosts + 2 * switches) * sizeof *all);

    memset(n, 0, sizeof *n);
    if (!all)
        return TUTTI_ERR_MEMORY;
    n->links = links;
    n->machines = *m;
    n->disturbance = disturbance;
    n->core = all;
    n->memory = n->core + ranks;
    n->host_out = n->memory + hosts;
    n->host_in = n->host_out + hosts;
    n->switch_out = n->host_in + hosts;
    n->switch_in = n->switch_out + switches;
    return TUTTI_OK;
}

void tutti__network_free(tutti__network *n)
{
    free(n->core);
    n->core = NULL;
}

/* ---- Chance and cuts ----------------------------------------------------------------------------------------------- */

bool tutti__network_is_cut(const tutti__network *n, int rank, int other, double now,
                           double *until_p)
{
    const int a = tutti__host_of(&n->machines, rank), b = tutti__host_of(&n->machines, other);

    for (const tutti__cut *c = n->disturbance->cuts;
         c < n->disturbance->cuts + n->disturbance->n_cuts; c++)
        if ((a >= c->first && a <= c->last) != (b >= c->first && b <= c->last) &&
            now >= c->from_us && now < c->to_us) {
            *until_p = c->to_us;
            return true;
        }
    return false;
}

/* What a message waits because of what is not the links' load: jitter, losses, and cuts, during which it is sent in vain. */
static double delay(tutti__network *n, const tutti__sim_packet *p, double now)
{
    const tutti__disturbance *d = n->disturbance;
    const bool far = tutti__level_between(&n->machines, p->from, p->to) != TUTTI__LEVEL_CORE;
    double wait = 0, until;
    uint64_t draw = 0;

    if (d->jitter_us > 0)
        wait -= d->jitter_us * log(1 - tutti__chance_unit(d->seed, p->number, draw++));
    while (far && d->loss > 0 && tutti__chance_unit(d->seed, p->number, ++draw) < d->loss) {
        wait += n->links->retransmit_us;
        n->n_lost++;
    }
    while (tutti__network_is_cut(n, p->from, p->to, now + wait, &until)) {
        wait = until == INFINITY ? INFINITY : until - now + n->links->retransmit_us;
        n->n_lost++;
    }
    return wait;
}

/* ---- A message ------------------------------------------------------------------------------------------------------- */

static void add(tutti__sim_packet *p, tutti__sim_link *link, double gbps, double latency_us)
{
    p->path[p->n_path] = link;
    p->gbps[p->n_path] = gbps;
    p->latency_us[p->n_path++] = latency_us;
}

double tutti__network_begin(tutti__network *n, tutti__sim_packet *p, double now)
{
    const tutti__machines *m = &n->machines;
    const tutti__level_costs *costs = n->links->level;
    const tutti__level level = tutti__level_between(m, p->from, p->to);
    const int a = tutti__host_of(m, p->from), b = tutti__host_of(m, p->to);

    n->level[level].bytes += p->bytes;
    n->level[level].messages++;
    p->n_path = p->at = 0;
    p->whole_us = 0;
    if (level == TUTTI__LEVEL_CORE) {
        add(p, &n->memory[a], n->links->memory_gbps, costs[level].latency_us);
        add(p, &n->core[p->to], costs[level].gbps, 0);
    } else {
        const double latency = costs[TUTTI__LEVEL_HOST].latency_us;

        add(p, &n->host_out[a], costs[TUTTI__LEVEL_HOST].gbps, 0);
        if (level == TUTTI__LEVEL_SWITCH) {
            const double gbps = costs[level].gbps;

            add(p, &n->switch_out[a / m->per_switch], gbps, latency / 2);
            add(p, &n->switch_in[b / m->per_switch], gbps, costs[level].latency_us);
            add(p, &n->host_in[b], costs[TUTTI__LEVEL_HOST].gbps, latency / 2);
        } else {
            add(p, &n->host_in[b], costs[level].gbps, latency);
        }
    }
    return now + delay(n, p, now) + p->latency_us[0];
}

double tutti__network_pass(tutti__network *n, tutti__sim_packet *p, double now, bool *arrived_p)
{
    tutti__sim_link *link = p->path[p->at];
    const double begin = link->free_us > now ? link->free_us : now,
                 carried = (double)p->bytes * 1e-3 / p->gbps[p->at];

    (void)n;
    link->free_us = begin + carried;
    link->bytes += p->bytes;
    link->messages++;
    p->at++;
    if (begin + carried > p->whole_us)
        p->whole_us = begin + carried;
    *arrived_p = p->at == p->n_path;
    if (*arrived_p)
        return p->whole_us;
    p->whole_us += p->latency_us[p->at];
    return begin + p->latency_us[p->at];
}

/* ---- What was carried -------------------------------------------------------------------------------------------------- */

/* Of what has reached a link, as much as it has passed on by then. */
static void sum(const tutti__network *network, tutti__level level, const tutti__sim_link *links,
                int n, double now, tutti__level_use *use)
{
    for (int i = 0; i < n; i++) {
        const double left = links[i].free_us > now
                                ? (links[i].free_us - now) * 1e3 * network->links->level[level].gbps
                                : 0;
        const uint64_t bytes =
            left < (double)links[i].bytes ? links[i].bytes - (uint64_t)(left + 0.5) : 0;

        use->carried += bytes;
        if (bytes > use->busiest)
            use->busiest = bytes;
    }
}

void tutti__network_use(const tutti__network *n, double now_us, tutti__level_use use[TUTTI__LEVELS])
{
    const tutti__level core = TUTTI__LEVEL_CORE, host = TUTTI__LEVEL_HOST, up = TUTTI__LEVEL_SWITCH;

    memcpy(use, n->level, sizeof n->level);
    sum(n, core, n->core, n->machines.ranks, now_us, &use[core]);
    sum(n, host, n->host_out, n->machines.hosts, now_us, &use[host]);
    sum(n, host, n->host_in, n->machines.hosts, now_us, &use[host]);
    sum(n, up, n->switch_out, n->machines.switches, now_us, &use[up]);
    sum(n, up, n->switch_in, n->machines.switches, now_us, &use[up]);
}
