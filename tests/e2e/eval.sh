# eval.sh -- `tutti eval` and `tutti predict`: the numbers of training's own evaluation, for any number of ranks.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
command -v python3 >/dev/null || { echo "skipped: needs python3"; exit 77; }

results() { grep -v '"world_size"\|"seconds"\|"images_per_s"' "$1"; }

# Without oneDNN the reference kernels need minutes for mini_resnet.
model=mini_resnet other=mlp
"$TUTTI" -V | grep -qw onednn || model=mlp other=linear
train run --model $model --epochs 1 --max-steps 12 --threads 1
"$TUTTI" eval run --confusion --json one.json >one.out || fail "eval"
for n in 2 3; do
    "$TUTTI" eval run --confusion --json many.json -n $n >many.out 2>&1 || { cat many.out; fail "eval -n $n"; }
    grep -q "\"world_size\": $n" many.json || fail "not $n ranks"
    cmp <(results one.json) <(results many.json) || fail "$n ranks give different numbers"
done
"$TUTTI" run -n 2 "$TUTTI" eval run/checkpoints/latest --json many.json --confusion >many.out 2>&1 || { cat many.out; fail "under tutti run"; }
cmp <(results one.json | grep -v '"weights"') <(results many.json | grep -v '"weights"') || fail "under tutti run: other numbers"
grep -Eq '^  class +images +correct +recall +precision +F1$' one.out || fail "no table of classes"
grep -q "^$model on digits:test, 359 images, 1 rank" one.out || fail "$(head -2 one.out)"

# ---- The same as in training, and as in the rows
"$TUTTI" predict run --out rows.csv >predict.out || fail "predict fails"
"$TUTTI" predict run --out rows.safetensors >/dev/null || fail "predict to safetensors fails"
"$TUTTI" predict run --out - -n 2 >rows2.csv || fail "predict -n 2 fails"
cmp rows.csv rows2.csv || fail "2 ranks give other predictions, or in another order"
"$TUTTI" predict run --out p.csv --format probabilities >/dev/null || fail "probabilities"
[ "$(awk -F, 'NR > 1' rows.csv | cut -d, -f4- | tr , '\n' | wc -l)" = "$(numbers rows.safetensors | awk 'END { print 3590 }')" ] || fail "rows.csv is not 359 rows of 10 values"
python3 - <<'END' || fail "the numbers contradict each other"
import csv, json, math
o = json.load(open("one.json"))
s = json.load(open("run/summary.json"))
evals = [json.loads(line)["eval"] for line in open("run/metrics.jsonl") if '"eval"' in line]
rows = [[float(x) for x in r] for r in list(csv.reader(open("rows.csv")))[1:]]
p = [[float(x) for x in r] for r in list(csv.reader(open("p.csv")))[1:]]
assert o["images"] == len(rows) == 359 and [r[0] for r in rows] == list(range(359))
assert o["accuracy"] == s["val_accuracy"] or abs(o["accuracy"] - s["val_accuracy"]) < 1e-8, (o["accuracy"], s["val_accuracy"])
f1 = [c["f1"] for c in o["classes"] if c["f1"] is not None]
assert abs(o["f1"] - sum(f1) / len(f1)) < 1e-12 and abs(o["f1"] - s["val_f1"]) < 1e-8, (o["f1"], s["val_f1"])
assert s["confusion"]["counts"] == o["confusion"]
assert abs(o["loss"] - evals[-1]["val_loss"]) < 1e-6 * o["loss"]
hits = sum(r[1] == r[2] for r in rows)
loss = sum(math.log(sum(math.exp(x) for x in r[3:])) - r[3 + int(r[1])] for r in rows) / 359
assert hits == o["correct"] and abs(loss - o["loss"]) < 1e-6
top5 = sum(sorted(r[3:], reverse=True).index(r[3 + int(r[1])]) < 5 for r in rows)
assert abs(o["top5_accuracy"] - top5 / 359) < 1e-12
for c in o["classes"]:
    k = c["class"]
    assert c["images"] == sum(r[1] == k for r in rows) and c["predicted"] == sum(r[2] == k for r in rows)
    assert c["correct"] == sum(r[1] == k == r[2] for r in rows)
    assert c["f1"] is None or abs(c["f1"] - 2 * c["correct"] / (c["images"] + c["predicted"])) < 1e-12
    assert c["recall"] is None or abs(c["recall"] - c["correct"] / c["images"]) < 1e-12
    assert [sum(r[1] == k and r[2] == j for r in rows) for j in range(10)] == o["confusion"][k]
