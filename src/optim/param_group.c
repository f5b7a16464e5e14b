/* param_group.c -- parameter groups with their own options, as torch.optim's param_groups.   SPDX-License-Identifier: MIT */
#include "optim/optim.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Construction ----------------------------------------------------------------------------------------- */

/* ARG, naming an option that this optimizer does not have. */
static tutti_status check_own(const tutti_optim *optim, const tutti_optim_group_opts *given)
{
    const struct {
        const char *name;
        float value;
        unsigned is;
    } all[] = {{"momentum", given->momentum, TUTTI__HAS_MOMENTUM},
               {"dampening", given->dampening, TUTTI__HAS_DAMPENING},
               {"beta1", given->beta1, TUTTI__HAS_BETAS},
               {"beta2", given->beta2, TUTTI__HAS_BETAS},
               {"eps", given->eps, TUTTI__HAS_EPS},
               {"alpha", given->alpha, TUTTI__HAS_ALPHA},
               {"lr_decay", given->lr_decay, TUTTI__HAS_LR_DECAY}};

    for (size_t i = 0; i < TUTTI__COUNT_OF(all); i++)
        if (all[i].value != 0 && !(optim->rule->has & all[i].is))
            return tutti__fail(TUTTI_ERR_ARG, "%s: a group's %s is %g, but %s has none",
                               optim->rule->name, all[i].name, (double)all[i].value,
                               optim->rule->name);
    return TUTTI_OK;
}

static tutti_status make_group(const tutti_optim *optim, const tutti_optim_group_opts *given,
                               tutti__optim_group *group)
{
    tutti__optim_options *o;

    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_optim_group_opts, given));
    TUTTI_TRY(check_own(optim, given));
    *group = (tutti__optim_group){.options = optim->groups[0].options,
                                  .lr_factor = tutti__optim_option(given->lr_factor, 1)};
    o = &group->options;
    o->momentum = tutti__optim_option(given->momentum, o->momentum);
    o->dampening = tutti__optim_option(given->dampening, o->dampening);
    o->weight_decay = tutti__optim_option(given->weight_decay, o->weight_decay);
    o->beta1 = tutti__optim_option(given->beta1, o->beta1);
    o->beta2 = tutti__optim_option(given->beta2, o->beta2);
    o->eps = tutti__optim_option(given->eps, o->eps);
    o->alpha = tutti__optim_option(given->alpha, o->alpha);
    o->lr_decay = tutti__optim_option(given->lr_decay, o->lr_decay);
    TUTTI_TRY(tutti__optim_check(optim->rule->name, "lr_factor", group->lr_factor, 0, INFINITY));
    return optim->rule->check(&group->options);
}

static tutti_status check_members(const tutti_optim *optim, tutti_tensor *const *parameters,
                                  size_t n)
{
    const struct tutti_root *root = optim->module->root;

    for (size_t i = 0; i < n; i++) {
        const tutti__parameter *p = parameters[i] ? parameters[i]->parameter : NULL;

        if (!p || p->owner != root ||
            !tutti__state_below(root->parameters.p[p->index], optim->module))
            return tutti__fail(TUTTI_ERR_ARG,
                               "%s: place %zu of a group holds %s, expected a "
                               "parameter of the optimizer's module",
                               optim->rule->name, i, p ? p->name : "no parameter");
    }
    return TUTTI_OK;
}

/* A group may need state that no other does (momentum) only before the first step. */
static tutti_status choose_rule(const tutti_optim *optim, const tutti__optim_group *group,
                                const tutti__optim_rule **rule_p)
{
    *rule_p = optim->rule;
    if (!optim->rule->with_more || group->options.momentum == 0)
        return TUTTI_OK;
    if (optim->layouts)
        return tutti__fail(TUTTI_ERR_STATE,
                           "%s: a group with momentum %g after the first step of an optimizer "
                           "without; add it before, or give the optimizer momentum",
                           optim->rule->name, group->options.momentum);
    *rule_p = optim->rule->with_more;
    return TUTTI_OK;
}

static tutti_status make_room(tutti_optim *optim)
{
    const size_t n = optim->module->root->parameters.n;
    size_t *group_of = realloc(optim->group_of, n * sizeof *group_of);
    tutti__optim_group *groups;

    if (group_of)
        optim->group_of = group_of;
    groups = realloc(optim->groups, (optim->n_groups + 1) * sizeof *groups);
    if (groups)
        optim->groups = groups;
    if (!group_of || !groups)
        return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory for a group of %zu parameters",
                           optim->rule->name, n);
    for (; optim->n_group_of < n; optim->n_group_of++)
        optim->group_of[optim->n_group_of] = 0;
    return TUTTI_OK;
}

/* Counts and hashes the parameters of group k, for comparison between ranks. */
static void count_members(tutti_optim *optim, size_t k)
{
    tutti__optim_group *group = &optim->groups[k];

    group->n = 0;
    group->members = 0;
    for (uint64_t i = 0; i < optim->n_group_of; i++) {
        if (optim->group_of[i] != k)
            continue;
        group->n++;
        group->members ^= tutti__hash64(&i, sizeof i);
    }
}

