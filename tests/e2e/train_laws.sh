# The laws of data parallelism, on whole runs of `tutti train`.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
mlp="--model mlp --data digits --augment off --log-every 1 --epochs 2 --lr 0.05 --threads 1"

# 1 rank x batch 32 = 2 ranks x batch 16 = 1 rank x (2 batches of 16 accumulated)
train one $mlp --batch-size 32
train two -n 2 $mlp --batch-size 16
train accumulated $mlp --batch-size 16 --grad-accumulation 2
for other in two accumulated; do
    [ "$(field one/summary.json steps)" = "$(field $other/summary.json steps)" ] || fail "$other: number of steps"
    losses one >one.loss
    losses $other >$other.loss
    close one.loss $other.loss 1e-5
    numbers one/model.safetensors >one.numbers
    numbers $other/model.safetensors >$other.numbers
    close one.numbers $other.numbers 1e-5
done
[ "$(wc -l <one.numbers)" = 19210 ] || fail "an mlp for digits has 19210 parameters, the file $(wc -l <one.numbers)"

# Equal runs, bucket sizes: equal to the bit.
train again -n 2 $mlp --batch-size 16
train buckets -n 2 $mlp --batch-size 16 --bucket-mb 0.01 --first-bucket-mb 0.001
same two again
same two buckets

# Sharded optimizer state: the same bits, and half of the state each.
train shares -n 2 $mlp --batch-size 16 --zero 1
same two shares
train adam -n 2 $mlp --batch-size 16 --optimizer adamw
train adam_shares -n 2 $mlp --batch-size 16 --optimizer adamw --zero 1 --bucket-mb 0.01
same adam adam_shares
grep -q "^  MiB of state, rank  *0.07$" adam_shares.out || fail "two numbers a parameter are 0.15 MiB, a half 0.07"

# More ranks than cores.
three="--max-steps 4 --batch-size 4 --epochs 1 --threads 1"
train three -n 3 $three
train three_again -n 3 $three --bucket-mb 1
same three three_again

# Batch norm over all ranks: 1 rank x batch 4 = 2 ranks x batch 2 with mini_resnet too; without it they differ at once.
# On the reference kernels: the fast ones choose other convolutions for another batch size, and round differently.
export TUTTI_KERNELS=reference
whole="--max-steps 2 --log-every 1 --epochs 1 --augment off --threads 1 --eval-every 0"
train norm_one $whole --batch-size 4
train norm_two -n 2 $whole --batch-size 2 --sync-bn
train norm_apart -n 2 $whole --batch-size 2
for run in norm_one norm_two norm_apart; do losses $run >$run.loss; done
close norm_one.loss norm_two.loss 1e-5
! (close norm_one.loss norm_apart.loss 1e-3) >/dev/null || fail "batch norm over each rank's share is no different"
echo "laws hold"
