/* exact.c -- means over logical shards, with the same bits whichever rank computed them, in any order.
 * SPDX-License-Identifier: MIT
 *
 *     block   f32   | gradients of the current shard  | private to this rank; at the end the means
 *     sums    i64   | sums over this rank's shards    | in the group's memory: reduced bucket by bucket
 *     late    i64   | the same for shards that began after buckets were sent; unused if there are none
 *
 * A gradient is added to the sums when it is ready, while it is still in the cache; a bucket's means are computed on the
 * group's thread, after its reduction. After the buckets comes one small message, from which all ranks know whether all shards
 * are included, which gradients exceeded their range, who has late sums, and the program's counters. docs/design/elasticity.md
 * says why the result is exact. */
#include "reducer/exact.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The first gradients fit up to 64 (wire 64) and have a resolution of 2^-45. */
#define FIRST_RANGE 0x1p-6f
/* Bits above the range: how much larger a shard's gradient may be. Wire 64: below 2^51, the limit of rounding by addition. */
enum { LIMIT_64 = 51, ROOM_64 = 12, ROOM_32 = 4 };
#define NOT_FINITE UINT32_C(0x7f800000) /* bits of |x| from here on: infinity and NaN */
#define MAX_SHARDS 4096

/* The message: these numbers, then the program's counters, then checksums of each gradient, by place, and with find_unused its users. */
enum { SHARDS, MISFITS, NONFINITE, LATE, RANGES, SUSPICIOUS, N_NUMBERS };

int tutti__exact_count(const tutti_reducer *r)
{
    return r->exact->count;
}

bool tutti__exact_open(const tutti_reducer *r)
{
    return r->exact->open;
}

/* ---- Numbers ---- */

/* The most bits of a contribution's integer: with wire 32 the sum over all shards must fit. */
static int limit_bits(const tutti__exact *s)
{
    int bits = LIMIT_64;

    if (s->bits == 32)
        for (bits = 31; 1 << (31 - bits) < s->count;)
            bits--;
    return bits;
}

/* The largest exponent for which range * 2^exponent leaves the room below the limit. */
static tutti__fixed fixed_of(const tutti__exact *s, float range)
{
    const int room = s->bits == 64 ? ROOM_64 : ROOM_32;
    int exponent;
    const double fraction = frexp((double)range, &exponent); /* range = fraction * 2^exponent */

    exponent -= fraction == 0.5;
    return (tutti__fixed){s->bits, limit_bits(s) - room - exponent};
}

static float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static bool fits(const tutti__exact *s, const tutti__fixed *f, uint32_t largest)
{
    return ldexp((double)float_of(largest), f->exponent) <= ldexp(1, limit_bits(s)) - 1;
}

/* ---- Making it ---- */

static tutti_status check(const tutti_reducer *r, const tutti_reducer_opts *opts)
{
    if (opts->shards > MAX_SHARDS)
        return tutti__fail(TUTTI_ERR_ARG, "tutti_reducer_new: %d shards, expected 1 to %d",
                           opts->shards, MAX_SHARDS);
    if (opts->wire_bits != 0 && opts->wire_bits != 32 && opts->wire_bits != 64)
        return tutti__fail(TUTTI_ERR_ARG, "tutti_reducer_new: wire_bits is %d, expected 64 or 32",
                           opts->wire_bits);
    for (size_t i = 0; i < r->n; i++) {
        const tutti__gradient *g = &r->gradients[i];

        if (g->sparse || (!g->local && g->dtype != TUTTI_F32))
            return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                               "tutti_reducer_new: \"%s\" is %s; with shards gradients are F32, "
                               "and none is sparse",
                               g->name, g->sparse ? "sparse" : tutti_dtype_name(g->dtype));
    }
    return TUTTI_OK;
}

static size_t message_length(const tutti_reducer *r)
{
    return N_NUMBERS + r->exact->n_counters + (tutti__may_skip(r) ? 2 : 1) * r->n_reduced;
}

static int64_t *checksums_in_message(const tutti_reducer *r)
{
    return r->exact->message + N_NUMBERS + r->exact->n_counters;
}

static int64_t *users_in_message(const tutti_reducer *r)
{
    return checksums_in_message(r) + r->n_reduced;
}

