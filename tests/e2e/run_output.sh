# run_output.sh -- workers' output: whole lines, in order, nothing lost; files.   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
export TUTTI_LOG=error # no warning of more workers than cores

# Lines carry their rank; a last line without its end is shown and ended.
run 0 "$TUTTI" run -n 2 sh -c 'echo out $RANK; echo err $RANK >&2; printf part'
for rank in 0 1; do
    out_has "^\[$rank\] out $rank$"
    out_has "^\[$rank\] part$"
    err_has "^\[$rank\] err $rank$"
done
equal "lines" "$(wc -l <"$work/out")" 4

# One worker: as if started without the launcher.
run 0 "$TUTTI" run -n 1 sh -c 'printf "a\nb"; printf c >&2'
equal "output" "$(cat "$work/out")" "$(printf 'a\nb')"
equal "error output" "$(cat "$work/err")" c
run 0 "$TUTTI" run true
equal "output of true" "$(cat "$work/out" "$work/err")" ""

# 500,000 lines from each of two ranks: all, each rank's in order, none mixed; in files too.
run 0 "$TUTTI" run -n 2 --log-dir "$work/many" --rdzv-id j --tee 0:1 seq 500000
for rank in 0 1; do
    sed -n "s/^\[$rank\] //p" "$work/out" | cmp - <(seq 500000) || fail "rank $rank's lines differ"
done
equal "lines" "$(wc -l <"$work/out")" 1000000
cmp "$work/many/j/attempt_0/0/stdout.log" <(seq 500000) || fail "the file of rank 0 differs"
rm -r "$work/many"

# Through a slow reader too.
timeout 60 "$TUTTI" run -n 2 seq 100000 | { sleep 0.5; cat; } >"$work/out"
equal "lines through a slow reader" "$(wc -l <"$work/out")" 200000

# Standard output and error into one file: lines stay whole.
timeout 60 "$TUTTI" run -n 3 sh -c 'seq -f "%.0f some text of a certain length" 20000 & seq -f "%.0f some text of a certain length" 20000 >&2; wait' >"$work/out" 2>&1
equal "mixed lines" "$(grep -cvE '^\[[012]\] [0-9]+ some text of a certain length$' "$work/out")" 0
equal "lines of both streams" "$(wc -l <"$work/out")" 120000

# A line of 3 MB; carriage returns; no output at all; binary bytes.
run 0 "$TUTTI" run -n 2 sh -c 'head -c 3000000 /dev/zero | tr "\0" x; echo'
equal "long lines" "$(awk '{ print length($0) }' "$work/out" | tr '\n' ' ')" "3000004 3000004 "
run 0 "$TUTTI" run -n 2 sh -c '[ $RANK = 1 ] || printf "10%%\r20%%\rdone\r\n"'
equal "carriage returns" "$(cat "$work/out")" "$(printf '[0] 10%%\r[0] 20%%\r[0] done\r')"
run 0 "$TUTTI" run -n 2 sh -c 'printf "\0\001\377\n"'
equal "binary bytes" "$(LC_ALL=C sort "$work/out" | tr -d '\n' | od -An -tx1 | tr -d ' \n')" "5b305d200001ff5b315d200001ff"

# Colours only when asked for, or on a terminal.
TUTTI_COLOR=always run 0 "$TUTTI" run -n 2 echo hi
out_has "$(printf '^\033\\[[0-9]+m\\[1\\]\033\\[0m hi$')"

if script -qec true /dev/null >/dev/null 2>&1; then
    for mpi in "" OMPI_COMM_WORLD_SIZE=1; do
        script -qec "env -u NO_COLOR -u TUTTI_COLOR TERM=xterm $mpi '$TUTTI' run -n 2 echo hi" /dev/null </dev/null >"$work/out"
        colored=$(grep -c "$(printf '\033\\[')" "$work/out")
        equal "coloured lines on a terminal ($mpi)" "$colored" "$([ -n "$mpi" ] && echo 0 || echo 2)"
    done
fi

# On a terminal, the message about Ctrl-C starts a new line after a progress bar or ^C.
if script -qec true /dev/null >/dev/null 2>&1; then
    printf '#!/bin/sh\nprintf "half a line"\nread -r _ _ _ front _ </proc/$PPID/stat\nkill -INT $front\nexec sleep 30\n' >"$work/half"
    chmod +x "$work/half"
    timeout 60 script -qec "'$TUTTI' run '$work/half'" /dev/null </dev/null | tr -d '\r' >"$work/out"
    out_has '^half a line$'
    out_has '^tutti run: SIGINT: stopping 1 worker \(once more: kill\)$'
fi

