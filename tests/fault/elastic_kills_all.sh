# elastic_kills.sh, 200 kills.   tier: long   timeout: 900   run: serial
# SPDX-License-Identifier: MIT
KILLS=200 EPOCHS=120
. "${SOURCE_DIR:?is set by ctest}/tests/fault/elastic_kills.sh"
