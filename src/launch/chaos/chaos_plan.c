/* chaos_plan.c -- parses --chaos, and generates its events.   SPDX-License-Identifier: MIT */
#include "launch/chaos/chaos.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE (-1) /* a key's value was not given */

enum { MAX_RATE = 1000, MAX_VALUES = 3 };

/* A key with its numbers: RATE, RATE:SECONDS and so on. */
typedef struct key {
    const char *name, *form;
    int required, most; /* numbers */
    double low[MAX_VALUES], high[MAX_VALUES];
    bool whole;
    const char *const
        *words; /* of the last value, which is the index of one of these; NULL: a number */
} key;

enum { KILL, STOP, CUT, SLOW, FLIP, BURST, KEEP, SEED, AFTER, UNTIL, N_KEYS };

static const char *const FLIP_KINDS[] = {"any",       "parameters", "state", "buffers",
                                         "gradients", "sums",       "means", NULL};

/* The first are the kinds, in their order. */
static const key KEYS[N_KEYS] = {
    [KILL] = {"kill", "RATE, of 0 to 1000 a second", 1, 1, {0}, {MAX_RATE}, false},
    [STOP] = {"stop",
              "RATE[:SECONDS], of 0 to 1000 a second, 0.001 to 86400 s long",
              1,
              2,
              {0, 0.001},
              {MAX_RATE, 86400},
              false},
    [CUT] = {"cut", "RATE, of 0 to 1000 a second", 1, 1, {0}, {MAX_RATE}, false},
    [SLOW] =
        {"slow",
         "RATE:FACTOR[:SECONDS], of 0 to 1000 a second, 1.1 to 1000 times slower, 0.1 to 86400 "
         "s long",
         2,
         3,
         {0, 1.1, 0.1},
         {MAX_RATE, 1000, 86400},
         false},
    [FLIP] = {"flip",
              "RATE[:KIND], of 0 to 1 a step, and one of any, parameters, state, buffers, "
              "gradients, sums, means",
              1,
              2,
              {0},
              {1},
              false,
              FLIP_KINDS},
    [BURST] =
        {"burst", "a number of workers from 1 to 65536", 1, 1, {1}, {TUTTI__MOST_WORKERS}, true},
    [KEEP] =
        {"keep", "a number of workers from 0 to 65536", 1, 1, {0}, {TUTTI__MOST_WORKERS}, true},
    [SEED] = {"seed", "a number from 0 to 2^53", 1, 1, {0}, {9007199254740992.0}, true},
    [AFTER] = {"after", "seconds from 0 to 1e9", 1, 1, {0}, {1e9}, false},
    [UNTIL] = {"until", "seconds from 0 to 1e9", 1, 1, {0}, {1e9}, false},
};

/* ---- SPEC --------------------------------------------------------------------------------------------- */

static int find_key(const char *name)
{
    int i = 0;

    while (i < N_KEYS && strcmp(KEYS[i].name, name) != 0)
        i++;
    return i;
}

static tutti_status unknown_key(const char *name)
{
    const char *names[N_KEYS], *nearest;

    for (int i = 0; i < N_KEYS; i++)
        names[i] = KEYS[i].name;
    nearest = tutti__nearest(name, names, N_KEYS);
    return tutti__fail(TUTTI_ERR_ARG,
                       "--chaos has no key \"%.40s\"%s%s%s; there are kill, stop, cut, slow, flip, "
                       "burst, keep, seed, after and until",
                       name, nearest ? " (do you mean " : "", nearest ? nearest : "",
                       nearest ? "?)" : "");
}

/* Value n of a key. */
static bool read_value(const key *k, int n, const char *word, double *value_p)
{
    if (k->words && n == k->most - 1) {
        for (int i = 0; k->words[i]; i++)
            if (strcmp(word, k->words[i]) == 0) {
                *value_p = i;
                return true;
            }
        return false;
    }
    return tutti__parse_double(word, value_p) && *value_p >= k->low[n] && *value_p <= k->high[n] &&
           (!k->whole || floor(*value_p) == *value_p);
}

static tutti_status read_values(const key *k, char *text, double values[MAX_VALUES])
{
    char *rest = text, *word;
    int n = 0;

    while ((word = strsep(&rest, ":")) != NULL) {
        double value;

        if (n == k->most || !read_value(k, n, word, &value))
            break;
        values[n++] = value;
    }
    if (word || n < k->required)
        return tutti__fail(TUTTI_ERR_ARG, "--chaos: %s is \"%.60s\"%s, expected %s", k->name,
                           word ? word : text, n > 0 && word ? " behind a colon" : "", k->form);
    return TUTTI_OK;
}

