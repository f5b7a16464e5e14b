#!/bin/bash
# tools_gpu.sh -- tools/gpu-check and gpu-compare: without a GPU they say so; over the stand-ins they run.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
check=$SOURCE_DIR/tools/gpu-check compare=$SOURCE_DIR/tools/gpu-compare
unset TUTTI_CUDA_MODULE TUTTI_NCCL_MODULE

if ! ls /dev/nvidia[0-9]* >/dev/null 2>&1; then
    run 77 "$check"
    out_has 'no GPU here'
    run 77 "$compare"
    out_has 'no GPU here'
fi
run 2 "$check" --nonsense
err_has 'gpu-check --build DIR'
run 2 "$compare" --nonsense
for tool in "$check" "$compare"; do
    run 0 "$tool" --help
    out_has "--build DIR"
    run 2 "$tool" --build
    err_has 'or its value is missing'
    run 2 "$tool" --standin --build "$work/nothing"
    [ ! -e "$work/nothing" ] || fail "$tool made a build although one was given"
done
run 2 "$compare" --rounds none
err_has '"none", expected a number'

if [ -e "$BUILD_DIR/tests/standin/libtutti_cuda.so" ]; then
    seconds_at_most=100
    run 0 "$check" --build "$BUILD_DIR" --standin --report "$work/report" --only 'doctor|GPU|bits|NCCL: several|sanitizer|left'
    grep -q '^gpu-check over stand-ins: no GPU took part' "$work/report" || fail "the report does not say what ran"
    grep -q '^ok .* training: 2 ranks on one GPU equal 1' "$work/report" || fail "2 ranks on one GPU were not checked"
    grep -q '^skipped .*compute-sanitizer' "$work/report" || fail "the sanitizer was not skipped"
    grep -qE '^[0-9]+ ok, 0 failed, [0-9]+ skipped' "$work/report" || fail "no sum"
    # Failures are counted, shown, and set the exit code.
    run 1 env STANDIN_CUDA_DEVICES=0 "$check" --build "$BUILD_DIR" --standin --report "$work/report" --only 'twice'
    grep -q '^FAILED .* training: twice the same bits' "$work/report" || fail "a failure is not in the table"
    grep -q '^---- training: twice the same bits, exit code' "$work/report" || fail "a failure's log is not in the report"
    run 0 "$compare" --build "$BUILD_DIR" --standin
    out_has '^\| 4 \| bf16 \| [0-9.]+ \|'
fi
finish
