# guard.sh, with more flips and layouts, and 100,000 steps without any.   tier: long   timeout: 1800   SPDX-License-Identifier: MIT
ALL=1 exec bash "${SOURCE_DIR:?is set by ctest}/tests/e2e/guard.sh"
