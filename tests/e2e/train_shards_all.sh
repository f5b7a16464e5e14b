# All of what must not make a difference to a run by shards, with every number of ranks.   timeout: 1200   tier: long
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

result() {
    local key
    for key in steps train_loss val_loss val_accuracy samples_digest parameter_digest; do
        echo "$key $(field "$1/summary.json" $key)"
    done
    sed 's/"images_per_s.*//; s/"time_s.*//' "$1/metrics.jsonl"
    (cd "$1/checkpoints/latest" && sha256sum model.safetensors optimizer.safetensors)
}
alike() { diff <(result "$1") <(result "$2") >diff.out || { cat diff.out; fail "$1 and $2 differ"; }; }

mlp="--model mlp --dropout 0.3 --shards 8 --batch-size 8 --epochs 3 --log-every 5 --checkpoint-every 31"
resnet="--model mini_resnet --shards 8 --batch-size 4 --max-steps 20 --epochs 2 --log-every 2 --checkpoint-every 7"
for model in mlp resnet; do
    for more in "" "--grad-accumulation 3" "--amp bf16" "--wire-bits 32" "--optimizer adam --clip-grad-norm 0.5"; do
        keys="${!model} $more"
        export TUTTI_EMULATE_HALF=1
        train whole $keys --threads 1
        echo "$model $more: $(digest whole)"
        for n in 1 2 3 4 5 7 8; do
            train "n$n" -n $n $keys --threads 1
            alike whole "n$n"
        done
        train threads -n 3 $keys --threads 2 --workers 2
        alike whole threads
        train alone $keys --threads 4 --workers 0 --checkpoint-background false
        alike whole alone
        for bucket in 0.001 0.05 1; do
            train buckets -n 2 $keys --threads 1 --bucket-mb $bucket --first-bucket-mb $bucket
            alike whole buckets
        done
        TUTTI_TRANSPORT=tcp train tcp -n 4 $keys --threads 1
        alike whole tcp
        timeout 300 "$TUTTI" run --chaos kill=3,seed=3 -n 3 "$TUTTI" train --run-dir chaos $keys --threads 1 >chaos.out 2>&1 ||
            { cat chaos.out; fail "under chaos"; }
        alike whole chaos
        rm -rf whole n? threads alone buckets tcp chaos
    done
done
