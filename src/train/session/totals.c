/* totals.c -- a run's time and traffic.   SPDX-License-Identifier: MIT */
#include "train/session/totals.h"

#include "ddp/ddp.h"

double tutti__totals_seconds(const tutti__totals *t)
{
    return t->seconds_before + (double)(tutti__now_ns() - t->start_ns) * 1e-9;
}

tutti_traffic tutti__totals_traffic(const tutti__totals *t, tutti_ddp *ddp)
{
    tutti_reducer *reducer = ddp ? tutti_ddp_reducer(ddp) : NULL;
    tutti_traffic traffic = reducer ? tutti_reducer_traffic(reducer) : (tutti_traffic){0};

    traffic.gradient_bytes += t->before.gradient_bytes;
    traffic.wire_bytes += t->before.wire_bytes;
    return traffic;
}

void tutti__totals_set_traffic(tutti__totals *t, tutti_traffic traffic, tutti_ddp *ddp)
{
    const tutti_traffic own = tutti__totals_traffic(&(tutti__totals){0}, ddp);

    t->before = (tutti_traffic){.gradient_bytes = traffic.gradient_bytes - own.gradient_bytes,
                                .wire_bytes = traffic.wire_bytes - own.wire_bytes};
}
