# Workers of a job in shares with copies (ZeRO) are killed one at a time: the weights are those of an undisturbed job, and no share is lost.   tier: long   timeout: 300   run: serial
# SPDX-License-Identifier: MIT
[ -x "${BUILD_DIR:?is set by ctest}/bench/bench_ddp_elastic" ] || exit 1
ONLY=shares KILLS=${KILLS:-10} TUTTI=$BUILD_DIR/tutti bash "${SOURCE_DIR:?is set by ctest}/bench/elastic.sh"