tutti_status tutti__exact_new(tutti_reducer *r, const tutti_reducer_opts *opts)
{
    tutti_stream *stream = tutti__stream_or_cpu(opts->stream);
    tutti__exact *s;

    TUTTI_TRY(check(r, opts));
    s = tutti__alloc(sizeof *s);
    if (!s)
        return TUTTI_ERR_MEMORY;
    r->exact = s;
    s->stream = stream;
    pthread_mutex_init(&s->mutex, NULL);
    s->count = opts->shards;
    s->bits = opts->wire_bits ? opts->wire_bits : 64;
    s->n_counters = opts->n_counters;
    s->ranges = tutti__alloc((r->n + 1) * sizeof *s->ranges);
    s->fixed = tutti__alloc((r->n + 1) * sizeof *s->fixed);
    s->all = tutti__alloc((r->n + 1) * sizeof *s->all);
    s->brought = tutti__alloc(r->n + 1);
    s->message = s->n_counters < PTRDIFF_MAX / sizeof *s->message - 2 * r->n - N_NUMBERS
                     ? tutti__alloc(message_length(r) * sizeof *s->message)
                     : NULL;
    s->largest = stream->ops->alloc(stream->device, 2 * (r->n + 1) * sizeof *s->largest, true);
    s->seen = r->stream ? stream->ops->host_alloc(stream->device, 2 * (r->n + 1) * sizeof *s->seen)
                        : s->largest;
    if (!s->ranges || !s->fixed || !s->all || !s->brought || !s->message || !s->largest || !s->seen)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < r->n; i++)
        s->ranges[i] = FIRST_RANGE;
    return tutti__exact_checksums_new(r);
}

