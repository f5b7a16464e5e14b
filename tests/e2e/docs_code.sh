# The programs of docs/your-own-model.md and your-own-dataset.md: under 60 lines, without a warning, and they train; the same files
# as parts of the library, by the pages' steps.
# timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
. "$SOURCE_DIR/tests/harness/compiler.sh"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
cd "$work" || exit 1

falls() { # FACTOR: the last loss in $work/out is below FACTOR times the first
    sed -n 's/.*epoch.* test loss \([0-9.]*\).*/\1/p' out | awk -v factor="$1" 'NR == 1 { first = $1 } { last = $1 }
        END { exit !(NR >= 2 && last < factor * first) }' || { fail "the loss does not fall" && cat out; }
}

take your-own-dataset.md pixels.c
take your-own-dataset.md train_pixels.c
take your-own-dataset.md train_noisy.c
take your-own-model.md skip_net.c
take your-own-model.md train_skip_net.c
for name in pixels skip_net; do
    compile "$c" -std=c11 -Wall -Wextra -I"$SOURCE_DIR/include" -o "train_$name" "train_$name.c" "$name.c" -L"$BUILD_DIR" -ltutti \
        -Wl,-rpath,"$BUILD_DIR" -lm
done
awk 'BEGIN { # four classes: which quarter of the image is bright
    srand(1)
    for (part = 0; part < 2; part++)
        for (i = 0; i < (part ? 60 : 320); i++) {
            line = i % 4
            for (k = 0; k < 64; k++)
                line = line "," int(rand() * 60) + (int(k / 32) * 2 + int(k % 8 / 4) == i % 4 ? 150 : 0)
            print line >(part ? "test.csv" : "train.csv")
        }
}'
run 0 "$TUTTI" run -n 2 ./train_pixels --data-dir "$work" --model mlp --epochs 3 --batch-size 16 --run-dir run1
falls 0.5
compile "$c" -std=c11 -Wall -Wextra -I"$SOURCE_DIR/include" -o train_noisy train_noisy.c pixels.c -L"$BUILD_DIR" -ltutti \
    -Wl,-rpath,"$BUILD_DIR" -lm
noisy="--data-dir $work --model mlp --epochs 3 --batch-size 8 --shards 2 --mixup 0.2 --threads 1"
digest() { sed -n 's/.*"parameter_digest": "\([0-9a-f]*\)".*/\1/p' "$1/summary.json"; }
run 0 "$TUTTI" run -n 2 ./train_noisy $noisy --run-dir noisy2
falls 0.5
run 0 ./train_noisy $noisy --run-dir noisy1
run 0 ./train_pixels $noisy --run-dir noisy0
[ -n "$(digest noisy1)" ] && equal "noise on 1 and 2 ranks" "$(digest noisy2)" "$(digest noisy1)"
[ "$(digest noisy0)" != "$(digest noisy1)" ] || fail "the augmentation is not used"
run 0 ./train_pixels --data digits --model mlp --epochs 2 --run-dir run2 # the library's formats work too
falls 0.9
run 2 ./train_pixels --data pixel
err_has 'data: "pixel" is not one of its values; expected .*synthetic or pixels .did you mean pixels.., or a shared object'
echo "3,1,2" >>train.csv
run 1 ./train_pixels --data-dir .
err_has './train.csv: line 321 is broken|line 321 holds'
head -n 320 train.csv >whole.csv && mv whole.csv train.csv
sed -i '7s/,[0-9]*/,256/' train.csv
run 1 ./train_pixels --data-dir .
err_has './train.csv: line 7 holds 256, expected 0 to 255'
sed -i '7s/^[0-9]*,256/9,25/' train.csv
run 1 ./train_pixels --data-dir . --run-dir run3
err_has 'the label is 9, expected 0 to 3 \(sample 6 of data set pixels, train\)'
sed -i '7s/^9/2/' train.csv

run 0 "$TUTTI" run -n 2 ./train_skip_net --epochs 5 --lr 0.1 --run-dir run4
falls 0.6

take your-own-model.md watched.c
compile "$c" -std=c11 -Wall -Wextra -I"$SOURCE_DIR/include" -o watched watched.c -L"$BUILD_DIR" -ltutti -Wl,-rpath,"$BUILD_DIR" -lm
run 0 "$TUTTI" run -n 2 ./watched --model mlp --epochs 40 --lr 0.3 --run-dir run5
grep -q '"reason": "ended by the program: accurate enough"' run5/summary.json || fail "the program does not end its run"
grep -q 'step 100: loss' out || fail "the program does not tell the 100th step"

