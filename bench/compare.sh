#!/bin/bash
# compare.sh: compares two builds of Tutti in one run: what became slower, and what faster.
#
#   bench/compare.sh BEFORE AFTER              two `tutti` binaries; microseconds, medians of rounds A B A B ...
#   ROUNDS=5 ONLY='^(tcp|hosts)' bench/compare.sh old/build/tutti build/tutti
#   ONLY='^job' bench/compare.sh old/build/tutti build/tutti    a job's start, first all_reduce, step, and kill to next step
#
# A case is run by one binary and then by the other, so that drift affects both. ONLY is a regular expression for
# cases: PLACE OP RANKS MEMORY, with the place host (shared memory), tcp, hosts and hosts_tcp (two hosts of two ranks each, in
# network namespaces; root), openmpi or mpich (backend mpi), and job: start is `tutti run -n 2 true`, first its first all_reduce since
# the start, step one of MiniResNet's, killed a worker's death to the others' next step; first and killed need each build's bench_*
# programs. Places that are not available, and operations that a binary does not
# have, are left out with a message. Spread is (largest - smallest) / median of the BEFORE rounds: a ratio within it is
# noise. Exit code 1 if a case failed.
[ $# = 2 ] && [ -x "$1" ] && [ -x "$2" ] || {
    echo "usage: bench/compare.sh BEFORE AFTER      (two tutti binaries)" >&2
    exit 2
}
BEFORE=$(realpath "$1") AFTER=$(realpath "$2")
. "$(dirname "$0")/lib.sh"
ROUNDS=${ROUNDS:-5} ONLY=${ONLY:-.} SLOWER=${SLOWER:-3} # percent
all_reduce_sizes="4 4096 65536 1048576 4194304 26214400"
sizes="4096 65536 1048576 26214400"

knows() { # BINARY OP
    local text
    text=$("$1" bench "$2" -n 0 2>&1) || true # the number is rejected, but only after the name was checked
    [[ $text != *"there is no benchmark"* ]]
}
cases() {
    local memory op mpi
    for op in "start 2" "first 2" "step 2" "killed 3"; do
        echo "job $op -"
    done
    for memory in group plain; do
        for op in "all_reduce 2" "all_reduce 4" "reduce 2" "reduce_scatter 2" "broadcast 2" "scatter 2" "gather 2" \
            "all_gather 2" "all_gather_v 2" "all_to_all 2" "all_to_all_v 2" "send_recv 2" "ping_pong 2"; do
            echo "host $op $memory"
        done
    done
    echo "tcp all_reduce 2 plain"
    echo "tcp ping_pong 2 plain"
    for op in all_reduce broadcast; do
        echo "hosts $op 4 group"
        echo "hosts_tcp $op 4 group"
    done
    for mpi in openmpi mpich; do
        echo "$mpi all_reduce 2 group"
    done
}
program_of() { # BINARY OP: the program of the same build that measures it
    case $2 in
    first) echo "$(dirname "$1")/bench/bench_comm_first_all_reduce" ;;
    killed) echo "$(dirname "$1")/bench/bench_ddp_elastic" ;;
    *) echo "$1" ;;
    esac
}
is_here() { # PLACE
    case $1 in
    hosts*) [ -n "$hosts_made" ] || { [ "$(id -u)" = 0 ] && hosts_open 2>/dev/null; } ;;
    openmpi | mpich) command -v "mpirun.$1" >/dev/null ;;
    esac
}
job() { # OP RANKS: lines of - and microseconds
    local begin program
    program=$(program_of "$TUTTI" "$1")
    case $1 in
    start)
        for _ in $(seq 20); do
            begin=${EPOCHREALTIME/./}
            "$TUTTI" run -n "$2" true && echo "- $((${EPOCHREALTIME/./} - begin))" || return
        done
        ;;
    first)
        for _ in $(seq 20); do
            BEGIN=$EPOCHREALTIME "$TUTTI" run -n "$2" "$program" 2>&1 | awk '/first all_reduce after/ {
                sub(/.*first all_reduce after /, ""); print "-", 1e3 * $1; found = 1 } END { exit !found }' || return
        done
        ;;
    step)
        "$TUTTI" bench step -n "$2" --threads 1 --batch-size 8 --iterations 20 --json "$work/rows.json" >/dev/null &&
            sed -n 's/.*"median_us": \([0-9.]*\),.*/- \1/p' "$work/rows.json"
        ;;
    killed) TUTTI=$TUTTI PYTHON=false ONLY=killed KILLS=5 TIMES=$work/times bash bench/elastic.sh >/dev/null && cat "$work/times" ;;
    esac
}
measure() { # PLACE OP RANKS MEMORY: with $TUTTI
    local sizes=$sizes
    case $2 in all_reduce | ping_pong) sizes=$all_reduce_sizes ;; esac
    case $1 in
    job) job "$2" "$3" ;;
    host) ours "$2" "$3" "$sizes" --memory "$4" ;;
    tcp) TUTTI_TRANSPORT=tcp ours "$2" "$3" "$sizes" --memory "$4" ;;
    hosts) ours_hosts "$2" auto "$sizes" --memory "$4" ;;
    hosts_tcp) ours_hosts "$2" tcp "$sizes" --memory "$4" ;;
    *) ours_mpi "$1" "$2" "$3" "$sizes" --memory "$4" ;;
    esac
}