# With several nodes, the host too.
port=$("$TUTTI" run sh -c 'echo $MASTER_PORT')
timeout 60 "$TUTTI" run --nnodes 2 --node-rank 1 --master-addr 127.0.0.1 --master-port "$port" sh -c 'echo hi' >"$work/second" &
run 0 "$TUTTI" run --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port "$port" sh -c 'echo hi'
wait $!
equal "lines of two nodes" "$(cat "$work/out" "$work/second" | tr '\n' ' ')" "[$(hostname) 0] hi [$(hostname) 1] hi "

# Files.
run 0 "$TUTTI" run -n 3 --log-dir "$work/logs" --rdzv-id j --redirects 1:3 --tee 0:1,2:2 \
    sh -c 'echo out $RANK; echo err $RANK >&2'
equal "shown" "$(sort "$work/out")" "$(printf '[0] out 0\n[2] out 2')"
equal "shown on error" "$(sort "$work/err")" "$(printf '[0] err 0\n[2] err 2')"
equal "files" "$(cd "$work/logs" && find . -type f | sort | tr '\n' ' ')" \
    "./j/attempt_0/0/stdout.log ./j/attempt_0/1/stderr.log ./j/attempt_0/1/stdout.log ./j/attempt_0/2/stderr.log "
equal "file of rank 0" "$(cat "$work/logs/j/attempt_0/0/stdout.log")" "out 0"
equal "file of rank 1" "$(cat "$work/logs/j/attempt_0/1/stderr.log")" "err 1"
run 0 "$TUTTI" run -n 12 --log-dir "$work/logs" --rdzv-id k -t 10:3,11:1 -r3 sh -c 'echo $RANK'
equal "shown" "$(sort "$work/out" | tr '\n' ' ')" "[10] 10 [11] 11 "
equal "file of rank 5" "$(cat "$work/logs/k/attempt_0/5/stdout.log")" 5
run 0 "$TUTTI" run -n 1 --log-dir "$work/logs" --rdzv-id one -t 3 sh -c 'printf text'
equal "one worker's file" "$(cat "$work/logs/one/attempt_0/0/stdout.log" "$work/out")" "texttext"
run 0 "$TUTTI" run -n 2 --tee 3 echo hi
equal "without --log-dir, tee shows" "$(sort "$work/out" | tr '\n' ' ')" "[0] hi [1] hi "
run 0 "$TUTTI" run -n 3 --local-ranks-filter 0,2 sh -c 'echo $RANK; echo $RANK >&2'
equal "filtered" "$(sort "$work/out" "$work/err" | tr '\n' ' ')" "[0] 0 [0] 0 [2] 2 [2] 2 "
touch "$work/file"
run 1 "$TUTTI" run -n 2 --log-dir "$work/file/x" -t 3 true
err_has "cannot make folder .*/file/x"
equal "lines" "$(grep -c "cannot make folder" "$work/err")" 1

# The run's folder is named, the newest linked; something else of that name is left alone.
equal "the newest run" "$(readlink "$work/logs/latest")" one
equal "its log" "$(cat "$work/logs/latest/attempt_0/0/stdout.log")" text
run 0 "$TUTTI" run -n 2 --log-dir "$work/logs" -t 1 echo hi
equal "a run's name" "$(readlink "$work/logs/latest" | sed -E 's/^[0-9]{8}-[0-9]{6}-[0-9]+$/named/')" named
mkdir -p "$work/other/latest"
run 0 "$TUTTI" run --log-dir "$work/other" --rdzv-id j true
equal "a folder of that name" "$(ls -A "$work/other" | tr '\n' ' ')" "j latest "

# Without --log-dir: nothing is left, except redirected output.
mkdir "$work/tmp"
TMPDIR=$work/tmp run 0 "$TUTTI" run -n 2 -t 3 echo hi
equal "left behind" "$(ls -A "$work/tmp")" ""
TMPDIR=$work/tmp run 0 "$TUTTI" run -n 2 -r 0:1 sh -c 'echo $RANK'
equal "shown" "$(cat "$work/out")" "[1] 1"
kept=$(sed -n 's/^tutti run: the files of this job are in \([^ ]*\) (--log-dir names another place)$/\1/p' "$work/err")
equal "the file of --redirects" "$(cat "$kept/latest/attempt_0/0/stdout.log")" 0
equal "its folder" "$(stat -c %a "$kept") $(dirname "$kept")" "700 $work/tmp"

