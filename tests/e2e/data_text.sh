# data_text.sh -- tutti data tokenize and show; training on text, on its tokens, and from a folder: the same bits; the laws for windows
# that move by epoch; a run keeps its tokenizer.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

# A tokenizer of bytes and some words; a text; documents.
merges=("t h" "th e" "h e" "e r" "a n" "an d" "Ġ t" "Ġ the" "Ġ a" "Ġ th" "i n" "r e" "o n" "o u")
tokenizer_json "${merges[@]}" >words.json
for ((i = 0; i < 400; i++)); do
    echo "The queen and the king number $i went in the other direction, $((i * i % 17)) miles on."
done >text.txt
if "$TUTTI" data tokenize --tokenizer words.json -o no/train.bin text.txt 2>&1 | grep -q "has no tokenizers"; then
    echo "skipped: this build has no PCRE2" && exit 77
fi

# ---- tokenize, show
refused 1 "cannot write no/train.bin" "$TUTTI" data tokenize --tokenizer words.json -o no/train.bin text.txt
mkdir tokens raw documents
"$TUTTI" data tokenize --tokenizer words.json --out tokens/train.bin --val tokens/val.bin text.txt >out
grep -q '^wrote [0-9]* tokens of 16 bits (vocabulary of 271) to tokens/train.bin, and the last tenth, [0-9]* tokens, to tokens/val.bin: [0-9]* bytes of 1 document in' out || fail "$(cat out)"
cmp words.json tokens/tokenizer.json || fail "the tokenizer is not beside the tokens"
"$TUTTI" data tokenize --tokenizer words.json --out raw/train.bin --raw text.txt >/dev/null
[ $(($(wc -c <raw/train.bin) % 2)) = 0 ] && cmp -i 1024:0 -n 5000 tokens/train.bin raw/train.bin || fail "--raw has other tokens"
"$TUTTI" data show tokens:tokens/train >shown
grep -q '^vocabulary 271, of which' shown && grep -q '^The queen and the king number 0 went' shown && grep -q '^tokenizer  tokenizer.json$' shown && grep -q '" the"$' shown || fail "$(cat shown)"
for i in 1 2 3; do head -$((i * 20)) text.txt >documents/$i.txt; done
"$TUTTI" data show --tokenizer words.json text:documents/all >shown
grep -q '^documents  3$' shown || fail "$(cat shown)"
"$TUTTI" data show text:documents/all >shown
grep -q '^documents  3$' shown && grep -q '^tokenizer  bytes$' shown || fail "$(cat shown)"
"$TUTTI" data show --context 10 shakespeare:test | grep -q '^samples    11153 of 10 tokens$' || fail "--context"
mkdir pipe && mkfifo pipe/tokens
exec 9<>pipe/tokens # so that it has a reader
"$TUTTI" data tokenize --tokenizer words.json --raw -o pipe/tokens documents/1.txt >/dev/null
"$TUTTI" data tokenize --tokenizer words.json --raw -o raw/piped.bin documents/1.txt >/dev/null
head -c "$(wc -c <raw/piped.bin)" <&9 | cmp - raw/piped.bin && [ "$(ls pipe)" = tokens ] || fail "a pipe, and beside it: $(ls pipe)"
exec 9>&-
refused 4 "No space left on device" "$TUTTI" data tokenize --tokenizer words.json --raw -o /dev/full text.txt
refused 2 "is no file" "$TUTTI" data tokenize --tokenizer words.json -o /dev/full text.txt
tokenizer_json "t h" "h e" >other.json
refused 2 "tokens of another tokenizer" "$TUTTI" data tokenize --tokenizer other.json -o tokens/more.bin text.txt
refused 2 "expected --tokenizer FILE" "$TUTTI" data tokenize -o a.bin text.txt
refused 2 'there is no flag "--vall" (did you mean "--val"?)' "$TUTTI" data tokenize --vall text.txt
# Nothing that is read is overwritten, by whatever path.
mkdir safe
cp text.txt safe && cp words.json safe/tokenizer.json
ln safe/text.txt safe/hard.bin && ln -s text.txt safe/soft.bin
for out in text.txt ./text.txt hard.bin soft.bin; do
    refused 2 "is also the text safe/text.txt" "$TUTTI" data tokenize --tokenizer words.json -o "safe/$out" safe/text.txt
    refused 2 "is also the text safe/text.txt" "$TUTTI" data tokenize --tokenizer words.json -o safe/o.bin --val "safe/$out" safe
