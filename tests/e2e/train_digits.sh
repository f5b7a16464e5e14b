# `tutti train` with its defaults learns the digits, with 2 ranks.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

"$TUTTI" -V | grep -qw onednn || { echo "skipped: without oneDNN the reference kernels need longer than a test may"; exit 77; }
train run -n 2
tail -2 run.out
accuracy=$(field run/summary.json val_accuracy)
awk -v a="$accuracy" 'BEGIN { exit !(a >= 0.97 && a <= 1) }' || fail "test accuracy $accuracy, expected at least 0.97"
[ "$(field run/summary.json parameters)" = 2777674 ] || fail "parameters"
[ "$(field run/summary.json world_size)" = 2 ] || fail "world_size"
[ "$(field run/summary.json status)" = completed ] || fail "status"
[ "$(grep -c '"eval"' run/metrics.jsonl)" = "$(field run/summary.json epochs)" ] || fail "an evaluation an epoch"
