#!/bin/bash
# turns.sh: small broadcasts between two ranks that wait for each other (comm_turns.c), compared with MPIs, in one run.
#
#   bench/turns.sh                       microseconds, medians of rounds A B C A B C ...
#   ROUNDS=5 OPENMPI5=venv5 MPICH=venvm IMPI=venvi bench/turns.sh       with these peers too (lib.sh)
#
# The table is Markdown, for RECORDS.md.
. "$(dirname "$0")/lib.sh"
ROUNDS=${ROUNDS:-5} BUILD=$(dirname "$TUTTI")

peer_build() { peer_tool "$1" mpicc -O2 -w -DTURNS_MPI -o "$work/$1" bench/comm_turns.c; } # instead of the collectives
of() { # NAME PATTERN BYTES
    awk -v p="$2" -v b="$3" '$1 == p && $2 == b {print $3}' "$work/$1.times" | median
}

ONECCL="" peers_open
peers=${peers/ oneccl/}
for _ in $(seq "$ROUNDS"); do
    "$TUTTI" run -n 2 "$BUILD/bench/bench_comm_turns" | sed 's/^\[0\] //' >>"$work/tutti.times"
    for name in $peers; do peer "$name" 2 "" "" >>"$work/$name.times"; done
done
printf 'broadcasts that wait for each other, 2 ranks, us: medians of %s rounds\n\n' "$ROUNDS"
printf '| | bytes | Tutti |%s best / Tutti |\n' "$(peer_titles)"
printf '|---|---|---|%s---|\n' "$(for name in $peers; do printf -- '---|'; done)"
for pattern in barrier turns; do
    for b in 4 4096; do
        t=$(of tutti "$pattern" "$b") theirs=()
        for name in $peers; do theirs+=("$(of "$name" "$pattern" "$b")"); done
        printf '| %s | %s | %s |%s %s |\n' "$pattern" "$b" "$t" "${theirs[*]+$(printf ' %s |' "${theirs[@]}")}" \
            "$(ratio "$(least "${theirs[@]}" -)" "$t")"
    done
done
