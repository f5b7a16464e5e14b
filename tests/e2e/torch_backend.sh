# torch_backend.sh -- the backend "tutti" of torch.distributed: python/ is installed, and its tests run.   timeout: 560
# SPDX-License-Identifier: MIT
#
# With the PyTorch and pytest of python3, or of the interpreter that TUTTI_TEST_PYTHON names. The package is installed into a folder of
# the test's own. The tests of programs (FSDP2, pipelining, ...) are in e2e/torch_backend_all.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
python=$(command -v "${TUTTI_TEST_PYTHON:-python3}") && "$python" -c 'import torch.distributed, pytest' 2>/dev/null || {
    echo "skipped: ${TUTTI_TEST_PYTHON:-python3} has no PyTorch with pytest (pip install torch pytest; TUTTI_TEST_PYTHON names another interpreter)"
    exit 77
}
unset TUTTI_TEST_PYTHON
cd "$work" || exit 1
export PYTHONDONTWRITEBYTECODE=1 TUTTI_TORCH_COMPILED=1 TUTTI_COMM_LIBRARY=$BUILD_DIR/libtutti_comm.so
cp -r "$SOURCE_DIR/python" "$SOURCE_DIR/include" .
rm -f python/tutti_torch/_*.so
"$python" -m pip install --quiet --no-deps --no-build-isolation --target installed ./python >pip.log 2>&1 ||
    { cat pip.log && fail "pip install ./python"; }
export PYTHONPATH=$PWD/installed PATH=$BUILD_DIR:$PATH
rm -r python/tutti_torch # the tests would find it first
files=$(ls python/tests/test_*.py)
[ "${PROGRAMS:-}" ] || files=$(echo "$files" | grep -v test_programs)
# shellcheck disable=SC2086 # one argument a file
"$python" -m pytest -q -p no:cacheprovider $files || fail "python/tests"
finish
