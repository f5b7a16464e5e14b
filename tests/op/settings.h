/* settings.h -- a check with each set of kernels and instructions that this machine has, in F32 and in 16 bit.   SPDX-License-Identifier: MIT
 *
 * Each in a process of its own: an instruction set cannot be changed in one that has used another. Some only with ALL=1 in the
 * environment, for the longer tier. */
#ifndef TUTTI_TESTS_OP_SETTINGS_H
#define TUTTI_TESTS_OP_SETTINGS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct setting {
    const char *variable, *value; /* of the environment */
    tutti_kernels kernels;
    tutti_dtype autocast;
    bool is_long;
} setting;

#define SETTING(variable, value, kernels, dtype, is_long)                                          \
    {                                                                                              \
        variable, value, TUTTI_KERNELS_##kernels, TUTTI_##dtype, is_long                           \
    }

static const setting settings[] = {
    SETTING("TUTTI_CPU_ISA", "auto", ONEDNN, F32, false),
    SETTING("TUTTI_CPU_ISA", "avx2", ONEDNN, F32, false),
    SETTING("TUTTI_CPU_ISA", "sse41", ONEDNN, F32, true),
    SETTING("TUTTI_CPU_ISA", "auto", ONEDNN, BF16, false),
    SETTING("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", ONEDNN, BF16, true),
    SETTING("TUTTI_CPU_ISA", "avx512", ONEDNN, BF16, true),
    SETTING("TUTTI_EMULATE_HALF", "1", ONEDNN, F16, true),
    SETTING("TUTTI_KERNELS", "reference", REFERENCE, F32, true),
};

/* Whether this machine has what the setting names. */
static bool has_setting(const setting *s)
{
    tutti_ctx *cx;
    bool has;

    if (tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0},
                      &(tutti_ctx_opts){.kernels = s->kernels, .threads = 1}) != TUTTI_OK)
        return false;
    has = s->autocast == TUTTI_F32 || tutti_ctx_half_kernels_name(cx, s->autocast);
    tutti_ctx_free(cx);
    return has;
}

static void test_setting(void **state)
{
    const setting *s = *state;
    char number[8];
    pid_t child;
    int code;

    if (s->is_long && !getenv("ALL"))
        skip();
    snprintf(number, sizeof number, "%d", (int)(s - settings));
    fflush(NULL);
    child = fork();
    if (child == 0) {
        setenv(s->variable, s->value, 1);
        execl("/proc/self/exe", "setting", number, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    if (WIFEXITED(code) && WEXITSTATUS(code) == 77)
        skip();
    assert_int_equal(code, 0);
}

/* The whole program; check: false if something is wrong, of which it has told. */
static int run_settings(int argc, char **argv, bool (*check)(const setting *s))
{
    struct CMUnitTest tests[TUTTI__COUNT_OF(settings)];
    char names[TUTTI__COUNT_OF(settings)][64];
    const setting *here = argc > 1 ? &settings[atoi(argv[1])] : NULL;

    if (here)
        return !has_setting(here) ? 77 : !check(here);
    for (size_t i = 0; i < TUTTI__COUNT_OF(settings); i++) {
        const setting *s = &settings[i];

        snprintf(names[i], sizeof names[i], "%s=%s, %s", s->variable, s->value,
                 tutti_dtype_name(s->autocast));
        tests[i] = (struct CMUnitTest){names[i], test_setting, NULL, NULL, (void *)(uintptr_t)s};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
