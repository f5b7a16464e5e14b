/* data.c -- what is in the buffers of simulated ranks.   SPDX-License-Identifier: MIT */
#include "simulate/data.h"

#include "comm/core/reduce.h"
#include "simulate/chance.h"

#include <stdlib.h>

enum {
    SAMPLES = 16,
    MODULUS = 251 /* of REAL's values: sums of 16,384 are whole numbers that F32 has */
};

/* An element that is followed: what `giver` has at src is what `taker` must have at dst. */
typedef struct sample {
    int giver, taker; /* -1: each that gives, or takes */
    size_t src, dst;
    uint64_t id, sum; /* sum: of all contributions */
} sample;

/* A followed element at a place. */
typedef struct entry {
    size_t at;
    uint64_t id, sum;
} entry;

typedef struct entries {
    entry *list;
    size_t n, capacity;
} entries;

struct tutti__sim_bytes {
    size_t n; /* bytes, or entries */
    max_align_t p[];
};

typedef struct memory {
    char *real[TUTTI__COLL_PLACES];
    entries sampled[TUTTI__COLL_PLACES];
    uint64_t *heard; /* of a barrier: a bit for each rank that is known to have come */
} memory;

struct tutti__sim_data {
    tutti__sim_data_kind kind;
    tutti__coll call;
    const tutti__op_traits *traits;
    uint64_t seed;
    memory *ranks;
    sample samples[SAMPLES];
    int n_samples;
    float sums[MODULUS]; /* of all ranks' values, by the element's index */
};

/* ---- What ranks have ------------------------------------------------------------------------------------------------- */

static bool gives(const tutti__coll *c, const tutti__op_traits *t, int rank)
{
    return !t->from_root || rank == c->root;
}

static bool takes(const tutti__coll *c, const tutti__op_traits *t, int rank)
{
    return c->op != TUTTI__OP_BARRIER && (!t->to_root || rank == c->root);
}

static size_t elements(const tutti__coll_algorithm *a, const tutti__coll *c, int rank,
                       tutti__coll_place place)
{
    const tutti__op_traits *t = &tutti__op_table[c->op];
    const size_t n = (size_t)c->size;

    switch (place) {
    case TUTTI__COLL_SRC:
        return gives(c, t, rank) ? c->count * (t->scatters ? n : 1) : 0;
    case TUTTI__COLL_DST:
        return takes(c, t, rank) ? c->count * (t->gathers ? n : 1) : 0;
    case TUTTI__COLL_WORK:
        return a->work ? a->work(c, rank) : 0;
    default:
        return a->held ? a->held(c, rank) : 0;
    }
}

uint64_t tutti__sim_data_needs(const tutti__coll_algorithm *a, const tutti__coll *c)
{
    uint64_t bytes = 0;

    for (int rank = 0; rank < c->size; rank++)
        for (int p = 0; p < TUTTI__COLL_PLACES; p++)
            bytes += elements(a, c, rank, (tutti__coll_place)p) *
                     tutti__coll_element(c, (tutti__coll_place)p);
    return bytes;
}

/* ---- Followed elements ----------------------------------------------------------------------------------------------- */

static tutti_status insert(entries *to, const entry *e)
{
    if (to->n == to->capacity) {
        const size_t capacity = to->capacity ? 2 * to->capacity : 4;
        entry *list = realloc(to->list, capacity * sizeof *list);

        if (!list)
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory to follow what simulated ranks send");
        to->list = list;
        to->capacity = capacity;
    }
    to->list[to->n++] = *e;
    return TUTTI_OK;
}

static void clear(entries *of, size_t at, size_t count)
{
    for (size_t i = 0; i < of->n;)
        if (of->list[i].at >= at && of->list[i].at - at < count)
            of->list[i] = of->list[--of->n];
        else
            i++;
}

static entry *find(const entries *in, size_t at)
{
    for (size_t i = 0; i < in->n; i++)
        if (in->list[i].at == at)
            return &in->list[i];
    return NULL;
}

static uint64_t contribution(uint64_t seed, int rank, uint64_t id)
{
    return tutti__chance_mix(tutti__chance_mix(seed ^ id * 0x9e3779b97f4a7c15u) + (uint64_t)rank);
}

