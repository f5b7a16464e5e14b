#!/bin/bash
# busy.sh: a user's training program next to programs that keep cores busy: none, one and two of them, in turn.
#
#   bench/busy.sh
#   PYTHON=python3 ROUNDS=3 STEPS=300 BATCH=32 THREADS="0 1" PROGRAM=build/bench/bench_optim_small_cnn bench/busy.sh
#
# Threads 0: those that the program chooses. A row: milliseconds per step, the median of the rounds, and the ratio to the
# quiet time. Of two cores, two threads next to one busy program get 1.5 at best if the scheduler leaves it on one core (4/3 of
# the time), 4/3 if it migrates it (1.5 times), and half next to two (twice the time); one thread gets 1 and 2/3 (1.5 times).
. "$(dirname "$0")/lib.sh"
PYTHON=${PYTHON:-python3} ROUNDS=${ROUNDS:-3} STEPS=${STEPS:-300} BATCH=${BATCH:-32} THREADS=${THREADS:-0 1}
PROGRAM=${PROGRAM:-build/bench/bench_optim_small_cnn}
busy=()
calm() {
    [ ${#busy[@]} = 0 ] || { kill "${busy[@]}" && wait "${busy[@]}" || true; } 2>/dev/null
    busy=()
}
trap 'calm; hosts_close; rm -rf "$work"' EXIT

beside() { # N NAME COMMAND...: its milliseconds per step
    local i
    for ((i = 0; i < $1; i++)); do
        (while :; do :; done) &
        busy+=($!)
    done
    "${@:3}" | sed -n 's/.* ms //p' >>"$work/$2-$1"
    calm
}
row() { # NAME TITLE
    local quiet one two
    quiet=$(median <"$work/$1-0") one=$(median <"$work/$1-1") two=$(median <"$work/$1-2")
    printf '%-28s %8.2f %8.2f (%sx) %8.2f (%sx)\n' "$2" "$quiet" "$one" "$(ratio "$one" "$quiet")" "$two" "$(ratio "$two" "$quiet")"
}

peer=yes
"$PYTHON" -c 'import torch' 2>/dev/null || { peer="" && echo "busy.sh: $PYTHON has no torch: ours only"; }
for _ in $(seq "$ROUNDS"); do
    for threads in $THREADS; do
        for n in 0 1 2; do
            beside $n "ours$threads" "$PROGRAM" "$STEPS" "$BATCH" "$threads"
            [ -z "$peer" ] || beside $n "torch$threads" "$PYTHON" bench/peer/pytorch_small_cnn.py "$STEPS" "$BATCH" "$threads"
        done
    done
done
echo "a small CNN, batch $BATCH, $(nproc) cores: ms a step, medians of $ROUNDS rounds"
printf '%-28s %8s %18s %18s\n' "" quiet "beside 1 busy" "beside 2 busy"
for threads in $THREADS; do
    row "ours$threads" "tutti, threads $threads"
    [ -z "$peer" ] || row "torch$threads" "PyTorch, threads $threads"
done
