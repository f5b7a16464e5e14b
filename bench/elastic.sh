#!/bin/bash
# elastic.sh: training by logical shards: its cost without failures, with a slow worker, and with workers that die.
#
#   bench/elastic.sh                 all four
#   PYTHON=python3 ONLY='calm|late|killed|shares' ROUNDS=3 STEPS=16 KILLS=10 PEER_KILLS=3 HEARTBEAT_MS=1000 bench/elastic.sh
#
# calm: MiniResNet on 2 workers, --shards 2 compared with plain DDP. late: one of 2 workers runs a third of the time (stopped 20 ms of 30),
# --shards 8 compared with plain DDP with 4 batches accumulated. killed: 3 workers, of which one at a time is killed and
# replaced (bench_ddp_elastic), compared with the same kills of torchft's workers on the CPU with Gloo (peer/torchft_recovery.py), if
# PYTHON can import torchft. shares: the same kills of ours under ZeRO, each share with a copy (ZEROS="1 2 3"); it fails if a share was lost,
# or the weights are not those of an undisturbed job. Figures are medians. Next step: from the kill to the commit of the first step that began after it;
# pause: the longest time without a commit of a survivor, from the kill to the replacement's first commit.
. "$(dirname "$0")/lib.sh"
PYTHON=${PYTHON:-python3} ONLY=${ONLY:-.} ROUNDS=${ROUNDS:-3} STEPS=${STEPS:-16} KILLS=${KILLS:-10} PEER_KILLS=${PEER_KILLS:-3}
ZEROS=${ZEROS:-1 2 3} zero=0
HEARTBEAT_MS=${HEARTBEAT_MS:-1000} BATCH=${BATCH:-32} LATE_BATCH=${LATE_BATCH:-8} WORKERS=3 SHARD_MS=5
build=$(dirname "$TUTTI")
job=""
trap '[ -z "$job" ] || kill "$job" 2>/dev/null || true; hosts_close; rm -rf "$work"' EXIT

# ---- MiniResNet

train() { # NAME FLAGS...: its run folder is $work/NAME
    rm -rf "${work:?}/$1"
    timeout 300 "$TUTTI" train -n 2 --data synthetic --model mini_resnet --batch_size "$BATCH" --max_steps "$STEPS" --log_every 1 \
        --eval_every 0 --augment off --lr 0.1 --momentum 0.9 --threads 1 --run_dir "$work/$1" "${@:2}" >"$work/out" 2>&1 || {
        cat "$work/out" >&2
        exit 1
    }
}
images() { # NAME: images per second, without the first steps
    sed -n 's/.*"images_per_s": *\([0-9.e+]*\).*/\1/p' "$work/$1/metrics.jsonl" | tail -n +5 | median
}
digest() { sed -n 's/.*"parameter_digest": *"\([0-9a-f]*\)".*/\1/p' "$work/$1/summary.json"; }
worker() { # NAME LOCAL_RANK: its process
    local pid
    for pid in $(pgrep -f -- "--run_dir $work/$1 " || pgrep -f -- "--run_dir $work/$1\$"); do
        ! grep -qzx "LOCAL_RANK=$2" "/proc/$pid/environ" 2>/dev/null || echo "$pid"
    done
}
pause() { read -r -t "$1" -u "$nothing" || true; } # SECONDS: sleeps without starting a process
slow_down() {                                       # NAME LOCAL_RANK: takes two thirds of its time from it, until it ends
    local pid="" nothing
    exec {nothing}<> <(:)
    while [ -z "$pid" ] && kill -0 $$; do
        pause 0.05
        pid=$(worker "$1" "$2")
    done
    while kill -STOP "$pid" 2>/dev/null; do
        pause 0.02
        kill -CONT "$pid" 2>/dev/null || break
        pause 0.01
    done
}
train_late() { # as train, with worker 1 slowed down
    local helper
    rm -rf "${work:?}/$1"
    slow_down "$1" 1 &
    helper=$!
    train "$@"
    kill "$helper" 2>/dev/null || true
    wait "$helper" 2>/dev/null || true
}

calm() {
    for _ in $(seq "$ROUNDS"); do
        train plain && images plain >>"$work/calm-plain"
        train shards --shards 2 && images shards >>"$work/calm-shards"
    done
    plain=$(median <"$work/calm-plain") shards=$(median <"$work/calm-shards")
    printf '\nMiniResNet, 2 workers x 1 thread, batch %s, medians of %s rounds A B, images/s\n\n' "$BATCH" "$ROUNDS"
    printf '| plain DDP | --shards 2 | more time a step, %% |\n|---|---|---|\n| %.1f | %.1f | %s |\n' "$plain" "$shards" \
        "$(awk -v a="$plain" -v b="$shards" 'BEGIN {printf "%.1f", 100 * (a / b - 1)}')"
}

