#!/bin/bash
# The command `tutti data`: its output, its exit codes, and that it leaves nothing behind.
# SPDX-License-Identifier: MIT
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
status=0

# check EXIT_CODE WORDS COMMAND...: runs the command; its output (both streams) must contain the words.
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
check 2 "show, pack or tokenize" "$TUTTI" data
check 2 "there is no \"shwo\"" "$TUTTI" data shwo
check 2 "expected one data set" "$TUTTI" data show
check 2 "did you mean \"digits\"" "$TUTTI" data show digit:train
check 2 'tutti data pack: there is no flag "--size" (did you mean "--resize"?); see tutti data --help' "$TUTTI" data pack --size 3 a b
check 2 'tutti data show: there is no flag "--resize"; see tutti data --help' "$TUTTI" data show --resize digits:train
check 2 'the name of the folder to pack is empty' "$TUTTI" data pack "" packed
check 2 '--image-size is "0", expected a number from 1 to 8192' "$TUTTI" data pack --image-size 0 a b
check 1 "there is no data_batch_1.bin" "$TUTTI" data show cifar10:./train
check 1 "nowhere" "$TUTTI" data show cifar10:nowhere/train
# Where to get what is missing.
check 1 "cifar-10-binary.tar.gz (162 MiB) from https://www.cs.toronto.edu/~kriz/cifar.html" "$TUTTI" data show cifar10:nowhere/train
check 1 "cifar-100-binary.tar.gz" "$TUTTI" data show cifar100:./train
check 1 "train- and t10k-images-idx3-ubyte.gz" "$TUTTI" data show mnist:./test

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
    # Control characters in names of files and classes are escaped.
    cp -r pictures odd
    mv odd/train/dog "odd/train/d$(printf '\033')[2Jog" && mv odd/val/dog "odd/val/d$(printf '\033')[2Jog"
    ln -s nowhere.png "odd/train/cat/a
b.png"
    check 0 'cat/a\nb.png (a link to nothing)' "$TUTTI" data show folder:odd/train
    check 0 'd\x1b[2Jog' "$TUTTI" data show folder:odd/train
    printf 'broken' >"odd/train/cat/$(printf '\033')[31m.png"
    check 1 'odd/train/cat/\x1b[31m.png is neither' "$TUTTI" data show folder:odd/train
    # All broken images are named, not only the first.
    cp -r pictures damaged && truncate -s 60 damaged/train/cat/2.png && truncate -s 70 damaged/train/dog/2.png
    check 1 'damaged/train/cat/2.png is a damaged PNG file' "$TUTTI" data show folder:damaged/train
    check 1 'damaged/train/dog/2.png is a damaged PNG file' "$TUTTI" data show folder:damaged/train
    check 1 'tutti data show: 2 of 4 images cannot be read' "$TUTTI" data show folder:damaged/train
    # Any size is scaled to the requested one.
    check 0 "each 3 x 48 x 48 bytes" "$TUTTI" data show --image-size 48 folder:pictures/train
    check 2 '--image-size is "0", expected a number from 1 to 8192' "$TUTTI" data show folder:pictures/train --image-size 0
    check 2 "those of digits have one" "$TUTTI" data show --image-size 48 digits:train
    check 2 "image_size: the images of data=digits have one size" "$TUTTI" train --image-size 48
    check 0 "4 training images of 3x12x12" "$TUTTI" train --data folder --data-dir pictures --image-size 12 --epochs 1 \
        --batch-size 2 --model mlp --run-dir run
    check 0 "packed 4 training and 4 test images of 2 classes, 32x32, into packed" "$TUTTI" data pack pictures packed
    check 0 "dog                         2" "$TUTTI" data show cifar10:packed/test
    # The recipes have valid keys, and train.
    check 0 "4 training images of 3x32x32" "$TUTTI" train --config "$SOURCE_DIR/configs/cifar10.json" --data-dir packed \
        --batch-size 2 --epochs 1 --model linear --run-dir recipe
    check 0 "on digits: 1,438 training images" "$TUTTI" train \
        --config "$SOURCE_DIR/configs/digits.json" --max-steps 2 --eval-every 0 --run-dir recipe-digits
    check 2 "not empty" "$TUTTI" data pack pictures packed
    # The packed folder is not written to, by any path; a file is no folder.
    ln -s pictures link
    mkdir pictures/empty && : >file
    for into in pictures/new pictures/train/new/ link/new "$folder/link/empty" pictures/../link/train/cat/x; do
        check 2 "it lies in pictures, which is packed; name a new folder outside it" "$TUTTI" data pack pictures "$into"
    done
    rmdir pictures/empty
    check 2 "it lies in ., which is packed" env -C pictures "$TUTTI" data pack . new
    check 2 "it lies in link, which is packed" "$TUTTI" data pack link pictures/new
    check 2 "into file: it or what it lies in is a file; name a new folder" "$TUTTI" data pack pictures file
    check 2 "it or what it lies in is a file" "$TUTTI" data pack pictures file/new
    [ "$(ls pictures)" = "$(printf 'train\nval')" ] || { echo "failed: a refused pack left something: $(ls pictures)"; status=1; }
    # Other sizes: scaled, stretched; the statistics that pack writes are used.
    check 0 "of 2 classes, 48x48, into larger" "$TUTTI" data pack --image-size=48 pictures larger
    check 0 "each 3 x 48 x 48 bytes" "$TUTTI" data show cifar10:larger/test
    check 0 "4 training images of 3x48x48" "$TUTTI" train --data cifar10 --data-dir larger --epochs 1 --batch-size 2 \
        --model mini_resnet --run-dir run-larger
    check 0 "of 2 classes, 12x12, into smaller" "$TUTTI" data pack --resize --image-size 12 pictures smaller
    [ "$(stat -c %s smaller/test_batch.bin)" = $((4 * (1 + 3 * 12 * 12))) ] || { echo "failed: the size of packed files"; status=1; }
    "$TUTTI" data show cifar10:packed/train >shown # as used, and as measured
    awk '/^channel/ { on = 4; next } --on > 0 && ($2 != $3) { bad = 1 } on > 0 { n++ } END { exit bad || n != 3 }' shown ||
        { echo "failed: the mean in images.json is not that of the images:"; cat shown packed/images.json; status=1; }
    for broken in '{' '{"height": 0, "width": 32, "mean": [0,0,0], "std": [1,1,1]}' '{"height": 32, "width": 9999, "mean": [0,0,0], "std": [1,1,1]}' \
        '{"height": 32, "width": 32.5, "mean": [0,0,0], "std": [1,1,1]}' '{"height": 32, "width": 32, "mean": [0,0], "std": [1,1,1]}' \
        '{"height": 32, "width": 32, "mean": [0,0,0], "std": [1,0,1]}' '[]'; do
        printf '%s' "$broken" >smaller/images.json
        check 1 "smaller/images.json: expected height and width from 1 to 8192" "$TUTTI" data show cifar10:smaller/train
    done
    printf '{"height": 13, "width": 12, "mean": [0,0,0], "std": [1,1,1]}' >smaller/images.json
    check 1 "or of another size than images.json says?" "$TUTTI" data show cifar10:smaller/test
    truncate -s 5000 packed/test_batch.bin
    check 1 "packed/test_batch.bin has 5000 bytes" "$TUTTI" data show cifar10:packed/test
    printf 'broken' >pictures/val/dog/2.png
    check 1 "pictures/val/dog/2.png" "$TUTTI" data pack pictures again
    [ ! -e again ] && [ ! -e again.partial ] || { echo "failed: a failed pack left something"; status=1; }
fi
exit $status
