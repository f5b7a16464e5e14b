/* ema.c -- the exponential moving average of a module's parameters, in flat memory.   SPDX-License-Identifier: MIT
 *
 * average += (1 - decay) * (parameter - average), as PyTorch's lerp computes it. That is the step of an SGD whose gradient is the
 * parameter, with weight decay -1 and learning rate decay - 1, so every device has it. */
#include "optim/ema.h"

#include "optim/optim.h"
#include "tensor/op_profile.h"
#include "tensor/parallel.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Elements: of a job, enough to be worth a thread; of the room for a swap. */
#define PART ((size_t)1 << 16)
#define ROOM ((size_t)1 << 22)

/* ---- Construction ---------------------------------------------------------------------------------------------- */

tutti_status tutti_ema_new(tutti_ema **ema_p, tutti_module *m, const tutti_ema_opts *opts)
{
    const tutti_ema_opts o = opts ? *opts : (tutti_ema_opts){0};
    const double decay = tutti__optim_option(o.decay, 0.999);
    tutti_ema *ema;

    TUTTI_TRY(TUTTI__NOT_NULL(ema_p));
    *ema_p = NULL;
    TUTTI_TRY(tutti_module_status(m));
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_ema_opts, &o));
    TUTTI_TRY(tutti__optim_check("ema", "decay", decay, 0, 1));
    if (m->root->module != m)
        return tutti__fail(TUTTI_ERR_ARG, "ema: '%s' is part of another module; pass the root",
                           tutti__module_path(m));
    if (tutti_module_n_parameters(m) == 0)
        return tutti__fail(TUTTI_ERR_ARG, "ema: the module has no parameters to average");
    ema = tutti__alloc(sizeof *ema);
    if (!ema)
        return TUTTI_ERR_MEMORY;
    *ema = (tutti_ema){.module = m, .cx = m->cx, .weight = (float)(1 - decay)};
    *ema_p = ema;
    return TUTTI_OK;
}

void tutti_ema_free(tutti_ema *ema)
{
    if (!ema)
        return;
    if (ema->average)
        ema->cx->device_ops->free(ema->cx->device, ema->average);
    free(ema->offsets);
    free(ema);
}

/* ---- Layout ---------------------------------------------------------------------------------------------------- */

static size_t bytes_of(const struct tutti_root *root, size_t i)
{
    return tutti__tensor_bytes(root->parameters.p[i]->tensor);
}

/* Parameters that are neighbours, with their averages. */
typedef struct span {
    float *parameters, *average;
    size_t n;
} span;

/* Span i, after `before` elements of the averages; false past the last one. */
static bool span_at(const tutti_ema *ema, size_t i, size_t before, span *s)
{
    const struct tutti_root *root = ema->module->root;
    const tutti__range *range;

    if (i >= (ema->sharding ? ema->sharding->n : 1))
        return false;
    *s = (span){root->flat_parameters, ema->average, root->n_flat};
    if (!ema->sharding)
        return true;
    range = &ema->sharding->ranges[i];
    *s = (span){root->flat_parameters + range->begin, ema->average + before,
                range->end - range->begin};
    return true;
}

static tutti_status copy_parameters(const tutti_ema *ema)
{
    size_t at = 0;
    span s;

    for (size_t i = 0; span_at(ema, i, at, &s); i++, at += s.n)
        TUTTI_TRY(tutti__copy(ema->cx->stream, s.average, s.parameters, s.n * sizeof *s.average));
    return TUTTI_OK;
}

static tutti_status take_parameter(const tutti_ema *ema, const tutti__sharding *sharding, size_t i,
                                   float *average)
{
    const struct tutti_root *root = ema->module->root;
    const size_t begin = root->offsets[i];
    size_t at = 0, low, high;

    for (size_t r = 0; r < sharding->n; r++) {
        const tutti__range *range = &sharding->ranges[r];

        if (tutti__range_meets(range, begin, begin + bytes_of(root, i) / sizeof *average, &low,
                               &high))
            TUTTI_TRY(tutti__copy(ema->cx->stream, average + at + (low - range->begin),
                                  ema->average + ema->offsets[i] + (low - begin),
                                  (high - low) * sizeof *average));
        at += range->end - range->begin;
    }
    return TUTTI_OK;
}

/* Of the averages of all parameters those in this rank's ranges. */
static tutti_status take_ranges(const tutti_ema *ema, const tutti__sharding *sharding,
                                float *average)
{
    for (size_t i = 0; i < ema->module->root->parameters.n; i++)
        TUTTI_TRY(take_parameter(ema, sharding, i, average));
    return tutti_stream_wait(ema->cx->stream); /* the others are about to be freed */
}

