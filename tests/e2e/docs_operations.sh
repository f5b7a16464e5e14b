# docs/operations.md matches the table of operations.
# SPDX-License-Identifier: MIT
set -eu
"$SOURCE_DIR/tools/make-operations-doc" --check
