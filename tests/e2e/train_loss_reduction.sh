# train_loss_reduction.sh -- loss_reduction=sum: the gradient of the sum of all samples' losses, however they are divided among batches,
# ranks, shards and stages.   timeout: 120   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

# Rates are powers of two, as the numbers of samples are, so that a sum by a rate has the bits of the mean by so many times the rate.
rate() { awk -v n="$1" 'BEGIN { printf "%.17g", 1 / 16 / n }'; }
keys="--model mlp --max-steps 6 --log-every 1 --eval-every 0 --schedule constant --warmup-epochs 0 --momentum 0 --weight-decay 0 --threads 1 --no-augment"
pair() { # NAME SAMPLES KEYS...: both reductions, which must be the same run
    local name=$1 n=$2
    shift 2
    train "$name-mean" $keys --lr "$(rate 1)" "$@"
    train "$name" $keys --lr "$(rate "$n")" --loss-reduction sum "$@"
    same "$name-mean" "$name"
    diff <(losses "$name-mean") <(losses "$name") || fail "$name: the losses that are shown are not means"
    paste <(figures "$name-mean") <(figures "$name") | awk -v n="$n" '{ d = $6 / $3 / n - 1; if (d > 1e-6 || d < -1e-6) exit failed = 1 } END { exit failed || NR != 6 }' ||
        fail "$name: norms are not $n times those of the mean"
}
pair plain 32 --batch-size 32
pair ranks 32 --batch-size 16 -n 2
pair batches 64 --batch-size 16 --grad-accumulation 2 -n 2
pair smoothed 32 --batch-size 32 --label-smoothing 0.2
pair shards 32 --batch-size 8 --shards 4 -n 2
pair zero 32 --batch-size 16 -n 2 --zero 3
pair stages 64 --batch-size 32 --pipeline 2 --micro-batches 2 -n 2
export TUTTI_EMULATE_HALF=1
pair bf16 32 --batch-size 16 -n 2 --amp bf16
pair fp16 32 --batch-size 16 -n 2 --amp fp16
same ranks zero
same batches-mean batches
# Tokens count, not samples.
pair text 256 --data shakespeare --model gpt2 --layers 1 --width 32 --heads 2 --optimizer sgd --clip-grad-norm 0 --weight-decay 0 --batch-size 4 --context 64
weights() { numbers "$1"/checkpoints/latest/model.safetensors >"$1.numbers"; }
alike_weights() { weights "$1" && weights "$2" && close "$1.numbers" "$2.numbers" "$3"; }
# The 1438 samples of an epoch in batches of 960 and 478, of one step: no power of two, and so to rounding.
end="$keys --batch-size 960 --grad-accumulation 2 --max-steps 1"
train end-mean $end --lr 1
train end $end --lr "$(awk 'BEGIN { printf "%.17g", 1 / 1438 }')" --loss-reduction sum
alike_weights end-mean end 1e-6

# Weights of classes: a mean over ranks of means is another one than that over all samples; a sum is the same, but for rounding.
weighted="$keys --loss-reduction sum --class-weights 1,2,3,4,5,6,7,8,9,10 --lr 0.0001"
train one $weighted --batch-size 32
train two $weighted --batch-size 16 -n 2
train four $weighted --batch-size 8 --shards 4
train many $weighted --batch-size 8 --grad-accumulation 2 -n 2
for run in two four; do alike_weights one $run 1e-5; done
train mean1 $keys --class-weights 1,2,3,4,5,6,7,8,9,10 --batch-size 32
train mean2 $keys --class-weights 1,2,3,4,5,6,7,8,9,10 --batch-size 16 -n 2
weights mean1 && weights mean2
(close mean1.numbers mean2.numbers 1e-5) >/dev/null && fail "means by weights agree: this test would see nothing"
# All weights doubled double a sum.
train twice $keys --loss-reduction sum --class-weights 2,2,2,2,2,2,2,2,2,2 --batch-size 32 --lr "$(rate 64)"
same twice plain

# The norm is limited after the sum: at 32 times the limit of a mean.
train clip-mean $keys --batch-size 32 --lr 0.0625 --clip-grad-norm 0.25
train clip $keys --batch-size 32 --lr "$(rate 32)" --loss-reduction sum --clip-grad-norm 8
alike_weights clip-mean clip 1e-5

# A run that goes on
train whole $keys --loss-reduction sum --lr "$(rate 32)" --batch-size 16 -n 2 --checkpoint-every 3 --keep-checkpoints 0
train resumed $keys --loss-reduction sum --lr "$(rate 32)" --batch-size 16 -n 2 --resume whole/checkpoints/step-00000003
same whole resumed
refused 2 'loss_reduction' "$TUTTI" train --run-dir x $keys --lr "$(rate 32)" --batch-size 16 -n 2 --resume whole/checkpoints/step-00000003
echo "loss_reduction: sums of batches, ranks, shards and stages"