void tutti__exact_free(tutti_reducer *r)
{
    tutti__exact *s = r->exact;
    tutti_stream *stream;

    if (!s)
        return;
    stream = s->stream;
    if (s->seen != s->largest)
        stream->ops->host_free(stream->device, s->seen);
    stream->ops->free(stream->device, s->largest);
    tutti__exact_checksums_free(r);
    if (r->kept_in_part)
        tutti__exact_shares_free(r);
    free(s->ranges);
    free(s->fixed);
    free(s->all);
    free(s->brought);
    free(s->message);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

tutti_status tutti__exact_alloc(tutti_reducer *r)
{
    tutti__exact *s = r->exact;
    const size_t bytes = (r->bytes + 64) * (size_t)(s->bits / 32);

    if (r->kept_in_part)
        return tutti__exact_shares_alloc(r);
    TUTTI_TRY(tutti_group_alloc_on(r->group, r->stream, bytes, (void **)&s->sums));
    return tutti_group_alloc_on(r->group, r->stream, bytes, (void **)&s->late);
}

void tutti__exact_release(tutti_reducer *r)
{
    tutti__exact *s = r->exact;

    if (!s)
        return;
    if (r->kept_in_part) {
        tutti__exact_shares_drop(r, false);
        return;
    }
    if (r->stream)
        (void)!r->stream->ops->stream_wait(r->stream); /* it may still be adding to them */
    if (s->sums)
        tutti_group_release(r->group, s->sums);
    if (s->late)
        tutti_group_release(r->group, s->late);
    s->sums = s->late = NULL;
}

size_t tutti__exact_describe(const tutti_reducer *r, tutti__item *items)
{
    const tutti__exact *s = r->exact;

    if (!s) {
        snprintf(items[0].text, sizeof items->text, "shards 0");
        return 1;
    }
    snprintf(items[0].text, sizeof items->text, "shards %d", s->count);
    snprintf(items[1].text, sizeof items->text, "wire_bits %d", s->bits);
    snprintf(items[2].text, sizeof items->text, "n_counters %zu", s->n_counters);
    return 3;
}

/* ---- This rank's shards ---- */

tutti_status tutti__exact_begin(tutti_reducer *r)
{
    tutti_stream *stream = r->exact->stream;
    tutti__exact *s = r->exact;

    s->open = s->leaving = s->apart = s->joining = s->again = false;
    if (r->kept_in_part)
        tutti__exact_shares_drop(r, true);
    memset(s->brought, 0, r->n);
    memset(s->message, 0, message_length(r) * sizeof *s->message);
    for (size_t i = 0; i < r->n; i++)
        s->fixed[i] = fixed_of(s, s->ranges[i]);
    TUTTI_TRY(tutti__exact_checksums_begin(r));
    return stream->ops->zero(stream, s->largest, 2 * (r->n + 1) * sizeof *s->largest);
}

/* Reports a contribution with NaN or infinities, by the bits of its largest |value|, if the options say so. */
static tutti_status look(tutti_reducer *r, const tutti__gradient *g, uint32_t largest)
{
    if (largest < NOT_FINITE || r->nonfinite == TUTTI_NONFINITE_IGNORE ||
        r->nonfinite_step == r->step)
        return TUTTI_OK;
    return tutti__found_nonfinite(r, g);
}

/* `total`: of the integers that it became, so that these are compared, too; on a device they are not. */
static tutti_status add_digest(const tutti_reducer *r, size_t i, uint64_t total)
{
    const tutti__gradient *g = &r->gradients[i];
    uint64_t hash;

    TUTTI_TRY(tutti__hash_memory(r->stream, r->block + g->offset, g->count * sizeof(float), &hash));
    *r->exact->digest += (hash ^ tutti__hash64(&total, sizeof total)) * (2 * (uint64_t)i + 1);
    return TUTTI_OK;
}

/* Adds gradient i of the current shard. */
static tutti_status add(tutti_reducer *r, size_t i)
{
    tutti_stream *stream = r->exact->stream;
    tutti__exact *s = r->exact;
    const tutti__gradient *g = &r->gradients[i];
    const unsigned char place = s->apart ? TUTTI__IN_LATE : TUTTI__IN_SUMS;
    const tutti__fixed_seen seen = {
        &s->largest[i],
        tutti__exact_checksums_of(r, s->apart ? TUTTI__CHECKSUM_LATE : TUTTI__CHECKSUM_ADDED, i)};
    unsigned char *sums = tutti__sums_at(s, s->apart ? s->late : s->sums, g->offset);
    uint64_t before;

    if (r->kept_in_part)
        TUTTI_TRY(tutti__exact_shares_bring(r, &r->buckets[g->bucket], s->apart));
    if (tutti__may_skip(r))
        users_in_message(r)[g->place]++;
    before = r->stream ? 0 : *seen.total;
    TUTTI_TRY(stream->ops->flat->fixed_add(
        stream, sums, (const float *)(const void *)(r->block + g->offset), g->count, &s->fixed[i],
        !(s->brought[i] & place), &seen));
    s->brought[i] |= place;
    tutti__exact_checksums_inject(r, i, sums);
    if (s->digest)
        TUTTI_TRY(add_digest(r, i, r->stream ? 0 : *seen.total - before));
    return r->stream ? TUTTI_OK : look(r, g, s->largest[i]);
}

tutti_status tutti__exact_take(tutti_reducer *r, size_t i, bool skipped, bool *leaves_p)
{
    const tutti__exact *s = r->exact;
    tutti_status status = TUTTI_OK;

    *leaves_p = s->leaving && !s->apart;
    if (!skipped && r->status == TUTTI_OK)
        status = add(r, i);
    if (r->kept_in_part)
        tutti__exact_shares_taken(r, &r->buckets[r->gradients[i].bucket]);
    return status;
}

/* Ends the current shard, if there is one; missing gradients are an error, or skipped. */
static void end_shard(tutti_reducer *r)
{
    tutti__exact *s = r->exact;

    if (!s->open)
        return;
    for (size_t place = 0; place < r->n_reduced && r->status == TUTTI_OK; place++)
        if (r->gradients[r->order[place]].ready_turn != r->turn) {
            if (!tutti__may_skip(r))
                tutti__step_keep(r, tutti__step_fail_missing(r));
            else
                (void)!tutti_reducer_skip(r, r->order[place]);
        }
    s->open = false;
    s->message[SHARDS]++;
}

tutti_status tutti_reducer_begin_shard(tutti_reducer *r, bool last)
{
    tutti__exact *s;

    TUTTI_TRY(TUTTI__NOT_NULL(r));
    s = r->exact;
    if (!s || !r->in_step)
        return tutti__fail(TUTTI_ERR_STATE, "tutti_reducer_begin_shard %s",
                           s ? "outside a step; call tutti_reducer_begin first"
                             : "of a reducer that was made without shards");
    end_shard(r);
    if (r->status != TUTTI_OK)
        return tutti__fail_again(r->status, r->message);
    if (s->leaving && !s->apart) {
        /* so that a bucket's means are written completely or not at all */
        pthread_mutex_lock(&s->mutex);
        s->apart = true;
        pthread_mutex_unlock(&s->mutex);
    }
    s->leaving |= last;
    s->digest = NULL;
    s->open = true;
    r->turn++;
    for (size_t b = 0; b < r->n_buckets; b++)
        r->buckets[b].taken = 0;
    return TUTTI_OK;
}

void tutti__reducer_digest_shard(tutti_reducer *r, uint64_t *digest_p)
{
    *digest_p = 0;
    r->exact->digest = digest_p;
}

tutti_status tutti__reducer_drop(tutti_reducer *r)
{
    end_shard(r);
    r->in_step = false;
    return r->status == TUTTI_OK ? TUTTI_OK : tutti__fail_again(r->status, r->message);
}

/* ---- All ranks' shards ---- */

tutti_status tutti__exact_fill(tutti_reducer *r, const tutti__bucket *b)
{
    tutti_stream *stream = r->exact->stream;
    tutti__exact *s = r->exact;
    const unsigned char place = s->joining ? TUTTI__IN_LATE : TUTTI__IN_SUMS;

    if (r->kept_in_part)
        TUTTI_TRY(tutti__exact_shares_bring(r, b, s->joining));
    for (size_t k = 0; k < b->info.n; k++) {
        const size_t i = r->order[b->info.first + k];
        const tutti__gradient *g = &r->gradients[i];

        if (!(s->brought[i] & place))
            TUTTI_TRY(stream->ops->zero(
                stream, tutti__sums_at(s, s->joining ? s->late : s->sums, g->offset),
                g->count * (size_t)(s->bits / 8)));
        s->brought[i] |= place;
    }
    return TUTTI_OK;
}

/* Of n elements from `at` on. */
static tutti_status make_mean(const tutti_reducer *r, size_t i, size_t at, size_t n)
{
    tutti_stream *stream = r->own ? r->own : r->exact->stream;
    const tutti__exact *s = r->exact;
    const size_t offset = r->gradients[i].offset + at * sizeof(float);
    const tutti__fixed_seen seen = {&s->largest[r->n + 1 + i],
                                    tutti__exact_checksums_of(r, TUTTI__CHECKSUM_MEANS, i)};

    return stream->ops->flat->fixed_mean(stream, (float *)(void *)(r->block + offset),
                                         tutti__sums_at(s, s->sums, offset), n, &s->fixed[i],
                                         s->count, &seen);
}

static tutti_status make_means(tutti_reducer *r, tutti__bucket *b)
{
    if (r->kept_in_part)
        TUTTI_TRY(tutti__parts_change(r, b, r->block + b->offset, sizeof(float), &b->here,
                                      TUTTI__KEPT_PARTS));
    for (size_t k = 0; k < b->info.n; k++) {
        const size_t i = r->order[b->info.first + k];

        TUTTI_TRY(r->kept_in_part ? tutti__exact_shares_each(r, i, make_mean)
                                  : make_mean(r, i, 0, r->gradients[i].count));
    }
    return r->own ? r->own->ops->stream_wait(r->own) : TUTTI_OK;
}

/* All ranks' sums of the bucket, or late ones, which are then added to the others. */
static tutti_status sum(const tutti_reducer *r, const tutti__bucket *b)
{
    tutti_stream *stream = r->own ? r->own : r->exact->stream;
    const tutti__exact *s = r->exact;
    const size_t n = b->span / sizeof(float);
    unsigned char *sums = tutti__sums_at(s, s->joining ? s->late : s->sums, b->offset);

    if (r->kept_in_part) {
        TUTTI_TRY(tutti__exact_shares_sum(r, b, s->joining));
        return s->joining ? tutti__exact_shares_join(r, b) : TUTTI_OK;
    }
    TUTTI_TRY(tutti_all_reduce(r->group,
                               (tutti_buf){sums, n, s->bits == 64 ? TUTTI_I64 : TUTTI_I32, r->own},
                               TUTTI_SUM, NULL));
    return s->joining ? stream->ops->flat->fixed_join(stream, tutti__sums_at(s, s->sums, b->offset),
                                                      sums, n, &(tutti__fixed){.bits = s->bits})
                      : TUTTI_OK;
}

tutti_status tutti__exact_reduce(tutti_reducer *r, tutti__bucket *b)
{
    tutti__exact *s = r->exact;
    tutti_status status = TUTTI_OK;

    tutti__exact_checksums_verify(r, b);
    TUTTI_TRY(sum(r, b));
    pthread_mutex_lock(&s->mutex);
    if (!s->apart || s->joining)
        status = make_means(r, b);
    pthread_mutex_unlock(&s->mutex);
    return status;
}

/* Counts contributions that are not finite or exceed their range; on a device this is known only now. */
static tutti_status see_contributions(tutti_reducer *r)
{
    tutti__exact *s = r->exact;

    if (r->stream)
        TUTTI_TRY(tutti__read(r->stream, s->seen, s->largest, r->n * sizeof *s->seen));
    for (size_t place = 0; place < r->n_reduced; place++) {
        const size_t i = r->order[place];
        const uint32_t largest = s->seen[i];

        if (r->stream)
            TUTTI_TRY(look(r, &r->gradients[i], largest));
        if (largest >= NOT_FINITE)
            s->message[NONFINITE]++;
        else if (!fits(s, &s->fixed[i], largest))
            s->message[MISFITS]++;
    }
    return TUTTI_OK;
}

/* A term whose sum over ranks is 0 if all ranks have the same number. */
static int64_t compared(const tutti_reducer *r, uint64_t number)
{
    const uint64_t others = (uint64_t)tutti_group_size(r->group) - 1;

    if (tutti__group_is_planned(r->group))
        return 0;
    return (int64_t)(tutti_group_rank(r->group) == 0 ? number * others : 0 - number);
}

tutti_status tutti__exact_close(tutti_reducer *r)
{
    tutti__exact *s = r->exact;
    tutti_status status;

    end_shard(r);
    if (r->status != TUTTI_OK)
        return TUTTI_OK;
    for (size_t b = r->next; b < r->n_buckets; b++)
        r->buckets[b].pending = 0;
    TUTTI_TRY(tutti__step_launch(r));
    TUTTI_TRY(see_contributions(r));
    TUTTI_TRY(tutti__exact_checksums_tell(r, checksums_in_message(r)));
    s->message[LATE] = s->apart;
    s->message[SUSPICIOUS] = s->checksums.suspicious > 0;
    s->message[RANGES] = compared(r, tutti__hash64(s->ranges, r->n * sizeof *s->ranges));
    tutti__step_label(r, 0);
    status = tutti_all_reduce(r->group, TUTTI_BUF(s->message, message_length(r), TUTTI_I64),
                              TUTTI_SUM, &s->ending);
    tutti__step_unlabel(r);
    return status;
}

static tutti_status wait_ending(tutti__exact *s)
{
    tutti_work *work = s->ending;

    s->ending = NULL;
    return work ? tutti_work_wait(work) : TUTTI_OK;
}

void tutti__exact_abandon(tutti_reducer *r)
{
    if (r->exact)
        (void)!wait_ending(r->exact);
}

static tutti_status check_message(const tutti_reducer *r)
{
    const tutti__exact *s = r->exact;

    if (s->message[SHARDS] != s->count)
        return tutti__fail(TUTTI_ERR_STATE,
                           "step %llu: all ranks together have computed %lld shards, expected %d: "
                           "exactly one rank must call tutti_reducer_begin_shard for each",
                           (unsigned long long)r->step, (long long)s->message[SHARDS], s->count);
    if (s->message[RANGES] != 0)
        return tutti__fail(TUTTI_ERR_MISMATCH,
                           "step %llu: tutti_reducer_ranges differ between ranks, so their sums "
                           "are meaningless; a rank that joins or resumes from a checkpoint must "
                           "take the others' ranges with their parameters",
                           (unsigned long long)r->step);
    return TUTTI_OK;
}

static tutti_status fill_nan(const tutti_reducer *r, size_t i, size_t at, size_t n)
{
    tutti_stream *stream = r->exact->stream;
    unsigned char *p = r->block + r->gradients[i].offset;

    return stream->ops->flat->fill(stream, (float *)(void *)p + at, n, NAN);
}

/* Some contribution is not finite, or exceeds its range: all ranks learn the maximum of each gradient. Those that exceed it get
 * a larger range; the mean of those that are not finite is NaN, on all ranks. */
static tutti_status settle(tutti_reducer *r)
{
    tutti__exact *s = r->exact;
    tutti_status status;

    for (size_t place = 0; place < r->n_reduced; place++)
        s->all[place] = (int32_t)s->seen[r->order[place]];
    tutti__step_label(r, 0);
    status =
        tutti_all_reduce(r->group, TUTTI_BUF(s->all, r->n_reduced, TUTTI_I32), TUTTI_MAX, NULL);
    tutti__step_unlabel(r);
    if (status != TUTTI_OK)
        return status;
    for (size_t place = 0; place < r->n_reduced; place++) {
        const size_t i = r->order[place];
        const tutti__gradient *g = &r->gradients[i];
        const uint32_t largest = (uint32_t)s->all[place];

        if (largest >= NOT_FINITE) {
            TUTTI_TRY(r->kept_in_part ? tutti__exact_shares_each(r, i, fill_nan)
                                      : fill_nan(r, i, 0, g->count));
        } else if (!fits(s, &s->fixed[i], largest)) {
            s->ranges[i] = float_of(largest);
            s->again = true;
        }
    }
    return TUTTI_OK;
}

/* The next step's ranges follow the means; one that is zero, or not finite, changes nothing. */
static tutti_status adapt(tutti_reducer *r)
{
    tutti__exact *s = r->exact;
    const uint32_t *means = s->seen + r->n + 1;
    const bool any = s->message[NONFINITE] > 0;

    if (r->stream)
        TUTTI_TRY(tutti__read(r->stream, s->seen + r->n + 1, s->largest + r->n + 1,
                              r->n * sizeof *s->seen));
    if (r->kept_in_part)
        TUTTI_TRY(tutti__exact_shares_largest(r));
    for (size_t place = 0; place < r->n_reduced; place++) {
        const size_t i = r->order[place];
        const float mean = float_of(means[i]), least = s->ranges[i] / 16;

        if (means[i] != 0 && !(any && (uint32_t)s->all[place] >= NOT_FINITE))
            s->ranges[i] = mean > least ? mean : least;
    }
    return TUTTI_OK;
}

tutti_status tutti__exact_end(tutti_reducer *r)
{
    tutti_stream *stream = r->exact->stream;
    tutti__exact *s = r->exact;
    tutti_status status = wait_ending(s);

    if (r->status != TUTTI_OK || status != TUTTI_OK)
        return status;
    TUTTI_TRY(check_message(r));
    if (s->message[SUSPICIOUS] > 0 && s->checksums.suspicious == 0)
        s->checksums.suspicious = 1; /* this rank is new: it does as the others */
    for (size_t place = 0; tutti__may_skip(r) && place < r->n_reduced; place++)
        r->users[place] = (int32_t)users_in_message(r)[place];
    if (s->message[LATE] > 0) {
        s->joining = true;
        TUTTI_TRY(stream->ops->zero(stream, s->largest + r->n + 1, r->n * sizeof *s->largest));
        TUTTI_TRY(tutti__exact_checksums_forget_means(r));
        TUTTI_TRY(tutti__step_relaunch(r));
    }
    if (r->kept_in_part)
        tutti__exact_shares_drop(r, false);
    if (s->message[MISFITS] > 0 || s->message[NONFINITE] > 0)
        TUTTI_TRY(settle(r));
    if (s->again)
        return TUTTI_OK;
    TUTTI_TRY(adapt(r));
    return tutti__exact_checksums_check(r, checksums_in_message(r));
}

/* ---- Public functions ---- */

bool tutti_reducer_again(const tutti_reducer *r)
{
    return r && r->exact && r->exact->again;
}

float *tutti_reducer_ranges(tutti_reducer *r)
{
    return r && r->exact ? r->exact->ranges : NULL;
}

int64_t *tutti_reducer_counters(tutti_reducer *r)
{
    return r && r->exact ? r->exact->message + N_NUMBERS : NULL;
}
