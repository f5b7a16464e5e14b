# tutti train --pipeline: stages of a model have the parameter_digest, the losses and the norms of accumulation, whatever the schedule,
# also beside data parallel and ZeRO; what cannot be one is refused.   timeout: 300
# breadth: 300   ALL: every schedule with every depth and family of models.   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

keys="--threads 1 --grad-accumulation 4 --optimizer adamw --lr 0.002 --dropout 0.1 --clip-grad-norm 0.3 --max-steps 4 --log-every 1"
gpt2="--model gpt2 --data shakespeare --layers 4 --heads 2 --width 32 --context 16 --batch-size 2 --eval-steps 2 --eval-samples 20 --sample-tokens 24 $keys"
images="--data digits --batch-size 4 --epochs 1 $keys"

train plain $gpt2
for pipeline in 2 4; do
    schedules="1f1b gpipe zero_bubble"
    { [ -z "${ALL:-}" ] && [ $pipeline = 4 ]; } && schedules=zero_bubble
    for schedule in $schedules; do
        rm -rf pipeline
        train pipeline -n $pipeline --pipeline $pipeline --pipeline-schedule $schedule $gpt2
        alike plain pipeline
    done
done
rm -rf pipeline
train pipeline -n 2 --pipeline 2 --pipeline-schedule interleaved $gpt2
alike plain pipeline
grep '"text"' plain/metrics.jsonl | diff - <(grep '"text"' pipeline/metrics.jsonl) || fail "the texts after evaluations"
[ "$(grep -c '"text"' plain/metrics.jsonl)" -ge 1 ] || fail "no texts"
says pipeline "stage 3, of rank 1: .*head"
says pipeline "^  waiting for stages "
grep -q '"stages_ms"' pipeline/metrics.jsonl && ! grep -q '"stages_ms"' plain/metrics.jsonl || fail "no time of waiting for stages, or without a pipeline"

# Two pipelines side by side, as two ranks.
train ranks -n 2 $gpt2
for zero in 0 ${ALL:+1} 2 3; do
    rm -rf pipeline
    train pipeline -n 4 --pipeline 2 --zero $zero $gpt2
    alike ranks pipeline
    says pipeline "^4 ranks (.*) = 2 data x 2 pipeline, 16 samples a step, "
    says pipeline "^pipeline: stage 0, of ranks 0-1: "
    says pipeline "1f1b, steps of 4 micro-batches of 2 samples in each of 2 pipelines$"
done

for model in ${ALL:+mlp} "vit --layers 4" resnet18; do
    rm -rf plain pipeline
    [ "$model" != resnet18 ] || images="$images --max-steps 2"
    train plain --model $model $images
    train pipeline -n 2 --pipeline 2 --micro-batches 4 --model $model $images
    alike plain pipeline
done

for schedule in ${ALL:+1f1b gpipe} interleaved ${ALL:+zero_bubble}; do # 8 stages of resnet18's 10 blocks, or 4
    rm -rf pipeline
    train pipeline -n 4 --pipeline 4 --pipeline-schedule $schedule --model resnet18 $images
    alike plain pipeline
done

refused 2 "a multiple of 2" "$TUTTI" train -n 3 --pipeline 2 --run-dir no
refused 2 "model mlp has 2 blocks" "$TUTTI" train -n 4 --pipeline 4 --model mlp --run-dir no
refused 2 "no list of blocks" "$TUTTI" train -n 2 --pipeline 2 --model unet --run-dir no
refused 2 "no block \"h.9\"" "$TUTTI" train -n 2 --pipeline 2 --pipeline-cuts h.9 $gpt2 --run-dir no
refused 2 "micro_batches: it is for a pipeline" "$TUTTI" train --micro-batches 2 --run-dir no
refused 2 "give one of the two" "$TUTTI" train -n 2 --pipeline 2 --micro-batches 2 $gpt2 --run-dir no
refused 2 "pipeline_cuts: it is for a pipeline" "$TUTTI" train --pipeline-cuts fc --run-dir no
refused 2 "shards" "$TUTTI" train -n 2 --pipeline 2 --shards 2 --run-dir no
refused 2 "find_unused: with pipeline=2" "$TUTTI" train -n 2 --pipeline 2 --find-unused true --run-dir no
refused 2 "pipeline_schedule: it is for a pipeline" "$TUTTI" train --pipeline-schedule gpipe --run-dir no

# Resumed by another layout with as many samples a step: no change of ranks is said. What is refused is named as it was given.
train plain $gpt2 --checkpoint-every 2 --keep-checkpoints 0
for layout in "-n 2 --pipeline 2" "-n 2 --tensor 2"; do
    rm -rf again
    train again $layout $gpt2 --resume plain/checkpoints/step-00000002
    says again "2 of 4 steps are done"
    ! grep -q "before, " again.out || { cat again.out; fail "a change of ranks is said with $layout"; }
done
[ -d pipeline ] && rm -rf pipeline
train pipeline -n 2 --pipeline 2 $gpt2 --checkpoint-every 2 --keep-checkpoints 0
rm -rf again
train again -n 2 $gpt2 --resume pipeline/checkpoints/step-00000002
says again "^1 data rank before, 2 ranks now: a step takes 16 samples instead of 8$"
other=${gpt2/--grad-accumulation 4/--micro-batches 8}
refused 2 "micro_batches: the run of" "$TUTTI" train -n 2 --pipeline 2 $other --resume pipeline/checkpoints/step-00000002 --run-dir no
grep -qE -e "--init pipeline/checkpoints/step-00000002\$" refused.out || { cat refused.out; fail "no checkpoint to begin from"; }
rm -rf again
train again -n 2 --pipeline 2 $other --init pipeline/checkpoints/step-00000002
says again "^init: .*; those of this rank's stages$"
