/* diff_print.c -- what `tutti diff` says, for people and as JSON.   SPDX-License-Identifier: MIT */
#include "cli/diff/diff.h"
#include "base/terminal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const words[TUTTI__DIFF_PHASES] = {
#define PHASE(id, kind, words, word) words,
#include "cli/diff/phases.def"
#undef PHASE
};

/* "norm 1.5", also where it is not finite. */
static void number_text(double value, char text[32])
{
    if (isnan(value))
        snprintf(text, 32, "NaN");
    else
        snprintf(text, 32, "%.9g", value);
}

static void print_side(FILE *out, const char *what, const tutti__diff_finding *f,
                       const tutti__diff_side *side)
{
    char rank[32] = "", norm[32], dot[32];

    number_text(side->norm, norm);
    number_text(side->dot, dot);
    if (f->source == TUTTI__DIFF_RANKS)
        snprintf(rank, sizeof rank, ", rank %d", side->rank);
    if (side->absent)
        tutti__print_line(out, "  %s  %s%s: it has none", what, side->run->path, rank);
    else if (f->phase == TUTTI__DIFF_RATE)
        tutti__print_line(out, "  %s  %s%s: %s", what, side->run->path, rank, norm);
    else if (f->phase == TUTTI__DIFF_SAMPLES)
        tutti__print_line(out, "  %s  %s%s: digest %s", what, side->run->path, rank, side->digest);
    else
        tutti__print_line(out, "  %s  %s%s: digest %s, norm %s, projection %s", what,
                          side->run->path, rank, *side->digest ? side->digest : "-", norm, dot);
}

static void print_finding(FILE *out, const tutti__diff_finding *f)
{
    print_side(out, "A", f, &f->a);
    print_side(out, "B", f, &f->b);
    if (*f->detail)
        tutti__print_line(out, "  %s", f->detail);
    tutti__print_line(out, "In this step");
    for (int i = 0; i < TUTTI__DIFF_PHASES; i++)
        if (f->compared[i] > 0 || f->different[i] > 0)
            tutti__print_line(out, "  %-22s %zu of %zu differ", words[i], f->different[i],
                              f->compared[i] > f->different[i] ? f->compared[i] : f->different[i]);
}

/* "NaN first in runs/b: step 8, rank 0: the loss", of each run or of both. */
static void print_first(FILE *out, const tutti__diff_result *r, const char *what,
                        const tutti__diff_finding places[2])
{
    char text[2][1024] = {"", ""};

    for (size_t i = 0; i < r->runs; i++)
        if (places[i].source != TUTTI__DIFF_EQUAL)
            tutti__diff_place(&places[i], text[i], sizeof text[i]);
    if (*text[0] && strcmp(text[0], text[1]) == 0) {
        tutti__print_line(out, "%s first in both: %s", what, text[0]);
        return;
    }
    for (size_t i = 0; i < r->runs; i++)
        if (*text[i])
            tutti__print_line(out, "%s first in %s: %s", what, r->run[i].path, text[i]);
}

static void print_keys(FILE *out, const tutti__diff_result *r)
{
    size_t others = 0;

    for (size_t i = 0; i < r->n_keys; i++) {
        const tutti__diff_key *key = &r->keys[i];

        if (key->phases == 0)
            others++;
        else
            tutti__print_line(out, "  %-22s %s | %s", key->name, *key->a ? key->a : "-",
                              *key->b ? key->b : "-");
    }
    if (others > 0)
        tutti__print_line(out, "  %zu key%s that change%s no result", others, tutti__s(others),
                          others == 1 ? "s" : "");
}

/* Runs that cannot have the same bits, and differ by rounding alone: a tolerance that looks beyond it. 0: none. */
static double suggested(const tutti__diff_result *r)
{
    static const char *const keys[] = {"framework", "kernels", "isa", "version"};
    const double seen = r->first.relative[r->first.phase];

    if (r->first.source != TUTTI__DIFF_RECORD || r->tolerance > 0 || !(seen > 0 && seen < 1e-2))
        return 0;
    for (size_t i = 0; i < TUTTI__COUNT_OF(keys); i++)
        if (strcmp(tutti__diff_header(&r->run[0], keys[i]),
                   tutti__diff_header(&r->run[1], keys[i])) != 0)
            return pow(10, ceil(log10(seen)) + 1);
    return 0;
}

static void print_hints(FILE *out, const tutti__diff_result *r)
{
    const tutti__diff_finding *f = &r->first;
    const double tolerance = suggested(r);

    if (f->has_gap && f->knows_equal)
        tutti__print_line(out,
                          "Equal at step %llu; what is between is not in both. tutti diff --rerun "
                          "finds the step.",
                          (unsigned long long)f->equal_step);
    else if (f->has_gap)
        tutti__print_line(out,
                          "What was before is not in both. tutti diff --rerun finds the step.");
    if (tolerance > 0)
        tutti__print_line(out,
                          "They computed with other kernels, whose rounding differs: "
                          "--tolerance %g looks beyond it.",
                          tolerance);
}

static void print_ranks(FILE *out, const tutti__diff_result *r)
{
    char text[1024];

    for (size_t i = 0; i < r->runs && r->first.source != TUTTI__DIFF_EQUAL; i++) {
        const tutti__diff_finding *f = &r->ranks[i];

        if (f->source == TUTTI__DIFF_EQUAL)
            continue;
        tutti__diff_what(f, text, sizeof text);
        tutti__print_line(out, "Within %s, rank %d differs from rank %d since step %llu: %s",
                          r->run[i].path, f->b.rank, f->a.rank, (unsigned long long)f->step, text);
    }
}

