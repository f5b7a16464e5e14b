/* diff_steps.c -- compares records step by step, and the ranks of one run.   SPDX-License-Identifier: MIT */
#include "cli/diff/diff.h"
#include "base/terminal.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of sums in double precision, in any order; of learning rates, one of which may have been rounded to single precision. */
#define SUMS_AGREE  1e-12
#define RATES_AGREE 1e-6
/* What is 0 but for rounding, such as the gradient of a bias before a batch norm, is small beside the largest of its kind. */
#define SMALL 0.01

typedef struct comparison {
    const tutti__diff_run *a, *b;
    double tolerance;
    unsigned phases; /* to be compared; a bit each */
    double
        least[TUTTI__DIFF_PHASES]; /* of these lines: to what differences are relative, at least */
    bool complete;                 /* both record all weights, by the same names */
    tutti__diff_finding *first;
    tutti__diff_extent *extent;
} comparison;

/* ---- Entries --------------------------------------------------------------------------------------------------- */

static double difference(double x, double y)
{
    if (x == y || (isnan(x) && isnan(y)))
        return 0;
    return isfinite(x) && isfinite(y) ? fabs(x - y) : (double)INFINITY;
}

/* Of norm and projection, relative to the larger norm, or to `least` if that is more. Two that are NaN, or infinite, are equal. */
static double relative(const tutti__diff_entry *x, const tutti__diff_entry *y, double least)
{
    const double most = fmax(difference(x->norm, y->norm), difference(x->dot, y->dot));

    if (most == 0 || isinf(most))
        return most;
    return most / fmax(fmax(fabs(x->norm), fabs(y->norm)), least);
}

static bool entries_agree(const comparison *c, const tutti__diff_entry *x,
                          const tutti__diff_entry *y)
{
    const bool digests = *x->digest && *y->digest;

    if (x->phase == TUTTI__DIFF_RATE)
        return relative(x, y, 0) <= fmax(c->tolerance, RATES_AGREE);
    if (digests && strcmp(x->digest, y->digest) == 0)
        return true;
    if (x->phase == TUTTI__DIFF_SAMPLES || (digests && c->tolerance == 0))
        return !digests;
    return relative(x, y, c->least[x->phase]) <= fmax(c->tolerance, SUMS_AGREE);
}

static void fill_side(tutti__diff_side *side, const tutti__diff_run *run, int rank,
                      const tutti__diff_entry *e)
{
    *side = (tutti__diff_side){.run = run,
                               .rank = rank,
                               .norm = e ? e->norm : (double)NAN,
                               .dot = e ? e->dot : (double)NAN,
                               .absent = !e};
    if (e)
        snprintf(side->digest, sizeof side->digest, "%.39s", e->digest);
}

/* The batch of an accumulation that this belongs to; what has none comes before all of them, or after. */
static int batch_of(tutti__diff_phase phase, int micro)
{
    if (phase <= TUTTI__DIFF_SAMPLES)
        return -1;
    return phase <= TUTTI__DIFF_BACKWARD ? micro : INT_MAX;
}

/* Whether e was computed before the finding. */
static bool is_earlier(const tutti__diff_entry *e, const tutti__diff_finding *f)
{
    const int x = batch_of(e->phase, e->micro), y = batch_of(f->phase, f->micro);

    if (f->source == TUTTI__DIFF_EQUAL)
        return true;
    if (x != y)
        return x < y;
    if (e->phase != f->phase)
        return e->phase < f->phase;
    return e->order < f->order;
}

static void take(const comparison *c, const tutti__diff_line *la, const tutti__diff_line *lb,
                 const tutti__diff_entry *x, const tutti__diff_entry *y)
{
    const tutti__diff_entry *e = x ? x : y;
    tutti__diff_finding *f = c->first;

    f->different[e->phase]++;
    if (x && y)
        f->relative[e->phase] = fmax(f->relative[e->phase], relative(x, y, c->least[e->phase]));
    if (!is_earlier(e, f))
        return;
    f->source = TUTTI__DIFF_RECORD;
    f->step = la->step;
    f->shard = la->shard;
    f->phase = e->phase;
    f->micro = e->micro;
    f->order = e->order;
    snprintf(f->name, sizeof f->name, "%.599s", e->name);
    fill_side(&f->a, c->a, la->rank, x);
    fill_side(&f->b, c->b, lb->rank, y);
}

