/* zero.c -- ZeRO: each rank keeps its share of the optimizer's state, and from stage 2 on of gradients.
 * SPDX-License-Identifier: MIT
 *
 *     bucket          |  share of rank 0  |  share of rank 1  |  share of rank 2  |t|
 *     backward        reduce_scatter during backward (zero_reduce.c): this rank's share of the gradient is the mean; stage 2: the rest is
 *                     given back
 *     optimizer       updates this rank's share, for which it has the state
 *     then            all_gather of the parameters, while the next bucket's share is updated
 *
 * The tail t, of less than one element per rank, and what is in no bucket (sparse gradients, ignored parameters) is kept whole
 * by every rank. Sums are in rank order, as in all_reduce, and updates are elementwise, so the bits are those of training
 * without ZeRO. With replicas, zero_ranks of the ranks have all shares among them, and so have the next ones: gradients are of all ranks,
 * everything else is among these. docs/design/zero.md
 *
 * With logical shards of a step (logical_shards.c) gradients are sums of integers: stage 1 reduces them as without ZeRO, and every rank has
 * all of the mean; from stage 2 on each has the means of its shares (reducer/exact_shares.c). The group may change: the sharded state is
 * gathered before that, or is lost with the ranks that had it, unless it has copies. */
#include "ddp/zero.h"

#include "comm/comm.h"
#include "tensor/tensor.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- Backward ------------------------------------------------------------------------------------------------------------- */

tutti_status tutti__zero_note(tutti_zero *zero, size_t index, float *gradients, size_t count)
{
    tutti__zero_bucket *p;

    if (index >= zero->n_noted) {
        p = realloc(zero->buckets, (index + 1) * sizeof *p);
        if (!p)
            return tutti__fail(TUTTI_ERR_MEMORY, "zero: no memory for %zu buckets", index + 1);
        memset(p + zero->n_noted, 0, (index + 1 - zero->n_noted) * sizeof *p);
        zero->buckets = p;
        zero->n_noted = index + 1;
    }
    zero->buckets[index].p = gradients;
    zero->buckets[index].count = count;
    return TUTTI_OK;
}

static tutti_status bring_grad(tutti_tensor *t)
{
    const struct tutti_root *root = t->parameter->owner;
    const tutti_zero *zero = root->sharding->self;

    return zero->ddp->reducer ? tutti__reducer_bring(zero->ddp->reducer, t->parameter->index)
                              : TUTTI_OK;
}

void tutti__zero_backward(const tutti_ddp *ddp, bool averaged)
{
    if (ddp->zero && ddp->zero->stage >= 2)
        ddp->zero->sharding.only_shares = averaged;
}

/* ---- Ranges ------------------------------------------------------------------------------------------------------------- */

static void add_range(tutti_zero *zero, size_t begin, size_t end, size_t of)
{
    if (begin >= end)
        return;
    zero->bucket_of[zero->sharding.n] = of;
    zero->ranges[zero->sharding.n++] =
        (tutti__range){.begin = begin, .end = end, .whole = of == SIZE_MAX};
}

/* Frozen, and never updated by any optimizer: it has no state. */
static bool has_no_state(const tutti_zero *zero, size_t i)
{
    const tutti__optim_entry *entry = zero->root->optims;

    if (i >= zero->ddp->n || zero->ddp->roles[i] != TUTTI__FROZEN)
        return false;
    for (; entry; entry = entry->next)
        if (tutti_optim_updates((const tutti_optim *)(const void *)entry,
                                zero->root->parameters.p[i]->tensor) > 0)
            return false;
    return true;
}

/* Stage 3: whether that is so of all parameters of bucket b. */
static bool is_bare(const tutti_zero *zero, size_t b)
{
    bool bare = zero->stage == 3;

    for (size_t i = 0; bare && i < zero->root->parameters.n; i++)
        bare = zero->bucket_with[i] != b || has_no_state(zero, i);
    return bare;
}

/* What is in no bucket, or is a bucket's rest: every rank has all of it, but of what has no state at most the weights. */
static void add_whole(tutti_zero *zero, size_t begin, size_t end)
{
    const struct tutti_root *root = zero->root;

    for (size_t k = 0; k < root->parameters.n && begin < end; k++) {
        const size_t i = root->placement[k], low = root->offsets[i];
        const size_t next =
            k + 1 < root->parameters.n ? root->offsets[root->placement[k + 1]] : root->n_flat;

        if (next <= begin || low >= end || !has_no_state(zero, i))
            continue;
        add_range(zero, begin, low, SIZE_MAX);
        begin = begin > low ? begin : low;
        if (zero->stage == 3 && begin < end) { /* the weights are in a range, too */
            add_range(zero, begin, next < end ? next : end, SIZE_MAX);
            zero->ranges[zero->sharding.n - 1].bare = true;
        }
        begin = next;
    }
    add_range(zero, begin, end, SIZE_MAX);
}

