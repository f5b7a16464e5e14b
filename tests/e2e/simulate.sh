# simulate.sh -- `tutti simulate`: every algorithm gives what its operation says, faults, replay, errors; histories of a job.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

simulate() { # ARGUMENTS...: into sim.out; must succeed
    "$TUTTI" simulate "$@" >sim.out 2>sim.err || { cat sim.out sim.err; fail "tutti simulate $*"; }
}
value() { sed -n '$s/.* \(.*\)/&/p' sim.out | tr ' ' '\n' | sed -n "s/^$1=//p"; } # of the last line
refused() { # PATTERN ARGUMENTS...
    local pattern=$1 code=0
    shift
    "$TUTTI" simulate "$@" >sim.out 2>sim.err || code=$?
    [ $code = 2 ] && [ "$(wc -l <sim.err)" = 1 ] && grep -qE -- "^tutti simulate: .*$pattern" sim.err ||
        { cat sim.out sim.err; fail "tutti simulate $*: code $code, expected 2 and \"$pattern\""; }
}
less() { awk -v a="$2" -v b="$3" 'BEGIN { exit !(a > 0 && a < b) }' || fail "$1: $2 is not less than $3"; }

# ---- Every algorithm, with real and with followed data
for op in all_reduce reduce reduce_scatter broadcast scatter gather all_gather all_to_all barrier; do
    size="--size 4,3000,200K"
    [ $op = barrier ] && size=""
    "$TUTTI" simulate --op $op --ranks 2 >sim.out 2>sim.err || grep -q 'cannot be simulated' sim.err || fail "$op: $(cat sim.err)"
    grep -q 'cannot be simulated' sim.err && continue
    root=""
    case $op in reduce | broadcast | scatter | gather) root="--root 1" ;; esac
    for data in real sampled; do
        simulate --op $op --ranks 2,3,5,8,13,24 $size $root --ranks-per-host 4 --algorithm all --chunk 1K --data $data
        [ "$(value wrong)" = 0 ] && [ "$(value status)" = ok ] && ! grep -q WRONG sim.out || { cat sim.out; fail "$op: wrong"; }
    done
done
simulate --ranks 4096 --hosts 512 --size 4K
[ "$(value ranks)" = 4096 ] && [ "$(value hosts)" = 512 ] && [ "$(value switches)" = 16 ] && [ "$(value wrong)" = 0 ] || fail "$(tail -n 1 sim.out)"

# ---- Figures that can be computed by hand: one message of 1,000,000 bytes between two hosts
echo '{"host": {"latency_us": 7, "gbps": 1, "message_us": 3}, "core": {"reduce_gbps": 1000, "gbps": 1000}}' >links.json
simulate --ranks 2 --ranks-per-host 1 --op broadcast --size 1000000 --links links.json --algorithm direct --chunk 1M
[ "$(value time_us)" = 1013.000 ] && [ "$(value bound_us)" = 1013.000 ] && [ "$(value host_busiest)" = 1000000 ] || fail "by hand: $(tail -n 1 sim.out)"
[ "$(value messages)" = 1 ] && [ "$(value messages_max)" = 1 ] || fail "messages: $(tail -n 1 sim.out)"

# A round's messages begin before its sums: SimGrid, running the same rounds (bench/simulate_smpi.sh), takes 307 us.
simulate --ranks 4 --ranks-per-host 1 --size 1M --algorithm ring --data none
less "ring, messages beside sums" "$(value time_us)" 320

# 25 MiB takes at most 1.5 times the bound, whatever the numbers of ranks and hosts: products of 2, 3, 5, 7, and others.
for shape in "13 1" "42 1" "97 1" "786 1" "939 1" "24 8" "88 8" "104 8" "99 11"; do
    simulate --ranks "${shape% *}" --ranks-per-host "${shape#* }" --size 25M --algorithm rabenseifner --data none
    less "25 MiB, $shape a host" "$(value time_us)" "$(awk -v b="$(value bound_us)" 'BEGIN { print 1.5 * b }')"
done

# ---- Faults; the same seed gives the same
simulate --ranks 64 --size 4K
undisturbed=$(value time_us)
simulate --ranks 64 --size 4K --slow 3:20
less "a slow rank" "$undisturbed" "$(value time_us)"
simulate --ranks 64 --size 4K --jitter 5 --loss 0.02 --seed 7 --verbose --json a.json
mv sim.out first.out
simulate --ranks 64 --size 4K --jitter 5 --loss 0.02 --seed 7 --verbose --json b.json
cmp -s first.out sim.out && cmp -s a.json b.json || fail "a seed does not replay"
[ "$(value lost)" -gt 0 ] && [ "$(value wrong)" = 0 ] || fail "loss: $(tail -n 1 sim.out)"
simulate --ranks 64 --size 4K --jitter 5 --loss 0.02 --seed 8 --verbose
cmp -s first.out sim.out && fail "another seed gives the same"
simulate --ranks 64 --size 4K --kill 7@30us
[ "$(value status)" = peer_lost ] && [ "$(value culprit)" = 7 ] || fail "a dead rank: $(tail -n 1 sim.out)"
less "a death is known to all" "$(value time_us)" 200
simulate --ranks 3 --size 4K --kill 2@0us,0@0us,1@0us
[ "$(value status)" = peer_lost ] && [ "$(value culprit)" = 2 ] || fail "all are dead: $(tail -n 1 sim.out)"
simulate --ranks 64 --size 4K --kill 7@1s
[ "$(value status)" = ok ] || fail "a death after the call: $(tail -n 1 sim.out)"
simulate --ranks 64 --size 4K --partition 3@20us+1ms
[ "$(value status)" = ok ] && less "a cut that ends" 200000 "$(value time_us)" || fail "a cut: $(tail -n 1 sim.out)"
simulate --ranks 64 --size 4K --partition any@20us
[ "$(value status)" = peer_lost ] || fail "a cut for good: $(tail -n 1 sim.out)"
simulate --ranks 4 --size 4K --json - 2>/dev/null
grep -q '"busiest_link_bytes"' sim.out && ! grep -q '^result' sim.out || fail "--json -: $(cat sim.out)"

