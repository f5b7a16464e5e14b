# torch_backend.sh -- the backend "tutti" of torch.distributed: python/ is installed, and its tests run.   timeout: 560
# SPDX-License-Identifier: MIT
#
# The tests of programs (FSDP2, pipelining, ...) are in e2e/torch_backend_all.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
. "$SOURCE_DIR/tests/harness/torch.sh"
rm -r python/tutti_torch # the tests would find it first
files=$(ls python/tests/test_*.py)
[ "${PROGRAMS:-}" ] || files=$(echo "$files" | grep -v test_programs)
# shellcheck disable=SC2086 # one argument a file
"$python" -m pytest -q -p no:cacheprovider $files || fail "python/tests"
finish
