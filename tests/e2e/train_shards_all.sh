# `tutti train --shards 8`, the table: parameters, samples, losses and checkpoints are the same to the bit for any number of ranks and
# threads, any buckets and transport, ZeRO 0, 1 and 3, with and without accumulation.   tier: long   timeout: 600
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
mlp="--model mlp --dropout 0.3 --shards 8 --batch-size 8 --epochs 2 --log-every 1 --checkpoint-every 17 --keep-checkpoints 0 --clip-grad-norm 1"
resnet="--model mini_resnet --shards 8 --batch-size 4 --max-steps 6 --eval-every 3 --log-every 1 --checkpoint-every 4 --keep-checkpoints 0"
accumulated="--model mlp --dropout 0.3 --shards 8 --batch-size 4 --grad-accumulation 3 --epochs 2 --log-every 1 --optimizer adamw --checkpoint-every 11 --keep-checkpoints 0"
runs="mlp resnet accumulated"

of() { field "$1/summary.json" "$2"; }
hash() { sha256sum | cut -c 1-12; }
# parameter_digest samples_digest losses checkpoints
columns() { # DIR
    local p
    echo "$(of "$1" parameter_digest)" "$(of "$1" samples_digest)" \
        "$({ for p in train_loss val_loss val_accuracy; do of "$1" $p; done; sed 's/"images_per_s.*//; s/"time_s.*//' "$1/metrics.jsonl"; } | hash)" \
        "$(for p in "$1"/checkpoints/{step-*,latest}; do saved "$p"; done | hash)"
}
differ=0
row() { # WHAT RUN: the folder `now`
    local want got
    got=$(columns now)
    [ -e "$2.columns" ] || echo "$got" >"$2.columns"
    want=$(cat "$2.columns")
    printf '| %-11s | %-34s | %.12s | %.12s | %s | %s |\n' "$2" "$1" $got
    [ "$got" = "$want" ] || { echo "^ differs from the first"; differ=$((differ + 1)); }
    rm -r now now.out
}
printf '| %-11s | %-34s | %-12s | %-12s | %-12s | %-12s |\n' run how parameters samples losses checkpoints
echo '|---|---|---|---|---|---|'
for run in $runs; do
    for n in 1 2 3 4 5 7 8; do
        train now -n $n ${!run} --threads 1
        row "$n ranks" $run
    done
    train now ${!run} --threads 2
    row "1 rank of 2 threads" $run
    train now -n 2 ${!run} --threads 2 --workers 0
    row "2 ranks of 2 threads, no loaders" $run
    for mb in 0.001 0.02 100; do
        train now -n 3 ${!run} --threads 1 --bucket-mb $mb --first-bucket-mb $mb
        row "3 ranks, buckets of $mb MB" $run
    done
    TUTTI_TRANSPORT=tcp train now -n 3 ${!run} --threads 1
    row "3 ranks over TCP" $run
    for n in 2 5; do
        for zero in 1 3; do
            train now -n $n ${!run} --threads 1 --zero $zero
            row "$n ranks, ZeRO $zero" $run
        done
    done
done

# Two hosts, each a network namespace.
cat >two_hosts.sh <<'END'
. "$SOURCE_DIR/tests/harness/hosts.sh"
hosts_enter a.test b.test
cd "$work"
hosts_up
for i in 0 1; do
    on_host $i timeout 300 "$TUTTI" run --nnodes 2 --node-rank $i --rdzv-endpoint a.test:29500 -n $((i + 1)) \
        "$TUTTI" train --run-dir "$work/now" --threads 1 $FLAGS >>now.out 2>&1 &
done
wait -n && wait -n
END
for run in $runs; do
    code=0
    FLAGS=${!run} TUTTI_SECRET=$(head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n') work=$work bash two_hosts.sh >two.out 2>&1 || code=$?
    [ $code != 77 ] || { echo "two hosts $(cat two.out)"; break; }
    [ $code = 0 ] || { cat two.out now.out; fail "two hosts: exit code $code"; }
    row "two hosts of 1 and 2 ranks" $run
done
[ $differ = 0 ] || fail "$differ rows differ"

# The same number of ranks without shards agrees within rounding.
for shards in "" "--shards 8"; do
    train now -n $([ -n "$shards" ] && echo 3 || echo 8) --model mlp --dropout 0.3 --batch-size 8 --max-steps 40 --schedule constant --threads 1 $shards
    numbers now/model.safetensors >"plain${shards:+.shards}.txt"
    rm -r now
done
close plain.txt plain.shards.txt 1e-5
