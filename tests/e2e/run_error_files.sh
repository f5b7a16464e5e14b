# run_error_files.sh -- TORCHELASTIC_ERROR_FILE: one for each worker, quoted in the report, and passed on to the launcher's own.
# SPDX-License-Identifier: MIT   run: waiting
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
export TUTTI_LOG=error
mkdir "$work/tmp"
export TMPDIR=$work/tmp
unset TORCHELASTIC_ERROR_FILE
nothing_left() { # WHEN
    wait_until "no folder $1" [ -z "$(ls -A "$TMPDIR")" ] || ls "$TMPDIR"
}
# fails JSON [SHELL]: rank 1 of two writes this and fails; $SHELL runs before. The others wait for it.
export others="sleep $marker"
fails() {
    JSON=$1 MORE=${2:-:} run 7 "$TUTTI" run -n 2 sh -c \
        '[ $RANK = 1 ] || exec $others; printf "%b" "$JSON" >"$TORCHELASTIC_ERROR_FILE"; eval "$MORE"; exit 7'
}

# One per worker, in a folder that is removed; never the launcher's own; in --log-dir if given.
TORCHELASTIC_ERROR_FILE=$work/mine run 0 "$TUTTI" run -n 3 sh -c \
    'echo "$TORCHELASTIC_ERROR_FILE $(stat -c %a "$TMPDIR"/tutti-*)"; >"$TORCHELASTIC_ERROR_FILE"'
equal "paths" "$(cut -d' ' -f2 "$work/out" | sort -u | wc -l)" 3
out_has "^\[2\] $TMPDIR/tutti-[A-Za-z0-9]+/[^ ]*/attempt_0/2/error.json 700$"
[ -e "$work/mine" ] && fail "a job that ended well wrote the launcher's error file"
nothing_left "after the job"
run 0 "$TUTTI" run -n 2 --log-dir "$work/logs" --rdzv-id j sh -c 'echo "$TORCHELASTIC_ERROR_FILE"; echo old >"$TORCHELASTIC_ERROR_FILE"'
out_has "^\[1\] $work/logs/j/attempt_0/1/error.json$"
run 3 "$TUTTI" run -n 2 --log-dir "$work/logs" --rdzv-id j sh -c 'exit 3'
grep -q old "$work/err" && fail "the error file of an earlier job of this name was told"
nothing_left "with --log-dir"
# A relative folder is meant from where the launcher was started, also by a worker that has moved away.
cd "$work"
run 7 "$TUTTI" run --log-dir relative sh -c 'cd / && echo "far from home" >"$TORCHELASTIC_ERROR_FILE"; exit 7'
err_has '^tutti run: its error: far from home$'
TMPDIR=tmp run 7 "$TUTTI" run sh -c 'cd / && echo "far from home" >"$TORCHELASTIC_ERROR_FILE"; exit 7'
err_has '^tutti run: its error: far from home$'
TMPDIR=$work/none run 0 "$TUTTI" run true # no such folder: uses /tmp

# Its message, in either of torchrun's formats, or as plain text.
fails '{"message": "no more paper", "timestamp": 1700000000}'
err_has '^tutti run: rank 1 failed first: exit code 7 '
err_has '^tutti run: its error: no more paper$'
fails '{"message": "no more paper"}' 'echo "printer: no more paper" >&2' # the console has it already
equal "lines with the message" "$(grep -c 'no more paper' "$work/err")" 1
fails '{"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "...", "timestamp": "1700000000"}}}' 'echo cause >&2'
err_has '^tutti run: its error: ValueError: x$'
err_has '^    \| cause$'
fails '{"message": {"message": "first\\nsecond\\n\\n"}}'
equal "two lines" "$(grep -A2 'its error:$' "$work/err" | tail -2 | tr '\n' ' ')" "    | first     | second "
# A line of another rank that ends with the same words is another error.
run 7 "$TUTTI" run -n 2 sh -c 'if [ $RANK = 0 ]; then echo "the printer: no paper" >&2; : >"$0/said"; exec $others; fi
    until [ -e "$0/said" ]; do sleep 0.01; done; echo "no paper" >"$TORCHELASTIC_ERROR_FILE"; exit 7' "$work"
