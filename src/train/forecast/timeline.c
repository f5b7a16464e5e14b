/* timeline.c -- a step in time.   SPDX-License-Identifier: MIT */
#include "train/forecast/timeline.h"

#include <stdlib.h>
#include <string.h>

/* ---- Calls ----------------------------------------------------------------------------------------------------------- */

static double flops_so_far(void *of)
{
    const tutti__profile *profile = of;
    double flops = 0;

    for (size_t i = 0; i < tutti__profile_n_rows(profile); i++)
        flops +=
            tutti__profile_at(profile, i)->flops * (double)tutti__profile_at(profile, i)->calls;
    return flops;
}

static void set_log(const tutti__timeline *t, tutti__planned_log *log)
{
    for (int i = 0; i < TUTTI__CALLS_OF; i++)
        if (t->groups[i]) {
            tutti__group_planned_calls(t->groups[i])->log = log;
            tutti__group_planned_calls(t->groups[i])->log_group = i;
        }
}

void tutti__timeline_begin(tutti__timeline *t, tutti_group *all, tutti_mesh *mesh,
                           tutti_group *sharers, tutti__profile *profile)
{
    t->groups[TUTTI__CALLS_OF_DATA] = mesh ? tutti_mesh_group(mesh, "data") : all;
    t->groups[TUTTI__CALLS_OF_SHARES] = sharers;
    t->groups[TUTTI__CALLS_OF_TENSOR] = tutti_mesh_group(mesh, "tensor");
    t->groups[TUTTI__CALLS_OF_PIPELINE] = tutti_mesh_group(mesh, "pipeline");
    t->groups[TUTTI__CALLS_OF_ALL] = mesh ? all : NULL;
    t->log.n = 0;
    t->log.clock = flops_so_far;
    t->log.of = profile;
    set_log(t, &t->log);
}

void tutti__timeline_update(tutti__timeline *t)
{
    t->n_gradients = t->log.n;
    t->flops = flops_so_far(t->log.of);
}

tutti_status tutti__timeline_end(tutti__timeline *t)
{
    set_log(t, NULL);
    memset(t->groups, 0, sizeof t->groups);
    t->log.clock = NULL;
    return t->log.incomplete ? tutti__fail(TUTTI_ERR_MEMORY, "no memory for the calls of a step")
                             : TUTTI_OK;
}

void tutti__timeline_free(tutti__timeline *t)
{
    free(t->log.p);
    t->log = (tutti__planned_log){.p = NULL};
}

/* ---- Seconds ------------------------------------------------------------------------------------------------------------ */

/* Adds a point, or replaces one that is so near that there would be too many. */
static void add(tutti__timeline *t, double flops, double seconds)
{
    const size_t n = t->n_left;
    const double grain = 2.0 / (TUTTI__TIMELINE_POINTS - 2);

    if (n > 1 && flops - t->left[n - 1].flops < grain && seconds - t->left[n - 1].seconds < grain)
        return;
    if (n == TUTTI__TIMELINE_POINTS)
        return;
    t->left[n].flops = flops;
    t->left[n].seconds = seconds;
    t->n_left++;
}

static const tutti__profile_row *row_of(const tutti__time_span *span)
{
    return strcmp(span->category, TUTTI__PROFILE_CATEGORY) == 0
               ? (const void *)(uintptr_t)span->detail[0]
               : NULL;
}

/* From the last operation to the first: what one computes is left until it ends. */
static void take(tutti__timeline *t, const tutti__time_span *spans, size_t n, uint64_t begin_ns,
                 uint64_t gradients_ns)
{
    const double whole = (double)(gradients_ns - begin_ns);
    double all = 0, left = 0;

    for (size_t i = 0; i < n; i++)
        if (row_of(&spans[i]) && spans[i].begin_ns >= begin_ns && spans[i].end_ns <= gradients_ns)
            all += row_of(&spans[i])->flops;
    t->n_left = 0;
    add(t, 0, 0);
    for (size_t i = n; i-- > 0 && all > 0;) {
        const tutti__profile_row *row = row_of(&spans[i]);

        if (!row || row->flops <= 0 || spans[i].begin_ns < begin_ns ||
            spans[i].end_ns > gradients_ns)
            continue;
        left += row->flops;
        add(t, left / all, (double)(gradients_ns - spans[i].begin_ns) / whole);
    }
    t->left[t->n_left - 1].flops = 1;
    t->left[t->n_left - 1].seconds = 1;
    if (t->n_left == 1)
        t->n_left = 0;
}

tutti_status tutti__timeline_measured(tutti__timeline *t, tutti__recorder *recorder,
                                      const uint64_t ns[3])
{
    tutti__time_span *spans = tutti__alloc(TUTTI__TIMELINE_SPANS * sizeof *spans);

    if (!spans)
        return TUTTI_ERR_MEMORY;
    take(t, spans, tutti__recorder_read(recorder, spans, TUTTI__TIMELINE_SPANS), ns[0], ns[1]);
    t->update = ns[2] > ns[0] ? (double)(ns[2] - ns[1]) / (double)(ns[2] - ns[0]) : 0;
    free(spans);
    return TUTTI_OK;
}

double tutti__timeline_left(const tutti__timeline *t, double flops)
{
    size_t i = 1;

    if (t->n_left < 2 || flops <= 0 || flops >= 1)
        return flops > 0 ? flops : 0;
    while (i + 1 < t->n_left && t->left[i].flops < flops)
        i++;
    {
        const double begin = t->left[i - 1].flops, end = t->left[i].flops,
                     a = t->left[i - 1].seconds, b = t->left[i].seconds;

        return end > begin ? a + (b - a) * (flops - begin) / (end - begin) : b;
    }
}