for r in p:
    assert abs(sum(r[3:]) - 1) < 1e-5 and r[3 + int(r[2])] == max(r[3:])
END

# ---- A file without a run, another split, and errors
"$TUTTI" checkpoint export run w.pt >/dev/null
"$TUTTI" eval w.pt --model $model --data digits --json - >alone.json || fail "a .pt file"
cmp <(results one.json | grep '"loss"') <(results alone.json | grep '"loss"') || fail "a .pt file gives another loss"
"$TUTTI" eval run --split train --json - | grep -q '"images": 1438' || fail "--split train"
refused 2 'w.pt has no configuration beside it' "$TUTTI" eval w.pt
refused 2 'w.pt has no configuration beside it' "$TUTTI" eval w.pt -n 2
refused 1 'cannot open nowhere: there is no such file or folder; expected a checkpoint, a run folder, or a .safetensors or .pt file' "$TUTTI" eval nowhere
refused 1 'missing: fc' "$TUTTI" eval run --model $other --data digits
refused 2 '--split is "tset", expected train or test (did you mean test?)' "$TUTTI" eval run --split tset
refused 2 'there is no flag "--splt" (did you mean "--split"?); see tutti eval --help' "$TUTTI" eval run --splt train
refused 2 'there is no flag "--out"; see tutti eval --help' "$TUTTI" eval run --out x.csv
refused 2 'expected a file that ends in .safetensors or .csv' "$TUTTI" predict run --out x.npy
refused 2 'expected logits or probabilities' "$TUTTI" predict run --out x.csv --format odds
refused 2 'expected a checkpoint' "$TUTTI" eval
refused 2 '--confusion takes no value, but "yes" was given: leave it out' "$TUTTI" eval run --confusion=yes
refused 2 'one checkpoint or file, but there are "run" and "w.pt"' "$TUTTI" eval run w.pt

cp -r run broken
python3 - broken/checkpoints/latest/state.json <<'END'
import json, sys
state = json.load(open(sys.argv[1]))
state.pop("digest")
state["data"] = "x"
json.dump(state, open(sys.argv[1], "w"))
END
refused 1 'broken/checkpoints/latest/state.json is damaged: "data" is not an object' "$TUTTI" eval broken/checkpoints/latest
# A latest checkpoint that is not whole, which a resume would skip: other weights are not taken in silence
cp -r run/checkpoints/step-00000012 broken/checkpoints/step-00000011
rm broken/checkpoints/step-00000012/state.json
refused 1 'the latest checkpoint, broken/checkpoints/step-00000012, is not whole: it has no state.json; remove it, or name the last whole one, broken/checkpoints/step-00000011' "$TUTTI" eval broken
refused 1 'broken/checkpoints/step-00000012, is not whole' "$TUTTI" predict broken/checkpoints --out -
"$TUTTI" eval broken/checkpoints/step-00000011 >/dev/null || fail "the last whole checkpoint"
"$TUTTI" eval broken/model.safetensors >/dev/null || fail "the file of weights of a run whose latest checkpoint is not whole"
rm broken/checkpoints/step-00000011/{model.safetensors,state.json}
refused 1 'is not whole: it has no state.json; remove it, or name a file of weights' "$TUTTI" eval broken

# ---- Outputs never replace a run's own files, nor the weights, and are refused before any work.
cp run/model.safetensors w.safetensors
refused 2 '--out w.safetensors is the file of the weights' "$TUTTI" predict w.safetensors --out w.safetensors
refused 2 '--out run/model.safetensors would write into a run, ' "$TUTTI" predict w.pt --out run/model.safetensors
ln -s run/checkpoints/latest/model.safetensors link.safetensors
for out in run/checkpoints/latest/{model,optimizer,logits}.safetensors link.safetensors; do
    refused 2 "--out $out would write into a checkpoint, " "$TUTTI" predict run --out $out
