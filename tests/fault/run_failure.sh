# run_failure.sh -- the first failure stops the other ranks, is reported, and its exit code is passed on.
# SPDX-License-Identifier: MIT   run: waiting
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"

# What happens at once takes milliseconds, and on a loaded machine seconds; the default --shutdown-timeout is 30 s.
at_once() { faster_than 12; }

run 7 "$TUTTI" run -n 3 sh -c "[ \$RANK = 1 ] || exec sleep $marker; echo the cause >&2; exit 7"
at_once
nobody_left
err_has '^tutti run: rank 1 failed first: exit code 7 \(process [0-9]+, after [0-9.]+ s\)$'
err_has '^    \| the cause$'
err_has '^tutti run: stopping the other 2 workers$'

# Exit codes and signals.
for code in 1 2 3 85 255; do
    run $code "$TUTTI" run -n 2 sh -c "exit $code"
done
run 139 "$TUTTI" run -n 2 sh -c "[ \$RANK = 0 ] || exec sleep $marker; kill -SEGV \$\$"
err_has 'rank 0 failed first: killed by SIGSEGV'
at_once
run 137 "$TUTTI" run -n 2 sh -c "[ \$RANK = 0 ] || exec sleep $marker; kill -KILL \$\$"
err_has 'rank 0 failed first: killed by SIGKILL'
run 134 "$TUTTI" run sh -c 'kill -ABRT $$'
err_has 'rank 0 failed: killed by SIGABRT'
nobody_left

# One rank exits successfully while the others continue: nothing happens to them.
run 0 "$TUTTI" run -n 2 sh -c '[ $RANK = 0 ] || { sleep 0.6; echo late; }'
out_has '^\[1\] late$'

# Code 3, a lost peer, is a consequence: the rank that failed with another code is named, though it exited later, as on a busy machine.
export BEGUN=$work/begun GONE='gone() { for p; do while kill -0 "$(cat "$BEGUN.$p")" 2>/dev/null; do sleep 0.01; done; done; }
    begun() { for p; do until [ -s "$BEGUN.$p" ]; do sleep 0.01; done; done; }; echo $$ >"$BEGUN.$RANK"'
run 9 "$TUTTI" run -n 3 sh -c 'eval "$GONE"; begun 0 1 2; [ $RANK = 2 ] || exit 3; gone 0 1; sleep 0.6; exit 9'
err_has 'rank 2 failed first: exit code 9'
err_has 'then ranks 0-1: exit code 3'

# Ranks with the same exit share a line, and adjacent ranks are printed as a range. Only rank 5 has the 0.3 s after a first failure.
rm -f "$BEGUN".*
run 9 "$TUTTI" run -n 7 sh -c 'eval "$GONE"; begun 0 1 2 3 4 5 6; case $RANK in
    2) gone 0 1 3 4 6; exit 9 ;;
    5) cause=$(cat "$BEGUN.2"); while kill -0 $cause 2>/dev/null; do :; done; exit 4 ;;
    *) exit 3 ;;
    esac'
err_has 'then ranks 0-1, 3-4, 6: exit code 3'
err_has 'then rank 5: exit code 4'

# Only the last lines are repeated, uncut.
run 1 "$TUTTI" run -n 2 sh -c 'seq -f "line %.0f" 5000 >&2; exit 1'
equal "repeated lines" "$(grep -c '^    | line [0-9]*$' "$work/err")" 10
err_has '^    \| line 5000$'

run 1 "$TUTTI" run -n 2 --log-dir "$work/logs" --rdzv-id j -r 2 sh -c 'echo hidden >&2; exit $RANK'
err_has "^tutti run: the last lines of rank 1 on standard error, of $work/logs/j/attempt_0/1/stderr.log:$"
err_has '^    \| hidden$'
run 1 "$TUTTI" run -n 2 --log-dir "$work/logs" --rdzv-id k -r 2 sh -c 'seq 100000 >&2; exit $RANK'
equal "the last lines of a file" "$(grep -c '^    | 9999[1-9]$\|^    | 100000$' "$work/err")" 10

