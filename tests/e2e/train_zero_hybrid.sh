# --zero-ranks: ranks divide within parts, which are replicas: the parameter_digest of plain training, with other keys that divide, average or
# round, after resumes from and to other layouts; what cannot go together is refused.   timeout: 120   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

result() {
    local key
    for key in parameter_digest ema_digest; do
        echo "$key $(field "$1/summary.json" $key)"
    done
    sed -n 's/.*"step": \([0-9]*\),.*"grad_norm": \([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"
}
small="--bucket-mb 0.02 --first-bucket-mb 0.01"
# law NAME STAGES KEYS...: on 4 ranks, whose halves are replicas
law() {
    local name=$1 stages=$2 zero
    shift 2
    train $name.0 -n 4 "$@"
    [ "$(result $name.0 | grep -c .)" -ge 4 ] || fail "$name: no figures to compare"
    for zero in $stages; do
        train $name.$zero -n 4 "$@" --zero $zero --zero-ranks 2 $small
        diff <(result $name.0) <(result $name.$zero) || fail "$name: --zero $zero --zero-ranks 2 changes the bits"
    done
}
gpt="--model gpt2 --data shakespeare --layers 2 --width 48 --heads 2 --context 32 --dropout 0.1 --batch-size 2 --sample-tokens 0 --eval-every 0 --log-every 1 --threads 1"
law mlp "1 2 3" --model mlp --data digits --dropout 0.2 --batch-size 8 --max-steps 6 --epochs 1 --optimizer adamw --clip-grad-norm 0.5 --ema 0.9 --grad-accumulation 2 --log-every 1 --threads 1
law unused 3 --model mlp --data digits --batch-size 8 --max-steps 3 --find-unused --eval-every 0 --log-every 1
law lora 3 $gpt --max-steps 2 --lora-rank 2
TUTTI_EMULATE_HALF=1 law half 3 $gpt --max-steps 2 --amp bf16 --recompute
TUTTI_EMULATE_HALF=1 law fp16 2 --model mlp --optimizer adamw --log-every 1 --threads 1 --eval-every 0 --batch-size 1 --max-steps 12 --clip-grad-norm 0.5 --lr 0.2 --amp fp16
law pipeline 2 $gpt --max-steps 2 --pipeline 2 --micro-batches 2
train tensor.0 -n 8 $gpt --max-steps 2 --tensor 2
train tensor.3 -n 8 $gpt --max-steps 2 --tensor 2 --zero 3 --zero-ranks 2 $small --checkpoint-every 1
train tensor.1 -n 8 $gpt --max-steps 2 --tensor 2 --zero 1 --resume tensor.3/checkpoints/step-00000001
[ "$(result tensor.0 | head -1)" = "$(result tensor.1 | head -1)" ] || fail "with --tensor 2, resumed: other weights"
diff <(result tensor.0) <(result tensor.3) || fail "with --tensor 2: other weights"
grep -q "zero 3 among 2 ranks each: 2 have the same shares" tensor.3.out || fail "nothing says how it is divided"

# Each part of a checkpoint is written once, and read by any layout.
part="$gpt --max-steps 4 --checkpoint-every 2 --optimizer adamw"
train whole -n 4 $part
train hybrid -n 4 $part --zero 3 --zero-ranks 2 $small
[ "$(result whole)" = "$(result hybrid)" ] || fail "with checkpoints: other weights"
"$TUTTI" checkpoint verify hybrid >verified 2>&1 || fail "the checkpoint: $(cat verified)"
for run in whole hybrid; do
    "$TUTTI" checkpoint export $run/checkpoints/step-00000002 $run.safetensors >exported 2>&1 || fail "export: $(cat exported)"
done
cmp whole.safetensors hybrid.safetensors || fail "the exported weights differ"
for flags in "" "--zero 1 --zero-ranks 2"; do
    rm -rf rest
    train rest -n 4 $part $flags $small --resume hybrid/checkpoints/step-00000002
    [ "$(result whole | head -1)" = "$(result rest | head -1)" ] || fail "resumed with \"$flags\": other weights"
done
rm -rf rest
train rest -n 4 $part --zero 3 --zero-ranks 2 $small --resume whole/checkpoints/step-00000002
[ "$(result whole | head -1)" = "$(result rest | head -1)" ] || fail "resumed from plain: other weights"
train fewer -n 2 $part --zero 3 --resume hybrid/checkpoints/step-00000002

# Known before: a half of everything instead of a quarter; gathers among 2 ranks.
plan() {
    "$TUTTI" plan --ranks 4 $part --optimizer adamw --step-ms 1 --json - "$@" | tr -d '\n '
}
figure() {
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p"
}
plan --zero 3 $small >all.json
plan --zero 3 --zero-ranks 2 $small >halves.json
all=$(figure optimizer <all.json) halves=$(figure optimizer <halves.json)
[ "$halves" -ge $((2 * all - all / 20)) ] && [ "$halves" -le $((2 * all)) ] || fail "planned state: $all, $halves"
grep -q '"wire_of_shares":{"all_gather"' halves.json && grep -q '"wire_of_shares":{}' all.json || fail "planned wire: $(cat halves.json)"

refused 2 "zero-ranks 3 on 4 ranks: 4 is not a multiple of 3; --zero-ranks 1, 2 or 4" "$TUTTI" train -n 4 --model mlp --zero 1 --zero-ranks 3
refused 2 "zero-ranks 4 on 2 data ranks" "$TUTTI" train -n 4 $gpt --tensor 2 --zero 1 --zero-ranks 4
refused 2 "zero_ranks: it says among how many ranks zero divides, and zero=0" "$TUTTI" train --model mlp --zero-ranks 2
refused 2 "zero_ranks: with shards ranks come and go" "$TUTTI" train --model mlp --zero 1 --shards 4 --zero-ranks 2
