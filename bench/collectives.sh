#!/bin/bash
# collectives.sh: every collective of F32 on one host, from group and from plain memory, compared with MPIs' and oneCCL's, in one run.
#
#   bench/collectives.sh                       microseconds, medians of rounds A B C A B C ...
#   ROUNDS=3 RANKS=2 OPS="gather barrier" SIZES="4 65536" bench/collectives.sh
#   OPENMPI5=venv5 MPICH=venvm IMPI=venvi ONECCL=venvc bench/collectives.sh       with these peers too
#
# The table is Markdown, for RECORDS.md. For a missing peer, and for a collective that a peer lacks, the column is "-". All take the
# larger buffer's bytes, work in place if possible, and are timed alike: after a barrier, mean over ranks, median over calls.
. "$(dirname "$0")/lib.sh"
ROUNDS=${ROUNDS:-3} RANKS=${RANKS:-2} SIZES=${SIZES:-4 4096 65536 1048576 4194304 26214400 67108864}
OPS=${OPS:-all_reduce reduce reduce_scatter broadcast scatter gather all_gather all_to_all barrier}

all() { # MEMORY: lines of collective, bytes and microseconds
    for op in $OPS; do
        if [ "$op" = barrier ]; then
            ours barrier "$RANKS" ""
        else
            ours "$op" "$RANKS" "$SIZES" --memory "$1"
        fi | sed "s/^/$op /"
    done
}
of() { # NAME OP BYTES
    awk -v op="$2" -v b="$3" '$1 == op && $2 == b {print $3}' "$work/$1.times" | median
}
sizes_of() { # OP: in bytes, as measured
    awk -v op="$1" '$1 == op {print $2}' "$work/group.times" | sort -gu
}

peers_open
for _ in $(seq "$ROUNDS"); do
    all group >>"$work/group.times"
    all plain >>"$work/plain.times"
    for name in $peers; do peer "$name" "$RANKS" "$OPS" "$SIZES" >>"$work/$name.times"; done
done
printf 'collectives, %s ranks, F32, us: medians of %s rounds\n\n' "$RANKS" "$ROUNDS"
printf '| | bytes | group memory | plain memory |%s best / group | best / plain |\n' "$(peer_titles)"
printf '|---|---|---|---|%s---|---|\n' "$(for name in $peers; do printf -- '---|'; done)"
for op in $OPS; do
    for b in $(sizes_of "$op"); do
        g=$(of group "$op" "$b") p=$(of plain "$op" "$b") theirs=()
        for name in $peers; do theirs+=("$(of "$name" "$op" "$b")"); done
        best=$(least "${theirs[@]}" -)
        printf '| %s | %s | %s | %s |%s %s | %s |\n' "$op" "$b" "$g" "$p" "${theirs[*]+$(printf ' %s |' "${theirs[@]}")}" \
            "$(ratio "$best" "$g")" "$(ratio "$best" "$p")"
    done
done
