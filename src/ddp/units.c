/* units.c -- ZeRO-3: parameters of which each rank has its share, gathered before an operation reads them.
 * SPDX-License-Identifier: MIT
 *
 *     flat memory     | bucket 0: [share] . . . t | bucket 1: . . . [share] t | bucket 2 ...       .: address without memory
 *     an operation reads a parameter of bucket 1: memory for it, all_gather of the shares; of the next one meanwhile
 *     KEPT others that were read last stay; the rest gives its memory back
 *
 * Every rank must gather the same buckets in the same order. That follows from its operations, which are the same on all ranks; where
 * they may differ (find_unused), all buckets are gathered together. After an update all are gathered anew.
 *
 * What operations read only rounded to 16 bits (weights of products with autocast) is gathered so. Vectors, which they read as they are,
 * have buckets of their own. If one reads more than a gathered bucket has, that is gathered again, and from then on in F32. */
#include "ddp/zero.h"

#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

/* Buckets that stay while an operation reads others: forward and backward go from one to the next, but a layer may be cut by two. */
enum { KEPT = 2 };

static size_t tail_begin(const tutti_zero *zero, const tutti__zero_bucket *b)
{
    return tutti__zero_begin(zero, b) +
           tutti__zero_share(zero, b) * (size_t)zero->sharding.peers.size;
}

static void hold(tutti_zero *zero, size_t bytes)
{
    zero->held += bytes;
    zero->most_held = zero->held > zero->most_held ? zero->held : zero->most_held;
}

/* Bytes of the parameters that only other ranks keep. */
static size_t others_bytes(const tutti_zero *zero, const tutti__zero_bucket *b)
{
    const tutti__zero_kept kept = tutti__zero_kept_of(zero, b);

    return (kept.begin - tutti__zero_begin(zero, b) + kept.tail - kept.end) * sizeof(float);
}

/* Bytes for which a bucket has memory only while it is read. */
static size_t coming_bytes(const tutti_zero *zero, const tutti__zero_bucket *b)
{
    return others_bytes(zero, b) + (b->host ? tutti__zero_share(zero, b) * sizeof(float) : 0);
}

/* For all but what is kept, which a gather overwrites. */
static tutti_status back(tutti_zero *zero, const tutti__zero_bucket *b)
{
    const tutti_ctx *cx = zero->root->module->cx;
    const size_t begin = tutti__zero_begin(zero, b);
    const tutti__zero_kept kept = tutti__zero_kept_of(zero, b);
    float *p = zero->root->flat_parameters;

    if (b->host) {
        TUTTI_TRY(tutti__units_host_back(zero, b));
    } else {
        TUTTI_TRY(
            cx->device_ops->back(cx->device, p + begin, (kept.begin - begin) * sizeof *p, false));
        TUTTI_TRY(cx->device_ops->back(cx->device, p + kept.end, (kept.tail - kept.end) * sizeof *p,
                                       false));
    }
    hold(zero, coming_bytes(zero, b));
    return TUTTI_OK;
}

tutti_status tutti__units_back(tutti_zero *zero, size_t i)
{
    TUTTI_TRY(back(zero, &zero->buckets[i]));
    zero->buckets[i].state = TUTTI__PRESENT;
    zero->buckets[i].as = TUTTI_F32;
    zero->present++;
    return TUTTI_OK;
}

/* What `back` brings. */
static void give_back(tutti_zero *zero, tutti__zero_bucket *b)
{
    const tutti_ctx *cx = zero->root->module->cx;
    const size_t begin = tutti__zero_begin(zero, b);
    const tutti__zero_kept kept = tutti__zero_kept_of(zero, b);
    float *p = zero->root->flat_parameters;

    if (b->host) {
        tutti__units_host_give_back(zero, b);
    } else {
        cx->device_ops->give_back(cx->device, p + begin, (kept.begin - begin) * sizeof *p);
        cx->device_ops->give_back(cx->device, p + kept.end, (kept.tail - kept.end) * sizeof *p);
    }
    zero->held -= coming_bytes(zero, b);
    b->state = TUTTI__ABSENT;
}

