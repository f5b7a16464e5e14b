# hf_transformers.sh -- folders that transformers saves load, whole or in parts (and those of ZeRO-3 there), of PyTorch, in 32 and 16 bit, with the same loss; those that checkpoint
# export --hf writes load there, with the same loss.   timeout: 300, tier: long   SPDX-License-Identifier: MIT
#
# With the transformers of python3, or of the interpreter that TUTTI_TEST_PYTHON names.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
python=$(command -v "${TUTTI_TEST_PYTHON:-python3}") && "$python" -c 'import transformers' 2>/dev/null || {
    echo "skipped: ${TUTTI_TEST_PYTHON:-python3} has no transformers (pip install torch transformers; TUTTI_TEST_PYTHON names another interpreter)"
    exit 77
}
export PYTHONDONTWRITEBYTECODE=1
unset TUTTI_TEST_PYTHON
hf() { "$python" "$SOURCE_DIR/tests/e2e/hf_transformers.py" "$@" 2>hf.err || { cat hf.err >&2; fail "hf_transformers.py $*" >&2; }; }
hf make .
data="--data tokens --data-dir tokens"
folders=
loss() { # FOLDER FLAGS...: of ours, and of theirs to come
    folders="$folders $1"
    shift
    "$TUTTI" eval "$@" $data --context 32 --json eval.json >eval.out 2>&1 || { cat eval.out; fail "eval $*"; }
    field eval.json loss >>ours
}
for model in gpt2 base parts bin half llama tied; do
    loss $model $model
    train $model.run --init $model $data --context 64 --max-steps 3 --eval-every 0 --lr 0.01 --threads 1
    "$TUTTI" checkpoint export $model.run --hf $model.out >export.out || { cat export.out; fail "export of $model"; }
    loss $model.out $model.run
done
# Parts, as ranks of ZeRO-3 have written them, which transformers reads by their index.
train split.run --init gpt2 $data --context 64 --max-steps 3 --eval-every 0 --lr 0.01 --threads 1 -n 2 --zero 3
mkdir split && cp gpt2/config.json split.run/checkpoints/latest/model* split
[ -e split/model.safetensors.index.json ] || { ls split; fail "the model is not in parts"; }
loss split split.run
hf loss $folders >theirs
close theirs ours 1e-6

# The tokenizer of the folder is that of text, for eval, train, and the run's export.
text="--data text --data-dir $SOURCE_DIR/README.md"
"$TUTTI" eval words $text --context 32 --json words.json >eval.out 2>&1 || { cat eval.out; fail "eval of words"; }
"$TUTTI" eval words $text --context 32 --tokenizer words --json given.json >eval.out 2>&1 || { cat eval.out; fail "eval with --tokenizer"; }
[ "$(field words.json loss)" = "$(field given.json loss)" ] || fail "eval takes another tokenizer than the folder's"
train words.run --init words $text --context 32 --max-steps 3 --eval-every 0 --lr 0 --threads 1
"$TUTTI" checkpoint export words.run --hf words.out >export.out || { cat export.out; fail "export of words"; }
cmp words/tokenizer.json words.out/tokenizer.json || fail "the tokenizer is not exported"
"$TUTTI" checkpoint export words.run --hf words.parts --max-shard-size 30KB >export.out
[ -e words.parts/model.safetensors.index.json ] && [ ! -e words.parts/model.safetensors ] || { ls words.parts; fail "not in parts"; }
[ "$(hf loss words.parts)" = "$(hf loss words.out)" ] || fail "transformers has another loss of the parts"
[ "$(hf ends words.out)" = "7 0 <|endoftext|>" ] || fail "tokens of begin and end: $(hf ends words.out)"
"$TUTTI" eval words.out $text --context 32 --json out.json >eval.out 2>&1 || { cat eval.out; fail "eval of the exported folder"; }
[ "$(field words.json loss)" = "$(field out.json loss)" ] || fail "the exported folder has another loss"
