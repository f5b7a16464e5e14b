# torch_recurrent.sh -- recurrent layers against torch.nn's, with the PyTorch of python3 or TUTTI_TEST_PYTHON.   timeout: 120
# SPDX-License-Identifier: MIT
exec "${TUTTI_TEST_PYTHON:-python3}" "${SOURCE_DIR:?is set by ctest}/tests/op/torch_recurrent.py" --library "$BUILD_DIR/libtutti.so"
