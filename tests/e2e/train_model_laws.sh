# train_model_laws.sh -- the laws of training for larger models: with --shards the same bits with one rank and two, and when resumed with
# another number of ranks; with --zero 1 and --recompute those of plain DDP.   timeout: 180   breadth: 240
# SPDX-License-Identifier: MIT
# ALL: models whose parts the others have, too.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
digest() { sed -n 's/.*"parameter_digest": "\([0-9a-f]*\)".*/\1/p' "$1/summary.json"; }
equal() { # WHAT RUN RUN
    [ -n "$(digest "$2")" ] && [ "$(digest "$2")" = "$(digest "$3")" ] || fail "$1: $2 has $(digest "$2"), $3 $(digest "$3")"
}
for model in ${ALL:+"mobilenet_v2 --lr 0.01" "vit --layers 2 --width 32 --heads 2 --lr 0.01"} "resnet18 --lr 0.01" "lstm --layers 2" \
    ${ALL:+"gpt2 --layers 2 --width 32 --heads 2 --context 12 --data shakespeare"} \
    "llama --layers 2 --width 32 --heads 4 --kv-heads 2 --context 12 --data shakespeare"; do
    name=${model%% *}
    keys="--model $model --batch-size 4 --max-steps 2 --eval-every 0 --schedule constant --warmup-epochs 0 --threads 1"
    language=
    if [ $name = gpt2 ] || [ $name = llama ]; then
        language=yes
        keys="$keys --dropout 0.1 --clip-grad-norm 0" # ZeRO sums the norm in another order
    fi
    train $name.one $keys --shards 2
    train $name.two $keys --shards 2 -n 2
    equal "$name on one rank and two" $name.one $name.two
    train $name.resumed $keys --shards 2 -n 2 --checkpoint-every 1 --keep-checkpoints 0
    train $name.again $keys --shards 2 --resume $name.resumed/checkpoints/step-00000001
    equal "$name resumed" $name.one $name.again
    train $name.plain $keys -n 2
    train $name.zero $keys -n 2 --zero 1
    equal "$name with --zero 1" $name.plain $name.zero
    export TUTTI_EMULATE_HALF=1
    if [ $name = lstm ]; then
        refused 2 "recompute: model lstm has no blocks" "$TUTTI" train --run-dir bad $keys --recompute
    else
        train $name.recompute $keys -n 2 --zero 1 --recompute
        equal "$name with --recompute" $name.plain $name.recompute
        if [ $name = resnet18 ]; then # batch norm exchanges its statistics again
            train sync $keys -n 2 --sync-bn
            train sync.recompute $keys -n 2 --sync-bn --recompute
            equal "--sync-bn with --recompute" sync sync.recompute
        fi
        train $name.shards $keys -n 2 --recompute --shards 2 --amp bf16 --checkpoint-every 1 --keep-checkpoints 0
        train $name.shards.again $keys --shards 2 --amp bf16 --resume $name.shards/checkpoints/step-00000001
        equal "$name of --shards with --recompute, and resumed without" $name.shards $name.shards.again
    fi
    # eval, predict and generate build the run's model; from a file of weights alone, the one that flags describe
    flags="--model ${model% --lr 0.01}"
    [ $language ] || flags="$flags --data digits"
    shown="predict $name.one --out $name.csv"
    [ $language ] && shown="generate $name.one -n 5"
    for command in "eval $name.one" "$shown" "eval $name.one/model.safetensors $flags"; do
        timeout 180 "$TUTTI" $command >command.out 2>&1 || { cat command.out; fail "tutti $command"; }
    done
done
