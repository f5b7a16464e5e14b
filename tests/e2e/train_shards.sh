# `tutti train --shards V`: a step is V logical shards, and the result has the same bits for any number of ranks.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

# Everything that must not depend on which rank computed: metrics and losses, parameters, the optimizer's state.
result() {
    local key
    for key in steps train_loss val_loss val_accuracy samples_digest parameter_digest; do
        echo "$key $(field "$1/summary.json" $key)"
    done
    sed 's/"images_per_s.*//; s/"time_s.*//' "$1/metrics.jsonl"
}
alike() { { diff <(result "$1") <(result "$2") && same_saved "$1/checkpoints/latest" "$2/checkpoints/latest"; } >diff.out || { cat diff.out; fail "$1 and $2 differ"; }; }
of() { field "$1/summary.json" "$2"; }

# Any number of ranks, divisors of the shards or not; threads, buckets, transports.
mlp="--model mlp --dropout 0.3 --shards 8 --batch-size 8 --epochs 2 --log-every 5 --checkpoint-every 17 --keep-checkpoints 0 --clip-grad-norm 1"
train m1 $mlp --threads 1
[ "$(of m1 shards)/$(of m1 world_size)" = 8/1 ] || fail "summary.json: $(cat m1/summary.json)"
[ "$(of m1 samples_digest | wc -c)" = 33 ] || fail "samples_digest: $(of m1 samples_digest)"
for n in 2 3 5 8; do
    train m$n -n $n $mlp --threads 1
    alike m1 m$n
done
train threads -n 2 $mlp --threads 2 --bucket-mb 0.01 --first-bucket-mb 0.001 --workers 0
alike m1 threads
TUTTI_TRANSPORT=tcp train tcp -n 3 $mlp --threads 1 --bucket-mb 0.02
alike m1 tcp

# Another order of samples, or another number of shards, is another run.
train other $mlp --threads 1 --seed 1
[ "$(of other samples_digest)" != "$(of m1 samples_digest)" ] || fail "another seed has the same samples"

# Batch norm's running statistics, augmentation.
resnet="--model mini_resnet --shards 8 --batch-size 4 --max-steps 4 --epochs 1 --eval-every 0 --log-every 1 --threads 1"
train r1 $resnet
for n in 3 8; do
    train r$n -n $n $resnet
    alike r1 r$n
done

# Several batches per step, the last of them smaller, and a step of fewer at the epoch's end.
grad="--model mlp --shards 5 --batch-size 16 --grad-accumulation 4 --epochs 3 --log-every 1 --optimizer adamw"
train a1 $grad --threads 1
train a3 -n 3 $grad --threads 1
alike a1 a3

