/* zero.c -- ZeRO-1: each rank keeps its share of the optimizer's state, and updates its share of the parameters.
 * SPDX-License-Identifier: MIT
 *
 *     bucket          |  share of rank 0  |  share of rank 1  |  share of rank 2  |t|
 *     backward        reduce_scatter during backward: this rank's share of the gradient is the mean
 *     optimizer       updates this rank's share, for which it has the state
 *     then            all_gather of the parameters, while the next bucket's share is updated
 *
 * The tail t, of less than one element per rank, and what is in no bucket (sparse gradients, ignored parameters) is kept whole
 * by every rank. Sums are in rank order, as in all_reduce, and updates are elementwise, so the bits are those of training
 * without ZeRO. docs/design/zero.md
 *
 * With logical shards of a step (logical_shards.c) gradients are reduced as without ZeRO, and every rank has all of the mean. The group
 * may change: the sharded state is gathered before that, or is lost with the ranks that had it. */
#include "ddp/ddp.h"

#include "comm/comm.h"
#include "optim/optim.h"
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

enum { ALL_RANKS = -1 };

typedef struct bucket {
    float *p; /* its gradients */
    size_t count;
} bucket;

/* The state of the hook, owned by the reducer. The communication thread writes it during backward; after that the main thread
 * reads it. */
typedef struct buckets {
    /* NULL: freed; buckets are averaged. With logical shards there is no hook, and ZeRO owns this */
    tutti_zero *zero;
    bucket *p;
    size_t n;
    /* by parameter: its zero_grads when its gradient was last sharded; 0: never */
    uint64_t *shared;
} buckets;

struct tutti_zero {
    tutti_ddp *ddp;
    tutti_group *group; /* NULL: none at present (with logical shards) */
    struct tutti_root *root;
    buckets *buckets; /* NULL: DDP was freed */
    tutti__sharding sharding;
    tutti__range *ranges;
    size_t *bucket_of;  /* by range; SIZE_MAX: every rank has it whole */
    tutti_work **works; /* by bucket: its all_gather, while in flight */
    size_t n_buckets;   /* of ranges and works */
};

static size_t share_of(const tutti_zero *zero, const bucket *b)
{
    return b->count / (size_t)zero->sharding.peers.size;
}

static tutti_stream *stream_of(const tutti_zero *zero)
{
    return tutti_ctx_stream(tutti_module_ctx(zero->root->module));
}

/* ---- Backward: the hook, on the communication thread ------------------------------------------------------------------ */

static tutti_status note(buckets *all, size_t index, bucket b)
{
    bucket *p;

    if (index >= all->n) {
        p = realloc(all->p, (index + 1) * sizeof *p);
        if (!p)
            return tutti__fail(TUTTI_ERR_MEMORY, "zero: no memory for %zu buckets", index + 1);
        memset(p + all->n, 0, (index + 1 - all->n) * sizeof *p);
        all->p = p;
        all->n = index + 1;
    }
    all->p[index] = b;
    return TUTTI_OK;
}

/* How often its gradient was dropped, by zero_grad of the root or of a submodule. Never 0. */
static uint64_t zero_grads(const tutti__parameter *parameter)
{
    return *parameter->round + parameter->zeroed;
}

/* STATE if backward added to a gradient that was sharded already; else marks the bucket's gradients as sharded. */
static tutti_status check(const buckets *all, const tutti_bucket *b)
{
    if (b->buf.dtype != TUTTI_F32)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "zero: \"%s\" is %s; only F32 can be sharded",
                           b->gradients[0].name, tutti_dtype_name(b->buf.dtype));
    for (size_t k = 0; k < b->n; k++) {
        const size_t i = b->gradients[k].parameter;
        const tutti__parameter *p = &all->zero->root->parameters.p[i]->parameter;

        if (!tutti__has_gradient(p))
            continue;
        if (all->shared[i] == zero_grads(p))
            return tutti__fail(
                TUTTI_ERR_STATE,
                "zero: the gradient of \"%s\" is sharded already, and another backward cannot "
                "add to it; call zero_grad after each step, and accumulate between "
                "tutti_ddp_pause and tutti_ddp_resume",
                b->gradients[k].name);
        all->shared[i] = zero_grads(p);
    }
    return TUTTI_OK;
}