# A worker that ignores SIGTERM is killed after the shutdown timeout; one that needs a moment gets it.
stubborn="trap '' TERM; eval \"\$GONE\"; begun 1; [ \$RANK = 0 ] && exit 5; sleep $marker & wait; wait; sleep $marker"
stubborn() { # FLAGS...
    rm -f "$BEGUN".*
    run 5 "$TUTTI" run -n 2 "$@" sh -c "$stubborn"
    at_once
    nobody_left
}
stubborn --shutdown-timeout 0.5
err_has 'still there 0.5 s after'
stubborn --shutdown-timeout 0
TORCH_ELASTIC_SHUTDOWN_TIMEOUT=0.2 stubborn
rm -f "$BEGUN".*
run 5 "$TUTTI" run -n 2 sh -c 'trap "sleep 0.5; echo saved; exit 0" TERM; eval "$GONE"; begun 1; [ $RANK = 0 ] && exit 5; while :; do sleep 0.05; done'
out_has '^\[1\] saved$'

# Stopped workers are ended too.
run 5 "$TUTTI" run -n 2 sh -c '[ $RANK = 0 ] && { sleep 0.2; exit 5; }; kill -STOP $$'
at_once

# A stopped rank is the cause if the others took it for lost, and is mentioned if they did not.
stopped='if [ $RANK = 1 ]; then echo $$ >"$PIDS"; kill -STOP $$; sleep 30; fi
    until [ -s "$PIDS" ] && grep -q "^State:.T" "/proc/$(cat "$PIDS")/status"; do sleep 0.01; done; exit $CODE'
CODE=3 PIDS=$work/stopped run 3 "$TUTTI" run -n 3 sh -c "$stopped"
at_once
err_has '^tutti run: rank 1 \(process [0-9]+\) is stopped \(SIGSTOP, a debugger\): the others gave up on it; `kill -CONT [0-9]+`'
err_has '^tutti run: then ranks 0, 2: exit code 3$'
rm "$work/stopped"
CODE=4 PIDS=$work/stopped run 4 "$TUTTI" run -n 2 sh -c "$stopped"
err_has '^tutti run: rank 0 failed first: exit code 4'
err_has '^tutti run: rank 1 \(process [0-9]+\) is stopped'

# Tutti's own messages that are the same on all ranks are printed once; log files have them all, other programs' lines stay as they are.
same='echo "tutti train: rank $RANK: lost rank 70, [$RANK]" >&2; echo "other: rank 5" >&2; exit 3'
run 3 "$TUTTI" run -n 40 --log-dir "$work/logs" --rdzv-id same -t 2 sh -c "$same"
equal "said in full" "$(grep -c '^\[[0-9]*\] tutti train: ' "$work/err")" 1
who=$(sed -n 's/^\[\([0-9]*\)\] tutti train: rank \1: lost rank 70, \[\1\]$/\1/p' "$work/err")
err_has "as rank $who: tutti train: rank $who: lost rank 70, \[$who\]$"
equal "ranks that said it" "$(sed -n 's/^\[\([-0-9, ]*\)\] as rank.*/\1/p; s/^\[\([0-9]*\)\] tutti.*/\1/p' "$work/err" | tr ',' '\n' |
    awk -F- '{ n += NF > 1 ? $2 - $1 + 1 : 1 } END { print n }')" 40
equal "in files" "$(cat "$work"/logs/same/attempt_0/*/stderr.log | grep -c '^tutti train: rank [0-9]*: lost rank 70')" 40
equal "others' lines" "$(grep -c '^\[[0-9]*\] other: rank 5$' "$work/err")" 40
run 3 "$TUTTI" run -n 4 --no-prefix sh -c "$same"
equal "without a prefix each is shown" "$(grep -c '^tutti train: rank' "$work/err")" 4
run 3 "$TUTTI" run -n 2 sh -c 'printf "tutti train: it fails" >&2; exit 3'
equal "empty lines where no newline ends what is repeated" "$(grep -c '^$' "$work/err")" 0

