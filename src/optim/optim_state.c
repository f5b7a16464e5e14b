/* optim_state.c -- an optimizer's state by parameter, for checkpoints.   SPDX-License-Identifier: MIT */
#include "optim/optim.h"

#include <stdlib.h>
#include <string.h>

const char *tutti_optim_state_name(const tutti_optim *optim, size_t k)
{
    return optim && k < TUTTI__OPTIM_STATES ? optim->rule->state_names[k] : NULL;
}

static tutti_status check_parameter(const tutti_optim *optim, const tutti_tensor *parameter)
{
    if (!optim)
        return tutti__fail(TUTTI_ERR_ARG, "the optimizer is NULL");
    if (!parameter || !parameter->parameter || parameter->parameter->owner != optim->module->root)
        return tutti__fail(TUTTI_ERR_ARG, "%s: %s is not a parameter of its module",
                           optim->rule->name,
                           parameter && parameter->name[0] ? parameter->name : "the tensor");
    return TUTTI_OK;
}

static tutti_status check(const tutti_optim *optim, size_t k, const tutti_tensor *parameter)
{
    TUTTI_TRY(check_parameter(optim, parameter));
    if (!tutti_optim_state_name(optim, k))
        return tutti__fail(TUTTI_ERR_ARG, "%s: has no state %zu", optim->rule->name, k);
    if (optim->later.load)
        return tutti__fail(TUTTI_ERR_STATE,
                           "%s: its state is read from the checkpoint in the next step, when it is "
                           "known which part each rank keeps",
                           optim->rule->name);
    return TUTTI_OK;
}

uint64_t tutti_optim_updates(const tutti_optim *optim, const tutti_tensor *parameter)
{
    if (!optim || !optim->steps || !parameter || !parameter->parameter)
        return 0;
    return optim->steps[parameter->parameter->index];
}

tutti_status tutti_optim_set_updates(tutti_optim *optim, const tutti_tensor *parameter,
                                     uint64_t updates)
{
    TUTTI_TRY(check_parameter(optim, parameter));
    if (!optim->steps)
        optim->steps = tutti__alloc(optim->module->root->parameters.n * sizeof *optim->steps);
    if (!optim->steps)
        return TUTTI_ERR_MEMORY;
    optim->steps[parameter->parameter->index] = updates;
    return TUTTI_OK;
}

tutti_status tutti__optim_state_copy(const tutti_optim *optim, size_t k,
                                     const tutti_tensor *parameter, tutti_stream *stream,
                                     float *dst)
{
    const float *from;
    size_t bytes;

    TUTTI_TRY(check(optim, k, parameter));
    bytes = tutti__tensor_bytes(parameter);
    from = optim->sharding ? optim->whole[k] : optim->state[k];
    if (!from && optim->sharding)
        return tutti__fail(TUTTI_ERR_STATE,
                           "%s: each rank has a share of the state, and it is not gathered here; "
                           "call tutti_zero_consolidate on all ranks, and read on the one it names",
                           optim->rule->name);
    if (from)
        from += optim->offsets[parameter->parameter->index];
    if (from && !optim->sharding && !optim->offloaded)
        return tutti__copy_out(stream, dst, from, bytes);
    if (from)
        memcpy(dst, from, bytes);
    else
        memset(dst, 0, bytes);
    return TUTTI_OK;
}

tutti_status tutti_optim_state_read(tutti_optim *optim, size_t k, const tutti_tensor *parameter,
                                    float *dst)
{
    TUTTI_TRY(check(optim, k, parameter));
    TUTTI_TRY(tutti__optim_state_copy(optim, k, parameter, optim->cx->stream, dst));
    return tutti_stream_wait(optim->cx->stream);
}

/* For sharded state: writes the part of src that is this rank's. */
static tutti_status write_share(tutti_optim *optim, size_t k, const tutti_tensor *parameter,
                                const float *src)
{
    const tutti__sharding *sharding = optim->sharding;
    const size_t begin = optim->offsets[parameter->parameter->index];
    const size_t end = begin + (size_t)tutti_shape_count(parameter->shape);

    for (tutti__range_part part = {0}; tutti__sharding_next(sharding, begin, end, &part);)
        if (!part.range->bare)
            TUTTI_TRY(tutti__copy_in(tutti__optim_stream(optim), optim->state[k] + part.state,
                                     src + (part.low - begin),
                                     (part.high - part.low) * sizeof *src));
    return TUTTI_OK;
}

tutti_status tutti_optim_state_write(tutti_optim *optim, size_t k, const tutti_tensor *parameter,
                                     const float *src)
{
    TUTTI_TRY(check(optim, k, parameter));
    tutti__optim_free_whole(optim);
    if (optim->sharding)
        return write_share(optim, k, parameter, src);
    TUTTI_TRY(tutti__optim_prepare(optim, NULL));
    return tutti__copy_in(tutti__optim_stream(optim),
                          optim->state[k] + optim->offsets[parameter->parameter->index], src,
                          tutti__tensor_bytes(parameter));
}

size_t tutti_optim_state_bytes(const tutti_optim *optim)
{
    size_t bytes = 0;

    for (int k = 0; optim && k < TUTTI__OPTIM_STATES; k++)
        bytes += optim->state[k] ? optim->n_state * sizeof(float) : 0;
    return bytes;
}
