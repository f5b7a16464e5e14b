/* optim.c -- common to all optimizers: state in flat memory, and the step.   SPDX-License-Identifier: MIT */
#include "optim/optim.h"
#include "tensor/parallel.h"
#include "tensor/op_profile.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Construction ------------------------------------------------------------------------------------------ */

tutti_status tutti__optim_check(const char *rule, const char *option, double value, double low,
                                double high)
{
    if (value >= low && value < high)
        return TUTTI_OK;
    if (isinf(high))
        return tutti__fail(TUTTI_ERR_ARG, "%s: %s is %g, expected a number >= %g", rule, option,
                           value, low);
    return tutti__fail(TUTTI_ERR_ARG, "%s: %s is %g, expected a number >= %g and < %g", rule,
                       option, value, low, high);
}

double tutti__optim_decimal(float value)
{
    char text[32];

    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            return strtod(text, NULL);
    }
    return (double)value; /* infinity or NaN */
}

double tutti__optim_option(float value, double by_default)
{
    return value == 0 || value == TUTTI_ZERO ? tutti__or((double)value, by_default)
                                             : tutti__optim_decimal(value);
}

tutti_status tutti__optim_new(tutti_optim **optim_p, tutti_module *m, const tutti__optim_rule *rule,
                              float lr, const tutti__optim_options *options)
{
    tutti_optim *optim;

    TUTTI_TRY(tutti_module_status(m));
    TUTTI_TRY(tutti__optim_check(rule->name, "lr", (double)lr, 0, INFINITY));
    if (tutti_module_n_parameters(m) == 0)
        return tutti__fail(TUTTI_ERR_ARG, "%s: %s has no parameters to train", rule->name,
                           tutti__module_path(m));
    optim = tutti__alloc(sizeof *optim);
    if (!optim)
        return TUTTI_ERR_MEMORY;
    *optim = (tutti_optim){.entry = {m->root->optims, &m->root->optims},
                           .rule = rule,
                           .module = m,
                           .cx = m->cx,
                           .lr = lr};
    optim->groups = tutti__alloc(sizeof *optim->groups);
    if (!optim->groups) {
        free(optim);
        return TUTTI_ERR_MEMORY;
    }
    optim->groups[0] = (tutti__optim_group){.options = *options, .lr_factor = 1};
    optim->n_groups = 1;
    if (optim->entry.next)
        optim->entry.next->link = &optim->entry.next;
    m->root->optims = &optim->entry;
    *optim_p = optim;
    return TUTTI_OK;
}

static void leave_list(const tutti__optim_entry *entry)
{
    if (!entry->link)
        return;
    *entry->link = entry->next;
    if (entry->next)
        entry->next->link = entry->link;
}

static void free_state(const tutti_optim *optim, float *const state[TUTTI__OPTIM_STATES])
{
    const tutti_ctx *cx = optim->cx;

    for (int k = 0; k < TUTTI__OPTIM_STATES; k++)
        if (state[k] && optim->offloaded)
            cx->device_ops->host_free(cx->device, state[k]);
        else if (state[k])
            cx->device_ops->free(cx->device, state[k]);
}

static void forget_later(tutti_optim *optim)
{
    if (optim->later.free)
        optim->later.free(optim->later.self);
    memset(&optim->later, 0, sizeof optim->later);
}

void tutti_optim_free(tutti_optim *optim)
{
    if (!optim)
        return;
    leave_list(&optim->entry);
    forget_later(optim);
    tutti__optim_free_whole(optim);
    free_state(optim, optim->state);
    tutti__optim_free_parts(optim);
    if (optim->scratch)
        optim->cx->device_ops->free(optim->cx->device, optim->scratch);
    free(optim->matrix);
    free(optim->steps);
    free(optim->offsets);
    free(optim->runs);
    free(optim->groups);
    free(optim->group_of);
    free(optim);
}

void tutti_optim_zero_grad(tutti_optim *optim)
{
    tutti_module_zero_grad(optim ? optim->module : NULL);
}

void tutti_optim_set_lr(tutti_optim *optim, float lr)
{
    if (optim)
        optim->lr = (float)tutti__or((double)lr, 0);
}

float tutti_optim_lr(const tutti_optim *optim)
{
    return optim ? optim->lr : 0;
}

/* ---- State ------------------------------------------------------------------------------------------------ */