done
refused 2 "is the tokenizer" "$TUTTI" data tokenize --tokenizer safe -o safe/../safe/tokenizer.json text.txt
mv safe/tokenizer.json words.moved
refused 2 "is the tokenizer, or where its copy goes" "$TUTTI" data tokenize --tokenizer words.moved -o safe/tokenizer.json text.txt
refused 2 "are the same file" "$TUTTI" data tokenize --tokenizer words.json -o safe/o.bin --val ./safe/o.bin text.txt
cp words.json safe/o.bin && ln safe/o.bin safe/p.bin
refused 2 "are the same file" "$TUTTI" data tokenize --tokenizer words.json -o safe/o.bin --val safe/p.bin text.txt
[ "$(echo safe/*)" = "safe/hard.bin safe/o.bin safe/p.bin safe/soft.bin safe/text.txt" ] && cmp text.txt safe/text.txt && cmp words.json safe/o.bin || fail "written: $(echo safe/*)"
printf 'ab\xffcd ef' >bad.txt
refused 1 "bad.txt is not UTF-8 at byte 2" "$TUTTI" data tokenize --tokenizer words.json -o tokens/bad.bin bad.txt
[ "$(ls tokens)" = "$(printf 'tokenizer.json\ntrain.bin\nval.bin')" ] || fail "left behind: $(ls tokens)"

# ---- Text with its tokenizer, and its tokens: the same run; it keeps the tokenizer
gpt="--model gpt2 --layers 1 --heads 2 --width 16 --context 16 --batch-size 8 --optimizer adamw --lr 0.003 --epochs 3 --threads 1"
train text $gpt --data text --data-dir text.txt --tokenizer words.json
train tokens.run $gpt --data tokens --data-dir tokens
same text tokens.run
cmp words.json text/tokenizer.json || fail "the run has no tokenizer"
tr -d '\n ' <text/checkpoints/latest/state.json | grep -q '"tokenizer":{"kind":"file","digest":"[0-9a-f]*","end_of_text":270}' || fail "state.json: $(cat text/checkpoints/latest/state.json)"
mv words.json moved # eval takes the run's copy
"$TUTTI" eval text --json eval.json >eval.out 2>&1 || { cat eval.out; fail "eval"; }
[ "$(field eval.json loss | cut -c 1-8)" = "$(field text/summary.json val_loss | cut -c 1-8)" ] || fail "eval: $(cat eval.json)"
"$TUTTI" generate text/checkpoints/latest --prompt "The king" -n 20 >generated 2>generate.err && grep -q '^The king' generated || { cat generate.err; fail "generate"; }
mv moved words.json

# ---- Ends of a text: a folder of Hugging Face names its tokenizer's, and generate stops at those that the folder names
"$TUTTI" checkpoint export text --hf folder >/dev/null
[ "$(field folder/config.json eos_token_id)" = 270 ] || fail "the end of text in config.json: $(cat folder/config.json)"
grep -q '"eos_token": "<|endoftext|>"' folder/tokenizer_config.json || fail "tokenizer_config.json: $(cat folder/tokenizer_config.json)"
ends() { "$TUTTI" generate folder --prompt "The king" -n 20 --temperature 0 "$@"; }
ends >whole
[ "$(wc -c <whole)" -gt 20 ] || fail "a short text: $(cat whole)"
sed -i "s/\"eos_token_id\": 270/\"eos_token_id\": [$(seq -s ', ' 0 270)]/" folder/config.json
[ "$(ends)" = "The king" ] || fail "it goes on behind its end: $(ends)"
ends --no-stop | cmp - whole || fail "--no-stop"
"$TUTTI" checkpoint export folder --hf again >/dev/null
[ "$(grep -c ' 100,$' again/config.json)" = 1 ] || fail "the ends are lost: $(cat again/config.json)"
sed -i 's/"eos_token_id": .*\]/"eos_token_id": 270/' folder/config.json
printf '{"eos_token_id": [%s]}' "$(seq -s ', ' 0 270)" >folder/generation_config.json
[ "$(ends)" = "The king" ] || fail "generation_config.json: $(ends)"