/* The previous rank's share of a bucket, unless that is this rank. Comes before this rank's own, with whose update the bucket's
 * parameters of all ranks begin to arrive. */
static void add_copy(tutti_zero *zero, size_t begin, size_t share)
{
    const size_t size = (size_t)zero->sharding.peers.size;
    const size_t of = ((size_t)zero->sharding.peers.rank + size - 1) % size;

    if (!zero->copies || size == 1 || share == 0)
        return;
    zero->bucket_of[zero->sharding.n] = SIZE_MAX;
    zero->ranges[zero->sharding.n++] =
        (tutti__range){.begin = begin + of * share, .end = begin + (of + 1) * share, .copy = true};
}

static tutti_status make_room(tutti_zero *zero)
{
    const size_t n = zero->n_noted, most = 4 * n + 2 * zero->root->parameters.n + 1;

    free(zero->ranges);
    free(zero->bucket_of);
    free(zero->works);
    zero->ranges = tutti__alloc(most * sizeof *zero->ranges);
    zero->bucket_of = tutti__alloc(most * sizeof *zero->bucket_of);
    zero->works = tutti__alloc((n + 1) * sizeof(tutti_work *));
    zero->n_buckets = zero->works ? n : 0;
    zero->sharding.n = 0;
    zero->sharding.ranges = zero->ranges;
    return zero->ranges && zero->bucket_of && zero->works ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

/* The part of the reducer's buckets that is flat memory, which excludes buffers, and sparse gradients. */
tutti_status tutti__zero_list(tutti_zero *zero)
{
    const tutti_ddp *ddp = zero->ddp;
    const struct tutti_root *root = zero->root;

    if (zero->stage == 3 && zero->n_noted > 0) /* frozen parameters follow */
        return TUTTI_OK;
    for (size_t b = 0; b < tutti_reducer_n_buckets(ddp->reducer); b++) {
        const tutti_bucket_info info = tutti_reducer_bucket(ddp->reducer, b);
        size_t begin = root->n_flat, end = 0;
        bool vectors = zero->stage == 3 && !ddp->shards;

        for (size_t place = info.first; place < info.first + info.n; place++) {
            const size_t i = tutti_reducer_at(ddp->reducer, place);

            if (i >= ddp->n || ddp->parameters[i]->parameter->touched)
                continue;
            vectors = vectors && ddp->parameters[i]->shape.n < 2;
            begin = root->offsets[i] < begin ? root->offsets[i] : begin;
            end = root->offsets[i] +
                  ((size_t)tutti_shape_count(ddp->parameters[i]->shape) + 15) / 16 * 16;
        }
        TUTTI_TRY(tutti__zero_note(zero, b, end > 0 ? root->flat_gradients + begin : NULL,
                                   end > 0 ? end - begin : 0));
        zero->buckets[b].vectors = vectors;
    }
    return TUTTI_OK;
}

static tutti_status check_prepared(const tutti_zero *zero)
{
    if (!zero->group)
        return tutti__fail(TUTTI_ERR_STATE,
                           "zero: its DDP is in no group, so there are no shares; call "
                           "tutti_ddp_regroup with one");
    if (zero->n_noted == 0)
        return tutti__fail(TUTTI_ERR_STATE,
                           "zero: no backward has averaged gradients yet, so there are no shares; "
                           "run one after tutti_ddp_resume");
    return TUTTI_OK;
}

tutti_status tutti__zero_begin_step(const tutti_ddp *ddp)
{
    tutti_zero *zero = ddp->zero;

    if (!zero)
        return TUTTI_OK;
    zero->begun = true;
    zero->before = zero->tag.updates;
    if (zero->stage < 2)
        return TUTTI_OK;
    TUTTI_TRY(tutti__zero_list(zero));
    for (size_t b = 0; b < tutti_reducer_n_buckets(ddp->reducer); b++)
        tutti__reducer_divide(ddp->reducer, b, zero->buckets[b].p, zero->buckets[b].count,
                              zero->copies);
    return TUTTI_OK;
}

tutti_status tutti__zero_prepare(void *self)
{
    tutti_zero *zero = self;
    const struct tutti_root *root = zero->root;
    const bool stale = zero->sharding.layouts != root->layouts;
    size_t at = 0;

    if (zero->group && zero->ddp->shards && stale)
        TUTTI_TRY(tutti__zero_list(zero));
    TUTTI_TRY(check_prepared(zero));
    if (!stale)
        return TUTTI_OK;
    for (tutti__optim_entry *entry = root->optims; entry; entry = entry->next)
        TUTTI_TRY(tutti__optim_know_updates((tutti_optim *)(void *)entry)); /* its first member */
    TUTTI_TRY(make_room(zero));
    for (size_t i = 0; i < zero->n_noted; i++) {
        const tutti__zero_bucket *b = &zero->buckets[i];
        const size_t share = tutti__zero_share(zero, b), rank = (size_t)zero->sharding.peers.rank;
        size_t begin;

        if (!b->p) /* sparse, which hooks do not get, or buffers */
            continue;
        begin = (size_t)(b->p - root->flat_gradients);
        add_whole(zero, at, begin);
        add_copy(zero, begin, share);
        if (share > 0) {
            add_range(zero, begin + rank * share, begin + (rank + 1) * share, i);
            zero->ranges[zero->sharding.n - 1].bare = is_bare(zero, i);
            zero->ranges[zero->sharding.n - 1].host = b->host;
        }
        at = begin + share * (size_t)zero->sharding.peers.size; /* the tail begins the next gap */
    }
    add_whole(zero, at, root->n_flat);
    zero->sharding.layouts = root->layouts;
    return TUTTI_OK;
}

/* Parameters of other ranks are old. */
static tutti_status drop(void *self)
{
    return tutti__units_drop(self);
}

static tutti_status finish_units(void *self)
{
    tutti__zero_updated(self);
    return tutti__units_renew(self);
}

static tutti_status discard(void *self)
{
    return tutti__units_begin_write(self);
}

static tutti_status written(void *self)
{
    return tutti__units_end_write(self);
}

static tutti_status begin(void *self, const void *optim, double value)
{
    tutti_zero *zero = self;
    tutti_ddp *ddp = zero->ddp;

    if (zero->stage == 3 && optim) {
        free(zero->whole);
        zero->whole = NULL;
        TUTTI_TRY(tutti__units_settle(zero));
    }
    if (ddp->join)
        TUTTI_TRY(
            tutti__join_announce(ddp, optim ? TUTTI__JOIN_UPDATE : TUTTI__JOIN_CLIP, optim, value));
    if (!optim)
        return TUTTI_OK;
    zero->updating = false;
    TUTTI_TRY(zero->copies ? tutti__zero_begin_copies(zero, optim)
                           : tutti__agree_on_optim(ddp->group, optim));
    tutti__units_conceal(zero);
    zero->updating = ddp->shards != NULL;
    return TUTTI_OK;
}

/* ---- A step: parameters are gathered -------------------------------------------------------------------------- */

static tutti_status gather(void *self, size_t i)
{
    tutti_zero *zero = self;
    const tutti__zero_bucket *b;
    float *p;
    size_t share;

    if (zero->bucket_of[i] == SIZE_MAX || zero->stage == 3)
        return TUTTI_OK;
    b = &zero->buckets[zero->bucket_of[i]];
    share = tutti__zero_share(zero, b);
    p = zero->root->flat_parameters + (b->p - zero->root->flat_gradients);
    return tutti_all_gather(zero->group,
                            (tutti_const_buf){zero->root->flat_parameters + zero->ranges[i].begin,
                                              share, TUTTI_F32, tutti__zero_stream(zero)},
                            (tutti_buf){p, share * (size_t)zero->sharding.peers.size, TUTTI_F32,
                                        tutti__zero_stream(zero)},
                            &zero->works[zero->bucket_of[i]]);
}

tutti_status tutti__zero_finish(void *self)
{
    tutti_zero *zero = self;
    tutti_status status = TUTTI_OK;

    for (size_t b = 0; b < zero->n_buckets; b++) {
        tutti_work *work = zero->works[b];

        zero->works[b] = NULL;
        if (work && status == TUTTI_OK)
            status = tutti_work_wait(work);
        else if (work)
            (void)!tutti_work_wait(work); /* only the first failure is reported */
    }
    return status;
}

static tutti_status finish(void *self)
{
    TUTTI_TRY(tutti__zero_finish(self));
    tutti__zero_updated(self);
    return TUTTI_OK;
}

/* With copies every rank ends an update that all have begun, whatever becomes of the group (zero_copies.c): a failure is finish's. */
static tutti_status updated(void *self, size_t i)
{
    tutti_zero *zero = self;
    const tutti_status status = gather(self, i);

    if (status == TUTTI_OK || !zero->copies || tutti_group_status(zero->group) == TUTTI_OK)
        return status;
    zero->incomplete = true;
    return TUTTI_OK;
}

/* ---- Construction -------------------------------------------------------------------------------------------------------- */

static tutti_status check_ranks(const tutti_ddp *ddp)
{
    const int ranks = ddp->opts.zero_ranks, size = ddp->group ? tutti_group_size(ddp->group) : 0;

    if (ranks == 0)
        return TUTTI_OK;
    if (ddp->opts.zero == 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_ddp_new: zero_ranks says among how many ranks zero divides, and "
                           "zero is 0; set zero to 1, 2 or 3, or zero_ranks to 0");
    if (ddp->opts.shards > 0)
        return tutti__fail(
            TUTTI_ERR_UNSUPPORTED,
            "tutti_ddp_new: zero_ranks cannot be used with shards, whose ranks come and go; use "
            "zero_ranks 0 (all ranks), or shards 0");
    if (ranks < 0 || ranks > size || size % ranks != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_ddp_new: zero_ranks is %d, expected 0 (all ranks) or a divisor "
                           "of the group's %d rank%s",
                           ranks, size, tutti__s((uint64_t)size));
    return TUTTI_OK;
}

static tutti_status check_reduce_dtype(const tutti_ddp *ddp)
{
    const tutti_dtype dtype = ddp->opts.reduce_dtype;

    if (dtype == TUTTI_F32)
        return TUTTI_OK;
    if (dtype != TUTTI_BF16 && dtype != TUTTI_F16)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_ddp_new: reduce_dtype is %s, expected F32 (0), BF16 or F16",
                           tutti_dtype_name(dtype));
    if (ddp->opts.zero == 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_ddp_new: reduce_dtype is for ZeRO, and zero is 0; use "
                           "tutti_ddp_set_hook with tutti_comm_hook_bf16 or _fp16");
    if (ddp->opts.shards > 0)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "tutti_ddp_new: reduce_dtype rounds the sum of a rank, which with "
                           "shards depends on the number of ranks; use wire_bits 32");
    return TUTTI_OK;
}

