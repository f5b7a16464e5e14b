# docs/train.md says what the table of keys says.
# SPDX-License-Identifier: MIT
set -eu
"$SOURCE_DIR/tools/make-train-docs" --check
