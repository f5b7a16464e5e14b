# lora.sh -- training low-rank adapters: what is trained and sent, the laws of training, checkpoints, merged weights, mistakes.   timeout: 240
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
model="--model gpt2 --layers 2 --heads 2 --width 32 --context 16 --data shakespeare"
short="$model --batch-size 8 --eval-every 0 --schedule constant --warmup-epochs 0 --threads 1 --optimizer adamw --lr 0.01 --dropout 0 --clip-grad-norm 0"
lora="--lora-rank 4 --lora-alpha 8"
equal() { # WHAT RUN RUN
    [ -n "$(digest "$2")" ] && [ "$(digest "$2")" = "$(digest "$3")" ] || fail "$1: $2 has $(digest "$2"), $3 $(digest "$3")"
}
tensors() { "$TUTTI" checkpoint show "$1" --digest | awk '/ F32 /{ print $1, $NF }' | sort; } # FILE

# Only the adapters are trained, and a head; the base stays; only their bytes are sent, and have state.
train base $short --max-steps 4
train tuned $short $lora --init base --max-steps 6 -n 2 --checkpoint-every 3 --keep-checkpoints 0
says tuned "^8 adapters of rank 4: 4,096 parameters are trained"
tensors base/model.safetensors >before
tensors tuned/model.safetensors | grep -v lora_ >after
diff before after || fail "the base weights have changed"
[ "$(tensors tuned/model.safetensors | grep -c 'lora_[AB].weight')" = 16 ] || fail "there are not 16 adapters' tensors"
# 2 layers x 4 x ((32 + 96) + (32 + 32) + (32 + 128) + (128 + 32)) numbers, of 6 steps
[ "$(field tuned/summary.json gradient_bytes)" = $((6 * 4 * 2 * 4 * 512)) ] || fail "$(field tuned/summary.json gradient_bytes) bytes of gradients"
tensors tuned/checkpoints/latest/optimizer.safetensors | grep -v "lora_[AB].weight" && fail "frozen parameters have state"
train headed $short $lora --init base --max-steps 6 --lora-targets c_attn,*.mlp.* --lora-train transformer.ln_f
tensors headed/model.safetensors | grep -v lora_ | diff before - >changed || true
[ "$(grep -c '^>' changed)" = 2 ] && grep -q 'ln_f.weight' changed && grep -q 'ln_f.bias' changed || { cat changed; fail "not just ln_f has changed"; }
[ "$(tensors headed/model.safetensors | grep -c 'attn.c_proj.lora')" = 0 ] || fail "a layer outside lora_targets has an adapter"

# Laws: threads, ZeRO, recomputation, resume, shards.
full="$short $lora --init base --lora-dropout 0.2 --lora-train transformer.ln_f --max-steps 6 --clip-grad-norm 0.1 --ema 0.9 --grad-accumulation 2"
# with ZeRO the norm is added up in another order
train whole $full --clip-grad-norm 0 -n 2 --checkpoint-every 4 --keep-checkpoints 0
train run $full --clip-grad-norm 0 -n 2 --zero 1
equal "--zero 1" whole run
train run $full --clip-grad-norm 0 -n 2 --zero 1 --resume whole/checkpoints/step-00000004
equal "--zero 1, resumed" whole run
train plain $full -n 2 --checkpoint-every 2 --keep-checkpoints 0
for more in --recompute "--threads 2" "--resume plain/checkpoints/step-00000002"; do
    train run $full -n 2 $more
    equal "$more" plain run
    [ "$(field plain/summary.json ema_digest)" = "$(field run/summary.json ema_digest)" ] || fail "$more: another average"
done
TUTTI_EMULATE_HALF=1 train half $full -n 2 --amp bf16 --checkpoint-every 3 --keep-checkpoints 0
TUTTI_EMULATE_HALF=1 train run $full -n 2 --amp bf16 --resume half/checkpoints/step-00000003
equal "amp bf16, resumed" half run
train shards.one $full --shards 4
train shards.two $full --shards 4 -n 2 --checkpoint-every 3
train shards.three $full --shards 4 -n 3 --zero 1 --resume shards.two/checkpoints/step-00000003
equal "one rank and two" shards.one shards.two
equal "three ranks, resumed" shards.one shards.three

