/* diff_words.c -- the verdict and the cause, in words.   SPDX-License-Identifier: MIT */
#include "cli/diff/diff.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *const words[TUTTI__DIFF_PHASES] = {
#define PHASE(id, kind, words, word) word,
#include "cli/diff/phases.def"
#undef PHASE
};

TUTTI_PRINTF(3, 4) static void append(char *text, size_t size, const char *format, ...)
{
    const size_t n = strlen(text);
    va_list args;

    va_start(args, format);
    vsnprintf(text + n, size - n, format, args);
    va_end(args);
}

/* The difference that is told: that of the runs, else of the ranks of one. */
static const tutti__diff_finding *told(const tutti__diff_result *result)
{
    if (result->first.source != TUTTI__DIFF_EQUAL)
        return &result->first;
    for (size_t i = 0; i < result->runs; i++)
        if (result->ranks[i].source != TUTTI__DIFF_EQUAL)
            return &result->ranks[i];
    return &result->first;
}

bool tutti__diff_is_equal(const tutti__diff_result *result)
{
    return told(result)->source == TUTTI__DIFF_EQUAL;
}

/* ---- The verdict ------------------------------------------------------------------------------------------------- */

static void add_what(char *text, size_t size, const tutti__diff_finding *f)
{
    const bool module = f->phase == TUTTI__DIFF_FORWARD || f->phase == TUTTI__DIFF_BACKWARD;

    append(text, size, "%s", words[f->phase]);
    if (*f->name)
        append(text, size, "%s %s", f->phase == TUTTI__DIFF_RATE ? " of" : "", f->name);
    else if (module)
        append(text, size, " \"\" (the whole model)");
    if (f->micro > 0)
        append(text, size, ", batch %d of the accumulation", f->micro + 1);
}

static void add_place(char *text, size_t size, const tutti__diff_finding *f)
{
    if (f->phase == TUTTI__DIFF_INITIAL)
        append(text, size, f->step ? "after step %llu" : "before the first step",
               (unsigned long long)f->step);
    else
        append(text, size, "step %llu", (unsigned long long)f->step);
    if (f->shard >= 0)
        append(text, size, ", shard %d", f->shard);
    if (f->a.rank >= 0 && f->a.rank == f->b.rank)
        append(text, size, ", rank %d", f->a.rank);
    else if (f->a.rank >= 0)
        append(text, size, ", ranks %d and %d", f->a.rank, f->b.rank);
}

void tutti__diff_what(const tutti__diff_finding *f, char *text, size_t size)
{
    *text = '\0';
    add_what(text, size, f);
}

void tutti__diff_place(const tutti__diff_finding *f, char *text, size_t size)
{
    *text = '\0';
    add_place(text, size, f);
    append(text, size, ": ");
    add_what(text, size, f);
}

/* "12 recorded steps of 2 ranks (108 entries)" */
static void add_extent(char *text, size_t size, const tutti__diff_extent *e)
{
    const size_t lines = e->shards ? e->shards : e->ranks;

    append(text, size, " %llu recorded step%s of %zu %s%s (%llu entr%s)",
           (unsigned long long)e->steps, tutti__s(e->steps), lines, e->shards ? "shard" : "rank",
           tutti__s(lines), (unsigned long long)e->entries, e->entries == 1 ? "y" : "ies");
}

static void verdict_equal(const tutti__diff_result *r, char *text, size_t size)
{
    if (r->runs == 1 && r->ranks_extent[0].entries == 0) {
        append(text, size, "equal: %s has no ranks to compare", r->run->path);
        return;
    }
    if (r->runs == 1) {
        append(text, size, "equal: the ranks of %s, in", r->run->path);
        add_extent(text, size, &r->ranks_extent[0]);
        return;
    }
    append(text, size, "equal:");
    if (r->extent.entries > 0) {
        add_extent(text, size, &r->extent);
        append(text, size, ",");
    }
    if (r->checkpoints > 0)
        append(text, size, " %llu checkpoint%s (%llu tensors),", (unsigned long long)r->checkpoints,
               tutti__s(r->checkpoints), (unsigned long long)r->tensors);
    if (r->lines > 0)
        append(text, size, " %llu step%s of metrics.jsonl,", (unsigned long long)r->lines,
               tutti__s(r->lines));
    if (r->same_end)
        append(text, size, " the final parameters,");
    text[strlen(text) - 1] = '\0';
    if (r->tolerance > 0)
        append(text, size, ", within %g", r->tolerance);
}