# Prefixes of lines.
run 0 "$TUTTI" run -n 2 --no-prefix sh -c 'echo "{\"rank\": $RANK}"'
equal "without a prefix" "$(sort "$work/out" | tr '\n' ' ')" '{"rank": 0} {"rank": 1} '
run 0 "$TUTTI" run -n 2 --log-line-prefix-template '' echo hi
equal "an empty template" "$(tr '\n' ' ' <"$work/out")" "hi hi "
PET_NO_PREFIX=1 run 0 "$TUTTI" run -n 2 sh -c 'echo $RANK >&2'
equal "without a prefix" "$(sort "$work/err" | tr '\n' ' ')" "0 1 "
run 0 "$TUTTI" run -n 1 --role r --log-line-prefix-template '${role_name}/${local_rank}/${hostname}/$rank/$$ ${unknown} ${rank: 100%' echo hi
equal "a template" "$(cat "$work/out")" "r/0/$(hostname)/0/\$ \${unknown} \${rank: 100%hi"
TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='<$rank>' run 0 "$TUTTI" run -n 2 echo hi
equal "a template of the environment" "$(sort "$work/out" | tr '\n' ' ')" "<0>hi <1>hi "
run 0 "$TUTTI" run -n 2 --log-line-prefix-template "$(printf '%0300d' 0)" echo hi
equal "a long template" "$(grep -cE '^0+hi$' "$work/out")" 2

# Lines with one of the words, copied.
fruits='echo an apple; echo a pear; echo "1,2"; echo orange >&2; printf "last apple"'
run 0 "$TUTTI" run -n 2 --log-dir "$work/logs" --rdzv-id f --duplicate-stdout-filters 'apple,1,,2' \
    --duplicate_stderr_filters=orange,apple sh -c "$fruits"
equal "shown all the same" "$(wc -l <"$work/out")" 8
equal "copied" "$(sort "$work/logs/f/attempt_0/filtered_stdout.log" | tr '\n' ' ')" \
    "[0] 1,2 [0] an apple [0] last apple [1] 1,2 [1] an apple [1] last apple "
equal "copied of standard error" "$(sort "$work/logs/f/attempt_0/filtered_stderr.log" | tr '\n' ' ')" "[0] orange [1] orange "
run 0 "$TUTTI" run -n 1 --log-dir "$work/logs" --rdzv-id g -r 1 --duplicate-stdout-filters pear sh -c "$fruits"
equal "redirected" "$(cat "$work/out")" ""
equal "redirected and copied" "$(cat "$work/logs/g/attempt_0/filtered_stdout.log" "$work/logs/g/attempt_0/0/stdout.log" | tr '\n' ' ')" \
    "a pear an apple a pear 1,2 last apple"
TMPDIR=$work/tmp run 0 "$TUTTI" run -n 1 --duplicate-stdout-filters pear sh -c "$fruits"
err_has 'the files of this job are in '

# A full disk under our output is an error, one under a log file a warning.
if [ -w /dev/full ]; then
    timeout 60 "$TUTTI" run -n 2 sh -c 'echo text; sleep 0.1' >/dev/full 2>"$work/err"
    equal "exit code with a full disk" $? 4
    err_has "standard output.*No space left"
fi
timeout 60 "$TUTTI" run -n 2 echo text >&- 2>"$work/err"
equal "exit code with output closed" $? 0

# The reader closes the pipe: workers are stopped without a message, as in any pipeline.
for n in 1 2; do
    begin=$(date +%s%N)
    timeout 60 "$TUTTI" run -n $n yes 2>"$work/err" | head -1 >"$work/out"
    equal "exit code after the reader of $n closed the pipe" "${PIPESTATUS[0]}" 141
    equal "said" "$(cat "$work/err")" ""
    [ $((($(date +%s%N) - begin) / 1000000)) -lt 15000 ] || fail "slow to notice that the reader closed the pipe"
done

# A reader that does not read: signals still work, workers block.
mkfifo "$work/fifo"
exec 6<>"$work/fifo"
timeout 60 "$TUTTI" run -n 2 --shutdown-timeout 1 sh -c "sleep $marker & yes" >"$work/fifo" 2>"$work/err" 6<&- &
launcher=$!
wait_until "workers have started" sleepers 2
sleep 0.2 # for the pipe to fill; less would only make the test easier
kill -TERM $launcher
nobody_left
wait $launcher # though its output is never read
equal "exit code" $? 143
exec 6<&-

# A pipe without a reader in place of a log: reported at once, in one line, without waiting.
mkdir -p "$work/pipes/job/attempt_0/1" && mkfifo "$work/pipes/job/attempt_0/1/stdout.log"
run 1 "$TUTTI" run --log-dir "$work/pipes" --rdzv-id job --tee 3 -n 2 sleep $marker
err_has '^tutti run: cannot write .*/attempt_0/1/stdout.log: No such device or address$'
equal "lines that say so" "$(grep -c 'No such device' "$work/err")" 1
nobody_left
finish
