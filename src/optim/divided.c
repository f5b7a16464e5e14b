/* divided.c -- updates that depend on whole parameters, of which ranks have parts.   SPDX-License-Identifier: MIT
 *
 *     each part     its direction, and the squares of parameter and direction
 *     once a step   the ranks' sums of squares are added, for all parameters together: of ZeRO's shares, then of the parts of layers
 *     each part     is updated, by the norms of the whole
 *
 * A sum of squares knows no order (device/squares.h), so the norms, and with them the update, have the bits of whole parameters. */
#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>

/* Sums of squares of a parameter, and of its direction. */
typedef struct sums {
    tutti__squares p, u;
} sums;
enum { SUMS = 2 };
_Static_assert(sizeof(sums) == SUMS * sizeof(tutti__squares), "sums are an array");

typedef struct divided {
    tutti_optim *optim;
    size_t n_runs;
    float *directions; /* of this rank's ranges, as the state */
    bool *done;        /* by parameter */
    sums *shares;      /* by parameter: in shares, which other ranks have not; then of all of it */
    sums *wholes;      /* in ranges that every rank has */
} divided;

static bool is_split(const tutti_optim *optim, size_t i)
{
    const struct tutti_root *root = optim->module->root;

    return root->norm_peers[0].size > 1 && root->parameters.p[i]->split.count > 0;
}

bool tutti__optim_is_divided(const tutti_optim *optim)
{
    const struct tutti_root *root = optim->module->root;

    if (root->sharding)
        return true;
    for (size_t i = 0; i < root->parameters.n; i++)
        if (is_split(optim, i))
            return true;
    return false;
}

/* Calls act for each part of each run in this rank's ranges, with its place for the direction. */
static tutti_status each_part(divided *d, const tutti__sharding *sharding,
                              tutti_status (*act)(divided *d, const tutti__range *range,
                                                  tutti__flat_run *run))
{
    const tutti__range *ranges;
    tutti__range all;
    const size_t n = tutti__optim_ranges(d->optim, &all, &ranges);
    size_t at = 0;

    for (size_t r = 0; r < n; at += tutti__range_state(&ranges[r]), r++) {
        for (size_t i = 0; i < d->n_runs; i++) {
            tutti__flat_run run;

            if (!tutti__optim_part(d->optim, &d->optim->runs[i], &ranges[r], at, &run))
                continue;
            run.direction = d->directions + at +
                            ((size_t)(run.g - d->optim->module->root->flat_gradients) -
                             ranges[r].begin);
            TUTTI_TRY(act(d, &ranges[r], &run));
        }
        if (sharding)
            TUTTI_TRY(sharding->updated(sharding->self, r));
    }
    return TUTTI_OK;
}

static tutti_status propose(divided *d, const tutti__range *range, tutti__flat_run *run)
{
    const size_t i = run->parameter->parameter->index;
    const tutti__flat_span p = {run->p, run->n}, u = {run->direction, run->n};
    sums *to = range->whole ? &d->wholes[i] : &d->shares[i];

    TUTTI_TRY(d->optim->rule->divided->propose(d->optim, run, &d->done[i]));
    if (d->done[i] || range->copy) /* whose owner counts it */
        return TUTTI_OK;
    TUTTI_TRY(tutti__add_squares(d->optim->cx, &p, 1, &to->p));
    return tutti__add_squares(d->optim->cx, &u, 1, &to->u);
}

static tutti_status apply(divided *d, const tutti__range *range, tutti__flat_run *run)
{
    const size_t i = run->parameter->parameter->index;

    (void)range;
    return d->done[i] ? TUTTI_OK
                      : d->optim->rule->divided->apply(
                            d->optim, run, sqrt(tutti__squares_value(&d->shares[i].p)),
                            sqrt(tutti__squares_value(&d->shares[i].u)));
}

/* d->shares become the sums of the whole parameters. */
static tutti_status add_ranks(divided *d, const tutti__sharding *sharding)
{
    const struct tutti_root *root = d->optim->module->root;
    const size_t n = root->parameters.n;
    sums *split;
    tutti_status status;

    if (sharding)
        TUTTI_TRY(tutti__add_peers_squares(&sharding->peers, &d->shares[0].p, SUMS * n));
    for (size_t i = 0; i < n; i++) {
        tutti__squares_add(&d->shares[i].p, &d->wholes[i].p);
        tutti__squares_add(&d->shares[i].u, &d->wholes[i].u);
    }
    if (root->norm_peers[0].size <= 1)
        return TUTTI_OK;
    split = tutti__alloc(n * sizeof *split);
    if (!split)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < n; i++)
        if (is_split(d->optim, i))
            split[i] = d->shares[i];
    status = tutti__add_peers_squares(&root->norm_peers[0], &split[0].p, SUMS * n);
    for (size_t i = 0; i < n; i++)
        if (is_split(d->optim, i))
            d->shares[i] = split[i];
    free(split);
    return status;
}

static tutti_status update(divided *d, const tutti__sharding *sharding)
{
    TUTTI_TRY(each_part(d, NULL, propose));
    TUTTI_TRY(add_ranks(d, sharding));
    return each_part(d, sharding, apply);
}

tutti_status tutti__optim_update_divided(tutti_optim *optim, const tutti__sharding *sharding,
                                         size_t n_runs)
{
    const size_t n = optim->module->root->parameters.n;
    divided d = {.optim = optim, .n_runs = n_runs};
    tutti_status status = tutti__optim_scratch(optim, optim->n_state + 1, &d.directions);

    d.done = tutti__alloc(n * sizeof *d.done);
    d.shares = tutti__alloc(2 * n * sizeof *d.shares);
    if (status == TUTTI_OK && (!d.done || !d.shares))
        status = TUTTI_ERR_MEMORY;
    d.wholes = d.shares ? d.shares + n : NULL;
    if (status == TUTTI_OK)
        status = update(&d, sharding);
    free(d.done);
    free(d.shares);
    return status;
}
