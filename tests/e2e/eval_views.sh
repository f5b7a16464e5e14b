# eval_views.sh -- tta: evaluations of several views of an image are those of data sets of these views, averaged; by any number of ranks,
# and wherever the model is.   timeout: 120   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
command -v python3 >/dev/null || { echo "skipped: needs python3"; exit 77; }

# Images of 3 x 8 x 9 bytes in plain/, and in view-K/ their six views as test data.
python3 - <<'END'
import os, random, struct

C, H, W, CLASSES = 3, 8, 9, 4
draw = random.Random(5)


def save(path, shape, kind, data):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


def image(label):
    return [[[min(255, max(0, int(60 * label + 9 * c + 5 * (i * label % 5) + 3 * j + draw.gauss(0, 40)))) for j in range(W)] for i in range(H)] for c in range(C)]


def view(x, top, left, mirrored):  # reflected padding of one pixel, a crop, a mirror
    row = [1, *range(H), H - 2]
    column = [1, *range(W), W - 2]
    x = [[[plane[row[i + top]][column[j + left]] for j in range(W)] for i in range(H)] for plane in x]
    return [[line[::-1] for line in plane] for plane in x] if mirrored else x


def write(folder, part, images, labels):
    save(f"{folder}/{part}/x.npy", (len(images), C, H, W), "|u1", bytes(b for x in images for plane in x for line in plane for b in line))
    save(f"{folder}/{part}/y.npy", (len(labels),), "<i8", struct.pack(f"<{len(labels)}q", *labels))


labels = [i % CLASSES for i in range(64)]
train = [image(y) for y in labels]
test_labels = [draw.randrange(CLASSES) for _ in range(45)]
test = [image(y) for y in test_labels]
for k, v in enumerate([(1, 1, False), (1, 1, True), (0, 0, False), (0, 0, True), (2, 2, False), (2, 2, True)]):
    write(f"view-{k}", "train", train, labels)
    write(f"view-{k}", "test", [view(x, *v) for x in test], test_labels)
END

keys="--model mlp --data npy --data-dir view-0 --epochs 2 --batch-size 16 --threads 1 --lr 0.01 --warmup-epochs 0"
train plain $keys
train run $keys --tta 2
same plain run
for k in 0 1 2 3 4 5; do
    "$TUTTI" predict plain --data npy --data-dir view-$k --out view-$k.csv >/dev/null 2>predict.err || { cat predict.err; fail "predict of view $k"; }
done
for tta in 1 2; do
    "$TUTTI" predict plain --tta $tta --out tta-$tta.csv >/dev/null || fail "predict --tta $tta"
    "$TUTTI" eval plain --tta $tta --json tta-$tta.json >tta-$tta.out || fail "eval --tta $tta"
    "$TUTTI" predict plain --tta $tta --out ranks.csv -n 2 --batch-size 7 >/dev/null || fail "predict --tta $tta -n 2"
    cut -d, -f1-3 tta-$tta.csv | cmp - <(cut -d, -f1-3 ranks.csv) || fail "tta $tta: 2 ranks predict other classes"
done
"$TUTTI" eval run --json of-run.json >of-run.out || fail "eval of a run with tta"
for layout in "-n 2" "-n 2 --zero 3" "-n 3"; do
    "$TUTTI" eval plain --tta 2 $layout --json layout.json >layout.out 2>&1 || { cat layout.out; fail "eval --tta 2 $layout"; }
    cmp <(grep '"loss"\|"correct"' layout.json) <(grep '"loss"\|"correct"' tta-2.json) || fail "eval --tta 2 $layout: other numbers"
done
grep -q "^mlp on npy:test, 45 images, 6 views of each (tta 2), 1 rank," tta-2.out || fail "$(head -2 tta-2.out)"
grep -q "2 views of each (tta 1)" tta-1.out || fail "$(head -2 tta-1.out)"
python3 - <<'END' || fail "the numbers contradict the views"
import csv, json, math


def rows(path):
    return [[float(v) for v in row] for row in list(csv.reader(open(path)))[1:]]


views = [rows(f"view-{k}.csv") for k in range(6)]
assert len(views[0]) == 45 and any(a[3:] != b[3:] for a, b in zip(views[0], views[1]))
last = [json.loads(line)["eval"] for line in open("run/metrics.jsonl") if '"eval"' in line][-1]
for tta, weights in ((1, [1 / 2, 1 / 2]), (2, [1 / 4, 1 / 4, 1 / 8, 1 / 8, 1 / 8, 1 / 8])):
    out, found = json.load(open(f"tta-{tta}.json")), rows(f"tta-{tta}.csv")
    loss = correct = 0
    for i, row in enumerate(found):
        logits = [sum(w * views[k][i][c] for k, w in enumerate(weights)) for c in range(3, 7)]
        assert all(abs(a - b) < 1e-5 * max(1, abs(a)) for a, b in zip(logits, row[3:])), (tta, i, logits, row)
        loss += math.log(sum(math.exp(v) for v in row[3:])) - row[3 + int(row[1])]
        correct += row[1] == row[2]
    assert out["tta"] == tta and out["correct"] == correct and abs(out["loss"] - loss / 45) < 1e-6, (out, loss / 45, correct)
assert abs(last["val_loss"] - out["loss"]) < 1e-6 and json.load(open("of-run.json"))["tta"] == 2
END
cmp <(grep '"loss"\|"correct"' of-run.json) <(grep '"loss"\|"correct"' tta-2.json) || fail "eval does not evaluate as its run did"

# During training by shards, stages and shares
for layout in "-n 2 --shards 2" "-n 2 --zero 3" "-n 2"; do
    train layout-run $keys --tta 2 $layout
    "$TUTTI" eval layout-run --json layout.json >layout.out || fail "eval of $layout"
    [ "$(awk -v a="$(field layout-run/summary.json val_loss)" -v b="$(field layout.json loss)" 'BEGIN { d = a - b; print (d < 1e-6 && d > -1e-6) }')" = 1 ] ||
        fail "$layout: $(field layout-run/summary.json val_loss) in training, $(field layout.json loss) afterwards"
done
train stages --model mlp --pipeline 2 -n 2 --tta 1 --epochs 1 --threads 1
"$TUTTI" eval stages --json layout.json >layout.out || fail "eval of a pipeline's run"
[ "$(awk -v a="$(field stages/summary.json val_loss)" -v b="$(field layout.json loss)" 'BEGIN { d = a - b; print (d < 1e-6 && d > -1e-6) }')" = 1 ] || fail "stages: other numbers"

# What has no views
refused 2 'tta: it is for images [C,H,W] of at least 2 x 2 pixels, and the samples of data=shakespeare are' "$TUTTI" train --run-dir x --data shakespeare --model gpt2 --tta 1
refused 2 'tta: 3 is out of range; expected 0 to 2' "$TUTTI" eval plain --tta 3
cp "$BUILD_DIR/tests/program/own_trainer" mine
refused 2 "tta: it averages outputs, and this program's own loss is of the outputs of one forward pass; use tta=0" ./mine loss --run-dir x --tta 1
echo "tta: views are averaged"
