# train_tokens_per_step.sh -- gradient accumulation in tokens: the number of batches follows, also when the number of ranks changes.
# timeout: 90   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
keys="--model gpt2 --layers 1 --heads 1 --width 16 --context 16 --data shakespeare --batch-size 2 --eval-every 0 --schedule constant
    --warmup-epochs 0 --threads 1 --max-steps 4"
equal() { # WHAT RUN RUN
    [ -n "$(digest "$2")" ] && [ "$(digest "$2")" = "$(digest "$3")" ] || fail "$1: $2 has $(digest "$2"), $3 $(digest "$3")"
}
accumulates() { [ "$(field "$1/config.json" grad_accumulation)" = "$2" ] || fail "$1 accumulates $(field "$1/config.json" grad_accumulation)"; }

# 2 ranks x 2 samples x 16 tokens = 64
train tokens $keys --tokens-per-step 192 -n 2 --checkpoint-every 2 --keep-checkpoints 0
train batches $keys --grad-accumulation 3 -n 2
equal "2 ranks" tokens batches
accumulates tokens 3
train tokens.shards $keys --tokens-per-step 192 --shards 3 -n 2
train batches.shards $keys --grad-accumulation 2 --shards 3
equal "shards" tokens.shards batches.shards

# Resumed, or from its configuration, by another number of ranks: as many tokens.
train three $keys --tokens-per-step 192 -n 3 --resume tokens/checkpoints/step-00000002
accumulates three 2
says three "^2 ranks before, 3 now: a step still takes 12 samples$"
train again --config tokens/config.json --run-dir again -n 1
accumulates again 6
refused 2 "grad_accumulation, tokens_per_step: the run of" "$TUTTI" train $keys --grad-accumulation 2 --resume tokens/checkpoints/step-00000002 --run-dir none

refused 2 "grad_accumulation: it is given as 4, and follows from tokens_per_step, which is 192; give one of the two" \
    "$TUTTI" train $keys --tokens-per-step 192 --grad-accumulation 4 --run-dir none
refused 2 "grad_accumulation: it is given as 4" "$TUTTI" train --config tokens/config.json --grad-accumulation 4 --run-dir none
train other --config tokens/config.json --tokens-per-step 128 -n 2
accumulates other 2

refused 2 "tokens_per_step: 200 is no multiple of the 32 tokens of a batch of all ranks, 1 x batch_size 2 x context 16; use 192 or 224" \
    "$TUTTI" train $keys --tokens-per-step 200 --run-dir none
refused 2 "of a batch of all shards, 4 x batch_size 2 x context 16; use 128" "$TUTTI" train $keys --shards 4 --tokens-per-step 100 --run-dir none
refused 2 "the samples of data=digits are not tokens; use grad_accumulation" "$TUTTI" train --model mlp --tokens-per-step 100 --run-dir none
echo "steps in tokens"
