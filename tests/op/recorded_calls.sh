# recorded_calls.sh -- operations against results and gradients that PyTorch gave for samples of its op_db (torch_op_db.py --record).
# SPDX-License-Identifier: MIT   devices: strict cuda
command -v python3 >/dev/null || { echo "skipped: needs python3" && exit 77; }
exec python3 "${SOURCE_DIR:?is set by ctest}/tests/op/recorded_calls.py" --library "$BUILD_DIR/libtutti.so" "$SOURCE_DIR/tests/golden/op_db.json.gz"
