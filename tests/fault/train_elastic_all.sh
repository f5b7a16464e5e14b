# train_elastic.sh, with rank 0 killed 20 times at the end of a run.   tier: long   timeout: 300   SPDX-License-Identifier: MIT
ENDS=20 exec bash "${SOURCE_DIR:?is set by ctest}/tests/fault/train_elastic.sh"
