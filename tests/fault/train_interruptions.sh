# SIGKILL of a rank, SIGTERM, or a disk that fills up, at a random step of 1, 2 and 3 ranks with augmentation, dropout, AMP and
# accumulation; resumed, the run ends with the digest of an undisturbed one.   timeout: 180
# SPDX-License-Identifier: MIT
# TIMES is how many interruptions (default 4); train_interruptions_all does 20. SEED repeats a choice of steps and victims.
if [ -z "${INSIDE:-}" ] && unshare -rm true 2>/dev/null; then
    INSIDE=yes exec unshare -rm bash "$0" # a mount namespace, where a small disk can be mounted without others seeing it
fi
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
export TUTTI_EMULATE_HALF=1 # 16-bit types also on processors without them
times=${TIMES:-4}
SEED=${SEED:-$((${EPOCHREALTIME//[!0-9]/} % 32768))}
RANDOM=$SEED
echo "SEED=$SEED"
mkdir disk
if [ -n "${INSIDE:-}" ] && mount -t tmpfs -o size=100m none disk; then
    trap 'end_all; umount disk; rm -rf "$work"' EXIT
    ways=(kill term fill)
else
    echo "skipped: disks that fill up: no tmpfs can be mounted here"
    ways=(kill term)
fi
ranks=(1 2 3) steps=(960 30 320)
kinds=("--model mlp --amp bf16 --dropout 0.2 --epochs 20 --batch-size 30 --checkpoint-every 7"
    "--model mini_resnet --dropout 0.2 --max-steps 30 --batch-size 4 --grad-accumulation 2 --checkpoint-every 4 --eval-every 0"
    "--model mlp --amp fp16 --dropout 0.2 --epochs 20 --batch-size 10 --grad-accumulation 3 --checkpoint-every 3 --zero 1 --optimizer adamw")
for k in 0 1 2; do
    train "whole$k" -n ${ranks[k]} ${kinds[k]} --threads 1
    [ "$(field "whole$k/summary.json" steps)" = "${steps[k]}" ] || fail "kind $k has $(field "whole$k/summary.json" steps) steps"
done

# disturb WAY LAUNCHER RANK
disturb() {
    case $1 in
    kill) kill -KILL "$(process_of "$3" "--run-dir $work/disk/run")" 2>kill.err || true ;;
    term) kill -TERM "$2" 2>kill.err || true ;;
    fill) head -c 200M /dev/zero >disk/hog 2>hog.err || true ;;
    esac
}
mkfifo pipe
interrupted=0
for ((i = 0; i < times; i++)); do
    k=$((i % 3)) way=${ways[(i + i / 3) % ${#ways[@]}]} step=$((1 + RANDOM % (steps[i % 3] * 2 / 3))) rank=$((RANDOM % ranks[i % 3])) code=0
    rm -rf disk/*
    "$TUTTI" run -n ${ranks[k]} "$TUTTI" train --run-dir "$work/disk/run" ${kinds[k]} --threads 1 --log-every 1 --checkpoint-failure stop >pipe 2>err &
    pid=$!
    while read -r line; do
        case $line in *"step $step/"*) disturb $way $pid $rank ;; esac
    done <pipe
    wait $pid || code=$?
    case $way:$code in
    *:0) ;; # it had already finished
    kill:137 | term:143 | fill:4) interrupted=$((interrupted + 1)) ;;
    *) cat err; fail "$i: $way at step $step of kind $k: exit code $code" ;;
    esac
    rm -f disk/hog
    train disk/run -n ${ranks[k]} ${kinds[k]} --threads 1 --log-every 1 --resume auto
    [ "$(digest disk/run)" = "$(digest whole$k)" ] || { cat err disk/run.out | tail -30; fail "$i: $way at step $step of kind $k: another digest"; }
    [ "$(sed -n 's/^{"step": \([0-9]*\),.*/\1/p' disk/run/metrics.jsonl | tr '\n' ' ')" = "$(seq "${steps[k]}" | tr '\n' ' ')" ] ||
        fail "$i: $way at step $step of kind $k: a step is missing in metrics.jsonl, or there twice"
    [ -z "$(find disk/run -name '*.tmp')" ] || fail "$i: temporary files are left: $(find disk/run -name '*.tmp')"
done
echo "$interrupted of $times were interrupted"
[ $interrupted -ge 1 ] || fail "all runs were over before"
