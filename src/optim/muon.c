/* muon.c -- Muon for hidden matrices, as torch.optim.Muon, and AdamW or SGD for the other parameters.   SPDX-License-Identifier: MIT
 *
 *   momentum_buffer += (1 - momentum) * (g - momentum_buffer)
 *   u = nesterov ? g + momentum * (momentum_buffer - g) : momentum_buffer
 *   X = u / max(||u||, eps);  ns_steps times:  A = X X^T,  X = a X + (b A + c A A) X          for the shorter side's A
 *   normalize: p *= sqrt(rows) / ||p||
 *   p = (1 - lr * weight_decay) * p - lr * adjust(rows, columns) * X
 *
 * PyTorch rounds X to BF16 before the iteration; here it is F32, whose bits do not depend on the number of threads. */
#include "optim/optim.h"
#include "tensor/kernel.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdlib.h>

typedef struct matrix {
    tutti_ctx *cx;
    float *p; /* [rows,columns] */
    int64_t rows, columns;
} matrix;

/* All of it, if this rank has a part. */
static matrix matrix_of(const tutti_optim *optim, const tutti_tensor *t, float *p)
{
    const tutti__state *state = tutti__state_of(t);
    const tutti__parameter_split *split = &state->split;
    const int64_t rows = t->shape.n == 0                       ? 1
                         : split->count > 0 && split->dim == 0 ? split->whole
                                                               : t->shape.d[0];

    return (matrix){optim->cx, p, rows, rows ? tutti__whole_count(state) / rows : 0};
}

/* ---- Element by element: the run's lr is the factor ---- */

static tutti_status times(tutti_stream *stream, const tutti__flat_run *run)
{
    return stream->ops->flat->scale(stream, run->p, run->n, (float)run->lr);
}

static tutti_status plus(tutti_stream *stream, const tutti__flat_run *run)
{
    return stream->ops->flat->sgd(stream, run->p, run->g, NULL, run->n,
                                  &(tutti__sgd){.lr = -(float)run->lr});
}

/* p *= factor; p += factor * g */
static tutti_status scale(const tutti_optim *optim, float *p, size_t n, double factor)
{
    return tutti__optim_elementwise(optim, times,
                                    &(tutti__flat_run){.p = p, .g = p, .n = n, .lr = factor});
}

static tutti_status add(const tutti_optim *optim, float *p, const float *g, size_t n, double factor)
{
    return tutti__optim_elementwise(optim, plus,
                                    &(tutti__flat_run){.p = p, .g = g, .n = n, .lr = factor});
}

/* The momentum buffer, and what is to be made orthogonal: an sgd from 0 with the rate -momentum, and with Nesterov
 * another with the rest. */
static tutti_status take_momentum(tutti_stream *stream, const tutti__flat_run *run)
{
    const tutti__flat_ops *flat = stream->ops->flat;
    const tutti__optim_options *o = run->options;
    const float momentum = (float)o->momentum, fresh = (float)(1 - o->momentum);
    float *u = run->direction;

    TUTTI_TRY(flat->fill(stream, u, run->n, 0));
    TUTTI_TRY(flat->sgd(
        stream, u, run->g, run->state[0], run->n,
        &(tutti__sgd){.lr = o->nesterov ? -momentum : -1, .momentum = momentum, .fresh = fresh}));
    return o->nesterov ? flat->sgd(stream, u, run->g, NULL, run->n, &(tutti__sgd){.lr = -fresh})
                       : TUTTI_OK;
}

/* ---- Newton-Schulz ---- */

static tutti_tensor tensor_of(tutti_ctx *cx, int64_t rows, int64_t columns, float *p)
{
    return (tutti_tensor){
        .cx = cx, .shape = TUTTI_SHAPE(rows, columns), .dtype = TUTTI_F32, .data = p, .name = ""};
}

