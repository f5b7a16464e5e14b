# simulate_all.sh -- `tutti simulate`: 200,000 histories from a seed that is printed, or passed as SEED, and calls of up to 16,384 ranks.
# tier: long
# timeout: 300
# SPDX-License-Identifier: MIT
set -eu
seed=${SEED:-$(date +%s)000000}
"${TUTTI:?is set by ctest}" simulate --histories "${HISTORIES:-200000}" --seed "$seed"
"$TUTTI" simulate --ranks 16384 --size 4K,25M
"$TUTTI" simulate --ranks 1024 --size 4K,25M --algorithm all --data sampled