# ---- Measured links, as tutti bench --tune writes them
printf '%s\n' '# levels' 'links 0 100 0 0 1' 'links 1 7000 3000 1000 1' >lines
simulate --ranks 2 --ranks-per-host 1 --op broadcast --size 1000000 --links <(cat lines) --algorithm direct --chunk 1M
[ "$(value time_us)" = 1013.000 ] || fail "measured links: $(tail -n 1 sim.out)"

# ---- Of a call that has failed, links have carried what they could
simulate --ranks 16 --size 25M --algorithm direct --kill 3@1ms --links links.json
[ "$(value status)" = peer_lost ] || fail "a death: $(tail -n 1 sim.out)"
less "what a link of 1 GB/s carries" "$(value host_busiest)" "$(awk -v us="$(value time_us)" 'BEGIN { print us * 1000 + 1 }')"

# ---- 25 MiB against the alpha-beta bound
for layout in "16,64,256 8" "16,64,256 1" "64 4"; do
    simulate --ranks "${layout% *}" --ranks-per-host "${layout#* }" --size 4K,25M --data none --json bound.json
    tr ',' '\n' <bound.json | awk '/"ratio"/ { n++; if ($2 > 1.5) bad = bad " " $2 } END { if (n < 2 || bad) { print n, bad; exit 1 } }' ||
        fail "above 1.5 times the bound: $(cat sim.out)"
done

# ---- What is refused
refused 'what to simulate. --ranks N'
refused '--ranks is "1", expected' --ranks 1
refused '--ranks is "4,x", expected' --ranks 4,x
refused 'only 4 ranks' --ranks 4 --hosts 5
refused 'are on 5' --ranks 10 --hosts 6
refused 'give one' --ranks 4 --hosts 2 --ranks-per-host 2
refused '--op is "all_reduc", expected .*did you mean all_reduce' --ranks 4 --op all_reduc
refused '--algorithm is "rong", expected auto, all, .*did you mean ring' --ranks 4 --algorithm rong
refused '--size: "x" is not a size' --ranks 4 --size x
refused '--root is for broadcast' --ranks 4 --root 1
refused '--root is 4, but there are only ranks 0 to 3' --ranks 4 --op broadcast --root 4
refused '--kill: "9@1ms" is not RANK@TIME' --ranks 4 --kill 9@1ms
refused '--slow: "1" is not RANK:FACTOR' --ranks 4 --slow 1
refused '--partition: "1-0@1ms" is not' --ranks 16 --partition 1-0@1ms
refused 'no flag "--algoritm" .did you mean "--algorithm"' --ranks 4 --algoritm ring
refused '--nodes is for --histories' --ranks 4 --nodes 3
refused '--size is for collectives' --histories 1 --size 4
refused '--nodes is "17", expected' --histories 1 --nodes 17
refused '--verbose takes no value' --histories 1 --verbose=1
refused '--links|links.none' --ranks 4 --links links.none || true
echo '{"host": {"latency": 7}}' >bad.json
refused 'there is no "host.latency"; expected .*did you mean host.latency_us' --ranks 4 --links bad.json
echo '{"host": {"gbps": -1}}' >bad.json
refused 'host.gbps is not a number from' --ranks 4 --links bad.json
echo '{"hosts": {}}' >bad.json
refused 'there is no "hosts"; expected core, host or switch .did you mean host' --ranks 4 --links bad.json
echo 'broadcast 3 100 tree' >lines
refused 'lines has no line "links' --ranks 4 --links lines
echo '[' >bad.json
refused 'bad.json' --ranks 4 --links bad.json

# ---- Histories of a job: from a fixed seed, so that a change is tested and not luck; simulate_all.sh tries new ones
simulate --histories 2000 --seed 1 --json h.json
[ "$(value histories)" = 2000 ] && [ "$(value broken)" = 0 ] && grep -q '"first_broken_seed": null' h.json || { cat sim.out; fail "a history"; }
# how many, seed, nodes, workers; those of one history were broken, or taken for that, once
while read -r n seed nodes workers; do
    simulate --histories "$n" --seed "$seed" --nodes "$nodes" --workers "$workers"
    [ "$(value broken)" = 0 ] || { cat sim.out; fail "$n histories of seed $seed, $nodes nodes, $workers workers"; }
done <<'END'
500 1 2 1
500 1 3 4
500 1 9 1
1 1795920177 9 1
1 1798021658 2 1
1 1801018167 5 1
1 1804016640 8 1
1 22079306 2 1
1 16087346 6 1
1 85202850 5 2
1 951020094 3 2
1 971086807 3 2
1 991030503 5 2
1 1330076505 4 1
END
simulate --histories 1 --seed 42 --verbose
grep -v '^result' sim.out >first.out
simulate --histories 1 --seed 42 --verbose
grep -v '^result' sim.out | cmp -s - first.out || fail "a history does not replay"
[ "$(wc -l <first.out)" -gt 5 ] || fail "no events: $(cat first.out)"
echo "ok"
