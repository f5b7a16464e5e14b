/* device.h -- the device that a test runs on: its head's "devices: strict cuda" registers it once more for each of these.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_DEVICE_H
#define TUTTI_TESTS_DEVICE_H

#include <tutti/tensor.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* The rank of the thread or process that runs a body, among all on this host (ranks.c). */
extern _Thread_local int tutti_test_rank;

/* The device that TUTTI_TEST_DEVICE names ("strict", "cuda:1"; by default the CPU); in a body "cuda" is its rank's GPU. Skips
 * the test if there is none. */
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

/* The device on which a kernel family is tested: the reference kernels run on the CPU, and the kernels of another test device
 * replace oneDNN's. */
static inline tutti_device test_family(tutti_kernels *kernels)
{
    const tutti_device device = test_device();

    if (*kernels == TUTTI_KERNELS_REFERENCE || device.kind == TUTTI_CPU)
        return (tutti_device){TUTTI_CPU, 0};
    *kernels = TUTTI_KERNELS_AUTO;
    return device;
}

#endif
