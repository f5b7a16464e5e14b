# eval_pytorch.sh -- weights exported to PyTorch and back give the same logits and accuracy in both.
# SPDX-License-Identifier: MIT
# timeout: 180, tier: long
#
# With the PyTorch and safetensors of python3, or of the interpreter that TUTTI_TEST_PYTHON names.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
python=$(command -v "${TUTTI_TEST_PYTHON:-python3}") && "$python" -c 'import torch, safetensors.torch, numpy' 2>/dev/null || {
    echo "skipped: ${TUTTI_TEST_PYTHON:-python3} has no PyTorch with safetensors (pip install torch numpy safetensors; TUTTI_TEST_PYTHON names another interpreter)"
    exit 77
}
export PYTHONDONTWRITEBYTECODE=1
unset TUTTI_TEST_PYTHON

train run --model mini_resnet --epochs 2 -n 2
for type in f32 f16 bf16; do
    "$TUTTI" checkpoint export run "$type.pt" --dtype $type >/dev/null
    "$TUTTI" checkpoint export run "$type.safetensors" --dtype $type >/dev/null
    "$TUTTI" predict "$type.pt" --model mini_resnet --data digits --out "$type.logits.safetensors" >/dev/null
done
"$TUTTI" predict run --out logits.safetensors >/dev/null

# PyTorch's outputs for the same images, with weights loaded by its own readers; then files that it saves.
cat >there.py <<'END'
import json, os, re, sys
import torch
from safetensors.torch import load_file, save_file
sys.path.insert(0, os.path.join(os.environ["SOURCE_DIR"], "tools"))
from make_golden import MiniResNet

torch.manual_seed(0)
rows = re.findall(r'^"(.{64})(.)",$', open(os.path.join(os.environ["SOURCE_DIR"], "src/data/format/digits.inc")).read(), re.M)
pixels = [[(int(c, 17) * 255 + 8) // 16 for c in row[0]] for row in rows[4::5]]  # the test part
images = ((torch.tensor(pixels).float() / 255 - 0.3059) / 0.3763).reshape(-1, 1, 8, 8).expand(-1, 3, 8, 8)
labels = load_file("logits.safetensors")["label"]


def answers(state):
    model = MiniResNet(3)
    model.load_state_dict(state)
    model.eval()
    with torch.no_grad():
        return model(images)


ours = load_file("logits.safetensors")
for name in ("f32", "f16", "bf16"):
    a = torch.load(f"{name}.pt", weights_only=True)
    b = load_file(f"{name}.safetensors")
    assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) and a[k].dtype == b[k].dtype for k in a), name
    assert a["fc.weight"].dtype == {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[name]
    y = answers(a)
    d = (y - load_file(f"{name}.logits.safetensors")["logits"]).abs().max().item()
    print(f"{name}: logits differ by {d:.2e} at most")
    assert d < 1e-5 * max(1, y.abs().max().item()), d
state = torch.load("f32.pt", weights_only=True)
assert (answers(state) - ours["logits"]).abs().max() < 1e-5 * max(1, ours["logits"].abs().max().item())

# PyTorch continues training, so that the saved weights are its own.
model = MiniResNet(3)
model.load_state_dict(state)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for i in range(4):
    loss = torch.nn.functional.cross_entropy(model(images[i * 64 : i * 64 + 64]), labels[i * 64 : i * 64 + 64])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
own = model.state_dict()
with torch.no_grad():
    y = model(images)
accuracy = {}
for name, s in (("own", own), ("half", {k: v.half() if v.is_floating_point() else v for k, v in own.items()})):
    accuracy[name] = (answers(s).argmax(1) == labels).double().mean().item()
torch.save(own, "own.pt")
torch.save({"epoch": 3, "model": {"module." + k: v for k, v in own.items()}, "optimizer": optimizer.state_dict(),
            "rng": torch.get_rng_state()}, "ddp.pt")
torch.save({k: v.half() if v.is_floating_point() else v for k, v in own.items()}, "half.pt")
torch.save({k: torch.nn.Parameter(v.double()) if v.is_floating_point() else v for k, v in own.items()}, "double.pt")
torch.save({k: v.t().contiguous().t() if v.dim() == 2 else v for k, v in own.items()}, "strided.pt")
save_file({"module." + k: v.clone() for k, v in own.items()}, "own.safetensors")
save_file({"logits": y.contiguous()}, "theirs.safetensors")
json.dump(accuracy, open("accuracy.json", "w"))
END
"$python" there.py || fail "PyTorch's side"

# Weights saved by PyTorch give PyTorch's outputs here, for every kind of file.
for file in own.pt ddp.pt double.pt strided.pt own.safetensors half.pt; do
    name=own
    [ $file = half.pt ] && name=half
    "$TUTTI" eval $file --model mini_resnet --data digits --json result.json >eval.out || fail "eval $file"
    "$python" - $name <<'END' || fail "$file: the accuracy differs from PyTorch's"
import json, sys
a, b = json.load(open("result.json"))["accuracy"], json.load(open("accuracy.json"))[sys.argv[1]]
print(f"accuracy {a:.4f} here, {b:.4f} in PyTorch")
assert abs(a - b) < 1e-9 and b > 0.5
END
done
"$TUTTI" predict ddp.pt --model mini_resnet --data digits --out back.safetensors >/dev/null
"$python" - <<'END' || fail "logits of what PyTorch trained"
from safetensors.torch import load_file
a, b = load_file("back.safetensors")["logits"], load_file("theirs.safetensors")["logits"]
print(f"logits of its weights differ by {(a - b).abs().max():.2e} at most")
assert (a - b).abs().max() < 1e-5 * max(1, b.abs().max())
END
train on --init ddp.pt --epochs 1 --max-steps 1 --eval-every 0
grep -q '^init: 92 of 92 tensors from ddp.pt (PyTorch, key "model"); "module." removed from their names$' on.out || fail "init: $(head -1 on.out)"
echo "to PyTorch and back: ok"
