# diff_all.sh -- `tutti diff` names the first cause of injected differences: of ten kinds, and two more.   timeout: 300
# tier: long
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
. "$SOURCE_DIR/tests/harness/diff.sh"
. "$SOURCE_DIR/tests/harness/compiler.sh"
base=(-n 2 --model mini_resnet --max-steps 3 --trace-digests 1 --threads 1 --eval-every 0)
named() { # VERDICT CAUSE: of the last diff, regular expressions
    says diff "^different: $1"
    says diff "^cause: $2"
}
train a "${base[@]}"

# 1. Another seed
train seed "${base[@]}" --seed 1
differ a seed
named 'before the first step, rank 0: the initial value of stem.0.weight$' 'the configuration: seed is 0 in a and 1 in seed$'

# 2. A changed flag
train momentum "${base[@]}" --momentum 0.8
differ a momentum
named "step 2, rank 0: the optimizer's state .*\\.momentum_buffer$" 'the configuration: momentum is 0.9 in a and 0.8 in momentum$'

# 3. The last bit of a weight in a file of --init, which is replaced
cp a/model.safetensors init.safetensors
train init "${base[@]}" --init init.safetensors
train weight.1 "${base[@]}" --init init.safetensors
equal init weight.1
flip() { # FILE TENSOR: the last bit of its element 7, in a safetensors file whose digests are made unknown
    local header at byte
    sed -i 's/"xxh3:/"none:/g' "$1"
    header=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    at=$(head -c $((8 + header)) "$1" | tail -c +9 | sed "s/.*\"$2\":{[^}]*\"data_offsets\":\[\([0-9]*\),.*/\1/")
    at=$((8 + header + at + 7 * 4))
    byte=$(od -An -tu1 -j $at -N1 "$1" | tr -d ' ')
    printf "\\$(printf %03o $((byte ^ 1)))" | dd of="$1" bs=1 seek=$at conv=notrunc status=none
}
cp init.safetensors before.safetensors
flip init.safetensors layers.4.c1.weight
train weight.2 "${base[@]}" --init init.safetensors
differ init weight.2
named 'before the first step, rank 0: the initial value of layers.4.c1.weight$' 'the weights with which they began differ: another file of --init, or contents of it'
says diff '^  initial weights +2 of [0-9]+ differ$' # one on each rank
train weight.3 "${base[@]}" --init before.safetensors
differ weight.3 weight.2
named 'before the first step, rank 0: the initial value of layers.4.c1.weight$' 'the configuration: init is "before.safetensors" in weight.3 and "init.safetensors" in weight.2$'
says diff '^  1 of its [0-9]+ elements differs, the first at \[0, 0, 2, 1\]: '

# 4. Another order of samples: two rows of a table are swapped
mkdir table
awk 'BEGIN { srand(1); print "x,y,label"; for (i = 0; i < 200; i++) { x = rand(); y = rand(); print x "," y "," (x > y) } }' >table/train.csv
tail -n 50 table/train.csv | cat <(head -1 table/train.csv) - >table/test.csv
csv=(-n 2 --model mlp --data csv --data-dir table --target label --standardize false --max-steps 4 --trace-digests 1)
train order "${csv[@]}"
awk 'NR == 3 { kept = $0; next } NR == 4 { print; print kept; next } { print }' table/train.csv >rows.csv && cp rows.csv table/train.csv
train swapped "${csv[@]}"
differ order swapped
named "step [1-4], rank [01]: the input's " 'the data.*: samples of the same numbers have other values: the data set.s files differ'

