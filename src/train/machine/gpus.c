/* gpus.c -- the ranks' GPUs, and the driver's error reports about them.   SPDX-License-Identifier: MIT
 *
 * One rank of a machine listens for all of its ranks, so that each report is logged once. Nobody waits for reports: they are
 * read with each line of metrics, and when a run fails. */
#include "train/machine/gpus.h"
#include "base/base.h"
#include "train/config/agreement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool same_device(const tutti__gpu_place *a, const tutti__gpu_place *b)
{
    return a->machine == b->machine && strcmp(a->bus, b->bus) == 0;
}

static void count(tutti__gpus *gpus, const tutti__gpu_place *all, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int before = 0, sharing = 0;

        if (!all[i].bus[0])
            continue;
        for (size_t k = 0; k < n; k++) {
            sharing += same_device(&all[i], &all[k]);
            before += k < i && same_device(&all[i], &all[k]);
        }
        gpus->n_devices += before == 0;
        if (sharing > gpus->most_on_one)
            gpus->most_on_one = sharing;
    }
}

/* GPUs would wait for CPUs in each step: most likely a GPU was not found. */
static tutti_status check_kinds(const tutti__gpu_place *all, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (strcmp(all[i].kind, all[0].kind) != 0)
            return tutti__fail(TUTTI_ERR_MISMATCH,
                               "device: rank 0 computes on %s, but rank %zu on %s; give all ranks "
                               "the same --device (auto uses the CPU if no GPU can be used: "
                               "`tutti doctor gpu` says why)",
                               all[0].kind, i, all[i].kind);
    return TUTTI_OK;
}

static void listen_for(tutti__gpus *gpus, int64_t rank)
{
    if (gpus->n_here == 0 || gpus->here[0].rank != rank)
        return;
    gpus->nvml = tutti__nvml_open();
    for (size_t i = 0; gpus->nvml && i < gpus->n_here; i++) {
        bool again = false;

        for (size_t k = 0; k < i; k++)
            again = again || strcmp(gpus->here[k].bus, gpus->here[i].bus) == 0;
        if (!again)
            tutti__nvml_watch(gpus->nvml, tutti__nvml_find(gpus->nvml, gpus->here[i].bus));
    }
}

tutti_status tutti__gpus_open(tutti__gpus *gpus, tutti_group *group, tutti_device device)
{
    const size_t n = (size_t)tutti_group_size(group);
    tutti__gpu_place mine = {.machine = tutti__boot_id(), .rank = tutti_group_rank(group)};
    tutti__gpu_place *all = tutti__alloc(n * sizeof *all);
    const tutti__device_ops *ops;
    tutti_status status = all ? tutti__device_describe(device, &gpus->device) : TUTTI_ERR_MEMORY;

    strcpy(mine.bus, gpus->device.bus);
    if (status == TUTTI_OK)
        status = tutti__device_ops_of(device.kind, &ops);
    if (status == TUTTI_OK)
        snprintf(mine.kind, sizeof mine.kind, "%s", ops->name);
    status = tutti__fail_together_or_lose(group, status);
    if (status == TUTTI_OK)
        status = tutti_all_gather(group, TUTTI_CONST_BUF(&mine, sizeof mine, TUTTI_U8),
                                  TUTTI_BUF(all, n * sizeof *all, TUTTI_U8), NULL);
    if (status == TUTTI_OK)
        status = tutti__fail_together_or_lose(group, check_kinds(all, n));
    if (status != TUTTI_OK) {
        free(all);
        return status;
    }
    count(gpus, all, n);
    for (size_t i = 0; i < n; i++)
        if (all[i].bus[0] && all[i].machine == mine.machine)
            all[gpus->n_here++] = all[i];
    gpus->here = all;
    listen_for(gpus, mine.rank);
    return TUTTI_OK;
}

static void say(tutti__gpus *gpus, const tutti__xid *xid)
{
    char ranks[128] = "";
    const char *bus = "";

    for (size_t i = 0, used = 0; i < gpus->n_here && used + 16 < sizeof ranks; i++)
        if (tutti__nvml_find(gpus->nvml, gpus->here[i].bus) == xid->gpu) {
            bus = gpus->here[i].bus;
            used += (size_t)snprintf(ranks + used, sizeof ranks - used, "%s%lld",
                                     used ? ", " : " of rank ", (long long)gpus->here[i].rank);
        }
    tutti_log(TUTTI_LOG_WARN, "gpu", "GPU %d (%s)%s: the driver reports Xid %d: %s", xid->gpu, bus,
              ranks, xid->number, tutti__xid_text(xid->number));
}

void tutti__gpus_listen(tutti__gpus *gpus, int wait_ms)
{
    tutti__xid xid;

    while (gpus->nvml && tutti__nvml_next_xid(gpus->nvml, wait_ms, &xid)) {
        say(gpus, &xid);
        wait_ms = 0;
    }
}

void tutti__gpus_close(tutti__gpus *gpus)
{
    tutti__nvml_close(gpus->nvml);
    free(gpus->here);
    *gpus = (tutti__gpus){.nvml = NULL};
}
