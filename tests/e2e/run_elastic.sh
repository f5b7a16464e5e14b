# tutti run: elastic workers are replaced one by one, and nodes join and leave while the others work.
# timeout: 120   run: waiting
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
. "${SOURCE_DIR:?is set by ctest}/tests/harness/nodes.sh"
worker=$BUILD_DIR/tests/program/elastic_worker
export TUTTI_LOG=error
folders=0

new_folder() { # $shared: the folder of a job's groups
    shared=$work/shared$((++folders))
    mkdir "$shared"
}
same_end() { # N STEPS: that many workers, all with the undisturbed state
    equal "ends" "$(sed -n 's/.*\] //; s/^finished at //p' "$work/out" | sort | uniq -c | tr -s ' ')" " $1 step $2 with $undisturbed"
}

# braked CODE WHAT REGEX COMMAND...: as `run`, of a job whose workers have brake=STEP: they go on when the error output says REGEX
braked() {
    local code=$1 what=$2 regex=$3
    shift 3
    timeout -k 2 60 "$@" >"$work/out" 2>"$work/err" &
    wait_until "$what" grep -qzE -- "$regex" "$work/err"
    release
    wait $!
    equal "exit code" $? "$code"
}
undisturbed_of() { # STEPS: $undisturbed
    mkdir -p "$work/alone$1"
    undisturbed=$("$TUTTI" run "$worker" "$work/alone$1" "$1" 0 4 | sed -n "s/.*finished at step $1 with //p")
}

# Nothing happens: one generation (and one for each worker that has started late), and the ledger.
new_folder
run 0 "$TUTTI" run -n 3 "$worker" "$shared" 60 4 4
undisturbed_of 60
same_end 3 60
err_has '^tutti run: 60 steps in [0-9.]+ s; 0 deaths, 0 replacements, 0 workers joined and 0 left; (1 generation|[23] generations); 0.00 s lost to deaths'

# Two die, rank 0 among them, each long before the end: their replacements take part.
new_folder
run 0 "$TUTTI" run -n 3 "$worker" "$shared" 400 4 4 die=1:10:137 die=0:150:3
undisturbed_of 400
same_end 3 400
undisturbed_of 60
err_has '^tutti run: rank 1 \(process [0-9]+\) was killed by SIGKILL at step 10: a replacement takes its place'
err_has '^tutti run: rank 0 \(process [0-9]+\) ended with exit code 3 at step 150: a replacement'
err_has ' 2 deaths, 2 replacements'
grep -q 'failed first' "$work/err" && fail "a death was a failure"

# All of them: from the checkpoint, which is of step 30.
new_folder
run 0 "$TUTTI" run "$worker" "$shared" 60 4 4 die=0:35:139
equal "end" "$(grep finished "$work/out")" "finished at step 60 with $undisturbed"
out_has 'fresh at step 30, after all died'

# A program's own failure ends the job, and a refused worker is no failure.
new_folder
run 7 "$TUTTI" run -n 2 "$worker" "$shared" 60 4 4 die=1:20:7
err_has 'rank 1 failed first: exit code 7'
new_folder
run 0 "$TUTTI" run -n 3 "$worker" "$shared" 60 4 4 build@2=other
err_has 'refused: it is "(other|test 1)", the others are "(other|test 1)".*Install the same build everywhere' # whoever was first
out_has 'finished at step 60'

# All end early with code 0, but none has reported that the work is done.
new_folder
run 1 "$TUTTI" run -n 2 "$worker" "$shared" 60 4 4 die=0:20:0 die=1:20:0
err_has 'all workers have ended, and none said that the work was done \(tutti_elastic_end\)'

# What a worker does after the last step counts: rank 0 is replaced if it is killed, others are not, and an exit code is the job's.
new_folder
run 0 "$TUTTI" run -n 2 "$worker" "$shared" 60 4 4 die=0:end:137
grep -q "finished at step 60 with $undisturbed" "$work/out" || fail "killed rank 0 has written nothing"
err_has 'rank 0 \(process [0-9]+\) was killed by SIGKILL at step 60: a replacement takes its place'
out_has 'fresh at step 60, after all died|\[1\] generation 2 of [12]' # the other may have been slower than rank 0's end
new_folder
run 0 "$TUTTI" run -n 3 "$worker" "$shared" 60 4 4 die=0:end:137 die=1:end:139 die=2:end:137
out_has "finished at step 60 with $undisturbed"
for code in 1 3 4; do
    for rank in 0 1; do
        new_folder
        run $code "$TUTTI" run -n 2 "$worker" "$shared" 60 1 4 die=$rank:end:$code
        err_has "rank $rank failed first: exit code $code"
    done
