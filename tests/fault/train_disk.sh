# A checkpoint that cannot be written, for each reason: the previous one stays intact, the training continues or stops as configured, the
# model and the metrics are not lost.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
mlp="--model mlp --threads 1 --epochs 2 --log-every 5 --checkpoint-every 15"
train whole $mlp

# ends CODE DIR ARGUMENTS...: a run that must exit with CODE, started through ${with[@]}
with=()
ends() {
    local code=$1 dir=$2 got=0
    shift 2
    timeout 300 "${with[@]}" "$TUTTI" train --run-dir "$dir" "$@" >"$dir.out" 2>&1 || got=$?
    [ $got = "$code" ] || { cat "$dir.out"; fail "exit code $got, expected $code: $dir $*"; }
}
nothing_left() { [ -z "$(find "$1" -name '*.tmp')" ] || fail "temporary files are left in $1: $(find "$1" -name '*.tmp')"; }

# Files are limited to 40 KiB: no checkpoint and no weights are written, but metrics, and a summary with the reason.
with=(bash -c 'ulimit -f 40; exec "$@"' limit)
ends 4 small $mlp -n 2
says small 'the state of step 15 is not saved: cannot write small/checkpoints/step-00000015.tmp/model.safetensors: File too large; training continues'
[ "$(grep -c 'training continues' small.out)" = 3 ] || { cat small.out; fail "not every failure was printed"; }
[ "$(field small/summary.json steps)" = 46 ] && grep -q '"reason": ".*step 46 is not saved: .*File too large' small/summary.json || fail "$(cat small/summary.json)"
[ "$(grep -c '"step"' small/metrics.jsonl)" -ge 10 ] || fail "metrics.jsonl"
nothing_left small
ends 4 sharded $mlp -n 2 --shards 4
[ "$(field sharded/summary.json status)" = failed ] && grep -q '"reason": ".*step 24 is not saved: .*File too large' sharded/summary.json || fail "$(cat sharded/summary.json)"
nothing_left sharded
ends 4 stopped $mlp -n 2 --checkpoint-failure stop --epochs 2000
[ "$(field stopped/summary.json status)" = failed ] && grep -q '"reason": "the state of step 15 is not saved' stopped/summary.json || fail "$(cat stopped/summary.json)"
[ "$(grep -c 'is not saved' stopped.out)" = 1 ] || { cat stopped.out; fail "the reason was not printed exactly once"; }
with=()