# A checkpoint alone, merged weights, and adapters alone are the same model.
loss() { "$TUTTI" eval "$@" --json - --batch-size 64 | sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' | tail -1; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a > 0 && d < 1e-5 && d > -1e-5) }' || fail "$3: the loss is $2, expected $1"; }
"$TUTTI" checkpoint export tuned merged.safetensors >out
"$TUTTI" checkpoint export tuned --adapter adapter >out
grep -q '^16 tensors in adapter' out || { cat out; fail "export --adapter"; }
grep -q '"fan_in_fan_out": true' adapter/adapter_config.json || fail "fan_in_fan_out is not true"
refused 1 "there already" "$TUTTI" checkpoint export tuned --adapter adapter
tensors merged.safetensors | grep lora_ && fail "merged weights have adapters"
tuned=$(loss tuned)
cp merged.safetensors base/merged.safetensors # beside its configuration
near "$tuned" "$(loss base/merged.safetensors)" "merged weights"
near "$tuned" "$(loss base/model.safetensors $lora --lora-init adapter)" "base and adapters"
text() { "$TUTTI" generate "$@" --prompt "The " -n 20 --seed 3; }
[ "$(text tuned)" = "$(text base --lora-rank 4 --lora-alpha 8 --lora-init adapter)" ] || fail "base and adapters write another text"
[ "$(text tuned)" = "$(text base/merged.safetensors)" ] || fail "merged weights write another text"
train again $short $lora --init base --lora-init adapter --max-steps 1 --lr 0 --weight-decay 0
equal "adapters loaded" tuned again

# Mistakes.
refused 1 "it has adapters: give its lora_rank, or merge them by tutti checkpoint export" "$TUTTI" train $short --init tuned --max-steps 1 --run-dir none
mkdir diverged # the last number is NaN, and there are no digests
cp adapter/adapter_config.json diverged
{
    head -c -4 adapter/adapter_model.safetensors | LC_ALL=C sed 's/xxh3:/none:/g'
    printf '\000\000\300\177'
} >diverged/adapter_model.safetensors
for command in "generate base --lora-rank 4 --lora-alpha 8" "eval base $lora" "train $short $lora --init base --max-steps 1 --run-dir none"; do
    refused 1 "adapter_model.safetensors holds NaN or infinity in" "$TUTTI" $command --lora-init diverged
done
refused 2 "is no layer that can have an adapter; expected a linear layer, or a pattern of some, such as transformer.h.0.attn.c_attn" \
    "$TUTTI" train $short --lora-rank 4 --lora-targets c_attn,c_atn --max-steps 1 --run-dir none
refused 2 "lora_targets: it is for adapters, and lora_rank=0 makes none" "$TUTTI" train $short --lora-targets c_attn --max-steps 1 --run-dir none
refused 2 "rank 4 and alpha 8, and the model's rank 4 and alpha 4" "$TUTTI" train $short --lora-rank 4 --lora-init adapter --max-steps 1 --run-dir none
refused 2 "lora_rank: the run of" "$TUTTI" train $full --lora-rank 2 --resume plain/checkpoints/step-00000002 --run-dir none
refused 2 "the model has no linear layer" "$TUTTI" train --model unet --data synthetic --lora-rank 2 --max-steps 1 --run-dir none
for edit in 's/{\\"r\\":4,/{\\"r\\":5,/' 's/\\"r\\":4,/\\"r\\":0,/' 's/\\"lora_alpha\\"/\\"lora_alphb\\"/' 's/\\"layers\\":/\\"layerz\\":/' 's/0.attn.c_attn\\":{/0.attn.c_bttn\\":{/'; do
    LC_ALL=C sed "$edit" tuned/model.safetensors >damaged.safetensors
    cmp -s tuned/model.safetensors damaged.safetensors && fail "$edit changes nothing"
    refused 1 'what it says of its adapters (metadata "lora") does not fit' "$TUTTI" checkpoint export damaged.safetensors out.safetensors --force
done
refused 2 "holds no low-rank adapters" "$TUTTI" checkpoint export base --adapter elsewhere
echo "adapters obey the laws of training"