void tutti__diff_verdict(const tutti__diff_result *result, char *text, size_t size)
{
    const tutti__diff_finding *f = told(result);

    *text = '\0';
    switch (f->source) {
    case TUTTI__DIFF_EQUAL:
        verdict_equal(result, text, size);
        return;
    case TUTTI__DIFF_RANKS:
        append(text, size,
               "different: within %s, step %llu, rank %d from rank %d: ", f->b.run->path,
               (unsigned long long)f->step, f->b.rank, f->a.rank);
        add_what(text, size, f);
        return;
    case TUTTI__DIFF_RECORD:
        append(text, size, "different: ");
        tutti__diff_place(f, text + strlen(text), size - strlen(text));
        return;
    case TUTTI__DIFF_CHECKPOINT:
        append(text, size, "different: in the checkpoint of step %llu: %s, %s",
               (unsigned long long)f->step, f->name, f->detail);
        return;
    case TUTTI__DIFF_METRICS:
        append(text, size, "different: in metrics.jsonl, step %llu: %s is %s and %s",
               (unsigned long long)f->step, f->name, f->a.digest, f->b.digest);
        return;
    case TUTTI__DIFF_SUMMARY:
        append(text, size, "different: the final parameters, after step %llu%s%s%s%s",
               (unsigned long long)f->step, *f->detail ? ": " : "", f->name, *f->detail ? ", " : "",
               f->detail);
        return;
    }
}

/* ---- The cause --------------------------------------------------------------------------------------------------- */

/* Whether the finding says where the difference began: what is before it was compared, or does not depend on steps before. */
static bool is_exact(const tutti__diff_finding *f)
{
    return f->source == TUTTI__DIFF_RECORD && (!f->has_gap || f->phase <= TUTTI__DIFF_INPUT);
}

/* Whether this key can be the reason for the finding: by acting there, or in what is before it and not recorded in both. */
static bool explains(const tutti__diff_key *key, const tutti__diff_finding *f)
{
    unsigned phases = 1u << f->phase;

    for (int i = (int)f->phase - 1; i > TUTTI__DIFF_INITIAL && f->compared[i] == 0; i--)
        phases |= 1u << i;
    return is_exact(f) ? (key->phases & phases) != 0 : key->phases != 0;
}

/* "momentum is 0.9 in A and 0.8 in B", of the keys that explain it. */
static bool add_keys(const tutti__diff_result *r, const tutti__diff_finding *f, char *text,
                     size_t size)
{
    size_t n = 0;

    for (size_t i = 0; i < r->n_keys; i++) {
        const tutti__diff_key *key = &r->keys[i];

        if (!explains(key, f))
            continue;
        append(text, size, "%s%s is %s in %s and %s in %s",
               n++ ? "; " : "the configuration: ", key->name, *key->a ? key->a : "absent",
               r->run[0].path, *key->b ? key->b : "absent", r->run[1].path);
    }
    return n > 0;
}

/* With what each run computed, if that differs. */
static bool add_kernels(const tutti__diff_result *r, char *text, size_t size)
{
    static const char *const keys[] = {"framework", "kernels", "isa", "version"};
    size_t n = 0;

    for (size_t i = 0; i < TUTTI__COUNT_OF(keys); i++) {
        const char *a = tutti__diff_header(&r->run[0], keys[i]),
                   *b = tutti__diff_header(&r->run[1], keys[i]);

        if (*a && *b && strcmp(a, b) != 0)
            append(text, size, "%s%s %s in %s and %s in %s", n++ ? ", " : "", keys[i], a,
                   r->run[0].path, b, r->run[1].path);
    }
    return n > 0;
}

/* "on rank 1 alone" */
static void add_share(const tutti__diff_finding *f, char *text, size_t size)
{
    if (f->lines > 1 && f->lines_with[f->phase] == 1)
        append(text, size, " on %s %d alone", f->shard >= 0 ? "shard" : "rank",
               f->shard >= 0 ? f->shard : f->b.rank);
}

