/* emulator.h -- tests of a build for another processor, in qemu-user.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_EMULATOR_H
#define TUTTI_TESTS_EMULATOR_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* For a test that cannot pass there: whether it runs in an emulator; if so, says why it is skipped. */
static inline bool test_emulated(const char *why)
{
    if (!getenv("TUTTI_TEST_EMULATOR"))
        return false;
    printf("in an emulator: %s\n", why);
    return true;
}

#endif
