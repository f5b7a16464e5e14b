# The recipe of airbench94 at a small size: the laws of training hold for its keys together, and whiten is refused where it does not fit.
# timeout: 120   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
recipe="--config $SOURCE_DIR/configs/cifar10-94.json --data synthetic --batch-size 4 --whiten 50 --max-steps 4 --eval-every 0 --threads 1"

# By shards any number of ranks has the same bits, also when they resume, which does not whiten again.
train one $recipe --shards 2
train two $recipe --shards 2 -n 2 --checkpoint-every 2 --keep-checkpoints 0
same one two
train again $recipe --shards 2 --resume two/checkpoints/step-00000002
same one again
grep -q "whiten: whiten.weight by patches" one.out || fail "one says nothing of whiten"
! grep -q "whiten:" again.out || fail "a resumed run whitens again"

# The number of images decides the filters.
train white $recipe --max-steps 1
train other $recipe --max-steps 1 --whiten 60
train none $recipe --max-steps 1 --whiten 0
[ "$(digest white)" != "$(digest none)" ] && [ "$(digest white)" != "$(digest other)" ] || fail "whiten changes nothing"

wrong() { # WORDS KEYS...
    local words=$1
    shift
    refused 2 "$words" "$TUTTI" train --run-dir refused "$@"
}
wrong "whiten: model mlp has no convolution of the images' 3 channels" --model mlp --data synthetic --whiten 10 --max-steps 1
wrong "whiten: the first convolution has 64 filters of 27 values; expected an even number, at most 54" --data synthetic --whiten 10 --max-steps 1
wrong "whiten: init has the weights of the first layer, too; leave whiten out" $recipe --init one/checkpoints/step-00000004
wrong "whiten: with zero=3 no rank has all of the first layer's weights" --data synthetic --whiten 10 --zero 3
wrong "model airbench94: the images are 8 x 8, expected at least 25 x 25" --model airbench94 --max-steps 1