/* ---- Gathering -------------------------------------------------------------------------------------------------- */

static tutti_status begin_read(tutti_zero *zero, size_t i)
{
    tutti__zero_bucket *b = &zero->buckets[i];
    tutti_status status;

    TUTTI_TRY(back(zero, b));
    b->as = TUTTI_F32;
    status = tutti__units_read(zero, i);
    if (status != TUTTI_OK)
        give_back(zero, b);
    return status;
}

/* Ranks compare the label, so that one that gathers another bucket is noticed. In 16 bits only one at a time. */
static tutti_status begin_all_gather(tutti_zero *zero, size_t i, tutti_dtype as)
{
    tutti__zero_bucket *b = &zero->buckets[i];
    tutti_const_buf from;
    tutti_buf to;
    tutti_status status;

    status = b->state == TUTTI__ABSENT ? back(zero, b) : TUTTI_OK;
    b->as = zero->coming == 0 && !b->vectors ? as : TUTTI_F32;
    if (status == TUTTI_OK) {
        status = tutti__units_prepare(zero, b, &from, &to);
        if (status != TUTTI_OK)
            give_back(zero, b);
    }
    if (status != TUTTI_OK) { /* else they would wait for this rank */
        tutti__abort_peers(zero->group, status, tutti_last_error());
        if (zero->parted)
            tutti__abort_peers(zero->ddp->group, status, tutti_last_error());
        return status;
    }
    tutti__group_label(zero->group, 1 + (unsigned)(zero->ddp->number % 0xffffu), 1 + i,
                       ++zero->gathers);
    status = tutti_all_gather(zero->group, from, to, &b->gather);
    tutti__group_label(zero->group, 0, 0, 0);
    if (status != TUTTI_OK)
        give_back(zero, b);
    return status;
}

static tutti_status begin_gather(tutti_zero *zero, size_t i, tutti_dtype as)
{
    tutti__zero_bucket *b = &zero->buckets[i];

    TUTTI_TRY(tutti__zero_reads(zero) ? begin_read(zero, i) : begin_all_gather(zero, i, as));
    b->state = TUTTI__COMING;
    zero->coming++;
    zero->gathered_bytes += others_bytes(zero, b) / sizeof(float) * tutti_dtype_size(b->as);
    return TUTTI_OK;
}

static tutti_status end_gather(tutti_zero *zero, size_t i)
{
    tutti__zero_bucket *b = &zero->buckets[i];
    tutti_work *work = b->gather;
    tutti_status status;

    b->gather = NULL;
    zero->coming--;
    status = tutti__zero_reads(zero) ? tutti__units_await(zero, i) : tutti_work_wait(work);
    if (status == TUTTI_OK && b->as != TUTTI_F32)
        status = tutti__units_widen(zero, b);
    if (status != TUTTI_OK) {
        give_back(zero, b);
        return status;
    }
    b->state = TUTTI__PRESENT;
    zero->present++;
    return TUTTI_OK;
}

tutti_status tutti__units_settle(tutti_zero *zero)
{
    tutti_status status = TUTTI_OK;

    for (size_t i = 0; i < zero->n_noted && zero->coming > 0; i++)
        if (zero->buckets[i].state == TUTTI__COMING) {
            const tutti_status done = end_gather(zero, i);

            status = status == TUTTI_OK ? done : status;
        }
    if (zero->host && status == TUTTI_OK) /* shares are no longer being read */
        status = tutti_stream_wait(tutti__zero_stream(zero));
    return status;
}

/* The memory of those that were read longest ago, until `most` others are left, besides those of vectors. */
static void make_room(tutti_zero *zero, size_t most)
{
    for (;;) {
        tutti__zero_bucket *oldest = NULL;
        size_t n = 0;

        for (size_t i = 0; i < zero->n_noted; i++) {
            tutti__zero_bucket *b = &zero->buckets[i];

            if (b->state != TUTTI__PRESENT || (b->vectors && most > 0))
                continue;
            n++;
            if (!oldest || b->used < oldest->used)
                oldest = b;
        }
        if (n <= most)
            return;
        give_back(zero, oldest);
        zero->present--;
    }
}