static void choose(tutti__sim_data *d, int i)
{
    const tutti__coll *c = &d->call;
    const tutti__op_traits *t = d->traits;
    uint64_t state = d->seed + (uint64_t)i * 977;
    const size_t size = (size_t)c->size;
    const size_t at = i == 0   ? 0
                      : i == 1 ? c->count - 1
                               : (size_t)(tutti__chance_next(&state) % c->count);
    const int taker = i == 1 ? c->size - 1 : (int)(tutti__chance_next(&state) % size),
              giver = i == 0 ? c->size - 1 : (int)(tutti__chance_next(&state) % size);
    sample *s = &d->samples[i];

    s->giver = t->reduces ? -1 : t->from_root ? c->root : giver;
    s->taker = t->scatters ? taker : t->to_root ? c->root : -1;
    s->src = t->scatters ? (size_t)taker * c->count + at : at;
    s->dst = t->gathers ? (size_t)s->giver * c->count + at : at;
    s->id = s->src | (uint64_t)(s->giver + 1) << 44;
    s->sum = 0;
    for (int r = 0; r < c->size; r++)
        if (s->giver < 0 || s->giver == r)
            s->sum += contribution(d->seed, r, s->id);
}

static tutti_status begin_sampled(tutti__sim_data *d)
{
    d->n_samples = d->call.op == TUTTI__OP_BARRIER ? 0 : SAMPLES;
    for (int i = 0; i < d->n_samples; i++) {
        const sample *s = &d->samples[i];

        choose(d, i);
        for (int r = 0; r < d->call.size; r++) {
            entries *to = &d->ranks[r].sampled[TUTTI__COLL_SRC];

            if ((s->giver < 0 || s->giver == r) && !find(to, s->src))
                TUTTI_TRY(insert(to, &(entry){s->src, s->id, contribution(d->seed, r, s->id)}));
        }
    }
    return TUTTI_OK;
}

/* ---- Real ones -------------------------------------------------------------------------------------------------------- */

static float value(int rank, size_t i)
{
    return (float)(((size_t)rank * 7 + i) % MODULUS);
}

static tutti_status begin_real(tutti__sim_data *d, const tutti__coll_algorithm *a)
{
    const tutti__coll *c = &d->call;

    for (int r = 0; r < c->size; r++)
        for (int p = 0; p < TUTTI__COLL_PLACES; p++) {
            const size_t n = elements(a, c, r, (tutti__coll_place)p);
            float *to = n > 0 ? tutti__alloc_unset(n * sizeof *to) : NULL;

            if (n > 0 && !to)
                return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the data of %d simulated ranks",
                                   c->size);
            d->ranks[r].real[p] = (char *)to;
            for (size_t i = 0; i < n; i++)
                to[i] = p == TUTTI__COLL_SRC ? value(r, i) : -1;
        }
    for (int m = 0; m < MODULUS; m++)
        for (int r = 0; r < c->size; r++)
            d->sums[m] += value(r, (size_t)m);
    return TUTTI_OK;
}

/* ---- Beginning and end ----------------------------------------------------------------------------------------------- */

static size_t words(const tutti__sim_data *d)
{
    return ((size_t)d->call.size + 63) / 64;
}

static tutti_status begin_barrier(tutti__sim_data *d)
{
    for (int r = 0; r < d->call.size; r++) {
        uint64_t *heard = tutti__alloc(words(d) * sizeof *heard);

        if (!heard)
            return TUTTI_ERR_MEMORY;
        heard[r / 64] |= (uint64_t)1 << r % 64;
        d->ranks[r].heard = heard;
    }
    return TUTTI_OK;
}

tutti_status tutti__sim_data_new(tutti__sim_data **data_p, tutti__sim_data_kind kind,
                                 const tutti__coll_algorithm *a, const tutti__coll *call,
                                 uint64_t seed)
{
    tutti__sim_data *d = tutti__alloc(sizeof *d);
    tutti_status status;

    *data_p = d;
    if (!d)
        return TUTTI_ERR_MEMORY;
    d->kind = kind;
    d->call = *call;
    d->traits = &tutti__op_table[call->op];
    d->seed = seed;
    d->ranks = tutti__alloc((size_t)call->size * sizeof *d->ranks);
    status = d->ranks ? TUTTI_OK : TUTTI_ERR_MEMORY;
    if (status == TUTTI_OK && kind != TUTTI__SIM_NO_DATA)
        status = call->op == TUTTI__OP_BARRIER ? begin_barrier(d)
                 : kind == TUTTI__SIM_REAL     ? begin_real(d, a)
                                               : begin_sampled(d);
    if (status == TUTTI_OK)
        return TUTTI_OK;
    tutti__sim_data_free(d);
    *data_p = NULL;
    return status;
}

