# Address space that ends anywhere between a launcher that just starts and workers that just train: each job ends by itself, in its
# time, with a code and a reason. No stream stays unread because there is no memory for a line of it.
# SPDX-License-Identifier: MIT    timeout: 120
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
if grep -q '^TUTTI_SANITIZE:[A-Z]*=.' "$BUILD_DIR/CMakeCache.txt"; then
    echo "skipped: a sanitizer needs terabytes of address space"
    exit 77
fi
cd "$work" || exit 1
within() { # KIB COMMAND...
    local kib=$1
    shift
    (ulimit -v "$kib" && exec timeout -k 2 90 "$@") >out 2>&1
}
low=1000 high=4000000 # the least with which a worker can be started
while ((high - low > 100)); do
    middle=$(((low + high) / 2))
    if within $middle "$TUTTI" run -n 1 true; then high=$middle; else low=$middle; fi
done
echo "tutti run needs $high KiB"
for ((i = 0; i < 60; i++)); do
    rm -rf small
    within $((high + 60 * i)) "$TUTTI" train -n 2 --model linear --max-steps 1 --run-dir small
    code=$?
    case $code in
    0) ;;
    124 | 137) fail "with $((high + 60 * i)) KiB it hangs: $(cat out)" && break ;;
    *) [ -s out ] || fail "with $((high + 60 * i)) KiB code $code without a reason" ;;
    esac
done
# One of several ranks has too little, at any moment of the group's making.
for ((kib = high - 20000; kib < high + 20000; kib += 500)); do
    timeout -k 2 60 "$TUTTI" run -n 4 sh -c '[ "$RANK" != 2 ] || ulimit -v "$0"; exec "$TUTTI" bench barrier --iterations 1' $kib >out 2>&1
    ! grep -E 'SIG(SEGV|BUS|ABRT)' out || fail "rank 2 with $kib KiB"
done
finish