/* *c_p [rows,columns] = op(a) op(b), in memory of the context, to be released. */
static tutti_status multiply(tutti_tensor *c_p, tutti_tensor *a, bool a_transposed, tutti_tensor *b,
                             bool b_transposed)
{
    const tutti__matmul m = {.rows = a->shape.d[a_transposed],
                             .inner = a->shape.d[!a_transposed],
                             .columns = b->shape.d[!b_transposed],
                             .a_transposed = a_transposed,
                             .b_transposed = b_transposed};

    *c_p = tensor_of(a->cx, m.rows, m.columns, NULL);
    return a->cx->f32_kernels->matmul(c_p, a, b, &m);
}

/* square = c A A + b A, of A = X X^T, or X^T X if X is taller than wide */
static tutti_status polynomial(const tutti_optim *optim, tutti_tensor *x, const double *ns,
                               tutti_tensor *square)
{
    const bool wide = x->shape.d[0] <= x->shape.d[1];
    tutti_tensor gram;
    tutti_status status;
    size_t n;

    TUTTI_TRY(multiply(&gram, x, !wide, x, wide));
    n = (size_t)tutti_shape_count(gram.shape);
    status = multiply(square, &gram, false, &gram, false);
    if (status == TUTTI_OK)
        status = scale(optim, square->data, n, ns[2]);
    if (status == TUTTI_OK)
        status = add(optim, square->data, gram.data, n, ns[1]);
    tutti__tensor_release(&gram);
    return status;
}

/* X = a X + (polynomial) X */
static tutti_status iterate(const tutti_optim *optim, tutti_tensor *x, const double *ns)
{
    const bool wide = x->shape.d[0] <= x->shape.d[1];
    const size_t n = (size_t)tutti_shape_count(x->shape);
    tutti_tensor square, y;

    TUTTI_TRY(polynomial(optim, x, ns, &square));
    TUTTI_TRY(multiply(&y, wide ? &square : x, false, wide ? x : &square, false));
    TUTTI_TRY(scale(optim, x->data, n, ns[0]));
    TUTTI_TRY(add(optim, x->data, y.data, n, 1));
    tutti__tensor_release(&y);
    tutti__tensor_release(&square);
    return TUTTI_OK;
}

static tutti_status make_orthogonal(const tutti_optim *optim, const matrix *u,
                                    const tutti__optim_options *o)
{
    tutti_tensor x = tensor_of(u->cx, u->rows, u->columns, u->p);
    const size_t n = (size_t)(u->rows * u->columns);
    double norm;

    TUTTI_TRY(tutti__optim_norm(optim, u->p, n, &norm));
    TUTTI_TRY(scale(optim, u->p, n, 1 / (norm > o->ns_eps ? norm : o->ns_eps)));
    for (int i = 0; i < o->ns_steps; i++)
        TUTTI_TRY(iterate(optim, &x, o->ns));
    return TUTTI_OK;
}

/* ---- The update ---- */

static double adjusted(const tutti__flat_run *run, const matrix *m)
{
    const double a = (double)m->rows, b = (double)m->columns;

    switch (run->options->adjust_lr) {
    case TUTTI_ADJUST_LR_MATCH_RMS_ADAMW:
        return run->lr * 0.2 * sqrt(a > b ? a : b);
    case TUTTI_ADJUST_LR_SPECTRAL_UNCLAMPED:
        return run->lr * sqrt(a / b);
    case TUTTI_ADJUST_LR_ORIGINAL:
        break;
    }
    return run->lr * sqrt(a > b ? a / b : 1);
}

static tutti_status update_by_sgd(const tutti_optim *optim, tutti__flat_run *run)
{
    tutti__optim_options o = *run->options;

    o.momentum = o.others_momentum;
    o.nesterov = o.nesterov && o.momentum > 0;
    run->options = &o;
    return tutti__optim_elementwise(optim, tutti__sgd_update, run);
}

static tutti_status update_other(const tutti_optim *optim, tutti__flat_run *run)
{
    float *const first = run->state[1], *const second = run->state[2];

    run->lr *= run->options->adamw_lr_factor;
    if (!optim->rule->state_names[1])
        return update_by_sgd(optim, run);
    run->state[0] = first;
    run->state[1] = second;
    return tutti__optim_elementwise(optim, tutti__adamw_update, run);
}

