# bench.sh -- `tutti bench`: every collective is measured and correct, the table and its JSON agree, wrong flags are reported.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT

field() { sed -n "/\"bytes\": $1,/s/.*\"$2\": \"\{0,1\}\([^,\"}]*\).*/\1/p" "$work/rows.json"; } # BYTES KEY
# Within 5 %: microseconds have three decimals, and a group of one takes a few hundredths.
near() { awk "BEGIN { d = $2 - $3; e = 1e-3 + 0.05 * $3; exit !(d < e && -d < e) }" || equal "$@"; }

# COLLECTIVE RANKS busbw/algbw FLAGS...
measure() {
    local op=$1 n=$2 factor=$3 bytes
    shift 3
    run 0 "$TUTTI" bench "$op" -n "$n" --sizes 8,48,12K --iterations 4 --json "$work/rows.json" "$@"
    equal "rows of $op" "$(grep -vc '^#' "$work/out")" 3
    equal "wrong of $op $*" "$(awk '!/^#/ { n += $10 } END { print n }' "$work/out")" 0
    for bytes in $(awk '!/^#/ { print $1 }' "$work/out"); do
        equal "op" "$(field "$bytes" op)" "$op"
        equal "ranks" "$(field "$bytes" ranks)" "$n"
        equal "iterations" "$(field "$bytes" iterations)" 4
        equal "wrong" "$(field "$bytes" wrong)" 0
        near "busbw of $op" "$(field "$bytes" busbw_gbps)" \
            "$(awk "BEGIN { print $(field "$bytes" algbw_gbps) * $factor }")"
        # a group of one may take less than a tick of the clock
        awk "BEGIN { exit !($(field "$bytes" median_us) < 0.02) }" ||
            near "algbw of $op" "$(field "$bytes" algbw_gbps)" \
                "$(awk "BEGIN { print $bytes / $(field "$bytes" median_us) / 1000 }")"
    done
}
measure all_reduce 2 1
measure all_reduce 3 4/3 --op max --dtype i8
measure all_gather 3 2/3 --memory plain
measure reduce_scatter 2 1/2 --op avg --dtype bf16
measure reduce_scatter 3 2/3 --op product --dtype f16 --memory plain
measure broadcast 3 1 --dtype i64
TUTTI_TRANSPORT=tcp measure all_reduce 2 1 --warmup 1
measure all_reduce 1 0
measure reduce 3 1 --root 2 --op bxor --dtype i32
equal "root" "$(field 8 root)" 2
equal "redop" "$(field 8 redop)" bxor
measure scatter 2 1/2 --root 1 --memory plain
measure gather 3 2/3 --dtype i8
measure all_gather_v 3 2/3 --memory plain
measure all_to_all 2 1/2 --in-flight 4
measure all_to_all_v 3 2/3 --dtype f64
TUTTI_TRANSPORT=tcp measure all_to_all_v 3 2/3
measure send_recv 2 1 --in-flight 3
TUTTI_TRANSPORT=tcp measure send_recv 3 1 --memory plain
measure send_recv 1 1
measure ping_pong 2 1
measure ping_pong 5 1 --memory plain --dtype i8 # two pairs, and one idle
TUTTI_TRANSPORT=tcp measure ping_pong 2 1 --sizes 8,48,300K --warmup 1
TUTTI_TRANSPORT=tcp measure reduce 2 1 --op band --dtype u8 --in-flight 3
# Algorithms: a row for each, the one that is chosen and why, and a file that chooses.
TUTTI_TRANSPORT=tcp run 0 "$TUTTI" bench all_reduce -n 3 --sizes 8,12K --iterations 3 --algorithms --json "$work/rows.json"
equal "rows" "$(grep -vc '^#' "$work/out")" 10
equal "wrong" "$(awk '!/^#/ { n += $10 } END { print n }' "$work/out")" 0
equal "algorithms" "$(awk '$1 == 8 { print $12 }' "$work/out" | paste -sd ' ')" "direct recursive_doubling rabenseifner ring tree"
equal "estimates" "$(awk '!/^#/ && $11 <= 0' "$work/out" | wc -l)" 0
equal "in the JSON" "$(grep -c '"algorithm": "ring"' "$work/rows.json")" 2
TUTTI_TRANSPORT=tcp run 0 "$TUTTI" bench broadcast -n 3 --sizes 8 --explain
out_has 'broadcast, 3 ranks, 8 B: direct, for few ranks'
TUTTI_TRANSPORT=tcp TUTTI_ALGORITHM=broadcast:chain,barrier:dissemination run 0 "$TUTTI" bench broadcast -n 3 --sizes 8 --explain
out_has 'broadcast, 3 ranks, 8 B: chain, as TUTTI_ALGORITHM says'
TUTTI_TRANSPORT=tcp run 0 "$TUTTI" bench -n 3 --tune "$work/tuner" --sizes 8,12K --iterations 2
equal "what sums" "$(awk '/^(all_)?reduce/ { print $4 }' "$work/tuner" | sort -u)" direct
equal "operations" "$(grep -cE '^(all_reduce|reduce|reduce_scatter|broadcast|scatter|gather|all_gather|all_to_all|barrier) 3 ' "$work/tuner")" \
    "$(grep -vcE '^(#|links )' "$work/tuner")"
