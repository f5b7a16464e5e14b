# Which checkpoint a run resumes from, what it keeps of the interrupted run, and errors.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

# A checkpoint's contents; the two latest are kept; the weights can be initial weights.
mlp="--model mlp --threads 1 --epochs 3 --log-every 5"
train run $mlp --checkpoint-every 20
[ "$(ls run/checkpoints | tr '\n' ' ')" = "latest step-00000120 step-00000135 " ] || fail "kept: $(ls run/checkpoints)"
[ "$(readlink run/checkpoints/latest)" = step-00000135 ] || fail "latest is $(readlink run/checkpoints/latest)"
[ "$(ls run/checkpoints/latest/ | tr '\n' ' ')" = "model.safetensors optimizer.safetensors state.json " ] ||
    fail "files: $(ls run/checkpoints/latest/)"
cmp run/model.safetensors run/checkpoints/latest/model.safetensors || fail "the last checkpoint is not the result"
train start --model mlp --init run/checkpoints/latest/model.safetensors --lr 0 --max-steps 1 --eval-every 0 --threads 1
same start run

# Killed during training: the result is as if undisturbed; no step is logged twice, nothing temporary is left. The kill must come
# before the end: such a run prints more than fits into the pipe to this shell.
long="--model mlp --threads 1 --epochs 30 --log-every 1"
train long $long
mkfifo pipe
"$TUTTI" train --run-dir killed $long --checkpoint-every 20 >pipe 2>killed.err &
pid=$!
while read -r line; do
    case $line in *"step 75/"*) kill -KILL $pid && break ;; esac
done <pipe
wait $pid || true
[ -d killed/checkpoints ] || fail "nothing was saved before the kill"
mkdir killed/checkpoints/step-00000999.tmp && echo half >killed/checkpoints/step-00000999.tmp/model.safetensors
printf '{"step": 9999, "ep' >>killed/metrics.jsonl
echo half >killed/summary.json.tmp
train killed $long --checkpoint-every 20 --resume auto
grep -q '^resumed from killed/checkpoints/step-0000[0-9]*: ' killed.out || { cat killed.out; fail "it was not resumed"; }
same killed long
shape() { sed 's/"images_per_s.*//; s/"time_s.*//' "$1/metrics.jsonl"; }
[ "$(shape killed)" = "$(shape long)" ] || { diff <(shape killed) <(shape long); fail "the lines of metrics.jsonl differ"; }
[ -z "$(find killed -name '*.tmp')" ] || fail "temporary files are left: $(find killed -name '*.tmp')"