static tutti_status read_pair(char *pair, double values[N_KEYS][MAX_VALUES])
{
    char *value = strchr(pair, '=');
    int i;

    if (!value)
        return tutti__fail(TUTTI_ERR_ARG,
                           "--chaos: \"%.60s\", expected KEY=VALUE, as in kill=0.5,seed=7", pair);
    *value++ = '\0';
    i = find_key(pair);
    if (i == N_KEYS)
        return unknown_key(pair);
    if (values[i][0] != NONE)
        return tutti__fail(TUTTI_ERR_ARG, "--chaos: %s is given twice", pair);
    return read_values(&KEYS[i], value, values[i]);
}

static double given(double value, double otherwise)
{
    return value == NONE ? otherwise : value;
}

tutti_status tutti__chaos_read(const char *spec, tutti__chaos_plan *plan_p)
{
    double values[N_KEYS][MAX_VALUES], total = 0;
    char *copy = strdup(spec), *rest = copy, *pair;
    tutti_status status = TUTTI_OK;

    if (!copy)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for --chaos");
    for (int i = 0; i < N_KEYS; i++)
        for (int k = 0; k < MAX_VALUES; k++)
            values[i][k] = NONE;
    while (status == TUTTI_OK && (pair = strsep(&rest, ",")) != NULL)
        status = read_pair(pair, values);
    free(copy);
    TUTTI_TRY(status);
    *plan_p = (tutti__chaos_plan){.stop_s = given(values[STOP][1], 1),
                                  .slow_factor = given(values[SLOW][1], 1),
                                  .slow_s = given(values[SLOW][2], 10),
                                  .after_s = given(values[AFTER][0], 0),
                                  .until_s = given(values[UNTIL][0], INFINITY),
                                  .burst = (int)given(values[BURST][0], 1),
                                  .keep = (int)values[KEEP][0],
                                  .seed = (uint64_t)given(values[SEED][0], 0),
                                  .flip_rate = given(values[FLIP][0], 0),
                                  .flip_kind = FLIP_KINDS[(int)given(values[FLIP][1], 0)]};
    for (int kind = 0; kind < TUTTI__CHAOS_KINDS; kind++) {
        plan_p->rate[kind] = given(values[kind][0], 0);
        total += plan_p->rate[kind];
    }
    if (total + plan_p->flip_rate == 0)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "--chaos \"%.60s\" disturbs nobody: give kill, stop, cut, slow or flip a rate, "
            "as in kill=0.5",
            spec);
    for (int i = 0; total == 0 && i < N_KEYS; i++)
        if ((i == BURST || i == AFTER || i == UNTIL) && values[i][0] != NONE)
            return tutti__fail(TUTTI_ERR_ARG,
                               "--chaos: %s is for kill, stop, cut and slow; bits are flipped by "
                               "step, of one worker at a time",
                               KEYS[i].name);
    if (plan_p->until_s <= plan_p->after_s)
        return tutti__fail(TUTTI_ERR_ARG, "--chaos: until is %g, expected more than after, %g",
                           plan_p->until_s, plan_p->after_s);
    return TUTTI_OK;
}

tutti_status tutti__chaos_check(const tutti__chaos_plan *plan, int n)
{
    int error = plan->rate[TUTTI__CHAOS_CUT] > 0 ? tutti__chaos_try_cut() : 0;

    if (plan->keep >= n)
        return tutti__fail(TUTTI_ERR_ARG,
                           "--chaos: keep is %d, expected less than this node's %d worker%s",
                           plan->keep, n, n == 1 ? "" : "s");
    if (error)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "--chaos: cut is not possible here: the kernel does not let a process "
                           "have its child's sockets (pidfd_getfd: %s; see "
                           "/proc/sys/kernel/yama/ptrace_scope, and a container's seccomp profile)",
                           strerror(error));
    return TUTTI_OK;
}

bool tutti__chaos_flips(const tutti__chaos_plan *plan, int n, char *text, size_t bytes)
{
    if (plan->flip_rate == 0)
        return false;
    snprintf(text, bytes, "%.12g:%s:%d:%llu", plan->flip_rate, plan->flip_kind,
             plan->keep >= 0 ? plan->keep : n > 1, (unsigned long long)plan->seed);
    return true;
}

