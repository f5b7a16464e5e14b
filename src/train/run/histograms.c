/* histograms.c -- the distributions of all parameters and mean gradients, of which each rank counts what is its own.
 * SPDX-License-Identifier: MIT */
#include "comm/comm.h"
#include "nn/nn.h"
#include "train/output/loggers/histogram.h"
#include "train/run/run.h"

#include <stdlib.h>

typedef enum kind { PARAMETERS, GRADIENTS } kind;

typedef struct counting {
    const tutti__session *s;
    bool together; /* ranks have different parts, and add up what they count */
    bool first;    /* counts what all ranks have that differ only in data */
    int of_data;   /* rank among those */
    tutti__histogram *histogram;
    float *room; /* host memory, for the largest parameter */
} counting;

/* Elements [begin,end) of flat memory. */
static tutti_status count(counting *c, const float *flat, size_t begin, size_t end)
{
    tutti_stream *stream = c->s->module->cx->stream;

    if (begin >= end)
        return TUTTI_OK;
    TUTTI_TRY(tutti__copy_out(stream, c->room, flat + begin, (end - begin) * sizeof *flat));
    TUTTI_TRY(tutti_stream_wait(stream));
    tutti__histogram_add(c->histogram, c->room, end - begin);
    return TUTTI_OK;
}

/* What this rank counts of [begin,end): its shares, if it is in the first of the replicas (zero_ranks), and on the first rank what every
 * rank has. */
static tutti_status count_own(counting *c, const tutti__sharding *sharding, const float *flat,
                              size_t begin, size_t end)
{
    if (!sharding)
        return c->first ? count(c, flat, begin, end) : TUTTI_OK;
    for (tutti__range_part part = {0}; tutti__sharding_next(sharding, begin, end, &part);) {
        const tutti__range *range = part.range;

        if (range->copy || (range->whole ? !c->first : c->of_data >= sharding->peers.size))
            continue;
        if (range->host && flat == c->s->module->root->flat_parameters)
            tutti__histogram_add(c->histogram, range->host + (part.low - range->begin),
                                 part.high - part.low);
        else
            TUTTI_TRY(count(c, flat, part.low, part.high));
    }
    return TUTTI_OK;
}

/* On rank 0: of all ranks. */
static tutti_status add_up(tutti__histogram *h, tutti_group *group)
{
    double ends[2] = {h->max, -h->min}, sums[2] = {h->sum, h->sum_squares};
    int64_t n = (int64_t)h->n;

    TUTTI_TRY(tutti_reduce(group, TUTTI_BUF(h->counts, TUTTI__HISTOGRAM_BINS, TUTTI_I32), TUTTI_SUM,
                           0, NULL));
    TUTTI_TRY(tutti_reduce(group, TUTTI_BUF(ends, 2, TUTTI_F64), TUTTI_MAX, 0, NULL));
    TUTTI_TRY(tutti_reduce(group, TUTTI_BUF(sums, 2, TUTTI_F64), TUTTI_SUM, 0, NULL));
    TUTTI_TRY(tutti_reduce(group, TUTTI_BUF(&n, 1, TUTTI_I64), TUTTI_SUM, 0, NULL));
    h->max = ends[0];
    h->min = -ends[1];
    h->sum = sums[0];
    h->sum_squares = sums[1];
    h->n = (uint64_t)n;
    return TUTTI_OK;
}

/* By shards, where one rank counts alone: with zero 3 it reads what others have. */
static tutti_status count_alone(counting *c, tutti_tensor *p)
{
    tutti__histogram_begin(c->histogram);
    TUTTI_TRY(tutti_tensor_read(p, c->room));
    tutti__histogram_add(c->histogram, c->room, (size_t)tutti_shape_count(p->shape));
    return TUTTI_OK;
}

/* Of parameter p. */
static tutti_status count_one(counting *c, tutti_tensor *p, kind of)
{
    const struct tutti_root *root = c->s->module->root;
    const size_t begin = root->offsets[p->parameter->index];
    const bool shares =
        root->sharding && (of == PARAMETERS ? root->reserved : !root->sharding->whole_gradients);

    if (!c->together && of == PARAMETERS)
        return count_alone(c, p);
    tutti__histogram_begin(c->histogram);
    if (!p->parameter->counted_by_peer) /* which has the same */
        TUTTI_TRY(count_own(c, shares ? root->sharding : NULL,
                            of == PARAMETERS ? root->flat_parameters : root->flat_gradients, begin,
                            begin + (size_t)tutti_shape_count(p->shape)));
    return c->together ? add_up(c->histogram, c->s->group) : TUTTI_OK;
}

static tutti_status write(counting *c, tutti__logs *logs, tutti_tensor *p, kind of, uint64_t step)
{
    static const char *const names[] = {"parameters", "gradients"};
    char tag[512];

    TUTTI_TRY(count_one(c, p, of));
    if (c->s->rank != 0)
        return TUTTI_OK;
    tutti__histogram_end(c->histogram);
    snprintf(tag, sizeof tag, "%s/%s", names[of], tutti_tensor_name(p));
    tutti__logs_histogram(logs, step, tag, c->histogram);
    return TUTTI_OK;
}

static tutti_status write_all(counting *c, tutti__logs *logs, uint64_t step)
{
    const tutti__session *s = c->s;
    const tutti_module *m = s->module;
    /* by shards each rank may have means of its share only, and the group may die at any time */
    const bool gradients = c->together || !s->zero || s->config->zero == 1;

    for (size_t i = 0; i < tutti_module_n_parameters(m); i++) {
        tutti_tensor *p = tutti_module_parameter(m, i);

        TUTTI_TRY(write(c, logs, p, PARAMETERS, step));
        if (gradients && tutti__has_gradient(p->parameter))
            TUTTI_TRY(write(c, logs, p, GRADIENTS, step));
    }
    return TUTTI_OK;
}

tutti_status tutti__run_histograms(tutti__train_run *run)
{
    const tutti__session *s = &run->session;
    const uint64_t every = (uint64_t)s->config->histograms, step = run->position.at.step;
    counting c = {.s = s, .together = s->shards == 0 && (s->zero || s->mesh)};
    size_t largest = 0;
    tutti_status status;

    if (every == 0 || step % every != 0 || (!c.together && s->rank != 0))
        return TUTTI_OK;
    if (s->shards == 0 && s->group)
        c.of_data = tutti_group_rank(tutti__session_data_group(s));
    c.first = c.of_data == 0;
    for (size_t i = 0; i < tutti_module_n_parameters(s->module); i++) {
        const size_t n = (size_t)tutti_shape_count(tutti_module_parameter(s->module, i)->shape);

        largest = n > largest ? n : largest;
    }
    c.histogram = tutti__alloc(sizeof *c.histogram);
    c.room = tutti__alloc_unset((largest + 1) * sizeof *c.room);
    status = c.histogram && c.room ? TUTTI_OK : TUTTI_ERR_MEMORY;
    if (c.together)
        status = tutti__group_agree(s->group, status);
    if (status == TUTTI_OK)
        status = write_all(&c, &run->logs, step);
    free(c.histogram);
    free(c.room);
    return status;
}
