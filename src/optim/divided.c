/* divided.c -- updates that depend on whole parameters, of which ranks have parts.   SPDX-License-Identifier: MIT
 *
 *     each part     its direction, and the squares of parameter and direction
 *     once a step   the ranks' sums of squares are added, for all parameters together: of ZeRO's shares, then of the parts of layers
 *     with turn     each bucket's directions are gathered, and each rank turns the whole ones, one after the other
 *     each part     is updated, by the norms of the whole
 *
 * A sum of squares knows no order (device/squares.h), and a whole direction is the same on each rank, so the update has the bits of whole
 * parameters. */
#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    float *bucket;     /* room for those of a bucket, of all ranks; */
    float *whole;      /* for a whole one; */
    float *parts;      /* and for all parts of one whose layer is divided */
    sums *shares;      /* by parameter: in shares, which other ranks have not; then of all of it */
    sums *wholes;      /* in ranges that every rank has */
} divided;

bool tutti__optim_is_split(const tutti_optim *optim, size_t i)
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
        if (tutti__optim_is_split(optim, i))
            return true;
    return false;
}

/* Whether the update of run i's parameter needs all of it. */
static bool needs_all(const divided *d, size_t i)
{
    const tutti__divided_rule *rule = d->optim->rule->divided;

    return !rule->is_elementwise || !rule->is_elementwise(d->optim, d->optim->runs[i].first);
}

/* Calls act for each part of each run in this rank's ranges, with its place for the direction. */
static tutti_status each_part(divided *d, const tutti__sharding *sharding,
                              tutti_status (*act)(divided *d, size_t i, const tutti__range *range,
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
            run.direction =
                d->directions + at +
                ((size_t)(run.g - d->optim->module->root->flat_gradients) - ranges[r].begin);
            TUTTI_TRY(act(d, i, &ranges[r], &run));
        }
        if (sharding)
            TUTTI_TRY(sharding->updated(sharding->self, r));
    }
    return TUTTI_OK;
}

static tutti_status propose(divided *d, size_t i, const tutti__range *range, tutti__flat_run *run)
{
    const size_t k = run->parameter->parameter->index;
    const tutti__flat_span p = {run->p, run->n}, u = {run->direction, run->n};
    sums *to = range->whole ? &d->wholes[k] : &d->shares[k];

    TUTTI_TRY(d->optim->rule->divided->propose(d->optim, run));
    if (range->copy || !needs_all(d, i)) /* a copy's owner counts it */
        return TUTTI_OK;
    TUTTI_TRY(tutti__add_squares(d->optim->cx, &p, 1, &to->p));
    return tutti__add_squares(d->optim->cx, &u, 1, &to->u);
}

static tutti_status apply(divided *d, size_t i, const tutti__range *range, tutti__flat_run *run)
{
    const sums *of = &d->shares[run->parameter->parameter->index];

    (void)range;
    return needs_all(d, i)
               ? d->optim->rule->divided->apply(d->optim, run, sqrt(tutti__squares_value(&of->p)),
                                                sqrt(tutti__squares_value(&of->u)))
               : TUTTI_OK;
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
        if (tutti__optim_is_split(d->optim, i))
            split[i] = d->shares[i];
    status = tutti__add_peers_squares(&root->norm_peers[0], &split[0].p, SUMS * n);
    for (size_t i = 0; i < n; i++)
        if (tutti__optim_is_split(d->optim, i))
            d->shares[i] = split[i];
    free(split);
    return status;
}

/* ---- Whole directions ------------------------------------------------------------------------------------------------ */

/* Those of run i's parameter, between d->whole, of which it is [begin,end) of flat memory, and the parts that this rank has: to d->whole those that
 * every rank has, or all from it. */
static tutti_status exchange(const divided *d, size_t i, bool to_whole)
{
    tutti_stream *stream = d->optim->cx->stream;
    const tutti__stretch *of = &d->optim->runs[i];
    const tutti__range *ranges;
    tutti__range all;
    const size_t n = tutti__optim_ranges(d->optim, &all, &ranges);
    size_t at = 0, low, high;

    for (size_t r = 0; r < n; at += tutti__range_state(&ranges[r]), r++) {
        float *part, *whole;

        if ((to_whole && !ranges[r].whole) ||
            !tutti__range_meets(&ranges[r], of->begin, of->end, &low, &high))
            continue;
        part = d->directions + at + (low - ranges[r].begin);
        whole = d->whole + (low - of->begin);
        TUTTI_TRY(tutti__copy(stream, to_whole ? whole : part, to_whole ? part : whole,
                              (high - low) * sizeof *whole));
    }
    return TUTTI_OK;
}

