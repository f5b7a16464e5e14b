# docs_language_models.sh -- the commands of docs/language-models.md run as they stand there, with small sizes behind.   timeout: 90
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
size="--layers 1 --heads 1 --width 8"
quick="--max-steps 1 --eval-every 0 --progress quiet"
for i in $(seq 200); do echo "Line $i of a text, $((i * i % 17)) words long."; done >mine.txt
mkdir -p openwebtext runs bin
printf '\1\0\2\0\3\0%.0s' $(seq 6000) >openwebtext/train.bin
cp openwebtext/train.bin openwebtext/val.bin
ln -s "$TUTTI" bin/tutti
PATH=$PWD/bin:$PATH
train hf --model gpt2 $size --context 32 --data text --data-dir mine.txt $quick
tutti checkpoint export hf --hf gpt2 >/dev/null

n=0
while read -r command; do
    case $command in
    *"--data shakespeare"*) more="$size --context 16 $quick --run-dir runs/shakespeare-gpt2-TIME" ;;
    *generate*) more="-n 5" ;;
    *"--init gpt2"*) more="$quick --run-dir runs/text-gpt2-TIME" ;;
    *"run -n 4"*) more="$size --context 16 $quick --run-dir runs/ranks" ;;
    *tokens-per-step*) more="--model gpt2 $size $quick --run-dir runs/tokens" ;;
    *export*) more= ;;
    *) fail "a command without a size here: $command" ;;
    esac
    eval "$command $more" >out 2>&1 </dev/null || { cat out; fail "$command $more"; }
    n=$((n + 1))
done < <(sed -n 's/^    \(tutti .*[^ ]\) *$/\1/p' "$SOURCE_DIR/docs/language-models.md" | sed 's/  *#.*//; /^tutti train: /d')
[ $n -ge 6 ] || fail "$n commands in docs/language-models.md"
[ -f mine/config.json ] || fail "no folder for Hugging Face"
echo "$n commands"