# As shared objects
echo 'TUTTI_SHARED_MODEL(skip_net_kind);' | cat skip_net.c - >shared_net.c
echo 'TUTTI_SHARED_DATA(pixels_format);' | cat pixels.c - >shared_pixels.c
for name in net pixels; do
    compile "$c" -std=c11 -Wall -Wextra -shared -fPIC -I"$SOURCE_DIR/include" -o "shared_$name.so" "shared_$name.c"
done
run 0 "$TUTTI" data show ./shared_pixels.so:./train
out_has '^data set   pixels, train'
out_has '^images     320, each 1 x 8 x 8 bytes'
run 2 "$TUTTI" data show ./shared_pixels.so
err_has 'data set "pixels": the split is missing; write pixels:DIR/train'
run 2 "$TUTTI" data show ./shared_net.so:./train
err_has 'shared_net.so holds a model'
run 2 "$TUTTI" data show ./train # not taken for a shared object
err_has 'there is no format "./train"; write one of digits'
run 0 "$TUTTI" bench loader -n 2 --data ./shared_pixels.so --data-dir . --split test --seconds 0.1 --json rows.json
out_has '^# loader, pixels, test: 60 images of 1x8x8, 2 ranks'
grep -q '"data": "pixels", "split": "test"' rows.json || fail "the data set's name: $(cat rows.json)"
run 0 "$TUTTI" train -n 2 --model ./shared_net.so --data ./shared_pixels.so --data-dir . --epochs 3 --lr 0.1 --run-dir run5
awk -F': ' '/val_accuracy/ { exit !($2 + 0 > 0.5) }' run5/summary.json || fail "accuracy: $(grep accuracy run5/summary.json)"
run 2 "$TUTTI" eval run5 --data ./shared_pixels.so
err_has 'add --model .*/shared_net.so'
run 0 "$TUTTI" eval run5 --model ./shared_net.so --data ./shared_pixels.so # the format is the run's: so is its folder
out_has 'on pixels:test, 60 images'
run 2 "$TUTTI" eval run5 --model ./shared_net.so --data cifar10 # another's is not
err_has 'data_dir: data=cifar10 needs files; give their folder with --data-dir FOLDER'

# As parts of the library: the new files, the lists with their names, and the files that read the lists, linked before the built ones.
mkdir -p tree/data tree/nn
sed 's/pixels_format/tutti__format_pixels/; s|<tutti/tutti.h>|"data/dataset.h"|' pixels.c >tree/pixels.c
sed 's/skip_net_kind/tutti__model_skip_net/; s|<tutti/tutti.h>|"nn/nn.h"|' skip_net.c >tree/skip_net.c
sed 's/X(synthetic)/& X(pixels)/' "$SOURCE_DIR/src/data/dataset.h" >tree/data/dataset.h
sed 's/X(linear, "linear")/& X(skip_net, "skip_net")/' "$SOURCE_DIR/src/nn/nn.h" >tree/nn/nn.h
link=$(ninja -C "$BUILD_DIR" -t commands tutti 2>/dev/null | tail -n 1)
if [[ $link == *" -o tutti "* ]]; then
    objects=""
    for file in tree/pixels.c tree/skip_net.c "$SOURCE_DIR"/src/{data/dataset,nn/model,train/config/config,train/config/parts}.c; do
        object=$work/tree/$(basename "$file" .c).o
        compile "$c" -std=c11 -Wall -Wextra -Wno-unused-parameter -D_GNU_SOURCE -iquote tree -I tree -I "$SOURCE_DIR/src" \
            -I "$SOURCE_DIR/include" -c -o "$object" "$file"
        objects="$objects $object"
    done
    link=${link/ -o tutti / -o $work/tutti }
    compile sh -c "cd '$BUILD_DIR' && ${link/ -rdynamic / -rdynamic -Wl,--allow-multiple-definition $objects }"
    run 0 ./tutti train --data pixels --data-dir "$work" --model skip_net --epochs 3 --lr 0.05 --run-dir run
    awk -F': ' '/val_accuracy/ { exit !($2 + 0 > 0.9) }' run/summary.json || fail "accuracy: $(grep accuracy run/summary.json)"
    run 0 ./tutti data --help
    out_has 'pixels:DIR/train\|test +text, one image per line'
    run 2 ./tutti train --model resnet
    err_has 'expected mini_resnet, .*skip_net'
else
    echo "not tested: the files as parts of the library (no ninja in this build)"
fi
finish