static tutti_status check_offload(const tutti_ddp *ddp)
{
    const tutti_ctx *cx = ddp->module->cx;

    if (!ddp->opts.offload_parameters)
        return TUTTI_OK;
    if (ddp->opts.zero != 3)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_ddp_new: offload_parameters is for shares of parameters, and "
                           "zero is %d; set zero to 3, or offload the optimizer's state alone "
                           "(tutti_optim_offload)",
                           ddp->opts.zero);
    if (cx->device_ops->is_host)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_ddp_new: offload_parameters: on device %s parameters are in host "
                           "memory already; leave it out",
                           cx->device_ops->name);
    return TUTTI_OK;
}

tutti_status tutti__zero_check(const tutti_ddp *ddp)
{
    TUTTI_TRY(check_ranks(ddp));
    TUTTI_TRY(check_reduce_dtype(ddp));
    TUTTI_TRY(check_offload(ddp));
    if (ddp->opts.zero < 2)
        return TUTTI_OK;
    if (ddp->opts.shards > 0 && !tutti__on_host(tutti__ddp_stream(ddp)))
        return tutti__fail(
            TUTTI_ERR_UNSUPPORTED,
            "tutti_ddp_new: zero %d with shards gives memory back to the system while it trains, "
            "which device %s cannot yet; use zero 1, or device cpu",
            ddp->opts.zero, ddp->module->cx->device_ops->name);
    /* With shared memory within hosts, MPI sees copies only. */
    if (ddp->group && strncmp(tutti_group_transport_name(ddp->group), "mpi", 3) == 0)
        return tutti__fail(
            TUTTI_ERR_UNSUPPORTED,
            "tutti_ddp_new: zero %d gives memory back to the system while it trains, "
            "and an MPI library may have registered it with the network; use zero 1, "
            "TUTTI_TRANSPORT auto, or backend native",
            ddp->opts.zero);
    return TUTTI_OK;
}

