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
    if (strcmp(name, "avx512_amx") == 0)
        return tutti__isa_may_use_amx();
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

/* The whole program: `check` with the vector code of each instruction set. */
#define ISA_TESTS(check, ...)                                                                      \
    ISA_TEST(base, check)                                                                          \
    ISA_TEST(avx2, check)                                                                          \
    ISA_TEST(avx512, check)                                                                        \
    int main(void)                                                                                 \
    {                                                                                              \
        const struct CMUnitTest tests[] = {cmocka_unit_test(base), cmocka_unit_test(avx2),         \
                                           cmocka_unit_test(avx512), __VA_ARGS__};                 \
                                                                                                   \
        return cmocka_run_group_tests(tests, NULL, NULL);                                          \
    }

/* The same for what AMX has its own code of: BF16. */
#define ISA_TESTS_BF16(check)                                                                      \
    ISA_TEST(avx512_amx, check)                                                                    \
    ISA_TESTS(check, cmocka_unit_test(avx512_amx))

#endif