done
refused 2 '--json run/checkpoints/latest/state.json would write into a checkpoint' "$TUTTI" eval run --json run/checkpoints/latest/state.json
refused 2 '--json run/config.json would write into a run' "$TUTTI" eval run --json run/config.json
refused 2 'run/summary.json would write into a run' "$TUTTI" report run --out run/summary.json
refused 2 'run/.lock would write into a run' "$TUTTI" report run --out run/.lock
refused 1 'cannot write /proc/self/nowhere.tmp: No such file' "$TUTTI" report run --out /proc/self/nowhere
refused 2 'model.pt would write into a checkpoint' "$TUTTI" checkpoint export run run/checkpoints/latest/model.pt
refused 2 '--json is empty; expected a file' "$TUTTI" eval run --json ""
refused 2 '--out is empty; expected a file' "$TUTTI" predict run --out ""
refused 2 '--json run is a folder; expected a file' "$TUTTI" eval run --json run
mkdir begun && cp run/config.json run/metrics.jsonl begun && ln -s begun/summary.json dangling
refused 2 '--json dangling would write into a run' "$TUTTI" eval run --json dangling
for n in 1 2; do
    refused 1 'cannot write none/x.json: there is no folder none (mkdir -p makes it)' "$TUTTI" eval run -n $n --json none/x.json
    grep -q 'accuracy' refused.out && fail "it evaluated first: $(cat refused.out)"
    refused 1 'cannot write none/x.csv: there is no folder none (mkdir -p makes it)' "$TUTTI" predict none.pt -n $n --out none/x.csv
done
"$TUTTI" checkpoint verify run >/dev/null || fail "an output has changed the run's checkpoints"
mkdir piped && cp run/model.safetensors piped && mkfifo piped/config.json
refused 2 'cannot read piped/config.json: it is not a regular file; it would name model and data; give --model and --data' \
    timeout 60 "$TUTTI" eval piped
rm piped/config.json && echo '["mini_resnet"]' >piped/config.json
refused 2 'cannot read piped/config.json: it is not a JSON object; it would' "$TUTTI" eval piped
"$TUTTI" eval piped --model $model --data digits --json - | grep -q '"images": 359' || fail "flags instead of a configuration"
echo precious >kept.csv
refused 2 'expected train or test' "$TUTTI" predict run --out kept.csv --split dev
[ "$(cat kept.csv)" = precious ] || fail "a failure has replaced a file"

# ---- The image size comes from the run too, and only a moved folder must be given.
python3 - <<'END'
import os, struct, zlib
def png(path, w, h, value):
    chunk = lambda k, d: struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 0, 0, 0, 0))
                           + chunk(b"IDAT", zlib.compress((b"\0" + bytes([value]) * w) * h)) + chunk(b"IEND", b""))
for part in ("train", "test"):
    for i in range(6):
        png(f"pictures/{part}/{'ab'[i % 2]}/{i}.png", 10 + i, 16 - i, 40 * i)
END
if "$TUTTI" train --run-dir sized --model mlp --data folder --data-dir pictures --image-size 8 --batch-size 4 --epochs 1 --threads 1 >sized.out 2>&1; then
    mv pictures moved
    "$TUTTI" eval sized --data-dir moved --json - >sized.json || fail "eval of a run with image_size, its folder moved"
    "$TUTTI" eval sized --data-dir moved -n 2 --json - | grep -q '"images": 6' || fail "the same with two ranks"
    grep -q '"images": 6' sized.json || fail "images: $(cat sized.json)"
    refused 1 'expected F32 [256,243]' "$TUTTI" eval sized --data-dir moved --image-size 9
elif ! grep -q 'cannot read PNG' sized.out; then
    cat sized.out
    fail "training on images of mixed sizes"
fi

