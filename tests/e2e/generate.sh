# generate.sh -- tutti generate: the same text for the same seed on any number of threads and from every form of the weights; prompts,
# stops, streams; greedy text is transformers', token for token (skipped without it); samples in training; what is refused.   timeout: 300
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
generate() { "$TUTTI" generate "$@" 2>generate.err || { cat generate.err; fail "generate $*"; }; }
gpt="--model gpt2 --layers 2 --heads 4 --width 48 --context 32 --batch-size 8 --optimizer adamw --lr 0.003"
train run $gpt --data shakespeare --max-steps 60 --eval-every 1 --sample-tokens 80 --tensorboard true

# ---- A sample after the evaluation: in metrics.jsonl, on the console, in TensorBoard and the report
sample=$(sed -n 's/^{"sample": {"epoch": 1, "step": 60, "text": "\(.*\)"}}$/\1/p' run/metrics.jsonl)
[ "${#sample}" -ge 80 ] || fail "no sample of 80 characters: $(tail -1 run/metrics.jsonl)"
says run '^a sample of its text$'
grep -aq '^.*sample' run/tensorboard/* || fail "no sample in TensorBoard"
"$TUTTI" report run --out report.html >report.out 2>&1 && grep -q 'wrote after its last evaluation' report.html || { cat report.out; fail "the report"; }
first=$(printf '%b' "$(printf %s "$sample" | sed 's/\\u000a/\\n/g')" | sed -n 1p)
grep -qF -- "$first" report.html || fail "the report lacks the text: $first"
train same $gpt --data shakespeare --max-steps 60 --sample-tokens 80 --threads 1
[ "$(grep '"sample"' run/metrics.jsonl)" = "$(grep '"sample"' same/metrics.jsonl)" ] || fail "another sample with one thread"
train none $gpt --data shakespeare --max-steps 20 --sample-tokens 0
grep -q '"sample"' none/metrics.jsonl && fail "a sample that nobody asked for"

# A long text ends at a signal, and before other ranks' patience.
long="--model gpt2 --layers 1 --heads 1 --width 16 --context 16 --data shakespeare --eval-samples 12 --max-steps 1 --sample-tokens 1000000 --threads 1"
train patience $long -n 2 --timeout-s 12
grep '^{"sample"' patience/metrics.jsonl >sample.json || fail "the sample is lost: $(tail -1 patience/metrics.jsonl)"
[ "$(wc -c <sample.json)" -lt 900000 ] || fail "the text did not end: $(wc -c <sample.json) bytes"
"$TUTTI" train --run-dir signal $long >signal.out 2>&1 &
for ((i = 0; i < 3000; i++)); do # until it writes, or evaluates before that
    ! grep -qs '"step": 1' signal/metrics.jsonl || break
    sleep 0.01
done
kill -TERM $!
wait $! || [ $? = 143 ] || fail "exit code $? after SIGTERM: $(cat signal.out)"
[ "$(wc -c <signal/metrics.jsonl)" -lt 900000 ] || fail "the text did not end at a signal: $(wc -c <signal/metrics.jsonl) bytes"

# ---- The same text
generate run --prompt "ROMEO:" -n 100 >a
[ "$(head -c 6 a)" = ROMEO: ] && [ "$(wc -c <a)" -eq 106 ] || fail "not the prompt and 100 characters: $(cat a)"
for how in "--threads 1" "--threads 3" "--tokens 100" "--seed 0" "--temperature 0.8 --top-k 200 --top-p 1"; do
    generate run --prompt ROMEO: -n100 $how >b
    cmp a b || fail "another text with $how"
done
generate run/checkpoints/latest --prompt ROMEO: -n 100 >b && cmp a b || fail "another text from the checkpoint"
generate run/model.safetensors --prompt ROMEO: -n 100 >b && cmp a b || fail "another text from the file of weights"
printf ROMEO: | generate run --prompt - -n 100 >b && cmp a b || fail "another text from standard input"
printf ROMEO: >prompt.txt
generate run --prompt-file prompt.txt -n 100 >b && cmp a b || fail "another text from a file"
generate run --prompt ROMEO: -n 100 --no-prompt >b && [ "ROMEO:$(cat b)" = "$(cat a)" ] || fail "--no-prompt"
generate run --prompt ROMEO: -n 60 >b && head -c 66 a | cmp - b || fail "60 tokens are not the first of 100"
generate run --prompt ROMEO: -n 100 --seed 1 >b && ! cmp -s a b || fail "the same text from another seed"
generate run --prompt ROMEO: -n 100 --temperature 0 >greedy && generate run --prompt ROMEO: -n 100 --top-k 1 --seed 5 >b && cmp greedy b || fail "top-k 1 is not the likeliest"
generate run --prompt ROMEO: -n 20 --samples 3 --stats >b
[ "$(grep -c '^---------------$' b)" -eq 2 ] && [ "$(grep -c ROMEO: b)" -eq 3 ] || fail "three samples: $(cat b)"
grep -q '^60 tokens in .* tokens/s, after a prompt of 6$' generate.err || fail "--stats: $(cat generate.err)"
generate run --prompt ROMEO: -n 100 --context 0 --layers 0 --vocab=0 >b && cmp a b || fail "0 is not the run's own size"
generate run -n 50 >b && [ "$(wc -c <b)" -eq 50 ] || fail "a text without a prompt"
head -c 100 a >long
generate run --prompt-file long -n 10 >b && [ "$(wc -c <b)" -eq 110 ] && grep -q 'the prompt has 100 tokens and the model looks back over 32: it reads the last 20' generate.err || fail "a prompt that is longer than the context: $(cat generate.err)"

# ---- Greedy text and transformers'
python=$(command -v "${TUTTI_TEST_PYTHON:-python3}") || python=false
if "$python" -c 'import torch, transformers, safetensors' 2>/dev/null; then
    cat >greedy.py <<'END'
import sys
import torch
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel
characters = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
model = GPT2LMHeadModel(GPT2Config(vocab_size=65, n_positions=32, n_embd=48, n_layer=2, n_head=4))
missing = model.load_state_dict(load_file("run/model.safetensors"), strict=False)
assert missing.missing_keys in ([], ["lm_head.weight"]) and not missing.unexpected_keys, missing
ids = torch.tensor([[characters.index(c) for c in "ROMEO:"]])
out = model.eval().generate(ids, max_new_tokens=26, do_sample=False, pad_token_id=0, eos_token_id=None)
sys.stdout.write("".join(characters[i] for i in out[0].tolist()))
END
    "$python" greedy.py >theirs 2>greedy.err || { cat greedy.err; fail "transformers"; }
    head -c 32 greedy | cmp - theirs || fail "transformers writes: $(cat theirs); tutti: $(head -c 32 greedy)"

    # Folders of Hugging Face: gpt2 and llama, with a tokenizer.
    cat >folders.py <<'END'
import sys
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
text = open(sys.argv[1], encoding="utf-8").read()
tokenizer.train_from_iterator(text.splitlines(True), trainers.BpeTrainer(
    vocab_size=400, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>", bos_token="<|endoftext|>")
torch.manual_seed(1)
vocab = tokenizer.get_vocab_size()
sizes = {"gpt2": GPT2LMHeadModel(GPT2Config(vocab_size=vocab, n_positions=96, n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0,
                                            initializer_range=0.3)),
         "llama": LlamaForCausalLM(LlamaConfig(vocab_size=vocab, max_position_embeddings=96, hidden_size=64, intermediate_size=160, initializer_range=0.3,
                                               num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, bos_token_id=0, eos_token_id=0))}
for name, model in sizes.items():
    model.eval().save_pretrained(name)
    fast.save_pretrained(name)
    prompt = "Zwölf Boxkämpfer jagen"
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=60, do_sample=False, pad_token_id=0)[0].tolist()
    new = out[ids.shape[1]:]
    new = new[:new.index(0)] if 0 in new else new
    with open(name + ".txt", "w", encoding="utf-8", newline="") as f:
        f.write(prompt + tokenizer.decode(new, skip_special_tokens=False))
END
    for i in $(seq 60); do printf 'Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich, %s €.\n' "$i"; done >train.txt
    "$python" folders.py train.txt >folders.out 2>&1 || { tail -5 folders.out; fail "transformers' folders"; }
    for name in gpt2 llama; do
        generate $name --prompt "Zwölf Boxkämpfer jagen" -n 60 --temperature 0 >ours
        cmp ours $name.txt || fail "$name: $(cat ours), and transformers: $(cat $name.txt)"
        generate $name/model.safetensors --prompt "Zwölf Boxkämpfer jagen" -n 60 --temperature 0 --threads 1 >again && cmp ours again || fail "$name: the file"
    done
else
    echo "skipped: ${TUTTI_TEST_PYTHON:-python3} has no transformers (pip install torch transformers safetensors; TUTTI_TEST_PYTHON names another interpreter)"
fi

# ---- Bytes: whole characters, and the end of a text
mkdir text
for i in $(seq 60); do printf 'Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich, %s €.\n' "$i"; done >text/a.txt
cp text/a.txt text/b.txt
train bytes $gpt --data text --data-dir text --max-steps 40 --vocab 260
generate bytes --prompt "größ" -n 200 --temperature 2 --top-k 0 >b
iconv -f UTF-8 -t UTF-8 <b >/dev/null || fail "the text is not UTF-8"
tokenizer_json >other.json
refused 2 '--tokenizer: other.json has 257 tokens, and the model knows 65; expected the tokenizer with which' "$TUTTI" generate run --tokenizer other.json
generate bytes --tokenizer other.json -n 3 >b
grep -q 'other.json is not the tokenizer with which the model was trained' generate.err || { cat generate.err; fail "another tokenizer"; }
if [ "$python" != false ]; then # on a terminal
    "$python" -c 'import pty, sys; pty.spawn(sys.argv[1:])' "$TUTTI" generate bytes -n 1 --prompt "$(printf 'a\302\233b\342\200\256c\033d\303\266')" </dev/null >b
    grep -q "^a?b?c?d$(printf '\303\266')" b || { cat -v b; fail "what controls a terminal"; }
fi
llama="--model llama --layers 1 --heads 2 --width 32 --context 32 --ffn-width 96"
train llama.run $llama --data shakespeare --max-steps 2
mkdir alone
cp llama.run/model.safetensors alone
refused 1 'the model was trained on tokens whose text is not known; give their tokenizer with --tokenizer FILE, or bytes or shakespeare' \
    "$TUTTI" generate alone/model.safetensors $llama
# tokenizers by name
generate llama.run --prompt "ROMEO:" -n 40 >a
generate alone/model.safetensors $llama --tokenizer shakespeare --prompt "ROMEO:" -n 40 >b
cmp a b || fail "weights alone, with shakespeare"
generate llama.run --tokenizer shakespeare --prompt "ROMEO:" -n 40 >b
cmp a b && ! grep -q 'is not the tokenizer' generate.err || { cat generate.err; fail "the run's own, by its name"; }
cp bytes/model.safetensors alone/bytes.safetensors # there is a folder of that name here, too
sizes="--model gpt2 --layers 2 --heads 4 --width 48 --context 32"
generate bytes --prompt "The " -n 40 >a
generate alone/bytes.safetensors $sizes --tokenizer bytes --prompt "The " -n 40 >b
cmp a b || fail "weights alone, with bytes"
for i in $(seq 60); do printf 'To be, or not to be, that is the question:\n'; done >plain.txt
for of in "llama.run $llama --tokenizer shakespeare" "bytes $sizes --vocab 260 --tokenizer bytes"; do
    for path in ${of%% *} ${of%% *}/model.safetensors; do
        cp -r $path evaluated
        "$TUTTI" eval evaluated ${of#* } --data text --data-dir plain.txt --split all --json eval.json >eval.out 2>&1 || { cat eval.out; fail "eval with a tokenizer's name"; }
        field eval.json loss >>losses
        rm -r evaluated
    done
done
[ "$(sort losses | uniq -c | awk '{ print $1 }' | tr -d '\n')" = 22 ] || { cat losses; fail "a run, and its weights alone"; }
generate bytes --samples 8 -n 400 --temperature 0.5 --top-k 0 >b || fail "bytes"

# ---- What is refused
refused 2 'expected a checkpoint, a run folder, a folder of Hugging Face or a file of weights' "$TUTTI" generate
refused 2 'one checkpoint, run or folder, but there are "run" and "hello"; a prompt follows --prompt' "$TUTTI" generate run hello
refused 2 '--temperature is "-1", expected a number from 0 to 1e+06' "$TUTTI" generate run --temperature -1
refused 2 '--top-p is "1.5", expected a number from 0 to 1' "$TUTTI" generate run --top-p 1.5
refused 2 '-n is "0", expected a number from 1' "$TUTTI" generate run -n 0
refused 2 '--prompt and --prompt-file: expected one of them' "$TUTTI" generate run --prompt a --prompt-file b
refused 2 'did you mean "--temperature"' "$TUTTI" generate run --temprature 1
refused 2 '"é", which is none of the 65 characters of the training text' "$TUTTI" generate run --prompt "caf$(printf '\303\251')"
refused 2 'the prompt is not UTF-8 at byte 1' "$TUTTI" generate run --prompt "$(printf 'a\377')"
refused 2 'the weights have 32 positions; expected at most those' "$TUTTI" generate run --context 64
train digits --model mlp --epochs 1
refused 2 'digits is a mlp, which is not a language model; for its predictions: tutti predict' "$TUTTI" generate digits
code=0
"$TUTTI" generate run -n 5 >/dev/full 2>full.err || code=$?
[ $code -eq 4 ] || { cat full.err; fail "the exit code of a full disk"; }
grep -q 'the text cannot be written' full.err || { cat full.err; fail "a full disk"; }
"$TUTTI" generate run -n 5 >&- 2>closed.err && fail "a closed standard output"
grep -q 'standard output is closed' closed.err || { cat closed.err; fail "a closed standard output"; }