void tutti__sim_data_free(tutti__sim_data *d)
{
    for (int r = 0; d && d->ranks && r < d->call.size; r++) {
        for (int p = 0; p < TUTTI__COLL_PLACES; p++) {
            free(d->ranks[r].real[p]);
            free(d->ranks[r].sampled[p].list);
        }
        free(d->ranks[r].heard);
    }
    if (d)
        free(d->ranks);
    free(d);
}

/* ---- Actions ----------------------------------------------------------------------------------------------------------- */

static float *real_at(const tutti__sim_data *d, int rank, tutti__coll_at at)
{
    return (float *)(void *)d->ranks[rank].real[at.place] + at.at;
}

static tutti__sim_bytes *new_bytes(size_t n, size_t each)
{
    tutti__sim_bytes *b = malloc(sizeof *b + n * each);

    if (b)
        b->n = n;
    else
        (void)tutti__fail(TUTTI_ERR_MEMORY, "no memory for what simulated ranks send");
    return b;
}

static tutti_status take_entries(const entries *from, const tutti__coll_action *a,
                                 tutti__sim_bytes **bytes_p)
{
    size_t n = 0;

    for (size_t i = 0; i < from->n; i++)
        n += from->list[i].at >= a->from.at && from->list[i].at - a->from.at < a->count;
    if (n == 0)
        return TUTTI_OK;
    *bytes_p = new_bytes(n, sizeof(entry));
    if (!*bytes_p)
        return TUTTI_ERR_MEMORY;
    n = 0;
    for (size_t i = 0; i < from->n; i++)
        if (from->list[i].at >= a->from.at && from->list[i].at - a->from.at < a->count) {
            entry *e = &((entry *)(void *)(*bytes_p)->p)[n++];

            *e = from->list[i];
            e->at -= a->from.at;
        }
    return TUTTI_OK;
}

tutti_status tutti__sim_data_take(tutti__sim_data *d, int rank, const tutti__coll_action *a,
                                  tutti__sim_bytes **bytes_p)
{
    const memory *m = &d->ranks[rank];
    const void *from = NULL;
    size_t bytes = 0;

    *bytes_p = NULL;
    if (m->heard) {
        from = m->heard;
        bytes = words(d) * sizeof *m->heard;
    } else if (d->kind == TUTTI__SIM_REAL) {
        from = real_at(d, rank, a->from);
        bytes = a->count * sizeof(float);
    } else if (d->kind == TUTTI__SIM_SAMPLED) {
        return take_entries(&m->sampled[a->from.place], a, bytes_p);
    }
    if (bytes == 0)
        return TUTTI_OK;
    *bytes_p = new_bytes(bytes, 1);
    if (!*bytes_p)
        return TUTTI_ERR_MEMORY;
    memcpy((*bytes_p)->p, from, bytes);
    return TUTTI_OK;
}

static tutti_status put_entries(entries *to, const tutti__coll_action *a,
                                const tutti__sim_bytes *bytes)
{
    clear(to, a->to.at, a->count);
    for (size_t i = 0; bytes && i < bytes->n; i++) {
        entry e = ((const entry *)(const void *)bytes->p)[i];

        e.at += a->to.at;
        TUTTI_TRY(insert(to, &e));
    }
    return TUTTI_OK;
}

tutti_status tutti__sim_data_put(tutti__sim_data *d, int rank, const tutti__coll_action *a,
                                 tutti__sim_bytes *bytes)
{
    memory *m = &d->ranks[rank];
    tutti_status status = TUTTI_OK;

    if (m->heard && bytes)
        for (size_t i = 0; i < words(d); i++)
            m->heard[i] |= ((const uint64_t *)(const void *)bytes->p)[i];
    else if (d->kind == TUTTI__SIM_REAL && bytes)
        memcpy(real_at(d, rank, a->to), bytes->p, bytes->n);
    else if (d->kind == TUTTI__SIM_SAMPLED && !m->heard)
        status = put_entries(&m->sampled[a->to.place], a, bytes);
    free(bytes);
    return status;
}

