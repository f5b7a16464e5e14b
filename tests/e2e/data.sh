#!/bin/bash
# The command `tutti data`: what it prints, its exit codes, and that nothing is left behind.
# SPDX-License-Identifier: MIT
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
status=0

# check EXIT_CODE WORDS COMMAND...: runs the command; its output (both streams) must hold the words.
check() {
    local code=$1 words=$2 output got
    shift 2
    output=$("$@" 2>&1 </dev/null)
    got=$?
    if [ "$got" != "$code" ] || ! grep -qF -- "$words" <<<"$output"; then
        printf 'failed: %s\n  exit code %s, expected %s; expected words: %s\n  output: %s\n' "$*" "$got" "$code" \
            "$words" "$output"
        status=1
    fi
}

check 0 "cifar100:DIR/train|test      CIFAR-100 binary files" "$TUTTI" data --help
check 0 "1438" "$TUTTI" data show digits:train
check 0 "10000, each 3 x 32 x 32" "$TUTTI" data show synthetic:test
check 2 "show or pack" "$TUTTI" data
check 2 "there is no \"shwo\"" "$TUTTI" data shwo
check 2 "expected one data set" "$TUTTI" data show
check 2 "did you mean \"digits\"" "$TUTTI" data show digit:train
check 2 "--resize" "$TUTTI" data pack --size 3 a b
check 1 "there is no data_batch_1.bin" "$TUTTI" data show cifar10:./train
check 1 "nowhere" "$TUTTI" data show cifar10:nowhere/train

# A 32x32 image, all of one colour.
png() {
    base64 -d >"$1" <<'END'
iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAIAAAD8GO2jAAAAKklEQVR42mM4kWJEU8QwasGoBaMWjFowasGoBaMWjFowasGoBaMW
DBULANWleExfsRQTAAAAAElFTkSuQmCC
END
}

mkdir -p pictures/{train,val}/{cat,dog}
for part in train/cat train/dog val/cat val/dog; do
    png pictures/$part/1.png
    png pictures/$part/2.png
done
if "$TUTTI" data show folder:pictures/train 2>&1 | grep -q "cannot read PNG"; then
    echo "without libpng: packing is not tested"
else
    # Names of files and classes are shown, not obeyed.
    cp -r pictures odd
    mv odd/train/dog "odd/train/d$(printf '\033')[2Jog" && mv odd/val/dog "odd/val/d$(printf '\033')[2Jog"
    ln -s nowhere.png "odd/train/cat/a
b.png"
    check 0 'cat/a\nb.png (a link to nothing)' "$TUTTI" data show folder:odd/train
    check 0 'd\x1b[2Jog' "$TUTTI" data show folder:odd/train
    printf 'broken' >"odd/train/cat/$(printf '\033')[31m.png"
    check 1 'odd/train/cat/\x1b[31m.png is neither' "$TUTTI" data show folder:odd/train
    # Any size becomes the one that is asked for.
    check 0 "each 3 x 48 x 48 bytes" "$TUTTI" data show --image-size 48 folder:pictures/train
    check 2 "needs a number from 1 to 8192" "$TUTTI" data show folder:pictures/train --image-size 0
    check 2 "those of digits have one" "$TUTTI" data show --image-size 48 digits:train
    check 2 "image_size: the images of data=digits have one size" "$TUTTI" train --image-size 48
    check 0 "4 training images of 3x12x12" "$TUTTI" train --data folder --data-dir pictures --image-size 12 --epochs 1 \
        --batch-size 2 --model mlp --run-dir run
    check 0 "packed 4 training and 4 test images of 2 classes into packed" "$TUTTI" data pack pictures packed
    check 0 "dog                         2" "$TUTTI" data show cifar10:packed/test
    check 2 "not empty" "$TUTTI" data pack pictures packed
    truncate -s 5000 packed/test_batch.bin
    check 1 "packed/test_batch.bin has 5000 bytes" "$TUTTI" data show cifar10:packed/test
    printf 'broken' >pictures/val/dog/2.png
    check 1 "pictures/val/dog/2.png" "$TUTTI" data pack pictures again
    [ ! -e again ] && [ ! -e again.partial ] || { echo "failed: a failed pack left something"; status=1; }
fi
exit $status