static tutti_status alloc_state(const tutti_optim *optim, size_t n,
                                float *state[TUTTI__OPTIM_STATES])
{
    const tutti_ctx *cx = optim->cx;

    for (int k = 0; k < TUTTI__OPTIM_STATES && optim->rule->state_names[k]; k++) {
        state[k] = optim->offloaded ? cx->device_ops->host_alloc(cx->device, n * sizeof(float))
                                    : cx->device_ops->alloc(cx->device, n * sizeof(float), true);
        if (state[k] && optim->offloaded)
            memset(state[k], 0, n * sizeof(float));
        if (!state[k]) {
            free_state(optim, state);
            memset(state, 0, TUTTI__OPTIM_STATES * sizeof *state);
            return TUTTI_ERR_MEMORY;
        }
    }
    return TUTTI_OK;
}

void tutti__optim_free_whole(tutti_optim *optim)
{
    for (int k = 0; k < TUTTI__OPTIM_STATES; k++) {
        free(optim->whole[k]);
        optim->whole[k] = NULL;
    }
}

size_t tutti__optim_ranges(const tutti_optim *optim, tutti__range *all,
                           const tutti__range **ranges_p)
{
    if (optim->sharding) {
        *ranges_p = optim->sharding->ranges;
        return optim->sharding->n;
    }
    *all = (tutti__range){.end = optim->module->root->n_flat, .whole = true};
    *ranges_p = all;
    return 1;
}

/* Copies unsharded state from optim->offsets to its new offsets, as far as these are this rank's. Not that of frozen parameters that
 * were never updated, whose pages of zeros stay unused. */
static tutti_status move_state(const tutti_optim *optim, float *const state[])
{
    const struct tutti_root *root = optim->module->root;
    const tutti__range *ranges;
    tutti__range all;
    size_t n = tutti__optim_ranges(optim, &all, &ranges),
           at = 0; /* where the range begins in state */

    for (size_t r = 0; r < n; at += tutti__range_state(&ranges[r]), r++)
        for (size_t i = 0; i < root->parameters.n; i++) {
            const size_t begin = root->offsets[i];
            const size_t end =
                begin + (size_t)tutti_shape_count(root->parameters.p[i]->tensor->shape);
            const size_t low = begin > ranges[r].begin ? begin : ranges[r].begin;
            const size_t high = end < ranges[r].end ? end : ranges[r].end;

            if (optim->steps[i] == 0 && !root->parameters.p[i]->parameter.requires_grad)
                continue;
            for (int k = 0; k < TUTTI__OPTIM_STATES && low < high && optim->state[k]; k++)
                TUTTI_TRY(tutti__copy(tutti__optim_stream(optim),
                                      state[k] + at + (low - ranges[r].begin),
                                      optim->state[k] + optim->offsets[i] + (low - begin),
                                      (high - low) * sizeof(float)));
        }
    return TUTTI_OK;
}

