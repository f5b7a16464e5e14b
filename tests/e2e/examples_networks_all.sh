# examples_networks.sh, each example alone as well.   tier: long   timeout: 300   SPDX-License-Identifier: MIT
ALONE=all exec bash "${SOURCE_DIR:?is set by ctest}/tests/e2e/examples_networks.sh"