err_has '^tutti run: its error: no paper$'
fails 'disk on fire\n'
err_has '^tutti run: its error: disk on fire$'
nothing_left "after failures"

# The contents are untrusted.
fails '{"message": "\\u001b[31mred\\u0007 \\u009b1m \\t \\u00e9"}'
err_has '^tutti run: its error: \\x1b\[31mred\\x07 \\xc2\\x9b1m \\t é$'
fails 'raw \033[2J \377 text'
err_has '^tutti run: its error: raw \\x1b\[2J \\xff text$'
fails '{"message": {"message": 5}}'
fails '{"message": "x", "timestamp": {}}'
err_has 'its error: x$'
fails '{"message": {"extraInfo": 3'
fails ''
grep -q 'words' "$work/err" && fail "an empty file contains text"
fails '' 'head -c 3000000 /dev/zero | tr "\0" "[" >"$TORCHELASTIC_ERROR_FILE"'
equal "a long text is cut" "$(awk 'length($0) > 3000' "$work/err" | wc -l)" 0
fails '' '{ printf "{\"message\": \""; head -c 200000 /dev/zero | tr "\0" z; printf "\"}"; } >"$TORCHELASTIC_ERROR_FILE"'
err_has 'its error: z{1000}'
equal "a long message is cut" "$(awk 'length($0) > 3000' "$work/err" | wc -l)" 0
for odd in 'mkfifo' 'mkdir' 'ln -s /etc/passwd'; do
    fails '' "rm \"\$TORCHELASTIC_ERROR_FILE\"; $odd \"\$TORCHELASTIC_ERROR_FILE\""
    grep -q 'words\|root:' "$work/err" && fail "$odd: something was read"
done
nothing_left "after odd files"
nobody_left

# The first to write failed first, though another ended first; also if it has not ended yet.
later='F=$TORCHELASTIC_ERROR_FILE; if [ $RANK = 1 ]; then echo "my fault" >"$F"; eval "$THEN"; exit 1; fi
    until [ -s "${F%/0/error.json}/1/error.json" ]; do sleep 0.01; done; echo $$ >"$OTHER"; exit 5'
export OTHER=$work/other
THEN='until [ -s "$OTHER" ]; do sleep 0.01; done; while kill -0 "$(cat "$OTHER")" 2>/dev/null; do sleep 0.01; done' run 1 "$TUTTI" run -n 2 sh -c "$later"
err_has '^tutti run: rank 1 failed first: exit code 1 '
err_has '^tutti run: its error: my fault$'
err_has '^tutti run: then rank 0: exit code 5$'
for THEN in "sleep $marker" 'kill -STOP $$'; do
    THEN=$THEN TORCHELASTIC_ERROR_FILE=$work/outer run 5 "$TUTTI" run -n 2 sh -c "$later"
    err_has '^tutti run: rank 1 failed first, and is still running \(process [0-9]+, after [0-9.]+ s\)$'
    err_has '^tutti run: its error: my fault$'
    err_has '^tutti run: then rank 0: exit code 5$'
    grep -q 'rank 1 failed first: still running' "$work/outer" || fail "the launcher above is told: $(cat "$work/outer")"
done
nobody_left
# A failure dated ahead means that another's came first.
run 6 "$TUTTI" run -n 2 sh -c 'F=$TORCHELASTIC_ERROR_FILE; [ $RANK = 1 ] && { until [ -s "${F%/1/error.json}/0/error.json" ]; do sleep 0.01; done; exit 6; }
    echo "{\"message\": \"a peer\", \"timestamp\": $(($(date +%s) + 60))}" >"$TORCHELASTIC_ERROR_FILE"; exit 5'
err_has '^tutti run: rank 1 failed first: exit code 6'

