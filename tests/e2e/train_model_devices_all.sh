# train_model_devices.sh, each model with each level of instructions.   tier: long   timeout: 180   SPDX-License-Identifier: MIT
ALL=1 exec bash "${SOURCE_DIR:?is set by ctest}/tests/e2e/train_model_devices.sh"
