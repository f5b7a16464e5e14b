# docs/train.md matches the table of keys.
# SPDX-License-Identifier: MIT
set -eu
"$SOURCE_DIR/tools/make-train-docs" --check
