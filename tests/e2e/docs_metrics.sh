# docs/metrics.md matches the table of metrics.
# SPDX-License-Identifier: MIT
set -eu
"$SOURCE_DIR/tools/make-metrics-docs" --check
