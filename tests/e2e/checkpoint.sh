# checkpoint.sh -- `tutti checkpoint`, and --init from every format of weights.   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
command -v python3 >/dev/null || { echo "skipped: needs python3"; exit 77; }
mlp="--model mlp --epochs 1 --max-steps 6 --eval-every 0 --threads 1"
keep="--lr 0 --max-steps 1 --model mlp --eval-every 0 --threads 1"

train run $mlp --checkpoint-every 3
latest=run/checkpoints/latest

# ---- show
"$TUTTI" checkpoint show run >show.out || fail "checkpoint show fails"
grep -q 'checkpoint at step 6, in epoch 1 after batch 6, of 1 rank; the run was finished' show.out || fail "show: the state: $(head -3 show.out)"
grep -q 'model="mlp"' show.out || fail "show: the keys"
grep -Eq '^  fc1.weight +F32 +\[256,64\] +65536$' show.out || fail "show: a tensor"
"$TUTTI" checkpoint show $latest --json --digest >show.json
python3 -c '
import json
o = json.load(open("show.json"))
t = {t["name"]: t for t in o["tensors"]}
assert t["fc2.bias"]["shape"] == [10] and t["fc2.bias"]["bytes"] == 40 and len(t["fc2.bias"]["xxh3"]) == 16
assert o["checkpoint"]["step"] == 6 and o["kind"] == "safetensors"' || fail "show --json"

echo 'model: mlp # not weights' >mlp.yaml
refused 1 'mlp.yaml is neither a safetensors file nor' "$TUTTI" train $mlp --init mlp.yaml
train epoch --model mlp --epochs 1 --threads 1
"$TUTTI" checkpoint show epoch >show.out || fail "checkpoint show fails for a whole epoch"
grep -q ', after epoch 1, of 1 rank; the run was finished' show.out || fail "show: the epoch: $(head -3 show.out)"

# ---- export, and back: the digest is the same
"$TUTTI" checkpoint export run w.pt >/dev/null || fail "checkpoint export to .pt fails"
"$TUTTI" checkpoint export w.pt --out w.safetensors >/dev/null || fail "export to .safetensors"
"$TUTTI" checkpoint export run/model.safetensors half.pt --dtype f16 >/dev/null || fail "export as f16"
"$TUTTI" checkpoint show half.pt | grep -Eq '^  fc1.weight +F16 +\[256,64\] +32768$' || fail "it is not f16"
for file in w.pt w.safetensors run run/checkpoints $latest run/checkpoints/step-00000006 run/model.safetensors; do
    train again $keep --init $file
    same run again
done
grep -q '^init: 4 of 4 tensors from run/model.safetensors (safetensors)$' again.out || fail "it does not say which tensors were loaded: $(head -1 again.out)"
train again $keep --init half.pt -n 2
equal=$(grep -c '^init: .*read: F16 as F32$' again.out)
[ "$equal" = 1 ] || fail "halves: printed $equal times"
refused 1 'w.pt is there already; --force replaces it' "$TUTTI" checkpoint export run w.pt
"$TUTTI" checkpoint export run w.pt --force >/dev/null || fail "--force"
refused 2 'expected one that ends in .safetensors, .pt or .pth' "$TUTTI" checkpoint export run w.bin
refused 2 'f32, f16 or bf16' "$TUTTI" checkpoint export run x.pt --dtype f8
refused 1 'cannot open nowhere' "$TUTTI" checkpoint show nowhere
mkdir empty
refused 1 'empty holds no weights; expected' "$TUTTI" checkpoint show empty
mkfifo pipe.pt
exec 8<>pipe.pt # a reader from the start, before cat
timeout 90 cat pipe.pt >piped 8>&- & # not forever, if the export fails
"$TUTTI" checkpoint export run pipe.pt --force >/dev/null || fail "export into a pipe"
exec 8>&-
wait
[ -p pipe.pt ] && "$TUTTI" checkpoint verify piped >/dev/null || fail "what came through the pipe"
ln -s w.pt link.pt
"$TUTTI" checkpoint export run link.pt --force >/dev/null && [ -L link.pt ] || fail "the link is gone"

# ---- Parts of a file
refused 1 'fc1.weight (F32 [256,64], expected F32 [256,3072]) (--init-partial loads what fits)' \
    "$TUTTI" train --data synthetic $keep --run-dir part --init run
train part --data synthetic $keep --init run --init-partial
grep -q '^init: 3 of 4 tensors .*left as they were: fc1.weight; of another shape' part.out || fail "it does not name the tensors that were not loaded"
train part $keep --init run --init-only fc2,fc1.bias
grep -q '^init: 3 of 4 tensors .*left as they were: fc1.weight$' part.out || fail "--init-only"
for ranks in 1 2 "2 --shards 4"; do # what is frozen keeps its bits, and the rest learns
    train frozen --model mlp --max-steps 3 --eval-every 0 --threads 1 --init run --freeze 'fc1,*.bias' -n $ranks
    "$TUTTI" checkpoint show run --json --digest >before.json
    "$TUTTI" checkpoint show frozen --json --digest >after.json
    python3 -c '
