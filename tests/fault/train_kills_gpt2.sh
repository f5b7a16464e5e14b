# train_kills_gpt2.sh -- 20 workers of a language model's run by shards are killed, at any step: it ends with the bits of an undisturbed run.
# tier: long   timeout: 200   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
KILLS=20
. "$SOURCE_DIR/tests/harness/elastic.sh"
export GO=$work/go
keys="--model gpt2 --data shakespeare --layers 2 --heads 4 --width 32 --context 16 --max-steps 1500 --shards 4 --eval-every 0 --threads 1 --dropout 0.1 --sample-tokens 0 --checkpoint-every 100 --log-every 5 --progress plain"
timeout 300 "$TUTTI" train --run-dir "$PWD/whole" $keys >whole.out 2>&1 || { cat whole.out; fail "the run itself"; }
begin one 4 $keys
for ((k = 1; k <= KILLS; k++)); do
    reach one $((k * 70))
    mapfile -t all < <(running one)
    kill -KILL "${all[RANDOM % ${#all[@]}]}" 2>kill.err || true # it may just have ended
done
end one 0
same_end whole one
lost=$(field one/summary.json lost_workers)
[ "$lost" -ge 10 ] || { cat one/summary.json; fail "only $lost workers were lost"; }
