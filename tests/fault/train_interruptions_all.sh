# train_interruptions.sh, 20 times.   tier: long   timeout: 600   run: serial
# SPDX-License-Identifier: MIT
export TIMES=20
exec bash "${SOURCE_DIR:?is set by ctest}/tests/fault/train_interruptions.sh"