tutti_status tutti__units_drop(tutti_zero *zero)
{
    const tutti_status status = tutti__units_settle(zero);

    make_room(zero, 0);
    return status;
}

/* While a group is formed a rank has all parameters, and may be the only one that has them. */
static bool has_all(const tutti_zero *zero)
{
    return tutti__zero_reads(zero) && zero->version == 0;
}

tutti_status tutti__units_discard(tutti_zero *zero)
{
    free(zero->whole);
    zero->whole = NULL;
    return has_all(zero) ? TUTTI_OK : tutti__units_drop(zero);
}

/* ---- The order of the last step ----------------------------------------------------------------------------------- */

static tutti_status append(tutti__zero_order *order, tutti__zero_gathered one)
{
    if (order->n == order->room) {
        const size_t room = order->room ? 2 * order->room : 16;
        tutti__zero_gathered *p = realloc(order->p, room * sizeof *p);

        if (!p)
            return tutti__fail(TUTTI_ERR_MEMORY, "zero: no memory for the order of %zu buckets",
                               room);
        order->p = p;
        order->room = room;
    }
    order->p[order->n++] = one;
    return TUTTI_OK;
}

/* Notes what had to be gathered. *next_p: what was gathered next in the last such step; bucket SIZE_MAX: not known. */
static tutti_status next_after(tutti_zero *zero, tutti__zero_gathered one,
                               tutti__zero_gathered *next_p)
{
    const tutti_ctx *cx = zero->root->module->cx;
    tutti__zero_orders *o = &zero->orders[cx->recording];
    const size_t at = o->serial == cx->serial ? o->now.n : 0;

    if (o->serial != cx->serial) {
        const tutti__zero_order free_one = o->before;

        o->before = o->now;
        o->now = free_one;
        o->now.n = 0;
        o->serial = cx->serial;
    }
    *next_p = at + 1 < o->before.n && o->before.p[at].bucket == one.bucket
                  ? o->before.p[at + 1]
                  : (tutti__zero_gathered){.bucket = SIZE_MAX};
    return append(&o->now, one);
}

/* ---- Before an operation ---------------------------------------------------------------------------------------- */

static tutti_status bring_all(tutti_zero *zero)
{
    for (size_t i = 0; i < zero->n_noted; i++)
        if (zero->buckets[i].p && zero->buckets[i].state == TUTTI__ABSENT)
            TUTTI_TRY(begin_gather(zero, i, TUTTI_F32));
    return tutti__units_settle(zero);
}

static bool serves(const tutti__zero_bucket *b, tutti_dtype as)
{
    return b->as == TUTTI_F32 || b->as == as;
}

/* A bucket that is here rounded, and of which an operation reads more: exactly, and from now on always. */
static tutti_status bring_exactly(tutti_zero *zero, size_t i)
{
    const tutti_ctx *cx = zero->root->module->cx;
    const struct tutti_root *root = zero->root;
    tutti__zero_bucket *b = &zero->buckets[i];

    for (int k = 0; k < 2; k++)
        b->exact[k] |= k == cx->recording;
    for (size_t k = 0; k < root->parameters.n; k++)
        if (zero->bucket_with[k] == i)
            root->parameters.p[k]->tensor->kernel_cache_step = 0;
    TUTTI_TRY(tutti__units_settle(zero));
    zero->present--;
    TUTTI_TRY(begin_gather(zero, i, TUTTI_F32));
    return end_gather(zero, i);
}