# ---- A signal ends it promptly, between two batches, and leaves no file.
long=(run --data synthetic)
[ $model = mini_resnet ] || { train late --model $model --data synthetic --epochs 1 --max-steps 1 --eval-every 0; long=(late); }
"$TUTTI" predict "${long[@]}" --split train --out late.csv >late.out 2>&1 &
pid=$!
for ((i = 0; i < 2000; i++)); do # until it handles SIGTERM
    caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null || true)
    (((16#${caught:-0} >> 14) & 1)) && break
    sleep 0.01
done
begin=$SECONDS
kill -TERM "$pid"
code=0
wait "$pid" || code=$?
[ "$code" = 143 ] || { cat late.out; fail "exit code $code after SIGTERM"; }
((SECONDS - begin < 30)) || fail "it took $((SECONDS - begin)) s to stop"
[ ! -e late.csv ] || fail "a file of an interrupted prediction"
echo "eval, predict: ok"

# ---- Outputs that are NaN: no class, which counts as wrong, with a warning, and for eval a failure; a file without its run is told about its table's columns
printf 'a,b,kind,p,q\n0.1,0.2,no,0,1\n-0.1,0.3,yes,1,0.5\n0.2,0.1,yes,1,1\n' >sane.csv
awk 'NR == 3 { sub("-0.1,0.3", "1000,1000") } { print }' sane.csv >vast.csv
scaled() { # RUN FILE: its weights, of which the first layer's are so large that its outputs overflow for numbers above 10
    python3 - "$1/model.safetensors" "$2" <<'END'
import array, json, struct, sys
data = open(sys.argv[1], "rb").read()
n, = struct.unpack("<Q", data[:8])
header, body, tensors, at = json.loads(data[8:8 + n]), data[8 + n:], {}, b""
header.pop("__metadata__", None)
for name in header:
    values = array.array("f", body[slice(*header[name]["data_offsets"])])
    if header[name]["shape"][1:] == [2]:
        values = array.array("f", [1e36 if v > 0 else -1e36 for v in values])
    tensors[name] = {"dtype": "F32", "shape": header[name]["shape"], "data_offsets": [len(at), len(at) + 4 * len(values)]}
    at += values.tobytes()
text = json.dumps(tensors).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + at)
END
}
table="--model mlp --data csv --features a,b --no-standardize"
train kinds $table --data-dir sane.csv --target kind --test-fraction 0 --eval-every 0 --max-steps 1 --batch-size 2 --threads 1
train labels $table --data-dir sane.csv --target p,q --task multi_label --test-fraction 0 --eval-every 0 --max-steps 1 --batch-size 2 --threads 1
scaled kinds kinds.safetensors
scaled labels labels.safetensors
for n in 1 2; do
    rm -f nan.json
    refused 1 'outputs of 1 of 3 samples are NaN, and count as wrong; look for very large numbers in the data and the weights' \
        "$TUTTI" eval kinds.safetensors $table --data-dir vast.csv --split all --target kind --confusion --json nan.json -n $n
    "$TUTTI" predict kinds.safetensors $table --data-dir vast.csv --split all --target kind --out nan.csv -n $n >nan.out 2>&1 || { cat nan.out; fail "predict of NaN"; }
    grep -q 'warn predict: outputs of 1 of 3 samples are NaN, and count as wrong: their predicted class is -1; look' nan.out ||
        { cat nan.out; fail "predict does not warn of NaN"; }
    grep -qx '1,1,-1,nan,nan,"yes",""' nan.csv || { cat nan.csv; fail "the prediction of NaN"; }
    "$TUTTI" predict labels.safetensors $table --data-dir vast.csv --split all --target p,q --task multi_label --out labels.csv -n $n >nan.out 2>&1 ||
        { cat nan.out; fail "predict of labels that are NaN"; }
    grep -qx '1,1,0.5,-1,-1,nan,nan' labels.csv || { cat labels.csv; fail "labels of NaN"; }
done
"$TUTTI" predict kinds.safetensors $table --data-dir vast.csv --split all --target kind --out nan.safetensors 2>/dev/null >nan.out || fail "predict to safetensors"
python3 - <<'END' || fail "NaN counts as a class"
import json, struct
o = json.load(open("nan.json"))
assert o["images"] == 3 and o["loss"] is None and [c["images"] for c in o["classes"]] == [1, 2], o
assert sum(c["predicted"] for c in o["classes"]) == 2 and sum(map(sum, o["confusion"])) == 2 and o["correct"] <= 2, o
data = open("nan.safetensors", "rb").read()
n, = struct.unpack("<Q", data[:8])
begin, end = json.loads(data[8:8 + n])["predicted"]["data_offsets"]
assert struct.unpack("<3q", data[8 + n + begin:8 + n + end])[1] == -1
END
refused 2 'target: kinds was trained with other columns' "$TUTTI" eval kinds --data-dir sane.csv --split all --target p
refused 2 'standardize: kinds was trained with other columns, or another scale' "$TUTTI" eval kinds --split all --standardize
"$TUTTI" eval kinds --split all --target kind --features a,b --no-standardize >same.out 2>&1 || { cat same.out; fail "the run's own columns"; }
