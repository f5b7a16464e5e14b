# lora_peft.sh -- the same adapters here and in Hugging Face's PEFT: logits, gradients, files both ways, merged weights.
# SPDX-License-Identifier: MIT
# timeout: 240, tier: long
#
# With the PyTorch, torchvision and peft of python3, or of the interpreter that TUTTI_TEST_PYTHON names.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
python=$(command -v "${TUTTI_TEST_PYTHON:-python3}") && "$python" -c 'import torch, torchvision, peft, safetensors.torch' 2>/dev/null || {
    echo "skipped: ${TUTTI_TEST_PYTHON:-python3} has no PyTorch with torchvision and peft (pip install torch torchvision peft; TUTTI_TEST_PYTHON names another interpreter)"
    exit 77
}
export PYTHONDONTWRITEBYTECODE=1
unset TUTTI_TEST_PYTHON

cat >there.py <<'END'
import os, re, sys
import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from torchvision.models.vision_transformer import VisionTransformer

torch.manual_seed(1)
torch.set_num_threads(1)
rows = re.findall(r'^"(.{64})(.)",$', open(os.path.join(os.environ["SOURCE_DIR"], "src/data/format/digits.inc")).read(), re.M)


def part(test):
    chosen = [r for i, r in enumerate(rows) if (i % 5 == 4) == test]
    pixels = torch.tensor([[(int(c, 17) * 255 + 8) // 16 for c in r[0]] for r in chosen]).float()
    return ((pixels / 255 - 0.3059) / 0.3763).reshape(-1, 1, 8, 8), torch.tensor([int(r[1]) for r in chosen])


def base():
    model = VisionTransformer(image_size=8, patch_size=2, num_layers=2, num_heads=2, hidden_dim=48, mlp_dim=192, num_classes=10)
    model.conv_proj = torch.nn.Conv2d(1, 48, 2, 2)
    return model


def near(what, here, there):
    d = (here - there).abs().max().item() / max(there.abs().max().item(), 1e-30)
    print(f"{what}: {d:.1e} of the largest")
    assert d < 1e-4, (what, d)


def before():
    model = base()
    torch.nn.init.normal_(model.heads.head.weight, std=0.3)
    save_file(model.state_dict(), "base.safetensors")
    config = LoraConfig(r=4, lora_alpha=8, target_modules=r".*self_attention|.*mlp\.(0|3)", modules_to_save=["heads.head"],
                        init_lora_weights=False)
    model = get_peft_model(model, config)
    with torch.no_grad():  # PEFT's MultiheadAttention adds out_proj's part twice (0.17)
        for name, p in model.named_parameters():
            if "out_proj.lora_B" in name:
                p.zero_()
    model.save_pretrained("theirs")
    model.eval()
    with torch.no_grad():
        save_file({"logits": model(part(True)[0])}, "logits.safetensors")
    model.train()
    torch.nn.functional.cross_entropy(model(part(False)[0]), part(False)[1]).backward()
    save_file({n.replace(".default", "").replace("modules_to_save.", ""): p.grad for n, p in model.named_parameters() if p.requires_grad},
              "gradients.safetensors")


def after():
    near("logits", load_file("predicted.safetensors")["logits"], load_file("logits.safetensors")["logits"])
    start, end = load_file("theirs/adapter_model.safetensors"), load_file("ours/adapter_model.safetensors")
    gradients = load_file("gradients.safetensors")
    assert start.keys() == end.keys() == gradients.keys(), start.keys() ^ end.keys()
    for name, g in gradients.items():
        near(name, start[name] - end[name], g)  # a step of SGD with the learning rate 1
    model = base()
    start = load_file("base.safetensors")
    model.load_state_dict(start)
    model = PeftModel.from_pretrained(model, "ours")
    loaded = get_peft_model_state_dict(model)
    assert loaded.keys() == end.keys() and all(torch.equal(loaded[n], end[n]) for n in end)
    merged = load_file("merged.safetensors")
    assert merged.keys() == start.keys()
    for name, w in start.items():
        layer = name.removesuffix(".weight").removesuffix(".in_proj_weight")
        peft = "base_model.model." + layer.replace("self_attention.out_proj", "self_attention.base_layer.out_proj")
        if peft + ".lora_A.weight" in end and not name.endswith("bias"):
            w += 2 * end[peft + ".lora_B.weight"] @ end[peft + ".lora_A.weight"]
        near(name, merged[name], end.get("base_model.model." + name, w))
    model = base()
    model.load_state_dict(merged)
    model.eval()
    with torch.no_grad():
        near("logits of the trained adapters", load_file("trained.safetensors")["logits"], model(part(True)[0]))


before() if sys.argv[1] == "before" else after()
END
"$python" there.py before
model="--model vit --layers 2 --width 48 --heads 2 --lora-rank 4 --lora-alpha 8 --lora-train heads.head --lora-init theirs"
"$TUTTI" predict base.safetensors $model --data digits --out predicted.safetensors >/dev/null
train run $model --init base.safetensors --batch-size 1438 --max-steps 1 --optimizer sgd --lr 1 --momentum 0 --weight-decay 0 \
    --schedule constant --warmup-epochs 0 --augment false
"$TUTTI" checkpoint export run --adapter ours >/dev/null
"$TUTTI" checkpoint export run merged.safetensors >/dev/null
"$TUTTI" predict run --out trained.safetensors >/dev/null
"$python" there.py after
