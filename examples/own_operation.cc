/* own_operation.cc -- own_operation.c in C++: tutti_op with lambdas.   SPDX-License-Identifier: MIT
 *     c++ own_operation.cc $(pkg-config --cflags --libs tutti) && ./a.out */
#include <cmath>
#include <cstdio>
#include <tutti/tutti.h>

static tutti_op make()
{
    tutti_op op = {};

    op.name = "squareplus";
    op.elementwise = true;
    op.backward_reads = op.activations = 1 << 0;
    op.forward = [](const tutti_op_args *p) {
        auto x = static_cast<const float *>(p->src[0]), b = static_cast<const float *>(p->attributes);

        for (int64_t i = 0; i < p->count; i++)
            p->y[i] = (x[i] + std::sqrt(x[i] * x[i] + *b)) / 2;
    };
    op.backward = [](const tutti_op_args *p) {
        auto x = static_cast<const float *>(p->src[0]), b = static_cast<const float *>(p->attributes);

        for (int64_t i = 0; i < p->count; i++)
            p->dsrc[0][i] = p->dy[i] * (1 + x[i] / std::sqrt(x[i] * x[i] + *b)) / 2;
    };
    return op;
}

extern "C" tutti_tensor *squareplus(tutti_tensor *x, float b)
{
    static const tutti_op op = make();

    return tutti_op_run(&op, &x, 1, &b, sizeof b);
}

int main()
{
    const float x[] = {-2, -0.5f, 0, 0.5f, 2, 30};
    const tutti_array source = {x, TUTTI_SHAPE(2, 3), TUTTI_F32};
    auto call = [](tutti_tensor *const *src, void *) { return squareplus(src[0], 4); };

    TUTTI_MUST(tutti_op_check(call, nullptr, &source, 1, nullptr));
    std::puts("squareplus is right");
}