static void print_failure(FILE *out, const tutti__diff_run *run)
{
    const char *status = json_string_value(json_object_get(run->summary, "status"));
    const char *reason = json_string_value(json_object_get(run->summary, "reason"));

    if (status && strcmp(status, "failed") == 0)
        tutti__print_line(out, "%s failed after step %lld: %s", run->path,
                          (long long)json_integer_value(json_object_get(run->summary, "steps")),
                          reason ? reason : "its summary.json says no reason");
}

void tutti__diff_print(FILE *out, const tutti__diff_result *result)
{
    char text[4096];
    const tutti__diff_finding *f = &result->first;

    tutti__diff_verdict(result, text, sizeof text);
    tutti__print_line(out, "%s", text);
    tutti__diff_cause(result, text, sizeof text);
    if (*text)
        tutti__print_line(out, "cause: %s", text);
    if (f->source == TUTTI__DIFF_RECORD)
        print_finding(out, f);
    for (size_t i = 0; i < result->runs && f->source == TUTTI__DIFF_EQUAL; i++)
        if (result->ranks[i].source != TUTTI__DIFF_EQUAL)
            print_finding(out, &result->ranks[i]);
    print_ranks(out, result);
    print_first(out, result, "Infinite", result->infinite);
    print_first(out, result, "NaN", result->nan);
    for (size_t i = 0; i < result->runs; i++)
        print_failure(out, &result->run[i]);
    if (result->n_keys > 0) {
        tutti__print_line(out, "Configuration");
        print_keys(out, result);
    }
    print_hints(out, result);
}

/* ---- JSON --------------------------------------------------------------------------------------------------------- */

static json_t *number_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *side_json(const tutti__diff_side *side)
{
    return json_pack("{s:s, s:b, s:i, s:s, s:o, s:o}", "run", side->run->path, "present",
                     !side->absent, "rank", side->rank, "digest", side->digest, "norm",
                     number_or_null(side->norm), "dot", number_or_null(side->dot));
}

static json_t *finding_json(const tutti__diff_finding *f)
{
    static const char *const sources[] = {"",           "record",  "ranks",
                                          "checkpoint", "metrics", "summary"};
    json_t *counts = json_object(), *json;

    if (f->source == TUTTI__DIFF_EQUAL) {
        json_decref(counts);
        return json_null();
    }
    for (int i = 0; i < TUTTI__DIFF_PHASES; i++)
        if (f->compared[i] > 0 || f->different[i] > 0)
            json_object_set_new(
                counts, tutti__diff_kind((tutti__diff_phase)i),
                json_pack("[I, I]", (json_int_t)f->compared[i], (json_int_t)f->different[i]));
    json = json_pack("{s:s, s:I, s:i, s:s, s:i, s:s%, s:s%, s:o, s:o, s:b, s:o}", "by",
                     sources[f->source], "step", (json_int_t)f->step, "shard", f->shard, "kind",
                     tutti__diff_kind(f->phase), "batch", f->micro, "name", f->name,
                     strlen(f->name), "detail", f->detail, strlen(f->detail), "a", side_json(&f->a),
                     "b", side_json(&f->b), "has_gap", f->has_gap, "compared", counts);
    if (json && f->knows_equal)
        json_object_set_new(json, "equal_step", json_integer((json_int_t)f->equal_step));
    return json;
}

static json_t *keys_json(const tutti__diff_result *r)
{
    json_t *list = json_array();

    for (size_t i = 0; i < r->n_keys; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:b}", "key", r->keys[i].name, "a",
                                              r->keys[i].a, "b", r->keys[i].b, "changes_result",
                                              r->keys[i].phases != 0));
    return list;
}

static json_t *place_json(const tutti__diff_finding *f)
{
    if (f->source == TUTTI__DIFF_EQUAL)
        return json_null();
    return json_pack("{s:I, s:i, s:i, s:s, s:i, s:s}", "step", (json_int_t)f->step, "shard",
                     f->shard, "rank", f->a.rank, "kind", tutti__diff_kind(f->phase), "batch",
                     f->micro, "name", f->name);
}

static json_t *extent_json(const tutti__diff_extent *e)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "steps", (json_int_t)e->steps, "ranks",
                     (json_int_t)e->ranks, "shards", (json_int_t)e->shards, "entries",
                     (json_int_t)e->entries);
}

json_t *tutti__diff_json(const tutti__diff_result *result)
{
    char verdict[4096], cause[4096];
    const tutti__diff_extent *extent =
        result->runs == 1 ? &result->ranks_extent[0] : &result->extent;
    json_t *ranks = json_array(), *not_finite = json_array();

    tutti__diff_verdict(result, verdict, sizeof verdict);
    tutti__diff_cause(result, cause, sizeof cause);
    for (size_t i = 0; i < result->runs; i++)
        json_array_append_new(ranks, finding_json(&result->ranks[i]));
    for (size_t i = 0; i < result->runs; i++)
        json_array_append_new(not_finite,
                              json_pack("{s:o, s:o}", "nan", place_json(&result->nan[i]),
                                        "infinite", place_json(&result->infinite[i])));
    return json_pack("{s:b, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:f}", "equal",
                     tutti__diff_is_equal(result), "verdict", verdict, "cause", cause, "first",
                     finding_json(&result->first), "ranks", ranks, "not_finite", not_finite,
                     "configuration", keys_json(result), "compared", extent_json(extent), "steps",
                     (json_int_t)extent->steps, "tolerance", result->tolerance);
}