static void replace(tutti_ema *ema, float *average, size_t n, const tutti__sharding *sharding)
{
    if (ema->average)
        ema->cx->device_ops->free(ema->cx->device, ema->average);
    ema->average = average;
    ema->n = n;
    ema->sharding = sharding;
}

/* Averages of this rank's shares of the parameters. */
static tutti_status prepare_shares(tutti_ema *ema, const tutti__sharding *sharding)
{
    tutti_ctx *cx = ema->cx;
    const bool first = !ema->average;
    tutti_status status = TUTTI_OK;
    float *average;
    size_t n = 0;

    if (sharding->offloads)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "ema: shares of the parameters are in host memory "
                           "(offload_parameters), and averages are made on the device; offload the "
                           "optimizer's state alone, or leave ema out");
    TUTTI_TRY(sharding->prepare(sharding->self));
    if (ema->average && ema->sharding == sharding)
        return TUTTI_OK;
    for (size_t i = 0; i < sharding->n; i++)
        n += sharding->ranges[i].end - sharding->ranges[i].begin;
    average = cx->device_ops->alloc(cx->device, (n + 1) * sizeof *average, true);
    if (!average)
        return TUTTI_ERR_MEMORY;
    if (!first)
        status = take_ranges(ema, sharding, average);
    if (status != TUTTI_OK) {
        cx->device_ops->free(cx->device, average);
        return status;
    }
    replace(ema, average, n, sharding);
    return first ? copy_parameters(ema) : TUTTI_OK;
}

/* Memory for the averages of all parameters, and for their layout. NULL with the message set. */
static float *room_for_all(tutti_ema *ema)
{
    const struct tutti_root *root = ema->module->root;

    if (!ema->offsets)
        ema->offsets = tutti__alloc(root->parameters.n * sizeof *ema->offsets);
    return ema->offsets
               ? ema->cx->device_ops->alloc(ema->cx->device, root->n_flat * sizeof(float), true)
               : NULL;
}

/* By those of all parameters, in the current layout. */
static void replace_all(tutti_ema *ema, float *average)
{
    const struct tutti_root *root = ema->module->root;

    replace(ema, average, root->n_flat, NULL);
    memcpy(ema->offsets, root->offsets, root->parameters.n * sizeof *ema->offsets);
    ema->layouts = root->layouts;
}

/* The averages in the current layout, from the old one; or, at the first use, the parameters. */
static tutti_status fill(const tutti_ema *ema, float *average)
{
    const struct tutti_root *root = ema->module->root;

    for (size_t i = 0; i < root->parameters.n; i++)
        TUTTI_TRY(tutti__copy(ema->cx->stream, average + root->offsets[i],
                              ema->average ? ema->average + ema->offsets[i]
                                           : root->flat_parameters + root->offsets[i],
                              bytes_of(root, i)));
    return TUTTI_OK;
}

tutti_status tutti__ema_prepare(tutti_ema *ema)
{
    struct tutti_root *root = ema->module->root;
    tutti_ctx *cx = ema->cx;
    float *average;
    tutti_status status;

    TUTTI_TRY(tutti__flat_prepare(root));
    if (root->sharding && !root->sharding->whole_parameters)
        return prepare_shares(ema, root->sharding);
    if (ema->sharding)
        return tutti__fail(TUTTI_ERR_STATE,
                           "ema: each rank has the averages of its share of the parameters, and "
                           "their group is gone");
    if (ema->average && ema->layouts == root->layouts)
        return TUTTI_OK;
    average = room_for_all(ema);
    if (!average)
        return TUTTI_ERR_MEMORY;
    status = fill(ema, average);
    if (status == TUTTI_OK && ema->average)
        status = tutti_stream_wait(cx->stream);
    if (status != TUTTI_OK) {
        cx->device_ops->free(cx->device, average);
        return status;
    }
    replace_all(ema, average);
    return TUTTI_OK;
}

tutti_status tutti__ema_take_whole(tutti_ema *ema, const float *whole)
{
    tutti_ctx *cx = ema->cx;
    float *average = room_for_all(ema);
    tutti_status status;

    if (!average)
        return TUTTI_ERR_MEMORY;
    status =
        tutti__copy_in(cx->stream, average, whole, ema->module->root->n_flat * sizeof *average);
    if (status == TUTTI_OK)
        status = tutti_stream_wait(cx->stream);
    if (status == TUTTI_OK)
        replace_all(ema, average);
    else
        cx->device_ops->free(cx->device, average);
    return status;
}