late() {
    local fixed="--grad_accumulation 4" over="--shards 8" equal=yes BATCH=$LATE_BATCH
    for _ in $(seq "$ROUNDS"); do
        train fixed $fixed && images fixed >>"$work/late-fixed-calm"
        train over $over && images over >>"$work/late-over-calm"
        calm_digest=$(digest over)
        train_late fixed $fixed && images fixed >>"$work/late-fixed"
        train_late over $over && images over >>"$work/late-over"
        [ -n "$calm_digest" ] && [ "$(digest over)" = "$calm_digest" ] || equal=NO
    done
    fixed=$(median <"$work/late-fixed") over=$(median <"$work/late-over")
    printf '\nMiniResNet, 2 workers x 1 thread, 8 batches of %s a step, medians of %s rounds, images/s\n\n' "$BATCH" "$ROUNDS"
    printf '| | fixed shares | shards taken over | ratio | same digest |\n|---|---|---|---|---|\n'
    printf '| undisturbed | %.1f | %.1f | %s | |\n' "$(median <"$work/late-fixed-calm")" "$(median <"$work/late-over-calm")" \
        "$(ratio "$(median <"$work/late-over-calm")" "$(median <"$work/late-fixed-calm")")"
    printf '| worker 1 has a third of its time | %.1f | %.1f | %s | %s |\n' "$fixed" "$over" "$(ratio "$over" "$fixed")" "$equal"
}

# ---- Kills

await() { # PATIENCE_S WHAT COMMAND...: until it succeeds, while $job runs
    local until=$((SECONDS + $1))
    until "${@:3}"; do
        [ $SECONDS -lt $until ] && kill -0 "$job" 2>/dev/null || {
            echo "elastic.sh: $2 did not come, in $1 s or before the job's end" >&2
            cat "$work/out" >&2
            exit 1
        }
        sleep 0.02
    done
}
committed() { # FOLDER SINCE N [PID]: every worker, or this one, has committed N steps since then
    [ -e "$1/log" ] && tail -n 2000 "$1/log" | awk -v since="$2" -v n="$3" -v pid="${4:-}" -v workers="$WORKERS" '
        $1 != "digest" && $1 > since {steps[$2]++}
        END {for (p in steps) done += steps[p] >= n && (pid == "" || p == pid)
             exit !(done >= (pid == "" ? workers : 1))}'
}
newcomer() { # FOLDER: prints a process that is not in $work/seen
    tail -n 200 "$1/log" | awk '$1 != "digest" {print $2}' | sort -u | grep -vxFf "$work/seen" | head -1 | grep .
}
has_newcomer() { newcomer "$1" >/dev/null; }
start_ours() { # FOLDER
    mkdir "$1"
    timeout 600 "$TUTTI" run -n "$WORKERS" "$build/bench/bench_ddp_elastic" "$1" "$WORKERS" "$SHARD_MS" "$zero" >"$work/out" 2>&1 &
    job=$!
    await 30 "the first steps" committed "$1" 0 30
}
end_ours() { # FOLDER STEP
    echo "$2" >"$1/end.new" && mv "$1/end.new" "$1/end"
    wait "$job" || {
        cat "$work/out" >&2
        exit 1
    }
    job=""
}
kill_ours() { # FOLDER: lines of $work/kills: time, victim, its replacement
    local victim killed new
    awk '{print $2}' "$1/log" | sort -u >"$work/seen"
    for _ in $(seq "$KILLS"); do
        victim=$(tail -n 20 "$1/log" | awk '{print $2}' | sort -u | shuf -n 1)
        killed=$EPOCHREALTIME
        kill -KILL "$victim"
        await 30 "a replacement" has_newcomer "$1"
        new=$(newcomer "$1")
        echo "$new" >>"$work/seen"
        await 30 "the replacement's steps" committed "$1" "$killed" 30 "$new"
        echo "$killed $victim $new" >>"$work/kills"
    done
}
judge_kills() { # FOLDER: lines of the times to the next step, of the pause and to the replacement's first commit, in seconds
    awk 'FILENAME == ARGV[1] {killed[++n] = $1; victim[n] = $2; new[n] = $3; next}
        $1 == "digest" {next}
        {t[++m] = $1; pid[m] = $2; step[m] = $3}
        END {
            for (k = 1; k <= n; k++) {
                last = 0; pause = 0; back = 0; following = 0; at_hand = 0
                for (i = 1; i <= m && !back; i++) {
                    if (t[i] <= killed[k] && step[i] >= at_hand) at_hand = step[i] + 1
                    if (t[i] > killed[k] && step[i] > at_hand && !following) following = t[i]
                    if (pid[i] == new[k]) back = t[i]
                    else if (pid[i] != victim[k]) {
                        if (t[i] > killed[k] && t[i] - last > pause) pause = t[i] - last
                        last = t[i]
                    }
                }
                print following - killed[k], pause, back - killed[k]
            }
        }' "$work/kills" "$1/log"
}
of_json() { sed -n "s/.*\"$1\": *\([^,}]*\).*/\1/p" "$work/peer.json"; }
rounded() { awk "BEGIN {printf \"%.0f\", $1}"; }

