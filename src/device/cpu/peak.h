/* peak.h -- what a core of this machine can do, measured.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DEVICE_CPU_PEAK_H
#define TUTTI_DEVICE_CPU_PEAK_H

#include "base/base.h"

typedef struct tutti__cpu_peak {
    /* "avx512", "avx2", "sse41", "neon"; "": none that can be measured, and gflops is 0 */
    const char *isa;
    /* F32 FMAs (sse41: products and sums) in the widest vectors of `isa` and registers alone; an FMA is two */
    double gflops;
    double gbps; /* a copy of 32 MiB, 1e9 bytes a second, read and written */
} tutti__cpu_peak;

/* Measures on the calling thread's core, for about 50 ms, with the instruction set that TUTTI_CPU_ISA allows. Errors: MEMORY. */
tutti_status tutti__cpu_peak_measure(tutti__cpu_peak *peak);

/* gflops alone, which needs no memory. */
double tutti__cpu_peak_gflops(const char **isa_p);

#endif