void tutti__ema_drop_share(tutti_ema *ema)
{
    if (!ema->sharding)
        return;
    (void)!tutti_stream_wait(ema->cx->stream);
    replace(ema, NULL, 0, NULL);
    ema->updates = 0;
    ema->swapped = false;
}

float *tutti__ema_at(const tutti_ema *ema, size_t i)
{
    const struct tutti_root *root = ema->module->root;
    const float *p = root->flat_parameters + root->offsets[i];
    size_t before = 0;
    span s;

    if (!ema->sharding)
        return ema->average + ema->offsets[i];
    for (size_t k = 0; span_at(ema, k, before, &s); before += s.n, k++)
        if (p >= s.parameters && p < s.parameters + s.n)
            return s.average + (p - s.parameters);
    return ema->average; /* of a parameter without elements */
}

/* ---- Update ---------------------------------------------------------------------------------------------------- */

typedef struct average_job {
    const tutti_ema *ema;
    const tutti__sgd *rule;
    span of;
    _Atomic int status;
    char text[2048]; /* the first failure's: messages are thread-local */
} average_job;

static tutti_status average(const average_job *t, size_t first, size_t n)
{
    tutti_stream *stream = t->ema->cx->stream;

    return stream->ops->flat->sgd(stream, t->of.average + first, t->of.parameters + first, NULL, n,
                                  t->rule);
}

static void average_part(void *arg, int64_t i, int member)
{
    average_job *t = arg;
    const size_t first = (size_t)i * PART;
    const tutti_status status = average(t, first, t->of.n - first < PART ? t->of.n - first : PART);
    int none = TUTTI_OK;

    (void)member;
    if (status != TUTTI_OK && atomic_compare_exchange_strong(&t->status, &none, (int)status))
        snprintf(t->text, sizeof t->text, "%s", tutti_last_error());
}

/* On the host by the context's threads; elementwise, so that the bits are those of one thread. */
static tutti_status average_span(const tutti_ema *ema, const span *of)
{
    const tutti__sgd rule = {.lr = -ema->weight, .decay = -1, .fresh = 1};
    average_job t;

    t.ema = ema;
    t.rule = &rule;
    t.of = *of;
    t.status = TUTTI_OK;
    if (!ema->cx->device_ops->is_host)
        return average(&t, 0, t.of.n);
    tutti__parallel(ema->cx, average_part, &t, (int64_t)((t.of.n + PART - 1) / PART));
    return t.status == TUTTI_OK ? TUTTI_OK : tutti__fail_again((tutti_status)t.status, t.text);
}

static tutti_status average_all(const tutti_ema *ema)
{
    size_t at = 0;
    span s;

    for (size_t i = 0; span_at(ema, i, at, &s); i++, at += s.n)
        TUTTI_TRY(average_span(ema, &s));
    return TUTTI_OK;
}

static void note(const tutti_ema *ema, uint64_t begin_ns)
{
    const size_t n = ema->n;
    const tutti_shape shape = TUTTI_SHAPE((int64_t)n);

    tutti__profile_add(ema->cx,
                       &(tutti__profile_work){.op = "ema",
                                              .pass = "update",
                                              .x = &shape,
                                              .y = &shape,
                                              .bytes = 3 * (double)n * sizeof(float)},
                       begin_ns, tutti__now_ns());
}

static tutti_status check(const tutti_ema *ema, const char *call)
{
    TUTTI_TRY(TUTTI__NOT_NULL(ema));
    TUTTI_TRY(tutti_module_status(ema->module));
    return ema->swapped ? tutti__fail(TUTTI_ERR_STATE,
                                      "%s: the module has the averages; call tutti_ema_swap first, "
                                      "which gives it back its own weights",
                                      call)
                        : TUTTI_OK;
}

tutti_status tutti_ema_update(tutti_ema *ema)
{
    uint64_t begin_ns;

    TUTTI_TRY(check(ema, "tutti_ema_update"));
    TUTTI_TRY(tutti__ema_prepare(ema));
    begin_ns = tutti__profile_begin(ema->cx);
    if (ema->updates == 0)
        TUTTI_TRY(copy_parameters(ema));
    else
        TUTTI_TRY(average_all(ema));
    if (begin_ns)
        note(ema, begin_ns);
    ema->updates++;
    return TUTTI_OK;
}