done

# A worker whose replacements keep dying gets none for a while; if the last one dies, the job fails, which takes a restart.
new_folder
braked 0 "no other is started twice" ' no other is started for 2 steps' "$TUTTI" run -n 2 "$worker" "$shared" 60 4 4 die=1:start:4 brake=5
err_has 'rank 1 \(process [0-9]+\) ended with exit code 4 before its first step: 3 with its local rank have died without a new step: no other is started for 1 step'
err_has 'rank 1: another worker is tried'
err_has ' no other is started for 2 steps'
new_folder
run 139 "$TUTTI" run -n 2 --max-restarts 1 "$worker" "$shared" 60 4 4 die=0:joined:139 die=1:joined:139
equal "deaths" "$(grep -c 'was killed by SIGSEGV' "$work/err")" 12
err_has '3 with its local rank have died without a new step, and no worker is left'
err_has 'no restart is left'

# Told to end: the signal is forwarded to the workers.
new_folder
timeout 60 "$TUTTI" run -n 2 "$worker" "$shared" 100000 4 4 >"$work/out" 2>"$work/err" &
launcher=$!
wait_until "they work" grep -q 'generation 1 of 2' "$work/out"
kill -TERM $launcher
wait $launcher
equal "exit code after SIGTERM" $? 143

# A dead worker's descendants are ended; its last output is shown.
new_folder
run 0 "$TUTTI" run -n 2 sh -c '[ $RANK = 0 ] || [ -e '"$shared"'/once ] || { : >'"$shared"'/once; sleep '"$marker"' & echo last words; }
    exec "$0" "$@"' "$worker" "$shared" 100 4 4 die=1:10:137
out_has '^\[1\] last words'
err_has 'rank 1 \(process [0-9]+\) was killed by SIGKILL at step 10'
nobody_left

# A node comes late, one leaves, and no other worker restarts. The new node's ranks come last.
native() { # [NODES]: what all nodes of a new job are started with
    rm -f "$work"/*.out*
    new_port
    new_folder
    flags="--nnodes ${1:-1:3} --rdzv-backend native --rdzv-endpoint 127.0.0.1:$port --rdzv-conf last_call_timeout=0"
}
native
node a $flags -n 2 "$worker" "$shared" 250 5 8 brake=150
saying a 'generation 1 of 2'
node b $flags -n 2 "$worker" "$shared" 250 5 8 brake=150
wait_until "four are at work" at_work 4
says a 'node .* joins with 2 workers'
kill -TERM "$(front b)"
ended b 0
says b '\] leaves at step'
saying a 'node .* leaves: SIGTERM; the others continue'
wait_until "two are at work" at_work 2
node c $flags -n 1 "$worker" "$shared" 250 5 8 brake=150
wait_until "three are at work" at_work 3
release
ended a 0
ended c 0
equal "states" "$(cat "$work"/[abc].out | sed -n 's/.*finished at step 250 with //p' | sort | uniq -c | tr -s ' ' | cut -d ' ' -f 2 | tr '\n' ,)" "3,"
says a '0 deaths, 0 replacements, 3 workers joined and 2 left'
says c ' 2\] finished'
none_says 'starting the workers again'

# A node that is lost with its workers; meanwhile those of the others are replaced in their places.
native 2:3
node a $flags -n 2 "$worker" "$shared" 250 5 8 brake=150
wait_until "the rendezvous is open" grep -qi ":$(printf %04X "$port") " /proc/net/tcp
for name in b c; do node $name $flags -n 2 "$worker" "$shared" 250 5 8 brake=150; done
wait_until "six are at work" at_work 6
kill -KILL "$(front c)"
wait "${node_pid[c]}"
saying a 'node .* was lost with 2 workers: .*; the others continue'
wait_until "four are at work" at_work 4
kill -KILL "$(cat "$shared/pid.0")"
release
ended a 0
ended b 0
equal "ends" "$(cat "$work"/[ab].out | grep -c 'finished at step 250')" 4
cat "$work"/[ab].out | grep -q 'rank 0 on .* was killed by SIGKILL at step' || fail "the dead rank is not named"
none_says 'starting the workers again'
finish
