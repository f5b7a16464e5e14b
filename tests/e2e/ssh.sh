# ssh.sh -- scripts/ssh/run over two hosts with real ssh servers: one job; arguments, exit codes and signals are forwarded; nothing is left.
# SPDX-License-Identifier: MIT   run: waiting
. "${SOURCE_DIR:?is set by ctest}/tests/harness/sshd.sh"
sshd_needed
hosts_enter a b
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
cd "$work" || exit 1
hosts_up
sshd_start
job=$SOURCE_DIR/scripts/ssh/run

# A mock tutti that records its calls and signals.
cat >stand-in <<'END'
#!/bin/bash
while [ "$1" != -- ]; do
    [ "$1" != --node-rank ] || node=$2
    flags="$flags $1"
    shift
done
shift
text="$node: host $(hostname), flags$flags, secret ${#TUTTI_SECRET}, folder $PWD, $# arguments:$(printf ' <%s>' "$@")"
trap 'echo "$node: SIGTERM" >>told.$node; exit 143' TERM
trap 'echo "$node: SIGUSR1" >>told.$node; exit 0' USR1
echo "$text" >>"told.$node" # from now on a signal may come
case $1 in
fail) [ "$node" = 0 ] || { until [ -s told.0 ]; do sleep 0.05; done; exit 7; } ;;
esac
while [ "$1" != true ]; do sleep 0.05; done
END
chmod +x stand-in
tutti=$TUTTI
export TUTTI=$work/stand-in
told() { cat told.* 2>/dev/null | grep -qF -e "$1" || { fail "no message contains \"$1\":" && cat told.*; }; }
gone() { ! pgrep -f "^/bin/bash [^ ]*stand-in" >/dev/null; }

mkdir "a folder" && cd "a folder" || exit 1
run 0 "$job" -n 2 a,root@b true "it's" 'two  words' '$HOME' '' '*' $'a\nline' '"' '\'
told "0: host a, flags run --nnodes 2 --node-rank 0 --nproc-per-node 2 --master-addr a --master-port "
told "1: host b"
told "secret 64, folder $work/a folder, 9 arguments: <true> <it's> <two  words> <\$HOME> <> <*> <a"
told 'line> <"> <\>'

# The first to fail has the job's code; the other is told to end.
rm told.*
run 7 "$job" a,b fail
err_has "b ended with code 7; ending the others"
told "0: SIGTERM"
wait_until "all ended" gone

# A signal goes to all hosts; a killed script leaves nothing; nor does a lost connection.
begin() {
    rm -f told.*
    "$job" a,b wait >"$work/out" 2>"$work/err" &
    script=$!
    wait_until "both hosts begin" test -s told.0 -a -s told.1
}
begin
kill -USR1 $script
wait $script
equal "exit code" $? 0
told "0: SIGUSR1"
told "1: SIGUSR1"
begin
kill -KILL $script
wait $script 2>/dev/null
wait_until "all ended" gone
told "0: SIGTERM"
told "1: SIGTERM"
begin
kill -KILL "$(pgrep -f "^ssh -F [^ ]* b exec")"
wait $script
equal "exit code" $? 137
told "1: SIGTERM"
wait_until "all ended" gone

# Invalid hosts and programs.
run 255 "$job" a,nowhere wait
err_has "ssh to nowhere failed"
wait_until "all ended" gone
TUTTI=$work/none run 127 "$job" a,b wait
run 2 "$job" a
err_has "HOST.*PROGRAM"

# And tutti itself.
export TUTTI=$tutti
run 0 "$job" -n 2 a,b "$TUTTI" train --model mlp --epochs 1 --max-steps 12 --run-dir "$work/run"
out_has "4 ranks \(shared memory \+ tcp\)"
grep -q '"world_size": 4' "$work/run/summary.json" || fail "no summary of 4 ranks"
! grep -q "without a secret" "$work/err" || fail "the secret has not arrived"
run 127 "$job" -n 2 a,b ./no-such-program
finish