# Sharded state: each worker writes its part of checkpoints, from which any number of them go on, with any stage.
train z1 $mlp --threads 1 --zero 1
alike m1 z1
train z3 -n 3 $mlp --threads 1 --zero 1 --bucket-mb 0.02
alike m1 z3
train za -n 2 $grad --threads 1 --zero 1
alike a1 za
rm -r z3/summary.json z3/model.safetensors
find z3/checkpoints -mindepth 1 -maxdepth 1 ! -name step-00000017 -exec rm -r {} +
ln -s step-00000017 z3/checkpoints/latest
train z3 -n 2 $mlp --threads 1 --zero 1 --resume auto
alike m1 z3
parts() { for stem in model optimizer; do ls "$1"/checkpoints/step-00000017 | grep -c "^$stem-0000.-of-" || true; done | tr '\n' ' '; }
train whole -n 4 $mlp --threads 1 --zero 3 --bucket-mb 0.02
alike m1 whole
[ "$(parts whole)" = "2 2 " ] || { ls whole/checkpoints/*; fail "expected parts of two workers: there are two matrices"; }
[ ! -e whole/model.safetensors ] && [ -e whole/model.safetensors.index.json ] || { ls whole; fail "the weights of the run's end"; }
"$TUTTI" checkpoint verify whole >verify.out 2>&1 || { cat verify.out; fail "its checkpoints do not verify"; }
for how in "-n 1" "-n 2 --zero 3" "-n 3 --zero 2"; do
    rm -rf z4
    cp -r whole z4 && rm z4/summary.json z4/model*
    find z4/checkpoints -mindepth 1 -maxdepth 1 ! -name step-00000017 -exec rm -r {} +
    ln -s step-00000017 z4/checkpoints/latest
    train z4 $mlp --threads 1 $how --resume auto
    alike m1 z4
done

# fp16: infinities are found in the sum, which all ranks have.
TUTTI_EMULATE_HALF=1 train f1 $grad --threads 1 --amp fp16 --epochs 1
TUTTI_EMULATE_HALF=1 train f2 -n 2 $grad --threads 1 --amp fp16 --epochs 1
alike f1 f2

# With --wire-bits 32: another rounding, which does not depend on ranks either.
train w1 $mlp --threads 1 --wire-bits 32 --epochs 1
train w3 -n 3 $mlp --threads 1 --wire-bits 32 --epochs 1
alike w1 w3

# Resumed in the middle of an epoch, on another number of ranks.
for from in 1 3; do
    cp -r m1 again && rm again/summary.json again/model.safetensors
    find again/checkpoints -mindepth 1 -maxdepth 1 ! -name step-00000017 -exec rm -r {} +
    ln -s step-00000017 again/checkpoints/latest
    train again -n $((4 - from)) $mlp --threads 1 --resume auto
    grep -q 'resumed from again/checkpoints/step-00000017' again.out || { cat again.out; fail "it was not resumed"; }
    ! grep -q 'before, [0-9].* now' again.out || { cat again.out; fail "shards were taken for ranks"; }
    alike m1 again
    rm -r again
done

# Resumed where an epoch ends: its loss is not that of the next one.
train e1 $mlp --threads 1 --checkpoint-every 0
cp -r e1 again && rm again/summary.json again/model.safetensors again/checkpoints/latest
rm -r again/checkpoints/step-00000046
train again -n 2 $mlp --threads 1 --checkpoint-every 0 --resume auto
grep -q 'resumed from again/checkpoints/step-00000023' again.out || { cat again.out; fail "it was not resumed at the end of an epoch"; }
alike e1 again
rm -r again

# The same number of ranks without shards agrees within rounding; and resumes from such a checkpoint, and vice versa.
for n in 1 4; do
    shards=$([ $n = 1 ] && echo "--shards 4" || true)
    train p$n -n $n --model mlp --dropout 0.3 --batch-size 8 --max-steps 40 --schedule constant --threads 1 $shards
    numbers p$n/model.safetensors >p$n.txt
done
close p1.txt p4.txt 1e-5
train back -n 2 --model mlp --dropout 0.3 --batch-size 8 --max-steps 50 --schedule constant --threads 1 --resume p1
grep -q '4 shards before, 2 ranks now' back.out || { cat back.out; fail "does not say that samples are distributed differently"; }
train forth -n 2 --model mlp --dropout 0.3 --batch-size 8 --max-steps 50 --schedule constant --threads 1 --resume p4 --run-dir forth --shards 3
grep -q '4 ranks before, 3 shards now' forth.out || { cat forth.out; fail "does not say that samples are distributed differently"; }
[ "$(of forth steps)" = 50 ] || fail "forth did $(of forth steps) steps"

# A complete run has nothing left to do, and its launcher is told that the work is done.
train forth -n 2 --model mlp --dropout 0.3 --batch-size 8 --max-steps 50 --schedule constant --threads 1 --resume auto --run-dir forth --shards 3
grep -q 'forth is complete: all 50 steps are done' forth.out || { cat forth.out; fail "does not say that the run is complete"; }
! grep -q 'all workers have ended, and none' forth.out || { cat forth.out; fail "the launcher does not know that the work is done"; }

# Incompatible keys are rejected, with an alternative.
refused 2 "sync_bn: with shards, batch norm uses the statistics of one shard" "$TUTTI" train --shards 4 --sync-bn
refused 2 "comm_hook: powersgd rounds" "$TUTTI" train --shards 4 --comm-hook powersgd
refused 2 "wire_bits: it applies to sums over shards" "$TUTTI" train --wire-bits 32
refused 2 "shards: 4097 is out of range" "$TUTTI" train --shards 4097
refused 2 "a step has 2 shards, but there are 3 ranks" "$TUTTI" run -n 3 env -u TUTTI_AGENT_FD "$TUTTI" train --shards 2 --run-dir few --model mlp
[ ! -e few/config.json ] || fail "the run folder was begun"

# Missing data, or another configuration, is reported before the group begins.
refused 1 "data folder none" "$TUTTI" run -n 2 "$TUTTI" train --shards 4 --data cifar10 --data-dir none --run-dir none.run
[ ! -e none.run/config.json ] || fail "the run folder was begun without data"
refused 2 "worker is refused: lr: it has 0.0" "$TUTTI" run -n 2 sh -c 'exec "$0" train --shards 4 --model mlp --run-dir differ --lr 0.0$((RANK + 1))' "$TUTTI"

# A worker that cannot be replaced, because its data have gone: the replacement says why, and ends the job.
mkdir cifar
for f in data_batch_1 data_batch_2 data_batch_3 data_batch_4 data_batch_5 test_batch; do
    head -c $((3073 * 100)) /dev/zero >cifar/$f.bin
done
"$TUTTI" train -n 2 --shards 2 --model mlp --threads 1 --epochs 100000 --eval-every 0 --data cifar10 --data-dir cifar --run-dir "$PWD/gone" --log-every 1 >gone.out 2>&1 &
job=$!
until grep -qs '"step": 5,' gone/metrics.jsonl; do kill -0 $job || { cat gone.out; fail "gone has ended"; }; pause 5; done
mv cifar cifar.away
for pid in $(pgrep -f "^tutti train .*$PWD/gone "); do
    ! grep -zqsx RANK=1 "/proc/$pid/environ" || kill -KILL "$pid"
done
code=0
wait $job || code=$?
[ $code = 1 ] && grep -q 'data folder cifar: No such file' gone.out && ! grep -q 'is refused' gone.out || { cat gone.out; fail "exit code $code where a replacement has no data"; }