/* ---- Swap ------------------------------------------------------------------------------------------------------ */

/* The contents are exchanged, not the pointers, because DDP and ZeRO know where parameters are. */
static tutti_status exchange(tutti_stream *stream, const span *s, float *room, size_t n_room)
{
    for (size_t at = 0; at < s->n; at += n_room) {
        const size_t n = s->n - at < n_room ? s->n - at : n_room;
        float *p = s->parameters + at, *q = s->average + at;

        TUTTI_TRY(tutti__copy(stream, room, p, n * sizeof *p));
        TUTTI_TRY(tutti__copy(stream, p, q, n * sizeof *p));
        TUTTI_TRY(tutti__copy(stream, q, room, n * sizeof *p));
    }
    return TUTTI_OK;
}

static tutti_status exchange_all(const tutti_ema *ema, float *room, size_t n_room)
{
    tutti_stream *stream = ema->cx->stream;
    size_t at = 0;
    span s;

    if (ema->sharding) /* gathered parameters are about to be old */
        TUTTI_TRY(ema->sharding->discard(ema->sharding->self));
    for (size_t i = 0; span_at(ema, i, at, &s); i++, at += s.n)
        TUTTI_TRY(exchange(stream, &s, room, n_room));
    TUTTI_TRY(tutti_stream_wait(stream)); /* the room is about to be freed */
    return ema->sharding ? ema->sharding->written(ema->sharding->self) : TUTTI_OK;
}

tutti_status tutti_ema_swap(tutti_ema *ema)
{
    const struct tutti_root *root;
    tutti_ctx *cx;
    float *room;
    size_t n;
    tutti_status status;

    TUTTI_TRY(TUTTI__NOT_NULL(ema));
    TUTTI_TRY(tutti_module_status(ema->module));
    TUTTI_TRY(tutti__ema_prepare(ema));
    root = ema->module->root;
    cx = ema->cx;
    n = ema->n < ROOM ? ema->n + 1 : ROOM;
    room = cx->device_ops->alloc(cx->device, n * sizeof *room, false);
    if (!room)
        return TUTTI_ERR_MEMORY;
    status = exchange_all(ema, room, n);
    cx->device_ops->free(cx->device, room);
    TUTTI_TRY(status);
    for (size_t i = 0; i < root->parameters.n; i++)
        root->parameters.p[i]->tensor->kernel_cache_step = 0; /* it has the old values */
    ema->swapped = !ema->swapped;
    return TUTTI_OK;
}

/* ---- State ------------------------------------------------------------------------------------------------------ */

uint64_t tutti_ema_updates(const tutti_ema *ema)
{
    return ema ? ema->updates : 0;
}

tutti_status tutti_ema_set_updates(tutti_ema *ema, uint64_t updates)
{
    TUTTI_TRY(TUTTI__NOT_NULL(ema));
    ema->updates = updates;
    return TUTTI_OK;
}

static tutti_status find(tutti_ema *ema, const tutti_tensor *parameter, const char *call,
                         float **at_p)
{
    TUTTI_TRY(check(ema, call));
    if (!parameter || !parameter->parameter || parameter->parameter->owner != ema->module->root)
        return tutti__fail(TUTTI_ERR_ARG, "%s: %s is not a parameter of the module", call,
                           parameter && parameter->name[0] ? parameter->name : "the tensor");
    TUTTI_TRY(tutti__ema_prepare(ema));
    if (ema->sharding)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "%s: each rank has the averages of its share of the parameters (zero 3)",
                           call);
    *at_p = tutti__ema_at(ema, parameter->parameter->index);
    return TUTTI_OK;
}

tutti_status tutti_ema_read(tutti_ema *ema, const tutti_tensor *parameter, float *dst)
{
    float *at;

    TUTTI_TRY(find(ema, parameter, "tutti_ema_read", &at));
    TUTTI_TRY(TUTTI__NOT_NULL(dst));
    return tutti__read(ema->cx->stream, dst, at, tutti__tensor_bytes(parameter));
}

tutti_status tutti_ema_write(tutti_ema *ema, const tutti_tensor *parameter, const float *src)
{
    float *at;

    TUTTI_TRY(find(ema, parameter, "tutti_ema_write", &at));
    TUTTI_TRY(TUTTI__NOT_NULL(src));
    return tutti__copy_in(ema->cx->stream, at, src, tutti__tensor_bytes(parameter));
}
