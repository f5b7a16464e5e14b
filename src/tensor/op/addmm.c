/* addmm.c -- beta * input + alpha * a b, of matrices and of batches of them.   SPDX-License-Identifier: MIT */
#include "tensor/op/matmul.h"

/* Whether `from` is broadcast to `to` without changing it. */
static bool expands_to(tutti_shape from, tutti_shape to)
{
    bool fits = from.n <= to.n;

    for (int i = 1; fits && i <= from.n; i++)
        fits = from.d[from.n - i] == 1 || from.d[from.n - i] == to.d[to.n - i];
    return fits;
}

/* beta * input + alpha * y, y a new product or NULL or poisoned */
static tutti_tensor *add_product(const char *name, tutti_tensor *input, tutti_tensor *y, float beta,
                                 float alpha)
{
    if (!y || y->poison != TUTTI_OK)
        return y;
    if (!input && beta != 0)
        return tutti__poisoned(y->cx, tutti__fail(TUTTI_ERR_ARG, "%s: input is NULL", name));
    if (alpha != 1)
        y = tutti_scale(y, alpha);
    if (!input)
        return y;
    if (tutti_tensor_status(input) != TUTTI_OK)
        return input;
    if (!expands_to(input->shape, y->shape))
        return tutti__poisoned(
            y->cx, tutti__fail(TUTTI_ERR_ARG,
                               "%s: input is %s, which cannot be expanded to the product's %s",
                               name, tutti__shape_text(input->shape), tutti__shape_text(y->shape)));
    if (beta == 0) /* then NaN and infinity in input do not count */
        return y;
    if (input->dtype != y->dtype)
        input = tutti_cast(input, y->dtype);
    return tutti_add(beta == 1 ? input : tutti_scale(input, beta), y);
}

tutti_tensor *tutti_addmm(tutti_tensor *input, tutti_tensor *a, tutti_tensor *b, float beta,
                          float alpha)
{
    const tutti__matmul_kind kind = {.a_dims = "[M,K]", .b_dims = "[K,N]"};

    return add_product("addmm", input, tutti__matmul_run("addmm", a, b, &kind), beta, alpha);
}

tutti_tensor *tutti_baddbmm(tutti_tensor *input, tutti_tensor *a, tutti_tensor *b, float beta,
                            float alpha)
{
    const tutti__matmul_kind kind = {.a_dims = "[B,M,K]", .b_dims = "[B,K,N]"};

    return add_product("baddbmm", input, tutti__matmul_run("baddbmm", a, b, &kind), beta, alpha);
}