tutti_status tutti_optim_add_group(tutti_optim *optim, tutti_tensor *const *parameters, size_t n,
                                   const tutti_optim_group_opts *opts)
{
    static const tutti_optim_group_opts defaults;
    const tutti__optim_rule *rule;
    tutti__optim_group group;

    TUTTI_TRY(TUTTI__NOT_NULL(optim));
    TUTTI_TRY(tutti_module_status(optim->module));
    TUTTI_TRY(make_group(optim, opts ? opts : &defaults, &group));
    TUTTI_TRY(check_members(optim, parameters, n));
    TUTTI_TRY(choose_rule(optim, &group, &rule));
    TUTTI_TRY(make_room(optim));
    optim->rule = rule;
    optim->groups[optim->n_groups++] = group;
    for (size_t i = 0; i < n; i++)
        optim->group_of[parameters[i]->parameter->index] = optim->n_groups - 1;
    for (size_t k = 1; k < optim->n_groups; k++)
        count_members(optim, k);
    return TUTTI_OK;
}

tutti_status tutti_optim_no_decay(tutti_optim *optim)
{
    tutti_tensor **small, *t;
    size_t n = 0;
    tutti_status status;

    TUTTI_TRY(TUTTI__NOT_NULL(optim));
    TUTTI_TRY(tutti_module_status(optim->module));
    small = tutti__alloc(tutti_module_n_parameters(optim->module) * sizeof(tutti_tensor *));
    if (!small)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; (t = tutti_module_parameter(optim->module, i)); i++)
        if (t->shape.n <= 1)
            small[n++] = t;
    status = tutti_optim_add_group(optim, small, n,
                                   &(tutti_optim_group_opts){.weight_decay = TUTTI_ZERO});
    free(small);
    return status;
}

/* ---- Options by name -------------------------------------------------------------------------------------- */

typedef struct pattern {
    char text[256];
    double value;
} pattern;

/* A list of names with numbers, and what becomes of a group whose parameters get one. */
typedef struct by_name {
    const char *what, *number, *example;
    void (*change)(tutti__optim_group *group, double value);
} by_name;

static void scale_rate(tutti__optim_group *group, double factor)
{
    group->lr_factor *= factor;
}

static void scale_decay(tutti__optim_group *group, double factor)
{
    group->options.weight_decay *= factor;
}

static void set_length(tutti__optim_group *group, double length)
{
    group->length = length;
}

/* The n characters at `text`, as "conv1=0.1". */
static tutti_status read_pattern(const tutti_module *m, const by_name *list, const char *text,
                                 size_t n, pattern *p)
{
    const char *equals = memrchr(text, '=', n);
    const size_t length = equals ? (size_t)(equals - text) : 0;
    char number[64];

    snprintf(number, sizeof number, "%.*s", (int)(equals ? n - length - 1 : 0),
             equals ? equals + 1 : "");
    if (length == 0 || length >= sizeof p->text || !tutti__parse_double(number, &p->value) ||
        !(p->value >= 0 && p->value <= (double)FLT_MAX))
        return tutti__fail(TUTTI_ERR_ARG, "%s: \"%.*s\" is not PATTERN=%s, such as %s", list->what,
                           (int)(n < 200 ? n : 200), text, list->number, list->example);
    memcpy(p->text, text, length);
    p->text[length] = '\0';
    return tutti__check_selection(m, p->text, true, list->what);
}

static tutti_status read_patterns(const tutti_module *m, const by_name *list, const char *text,
                                  pattern **patterns_p, size_t *n_p)
{
    pattern *all;
    size_t n = 1;
    tutti_status status = TUTTI_OK;

    for (const char *c = text; *c; c++)
        n += *c == ',';
    all = tutti__alloc(n * sizeof *all);
    *patterns_p = all;
    if (!all)
        return TUTTI_ERR_MEMORY;
    for (*n_p = 0; *text && status == TUTTI_OK; text += strcspn(text, ","), text += *text == ',')
        status = read_pattern(m, list, text, strcspn(text, ","), &all[(*n_p)++]);
    return status;
}

/* Whether both have the same options; b may be another's that was changed. */
static bool same_options(const tutti__optim_group *a, const tutti__optim_group *b)
{
    return a->lr_factor == b->lr_factor && a->length == b->length &&
           a->options.weight_decay == b->options.weight_decay;
}

/* Moves parameter i into the group, from n_before on, that differs from its own only by this change; makes it if there is none. */
static tutti_status change_group(tutti_optim *optim, size_t i, const by_name *list, double value,
                                 size_t n_before)
{
    const size_t of = tutti__optim_group_of(optim, i);
    tutti__optim_group changed = optim->groups[of];
    size_t k = n_before;

    changed.made_from = of;
    list->change(&changed, value);
    TUTTI_TRY(make_room(optim));
    while (k < optim->n_groups &&
           (optim->groups[k].made_from != of || !same_options(&optim->groups[k], &changed)))
        k++;
    if (k == optim->n_groups)
        optim->groups[optim->n_groups++] = changed;
    optim->group_of[i] = k;
    return TUTTI_OK;
}

