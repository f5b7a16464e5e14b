/* chaos.c -- disturbs the workers of this node when an event is due.   SPDX-License-Identifier: MIT */
#include "launch/chaos/chaos.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PERIOD_NS = 40 * 1000 * 1000 }; /* in which a slowed worker runs once and is stopped once */

static uint64_t ns(double seconds)
{
    return seconds < 1e10 ? (uint64_t)(seconds * 1e9) : UINT64_MAX / 2;
}

static double seconds_since(uint64_t begin_ns)
{
    return (double)(tutti__now_ns() - begin_ns) * 1e-9;
}

tutti_status tutti__chaos_open(tutti__chaos *chaos, tutti__workers *workers)
{
    const int n = workers->job->opts.n;

    *chaos = (tutti__chaos){.plan = workers->job->opts.chaos, .workers = workers};
    if (!chaos->plan)
        return TUTTI_OK;
    chaos->keep = chaos->plan->keep >= 0 ? chaos->plan->keep : n > 1;
    chaos->victims = calloc((size_t)n, sizeof *chaos->victims);
    if (!chaos->victims)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %d workers", n);
    if (chaos->plan->flip_rate > 0) {
        workers->job->flip_counter = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (workers->job->flip_counter < 0)
            return tutti__fail_errno(errno, "no descriptor to count flipped bits");
    }
    return TUTTI_OK;
}

static void begin(tutti__chaos *chaos)
{
    char text[512];

    tutti__chaos_describe(chaos->plan, text, sizeof text);
    tutti__console_say(
        chaos->workers->console,
        "chaos IS ON, this job's workers are disturbed on purpose: %s; %d of %d left alone", text,
        chaos->keep, chaos->workers->job->opts.n);
    tutti__chaos_schedule_begin(&chaos->schedule, chaos->plan,
                                chaos->workers->job->round.group_rank);
    chaos->begin_ns = tutti__now_ns();
}

/* ---- Choosing victims ----------------------------------------------------------------------------------- */

/* Not at the job's end, when dead workers are not replaced. */
static bool may_strike(const tutti__workers *w)
{
    if (w->phase != TUTTI__RUNNING || w->suspended || w->finished)
        return false;
    if (w->elastic)
        return true;
    for (int i = 0; i < w->job->opts.n; i++)
        if (w->list[i].pid && !w->list[i].running && w->list[i].status == 0)
            return false;
    return true;
}

/* The state of worker i; reset for a replacement. */
static tutti__chaos_victim *victim_of(const tutti__chaos *chaos, int i)
{
    tutti__chaos_victim *v = &chaos->victims[i];

    if (v->pid != chaos->workers->list[i].pid)
        *v = (tutti__chaos_victim){.pid = chaos->workers->list[i].pid};
    return v;
}

static bool is_alive(const tutti__chaos *chaos, int i)
{
    return chaos->workers->list[i].running && !victim_of(chaos, i)->killed;
}

/* In an elastic job that has begun, a worker without the state cannot continue alone. */
static bool has_state(const tutti__workers *w, int i)
{
    bool has_begun = false;

    for (int k = 0; k < w->job->opts.n; k++)
        has_begun = has_begun || w->list[k].channel.step > 0;
    return !w->elastic || !has_begun || w->list[i].channel.step > 0;
}

/* Whether it is working, as far as known. */
static bool is_sound(const tutti__chaos *chaos, int i)
{
    return is_alive(chaos, i) && !chaos->workers->list[i].stopped_ns &&
           victim_of(chaos, i)->until_ns == 0 && has_state(chaos->workers, i);
}

/* Whether worker i may be hit, if n_sound workers are sound. */
static bool is_open(const tutti__chaos *chaos, tutti__chaos_kind kind, int i, int n_sound)
{
    if (!is_alive(chaos, i))
        return false;
    if (kind == TUTTI__CHAOS_CUT)
        return !chaos->workers->list[i].stopped_ns;
    if (is_sound(chaos, i))
        return n_sound > chaos->keep;
    return kind == TUTTI__CHAOS_KILL;
}