static tutti_status bring(tutti_zero *zero, size_t i, tutti_dtype as)
{
    const int recording = zero->root->module->cx->recording;
    tutti__zero_bucket *b = &zero->buckets[i];
    const tutti_dtype wanted = b->exact[recording] ? TUTTI_F32 : as;
    tutti__zero_gathered next;

    if (b->state == TUTTI__PRESENT)
        return serves(b, as) ? TUTTI_OK : bring_exactly(zero, i);
    if (zero->all_at_once)
        return bring_all(zero);
    TUTTI_TRY(next_after(zero, (tutti__zero_gathered){i, wanted}, &next));
    if (b->state == TUTTI__ABSENT) {
        TUTTI_TRY(tutti__units_settle(zero)); /* of one that was not the next */
        TUTTI_TRY(begin_gather(zero, i, wanted));
    }
    TUTTI_TRY(end_gather(zero, i));
    if (!serves(b, as))
        TUTTI_TRY(bring_exactly(zero, i));
    if (next.bucket != SIZE_MAX && zero->buckets[next.bucket].state == TUTTI__ABSENT)
        TUTTI_TRY(begin_gather(zero, next.bucket,
                               zero->buckets[next.bucket].exact[recording] ? TUTTI_F32 : next.as));
    return TUTTI_OK;
}

static tutti_zero *zero_of(const tutti_tensor *t)
{
    return ((const struct tutti_root *)t->parameter->owner)->sharding->self;
}

static tutti_status need(tutti_tensor *t, bool first, tutti_dtype as)
{
    tutti_zero *zero = zero_of(t);
    const size_t i = zero->bucket_with[t->parameter->index];

    if (first) {
        zero->operations++;
        if (!zero->all_at_once && zero->buckets[i].state != TUTTI__PRESENT)
            make_room(zero, KEPT - 1);
    }
    zero->buckets[i].used = zero->operations;
    return bring(zero, i, as);
}

/* ---- Reading and writing by a program ------------------------------------------------------------------------------ */

/* With logical shards any rank can, alone; else only one that has all shares. */
static tutti_status read_in_place(tutti_zero *zero, const tutti_tensor *t, void *dst)
{
    const size_t i = zero->bucket_with[t->parameter->index];

    if (zero->buckets[i].state == TUTTI__ABSENT) {
        make_room(zero, KEPT - 1);
        TUTTI_TRY(begin_gather(zero, i, TUTTI_F32));
    }
    if (zero->buckets[i].state == TUTTI__COMING)
        TUTTI_TRY(end_gather(zero, i));
    return tutti__read(tutti__zero_stream(zero), dst, t->data, tutti__tensor_bytes(t));
}

static tutti_status read(const tutti_tensor *t, void *dst)
{
    tutti_zero *zero = zero_of(t);

    if (!zero->whole && (tutti__zero_reads(zero) || tutti_group_size(zero->group) == 1))
        return read_in_place(zero, t, dst);
    if (!zero->whole)
        return tutti__fail(TUTTI_ERR_STATE,
                           "\"%s\": each rank has a share of it (zero 3), and it is not gathered "
                           "here; call tutti_zero_consolidate on all ranks, and read on the one it "
                           "names",
                           t->name);
    memcpy(dst, zero->whole + zero->root->offsets[t->parameter->index], tutti__tensor_bytes(t));
    return TUTTI_OK;
}

static tutti_status write_shares(tutti_zero *zero, tutti_tensor *t, const void *src)
{
    tutti_stream *stream = t->cx->stream;
    const tutti__zero_bucket *b = &zero->buckets[zero->bucket_with[t->parameter->index]];
    const tutti__zero_kept kept = tutti__zero_kept_of(zero, b);
    const size_t begin = zero->root->offsets[t->parameter->index];
    const size_t end = begin + (size_t)tutti_shape_count(t->shape);
    const size_t parts[2][2] = {{kept.begin, kept.end},
                                {kept.tail, tutti__zero_begin(zero, b) + b->count}};

    for (int k = 0; k < 2; k++) {
        const size_t low = begin > parts[k][0] ? begin : parts[k][0];
        const size_t high = end < parts[k][1] ? end : parts[k][1];

        if (low < high && k == 0 && b->host)
            memcpy(b->host + (low - parts[0][0]), (const float *)src + (low - begin),
                   (high - low) * sizeof(float));
        else if (low < high)
            TUTTI_TRY(tutti__copy_in(stream, zero->root->flat_parameters + low,
                                     (const float *)src + (low - begin),
                                     (high - low) * sizeof(float)));
    }
    return TUTTI_OK;
}