# A program whose ranks all say the same line: the report does not quote it once more. With more lines it quotes them, in order.
both() { # FLAGS PROGRAM: two ranks that fail at the same time; without a warning that they have one core
    rm -f "$BEGUN".*
    TUTTI_LOG=error run 6 "$TUTTI" run -n 2 "$@"
}
line='eval "$GONE"; begun 0 1; echo "program:7: rank 0 has 4, rank 1 has 5" >&2; exit 6'
both sh -c "$line"
err_has '^tutti run: all 2 ranks failed for the same reason: exit code 6$'
equal "lines of ranks that say the same" "$(wc -l <"$work/err")" 3
both -r 2 --log-dir "$work/logs" --rdzv-id line sh -c "$line"
err_has '^    \| program:7: rank 0 has 4'
err_has '^tutti run: all 2 ranks failed for the same reason: exit code 6$'
both -r 2 --log-dir "$work/logs" --rdzv-id line sh -c 'exit 6'
equal "lines of an earlier job, whose files this one continues" "$(grep -c 'program:7' "$work/err")" 0
both --duplicate-stderr-filters other --log-dir "$work/logs" --rdzv-id filters sh -c "$line"
equal "lines of ranks that say the same, with a filter" "$(wc -l <"$work/err")" 3
both sh -c "echo first >&2; $line"
err_has '^    \| first$'

# Ranks that quote the failure of another, by their own account, have not failed for the same reason.
quote='eval "$GONE"; begun 0 1 2; when=$(date +%s); [ $RANK = 1 ] && gone 0 2 || when=$((when + 60))
    echo "{\"message\": {\"message\": \"rank 1 said: no data\", \"extraInfo\": {\"timestamp\": \"$when\"}}}" >"$TORCHELASTIC_ERROR_FILE"; exit 6'
rm -f "$BEGUN".*
run 6 "$TUTTI" run -n 3 sh -c "$quote"
err_has '^tutti run: rank 1 failed first: exit code 6'
err_has '^tutti run: its error: rank 1 said: no data$'
err_has '^tutti run: then ranks 0, 2: exit code 6$'

# A child of the failed rank that writes faster than the launcher reads, through the largest possible pipe, does not keep the others from
# being stopped. It exits by itself after 20 s, so that a launcher that waits for it is late but does not hang.
flood='fcntl(STDERR, 1031, 1 << 20); my ($end, $text) = (time + 20, "flood\n" x 16384); 1 while time < $end && syswrite(STDERR, $text)'
run 5 "$TUTTI" run -n 2 sh -c \
    '[ $RANK = 0 ] || exec sleep "$1"; perl -e "$2" flood "$1" & exit 5' sh $marker "$flood"
at_once
err_has '^tutti run: rank 0 failed first: exit code 5'
err_has '^    \| flood$'
err_has '^tutti run: stopping the other worker$'
nobody_left
equal "floods" "$(pgrep -fc "^perl.* flood $marker")" 0

# The failed rank's last output is shown, not lost.
for _ in 1 2 3 4 5; do
    run 3 "$TUTTI" run -n 4 sh -c 'echo last words of $RANK; exit 3' # as no other code, it lets the others finish
    equal "last words" "$(sort "$work/out" | tr '\n' ' ')" \
        "[0] last words of 0 [1] last words of 1 [2] last words of 2 [3] last words of 3 "
done
run 1 "$TUTTI" run -n 2 sh -c '[ $RANK = 0 ] || exec sleep '"$marker"'; seq 9000 >&2; exit 1' # most of a pipe
equal "what was said last" "$(grep -c '^\[0\] [0-9]*$' "$work/err")" 9000
nobody_left
finish
