# One training by different layouts has one parameter_digest: ranks, ZeRO, with shards or without, with clipping, accumulation and
# dropout; and so are the norms.   timeout: 300
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

LAYOUT_STEPS=2 "$SOURCE_DIR/bench/layouts.sh" gpt2 >table 2>&1 || { cat table; fail "layouts differ"; }
rows=$(grep -c '| yes |$' table || true)
[ "$rows" -ge 14 ] || { cat table; fail "$rows rows"; }

# Norms that a limit never reached, and their lines of metrics.
keys="--model mlp --dropout 0.3 --batch-size 4 --max-steps 5 --log-every 1 --threads 1 --eval-every 0 --grad-accumulation 2 --optimizer adam"
norms() { sed -n 's/.*"step": \([0-9]*\),.*"grad_norm": \([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }
for law in "--shards 6" ""; do
    rm -rf plain zero
    train plain -n 3 $keys $law
    train zero -n 3 $keys $law --zero 1 --bucket-mb 0.02 --first-bucket-mb 0.01
    [ "$(norms plain | wc -l)" = 5 ] || { cat plain/metrics.jsonl; fail "no norms"; }
    diff <(norms plain) <(norms zero) || fail "norms differ with ZeRO ($law)"
    same plain zero
done
