# simulate_all.sh -- `tutti simulate`: 200,000 histories, as many of other numbers of nodes, from a seed that is printed or passed as SEED;
# calls of up to 16,384 ranks.
# tier: long
# timeout: 300
# SPDX-License-Identifier: MIT
set -eu
seed=${SEED:-$(date +%s)000000}
histories=${HISTORIES:-200000}
"${TUTTI:?is set by ctest}" simulate --histories "$histories" --seed "$seed"
for shape in "2 1" "3 4" "5 1" "7 2" "8 1" "9 1" "12 1"; do
    "$TUTTI" simulate --histories $((histories / 7)) --seed "$seed" --nodes "${shape% *}" --workers "${shape#* }"
done
"$TUTTI" simulate --ranks 16384 --size 4K
for per_host in 1 8; do # 25 MiB, and 1.5 times the alpha-beta bound at most
    "$TUTTI" simulate --ranks 1024,4096,16384 --ranks-per-host $per_host --size 25M --data none >bound.txt
    cat bound.txt
    awk '$1 == "all_reduce" { n++; bad += $8 > 1.5 } END { exit n != 3 || bad > 0 }' bound.txt
done
"$TUTTI" simulate --ranks 1024 --size 4K,25M --algorithm all --data sampled
