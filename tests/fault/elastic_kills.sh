# Random SIGKILLs of workers of runs by shards, sometimes several in one step or all but one at once: every run ends with the
# bits of an undisturbed run. Measures the cost of a kill.   timeout: 150
# SPDX-License-Identifier: MIT
# KILLS is the minimum number of processes killed (default 16; elastic_kills_all does 200), SEED repeats a plan.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
. "${SOURCE_DIR:?is set by ctest}/tests/harness/elastic.sh"
kills=${KILLS:-16}
export TUTTI_LOG=warn,elastic:debug
# Kinds of runs: workers, what kills them (this script or --chaos), and flags.
mlp="--model mlp --dropout 0.3 --shards 8 --batch-size 8 --epochs ${EPOCHS:-60} --checkpoint-every 500"
resnet="--model mini_resnet --shards 4 --batch-size 4 --max-steps 60 --eval-every 0 --checkpoint-every 10"
kinds=("mlp 3 hand" "mlp 2 hand" "resnet 3 hand" "mlp 4 hand tcp" "mlp 3 chaos" "resnet 4 chaos")

# Kills $job's workers: one, several, or all but one at a time; sometimes while a generation is still
# being formed. Writes a line "kill SECONDS PROCESSES" for each.
disturb_by_hand() { # DIR N MOST
    local agent='' n=$2 count full=0 events=0
    while [ -z "$agent" ] || [ ! -s "$1/metrics.jsonl" ]; do
        kill -0 "$job" 2>no-job || return 0
        pause 10
        agent=$(agent_of "$job")
    done
    for ((events = 0; events < $3; events++)); do
        # Before most kills all workers are training; the other kills strike while some start or move.
        if [ $((RANDOM % 4)) != 0 ]; then
            until [ "$(generations "$1.out" | awk -v n="$n" '$2 == n' | wc -l)" -gt $full ]; do
                kill -0 "$job" 2>no-job || return 0
                pause 20
            done
        fi
        pause $((RANDOM % 150))
        full=$(generations "$1.out" | awk -v n="$n" '$2 == n' | wc -l)
        workers_of "$agent"
        case $((RANDOM % 4)) in
        0) count=$((n - 1)) ;;
        1) count=$((1 + RANDOM % (n - 1))) ;;
        *) count=1 ;;
        esac
        [ ${#workers[@]} = "$n" ] || count=1
        choose $count "${workers[@]}"
        [ ${#chosen[@]} -gt 0 ] || continue
        echo "kill $EPOCHREALTIME ${#chosen[@]}" >>"$1.kills"
        kill -KILL "${chosen[@]}" 2>no-worker || true
    done
}

# The cost of each kill in ms: "pause" to the next committed step, "full" until all were training again, if no other was
# killed meanwhile; less the time of one step.
costs() { # DIR N
    local step
    step=$(sed -n 's/.*"time_s": \([0-9.]*\),.*/\1/p' "$1/metrics.jsonl" | awk 'NR > 1 { print ($1 - last) * 1e3 } { last = $1 }' | middle)
    { generations "$1.out" && cat "$1.kills"; } | awk -v n="$2" -v step="$step" '
        $1 == "kill" { at[++kills] = $2; next }
        { when[++groups] = $1; size[groups] = $2 }
        END {
            for (i = 1; i <= kills; i++) {
                until_ms = i < kills ? at[i + 1] : 1e300
                for (k = 1; k <= groups && when[k] <= at[i]; k++);
                if (k <= groups && when[k] < until_ms) print "pause", (when[k] - at[i]) * 1e3 - step
                for (; k <= groups && size[k] < n; k++);
                if (k <= groups && when[k] < until_ms) print "full", (when[k] - at[i]) * 1e3 - step
            }
        }'
}

for model in mlp resnet; do
    train "whole-$model" ${!model} --threads 1 --log-every 1
done
echo "SEED=$SEED, load $(cut -d ' ' -f 1 /proc/loadavg)"
killed=0 events=0 fell_back=0
: >costs
for ((i = 0; killed < kills; i++)); do
    read -r model n how transport <<<"${kinds[i % ${#kinds[@]}]}"
    flags="--run-dir $PWD/run$i ${!model} --threads 1 --log-every 1"
    chaos=()
    [ "$how" = hand ] || chaos=(--max-restarts 9 --chaos "kill=2,burst=$n,seed=$RANDOM,until=6")
    : >"run$i.kills"
    TUTTI_TRANSPORT=${transport:-auto} timeout -k 5 300 "$TUTTI" run -n "$n" "${chaos[@]}" "$TUTTI" train $flags >"run$i.out" 2>&1 &
    timeout=$!
    job=''
    until [ -n "$job" ]; do job=$(pgrep -P $timeout) || { kill -0 $timeout; pause 5; }; done
    [ "$how" != hand ] || disturb_by_hand "run$i" "$n" 5
    code=0
    wait $timeout || code=$?
    [ $code = 0 ] || failed_run "run$i" "exit code $code"
    same_end "whole-$model" "run$i"
    if [ "$how" = hand ]; then
        killed=$((killed + $(awk '{ n += $3 } END { print n + 0 }' "run$i.kills")))
        [ "$model" != mlp ] || costs "run$i" "$n" >>costs
    else
        killed=$((killed + $(sed -n 's/.*chaos: in [0-9.]* s \([0-9]*\) killed.*/\1/p' "run$i.out")))
    fi
    fell_back=$((fell_back + $(grep -c 'resumed from' "run$i.out" || true)))
    grep ' steps in .*lost to deaths' "run$i.out" | sed "s/^/$model, $n workers${transport:+, $transport}, $how: /"
    rm -r "run$i"*
done
for what in pause full; do
    sed -n "s/^$what //p" costs >$what.ms
done
echo "$i runs, $killed killed; $fell_back times all who had the state were dead. From a kill to the next committed step, without a step's time:" \
    "median $(middle <pause.ms) ms, longest $(most <pause.ms) ms of $(wc -l <pause.ms); until all were at work again:" \
    "median $(middle <full.ms) ms, longest $(most <full.ms) ms of $(wc -l <full.ms); load $(cut -d ' ' -f 1 /proc/loadavg)"
