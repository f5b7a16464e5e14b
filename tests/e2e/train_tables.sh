# train_tables.sh -- --data csv and --data npy: regression and classification learn, eval and predict use the training rows' columns,
# scale and classes, and resumed runs and shards have the same bits.   timeout: 120   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

# A table: prices that follow from age, size and rooms of very different scales, and a kind with a quote in its name.
rows() { # ROWS SEED
    awk -v n="$1" -v seed="$2" 'BEGIN {
        srand(seed)
        print "id,age,size,rooms,kind,price"
        for (i = 0; i < n; i++) {
            age = 100 * rand(); size = rand() / 1000; rooms = int(4 * rand())
            v = age / 25 + 2000 * size + rooms
            kind = v < 3.5 ? "small" : v < 5.5 ? "\"so \"\"so\"\"\"" : "\"large, really\""
            printf "%d,%.9g,%.9g,%d,%s,%.9g\r\n", i, age, size, rooms, kind, 3 * v - 5
        }
    }'
}
mkdir -p t
rows 600 1 >t/train.csv
rows 100 2 >t/test.csv
keys="--data csv --data-dir t --features age,size,rooms --model mlp --epochs 10 --lr 0.02 --threads 1"
# below A B: number A is below B.
below() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a + 0 < b + 0) }' || fail "$1 is not below $2"; }

# Regression.
train price $keys --target price
below "$(field price/summary.json val_loss)" 0.5 # the variance of the prices is 18
"$TUTTI" eval price --json eval.json >eval.out || fail "eval: $(cat eval.out)"
field eval.json loss >eval.loss
field price/summary.json val_loss >price.loss
close eval.loss price.loss 1e-9
"$TUTTI" predict price --out price.csv >predict.out || fail "predict: $(cat predict.out)"
[ "$(head -1 price.csv)" = index,target_0,output_0 ] && [ "$(wc -l <price.csv)" = 101 ] || fail "columns of predict"
# Elsewhere, without training rows, and in another order of columns: the same numbers.
rows 100 2 | awk 'NR == 1 { print "rooms,size,age,price" } NR > 1 { sub(/\r/, ""); n = split($0, v, ","); print v[4] "," v[3] "," v[2] "," v[n] }' >other.csv
mv t gone
"$TUTTI" predict price --data-dir other.csv --split all --out elsewhere.csv >predict.out 2>&1 || fail "predict elsewhere: $(cat predict.out)"
cmp -s price.csv elsewhere.csv || fail "predictions elsewhere differ"
# Weights in the run folder itself, with other training rows in the data's folder: the scale is that of the run's.
mkdir u
cp other.csv u/test.csv
awk -F, -v OFS=, 'NR > 1 { $1 *= 7 } { print }' other.csv >u/train.csv
"$TUTTI" predict price/model.safetensors --data-dir u --out file.csv >predict.out 2>&1 || fail "predict by a file: $(cat predict.out)"
cmp -s price.csv file.csv || fail "predictions by the run's file differ"
mv gone t

# Classification: names of classes; ranks; exact resume; ZeRO-1; shards.
train kind $keys --target kind -n 2
accuracy=$(field kind/summary.json val_accuracy)
below 0.8 "$accuracy"
"$TUTTI" eval kind >eval.out || fail "eval: $(cat eval.out)"
grep -q '^  large, really  *[0-9]' eval.out && grep -q '^  so "so"  *[0-9]' eval.out || { cat eval.out; fail "eval does not name the classes"; }
"$TUTTI" predict kind --out - >kind.csv || fail "predict of classes"
head -1 kind.csv | grep -qx 'index,label,predicted,logit_0,logit_1,logit_2,label_name,predicted_name' || fail "columns: $(head -1 kind.csv)"
grep -q ',"so ""so""","' kind.csv || fail "predict does not name the classes"
train whole $keys --target kind --checkpoint-every 40 --keep-checkpoints 0
train again $keys --target kind --resume whole/checkpoints/step-00000040
same whole again
train zero $keys --target kind -n 2 --zero 1
same kind zero
train one $keys --target kind --shards 4
train two $keys --target kind --shards 4 -n 2
same one two