tutti_status tutti__zero_open(tutti_ddp *ddp)
{
    const tutti_comm_hook hook = {.name = "reduce_scatter", .run = tutti__zero_reduce};
    const int stage = ddp->opts.zero;
    tutti_zero *zero;

    if (ddp->module->root->sharding)
        return tutti__fail(TUTTI_ERR_STATE,
                           "tutti_ddp_new: the module's state is sharded by another DDP already");
    ddp->zero = zero = tutti__alloc(sizeof *zero);
    if (!zero)
        return TUTTI_ERR_MEMORY;
    *zero = (tutti_zero){.ddp = ddp,
                         .stage = stage,
                         .wire = ddp->opts.reduce_dtype,
                         .replicas = 1,
                         .root = ddp->module->root,
                         .sharding = {.self = zero,
                                      .offloads = ddp->opts.offload_parameters,
                                      .whole_gradients = ddp->shards && stage == 1,
                                      .whole_parameters = ddp->shards || stage < 3,
                                      .prepare = tutti__zero_prepare,
                                      .begin = begin,
                                      .updated = updated,
                                      .finish = stage == 3 ? drop : finish,
                                      .discard = discard,
                                      .written = written}};
    zero->copies = ddp->opts.shard_copies > 1;
    if (tutti__zero_reads(zero))
        zero->sharding.finish = finish_units;
    else if (zero->copies)
        zero->sharding.finish = tutti__zero_finish_copies;
    zero->shared = tutti__alloc((ddp->n + 1) * sizeof *zero->shared);
    if (!zero->shared)
        return TUTTI_ERR_MEMORY;
    (void)tutti__zero_regroup(ddp, ddp->group);
    zero->root->sharding = &zero->sharding;
    for (size_t i = 0; i < zero->root->parameters.n && stage >= 2; i++)
        zero->root->parameters.p[i]->parameter.bring_grad = bring_grad;
    if (ddp->shards)
        return TUTTI_OK;
    ddp->hook = hook;
    ddp->hook.self = zero;
    ddp->plain_means = zero->wire == TUTTI_F32;
    return TUTTI_OK;
}