static bool is_other(const tutti_optim *optim, const tutti_tensor *parameter)
{
    const size_t i = parameter->parameter->index;

    return i >= optim->n_matrix || !optim->matrix[i];
}

static tutti_status propose(tutti_optim *optim, tutti__flat_run *run)
{
    return is_other(optim, run->parameter) ? update_other(optim, run)
                                           : tutti__optim_elementwise(optim, take_momentum, run);
}

static tutti_status turn(tutti_optim *optim, const tutti__flat_run *run, float *whole)
{
    const matrix u = matrix_of(optim, run->parameter, whole);

    return make_orthogonal(optim, &u, run->options);
}

/* normalize: to the norm of a matrix whose rows have norm 1; zeros stay. */
static tutti_status apply(tutti_optim *optim, tutti__flat_run *run, double of_p, double of_u)
{
    const tutti__optim_options *o = run->options;
    const matrix m = matrix_of(optim, run->parameter, NULL);

    (void)of_u;
    if (o->normalize && of_p > 0)
        TUTTI_TRY(scale(optim, run->p, run->n, sqrt((double)m.rows) / of_p));
    TUTTI_TRY(scale(optim, run->p, run->n, 1 - run->lr * o->weight_decay));
    return add(optim, run->p, run->direction, run->n, -adjusted(run, &m));
}

static tutti_status update(tutti_optim *optim, const tutti__flat_run *given)
{
    tutti__flat_run run = *given;
    double of_p = 0;

    if (is_other(optim, run.parameter))
        return update_other(optim, &run);
    TUTTI_TRY(tutti__optim_scratch(optim, run.n, &run.direction));
    TUTTI_TRY(propose(optim, &run));
    TUTTI_TRY(turn(optim, &run, run.direction));
    if (run.options->normalize)
        TUTTI_TRY(tutti__optim_norm(optim, run.p, run.n, &of_p));
    return apply(optim, &run, of_p, 0);
}

static const tutti__divided_rule in_parts = {
    .is_elementwise = is_other, .propose = propose, .turn = turn, .apply = apply};

/* ---- Construction ---- */

static tutti_status check(const tutti__optim_options *o)
{
    TUTTI_TRY(tutti__optim_check("muon", "momentum", o->momentum, 0, INFINITY));
    TUTTI_TRY(tutti__optim_check("muon", "ns_steps", o->ns_steps, 0, 100));
    TUTTI_TRY(tutti__optim_check("muon", "sgd_momentum", o->others_momentum, 0, INFINITY));
    TUTTI_TRY(tutti__optim_check("muon", "adamw_lr_factor", o->adamw_lr_factor, 0, INFINITY));
    TUTTI_TRY(tutti__optim_check("muon", "adjust_lr", o->adjust_lr, 0,
                                 TUTTI_ADJUST_LR_SPECTRAL_UNCLAMPED + 1));
    for (int i = 0; i < 3; i++)
        TUTTI_TRY(tutti__optim_check("muon", "ns_coefficients", o->ns[i], -INFINITY, INFINITY));
    return tutti__adam_check("muon", o);
}

static const tutti__optim_rule muon = {.name = "muon",
                                       .state_names = {"momentum_buffer", "exp_avg", "exp_avg_sq"},
                                       .update_whole = update,
                                       .divided = &in_parts,
                                       .check = check,
                                       .has =
                                           TUTTI__HAS_MOMENTUM | TUTTI__HAS_BETAS | TUTTI__HAS_EPS};

/* With SGD for the others, whose momentum has the same state. */
static const tutti__optim_rule muon_with_sgd = {.name = "muon",
                                                .state_names = {"momentum_buffer"},
                                                .update_whole = update,
                                                .divided = &in_parts,
                                                .check = check,
                                                .has = TUTTI__HAS_MOMENTUM};

static bool is_matrix(const tutti_optim *optim, const tutti_module *of, const tutti_tensor *t)
{
    const tutti__state *state = tutti__state_of(t);
    const matrix m = matrix_of(optim, t, NULL);

    return tutti__state_below(state, of) && m.rows > 1 && m.columns > 1 &&
           !tutti__is_embedding(state->owner);
}