# Sets `equal`, `end` (the step) and `figures`: of kills in one job, compared with an undisturbed one.
disturb_ours() {
    local column
    rm -rf "$work/disturbed" "$work/undisturbed" "$work/kills"
    equal=NO figures=""
    start_ours "$work/disturbed"
    kill_ours "$work/disturbed"
    end=$(tail -n 1 "$work/disturbed/log" | awk '{print $3 + 200}')
    end_ours "$work/disturbed" "$end"
    cp "$work/out" "$work/out.disturbed"
    start_ours "$work/undisturbed"
    end_ours "$work/undisturbed" "$end"
    [ "$(awk '$1 == "digest" {print $3}' "$work/disturbed/log" "$work/undisturbed/log" | sort -u | wc -l)" != 1 ] || equal=yes
    judge_kills "$work/disturbed" >"$work/recoveries"
    for column in 1 2 3; do
        awk -v c=$column '{print 1e3 * $c}' "$work/recoveries" | sort -g >"$work/column"
        figures+=" | $(rounded "$(median <"$work/column")") ($(rounded "$(tail -n 1 "$work/column")"))"
    done
}

killed() {
    local end equal lost figures column
    [ -x "$build/bench/bench_ddp_elastic" ] || { echo "killed: left out, there is no $build/bench/bench_ddp_elastic" && return; }
    disturb_ours
    [ -z "${TIMES:-}" ] || awk '$1 > 0 {print "-", 1e6 * $1}' "$work/recoveries" >"$TIMES" # for compare.sh: us to the next step
    printf '\n%s workers, one killed at a time and replaced; a step is a shard of %s ms and more for each; medians (the longest)\n\n' \
        "$WORKERS" "$SHARD_MS"
    printf '| | kills | next step, ms | pause, ms | first step of the replacement, ms | samples lost, %% | weights as undisturbed |\n'
    printf '|---|---|---|---|---|---|---|\n'
    [ $equal = yes ] && lost=0 || lost="?"
    echo "| tutti run | $KILLS$figures | $lost | $equal |"
    "$PYTHON" -c 'import torchft' 2>/dev/null || { echo "elastic.sh: no torchft for $PYTHON: ours only" && return; }
    timeout 900 "$PYTHON" bench/peer/torchft_recovery.py workers="$WORKERS" kills="$PEER_KILLS" shard_ms="$SHARD_MS" \
        heartbeat_ms="$HEARTBEAT_MS" >"$work/peer.json"
    figures=""
    for column in next pause replaced; do
        figures+=" | $(rounded "$(of_json ${column}_s)e3") ($(rounded "$(of_json ${column}_most_s)e3"))"
    done
    lost=$(awk "BEGIN {printf \"%.1f\", 100 * $(of_json samples_lost) / $(of_json samples)}")
    [ "$(of_json equal)" = true ] && equal=yes || equal=NO
    echo "| torchft, heartbeat $HEARTBEAT_MS ms | $(of_json kills)$figures | $lost | $equal |"
}

shares() {
    local end equal figures lost_shares failed=0
    [ -x "$build/bench/bench_ddp_elastic" ] || { echo "shares: left out, there is no $build/bench/bench_ddp_elastic" && return; }
    printf '\n%s workers, AdamW, each share with a copy, one killed at a time and replaced; a step is a shard of %s ms and more for each;' \
        "$WORKERS" "$SHARD_MS"
    printf ' medians (the longest)\n\n| ZeRO | kills | shares lost | next step, ms | pause, ms | first step of the replacement, ms | digest | as undisturbed |\n'
    printf '|---|---|---|---|---|---|---|---|\n'
    for zero in $ZEROS; do
        disturb_ours
        lost_shares=$(grep -c 'are gone, and with them a share' "$work/out.disturbed" || true)
        [ "$equal $lost_shares" = "yes 0" ] || failed=1
        echo "| $zero | $KILLS | $lost_shares$figures | $(awk '$1 == "digest" {print $3; exit}' "$work/disturbed/log") | $equal |"
    done
    zero=0
    return $failed
}

for part in calm late killed shares; do
    [[ ! $part =~ $ONLY ]] || $part
done