/* Else this rank's share: every rank writes the same. */
static tutti_status write(tutti_tensor *t, const void *src)
{
    tutti_zero *zero = zero_of(t);

    TUTTI_TRY(tutti__units_discard(zero));
    if (has_all(zero))
        return tutti__copy_in(t->cx->stream, t->data, src, tutti__tensor_bytes(t));
    tutti__units_conceal(zero);
    TUTTI_TRY(write_shares(zero, t, src));
    return tutti__zero_reads(zero) ? tutti__units_renew(zero) : TUTTI_OK;
}

tutti_status tutti__units_consolidate(tutti_zero *zero, int root)
{
    const size_t n = zero->root->n_flat;
    tutti_status status = tutti__units_discard(zero);

    if (status == TUTTI_OK)
        status = tutti__zero_prepare(zero);
    if (status == TUTTI_OK && tutti_group_rank(zero->ddp->group) == root) {
        zero->whole = tutti__alloc_unset((n + 1) * sizeof(float));
        if (!zero->whole)
            status = tutti__fail(TUTTI_ERR_MEMORY, "no memory for all parameters, %zu bytes",
                                 n * sizeof(float));
    }
    status = tutti__group_agree(zero->ddp->group, status);
    if (status == TUTTI_OK)
        status = tutti__zero_collect(zero, tutti__zero_stream(zero), zero->root->flat_parameters,
                                     TUTTI__OF_PARAMETERS, zero->whole, root);
    if (status != TUTTI_OK) {
        free(zero->whole);
        zero->whole = NULL;
    }
    return status;
}

/* ---- Construction ------------------------------------------------------------------------------------------------ */

/* Neighbours that are frozen, of at most a bucket's bytes but at least one, as buckets without gradients. Vectors come after all
 * others (tutti__ddp_reserve_module). */
static tutti_status note_frozen(tutti_zero *zero)
{
    const tutti_ddp *ddp = zero->ddp;
    const struct tutti_root *root = zero->root;
    const size_t most = (size_t)(ddp->limits.mb[ddp->limits.n - 1] * 1048576) / sizeof(float);
    size_t begin = 0, end = 0;
    bool vectors = false;

    for (size_t k = 0; k <= ddp->n; k++) {
        const size_t i = k < ddp->n ? root->placement[k] : SIZE_MAX;
        const bool frozen = k < ddp->n && ddp->roles[i] == TUTTI__FROZEN;
        const bool is_vector = frozen && !ddp->shards && ddp->parameters[i]->shape.n < 2;
        const size_t next = k + 1 < ddp->n ? root->offsets[root->placement[k + 1]] : root->n_flat;

        if (end > begin &&
            (!frozen || root->offsets[i] != end || next - begin > most || is_vector != vectors)) {
            TUTTI_TRY(
                tutti__zero_note(zero, zero->n_noted, root->flat_gradients + begin, end - begin));
            zero->buckets[zero->n_noted - 1].vectors = vectors;
            end = begin = 0;
        }
        if (!frozen)
            continue;
        if (end == begin)
            begin = root->offsets[i];
        end = next;
        vectors = is_vector;
    }
    return TUTTI_OK;
}

static tutti_status assign_buckets(tutti_zero *zero)
{
    const struct tutti_root *root = zero->root;

    zero->bucket_with = tutti__alloc((root->parameters.n + 1) * sizeof *zero->bucket_with);
    if (!zero->bucket_with)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < root->parameters.n; i++) {
        zero->bucket_with[i] = SIZE_MAX;
        for (size_t b = 0; b < zero->n_noted; b++) {
            const tutti__zero_bucket *bucket = &zero->buckets[b];
            const size_t begin = bucket->p ? tutti__zero_begin(zero, bucket) : 0;

            if (bucket->p && root->offsets[i] >= begin && root->offsets[i] < begin + bucket->count)
                zero->bucket_with[i] = b;
        }
    }
    return TUTTI_OK;
}