import json
a, b = ({t["name"]: t["xxh3"] for t in json.load(open(f))["tensors"]} for f in ("before.json", "after.json"))
assert [k for k in a if a[k] != b[k]] == ["fc2.weight"], (a, b)' || fail "--freeze with $ranks ranks"
    rm -r frozen
done
refused 2 'freeze: "fc3" is not a parameter or part of the model, such as fc1.weight' "$TUTTI" train $keep --run-dir part --freeze fc1,fc3
refused 2 'only: "fc3" is not a tensor' "$TUTTI" train $keep --run-dir part --init run --init-only fc3
python3 - <<'END'
import json, struct
b = bytearray(open("run/model.safetensors", "rb").read())
n = struct.unpack("<Q", b[:8])[0]
head = json.loads(b[8 : 8 + n])
at = 8 + n + head["fc2.bias"]["data_offsets"][0]
open("flipped.safetensors", "wb").write(b[: at + 1] + bytes([b[at + 1] ^ 1]) + b[at + 2 :])
head.pop("__metadata__")
b[at : at + 4] = struct.pack("<f", float("nan"))
text = json.dumps(head).encode()
open("nan.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + b[8 + n :])
evil = json.dumps({"a\n\x1b[31mb\u202ec": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
open("evil.safetensors", "wb").write(struct.pack("<Q", len(evil)) + evil + bytes(4))
END
refused 1 'nan.safetensors holds NaN or infinity in fc2.bias' "$TUTTI" train $keep --run-dir part --init nan.safetensors
refused 1 'flipped.safetensors is damaged: tensor "fc2.bias" has digest' "$TUTTI" train $keep --run-dir part --init flipped.safetensors

# ---- Foreign names are escaped on the terminal.
"$TUTTI" checkpoint show evil.safetensors >evil.out
refused 1 'a\n\x1b[31mb\xe2\x80\xaec' "$TUTTI" train $keep --run-dir part --init evil.safetensors
grep -F 'a\n\x1b[31mb\xe2\x80\xaec' evil.out >/dev/null || fail "show: the name"
! cat evil.out refused.out | grep -q $'\x1b' || fail "an escape sequence is printed"

# ---- verify names what is damaged, of a run too
"$TUTTI" checkpoint verify run >verify.out || fail "verify: $(cat verify.out)"
grep -q '^all intact: 7 files' verify.out || fail "verify: $(tail -1 verify.out)"
for file in model.safetensors optimizer.safetensors state.json; do
    cp -r run broken
    python3 - "broken/checkpoints/step-00000003/$file" <<'END'
import sys
b = bytearray(open(sys.argv[1], "rb").read())
b[len(b) - 30] ^= 1
open(sys.argv[1], "wb").write(b)
END
    refused 1 "DAMAGED  broken/checkpoints/step-00000003/$file" "$TUTTI" checkpoint verify broken
    [ "$(grep -c '^DAMAGED' refused.out)" = 1 ] || fail "more than $file"
    grep -q '^intact   broken/checkpoints/step-00000006/model.safetensors' refused.out || fail "the others are not checked"
    rm -r broken
done
cp -r run broken
rm broken/checkpoints/step-00000006/optimizer.safetensors
refused 1 'optimizer.safetensors is missing' "$TUTTI" checkpoint verify broken
# A copy of a checkpoint elsewhere without its state.json; one with another step's weights, which the file by its own name still gives.
cp -r run/checkpoints/step-00000006 copied
rm copied/state.json
refused 1 'DAMAGED  cannot read copied/state.json' "$TUTTI" checkpoint verify copied
rm -r copied && cp -r run/checkpoints/step-00000006 copied && cp run/checkpoints/step-00000003/model.safetensors copied
other='model.safetensors is another file than the one that was written with state.json beside it'
refused 1 "$other" "$TUTTI" checkpoint export copied copied.pt
refused 1 "$other" "$TUTTI" eval copied --model mlp --data digits
[ ! -e copied.pt ] && "$TUTTI" checkpoint export copied/model.safetensors copied.pt >/dev/null || fail "the file itself is refused"
# A run that goes on removes older checkpoints and moves its link: nothing of that is damaged.
"$TUTTI" train --model mlp --epochs 20 --max-steps 400 --eval-every 0 --threads 1 --checkpoint-every 1 --keep-checkpoints 3 --run-dir going --progress quiet >going.out 2>&1 &
going=$!
until [ -e going/checkpoints/latest/state.json ]; do kill -0 $going 2>kill.err || { cat going.out && fail "it ended early"; }; pause 20; done
while kill -0 $going 2>kill.err; do
    for what in going going/checkpoints/latest; do
        "$TUTTI" checkpoint verify $what >verify.out 2>&1 || { cat verify.out && fail "verify of a run that goes on: $what"; }
    done
done
wait $going || { cat going.out && fail "the run failed"; }
echo "show, verify, export, init: ok"
