# setup_limits_tcp.sh -- many ranks over TCP, of which one has a low limit of open files: it is the cause, named with the remedy on all
# ranks, and no other is blamed; and few descriptors are enough for many ranks.   SPDX-License-Identifier: MIT   timeout: 120
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
export TUTTI_TRANSPORT=tcp TUTTI_TIMEOUT_S=60

limited() { # N RANK LIMIT: its exit code in $code, messages in $work/err
    few="if [ \$RANK = $2 ]; then ulimit -n $3; fi; exec \"\$TUTTI\" bench all_reduce --sizes 4 --iterations 2"
    timeout -k 2 60 "$TUTTI" run -n $1 sh -c "$few" >/dev/null 2>"$work/err"
    code=$?
}
four=0
for n in 14 20 22 23 24 25 26 40 80; do
    limited 20 5 $n
    [ $code = 0 ] && continue
    equal "exit code with $n descriptors" $code 4
    four=$((four + 1))
    err_has 'rank 5 .*ulimit -n'
    err_has 'rank 5 failed first: exit code 4'
    others=$(grep -oE 'rank [0-9]+ \([^)]*\) (was lost|has left|has not been heard)' "$work/err" | grep -v '^rank 5 ' || true)
    equal "blamed with $n descriptors" "$others" ""
    ! grep -qE 'was being made: *$' "$work/err" || fail "an empty message with $n descriptors"
done
[ $four -ge 4 ] || fail "only $four limits were too low"
equal "with 80 descriptors" $code 0
# rank 0 only accepts: the others say that it has none left
limited 12 0 30
if [ $code != 0 ]; then
    equal "exit code of 12 ranks" $code 4
    err_has 'rank 0 .*ulimit -n'
fi
# the ranks of 64 do not connect with all others
timeout -k 2 60 sh -c 'ulimit -n 1024; exec "$TUTTI" run -n 64 sh -c "ulimit -n 64; exec \"\$TUTTI\" bench all_reduce --sizes 4,1M --iterations 2"' >/dev/null 2>"$work/err" ||
    fail "64 ranks with 64 descriptors each: $(cat "$work/err")"
finish
