#!/bin/bash
# build_parts.sh -- an incomplete optional part: AUTO continues without it, ON reports what is missing and what to do.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
command -v cmake >/dev/null || { echo "skipped: there is no cmake" && exit 77; }
seconds_at_most=60
configure() { # CODE OPTIONS...
    local code=$1
    shift
    run "$code" cmake -G Ninja -S "$SOURCE_DIR" -B "$work/build" -D TUTTI_MPI=OFF "$@"
    tr -s ' \n' ' ' <"$work/err" >"$work/said" # CMake breaks lines
}
says() { grep -qF -- "$1" "$work/said" || { cat "$work/err" && fail "CMake does not say \"$1\""; }; }

# An nvcc that cannot compile: without the rest of its toolkit, or with a C++ compiler that is too new for it.
printf '#!/bin/sh\necho "nvcc fatal: no toolkit" >&2\nexit 1\n' >"$work/nvcc"
chmod +x "$work/nvcc"
export CUDACXX=$work/nvcc
configure 0
out_has 'optional parts: .*'
! grep 'optional parts' "$work/out" | grep -qE 'cuda|nccl' || fail "a broken nvcc is taken for CUDA"
configure 1 -D TUTTI_CUDA=ON
says "TUTTI_CUDA is ON, but cuda is not complete"
says "an nvcc that compiles ($work/nvcc does not:"
says "set TUTTI_CUDA to AUTO or OFF"
configure 1 -D TUTTI_CUDA=AUTO -D TUTTI_NCCL=ON
says "not found: CUDA. Set TUTTI_CUDA to ON, which says what it lacks"
configure 1 -D TUTTI_CUDA=OFF
says "not found: CUDA, which is OFF. Set TUTTI_CUDA to ON"
configure 1 -D TUTTI_CUDA=perhaps
says 'TUTTI_CUDA is "perhaps", expected AUTO, ON or OFF'
finish