static tutti_status apply_patterns(tutti_optim *optim, const by_name *list, const pattern *patterns,
                                   size_t n)
{
    const size_t n_before = optim->n_groups;
    tutti_tensor *t;

    for (size_t i = 0; (t = tutti_module_parameter(optim->module, i)); i++)
        for (size_t k = n; k-- > 0;) {
            if (!tutti__tensor_selected(t, patterns[k].text))
                continue;
            TUTTI_TRY(change_group(optim, t->parameter->index, list, patterns[k].value, n_before));
            break;
        }
    for (size_t k = 1; k < optim->n_groups; k++)
        count_members(optim, k);
    return TUTTI_OK;
}

static tutti_status change_by_name(tutti_optim *optim, const by_name *list, const char *patterns)
{
    pattern *all = NULL;
    size_t n = 0;
    tutti_status status;

    TUTTI_TRY(TUTTI__NOT_NULL(optim));
    TUTTI_TRY(TUTTI__NOT_NULL(patterns));
    TUTTI_TRY(tutti_module_status(optim->module));
    status = read_patterns(optim->module, list, patterns, &all, &n);
    if (status == TUTTI_OK)
        status = apply_patterns(optim, list, all, n);
    free(all);
    return status;
}

tutti_status tutti_optim_lr_groups(tutti_optim *optim, const char *patterns)
{
    static const by_name list = {"lr_groups", "FACTOR with a factor of at least 0", "conv1=0.1",
                                 scale_rate};

    return change_by_name(optim, &list, patterns);
}

tutti_status tutti_optim_decay_groups(tutti_optim *optim, const char *patterns)
{
    static const by_name list = {"decay_groups", "FACTOR with a factor of at least 0", "conv1=0.1",
                                 scale_decay};

    return change_by_name(optim, &list, patterns);
}

tutti_status tutti__optim_lengths(tutti_optim *optim, const char *patterns)
{
    static const by_name list = {"lr_group_epochs", "EPOCHS with a number of at least 0", "conv1=3",
                                 set_length};

    return change_by_name(optim, &list, patterns);
}

double tutti__optim_length(const tutti_optim *optim, size_t i)
{
    for (size_t k = 0; k < optim->n_groups; k++)
        if (optim->groups[k].length > 0 && i-- == 0)
            return optim->groups[k].length;
    return 0;
}

void tutti__optim_set_length_lr(tutti_optim *optim, double length, double lr)
{
    for (size_t k = 0; k < optim->n_groups; k++)
        if (optim->groups[k].length == length)
            optim->groups[k].own_lr = lr;
}

/* ---- As text ------------------------------------------------------------------------------------------- */

/* For groups after the first, also the number and a hash of their parameters. */
bool tutti__optim_describe(const tutti_optim *optim, size_t i, char *text, size_t bytes)
{
    enum { N = 26 };
    const size_t k = i / N;
    const tutti__optim_group *g = &optim->groups[k < optim->n_groups ? k : 0];
    const tutti__optim_options *o = &g->options;
    const uint64_t matrices =
        optim->n_matrix
            ? tutti__hash64(optim->matrix, optim->n_matrix * sizeof *optim->matrix) >> 40
            : 0;
    const struct {
        const char *name;
        double value;
    } all[N] = {{"lr", tutti__optim_decimal(optim->lr) * g->lr_factor},
                {"momentum", o->momentum},
                {"dampening", o->dampening},
                {"weight_decay", o->weight_decay},
                {"beta1", o->beta1},
                {"beta2", o->beta2},
                {"eps", o->eps},
                {"nesterov", o->nesterov},
                {"alpha", o->alpha},
                {"centered", o->centered},
                {"lr_decay", o->lr_decay},
                {"initial_accumulator_value", o->initial},
                {"always_adapt", o->always_adapt},
                {"adjust_lr", o->adjust_lr},
                {"ns_steps", o->ns_steps},
                {"first of ns_coefficients", o->ns[0]},
                {"second of ns_coefficients", o->ns[1]},
                {"third of ns_coefficients", o->ns[2]},
                {"eps for matrices", o->ns_eps},
                {"adamw_lr_factor", o->adamw_lr_factor},
                {"normalize", o->normalize},
                {"sgd_momentum", o->others_momentum},
                {"epochs of the schedule", g->length},
                {"hash of matrices", (double)matrices},
                {"parameters", (double)g->n},
                {"hash of parameters", (double)(g->members >> 40)}};
    const bool whole = optim->module == optim->module->root->module;
    char group[32] = "";

    if (k >= optim->n_groups)
        return false;
    if (k > 0)
        snprintf(group, sizeof group, "group %zu of ", k);
    snprintf(text, bytes, "%s %.9g of %s%s%s%s", all[i % N].name, all[i % N].value, group,
             optim->rule->name, whole ? "" : " over ",
             whole ? "" : tutti__module_path(optim->module));
    return true;
}
