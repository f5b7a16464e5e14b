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

static void print_side(FILE *out, const char *what, const tutti__diff_side *side)
{
    if (side->absent)
        tutti__print_line(out, "  %s  %s: it has none", what, side->run->path);
    else if (isnan(side->norm))
        tutti__print_line(out, "  %s  %s: digest %s", what, side->run->path, side->digest);
    else
        tutti__print_line(out, "  %s  %s: digest %s, norm %.9g, projection %.9g", what,
                          side->run->path, *side->digest ? side->digest : "-", side->norm,
                          side->dot);
}

static void print_finding(FILE *out, const tutti__diff_finding *f)
{
    if (f->phase != TUTTI__DIFF_RATE) {
        print_side(out, "A", &f->a);
        print_side(out, "B", &f->b);
    }
    if (*f->detail)
        tutti__print_line(out, "  %s", f->detail);
    tutti__print_line(out, "In this step");
    for (int i = 0; i < TUTTI__DIFF_PHASES; i++)
        if (f->compared[i] > 0 || f->different[i] > 0)
            tutti__print_line(out, "  %-22s %zu of %zu differ", words[i], f->different[i],
                              f->compared[i] > f->different[i] ? f->compared[i] : f->different[i]);
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
    for (size_t i = 0; i < r->runs && r->first.source != TUTTI__DIFF_EQUAL; i++)
        if (r->ranks[i].source != TUTTI__DIFF_EQUAL)
            tutti__print_line(out, "Within %s, rank %d differs from rank %d since step %llu: %s %s",
                              r->run[i].path, r->ranks[i].b.rank, r->ranks[i].a.rank,
                              (unsigned long long)r->ranks[i].step, words[r->ranks[i].phase],
                              r->ranks[i].name);
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

json_t *tutti__diff_json(const tutti__diff_result *result)
{
    char verdict[4096], cause[4096];
    json_t *ranks = json_array();

    tutti__diff_verdict(result, verdict, sizeof verdict);
    tutti__diff_cause(result, cause, sizeof cause);
    for (size_t i = 0; i < result->runs; i++)
        json_array_append_new(ranks, finding_json(&result->ranks[i]));
    return json_pack("{s:b, s:s, s:s, s:o, s:o, s:o, s:I, s:f}", "equal",
                     tutti__diff_is_equal(result), "verdict", verdict, "cause", cause, "first",
                     finding_json(&result->first), "ranks", ranks, "configuration",
                     keys_json(result), "steps", (json_int_t)result->steps, "tolerance",
                     result->tolerance);
}
