# data_text_fuzz_long.sh -- 10,000 damaged tokenizers, .bin files and texts.
# SPDX-License-Identifier: MIT
# timeout: 120, tier: long
exec "${BUILD_DIR:?is set by ctest}/tests/test_unit_data_text_fuzz" 10000
