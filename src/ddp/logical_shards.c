/* logical_shards.c -- DDP over logical shards: the mean of gradients and buffers, the same bits on any number of ranks.
 * SPDX-License-Identifier: MIT
 *
 *     step     begin | shard: backward | shard: backward | ... finish     on each rank, for each of its shards
 *     sums           |        +        |        +        | = mean of all
 *     buffers  saved | again  changed  | again  changed  | = mean of all
 *
 * The reducer exists from the beginning, with or without a group. After the parameters it has an entry for each buffer of
 * floats; buffers of integers are sent as increments, in its counters. A shard's buffers are added when its last backward
 * begins. */
#include "ddp/ddp.h"

#include "comm/comm.h"
#include "ddp/flips.h"
#include "nn/nn.h"
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

struct tutti__ddp_shards {
    /* buffers at the start of the step, on the device, each 64-byte aligned */
    unsigned char *saved;
    size_t saved_bytes;
    tutti_tensor **floats, **integers;       /* of DDP's buffers */
    size_t n_floats, n_integers, n_elements; /* elements: of integers, which have a counter each */
    int64_t *before;                         /* their values at the start of the step */
    void *values;                            /* room for the values of one buffer */
    uint64_t context_step;                   /* at the start of the step */
    uint64_t forward_ns, backward_ns;        /* of the step so far */
    bool in_step, in_shard;
    bool had_backward; /* the current shard had a backward that was not paused */
};

static int64_t *own_counters(const tutti_ddp *ddp)
{
    return tutti_reducer_counters(ddp->reducer) + ddp->opts.n_counters;
}

static size_t count_of(const tutti_tensor *t)
{
    return (size_t)tutti_shape_count(t->shape);
}

/* Of a buffer, in `saved`. */
static size_t saved_bytes(const tutti_tensor *t)
{
    return (tutti__tensor_bytes(t) + 63) / 64 * 64;
}

/* ---- Construction ---- */

static bool normalises_together(const tutti_module *m)
{
    bool any = m->peers.self != NULL;

    for (const tutti_module *child = m->first_child; child && !any; child = child->next)
        any = normalises_together(child);
    return any;
}

static tutti_status refuse(const char *what, const char *remedy)
{
    return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                       "%s breaks the promise of logical shards, the same bits for any number of "
                       "ranks; %s, or leave tutti_ddp_opts.shards at 0",
                       what, remedy);
}

tutti_status tutti__ddp_check_shards(const tutti_ddp *ddp, const tutti_ddp_opts *opts)
{
    if (opts->shards < 0 || opts->shards > 4096)
        return tutti__fail(TUTTI_ERR_ARG, "tutti_ddp_new: %d shards, expected 0 (none) to 4096",
                           opts->shards);
    if (opts->shards == 0)
        return TUTTI_OK;
    if (opts->keep_buffers)
        return refuse("keep_buffers, by which each rank has buffers of its own,", "leave it out");
    if (opts->buffer_hook)
        return refuse("buffer_hook", "leave it out: buffers become the mean over shards");
    if (opts->n_ignored > 0)
        return refuse("ignored, by which each rank has parameters of its own,", "leave it out");
    if (normalises_together(ddp->module))
        return refuse("batch norm over all ranks (tutti_convert_sync_batch_norm)",
                      "convert back, so that each shard has its own statistics");
    return TUTTI_OK;
}

static tutti_status sort_buffers(tutti_ddp *ddp)
{
    tutti__ddp_shards *s = ddp->shards;
    size_t largest = 0;

    s->floats = tutti__alloc((ddp->n_buffers + 1) * sizeof *s->floats);
    s->integers = tutti__alloc((ddp->n_buffers + 1) * sizeof *s->integers);
    if (!s->floats || !s->integers)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < ddp->n_buffers; i++) {
        tutti_tensor *t = ddp->buffers[i];

        s->saved_bytes += saved_bytes(t);
        if (t->dtype == TUTTI_F32) {
            s->floats[s->n_floats++] = t;
        } else if (t->dtype == TUTTI_I64) {
            s->integers[s->n_integers++] = t;
            s->n_elements += count_of(t);
            largest = count_of(t) > largest ? count_of(t) : largest;
        } else {
            return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                               "tutti_ddp_new: buffer \"%s\" is %s; with shards buffers are F32, "
                               "whose mean is taken, or I64",
                               t->name, tutti_dtype_name(t->dtype));
        }
    }
    s->before = tutti__alloc((s->n_elements + 1) * sizeof *s->before);
    s->values = tutti__alloc((largest + 1) * sizeof(int64_t));
    return s->before && s->values ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

