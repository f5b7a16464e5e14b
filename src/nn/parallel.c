/* parallel.c -- layers divided among ranks, by a plan of names.   SPDX-License-Identifier: MIT
 *
 * A rule is applied when a parameter is made, so that the whole of it is in no rank's memory. Which dimension it divides follows from
 * what the parameter is: outputs are rows of nn.Linear's [out,in] and columns of GPT-2's [in,out]. The forward functions of layers ask
 * here what goes before and behind their product. docs/design/tensor_parallel.md. */
#include "nn/nn.h"
#include "tensor/op/tokens.h"
#include "tensor/op/vocabulary_logits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct kept_rule {
    char *name;
    tutti__division division;
    bool used;
} kept_rule;

struct tutti__parallel {
    tutti_ctx *cx;
    tutti_peers peers;
    bool tokens;       /* a rule divides tokens */
    tutti_shape whole; /* of the tokens that are divided; n 0: none are */
    size_t n;
    kept_rule rules[];
};

/* ---- Rules ---------------------------------------------------------------------------------------------------- */

void tutti__parallel_free(struct tutti__parallel *parallel)
{
    for (size_t i = 0; parallel && i < parallel->n; i++)
        free(parallel->rules[i].name);
    if (parallel && parallel->cx && parallel->cx->peers == &parallel->peers)
        parallel->cx->peers = NULL;
    free(parallel);
}

static tutti_status check_rule(const tutti_parallel_rule *rule, size_t i)
{
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_parallel_rule, rule));
    if (!rule->name || !*rule->name)
        return tutti__fail(TUTTI_ERR_ARG, "parallelize: rule %zu names no layers", i);
    if (rule->how < TUTTI_PARALLEL_COLUMNS || rule->how > TUTTI_PARALLEL_TOKENS)
        return tutti__fail(TUTTI_ERR_ARG,
                           "parallelize: rule \"%.60s\" does not say how; expected "
                           "TUTTI_PARALLEL_COLUMNS, ROWS, VOCABULARY or TOKENS",
                           rule->name);
    if (rule->parts < 0 || (rule->parts > 1 && rule->how != TUTTI_PARALLEL_COLUMNS))
        return tutti__fail(TUTTI_ERR_ARG,
                           "parallelize: rule \"%.60s\" has %d parts; expected at least 1, and 1 "
                           "unless it divides columns",
                           rule->name, rule->parts);
    return TUTTI_OK;
}

static tutti_status keep_rules(struct tutti__parallel *parallel, const tutti_parallel_rule *rules,
                               size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int parts = rules[i].parts ? rules[i].parts : 1;

        parallel->rules[i] =
            (kept_rule){.name = strdup(rules[i].name), .division = {rules[i].how, parts}};
        parallel->n = i + 1;
        if (!parallel->rules[i].name)
            return tutti__fail(TUTTI_ERR_MEMORY, "parallelize: no memory for %zu rules", n);
    }
    return TUTTI_OK;
}

tutti_status tutti_module_parallelize(tutti_module *root, const tutti_peers *peers,
                                      const tutti_parallel_rule *rules, size_t n)
{
    struct tutti__parallel *parallel;
    tutti_status status;

    TUTTI_TRY(tutti_module_status(root));
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_peers, peers));
    if (root->root->module != root || root->root->state.n > 0 || root->root->parallel)
        return tutti__fail(TUTTI_ERR_STATE,
                           "parallelize: %s; call it once, for a root module, right after "
                           "tutti_module_init",
                           root->root->module != root ? "the module is part of another one"
                           : root->root->parallel     ? "it was called before"
                                                      : "the module has parameters already");
    if (n > 0)
        TUTTI_TRY(TUTTI__NOT_NULL(rules));
    for (size_t i = 0; i < n; i++)
        TUTTI_TRY(check_rule(&rules[i], i));
    if (!peers || peers->size <= 1)
        return TUTTI_OK;
    parallel = tutti__alloc(sizeof *parallel + n * sizeof *parallel->rules);
    if (!parallel)
        return TUTTI_ERR_MEMORY;
    parallel->peers = *peers;
    status = keep_rules(parallel, rules, n);
    if (status != TUTTI_OK) {
        tutti__parallel_free(parallel);
        return status;
    }
    parallel->cx = tutti_module_ctx(root);
    parallel->cx->peers = &parallel->peers;
    root->root->parallel = parallel;
    root->root->norm_peers[0] = *peers;
    return TUTTI_OK;
}