# A system call of the third checkpoint (step 45) fails, one kind in each run: the next checkpoint tries again; the final state is right.
if command -v strace >strace.path && strace -f -o trace -e trace=fsync true 2>strace.err; then
    traced=(env "ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0" strace -f -o trace) # LeakSanitizer would trace it too
    injected() { # NAME RULE FILE: for calls on that file of the checkpoint while it is written
        local dir=$1 rule=$2 file=$1/checkpoints/step-00000045.tmp$3
        with=("${traced[@]}" -e "trace=${rule%%:*}" -e "inject=$rule" -P "$file" -P "$work/$file")
        ends 0 "$dir" $mlp
        says "$dir" 'the state of step 45 is not saved: .*; .*/checkpoints/step-00000030 is intact; training continues'
        same "$dir" whole
        cmp "$dir/model.safetensors" whole/model.safetensors || fail "$dir: weights"
        nothing_left "$dir"
        grep -q INJECTED trace || fail "$dir: nothing was injected"
        rm -rf "$dir"
    }
    injected no_room write:error=ENOSPC /model.safetensors
    injected quota write:error=EDQUOT /optimizer.safetensors
    injected bad_disk fsync:error=EIO /state.json
    injected read_only mkdir:error=EROFS ''
    injected bad_folder fsync:error=EIO ''
    injected no_rename rename:error=EIO ''
    injected misread pread64:error=EIO /optimizer.safetensors
    # Two thread creations fail (the first is an engine's): the same.
    with=("${traced[@]}" -e trace=clone,clone3 -e inject=clone,clone3:error=EAGAIN:when=3..4)
    ends 0 no_threads $mlp --workers 0
    [ "$(grep -c 'is not saved: cannot start the thread that writes checkpoints' no_threads.out)" = 2 ] || { cat no_threads.out; fail "threads that cannot be started"; }
    same no_threads whole
    # Killed at each call while an earlier run is moved aside: all of it is found again, in one folder.
    train earlier $mlp --tensorboard
    (cd earlier && find . -type f ! -name .lock | sort) >files
    for k in 1 4 6 8; do
        with=("${traced[@]}" -e trace=rename,renameat2 -e "inject=rename,renameat2:signal=KILL:when=$k")
        ends 137 earlier $mlp --max-steps 1 2>killed.err
        with=()
        train earlier $mlp --max-steps 1
        diff files <(cd earlier/earlier-1 && find . -type f ! -name .lock | sort) || fail "the earlier run is damaged after a kill in rename $k"
        [ ! -e earlier/earlier-2 ] || fail "one run was split into two"
        same earlier/earlier-1 whole
        rm -rf earlier/[!e]* && mv earlier/earlier-1/* earlier && rmdir earlier/earlier-1
    done
    # Killed at each call that writes a checkpoint, renames it and deletes the oldest: a checkpoint with its final name is complete,
    # `latest` names one of them, and the resumed run reaches the same final state.
    tmp=step-00000045.tmp gone=step-00000015.old.tmp
    for at in fsync:$tmp/{model,optimizer}.safetensors fsync:$tmp/state.json pread64:$tmp/model.safetensors fsync:$tmp renameat2:$tmp rename:$tmp \
        fsync: unlink:latest.tmp rename:latest.tmp unlink:$gone/model.safetensors rmdir:$gone; do
        call=${at%%:*} file=killed/checkpoints/${at#*:}
        with=("${traced[@]}" -e "trace=$call" -e "inject=$call:signal=KILL" -P "${file%/}" -P "$work/${file%/}")
        echo "killed at $at"
        ends 137 killed $mlp 2>killed.err
        with=()
        for folder in killed/checkpoints/step-*[0-9]; do
            [ ! -e "$folder" ] || "$TUTTI" checkpoint verify "$folder" >killed.out 2>&1 || { cat killed.out; fail "killed at $at: $folder is damaged"; }
        done
        [ ! -L killed/checkpoints/latest ] || [ -f killed/checkpoints/latest/state.json ] || fail "killed at $at: latest is a dangling link"
        case $at in *$tmp* | *$gone*) [ -d killed/checkpoints/step-00000030 ] || fail "killed at $at: the checkpoint before is gone" ;; esac
        train killed $mlp --resume auto
        same killed whole
        nothing_left killed
        rm -rf killed
    done
    # A file system without ftruncate, flock and fcntl locks (FUSE, object stores): everything is saved, and can be resumed.
    with=("${traced[@]}" -e trace=ftruncate,truncate,flock,fcntl -e inject=ftruncate,truncate:error=EINVAL -e inject=flock:error=ENOSYS)
    ends 0 store $mlp --max-steps 50 --schedule constant
    ends 0 store $mlp --schedule constant --resume store/checkpoints/step-00000045
    with=()
    train plain $mlp --schedule constant
    same store plain
else
    echo "skipped: no strace, or it may not trace: $(cat strace.err)"
fi

# A run folder deleted during the run is made again; metrics continue.
steps() { sed -n 's/^{"step": \([0-9]*\),.*/\1/p' "$1/metrics.jsonl"; }
mkfifo pipe
"$TUTTI" train --run-dir gone $mlp --epochs 30 --log-every 1 >pipe 2>gone.err &
pid=$!
while read -r line; do
    case $line in *"step 100/"*) freeze $pid; rm -rf gone; kill -CONT $pid ;; esac
done <pipe
wait $pid || { cat gone.err; fail "exit code $? after the folder went"; }
train whole30 $mlp --epochs 30
same gone whole30
cmp gone/model.safetensors gone/checkpoints/latest/model.safetensors || fail "the last checkpoint"
[ "$(steps gone | tail -1)" = 1350 ] || fail "metrics end at $(steps gone | tail -1)"

# metrics.jsonl renamed during the run (log rotation): a new one is begun, and no line is lost.
"$TUTTI" train --run-dir rotated $mlp --epochs 30 --log-every 1 >pipe 2>rotated.err &
pid=$!
while read -r line; do
    case $line in *"step 100/"*) freeze $pid; mv rotated/metrics.jsonl rotated/metrics.1; kill -CONT $pid ;; esac
done <pipe
wait $pid || { cat rotated.err; fail "exit code $? after the metrics were renamed"; }
[ "$(sed -n 's/^{"step": \([0-9]*\),.*/\1/p' rotated/metrics.1 rotated/metrics.jsonl | tr '\n' ' ')" = "$(seq 1350 | tr '\n' ' ')" ] || fail "lines of renamed metrics are missing"

# A last checkpoint that fails for another reason than room: the older ones stay, and nothing temporary.
"$TUTTI" train --run-dir taken $mlp --epochs 30 --log-every 1 >pipe 2>taken.err &
pid=$!
while read -r line; do
    case $line in *"step 100/"*) freeze $pid; rm -f taken/checkpoints/latest; mkdir taken/checkpoints/latest; kill -CONT $pid ;; esac
