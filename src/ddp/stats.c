/* stats.c -- DDP's statistics and times; logs the buckets.   SPDX-License-Identifier: MIT
 *
 *     forward   |=========|                       step begun -> backward
 *     backward            |=================|     its computation
 *     comm                     |===|   |=========|    buckets on the communication thread
 *     exposed                               |====|    backward is over and waits
 *     overlap                  |===|   |====|         the part of comm that ran during backward */
#include "ddp/ddp.h"
#include "tensor/tensor.h"

#include <stdio.h>

static void add(tutti_ddp_times *sum, const tutti_ddp_times *t)
{
    sum->forward_ms += t->forward_ms;
    sum->backward_ms += t->backward_ms;
    sum->comm_ms += t->comm_ms;
    sum->exposed_ms += t->exposed_ms;
    sum->overlap_ms += t->overlap_ms;
}

static tutti_ddp_times divided(const tutti_ddp_times *sum, uint64_t steps)
{
    const double n = steps ? (double)steps : 1;

    return (tutti_ddp_times){sum->forward_ms / n, sum->backward_ms / n, sum->comm_ms / n,
                             sum->exposed_ms / n, sum->overlap_ms / n};
}

static double ms(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-6 : 0;
}

void tutti__ddp_clock_end(tutti_ddp *ddp, uint64_t backward_end_ns, uint64_t end_ns)
{
    const tutti_reducer *r = ddp->reducer;
    tutti__ddp_clock *c = &ddp->clock;
    const double backward_end_ms = ms(tutti__reducer_begin_ns(r), backward_end_ns);

    c->last = (tutti_ddp_times){.forward_ms = ms(c->step_ns, c->backward_ns),
                                .backward_ms = ms(c->backward_ns, backward_end_ns),
                                .exposed_ms = ms(backward_end_ns, end_ns)};
    for (size_t b = 0; b < tutti_reducer_n_buckets(r); b++) {
        const tutti_bucket_info info = tutti_reducer_bucket(r, b);
        const double end = info.done_ms < backward_end_ms ? info.done_ms : backward_end_ms;

        c->last.comm_ms += info.done_ms - info.begin_ms;
        c->last.overlap_ms += end > info.begin_ms ? end - info.begin_ms : 0;
    }
    add(&c->sum, &c->last);
    c->steps++;
    tutti__record(tutti_module_ctx(ddp->module)->recorder, "step", "exposed communication",
                  (int64_t)tutti_ctx_step(tutti_module_ctx(ddp->module)), 0, backward_end_ns,
                  end_ns);
}

double tutti__ddp_exposed_seconds(const tutti_ddp *ddp)
{
    return ddp->clock.last.exposed_ms * 1e-3;
}

tutti_ddp_stats tutti_ddp_get_stats(const tutti_ddp *ddp)
{
    const tutti_reducer *r;
    tutti_ddp_stats s = {.transport = "", .hook = ""};

    if (!ddp)
        return s;
    r = ddp->reducer;
    if (!ddp->group) /* with shards */
        return s;
    s = (tutti_ddp_stats){.rank = tutti_group_rank(ddp->group),
                          .world_size = tutti_group_size(ddp->group),
                          .transport = tutti_group_transport_name(ddp->group),
                          .hook = ddp->hook.run ? ddp->hook.name : "all_reduce",
                          .bucket_mb = ddp->limits.mb[ddp->limits.n - 1],
                          .first_bucket_mb = ddp->limits.mb[0],
                          .find_unused = ddp->opts.find_unused,
                          .static_graph = ddp->opts.static_graph,
                          .broadcast_buffers = !ddp->opts.keep_buffers && !ddp->shards,
                          .n_buffers = ddp->n_buffers,
                          .buffer_bytes = ddp->packed_bytes,
                          .steps = ddp->clock.steps,
                          .last = ddp->clock.last,
                          .mean = divided(&ddp->clock.sum, ddp->clock.steps)};
    for (size_t i = 0; i < ddp->n; i++) {
        s.n_parameters += ddp->roles[i] == TUTTI__AVERAGED;
        if (ddp->roles[i] == TUTTI__AVERAGED)
            s.parameter_bytes += tutti__tensor_bytes(ddp->parameters[i]);
    }
    if (!r)
        return s;
    s.n_buckets = tutti_reducer_n_buckets(r);
    s.traffic = tutti_reducer_traffic(r);
    s.nonfinite_parameter = tutti__reducer_nonfinite(r, &s.nonfinite_steps);
    return s;
}

void tutti__ddp_log_buckets(const tutti_ddp *ddp)
{
    const tutti_reducer *r = ddp->reducer;
    const size_t n_buckets = tutti_reducer_n_buckets(r);
    const int n_ranks = tutti_group_size(ddp->group);
    size_t n_gradients = 0;

    for (size_t b = 0; b < n_buckets; b++)
        n_gradients += tutti_reducer_bucket(r, b).n;
    tutti_log(TUTTI_LOG_INFO, "ddp",
              "%zu gradient%s in %zu bucket%s, averaged over %d rank%s by %s", n_gradients,
              tutti__s(n_gradients), n_buckets, tutti__s(n_buckets), n_ranks,
              tutti__s((uint64_t)n_ranks), ddp->hook.run ? ddp->hook.name : "all_reduce");
    for (size_t b = 0; b < n_buckets; b++) {
        const tutti_bucket_info info = tutti_reducer_bucket(r, b);
        char names[1024];
        size_t used = 0;

        for (size_t k = 0; k < info.n && used < sizeof names; k++)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", k ? " " : "",
                                     tutti_reducer_name(r, tutti_reducer_at(r, info.first + k)));
        tutti_log(TUTTI_LOG_INFO, "ddp", "bucket %zu: %zu bytes, %zu gradients: %s%s", b,
                  info.bytes, info.n, names, used >= sizeof names ? " ..." : "");
    }
}