/* One of the workers that may be hit, by the event's random choice `k`; -1: none. */
static int choose(const tutti__chaos *chaos, const tutti__chaos_event *event, int k,
                  const bool *chosen)
{
    const int n = chaos->workers->job->opts.n;
    int n_sound = 0, n_open = 0, choice;

    for (int i = 0; i < n; i++)
        n_sound += is_sound(chaos, i);
    for (int i = 0; i < n; i++)
        n_open += !chosen[i] && is_open(chaos, event->kind, i, n_sound);
    if (n_open == 0)
        return -1;
    choice = tutti__chaos_choice(&chaos->schedule, event, k, n_open);
    for (int i = 0; i < n; i++)
        if (!chosen[i] && is_open(chaos, event->kind, i, n_sound) && choice-- == 0)
            return i;
    return -1;
}

/* ---- Strikes ------------------------------------------------------------------------------------------ */

static void set_stopped(tutti__chaos *chaos, int i, bool stopped)
{
    if (chaos->victims[i].stopped != stopped)
        tutti__worker_signal(&chaos->workers->list[i], stopped ? SIGSTOP : SIGCONT);
    chaos->victims[i].stopped = stopped;
}

/* False: it has no connections. */
static bool cut(tutti__chaos *chaos, int i, double at_s)
{
    const tutti__worker *worker = &chaos->workers->list[i];
    int error, n = tutti__chaos_cut(worker->pid, &error);

    chaos->connections += n;
    tutti__console_say(chaos->workers->console,
                       "chaos at %.3f s: rank %d (process %d): %d TCP connection%s cut%s%s", at_s,
                       worker->rank, (int)worker->pid, n, n == 1 ? "" : "s",
                       error ? "; others could not be reached: " : "",
                       error ? strerror(error) : "");
    return n > 0;
}

static bool strike(tutti__chaos *chaos, tutti__chaos_kind kind, int i)
{
    const tutti__chaos_plan *plan = chaos->plan;
    const tutti__worker *worker = &chaos->workers->list[i];
    const double at_s = seconds_since(chaos->begin_ns);
    tutti__chaos_victim *v = victim_of(chaos, i);

    switch (kind) {
    case TUTTI__CHAOS_KILL:
        v->killed = true;
        tutti__worker_signal(worker, SIGKILL);
        tutti__console_say(chaos->workers->console, "chaos at %.3f s: rank %d (process %d) killed",
                           at_s, worker->rank, (int)worker->pid);
        break;
    case TUTTI__CHAOS_STOP:
        v->until_ns = tutti__now_ns() + ns(plan->stop_s);
        set_stopped(chaos, i, true);
        tutti__console_say(chaos->workers->console,
                           "chaos at %.3f s: rank %d (process %d) stopped for %g s", at_s,
                           worker->rank, (int)worker->pid, plan->stop_s);
        break;
    case TUTTI__CHAOS_SLOW:
        v->slowed = chaos->workers->list[i].slowed = true;
        v->flip_ns = tutti__now_ns();
        v->until_ns = v->flip_ns + ns(plan->slow_s);
        tutti__console_say(chaos->workers->console,
                           "chaos at %.3f s: rank %d (process %d) slowed to 1/%g for %g s", at_s,
                           worker->rank, (int)worker->pid, plan->slow_factor, plan->slow_s);
        break;
    default:
        return cut(chaos, i, at_s);
    }
    return true;
}

static void strike_all(tutti__chaos *chaos, const tutti__chaos_event *event)
{
    bool *chosen = calloc((size_t)chaos->workers->job->opts.n, sizeof *chosen);
    int n_hit = 0;

    for (int k = 0; chosen && k < event->n && may_strike(chaos->workers); k++) {
        int i = choose(chaos, event, k, chosen);

        if (i < 0)
            break;
        chosen[i] = true;
        n_hit += strike(chaos, event->kind, i);
    }
    chaos->hits[event->kind] += n_hit;
    chaos->misses += n_hit == 0;
    free(chosen);
}

/* ---- Time --------------------------------------------------------------------------------------------- */

