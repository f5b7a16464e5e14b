# --profile: a bucket's all_reduce begins before backward ends, in the first step too.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

TUTTI_LOG=ddp:info TUTTI_CHECK_REPLICAS=1 train run -n 2 --max-steps 3 --profile 1:3 --eval-every 0 --batch-size 16
grep -q "info ddp: 47 gradients in 3 buckets, averaged over 2 ranks by all_reduce" run.out || fail "no table of buckets"
grep -q "info ddp: bucket 0: .* gradients: fc.* layers.5" run.out || fail "the table does not say what travels first"
for rank in 0 1; do
    file=run/trace/rank-$rank.json
    [ -s "$file" ] || fail "no $file"
    grep -q '"name":"forward"' "$file" && grep -q '"name":"optimizer"' "$file" || fail "spans are missing in $file"
    for part in '"world_size":2,' '"hook":"all_reduce"' '"mean":{"forward_ms":' '"parameters":["fc.weight","fc.bias","layers.5' \
        '"name":"exposed communication"'; do
        grep -qF "$part" "$file" || fail "no $part in $file"
    done
    for step in 1 2 3; do
        # Times are in microseconds with three decimals; awk's doubles hold them.
        awk -v step=$step '
            function number(key,  s) { s = $0; sub(".*\"" key "\":", "", s); return s + 0 }
            /"name":"backward"/ && number("step") == step { begin = number("ts"); end = begin + number("dur") }
            /"name":"all_reduce"/ { starts[n++] = number("ts") }
            END {
                for (i = 0; i < n; i++) if (starts[i] > begin && starts[i] < end) { early++ }
                printf "step %d: backward takes %.0f us, %d all_reduces begin in it\n", step, end - begin, early
                exit !(end > begin && early > 0)
            }' "$file" || fail "no all_reduce begins during backward of step $step on rank $rank"
    done
done

# Operations: their layers and shapes, exact FLOPs (2 x 16 x 128 x 4 x 4 x 64 x 3 x 3), rates that agree with their times, inside the
# phases of the step.
for pass in forward weights data; do
    span=$(grep -F "\"name\":\"conv2d $pass\",\"cat\":\"op\"" run/trace/rank-0.json | grep -F '"layer":"layers.2.c1"')
    [ "$(grep -c . <<<"$span")" = 3 ] || fail "conv2d $pass of layers.2.c1 in 3 steps: $span"
    [ "$(grep -cF '"shape":"[16,64,8,8] * [128,64,3,3] -> [16,128,4,4]","flops":37748736,' <<<"$span")" = 3 ] || fail "shape and FLOPs: $span"
done
awk 'function number(key,  s) { s = $0; sub(".*\"" key "\":", "", s); return s + 0 }
    /"cat":"op"/ && number("dur") > 10 {
        if (number("flops") == 0 && number("bytes") > 0 && (number("gbps") * number("dur") / (number("bytes") * 1e-3) - 1) ^ 2 > 1e-3) exit failed = 1
        if (number("flops") > 0 && (number("gflops") * number("dur") / (number("flops") * 1e-3) - 1) ^ 2 > 1e-3) exit failed = 1
        operations += number("dur")
    }
    /"name":"(forward|backward|optimizer)","cat":"step"/ { phases += number("dur") }
    END {
        printf "operations %.0f us, phases %.0f us\n", operations, phases
        exit failed || !(operations > 0.3 * phases && operations <= phases)
    }' run/trace/rank-0.json || fail "operations of the trace"

# A trace that cannot be written costs no training.
mkdir -p kept
touch kept/trace # in place of the folder
train kept --model linear --data digits --max-steps 4 --profile 2:3 --eval-every 0
grep -q "warn.* profile: cannot write kept/trace/rank-0.json.*; training continues without its trace" kept.out || { cat kept.out; fail "the trace is not mentioned"; }
[ "$(field kept/summary.json status)" = completed ] || fail "a trace cost the run"
