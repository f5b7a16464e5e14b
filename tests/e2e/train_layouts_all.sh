# bench/layouts.sh, the whole table.   tier: long   timeout: 900
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
"$SOURCE_DIR/bench/layouts.sh" || fail "layouts differ"