static void describe(const tutti_ddp *ddp, tutti_reducer_parameter *parameters, size_t *order)
{
    const tutti__ddp_shards *s = ddp->shards;

    for (size_t i = 0; i < ddp->n; i++) {
        const tutti_tensor *t = ddp->parameters[i];

        parameters[i] = (tutti_reducer_parameter){.name = t->name,
                                                  .count = count_of(t),
                                                  .dtype = t->dtype,
                                                  .sparse = t->parameter->touched != NULL,
                                                  .local = ddp->roles[i] != TUTTI__AVERAGED};
        order[s->n_floats + i] = ddp->n - 1 - i;
    }
    for (size_t k = 0; k < s->n_floats; k++) { /* ready when backward begins */
        parameters[ddp->n + k] = (tutti_reducer_parameter){
            .name = s->floats[k]->name, .count = count_of(s->floats[k]), .dtype = TUTTI_F32};
        order[k] = ddp->n + k;
    }
}

static tutti_status new_reducer(tutti_ddp *ddp, tutti_reducer_parameter *parameters, size_t *order)
{
    const tutti__ddp_shards *s = ddp->shards;
    const tutti_reducer_opts opts = {.order = order,
                                     .bucket_mb = ddp->opts.bucket_mb,
                                     .first_bucket_mb = ddp->opts.first_bucket_mb,
                                     .bucket_mb_list = ddp->opts.bucket_mb_list,
                                     .n_bucket_mb_list = ddp->opts.n_bucket_mb_list,
                                     .find_unused = tutti__ddp_may_skip(ddp),
                                     .nonfinite = ddp->opts.nonfinite,
                                     .stream = tutti__ddp_stream(ddp),
                                     .shards = ddp->opts.shards,
                                     .wire_bits = ddp->opts.wire_bits,
                                     .n_counters = ddp->opts.n_counters + 1 + s->n_elements};

    describe(ddp, parameters, order);
    TUTTI_TRY(tutti__reducer_new_late(&ddp->reducer, NULL, parameters, ddp->n + s->n_floats, &opts,
                                      NULL, ddp->opts.zero >= 2, false));
    if (ddp->opts.zero >= 2)
        tutti__reducer_set_in_flight(ddp->reducer, TUTTI__ZERO_IN_FLIGHT);
    if (ddp->opts.zero == 3) /* later: tutti__ddp_shards_reserve */
        return TUTTI_OK;
    return tutti__ddp_move_module(ddp, tutti__reducer_order(ddp->reducer) + s->n_floats);
}

tutti_status tutti__ddp_shards_reserve(tutti_ddp *ddp, const void ***from_p)
{
    return tutti__ddp_move_reserved(ddp, tutti__reducer_order(ddp->reducer) + ddp->shards->n_floats,
                                    from_p);
}

/* For checkpoints of the module. */
static void lend_ranges(const tutti_ddp *ddp, size_t n)
{
    struct tutti_root *root = ddp->module->root;

    root->ranges = tutti_reducer_ranges(ddp->reducer);
    root->n_ranges = n;
    if (root->loaded_ranges && root->n_loaded_ranges == n)
        memcpy(root->ranges, root->loaded_ranges, n * sizeof *root->ranges);
    free(root->loaded_ranges);
    root->loaded_ranges = NULL;
}

tutti_status tutti__ddp_shards_new(tutti_ddp *ddp)
{
    const tutti_ctx *cx = tutti_module_ctx(ddp->module);
    const size_t most = ddp->n + ddp->n_buffers;
    tutti_reducer_parameter *parameters;
    size_t *order;
    tutti_status status;

    ddp->shards = tutti__alloc(sizeof *ddp->shards);
    if (!ddp->shards)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(sort_buffers(ddp));
    ddp->shards->saved = cx->device_ops->alloc(cx->device, ddp->shards->saved_bytes + 64, true);
    if (!ddp->shards->saved)
        return TUTTI_ERR_MEMORY;
    parameters = tutti__alloc(most * sizeof *parameters);
    order = tutti__alloc(most * sizeof *order);
    status = parameters && order ? new_reducer(ddp, parameters, order) : TUTTI_ERR_MEMORY;
    free(parameters);
    free(order);
    if (status == TUTTI_OK)
        lend_ranges(ddp, ddp->n + ddp->shards->n_floats);
    return status;
}

