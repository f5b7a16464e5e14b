# train_kills.sh, 50 times.   tier: long   timeout: 600   run: serial
# SPDX-License-Identifier: MIT
KILLS=50
. "${SOURCE_DIR:?is set by ctest}/tests/fault/train_kills.sh"
