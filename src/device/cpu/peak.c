/* peak.c -- short loops of FMAs, one per instruction set, and a copy.   SPDX-License-Identifier: MIT
 *
 * Twelve independent sums hide the latency of an FMA (4 cycles, two at once) and fit into the 16 registers
 * of AVX2. The fastest of many short rounds counts, so that interrupts and the rising clock rate of the first ones do not. */
#include "device/cpu/peak.h"

#include <stdlib.h>
#include <string.h>
#ifdef __aarch64__
#include <arm_neon.h>
#endif

enum { SUMS = 12, ROUNDS = 60, LOOPS = 10000 }; /* a round: 60 us at 4 GHz */

/* name(): seconds of a round of LOOPS times SUMS FMAs; `registers` is the assembler constraint of vectors. */
#define ROUND(name, target, registers, vec, fma)                                                   \
    target static double name(void)                                                                \
    {                                                                                              \
        const vec x = (vec){0} + 0.9999f, y = (vec){0} + 0.5f;                                     \
        vec a0 = y, a1 = y, a2 = y, a3 = y, a4 = y, a5 = y, a6 = y, a7 = y, a8 = y, a9 = y,        \
            a10 = y, a11 = y;                                                                      \
        const uint64_t begin_ns = tutti__now_ns();                                                 \
                                                                                                   \
        for (int i = 0; i < LOOPS; i++) {                                                          \
            a0 = fma(a0, x, y), a1 = fma(a1, x, y), a2 = fma(a2, x, y), a3 = fma(a3, x, y);        \
            a4 = fma(a4, x, y), a5 = fma(a5, x, y), a6 = fma(a6, x, y), a7 = fma(a7, x, y);        \
            a8 = fma(a8, x, y), a9 = fma(a9, x, y), a10 = fma(a10, x, y), a11 = fma(a11, x, y);    \
            /* To the compiler each has its own value. */                                          \
            __asm__ volatile(""                                                                    \
                             : "+" registers(a0), "+" registers(a1), "+" registers(a2),            \
                               "+" registers(a3), "+" registers(a4), "+" registers(a5),            \
                               "+" registers(a6), "+" registers(a7), "+" registers(a8),            \
                               "+" registers(a9), "+" registers(a10), "+" registers(a11));         \
        }                                                                                          \
        return (double)(tutti__now_ns() - begin_ns) * 1e-9;                                        \
    }

#if defined(__x86_64__)
/* Without immintrin.h, which takes longer to compile than the rest of this file. */
typedef float float16 __attribute__((vector_size(64)));
typedef float float8 __attribute__((vector_size(32)));
typedef float float4 __attribute__((vector_size(16)));
#define FMA(letter, a, x, y)                                                                       \
    (__extension__({                                                                               \
        __asm__("vfmadd213ps %2, %1, %0" : "+" letter(a) : letter(x), letter(y));                  \
        a;                                                                                         \
    }))
#define AVX512_FMA(a, x, y) FMA("v", a, x, y)
#define AVX2_FMA(a, x, y)   FMA("x", a, x, y)
#define SSE_FMA(a, x, y)    ((a) * (x) + (y))
ROUND(round_avx512, __attribute__((target("avx512f"))), "v", float16, AVX512_FMA)
ROUND(round_avx2, __attribute__((target("avx2,fma"))), "x", float8, AVX2_FMA)
ROUND(round_sse41, , "x", float4, SSE_FMA)
#elif defined(__aarch64__)
/* The accumulator is the destination: one instruction, whose result cores forward early to the next FMA. */
#define NEON_FMA(a, x, y) vfmaq_f32(a, x, y)
ROUND(round_neon, , "w", float32x4_t, NEON_FMA)
#endif

typedef struct isa {
    const char *name;
    int lanes;
    double (*round)(void);
} isa;

/* The highest that the CPU has and TUTTI_CPU_ISA allows; an unknown value is no limit. */
static isa choose(void)
{
#if defined(__x86_64__)
    static const isa isas[] = {
        {"avx512", 16, round_avx512}, {"avx2", 8, round_avx2}, {"sse41", 4, round_sse41}};
    const bool has[] = {__builtin_cpu_supports("avx512f"),
                        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"), true};
    const char *limit = tutti__env_text(TUTTI__ENV_CPU_ISA);
    size_t first = 0;

    for (size_t i = 0; i < TUTTI__COUNT_OF(isas); i++)
        if (strcmp(limit, isas[i].name) == 0)
            first = i;
    while (!has[first])
        first++;
    return isas[first];
#elif defined(__aarch64__)
    return (isa){"neon", 4, round_neon};
#else
    return (isa){"", 0, NULL};
#endif
}

static double fastest(double (*round)(void))
{
    double best = 0;

    for (int i = 0; i < ROUNDS; i++) {
        const double seconds = round();

        if (best == 0 || seconds < best)
            best = seconds;
    }
    return best;
}

static tutti_status measure_copy(double *gbps_p)
{
    const size_t bytes = 32 << 20;
    char *memory = malloc(2 * bytes);

    if (!memory)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to measure a copy of %zu bytes", bytes);
    memset(memory, 1, 2 * bytes); /* page faults first */
    *gbps_p = 0;
    for (int i = 0; i < 3; i++) {
        const uint64_t begin_ns = tutti__now_ns();
        double gbps;

        memcpy(memory + (i % 2 ? bytes : 0), memory + (i % 2 ? 0 : bytes), bytes);
        gbps = 2 * (double)bytes / (double)(tutti__now_ns() - begin_ns);
        *gbps_p = gbps > *gbps_p ? gbps : *gbps_p;
    }
    free(memory);
    return TUTTI_OK;
}

double tutti__cpu_peak_gflops(const char **isa_p)
{
    const isa i = choose();

    *isa_p = i.name;
    return i.round ? 2.0 * LOOPS * SUMS * i.lanes / (fastest(i.round) * 1e9) : 0;
}

tutti_status tutti__cpu_peak_measure(tutti__cpu_peak *peak)
{
    peak->gflops = tutti__cpu_peak_gflops(&peak->isa);
    return measure_copy(&peak->gbps);
}
