# docs/metrics.md says what the table of metrics says.
# SPDX-License-Identifier: MIT
set -eu
"$SOURCE_DIR/tools/make-metrics-docs" --check