tutti_status tutti__zero_part(const tutti_ddp *ddp)
{
    tutti_zero *zero = ddp->zero;
    const int ranks = ddp->opts.zero_ranks;

    if (!zero || ranks == 0 || ranks == tutti_group_size(ddp->group))
        return TUTTI_OK;
    TUTTI_TRY(tutti_group_split_parts(ddp->group, ranks, "zero", &zero->parted));
    zero->replicas = tutti_group_size(ddp->group) / ranks;
    zero->group = zero->parted;
    zero->sharding.peers = tutti_group_peers(zero->group);
    return TUTTI_OK;
}

tutti_group *tutti__zero_parted(const tutti_ddp *ddp)
{
    return ddp && ddp->zero ? ddp->zero->parted : NULL;
}

bool tutti__zero_has_parameters(const tutti_ddp *ddp)
{
    return ddp->zero && ddp->zero->stage == 3;
}

void tutti__zero_free(tutti_ddp *ddp)
{
    tutti_zero *zero = ddp->zero;

    ddp->zero = NULL;
    if (!zero)
        return;
    if (zero->works)
        (void)!tutti__zero_finish(zero);
    if (zero->stage == 3)
        tutti__units_free(zero);
    if (zero->root->sharding == &zero->sharding) {
        zero->root->sharding = NULL;
        for (size_t i = 0; i < zero->root->parameters.n; i++)
            zero->root->parameters.p[i]->parameter.bring_grad = NULL;
        tutti__zero_leave_optims(zero);
    }
    zero->root->module->cx->device_ops->free(zero->root->module->cx->device, zero->sent);
    tutti_group_free(zero->parted);
    free(zero->buckets);
    free(zero->shared);
    free(zero->ranges);
    free(zero->bucket_of);
    free(zero->works);
    free(zero);
}

tutti_zero *tutti_ddp_zero(tutti_ddp *ddp)
{
    return ddp ? ddp->zero : NULL;
}

static size_t ranges_bytes(const tutti_zero *zero)
{
    size_t n = 0;

    for (size_t i = 0; i < zero->sharding.n; i++)
        n += tutti__range_state(&zero->ranges[i]);
    return n * sizeof(float);
}

tutti_zero_stats tutti_zero_get_stats(const tutti_zero *zero)
{
    const size_t all = zero ? zero->root->n_flat * sizeof(float) : 0;
    tutti_zero_stats s = {.stage = 0};

    if (!zero)
        return s;
    s.stage = zero->stage;
    s.parameter_bytes = zero->stage == 3 ? zero->held : all;
    s.most_parameter_bytes = zero->stage == 3 ? zero->most_held : all;
    s.gradient_bytes = zero->stage >= 2 && zero->sharding.n > 0 ? ranges_bytes(zero) : all;
    s.gathered_bytes = zero->gathered_bytes;
    return s;
}