/* Whether it is one of the matrices of a model that muon updates. */
static bool is_chosen(const tutti_optim *optim, const tutti_module *of, const tutti_tensor *t,
                      const char *adamw, const tutti_tensor *ends[2])
{
    return is_matrix(optim, of, t) &&
           (adamw ? !tutti__tensor_selected(t, adamw)
                  : strcmp(t->name, ends[0]->name) != 0 && strcmp(t->name, ends[1]->name) != 0);
}

/* Chooses the matrices among the parameters there are now; of a part of a model, as in all of it. */
static tutti_status choose_matrices(tutti_optim *optim, const char *adamw)
{
    const struct tutti_root *root = optim->module->root;
    const tutti_module *whole = tutti__whole_of(optim->module);
    const tutti_tensor *ends[2] = {NULL, NULL}, *t;
    size_t n = 0;

    if (adamw)
        TUTTI_TRY(tutti__check_selection(optim->module, adamw, true, "muon: adamw"));
    optim->matrix = tutti__alloc(root->parameters.n * sizeof *optim->matrix);
    if (!optim->matrix)
        return TUTTI_ERR_MEMORY;
    optim->n_matrix = root->parameters.n;
    for (size_t i = 0; (t = tutti_module_parameter(whole, i)) != NULL; i++)
        if (is_matrix(optim, whole, t)) {
            ends[0] = ends[0] ? ends[0] : t;
            ends[1] = t;
        }
    for (size_t i = 0; (t = tutti_module_parameter(whole, i)) != NULL; i++)
        n += is_chosen(optim, whole, t, adamw, ends);
    for (size_t i = 0; i < root->parameters.n; i++)
        optim->matrix[i] =
            is_chosen(optim, optim->module, root->parameters.p[i]->tensor, adamw, ends);
    return n > 0 ? TUTTI_OK
                 : tutti__fail(TUTTI_ERR_ARG, "muon: %s has no matrix %s; use adamw",
                               tutti__module_path(optim->module),
                               adamw ? "that is left to it" : "between its first and its last");
}

tutti_status tutti_muon_new(tutti_optim **optim_p, tutti_module *m, const tutti_muon_opts *opts)
{
    const tutti_muon_opts zero = {0}, *given = opts ? opts : &zero;
    const float *ns = given->ns_coefficients;
    const bool own = ns[0] != 0 || ns[1] != 0 || ns[2] != 0;
    const tutti__optim_options options = {
        .momentum = tutti__optim_option(given->momentum, 0.95),
        .weight_decay = tutti__optim_option(given->weight_decay, 0.1),
        .nesterov = !given->no_nesterov,
        .ns = {own ? tutti__optim_option(ns[0], 0) : 3.4445,
               own ? tutti__optim_option(ns[1], 0) : -4.775,
               own ? tutti__optim_option(ns[2], 0) : 2.0315},
        .ns_eps = tutti__optim_option(given->eps, 1e-7),
        .ns_steps = given->ns_steps ? given->ns_steps : 5,
        .adjust_lr = given->adjust_lr,
        .normalize = given->normalize,
        .others_momentum = tutti__optim_option(given->sgd_momentum, 0.9),
        .adamw_lr_factor = tutti__optim_option(given->adamw_lr_factor, 1),
        .beta1 = tutti__optim_option(given->beta1, 0.9),
        .beta2 = tutti__optim_option(given->beta2, 0.999),
        .eps = tutti__optim_option(given->adamw_eps, 1e-8)};
    tutti_optim *optim;
    tutti_status status;

    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_muon_opts, opts));
    TUTTI_TRY(check(&options));
    TUTTI_TRY(tutti__optim_new(&optim, m, given->others_by_sgd ? &muon_with_sgd : &muon,
                               (float)tutti__or((double)given->lr, 1e-3), &options));
    status = choose_matrices(optim, given->adamw);
    if (status == TUTTI_OK)
        *optim_p = optim;
    else
        tutti_optim_free(optim);
    return status;
}
