# train_tied.sh -- a model in which two layers have one weight obeys the laws of training, and is exchanged by files with either name or
# both.   timeout: 90   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
keys="--model $BUILD_DIR/standin/tied_model.so --batch-size 8 --max-steps 6 --eval-every 0 --schedule constant --warmup-epochs 0 --threads 1
    --optimizer adamw --lr 0.003 --dropout 0.2 --clip-grad-norm 1 --keep-checkpoints 0"
equal() { # WHAT RUN RUN
    [ -n "$(digest "$2")" ] && [ "$(digest "$2")" = "$(digest "$3")" ] || fail "$1: $2 has $(digest "$2"), $3 $(digest "$3")"
}
differ() { [ "$(digest "$1")" != "$(digest "$2")" ] || fail "$1 and $2 are equal"; }

train plain $keys -n 2 --checkpoint-every 3
says plain "^tied, 4,874 parameters"
for more in "--zero 1" --recompute "--resume plain/checkpoints/step-00000003" "--resume plain/checkpoints/step-00000003 --zero 1 --recompute" "--device strict" \
    "--bucket-mb 0.001 --first-bucket-mb 0.001"; do
    if [ "$more" = "--device strict" ]; then
        TUTTI_KERNELS=reference train reference $keys -n 2
        train run $keys -n 2 $more
        equal "tied $more" reference run
    else
        train run $keys -n 2 $more
        equal "tied $more" plain run
    fi
done
train shards.one $keys --shards 2
train shards.two $keys --shards 2 -n 2 --checkpoint-every 3
train shards.again $keys --shards 2 --resume shards.two/checkpoints/step-00000003
equal "tied on one rank and two" shards.one shards.two
equal "tied --shards, resumed" shards.one shards.again

# frozen by the name that it has in the other layer: stays as it was
train frozen $keys --freeze block.out.weight
train other $keys
differ frozen other
"$TUTTI" checkpoint export frozen frozen.pt >out 2>&1 || { cat out; fail "export"; }
"$TUTTI" checkpoint export frozen.pt frozen.safetensors >out 2>&1 || { cat out; fail "export"; }
grep -aq '"block.out.weight":"block.in.weight"' frozen.safetensors || fail "the safetensors file does not say the second name"
[ "$(grep -ao '"shape":\[64,64\]' frozen.safetensors | wc -l)" = 1 ] || fail "the shared tensor is in the file twice"
for file in frozen/model.safetensors frozen.pt frozen.safetensors; do
    train from $keys --max-steps 1 --lr 0 --weight-decay 0 --init $file
    equal "weights of $file" frozen from
done
