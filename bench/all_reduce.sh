#!/bin/bash
# all_reduce.sh: all_reduce of F32 on one host, Tutti compared with the bound of shared memory, MPIs, oneCCL and Gloo, in one run.
#
#   bench/all_reduce.sh           microseconds, medians of rounds A B C A B C ...; 2 ranks with all peers, 4 with MPIs and oneCCL
#   PEERS=../shared/bench PYTHON=python3 ROUNDS=5 RANKS="2 4" bench/all_reduce.sh
#   OPENMPI5=venv5 MPICH=venvm IMPI=venvi ONECCL=venvc bench/all_reduce.sh       with these peers too (lib.sh)
#
# The tables are Markdown, for RECORDS.md. PEERS contains limit_shared_memory_all_reduce.c and pytorch_all_reduce.py. If it,
# AVX-512, PyTorch (PYTHON) or a peer is missing, that column is "-" or absent; so is what a peer does not measure. "best"
# is the best of MPIs and oneCCL. The peers do not write between calls; nor does Tutti, except for the four elements that each call
# checks.
. "$(dirname "$0")/lib.sh"
ROUNDS=${ROUNDS:-5} RANKS=${RANKS:-2 4} PYTHON=${PYTHON:-python3}

limit() { [ ! -x "$work/limit" ] || timeout 60 "$work/limit" "$ranks" | awk '{print $1, $3}'; }
gloo() {
    [ ! -f "$PEERS/pytorch_all_reduce.py" ] || ! "$PYTHON" -c 'import torch' 2>/dev/null ||
        { timeout 90 "$TUTTI" run -n "$ranks" "$PYTHON" "$PEERS/pytorch_all_reduce.py" 2>/dev/null || true; } |
            awk '/ us / {print $(NF - 8), $(NF - 6)}'
}

measure() { # NAME...: each in turn, ROUNDS times
    for name in "$@"; do : >"$work/$name.times"; done
    for _ in $(seq "$ROUNDS"); do
        for name in "$@"; do
            case $name in
            group | plain) ours all_reduce "$ranks" "$sizes" --memory "$name" ;;
            limit | gloo) "$name" ;;
            *) peer "$name" "$ranks" all_reduce "$sizes" | sed 's/^all_reduce //' ;;
            esac >>"$work/$name.times"
        done
    done
}
table() {
    printf '\nall_reduce, %s ranks, F32, us: medians of %s rounds\n\n' "$ranks" "$ROUNDS"
    printf '| bytes | tutti_group_alloc | plain memory | bound |%s Gloo | bound / ours | best / ours | best / plain | Gloo / ours |\n' \
        "$(peer_titles)"
    printf '|---|---|---|---|%s---|---|---|---|---|\n' "$(for name in $peers; do printf -- '---|'; done)"
    for b in $sizes; do
        g=$(median_of group "$b") p=$(median_of plain "$b") l=$(median_of limit "$b") o=$(median_of gloo "$b") theirs=()
        for name in $peers; do theirs+=("$(median_of "$name" "$b")"); done
        best=$(least "${theirs[@]}" -)
        printf '| %s | %s | %s | %s |%s %s | %s | %s | %s | %s |\n' "$b" "$g" "$p" "$l" \
            "${theirs[*]+$(printf ' %s |' "${theirs[@]}")}" "$o" \
            "$(ratio "$l" "$g")" "$(ratio "$best" "$g")" "$(ratio "$best" "$p")" "$(ratio "$o" "$g")"
    done
}

if grep -q avx512f /proc/cpuinfo; then
    cc -O3 -march=native -w -o "$work/limit" "$PEERS/limit_shared_memory_all_reduce.c" 2>/dev/null || true
fi
peers_open
touch "$work"/{group,plain,limit,gloo}.times
for ranks in $RANKS; do
    sizes="4 4096 65536 1048576 4194304 26214400"
    if [ "$ranks" = 2 ]; then
        sizes+=" 67108864 268435456"
        # shellcheck disable=SC2086 # one argument per name
        measure group limit plain $peers gloo
    else
        : >"$work/limit.times"
        : >"$work/gloo.times"
        # shellcheck disable=SC2086
        measure group plain $peers
    fi
    table
done