tutti_status tutti__parallel_check(const tutti_module *root)
{
    const struct tutti__parallel *parallel = root->root->parallel;

    for (size_t i = 0; parallel && i < parallel->n; i++)
        if (!parallel->rules[i].used)
            return tutti__fail(TUTTI_ERR_ARG,
                               "parallelize: rule \"%.120s\" names no parameter of this model",
                               parallel->rules[i].name);
    return TUTTI_OK;
}

/* By name of the parameter, or of its layer. */
static tutti__division division_of(tutti_module *m, const tutti__state *state)
{
    struct tutti__parallel *parallel = m->root->parallel;
    const char *layer = tutti__module_path(m);

    for (size_t i = 0; i < parallel->n; i++) {
        kept_rule *rule = &parallel->rules[i];

        if (tutti__name_selected(state->parameter.name, rule->name) ||
            tutti__name_selected(layer, rule->name)) {
            rule->used = true;
            return rule->division;
        }
    }
    return (tutti__division){0};
}

/* ---- Parts of a parameter --------------------------------------------------------------------------------------- */

/* The dimension that is divided; -1: none. */
static int dimension_of(const tutti__state *state, tutti_shape shape, tutti_parallel how)
{
    const bool in_out = state->adaptable == TUTTI__IN_OUT;

    if (shape.n == 0 || how == TUTTI_PARALLEL_TOKENS)
        return -1;
    if (shape.n == 1) /* biases */
        return how == TUTTI_PARALLEL_ROWS ? -1 : 0;
    if (how == TUTTI_PARALLEL_ROWS)
        return in_out ? 0 : 1;
    return in_out && how == TUTTI_PARALLEL_COLUMNS ? 1 : 0;
}

tutti_status tutti__divide(tutti_module *m, tutti__state *state, const tutti__division *given,
                           tutti_shape *shape_p)
{
    struct tutti__parallel *parallel = m->root->parallel;
    tutti__division how;
    int64_t begin, part, n;
    int dim;

    if (!parallel)
        return TUTTI_OK;
    state->parameter.counted_by_peer = parallel->peers.rank > 0; /* unless it is divided */
    how = given ? *given : division_of(m, state);
    if (how.how == TUTTI_PARALLEL_TOKENS) {
        parallel->tokens = true;
        state->how = how.how;
    }
    dim = how.how ? dimension_of(state, *shape_p, how.how) : -1;
    if (dim < 0)
        return TUTTI_OK;
    part = shape_p->d[dim] / how.parts;
    if (shape_p->d[dim] % how.parts != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s is %s, whose dimension %d does not have %d equal parts",
                           state->parameter.name, tutti__shape_text(*shape_p), dim, how.parts);
    if (tutti__chunk(part, parallel->peers.size, parallel->peers.size - 1, &begin) < 1)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s is %s: its dimension %d cannot be divided among %d ranks, each of "
                           "which needs a part",
                           state->parameter.name, tutti__shape_text(*shape_p), dim,
                           parallel->peers.size);
    n = tutti__chunk(part, parallel->peers.size, parallel->peers.rank, &begin);
    state->parameter.counted_by_peer = false;
    state->how = how.how;
    state->split = (tutti__parameter_split){.dim = dim,
                                            .parts = how.parts,
                                            .index = parallel->peers.rank,
                                            .count = parallel->peers.size,
                                            .whole = shape_p->d[dim]};
    shape_p->d[dim] = how.parts * n;
    return TUTTI_OK;
}