void tutti__units_part(const tutti_zero *zero, const tutti__zero_bucket *b)
{
    const tutti_ctx *cx = zero->root->module->cx;
    const size_t begin = tutti__zero_begin(zero, b);
    const tutti__zero_kept kept = tutti__zero_kept_of(zero, b);
    float *p = zero->root->flat_parameters;

    cx->device_ops->together(cx->device, p + begin, (kept.begin - begin) * sizeof *p);
    cx->device_ops->together(cx->device, p + kept.begin, (kept.end - kept.begin) * sizeof *p);
    cx->device_ops->together(cx->device, p + kept.end, (kept.tail - kept.end) * sizeof *p);
}

/* All of its memory for the first time, with zeros. */
static tutti_status back_all(tutti_zero *zero, const tutti__zero_bucket *b)
{
    const tutti_ctx *cx = zero->root->module->cx;
    const size_t begin = tutti__zero_begin(zero, b), own = tutti__zero_own(zero, b);
    const size_t tail = tail_begin(zero, b), end = begin + b->count;
    const size_t share = tutti__zero_share(zero, b);
    float *p = zero->root->flat_parameters;

    tutti__units_part(zero, b);
    TUTTI_TRY(back(zero, b));
    if (!b->host)
        TUTTI_TRY(cx->device_ops->back(cx->device, p + own, share * sizeof *p, true));
    TUTTI_TRY(cx->device_ops->back(cx->device, p + tail, (end - tail) * sizeof *p, true));
    hold(zero, b->count * sizeof *p - coming_bytes(zero, b));
    return cx->device_ops->zero(cx->stream, p + begin, b->count * sizeof *p);
}

/* With logical shards: all buckets are whole, until a group has formed and updated them. */
static tutti_status fill_whole(tutti_zero *zero, const void *const *from)
{
    const struct tutti_root *root = zero->root;
    const tutti_ctx *cx = root->module->cx;

    TUTTI_TRY(cx->device_ops->back(cx->device, root->flat_parameters, root->n_flat * sizeof(float),
                                   true));
    for (size_t i = 0; i < root->parameters.n; i++) {
        const size_t bytes = (tutti__tensor_bytes(root->parameters.p[i]->tensor) + 63) / 64 * 64;

        TUTTI_TRY(
            cx->device_ops->zero(cx->stream, root->flat_parameters + root->offsets[i], bytes));
        TUTTI_TRY(tutti__flat_bring(zero->root, i, from[i]));
    }
    for (size_t i = 0; i < zero->n_noted; i++) {
        zero->buckets[i].state = zero->buckets[i].p ? TUTTI__PRESENT : TUTTI__ABSENT;
        zero->present += zero->buckets[i].p != NULL;
    }
    hold(zero, root->n_flat * sizeof(float));
    return zero->group ? tutti__units_enter(zero) : TUTTI_OK;
}

/* Copies the source's elements of parameter i, and moves or draws them before. */
static tutti_status bring_first(tutti_zero *zero, size_t i, const void *from)
{
    const tutti_ddp *ddp = zero->ddp;
    tutti_tensor *t = ddp->parameters[i];

    TUTTI_TRY(tutti__flat_bring(zero->root, i, from));
    if (ddp->roles[i] == TUTTI__IGNORED || tutti_group_size(ddp->group) == 1)
        return TUTTI_OK;
    return tutti_broadcast(ddp->group,
                           (tutti_buf){t->data, (size_t)tutti_shape_count(t->shape), t->dtype,
                                       tutti__zero_stream(zero)},
                           ddp->source, NULL);
}

/* Of a bucket that is whole, this rank's share is left. */
static tutti_status leave_share(tutti_zero *zero, size_t i)
{
    TUTTI_TRY(tutti__units_host_take(zero, &zero->buckets[i]));
    give_back(zero, &zero->buckets[i]);
    return TUTTI_OK;
}

