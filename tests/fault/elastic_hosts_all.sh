# elastic_hosts.sh, 20 hosts.   tier: long   timeout: 900   run: serial
# SPDX-License-Identifier: MIT
export HOSTS=20 EPOCHS=500
exec bash "${SOURCE_DIR:?is set by ctest}/tests/fault/elastic_hosts.sh"
