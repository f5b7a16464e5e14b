# --lr 0 is zero with every optimizer: after one step or three, the weights are those of the start.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
for optimizer in sgd adam adamw; do
    still="--model mlp --data digits --epochs 1 --eval-every 0 --threads 1 --optimizer $optimizer"
    train still_1 $still --lr 0 --max-steps 1
    train still_3 $still --lr 0 --max-steps 3
    train moves $still --max-steps 3
    same still_1 still_3
    [ "$(digest still_1)" != "$(digest moves)" ] || fail "--optimizer $optimizer without --lr changes nothing"
    rm -r still_1 still_3 moves
done
echo "zero is zero"