/* Continues stopped workers when their time is over. */
static void go_on(tutti__chaos *chaos, uint64_t now, bool ends)
{
    const uint64_t run_ns = (uint64_t)(PERIOD_NS / chaos->plan->slow_factor);

    for (int i = 0; i < chaos->workers->job->opts.n; i++) {
        tutti__chaos_victim *v = victim_of(chaos, i);

        if (v->until_ns == 0)
            continue;
        if (ends || now >= v->until_ns) {
            set_stopped(chaos, i, false);
            v->until_ns = 0;
            v->slowed = chaos->workers->list[i].slowed = false;
        } else if (v->slowed && now >= v->flip_ns) {
            set_stopped(chaos, i, !v->stopped);
            v->flip_ns = now + (v->stopped ? PERIOD_NS - run_ns : run_ns);
        }
    }
}

static uint64_t next_event_ns(const tutti__chaos *chaos)
{
    const double at_s = tutti__chaos_schedule_peek(&chaos->schedule)->at_s;

    return at_s < INFINITY ? chaos->begin_ns + ns(at_s) : UINT64_MAX;
}

void tutti__chaos_advance(tutti__chaos *chaos)
{
    uint64_t now = tutti__now_ns();

    if (!chaos->plan || (!chaos->begin_ns && chaos->workers->phase != TUTTI__RUNNING) ||
        chaos->workers->suspended)
        return;
    if (!chaos->begin_ns)
        begin(chaos);
    go_on(chaos, now, !may_strike(chaos->workers));
    while (next_event_ns(chaos) <= now) {
        tutti__chaos_event event = tutti__chaos_schedule_take(&chaos->schedule);

        strike_all(chaos, &event);
    }
}

uint64_t tutti__chaos_deadline(const tutti__chaos *chaos)
{
    uint64_t next;

    if (!chaos->plan || !may_strike(chaos->workers))
        return UINT64_MAX;
    if (!chaos->begin_ns)
        return 0;
    next = next_event_ns(chaos);
    for (int i = 0; i < chaos->workers->job->opts.n; i++) {
        const tutti__chaos_victim *v = victim_of(chaos, i);

        if (v->until_ns && v->until_ns < next)
            next = v->until_ns;
        if (v->until_ns && v->slowed && v->flip_ns < next)
            next = v->flip_ns;
    }
    return next;
}

/* ", 3 bits flipped", by its workers; "" if they are asked for none. */
static void close_flips(tutti__chaos *chaos, char *text, size_t bytes)
{
    int *counter = &chaos->workers->job->flip_counter;
    uint64_t n = 0; /* as after a read that fails, since nobody has counted */
    unsigned flipped;

    text[0] = '\0';
    if (*counter <= 0)
        return;
    (void)!read(*counter, &n, sizeof n);
    close(*counter);
    *counter = 0;
    flipped = (unsigned)(n % TUTTI__FLIP_MISSED);
    chaos->misses += (int)(n / TUTTI__FLIP_MISSED);
    snprintf(text, bytes, ", %u bit%s flipped", flipped, tutti__s(flipped));
}

void tutti__chaos_close(tutti__chaos *chaos)
{
    const int *hits = chaos->hits;
    char flips[64];

    if (!chaos->plan)
        return;
    close_flips(chaos, flips, sizeof flips);

    if (chaos->begin_ns)
        tutti__console_say(
            chaos->workers->console,
            "chaos: in %.1f s %d killed, %d stopped, %d cut off (%d connection%s), %d slowed%s; %d "
            "event%s had no target; seed %llu",
            seconds_since(chaos->begin_ns), hits[TUTTI__CHAOS_KILL], hits[TUTTI__CHAOS_STOP],
            hits[TUTTI__CHAOS_CUT], chaos->connections, tutti__s((uint64_t)chaos->connections),
            hits[TUTTI__CHAOS_SLOW], flips, chaos->misses, tutti__s((uint64_t)chaos->misses),
            (unsigned long long)chaos->plan->seed);
    free(chaos->victims);
    *chaos = (tutti__chaos){0};
}
