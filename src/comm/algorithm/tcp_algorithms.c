/* tcp_algorithms.c -- chooses the algorithm over TCP.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/tcp_algorithms.h"

#include "comm/algorithm/tcp_rounds.h"

static tutti_status run_direct(tutti__tcp *tcp, tutti__operation *op)
{
    const tutti__op_traits *traits = tutti__op_traits_of(op);

    if (!traits->reduces)
        return tutti__tcp_move(tcp, op);
    if (op->signature.op == TUTTI__OP_ALL_REDUCE)
        tutti__op_in_place(op);
    return (traits->scatters  ? tutti__tcp_reduce_scatter
            : traits->to_root ? tutti__tcp_reduce
                              : tutti__tcp_all_reduce)(tcp, op);
}

tutti_status tutti__tcp_run(tutti__tcp *tcp, tutti__tuner *tuner, tutti__operation *op)
{
    tutti__tcp_rounds run = {.tcp = tcp,
                             .op = op,
                             .first = true,
                             .call = tutti__coll_of(&op->signature, tcp->comm->size),
                             .ranks = tcp->everyone,
                             .me = tcp->comm->rank,
                             .src = op->src,
                             .dst = op->dst,
                             .divisor = (size_t)tcp->comm->size};

    if (tutti__op_is_empty(op))
        return tutti__tcp_barrier(tcp, tuner, op, tcp->everyone, tcp->comm->size, tcp->comm->rank);
    run.algorithm = tutti__tuner_choose(tuner, &run.call);
    if (!run.algorithm || tutti__coll_is_direct(run.algorithm))
        return run_direct(tcp, op);
    return tutti__tcp_run_rounds(&run);
}

tutti_status tutti__tcp_barrier(tutti__tcp *tcp, tutti__tuner *tuner, const tutti__operation *op,
                                const int *ranks, int n, int me)
{
    static const char token;
    tutti__tcp_rounds run = {.tcp = tcp,
                             .op = op,
                             .first = true,
                             .call =
                                 tutti__coll_of(&(tutti__signature){.op = TUTTI__OP_BARRIER}, n),
                             .ranks = ranks,
                             .me = me,
                             .src = &token};

    run.algorithm = tutti__tuner_choose(tuner, &run.call);
    /* of an uneven operation a message's length is compared, and a token is none of it */
    if (!tutti__coll_is_direct(run.algorithm) && !tutti__op_traits_of(op)->uneven)
        return tutti__tcp_run_rounds(&run);
    TUTTI_TRY(tutti__tcp_start(
        tcp, &(tutti__schedule){.op = op, .first = true, .ranks = ranks, .n_ranks = n}));
    return tutti__tcp_finish(tcp);
}
