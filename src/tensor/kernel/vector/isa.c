/* isa.c -- the tables of the instruction sets in this build.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/vector/isa.h"

#include <string.h>
#if defined(TUTTI__HAS_AMX)
#include <sys/syscall.h>
#include <unistd.h>
#endif

extern const tutti__isa tutti__isa_base;
#if defined(__x86_64__)
extern const tutti__isa tutti__isa_avx2, tutti__isa_avx512;
#endif
#if defined(TUTTI__HAS_AMX)
extern const tutti__isa tutti__isa_avx512_amx;
#endif

bool tutti__isa_may_use_amx(void)
{
#if defined(TUTTI__HAS_AMX)
    enum { REQUEST = 0x1023, TILE_DATA = 18 }; /* Linux: ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */

    return __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
           __builtin_cpu_supports("avx512bf16") && syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
#else
    return false;
#endif
}

const tutti__isa *tutti__isa_of(const char *isa)
{
#if defined(TUTTI__HAS_AMX)
    if (strcmp(isa, "avx512_amx") == 0)
        return &tutti__isa_avx512_amx;
#endif
#if defined(__x86_64__)
    if (strcmp(isa, "avx512") == 0)
        return &tutti__isa_avx512;
    if (strcmp(isa, "avx2") == 0)
        return &tutti__isa_avx2;
#endif
    (void)isa;
    return &tutti__isa_base;
}