/* Each bucket in turn is whole, with its initial values, and then only this rank's share is left of it. */
static tutti_status fill(tutti_zero *zero, const void *const *from)
{
    const struct tutti_root *root = zero->root;
    const tutti_ctx *cx = root->module->cx;
    size_t open = SIZE_MAX;

    for (size_t k = 0; k < root->parameters.n; k++) {
        const size_t i = root->placement[k], b = zero->bucket_with[i];
        const size_t bytes = tutti__tensor_bytes(root->parameters.p[i]->tensor);

        if (b != open && open != SIZE_MAX)
            TUTTI_TRY(leave_share(zero, open));
        if (b == SIZE_MAX) {
            TUTTI_TRY(cx->device_ops->back(cx->device, root->flat_parameters + root->offsets[i],
                                           (bytes + 63) / 64 * 64, true));
            TUTTI_TRY(cx->device_ops->zero(cx->stream, root->flat_parameters + root->offsets[i],
                                           (bytes + 63) / 64 * 64));
            hold(zero, bytes);
        } else if (b != open) {
            TUTTI_TRY(back_all(zero, &zero->buckets[b]));
        }
        open = b;
        TUTTI_TRY(bring_first(zero, i, from[i]));
    }
    return open != SIZE_MAX ? leave_share(zero, open) : TUTTI_OK;
}

tutti_status tutti__zero_lay_out(tutti_ddp *ddp)
{
    static const tutti__store shares = {.need = need, .read = read, .write = write};
    tutti_zero *zero = ddp->zero;
    struct tutti_root *root = zero->root;
    const void **from = NULL;
    tutti_status status =
        ddp->shards ? tutti__ddp_shards_reserve(ddp, &from) : tutti__ddp_reserve_module(ddp, &from);

    zero->all_at_once = !ddp->shards && tutti__ddp_may_skip(ddp);
    if (status == TUTTI_OK)
        status = tutti__zero_list(zero);
    if (status == TUTTI_OK)
        status = note_frozen(zero);
    if (status == TUTTI_OK)
        status = assign_buckets(zero);
    if (status == TUTTI_OK)
        status = tutti__units_host_new(zero);
    if (ddp->group)
        status = tutti__group_agree(ddp->group, status);
    if (status == TUTTI_OK && ddp->shards) {
        status = fill_whole(zero, from);
    } else if (status == TUTTI_OK) {
        status = fill(zero, from);
        if (status != TUTTI_OK && tutti_status_scope(status) != TUTTI_SCOPE_GROUP)
            tutti_group_abort(ddp->group, "%s", tutti_last_error()); /* the others wait in fill */
    }
    free(from);
    if (!root->module->cx->in_step)
        tutti__flat_free_retired(root);
    for (size_t i = 0; i < root->parameters.n && status == TUTTI_OK; i++)
        if (zero->bucket_with[i] != SIZE_MAX)
            root->parameters.p[i]->parameter.store = &shares;
    return status;
}

void tutti__units_free(tutti_zero *zero)
{
    struct tutti_root *root = zero->root;

    for (size_t i = 0; i < zero->n_noted; i++)
        if (zero->buckets[i].gather)
            (void)!tutti_work_wait(zero->buckets[i].gather);
    for (size_t i = 0; zero->reads && i < zero->n_noted; i++)
        (void)!tutti__units_await(zero, i);
    tutti__units_conceal(zero);
    free(zero->reads);
    if (root->reserved && zero->bucket_with)
        tutti__module_fail(
            root->module, TUTTI_ERR_STATE,
            "each rank had a share of the parameters (zero 3), and their DDP is gone; "
            "save them before, or consolidate them on a rank");
    for (size_t i = 0; i < root->parameters.n; i++)
        root->parameters.p[i]->parameter.store = NULL;
    for (int k = 0; k < 2; k++) {
        free(zero->orders[k].before.p);
        free(zero->orders[k].now.p);
    }
    root->module->cx->device_ops->free(root->module->cx->device, zero->narrow);
    tutti__units_host_free(zero);
    free(zero->bucket_with);
    free(zero->whole);
}
