# setup_limits.sh -- ranks whose limit of open files is too low to make a group: such a rank reports it and exits with 4, and
# no rank mistakes a peer's failure for another. An impossible world size is refused at once.   SPDX-License-Identifier: MIT   run: waiting
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
export TUTTI_TIMEOUT_S=5

rank() { # N RANK PORT: of two, with at most N descriptors; its exit code and messages in $work/N.RANK.{code,err}
    RANK=$2 LOCAL_RANK=$2 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$3 timeout -k 2 60 \
        sh -c 'ulimit -n "$0"; exec "$TUTTI" bench barrier --iterations 1' "$1" >/dev/null 2>"$work/$1.$2.err"
    echo $? >"$work/$1.$2.code"
}
limits="6 8 10 12 13 14 15 16 17 18 19 40"
for n in $limits; do
    port=$("$TUTTI" run -n 1 sh -c 'echo $MASTER_PORT')
    rank $n 0 $port &
    rank $n 1 $port &
done
wait # a rank that does not end by itself is killed: 124
four=0
for n in $limits; do
    codes=$(cat "$work/$n".?.code | sort | uniq | tr -d '\n')
    case $codes in
    0) continue ;;
    4 | 34) four=$((four + 1)) ;; # 3: the peer of a rank with too few
    *)
        fail "with $n descriptors the ranks end with $codes:"
        cat "$work/$n".?.err
        ;;
    esac
    cat "$work/$n".?.err >"$work/err"
    err_has 'ulimit -n'
    ! grep -E 'rank ([0-9]+) .*: rank \1 ' "$work/err" || fail "a rank is named twice"
done
[ $four -ge 6 ] || fail "only $four limits were too low"
equal "with 40 descriptors" "$(cat "$work"/40.?.code | tr -d '\n')" 00

export TUTTI_TIMEOUT_S=60 # what is refused at once does not wait
WORLD_SIZE=1000000 RANK=0 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=9 run 2 "$TUTTI" bench barrier
err_has 'WORLD_SIZE is "1000000", expected an integer from 1 to 16384'
faster_than 8
few='ulimit -n 1000; exec "$TUTTI" bench barrier'
port=$("$TUTTI" run -n 1 sh -c 'echo $MASTER_PORT')
WORLD_SIZE=10000 RANK=0 LOCAL_RANK=0 LOCAL_WORLD_SIZE=10000 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port run 4 bash -c "$few"
err_has 'rank 0 of 10000 .*: it needs connections to other ranks, one from each to the store that it hosts, .* but may open 1000 \(ulimit -n\)'
faster_than 8
# A thousand ranks that never arrive are reported without delay, as ranges.
export TUTTI_TIMEOUT_S=1
WORLD_SIZE=900 RANK=3 LOCAL_RANK=3 LOCAL_WORLD_SIZE=900 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$TUTTI" bench barrier 2>/dev/null &
WORLD_SIZE=900 RANK=0 LOCAL_RANK=0 LOCAL_WORLD_SIZE=900 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port run 3 "$TUTTI" bench barrier
wait
err_has '898 of 900 ranks never came: ranks 1-2, 4-899;'
faster_than 12
finish