void tutti__ddp_shards_free(tutti_ddp *ddp)
{
    const tutti_ctx *cx = tutti_module_ctx(ddp->module);
    tutti__ddp_shards *s = ddp->shards;

    if (!s)
        return;
    ddp->module->root->ranges = NULL;
    cx->device_ops->free(cx->device, s->saved);
    free(s->floats);
    free(s->integers);
    free(s->before);
    free(s->values);
    free(s);
}

/* ---- Buffers ---- */

void *tutti__ddp_saved_buffer(const tutti_ddp *ddp, size_t i)
{
    unsigned char *at = ddp->shards->saved;

    for (size_t k = 0; k < i; k++)
        at += saved_bytes(ddp->buffers[k]);
    return at;
}

/* Saves all buffers, or restores them. */
static tutti_status copy_saved(const tutti_ddp *ddp, bool back)
{
    unsigned char *at = ddp->shards->saved;

    for (size_t i = 0; i < ddp->n_buffers; at += saved_bytes(ddp->buffers[i]), i++) {
        tutti_tensor *t = ddp->buffers[i];

        TUTTI_TRY(tutti__copy(tutti__ddp_stream(ddp), back ? t->data : at, back ? at : t->data,
                              tutti__tensor_bytes(t)));
    }
    return TUTTI_OK;
}

/* Calls f with the values of each buffer of integers, and the index of its first element among all. */
static tutti_status each_integers(const tutti_ddp *ddp,
                                  tutti_status (*f)(const tutti_ddp *ddp, tutti_tensor *t,
                                                    size_t at))
{
    const tutti__ddp_shards *s = ddp->shards;
    size_t at = 0;

    for (size_t k = 0; k < s->n_integers; k++) {
        tutti_tensor *t = s->integers[k];

        TUTTI_TRY(tutti__read(tutti__ddp_stream(ddp), s->values, t->data, tutti__tensor_bytes(t)));
        TUTTI_TRY(f(ddp, t, at));
        at += count_of(t);
    }
    return TUTTI_OK;
}

static tutti_status note_integers(const tutti_ddp *ddp, tutti_tensor *t, size_t at)
{
    memcpy(ddp->shards->before + at, ddp->shards->values, count_of(t) * sizeof(int64_t));
    return TUTTI_OK;
}

static tutti_status bring_integers(const tutti_ddp *ddp, tutti_tensor *t, size_t at)
{
    const tutti__ddp_shards *s = ddp->shards;
    const int64_t *values = s->values;
    int64_t *counters = own_counters(ddp) + 1 + at;

    for (size_t i = 0; i < count_of(t); i++)
        counters[i] =
            (int64_t)((uint64_t)counters[i] + (uint64_t)values[i] - (uint64_t)s->before[at + i]);
    return TUTTI_OK;
}

static tutti_status take_integers(const tutti_ddp *ddp, tutti_tensor *t, size_t at)
{
    const tutti__ddp_shards *s = ddp->shards;
    const int64_t *counters = own_counters(ddp) + 1 + at;
    int64_t *values = s->values;

    for (size_t i = 0; i < count_of(t); i++)
        values[i] = s->before[at + i] + counters[i] / ddp->opts.shards;
    TUTTI_TRY(tutti__copy_in(tutti__ddp_stream(ddp), t->data, values, tutti__tensor_bytes(t)));
    return tutti_stream_wait(tutti__ddp_stream(ddp));
}

static tutti_status take_means(const tutti_ddp *ddp)
{
    const tutti__ddp_shards *s = ddp->shards;

    for (size_t k = 0; k < s->n_floats; k++)
        TUTTI_TRY(tutti__copy(tutti__ddp_stream(ddp), s->floats[k]->data,
                              tutti_reducer_grad(ddp->reducer, ddp->n + k),
                              tutti__tensor_bytes(s->floats[k])));
    return each_integers(ddp, take_integers);
}

tutti_status tutti__ddp_bring_buffers(tutti_ddp *ddp)
{
    const tutti__ddp_shards *s = ddp->shards;

    for (size_t k = 0; k < s->n_floats; k++) {
        TUTTI_TRY(tutti__reducer_bring(ddp->reducer, ddp->n + k));
        TUTTI_TRY(tutti__copy(tutti__ddp_stream(ddp), tutti_reducer_grad(ddp->reducer, ddp->n + k),
                              s->floats[k]->data, tutti__tensor_bytes(s->floats[k])));
        tutti_reducer_ready(ddp->reducer, ddp->n + k); /* failures are reported by finish */
    }
    return each_integers(ddp, bring_integers);
}

