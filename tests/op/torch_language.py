"""Language models against those of Hugging Face's transformers, from the same random weights: state dict, loss, logits, gradients, and ten steps of AdamW.
SPDX-License-Identifier: MIT

    python torch_language.py [--library libtutti.so] [NAME...]

Tolerances: the loss 1e-6, relative to transformers' in F64; logits and gradients 1e-4 of the largest element, from those in F64; the losses of
ten steps 1e-5 from those of F32. Exit code 77 if this Python has no transformers."""
import copy
import ctypes
import os
import sys

from tutti_structs import LlamaOpts, ModelOpts, P, RopeOpts

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import torch
    import transformers
except ImportError as e:
    print(f"skipped: {sys.executable} has no transformers ({e}); TUTTI_TEST_PYTHON names another interpreter")
    sys.exit(77)
from tutti_model import FAILED, Model, arguments, check, finish, language_loss, ten_steps

CONTEXT, VOCAB, BATCH = 24, 211, 3


def gpt2(**options):
    config = transformers.GPT2Config(vocab_size=VOCAB, n_positions=CONTEXT, n_embd=48, n_layer=3, n_head=4, attn_pdrop=0, embd_pdrop=0,
                                     resid_pdrop=0, **options)
    return transformers.GPT2LMHeadModel(config), ModelOpts(classes=VOCAB, layers=3, hidden=48, heads=4, context=CONTEXT)


def llama(rope=None, tied=False, **options):
    config = transformers.LlamaConfig(vocab_size=VOCAB, max_position_embeddings=CONTEXT, hidden_size=64, intermediate_size=136, num_hidden_layers=3,
                                      num_attention_heads=8, num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=tied, **options)
    opts = ModelOpts(classes=VOCAB, layers=3, hidden=64, heads=8, context=CONTEXT)
    opts.kept = LlamaOpts(ffn_width=136, kv_heads=2, tie_embeddings=tied, rope=rope or RopeOpts())
    opts.llama = ctypes.cast(ctypes.pointer(opts.kept), P)
    return transformers.LlamaForCausalLM(config), opts


LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8}
MODELS = {"gpt2": ("gpt2", gpt2, {}, CONTEXT), "gpt2 of few tokens": ("gpt2", gpt2, {}, 7), "llama": ("llama", llama, {}, CONTEXT),
          "llama tied": ("llama", llama, {"tied": True, "rope_theta": 5e5, "rope": RopeOpts(theta=5e5)}, 11),
          "llama of linear positions": ("llama", llama, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope": RopeOpts(scaling=1, factor=2)},
                                        CONTEXT),
          "llama of llama3's positions": ("llama", llama, {"rope_scaling": LLAMA3, "rope": RopeOpts(scaling=2, factor=4, original_context=8)}, CONTEXT)}


def same_state(label, theirs, ours):
    """Names and shapes of the tensors that a module of ours has once, in order."""
    state, mine = theirs.state_dict(), ours.state()
    seen, tied = {}, []
    for key, value in state.items():
        (tied.append if value.data_ptr() in seen else lambda k: None)(key)
        seen.setdefault(value.data_ptr(), key)
    if list(mine) != [k for k in state if k not in tied]:
        FAILED.append(f"{label}: the state dict is {list(mine)[:6]}..., expected {list(state)[:6]}...")
        return False
    wrong = [key for key, p in mine.items() if ours.shape(p) != list(state[key].shape)]
    FAILED.extend(f"{label}: {key} is {ours.shape(mine[key])}, expected {list(state[key].shape)}" for key in wrong)
    return not wrong


def run(t, label, name, make, options, tokens):
    torch.manual_seed(1)
    theirs, opts = make(**options)
    opts.channels, opts.height, opts.width = tokens, 1, 1
    ours = Model(t, name, opts)
    if not same_state(label, theirs, ours):
        return
    state = theirs.state_dict()
    for key, value in state.items():  # what begins with zeros and ones
        if value.dim() == 1:
            value.add_(torch.randn_like(value) * 0.02)
    ours.load(state)
    x, y = torch.randint(VOCAB, (BATCH, tokens)), torch.randint(VOCAB, (BATCH, tokens))
    y[0, :3] = -100
    exact = copy.deepcopy(theirs).double()
    exact.config._attn_implementation = theirs.config._attn_implementation = "eager"
    wanted = exact(x).logits
    loss = language_loss(exact, x, y)
    loss.backward()
    errors = [check(f"{label}: logits", ours.logits(x, theirs(x).logits.detach(), True), wanted.detach(), 1e-4)]
    errors.append(check(f"{label}: loss", torch.tensor(ours.backward(x, y)), loss.detach(), 1e-6))
    mine, worst = ours.state(), 0
    least = 1e-3 * max(q.grad.abs().max().item() for q in exact.parameters())  # a bias of keys has none but rounding
    for key, q in exact.named_parameters():
        found = ours.read(mine[key], theirs.get_parameter(key), True)
        worst = max(worst, check(f"{label}: gradient of {key}", found, q.grad, 1e-4, least))
    after, losses = ten_steps(t, label, theirs, ours, x, y)
    print(f"{label}: {len(mine)} tensors; off by at most {errors[0]:.1e} in logits, {errors[1]:.1e} in the loss, {worst:.1e} in gradients, "
          f"{after:.1e} in the losses of ten steps of AdamW ({loss.item():.3f} to {losses[-1][0]:.3f})")
    t.c.tutti_model_free(ours.p)


def main():
    t, is_asked = arguments()
    for label, row in MODELS.items():
        if is_asked(label):
            run(t, label, *row)
    finish()


if __name__ == "__main__":
    main()