# A complete run is not changed; one that lacks its last files gets them.
train whole $mlp
rm -r killed
train killed $mlp --checkpoint-every 20
before=$(stat -c '%Y %n' killed/* | sort)
train killed $mlp --checkpoint-every 20 --resume auto
grep -q 'killed is complete: all 135 steps are done' killed.out || { cat killed.out; fail "does not say that the run is complete"; }
[ "$before" = "$(stat -c '%Y %n' killed/* | sort)" ] || fail "a complete run was touched"
train killed -n 2 $mlp --checkpoint-every 20 --resume auto # 69 steps, if two ranks had made them
grep -q 'killed is complete: all 135 steps are done' killed.out || { cat killed.out; fail "says other steps than it made"; }
rm killed/summary.json killed/model.safetensors
train killed $mlp --checkpoint-every 20 --resume auto
same killed whole
cmp killed/model.safetensors whole/model.safetensors || fail "the weights of a run that was completed later"

# A kill has left it aside, on a file system that cannot exchange names.
rm killed/summary.json
mv killed/checkpoints/step-00000135 killed/checkpoints/step-00000135.previous.tmp
train killed $mlp --checkpoint-every 20 --resume auto
grep -q 'resumed from killed/checkpoints/step-00000135' killed.out || { cat killed.out; fail "what was moved aside is not recovered"; }
same killed whole

# Damaged checkpoints are skipped, with the reason, and removed.
rm killed/summary.json
printf x | dd of=killed/checkpoints/step-00000135/model.safetensors bs=1 seek=9000 conv=notrunc 2>dd.out
train killed $mlp --checkpoint-every 20 --resume auto
grep -q 'step-00000135 is skipped: .*model.safetensors is damaged: tensor "fc1.weight" has digest' killed.out || fail "flipped: $(cat killed.out)"
grep -q 'resumed from killed/checkpoints/step-00000120' killed.out || fail "the previous checkpoint was not used"
same killed whole
rm killed/summary.json # one digit of the position: only the digest detects it
sed -i 's/"batch": 0,/"batch": 8,/' killed/checkpoints/step-00000135/state.json
train killed $mlp --checkpoint-every 20 --resume auto
grep -q 'step-00000135 is skipped: .*state.json is damaged: its contents have digest' killed.out || fail "a digit: $(cat killed.out)"
same killed whole
for part in model.safetensors optimizer.safetensors state.json; do # a folder in place of a file, and it holds something
    rm killed/summary.json killed/checkpoints/step-00000135/$part
    mkdir killed/checkpoints/step-00000135/$part && echo x >killed/checkpoints/step-00000135/$part/x
    train killed $mlp --checkpoint-every 20 --resume auto
    grep -q "step-00000135 is skipped: .*$part" killed.out && grep -q 'resumed from killed/checkpoints/step-00000120' killed.out || { cat killed.out; fail "a folder $part"; }
    [ $part = state.json ] || grep -q "$part is a folder; expected a file" killed.out || { cat killed.out; fail "it does not say that $part is a folder"; }
    same killed whole
done
# With all of them damaged, nothing begins, and nothing changes, unless that is asked for.
rm killed/summary.json
truncate -s 5000 killed/checkpoints/step-00000135/optimizer.safetensors
echo '{' >killed/checkpoints/step-00000120/state.json
before=$(find killed -type f ! -name .lock -exec md5sum {} + | sort)
refused 1 'resume: no checkpoint in killed/checkpoints is intact (damaged: step-00000135, step-00000120); restore one, or start from the beginning: with --resume no, or without that folder' \
    "$TUTTI" train $mlp --run-dir killed --resume auto
grep -q 'optimizer.safetensors is not a valid' refused.out && grep -q 'state.json is damaged' refused.out || { cat refused.out; fail "it does not say what is damaged"; }
refused 1 'no checkpoint in killed/checkpoints is intact' "$TUTTI" train $mlp --resume killed
refused 1 "restore this checkpoint, name another one, or name its run's folder" "$TUTTI" train $mlp --resume killed/checkpoints/step-00000135
[ "$before" = "$(find killed -type f ! -name .lock -exec md5sum {} + | sort)" ] || fail "a run that was not resumed was changed"
train killed $mlp --resume no
grep -q 'its earlier run is now in killed/earlier-1' killed.out || { cat killed.out; fail "the damaged run is gone"; }
same killed whole
# Without any checkpoint the run begins anew, and says so; one that has only begun is not mentioned.
rm -r killed/summary.json killed/checkpoints
train killed $mlp --resume auto
grep -q 'killed/metrics.jsonl ends at step 135, but there is no checkpoint in killed/checkpoints: the run begins anew' killed.out || { cat killed.out; fail "it does not say that it begins anew"; }
same killed whole
train fresh --model mlp --threads 1 --max-steps 1 --resume auto
! grep anew fresh.out || fail "a new run claims to begin anew"
refused 1 'holds no checkpoint' "$TUTTI" train $mlp --resume "$work/pipe"
refused 1 'cannot read nowhere' "$TUTTI" train $mlp --resume nowhere

# An impossible position, in a file of a version without digests, is an error; so are other data.
at() { # SED EXPRESSION TEXT: changes a checkpoint in the middle of an epoch
    cp -r middle changed
    sed -i "/\"digest\"/d; s/\(\"model_digest\".*\),$/\1/; $1" changed/checkpoints/step-*/state.json
    refused 1 "$2" "$TUTTI" train $mlp --max-steps 50 --run-dir new --resume changed
    rm -r changed
}
train middle $mlp --max-steps 50 --keep-checkpoints 1
at 's/"start": 0/"start": 5000/' 'state.json is damaged: start 5000 and batch 5 of 1 ranks are not 160 samples of 1438'
at 's/"start": 0/"start": "x"/' 'state.json is damaged: start is not an integer from 0 to'
at 's/"batch": 5/"batch": 6/' 'batch 6 of 1 ranks are not 160 samples'
at 's/"world_size": 1/"world_size": 4294967297/' 'world_size is not an integer from 1 to'
at 's/"epoch": 2/"epoch": 4000000000/' 'epoch is not an integer from 1 to'
sed 's/"train_images": 1438/"train_images": 1500/; /"digest"/d; s/\("model_digest".*\),$/\1/' middle/checkpoints/step-00000050/state.json >state && cp state middle/checkpoints/step-00000050/state.json
refused 2 'data: the run of middle/checkpoints/step-00000050 had 1500 training images, and this one has 1438' "$TUTTI" train $mlp --max-steps 50 --resume middle
# A file of another optimizer's state, beside a state.json of a version that does not name its files.
train adam $mlp --optimizer adam --lr 0.002 --eval-every 0
cp -r whole mixed
cp adam/checkpoints/latest/optimizer.safetensors mixed/checkpoints/step-00000135/
sed -i '/"digest"/d; /"files": {/,/}/d; s/\("model_digest".*\),$/\1/' mixed/checkpoints/step-00000135/state.json
for ranks in 1 2; do
    refused 1 'optimizer.safetensors is of an optimizer with exp_avg exp_avg_sq for each parameter, and this one, sgd, has momentum_buffer' \
        "$TUTTI" train -n $ranks $mlp --run-dir new --resume mixed
