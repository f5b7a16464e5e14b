# train_masks.sh -- --data masks with unet: a folder of PNG images and masks is learned, its classes have their names in eval and the
# report, predict writes the masks, and the laws hold with augment; wrong folders.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
command -v python3 >/dev/null || { echo "skipped: needs python3"; exit 77; }

# A bright square or a disc on noise; a mask has its class, and 255, none, in the last row.
python3 - <<'END'
import os, random, struct, zlib
SIDE = 32
def png(path, kind, data, channels):
    chunk = lambda k, d: struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d))
    lines = b"".join(b"\0" + bytes(data[i * SIDE * channels:(i + 1) * SIDE * channels]) for i in range(SIDE))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, kind, 0, 0, 0))
                           + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))
random.seed(5)
for split, n in (("train", 48), ("test", 13)):
    for k in range(n):
        row, column, disc = random.randint(8, 24), random.randint(8, 24), k % 2
        image, mask = [], []
        for i in range(SIDE):
            for j in range(SIDE):
                a, b = i - row, j - column
                inside = a * a + b * b < 40 if disc else max(abs(a), abs(b)) < 6
                image += [random.randint(0, 90) + (160 if inside and c == disc else 0) for c in range(3)]
                mask.append(255 if i == SIDE - 1 else 1 + disc if inside else 0)
        png(f"shapes/{split}/images/{k:02}.png", 2, image, 3)
        png(f"shapes/{split}/masks/{k:02}.png", 0, mask, 1)
open("shapes/classes.txt", "w").write("ground\nsquare\ndisc\n")
END
"$TUTTI" data show masks:shapes/train >show.out 2>&1 || { grep -q 'without libpng' show.out && { echo "skipped: $(cat show.out)"; exit 77; }; cat show.out; fail "data show"; }
grep -q '^0    ground  *[0-9]' show.out && grep -q '^2    disc  *[0-9]' show.out || { cat show.out; fail "data show does not name the classes"; }
above() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a + 0 > b + 0) }' || fail "$1 is not above $2: $3"; }

keys="--data masks --data-dir shapes --model unet --width 8 --layers 2 --batch-size 8 --lr 0.05 --threads 1"
train learns $keys --epochs 20 --augment --optimizer adam --lr 0.01 -n 2
says learns '48 training images of 3x32x32'
above "$(field learns/summary.json val_iou)" 0.7 IoU
above "$(field learns/summary.json val_accuracy)" 0.95 "accuracy of pixels"
grep -q '"classes": \["ground", "square", "disc"\]' learns/summary.json || fail "summary.json does not name the classes"
"$TUTTI" eval learns --confusion --json eval.json >eval.out 2>&1 || { cat eval.out; fail "eval"; }
grep -q '^  square  *[0-9]' eval.out && grep -q '(.* of 12896 pixels)' eval.out || { cat eval.out; fail "13 masks of 31 rows of 32 pixels are 12896 pixels"; }
close <(field eval.json iou) <(field learns/summary.json val_iou) 1e-8
for how in "--batch-size 1" "--batch-size 13 --threads 2" "--batch-size 3 -n 2"; do # the same bits for any batch, ranks and threads
    "$TUTTI" predict learns --format logits --out bits.safetensors $how >predict.out 2>&1 || { cat predict.out; fail "predict $how"; }
    [ -e bits.1 ] || cp bits.safetensors bits.1
    cmp bits.safetensors bits.1 || fail "other logits with $how"
    "$TUTTI" eval learns --json bits.json $how >eval.out 2>&1 || { cat eval.out; fail "eval $how"; }
    [ "$(field bits.json loss)" = "$(field eval.json loss)" ] || fail "another loss with $how"
done
"$TUTTI" predict learns --out masks.safetensors >predict.out 2>&1 || { cat predict.out; fail "predict"; }
# The IoU again, from the file.
python3 - "$(field eval.json iou)" <<'END' || fail "the masks of predict have another IoU"
import array, json, struct, sys
data = open("masks.safetensors", "rb").read()
n, = struct.unpack("<Q", data[:8])
header = json.loads(data[8:8 + n])
def tensor(name):
    assert header[name]["shape"] == [13, 32, 32] and header[name]["dtype"] == "I64", header[name]
    begin, end = header[name]["data_offsets"]
    return array.array("q", data[8 + n + begin:8 + n + end])
pairs = [(a, b) for a, b in zip(tensor("label"), tensor("predicted")) if a != -100]
iou = [sum(a == b == k for a, b in pairs) / sum(a == k or b == k for a, b in pairs) for k in range(3)]
assert len(pairs) == 12896 and abs(sum(iou) / 3 - float(sys.argv[1])) < 1e-8, (iou, sys.argv[1])
END
"$TUTTI" report learns --out page.html >report.out 2>&1 && grep -q 'test IoU' page.html || { cat report.out; fail "the report"; }

# The laws, with masks that move with their images and colours that change.
laws="$keys --augment --color-jitter 0.2,0.2,0.2,0.05 --class-weights balanced --max-steps 9"
train one $laws --shards 2 --checkpoint-every 4 --keep-checkpoints 0
train two $laws --shards 2 -n 2
same one two
train again $laws --shards 2 --resume one/checkpoints/step-00000004
same one again
train still ${laws/--augment /} --shards 2
[ "$(digest one)" != "$(digest still)" ] || fail "augment changes nothing"

# What does not fit
refused 2 'class_weights: 2 numbers for 3 classes' "$TUTTI" train $keys --class-weights 1,2
mv shapes/test/masks/03.png kept.png
refused 1 '03' "$TUTTI" train $keys --run-dir no
cp shapes/test/images/03.png shapes/test/masks/03.png
refused 1 'shapes/test/masks/03.png' "$TUTTI" train $keys --run-dir no