/* ---- Lines ----------------------------------------------------------------------------------------------------- */

static int order_of(const tutti__diff_entry *x, const tutti__diff_entry *y)
{
    if (x->phase != y->phase)
        return x->phase < y->phase ? -1 : 1;
    if (strcmp(x->name, y->name) != 0)
        return strcmp(x->name, y->name);
    return x->nth < y->nth ? -1 : x->nth > y->nth;
}

static bool has_phase(const tutti__diff_step *step, tutti__diff_phase phase)
{
    for (size_t i = 0; i < step->n; i++)
        if (step->entries[i].phase == phase)
            return true;
    return false;
}

/* Results may be missing, of fused modules for one; weights may not, unless none of them are recorded. */
static bool is_missing(const comparison *c, const tutti__diff_entry *e,
                       const tutti__diff_step *other)
{
    return c->complete && (e->phase == TUTTI__DIFF_INITIAL || e->phase == TUTTI__DIFF_PARAMETER) &&
           (c->phases >> e->phase & 1) && has_phase(other, e->phase);
}

static void find_least(comparison *c, const tutti__diff_step *a)
{
    memset(c->least, 0, sizeof c->least);
    for (size_t i = 0; i < a->n; i++)
        if (isfinite(a->entries[i].norm) &&
            a->entries[i].norm * SMALL > c->least[a->entries[i].phase])
            c->least[a->entries[i].phase] = a->entries[i].norm * SMALL;
}

/* What `other` has in place of e, if it says so without an entry: the learning rate of all parameters without their own. */
static const tutti__diff_entry *implied(const tutti__diff_entry *e, const tutti__diff_step *other,
                                        tutti__diff_entry *place)
{
    if (e->phase != TUTTI__DIFF_RATE || !*e->name || !other->has_rates)
        return NULL;
    *place = *e;
    place->norm = other->rate;
    return place;
}

/* Entries of one phase and name; NULL: there is none. */
static void compare_entries(comparison *c, const tutti__diff_line *lines[2],
                            const tutti__diff_step steps[2], const tutti__diff_entry *x,
                            const tutti__diff_entry *y)
{
    const tutti__diff_entry *e = x ? x : y;
    tutti__diff_entry place;

    if (!(c->phases >> e->phase & 1))
        return;
    if (!x)
        x = implied(e, &steps[0], &place);
    if (!y)
        y = implied(e, &steps[1], &place);
    if ((!x && is_missing(c, e, &steps[0])) || (!y && is_missing(c, e, &steps[1]))) {
        take(c, lines[0], lines[1], x, y);
    } else if (x && y) {
        c->first->compared[e->phase]++;
        c->extent->entries++;
        if (!entries_agree(c, x, y))
            take(c, lines[0], lines[1], x, y);
    }
}

static tutti_status compare_lines(comparison *c, const tutti__diff_line *la,
                                  const tutti__diff_line *lb)
{
    const tutti__diff_line *lines[2] = {la, lb};
    const tutti__diff_finding before = *c->first;
    tutti__diff_step steps[2], *a = &steps[0], *b = &steps[1];
    tutti_status status;

    TUTTI_TRY(tutti__diff_load(a, c->a->path, la));
    find_least(c, a);
    status = tutti__diff_load(b, c->b->path, lb);
    for (size_t i = 0, k = 0; status == TUTTI_OK && (i < a->n || k < b->n);) {
        const tutti__diff_entry *x = i < a->n ? &a->entries[i] : NULL;
        const tutti__diff_entry *y = k < b->n ? &b->entries[k] : NULL;
        const int order = !x ? 1 : !y ? -1 : order_of(x, y);

        i += order <= 0;
        k += order >= 0;
        compare_entries(c, lines, steps, order <= 0 ? x : NULL, order >= 0 ? y : NULL);
    }
    for (int i = 0; i < TUTTI__DIFF_PHASES; i++)
        c->first->lines_with[i] += c->first->different[i] > before.different[i];
    c->first->lines++;
    tutti__diff_unload(a);
    tutti__diff_unload(b);
    return status;
}