static tutti_status reduce(void *self, tutti_group *group, const tutti_bucket *b)
{
    buckets *all = self;
    tutti_buf whole = b->buf, mine = b->buf;
    size_t share;

    if (!all->zero)
        return tutti_all_reduce(group, b->buf, TUTTI_AVG, NULL);
    TUTTI_TRY(check(all, b));
    TUTTI_TRY(note(all, b->index, (bucket){b->buf.p, b->buf.count}));
    share = share_of(all->zero, &all->p[b->index]);
    whole.count = share * (size_t)tutti_group_size(group);
    mine.count = share;
    mine.p = (float *)whole.p + share * (size_t)tutti_group_rank(group);
    TUTTI_TRY(tutti_reduce_scatter(group, tutti_buf_const(whole), mine, TUTTI_AVG, NULL));
    if (whole.count == b->buf.count)
        return TUTTI_OK;
    whole.p = (float *)whole.p + whole.count;
    whole.count = b->buf.count - whole.count;
    return tutti_all_reduce(group, whole, TUTTI_AVG, NULL);
}

static void forget(void *self)
{
    buckets *all = self;

    if (all->zero)
        all->zero->buckets = NULL;
    free(all->p);
    free(all->shared);
    free(all);
}

/* ---- Ranges ------------------------------------------------------------------------------------------------------------- */

static void add_range(tutti_zero *zero, size_t begin, size_t end, size_t of)
{
    if (begin >= end)
        return;
    zero->bucket_of[zero->sharding.n] = of;
    zero->ranges[zero->sharding.n++] = (tutti__range){begin, end, of == SIZE_MAX};
}

