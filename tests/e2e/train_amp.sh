# Mixed precision: digits are learned in bf16 and fp16, steps that overflow are skipped, and if the kernels have no 16-bit
# arithmetic the run is refused.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

accuracy_at_least() { # RUN FRACTION
    awk -v a="$(field "$1/summary.json" val_accuracy)" -v least="$2" 'BEGIN { exit !(a >= least && a <= 1) }' ||
        { cat "$1.out"; fail "$1: test accuracy $(field "$1/summary.json" val_accuracy), expected at least $2"; }
}
scales() { sed -n 's/.*"loss_scale": \([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }

# oneDNN limited to a CPU without AVX-512; emulating kernels are reported.
short="--model mlp --max-steps 3 --threads 1 --eval-every 0"
if "$TUTTI" train --run-dir which --max-steps 1 --model mlp --eval-every 0 | grep -q ' onednn '; then
    for amp in bf16 fp16; do
        refused 1 "amp $amp: kernels onednn" env ONEDNN_MAX_CPU_ISA=AVX2 DNNL_MAX_CPU_ISA=AVX2 \
            "$TUTTI" train -n 2 $short --run-dir refused --amp $amp
        grep -q 'compute in F32 (amp off), or set TUTTI_EMULATE_HALF=1' refused.out || fail "no remedy: $(cat refused.out)"
        [ "$(grep -c 'amp' refused.out)" = 1 ] || fail "the message is printed more than once: $(cat refused.out)"
        [ ! -e refused/config.json ] || fail "a refused run left its configuration"
    done
fi
TUTTI_KERNELS=reference train emulated $short --amp fp16
grep -q 'amp fp16: emulated, slower than amp off' emulated.out || fail "does not say how it computes: $(cat emulated.out)"

# fp16, with gradients sent in fp16 too: times 65536 they overflow at first. All ranks skip the same steps, the scale
# decreases until it fits, and accumulation and clipping use unscaled gradients.
export TUTTI_EMULATE_HALF=1
mlp="-n 2 --threads 1 --model mlp --epochs 2 --lr 0.02 --batch-size 1 --log-every 1 --comm-hook fp16
    --grad-accumulation 2 --clip-grad-norm 5 --label-smoothing 0.05"
train fp16 $mlp --amp fp16
train plain $mlp --amp off
accuracy_at_least plain 0.93
accuracy_at_least fp16 0.93
skipped=$(field fp16/summary.json skipped_steps)
[ "$skipped" -ge 1 ] || fail "no step was left out: $(scales fp16 | head -3)"
[ "$(field fp16/summary.json steps)" = "$(field plain/summary.json steps)" ] || fail "steps"
[ "$(field plain/summary.json skipped_steps)" = 0 ] || fail "steps were left out without a scaler"
scales fp16 | awk -v skipped="$skipped" '
    { if ($1 > last && NR > 1) up = 1; last = $1 } END { exit !(!up && last == 65536 / 2 ^ skipped) }' ||
    fail "the scale did not halve $skipped times: $(scales fp16 | uniq | tr '\n' ' ')"
[ "$(scales plain | sort -u)" = null ] || fail "a loss scale without a scaler"

# Gradients that no scale makes finite end the run.
refused 1 'training has diverged' "$TUTTI" train --run-dir diverged $short --max-steps 60 --amp fp16 --lr 1000 \
    --schedule constant --warmup-epochs 0 --augment off --log-every 1
sed -n '$s/.*"loss": null.*"images_per_s": \([0-9.]*\).*/\1/p' diverged/metrics.jsonl | grep -q '[1-9]' ||
    fail "images whose loss is not finite are not counted: $(tail -1 diverged/metrics.jsonl)"

# bf16 on whatever this machine has, but not in oneDNN's reference code, which is 100 times slower
ONEDNN_VERBOSE=1 train traced --threads 1 --amp bf16 --max-steps 1 --eval-every 0
! grep -m 3 'exec.*convolution,ref' traced.out || fail "convolutions run in oneDNN's reference code"
train bf16 -n 2 --threads 1 --amp bf16 --epochs 3
accuracy_at_least bf16 0.93
[ "$(field bf16/summary.json skipped_steps)" = 0 ] || fail "bf16 has no scaler"
grep 'amp bf16' bf16.out
tail -1 bf16.out
