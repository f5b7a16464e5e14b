# guard.sh -- flipped bits in parameters, optimizer state and mean gradients of one worker are found and named, the job goes on from
# what was verified, and the final weights are the undisturbed ones.   timeout: 300   SPDX-License-Identifier: MIT
# guard_all: more flips, ZeRO, accumulation, averages, and 100,000 steps without any.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
export TUTTI_LOG=warn,guard:info
digest() { sed -n 's/.*"parameter_digest": "\([0-9a-f]*\)".*/\1/p' "$1/summary.json"; }
count() { grep -c -- "$2" "$1.out" || true; } # RUN PATTERN
keys="--model mlp --data digits --max-steps 40 --eval-every 0 --threads 1 --progress quiet --checkpoint-every 10"
flip() { # RUN RANKS WHAT SEED KEYS...: must end well, with flips, of which each stop is due to one that was found
    local run=$1 n=$2 what=$3 seed=$4 code=0 flips
    shift 4
    timeout 200 "$TUTTI" run -n "$n" --max-restarts 30 --chaos "flip=$what,keep=$((n - 1)),seed=$seed" "$TUTTI" train $keys "$@" --run-dir "$run" \
        >"$run.out" 2>&1 || code=$?
    [ $code = 0 ] || { cat "$run.out"; fail "$run: exit code $code"; }
    flips=$(grep -cE '^(\[[0-9]+\] )?tutti warn chaos: training step' "$run.out" || true)
    [ "$flips" -gt 0 ] || fail "$run: nothing was flipped"
    says "$run" "^tutti run: chaos: in .*, $flips bits? flipped; [0-9]+ events? had no target"
    [ -s "$run/guard.jsonl" ] || { cat "$run.out"; fail "$run: nothing was found"; }
}
same() { # RUN UNDISTURBED
    [ -n "$(digest "$1")" ] && [ "$(digest "$1")" = "$(digest "$2")" ] || { cat "$1.out" "$1/guard.jsonl"; fail "$1: $(digest "$1"), undisturbed $(digest "$2")"; }
}
# All that was found was on the worker that was disturbed: by shards another rank of its group than the launcher's, by which it prints.
one_worker() { # RUN
    [ "$(grep -o '"worker":[0-9]*' "$1/guard.jsonl" | sort -u | wc -l)" = 1 ] || { cat "$1/guard.jsonl"; fail "$1: several workers are named"; }
    [ "$(grep -oE '^\[[0-9]+\] tutti warn chaos' "$1.out" | sort -u | grep -oE '[0-9]+')" = "$(sed -n 's/.*"worker":\([0-9]*\),.*/\1/p' "$1/guard.jsonl" | sort -u)" ] ||
        { cat "$1.out" "$1/guard.jsonl"; fail "$1: another worker is named than the disturbed one"; }
}

# Fixed ranks: memory that changes in a step after a check is found before the update, what changes in others by the next check.
train plain $keys -n 3
mkdir three # with a line whose writer was killed, which hides no other
printf '{"time":1,"st' >three/guard.jsonl
flip three 3 0.08:parameters 5 --guard 3
same three plain
one_worker three
grep -qE 'rank [0-2] \(host [^,]+, core [0-9]+\): "fc[12].weight" has changed in memory between the update of step [0-9]+ and the next' three.out ||
    { cat three.out; fail "no change of memory was named"; }
grep -qE 'replicas differ at step [0-9]+: rank [0-2] \(host [^,]+, core [0-9]+, digest [0-9a-f]{16}\), where the other 2 have [0-9a-f]{16}; "fc[12].weight" is the first' three.out ||
    { cat three.out; fail "no replica was named"; }
grep -q 'this host was named [1-9] times\? before in this run (guard.jsonl): take it out of the job' three.out || fail "a host that was named twice is not"
flip means 3 0.08:means 5 --guard 1
same means plain
one_worker means

# One rank has no replica: its memory alone.
train alone $keys -n 1
flip one 1 0.08:state 5 --guard 1
same one alone
grep -q '"found":"momentum_buffer of fc' one/guard.jsonl || { cat one/guard.jsonl; fail "the state is not named"; }
# Where it cannot be recorded, that is said, and nothing waits.
mkdir odd
mkfifo odd/guard.jsonl
timeout 100 "$TUTTI" run -n 1 --max-restarts 30 --chaos flip=0.08:state,keep=0,seed=5 "$TUTTI" train $keys --guard 1 --run-dir odd >odd.out 2>&1 || { cat odd.out && fail "a pipe as guard.jsonl"; }
says odd 'what was found is not recorded: odd/guard.jsonl is not a regular file$'
rm odd/guard.jsonl
same odd alone

# Also in the first step after a start or a restart, for which it begins with what was made or loaded.
train few $keys --max-steps 10 -n 1
flip first 1 0.4:parameters 3 --guard 1 --max-steps 10 --checkpoint-every 1
same first few

train few6 $keys --max-steps 10 -n 1 --shards 6
flip first6 1 0.4:parameters 3 --guard 1 --max-steps 10 --checkpoint-every 1 --shards 6
same first6 few6