# ---- Weights alone: the flags that generate takes say all of a llama's sizes
sizes="--model llama --layers 1 --heads 2 --kv-heads 1 --width 16 --ffn-width 40 --rope-theta 5000 --rope-scaling linear:2 --norm-eps 1e-6 --tie-embeddings true"
train llama $sizes --context 16 --data text --data-dir text.txt --tokenizer words.json --max-steps 2 --eval-every 0
cp llama/model.safetensors alone.safetensors
"$TUTTI" generate llama --prompt "The king" -n 20 >a
"$TUTTI" generate alone.safetensors $sizes --context 16 --tokenizer words.json --prompt "The king" -n 20 >b 2>generate.err && cmp a b || { cat generate.err; fail "weights alone"; }
tokenizer_json "${merges[@]:0:12}" "o u" "o n" >swapped.json
refused 2 "had other training data" "$TUTTI" train $gpt --data text --data-dir text.txt --tokenizer swapped.json --run-dir swapped --resume text/checkpoints/latest
tr a-y b-z <text.txt >turned.txt
train bytes $gpt --data text --data-dir text.txt --max-steps 2
refused 2 "had other training data" "$TUTTI" train $gpt --data text --data-dir turned.txt --max-steps 2 --run-dir turned --resume bytes/checkpoints/latest
cat >each.sh <<'EOF'
[ "$RANK" = 0 ] && text=text.txt || text=turned.txt
exec "$TUTTI" train "$@" --data-dir $text
EOF
export TUTTI
refused 3 "give all ranks the same data" "$TUTTI" run -n 2 -- bash each.sh $gpt --data text --max-steps 2 --run-dir mixed

# ---- Tokenizers by name: tokens without a file beside them, the same run as of bytes
mkdir named
"$TUTTI" data tokenize --tokenizer bytes --out named/train.bin --val named/val.bin text.txt >out
grep -q 'tokens of 16 bits (vocabulary of 256)' out && [ "$(ls named)" = "$(printf 'train.bin\nval.bin')" ] || fail "$(cat out; ls named)"
train bytes.named $gpt --data text --data-dir text.txt --tokenizer bytes --max-steps 2
same bytes bytes.named
train bytes.tokens $gpt --data tokens --data-dir named --tokenizer bytes --max-steps 2 --checkpoint-every 1
same bytes bytes.tokens
"$TUTTI" generate bytes.tokens --prompt "The king" -n 20 >a
"$TUTTI" generate bytes --prompt "The king" -n 20 | cmp - a || fail "generate with bytes"
"$TUTTI" data show --tokenizer bytes tokens:named/train >shown && grep -q '^The queen and the king number 0 went' shown || fail "show with bytes"
"$TUTTI" eval bytes.tokens --json eval.json >eval.out 2>&1 || { cat eval.out; fail "eval with bytes"; }
train bytes.again $gpt --data tokens --data-dir named --tokenizer bytes --max-steps 2 --resume bytes.tokens/checkpoints/step-00000001
same bytes bytes.again
tr -d 0-9 <text.txt >letters.txt
train plays $gpt --data text --data-dir letters.txt --tokenizer shakespeare --max-steps 2
"$TUTTI" generate plays --prompt "The king" -n 20 >a && grep -q '^The king' a || fail "generate with shakespeare"
refused 1 'which is none of the 65 characters' "$TUTTI" data tokenize --tokenizer shakespeare -o named/more.bin documents/1.txt

# ---- A killed process leaves no file, where the file system has files without names
if python3 -c 'import os, sys; os.close(os.open(sys.argv[1], os.O_TMPFILE | os.O_WRONLY))' . 2>tmpfile.err; then
    mkdir killed
    for ((i = 0; i < 200; i++)); do cat text.txt; done >long.txt
    "$TUTTI" data tokenize --tokenizer words.json --out killed/train.bin long.txt >out 2>&1 &
    pid=$!
    until [ "$(find /proc/$pid/fd -lname "$work/killed/*" 2>find.err)" ] || [ ! -d /proc/$pid ]; do pause 1; done
    kill -KILL $pid
    wait $pid || true
    [ -z "$(ls -A killed)" ] || [ "$(ls killed)" = "$(printf 'tokenizer.json\ntrain.bin')" ] || fail "left behind: $(ls -A killed)"
fi

# ---- More documents than may be open at once
mkdir many
for ((i = 0; i < 300; i++)); do echo "The king number $i" >many/$i.txt; done
(ulimit -n 200 && "$TUTTI" data tokenize --tokenizer words.json -o many/train.bin many >out 2>&1 && grep -q ' of 300 documents' out) || fail "$(cat out)"

# ---- The laws, in epochs whose windows move
laws="$gpt --data text --data-dir text.txt --tokenizer words.json --shards 2 --batch-size 4"
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
