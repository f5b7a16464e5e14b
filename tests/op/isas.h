/* isas.h -- a test for each instruction set of kernel/vector that this CPU has.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_OP_ISAS_H
#define TUTTI_TESTS_OP_ISAS_H

#include "tensor/kernel/vector/isa.h"

#include <string.h>

static bool has_isa(const char *name)
{
#if defined(__x86_64__)
    if (strcmp(name, "avx2") == 0)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (strcmp(name, "avx512") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
    return strcmp(name, "base") == 0;
}

/* A cmocka test by that name: check(tutti__isa_of(name)), or skipped. */
#define ISA_TEST(name, check)                                                                      \
    static void name(void **unused)                                                                \
    {                                                                                              \
        (void)unused;                                                                              \
        if (!has_isa(#name)) {                                                                     \
            print_message("no " #name " here\n");                                                  \
            skip();                                                                                \
        }                                                                                          \
        check(tutti__isa_of(#name));                                                               \
    }

#endif
