/* tensor_products.c -- matrix products of GPT-2's shapes beside oneDNN's: CPU time on one thread, and part of its FMA peak.
 * SPDX-License-Identifier: MIT
 *
 *     OMP_NUM_THREADS=1 build/bench/bench_tensor_products [TOKENS]...       also with TUTTI_CPU_ISA=avx2
 *
 * forward y = x w^T and y = x w (Hugging Face's transposed weights), the gradients of x and of w. CPU time, which other programs on the
 * machine disturb least; the fastest of several rounds. oneDNN's are dnnl_sgemm. */
#include "device/cpu/peak.h"
#include "tensor/kernel/onednn/onednn_state.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef int gemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                 int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

/* A product as both compute it: ours, and row-major c [m,n] of theirs. */
typedef struct kind {
    const char *name;
    tutti__product p;
    char ta, tb;
    int64_t m, n, k;
    const float *a, *b;
    int64_t lda, ldb;
    float *c;
} kind;

typedef struct stand {
    tutti_ctx *cx;
    const tutti__isa *isa;
    void *work; /* of the largest product so far */
    size_t bytes;
    gemm *sgemm; /* NULL: there is none */
    double peak;
} stand;

static double cpu_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void ours(stand *s, const kind *k)
{
    const size_t bytes = (s->isa->multiply_work(s->cx, &k->p) + 63) / 64 * 64;

    if (bytes > s->bytes) {
        free(s->work);
        s->work = aligned_alloc(64, bytes);
        s->bytes = bytes;
    }
    s->isa->multiply(s->cx, &k->p, s->work);
}

static void theirs(stand *s, const kind *k)
{
    s->sgemm(k->ta, k->tb, k->m, k->n, k->k, 1, k->a, k->lda, k->b, k->ldb, 0, k->c, k->n);
}

static double best(stand *s, const kind *k, void (*run)(stand *s, const kind *k))
{
    const double end = cpu_now() + 0.6;
    double least = 1e9;

    run(s, k);
    for (int i = 0; i < 200 && (i < 4 || cpu_now() < end); i++) {
        const double begin = cpu_now();
        double t;

        run(s, k);
        t = cpu_now() - begin;
        least = t < least ? t : least;
    }
    return least;
}

static void report(stand *s, const kind *k)
{
    const double flops = 2.0 * (double)(k->m * k->n * k->k) * 1e-9, a = best(s, k, ours);
    double b;

    printf("%5ld x %5ld x %5ld  %-12s %8.3f ms %6.1f GFLOP/s %.2f", (long)k->m, (long)k->n,
           (long)k->k, k->name, a * 1e3, flops / a, flops / a / s->peak);
    if (s->sgemm) {
        b = best(s, k, theirs);
        printf("   oneDNN %8.3f ms %.2f", b * 1e3, flops / b / s->peak);
    }
    printf("\n");
    fflush(stdout);
}

static float *memory(int64_t n)
{
    float *p = aligned_alloc(64, (size_t)(n * 4 + 63) / 64 * 64);

    for (int64_t i = 0; p && i < n; i++)
        p[i] = (float)(i % 7) - 3;
    return p;
}

/* R rows, I features in, O out */
static void layer(stand *s, int64_t R, int64_t I, int64_t O)
{
    float *x = memory(R * I), *w = memory(I * O), *y = memory(R * O), *dx = memory(R * I),
          *dw = memory(I * O);
    const kind kinds[] = {
        {"y = x w^T",
         {O, R, I, w, x, y, I, 1, 1, I, O, .transposed = true},
         'N',
         'T',
         R,
         O,
         I,
         x,
         w,
         I,
         I,
         y},
        {"dx = dy w",
         {R, I, O, y, w, dx, O, 1, I, 1, I, .transposed = false},
         'N',
         'N',
         R,
         I,
         O,
         y,
         w,
         O,
         I,
         dx},
        {"dw = dy^T x",
         {O, I, R, y, x, dw, 1, O, I, 1, I, .transposed = false},
         'T',
         'N',
         O,
         I,
         R,
         y,
         x,
         O,
         I,
         dw},
        {"y = x w",
         {R, O, I, x, w, y, I, 1, O, 1, O, .transposed = false},
         'N',
         'N',
         R,
         O,
         I,
         x,
         w,
         I,
         O,
         y},
        {"dx = dy w^T",
         {I, R, O, w, y, dx, O, 1, 1, O, I, .transposed = true},
         'N',
         'T',
         R,
         I,
         O,
         y,
         w,
         O,
         O,
         dx},
        {"dw = x^T dy",
         {I, O, R, x, y, dw, 1, I, O, 1, O, .transposed = false},
         'T',
         'N',
         I,
         O,
         R,
         x,
         y,
         I,
         O,
         dw},
    };

    for (size_t k = 0; x && w && y && dx && dw && k < (O > 10000 ? 3 : 6); k++)
        report(s, &kinds[k]);
    free(x);
    free(w);
    free(y);
    free(dx);
    free(dw);
}

int main(int argc, char **argv)
{
    static const int64_t layers[][2] = {
        {768, 2304}, {768, 768}, {768, 3072}, {3072, 768}, {768, 50257}};
    stand s = {0};
    tutti__cpu_peak peak;
    union {
        void *p;
        gemm *f;
    } symbol;

    TUTTI_MUST(tutti__cpu_peak_measure(&peak));
    TUTTI_MUST(tutti_ctx_new(&s.cx, (tutti_device){TUTTI_CPU, 0}, &(tutti_ctx_opts){.threads = 1}));
    s.isa = ((const tutti__onednn *)s.cx->kernel_state)->isa;
    s.peak = peak.gflops;
    symbol.p = dlsym(RTLD_DEFAULT, "dnnl_sgemm");
    s.sgemm = symbol.f;
    printf("peak %.1f GFLOP/s, %s; rows x columns x sum\n", peak.gflops, peak.isa);
    for (int i = 1; i < (argc > 1 ? argc : 2); i++)
        for (size_t k = 0; k < TUTTI__COUNT_OF(layers); k++)
            layer(&s, argc > 1 ? atoi(argv[i]) : 256, layers[k][0], layers[k][1]);
    free(s.work);
    tutti_ctx_free(s.cx);
    return 0;
}
