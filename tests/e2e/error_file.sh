# error_file.sh -- a failed rank writes why to the file that its launcher names, in torchrun's format.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
mlp="--model mlp --augment off --threads 1 --run-dir $work/run"

# rank R COMMAND...: as rank R of two that were started by hand, with an error file each
port=$("$TUTTI" run -n 1 sh -c 'echo $MASTER_PORT')
rank() {
    local r=$1
    shift
    RANK=$r LOCAL_RANK=$r WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TORCHELASTIC_ERROR_FILE=$work/$r.json \
        timeout -k 2 60 "$@" >"$work/$r.out" 2>&1
}
says() { # RANK TEXT
    python3 - "$work/$1.json" "$2" <<'END' || { fail "rank $1's error file does not say \"$2\":"; cat "$work/$1.json"; }
import json, sys
outer = json.load(open(sys.argv[1]))["message"]
sys.exit(sys.argv[2] not in outer["message"] or outer["extraInfo"]["py_callstack"] != outer["message"])
END
}
time_of() { sed 's/.*"timestamp": "\([0-9]*\)".*/\1/' "$work/$1.json"; }
command -v python3 >/dev/null || { echo "skipped: no python3, which reads the files as torchrun does"; exit 77; }

# Alone: usage errors, and later failures; a successful run writes none.
export TORCHELASTIC_ERROR_FILE=$work/0.json
run 2 "$TUTTI" train --batch-size 0
says 0 'batch_size: 0 is out of range'
run 1 "$TUTTI" train $mlp --max-steps 1 --init "$work/no\"where"
says 0 'no"where'
rm "$work/0.json"
run 2 "$TUTTI" bench all_reduce --dtype f33
says 0 'expected f32'
rm "$work/0.json"
run 0 "$TUTTI" bench all_reduce --sizes 4 --iterations 1
[ -e "$work/0.json" ] && fail "a good run wrote an error file"
# A file that cannot be written changes nothing.
TORCHELASTIC_ERROR_FILE=$work/none/0.json run 2 "$TUTTI" train --batch-size 0
err_has 'batch_size: 0 is out of range'
run 2 env RANK=0 WORLD_SIZE=2 "$TUTTI" bench all_reduce
says 0 'LOCAL_RANK is not set'
unset TORCHELASTIC_ERROR_FILE

# The rank that failed has the earlier time, and its own message.
rm -f "$work"/*.json
rank 1 "$TUTTI" train $mlp --max-steps 2 & other=$!
rank 0 "$TUTTI" train $mlp --max-steps 2 --init "$work/nowhere"
wait $other
says 0 nowhere
says 1 nowhere
[ "$(time_of 0)" -lt "$(time_of 1)" ] || fail "rank 1, which only heard of it, would be blamed"
[ "$(time_of 0)" -le "$(date +%s)" ] || fail "rank 0 failed in the future"

# A killed rank has no file, and the launcher dates it when it looks: the survivor is dated later.
rm -f "$work"/*.json
rank 0 "$TUTTI" train $mlp --epochs 100000 & first=$!
rank 1 "$TUTTI" train $mlp --epochs 100000 & second=$!
wait_until "training has begun" test -s "$work/run/metrics.jsonl"
pkill -KILL -P "$(pgrep -P $second)" tutti # below timeout, below the shell
wait $first
equal "the survivor's exit code" $? 3
wait $second 2>/dev/null
says 0 'rank 1'
[ "$(time_of 0)" -gt $(($(date +%s) + 30)) ] || fail "the survivor would be blamed"
[ -e "$work/1.json" ] && fail "an error file of the killed rank exists"
finish
