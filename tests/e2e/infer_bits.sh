# infer_bits.sh -- eval, predict and generate give a sample the bits that training's evaluation gave it, for any batch, ranks and threads, and
# a token those of any split of its text, in F32 and with --amp.   timeout: 60   breadth: 400   SPDX-License-Identifier: MIT
# ALL: every network of images (unet: e2e/train_masks), also with --amp; neighbours: the same images in other batches.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
export TUTTI_EMULATE_HALF=1
must() { "$@" >must.out 2>&1 || { cat must.out; fail "$*"; }; }
check() { # RUN FLAGS...: its predictions and losses
    local run=$1 how
    shift
    rm -f losses
    must "$TUTTI" predict $run --out one.safetensors --threads 1 "$@"
    for how in "--batch-size 1" "--batch-size 359 --threads 2" "--batch-size 7 -n 3 --threads 1"; do
        must "$TUTTI" predict $run --out other.safetensors $how "$@"
        cmp one.safetensors other.safetensors || fail "$run: other logits with $how $*"
    done
    for how in "--batch-size 3 --threads 2" "--batch-size 50 -n 2"; do
        must "$TUTTI" eval $run --json eval.json $how "$@"
        [ $# -gt 0 ] || awk -v a="$(field $run/summary.json val_loss)" -v b="$(field eval.json loss)" 'BEGIN { d = (a - b) / (a > 1 ? a : 1); exit !(d < 1e-8 && d > -1e-8) }' ||
            fail "$run: the loss is $(field eval.json loss) with $how, and was $(field $run/summary.json val_loss) in training"
        field eval.json loss >>losses
    done
    [ "$(sort -u losses | wc -l)" = 1 ] || { cat losses; fail "$run: other losses $*"; }
}
model=mini_resnet # 359 digits: the last batch is not full
"$TUTTI" -V | grep -qw onednn || model=mlp
for network in $model ${ALL:+mlp linear resnet18 resnet50 mobilenet_v2 "vit --layers 2 --width 32 --heads 2" "lstm --layers 2" airbench94}; do
    run=${network%% *}
    data=
    if [ $run = airbench94 ]; then # its images have at least 25 x 25 pixels
        mkdir images
        for ((i = 0; i < 37; i++)); do
            printf "\\$(printf %03o $((i % 10)))" && tail -c +$((1500 * i + 1)) "$SOURCE_DIR/docs/train.md" | head -c 3072
        done >images/test_batch.bin
        for i in 1 2 3 4 5; do cp images/test_batch.bin images/data_batch_$i.bin; done
        data="--data cifar10 --data-dir images"
    fi
    train run.$run --model $network $data --max-steps 3 --batch-size 32 --threads 1
    check run.$run
    [ -z "${ALL:-}" ] || check run.$run --amp bf16
done

for i in $(seq 90); do printf 'To be, or not to be, that is the question:\n'; done >text.txt
for model in "gpt2 --layers 2 --heads 4" "llama --layers 2 --heads 4 --kv-heads 2"; do
    name=${model%% *}
    train $name --model $model --width 128 --context 48 --data shakespeare --max-steps 3 --batch-size 16 --eval-every 0 --sample-tokens 0
    for amp in off bf16; do
        for how in "--batch-size 1" "--batch-size 5 -n 2"; do
            must "$TUTTI" eval $name --data text --data-dir text.txt --tokenizer shakespeare --split all --json eval.json --amp $amp $how
            field eval.json loss >>$name.$amp
        done
        [ "$(sort -u $name.$amp | wc -l)" = 1 ] || { cat $name.$amp; fail "$name, amp $amp: other losses"; }
        must "$TUTTI" generate $name --amp $amp --prompt ROMEO: -n 40 --threads 1
        cp must.out whole
        for n in 7 25; do # the first characters as the prompt, which is read at once
            head -c $n whole >prompt
            must "$TUTTI" generate $name --amp $amp --prompt-file prompt -n $((46 - n))
            cmp whole must.out || fail "$name, amp $amp: another text after a prompt of $n"
        done
    done
    cmp -s $name.off $name.bf16 && fail "--amp changes nothing"
done
refused 2 'amp: "fp8" is not one of its values' "$TUTTI" generate gpt2 --amp fp8