equal "links" "$(grep -cE '^links 0( [0-9]+){4}$' "$work/tuner")" 1
run 0 "$TUTTI" simulate --ranks 4 --size 4K --links "$work/tuner"
out_has '^result: status=ok'
TUTTI_TRANSPORT=tcp run 1 "$TUTTI" bench all_reduce -n 2 --tune "$work/none/tuner" --sizes 8
err_has '^tutti bench: cannot write .*none/tuner'
equal "rows before the file was tried" "$(grep -c 'all_reduce' "$work/out")" 0
TUTTI_TUNER_FILE="$work" run 2 "$TUTTI" bench broadcast -n 2 --sizes 8
err_has 'TUTTI_TUNER_FILE: .*: Is a directory'
echo 'broadcast 3 100 tree' >"$work/tuner"
TUTTI_TRANSPORT=tcp TUTTI_TUNER_FILE="$work/tuner" run 0 "$TUTTI" bench broadcast -n 3 --sizes 8 --explain
out_has 'tree, as TUTTI_TUNER_FILE says'
echo 'broadcast 3 100 trees' >>"$work/tuner"
TUTTI_TUNER_FILE="$work/tuner" run 2 "$TUTTI" bench broadcast -n 2 --sizes 8
err_has 'tuner:2: broadcast has no algorithm "trees", but: direct, binomial, chain, tree, scatter_all_gather'
echo 'broadcast three' >"$work/tuner"
TUTTI_TUNER_FILE="$work/tuner" run 2 "$TUTTI" bench broadcast -n 2 --sizes 8
err_has 'tuner:1: "broadcast three", expected OPERATION RANKS BYTES ALGORITHM'
TUTTI_TUNER_FILE="$work/none" run 2 "$TUTTI" bench broadcast -n 2 --sizes 8
err_has 'TUTTI_TUNER_FILE: .*none: No such file'
TUTTI_ALGORITHM=all_reduce:rings run 2 "$TUTTI" bench all_reduce -n 2 --sizes 8
err_has 'all_reduce has no algorithm "rings", but: direct, recursive_doubling, rabenseifner, ring, tree'
TUTTI_ALGORITHM=allreduce:ring run 2 "$TUTTI" bench all_reduce -n 2 --sizes 8
err_has '"allreduce" is no operation with algorithms; these are: all_reduce, reduce, reduce_scatter,'
TUTTI_ALGORITHM=ring run 2 "$TUTTI" bench all_reduce -n 2 --sizes 8
err_has 'expected OPERATION:ALGORITHM'
run 3 "$TUTTI" run -n 2 bash -c "[ \$RANK = 1 ] && export TUTTI_ALGORITHM=all_reduce:ring; exec '$TUTTI' bench all_reduce --sizes 8"
err_has 'rank [01] has another TUTTI_ALGORITHM, TUTTI_TUNER_FILE or TUTTI_TOPOLOGY than rank'
run 2 "$TUTTI" bench all_reduce -n 2 --sizes 8 --algorithms
err_has 'by shared memory, has no choice of algorithms'
run 2 "$TUTTI" bench ping_pong -n 2 --explain
err_has 'are for collectives, not for ping_pong'
run 0 "$TUTTI" bench barrier -n 2 --iterations 3 --json "$work/rows.json"
out_has '^ +0 +0 +f32 +none +-1 .* 0$'
# By default a size takes about a second also where ranks wait for cores, and a terminal shows how far it is.
if script -qec true /dev/null >/dev/null 2>&1 </dev/null; then
    run 0 env TUTTI_COLOR=never TERM=xterm script -qec "'$TUTTI' bench all_reduce -n 64 --sizes 8 --json '$work/rows.json'" /dev/null
    out_has 'all_reduce, 8 B \[=* *\] .* [0-9]+/[0-9]+ calls'
