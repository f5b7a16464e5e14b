/* device.h -- the device that a test runs on: its head's "devices: strict cuda" registers it once more for each of these.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_DEVICE_H
#define TUTTI_TESTS_DEVICE_H

#include <tutti/tensor.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Of the thread, or the process, that runs a body: its rank, of all on this host (ranks.c). */
extern _Thread_local int tutti_test_rank;

/* What TUTTI_TEST_DEVICE names ("strict", "cuda:1"; by default the CPU), "cuda" for a body its rank's. Ends the test as skipped where there is none. */
static inline tutti_device test_device(void)
{
    const char *text = getenv("TUTTI_TEST_DEVICE");
    tutti_device device;
    tutti_status status =
        tutti_device_parse(&device, text && *text ? text : "cpu", tutti_test_rank);

    if (status != TUTTI_OK) {
        const bool absent = status == TUTTI_ERR_UNSUPPORTED ||
                            (status == TUTTI_ERR_DEVICE && !getenv("TUTTI_CUDA_MODULE"));

        printf("%s: %s\n", absent ? "skipped" : "TUTTI_TEST_DEVICE", tutti_last_error());
        exit(absent ? 77 : 1);
    }
    return device;
}

/* Where a kernel family is tested: the reference kernels are the CPU's, and oneDNN's place is taken by the kernels of the
 * test's device where that is another. */
static inline tutti_device test_family(tutti_kernels *kernels)
{
    const tutti_device device = test_device();

    if (*kernels == TUTTI_KERNELS_REFERENCE || device.kind == TUTTI_CPU)
        return (tutti_device){TUTTI_CPU, 0};
    *kernels = TUTTI_KERNELS_AUTO;
    return device;
}

#endif