static tutti_status make_room(tutti_zero *zero)
{
    const size_t n = zero->buckets->n;

    free(zero->ranges);
    free(zero->bucket_of);
    free(zero->works);
    zero->ranges = tutti__alloc((3 * n + 1) * sizeof *zero->ranges);
    zero->bucket_of = tutti__alloc((3 * n + 1) * sizeof *zero->bucket_of);
    zero->works = tutti__alloc((n + 1) * sizeof(tutti_work *));
    zero->n_buckets = zero->works ? n : 0;
    zero->sharding.n = 0;
    zero->sharding.ranges = zero->ranges;
    return zero->ranges && zero->bucket_of && zero->works ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

/* With logical shards: the part of the reducer's buckets that is flat memory, which excludes buffers. */
static tutti_status list_buckets(const tutti_zero *zero)
{
    const tutti_ddp *ddp = zero->ddp;
    const struct tutti_root *root = zero->root;

    for (size_t b = 0; b < tutti_reducer_n_buckets(ddp->reducer); b++) {
        const tutti_bucket_info info = tutti_reducer_bucket(ddp->reducer, b);
        size_t begin = root->n_flat, end = 0;

        for (size_t place = info.first; place < info.first + info.n; place++) {
            const size_t i = tutti_reducer_at(ddp->reducer, place);

            if (i >= ddp->n)
                continue;
            begin = root->offsets[i] < begin ? root->offsets[i] : begin;
            end = root->offsets[i] + (size_t)tutti_shape_count(ddp->parameters[i]->shape);
        }
        TUTTI_TRY(note(
            zero->buckets, b,
            (bucket){end > 0 ? root->flat_gradients + begin : NULL, end > 0 ? end - begin : 0}));
    }
    return TUTTI_OK;
}

static tutti_status check_prepared(const tutti_zero *zero)
{
    if (!zero->buckets)
        return tutti__fail(TUTTI_ERR_STATE,
                           "zero: its DDP is gone; free ZeRO and the optimizer before it");
    if (!zero->group)
        return tutti__fail(TUTTI_ERR_STATE,
                           "zero: its DDP is in no group, so there are no shares; call "
                           "tutti_ddp_regroup with one");
    if (zero->buckets->n == 0)
        return tutti__fail(TUTTI_ERR_STATE,
                           "zero: no backward has averaged gradients yet, so there are no shares; "
                           "run one after tutti_ddp_resume");
    return TUTTI_OK;
}

static tutti_status prepare(void *self)
{
    tutti_zero *zero = self;
    const struct tutti_root *root = zero->root;
    const bool stale = zero->sharding.layouts != root->layouts;
    size_t at = 0;

    if (zero->buckets && zero->group && zero->sharding.whole_gradients && stale)
        TUTTI_TRY(list_buckets(zero));
    TUTTI_TRY(check_prepared(zero));
    if (!stale)
        return TUTTI_OK;
    TUTTI_TRY(make_room(zero));
    for (size_t i = 0; i < zero->buckets->n; i++) {
        const bucket *b = &zero->buckets->p[i];
        const size_t share = share_of(zero, b), rank = (size_t)zero->sharding.peers.rank;
        size_t begin;

        if (!b->p) /* sparse, which hooks do not get, or buffers */
            continue;
        begin = (size_t)(b->p - root->flat_gradients);
        add_range(zero, at, begin, SIZE_MAX);
        add_range(zero, begin + rank * share, begin + (rank + 1) * share, i);
        at = begin + share * (size_t)zero->sharding.peers.size; /* the tail begins the next gap */
    }
    add_range(zero, at, root->n_flat, SIZE_MAX);
    zero->sharding.layouts = root->layouts;
    return TUTTI_OK;
}

static tutti_status begin(void *self, const void *optim, double value)
{
    tutti_ddp *ddp = ((tutti_zero *)self)->ddp;

    if (ddp->join)
        TUTTI_TRY(
            tutti__join_announce(ddp, optim ? TUTTI__JOIN_UPDATE : TUTTI__JOIN_CLIP, optim, value));
    return optim ? tutti__agree_on_optim(ddp->group, optim) : TUTTI_OK;
}

/* ---- A step: parameters are gathered -------------------------------------------------------------------------- */

static tutti_status updated(void *self, size_t i)
{
    tutti_zero *zero = self;
    const bucket *b;
    float *p;
    size_t share;

    if (zero->bucket_of[i] == SIZE_MAX)
        return TUTTI_OK;
    b = &zero->buckets->p[zero->bucket_of[i]];
    share = share_of(zero, b);
    p = zero->root->flat_parameters + (b->p - zero->root->flat_gradients);
    return tutti_all_gather(
        zero->group,
        (tutti_const_buf){zero->root->flat_parameters + zero->ranges[i].begin, share, TUTTI_F32,
                          stream_of(zero)},
        (tutti_buf){p, share * (size_t)zero->sharding.peers.size, TUTTI_F32, stream_of(zero)},
        &zero->works[zero->bucket_of[i]]);
}

static tutti_status finish(void *self)
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

/* ---- Gathering state ---------------------------------------------------------------------------------------- */

/* Gathers one kind of state from all ranks into `whole` (NULL: not on this rank), through `all`, which has room for a bucket. */
static tutti_status gather(tutti_zero *zero, const float *state, float *whole, float *all)
{
    const size_t size = (size_t)zero->sharding.peers.size;
    tutti_stream *stream = stream_of(zero);

    for (size_t i = 0; i < zero->sharding.n; i++) {
        const tutti__range *range = &zero->ranges[i];
        const size_t n = range->end - range->begin;
        const bucket *b = range->whole ? NULL : &zero->buckets->p[zero->bucket_of[i]];
        const size_t at = b ? (size_t)(b->p - zero->root->flat_gradients) : range->begin;

        if (b)
            TUTTI_TRY(tutti_all_gather(zero->group, (tutti_const_buf){state, n, TUTTI_F32, stream},
                                       (tutti_buf){all, n * size, TUTTI_F32, stream}, NULL));
        if (whole)
            TUTTI_TRY(tutti__copy_out(stream, whole + at, b ? all : state,
                                      (b ? n * size : n) * sizeof *state));
        state += n;
    }
    return whole ? tutti_stream_wait(stream) : TUTTI_OK;
}

/* Memory for a bucket on the device; on `root`, or with ALL_RANKS on every rank, also for all of the state, on the host, since
 * a device may not have room for it. */
static tutti_status room_for_whole(const tutti_zero *zero, tutti_optim *optim, int root,
                                   float **all_p)
{
    const tutti_ctx *cx = optim->cx;
    size_t largest = 0;

    for (size_t i = 0; i < zero->n_buckets; i++)
        if (share_of(zero, &zero->buckets->p[i]) > largest)
            largest = share_of(zero, &zero->buckets->p[i]);
    *all_p = cx->device_ops->alloc(
        cx->device, (largest * (size_t)zero->sharding.peers.size + 1) * sizeof **all_p, false);
    if (!*all_p)
        return TUTTI_ERR_MEMORY;
    if (root != ALL_RANKS && tutti_group_rank(zero->group) != root)
        return TUTTI_OK;
    for (size_t k = 0; tutti_optim_state_name(optim, k); k++) {
        optim->whole[k] = tutti__alloc_unset((zero->root->n_flat + 1) * sizeof(float));
        if (!optim->whole[k])
            return TUTTI_ERR_MEMORY;
    }
    return TUTTI_OK;
}

/* Gathers the state of one optimizer whose state is sharded. */
static tutti_status bring_together(tutti_zero *zero, tutti_optim *optim, int root)
{
    float *all = NULL;
    tutti_status status;

    TUTTI_TRY(prepare(zero));
    tutti__optim_free_whole(optim);
    status = tutti__group_agree(zero->group, room_for_whole(zero, optim, root, &all));
    for (size_t k = 0; tutti_optim_state_name(optim, k) && status == TUTTI_OK; k++)
        status = gather(zero, optim->state[k], optim->whole[k], all);
    optim->cx->device_ops->free(optim->cx->device, all);
    if (status != TUTTI_OK)
        tutti__optim_free_whole(optim);
    return status;
}

tutti_status tutti_zero_consolidate(tutti_zero *zero, tutti_optim *optim, int root)
{
    TUTTI_TRY(TUTTI__NOT_NULL(zero));
    TUTTI_TRY(TUTTI__NOT_NULL(optim));
    if (optim->module->root != zero->root)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_zero_consolidate: the optimizer is of another module");
    if (zero->group && (root < 0 || root >= tutti_group_size(zero->group)))
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_zero_consolidate: root is %d, expected a rank from 0 to %d", root,
                           tutti_group_size(zero->group) - 1);
    if (optim->sharding != &zero->sharding) /* before the first step: not sharded */
        return TUTTI_OK;
    return bring_together(zero, optim, root);
}

