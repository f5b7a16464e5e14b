/* faults.c -- which ranks die or are slow, and which hosts are cut off, as a command line says.   SPDX-License-Identifier: MIT */
#include "cli/simulate/simulate.h"

#include "simulate/chance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One of "7@2ms,any@100us": the text between commas, copied; NULL: there is no further one. */
static const char *next_one(const char **rest_p, char text[64])
{
    const size_t n = *rest_p ? strcspn(*rest_p, ",") : 0;

    if (!*rest_p)
        return NULL;
    snprintf(text, 64, "%.*s", (int)(n < 63 ? n : 63), *rest_p);
    *rest_p = (*rest_p)[n] ? *rest_p + n + 1 : NULL;
    return text;
}

/* "100us", "2ms", "0.5s", "100": microseconds. Cuts it off at `end`. */
static bool read_time(const char *text, double *us_p)
{
    static const struct {
        const char *unit;
        double us;
    } units[] = {{"us", 1}, {"ms", 1e3}, {"s", 1e6}};
    char number[64];

    snprintf(number, sizeof number, "%.63s", text);
    for (size_t i = 0; i < TUTTI__COUNT_OF(units); i++)
        if (tutti__ends_in(number, units[i].unit)) {
            number[strlen(number) - strlen(units[i].unit)] = '\0';
            return tutti__parse_double(number, us_p) && (*us_p *= units[i].us) >= 0 &&
                   isfinite(*us_p);
        }
    return tutti__parse_double(number, us_p) && *us_p >= 0 && isfinite(*us_p);
}

/* A rank or host, or "any". */
static bool read_place(const char *text, int n, uint64_t *chance, int *place_p)
{
    int64_t place;

    if (strcmp(text, "any") == 0) {
        *place_p = (int)(tutti__chance_next(chance) % (uint64_t)n);
        return true;
    }
    if (!tutti__parse_int64(text, &place) || place < 0 || place >= n)
        return false;
    *place_p = (int)place;
    return true;
}

static tutti_status refuse(const char *flag, const char *text, const char *expected, int n,
                           const char *what)
{
    return tutti__fail(TUTTI_ERR_ARG, "%s: \"%.60s\" is not %s, with %s from 0 to %d, or any", flag,
                       text, expected, what, n - 1);
}

static tutti_status read_deaths(tutti__simulate_faults *f, const char *list, int ranks,
                                uint64_t *chance)
{
    char text[64], copy[64];

    for (const char *one; (one = next_one(&list, text));) {
        tutti__sim_death *d = &f->deaths[f->n_deaths];
        char *at;

        snprintf(copy, sizeof copy, "%s", one);
        at = strchr(copy, '@');
        if (at)
            *at = '\0';
        if (!at || !read_place(copy, ranks, chance, &d->rank) || !read_time(at + 1, &d->at_us))
            return refuse("--kill", one, "RANK@TIME, such as 7@2ms", ranks, "ranks");
        if (++f->n_deaths == TUTTI__SIMULATE_LIST)
            return tutti__fail(TUTTI_ERR_ARG, "--kill: more than %d ranks",
                               TUTTI__SIMULATE_LIST - 1);
    }
    return TUTTI_OK;
}

static tutti_status read_slow(tutti__simulate_faults *f, const char *list, int ranks,
                              uint64_t *chance)
{
    char text[64], copy[64];

    for (const char *one; (one = next_one(&list, text));) {
        tutti__sim_slow *d = &f->slow[f->n_slow];
        char *at;

        snprintf(copy, sizeof copy, "%s", one);
        at = strchr(copy, ':');
        if (at)
            *at = '\0';
        if (!at || !read_place(copy, ranks, chance, &d->rank) ||
            !tutti__parse_double(at + 1, &d->factor) || !(d->factor > 0 && d->factor <= 1e6))
            return refuse("--slow", one, "RANK:FACTOR, such as 3:10", ranks, "ranks");
        if (++f->n_slow == TUTTI__SIMULATE_LIST)
            return tutti__fail(TUTTI_ERR_ARG, "--slow: more than %d ranks",
                               TUTTI__SIMULATE_LIST - 1);
    }
    return TUTTI_OK;
}

/* "4-7@1ms+20ms"; without a duration, for good. */
static bool read_cut(char *text, int hosts, uint64_t *chance, tutti__cut *cut)
{
    char *at = strchr(text, '@'), *plus, *to;
    double lasts = INFINITY;

    if (!at)
        return false;
    *at++ = '\0';
    plus = strchr(at, '+');
    if (plus)
        *plus++ = '\0';
    to = strchr(text, '-');
    if (to)
        *to++ = '\0';
    if (!read_place(text, hosts, chance, &cut->first) || !read_time(at, &cut->from_us) ||
        (plus && !read_time(plus, &lasts)))
        return false;
    cut->last = cut->first;
    cut->to_us = cut->from_us + lasts;
    return !to || (read_place(to, hosts, chance, &cut->last) && cut->last >= cut->first);
}

static tutti_status read_cuts(tutti__simulate_faults *f, const char *list, int hosts,
                              uint64_t *chance)
{
    char text[64], copy[64];

    for (const char *one; (one = next_one(&list, text));) {
        snprintf(copy, sizeof copy, "%s", one);
        if (!read_cut(copy, hosts, chance, &f->cuts[f->n_cuts]))
            return refuse("--partition", one,
                          "HOST@TIME, HOST-HOST@TIME or HOST-HOST@TIME+DURATION, such as "
                          "4-7@1ms+20ms",
                          hosts, "hosts");
        if (++f->n_cuts == TUTTI__SIMULATE_LIST)
            return tutti__fail(TUTTI_ERR_ARG, "--partition: more than %d cuts",
                               TUTTI__SIMULATE_LIST - 1);
    }
    return TUTTI_OK;
}

tutti_status tutti__simulate_faults_read(tutti__simulate_faults *f,
                                         const tutti__simulate_calls *ask, const tutti__machines *m)
{
    uint64_t chance = ask->seed;

    f->n_deaths = f->n_slow = f->n_cuts = 0;
    TUTTI_TRY(read_deaths(f, ask->kill, m->ranks, &chance));
    TUTTI_TRY(read_slow(f, ask->slow, m->ranks, &chance));
    return read_cuts(f, ask->partition, m->hosts, &chance);
}
