# tutti train --tensor T --pipeline P --zero 0|1 on one mesh: the parameter_digest, losses and norms of --tensor T with as many accumulated
# batches; checkpoints go from layout to layout; a killed rank is named by all others.   timeout: 300
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

keys="--threads 1 --grad-accumulation 4 --optimizer adamw --lr 0.002 --dropout 0.1 --clip-grad-norm 0.3 --max-steps 4 --log-every 1"
text="--data shakespeare --layers 4 --heads 2 --width 32 --context 16 --batch-size 2 --eval-steps 2 --eval-samples 20 --sample-tokens 0 $keys"
gpt2="--model gpt2 $text"
llama="--model llama --kv-heads 2 ${text/--dropout 0.1/}"
vit="--model vit --data digits --layers 4 --heads 2 --width 32 --batch-size 4 --epochs 1 $keys"
again() { # DIR ARGUMENTS...: train, in a new folder
    rm -rf "$1"
    train "$@"
}

for model in gpt2 llama vit; do
    for rows in "" --sequence-parallel; do
        again tensor -n 2 --tensor 2 $rows ${!model}
        again mesh -n 4 --tensor 2 --pipeline 2 $rows ${!model}
        alike tensor mesh
    done
done
again tensor -n 2 --tensor 2 --sequence-parallel $gpt2
for schedule in "zero_bubble" "interleaved"; do
    again mesh -n 4 --tensor 2 --pipeline 2 --sequence-parallel --pipeline-schedule $schedule $gpt2
    alike tensor mesh
done
more="--amp bf16 --recompute --ema 0.9"
TUTTI_EMULATE_HALF=1 again tensor -n 2 --tensor 2 $more $gpt2
TUTTI_EMULATE_HALF=1 again mesh -n 4 --tensor 2 --pipeline 2 $more $gpt2
alike tensor mesh
[ "$(field tensor/summary.json ema_digest)" = "$(field mesh/summary.json ema_digest)" ] || fail "averages differ"

for keys in "--lora-rank 4" "--amp fp16 --optimizer sgd" "--freeze transformer.wpe,transformer.h.1"; do
    TUTTI_EMULATE_HALF=1 again tensor -n 2 --tensor 2 $gpt2 $keys
    TUTTI_EMULATE_HALF=1 again mesh -n 4 --tensor 2 --pipeline 2 $gpt2 $keys
    alike tensor mesh
done

# Eight ranks in one line, and their checkpoints in other layouts.
steps="--checkpoint-every 2 --keep-checkpoints 0"
train ranks -n 4 --tensor 2 $gpt2 $steps
train mesh.0 -n 8 --tensor 2 --pipeline 2 $gpt2
train mesh.1 -n 8 --tensor 2 --pipeline 2 --zero 1 $gpt2 $steps
alike ranks mesh.0
alike ranks mesh.1
says mesh.1 "^8 ranks (.*) = 2 data x 2 pipeline x 2 tensor, 16 samples a step, "
says mesh.1 "^pipeline: stage 0, of ranks 0-3: "
says mesh.1 "^          stage 1, of ranks 4-7: "
says mesh.1 "^tensor 2: each layer is divided among 2 ranks; 8 batches of 2 a step$"
for layout in "-n 8 --tensor 2 --pipeline 2 --zero 1" "-n 8 --tensor 2 --pipeline 2 --zero 2" "-n 4 --tensor 2 --zero 3"; do
    again onto $layout $gpt2 --resume mesh.1/checkpoints/step-00000002
    same ranks onto
done
again onto -n 8 --tensor 2 --pipeline 2 --zero 1 $gpt2 --resume ranks/checkpoints/step-00000002
same ranks onto
again onto -n 2 --pipeline 2 $gpt2 --resume mesh.1/checkpoints/step-00000002
says onto "2 of 4 steps are done"
timeout 60 "$TUTTI" checkpoint verify mesh.1 >verify.out 2>&1 || { cat verify.out && fail "its checkpoints do not verify"; }
still="--max-steps 1 --lr 0 --weight-decay 0 --init mesh.1"
again init.1 $gpt2 $still
again init.8 -n 8 --tensor 2 --pipeline 2 $gpt2 $still --resume auto
same init.1 init.8
same init.1 mesh.1

refused 2 "--tensor 2 --pipeline 2 on 6 ranks: 6 is not a multiple of 2 x 2" "$TUTTI" train -n 6 --tensor 2 --pipeline 2 $gpt2 --run-dir no
refused 2 "heads: gpt2: a layer has 2, which cannot be divided among 4 ranks" "$TUTTI" train -n 8 --tensor 4 --pipeline 2 $gpt2 --run-dir no
refused 2 "has no plan by which its layers could be divided" "$TUTTI" train -n 4 --tensor 2 --pipeline 2 --run-dir no

# A killed rank, for which some wait in a layer and others for a stage.
killed_is_named 6 -n 8 --tensor 2 --pipeline 2 $gpt2
echo "tensor parallel pipelines hold"
