/* no_cuda.c -- stands where the CUDA module was not built.   SPDX-License-Identifier: MIT */
#include "device/device.h"

tutti_status tutti__cuda_ops(const tutti__device_ops **ops_p)
{
    (void)ops_p;
    return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                       "device cuda: this build has no CUDA kernels; use --device cpu (or auto)");
}
