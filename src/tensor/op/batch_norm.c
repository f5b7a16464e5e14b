/* batch_norm.c -- batch normalisation of [N,C], [N,C,L] and [N,C,D,H,W]: batch_norm2d of the same elements as [N,C,H,W].
 * SPDX-License-Identifier: MIT */
#include "tensor/op.h"

static bool fits(const tutti_tensor *x, int at_least, int at_most)
{
    return x->poison != TUTTI_OK || (x->shape.n >= at_least && x->shape.n <= at_most);
}

static tutti_shape as_image(tutti_shape x)
{
    return x.n == 5   ? TUTTI_SHAPE(x.d[0], x.d[1], x.d[2], x.d[3] * x.d[4])
           : x.n == 3 ? TUTTI_SHAPE(x.d[0], x.d[1], x.d[2], 1)
                      : TUTTI_SHAPE(x.d[0], x.d[1], 1, 1);
}

static tutti_tensor *by_images(const char *name, tutti_tensor *x,
                               const tutti_batch_norm2d_args *given, const char *expected,
                               int at_least, int at_most)
{
    tutti_batch_norm2d_args args = {0};
    tutti_tensor *residual;

    if (given)
        args = *given;
    residual = args.residual;
    if (!x || x->poison != TUTTI_OK)
        return tutti_functional_batch_norm2d(x, &args);
    if (!fits(x, at_least, at_most) || (residual && !fits(residual, at_least, at_most)))
        return tutti__poisoned(
            x->cx,
            tutti__fail(TUTTI_ERR_ARG, "%s: %s is %s, expected %s", name,
                        fits(x, at_least, at_most) ? "residual" : "x",
                        tutti__shape_text(fits(x, at_least, at_most) ? residual->shape : x->shape),
                        expected));
    if (residual && residual->poison == TUTTI_OK)
        args.residual = tutti_reshape(residual, as_image(residual->shape));
    return tutti_reshape(tutti_functional_batch_norm2d(tutti_reshape(x, as_image(x->shape)), &args),
                         x->shape);
}

tutti_tensor *tutti_functional_batch_norm1d(tutti_tensor *x, const tutti_batch_norm2d_args *args)
{
    return by_images("batch_norm1d", x, args, "[N,C] or [N,C,L]", 2, 3);
}

tutti_tensor *tutti_functional_batch_norm3d(tutti_tensor *x, const tutti_batch_norm2d_args *args)
{
    return by_images("batch_norm3d", x, args, "[N,C,D,H,W]", 5, 5);
}
