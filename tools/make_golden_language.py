#!/usr/bin/env python3
# make_golden_language.py: small language models of Hugging Face's transformers, for tests/golden/optim_language_models.c.
# SPDX-License-Identifier: MIT
#
#   python3 -m venv V && V/bin/pip install torch transformers
#   V/bin/python tools/make_golden_language.py
#
# Writes tests/golden/gpt2.safetensors and llama.safetensors: weights, two samples of tokens and their targets, the logits, the gradients
# of the mean cross entropy ("grad.NAME"), and the losses of ten steps of AdamW on that batch.
import os

import safetensors.torch
import torch
import transformers

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden")
VOCAB, CONTEXT, WIDTH = 29, 10, 16


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCAB, n_positions=CONTEXT, n_embd=WIDTH, n_layer=2, n_head=2, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0, initializer_range=0.2))


def llama():
    rope = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=VOCAB, max_position_embeddings=CONTEXT, hidden_size=WIDTH, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, rope_scaling=rope, rms_norm_eps=1e-5, initializer_range=0.2))


def main():
    for make in (gpt2, llama):
        torch.manual_seed(0)
        model = make()
        x, y = torch.randint(VOCAB, (2, CONTEXT)), torch.randint(VOCAB, (2, CONTEXT))
        y[0, :3] = -100
        tensors = {name: p.detach().clone() for name, p in model.named_parameters()} | {"x": x, "y": y}
        optim = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
        losses = []
        for step in range(10):
            logits = model(x).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
            optim.zero_grad()
            loss.backward()
            if step == 0:
                tensors["logits"] = logits.detach()
                tensors |= {f"grad.{name}": p.grad.clone() for name, p in model.named_parameters()}
            losses.append(loss.item())
            optim.step()
        tensors["losses"] = torch.tensor(losses)
        metadata = {"torch": torch.__version__, "transformers": transformers.__version__}
        safetensors.torch.save_file(tensors, os.path.join(FOLDER, f"{make.__name__}.safetensors"), metadata)


if __name__ == "__main__":
    main()