done
# A checkpoint copied out of its run starts a new run, in the default folder: nothing is written next to it.
mkdir -p copied/here
cp -r whole/checkpoints/step-00000135 copied/here/
(cd copied/here && timeout 180 "$TUTTI" train $mlp --resume step-00000135 >../out) || { cat copied/out; fail "a copied checkpoint"; }
[ "$(ls -A copied copied/here | xargs)" = "copied: here out copied/here: runs step-00000135" ] || { ls -A copied copied/here; fail "written beside a copied checkpoint"; }

# From an earlier checkpoint, into the same folder: later data are removed. From a run folder: its latest.
train back $mlp --checkpoint-every 20 --keep-checkpoints 0
train back $mlp --checkpoint-every 20 --keep-checkpoints 0 --resume back/checkpoints/step-00000040
same back whole
timeout 180 "$TUTTI" train $mlp --resume back >out || fail "a run folder is not accepted as a path"
grep -q 'back is complete' out || { cat out; fail "run_dir is the folder of the checkpoint"; }

# Keys that would change the result are rejected by name; others may differ.
for key in "model linear" "batch-size 16" "seed 1" "lr 0.5" "optimizer adam --lr 0.02" "no-augment" "epochs 4" "grad-accumulation 2"; do
    name=${key#no-} && name=${name%% *}
    refused 2 "${name//-/_}: the run of back/checkpoints/" "$TUTTI" train $mlp --${key} --run-dir back --resume auto
done
refused 2 "seed: the run of back/checkpoints/step-00000135 has 0, and this one 1, which would change" "$TUTTI" train $mlp --seed 1 --run-dir back --resume auto
refused 2 "batch_size, lr, seed: the run of back/checkpoints/step-00000135 has batch_size 32, lr 0.02, seed 0, and this one batch_size 16, lr 0.5, seed 1, which would change the result; resume with the same values" \
    "$TUTTI" train $mlp --seed 1 --lr 0.5 --batch-size 16 --run-dir back --resume auto
refused 2 "batch_size, optimizer, lr, augment, grad_accumulation and 1 more: the run of back" "$TUTTI" train $mlp --seed 1 --lr 0.5 --batch-size 16 --no-augment --optimizer adam --grad-accumulation 2 --run-dir back --resume auto
train free $mlp --log-every 3 --workers 0 --zero 1 --eval-every 2 --resume back/checkpoints/step-00000060
same free whole
constant="--model mlp --threads 1 --schedule constant" # the warm-up's default is an eighth of epochs
train more $constant --epochs 2
refused 2 'warmup_epochs: the run of more/checkpoints/' "$TUTTI" train $constant --epochs 3 --warmup-epochs 3 --run-dir more --resume auto
train more $constant --epochs 3 --resume auto
train at_once $constant --epochs 3 --warmup-epochs 0.25
same more at_once

# A new run in another's folder moves that aside, and reports it; the old run can still be resumed.
train back $mlp --max-steps 3
grep -q 'run folder back (its earlier run is now in back/earlier-1)' back.out || { cat back.out; fail "the earlier run is not mentioned"; }
[ "$(ls back/checkpoints | tr '\n' ' ')" = "latest step-00000003 " ] || fail "checkpoints of another run stayed"
same back/earlier-1 whole
train back/earlier-1 $mlp --resume auto
grep -q 'back/earlier-1 is complete' back/earlier-1.out || fail "the folder that was moved aside is incomplete"
train back $mlp --max-steps 4
[ "$(field back/earlier-2/summary.json steps)" = 3 ] || fail "the second folder was not moved aside"
"$TUTTI" train --run-dir failed $mlp --lr 1000 --weight-decay 1000 >out 2>&1 && fail "it did not diverge"
rm -rf failed/checkpoints # not worth keeping
train failed $mlp --max-steps 1
[ ! -e failed/earlier-1 ] || fail "a run without weights was kept"

# A job restarted by its launcher or Slurm resumes in its own folder; a new job starts from the beginning.
first() { # VARIABLE=VALUE...: stopped after its first epoch, by a kill
    mkfifo stop
    env "$@" "$TUTTI" train $long --checkpoint-background false >stop 2>stop.err &
    pid=$!
    while read -r line; do
        case $line in *"step 50/"*) kill -KILL $pid && break ;; esac
    done <stop
    wait $pid || true
    rm stop
}
first TORCHELASTIC_RUN_ID=job/7 TORCHELASTIC_RESTART_COUNT=0
[ "$(ls runs)" = digits-mlp-job_7 ] || fail "the folder of job/7 is $(ls runs)"
TORCHELASTIC_RUN_ID=job/7 TORCHELASTIC_RESTART_COUNT=1 "$TUTTI" train $long >out 2>&1 || fail "a second start: $(cat out)"
grep -q 'resumed from runs/digits-mlp-job_7/checkpoints/step-0000[0-9]*' out || { cat out; fail "a restart begins anew"; }
same runs/digits-mlp-job_7 long
TORCHELASTIC_RUN_ID=job/7 "$TUTTI" train $mlp --max-steps 1 >out 2>&1 || fail "another job with this id: $(cat out)"
grep -q 'run folder runs/digits-mlp-job_7-2$' out || { cat out; fail "another job writes over the first"; }
TUTTI_ATTEMPT=2 TORCHELASTIC_RUN_ID=other "$TUTTI" train $mlp --max-steps 1 --run-dir more >out 2>&1 || fail "$(cat out)"
grep -q 'its earlier run is now in more/earlier-1' out || { cat out; fail "another job's run was taken for its own"; }
rm -r runs
first SLURM_JOB_ID=12
mv runs/* requeued
SLURM_JOB_ID=12 SLURM_RESTART_COUNT=1 "$TUTTI" train $long --run-dir requeued >out 2>&1 || fail "requeued: $(cat out)"
grep -q 'resumed from requeued/checkpoints/step-0000[0-9]*' out || { cat out; fail "a requeued job begins anew"; }
same requeued long
echo "resumed where it should be"
