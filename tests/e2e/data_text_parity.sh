# data_text_parity.sh -- tokens and text of 1,000 odd strings are those of Hugging Face's tokenizers, for every form of a
# tokenizer.json, vocab.json with merges.txt, and GPT-2's own ranks where TUTTI_TEST_TIKTOKEN names gpt2.tiktoken.
# SPDX-License-Identifier: MIT
# timeout: 180, tier: long
#
# With the tokenizers of python3, or of the interpreter that TUTTI_TEST_PYTHON names.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
python=$(command -v "${TUTTI_TEST_PYTHON:-python3}") && "$python" -c 'import tokenizers' 2>/dev/null || {
    echo "skipped: ${TUTTI_TEST_PYTHON:-python3} has no tokenizers (pip install tokenizers; TUTTI_TEST_PYTHON names another interpreter)"
    exit 77
}
library=$BUILD_DIR/libtutti.so
[ -e "$library" ] || { echo "skipped: libtutti.so was not built" && exit 77; }
"$python" -c 'import sys, zlib; sys.stdout.buffer.write(zlib.decompress(open(sys.argv[1], "rb").read()))' \
    "$SOURCE_DIR/src/data/format/shakespeare.z" >shakespeare.txt
PYTHONDONTWRITEBYTECODE=1 "$python" "$SOURCE_DIR/tests/harness/tokenizers_parity.py" "$library" shakespeare.txt .
