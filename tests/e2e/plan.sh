# plan.sh -- `tutti plan`: planned beside measured, layouts that fit, errors; and a run that cannot fit. The bounds are wide: what else a
# machine's libraries take is not the plan's.   timeout: 120   breadth: 240
# ALL: more layouts, each planned beside measured.   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

field() { sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},*$/\1/p" "$2" | head -n 1; }
plan() { # FILE ARGUMENTS...: the JSON of a plan that must succeed
    local file=$1
    shift
    "$TUTTI" plan --json "$file" --step-ms 10 --local-gbps 10 --local-us 10 "$@" >plan.out 2>&1 || { cat plan.out; fail "tutti plan $*"; }
}
within() { # WHAT A B FACTOR: A / B is from 1 / FACTOR to FACTOR
    awk -v a="$2" -v b="$3" -v f="$4" 'BEGIN { exit !(a > 0 && b > 0 && a <= b * f && b <= a * f) }' || fail "$1: $2 and $3"
}

# ---- Planned and measured
# A sanitizer's memory is not planned.
factor=1.4
nm -D "$TUTTI" 2>/dev/null | grep -q '__asan_init\|__tsan_init' && factor=100
keys="--model mlp --width 2048 --layers 4 --optimizer adamw --max-steps 4"
"$TUTTI" plan --model mlp --width 2048 --layers 4 --step-ms 1 >/dev/null 2>&1 || keys="--model mlp --optimizer adamw --max-steps 4"
for ranks in 1 2; do
    plan p$ranks.json --ranks $ranks $keys
    train run$ranks -n $ranks $keys
    within "planned by the run, $ranks ranks" "$(field planned_memory p$ranks.json)" "$(field planned_memory run$ranks/summary.json)" $factor
    within "measured, $ranks ranks" "$(field planned_memory p$ranks.json)" "$(field peak_memory run$ranks/summary.json)" $factor
    grep -q '^  MiB planned  *[0-9.]*$' run$ranks.out && grep -q '^  MiB at most  *[0-9.]*$' run$ranks.out || fail "no line: $(tail -n 30 run$ranks.out)"
done

# ---- Exact figures: those of tensors, and of the wire
plan z0.json --model mlp --ranks 4 --optimizer adamw
plan z1.json --model mlp --ranks 4 --optimizer adamw --zero 1
p=$(field parameters z0.json) # its number is first
[ "$(field gradients z0.json)" -ge $((4 * p)) ] || fail "gradients"
[ "$(field optimizer z0.json)" -ge $((8 * p)) ] || fail "state"
within "a share of the state" "$(($(field optimizer z1.json) * 4))" "$(field optimizer z0.json)" 1.05
grep -A 4 '"all_reduce"' z0.json | grep -q '"sent_bytes"' || fail "no all_reduce"
grep -q '"reduce_scatter"' z1.json || fail "zero 1 without reduce_scatter"
plan again.json --model mlp --ranks 4 --optimizer adamw
[ "$(field gradients again.json)" = "$(field gradients z0.json)" ] || fail "not the same twice"
plan recompute.json --model mini_resnet --batch-size 256 --recompute true
plan kept.json --model mini_resnet --batch-size 256 --recompute false
[ "$(field activations recompute.json)" -lt "$(field activations kept.json)" ] || fail "recompute saves nothing"
plan accumulate.json --model mini_resnet --batch-size 64 --grad-accumulation 4
[ "$(field activations accumulate.json)" -lt "$(field activations kept.json)" ] || fail "smaller batches save nothing"
plan shards.json --model mlp --ranks 2 --shards 4 --optimizer adamw
plan spares.json --model mlp --ranks 3,8 --shards 2 --optimizer adamw
[ "$(field ranks spares.json)" = 2 ] && [ "$(grep -c '"ranks": ' spares.json)" = 2 ] || fail "ranks that no shard is left for compute: $(cat spares.json)"
grep -q '^of 8 ranks 2 compute, one for each shard; the others are spares$' plan.out || fail "spares are not named: $(cat plan.out)"
plan large.json --model mlp --ranks 64 --ranks-per-host 8 --link-gbps 1 --link-us 10 --zero 3

