# run_many_nodes.sh with 300 nodes.   tier: long   timeout: 400   run: serial
# SPDX-License-Identifier: MIT
export NODES=300 node_seconds=300
exec bash "${SOURCE_DIR:?is set by ctest}/tests/e2e/run_many_nodes.sh"