done <pipe
code=0
wait $pid || code=$?
[ $code = 4 ] || { cat taken.err; fail "exit code $code where the last checkpoint fails"; }
! grep -q 'removed to make room' taken.err || { cat taken.err; fail "checkpoints are removed although there is room"; }
nothing_left taken

# A small disk that is full for a while, or until the end.
cat >small_disk.sh <<'END'
. "$SOURCE_DIR/tests/harness/train.sh" # in its own folder
mkdir disk && mount -t tmpfs -o size=1300k none disk || exit 77
trap 'end_all; umount disk; rm -rf "$work"' EXIT
fill() { head -c 100M /dev/zero >disk/hog 2>hog.err || true; }
# on_disk DIR KEYS...: fills the disk once step 100 is done; $while_full runs before the training continues
on_disk() {
    local line pid
    mkfifo pipe
    "$TUTTI" train --run-dir disk/run $mlp --epochs 30 --log-every 1 "$@" >pipe 2>err &
    pid=$!
    while read -r line; do
        case $line in *"step 100/"*) freeze $pid; fill; kill -CONT $pid; eval "$while_full" ;; esac
    done <pipe
    code=0
    wait $pid || code=$?
    rm pipe
}
wait_for() { until grep -q "$1" err; do kill -0 $pid 2>kill.err || { cat err; fail "it never printed: $1"; }; sleep 0.01; done; }
whole30=$1 mlp=$2

while_full='wait_for "is not saved.*training continues"; wait_for "metrics.jsonl: No space"; rm disk/hog'
on_disk
[ $code = 0 ] && [ "$(digest disk/run)" = "$whole30" ] || { cat err; fail "exit code $code: full for a while"; }
grep -q 'metrics.jsonl: No space left on device; training continues' err || { cat err; fail "metrics: not said"; }
[ "$(sed -n 's/^{"step": \([0-9]*\),.*/\1/p' disk/run/metrics.jsonl | tr '\n' ' ')" = "$(seq 1350 | tr '\n' ' ')" ] || fail "lines of metrics.jsonl are missing"
[ -z "$(find disk -name '*.tmp')" ] || fail "temporary files are left: $(find disk -name '*.tmp')"
rm -rf disk/run

# The best checkpoint: while the disk is full the link stays on one that is intact.
while_full='wait_for "is not saved.*training continues"; "$TUTTI" checkpoint verify disk/run/checkpoints/best >best.out || echo damaged >>err; rm disk/hog'
on_disk --checkpoint-best val_loss
[ $code = 0 ] && [ "$(digest disk/run)" = "$whole30" ] && ! grep -q '^damaged' err || { cat err best.out; fail "exit code $code: full for a while, with the best checkpoint"; }
"$TUTTI" checkpoint verify disk/run/checkpoints/best >best.out || { cat best.out; fail "the best checkpoint after a full disk"; }
[ "$(ls disk/run/checkpoints | grep -c '^step-')" -le 3 ] || fail "checkpoints are left: $(ls disk/run/checkpoints)"
rm -rf disk/run

while_full=
on_disk
[ $code = 0 ] || { cat err; fail "exit code $code: an older checkpoint makes room"; }
grep -q 'all checkpoints but the newest are removed to make room' err || { cat err; fail "it does not say that older ones are removed"; }
[ "$(readlink disk/run/checkpoints/latest)" = step-00001350 ] || { ls disk/run/checkpoints; fail "the last state is not the latest checkpoint"; }
cmp disk/run/model.safetensors disk/run/checkpoints/latest/model.safetensors || fail "the weights of a full disk"
rm -rf disk/run disk/hog

on_disk --keep-checkpoints 1
[ $code = 4 ] || { cat err; fail "exit code $code where the last state is not saved"; }
grep -q 'step 1350 is not saved: .*No space left on device.*step-[0-9]* is intact' err || { cat err; fail "the end does not say it"; }
rm disk/hog
"$TUTTI" train --run-dir disk/run $mlp --epochs 30 --log-every 1 --resume auto >out 2>&1 || { cat out; fail "resumed"; }
[ "$(digest disk/run)" = "$whole30" ] || fail "resumed after a full disk: another digest"
END
got=0
unshare -rm bash small_disk.sh "$(digest whole30)" "$mlp" >small_disk.out 2>&1 || got=$?
case $got in
0) ;;
1) cat small_disk.out; [ -s small_disk.out ] && grep -q FAILED small_disk.out && exit 1; echo "skipped: no small disk: $(tail -1 small_disk.out)" ;;
*) echo "skipped: no small disk: $(tail -1 small_disk.out)" ;;
esac
echo "nothing was lost"