int64_t tutti__whole_count(const tutti__state *state)
{
    const int64_t n = tutti_shape_count(state->tensor->shape);

    return state->split.count == 0
               ? n
               : n / state->tensor->shape.d[state->split.dim] * state->split.whole;
}

/*     whole   [outer, parts, each, inner]       one run of the part for each (outer, part):
 *     part    [outer, parts, own,  inner]       own * inner */
tutti__split_places tutti__split_find(int dim, int parts, int index, int count, tutti_shape whole)
{
    int64_t outer = parts, inner = 1, begin, each, own;

    if (count == 0)
        return (tutti__split_places){.run = tutti_shape_count(whole), .n = 1};
    for (int i = 0; i < dim; i++)
        outer *= whole.d[i];
    for (int i = dim + 1; i < whole.n; i++)
        inner *= whole.d[i];
    each = whole.d[dim] / parts;
    own = tutti__chunk(each, count, index, &begin);
    return (tutti__split_places){
        .run = own * inner, .first = begin * inner, .stride = each * inner, .n = outer};
}

void tutti__split_runs(const tutti__state *state,
                       void (*part)(void *arg, int64_t first, int64_t n, int64_t at), void *arg)
{
    const tutti__parameter_split *s = &state->split;
    tutti_shape whole = state->tensor->shape;
    tutti__split_places at;

    if (s->count > 0)
        whole.d[s->dim] = s->whole;
    at = tutti__split_find(s->dim, s->parts, s->index, s->count, whole);
    for (int64_t k = 0; k < at.n; k++)
        part(arg, at.first + k * at.stride, at.run, k * at.run);
}

static const tutti__state *divided(const tutti_tensor *parameter)
{
    const tutti__state *state =
        parameter && parameter->parameter ? tutti__state_of(parameter) : NULL;

    return state && state->split.count > 0 ? state : NULL;
}

int tutti_parameter_ranks(const tutti_tensor *parameter)
{
    const tutti__state *state = divided(parameter);

    return state ? state->split.count : 1;
}

int tutti_parameter_rank(const tutti_tensor *parameter)
{
    const tutti__state *state = divided(parameter);

    return state ? state->split.index : 0;
}

/* ---- Forward ------------------------------------------------------------------------------------------------------ */

static struct tutti__parallel *parallel_of(const tutti__state *state)
{
    return state->owner->root->parallel;
}

static const tutti_peers *peers_of(const tutti__state *state)
{
    return &parallel_of(state)->peers;
}

/* Whether each rank has its rows of x's tokens. */
static bool has_rows(const struct tutti__parallel *parallel)
{
    return parallel && parallel->whole.n > 0;
}

tutti_shape tutti__parallel_divided_tokens(const tutti_module *root)
{
    return has_rows(root->root->parallel) ? root->root->parallel->whole : (tutti_shape){0};
}

void tutti__parallel_set_divided_tokens(const tutti_module *root, tutti_shape whole)
{
    if (root->root->parallel)
        root->root->parallel->whole = whole;
}

int64_t tutti__parallel_own_rows(const tutti_module *root, tutti_shape whole)
{
    const tutti_peers *peers = &root->root->parallel->peers;
    int64_t begin;

    return tutti__chunk(tutti_shape_count(whole) / whole.d[whole.n - 1], peers->size, peers->rank,
                        &begin);
}

tutti_tensor *tutti_parallel_tokens(tutti_module *m, tutti_tensor *x)
{
    struct tutti__parallel *parallel = m && m->root ? m->root->parallel : NULL;

    if (!parallel || !parallel->tokens || !x || x->poison != TUTTI_OK)
        return x;
    parallel->whole = x->shape;
    return tutti__tokens_divide(x, &parallel->peers);
}

tutti_tensor *tutti_parallel_whole(tutti_module *m, tutti_tensor *x)
{
    const struct tutti__parallel *parallel = m && m->root ? m->root->parallel : NULL;

    return has_rows(parallel)
               ? tutti__tokens_gather(x, parallel->whole, TUTTI__GATHER_WHOLE, &parallel->peers)
               : x;
}