: >"$work/cases"
while read -r place op rest; do
    [[ "$place $op $rest" =~ $ONLY ]] || continue
    for binary in "$BEFORE" "$AFTER"; do
        if [ "$place" = job ]; then
            program=$(program_of "$binary" "$op")
            [ -x "$program" ] || { echo "left out: $place $op $rest (no $program)" && continue 2; }
            continue
        fi
        knows "$binary" "$op" || { echo "left out: $place $op $rest ($binary does not know $op)" && continue 2; }
    done
    is_here "$place" || { echo "left out: $place $op $rest (not on this machine, or not by this user)" && continue; }
    echo "$place $op $rest" >>"$work/cases"
done < <(cases)
[ -s "$work/cases" ] || { echo "compare.sh: no case left to run (ONLY is \"$ONLY\")" >&2 && exit 2; }

touch "$work/before" "$work/after" && failed=""
for round in $(seq "$ROUNDS"); do
    while read -r place op ranks memory <&3; do
        for build in before after; do
            TUTTI=$BEFORE
            [ $build = before ] || TUTTI=$AFTER
            measure "$place" "$op" "$ranks" "$memory" 2>"$work/err" |
                sed "s/^/$place $op $ranks $memory /" >>"$work/$build" || {
                failed+=", $place $op $ranks $memory ($build, round $round)"
                sed "s/^/    /" "$work/err" >&2
            }
        done
    done 3<"$work/cases"
done

printf '\n%s rounds of %s (before) and %s (after), F32, us: medians\n\n' "$ROUNDS" "$BEFORE" "$AFTER"
awk -v slower="$SLOWER" '
    function median(key, n,    i, j, t, v) { # sorts few numbers by insertion
        for (i = 1; i <= n; i++) {
            t = times[key, i]
            for (j = i - 1; j >= 1 && v[j] > t; j--) v[j + 1] = v[j]
            v[j + 1] = t
        }
        spread = v[n] - v[1]
        return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
    }
    {
        row = $1 " " $2 " " $3 " " $4 " " $5
        key = FILENAME " " row
        times[key, ++many[key]] = $6
        if (many[key] == 1 && FILENAME == ARGV[1]) order[++rows] = row
    }
    END {
        print "| place | op | ranks | memory | bytes | before | after | after / before | spread, % |"
        print "|---|---|---|---|---|---|---|---|---|"
        for (i = 1; i <= rows; i++) {
            before_key = ARGV[1] " " order[i]; after_key = ARGV[2] " " order[i]
            if (!(after_key in many)) continue
            a = median(after_key, many[after_key]); b = median(before_key, many[before_key])
            ratio = (b > 0 ? a / b : 1)
            text = order[i]; gsub(" ", " | ", text)
            printf "| %s | %.3f | %.3f | %.3f | %.0f |\n", text, b, a, ratio, (b > 0 ? 100 * spread / b : 0)
            shown++
            if (ratio > 1 + slower / 100) list = list sprintf("%s%s (%.2f)", slow++ ? ", " : "", order[i], ratio)
        }
        printf "\n%d of %d rows are slower by more than %g %%%s%s\n", slow, shown, slower, slow ? ": " : "", list
    }' "$work/before" "$work/after" >"$work/table"
head -n -1 "$work/table"
[ -z "$failed" ] || echo "failed: ${failed#, }"
tail -n 1 "$work/table"
[ -z "$failed" ]