void tutti__sim_bytes_free(tutti__sim_bytes *bytes)
{
    free(bytes);
}

static void add_real(tutti__sim_data *d, int rank, const tutti__coll_action *a)
{
    float *to = real_at(d, rank, a->to);
    const float *from = real_at(d, rank, a->from);
    const bool left = a->kind == TUTTI__COLL_REDUCE_LEFT;
    void *const dst[] = {to};
    const void *const src[] = {left ? from : to, left ? to : from};

    if (a->kind == TUTTI__COLL_COPY || a->kind == TUTTI__COLL_FINISH)
        memmove(to, from, a->count * sizeof *to);
    else
        tutti__reduce(TUTTI_F32, TUTTI_SUM, dst, 1, src, 2, a->count);
}

/* What is followed stays so only if it met the same element. */
static void add_entries(entries *to, const entries *from, const tutti__coll_action *a)
{
    for (size_t i = 0; i < to->n;) {
        entry *e = &to->list[i];
        const bool within = e->at >= a->to.at && e->at - a->to.at < a->count;
        const entry *other = within ? find(from, e->at - a->to.at + a->from.at) : NULL;

        if (within && (!other || other->id != e->id)) {
            *e = to->list[--to->n];
            continue;
        }
        e->sum += other ? other->sum : 0;
        i++;
    }
}

tutti_status tutti__sim_data_local(tutti__sim_data *d, int rank, const tutti__coll_action *a)
{
    memory *m = &d->ranks[rank];
    tutti__sim_bytes *bytes = NULL;

    if (m->heard || d->kind == TUTTI__SIM_NO_DATA)
        return TUTTI_OK;
    if (d->kind == TUTTI__SIM_REAL) {
        add_real(d, rank, a);
        return TUTTI_OK;
    }
    if (a->kind == TUTTI__COLL_REDUCE || a->kind == TUTTI__COLL_REDUCE_LEFT) {
        add_entries(&m->sampled[a->to.place], &m->sampled[a->from.place], a);
        return TUTTI_OK;
    }
    TUTTI_TRY(take_entries(&m->sampled[a->from.place], a, &bytes));
    return tutti__sim_data_put(d, rank, a, bytes);
}

/* ---- The result ------------------------------------------------------------------------------------------------------- */

static void check_real(const tutti__sim_data *d, int rank, uint64_t *checked_p, uint64_t *wrong_p)
{
    const tutti__coll *c = &d->call;
    const tutti__op_traits *t = d->traits;
    const float *dst = (const float *)(const void *)d->ranks[rank].real[TUTTI__COLL_DST];
    const size_t pieces = t->gathers ? (size_t)c->size : 1;

    for (size_t p = 0; p < pieces; p++)
        for (size_t i = 0; i < c->count; i++) {
            const size_t at = (t->scatters ? (size_t)rank * c->count : 0) + i;
            const float wanted =
                t->reduces ? d->sums[at % MODULUS] : value(t->gathers ? (int)p : c->root, at);

            *wrong_p += !(dst[p * c->count + i] == wanted);
        }
    *checked_p += pieces * c->count;
}

static void check_barrier(const tutti__sim_data *d, int rank, uint64_t *checked_p,
                          uint64_t *wrong_p)
{
    for (int r = 0; r < d->call.size; r++)
        *wrong_p += !(d->ranks[rank].heard[r / 64] >> r % 64 & 1);
    *checked_p += (uint64_t)d->call.size;
}

void tutti__sim_data_check(const tutti__sim_data *d, int rank, uint64_t *checked_p,
                           uint64_t *wrong_p)
{
    const memory *m = &d->ranks[rank];

    if (m->heard)
        check_barrier(d, rank, checked_p, wrong_p);
    if (!takes(&d->call, d->traits, rank))
        return;
    if (d->kind == TUTTI__SIM_REAL)
        check_real(d, rank, checked_p, wrong_p);
    for (int i = 0; i < d->n_samples; i++) {
        const sample *s = &d->samples[i];
        const entry *e;

        if (s->taker >= 0 && s->taker != rank)
            continue;
        e = find(&m->sampled[TUTTI__COLL_DST], s->dst);
        ++*checked_p;
        *wrong_p += !e || e->id != s->id || e->sum != s->sum;
    }
}
