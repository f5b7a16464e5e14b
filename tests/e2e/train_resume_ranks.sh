# A checkpoint is resumed with another number of ranks: each sample of the epoch once, correct steps and learning rate.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
sum() { sed -n "s/.*\"$2\": \([0-9.e+-]*\).*/\1/p" "$1" | head -1; } # FILE KEY

# With lr 0 the mean loss of the epoch, and the number of images, show which samples were used: each once, as with one rank
# them (1438 of them; nothing is padded with 1 rank, and with 2 and then 1).
still="--model linear --augment off --lr 0 --threads 1 --epochs 1 --eval-every 0 --seed 3"
train alone $still --batch-size 50
train two $still -n 2 --batch-size 24 --checkpoint-every 7 --keep-checkpoints 0
from=two/checkpoints/step-00000014
[ "$(sum $from/state.json samples)" = 672 ] || fail "samples: $(sum $from/state.json samples)"
for ranks in 1 3; do
    train "on$ranks" $still -n $ranks --batch-size 24 --resume $from
    grep -q "2 ranks before, $ranks now: a step takes $((24 * ranks)) samples instead of 48" on$ranks.out ||
        { cat on$ranks.out; fail "says nothing of $ranks ranks"; }
    grep -q 'the 766 remaining samples of epoch 1 are divided among them' on$ranks.out || fail "does not mention the remaining steps"
    images=$(sum on$ranks/checkpoints/latest/state.json images)
    padded=$(((3 - 766 % 3) % 3 * (ranks / 3)))
    [ "${images%.*}" = $((1438 + padded)) ] || fail "$ranks ranks: $images images of 1438"
    steps=$((14 + (766 + 24 * ranks - 1) / (24 * ranks)))
    [ "$(field on$ranks/summary.json steps)" = $steps ] || fail "$ranks ranks: $(field on$ranks/summary.json steps) steps, expected $steps"
    [ "$(field on$ranks/summary.json epochs)" = 1 ] || fail "$ranks ranks: epochs"
done
sum on1/summary.json train_loss >a
sum alone/summary.json train_loss >b
close a b 1e-5
sum on3/summary.json train_loss >a # two samples of 1440 are padding
close a b 3e-3

# Again with other numbers in the same epoch, and the same twice: the bits do not depend on the point of interruption.
keys="--model mlp --threads 1 --epochs 3 --batch-size 30 --schedule constant --optimizer adamw --lr 0.001 --zero 1 --keep-checkpoints 0"
train first $keys -n 2 --checkpoint-every 5
train second $keys -n 3 --checkpoint-every 2 --resume first/checkpoints/step-00000010
train third $keys -n 1 --checkpoint-every 3 --resume second/checkpoints/step-00000012
[ "$(sum second/checkpoints/step-00000012/state.json samples)" = $((10 * 60 + 2 * 90)) ] || fail "samples of three and two ranks"
for name in second third; do
    n=3 && [ $name = second ] || n=1
    for checkpoint in $(ls -d $name/checkpoints/step-* | sed -n '1p;4p;9p'); do
        rm -rf again
        train again $keys -n $n --resume "$checkpoint"
        same again $name
    done
done

# The rate follows the samples: half of the samples is the middle of the schedule, whatever the ranks.
rate() { sed -n "s/.*\"step\": $2,.*\"lr\": \([^,]*\),.*/\1/p" "$1/metrics.jsonl"; }
cosine="--model mlp --threads 1 --epochs 4 --batch-size 30 --warmup-epochs 0 --log-every 1"
train one $cosine
train pair $cosine -n 2 --keep-checkpoints 0                # 24 steps an epoch where one rank has 48
train more $cosine --resume pair/checkpoints/step-00000048  # of 96: the half
[ "$(field more/summary.json steps)" = 144 ] || fail "$(field more/summary.json steps) steps after 48 of two ranks"
for k in 1 48 96; do
    [ "$(rate more $((48 + k)))" = "$(rate one $((96 + k)))" ] || fail "the rate of step $k after the half"
done
# PowerSGD's errors, redistributed.
power="--model mlp --threads 1 --epochs 2 --batch-size 30 --comm-hook powersgd --powersgd-start 5 --bucket-mb 0.02"
train lossy $power -n 3 --keep-checkpoints 0
train fewer $power -n 2 --resume lossy/checkpoints/step-00000016
train lone $power --resume lossy/checkpoints/step-00000016
train fewer2 $power -n 2 --resume lossy/checkpoints/step-00000016
same fewer fewer2

# Nodes join and leave during training: 1 rank, 2, 1 again, in rounds of tutti run.
port=$("$TUTTI" run sh -c 'echo $MASTER_PORT')
node() { # NAME: its launcher in $launcher
    "$TUTTI" run --nnodes 1:2 --rdzv-backend native --rdzv-endpoint "127.0.0.1:$port" --rdzv-conf last_call_timeout=0,join_timeout=20 \
        "$TUTTI" train --run-dir "$work/job" --model mlp --threads 1 --epochs 1000000 --schedule constant --log-every 5 >"$1.out" 2>&1 &
    launcher=$!
}
until_says() { # NAME TEXT
    local end=$((SECONDS + 90))
    until grep -q -- "$2" "$1.out"; do
        [ $SECONDS -lt $end ] || { tail -20 "$1.out"; fail "node $1 never says: $2"; }
        sleep 0.02
    done
}
head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >secret && chmod 600 secret
export TUTTI_SECRET_FILE=$work/secret
node a
first=$launcher
until_says a 'step 50/'
node b
until_says a '1 rank before, 2 now'
until_says a '\] epoch .* step ' # of two, who have a prefix
kill -TERM $launcher
until_says a '2 ranks before, 1 now'
wait $launcher || true
kill -TERM $first
code=0
wait $first || code=$?
[ $code = 143 ] || { tail -20 a.out; fail "exit code $code after SIGTERM"; }
[ "$(field job/summary.json status)" = interrupted ] || fail "status $(field job/summary.json status)"
steps=$(sed -n 's/^{"step": \([0-9]*\),.*/\1/p' job/metrics.jsonl)
[ "$steps" = "$(sort -nu <<<"$steps")" ] || fail "steps are there twice, or out of order"

echo "other ranks go on"