/* Returns the new length. */
static size_t add(char *text, size_t bytes, size_t used, const char *format, ...)
    TUTTI_PRINTF(4, 5);
static size_t add(char *text, size_t bytes, size_t used, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(text + used, bytes - used, format, args);
    va_end(args);
    used += n > 0 ? (size_t)n : 0;
    return used < bytes ? used : bytes - 1;
}

void tutti__chaos_describe(const tutti__chaos_plan *plan, char *text, size_t bytes)
{
    const double *rate = plan->rate;
    size_t used = 0;

    text[0] = '\0';
    for (int kind = 0; kind < TUTTI__CHAOS_KINDS; kind++)
        if (rate[kind] > 0) {
            used =
                add(text, bytes, used, "%s%s %g/s", used ? ", " : "", KEYS[kind].name, rate[kind]);
            if (kind == TUTTI__CHAOS_STOP)
                used = add(text, bytes, used, " for %g s", plan->stop_s);
            if (kind == TUTTI__CHAOS_SLOW)
                used = add(text, bytes, used, " to 1/%g for %g s", plan->slow_factor, plan->slow_s);
        }
    if (plan->flip_rate > 0)
        used = add(text, bytes, used, "%sflip %g a step of %s", used ? ", " : "", plan->flip_rate,
                   plan->flip_kind);
    if (plan->burst > 1)
        used = add(text, bytes, used, ", up to %d at once", plan->burst);
    if (plan->after_s > 0)
        used = add(text, bytes, used, ", after %g s", plan->after_s);
    if (plan->until_s < INFINITY)
        used = add(text, bytes, used, ", until %g s", plan->until_s);
    add(text, bytes, used, ", seed %llu", (unsigned long long)plan->seed);
}

/* ---- Events ------------------------------------------------------------------------------------------- */

/* Four random words of event `number`: block 0 for the event itself, others for choices. */
static void draw(const tutti__chaos_schedule *schedule, tutti__chaos_kind kind, uint32_t number,
                 uint32_t block, uint32_t words[4])
{
    tutti__philox(schedule->plan->seed,
                  (tutti__philox_counter){{number, (uint32_t)kind, schedule->node, block}}, words);
}

/* The next event after `from_s`. */
static tutti__chaos_event event_after(const tutti__chaos_schedule *schedule, tutti__chaos_kind kind,
                                      uint32_t number, double from_s)
{
    const tutti__chaos_plan *plan = schedule->plan;
    tutti__chaos_event event = {INFINITY, kind, number, 1};
    uint32_t words[4];
    double at_s;

    if (!(plan->rate[kind] > 0))
        return event;
    draw(schedule, kind, number, 0, words);
    at_s = from_s - log1p(-(double)words[0] / 4294967296.0) / plan->rate[kind];
    event.n = 1 + (int)((uint64_t)words[1] * (uint64_t)plan->burst >> 32);
    if (at_s <= plan->until_s)
        event.at_s = at_s;
    return event;
}

void tutti__chaos_schedule_begin(tutti__chaos_schedule *schedule, const tutti__chaos_plan *plan,
                                 int node)
{
    *schedule = (tutti__chaos_schedule){.plan = plan, .node = (uint32_t)node};
    for (int kind = 0; kind < TUTTI__CHAOS_KINDS; kind++)
        schedule->next[kind] = event_after(schedule, (tutti__chaos_kind)kind, 0, plan->after_s);
}

const tutti__chaos_event *tutti__chaos_schedule_peek(const tutti__chaos_schedule *schedule)
{
    const tutti__chaos_event *first = &schedule->next[0];

    for (int kind = 1; kind < TUTTI__CHAOS_KINDS; kind++)
        if (schedule->next[kind].at_s < first->at_s)
            first = &schedule->next[kind];
    return first;
}

tutti__chaos_event tutti__chaos_schedule_take(tutti__chaos_schedule *schedule)
{
    const tutti__chaos_event event = *tutti__chaos_schedule_peek(schedule);

    if (event.at_s < INFINITY)
        schedule->next[event.kind] =
            event_after(schedule, event.kind, event.number + 1, event.at_s);
    return event;
}

int tutti__chaos_choice(const tutti__chaos_schedule *schedule, const tutti__chaos_event *event,
                        int i, int n)
{
    uint32_t words[4];

    draw(schedule, event->kind, event->number, 1 + (uint32_t)i, words);
    return (int)((uint64_t)words[0] * (uint64_t)n >> 32);
}