# Each attempt has its own; only the last one's failure is the launcher's.
again='echo "$TORCHELASTIC_ERROR_FILE"; [ -e "$TORCHELASTIC_ERROR_FILE" ] && echo stale
    echo "attempt $TORCHELASTIC_RESTART_COUNT" >"$TORCHELASTIC_ERROR_FILE"; [ $TORCHELASTIC_RESTART_COUNT = $GOOD ] || exit 1'
GOOD=1 TORCHELASTIC_ERROR_FILE=$work/again.json run 0 "$TUTTI" run --max-restarts 2 -n 1 sh -c "$again"
out_has '/attempt_0/0/error.json$'
out_has '/attempt_1/0/error.json$'
grep -q stale "$work/out" && fail "an attempt found the file of an earlier attempt"
err_has 'its error: attempt 0$'
[ -e "$work/again.json" ] && fail "a failure that a restart recovered from was reported to the outer launcher"
GOOD=no TORCHELASTIC_ERROR_FILE=$work/again.json run 1 "$TUTTI" run --max-restarts 1 -n 1 sh -c "$again"
err_has 'its error: attempt 1$'
[ -e "$work/again.json" ] || fail "the last failure was not reported to the outer launcher"
nothing_left "after restarts"

# The launcher has one itself: it gets the first failure's, with the exit code, or else what is known.
export TORCHELASTIC_ERROR_FILE=$work/own.json
fails '{"message": {"message": "inner", "extraInfo": {"timestamp": "1700000000"}}}'
for part in '"message": "inner"' '"errorCode": 7' '"timestamp": "1700000000"'; do
    grep -qF "$part" "$work/own.json" || { fail "no $part in the launcher's file"; cat "$work/own.json"; }
done
fails '{"message": "plain"}'
equal "copied" "$(cat "$work/own.json")" '{"message": "plain"}'
fails ''
grep -qE '"message": "tutti run: rank 1 failed first: exit code 7 \(process [0-9]+\)"' "$work/own.json" || { fail "the launcher's message"; cat "$work/own.json"; }
# Through two launchers.
JSON='{"message": {"message": "deep", "extraInfo": {"timestamp": "1700000000"}}}' run 7 "$TUTTI" run \
    "$TUTTI" run -n 2 sh -c '[ $RANK = 0 ] || exec $others; echo "$JSON" >"$TORCHELASTIC_ERROR_FILE"; exit 7'
err_has '^tutti run: its error: deep$'
grep -qF '"message": "deep"' "$work/own.json" || fail "the message was lost between launchers"
# Only files are replaced: a link stays one, a pipe without a reader does not block, and a device keeps its name.
ln -s own.json "$work/link"
TORCHELASTIC_ERROR_FILE=$work/link fails '{"message": "by a link"}'
[ -L "$work/link" ] || fail "a link was replaced by a file"
equal "what the link names" "$(cat "$work/own.json")" '{"message": "by a link"}'
mkfifo "$work/pipe"
TORCHELASTIC_ERROR_FILE=$work/pipe fails '{"message": "into a pipe"}'
[ -p "$work/pipe" ] || fail "a pipe was replaced by a file"
if mknod "$work/null" c 1 3 2>/dev/null; then
    TORCHELASTIC_ERROR_FILE=$work/null fails '{"message": "into a device"}'
    [ -c "$work/null" ] || fail "a device was replaced by a file"
fi
unset TORCHELASTIC_ERROR_FILE
nobody_left

# The folder is removed when either process of the launcher is killed.
for victim in front agent; do
    "$TUTTI" run -n 2 sleep $marker >"$work/out" 2>&1 &
    front=$!
    wait_until "workers have started" sleepers 2
    pid=$front
    [ $victim = front ] || pid=$(pgrep -P $front)
    kill -KILL "$pid"
    wait $front 2>/dev/null
    nobody_left
    wait_until "its folder is gone" sh -c '! ls -A "$TMPDIR" | grep -q .' || ls "$TMPDIR"
done
finish
