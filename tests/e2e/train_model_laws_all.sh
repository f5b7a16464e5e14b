# train_model_laws.sh, with more models.   tier: long   timeout: 240   SPDX-License-Identifier: MIT
ALL=1 exec bash "${SOURCE_DIR:?is set by ctest}/tests/e2e/train_model_laws.sh"
