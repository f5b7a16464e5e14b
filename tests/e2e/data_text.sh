# data_text.sh -- tutti data tokenize and show; training on text, on its tokens, and from a folder: the same bits; the laws for windows
# that move by epoch; a run keeps its tokenizer.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

# A tokenizer of bytes and some words, as tiktoken writes it; a text; documents.
for ((i = 0; i < 256; i++)); do
    printf "\\x$(printf %02x $i)" | base64
done | paste -d ' ' - <(seq 0 255) >words.tiktoken
n=256
for word in th the he er an and " t" " the" " a" " th" in re on ou; do
    echo "$(printf %s "$word" | base64) $n" >>words.tiktoken
    n=$((n + 1))
done
for ((i = 0; i < 400; i++)); do
    echo "The queen and the king number $i went in the other direction, $((i * i % 17)) miles on."
done >text.txt
if "$TUTTI" data tokenize --tokenizer words.tiktoken -o no/train.bin text.txt 2>&1 | grep -q "has no tokenizers"; then
    echo "skipped: this build has no PCRE2" && exit 77
fi

# ---- tokenize, show
refused 1 "cannot write no/train.bin" "$TUTTI" data tokenize --tokenizer words.tiktoken -o no/train.bin text.txt
mkdir tokens raw documents
"$TUTTI" data tokenize --tokenizer words.tiktoken --out tokens/train.bin --val tokens/val.bin text.txt >out
grep -q '^wrote [0-9]* tokens of 16 bits (vocabulary of 271) to tokens/train.bin, and the last tenth, [0-9]* tokens, to tokens/val.bin: [0-9]* bytes of 1 document in' out || fail "$(cat out)"
cmp words.tiktoken tokens/tokenizer.tiktoken || fail "the tokenizer is not beside the tokens"
"$TUTTI" data tokenize --tokenizer words.tiktoken --out raw/train.bin --raw text.txt >/dev/null
[ $(($(wc -c <raw/train.bin) % 2)) = 0 ] && tail -c +1025 tokens/train.bin | cmp -n 5000 - raw/train.bin || fail "--raw has other tokens"
"$TUTTI" data show tokens:tokens/train >shown
grep -q '^vocabulary 271, of which' shown && grep -q '^The queen and the king number 0 went' shown && grep -q '^tokenizer  tokenizer.tiktoken$' shown && grep -q '" the"$' shown || fail "$(cat shown)"
for i in 1 2 3; do head -$((i * 20)) text.txt >documents/$i.txt; done
"$TUTTI" data show --tokenizer words.tiktoken text:documents/all >shown
grep -q '^documents  3$' shown || fail "$(cat shown)"
"$TUTTI" data show text:documents/all >shown
grep -q '^documents  3$' shown && grep -q '^tokenizer  bytes$' shown || fail "$(cat shown)"
"$TUTTI" data show --context 10 shakespeare:test | grep -q '^samples    11153 of 10 tokens$' || fail "--context"
refused 4 "No space left on device" "$TUTTI" data tokenize --tokenizer words.tiktoken --raw -o /dev/full text.txt
refused 2 "is no file" "$TUTTI" data tokenize --tokenizer words.tiktoken -o /dev/full text.txt
sed '257,$d' words.tiktoken >other.tiktoken
refused 2 "tokens of another tokenizer" "$TUTTI" data tokenize --tokenizer other.tiktoken -o tokens/more.bin text.txt
refused 2 "expected --tokenizer FILE" "$TUTTI" data tokenize -o a.bin text.txt
refused 2 'there is no flag "--vall" (did you mean "--val"?)' "$TUTTI" data tokenize --vall text.txt
# A pipe, or a device, gets no tokenizer beside it.
mkdir pipe && mkfifo pipe/tokens
cat pipe/tokens >piped &
"$TUTTI" data tokenize --tokenizer words.tiktoken --raw -o pipe/tokens text.txt >/dev/null && wait $!
cmp piped raw/train.bin && [ "$(ls pipe)" = tokens ] || fail "to a pipe: $(ls pipe)"
# Nothing that is read is overwritten, by whatever path.
mkdir safe
cp text.txt words.tiktoken safe
ln safe/text.txt safe/hard.bin && ln -s text.txt safe/soft.bin
for out in text.txt ./text.txt hard.bin soft.bin; do
    refused 2 "is also the text safe/text.txt" "$TUTTI" data tokenize --tokenizer words.tiktoken -o "safe/$out" safe/text.txt
    refused 2 "is also the text safe/text.txt" "$TUTTI" data tokenize --tokenizer words.tiktoken -o safe/o.bin --val "safe/$out" safe