else
    run 0 "$TUTTI" bench all_reduce -n 64 --sizes 8 --json "$work/rows.json"
fi
awk "BEGIN { exit !($(field 8 iterations) * $(field 8 median_us) < 3e6) }" || fail "a size takes longer: $(cat "$work/rows.json")"
run 0 "$TUTTI" bench all_gather -n 2 --sizes 8-64,1K --iterations 1
equal "sizes of a range" "$(awk '!/^#/ { printf "%s ", $1 }' "$work/out")" "8 16 32 64 1024 "

# The loader: a row for each number of workers, no errors, consistent rates; the rates of two ranks are added.
run 0 "$TUTTI" bench loader --workers 0,1,2 --seconds 0.1 --batch-size 8 --json "$work/rows.json"
equal "rows of loader" "$(grep -vc '^#' "$work/out")" 3
equal "wrong of loader" "$(awk '!/^#/ { n += $9 } END { print n }' "$work/out")" 0
equal "op, ranks, bytes" "$(grep -c '"op": "loader", "bytes": 2048, .*"ranks": 1, .*"data": "digits", "split": "train"' "$work/rows.json")" 3
sed -n 's/.*"algbw_gbps": \([0-9.]*\).*"workers": \([0-9]\).*"images_per_s": \([0-9.]*\), "mb_per_s": \([0-9.]*\).*/\1 \2 \3 \4/p' \
    "$work/rows.json" >"$work/rates"
equal "workers" "$(awk '{ printf "%s ", $2 }' "$work/rates")" "0 1 2 "
awk '{ d = $3 * 256 / 1e6 / $4 - 1; e = $4 / 1000 / ($1 + 1e-9) - 1; if (d * d > 1e-4 || e * e > 1e-4 || $3 <= 0) exit 1 }' "$work/rates" ||
    fail "rates of loader: $(cat "$work/rates")"
run 0 "$TUTTI" bench loader -n 2 --seconds 0.1 --augment off --data synthetic --prefetch 1 --split test
out_has '^# loader, synthetic, test: 10000 images of 3x32x32, 2 ranks, augment off'
run 0 "$TUTTI" bench loader --seconds 0.1 --data shakespeare
out_has '^# loader, shakespeare, train: 15685 .* of 64.*, 1 rank, augment off'

