# --zero 0 to 3: one parameter_digest, also after a resume with another stage and number of ranks; and a model that is larger than a
# rank may have.   timeout: 300   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

digest() {
    field "$1/summary.json" parameter_digest
}
# law NAME RANKS KEYS...: stages have the digest of plain training on so many ranks.
law() {
    local name=$1 ranks=$2 zero
    shift 2
    train $name.0 -n $ranks "$@"
    for zero in 1 2 3; do
        train $name.$zero -n $ranks "$@" --zero $zero --bucket-mb 0.05 --first-bucket-mb 0.02
        [ "$(digest $name.0)" = "$(digest $name.$zero)" ] || fail "$name: --zero $zero has other weights"
    done
}
gpt="--model gpt2 --data shakespeare --layers 2 --width 48 --heads 2 --context 32 --dropout 0.1 --batch-size 4 --grad-accumulation 2 --sample-tokens 8"
law mlp 4 --model mlp --data digits --dropout 0.2 --batch-size 8 --max-steps 8 --optimizer adamw --clip-grad-norm 0.5 --eval-every 1 --epochs 1
law gpt 3 $gpt --max-steps 4 --eval-every 0
law resnet 2 --model resnet18 --data synthetic --batch-size 4 --max-steps 2 --momentum 0.9 --eval-every 0
law unused 2 --model mlp --data digits --batch-size 8 --max-steps 4 --find-unused --eval-every 0
law half 2 $gpt --max-steps 2 --amp bf16 --recompute --eval-every 0
law lora 2 $gpt --max-steps 2 --lora-rank 2 --eval-every 0

# Evaluation has the figures of plain training, also where a rank has no samples in the last round.
for name in mlp.0 mlp.3; do
    sed -n 's/.*"val_loss": \([^,}]*\).*/\1/p' $name/metrics.jsonl >$name.losses
done
[ -s mlp.0.losses ] && cmp mlp.0.losses mlp.3.losses || fail "evaluations differ"

# A resume may change the stage.
part="$gpt --max-steps 4 --checkpoint-every 2 --eval-every 0"
train whole -n 2 $part
for zero in 0 2 3; do
    train part.$zero -n 2 $part --zero $((3 - zero))
    train rest.$zero -n 2 $part --zero $zero --bucket-mb 0.03 --resume part.$zero/checkpoints/step-00000002
    [ "$(digest whole)" = "$(digest rest.$zero)" ] || fail "resumed with --zero $zero: other weights"
done
train other -n 3 $part --zero 3 --resume part.0/checkpoints/step-00000002

# Weights from a file, which rank 0 reads tensor by tensor: all, some, of a longer context, under adapters, with tensor parallel.
init="$gpt --max-steps 2 --eval-every 0 --init whole"
for keys in "" "--init-only transformer.h.*" "--context 16" "--lora-rank 2" "--ema 0.9 --tensor 2"; do
    rm -rf init.0 init.3
    train init.0 -n 4 $init $keys
    train init.3 -n 4 $init $keys --zero 3
    [ "$(digest init.0)" = "$(digest init.3)" ] || fail "--init of $keys with --zero 3: other weights"
    diff <(grep '^init: ' init.0.out) <(grep '^init: ' init.3.out) || fail "what was read, of $keys"
done
grep -q '^init: ' init.3.out || fail "nothing says what was read"
[ "$(field init.0/summary.json ema_digest)" = "$(field init.3/summary.json ema_digest)" ] || fail "--init and ema with --zero 3"
refused 1 "there is no such file or folder; expected a checkpoint" "$TUTTI" train -n 2 $gpt --zero 3 --init nothing
[ "$(grep -c 'no such file or folder' refused.out)" = 1 ] || { cat refused.out; fail "it is said more than once"; }

# Frozen weights have no state: a rank's share of the adapters' alone.
for zero in 0 3; do
    train lora.$zero -n 3 $gpt --max-steps 2 --eval-every 0 --lora-rank 4 --optimizer adamw --ema 0.9 --zero $zero
done
[ "$(digest lora.0)" = "$(digest lora.3)" ] && [ "$(field lora.0/summary.json ema_digest)" = "$(field lora.3/summary.json ema_digest)" ] || fail "adapters with --zero 3: other weights"
trained=$(sed -n 's/.* adapters of rank 4: \([0-9,]*\) parameters are trained.*/\1/p' lora.3.out | tr -d ,)
state=$(sed -n 's/.*MiB of state, rank *\([0-9.]*\)$/\1/p' lora.3.out)
awk "BEGIN { exit !($state > 0 && $state <= $trained * 8 / 3 / 1048576 + 0.01) }" || { cat lora.3.out; fail "$state MiB of state with --zero 3, of $trained trained parameters"; }

train shards.0 -n 3 $part --shards 4
train shards.2 -n 2 $part --zero 2 --shards 4
[ "$(digest shards.0)" = "$(digest shards.2)" ] || fail "shards with --zero 2: other weights"
# Parameters in shares, read one by one by whoever needs them: on any number of ranks, with copies, resumed by another number, in 16 bits.
train shards.1 -n 1 $part --shards 4 --zero 3
train shards.3 -n 3 $part --shards 4 --zero 3 --bucket-mb 0.05 --first-bucket-mb 0.02
train shards.4 -n 4 $part --shards 4 --zero 3 --shard-copies 2 --bucket-mb 0.05 --first-bucket-mb 0.02 --eval-every 2
for name in shards.1 shards.3 shards.4; do
    [ "$(digest shards.0)" = "$(digest $name)" ] || fail "$name, with --zero 3: other weights"
done
# An average, which each evaluation puts in the place of the weights, and back; resumed by another number of ranks.
train averaged.0 -n 1 $part --shards 4 --ema 0.5 --eval-every 2
train averaged.3 -n 3 $part --shards 4 --ema 0.5 --eval-every 2 --zero 3 --bucket-mb 0.05 --first-bucket-mb 0.02
train averaged.2 -n 2 $part --shards 4 --ema 0.5 --eval-every 2 --zero 3 --resume averaged.3/checkpoints/step-00000002
for name in averaged.3 averaged.2; do
    for key in parameter_digest ema_digest val_loss; do
        [ -n "$(field $name/summary.json $key)" ] && [ "$(field averaged.0/summary.json $key)" = "$(field $name/summary.json $key)" ] || fail "$name: another $key"
    done
done
train again -n 2 $part --shards 4 --zero 3 --resume shards.0/checkpoints/step-00000002
[ "$(digest shards.0)" = "$(digest again)" ] || fail "shards with --zero 3, resumed: other weights"
for keys in "--amp bf16 --recompute" "--lora-rank 2"; do
    rm -rf less all
    train less -n 2 $gpt --max-steps 2 --eval-every 0 --shards 4 $keys
    train all -n 3 $gpt --max-steps 2 --eval-every 0 --shards 4 $keys --zero 3
    [ "$(digest less)" = "$(digest all)" ] || fail "shards with --zero 3 $keys: other weights"
done
refused 2 "shard_copies: shares of the optimizer state with a second rank are for --shards V with --zero 1, 2 or 3" "$TUTTI" train --model mlp --shards 2 --shard-copies 2
refused 2 "add --shards V --zero 1, or use shard_copies=1" "$TUTTI" train --model mlp --shard-copies 2
refused 2 "amp: with shards and zero=2 each rank sees infinities" "$TUTTI" train --model mlp --zero 2 --shards 2 --amp fp16