/* Where the part of rank r of a divided layer is in the whole parameter. */
static tutti__split_places places_of(const tutti_tensor *t, int r)
{
    tutti__parameter_split split = tutti__state_of(t)->split;
    tutti_shape whole = t->shape;

    whole.d[split.dim] = split.whole;
    split.index = r;
    return tutti__split_find(&split, whole);
}

/* Of every rank's part, of which there is memory for the largest. */
static size_t most_elements(const tutti_tensor *t)
{
    size_t most = 0;

    for (int r = 0; r < tutti__state_of(t)->split.count; r++) {
        const tutti__split_places p = places_of(t, r);
        const size_t n = (size_t)(p.run * p.n);

        most = n > most ? n : most;
    }
    return most;
}

/* Rank r's part, between `part` and its places in d->whole. */
static tutti_status move_part(const divided *d, const tutti_tensor *t, int r, float *part,
                              bool to_whole)
{
    const tutti__split_places p = places_of(t, r);

    for (int64_t k = 0; k < p.n; k++) {
        float *whole = d->whole + p.first + k * p.stride, *own = part + k * p.run;

        TUTTI_TRY(tutti__copy(d->optim->cx->stream, to_whole ? whole : own, to_whole ? own : whole,
                              (size_t)p.run * sizeof *own));
    }
    return TUTTI_OK;
}

/* d->whole, this rank's part of a divided layer, becomes all of it; turned, and its part again. */
static tutti_status turn_split(const divided *d, const tutti__flat_run *run)
{
    const tutti_peers *peers = &d->optim->module->root->norm_peers[0];
    const tutti_tensor *t = run->parameter;
    const size_t most = most_elements(t);
    float *mine = d->parts, *all = d->parts + most;

    TUTTI_TRY(tutti__copy(d->optim->cx->stream, mine, d->whole,
                          (size_t)tutti_shape_count(t->shape) * sizeof *mine));
    TUTTI_TRY(peers->all_gather(peers->self, d->optim->cx->stream, mine, most, all));
    for (int r = 0; r < peers->size; r++)
        TUTTI_TRY(move_part(d, t, r, all + (size_t)r * most, true));
    TUTTI_TRY(d->optim->rule->divided->turn(d->optim, run, d->whole));
    TUTTI_TRY(move_part(d, t, peers->rank, mine, false));
    return tutti__copy(d->optim->cx->stream, d->whole, mine,
                       (size_t)tutti_shape_count(t->shape) * sizeof *mine);
}

/* The direction of run i's parameter, of which [begin,end) of flat memory is in d->bucket, and every rank has the rest. */
static tutti_status turn(divided *d, size_t i, size_t begin, size_t end)
{
    tutti_optim *optim = d->optim;
    const tutti__stretch *of = &optim->runs[i];
    const tutti__flat_run run = {.options = &optim->groups[of->group].options,
                                 .parameter = of->first};
    const tutti__range bucket = {.begin = begin, .end = end};
    size_t low, high;

    if (tutti__range_meets(&bucket, of->begin, of->end, &low, &high))
        TUTTI_TRY(tutti__copy(optim->cx->stream, d->whole + (low - of->begin),
                              d->bucket + (low - begin), (high - low) * sizeof *d->whole));
    TUTTI_TRY(exchange(d, i, true));
    TUTTI_TRY(tutti__optim_is_split(optim, of->first->parameter->index)
                  ? turn_split(d, &run)
                  : optim->rule->divided->turn(optim, &run, d->whole));
    return exchange(d, i, false);
}

/* The bucket of which a range is this rank's share; false: it is none. */
static bool bucket_of(const tutti__sharding *sharding, const tutti__range *range,
                      tutti__range *bucket)
{
    const size_t share = range->end - range->begin;

    bucket->begin = range->begin - (size_t)sharding->peers.rank * share;
    bucket->end = bucket->begin + (size_t)sharding->peers.size * share;
    return !range->whole && !range->copy && !range->bare;
}

