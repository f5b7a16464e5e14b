/* onednn.c -- holds the place of the oneDNN kernels until they join; the reference kernels serve.   SPDX-License-Identifier: MIT */
#include "tensor/kernel.h"

tutti_status tutti__kernels_onednn(const tutti__kernels **kernels_p)
{
    *kernels_p = NULL;
    return tutti__fail(TUTTI_ERR_UNSUPPORTED, "kernels onednn: this version lacks them; "
                                              "choose kernels reference");
}
