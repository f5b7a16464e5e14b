# A training, or an evaluation, one of whose allocations fails, each time another: it ends with an error that says so, or with the
# weights or results of one that had them all; it never crashes.   timeout: 100
# SPDX-License-Identifier: MIT
# STRIDE is how many allocations are left out after each, FIRST the first.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
grep -q '^TUTTI_SANITIZE:[A-Z]*=.' "$BUILD_DIR/CMakeCache.txt" && {
    echo "skipped: sanitizers have a malloc of their own"
    exit 77
}
results() { grep -v '"seconds"\|_per_s"' "$1"; }
# without_each STRIDE FOLDER COMMAND...: in a new copy of the folder, named run; with all allocations it ends like folder whole,
# and if it writes result.json, with the results in whole.json.
without_each() {
    local stride=$1 folder=$2 code k weights ended=0 whole=0
    shift 2
    for ((k = ${FIRST:-1};; k += stride)); do
        code=0
        rm -rf run result.json
        [ ! -d "$folder" ] || cp -r "$folder" run
        FAIL_AT=$k LD_PRELOAD=$BUILD_DIR/standin/libfailing_malloc.so timeout 90 "$@" >out 2>&1 || code=$?
        grep -q '^failing_malloc: ' out || break # the process has not so many
        case $code in
        0)
            whole=$((whole + 1))
            for weights in run/model.safetensors run/checkpoints/latest/model.safetensors; do
                [ ! -d run ] || cmp whole/model.safetensors $weights || { cat out; fail "without allocation $k: other weights: $*"; }
            done
            [ ! -f result.json ] || diff <(results whole.json) <(results result.json) || fail "without allocation $k: other results: $*"
            ;;
        1) # jansson cuts a string of a file that it reads and has no memory for: then the file's digest differs
            grep -q 'is damaged' out || { cat out; fail "without allocation $k: exit code 1: $*"; }
            ;;
        4)
            ended=$((ended + 1))
            grep -v '^failing_malloc: ' out | grep -q 'memory' ||
                { cat out; fail "without allocation $k: it does not say that memory was missing: $*"; }
            ;;
        *) cat out; fail "without allocation $k: exit code $code: $*" ;;
        esac
    done
    echo "$ended ended with an error, $whole were whole: $*"
    [ $ended -gt 1 ] || { cat out; fail "too few allocations failed"; }
}

keys="--model mlp --checkpoint-every 1 --batch-size 8 --threads 1 --progress quiet --lr 0.01 --schedule constant"
# The first ones, before there is a group, and each says so.
for k in {1..8}; do
    refused 4 'tutti train: no memory' env "FAIL_AT=$k" "LD_PRELOAD=$BUILD_DIR/standin/libfailing_malloc.so" \
        "$TUTTI" train --run-dir run $keys --max-steps 2
done
train whole $keys --max-steps 2
without_each "${STRIDE:-120}" none "$TUTTI" train --run-dir run $keys --max-steps 2
"$TUTTI" eval whole --confusion --threads 1 --json whole.json >/dev/null
without_each "${STRIDE:-9}" none "$TUTTI" eval whole --confusion --threads 1 --json result.json
"$TUTTI" checkpoint show whole/checkpoints/latest --json >whole.json
show='"$TUTTI" checkpoint show whole/checkpoints/latest --json >result.json || { code=$?; rm result.json; exit $code; }'
TUTTI=$TUTTI without_each "${STRIDE:-7}" none bash -c "$show"

# The digest of the parameters is made near the end, after the weights are written: without memory for it, the summary says null.
last=1
without() { # ALLOCATION: false if the process has not so many
    rm -rf run
    code=0
    FAIL_AT=$1 LD_PRELOAD=$BUILD_DIR/standin/libfailing_malloc.so timeout 90 "$TUTTI" train --run-dir run --model linear --threads 1 \
        --progress quiet --max-steps 1 --eval-every 0 >out 2>&1 || code=$?
    grep -q '^failing_malloc: ' out
}
while without $((2 * last)); do last=$((2 * last)); done
for ((step = last / 2; step > 0; step /= 2)); do ! without $((last + step)) || last=$((last + step)); done
for ((k = last; k > last - 150; k--)); do
    without $k || continue
    [ $code = 0 ] || grep -q '^tutti train: ' out || fail "without allocation $k: exit code $code and no reason"
    ! grep -q 'warn train: summary.json lacks parameter_digest: no memory for' out || break
done
[ $code = 0 ] && grep -q '"parameter_digest": null,' run/summary.json && [ "$(field run/summary.json status)" = completed ] ||
    { cat out; fail "no allocation is the digest's"; }
