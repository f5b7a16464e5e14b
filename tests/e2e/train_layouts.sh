# One training by different layouts has one parameter_digest: ranks, ZeRO, with shards or without, with clipping, accumulation and
# dropout. So have norms, the average of the weights, and the steps that the loss scaler leaves out.   timeout: 600
# breadth: 900   ALL: the whole table of bench/layouts.sh, and more keys.   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

"$SOURCE_DIR/bench/layouts.sh" $([ -n "${ALL:-}" ] || echo gpt2) >table 2>&1 || { cat table; fail "layouts differ"; }
rows=$(grep -c '| yes |$' table || true)
[ "$rows" -ge 55 ] || { cat table; fail "$rows rows"; }

result() {
    local key
    for key in parameter_digest ema_digest skipped_steps; do
        echo "$key $(field "$1/summary.json" $key)"
    done
    sed -n 's/.*"step": \([0-9]*\),.*"grad_norm": \([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"
}
# compare WHAT KEYS...: ZeRO 0 and 1 on 3 ranks, with shards and without, and with shards on 2.
compare() {
    local what=$1 law
    shift
    for law in "--shards 6" ""; do
        rm -rf plain zero
        train plain -n 3 "$@" $law
        train zero -n 3 "$@" $law --zero 1 --bucket-mb 0.02 --first-bucket-mb 0.01
        diff <(result plain) <(result zero) || fail "$what: ZeRO changes the bits ($law)"
        for stage in 2 3; do
            case "$stage $law $*" in 3*--shards* | 2*--shards*fp16*) continue ;; esac # refused
            rm -rf zero
            train zero -n 3 "$@" $law --zero $stage --bucket-mb 0.02 --first-bucket-mb 0.01
            diff <(result plain) <(result zero) || fail "$what: ZeRO $stage changes the bits ($law)"
        done
        [ "$(result plain | grep -c '^[0-9]')" -ge 5 ] || { result plain; fail "$what: no norms"; }
        [ -n "$law" ] || continue
        rm -rf fewer
        train fewer -n 2 "$@" $law --zero 1
        diff <(result plain) <(result fewer) || fail "$what: ranks change the bits"
    done
}
mlp="--model mlp --dropout 0.3 --optimizer adamw --log-every 1 --threads 1 --eval-every 0"
[ -z "${ALL:-}" ] || compare norms $mlp --batch-size 4 --max-steps 5 --grad-accumulation 2 # without a limit
compare ema $mlp --batch-size 4 --max-steps 5 --grad-accumulation 2 --clip-grad-norm 0.5 --ema 0.9
grep -q '"ema_digest"' plain/summary.json || fail "no average"
export TUTTI_EMULATE_HALF=1
[ -z "${ALL:-}" ] || compare bf16 $mlp --batch-size 4 --max-steps 5 --grad-accumulation 2 --clip-grad-norm 0.5 --amp bf16
compare fp16 --model mlp --optimizer adamw --log-every 1 --threads 1 --eval-every 0 --batch-size 1 --max-steps 24 --clip-grad-norm 0.5 --lr 0.2 --amp fp16
[ "$(field plain/summary.json skipped_steps)" -ge 1 ] || fail "no step was left out"