# Resume with other columns, or rows that change the scale.
refused 2 "target" "$TUTTI" train $keys --target price --run-dir no --resume whole/checkpoints/step-00000040
sed 's/^1,[0-9.]*/1,12345/' t/train.csv >changed && cp t/train.csv kept && cp changed t/train.csv
refused 2 'had other training data: their columns, mean, std or classes' \
    "$TUTTI" train $keys --target kind --run-dir no --resume whole/checkpoints/step-00000040
cp kept t/train.csv

# One file, divided; raw features; and what is refused.
train raw $keys --data-dir t/train.csv --target price --no-standardize --max-steps 4 --test-fraction 0.25
says raw '450 training rows of 3, 150 test rows'
mkdir raw.weights # without a checkpoint
cp raw/config.json raw/model.safetensors raw.weights
"$TUTTI" predict raw --out raw.csv >predict.out 2>&1 && "$TUTTI" predict raw.weights/model.safetensors --out file.csv >predict.out 2>&1 ||
    fail "predict of raw features: $(cat predict.out)"
cmp -s raw.csv file.csv || fail "without a checkpoint, raw features are standardised"
train alone $keys --data-dir t/train.csv --target price --max-steps 4 --test-fraction 0 --eval-every 0
says alone '600 training rows of 3'
refused 2 'target: the samples of data=digits have no columns' "$TUTTI" train --target price
refused 1 'has no column "prize" (did you mean "price"?)' "$TUTTI" train $keys --target prize --run-dir no
refused 1 't/train.csv, row 1 (line 2), column "kind": "' "$TUTTI" train $keys --features kind --target price --run-dir no
refused 2 'augment and channels are for images of bytes' "$TUTTI" train $keys --target price --augment --run-dir no

refused 1 'is not one of the ' "$TUTTI" train $keys --target price --task classification --run-dir no
grep -q 'if they are numbers to predict, use task=regression' refused.out || { cat refused.out; fail "no remedy for numbers taken for classes"; }

# NumPy arrays, without NumPy: an .npy file is a text and numbers.
npy() { # FILE DESCR SHAPE: the numbers from stdin, as bytes
    local text
    text="{'descr': '$2', 'fortran_order': False, 'shape': $3, }"
    { printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "$text" && cat; } >"$1"
}
bytes() { awk -v n="$1" -v seed="$2" 'BEGIN { srand(seed); for (i = 0; i < n; i++) for (k = 0; k < 48; k++) printf "\\x%02x", i % 3 * 80 + int(60 * rand()) }'; }
for split in train test; do
    mkdir -p "n/$split"
    printf "$(bytes 90 "${#split}")" | npy "n/$split/x.npy" '|u1' '(90, 3, 4, 4)'
    printf '\x00\x01\x02%.0s' $(seq 30) | npy "n/$split/y.npy" '|u1' '(90,)'
done
train arrays --data npy --data-dir n --model mlp --epochs 30 --lr 0.1 --threads 1
below 0.9 "$(field arrays/summary.json val_accuracy)"
says arrays '90 training images of 3x4x4 in 3 classes|90 training images of 3x4x4'
"$TUTTI" eval arrays >eval.out || fail "eval of arrays: $(cat eval.out)"
train arrays.whole --data npy --data-dir n --model mlp --epochs 4 --threads 1 --augment --checkpoint-every 4 --keep-checkpoints 0
train arrays.again --data npy --data-dir n --model mlp --epochs 4 --threads 1 --augment --resume arrays.whole/checkpoints/step-00000004
same arrays.whole arrays.again
head -c 500 n/train/x.npy >cut && cp cut n/train/x.npy
refused 1 'n/train/x.npy has 372 bytes of data, and its shape means 4320: is it truncated?' "$TUTTI" train --data npy --data-dir n --model mlp --run-dir no