/* What it means, and why it may be (NULL: other kernels, or what can be if those are equal). */
static const struct {
    const char *what, *why;
} reasons[TUTTI__DIFF_PHASES] = {
    [TUTTI__DIFF_INITIAL] = {"the weights with which they began differ",
                             "another file of --init, or contents of it, or another version's "
                             "initial values"},
    [TUTTI__DIFF_SAMPLES] = {"the order of the data",
                             "a data set of another size, another order of its own, or other "
                             "samples of a rank"},
    [TUTTI__DIFF_INPUT] = {"the data",
                           "samples of the same numbers have other values: the data set's files "
                           "differ, or what is done to samples"},
    [TUTTI__DIFF_FORWARD] = {"the module's forward, of equal inputs and weights", NULL},
    [TUTTI__DIFF_LOSS] = {"the loss function, or the targets, of equal results", NULL},
    [TUTTI__DIFF_BACKWARD] = {"the backward of what follows the module", NULL},
    [TUTTI__DIFF_GRADIENT] = {"the backward of the parameter's own module", NULL},
    [TUTTI__DIFF_REDUCED] = {"the reduction between ranks",
                             "the gradients of all recorded ranks are equal, their mean is not: a "
                             "communication hook, another order of the sum, or a rank without a "
                             "record"},
    [TUTTI__DIFF_CLIPPED] = {"the clipping of equal gradients", "its limit, or its norm"},
    [TUTTI__DIFF_STATE] = {"the optimizer",
                           "of equal gradients and learning rates it made other states: its "
                           "settings, its code, or a write between steps"},
    [TUTTI__DIFF_PARAMETER] = {"the optimizer",
                               "of equal gradients and learning rates it made other parameters: "
                               "its settings, its code, or a write between steps"},
    [TUTTI__DIFF_BUFFER] = {"the buffer",
                            "what changed it changed no result of this step: a write from outside, "
                            "or a statistic's factor"},
};

/* Without a key that explains it. */
static void add_reason(const tutti__diff_result *r, const tutti__diff_finding *f, char *text,
                       size_t size)
{
    const bool inside = f->phase > TUTTI__DIFF_FORWARD && f->phase <= TUTTI__DIFF_GRADIENT;

    if (f->phase == TUTTI__DIFF_RATE) {
        append(text, size, "the learning rate%s%s", *f->name ? " of " : "", f->name);
        if (f->source == TUTTI__DIFF_RANKS) {
            append(text, size, ": %.9g on rank %d and %.9g on rank %d", f->a.norm, f->a.rank,
                   f->b.norm, f->b.rank);
            return;
        }
        add_share(f, text, size);
        append(text, size, ": %.9g in %s and %.9g in %s", f->a.norm, f->a.run->path, f->b.norm,
               f->b.run->path);
        return;
    }
    if (f->phase == TUTTI__DIFF_REDUCED && f->source == TUTTI__DIFF_RANKS) {
        append(text, size,
               "the reduction between ranks: they got other means of the same gradients: a "
               "communication hook, a write to the gradient, or a fault of the machine");
        return;
    }
    if (f->phase == TUTTI__DIFF_REDUCED && f->lines < 2) {
        append(text, size,
               "what is done to gradients between backward and the optimizer: this "
               "one was equal before");
        return;
    }
    if (inside && f->compared[TUTTI__DIFF_FORWARD] == 0)
        append(text, size,
               "a module's forward or backward, which not both have recorded "
               "(--trace-digests does, and --rerun)");
    else
        append(text, size, "%s", reasons[f->phase].what);
    add_share(f, text, size);
    append(text, size, ": ");
    if (reasons[f->phase].why)
        append(text, size, "%s", reasons[f->phase].why);
    else if (!add_kernels(r, text, size))
        append(text, size,
               "other code of it, an operation that is not deterministic, or a fault "
               "of the machine");
}

/* Keys that differ, and act, but too late for this. */
static void add_late_keys(const tutti__diff_result *r, const tutti__diff_finding *f, char *text,
                          size_t size)
{
    size_t n = 0;

    for (size_t i = 0; i < r->n_keys; i++)
        if (r->keys[i].phases != 0 && !explains(&r->keys[i], f))
            append(text, size, "%s%s",
                   n++ ? ", " : "; keys that differ, but do not explain this: ", r->keys[i].name);
}

void tutti__diff_cause(const tutti__diff_result *result, char *text, size_t size)
{
    const tutti__diff_finding *f = told(result);
    *text = '\0';
    if (f->source == TUTTI__DIFF_EQUAL)
        return;
    if (f->source == TUTTI__DIFF_RANKS) {
        append(text, size, "rank %d of %s left the others: ", f->b.rank, f->b.run->path);
        add_reason(result, f, text, size);
        return;
    }
    if (add_keys(result, f, text, size)) {
        add_late_keys(result, f, text, size);
        return;
    }
    if (is_exact(f))
        add_reason(result, f, text, size);
    else if (!add_kernels(result, text, size))
        append(text, size, "not known: the configurations are equal in what changes the result");
    add_late_keys(result, f, text, size);
}
