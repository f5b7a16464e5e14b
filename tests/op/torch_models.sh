# torch_models.sh -- models against torchvision's, with the PyTorch of python3 or TUTTI_TEST_PYTHON.   timeout: 300
# SPDX-License-Identifier: MIT
exec "${TUTTI_TEST_PYTHON:-python3}" "${SOURCE_DIR:?is set by ctest}/tests/op/torch_models.py" --library "$BUILD_DIR/libtutti.so"
