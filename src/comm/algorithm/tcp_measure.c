/* tcp_measure.c -- what messages cost between these ranks, measured at set-up.   SPDX-License-Identifier: MIT
 *
 * All ranks exchange at the same time, so what they share (cores, a link) is in the numbers: that is how collectives use it. */
#include "comm/algorithm/tcp_algorithms.h"
#include "comm/algorithm/tcp_rounds.h"

#include <stdlib.h>

enum { TIMES = 9, PEERS = 4, LARGE_BYTES = 64 << 10, VALUES = 4 };

typedef struct measurement {
    tutti__tcp *tcp;
    tutti__operation op;
    char *memory; /* of LARGE_BYTES for sending, and for receiving */
} measurement;

/* Exchanges so many bytes with the ranks 1, 2, 4, ... further and before; the mean time:
 * where ranks share cores, some are quick because others wait. */
static tutti_status exchange(measurement *m, int peers, size_t bytes, uint64_t *ns_p)
{
    const tutti__comm *comm = m->tcp->comm;
    int ranks[2 * PEERS], n = 0;
    uint64_t begin = 0;

    for (int i = 0; i < peers; i++) {
        ranks[n++] = (comm->rank + (1 << i)) % comm->size;
        ranks[n++] = (comm->rank + comm->size - (1 << i)) % comm->size;
    }
    for (int i = 0; i <= TIMES; i++) {
        begin = i == 1 ? tutti__now_ns() : begin; /* the first connects */
        TUTTI_TRY(tutti__tcp_start(m->tcp, &(tutti__schedule){.op = &m->op, .bytes = bytes}));
        for (int k = 0; k < n; k++)
            TUTTI_TRY(tutti__tcp_add_peer(m->tcp, ranks[k], 2));
        for (int k = 0; k < n; k += 2) {
            tutti__tcp_send(m->tcp, ranks[k], m->memory, bytes);
            tutti__tcp_recv(m->tcp, ranks[k + 1], m->memory + LARGE_BYTES, bytes);
        }
        TUTTI_TRY(tutti__tcp_finish(m->tcp));
    }
    *ns_p = (tutti__now_ns() - begin) / TIMES;
    return TUTTI_OK;
}

/* Of one core, which ranks share. */
static uint64_t reduce_ps(const measurement *m)
{
    void *dst = m->memory;
    const void *src[] = {m->memory, m->memory + LARGE_BYTES};
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < TIMES; i++) {
        uint64_t begin = tutti__now_ns(), ns;

        tutti__reduce(TUTTI_F32, TUTTI_SUM, &dst, 1, src, 2, LARGE_BYTES / sizeof(float));
        ns = tutti__now_ns() - begin;
        least = ns < least ? ns : least;
    }
    return least * 1000 / LARGE_BYTES * (uint64_t)(m->tcp->comm->local_size + tutti__cores() - 1) /
           (uint64_t)tutti__cores();
}

static uint64_t more(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static tutti_status measure(measurement *m, uint64_t values[VALUES])
{
    uint64_t one, several, large;

    TUTTI_TRY(exchange(m, 1, 1, &one));
    TUTTI_TRY(exchange(m, PEERS, 1, &several));
    TUTTI_TRY(exchange(m, 1, LARGE_BYTES, &large));
    values[1] = more(several, one) / (2 * (PEERS - 1));
    values[0] = more(one, 2 * values[1]);
    values[2] = more(large, one) * 1000 / LARGE_BYTES;
    values[3] = reduce_ps(m);
    return TUTTI_OK;
}

/* The mean over all ranks, on all. */
static tutti_status agree(measurement *m, uint64_t values[VALUES])
{
    const tutti__comm *comm = m->tcp->comm;
    tutti__tcp_rounds run = {.tcp = m->tcp,
                             .op = &m->op,
                             .algorithm =
                                 tutti__coll_find(TUTTI__OP_ALL_REDUCE, "recursive_doubling"),
                             .call = {.op = TUTTI__OP_ALL_REDUCE,
                                      .dtype = TUTTI_U64,
                                      .redop = TUTTI_SUM,
                                      .size = comm->size,
                                      .count = VALUES,
                                      .chunk = VALUES},
                             .ranks = m->tcp->everyone,
                             .me = comm->rank,
                             .src = values,
                             .dst = values};

    TUTTI_TRY(tutti__tcp_run_rounds(&run));
    for (int i = 0; i < VALUES; i++)
        values[i] /= (uint64_t)comm->size;
    return TUTTI_OK;
}

tutti_status tutti__tcp_measure(tutti__tcp *tcp, tutti__tuner *tuner, double deadline)
{
    const tutti__comm *comm = tcp->comm;
    measurement m = {.tcp = tcp,
                     .op = {.signature = {.op = TUTTI__OP_BARRIER, .group = comm->id},
                            .timeout_ms = comm->timeout_ms,
                            .deadline = deadline}};
    uint64_t values[VALUES];
    tutti_status status;

    if (tuner->has_links)
        return TUTTI_OK;
    m.memory = calloc(2, LARGE_BYTES);
    if (!m.memory)
        return tutti__comm_fail(tcp->comm, TUTTI_ERR_MEMORY, comm->rank,
                                "rank %d has no memory to measure links", comm->rank);
    tuner->has_links = true; /* with no cost: the barrier is by rounds */
    status = tutti__tcp_barrier(tcp, tuner, &m.op, tcp->everyone, comm->size, comm->rank);
    if (status == TUTTI_OK)
        status = measure(&m, values);
    if (status == TUTTI_OK)
        status = agree(&m, values);
    free(m.memory);
    if (status == TUTTI_OK)
        tutti__tuner_set_links(tuner, values);
    tutti_log(TUTTI_LOG_DEBUG, "comm",
              "links: latency %.1f us, message %.1f us, %.2f ns a byte, reduction %.2f ns a byte",
              (double)tuner->links.level[0].latency_ns * 1e-3,
              (double)tuner->links.level[0].message_ns * 1e-3,
              (double)tuner->links.level[0].byte_ps * 1e-3, (double)tuner->links.reduce_ps * 1e-3);
    return status;
}