static tutti_status alloc_tables(tutti_optim *optim, size_t n)
{
    if (!optim->steps)
        optim->steps = tutti__alloc(n * sizeof *optim->steps);
    if (!optim->offsets)
        optim->offsets = tutti__alloc(n * sizeof *optim->offsets);
    if (!optim->runs)
        optim->runs = tutti__alloc(n * sizeof *optim->runs);
    return optim->steps && optim->offsets && optim->runs ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

/* New state for the ranges of optim->sharding in the current layout, from the old, which is unsharded. */
static tutti_status renew_state(tutti_optim *optim)
{
    const struct tutti_root *root = optim->module->root;
    float *state[TUTTI__OPTIM_STATES] = {0};
    const tutti__range *ranges;
    tutti__range all;
    size_t n = tutti__optim_ranges(optim, &all, &ranges), n_state = 0;
    tutti_status status;

    for (size_t r = 0; r < n; r++)
        n_state += tutti__range_state(&ranges[r]);
    if (!optim->cx->in_step) /* before there is more: else this is the moment of the most memory */
        tutti__flat_free_retired(optim->module->root);
    TUTTI_TRY(alloc_state(optim, n_state ? n_state : 1, state));
    status = move_state(optim, state);
    if (status != TUTTI_OK) {
        free_state(optim, state);
        return status;
    }
    free_state(optim, optim->state);
    memcpy(optim->state, state, sizeof state);
    memcpy(optim->offsets, root->offsets, root->parameters.n * sizeof *optim->offsets);
    optim->n_state = n_state;
    optim->layouts = root->layouts;
    return TUTTI_OK;
}

tutti_status tutti__optim_know_updates(tutti_optim *optim)
{
    tutti_status (*load)(void *self, tutti_optim *optim) = optim->later.load_updates;

    if (!load)
        return TUTTI_OK;
    TUTTI_TRY(alloc_tables(optim, optim->module->root->parameters.n));
    optim->later.load_updates = NULL;
    return load(optim->later.self, optim);
}

static tutti_status load_later(tutti_optim *optim)
{
    tutti_status status = tutti__optim_know_updates(optim);

    if (status == TUTTI_OK && optim->later.load)
        status = optim->later.load(optim->later.self, optim);
    forget_later(optim);
    return status;
}

/* State that was written before there were shares, too. */
static tutti_status offload_state(tutti_optim *optim)
{
    const tutti_ctx *cx = optim->cx;
    float *state[TUTTI__OPTIM_STATES] = {0}, *device[TUTTI__OPTIM_STATES];
    tutti_status status;

    memcpy(device, optim->state, sizeof device);
    optim->offloaded = true;
    if (!device[0])
        return TUTTI_OK;
    status = alloc_state(optim, optim->n_state, state);
    for (int k = 0; k < TUTTI__OPTIM_STATES && state[k] && status == TUTTI_OK; k++)
        status = tutti__read(cx->stream, state[k], device[k], optim->n_state * sizeof(float));
    if (status != TUTTI_OK)
        free_state(optim, state);
    optim->offloaded = false;
    TUTTI_TRY(status);
    free_state(optim, device);
    optim->offloaded = true;
    memcpy(optim->state, state, sizeof state);
    return TUTTI_OK;
}

tutti_status tutti__optim_prepare(tutti_optim *optim, const tutti__sharding *sharding)
{
    struct tutti_root *root = optim->module->root;
    tutti_status status;

    TUTTI_TRY(tutti__flat_prepare(root));
    if (sharding)
        TUTTI_TRY(sharding->prepare(sharding->self));
    if (optim->layouts == root->layouts && optim->sharding == sharding)
        return load_later(optim);
    if (optim->sharding)
        return tutti__fail(TUTTI_ERR_STATE,
                           "%s: each rank has a share of the state, for another layout of the "
                           "parameters; free the optimizer before ZeRO and DDP",
                           optim->rule->name);
    TUTTI_TRY(alloc_tables(optim, root->parameters.n));
    if (sharding && sharding->offloads && !optim->offloaded)
        TUTTI_TRY(offload_state(optim));
    optim->sharding = sharding;
    status = renew_state(optim);
    if (status != TUTTI_OK)
        optim->sharding = NULL;
    return status == TUTTI_OK ? load_later(optim) : status;
}

tutti_status tutti__optim_load_now(tutti_optim *optim)
{
    const tutti__sharding *sharding = optim->module->root->sharding;

    if (!optim->later.load)
        return TUTTI_OK;
    if (sharding && !optim->sharding && sharding->prepare(sharding->self) == TUTTI_ERR_STATE)
        sharding = NULL; /* ZeRO 1 and 2 have no shares before a backward */
    return tutti__optim_prepare(optim, sharding);
}

tutti_status tutti__optim_take_whole(tutti_optim *optim)
{
    const size_t n = optim->module->root->n_flat;
    float *state[TUTTI__OPTIM_STATES] = {0};
    tutti_status status = alloc_state(optim, n, state);

    for (int k = 0; k < TUTTI__OPTIM_STATES && state[k] && status == TUTTI_OK; k++)
        status = tutti__copy_in(tutti__optim_stream(optim), state[k], optim->whole[k],
                                n * sizeof(float));
    if (status == TUTTI_OK)
        status = tutti_stream_wait(optim->cx->stream);
    free_state(optim, status == TUTTI_OK ? optim->state : state);
    TUTTI_TRY(status);
    memcpy(optim->state, state, sizeof state);
    optim->n_state = n;
    optim->sharding = NULL;
    tutti__optim_free_whole(optim);
    return TUTTI_OK;
}

bool tutti__optim_drop_share(tutti_optim *optim)
{
    const bool lost = optim->rule->state_names[0] != NULL;

    (void)!tutti_stream_wait(optim->cx->stream); /* a failed update may still be running */
    tutti__optim_free_whole(optim);
    free_state(optim, optim->state);
    memset(optim->state, 0, sizeof optim->state);
    if (lost)
        memset(optim->steps, 0, optim->module->root->parameters.n * sizeof *optim->steps);
    optim->n_state = 0;
    optim->sharding = NULL;
    optim->layouts = 0; /* no layout: the next step allocates it again */
    return lost;
}

/* ---- The step --------------------------------------------------------------------------------------------- */

static bool is_due(const tutti_optim *optim, const tutti__state *state)
{
    return tutti__has_gradient(&state->parameter) && tutti__state_below(state, optim->module);
}

/* Counts an update of every parameter that has a gradient, and merges neighbours into runs. */
static size_t plan_runs(tutti_optim *optim)
{
    const struct tutti_root *root = optim->module->root;
    size_t n = 0;

    for (size_t i = 0; i < root->parameters.n; i++) {
        size_t index = root->placement[i], begin = root->offsets[index];
        size_t group = tutti__optim_group_of(optim, index);
        tutti__state *state = root->parameters.p[index];
        size_t next =
            i + 1 < root->parameters.n ? root->offsets[root->placement[i + 1]] : root->n_flat;
        tutti__stretch *last = n > 0 ? &optim->runs[n - 1] : NULL;

        if (!is_due(optim, state))
            continue;
        optim->steps[index]++;
        state->tensor->kernel_cache_step = 0; /* it has the old values */
        if (optim->rule->update_whole)
            next = begin + (size_t)tutti_shape_count(state->tensor->shape);
        else if (last && last->end == begin && last->group == group &&
                 last->step == optim->steps[index]) {
            last->end = next;
            continue;
        }
        optim->runs[n++] = (tutti__stretch){begin, next, optim->steps[index], group, state->tensor};
    }
    return n;
}

/* Elements per job: enough to be worth a thread. */
#define PART ((size_t)1 << 16)

typedef struct update_job {
    const tutti_optim *optim;
    tutti__update *update;
    const tutti__flat_run *run;
    _Atomic int status;
    char text[2048]; /* the first failure's: messages are thread-local */
} update_job;

static void update_part(void *arg, int64_t i, int member)
{
    update_job *t = arg;
    const size_t first = (size_t)i * PART;
    tutti__flat_run run = *t->run;
    tutti_status status;
    int none = TUTTI_OK;

    (void)member;
    run.p += first;
    run.g += first;
    for (int k = 0; k < TUTTI__OPTIM_STATES; k++)
        if (run.state[k])
            run.state[k] += first;
    if (run.direction)
        run.direction += first;
    run.n = run.n - first < PART ? run.n - first : PART;
    status = t->update(tutti__optim_stream(t->optim), &run);
    if (status != TUTTI_OK && atomic_compare_exchange_strong(&t->status, &none, (int)status))
        snprintf(t->text, sizeof t->text, "%s", tutti_last_error());
}

tutti_status tutti__optim_elementwise(const tutti_optim *optim, tutti__update *update,
                                      const tutti__flat_run *run)
{
    update_job t;

    t.optim = optim;
    t.update = update;
    t.run = run;
    t.status = TUTTI_OK;

    if (!tutti__on_host(tutti__optim_stream(optim)))
        return update(optim->cx->stream, run);
    tutti__parallel(optim->cx, update_part, &t, (int64_t)((run->n + PART - 1) / PART));
    return t.status == TUTTI_OK ? TUTTI_OK : tutti__fail_again((tutti_status)t.status, t.text);
}

tutti_status tutti__optim_scratch(tutti_optim *optim, size_t n, float **p)
{
    const tutti_ctx *cx = optim->cx;

    if (n > optim->n_scratch) {
        if (optim->scratch)
            cx->device_ops->free(cx->device, optim->scratch);
        optim->n_scratch = 0;
        optim->scratch = cx->device_ops->alloc(cx->device, n * sizeof **p, false);
        if (!optim->scratch)
            return TUTTI_ERR_MEMORY;
        optim->n_scratch = n;
    }
    *p = optim->scratch;
    return TUTTI_OK;
}

/* Bytes: parameters and state are read and written, gradients read. */
static void note(const tutti_optim *optim, const tutti__flat_run *run, uint64_t begin_ns)
{
    const tutti_shape shape = TUTTI_SHAPE((int64_t)run->n);
    int arrays = 3;

    for (int k = 0; k < TUTTI__OPTIM_STATES; k++)
        arrays += run->state[k] ? 2 : 0;
    tutti__profile_add(
        optim->cx,
        &(tutti__profile_work){.op = optim->rule->name,
                               .pass = "update",
                               .x = &shape,
                               .y = &shape,
                               .bytes = (double)arrays * (double)run->n * sizeof(float)},
        begin_ns, tutti__now_ns());
}

bool tutti__optim_part(const tutti_optim *optim, const tutti__stretch *stretch,
                       const tutti__range *range, size_t at, tutti__flat_run *run)
{
    const struct tutti_root *root = optim->module->root;
    size_t begin, end;

    if (!tutti__range_meets(range, stretch->begin, stretch->end, &begin, &end))
        return false;
    *run = (tutti__flat_run){.here = range->host != NULL,
                             .step = stretch->step,
                             .lr = optim->groups[stretch->group].lr,
                             .options = &optim->groups[stretch->group].options};
    run->p = range->host ? range->host + (begin - range->begin) : root->flat_parameters + begin;
    run->g = root->flat_gradients + begin;
    run->n = end - begin;
    for (int k = 0; k < TUTTI__OPTIM_STATES; k++)
        run->state[k] = optim->state[k] ? optim->state[k] + at + (begin - range->begin) : NULL;
    if (optim->rule->update_whole)
        run->parameter = stretch->first;
    return true;
}

/* Updates the part of a run within a range, whose state begins at `at`. */
static tutti_status update(tutti_optim *optim, const tutti__stretch *stretch,
                           const tutti__range *range, size_t at)
{
    const uint64_t begin_ns = tutti__profile_begin(optim->cx);
    tutti__flat_run run;

    if (!tutti__optim_part(optim, stretch, range, at, &run))
        return TUTTI_OK;
    if (optim->rule->update_whole) {
        TUTTI_TRY(optim->rule->update_whole(optim, &run));
    } else if (optim->offloaded) {
        TUTTI_TRY(tutti__optim_update_offloaded(optim, &run));
    } else {
        TUTTI_TRY(tutti__optim_elementwise(optim, optim->rule->update, &run));
    }
    if (begin_ns)
        note(optim, &run, begin_ns);
    return TUTTI_OK;
}

/* Of a group, for the next step. */
static double rate_of(const tutti_optim *optim, const tutti__optim_group *group)
{
    const double lr = group->length > 0 ? group->own_lr : tutti__optim_decimal(optim->lr);

    return lr * group->lr_factor;
}

double tutti__optim_rate(const tutti_optim *optim, size_t i)
{
    return rate_of(optim, &optim->groups[tutti__optim_group_of(optim, i)]);
}

static void set_rates(tutti_optim *optim)
{
    for (size_t k = 0; k < optim->n_groups; k++)
        optim->groups[k].lr = rate_of(optim, &optim->groups[k]);
}

/* sharding NULL: tells nobody of updated ranges. */
static tutti_status update_all(tutti_optim *optim, const tutti__sharding *sharding)
{
    const tutti__range *ranges;
    tutti__range all;
    size_t n_ranges, n_runs, at = 0;

    tutti__optim_free_whole(optim);
    set_rates(optim);
    n_ranges = tutti__optim_ranges(optim, &all, &ranges);
    n_runs = plan_runs(optim);
    if (optim->rule->update_whole && tutti__optim_is_divided(optim))
        return tutti__optim_update_divided(optim, sharding, n_runs);
    for (size_t r = 0; r < n_ranges; at += tutti__range_state(&ranges[r]), r++) {
        for (size_t i = 0; i < n_runs; i++)
            TUTTI_TRY(update(optim, &optim->runs[i], &ranges[r], at));
        if (sharding)
            TUTTI_TRY(sharding->updated(sharding->self, r));
    }
    return TUTTI_OK;
}

tutti_status tutti__optim_update_alone(tutti_optim *optim)
{
    return update_all(optim, NULL);
}

tutti_status tutti_optim_step(tutti_optim *optim)
{
    const tutti__sharding *sharding;

    TUTTI_TRY(TUTTI__NOT_NULL(optim));
    TUTTI_TRY(tutti_module_status(optim->module));
    sharding = optim->module->root->sharding;
    TUTTI_TRY(tutti__optim_check(optim->rule->name, "lr", (double)optim->lr, 0, INFINITY));
    if (sharding && sharding->offloads && optim->rule->update_whole)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "%s: it reads whole parameters on the device, and shares of them are in "
                           "host memory (offload_parameters); leave that out, or use an optimizer "
                           "that is elementwise (sgd, adam, adamw, rmsprop, adagrad)",
                           optim->rule->name);
    TUTTI_TRY(tutti__optim_prepare(optim, sharding));
    if (sharding)
        TUTTI_TRY(sharding->begin(sharding->self, optim, (double)optim->lr));
    TUTTI_TRY(update_all(optim, sharding));
    return sharding ? sharding->finish(sharding->self) : TUTTI_OK;
}
