#!/bin/bash
# launch_output.sh: throughput of workers' output through the launcher, Tutti compared with torchrun --tee and with cat, which only
# copies bytes.
#
#   bench/launch_output.sh        two workers with 500,000 lines each, into a file
#   TORCHRUN=torchrun ROUNDS=5 LINES_EACH=500000 bench/launch_output.sh
#
# A round is A B C D; figures are medians. The time of torchrun's own start (a worker of `true`) is subtracted from its figure.
. "$(dirname "$0")/lib.sh"
TORCHRUN=${TORCHRUN:-torchrun} ROUNDS=${ROUNDS:-5} LINES_EACH=${LINES_EACH:-500000}
"$TORCHRUN" --help >/dev/null 2>&1 || { echo "launch_output.sh: no $TORCHRUN: without it"; TORCHRUN=; }
writes=(seq -f 'line %.0f of a program that writes a lot' "$LINES_EACH")

wall() { # COMMAND...: seconds, its output in $work/lines
    local begin=$EPOCHREALTIME
    "$@" >"$work/lines" 2>/dev/null
    awk -v begin="$begin" -v end="$EPOCHREALTIME" 'BEGIN {print end - begin}'
}
both() { "${writes[@]}" & "${writes[@]}"; wait; }
through_cat() { both | cat; }
whole() { # NAME
    [ "$(wc -l <"$work/lines")" = $((2 * LINES_EACH)) ] || { echo "launch_output.sh: $1 lost lines" >&2; exit 1; }
}
for _ in $(seq "$ROUNDS"); do
    wall "$TUTTI" run -n 2 "${writes[@]}" >>"$work/ours" && whole "tutti run"
    wall "$TUTTI" run -n 2 --log-dir "$work/logs" --tee 3 "${writes[@]}" >>"$work/tee" && whole "tutti run --tee"
    wall through_cat >>"$work/cat" && whole cat
    if [ -n "$TORCHRUN" ]; then
        wall "$TORCHRUN" --nproc-per-node 2 --no-python --log-dir "$work/logs" --tee 3 "${writes[@]}" >>"$work/torchrun" && whole torchrun
        wall "$TORCHRUN" --nproc-per-node 2 --no-python --log-dir "$work/logs" --tee 3 true >>"$work/torchrun-start"
    fi
    rm -rf "$work/logs"
done
rate() { awk -v s="$1" -v n=$((2 * LINES_EACH)) 'BEGIN {printf "%.0f\n", n / s}'; }
echo
echo "2 workers with $LINES_EACH lines each, medians of $ROUNDS rounds"
echo
echo "| | lines a second |"
echo "|---|---|"
echo "| tutti run | $(rate "$(median <"$work/ours")") |"
echo "| tutti run --tee 3, a file a worker too | $(rate "$(median <"$work/tee")") |"
echo "| cat | $(rate "$(median <"$work/cat")") |"
[ -z "$TORCHRUN" ] || echo "| torchrun --tee 3, less its start | $(rate "$(awk -v a="$(median <"$work/torchrun")" -v b="$(median <"$work/torchrun-start")" 'BEGIN {print a - b}')") |"