# A training step: its parts are no longer than the whole, replicas stay equal, ZeRO and bucket sizes change no bit.
step() { # RANKS FLAGS...
    local n=$1
    shift
    run 0 "$TUTTI" bench step -n "$n" --model mlp --batch-size 16 --threads 1 --iterations 4 --warmup 1 --json "$work/rows.json" "$@"
    grep -E '^ +[0-9]' "$work/out" >"$work/row"
    equal "rows of step" "$(wc -l <"$work/row")" 1
    equal "wrong of step" "$(awk '{ print $NF }' "$work/row")" 0
    awk '$5 < 0 || $6 <= 0 || $7 <= 0 || $10 <= 0 || $5 + $6 + $7 + $10 > $1 * 1.5 || $12 <= 0 || $1 > $2 { exit 1 }' "$work/row" ||
        fail "parts of a step: $(cat "$work/out")"
}
value() { sed -n "s/, \"ops\": \[.*//; s/.*\"$1\": \"\{0,1\}\([^,\"}]*\).*/\1/p" "$work/rows.json"; } # KEY
step 2
digest=$(value parameter_digest)
equal "bytes" "$(value bytes)" "$(((3072 * 256 + 256 + 256 * 10 + 10) * 4))"
[ "$(value optimizer_bytes)" -ge "$(value bytes)" ] || fail "optimizer's bytes: $(value optimizer_bytes)" # momentum
equal "op ranks dtype iterations" "$(value op) $(value ranks) $(value dtype) $(value iterations)" "step 2 f32 4"
near "busbw of step" "$(value busbw_gbps)" "$(value algbw_gbps)" # 2(n-1)/n is 1
near "algbw of step" "$(value algbw_gbps)" "$(awk "BEGIN { print $(value bytes) / $(value median_us) / 1000 }")"
near "images/s of step" "$(value images_per_s)" "$(awk "BEGIN { print 32e6 / $(value median_us) }")"
near "efficiency" "$(value efficiency)" "$(awk "BEGIN { print $(value images_per_s) / $(value images_per_s_alone) / 2 }")"
[ "$(value buckets)" -ge 2 ] || fail "$(value buckets) buckets"
step 2 --zero 1 --bucket-mb 0.1
equal "digest with zero" "$(value parameter_digest)" "$digest"
[ "$(value optimizer_bytes)" -lt "$((3072 * 256 * 3))" ] || fail "optimizer's bytes with zero: $(value optimizer_bytes)"
TUTTI_EMULATE_HALF=1 step 1 --optimizer adamw --amp bf16
equal "alone" "$(value efficiency) $(value amp) $(value optimizer)" "1.000000 bf16 adamw"
[ "$(value parameter_digest)" != "$digest" ] || fail "adamw in bf16 gives the digest of sgd"

# Its operations: in both tables and the JSON, with exact FLOPs, and together they take nearly all of a step. A convolution of
# 64 channels of 32x32 to 128 of 16x16, 3x3, 4 images: 2 x 4 x 128 x 16 x 16 x 64 x 3 x 3 FLOPs in each direction.
op() { # NAME LAYER KEY
    grep -o '{"name": "[^}]*}' "$work/rows.json" |
        sed -n "s/.*\"name\": \"$1\", \"layer\": \"$2\",.*\"$3\": \"\{0,1\}\([^,\"}]*\).*/\1/p"
}
sums() { # the operations' sum and the step, in ms, in $work/sum: false if they take less of it than nearly all
    grep -o '{"name": "[^}]*}' "$work/rows.json" | sed 's/.*"ms": \([0-9.]*\).*/\1/' |
        awk -v step="$(value mean_step_ms)" '{ sum += $1 } END { print sum, "of", step; exit !(sum > 0.8 * step) }' >"$work/sum"
}
for _ in 1 2 3 4 5 6 7 8; do # between two operations another process may have the core
    step 1 --model mini_resnet --batch-size 4 --layers on
    sums && break
done
sums || fail "operations take $(cat "$work/sum") ms"
awk '{ exit !($1 <= $3) }' "$work/sum" || fail "operations take $(cat "$work/sum") ms"
for direction in forward weights data; do
    equal "FLOPs of conv2d $direction" "$(op "conv2d $direction" layers.2.c1 flops)" 150994944
    near "GFLOP/s of conv2d $direction" "$(op "conv2d $direction" layers.2.c1 gflops)" \
        "$(awk "BEGIN { print 150994944e-6 / $(op "conv2d $direction" layers.2.c1 ms) }")"
    out_has "^layers.2.c1 +conv2d $direction +\\[4,64,32,32\\] \\* \\[128,64,3,3\\] -> \\[4,128,16,16\\] +[0-9.]+ +[0-9.]+ % +[0-9.]+ +[0-9.]+\$"
    out_has "^conv2d $direction +1[45]\.0 "