/* ---- Steps of two runs ------------------------------------------------------------------------------------------- */

/* The lines of one step, or of the weights before the next. */
typedef struct group {
    const tutti__diff_line *lines;
    size_t n;
} group;

static group group_at(const tutti__diff_record *record, size_t i)
{
    const tutti__diff_line *first = &record->lines[i];
    group g = {first, 0};

    while (i + g.n < record->n && first[g.n].step == first->step &&
           first[g.n].initial == first->initial)
        g.n++;
    return g;
}

/* A shard's line is any rank's. NULL: there is none. */
static const tutti__diff_line *counterpart(const tutti__diff_line *line, const group *g)
{
    for (size_t i = 0; i < g->n; i++)
        if (g->lines[i].shard == line->shard &&
            (line->shard >= 0 || g->lines[i].rank == line->rank))
            return &g->lines[i];
    return NULL;
}

/* Counts a step in which so many lines, with these entries, were compared. */
static void count(tutti__diff_extent *extent, const group *g, size_t ranks, size_t shards)
{
    extent->steps += !g->lines->initial && ranks + shards > 0;
    extent->ranks = ranks > extent->ranks ? ranks : extent->ranks;
    extent->shards = shards > extent->shards ? shards : extent->shards;
}

/* Lines of equal text need not be loaded. */
static tutti_status compare_groups(comparison *c, const group *a, const group *b)
{
    size_t ranks = 0, shards = 0, entries = 0;
    bool same = true;

    for (size_t i = 0; i < a->n; i++) {
        const tutti__diff_line *line = &a->lines[i], *other = counterpart(line, b);

        same &= other && other->hash == line->hash && other->bytes == line->bytes;
        ranks += other && line->shard < 0;
        shards += other && line->shard >= 0;
        entries += line->entries;
    }
    count(c->extent, a, ranks, shards);
    c->extent->entries += same ? entries : 0;
    for (size_t i = 0; i < a->n && !same; i++) {
        const tutti__diff_line *other = counterpart(&a->lines[i], b);

        if (other)
            TUTTI_TRY(compare_lines(c, &a->lines[i], other));
    }
    return TUTTI_OK;
}

static json_int_t integer_of(const tutti__diff_run *run, const char *key)
{
    return json_integer_value(json_object_get(run->config, key));
}

/* Whether the ranks of both have the same parts of the model, by the same names. */
static bool same_layout(const tutti__diff_run *a, const tutti__diff_run *b)
{
    static const char *const keys[] = {"tensor", "pipeline", "zero", "zero_ranks"};
    const bool shares = integer_of(a, "zero") == 3;

    for (size_t i = 0; i < TUTTI__COUNT_OF(keys); i++)
        if (integer_of(a, keys[i]) != integer_of(b, keys[i]))
            return false;
    return !shares || integer_of(a, "world_size") == integer_of(b, "world_size");
}

/* What can be compared of their entries: parts of layers have the layers' names. */
static unsigned alike_phases(const tutti__diff_run *a, const tutti__diff_run *b)
{
    const json_int_t x = integer_of(a, "tensor"), y = integer_of(b, "tensor");

    if (!a->config || !b->config || x == y)
        return (1u << TUTTI__DIFF_PHASES) - 1;
    tutti__diff_note("tensor is %lld in %s and %lld in %s: other parts of layers are on a rank, so "
                     "only samples, input, losses and learning rates of the record were compared",
                     (long long)x, a->path, (long long)y, b->path);
    return 1u << TUTTI__DIFF_SAMPLES | 1u << TUTTI__DIFF_INPUT | 1u << TUTTI__DIFF_LOSS |
           1u << TUTTI__DIFF_RATE;
}