# By shards only the worker whose memory has changed is replaced, and no step is lost.
flip shards 3 0.03:parameters 5 --guard 1 --shards 6
train whole $keys -n 1 --shards 6
same shards whole
one_worker shards
grep -qE 'rank [0-2] \(process [0-9]+\) ended with exit code 4 .*: a replacement takes its place' shards.out || { cat shards.out; fail "no worker was replaced"; }
[ "$(count shards 'starting the workers again')" = 0 ] || { cat shards.out; fail "all workers were restarted"; }

# By shards also buffers, before the mean of all shards' hides what was wrong in one rank's; a model without any has nothing to flip.
buffered="--model mini_resnet --batch-size 2 --max-steps 8 --shards 3"
train buffered $keys $buffered -n 1
flip buffers 3 0.4:buffers 5 --guard 1 $buffered
same buffers buffered
one_worker buffers
grep -q '"found":"[a-z0-9.]*running_' buffers/guard.jsonl || { cat buffers/guard.jsonl; fail "no buffer is named"; }
launched nothing "$TUTTI" run -n 2 --chaos flip=0.2:buffers,seed=3 -- $keys --shards 6
says nothing 'chaos: no bit is flipped in training step [0-9]+: this rank has no buffers to flip then'
says nothing '0 bits flipped; [1-9][0-9]* events? had no target'

# A mean that is wrong on one rank: under ZeRO it shows where another has a copy of that rank's share, and both are named.
copied="--shards 6 --zero 2 --shard-copies 2 --optimizer adamw"
train copied $keys -n 1 $copied
flip copies 3 0.06:means 5 --guard 1 $copied
same copies copied
says copies 'replicas differ at step [0-9]+: the digest of ZeRO.s share [0-2] is [0-9a-f]{16} on rank [0-2] \(.*\), [0-9a-f]{16} on rank [0-2] \('

# Two ranks are shown side by side, as either may be wrong; -1 looks only at the end.
code=0
timeout 100 "$TUTTI" run -n 2 --chaos flip=1:means,seed=1 "$TUTTI" train $keys --guard 1 --run-dir two >two.out 2>&1 || code=$?
[ $code = 4 ] || { cat two.out; fail "exit code $code of two ranks that differ"; }
grep -qE 'replicas differ at step 1: the digest is [0-9a-f]{16} on rank 0 \(host [^,]+, core [0-9]+\), [0-9a-f]{16} on rank 1 \(' two.out || { cat two.out; fail "two ranks are not shown"; }
code=0
timeout 100 "$TUTTI" run -n 2 --chaos flip=0.5:means,seed=1 "$TUTTI" train $keys --no-guard --run-dir off >off.out 2>&1 || code=$?
{ [ $code = 4 ] && grep -q 'replicas differ at step 40' off.out; } || { cat off.out; fail "no guard: exit code $code"; }

# By default: it looks, and finds nothing.
[ "$(count plain 'guard: [1-9][0-9]* checks in 40 steps')" = 1 ] || { cat plain.out; fail "no checks by default"; }
refused 2 'guard' "$TUTTI" train --guard often
[ -n "${ALL:-}" ] || exit 0

# Replicas of a share (zero_ranks), and copies of it.
for what in "hybrid --optimizer adamw --zero 1 --zero-ranks 2" "copied1 --shards 6 --zero 1 --shard-copies 2 --optimizer adamw" \
    "copied3 --shards 6 --zero 3 --shard-copies 2"; do
    name=${what%% *}
    train "$name" $keys -n 4 ${what#* }
    flip "$name.means" 4 0.1:means 6 --guard 1 ${what#* }
    same "$name.means" "$name"
done

for what in "adamw --optimizer adamw" "zero1 --optimizer adamw --zero 1" "zero2 --zero 2" "zero3 --optimizer adamw --zero 3" \
    "accumulated --grad-accumulation 2 --batch-size 16" "averaged --ema 0.9 --clip-grad-norm 1" "shards1 --shards 6 --zero 1 --shard-copies 2 --optimizer adamw"; do
    name=${what%% *}
    train "$name" $keys -n 3 ${what#* }
    for kind in parameters state; do
        flip "$name.$kind" 3 0.05:$kind 6 --guard 1 ${what#* }
        same "$name.$kind" "$name"
    done
done
for seed in 11 12 13 14; do
    for kind in parameters state means; do
        flip many.$kind.$seed 3 0.15:$kind $seed --guard 1
        same many.$kind.$seed plain
        one_worker many.$kind.$seed
    done
done
# No false alarm in 100,000 steps: with restarts one would not be seen in the exit code.
train long --model mlp --data digits --epochs 100000 --max-steps 100000 --batch-size 8 --guard 1 -n 2 --eval-every 0 --threads 1 --progress quiet \
    --checkpoint-every 10000
[ ! -e long/guard.jsonl ] || { cat long/guard.jsonl; fail "a false alarm"; }
