# torch_lora.sh -- adapters of GPT-2 against Hugging Face's PEFT, of python3 or TUTTI_TEST_PYTHON.   timeout: 300
# SPDX-License-Identifier: MIT
exec "${TUTTI_TEST_PYTHON:-python3}" "${SOURCE_DIR:?is set by ctest}/tests/op/torch_lora.py" --library "$BUILD_DIR/libtutti.so"
