# train_lr_find.sh -- the learning-rate range test: its file, the suggestion, the report; the same on two ranks; no weights and no
# checkpoints; losses that are not finite.   timeout: 120   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
suggested() { sed -n 's/.*"suggested_lr": \([0-9.e-]*\).*/\1/p' "$1/lr_find.json"; }
losses() { sed -n 's/.*"loss": \[\([^]]*\)\].*/\1/p' "$1/lr_find.json"; }

mlp="--model mlp --batch-size 16 --threads 1"
train found $mlp --lr-find -n 2 --checkpoint-every 3
lr=$(suggested found)
grep -qF "suggested learning rate $lr: there the loss falls most steeply" found.out || { cat found.out; fail "says no rate"; }
awk -v lr="$lr" 'BEGIN { exit !(lr > 0.001 && lr < 1) }' || fail "suggests $lr for sgd"
[ ! -e found/model.safetensors ] && [ ! -e found/checkpoints/latest ] || fail "a range test has left weights: $(ls -R found)"
[ "$(grep -c '"loss"' found/metrics.jsonl)" = "$(losses found | tr ',' '\n' | grep -c .)" ] || fail "not a line for each step"
grep -q '"status": "completed"' found/summary.json || fail "the test is not completed"
train again $mlp --lr-find -n 2
cmp found/lr_find.json again/lr_find.json || fail "a second test finds something else"

# Keys of what it does not do may be given; a training in its folder replaces its file.
train keys $mlp --lr-find --ema 0.9 --early-stopping 3 --checkpoint-best val_loss
[ ! -e keys/ema.safetensors ] || fail "a range test has left an average"
train keys $mlp --max-steps 1
[ ! -e keys/lr_find.json ] || fail "the range test's file: $(ls keys)"

# It is the mean over ranks that decides, on all of them alike, also when the loss becomes NaN or infinite on one.
train broken $mlp --lr-find -n 2 --lr-groups '*=1e30'
[ "$(losses broken | tr ',' '\n' | grep -c .)" -lt 60 ] || fail "goes on with a loss of $(losses broken)"
grep -qE 'no learning rate to suggest: the loss is (NaN|infinite) in step [0-9]+, at a rate of only .*; look for NaN' broken.out || { cat broken.out; fail "does not say why"; }
export TUTTI_EMULATE_HALF=1
for amp in bf16 fp16; do
    train "$amp" $mlp --lr-find --amp $amp --optimizer adamw --clip-grad-norm 1 --zero 1
    suggested "$amp" | grep -q . || fail "no rate with amp $amp"
done
train few $mlp --lr-find --max-steps 5
grep -qF "no learning rate to suggest: there were less than 20 steps" few.out || { cat few.out; fail "suggests a rate after 5 steps"; }

# A run that is there already is kept, and the suggestion can be used from its weights.
train run $mlp --max-steps 3 --eval-every 0
before=$(digest run)
train run $mlp --lr-find --max-steps 25 --init run
[ "$(digest run/earlier-1)" = "$before" ] && [ -e run/earlier-1/model.safetensors ] || fail "the earlier run is lost"

"$TUTTI" report found few --out page.html >/dev/null || fail "tutti report"
grep -qF "\"lr_find\":{\"suggested_lr\":$lr" page.html || fail "the report has no range test"
echo '{"suggested_lr": "</script>", "lr": [1, "x"], "loss": 3}' >few/lr_find.json
"$TUTTI" report few --out page.html >/dev/null || fail "tutti report of a strange file"
! grep -qF '"suggested_lr":"</script>' page.html || fail "text of a file is markup in the page"

refused 2 "lr_find: it tests a step of fixed ranks; leave shards out" "$TUTTI" train --lr-find --shards 2
refused 2 "lr_find: it begins anew, and resume is auto" "$TUTTI" train --lr-find --resume auto