tutti_tensor *tutti_parallel_dropout(tutti_module *m, tutti_tensor *x, float p)
{
    const struct tutti__parallel *parallel = m && m->root ? m->root->parallel : NULL;
    const int64_t width = x && x->shape.n == 2 ? x->shape.d[1] : 0;
    int64_t begin;

    if (!has_rows(parallel) || width == 0)
        return tutti_dropout(x, p);
    tutti__chunk(tutti_shape_count(parallel->whole) / parallel->whole.d[parallel->whole.n - 1],
                 parallel->peers.size, parallel->peers.rank, &begin);
    return tutti__dropout_of_part(x, p, begin * width);
}

/* Whether a rule names the layer of a weight: layers of rows are all in the plan, others have whole inputs. */
static bool is_planned(const tutti_tensor *weight)
{
    return weight && weight->parameter && tutti__state_of(weight)->how != 0;
}

tutti_tensor *tutti__parallel_weight(tutti_tensor *parameter, const tutti_tensor *weight)
{
    const tutti__state *state =
        parameter && parameter->parameter ? tutti__state_of(parameter) : NULL;

    return state && state->split.count == 0 && has_rows(parallel_of(state)) && is_planned(weight)
               ? tutti__peers_copy(parameter, peers_of(state))
               : parameter;
}

/* x for a product whose results are divided. */
static tutti_tensor *input(tutti_tensor *x, const tutti__state *state, tutti__gathering how)
{
    const struct tutti__parallel *parallel = parallel_of(state);

    return has_rows(parallel) ? tutti__tokens_gather(x, parallel->whole, how, &parallel->peers)
                              : tutti__peers_copy(x, &parallel->peers);
}

tutti_tensor *tutti__parallel_original(tutti_tensor *x)
{
    return tutti__tokens_original(tutti__peers_original(x));
}

tutti_tensor *tutti__parallel_input(tutti_tensor *x, const tutti_tensor *weight)
{
    const tutti__state *state = divided(weight);

    return state && state->how != TUTTI_PARALLEL_ROWS ? input(x, state, TUTTI__GATHER_AGAIN) : x;
}

tutti_tensor *tutti__parallel_shared_input(tutti_tensor *x, const tutti_tensor *weight)
{
    const tutti__state *state = divided(weight);

    return state && state->how != TUTTI_PARALLEL_ROWS ? input(x, state, TUTTI__GATHER_PARTS) : x;
}

tutti_tensor *tutti__parallel_bias(tutti_tensor *bias, const tutti_tensor *weight)
{
    const tutti__state *state = divided(weight);

    return state && state->how == TUTTI_PARALLEL_ROWS ? NULL : bias;
}

tutti_tensor *tutti__parallel_output(tutti_tensor *y, tutti_tensor *bias,
                                     const tutti_tensor *weight)
{
    const tutti__state *state = divided(weight);

    if (!state || state->how != TUTTI_PARALLEL_ROWS)
        return y;
    return has_rows(parallel_of(state))
               ? tutti__tokens_sum(y, tutti__parallel_weight(bias, weight), peers_of(state))
               : tutti__peers_sum(y, bias, peers_of(state));
}

tutti_tensor *tutti__parallel_logits(tutti_tensor *x, tutti_tensor *weight, tutti_tensor *bias)
{
    const tutti__state *state = divided(weight);
    tutti__divided_classes *classes;
    tutti_tensor *y;

    if (!state || !x)
        return tutti__lazy_linear(x, weight, bias, NULL);
    classes = tutti__step_alloc(x->cx, sizeof *classes);
    if (!classes)
        return tutti__poisoned(x->cx, TUTTI_ERR_MEMORY);
    *classes = (tutti__divided_classes){peers_of(state), state->split.whole};
    y = tutti__lazy_linear(tutti__parallel_shared_input(x, weight), weight, bias, classes);
    if (tutti_tensor_status(y) != TUTTI_OK) /* others exchange what the loss takes of them */
        tutti__tell_peers(x->cx, tutti_tensor_status(y));
    return y;
}