# ---- What ranks have of gradients and parameters, and what they gather; layers that are divided
keys="--model gpt2 --data shakespeare --optimizer adamw"
for zero in 0 1 2 3; do plan g$zero.json $keys --ranks 4 --zero $zero --bucket-mb 0.5 --first-bucket-mb 0.5; done
p=$((4 * $(field parameters g0.json)))
[ "$(field gradients g0.json)" -ge $p ] && [ "$(field gradients g1.json)" -ge $p ] || fail "gradients of zero 0 and 1"
[ "$(field gradients g2.json)" -lt $p ] && [ "$(field gradients g3.json)" -lt $p ] || fail "zero 2 shards no gradients"
[ "$(grep '"parameters"' g3.json | sed -n '2s/[^0-9]//gp')" -lt $p ] || fail "zero 3 shards no parameters: $(cat g3.json)"
calls() { grep -A 3 "\"$1\": {" "$2" | sed -n 's/^ *"calls": \([0-9]*\),*$/\1/p' | head -n 1; }
[ "$(calls all_gather g3.json)" -gt "$(calls all_gather g2.json)" ] || fail "zero 3 gathers no more than zero 2"
plan again.json $keys --ranks 4 --zero 2 --bucket-mb 0.5 --first-bucket-mb 0.5
[ "$(field gradients again.json)" = "$(field gradients g2.json)" ] || fail "zero 2: not the same twice"
plan t2.json $keys --ranks 4 --tensor 2
[ "$(field activations t2.json)" -lt "$(field activations g0.json)" ] && [ "$(field gradients t2.json)" -lt $((p * 2 / 3)) ] || fail "tensor 2 divides nothing"
[ "$(grep -A 30 '"wire_of_tensor"' t2.json | sed -n 's/^ *"calls": \([0-9]*\),*$/\1/p' | head -n 1)" -gt 0 ] || fail "no calls of tensor"
for more in ${ALL:+"--zero 2" "--zero 3" "--tensor 2"} "--tensor 2 --zero 3"; do
    ranks=2
    [ "$more" = "--tensor 2 --zero 3" ] && ranks=4
    plan p.json --ranks $ranks $keys $more
    train run.divided -n $ranks $keys $more --max-steps 2 --eval-samples 4
    within "planned by the run, $more" "$(field planned_memory p.json)" "$(field planned_memory run.divided/summary.json)" $factor
    within "measured, $more" "$(field planned_memory p.json)" "$(field peak_memory run.divided/summary.json)" $factor
    rm -rf run.divided
done

# ---- Stages: each has its figures; messages are those of the table; what a schedule has in memory differs
stage() { sed -n '/"planned_memory_of_stages"/,/]/p' "$2" | sed -n "s/^ *\([0-9][0-9]*\),*$/\1/p" | sed -n "$(($1 + 1))p"; }
plan p1.json $keys --ranks 2 --pipeline 2 --micro-batches 6
plan p2.json $keys --ranks 2 --pipeline 2 --micro-batches 6 --pipeline-schedule gpipe
plan p4.json $keys --ranks 4 --pipeline 4 --micro-batches 6
[ "$(stage 0 p1.json)" -gt 0 ] && [ "$(stage 1 p1.json)" -gt 0 ] || fail "no stages: $(cat p1.json)"
[ "$(field activations p2.json)" -gt "$(field activations p1.json)" ] || fail "gpipe has no more in memory than 1f1b"
[ "$(calls send p1.json)" -ge 6 ] && [ "$(calls recv p1.json)" -ge 6 ] || fail "no messages: $(cat p1.json)"
[ "$(field parameters p1.json)" = "$(field parameters g0.json)" ] || fail "parameters of all stages"
awk -v b="$(field bubble_ms p1.json)" -v c="$(field compute_ms p1.json)" 'BEGIN { exit !(b / (b + c) > 0.1 && b / (b + c) < 0.3) }' || fail "a bubble of $(field bubble_ms p1.json) ms" # 1/7, of unequal stages
plan again.json $keys --ranks 4 --pipeline 4 --micro-batches 6
for i in 0 1 2 3; do within "twice, stage $i" "$(stage $i again.json)" "$(stage $i p4.json)" 1.02; done
for more in ${ALL:+"--pipeline 2" "--pipeline 2 --pipeline-schedule gpipe" "--pipeline 2 --tensor 2"} "--pipeline 2 --zero 1"; do
    ranks=2
    case "$more" in *zero* | *tensor*) ranks=4 ;; esac
    plan p.json --ranks $ranks $keys $more
    train run.divided -n $ranks $keys $more --max-steps 2 --eval-samples 4
    within "planned by the run, $more" "$(field planned_memory p.json)" "$(field planned_memory run.divided/summary.json)" $factor
    within "measured, $more" "$(field planned_memory p.json)" "$(field peak_memory run.divided/summary.json)" $factor
    rm -rf run.divided
done

