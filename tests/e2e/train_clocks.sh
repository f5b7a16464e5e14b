# train_clocks.sh -- traces of ranks whose clocks are 100000 s apart have one time axis, and contain all parts of a step.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
skip() { echo "skipped: $*"; exit 77; }
unshare --time --monotonic 100000 --fork true 2>unshare.err || skip "no time namespace of one's own: $(head -1 unshare.err)"
command -v python3 >/dev/null || skip "no python3 to read the traces with"
(umask 077 && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >secret)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')

# Three ranks: two share a clock that is not rank 0's.
for rank in 0 1 2; do
    clock=()
    [ $rank = 0 ] || clock=(unshare --time --monotonic 100000 --fork --kill-child)
    RANK=$rank WORLD_SIZE=3 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TUTTI_TRANSPORT=tcp \
        TUTTI_SECRET_FILE=$work/secret timeout 150 "${clock[@]}" "$TUTTI" train --run-dir run --model mlp --max-steps 30 --threads 1 \
        --checkpoint-every 10 --epochs 2 --profile 5:30 >"$rank.out" 2>&1 &
done
wait
[ -s run/summary.json ] || { cat ./*.out; fail "the run has failed"; }
"$TUTTI" report --trace all.json run >/dev/null
cat >look.py <<'END'
import json
traces = [json.load(open("run/trace/rank-%d.json" % r)) for r in range(3)]
clocks = [t["otherData"]["clock"] for t in traces]
assert clocks[0]["offset_ns"] == [0, 0] and clocks[0]["error_ns"] == [0, 0], clocks[0]
for c in clocks[1:]:
    for offset, error in zip(c["offset_ns"], c["error_ns"]):
        # That far apart at the start of the namespace; the rest is the claimed error.
        assert abs(offset + 100000 * 10**9) <= error + 1000, (offset, error)
        assert 0 < error < 50 * 10**6, error
events = [[e for e in t["traceEvents"] if e["ph"] == "X"] for t in traces]
for r in range(3):
    names = {e["name"] for e in events[r]}
    assert {"data", "forward", "backward", "all_reduce", "exposed communication", "optimizer", "checkpoint", "evaluate"} <= names, names
    assert r > 0 or "write checkpoint" in names, names
assert len(json.load(open("all.json"))["traceEvents"]) == sum(len(t["traceEvents"]) for t in traces)
# An all_reduce ends on a rank only after it has begun on all others; the errors of both clocks are allowed for.
slack = sum(max(c["error_ns"]) for c in clocks) / 1000 + 1
reductions = [sorted((e["ts"], e["ts"] + e["dur"]) for e in events[r] if e["name"] == "all_reduce") for r in range(3)]
assert len({len(x) for x in reductions}) == 1 and len(reductions[0]) >= 20, [len(x) for x in reductions]
for same in zip(*reductions):
    assert max(begin for begin, end in same) <= min(end for begin, end in same) + slack, same
print("clocks agree to %.0f us" % slack)
END
python3 look.py || fail "the traces are not on one time axis"
exit 0