int tutti__parallel_heads(tutti_module *m, const tutti_tensor *weight, const char *what, int heads,
                          int *first_p)
{
    const tutti__state *state = divided(weight);
    const int each = heads / tutti_parameter_ranks(weight);

    if (first_p)
        *first_p = 0;
    if (!state)
        return heads;
    if (heads % state->split.count != 0) {
        tutti__module_fail(m, TUTTI_ERR_ARG,
                           "%s: a layer has %d, which cannot be divided among %d ranks; expected a "
                           "number of ranks that divides them",
                           what, heads, state->split.count);
        return 1;
    }
    if (first_p)
        *first_p = each * state->split.index;
    return each;
}

/* ---- Tables that are divided by rows -------------------------------------------------------------------------------- */

/* Which of the indices are rows that this rank has: their places, and their numbers here. */
typedef struct own_rows {
    int64_t *place, *row, n;
} own_rows;

static tutti_status find_rows(const tutti__state *state, const tutti_tensor *indices, own_rows *own)
{
    const int64_t count = tutti_shape_count(indices->shape), *index = indices->host;
    int64_t begin,
        n = tutti__chunk(state->split.whole, state->split.count, state->split.index, &begin);

    own->place = tutti__step_alloc(indices->cx, (size_t)(2 * count + 1) * sizeof *own->place);
    if (!own->place)
        return TUTTI_ERR_MEMORY;
    own->row = own->place + count;
    own->n = 0;
    for (int64_t i = 0; i < count; i++) {
        if (index[i] < 0 || index[i] >= state->split.whole)
            return tutti__fail(TUTTI_ERR_ARG,
                               "embedding \"%s\": index %lld of indices %s is %lld, but weight has "
                               "%lld rows: expected 0 to %lld",
                               state->parameter.name, (long long)i,
                               tutti__shape_text(indices->shape), (long long)index[i],
                               (long long)state->split.whole, (long long)state->split.whole - 1);
        if (index[i] < begin || index[i] >= begin + n)
            continue;
        own->place[own->n] = i;
        own->row[own->n++] = index[i] - begin;
    }
    return TUTTI_OK;
}

/* The numbers of those rows; the indices themselves, if all rows are here. */
static tutti_tensor *own_indices(tutti_tensor *weight, tutti_tensor *indices, own_rows *own)
{
    const tutti__state *state = divided(weight);
    tutti_status status;

    if (!state || !indices || indices->poison != TUTTI_OK || indices->dtype != TUTTI_I64 ||
        !indices->host || indices->shape.n == TUTTI_MAX_DIMS)
        return indices;
    status = find_rows(state, indices, own);
    if (status != TUTTI_OK)
        return tutti__poisoned(indices->cx, status);
    return tutti_input(indices->cx, (tutti_array){own->row, TUTTI_SHAPE(own->n), TUTTI_I64});
}

tutti_tensor *tutti__parallel_rows(tutti_tensor *weight, tutti_tensor *indices)
{
    own_rows own = {NULL};
    tutti_tensor *rows = own_indices(weight, indices, &own);
    tutti_tensor *y = tutti_functional_embedding(weight, rows);

    if (rows == indices || tutti_tensor_status(rows) != TUTTI_OK)
        return y;
    return tutti__peers_rows(y, own.place, indices->shape, peers_of(divided(weight)));
}

tutti_tensor *tutti__parallel_own_indices(tutti_tensor *weight, tutti_tensor *indices)
{
    return own_indices(weight, indices, &(own_rows){NULL});
}

tutti_shape tutti__parallel_own_shape(const tutti_tensor *weight, tutti_array indices)
{
    const tutti__state *state = divided(weight);
    const int64_t *index = indices.p;
    int64_t begin, rows, n = 0;

    if (!state || indices.dtype != TUTTI_I64)
        return indices.shape;
    rows = tutti__chunk(state->split.whole, state->split.count, state->split.index, &begin);
    for (int64_t i = 0; i < tutti_shape_count(indices.shape); i++)
        n += index[i] >= begin && index[i] < begin + rows;
    return TUTTI_SHAPE(n);
}
