# autograd_batches.c, with more instruction sets and dtypes.   tier: long   timeout: 120   SPDX-License-Identifier: MIT
ALL=1 exec "${BUILD_DIR:?is set by ctest}/tests/test_op_autograd_batches"
