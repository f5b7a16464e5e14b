# docs/adding.md in a copy of the sources, built by CMake as a newcomer would: it finds the new files.
# tier: long
# timeout: 900
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
command -v cmake >/dev/null || { echo "skipped: needs cmake" && exit 77; }
page=$SOURCE_DIR/docs/adding.md
seconds_at_most=800
mkdir "$work/tree"
cd "$SOURCE_DIR" || exit 1
for entry in *; do # without build folders
    [ -e "$entry/CMakeCache.txt" ] || cp -r "$entry" "$work/tree"
done
cd "$work/tree" || exit 1
for section in "An operation" "A model"; do
    "$SOURCE_DIR/tools/doc-apply" "$page" . "$section" >/dev/null || fail "the steps for ${section,}"
done
run 0 cmake -S . -B build -G Ninja -DTUTTI_WERROR=ON
run 0 cmake --build build -j "$(nproc)" --target tutti tutti_shared tutti_comm_shared test_op_autograd_declared test_unit_train_null test_unit_optim_models
run 0 ctest --test-dir build --output-on-failure -R '^(op/autograd_declared(@strict)?|unit/(train_null|optim_models|exports))$'
run 0 build/tutti train --model lenet --max-steps 20 --run-dir run
[ -s run/summary.json ] || fail "no summary"
finish
