/* own_operation.c -- an operation that Tutti lacks, squareplus: (x + sqrt(x^2 + b)) / 2, and its test.   SPDX-License-Identifier: MIT
 *     cc own_operation.c $(pkg-config --cflags --libs tutti) -lm && ./a.out */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

static void forward(const tutti_op_args *p)
{
    const float *x = p->src[0], b = *(const float *)p->attributes;

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = (x[i] + sqrtf(x[i] * x[i] + b)) / 2;
}

static void backward(const tutti_op_args *p)
{
    const float *x = p->src[0], b = *(const float *)p->attributes;

    for (int64_t i = 0; i < p->count; i++)
        p->dsrc[0][i] = p->dy[i] * (1 + x[i] / sqrtf(x[i] * x[i] + b)) / 2;
}

tutti_tensor *squareplus(tutti_tensor *x, float b); /* for other files */
tutti_tensor *squareplus(tutti_tensor *x, float b)
{
    static const tutti_op op = {.name = "squareplus",
                                .forward = forward,
                                .backward = backward,
                                .elementwise = true,
                                .backward_reads = 1,
                                .activations = 1};

    return tutti_op_run(&op, &x, 1, &b, sizeof b);
}

static tutti_tensor *call(tutti_tensor *const *src, void *b)
{
    return squareplus(src[0], *(const float *)b);
}

int main(void)
{
    const float x[] = {-2, -0.5f, 0, 0.5f, 2, 30};

    TUTTI_MUST(tutti_op_check(call, &(float){4}, &(tutti_array){x, TUTTI_SHAPE(2, 3), TUTTI_F32}, 1,
                              NULL));
    printf("squareplus is right\n");
}
