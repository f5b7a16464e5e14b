"""Models of Hugging Face's transformers for hf_transformers.sh: makes folders, and measures losses.   SPDX-License-Identifier: MIT

    python hf_transformers.py make DIR       gpt2, base, parts, bin, half, llama, tied, words (with a tokenizer), tokens/train.bin and val.bin
    python hf_transformers.py ends DIR       the tokens of begin and end, and of a text, which are those of DIR/tokenizer.json
    python hf_transformers.py loss MODEL...  mean cross entropy of the next token over tokens/val.bin"""
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy
import tokenizers
import torch
import transformers

VOCAB, CONTEXT, BATCH = 97, 32, 4
TOKENS = "tokens"


def make(folder):
    torch.manual_seed(3)
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=VOCAB, n_positions=64, n_embd=48, n_layer=3, n_head=4,
                                                               initializer_range=0.2, bos_token_id=None, eos_token_id=None))
    gpt2.save_pretrained(f"{folder}/gpt2")
    gpt2.transformer.save_pretrained(f"{folder}/base")
    gpt2.save_pretrained(f"{folder}/parts", max_shard_size="100KB")
    gpt2.save_pretrained(f"{folder}/bin", safe_serialization=False)
    gpt2.half().save_pretrained(f"{folder}/half")
    words = tokenizers.Tokenizer(tokenizers.models.BPE())
    words.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = tokenizers.decoders.ByteLevel()
    words.train([__file__], tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|endoftext|>"], initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=300, max_position_embeddings=64, hidden_size=48, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4, initializer_range=0.2,
        bos_token_id=7, eos_token_id=0)).save_pretrained(f"{folder}/words")
    words.save(f"{folder}/words/tokenizer.json")
    rope = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
    for name, options in (("llama", {"rope_scaling": rope}), ("tied", {"tie_word_embeddings": True, "rope_theta": 5e5, "rms_norm_eps": 1e-5})):
        llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=VOCAB, max_position_embeddings=64, hidden_size=64, intermediate_size=136, num_hidden_layers=3, num_attention_heads=8,
            num_key_value_heads=2, initializer_range=0.2, bos_token_id=None, eos_token_id=None, **options))
        llama.save_pretrained(f"{folder}/{name}", max_shard_size="100KB")
    os.makedirs(TOKENS, exist_ok=True)
    for name, n in (("train", 4000), ("val", 20 * CONTEXT + 1)):
        tokens = torch.arange(n) ** 2 % VOCAB
        tokens[0] = VOCAB - 1
        tokens.numpy().astype(numpy.uint16).tofile(f"{TOKENS}/{name}.bin")


def loss(path):
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    tokens = torch.from_numpy(numpy.fromfile(f"{TOKENS}/val.bin", dtype=numpy.uint16).astype(numpy.int64))
    x, y = tokens[:-1].view(-1, CONTEXT), tokens[1:].view(-1, CONTEXT)
    with torch.no_grad():
        return torch.nn.functional.cross_entropy(model(x).logits.flatten(0, 1), y.flatten()).item()


def ends(folder):
    text = "Hello, world"
    tokenizer, config = transformers.AutoTokenizer.from_pretrained(folder), transformers.AutoConfig.from_pretrained(folder)
    assert tokenizer(text)["input_ids"] == tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json").encode(text).ids, tokenizer(text)
    assert len(tokenizer) == config.vocab_size, len(tokenizer)
    print(config.bos_token_id, config.eos_token_id, tokenizer.eos_token)


def main():
    if sys.argv[1] == "make":
        make(sys.argv[2])
        return
    if sys.argv[1] == "ends":
        ends(sys.argv[2])
        return
    for path in sys.argv[2:]:
        print(loss(path))


if __name__ == "__main__":
    main()
