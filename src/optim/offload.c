/* offload.c -- state in host memory, and updates there of parameters that a device has.   SPDX-License-Identifier: MIT
 *
 *     copies      | p g of part 0 | p g of part 1 | p back | p g of part 2 | p back | ...       in the order of the device's stream
 *     host                        | update part 0          | update part 1          | ...
 *
 * So a part is updated while the next one comes. Two parts have room: the stream overwrites one only after it has copied it back, or
 * the host has computed with it. */
#include "optim/optim.h"

#include <sched.h>

enum { MOST = 1 << 20 }; /* elements of a part */

tutti_status tutti_optim_offload(tutti_optim *optim)
{
    const tutti_ctx *cx;

    TUTTI_TRY(TUTTI__NOT_NULL(optim));
    cx = optim->cx;
    if (cx->device_ops->is_host)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_optim_offload: on device %s the state of %s is in host memory "
                           "already; leave it out",
                           cx->device_ops->name, optim->rule->name);
    if (optim->rule->update_whole)
        return tutti__fail(
            TUTTI_ERR_UNSUPPORTED,
            "tutti_optim_offload: %s updates whole parameters, which it reads on the "
            "device; use an optimizer that is elementwise (sgd, adam, adamw, "
            "rmsprop, adagrad)",
            optim->rule->name);
    if (optim->state[0])
        return tutti__fail(TUTTI_ERR_STATE,
                           "tutti_optim_offload: %s has state on the device already; call it "
                           "before the first step",
                           optim->rule->name);
    optim->offloaded = true;
    return TUTTI_OK;
}

void tutti__optim_free_parts(tutti_optim *optim)
{
    const tutti_ctx *cx = optim->cx;

    if (!optim->parts)
        return;
    (void)!tutti_stream_wait(cx->stream); /* copies may be in flight */
    for (int i = 0; i < 2; i++) {
        if (optim->there[i])
            cx->device_ops->event_free(cx->device, optim->there[i]);
        optim->there[i] = NULL;
    }
    cx->device_ops->host_free(cx->device, optim->parts);
    optim->parts = NULL;
}

/* For a run of n elements. */
static tutti_status make_parts(tutti_optim *optim, size_t n)
{
    const tutti_ctx *cx = optim->cx;
    tutti_status status = TUTTI_OK;

    n = n < MOST ? n : MOST;
    if (optim->parts && optim->n_part >= n)
        return TUTTI_OK;
    tutti__optim_free_parts(optim);
    optim->n_part = n;
    optim->parts = cx->device_ops->host_alloc(cx->device, 4 * n * sizeof *optim->parts);
    if (!optim->parts)
        return TUTTI_ERR_MEMORY;
    for (int i = 0; i < 2 && status == TUTTI_OK; i++)
        status = cx->device_ops->event_new(cx->device, &optim->there[i]);
    if (status != TUTTI_OK)
        tutti__optim_free_parts(optim);
    return status;
}

/* Part i of a run, with p and g in host memory. */
static tutti__flat_run part_of(const tutti_optim *optim, const tutti__flat_run *run, size_t i)
{
    const size_t at = i * optim->n_part;
    tutti__flat_run part = *run;

    part.n = run->n - at < optim->n_part ? run->n - at : optim->n_part;
    part.p = run->here ? run->p + at : optim->parts + i % 2 * 2 * optim->n_part;
    part.g = optim->parts + (i % 2 * 2 + 1) * optim->n_part;
    for (int k = 0; k < TUTTI__OPTIM_STATES; k++)
        if (part.state[k])
            part.state[k] += at;
    return part;
}

static tutti_status fetch(const tutti_optim *optim, const tutti__flat_run *run, size_t i)
{
    tutti_stream *stream = optim->cx->stream;
    const tutti__flat_run part = part_of(optim, run, i);

    if (!run->here)
        TUTTI_TRY(
            tutti__copy_out(stream, part.p, run->p + i * optim->n_part, part.n * sizeof *part.p));
    TUTTI_TRY(tutti__copy_out(stream, (float *)(uintptr_t)part.g, run->g + i * optim->n_part,
                              part.n * sizeof *part.g));
    return stream->ops->event_record(optim->there[i % 2], stream);
}

/* Until the part is there: the copies of the next one are in the stream too, and are not waited for. */
static tutti_status await(const tutti_optim *optim, size_t i)
{
    for (bool passed = false;;) {
        TUTTI_TRY(optim->cx->device_ops->event_passed(optim->there[i % 2], &passed));
        if (passed)
            return TUTTI_OK;
        sched_yield();
    }
}

tutti_status tutti__optim_update_offloaded(tutti_optim *optim, const tutti__flat_run *run)
{
    size_t n;

    TUTTI_TRY(make_parts(optim, run->n));
    n = (run->n + optim->n_part - 1) / optim->n_part;
    TUTTI_TRY(fetch(optim, run, 0));
    for (size_t i = 0; i < n; i++) {
        const tutti__flat_run part = part_of(optim, run, i);

        if (i + 1 < n)
            TUTTI_TRY(fetch(optim, run, i + 1));
        TUTTI_TRY(await(optim, i));
        TUTTI_TRY(tutti__optim_elementwise(optim, optim->rule->update, &part));
        if (!run->here)
            TUTTI_TRY(tutti__copy_in(optim->cx->stream, run->p + i * optim->n_part, part.p,
                                     part.n * sizeof *part.p));
    }
    return TUTTI_OK;
}