static int group_order(const group *a, const group *b)
{
    if (a->lines->step != b->lines->step)
        return a->lines->step < b->lines->step ? -1 : 1;
    return (int)a->lines->initial - (int)b->lines->initial;
}

static void forget_counts(tutti__diff_finding *f)
{
    memset(f->compared, 0, sizeof f->compared);
    memset(f->different, 0, sizeof f->different);
    memset(f->lines_with, 0, sizeof f->lines_with);
    f->lines = 0;
    memset(f->relative, 0, sizeof f->relative);
}

tutti_status tutti__diff_records(tutti__diff_result *result)
{
    const tutti__diff_run *a = &result->run[0], *b = &result->run[1];
    tutti__diff_finding *f = &result->first;
    comparison c = {.a = a,
                    .b = b,
                    .tolerance = result->tolerance,
                    .phases = alike_phases(a, b),
                    .complete = strcmp(tutti__diff_header(a, "framework"),
                                       tutti__diff_header(b, "framework")) == 0 &&
                                same_layout(a, b),
                    .first = f,
                    .extent = &result->extent};

    for (size_t i = 0, k = 0; i < a->record.n && k < b->record.n;) {
        const group x = group_at(&a->record, i), y = group_at(&b->record, k);
        const int order = group_order(&x, &y);

        i += order <= 0 ? x.n : 0;
        k += order >= 0 ? y.n : 0;
        if (order != 0)
            continue;
        forget_counts(f);
        TUTTI_TRY(compare_groups(&c, &x, &y));
        if (f->source != TUTTI__DIFF_EQUAL) {
            f->has_gap = f->phase != TUTTI__DIFF_INITIAL &&
                         f->step > (f->knows_equal ? f->equal_step : 0) + 1;
            return TUTTI_OK;
        }
        f->knows_equal = true;
        f->equal_step = x.lines->step;
    }
    return TUTTI_OK;
}

/* ---- Ranks of one run ---------------------------------------------------------------------------------------------- */

/* What all ranks have alike, unless they divide it. */
static unsigned common_phases(const tutti__diff_run *run)
{
    const json_int_t zero = integer_of(run, "zero");
    unsigned phases = 1u << TUTTI__DIFF_RATE;

    if (integer_of(run, "tensor") > 1 || integer_of(run, "pipeline") > 1)
        return phases;
    if (zero < 3)
        phases |= 1u << TUTTI__DIFF_INITIAL | 1u << TUTTI__DIFF_PARAMETER;
    if (zero == 0)
        phases |= 1u << TUTTI__DIFF_REDUCED | 1u << TUTTI__DIFF_CLIPPED | 1u << TUTTI__DIFF_STATE;
    return phases;
}

/* Compares each rank with the lowest. If all others differ from it, it is the one that is named, as b. */
static tutti_status compare_ranks(comparison *c, const group *g)
{
    const tutti__diff_line *lines[2] = {NULL, NULL};
    tutti__diff_extent more = {.steps = 0};
    size_t n = 0;

    *c->first = (tutti__diff_finding){.shard = -1};
    for (size_t i = 0; i < g->n; i++) {
        if (g->lines[i].shard >= 0)
            continue;
        if (n++ == 0) {
            lines[0] = &g->lines[i];
            continue;
        }
        TUTTI_TRY(compare_lines(c, lines[0], &g->lines[i]));
        if (!lines[1])
            lines[1] = &g->lines[i];
    }
    count(c->extent, g, n, 0);
    if (n > 2 && c->first->source != TUTTI__DIFF_EQUAL &&
        c->first->lines_with[c->first->phase] == n - 1) {
        *c->first = (tutti__diff_finding){.shard = -1};
        c->extent = &more;
        TUTTI_TRY(compare_lines(c, lines[1], lines[0]));
    }
    if (c->first->source != TUTTI__DIFF_EQUAL)
        c->first->source = TUTTI__DIFF_RANKS;
    return TUTTI_OK;
}

