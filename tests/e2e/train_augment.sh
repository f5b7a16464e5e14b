# Mixup, cutmix, random erasing, colour jitter, and a program's own augmentation: the laws of training hold, and what does not fit is
# refused by name.   timeout: 120   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
cp "$BUILD_DIR/tests/program/own_trainer" mine
own() { # DIR RANKS WHAT KEYS...: the program, which must succeed
    local dir=$1 ranks=$2 what=$3 code=0
    shift 3
    timeout 180 "$TUTTI" run -n "$ranks" ./mine "$what" --run-dir "$dir" "$@" >"$dir.out" 2>&1 || code=$?
    [ $code = 0 ] || { cat "$dir.out"; fail "exit code $code from: $dir $ranks $what $*"; }
}

all="--flip alternate --crop-padding 2 --padding-mode reflect --mixup 0.2 --cutmix 1 --random-erasing 0.5 --color-jitter 0.4,0.3,0.2,0.1 --label-smoothing 0.1"
keys="--model mlp --batch-size 16 --max-steps 12 --eval-every 0 --schedule constant --warmup-epochs 0 --threads 1"

# Each changes the bits, and has the same for any number of threads that read.
train none $keys
for key in "--mixup 0.2" "--cutmix 1" "--random-erasing 0.5" "--color-jitter 0.4" "--flip random" "--flip alternate" "--crop-padding 2" \
    "--crop-padding 0" "--padding-mode reflect"; do
    train one $keys $key --workers 0
    train more $keys $key --workers 3
    same one more
    [ "$(digest one)" != "$(digest none)" ] || fail "$key changes nothing"
done

# By shards any number of ranks has the same bits, also when they resume, and when workers are killed.
for model in "mlp" "mini_resnet --lr 0.01"; do
    law="$keys --model $model $all"
    train shards1 $law --shards 2
    train shards2 $law --shards 2 -n 2 --checkpoint-every 5 --keep-checkpoints 0
    same shards1 shards2
    train again $law --shards 2 --resume shards2/checkpoints/step-00000005
    same shards1 again
done
train calm $keys $all --shards 4 --max-steps 60
timeout 180 "$TUTTI" run -n 2 --max-restarts 9 --chaos kill=2,until=1,seed=5 "$TUTTI" train $keys $all --shards 4 --max-steps 60 \
    --run-dir chaos >chaos.out 2>&1 || { cat chaos.out; fail "killed workers"; }
same calm chaos

# By rank: resumed in the middle of an epoch, with ZeRO-1, with accumulated gradients
law="$keys $all --grad-accumulation 2 -n 2"
train whole $law --checkpoint-every 5 --keep-checkpoints 0
train resumed $law --resume whole/checkpoints/step-00000005
same whole resumed
train zero $law --zero 1
same whole zero
refused 2 'mixup, cutmix' "$TUTTI" train --run-dir x $keys $all --mixup 0 --cutmix 0.5 -n 2 --grad-accumulation 2 --resume whole/checkpoints/step-00000005

# A whole run learns. An evaluation is of images as they are.
train learns --model mlp --epochs 8 --mixup 0.2 --cutmix 1 --random-erasing 0.1 --threads 1
awk -v a="$(field learns/summary.json val_accuracy)" 'BEGIN { exit !(a > 0.8) }' || fail "accuracy $(field learns/summary.json val_accuracy)"
timeout 60 "$TUTTI" eval learns >eval.out || fail "tutti eval"
grep -q "$(awk -v a="$(field learns/summary.json val_accuracy)" 'BEGIN { printf "%.2f", 100 * a }')" eval.out || { cat eval.out; fail "tutti eval differs"; }

# The program's own, in training and in evaluation; mixed targets
own own1 1 augment --shards 2 --mixup 0.4 --cutmix 1
own own2 2 augment --shards 2 --mixup 0.4 --cutmix 1 --checkpoint-every 5 --keep-checkpoints 0
same own1 own2
own own3 1 augment --shards 2 --mixup 0.4 --cutmix 1 --resume own2/checkpoints/step-00000005
same own1 own3
own bare 1 images --shards 2 --mixup 0.4 --cutmix 1
[ "$(digest bare)" != "$(digest own1)" ] || fail "the program's augmentation is not used"
for run in own1 own2; do grep -q 'accuracy 1.0000' $run.out || { cat $run.out; fail "$run does not learn"; }; done
timeout 60 ./mine augment --eval own1 >eval.out 2>&1 || { cat eval.out; fail "--eval with an augmentation"; }
grep -q '100.00' eval.out || { cat eval.out; fail "--eval: accuracy"; }
own rows 1 rows --model linear --mixup 0.4 --epochs 30 --eval-every 10
awk -v l="$(field rows/summary.json val_loss)" 'BEGIN { exit !(l < 0.01) }' || fail "regression with mixup: $(field rows/summary.json val_loss)"

# What does not fit
refused 2 'color_jitter: "0.4,1" is not one number, three or four; expected the strength (0 to 100) of brightness' "$TUTTI" train --color-jitter 0.4,1
refused 2 'color_jitter: "-1" is not' "$TUTTI" train --color-jitter=-1
for key in "--flip off" "--crop-padding 4" "--padding-mode reflect"; do
    refused 2 ': crops and flips are made with augment, which is off; add --augment, or leave' "$TUTTI" train --run-dir x --no-augment $key
done
refused 2 'padding_mode: crop_padding=0 pads nothing' "$TUTTI" train --run-dir x --crop-padding 0 --padding-mode reflect
refused 2 'crop_padding: it is 8, and images are 8 x 8 pixels; expected less than 8' "$TUTTI" train --run-dir x --crop-padding 8
refused 2 'mixup: it is 0.0001, expected 0 (off), or 0.001 to 1000' "$TUTTI" train --run-dir x --mixup 0.0001
refused 2 'cutmix: -1 is out of range; expected 0 to 1000' "$TUTTI" train --cutmix=-1
refused 2 'random_erasing: 1.5 is out of range; expected 0 to 1' "$TUTTI" train --random-erasing 1.5
refused 2 'mixup: it mixes the samples of a batch, and batch_size is 1; use larger batches' "$TUTTI" train --mixup 1 --batch-size 1
refused 2 'mixup: it mixes labels and targets, and this program has its own loss' ./mine loss --mixup 1
refused 2 'cutmix: it exchanges rectangles of images (U8 or F32 [C,H,W]), and the samples of data=memory are F32 rows of 2 with y F32 [1]; leave cutmix out' \
    ./mine rows --model linear --cutmix 1
refused 2 'color_jitter: it changes images of bytes (U8) with 1 or 3 channels' ./mine rows --model linear --color-jitter 0.4
echo "augmentation: laws and refusals"