/* ---- A step ---- */

static tutti_status check_call(const tutti_ddp *ddp, const char *call, bool in_step)
{
    TUTTI_TRY(TUTTI__NOT_NULL(ddp));
    if (!ddp->shards)
        return tutti__fail(TUTTI_ERR_STATE, "%s: DDP was made without tutti_ddp_opts.shards", call);
    if (ddp->shards->in_step != in_step)
        return tutti__fail(TUTTI_ERR_STATE, "%s %s", call,
                           in_step ? "outside a step; call tutti_ddp_begin_step first"
                                   : "in an open step; call tutti_ddp_finish_step first");
    return TUTTI_OK;
}

tutti_status tutti_ddp_begin_step(tutti_ddp *ddp)
{
    tutti_ctx *cx;
    tutti__ddp_shards *s;

    TUTTI_TRY(check_call(ddp, "tutti_ddp_begin_step", false));
    cx = ddp->module->cx;
    s = ddp->shards;
    if (normalises_together(ddp->module))
        TUTTI_TRY(tutti__ddp_check_shards(ddp, &ddp->opts));
    TUTTI_TRY(tutti__ddp_check_roles(ddp));
    tutti__flips_begin(ddp);
    if (ddp->group)
        TUTTI_TRY(tutti__ddp_check_replicas_now(ddp));
    TUTTI_TRY(copy_saved(ddp, false));
    TUTTI_TRY(each_integers(ddp, note_integers));
    tutti__reducer_set_recorder(ddp->reducer, cx->recorder);
    TUTTI_TRY(tutti_reducer_begin(ddp->reducer));
    TUTTI_TRY(tutti__zero_begin_step(ddp));
    s->context_step = cx->step;
    s->forward_ns = s->backward_ns = 0;
    s->in_step = true;
    s->in_shard = s->had_backward = false;
    return TUTTI_OK;
}

static tutti_status end_shard(tutti_ddp *ddp)
{
    tutti__ddp_shards *s = ddp->shards;
    tutti_status status = TUTTI_OK;

    if (s->in_shard && !s->had_backward)
        status =
            tutti__fail(TUTTI_ERR_STATE,
                        "shard %llu on rank %d had no backward: run one after each "
                        "tutti_ddp_begin_shard, the last of several after tutti_ddp_resume",
                        (unsigned long long)ddp->module->cx->shard, tutti_group_rank(ddp->group));
    if (status != TUTTI_OK)
        tutti__reducer_fail(ddp->reducer, status);
    s->in_shard = false;
    return status;
}

tutti_status tutti_ddp_begin_shard(tutti_ddp *ddp, int shard, bool last)
{
    tutti_ctx *cx;

    TUTTI_TRY(check_call(ddp, "tutti_ddp_begin_shard", true));
    if (shard < 0 || shard >= ddp->opts.shards)
        return tutti__fail(TUTTI_ERR_ARG, "tutti_ddp_begin_shard: shard %d, expected 0 to %d",
                           shard, ddp->opts.shards - 1);
    TUTTI_TRY(end_shard(ddp));
    TUTTI_TRY(tutti_reducer_begin_shard(ddp->reducer, last));
    TUTTI_TRY(copy_saved(ddp, true));
    cx = ddp->module->cx;
    cx->shard = (uint64_t)shard;
    cx->step = ddp->shards->context_step;
    memset(ddp->uses, 0, ddp->n * sizeof *ddp->uses);
    ddp->shards->in_shard = true;
    ddp->shards->had_backward = false;
    return TUTTI_OK;
}

tutti_status tutti__ddp_shard_step(tutti_ddp *ddp)
{
    if (!ddp->shards->in_shard)
        return tutti__fail(TUTTI_ERR_STATE,
                           "a training step outside a shard; call tutti_ddp_begin_step and "
                           "tutti_ddp_begin_shard before tutti_step_begin");
    own_counters(ddp)[0]++;
    ddp->clock.step_ns = tutti__now_ns();
    return TUTTI_OK;
}

void tutti__ddp_shard_backward(tutti_ddp *ddp)
{
    ddp->shards->had_backward = true;
}

