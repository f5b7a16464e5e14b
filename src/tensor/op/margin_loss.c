/* margin_loss.c -- losses with a margin, and soft_margin_loss.   SPDX-License-Identifier: MIT
 *   margin_ranking_loss     max(0, margin - t (a - b))
 *   hinge_embedding_loss    x where t = 1, max(0, margin - x) where t = -1
 *   cosine_embedding_loss   with c the cosine of a and b: 1 - c where t = 1, max(0, c - margin) where t = -1
 *   triplet_margin_loss     max(0, margin + d(anchor, positive) - d(anchor, negative))
 *   soft_margin_loss        log(1 + exp(-t x)) */
#include "tensor/op/elementwise.h"
#include "tensor/op/loss.h"

static tutti_status ranking_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    return tutti__loss_shape(p, (const char *const[]){"a", "b", "target"}, 0, y);
}

static tutti_status hinge_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    return tutti__loss_shape(p, (const char *const[]){"x", "target"}, 0, y);
}

static tutti_status cosine_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    return tutti__loss_shape(p, (const char *const[]){"the cosine of a and b", "target"}, 0, y);
}

static tutti_status triplet_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    return tutti__loss_shape(
        p, (const char *const[]){"the distance to positive", "the distance to negative"}, 0, y);
}

#define soft_shape hinge_shape

#define LOSS(loss, prefix, n_sources)                                                              \
    {                                                                                              \
        .each =                                                                                    \
            TUTTI__ELEMENTWISE(#loss, loss, .shape = prefix##_shape,                               \
                               .activations = (1 << (n_sources)) - 1, .autocast = TUTTI_OP_F32)    \
    }

/* ---- The functions --------------------------------------------------------------------------------- */

/* margin by default as in PyTorch */
static tutti_tensor *run(const tutti__loss_op *loss, tutti_tensor *const *src, int n_src,
                         const tutti_margin_loss_opts *opts, double by_default)
{
    const tutti__constants margin = {
        (float)(opts ? tutti__or((double)opts->margin, by_default) : by_default), 0};

    if (src[0] && TUTTI__CHECK_RESERVED(tutti_margin_loss_opts, opts) != TUTTI_OK)
        return tutti__poisoned(src[0]->cx, TUTTI_ERR_ARG);
    return tutti__loss_run(loss, src, n_src, opts ? opts->reduction : TUTTI_REDUCTION_MEAN, &margin,
                           sizeof margin);
}

tutti_tensor *tutti_margin_ranking_loss(tutti_tensor *a, tutti_tensor *b, tutti_tensor *target,
                                        const tutti_margin_loss_opts *opts)
{
    static const tutti__loss_op loss = LOSS(margin_ranking_loss, ranking, 3);

    return run(&loss, (tutti_tensor *[]){a, b, target}, 3, opts, 0);
}

tutti_tensor *tutti_hinge_embedding_loss(tutti_tensor *x, tutti_tensor *target,
                                         const tutti_margin_loss_opts *opts)
{
    static const tutti__loss_op loss = LOSS(hinge_embedding_loss, hinge, 2);

    return run(&loss, (tutti_tensor *[]){x, target}, 2, opts, 1);
}

/* Poison that names `loss`, unless all shapes are equal and have a dimension; NULL if they are, or a tensor is absent or poisoned,
 * which operations report. */
static tutti_tensor *check_vectors(const char *loss, const char *const *names,
                                   tutti_tensor *const *x, int n)
{
    for (int i = 0; i < n; i++)
        if (!x[i] || x[i]->poison != TUTTI_OK)
            return NULL;
    if (x[0]->shape.n == 0)
        return tutti__poisoned(x[0]->cx, tutti__fail(TUTTI_ERR_ARG,
                                                     "%s: %s is a scalar, expected [N,D] or [D]",
                                                     loss, names[0]));
    for (int i = 1; i < n; i++)
        if (!tutti_shape_equal(x[i]->shape, x[0]->shape))
            return tutti__poisoned(
                x[0]->cx,
                tutti__fail(
                    TUTTI_ERR_ARG,
                    "%s: %s is %s but %s is %s; nothing is broadcast, make the shapes equal", loss,
                    names[0], tutti__shape_text(x[0]->shape), names[i],
                    tutti__shape_text(x[i]->shape)));
    return NULL;
}

tutti_tensor *tutti_cosine_embedding_loss(tutti_tensor *a, tutti_tensor *b, tutti_tensor *target,
                                          const tutti_margin_loss_opts *opts)
{
    static const tutti__loss_op loss = LOSS(cosine_embedding_loss, cosine, 2);
    tutti_tensor *poison = check_vectors("cosine_embedding_loss", (const char *const[]){"a", "b"},
                                         (tutti_tensor *[]){a, b}, 2);

    if (poison)
        return poison;
    /* PyTorch adds 1e-12 to the squares of the norms instead */
    return run(&loss, (tutti_tensor *[]){tutti_cosine_similarity(a, b, -1, 1e-6f), target}, 2, opts,
               0);
}

tutti_tensor *tutti_triplet_margin_loss(tutti_tensor *anchor, tutti_tensor *positive,
                                        tutti_tensor *negative,
                                        const tutti_triplet_margin_loss_opts *opts)
{
    static const tutti__loss_op loss = LOSS(triplet_margin_loss, triplet, 2);
    const tutti_triplet_margin_loss_opts o = opts ? *opts : (tutti_triplet_margin_loss_opts){0};
    const tutti__constants margin = {(float)tutti__or((double)o.margin, 1), 0};
    const float p = o.p == 0 ? 2 : o.p;
    const float eps = (float)tutti__or((double)o.eps, 1e-6);
    tutti_tensor *poison = check_vectors("triplet_margin_loss",
                                         (const char *const[]){"anchor", "positive", "negative"},
                                         (tutti_tensor *[]){anchor, positive, negative}, 3);
    tutti_tensor *near, *far;

    if (anchor && TUTTI__CHECK_RESERVED(tutti_triplet_margin_loss_opts, opts) != TUTTI_OK)
        return tutti__poisoned(anchor->cx, TUTTI_ERR_ARG);
    if (poison)
        return poison;
    near = tutti_pairwise_distance(anchor, positive, p, eps, false);
    far = tutti_pairwise_distance(anchor, negative, p, eps, false);
    if (o.swap)
        far = tutti_minimum(far, tutti_pairwise_distance(positive, negative, p, eps, false));
    return tutti__loss_run(&loss, (tutti_tensor *[]){near, far}, 2, o.reduction, &margin,
                           sizeof margin);
}

tutti_tensor *tutti_soft_margin_loss(tutti_tensor *x, tutti_tensor *target,
                                     const tutti_loss_opts *opts)
{
    static const tutti__loss_op loss = LOSS(soft_margin_loss, soft, 2);

    if (x && TUTTI__CHECK_RESERVED(tutti_loss_opts, opts) != TUTTI_OK)
        return tutti__poisoned(x->cx, TUTTI_ERR_ARG);
    return tutti__loss_run(&loss, (tutti_tensor *[]){x, target}, 2,
                           opts ? opts->reduction : TUTTI_REDUCTION_MEAN, NULL, 0);
}
