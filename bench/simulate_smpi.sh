#!/bin/bash
# simulate_smpi.sh: `tutti simulate` beside SimGrid's SMPI, which runs the same rounds over the MPI wire in its own virtual time.
#
#   bench/simulate_smpi.sh         needs smpicc and smpirun (Debian's libsimgrid-dev), and build/libtutti_comm.a; needs no quiet machine
#   RANKS="16 64" SIZES=4096 ALGORITHMS="ring tree" LINKS=links.json bench/simulate_smpi.sh
#
# One rank a host. SimGrid is given the links of `tutti simulate --links`: its network model without TCP's corrections, where flows share a
# link equally (ours: one after another); `message_us` as its cost of a send and of a receive. Messages leave as soon as they are sent.
# The last column is SMPI's time over ours, less 1.
. "$(dirname "$0")/lib.sh"
RANKS=${RANKS:-16 64 256 1024} SIZES=${SIZES:-4096 26214400} LINKS=${LINKS:-} LIBRARIES=${LIBRARIES:-"-lxxhash -lsodium -lz"}
ALGORITHMS=${ALGORITHMS:-recursive_doubling rabenseifner ring tree}
MOST=${MOST:-1000000} # messages of a call, above which it is left out: SMPI takes some 100 us for each

command -v smpicc >/dev/null || { echo "simulate_smpi.sh: no smpicc; install libsimgrid-dev" && exit 0; }
link() { # LEVEL.KEY: of the file, else the default
    local value=""
    [ -z "$LINKS" ] || value=$(tr -d ' \n' <"$LINKS" | sed -n "s/.*\"${1%.*}\":{[^}]*\"${1#*.}\":\([0-9.e+-]*\).*/\1/p")
    case ${value:-$1} in
    core.reduce_gbps | host.latency_us) echo 10 ;;
    host.gbps) echo 12.5 ;;
    host.message_us) echo 2 ;;
    switch.latency_us) echo 1 ;;
    switch.gbps) echo 400 ;;
    switch.hosts) echo 32 ;;
    *) echo "$value" ;;
    esac
}
platform() { # HOSTS: each with its link, in both directions, to a switch, and that with one to the others
    awk -v n="$1" -v per="$(link switch.hosts)" -v us="$(link host.latency_us)" -v gbps="$(link host.gbps)" \
        -v switch_us="$(link switch.latency_us)" -v switch_gbps="$(link switch.gbps)" 'BEGIN {
        s = int((n + per - 1) / per)
        print "<?xml version=\"1.0\"?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">"
        print "<platform version=\"4.1\">\n<zone id=\"all\" routing=\"Full\">"
        for (i = 0; i < s; i++) {
            last = (i + 1) * per < n ? (i + 1) * per : n
            printf "<cluster id=\"s%d\" prefix=\"h\" suffix=\"\" radical=\"%d-%d\" speed=\"1Gf\" bw=\"%gGBps\" lat=\"%gus\" router_id=\"r%d\"/>\n",
                i, i * per, last - 1, gbps, us / 2, i
        }
        for (i = 0; s > 1 && i < s; i++)
            printf "<link id=\"out%d\" bandwidth=\"%gGBps\" latency=\"%gus\"/><link id=\"in%d\" bandwidth=\"%gGBps\" latency=\"0us\"/>\n",
                i, switch_gbps, switch_us, i, switch_gbps
        for (i = 0; i < s; i++)
            for (j = 0; j < s; j++)
                if (i != j)
                    printf "<zoneRoute src=\"s%d\" dst=\"s%d\" gw_src=\"r%d\" gw_dst=\"r%d\" symmetrical=\"NO\"><link_ctn id=\"out%d\"/><link_ctn id=\"in%d\"/></zoneRoute>\n",
                        i, j, i, j, i, j
        print "</zone>\n</platform>"
    }'
}
smpi() { # RANKS BYTES ALGORITHM: microseconds
    local message
    message=0:$(link host.message_us)e-6:0
    timeout "${SECONDS_EACH:-900}" smpirun -no-privatize -np "$1" -hostfile "$work/hosts" -platform "$work/platform.xml" \
        --cfg=network/model:CM02 --cfg=network/TCP-gamma:0 --cfg=network/bandwidth-factor:1 --cfg=network/latency-factor:1 \
        --cfg=network/crosstraffic:no --cfg=network/weight-S:0 --cfg=smpi/simulate-computation:no --cfg=smpi/test:0 \
        --cfg=smpi/iprobe:0 --cfg=smpi/send-is-detached-thresh:1000000000 --cfg=smpi/async-small-thresh:1000000000 \
        "--cfg=smpi/ois:$message" "--cfg=smpi/os:$message" "--cfg=smpi/or:$message" \
        "$work/rounds" "$2" "$(link core.reduce_gbps)" "$(link switch.hosts)" 131072 "$3" 2>"$work/smpi.log" |
        awk -v a="$3" '$1 == a {print $2}' || tail -n 3 "$work/smpi.log" >&2
}
simulated() { # RANKS BYTES ALGORITHM: microseconds and messages
    "$TUTTI" simulate --ranks "$1" --ranks-per-host 1 --size "$2" --algorithm "$3" --data none ${LINKS:+--links "$LINKS"} |
        sed -n 's/^result:.* time_us=\([0-9.]*\) .* messages=\([0-9]*\) .*/\1 \2/p'
}

# shellcheck disable=SC2086 # libraries are several
smpicc -O1 -D_GNU_SOURCE -Isrc -Iinclude -Wl,--wrap=tutti__coll_act -Wl,--wrap=tutti__tcp_scratch \
    -Wl,--wrap=tutti__plain_second -o "$work/rounds" \
    bench/peer/smpi_rounds.c src/comm/backend/mpi/module.c "$(dirname "$TUTTI")/libtutti_comm.a" $LIBRARIES -lpthread -ldl -lm
printf '%6s %10s %20s %12s %12s %8s\n' ranks bytes algorithm "tutti us" "SMPI us" apart
for n in $RANKS; do
    seq 0 $((n - 1)) | sed 's/^/h/' >"$work/hosts"
    platform "$n" >"$work/platform.xml"
    for b in $SIZES; do
        for a in $ALGORITHMS; do
            read -r ours messages < <(simulated "$n" "$b" "$a")
            parts=$((messages + messages * (b / n / 4194304)))
            [ "$parts" -le "$MOST" ] && theirs=$(smpi "$n" "$b" "$a") || theirs=-
            printf '%6s %10s %20s %12s %12s %8s\n' "$n" "$b" "$a" "$ours" "${theirs:--}" \
                "$(awk -v a="${theirs:--}" -v b="$ours" 'BEGIN {if (a == "-") print "-"; else printf "%+.1f%%", (a / b - 1) * 100}')"
        done
    done
done
