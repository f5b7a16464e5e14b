# train_optimizers.sh -- the laws of training for optimizers, schedules, clipping by value and rates by name: the same bits on one rank and
# two (--shards), resumed, for any number of threads, with --zero 1; lamb's and muon's where ranks have parts of parameters.   timeout: 120   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
digest() { sed -n 's/.*"parameter_digest": "\([0-9a-f]*\)".*/\1/p' "$1/summary.json"; }
equal() { # WHAT RUN RUN
    [ -n "$(digest "$2")" ] && [ "$(digest "$2")" = "$(digest "$3")" ] || fail "$1: $2 has $(digest "$2"), $3 $(digest "$3")"
}
wrong() { # WORDS KEYS...
    local words=$1
    shift
    refused 2 "$words" "$TUTTI" train --run-dir refused "$@"
}
small="--model vit --layers 2 --width 32 --heads 2 --batch-size 8 --epochs 4 --max-steps 6 --eval-every 0 --warmup-epochs 0.01"
n=0
while read -r keys <&3; do
    n=$((n + 1))
    keys="$small $keys"
    train $n.one $keys --shards 2 --threads 1
    train $n.two $keys --shards 2 --threads 2 -n 2 --checkpoint-every 3 --keep-checkpoints 0
    equal "$keys on one rank and two" $n.one $n.two
    train $n.again $keys --shards 2 --threads 2 --resume $n.two/checkpoints/step-00000003
    equal "$keys resumed" $n.one $n.again
    train $n.plain $keys -n 2
    train $n.zero $keys -n 2 --zero 1
    equal "$keys with --zero 1" $n.plain $n.zero
done 3<<END
--optimizer rmsprop --centered --momentum 0.8 --alpha 0.9 --schedule linear --final-lr 0.0001
--optimizer adagrad --lr-decay 0.1 --initial-accumulator-value 0.1 --schedule restarts --restart-epochs 0.02 --restart-mult 2
--optimizer lamb --no-decay-biases --clip-grad-value 0.01
--optimizer muon --lr-groups encoder=0.5,*.bias=2,heads=0 --no-decay-biases --schedule onecycle --warmup-epochs 0
--optimizer muon --muon-others sgd --muon-normalize --ns-steps 3 --weight-decay 0.01 --decay-groups encoder=0.1 --lr-group-epochs *.bias=0.02 --schedule linear
END

# Norms of whole parameters, and whole matrices, of which ranks have parts.
for optimizer in lamb muon; do
    parts="$small --tensor-parts 2 --grad-accumulation 2 --threads 1 --optimizer $optimizer"
    train $optimizer.1 $parts
    train $optimizer.2 $parts -n 2 --tensor 2
    train $optimizer.4 $parts -n 4 --tensor 2 --pipeline 2
    equal "$optimizer with --tensor 2" $optimizer.1 $optimizer.2
    equal "$optimizer with --tensor 2 --pipeline 2" $optimizer.1 $optimizer.4
    train $optimizer.plain $parts -n 2
    train $optimizer.zero $parts -n 4 --tensor 2 --zero 3 --bucket-mb 0.02 --first-bucket-mb 0.01
    equal "$optimizer with --tensor 2 --zero 3" $optimizer.plain $optimizer.zero
    wrong "shard_copies: optimizer=$optimizer needs other ranks" --optimizer $optimizer --shards 2 --zero 1 --shard-copies 2
done

# Workers that die take no state with them: three kinds of it move to those that replace them.
keys="--model vit --layers 2 --width 32 --heads 2 --batch-size 8 --epochs 4 --eval-every 0 --optimizer muon --shards 2 --threads 1 --progress quiet"
train alive $keys
timeout 240 "$TUTTI" run -n 2 --max-restarts 100 --chaos kill=4,seed=1,after=0.2,until=10 "$TUTTI" train --run-dir killed $keys >killed.out 2>&1 || { cat killed.out; fail "exit code $? with workers that die"; }
equal "with workers that die" alive killed

one="--batch-size 8 --max-steps 1 --eval-every 0 --warmup-epochs 0 --model mlp --threads 1"
train frozen $one --lr-groups '*=0'
train still $one --lr 0
equal "a factor of 0 for all" frozen still
train clipped $one --clip-grad-value 1e-30 --weight-decay 0 --optimizer sgd --momentum 0
equal "gradients clipped to nothing" clipped still

wrong 'lr_groups: "fc3" is not a parameter or part of the model, such as fc1.weight; its parts are fc1, fc2' $one --lr-groups fc3=0.1
wrong 'lr_groups: "fc1" is not PATTERN=FACTOR with a factor of at least 0' $one --lr-groups fc1
wrong "muon: the module has no matrix between its first and its last; use adamw" $one --optimizer muon
wrong 'decay_groups: "fc1" is not PATTERN=FACTOR with a factor of at least 0' $one --decay-groups fc1
wrong 'lr_group_epochs: "fc1=x" is not PATTERN=EPOCHS with a number of at least 0' $one --lr-group-epochs fc1=x
wrong "muon_normalize: it is for optimizer=muon" --muon-normalize
wrong "muon_others: it is for optimizer=muon" --muon-others sgd
wrong "muon_others_momentum: it is for muon_others=sgd, and this run has muon_others=adamw" --optimizer muon --muon-others-momentum 0.5
wrong "alpha: it is for optimizer=rmsprop, and this run has optimizer=sgd; leave alpha out, or change optimizer" --alpha 0.5
wrong "adjust_lr_fn: it is for optimizer=muon" --adjust-lr-fn original
wrong "final_lr: it is for schedule=cosine, linear, onecycle, restarts, and this run has schedule=step" --schedule step --final-lr 0.1
wrong "restart_epochs: schedule=restarts needs the number of epochs of its first cosine" --schedule restarts
wrong "warmup_epochs: schedule=onecycle begins with a rising learning rate" --schedule onecycle --warmup-epochs 1
wrong "clip_grad_value: clip_grad_norm is set too; use one" --clip-grad-value 1 --clip-grad-norm 1
wrong 'optimizer: "adamax" is not one of its values; expected' --optimizer adamax
wrong "nesterov: needs optimizer=sgd or muon, and a momentum above 0" --optimizer rmsprop --nesterov
