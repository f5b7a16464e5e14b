#!/bin/bash
# send_recv.sh: half of the round trip of a message between two ranks of one host, Tutti compared with Open MPI, in one run.
#
#   bench/send_recv.sh                         microseconds, medians of rounds A B C A B C ...
#   ROUNDS=5 SIZES="4 4096" bench/send_recv.sh
#
# The table is Markdown, for RECORDS.md. If mpicc is missing, its column is "-". Both sides time rounds in the same way
# (bench/peer/mpi_send_recv.c); Tutti's writes and checks four elements before and after each.
. "$(dirname "$0")/lib.sh"
ROUNDS=${ROUNDS:-5} SIZES=${SIZES:-4 1024 4096 16384 65536 262144 1048576 4194304 26214400}

mpi() {
    # shellcheck disable=SC2086 # one argument per size
    [ ! -x "$work/mpi" ] || timeout 120 mpirun -np 2 "$work/mpi" $SIZES 2>/dev/null
}

mpicc -O2 -w -o "$work/mpi" bench/peer/mpi_send_recv.c 2>/dev/null || true
for _ in $(seq "$ROUNDS"); do
    ours ping_pong 2 "$SIZES" --memory group >>"$work/group.times"
    ours ping_pong 2 "$SIZES" --memory plain >>"$work/plain.times"
    mpi >>"$work/mpi.times"
done
printf 'half of a round trip, 2 ranks, us: medians of %s rounds\n\n' "$ROUNDS"
printf '| bytes | tutti_group_alloc | plain memory | Open MPI | Open MPI / ours | Open MPI / plain | MB/s | MB/s, plain |\n'
printf '|---|---|---|---|---|---|---|---|\n'
for b in $SIZES; do
    g=$(median_of group "$b") p=$(median_of plain "$b") m=$(median_of mpi "$b")
    printf '| %s | %s | %s | %s | %s | %s | %s | %s |\n' "$b" "$g" "$p" "$m" "$(ratio "$m" "$g")" "$(ratio "$m" "$p")" \
        "$(ratio "$b" "$g")" "$(ratio "$b" "$p")"
done
