#!/bin/bash
# all_reduce.sh: all_reduce of F32 on one host, Tutti beside the bound of shared memory, Open MPI and Gloo, in one run.
#
#   bench/all_reduce.sh           microseconds, medians of rounds A B C A B C ...
#   PEERS=../shared/bench ROUNDS=5 RANKS=2 bench/all_reduce.sh
#
# PEERS holds limit_shared_memory_all_reduce.c, mpi_all_reduce.c and pytorch_all_reduce.py. Where it, AVX-512, mpicc or
# PyTorch (PYTHON) is missing, that column is "-".
# The peers do not write between calls; nor does Tutti, but for the four elements that each call checks.
set -euo pipefail
cd "$(dirname "$0")/.."
PEERS=${PEERS:-../shared/bench} ROUNDS=${ROUNDS:-5} RANKS=${RANKS:-2} TUTTI=${TUTTI:-build/tutti} PYTHON=${PYTHON:-python3}
sizes="4 4096 65536 1048576 4194304 26214400"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

ours() { # MEMORY: lines of bytes and microseconds
    "$TUTTI" bench all_reduce -n "$RANKS" --sizes "${sizes// /,}" --memory "$1" | awk '!/^#/ {print $1, $(NF - 4)}'
}
limit() { [ ! -x "$work/limit" ] || timeout 60 "$work/limit" "$RANKS" | awk '{print $1, $3}'; }
mpi() {
    [ ! -x "$work/mpi" ] || timeout 60 mpirun --allow-run-as-root --oversubscribe -np "$RANKS" "$work/mpi" 2>/dev/null |
        awk '{print $1, $3}'
}
gloo() {
    [ ! -f "$PEERS/pytorch_all_reduce.py" ] || ! "$PYTHON" -c 'import torch' 2>/dev/null ||
        timeout 90 "$TUTTI" run -n "$RANKS" "$PYTHON" "$PEERS/pytorch_all_reduce.py" 2>/dev/null | awk '/ us / {print $(NF - 8), $(NF - 6)}'
}
median() { # FILE BYTES
    awk -v b="$2" '$1 == b {print $2}' "$work/$1.times" | sort -g |
        awk '{v[NR] = $1} END {print NR ? v[int((NR + 1) / 2)] : "-"}'
}
ratio() { awk -v a="$1" -v b="$2" 'BEGIN {if (a == "-" || b == "-" || b == 0) print "-"; else printf "%.2f\n", a / b}'; }

if grep -q avx512f /proc/cpuinfo; then
    cc -O3 -march=native -w -o "$work/limit" "$PEERS/limit_shared_memory_all_reduce.c" 2>/dev/null || true
fi
mpicc -O2 -w -o "$work/mpi" "$PEERS/mpi_all_reduce.c" 2>/dev/null || true
touch "$work"/{group,plain,limit,mpi,gloo}.times
for _ in $(seq "$ROUNDS"); do
    ours group >>"$work/group.times"
    limit >>"$work/limit.times"
    ours plain >>"$work/plain.times"
    mpi >>"$work/mpi.times"
    gloo >>"$work/gloo.times"
done
echo "all_reduce, $RANKS ranks, F32, us: medians of $ROUNDS rounds"
printf '%10s %10s %10s %10s %10s %10s | %12s %12s %12s %12s\n' bytes group plain bound "Open MPI" Gloo bound/group \
    MPI/group MPI/plain Gloo/group
for b in $sizes; do
    g=$(median group "$b") p=$(median plain "$b") l=$(median limit "$b") m=$(median mpi "$b") o=$(median gloo "$b")
    printf '%10s %10s %10s %10s %10s %10s | %12s %12s %12s %12s\n' "$b" "$g" "$p" "$l" "$m" "$o" "$(ratio "$l" "$g")" \
        "$(ratio "$m" "$g")" "$(ratio "$m" "$p")" "$(ratio "$o" "$g")"
done
