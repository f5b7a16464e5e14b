# `tutti train` with its defaults learns the digits, with 2 ranks.   timeout: 120   breadth: 120
# ALL: its 8 epochs; else 3.   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

"$TUTTI" -V | grep -qw onednn || { echo "skipped: without oneDNN the reference kernels need longer than a test may"; exit 77; }
least=0.97 epochs=8 few=
[ -n "${ALL:-}" ] || least=0.93 epochs=3 few="--epochs 3"
train run -n 2 $few
tail -2 run.out
accuracy=$(field run/summary.json val_accuracy)
awk -v least=$least -v a="$accuracy" 'BEGIN { exit !(a >= least && a <= 1) }' || fail "test accuracy $accuracy, expected at least $least"
[ "$(field run/summary.json parameters)" = 2777674 ] || fail "parameters"
[ "$(field run/summary.json world_size)" = 2 ] || fail "world_size"
[ "$(field run/summary.json status)" = completed ] || fail "status"
[ "$(grep -c '"eval"' run/metrics.jsonl)" = $epochs ] && [ "$(field run/summary.json epochs)" = $epochs ] || fail "an evaluation an epoch"