# ---- Layouts that fit
"$TUTTI" plan --model mlp --ranks 4 --optimizer adamw --memory 1G --step-ms 10 --local-gbps 10 --local-us 10 >fit.out || fail "--memory"
grep -q '^layouts that fit 1024 MiB' fit.out && grep -q '^the first: tutti train -n 4 ' fit.out || { cat fit.out; fail "no layouts"; }
for zero in 0 1 2 3; do grep -q "^  zero $zero, batch_size" fit.out || fail "zero $zero does not fit: $(cat fit.out)"; done
"$TUTTI" plan $keys --ranks 2 --memory 64M --step-ms 10 --local-gbps 10 --local-us 10 --run-dir "pasted run" >fit.out || fail "--memory of gpt2"
grep -q ', tensor 2' fit.out || fail "no layout with tensor: $(cat fit.out)"
grep -q '^  zero 0, pipeline 2, batch_size' fit.out || fail "no layout with a pipeline: $(cat fit.out)"
sed -n 's/^the first: tutti//p' fit.out >pasted
[ $factor = 100 ] || sh -c "'$TUTTI' $(cat pasted) --max-steps 1 --eval-samples 4" >pasted.out 2>&1 || { cat pasted pasted.out; fail "the command line of the first layout"; }
[ $factor = 100 ] || [ -s "pasted run/summary.json" ] || fail "the command line of the first layout is another run"
"$TUTTI" plan $keys --ranks 4 --memory 64M --step-ms 10 --local-gbps 10 --local-us 10 --json fit.json >fit.out || fail "--memory of 4 ranks"
grep -q '^  zero [012], pipeline 2, tensor 2' fit.out && grep -q '^  zero [012], pipeline 2, batch_size' fit.out || fail "no layouts of two dimensions: $(cat fit.out)"
"$TUTTI" plan $keys --ranks 4 --hosts 2 --memory 1G --step-ms 10 --local-gbps 10 --local-us 10 --link-gbps 1 --link-us 10 --zero 3 --recompute --tensor=2 >fit.out || fail "--memory of 2 hosts"
command=$(tail -n 1 fit.out)
[[ "$command" = "tutti run --nnodes 2 --node-rank K --master-addr HOST -n 2 tutti train $keys "* ]] || { cat fit.out; fail "the command line of several hosts"; }
for key in zero recompute tensor; do [ "$(grep -o -e "--$key" <<<"$command" | wc -l)" = 1 ] || fail "--$key is not there once: $command"; done
"$TUTTI" plan $keys --ranks 2 --memory 64M --step-ms 10 --local-gbps 10 --local-us 10 --find-unused >fit.out && ! grep "^  zero .*pipeline" fit.out || fail "a pipeline that the keys exclude is proposed"
"$TUTTI" plan --model mlp --memory 1M --step-ms 10 >fit.out && grep -q '^no layout of 1 rank fits 1 MiB' fit.out || fail "1 MiB is enough?"

# ---- More and more ranks: laws of the links, closed forms, and what one rank computes
links() { # FILE BETWEEN: hosts whose links carry so many GB/s; all else costs nothing
    local free='"latency_us": 0, "message_us": 0, "gbps"'
    echo '{"core": {'$free': 1e6, "memory_gbps": 1e6, "reduce_gbps": 1e6}, "host": {'$free': '$2'}, "switch": {'$free': 1e6, "hosts": 1e6}}' >"$1"
}
scale() { # FILE ARGUMENTS...: the JSON of a plan of several ranks, and its lines of ranks, one a row, into FILE.rows
    local file=$1
    shift
    "$TUTTI" plan --json "$file" --step-ms 20 --links free.json "$@" >plan.out 2>&1 || { cat plan.out; fail "tutti plan $*"; }
    awk -F'[:,]' '/"scaling"/ { on = 1 } on && /"(ranks|compute_ms|stragglers_ms|exposed_ms|efficiency|sent_bytes)"/ {
        line = line " " $2 + 0; if (/sent_bytes/) { print line; line = "" } }' "$file" >"$file.rows"
}
rows() { # WHAT FILE CONDITION: of the columns ranks, compute, stragglers, exposed, efficiency, bytes and the row before in p1, p2, ...
    awk 'NR > 0 { if (!('"$3"')) { print "row", NR ":", $0; bad = 1 } for (i = 1; i <= NF; i++) p[i] = $i } END { exit bad || NR < 3 }' "$2.rows" || { cat plan.out; fail "$1"; }
}
links free.json 1e6 && links slow.json 0.05 && links faster.json 0.5
scale free --model mlp --ranks 16384 --ranks-per-host 8
rows "links that cost nothing" free '$1 == (NR == 1 ? 1 : 2 * p[1]) && $2 == 20 && $4 < 1e-2 && $5 > 0.999'
scale slow --model mlp --ranks 64 --ranks-per-host 1 --links slow.json
rows "slow links" slow '$5 <= (NR == 1 ? 1 : p[5]) && (NR == 1) == ($5 == 1) && $4 >= p[4] && $6 >= p[6] * 0.999'
scale faster --model mlp --ranks 64 --ranks-per-host 1 --links faster.json
paste slow.rows faster.rows | awk '$10 > $4 + 1e-9 { exit 1 }' || fail "faster links make it slower"
export TUTTI_ALGORITHM=all_reduce:ring
scale ring --model mlp --ranks 2,16,64 --ranks-per-host 1 --links slow.json --bucket-mb 1000 --first-bucket-mb 1000
unset TUTTI_ALGORITHM
rows "a ring of one bucket" ring "\$4 > 0.99 * 2 * (\$1 - 1) / \$1 * $(field bytes ring) / 5e4 && \$4 < 1.01 * 2 * (\$1 - 1) / \$1 * $(field bytes ring) / 5e4"
scale spread --model mlp --ranks 1,2,4096 --ranks-per-host 1 --spread 10 # of two, 1 / sqrt(pi)
rows "stragglers" spread '$1 == 1 ? $3 == 0 : $1 == 2 ? $3 > 1.128 && $3 < 1.129 : $3 > 7 && $3 < 7.5'
scale shards --model mlp --ranks 8 --shards 8 --ranks-per-host 1 --links slow.json
rows "shards" shards '$1 * $2 == 160 && (NR == 1) == ($5 == 1)'
for more in ${ALL:+"--zero 1" "--zero 2" "--zero 3"} "--tensor 2" "--pipeline 2" "--tensor 2 --zero 3"; do
    scale divided $keys --ranks 4,8,16 --ranks-per-host 4 $more
    rows "$more, links that cost nothing" divided '$4 < 1e-2'
    scale divided $keys --ranks 4,8,16 --ranks-per-host 4 $more --links slow.json
    rows "$more, slow links" divided '$1 == 4 ? $4 < 1e-2 : $5 < p[5]'
