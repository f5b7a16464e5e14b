# elastic_joins.sh, until 40 nodes have come or gone.   tier: long   timeout: 600   run: serial
# SPDX-License-Identifier: MIT
EVENTS=40 EPOCHS=300
. "${SOURCE_DIR:?is set by ctest}/tests/fault/elastic_joins.sh"
