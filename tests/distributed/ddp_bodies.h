/* ddp_bodies.h -- shared by the tests of ddp.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_DDP_BODIES_H
#define TUTTI_TESTS_DDP_BODIES_H

#include "distributed/bodies.h"
#include "harness/device.h"
#include <tutti/nn.h>

/* The reference kernels, if the test's device has them. */
static inline tutti_kernels test_kernels(void)
{
    return test_device().kind == TUTTI_CUDA ? TUTTI_KERNELS_AUTO : TUTTI_KERNELS_REFERENCE;
}

/* For bodies: parameters and buffers have the same bits on all ranks. */
static inline int check_equal_on_all_ranks(tutti_group *group, const tutti_module *module)
{
    char digest[33], all[8][33];

    tutti_module_digest(module, digest);
    CHECK_OK(tutti_all_gather(group, TUTTI_CONST_BUF(digest, 33, TUTTI_U8),
                              TUTTI_BUF(all, 33 * (size_t)tutti_group_size(group), TUTTI_U8),
                              NULL));
    for (int r = 0; r < tutti_group_size(group); r++)
        CHECK_TEXT(all[r], digest);
    return 0;
}

#endif