/* Gathers the directions of the bucket in which run i is, unless it is *last. */
static tutti_status gather(divided *d, const tutti__sharding *sharding, size_t i,
                           tutti__range *last)
{
    const tutti__stretch *of = &d->optim->runs[i];
    tutti_stream *stream = d->optim->cx->stream;
    size_t at = 0, low, high;

    for (size_t r = 0; r < sharding->n; at += tutti__range_state(&sharding->ranges[r]), r++) {
        const tutti__range *range = &sharding->ranges[r];
        const size_t share = range->end - range->begin;
        tutti__range bucket;

        if (!bucket_of(sharding, range, &bucket) ||
            !tutti__range_meets(&bucket, of->begin, of->end, &low, &high))
            continue;
        if (bucket.begin == last->begin && bucket.end == last->end)
            return TUTTI_OK;
        *last = bucket;
        return sharding->peers.size > 1
                   ? sharding->peers.all_gather(sharding->peers.self, stream, d->directions + at,
                                                share, d->bucket)
                   : tutti__copy(stream, d->bucket, d->directions + at, share * sizeof *d->bucket);
    }
    *last = (tutti__range){0}; /* every rank has all of it */
    return TUTTI_OK;
}

/* In the order of flat memory, which is the same on all ranks. */
static tutti_status turn_all(divided *d, const tutti__sharding *sharding)
{
    tutti__range bucket = {0};

    for (size_t i = 0; d->optim->rule->divided->turn && i < d->n_runs; i++) {
        if (!needs_all(d, i))
            continue;
        if (sharding)
            TUTTI_TRY(gather(d, sharding, i, &bucket));
        TUTTI_TRY(turn(d, i, bucket.begin, bucket.end));
    }
    return TUTTI_OK;
}

static void raise(size_t *most, size_t n)
{
    *most = n > *most ? n : *most;
}

/* Elements of d->bucket, d->whole and d->parts. */
static void measure(const divided *d, const tutti__sharding *sharding, size_t room[3])
{
    size_t low, high;

    memset(room, 0, 3 * sizeof *room);
    for (size_t i = 0; d->optim->rule->divided->turn && i < d->n_runs; i++) {
        const tutti__stretch *of = &d->optim->runs[i];
        const tutti__state *state = tutti__state_of(of->first);
        tutti__range bucket;

        if (!needs_all(d, i))
            continue;
        for (size_t r = 0; sharding && r < sharding->n; r++)
            if (bucket_of(sharding, &sharding->ranges[r], &bucket) &&
                tutti__range_meets(&bucket, of->begin, of->end, &low, &high))
                raise(&room[0], bucket.end - bucket.begin);
        raise(&room[1], (size_t)tutti__whole_count(state));
        if (tutti__optim_is_split(d->optim, of->first->parameter->index))
            raise(&room[2], most_elements(of->first) * (size_t)(state->split.count + 1));
    }
}

/* ---- The update -------------------------------------------------------------------------------------------------------- */

static tutti_status update(divided *d, const tutti__sharding *sharding)
{
    TUTTI_TRY(each_part(d, NULL, propose));
    TUTTI_TRY(add_ranks(d, sharding));
    TUTTI_TRY(turn_all(d, sharding));
    return each_part(d, sharding, apply);
}

static tutti_status make_room(divided *d, const tutti__sharding *sharding)
{
    const size_t n = d->optim->module->root->parameters.n;
    size_t room[3];

    d->shares = tutti__alloc(2 * n * sizeof *d->shares);
    if (!d->shares)
        return TUTTI_ERR_MEMORY;
    d->wholes = d->shares + n;
    measure(d, sharding, room);
    TUTTI_TRY(tutti__optim_scratch(d->optim, d->optim->n_state + room[0] + room[1] + room[2] + 1,
                                   &d->directions));
    d->bucket = d->directions + d->optim->n_state;
    d->whole = d->bucket + room[0];
    d->parts = d->whole + room[1];
    return TUTTI_OK;
}

tutti_status tutti__optim_update_divided(tutti_optim *optim, const tutti__sharding *sharding,
                                         size_t n_runs)
{
    divided d = {.optim = optim, .n_runs = n_runs};
    tutti_status status = make_room(&d, sharding);

    if (status == TUTTI_OK)
        status = update(&d, sharding);
    free(d.shares);
    return status;
}
