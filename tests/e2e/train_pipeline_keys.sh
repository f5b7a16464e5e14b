# tutti train --pipeline with what selects by names of the whole model (freeze, init_only, lr_groups, adapters, muon) and with the loss scaler:
# the digests and losses of accumulation on one rank.   timeout: 300
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

keys="--threads 1 --grad-accumulation 4 --lr 0.002 --dropout 0.1 --clip-grad-norm 0.3 --max-steps 4 --log-every 1"
gpt2="--model gpt2 --data shakespeare --layers 4 --heads 2 --width 32 --context 16 --batch-size 2 --eval-steps 2 --eval-samples 20 --sample-tokens 0 $keys"
llama="--model llama --kv-heads 2 --data shakespeare --layers 4 --heads 2 --width 32 --context 16 --batch-size 2 --eval-steps 2 --eval-samples 20 --sample-tokens 0 ${keys/--dropout 0.1/}"
alike() { # A B: the same run
    same "$1" "$2"
    diff <(figures "$1") <(figures "$2") || fail "losses or norms of $1 and $2 differ"
    for field in val_loss val_accuracy parameters train_loss skipped_steps; do
        [ "$(field "$1/summary.json" $field)" = "$(field "$2/summary.json" $field)" ] || fail "$field of $1 and $2 differ"
    done
}
frozen="transformer.w*,transformer.h.0,transformer.h.1,transformer.h.2"
both() { # KEYS...: on one rank, and in stages by two schedules
    local schedule
    rm -rf plain
    train plain "$@"
    for schedule in 1f1b zero_bubble interleaved; do
        rm -rf pipeline
        train pipeline -n 2 --pipeline 2 --pipeline-schedule $schedule "$@"
        alike plain pipeline
    done
}

both $gpt2 --freeze transformer.h.1,transformer.h.2.mlp
both $gpt2 --freeze lm_head,transformer.h.0 # by its other name, a table of two stages
both $gpt2 --freeze "$frozen" # a stage without training
refused 2 "freeze=*: that is every parameter of the model" "$TUTTI" train -n 2 --pipeline 2 $gpt2 --freeze '*'
[ "$(grep -c 'freeze=' refused.out)" = 1 ] || { cat refused.out; fail "it is said more than once"; }
refused 2 "freeze=*: that is every parameter of the model" "$TUTTI" train $gpt2 --freeze '*'
rm -rf plain pipeline
train plain -n 2 $gpt2 --freeze "$frozen"
train pipeline -n 4 --pipeline 2 --zero 1 $gpt2 --freeze "$frozen"
alike plain pipeline
both $gpt2 --lr-groups "transformer.wte=0.1,transformer.h.3=0.5"
both $gpt2 --optimizer muon
both $gpt2 --lora-rank 4 --lora-dropout 0.1
cp -r plain adapted
"$TUTTI" checkpoint export pipeline --adapter ours >export.out 2>&1 || { cat export.out; fail "export of the adapters of all stages"; }
"$TUTTI" checkpoint export plain --adapter theirs >export.out 2>&1
diff -r ours theirs || fail "adapters that are exported differ"
says pipeline "16 adapters of rank 4"
both $gpt2 --lora-rank 4 --lora-targets c_attn --lora-train transformer.ln_f --optimizer adamw
both $llama --lora-rank 2 --optimizer adamw

# Weights and adapters of files, each stage its own.
train base $gpt2 --max-steps 1
train head $gpt2 --max-steps 1 --seed 5
both $gpt2 --init base --init-only transformer.h --max-steps 2
both $gpt2 --init base --lora-rank 4 --max-steps 2
"$TUTTI" checkpoint export adapted --adapter peft >export.out 2>&1 || { cat export.out; fail "export of adapters"; }
both $gpt2 --lora-rank 4 --lora-init peft --max-steps 2

# A scale that overflows is halved on all stages; a step is left out on all of them.
export TUTTI_EMULATE_HALF=1
both $gpt2 --amp fp16 --max-steps 3
mlp="--model mlp --data digits --grad-accumulation 2 --batch-size 1 --max-steps 24 --log-every 1 --threads 1 --eval-every 0 --optimizer adamw --clip-grad-norm 0.5 --lr 0.2 --amp fp16"
rm -rf plain pipeline
train plain $mlp
train pipeline -n 2 --pipeline 2 $mlp
alike plain pipeline
[ "$(field plain/summary.json skipped_steps)" -ge 1 ] || fail "no step was left out"
unset TUTTI_EMULATE_HALF

refused 2 "freeze: \"transformer.h.9\" is not a parameter or part of the model" "$TUTTI" train -n 2 --pipeline 2 $gpt2 --freeze transformer.h.9 --run-dir no
refused 2 "lora: \"c_none\" is no layer that can have an adapter" "$TUTTI" train -n 2 --pipeline 2 $gpt2 --lora-rank 2 --lora-targets c_none --run-dir no
echo "keys of names hold in pipelines"
