/* tensor_products.c -- matrix products of GPT-2's shapes beside oneDNN's: CPU time on one thread, and part of its FMA peak.
 * SPDX-License-Identifier: MIT
 *
 *     OMP_NUM_THREADS=1 build/bench/bench_tensor_products [TOKENS=256]...       also with TUTTI_CPU_ISA=avx2
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

static double cpu_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef struct job {
    tutti_ctx *cx;
    const tutti__isa *isa;
    tutti__product p;
    void *work;
    gemm *sgemm;
    char ta, tb;
    int64_t lda, ldb;
    const float *a, *b;
} job;

static void ours(const job *j)
{
    j->isa->multiply(j->cx, &j->p, j->work);
}
/* row-major c [rows][columns] as theirs */
static int64_t M, N, K;
static float *C;
static void theirs(const job *j)
{
    j->sgemm(j->ta, j->tb, M, N, K, 1, j->a, j->lda, j->b, j->ldb, 0, C, N);
}

static double best(const job *j, void (*run)(const job *j))
{
    double least = 1e9;
    const double end = cpu_now() + 0.6;

    run(j);
    for (int i = 0; i < 200 && (i < 4 || cpu_now() < end); i++) {
        const double begin = cpu_now();

        run(j);
        const double t = cpu_now() - begin;
        least = t < least ? t : least;
    }
    return least;
}

static float *memory(int64_t n)
{
    float *p = aligned_alloc(64, (size_t)(n * 4 + 63) / 64 * 64);

    for (int64_t i = 0; i < n; i++)
        p[i] = (float)(i % 7) - 3;
    return p;
}

int main(int argc, char **argv)
{
    static const struct {
        int64_t in, out;
    } layers[] = {{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}, {768, 50257}};
    job j = {0};
    tutti__cpu_peak peak;
    union {
        void *p;
        gemm *f;
    } symbol;

    TUTTI_MUST(tutti__cpu_peak_measure(&peak));
    TUTTI_MUST(tutti_ctx_new(&j.cx, (tutti_device){TUTTI_CPU, 0}, &(tutti_ctx_opts){.threads = 1}));
    j.isa = ((const tutti__onednn *)j.cx->kernel_state)->isa;
    j.work = aligned_alloc(64, (j.isa->multiply_work(j.cx) + 63) / 64 * 64);
    symbol.p = dlsym(RTLD_DEFAULT, "dnnl_sgemm");
    j.sgemm = symbol.f;
    printf("peak %.1f GFLOP/s %s\n", peak.gflops, peak.isa);
    for (int arg = 1; arg < (argc > 1 ? argc : 2); arg++) {
        const int64_t R = argc > 1 ? atoi(argv[arg]) : 256;

        for (size_t i = 0; i < TUTTI__COUNT_OF(layers); i++) {
            const int64_t I = layers[i].in, O = layers[i].out;
            float *x = memory(R * I), *w = memory(I * O), *y = memory(R * O), *dx = memory(R * I),
                  *dw = memory(I * O);
            const struct {
                const char *name;
                tutti__product p;
                char ta, tb;
                int64_t m, n, k;
                const float *a, *b;
                int64_t lda, ldb;
                float *c;
            } kinds[] = {
                {"y = x w^T",
                 {.rows = O,
                  .columns = R,
                  .inner = I,
                  .a = w,
                  .a_row = I,
                  .a_k = 1,
                  .b = x,
                  .b_k = 1,
                  .b_column = I,
                  .c = y,
                  .c_step = O,
                  .transposed = true},
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
                 {.rows = R,
                  .columns = I,
                  .inner = O,
                  .a = y,
                  .a_row = O,
                  .a_k = 1,
                  .b = w,
                  .b_k = I,
                  .b_column = 1,
                  .c = dx,
                  .c_step = I},
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
                 {.rows = O,
                  .columns = I,
                  .inner = R,
                  .a = y,
                  .a_row = 1,
                  .a_k = O,
                  .b = x,
                  .b_k = I,
                  .b_column = 1,
                  .c = dw,
                  .c_step = I},
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
                 {.rows = R,
                  .columns = O,
                  .inner = I,
                  .a = x,
                  .a_row = I,
                  .a_k = 1,
                  .b = w,
                  .b_k = O,
                  .b_column = 1,
                  .c = y,
                  .c_step = O},
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
                 {.rows = I,
                  .columns = R,
                  .inner = O,
                  .a = w,
                  .a_row = O,
                  .a_k = 1,
                  .b = y,
                  .b_k = 1,
                  .b_column = O,
                  .c = dx,
                  .c_step = I,
                  .transposed = true},
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
                 {.rows = I,
                  .columns = O,
                  .inner = R,
                  .a = x,
                  .a_row = 1,
                  .a_k = I,
                  .b = y,
                  .b_k = O,
                  .b_column = 1,
                  .c = dw,
                  .c_step = O},
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

            for (size_t k = 0; k < (O > 10000 ? 3 : 6); k++) {
                const double flops = 2.0 * (double)(R * I * O);
                double a, b = 0;

                j.p = kinds[k].p;
                j.ta = kinds[k].ta, j.tb = kinds[k].tb;
                M = kinds[k].m, N = kinds[k].n, K = kinds[k].k, C = kinds[k].c;
                j.a = kinds[k].a, j.b = kinds[k].b, j.lda = kinds[k].lda, j.ldb = kinds[k].ldb;
                a = best(&j, ours);
                if (j.sgemm)
                    b = best(&j, theirs);
                printf("%5ld x %4ld -> %5ld  %-12s %8.3f ms %6.1f GFLOP/s %.2f", R, I, O,
                       kinds[k].name, a * 1e3, flops / a * 1e-9, flops / a * 1e-9 / peak.gflops);
                if (b > 0)
                    printf("   oneDNN %8.3f ms %.2f", b * 1e3, flops / b * 1e-9 / peak.gflops);
                printf("\n");
                fflush(stdout);
            }
            free(x), free(w), free(y), free(dx), free(dw);
        }
    }
    return 0;
}