done
equal "calls" "$(op "conv2d forward" layers.2.c1 calls)" 1.000
equal "data of the first layer" "$(op "conv2d data" stem.0 ms)" "" # images need no gradient
# with oneDNN the result is left to its readers: batch norm reads x alone
stored=2
! "$TUTTI" -V | grep -qw onednn || stored=1
equal "bytes of batch norm" "$(op "batch_norm2d forward" layers.3.b1 bytes)" "$(((stored * 4 * 128 * 16 * 16 + 2 * 128) * 4))"
equal "bytes of sgd with momentum" "$(op "sgd update" "" bytes)" "$(($(op "sgd update" "" shape | tr -d '[]') * 20))"
out_has '^batch_norm2d backward +15\.0 +[0-9.]+ +[0-9.]+ % +[0-9.]+$'
out_has '^exposed communication '
[ -z "$(value peak_isa)" ] || awk "BEGIN { exit !($(value peak_gflops) > 0.1 && $(value copy_gbps) > 0.1) }" || fail "peak: $(value peak_gflops)"

# Where and how it was measured; to standard output, with the table on standard error.
run 0 "$TUTTI" bench all_reduce -n 2 --sizes 8,1K --iterations 2 --memory plain --json -
equal "rows of -" "$(grep -c '"ranks": 2, "transport": "shared memory", "memory": "plain", "backend": "native", "iterations": 2, ' "$work/out")" 2
equal "brackets of -" "$(head -c 1 "$work/out")$(tail -n 1 "$work/out")" "[]"
err_has '^# all_reduce, 2 ranks'
[ ! -e - ] || fail "there is a file called -"
TUTTI_TRANSPORT=tcp run 0 "$TUTTI" bench barrier -n 2 --iterations 2 --json -
out_has '"transport": "tcp", "memory": "group", .*"algbw_gbps": [0-9]+\.[0-9]+, "busbw_gbps": [0-9]+\.[0-9]+, "wrong": 0\}'

# All sizes by default; the same as a rank of a launcher; hyphens too.
run 0 "$TUTTI" run -n 2 "$TUTTI" bench all-reduce --iterations 1
out_has '^\[0\] +26214400 +6553600 +f32 +sum +-1 .* 0$'
out_has '2 ranks \(shared memory\), group memory'
run 0 "$TUTTI" bench all_gather --sizes 5 --dtype f64 # alone, less than an element
out_has '^ +8 +1 +f64 +none'

