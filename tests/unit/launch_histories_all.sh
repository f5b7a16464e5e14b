# launch_histories.c, 200,000 histories from a seed that is printed, or passed as SEED.
# tier: long
# timeout: 120
# SPDX-License-Identifier: MIT
export HISTORIES=${HISTORIES:-200000} SEED=${SEED:-$(date +%s)000000} RARE=${RARE:-20000}
echo "SEED=$SEED HISTORIES=$HISTORIES"
exec "${BUILD_DIR:?is set by ctest}/tests/test_unit_launch_histories"
