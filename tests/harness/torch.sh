# torch.sh -- for test scripts, after expect.sh: the PyTorch package, installed into a folder of the test's own.   SPDX-License-Identifier: MIT
#
# $python: python3, or the interpreter that TUTTI_TEST_PYTHON names; skips if it has no PyTorch with pytest. Changes to $work, where a copy of
# python/ is, and sets PYTHONPATH and PATH.
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