/* ---- Groups that change: with logical shards --------------------------------------------------------------------------- */

/* The next of the root's optimizers with sharded state, from `entry` on; NULL: none. */
static tutti_optim *next_in_shares(const tutti_zero *zero, tutti__optim_entry *entry)
{
    while (entry && ((tutti_optim *)(void *)entry)->sharding != &zero->sharding)
        entry = entry->next;
    return (tutti_optim *)(void *)entry; /* its first member */
}

tutti_status tutti__zero_gather(const tutti_ddp *ddp)
{
    tutti_zero *zero = ddp->zero;
    tutti_optim *optim = zero ? next_in_shares(zero, zero->root->optims) : NULL;

    for (; optim; optim = next_in_shares(zero, optim->entry.next)) {
        TUTTI_TRY(bring_together(zero, optim, ALL_RANKS));
        TUTTI_TRY(tutti__optim_take_whole(optim));
    }
    return TUTTI_OK;
}

bool tutti__zero_regroup(const tutti_ddp *ddp, tutti_group *group)
{
    tutti_zero *zero = ddp->zero;
    tutti_optim *optim = zero ? next_in_shares(zero, zero->root->optims) : NULL;
    bool lost = false;

    if (!zero)
        return false;
    if (zero->works)
        (void)!finish(zero); /* all_gathers fail with the group */
    for (; optim; optim = next_in_shares(zero, optim->entry.next))
        lost |= tutti__optim_drop_share(optim);
    zero->group = group;
    if (group)
        zero->sharding.peers = tutti_group_peers(group);
    zero->sharding.layouts = 0; /* ranges will change */
    return lost;
}

static void free_buckets(tutti_zero *zero)
{
    free(zero->buckets->p);
    free(zero->buckets);
    zero->buckets = NULL;
}

