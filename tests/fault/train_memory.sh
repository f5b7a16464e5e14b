# A training under each of many memory limits: it exits with the reason, or succeeds; it never crashes.   timeout: 100   breadth: 200
# ALL: twice as many limits.   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
grep -q '^TUTTI_SANITIZE:[A-Z]*=.' "$BUILD_DIR/CMakeCache.txt" && {
    echo "skipped: sanitizers need an address space without limits"
    exit 77
}
failed=0 whole=0
step=18000
[ -z "${ALL:-}" ] || step=9000
for limit in $(seq 60000 $step 348000); do # KiB; from what loading the libraries takes to what training takes
    code=0
    (ulimit -v $limit && timeout 90 "$TUTTI" train --run-dir run --max-steps 2 --checkpoint-every 1 --batch-size 8 --threads 1 --progress quiet) >out 2>&1 || code=$?
    case $code in
    0) whole=$((whole + 1)) ;;
    127) grep -q 'shared object' out || fail "$(cat out)" ;; # not even the libraries can be loaded
    4)
        failed=$((failed + 1))
        grep -Eq 'no memory|cannot start|cannot map|needs more than there is' out || { cat out; fail "with $limit KiB: it does not say that memory was missing"; }
        ;;
    *) cat out; fail "with $limit KiB: exit code $code" ;;
    esac
    rm -rf run
done
echo "$failed ended with an error, $whole were whole"
[ $failed -gt 5 ] || fail "the limits are too wide"