done
refused 2 "is the tokenizer" "$TUTTI" data tokenize --tokenizer safe -o safe/../safe/words.tiktoken text.txt
mv safe/words.tiktoken words.moved
refused 2 "is the tokenizer, or where its copy goes" "$TUTTI" data tokenize --tokenizer words.moved -o safe/tokenizer.tiktoken text.txt
refused 2 "are the same file" "$TUTTI" data tokenize --tokenizer words.tiktoken -o safe/o.bin --val ./safe/o.bin text.txt
cp words.tiktoken safe/o.bin && ln safe/o.bin safe/p.bin
refused 2 "are the same file" "$TUTTI" data tokenize --tokenizer words.tiktoken -o safe/o.bin --val safe/p.bin text.txt
[ "$(echo safe/*)" = "safe/hard.bin safe/o.bin safe/p.bin safe/soft.bin safe/text.txt" ] && cmp text.txt safe/text.txt && cmp words.tiktoken safe/o.bin || fail "written: $(echo safe/*)"
printf 'ab\xffcd ef' >bad.txt
refused 1 "bad.txt is not UTF-8 at byte 2" "$TUTTI" data tokenize --tokenizer words.tiktoken -o tokens/bad.bin bad.txt
[ "$(ls tokens)" = "$(printf 'tokenizer.tiktoken\ntrain.bin\nval.bin')" ] || fail "left behind: $(ls tokens)"

# ---- Text with its tokenizer, and its tokens: the same run; it keeps the tokenizer
gpt="--model gpt2 --layers 1 --heads 2 --width 16 --context 16 --batch-size 8 --optimizer adamw --lr 0.003 --epochs 3 --threads 1"
train text $gpt --data text --data-dir text.txt --tokenizer words.tiktoken
train tokens.run $gpt --data tokens --data-dir tokens
same text tokens.run
cmp words.tiktoken text/tokenizer.tiktoken || fail "the run has no tokenizer"
tr -d '\n ' <text/checkpoints/latest/state.json | grep -q '"tokenizer":{"kind":"file","digest":"[0-9a-f]*","end_of_text":270}' || fail "state.json: $(cat text/checkpoints/latest/state.json)"
mv words.tiktoken moved # eval takes the run's copy
"$TUTTI" eval text --json eval.json >eval.out 2>&1 || { cat eval.out; fail "eval"; }
[ "$(field eval.json loss | cut -c 1-8)" = "$(field text/summary.json val_loss | cut -c 1-8)" ] || fail "eval: $(cat eval.json)"
"$TUTTI" generate text/checkpoints/latest --prompt "The king" -n 20 >generated 2>generate.err && grep -q '^The king' generated || { cat generate.err; fail "generate"; }
mv moved words.tiktoken
sed 's/ 270$/ 0/; s/ 269$/ 270/; s/ 0$/ 269/; 1s/ 269$/ 0/' words.tiktoken >swapped.tiktoken
refused 2 "had other training data" "$TUTTI" train $gpt --data text --data-dir text.txt --tokenizer swapped.tiktoken --run-dir swapped --resume text/checkpoints/latest

# ---- The laws, in epochs whose windows move
laws="$gpt --data text --data-dir text.txt --tokenizer words.tiktoken --shards 2 --batch-size 4"
of() { field "$1/summary.json" samples_digest; }
train one $laws --checkpoint-every 150 --keep-checkpoints 0
train two $laws -n 2
same one two
[ "$(of one)" = "$(of two)" ] && [ -n "$(of one)" ] || fail "samples_digest: $(of one), by two ranks $(of two)"
step=$(ls one/checkpoints | sed -n 's/^step-0*//p' | sort -n | tail -2 | head -1)
train again $laws --workers 0 --resume "one/checkpoints/$(ls -d one/checkpoints/step-*"$step" | xargs -n1 basename)"
same one again
[ "$(of one)" = "$(of again)" ] || fail "samples_digest of a resumed run"
train plain $gpt --data text --data-dir text.txt --checkpoint-every 170 --keep-checkpoints 0
[ "$(ls plain/checkpoints | grep -c step-)" -gt 1 ] || fail "no checkpoint within an epoch"
for checkpoint in plain/checkpoints/step-*; do
    train resumed $gpt --data text --data-dir text.txt --resume "$checkpoint"
    same plain resumed
    rm -r resumed
done
