# torch_language.sh -- language models against Hugging Face's, with the transformers of python3 or TUTTI_TEST_PYTHON.   timeout: 300
# SPDX-License-Identifier: MIT
exec "${TUTTI_TEST_PYTHON:-python3}" "${SOURCE_DIR:?is set by ctest}/tests/op/torch_language.py" --library "$BUILD_DIR/libtutti.so"
