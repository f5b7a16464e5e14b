# The run folder: its contents after a run, an interrupted run, a full disk.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
mlp="--model mlp --augment off --threads 1"

# Its contents are as documented.
train run $mlp --epochs 1 --log-every 20
[ "$(ls run | tr '\n' ' ')" = "checkpoints config.json digests metrics.jsonl model.safetensors summary.json " ] || fail "files: $(ls run)"
for key in status world_size steps epochs train_loss val_loss val_accuracy images_per_s seconds parameters parameter_digest \
    gradient_bytes wire_bytes ema_digest planned_memory peak_memory best_step best_value reason time device shards samples_digest lost_workers joined_workers \
    left_workers lost_attempts taken_over_shards val_top5_accuracy val_f1 confusion; do
    grep -q "\"$key\": " run/summary.json || fail "summary.json has no $key"
done
[ "$(grep -c '": ' run/summary.json)" = 32 ] || fail "summary.json has other keys"
for key in step epoch loss lr grad_norm images_per_s time_s compute_ms communication_ms wait_ms data_ms; do
    head -1 run/metrics.jsonl | grep -q "\"$key\": " || fail "metrics.jsonl has no $key"
done
grep -q '^{"eval": {"epoch": 1, "val_loss": [0-9.e-]*, "val_accuracy": [0-9.e-]*, "val_top5_accuracy": [0-9.e-]*, "val_f1": [0-9.e-]*, "time_s": [0-9.e-]*, "step": 45}}$' run/metrics.jsonl || fail "no eval"
grep -q '"batch_size": 32' run/config.json || fail "config.json"

# Its config.json repeats the run in another folder; its weights can be initial weights.
train again --config run/config.json
same run again
before=$(find run -type f -exec md5sum {} + | sort)
timeout 180 "$TUTTI" train --config run/config.json >repeated.out 2>&1 || { cat repeated.out; fail "--config of a run folder"; }
[ "$(find run -type f -exec md5sum {} + | sort)" = "$before" ] || fail "--config run/config.json has changed run"
same run "$(sed -n 's/^run folder //p' repeated.out | tail -1)"
rm -r runs
mkdir elsewhere
cp -r run elsewhere/moved # resumes in the file's folder, not in the original one; the old value of resume does not matter
sed -i 's/"resume": "no"/"resume": "auto"/' elsewhere/moved/config.json
timeout 180 "$TUTTI" train --config elsewhere/moved/config.json --resume auto >resumed.out 2>&1 || fail "--resume auto: $(cat resumed.out)"
grep -q '^elsewhere/moved is complete' resumed.out || { cat resumed.out; fail "another run was resumed"; }
train anew --config elsewhere/moved/config.json
[ "$(field anew/summary.json steps)" = 45 ] || fail "took over the resume of the run"
# With the same number of ranks, unless one is requested.
train two -n 2 $mlp --epochs 1 --max-steps 4
refused 2 'of a run of 2 ranks; add -n 2, or -n 1' "$TUTTI" train --config two/config.json
train two-again -n 2 --config two/config.json
same two two-again
train two-by-one -n 1 --config two/config.json
grep -q 'of a run of 2 ranks' two-by-one.out || fail "the ranks are not mentioned"
train start $mlp --init run/model.safetensors --lr 0 --epochs 1 --max-steps 1 --eval-every 0
same run start
train run $mlp --epochs 1 --max-steps 1 # the same folder again
grep -q "its earlier run is now in run/earlier-1" run.out || fail "the earlier run is not mentioned"
[ "$(field run/summary.json steps)" = 1 ] || fail "the earlier run's summary"

# Killed between its last checkpoint, in the middle of an epoch, and its end: nothing is lost, nothing repeated.
train ended $mlp --epochs 2 --max-steps 60
cp -r ended cut
rm cut/summary.json
train cut $mlp --epochs 2 --max-steps 60 --resume auto
same ended cut
cmp ended/metrics.jsonl cut/metrics.jsonl || fail "metrics.jsonl of a run that had done all its steps has changed"

# The default folder.
timeout 180 "$TUTTI" train $mlp --max-steps 1 >out 2>&1 || fail "default run folder"
[[ $(ls runs) =~ ^digits-mlp-[0-9]{8}-[0-9]{6}$ ]] || fail "default run folder is $(ls runs)"

# SIGTERM: the step is finished, results are written, nothing hangs.
for n in 1 2; do
    mkfifo "pipe$n"
    timeout 180 "$TUTTI" train -n $n $mlp --run-dir "stop$n" --epochs 1000000 --log-every 1 --eval-every 0 >"pipe$n" 2>"stop$n.err" &
    pid=$!
    while read -r line; do
        case $line in epoch*) break ;; esac
    done <"pipe$n" # closes the pipe: later output is lost
    kill -TERM $pid # timeout forwards it
    wait $pid || true
    [ "$(field "stop$n/summary.json" status)" = interrupted ] || { cat "stop$n.err"; fail "status after SIGTERM, -n $n"; }
    [ -s "stop$n/model.safetensors" ] || fail "no weights after SIGTERM"
done

# Without standard streams: no file of the run takes their place.
train open $mlp --max-steps 3 --log-every 1 --eval-every 0
timeout 180 "$TUTTI" train $mlp --run-dir closed --max-steps 3 --log-every 1 --eval-every 0 <&- >&- 2>&- || fail "exit code $? without standard streams"
same open closed
[ "$(grep -c '^{"step": ' closed/metrics.jsonl)/$(grep -c '' closed/metrics.jsonl)" = 3/3 ] || { cat closed/metrics.jsonl; fail "metrics.jsonl without standard streams"; }

# A full disk, at each file; simulated by /dev/full.
for file in model.safetensors config.json summary.json; do
    mkdir full
    ln -s /dev/full "full/$file"
    refused 4 "full/$file" "$TUTTI" train -n 2 $mlp --run-dir full --max-steps 3 --log-every 1 --eval-every 0
    rm -r full
done
# Failing metrics do not end the run.
mkdir full
ln -s /dev/full full/metrics.jsonl
train full $mlp --max-steps 3 --log-every 1 --eval-every 0
[ "$(grep -c "cannot write full/metrics.jsonl.*its lines are kept" full.out)" = 1 ] || { cat full.out; fail "the warning about metrics.jsonl is not printed exactly once"; }
# A pipe without a reader is reported and does not block; nor does one in place of a file that is read.
mkdir fifo
mkfifo fifo/metrics.jsonl
refused 1 'cannot write fifo/metrics.jsonl: it is a pipe that nobody reads' "$TUTTI" train $mlp --run-dir fifo
rm fifo/metrics.jsonl
mkfifo fifo/summary.json
for resume in no auto; do
    refused 4 'cannot write fifo/summary.json: it is a pipe that nobody reads' "$TUTTI" train $mlp --run-dir fifo --max-steps 3 --resume $resume
done
echo file >file
refused 1 "file/run" "$TUTTI" train $mlp --run-dir file/run
echo "run folder is right"
