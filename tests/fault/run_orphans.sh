# run_orphans.sh -- no process is ever left: signals, killed launchers, daemons.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
set -m # as in a terminal: background jobs receive SIGINT

# Each worker: itself, a child, a grandchild in its own session, and one whose parent has exited.
export FAMILY="sleep $marker & setsid sh -c 'sleep $marker & wait' & (setsid sleep $marker &); wait"
start() { # FLAGS...: two such workers in the background as $launcher
    "$TUTTI" run -n 2 "$@" bash -c "$FAMILY" >"$work/out" 2>"$work/err" &
    launcher=$!
    wait_until "workers have started" sleepers 6
}
both_ready() { # reported by this launcher, not by the one before it: a signal sent too early hits the shell that starts it
    wait_until "ready" grep -q '\[0\] ready' "$work/out"
    wait_until "ready" grep -q '\[1\] ready' "$work/out"
}
ends_with() { # CODE
    wait "$launcher"
    equal "exit code" $? "$1"
    nobody_left
}

for signal in INT TERM HUP QUIT; do
    start --shutdown-timeout 1 # bash ignores QUIT
    kill -$signal $launcher
    case $signal in INT) ends_with 130 ;; TERM) ends_with 143 ;; HUP) ends_with 129 ;; QUIT) ends_with 131 ;; esac
    err_has "^tutti run: SIG$signal: stopping 2 workers"
done

start --signals-to-handle SIGUSR1
kill -USR1 $launcher
ends_with 138

# Killed: the launcher that the user sees, the agent beneath it, both.
start
kill -KILL $launcher
ends_with 137 2>/dev/null
start
kill -STOP "$(pgrep -P $launcher)"
kill -KILL $launcher
ends_with 137 2>/dev/null
start
agent=$(pgrep -P $launcher)
kill -KILL "$agent"
ends_with 137
err_has "agent \(process $agent\) was killed by SIGKILL"
start
agent=$(pgrep -P $launcher)
kill -STOP $launcher # a signal for an agent that has exited
kill -KILL "$agent"
kill -TERM $launcher
kill -CONT $launcher
nobody_left
while kill -0 $launcher 2>/dev/null; do wait $launcher 2>/dev/null; done
start
kill -KILL -- -$launcher # its process group, as `timeout -k` does
ends_with 137 2>/dev/null
"$TUTTI" run -n 3 sleep $marker & # both killed at once: at least the workers die with them
launcher=$!
wait_until "workers have started" sleepers 3
kill -KILL "$(pgrep -P $launcher)" $launcher
ends_with 137 2>/dev/null

# Their folder of error files is removed by the next launcher, those of living ones and of others are not.
folders() { (cd "$TMPDIR" && echo tutti-*); }
case $(folders) in tutti-??????) ;; *) fail "expected the folder of the launcher that was killed: $(folders)" ;; esac
mkdir "$TMPDIR/tutti-others"
start
living=$(folders)
case $living in tutti-??????" tutti-others" | "tutti-others "tutti-??????) ;; *) fail "expected its own folder and tutti-others: $living" ;; esac
run 0 "$TUTTI" run true
equal "the folders of a living launcher and of others" "$(folders)" "$living"
kill -TERM $launcher
ends_with 143
equal "the folders that are left" "$(folders)" tutti-others

# The program's own choice of an exit code after a signal.
: >"$work/out"
"$TUTTI" run -n 2 sh -c 'trap "exit 85" TERM; echo ready; while :; do sleep 0.05; done' >"$work/out" 2>/dev/null &
launcher=$!
both_ready
kill -TERM $launcher
ends_with 85
: >"$work/out"
"$TUTTI" run -n 2 sh -c 'trap "echo saved; exit 0" TERM; echo ready; while :; do sleep 0.05; done' >"$work/out" 2>/dev/null &
launcher=$!
both_ready
kill -TERM $launcher
ends_with 0
equal "saved" "$(grep -c saved "$work/out")" 2
: >"$work/out"
"$TUTTI" run -n 2 sh -c 'trap "echo saved; exit 0" INT; echo ready; while :; do sleep 0.05; done' >"$work/out" 2>/dev/null &
launcher=$!
both_ready
kill -INT $launcher
ends_with 130 # not successful, even if its workers exited with 0
equal "saved" "$(grep -c saved "$work/out")" 2