void tutti__zero_leave_ddp(const tutti_ddp *ddp)
{
    if (ddp->zero)
        free_buckets(ddp->zero);
}

/* ---- Construction -------------------------------------------------------------------------------------------------------- */

static tutti_status check_ddp(const tutti_ddp *ddp)
{
    if (ddp->module->root->sharding)
        return tutti__fail(TUTTI_ERR_STATE,
                           "tutti_zero_new: the module's state is sharded already");
    if (ddp->hook.run)
        return tutti__fail(TUTTI_ERR_STATE,
                           "tutti_zero_new: communication hook \"%s\" is set, and ZeRO reduces "
                           "gradients in its own way; use one of the two",
                           ddp->hook.name);
    if (ddp->reducer && !ddp->shards)
        return tutti__fail(TUTTI_ERR_STATE,
                           "tutti_zero_new: after the first backward; call it before");
    return TUTTI_OK;
}

static tutti__sharding sharding_of(tutti_zero *zero)
{
    return (tutti__sharding){
        .self = zero, .prepare = prepare, .begin = begin, .updated = updated, .finish = finish};
}

/* Needs no group and does not communicate. */
static tutti_status new_by_shards(tutti_zero **zero_p, tutti_ddp *ddp)
{
    tutti_zero *zero;

    TUTTI_TRY(check_ddp(ddp));
    zero = tutti__alloc(sizeof *zero);
    if (!zero)
        return TUTTI_ERR_MEMORY;
    zero->buckets = tutti__alloc(sizeof *zero->buckets);
    if (!zero->buckets) {
        free(zero);
        return TUTTI_ERR_MEMORY;
    }
    zero->ddp = ddp;
    zero->root = ddp->module->root;
    zero->sharding = sharding_of(zero);
    zero->sharding.whole_gradients = true;
    zero->root->sharding = &zero->sharding;
    ddp->zero = zero;
    (void)tutti__zero_regroup(ddp, ddp->group);
    *zero_p = zero;
    return TUTTI_OK;
}

tutti_status tutti_zero_new(tutti_zero **zero_p, tutti_ddp *ddp)
{
    tutti_zero *zero;
    tutti_comm_hook hook = {.name = "reduce_scatter", .run = reduce, .free = forget};
    tutti_status status;

    *zero_p = NULL;
    TUTTI_TRY(TUTTI__NOT_NULL(ddp));
    if (ddp->shards)
        return new_by_shards(zero_p, ddp);
    zero = tutti__alloc(sizeof *zero);
    hook.self = tutti__alloc(sizeof(buckets));
    if (!zero || !hook.self) {
        free(zero);
        free(hook.self);
        return tutti__group_agree(ddp->group, TUTTI_ERR_MEMORY);
    }
    zero->ddp = ddp;
    zero->group = ddp->group;
    zero->root = ddp->module->root;
    zero->buckets = hook.self;
    zero->buckets->zero = zero;
    zero->buckets->shared = tutti__alloc((ddp->n + 1) * sizeof(uint64_t));
    zero->sharding = sharding_of(zero);
    zero->sharding.peers = tutti_group_peers(ddp->group);
    status =
        tutti__group_agree(ddp->group, zero->buckets->shared ? check_ddp(ddp) : TUTTI_ERR_MEMORY);
    if (status != TUTTI_OK)
        forget(hook.self);
    else
        status = tutti_ddp_set_hook(ddp, &hook); /* takes ownership of self, also on failure */
    if (status != TUTTI_OK) {
        free(zero);
        return status;
    }
    ddp->plain_means = true;
    zero->root->sharding = &zero->sharding;
    *zero_p = zero;
    return TUTTI_OK;
}

void tutti_zero_free(tutti_zero *zero)
{
    if (!zero)
        return;
    if (zero->works)
        (void)!finish(zero);
    if (zero->root->sharding == &zero->sharding)
        zero->root->sharding = NULL;
    if (zero->buckets && zero->sharding.whole_gradients) {
        zero->ddp->zero = NULL;
        free_buckets(zero);
    } else if (zero->buckets) {
        zero->buckets->zero = NULL;
    }
    free(zero->ranges);
    free(zero->bucket_of);
    free(zero->works);
    free(zero);
}
