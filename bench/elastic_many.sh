#!/bin/bash
# elastic_many.sh: an elastic job of very many workers on this machine: its start, a node that joins with one more, a worker that is killed, its end.
#
#   bench/elastic_many.sh            1,000 workers, one shard each
#   WORKERS=200 bench/elastic_many.sh
#
# bench_ddp_elastic. Seconds; of cores that all workers share, so they say that it works and how the cost grows, not how fast it is elsewhere. Fails if a digest differs.
. "$(dirname "$0")/lib.sh"
WORKERS=${WORKERS:-1000} build=$(dirname "$TUTTI") log=$work/run/log jobs=()
trap 'kill "${jobs[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT
mkdir "$work/run"
port=$(shuf -i 20000-30000 -n 1)

node() { # WORKERS: a node with as many
    timeout 900 "$TUTTI" run --nnodes 1:2 --rdzv-backend native --rdzv-endpoint "127.0.0.1:$port" --rdzv-conf last_call_timeout=1 -n "$1" \
        "$build/bench/bench_ddp_elastic" "$work/run" "$WORKERS" 0 >"$work/out.$1" 2>&1 &
    jobs+=($!)
}
since() { awk "BEGIN {printf \"%.2f\", ${2:-$EPOCHREALTIME} - $1}"; }
seen() { [ ! -e "$log" ] || awk -v since="$1" '$1 != "digest" && $1 > since {print $2}' "$log" | sort -u; } # who has committed a step since then
await() { # SINCE N: until so many have
    until [ "$(seen "$1" | wc -l)" -ge "$2" ]; do
        kill -0 "${jobs[0]}" 2>/dev/null || { cat "$work"/out.* >&2 && exit 1; }
        sleep 0.2
    done
}
first() { awk -v since="$1" '$1 != "digest" && $1 > since {print $1; exit}' "$log"; }
newcomer() { # SINCE: when the first that is not in $work/seen has committed a step
    until seen "$1" | grep -qvxFf "$work/seen"; do
        kill -0 "${jobs[0]}" 2>/dev/null || { cat "$work"/out.* >&2 && exit 1; }
        sleep 0.2
    done
    awk -v since="$1" 'NR == FNR {known[$1] = 1; next} $1 != "digest" && $1 > since && !($2 in known) {print $1; exit}' "$work/seen" "$log"
}

echo "$WORKERS workers, $(nproc) cores, load $(cut -d ' ' -f 1-3 /proc/loadavg)"
begin=$EPOCHREALTIME
node $((WORKERS - 1))
await 0 $((WORKERS - 1))
echo "start: first step committed after $(since "$begin" "$(first 0)") s"
seen 0 >"$work/seen"
begin=$EPOCHREALTIME
node 1
echo "a node with one worker: its first step committed $(since "$begin" "$(newcomer "$begin")") s after it was started"
seen 0 >"$work/seen"
victim=$(tail -n 20 "$log" | awk '{print $2}' | sort -u | shuf -n 1)
begin=$EPOCHREALTIME
kill -KILL "$victim"
echo "a killed worker: its replacement's first step committed after $(since "$begin" "$(newcomer "$begin")") s"
tail -n 1 "$log" | awk '{print $3 + 5}' >"$work/end" && mv "$work/end" "$work/run/end"
wait "${jobs[@]}"
tail -qn 1 "$work"/out.*
[ "$(awk '$1 == "digest" {print $3}' "$log" | sort | uniq -c | awk '{print $1}')" = "$WORKERS" ] || { echo "digests differ" && exit 1; }
echo "$WORKERS digests, all equal"
