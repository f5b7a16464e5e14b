# train_best.sh -- early_stopping and checkpoint_best: the run ends as completed, with its reason, on all ranks; the best checkpoint is
# kept; resumed is uninterrupted.   timeout: 90   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
keys="--model mlp --epochs 30 --lr 0.3 --threads 1 --early-stopping 3 --checkpoint-best val_loss --keep-checkpoints 1 --shards 2"
# best RUN: the step of its lowest test loss, by metrics.jsonl
best() { sed -n 's/.*"val_loss": \([^,]*\),.*"step": \([0-9]*\)}}/\1 \2/p' "$1/metrics.jsonl" | sort -g | sed -n '1s/.* //p'; }
same_end() { # RUN RUN
    local key
    for key in status steps epochs parameter_digest best_step best_value val_loss; do
        [ "$(field "$1/summary.json" $key)" = "$(field "$2/summary.json" $key)" ] || fail "$key of $1: $(field "$1/summary.json" $key), of $2: $(field "$2/summary.json" $key)"
    done
    [ "$(grep '^  "reason"' "$1/summary.json")" = "$(grep '^  "reason"' "$2/summary.json")" ] || fail "the reasons of $1 and $2"
}
train whole $keys
[ "$(field whole/summary.json status)" = completed ] || fail "its status"
[ "$(field whole/summary.json epochs)" -lt 30 ] || fail "it did not end early"
says whole 'early_stopping: 3 evaluations in a row did not improve val_loss, whose best was [0-9.]* after step'
grep -q '"reason": "early_stopping: 3 evaluations in a row' whole/summary.json || fail "no reason in summary.json"
step=$(field whole/summary.json best_step)
[ "$step" = "$(best whole)" ] || fail "the best is said to be step $step, and is $(best whole)"
[ "$(readlink whole/checkpoints/best)" = "step-$(printf %08d "$step")" ] || fail "checkpoints/best is $(readlink whole/checkpoints/best)"
[ "$(ls whole/checkpoints | grep -c '^step-')" = 2 ] || fail "checkpoints: $(ls whole/checkpoints)"
[ $((step + 3 * 23)) = "$(field whole/summary.json steps)" ] || fail "it ended after step $(field whole/summary.json steps), the best was $step"
"$TUTTI" eval whole/checkpoints/best --json eval.json >out 2>&1 || { cat out; fail "eval of the best"; }
printf '%.4f' "$(field whole/summary.json best_value)" >expected
grep -q "loss $(cat expected)\$" out || { cat out; fail "eval of the best, expected $(cat expected)"; }
train begun --model mlp --init whole/checkpoints/best --max-steps 1
says begun 'init: 4 of 4 tensors from whole/checkpoints/best/model.safetensors'

# ---- Nothing is left to do; with more patience it goes on
train whole $keys --resume auto
says whole '^whole is complete after [0-9]* steps: early_stopping: 3 evaluations in a row'
cp -r whole patient
train patient ${keys/--early-stopping 3/--early-stopping 6} --resume auto
[ "$(field patient/summary.json steps)" -gt "$(field whole/summary.json steps)" ] || fail "more patience, and no more steps"
train never ${keys/--early-stopping 3/--early-stopping 6}
same_end never patient

# ---- Two ranks, checkpoints between, and a resume from each
train two $keys -n 2 --checkpoint-every 10 --keep-checkpoints 0
same_end whole two
steps=$(field two/summary.json steps)
for at in 10 $((steps - 23)) "$step"; do
    train again $keys -n 2 --resume "two/checkpoints/step-$(printf %08d $((at / 10 * 10)))" --run-dir again
    same_end whole again
    rm -r again
done
# Killed after the checkpoint, before the link: the resume makes it.
cp -r two cut
rm cut/summary.json cut/checkpoints/best
for newer in cut/checkpoints/step-*; do [ "${newer##*-}" -le "$(printf %08d $((step + 10)))" ] || rm -r "$newer"; done
rm cut/checkpoints/latest
train cut $keys -n 2 --resume auto
same_end whole cut
[ "$(readlink cut/checkpoints/best)" = "step-$(printf %08d "$step")" ] || fail "the link after a kill is $(readlink cut/checkpoints/best)"

# ---- By accuracy; fixed ranks; the least change that counts
train accuracy --model mlp --epochs 6 --lr 0.3 --checkpoint-best val_accuracy --keep-checkpoints 1 -n 2 --threads 1
sed -n 's/.*"val_accuracy": \([^,]*\),.*"step": \([0-9]*\)}}/\1 \2/p' accuracy/metrics.jsonl | sort -k1,1gr -k2,2g | sed -n '1s/.* //p' >expected
[ "$(field accuracy/summary.json best_step)" = "$(cat expected)" ] || fail "by accuracy: $(field accuracy/summary.json best_step), expected $(cat expected)"
train delta --model mlp --epochs 9 --early-stopping 2 --min-delta 100 --threads 1 -n 2
[ "$(field delta/summary.json epochs)" = 3 ] || fail "min_delta: $(field delta/summary.json epochs) epochs"
[ ! -e delta/checkpoints/best ] || fail "a best checkpoint that nobody wanted"

# ---- Wrong use
refused 2 'checkpoint_best: task=regression has no val_accuracy; expected val_loss or one of val_mae val_rmse val_r2' "$BUILD_DIR/tests/program/own_trainer" rows --checkpoint-best val_accuracy --run-dir rows
refused 2 'early_stopping: needs evaluations, and eval_every=0 makes none' "$TUTTI" train --model mlp --early-stopping 2 --eval-every 0
train by_f1 --model mlp --epochs 2 --checkpoint-best val_f1 --threads 1
[ "$(field by_f1/summary.json best_value | cut -c 1-6)" = "$(field by_f1/summary.json val_f1 | cut -c 1-6)" ] || [ "$(field by_f1/summary.json best_step)" -gt 0 ] || fail "the best by val_f1"
refused 2 'checkpoint_best: needs evaluations, and eval_every=0 makes none' "$TUTTI" train --model mlp --checkpoint-best val_loss --eval-every 0
refused 2 'checkpoint_best: "loss" is not one of its values; expected off, val_loss, val_perplexity, val_accuracy, val_f1, val_iou, val_mae, val_rmse or val_r2' "$TUTTI" train --checkpoint-best loss
refused 2 'min_delta: it is for early_stopping and checkpoint_best; add one of them' "$TUTTI" train --min-delta 0.1