# Invalid requests are rejected before anything starts, with what was expected.
run 2 "$TUTTI" bench
err_has 'what to measure\?'
run 2 "$TUTTI" bench all_reduc
err_has 'did you mean "all_reduce"'
run 2 "$TUTTI" bench stp
err_has 'did you mean "step"'
run 2 "$TUTTI" bench step --model mini-resnett
err_has 'mini_resnet'
run 2 "$TUTTI" bench step --amp fp8
err_has 'amp: "fp8" is not one of its values; expected off, bf16 or fp16'
run 2 "$TUTTI" bench step --workers 2
err_has '--workers is for loader, not for step'
run 2 "$TUTTI" bench step --dtype f16
err_has '--dtype is for what ranks send, not for step'
run 2 "$TUTTI" bench step --bucketmb 4
err_has 'did you mean "--bucket-mb"'
run 2 "$TUTTI" bench step --batch-size 60000
err_has 'the synthetic data set has 50000 images for 1 rank'
run 2 "$TUTTI" bench loader --sizes 4
err_has '--sizes is for what ranks send, not for loader'
run 2 "$TUTTI" bench all_reduce --workers 4
err_has '--workers is for loader, not for all_reduce'
run 2 "$TUTTI" bench loader --workers 1,x
err_has 'workers is "1,x", expected up to 16 numbers from 0 to 256'
run 2 "$TUTTI" bench loader --seconds 0
err_has 'seconds is "0", expected above 0'
run 2 "$TUTTI" bench loader --data cifar
err_has 'data: "cifar" is not one of its values; expected digits, cifar10'
run 1 "$TUTTI" bench loader --data cifar10 --data-dir "$work/nowhere"
err_has 'nowhere'
run 2 "$TUTTI" bench all_reduce --size 4
err_has 'no flag "--size" \(did you mean "--sizes"\?\); see tutti bench --help'
run 2 "$TUTTI" bench all_reduce --sizes 4,4X
err_has '"4X" is not a size'
run 2 "$TUTTI" bench all_reduce --sizes 4,
err_has 'is not a size'
run 2 "$TUTTI" bench all_reduce --sizes 9000000G
err_has 'is not a size'
run 2 "$TUTTI" bench all_reduce --sizes
err_has 'sizes needs a value'
run 2 "$TUTTI" bench all_reduce -n 0
err_has '-n is "0", expected a number of workers from 1 to 65536'
run 2 "$TUTTI" bench all_reduce --dtype f8
err_has 'expected f32, f64'
run 2 "$TUTTI" bench all_reduce --op avg --dtype i32
err_has 'not i32'
run 2 "$TUTTI" bench broadcast --op sum
err_has 'broadcast reduces nothing'
run 2 "$TUTTI" bench all_to_all --op sum
err_has 'all_to_all reduces nothing'
run 2 "$TUTTI" bench reduce --op bor
err_has 'op bor is for i8 to i64 and u8 to u64, not f32'
run 2 "$TUTTI" bench all_reduce --root 0
err_has 'all_reduce has none'
run 2 "$TUTTI" bench gather -n 2 --root 2
err_has 'root is "2", expected a number from 0 to 1'
run 2 "$TUTTI" bench gather --root 1 # alone
err_has 'root is 1, expected a rank from 0 to 0'
run 2 "$TUTTI" bench barrier --sizes 4
err_has 'barrier moves nothing'
run 2 "$TUTTI" bench all_gather --sizes 8-4
err_has '8-4 ends below where it begins'
run 2 "$TUTTI" bench all_to_al
err_has 'did you mean "all_to_all"'
run 2 "$TUTTI" bench all_reduce --inflight 4
err_has 'did you mean "--in-flight"'
run 2 "$TUTTI" bench sendrecv # as nccl-tests says
err_has 'did you mean "send_recv"'
run 2 "$TUTTI" bench ping_pong # alone
err_has 'ping_pong is between two ranks, but there is one; try -n 2'
run 2 "$TUTTI" bench ping_pong -n 2 --in-flight 2
err_has 'in ping_pong one waits for another; see send_recv'
run 2 "$TUTTI" bench ping_pong -n 2 --op sum
err_has 'ping_pong reduces nothing'
run 2 "$TUTTI" bench all_reduce broadcast
err_has 'measures one thing'
run 2 "$TUTTI" run -n 3 "$TUTTI" bench all_reduce --dtype f8
equal "lines that say so" "$(grep -c '^\[[0-9]\] tutti bench: ' "$work/err")" 1
run 4 "$TUTTI" bench all_reduce -n 2 --sizes 1024G # more than this machine has, one hopes
err_has '(cannot share|no memory for) [0-9]+ bytes'
run 1 "$TUTTI" bench all_reduce --sizes 4 --json "$work/no/such/folder.json"
err_has 'folder.json'
run 1 "$TUTTI" bench all_reduce -n 2 --sizes 4 --json "$work/no/such/folder.json" # no rank starts
equal "lines" "$(cat "$work/err")" "tutti bench: cannot write $work/no/such/folder.json: there is no folder $work/no/such (mkdir -p makes it)"
echo before >"$work/kept.json" # and a bench that fails leaves its file as it was
run 2 "$TUTTI" bench loader --data folder --json "$work/kept.json"
err_has 'data_dir: data=folder needs files; give their folder with --data-dir FOLDER'
run 4 "$TUTTI" bench all_reduce -n 2 --sizes 1024G --json "$work/kept.json"
equal "its file" "$(cat "$work/kept.json")" before
finish