done
train from --model mlp --max-steps 6 --log-every 1 --eval-every 0
"$TUTTI" plan --from from --ranks 2 --local-gbps 10 --local-us 10 >from.out || fail "--from"
grep -q 'computation .* as the run measured it' from.out || { cat from.out; fail "--from measures itself"; }
refused 2 'its batch_size is another one' "$TUTTI" plan --from from --ranks 2 --batch-size 7
refused 2 'cannot open nowhere/config.json' "$TUTTI" plan --from nowhere --ranks 2
refused 2 'there is no "host.gbs"' "$TUTTI" plan --ranks 2 --links <(echo '{"host": {"gbs": 1}}')
refused 2 '--links has what' "$TUTTI" plan --ranks 2 --links free.json --link-us 3
refused 2 'say the same: give one' "$TUTTI" plan --ranks 8 --hosts 2 --ranks-per-host 4
refused 2 '8 ranks are not equally many on each of 3' "$TUTTI" plan --ranks 8 --hosts 3
refused 2 'does not divide 6 ranks' "$TUTTI" plan $keys --ranks 6,8 --ranks-per-host 2 --tensor 4

# ---- Errors
refused 2 'pipeline 1 x tensor 3 = 3 does not divide 4 ranks; use 3 or 6 ranks' "$TUTTI" plan --ranks 4 --tensor 3
refused 2 'model mlp has 2 blocks' "$TUTTI" plan --ranks 4 --pipeline 4 --model mlp
refused 2 'add --tensor T' "$TUTTI" plan --ranks 4 --sequence-parallel
refused 2 '4 ranks are not divided into hosts of 3' "$TUTTI" plan --ranks 4 --ranks-per-host 3
refused 2 'cannot write nowhere/p.json: there is no folder nowhere' timeout 5 "$TUTTI" plan --model resnet50 --data synthetic --json nowhere/p.json
refused 2 '--memory is "4X", expected bytes, as in 512M or 4G' "$TUTTI" plan --memory 4X
refused 2 '--ranks is "0", expected a whole number from 1 to 16384' "$TUTTI" plan --ranks 0
refused 2 '--ranks is "8,16385", expected' "$TUTTI" plan --ranks 8,16385
refused 2 '--ranks needs a value' "$TUTTI" plan --ranks
refused 2 'unknown key "rank"' "$TUTTI" plan --rank 4
refused 2 'is not planned for: plan knows the CPU' "$TUTTI" plan --device cuda
refused 2 'offload: it moves memory from a GPU to the host, and plan is for CPUs' "$TUTTI" plan --offload optimizer

# ---- A run that cannot fit is refused before its first step, with what it needs; or tried
[ $factor = 100 ] || (
    ulimit -v 1500000
    refused 4 'ulimit -v is' "$TUTTI" train --run-dir much --model gpt2 --data shakespeare --layers 12 --width 2048 --heads 16 --max-steps 1
    [ ! -e much ] || fail "a refused run leaves a folder"
)
refused 4 'TUTTI_MEMORY_CHECK=off tries anyway' "$TUTTI" train --run-dir much --model gpt2 --data shakespeare --layers 2 --width 65536 --heads 128 --max-steps 1
refused 2 'TUTTI_MEMORY_CHECK is "of"' env TUTTI_MEMORY_CHECK=of "$TUTTI" train --run-dir much --model mlp --max-steps 1