void tutti__ddp_shard_clock(tutti_ddp *ddp)
{
    const uint64_t now = tutti__now_ns();

    if (ddp->clock.backward_ns < ddp->clock.step_ns) /* there was no backward */
        return;
    ddp->shards->forward_ns += ddp->clock.backward_ns - ddp->clock.step_ns;
    ddp->shards->backward_ns += now - ddp->clock.backward_ns;
}

/* Parameters that any shard used have a gradient on all ranks; others have none. */
static void take_gradients(tutti_ddp *ddp)
{
    for (size_t i = 0; i < ddp->n; i++) {
        tutti__parameter *p = ddp->parameters[i]->parameter;

        if (ddp->roles[i] == TUTTI__AVERAGED)
            p->grad_round = *p->round - (tutti_reducer_users(ddp->reducer, i) == 0);
    }
}

static tutti_status finish(tutti_ddp *ddp)
{
    const uint64_t waits_ns = tutti__now_ns();
    tutti__ddp_shards *s = ddp->shards;

    (void)!end_shard(ddp); /* reported by the reducer */
    TUTTI_TRY(tutti_reducer_finish(ddp->reducer));
    if (tutti_reducer_again(ddp->reducer))
        return TUTTI_OK;
    TUTTI_TRY(take_means(ddp));
    take_gradients(ddp);
    tutti__zero_backward(ddp, true);
    tutti__flips_means(ddp);
    ddp->clock.backward_ns = waits_ns - s->backward_ns;
    ddp->clock.step_ns = ddp->clock.backward_ns - s->forward_ns;
    tutti__ddp_clock_end(ddp, waits_ns, tutti__now_ns());
    return TUTTI_OK;
}

bool tutti__ddp_shards_open(const tutti_ddp *ddp)
{
    return ddp->shards->in_step;
}

tutti_status tutti__ddp_take_back(tutti_ddp *ddp)
{
    ddp->module->cx->step = ddp->shards->context_step;
    return copy_saved(ddp, true);
}

tutti_status tutti_ddp_finish_step(tutti_ddp *ddp, bool *again_p)
{
    tutti_status status;

    TUTTI_TRY(TUTTI__NOT_NULL(ddp));
    *again_p = false;
    TUTTI_TRY(check_call(ddp, "tutti_ddp_finish_step", true));
    status = finish(ddp);
    ddp->shards->in_step = false;
    *again_p = status == TUTTI_OK && tutti_reducer_again(ddp->reducer);
    if (status == TUTTI_OK && !*again_p) {
        ddp->module->cx->step =
            ddp->shards->context_step + (uint64_t)own_counters(ddp)[0] / (uint64_t)ddp->opts.shards;
        return TUTTI_OK;
    }
    if (status != TUTTI_OK) { /* its message is kept */
        char cause[2048];

        strncpy(cause, tutti_last_error(), sizeof cause - 1);
        cause[sizeof cause - 1] = '\0';
        (void)!tutti__ddp_take_back(ddp);
        return tutti__fail_again(status, cause);
    }
    return tutti__ddp_take_back(ddp);
}

tutti_status tutti__ddp_drop_step(tutti_ddp *ddp)
{
    (void)!end_shard(ddp); /* reported by the reducer */
    TUTTI_TRY(tutti__reducer_drop(ddp->reducer));
    ddp->shards->in_step = false;
    return tutti__ddp_take_back(ddp);
}

tutti_status tutti_ddp_regroup(tutti_ddp *ddp, tutti_group *group)
{
    tutti_status status = TUTTI_OK;

    TUTTI_TRY(TUTTI__NOT_NULL(ddp));
    if (!ddp->shards)
        return tutti__fail(TUTTI_ERR_STATE,
                           "tutti_ddp_regroup: DDP was made without tutti_ddp_opts.shards");
    (void)tutti__zero_regroup(ddp, NULL);
    TUTTI_TRY(tutti_reducer_regroup(ddp->reducer, NULL));
    if (ddp->shards->in_step)
        status = tutti__ddp_take_back(ddp);
    ddp->shards->in_step = ddp->shards->in_shard = ddp->in_step = ddp->paused = false;
    ddp->begun = 0; /* as on ranks that are new */
    ddp->group = group;
    if (!group)
        return status;
    status = tutti__check_group("tutti_ddp_regroup", group);
    if (status == TUTTI_OK)
        status = tutti__ddp_enter(ddp, tutti__zero_check(ddp));
    if (status != TUTTI_OK)
        ddp->group = NULL;
    (void)tutti__zero_regroup(ddp, ddp->group);
    return status == TUTTI_OK ? tutti__zero_enter(ddp) : status;
}
