# Workers of a run by shards are killed, join and leave while the optimizer state is sharded: a lost worker's shard is recovered from
# the last checkpoint, or without one from a copy of the share, a worker that leaves on request hands its shard over, and the bits are those of an undisturbed run without ZeRO.   timeout: 240   run: waiting
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
. "$SOURCE_DIR/tests/harness/elastic.sh"

export GO=$work/go BRAKE_MS=5
: >"$GO"
keys="--model $BUILD_DIR/standin/braked_model.so --dropout 0.3 --shards 6 --batch-size 16 --epochs 26 --log-every 10 --checkpoint-every 100 --eval-every 10 --threads 1 --progress plain"
keys="$keys --optimizer adamw --clip-grad-norm 1"
lines() { sed 's/"images_per_s.*//; s/"time_s.*//' "$1/metrics.jsonl"; }
results="samples_digest parameter_digest"
train whole $keys

# Rank 0 of three, then another: the survivors continue in the same process from the checkpoint.
begin one 3 $keys --zero 1
reach one 150
kill -KILL "$(running one | head -1)"
reach one 320
kill -KILL "$(running one | tail -1)" # possibly the replacement
end one 0
same_end whole one
grep -q "its share of the optimizer's state: resumed from .*one/checkpoints/step-0000[0-9]*00" one.out || { cat one.out; fail "no rank resumed from a checkpoint"; }
lost=$(field one/summary.json lost_workers)
{ [ "$lost" = 1 ] || [ "$lost" = 2 ]; } || { cat one/summary.json; fail "$lost workers lost, expected one since the last checkpoint or two"; }

# With a copy of each share: no step is done again, whichever rank dies; two neighbours take a share with them.
copies() { # DIR: groups that found all shares, after a death
    grep -c 'zero: shares of generation' "$1.out" || true
}
for zero in 1 2 3; do
    TUTTI_LOG=warn,zero:debug begin copied.$zero 3 $keys --zero $zero --shard-copies 2
    for step in 20 90 160 230; do
        reach copied.$zero $step
        kill -KILL "$(running copied.$zero | sed -n "$((step / 10 % 3 + 1))p")"
    done
    end copied.$zero 0
    same_end whole copied.$zero
    ! grep 'resumed from\|are gone, and with them' copied.$zero.out || { cat copied.$zero.out; fail "a death lost a share that had a copy"; }
    [ "$(copies copied.$zero)" -ge 4 ] || { cat copied.$zero.out; fail "$(copies copied.$zero) groups found shares, expected one after each of four deaths"; }
done
for zero in 2 3; do
    rm -rf pair
    begin pair 3 $keys --zero $zero --shard-copies 2
    reach pair 150
    victims=$(running pair | head -2)
    agent=$(awk '{ print $4 }' "/proc/${victims%%[!0-9]*}/stat") # who must not hear of one before the other
    kill -STOP "$agent" && kill -KILL $victims && kill -CONT "$agent"
    end pair 0
    same_end whole pair
    grep -q 'ranks ., . of the 3 of generation .* are gone, and with them a share' pair.out || { cat pair.out; fail "nothing says which ranks took a share with them"; }
    grep -q 'workers were lost, and with them a share of .*state and its copy: resumed from .*pair/checkpoints/step-0000[0-9]*00' pair.out || { cat pair.out; fail "no rank resumed from a checkpoint"; }
done

# Before the first checkpoint: all restart from the beginning. The survivor had done some steps.
begin early 2 $keys --zero 3
reach early 10
kill -KILL "$(running early | tail -1)"
end early 0
same_end whole early
grep -q 'ended with exit code 4 after step [1-9][0-9]*, whose state is lost: a replacement' early.out || { cat early.out; fail "nothing says how far the survivor was"; }
[ "$(field early/summary.json lost_workers) $(field early/summary.json joined_workers)" = "0 0" ] || { cat early/summary.json; fail "a run from the beginning counts who came"; }

# Stopped: the other lacks its share of the state, but does not wait for it.
TUTTI_HEARTBEAT_S=1 begin stopped 2 $keys --zero 1
reach stopped 150
kill -STOP "$(running stopped | tail -1)"
end stopped 0
same_end whole stopped
grep -q 'is killed: it is stopped, and others wait for it' stopped.out || { cat stopped.out; fail "the stopped worker was not replaced"; }

# One is killed while all write their parts of a checkpoint: that is given up, and training continues.
export HOLD=$work/hold
: >"$HOLD"
LD_PRELOAD="$BUILD_DIR/standin/libheld_checkpoints.so" ASAN_OPTIONS=verify_asan_link_order=0 begin given 3 $keys --zero 2 --shard-copies 2
until ls "$HOLD".* >held 2>&1; do kill -0 $job 2>kill.err || failed_run given "it has ended before it wrote a checkpoint"; pause 20; done
kill -KILL "$(running given | tail -1)"
rm "$HOLD"
end given 0
same_end whole given
grep -q 'the state of step 100 is not saved: all ranks were writing their parts of it, and \(rank [0-2] of 3\|one of them\) was lost; training continues' given.out || { cat given.out; fail "no checkpoint was given up"; }
unset HOLD

# Killed again and again, with a checkpoint after each step, of which each writes its part: one rank may be about to begin the step that
# another still saves before, and a checkpoint that is being written goes with the group.
often="${keys/--epochs 26/--epochs 6} --checkpoint-every 1"
train whole $often
for seed in 2 4; do
    rm -rf often
    timeout 180 "$TUTTI" run -n 3 --max-restarts 9 --chaos "kill=8,until=2,seed=$seed" "$TUTTI" train --run-dir "$PWD/often" $often --zero $((seed - 1)) --shard-copies $((seed / 2)) >often.out 2>&1 &
    job=$!
    end often 0
    same_end whole often
    ! grep 'is not saved' often.out | grep -v 'the state of step [0-9]* is not saved: all ranks were writing their parts of it, and \(rank [0-2] of [23]\|one of them\) was lost\(; .* is intact\)\?; training continues' || { cat often.out; fail "words of a checkpoint that was given up"; }
done

# A node joins, and leaves again: no step is repeated.
port=$("$TUTTI" run sh -c 'echo $MASTER_PORT')
flags="--nnodes 1:2 --rdzv-backend native --rdzv-endpoint 127.0.0.1:$port --rdzv-conf last_call_timeout=0"
train whole $keys
rm "$GO"
TUTTI_LOG=elastic:debug timeout 300 "$TUTTI" run $flags -n 1 "$TUTTI" train --run-dir "$PWD/node" $keys --zero 3 >node.out 2>&1 &
job=$!
reach node 20
TUTTI_LOG=elastic:debug timeout 300 "$TUTTI" run $flags -n 2 "$TUTTI" train --run-dir "$PWD/node" $keys --zero 3 >guest.out 2>&1 &
guest=$!
until grep -q 'rank . of 3' guest.out; do kill -0 $job 2>kill.err || { cat node.out guest.out; fail "it ended before the additional workers joined"; }; pause 20; done
kill -TERM $guest
wait $guest || { cat guest.out; fail "the additional workers ended with $?"; }
end node 0
same_end whole node
grep -q ' 0 deaths, .* and 2 left' node.out || { cat node.out; fail "the additional workers did not leave cleanly"; }
[ "$(field node/summary.json left_workers) $(field node/summary.json lost_workers)" = "2 0" ] || { cat node/summary.json; fail "summary.json does not count two workers that left"; }
! grep -q 'resumed from' node.out guest.out || { cat node.out; fail "a step was done again"; }
