"""Low-rank adapters of GPT-2 against those of Hugging Face's PEFT, with the same base weights and adapters: files, logits, the loss, the
gradients of the adapters, and the losses of ten steps of AdamW on them alone.   SPDX-License-Identifier: MIT

    python torch_lora.py [--library libtutti.so]

Tolerances as in torch_language.py. Exit code 77 if this Python has no transformers or no peft."""
import copy
import ctypes
import os
import sys
import tempfile

from tutti_structs import INT, ModelOpts, P, U64

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import peft
    import torch
    import transformers
except ImportError as e:
    print(f"skipped: {sys.executable} lacks a module ({e}); TUTTI_TEST_PYTHON names another interpreter")
    sys.exit(77)
from tutti_model import FAILED, Model, arguments, check, finish, language_loss, ten_steps

CONTEXT, VOCAB, BATCH = 24, 211, 3


class LoraOpts(ctypes.Structure):
    _fields_ = [("rank", INT), ("alpha", ctypes.c_double), ("dropout", ctypes.c_double), ("targets", ctypes.c_char_p), ("train", ctypes.c_char_p),
                ("reserved", U64 * 4)]


CASES = {
    "all layers": (dict(r=5, lora_alpha=16, target_modules=["c_attn", "c_proj", "c_fc"]), LoraOpts(rank=5, alpha=16)),
    "c_attn": (dict(r=4, lora_alpha=4, target_modules=["c_attn"]), LoraOpts(rank=4, targets=b"c_attn")),
    "a layer, and norms trained": (dict(r=2, lora_alpha=3, target_modules=["transformer.h.1.mlp.c_fc"], modules_to_save=["ln_f"]),
                                   LoraOpts(rank=2, alpha=3, targets=b"transformer.h.1.mlp.c_fc", train=b"transformer.ln_f")),
}


def plain(name):
    """Our name of a parameter of a PeftModel."""
    for part in ("base_model.model.", ".base_layer", ".default", ".modules_to_save"):
        name = name.replace(part, "")
    return name


def run(t, label, config, lora, folder):
    torch.manual_seed(1)
    base = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=VOCAB, n_positions=CONTEXT, n_embd=48, n_layer=3, n_head=4, attn_pdrop=0,
                                                                embd_pdrop=0, resid_pdrop=0))
    ours = Model(t, "gpt2", ModelOpts(channels=CONTEXT, height=1, width=1, classes=VOCAB, layers=3, hidden=48, heads=4, context=CONTEXT))
    ours.load(base.state_dict())
    frozen = {name: ours.read(p, base.state_dict()[name]) for name, p in ours.state().items()}
    theirs = peft.get_peft_model(base, peft.LoraConfig(fan_in_fan_out=True, init_lora_weights=False, **config))
    theirs.save_pretrained(folder)
    t.must(t.c.tutti_lora_apply(ours.module, ctypes.byref(lora)))
    t.must(t.c.tutti_lora_load(ours.module, folder.encode()))
    x, y = torch.randint(VOCAB, (BATCH, CONTEXT)), torch.randint(VOCAB, (BATCH, CONTEXT))
    exact = copy.deepcopy(theirs).double()
    exact.config._attn_implementation = theirs.config._attn_implementation = "eager"
    wanted = exact(x).logits
    loss = language_loss(exact, x, y)
    loss.backward()
    errors = [check(f"{label}: logits", ours.logits(x, wanted.detach().float(), True), wanted.detach(), 1e-4)]
    errors.append(check(f"{label}: loss", torch.tensor(ours.backward(x, y)), loss.detach(), 1e-6))
    mine, trained, worst = ours.state(), set(), 0
    for name, q in exact.named_parameters():
        if q.requires_grad:
            trained.add(plain(name))
            found = ours.read(mine[plain(name)], q.detach().float(), True)
            worst = max(worst, check(f"{label}: gradient of {name}", found, q.grad, 1e-4))
    after, losses = ten_steps(t, label, theirs, ours, x, y)
    for name, value in frozen.items():
        if name not in trained and not torch.equal(ours.read(mine[name], value), value):
            FAILED.append(f"{label}: {name} was frozen, and has changed")
    for name, q in theirs.named_parameters():
        if q.requires_grad:
            check(f"{label}: {name} after ten steps", ours.read(mine[plain(name)], q.detach()), q.detach(), 1e-3)
    print(f"{label}: {len(trained)} tensors trained; off by at most {errors[0]:.1e} in logits, {errors[1]:.1e} in the loss, {worst:.1e} in gradients, "
          f"{after:.1e} in the losses of ten steps of AdamW ({losses[0][0]:.3f} to {losses[-1][0]:.3f})")
    t.c.tutti_model_free(ours.p)


def main():
    t, _ = arguments()
    for label, row in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            run(t, label, *row, folder)
    finish()


if __name__ == "__main__":
    main()
