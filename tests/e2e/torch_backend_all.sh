# torch_backend_all.sh -- e2e/torch_backend with the tests of programs: DDP, FSDP2, DTensor, pipelining, compile.   timeout: 1500, tier: long
# SPDX-License-Identifier: MIT
PROGRAMS=yes . "${SOURCE_DIR:?is set by ctest}/tests/e2e/torch_backend.sh"
