# A training one of whose allocations fails, each time another: it ends with an error that says so, or with the weights of one
# that had them all; it never crashes.   timeout: 100
# SPDX-License-Identifier: MIT
# STRIDE is how many allocations are left out after each (default 80), FIRST the first.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
grep -q '^TUTTI_SANITIZE:[A-Z]*=.' "$BUILD_DIR/CMakeCache.txt" && {
    echo "skipped: sanitizers have a malloc of their own"
    exit 77
}
keys="--model mlp --max-steps 2 --checkpoint-every 1 --batch-size 8 --threads 1 --progress quiet"
train whole $keys
ended=0 whole=0
for ((k = ${FIRST:-1};; k += ${STRIDE:-80})); do
    code=0
    FAIL_AT=$k LD_PRELOAD=$BUILD_DIR/standin/libfailing_malloc.so timeout 30 "$TUTTI" train --run-dir run $keys >out 2>&1 || code=$?
    grep -q '^failing_malloc: ' out || break # the process has not so many
    case $code in
    0)
        whole=$((whole + 1))
        cmp whole/model.safetensors run/model.safetensors && cmp whole/model.safetensors run/checkpoints/latest/model.safetensors ||
            { cat out; fail "without allocation $k: other weights"; }
        ;;
    4)
        ended=$((ended + 1))
        grep -v '^failing_malloc: ' out | grep -q 'memory' || { cat out; fail "without allocation $k: it does not say that memory was missing"; }
        ;;
    *) cat out; fail "without allocation $k: exit code $code" ;;
    esac
    rm -rf run
done
echo "$ended ended with an error, $whole were whole"
[ $ended -gt 5 ] && [ $whole -gt 5 ] || { cat out; fail "hardly any allocation failed"; }
