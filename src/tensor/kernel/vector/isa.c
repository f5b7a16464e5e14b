/* isa.c -- the tables of the instruction sets in this build.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/vector/isa.h"

#include <string.h>

extern const tutti__isa tutti__isa_base;
#if defined(__x86_64__)
extern const tutti__isa tutti__isa_avx2, tutti__isa_avx512;
#endif

const tutti__isa *tutti__isa_of(const char *isa)
{
#if defined(__x86_64__)
    if (strcmp(isa, "avx512") == 0)
        return &tutti__isa_avx512;
    if (strcmp(isa, "avx2") == 0)
        return &tutti__isa_avx2;
#endif
    (void)isa;
    return &tutti__isa_base;
}