# 5. Another kernel, of all modules, and of one
small=(--model mini_resnet --max-steps 1 --batch-size 4 --trace-digests 1 --eval-every 0 --threads 1)
train onednn "${small[@]}"
TUTTI_KERNELS=reference train reference "${small[@]}"
differ onednn reference
named 'step 1, rank 0: the result of module stem.0' "the module's forward, of equal inputs and weights: kernels onednn.* in onednn and reference in reference"
says diff '^They computed with other kernels, whose rounding differs: --tolerance [0-9e.-]+ looks beyond it'
equal onednn reference --tolerance 1e-3
differ onednn reference --rerun # with the same kernels again
named 'step 1, rank 0: the result of module stem.0' ".*kernels onednn.* in onednn and reference in reference"
take your-own-operation.md squareplus_net.c
cp "$SOURCE_DIR/examples/own_operation.c" op.c
build() { compile "$c" -shared -fPIC -O2 "$@" -I"$SOURCE_DIR/include" -o net.so squareplus_net.c op.c -lm; }
build
net=(--model ./net.so --max-steps 3 --trace-digests 1 --augment false --threads 1)
train net "${net[@]}"
sed -i 's/sqrtf(x\[i\] \* x\[i\] + b)/sqrtf(fmaf(x[i], x[i], b))/' op.c
build
train net.2 "${net[@]}"
differ net net.2
named 'step 1, rank 0: the result of module ' "the module's forward, of equal inputs and weights: other code of it"

own=$BUILD_DIR/tests/program/diff_faults

# 6. A learning rate on one rank; 8. another batch of one rank; 11. a buffer that is overwritten, 12. a weight
fault() { # FAULT: a run whose rank 1 has it
    timeout 120 "$TUTTI" run -n 2 "$own" "$1" --run-dir "$1" --max-steps 5 --trace-digests 1 >"$1.out" 2>&1 || true
    [ -s "$1/digests/rank-1.jsonl" ] || { cat "$1.out" && fail "$1 has no record"; }
}
for kind in none rate batch buffer weight; do fault $kind; done
differ none rate
named 'step 3, rank 1: the learning rate$' 'the learning rate on rank 1 alone: '
differ none batch
named "step 1, rank 1: the input's x$" 'the data on rank 1 alone: samples of the same numbers have other values'
differ none buffer
named 'step [34], rank 0: buffer stem.1.running_mean$' 'the buffer: what changed it changed no result of this step'
differ none weight
named 'step [34], rank 1: ' '(the optimizer on rank 1 alone: |the module.s forward.* on rank 1 alone: )'
differ weight
says diff '^different: within weight, step [34], rank 1 from rank 0: parameter fc.weight$'

# 7. No augmentation
train plain "${base[@]}" --augment false
differ a plain
named "step 1, rank 0: the input's x$" 'the configuration: augment is true in a and false in plain$'

# 9. Another reduction
train hook "${base[@]}" --comm-hook bf16
differ a hook
named 'step 1, rank 0: the reduced gradient of ' 'the configuration: comm_hook is "none" in a and "bf16" in hook$'

# 10. The optimizer's eps
train adam "${base[@]}" --optimizer adam
train eps "${base[@]}" --optimizer adam --eps 1e-6
differ adam eps
named 'step 1, rank 0: parameter ' 'the configuration: eps is 0.0 in adam and 1e-6 in eps$'
# A key that differs, but cannot be the reason for what is earlier
train both "${base[@]}" --augment false --momentum 0.8
differ a both
named "step 1, rank 0: the input's x$" 'the configuration: augment is true in a and false in both; keys that differ, but do not explain this: momentum$'

# With shards a rank is no place: of equal runs other ranks computed them
shards=(--model mini_resnet --max-steps 3 --trace-digests 1 --shards 3 --batch-size 8 --eval-every 0)
train shards "${shards[@]}"
train shards.2 -n 2 "${shards[@]}"
equal shards shards.2
train shards.3 -n 2 "${shards[@]}" --augment false
differ shards shards.3
says diff "^different: step 1, shard 0"
# Accumulation: the batch of a step
train sum "${base[@]}" --grad-accumulation 2
train sum.2 "${base[@]}" --grad-accumulation 2 --label-smoothing 0.1
differ sum sum.2
named 'step 1, rank 0: the loss$' 'the configuration: label_smoothing is '
