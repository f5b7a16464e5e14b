/* no_onednn.c -- replaces kernel/onednn in a build without oneDNN.   SPDX-License-Identifier: MIT */
#include "tensor/kernel.h"

tutti_status tutti__kernels_onednn(const tutti__kernels **kernels_p)
{
    *kernels_p = NULL;
    return tutti__fail(
        TUTTI_ERR_UNSUPPORTED,
        "kernels onednn: this build lacks them; install oneDNN (libdnnl-dev), configure and build "
        "again, or choose kernels reference");
}