# A second Ctrl-C does not wait for workers that ignore the first.
"$TUTTI" run -n 2 sh -c "trap '' INT; sleep $marker & wait; wait" 2>/dev/null &
launcher=$!
wait_until "workers have started" sleepers 2
kill -INT $launcher
sleep 0.4 # an earlier second one would count as the same
kill -INT $launcher
ends_with 130

# Ctrl-Z stops workers, fg continues them.
"$TUTTI" run -n 2 sleep $marker &
launcher=$!
wait_until "workers have started" sleepers 2
stopped() { [ "$(pgrep -f "^sleep $marker" | while read -r p; do sed 's/.*) \(.\).*/\1/' /proc/$p/stat; done | tr -d '\n')" = "$1" ]; }
kill -TSTP $launcher
wait_until "workers stop" stopped TT
kill -CONT $launcher
wait_until "workers continue" stopped SS
kill -TERM $launcher
ends_with 143

# nohup is honoured.
: >"$work/out"
(trap '' HUP; exec "$TUTTI" run -n 2 sh -c 'echo ready; sleep 0.5; echo done' >"$work/out" 2>&1) &
launcher=$!
both_ready
kill -HUP $launcher
ends_with 0
equal "done" "$(grep -c done "$work/out")" 2

# A script's background job inherits an ignored SIGINT; it and its workers stop nevertheless.
(trap '' INT; exec "$TUTTI" run -n 2 sleep $marker 2>/dev/null) &
launcher=$!
wait_until "workers have started" sleepers 2
kill -INT $launcher
ends_with 130

# Processes left by workers that succeeded, or failed, end with the job; so do daemons that hold the output open.
run 0 "$TUTTI" run -n 2 bash -c "setsid sleep $marker & disown; exit 0"
faster_than 12 # not after the 30 s of --shutdown-timeout
nobody_left
run 6 "$TUTTI" run -n 2 bash -c "trap '' TERM; (trap '' TERM; sleep $marker) & exit 6"
faster_than 12
nobody_left

# A stopped agent does not keep a job from ending either.
"$TUTTI" run -n 2 --shutdown-timeout 2 sleep $marker >"$work/out" 2>&1 & front=$!
wait_until "workers have started" sleepers 2
agent=$(pgrep -P $front)
kill -STOP "$agent"
kill -TERM $front
wait_until "the job has ended" sh -c "! kill -0 $front" || kill -CONT "$agent"
wait $front
equal "exit code with an agent that was stopped" $? 143
nobody_left

# Children that the process had before (as after exec in a shell) must not be killed.
bash -c 'sleep '"$marker"' & exec "$0" run -n 2 bash -c "kill -KILL \$PPID; sleep 30"' "$TUTTI" >"$work/out" 2>"$work/err"
equal "exit code" $? 137
sleepers 1 || fail "a process that does not belong to the job was killed"
pkill -KILL -f "^sleep $marker"

# Without /proc, the workers' descendants are found by their process groups only, and a message says so.
if grep -q '^TUTTI_SANITIZE:[A-Z]*=.' "$BUILD_DIR/CMakeCache.txt"; then
    echo "not tested: without /proc, which sanitizers need"
elif [ "$(id -u)" = 0 ] && unshare -m umount -l /proc 2>/dev/null; then
    run 3 unshare -m sh -c 'umount -l /proc; exec "$0" "$@"' "$TUTTI" run -n 2 bash -c "sleep $marker & exit 3"
    err_has "/proc cannot be read: processes that workers have started in sessions of their own may be left"
    nobody_left
fi

# Nested jobs.
run 4 "$TUTTI" run -n 2 env -u RANK -u LOCAL_RANK "$TUTTI" run -n 2 sh -c "[ \$PPID = 1 ] || exit 4"
nobody_left
finish