tutti_status tutti__diff_ranks(tutti__diff_result *result, size_t i)
{
    const tutti__diff_run *run = &result->run[i];
    tutti__diff_finding *f = &result->ranks[i];
    comparison c = {.a = run,
                    .b = run,
                    .tolerance = result->tolerance,
                    .phases = common_phases(run),
                    .first = f,
                    .extent = &result->ranks_extent[i]};

    for (size_t at = 0; at < run->record.n && f->source == TUTTI__DIFF_EQUAL;) {
        const group g = group_at(&run->record, at);

        if (g.n > 1 && g.lines[1].shard < 0) /* ranks may record other steps */
            TUTTI_TRY(compare_ranks(&c, &g));
        at += g.n;
    }
    return TUTTI_OK;
}

/* ---- Values that are not finite -------------------------------------------------------------------------------------- */

/* e, of this line, if it is before what was found. */
static void take_place(tutti__diff_finding *f, const tutti__diff_run *run,
                       const tutti__diff_line *line, const tutti__diff_entry *e)
{
    if (f->source != TUTTI__DIFF_EQUAL && !is_earlier(e, f))
        return;
    *f = (tutti__diff_finding){.source = TUTTI__DIFF_RECORD,
                               .step = line->step,
                               .shard = line->shard,
                               .phase = e->phase,
                               .micro = e->micro,
                               .order = e->order};
    snprintf(f->name, sizeof f->name, "%.599s", e->name);
    fill_side(&f->a, run, line->rank, e);
    f->b = f->a;
}

static tutti_status find_in_line(tutti__diff_result *result, size_t i, unsigned phases,
                                 tutti__diff_finding found[2], const tutti__diff_line *line)
{
    tutti__diff_step step;

    TUTTI_TRY(tutti__diff_load(&step, result->run[i].path, line));
    for (size_t k = 0; k < step.n; k++) {
        const tutti__diff_entry *e = &step.entries[k];

        if (isfinite(e->norm) || !(phases >> e->phase & 1))
            continue;
        if (isnan(e->norm))
            take_place(&found[0], &result->run[i], line, e);
        else if (e->phase != TUTTI__DIFF_INITIAL && e->phase != TUTTI__DIFF_BUFFER)
            take_place(&found[1], &result->run[i], line, e);
    }
    tutti__diff_unload(&step);
    return TUTTI_OK;
}

tutti_status tutti__diff_not_finite(tutti__diff_result *result, size_t i)
{
    const tutti__diff_record *record = &result->run[i].record;
    const char *amp = json_string_value(json_object_get(result->run[i].config, "amp"));
    tutti__diff_finding *nan = &result->nan[i], *infinite = &result->infinite[i];
    unsigned phases = ((1u << TUTTI__DIFF_PHASES) - 1) & ~(1u << TUTTI__DIFF_SAMPLES);

    if (amp && strcmp(amp, "fp16") == 0)
        for (int p = TUTTI__DIFF_BACKWARD; p <= TUTTI__DIFF_CLIPPED; p++)
            phases &= ~(1u << p);
    for (size_t at = 0; at < record->n && nan->source == TUTTI__DIFF_EQUAL;) {
        const group g = group_at(record, at);
        tutti__diff_finding found[2] = {{.shard = -1}, {.shard = -1}};

        for (size_t k = 0; k < g.n; k++)
            if (g.lines[k].not_finite)
                TUTTI_TRY(find_in_line(result, i, phases, found, &g.lines[k]));
        *nan = found[0];
        if (infinite->source == TUTTI__DIFF_EQUAL)
            *infinite = found[1];
        at += g.n;
    }
    return TUTTI_OK;
}
