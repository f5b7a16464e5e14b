/* optim_norm.c -- the norm of the gradients of one large matrix.   SPDX-License-Identifier: MIT
 *
 *     bench_optim_norm [ELEMENTS [THREADS [ROUNDS]]]
 *
 * 124 million elements by default, as GPT-2 has; milliseconds of tutti_clip_grad_norm without a limit: of the clock, median
 * and least, and of all threads' processor time, median; and the GB/s of the median. */
#include "nn/nn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <tutti/tutti.h>

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double processor_ms(void)
{
    return (double)clock() * 1e3 / CLOCKS_PER_SEC;
}

int main(int argc, char **argv)
{
    const int64_t side = (int64_t)sqrt(argc > 1 ? atof(argv[1]) : 124e6);
    const tutti_ctx_opts opts = {.threads = argc > 2 ? atoi(argv[2]) : 1};
    const int rounds = argc > 3 ? atoi(argv[3]) : 31;
    const size_t n = rounds > 0 ? (size_t)rounds : 1;
    double *times = calloc(n, sizeof *times), *used = calloc(n, sizeof *used);
    tutti_module root;
    tutti_linear fc;
    tutti_flat flat;
    tutti_ctx *cx;
    float norm = 0;

    if (!times || !used || rounds < 1 || side < 1)
        return 1;
    TUTTI_MUST(tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, &opts));
    tutti_module_init(&root, cx);
    tutti_linear_init_with(&fc, &root, "fc",
                           &(tutti_linear_layer_opts){.in = side, .out = side, .no_bias = true});
    TUTTI_MUST(tutti_module_flat(&root, &flat));
    for (size_t i = 0; i < flat.n; i++)
        flat.gradients[i] = (float)((i * 2654435761u >> 8) % 20011) / 10000 - 1;
    fc.weight->parameter->grad_round = *fc.weight->parameter->round;
    for (int i = 0; i < rounds; i++) {
        const double before = processor_ms();
        const uint64_t begin = tutti__now_ns();

        TUTTI_MUST(tutti_clip_grad_norm(&root, 0, &norm));
        times[i] = (double)(tutti__now_ns() - begin) / 1e6;
        used[i] = processor_ms() - before;
    }
    qsort(times, n, sizeof *times, compare);
    qsort(used, n, sizeof *used, compare);
    printf("%lld elements, %d threads: median %.2f ms, least %.2f, of the processor %.2f, %.1f "
           "GB/s, norm %.9g\n",
           (long long)(side * side), tutti_ctx_threads(cx), times[n / 2], times[0], used[n / 2],
           (double)(side * side) * 4e-6 / times[n / 2], (double)norm);
    tutti_module_destroy(&root);
    tutti_ctx_free(cx);
    free(times);
    free(used);
    return 0;
}
