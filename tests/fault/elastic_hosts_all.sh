# elastic_hosts.sh, 20 disturbances and more, until 20 hosts were cut off.   tier: long   timeout: 1500   run: serial
# SPDX-License-Identifier: MIT
export HOSTS=20 CUTS=20 EPOCHS=500
exec bash "${SOURCE_DIR:?is set by ctest}/tests/fault/elastic_hosts.sh"
