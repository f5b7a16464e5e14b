/* parallel.c -- layers divided among ranks, by a plan of names.   SPDX-License-Identifier: MIT
 *
 * A rule is applied when a parameter is made, so that the whole of it is in no rank's memory. Which dimension it divides follows from
 * what the parameter is: outputs are rows of nn.Linear's [out,in] and columns of GPT-2's [in,out]. The forward functions of layers ask
 * here what goes before and behind their product. docs/design/tensor_parallel.md. */
#include "nn/nn.h"
#include "tensor/op/parts.h"
#include "tensor/op/projection.h"
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

static tutti_status check_parts(const tutti_peers *peers)
{
    const int parts = peers ? peers->parts : 0;

    if (parts == 0)
        return TUTTI_OK;
    if (parts < 1 || parts > TUTTI__MOST_PARTS || (parts & (parts - 1)) != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "parallelize: sums of %d parts; expected a power of two, at most %d",
                           parts, TUTTI__MOST_PARTS);
    if (peers->size < 1 || parts % peers->size != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "parallelize: %d parts cannot be divided among %d ranks; expected a "
                           "number of ranks that divides them",
                           parts, peers->size);
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
    TUTTI_TRY(check_parts(peers));
    for (size_t i = 0; i < n; i++)
        TUTTI_TRY(check_rule(&rules[i], i));
    if (!peers || (peers->size <= 1 && peers->parts == 0))
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

tutti_status tutti__parallel_check_adapters(const tutti_module *root)
{
    const struct tutti__parallel *parallel = root->root->parallel;

    return parallel && parallel->peers.parts > 0 && parallel->tokens
               ? tutti__fail(TUTTI_ERR_UNSUPPORTED,
                             "lora: with tokens divided among ranks (sequence_parallel), adapters' "
                             "gradients are not sums of %d parts; leave one of them out",
                             parallel->peers.parts)
               : TUTTI_OK;
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
    int dim, units, all;

    if (!parallel)
        return TUTTI_OK;
    units = tutti__peers_units(&parallel->peers);
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
    all = parallel->peers.size * units;
    if (tutti__chunk(part, all, 1, all - 1, &begin) < 1)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s is %s: its dimension %d cannot be divided among %d %s, each of "
                           "which needs a part",
                           state->parameter.name, tutti__shape_text(*shape_p), dim, all,
                           parallel->peers.parts > 0 ? "parts" : "ranks");
    n = tutti__peers_chunk(&parallel->peers, part, parallel->peers.rank, &begin);
    state->parameter.counted_by_peer = false;
    state->how = how.how;
    state->split = (tutti__parameter_split){.dim = dim,
                                            .parts = how.parts,
                                            .index = parallel->peers.rank,
                                            .count = parallel->peers.size,
                                            .units = units,
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
tutti__split_places tutti__split_find(const tutti__parameter_split *split, tutti_shape whole)
{
    const int dim = split->dim;
    int64_t outer = split->parts, inner = 1, begin, each, own;

    if (split->count == 0)
        return (tutti__split_places){.run = tutti_shape_count(whole), .n = 1};
    for (int i = 0; i < dim; i++)
        outer *= whole.d[i];
    for (int i = dim + 1; i < whole.n; i++)
        inner *= whole.d[i];
    each = whole.d[dim] / split->parts;
    own = tutti__chunk(each, split->count, split->units, split->index, &begin);
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
    at = tutti__split_find(s, whole);
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

    return tutti__peers_chunk(peers, tutti_shape_count(whole) / whole.d[whole.n - 1], peers->rank,
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
    tutti__peers_chunk(&parallel->peers,
                       tutti_shape_count(parallel->whole) /
                           parallel->whole.d[parallel->whole.n - 1],
                       parallel->peers.rank, &begin);
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

/* Row k of copies [n,D]. */
static tutti_tensor *copy_of(tutti_tensor *copies, int k)
{
    return copies ? tutti_select(copies, 0, k) : NULL;
}

/* A norm of each part of x's rows, with copies of the weights of their own. */
static tutti_tensor *norm_in_parts(const tutti_norm *m, tutti_tensor *x, tutti__norm_of_rows run)
{
    const struct tutti__parallel *parallel = parallel_of(tutti__state_of(m->weight));
    const tutti__rows_division d = tutti__rows_divided(&parallel->peers, parallel->whole, x->dtype);
    const int n = tutti__peers_units(&parallel->peers);
    tutti_tensor *weights = tutti__weight_of_parts(m->weight, &parallel->peers);
    tutti_tensor *biases = m->bias ? tutti__weight_of_parts(m->bias, &parallel->peers) : NULL;
    tutti_tensor *y[TUTTI__MOST_PARTS];

    for (int k = 0; k < n; k++) {
        const int64_t left = d.own - k * d.part;

        y[k] = run(m, tutti_narrow(x, 0, k * d.part, left < d.part ? left : d.part),
                   copy_of(weights, k), copy_of(biases, k));
    }
    return n == 1 ? y[0] : tutti_cat(y, n, 0);
}

tutti_tensor *tutti__parallel_norm(const tutti_norm *m, tutti_tensor *x, tutti__norm_of_rows run)
{
    const struct tutti__parallel *parallel = m->base.root->parallel;

    if (m->weight && x && x->poison == TUTTI_OK && has_rows(parallel) && is_planned(m->weight) &&
        parallel->peers.parts > 0 && m->weight->shape.n == 1 && x->shape.n == 2)
        return norm_in_parts(m, x, run);
    return run(m, x, tutti__parallel_weight(m->weight, m->weight),
               tutti__parallel_weight(m->bias, m->bias));
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

/* In parts each product sums the gradients of its own input: of several, those of each part would have to be added before. */
tutti_tensor *tutti__parallel_shared_input(tutti_tensor *x, const tutti_tensor *weight)
{
    const tutti__state *state = divided(weight);

    return state && state->how != TUTTI_PARALLEL_ROWS && peers_of(state)->parts == 0
               ? input(x, state, TUTTI__GATHER_PARTS)
               : x;
}

static tutti_tensor *product_in_parts(const tutti__state *state, tutti_tensor *x,
                                      tutti_tensor *weight, tutti_tensor *bias)
{
    const struct tutti__parallel *parallel = parallel_of(state);
    tutti__layer_in_parts layer = {.peers = &parallel->peers,
                                   .rows = state->how == TUTTI_PARALLEL_ROWS,
                                   .in_out = state->adaptable == TUTTI__IN_OUT,
                                   .groups = state->split.parts,
                                   .tokens = parallel->whole};
    int64_t begin;

    layer.each =
        tutti__chunk(state->split.whole / state->split.parts, parallel->peers.parts, 1, 0, &begin);
    return tutti__linear_in_parts(x, weight, bias, &layer);
}

tutti_tensor *tutti__parallel_product(tutti_tensor *x, tutti_tensor *weight, tutti_tensor *bias)
{
    const bool in_out =
        weight && weight->parameter && tutti__state_of(weight)->adaptable == TUTTI__IN_OUT;
    tutti_tensor *(*product)(tutti_tensor *, tutti_tensor *, tutti_tensor *) =
        in_out ? tutti__projection_of : tutti_functional_linear;
    const tutti__state *state = divided(weight);
    tutti_tensor *y;

    if (!state)
        return product(x, weight, bias);
    if (peers_of(state)->parts > 0)
        return product_in_parts(state, x, weight, bias);
    if (state->how != TUTTI_PARALLEL_ROWS)
        return product(input(x, state, TUTTI__GATHER_AGAIN), weight, bias);
    y = product(x, weight, NULL);
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
    if (peers_of(state)->parts == 0)
        x = tutti__parallel_shared_input(x, weight);
    else if (has_rows(parallel_of(state))) /* the loss sums gradients of x over the ranks */
        x = tutti__tokens_gather(x, parallel_of(state)->whole, TUTTI__GATHER_WHOLE,
                                 peers_of(state));
    y = tutti__lazy_linear(x, weight, bias, classes);
    if (tutti_tensor_status(y) != TUTTI_OK) /* others exchange what the loss takes of them */
        tutti__tell_peers(x->cx, tutti_tensor_status(y));
    return y;
}

int tutti__parallel_heads(tutti_module *m, const tutti_tensor *weight, const char *what, int heads,
                          int *first_p)
{
    const tutti__state *state = divided(weight);
    const int each = heads / tutti_parameter_ranks(weight);
    const char *things = state && state->split.units > 1 ? "parts" : "ranks";
    int all;

    if (first_p)
        *first_p = 0;
    if (!state)
        return heads;
    all = state->split.count * state->split.units;
    if (heads % all != 0) {
        tutti__module_fail(m, TUTTI_ERR_ARG,
                           "%s: a layer has %d, which cannot be divided among %d %s; expected a "
                           "number of %s that divides them",
                           what, heads, all, things, things);
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
        n = tutti__peers_chunk(peers_of(state), state->split.whole, state->split.index, &begin);

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
    rows = tutti__peers_chunk(peers_of(state), state->split.whole, state->split.index, &begin);
    for (int64_t i = 0; i < tutti_shape_count(indices.shape); i++)
        n += index[i] >= begin && index[i] < begin + rows;
    return TUTTI_SHAPE(n);
}
