# hf_folders.sh -- folders of Hugging Face's models: config.json says model and sizes, weights in one file or several load, what does not
# fit is refused by name, and checkpoint export --hf writes such a folder.   timeout: 120   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
config() { grep -q "\"$1\": $2[,}]*$" "$3/config.json" || { cat "$3/config.json"; fail "$1 is not $2 in $3"; }; }
text="--data shakespeare --max-steps 2 --eval-every 0 --threads 1 --progress quiet"

for model in "gpt2 --layers 2 --heads 2 --width 32 --context 24" \
    "llama --layers 2 --heads 4 --kv-heads 2 --width 32 --context 24 --ffn-width 72 --rope-theta 5000 --norm-eps 1e-6 --rope-scaling llama3:4,1,4,16" \
    "llama --layers 1 --heads 2 --width 32 --context 24 --tie-embeddings --rope-scaling linear:2"; do
    name=${model%% *}
    rm -rf run again hf
    train run --model $model $text
    "$TUTTI" checkpoint export run --hf hf >export.out || { cat export.out; fail "export of $model"; }
    # a run that begins there has the same model and sizes, and the same weights
    train again --init hf $text --lr 0 --context 24
    same run again
    for key in model layers heads width vocab kv_heads ffn_width rope_theta norm_eps rope_scaling tie_embeddings; do
        [ "$(field run/config.json $key)" = "$(field again/config.json $key)" ] ||
            case "$key $(field run/config.json $key)" in # defaults are written out
            "vocab 0" | "kv_heads 0" | "ffn_width 0" | "norm_eps 0"* | "rope_theta 0"*) ;;
            *) fail "$model: $key is $(field again/config.json $key), was $(field run/config.json $key)" ;;
            esac
    done
    "$TUTTI" eval run --json run.json >/dev/null
    "$TUTTI" eval hf --data shakespeare --context 24 --json hf.json >eval.out 2>&1 || { cat eval.out; fail "eval of the folder of $model"; }
    ! grep 'mean something else' again.out || fail "$model: its own tokenizer is taken for another"
    [ "$(field run.json loss)" = "$(field hf.json loss)" ] || fail "$model: the loss is $(field hf.json loss), of the run $(field run.json loss)"
done
config num_key_value_heads 2 hf
config tie_word_embeddings true hf

# The tokenizer of Shakespeare's characters, and of bytes: of the same numbers, by ours and by Hugging Face's; which weights are exported.
printf 'ROMEO:\nI do bite my thumb, sir & 3 $' >romeo
printf 'h\303\251llo\n w\303\266rld \342\202\254 %0400d' 0 >octets
train bytes --model gpt2 --layers 1 --heads 2 --width 32 --context 24 ${text/shakespeare/text} --data-dir octets --ema 0.5 --batch-size 2
"$TUTTI" checkpoint export bytes --hf hf.bytes >export.out && grep -q 'in hf.bytes; the weights of the last step: their averages by --weights ema$' export.out || { cat export.out; fail "which weights?"; }
"$TUTTI" checkpoint export bytes --hf hf.ema --weights ema >export.out && grep -q 'in hf.ema; the averages of the weights (ema)$' export.out || { cat export.out; fail "which weights?"; }
! cmp -s hf.bytes/model.safetensors hf.ema/model.safetensors || fail "the averages are the weights"
"$TUTTI" checkpoint export bytes/checkpoints/latest/ema.safetensors ema.safetensors >/dev/null && cmp ema.safetensors hf.ema/model.safetensors || fail "not the averages"
refused 1 "weights ema: run has no ema.safetensors" "$TUTTI" checkpoint export run none.safetensors --weights ema
refused 2 'weights' "$TUTTI" checkpoint export run none.safetensors --weights mine
for of in hf:shakespeare:romeo hf.bytes:bytes:octets; do
    IFS=: read -r folder name file <<<"$of"
    mkdir -p own.$name its.$name
    "$TUTTI" data tokenize $file --tokenizer $name --out own.$name/t.bin >/dev/null && "$TUTTI" data tokenize $file --tokenizer $folder/tokenizer.json --out its.$name/t.bin >/dev/null || fail "tokens of $name"
    cmp own.$name/t.bin its.$name/t.bin || fail "other tokens of $name"
    [ -e $folder/tokenizer_config.json ] || fail "no tokenizer_config.json"
done
cp -r run moved && rm -r moved/checkpoints
"$TUTTI" checkpoint export moved --hf hf.moved >export.out 2>&1 && grep -q 'no tokenizer is written: moved has none beside it' export.out || { cat export.out; fail "a tokenizer that is not known"; }
if python3 -c 'import tokenizers' 2>python.err; then
    python3 - <<'END' || fail "other tokens by Hugging Face's tokenizers"
from tokenizers import Tokenizer
text = open("octets").read()
t = Tokenizer.from_file("hf.bytes/tokenizer.json")
assert t.encode(text).ids == list(text.encode()) and t.decode(t.encode(text).ids) == text
text = open("romeo").read()
t = Tokenizer.from_file("hf/tokenizer.json")
assert t.decode(t.encode(text).ids) == text and t.get_vocab_size() == 65
END
else
    echo "skipped: python3 has no tokenizers"
fi

# ---- Several files, names without the model's, shorter samples, a run's own config.json beside them
rm -rf run hf
train run --model gpt2 --layers 2 --heads 2 --width 32 --context 24 $text
"$TUTTI" checkpoint export run --hf hf >/dev/null
config n_positions 24 hf
config n_head 2 hf
config vocab_size 65 hf
refused 1 "hf/model.safetensors is there already; --force replaces it" "$TUTTI" checkpoint export run --hf hf
# nothing is replaced without --force, and a run's own files not with it either
for there in config.json tokenizer.json adapter_config.json; do
    mkdir taken && echo mine >taken/$there
    kind=--hf
    [ $there = adapter_config.json ] && kind=--adapter
    refused 1 "taken/$there is there already; --force replaces it" "$TUTTI" checkpoint export run $kind taken
    [ "$(ls taken)" = $there ] && [ "$(cat taken/$there)" = mine ] || fail "written: $(ls taken)"
    rm -r taken
done
mkdir unfinished && cp run/config.json run/metrics.jsonl unfinished
refused 2 "would write into a run, " "$TUTTI" checkpoint export run --hf unfinished --force
cmp run/config.json unfinished/config.json || fail "a run has lost its config.json"
"$TUTTI" checkpoint export run --hf hf --force --dtype bf16 >/dev/null
train half --init hf $text --lr 0
"$TUTTI" checkpoint export run --hf hf --force >/dev/null
# In several files with an index: the same tensors, also where it replaces one file, and one file where it replaces several.
"$TUTTI" checkpoint export run --hf hf.parts --max-shard-size 20KB >export.out
n=$(ls hf.parts | grep -c '^model-0000.-of-0000.\.safetensors$')
[ "$n" -ge 3 ] && [ ! -e hf.parts/model.safetensors ] || { ls hf.parts; fail "$n files of 20 KB"; }
tensors() { "$TUTTI" checkpoint show "$1" --digest | sed -n 's/^  \(.*[0-9a-f]\{16\}\)$/\1/p' | sort; }
[ "$(tensors hf | wc -l)" -ge 20 ] && diff <(tensors hf) <(tensors hf.parts) || fail "other tensors in parts"
[ "$(field hf.parts/model.safetensors.index.json total_size)" = "$("$TUTTI" checkpoint show hf | sed -n 's/.* \([0-9]*\) bytes$/\1/p')" ] || fail "total_size"
"$TUTTI" checkpoint verify hf.parts >/dev/null || fail "the parts do not verify"
"$TUTTI" eval hf.parts --data shakespeare --context 24 --json parts.json >/dev/null
"$TUTTI" eval hf --data shakespeare --context 24 --json hf.json >/dev/null
[ "$(field parts.json loss)" = "$(field hf.json loss)" ] || fail "the loss of parts"
refused 1 "hf.parts/model.safetensors.index.json is there already; --force replaces it" "$TUTTI" checkpoint export run --hf hf.parts
"$TUTTI" checkpoint export run --hf hf.parts --max-shard-size 40K --force >/dev/null
[ "$(ls hf.parts | grep -c '^model-')" -lt "$n" ] || fail "files of the larger number of parts are left"
"$TUTTI" checkpoint export run --hf hf.parts --force >/dev/null
[ "$(ls hf.parts | grep model)" = model.safetensors ] || { ls hf.parts; fail "parts beside the one file"; }
refused 2 "--max-shard-size is for a folder of several files; add --hf DIR" "$TUTTI" checkpoint export run x.safetensors --max-shard-size 1G
refused 2 '--max-shard-size is "much", expected bytes' "$TUTTI" checkpoint export run --hf x --max-shard-size much
# One tensor at a time is in memory, whatever the format.
train large --model gpt2 --layers 4 --width 512 --heads 8 --context 16 --batch-size 1 $text --max-steps 1 --optimizer sgd
size=$(stat -c %s large/model.safetensors)
for out in large.safetensors large.pt; do
    (ulimit -d $((size / 2 / 1024)) && "$TUTTI" checkpoint export large $out) >export.out 2>&1 || { cat export.out; fail "export of $size bytes to $out in half of that memory"; }
done
cmp large.safetensors large/model.safetensors || fail "export of a run's own file"
mkdir parts
cp hf/config.json parts
cp hf/model.safetensors parts/model-00001-of-00001.safetensors
names=$("$TUTTI" checkpoint show hf --json | sed -n 's/.*"name": "\([^"]*\)".*/\1/p')
{
    printf '{"metadata": {}, "weight_map": {'
    first=
    for tensor in $names; do
        printf '%s"%s": "model-00001-of-00001.safetensors"' "$first" "$tensor"
        first=', '
    done
    printf '}}\n'
} >parts/model.safetensors.index.json
train parted --init parts $text --lr 0
same run parted
train parted2 --init parts/model.safetensors.index.json $text --lr 0
same run parted2
"$TUTTI" checkpoint show parts | grep -q wte || fail "show of parts"
# A run goes on when the folder where it began, with its tokenizer, is gone.
tokenizer_json >bytes.json
words="--data text --data-dir $SOURCE_DIR/README.md --eval-every 0 --threads 1 --progress quiet"
train worded --model llama --layers 1 --heads 2 --width 32 --context 16 $words --tokenizer bytes.json --max-steps 1
"$TUTTI" checkpoint export worded --hf leaving >/dev/null
train whole --init leaving $words --max-steps 4
train begun --init leaving $words --max-steps 4 --checkpoint-every 2
rm -r begun/checkpoints/step-00000004 begun/checkpoints/latest begun/model.safetensors begun/summary.json
cp -r begun begun2
rm -r leaving
train begun --init leaving $words --max-steps 4 --resume auto
same whole begun
sed -i 's/"run_dir": "begun"/"run_dir": "begun2"/' begun2/config.json
train begun2 --config begun2/config.json --resume auto
same whole begun2

# Two parts with the same names: the index says whose tensor counts.
for seed in 8 9; do
    train seed$seed --model gpt2 --layers 2 --heads 2 --width 32 --context 24 $text --seed $seed --lr 0
done
mkdir twice
cp hf/config.json twice
cp seed8/model.safetensors twice/a.safetensors
cp seed9/model.safetensors twice/b.safetensors
sed 's/model-00001-of-00001/b/g; s/\(ln_f.weight": "\)b/\1a/' parts/model.safetensors.index.json >twice/model.safetensors.index.json
train untrained --init twice $text --lr 0
same seed9 untrained
[ "$("$TUTTI" checkpoint show twice --json | grep -o '"name": ' | wc -l)" -eq "$(echo $names | wc -w)" ] || fail "tensors that the index passes over are shown"
train wide --model gpt2 --layers 1 --heads 2 --width 32 --context 24 --vocab 300 $text
"$TUTTI" checkpoint export wide --hf wide.hf >/dev/null && rm wide.hf/tokenizer*
train bytes --init wide.hf --data text --data-dir "$SOURCE_DIR/README.md" --max-steps 1 --eval-every 0 --progress quiet
says bytes 'the model of wide.hf knows 300 tokens, and those of data=text are 256 bytes, which mean something else to it'
train characters --init wide.hf $text
says characters 'those of data=shakespeare are 65 characters'
train short --init hf $text --lr 0 --context 12 --progress plain
says short 'shortened: transformer.wpe.weight \(the first 12 of 24 rows\)'
"$TUTTI" checkpoint export short --hf short.hf >/dev/null
config n_positions 12 short.hf

# A folder is made where there is one for it. A disk that is full: a folder that export has made is removed, and no other.
refused 1 "cannot write full/deep: there is no folder full (mkdir -p makes it)" "$TUTTI" checkpoint export run --hf full/deep
mkdir there
for folder in full/ there/deep; do
    refused 4 "File too large" bash -c "trap '' XFSZ; ulimit -f 8; exec $TUTTI checkpoint export run --hf $folder"
done
[ ! -e full ] && [ -z "$(ls -A there)" ] || fail "left behind: $(ls -A full there)"
refused 2 "data: gpt2 is a language model, which needs text, and the samples of data=digits are U8 images of 1x8x8; give --data text --data-dir FILE-OR-FOLDER" \
    "$TUTTI" train --init hf
refused 2 "data: llama is a language model, which needs text" "$TUTTI" train --model llama --layers 1 --heads 2 --width 32

# ---- A llama that was trained on shorter samples looks as far back as the one it began with; what is not known is said
train long --model llama --layers 1 --heads 2 --width 32 --context 48 $text
"$TUTTI" checkpoint export long --hf long.hf >export.out 2>&1
! grep -q max_position export.out || { cat export.out; fail "a context of its own"; }
train shorter --init long.hf $text --context 16
train shortest --init shorter $text --context 12
for run in shorter shortest; do
    "$TUTTI" checkpoint export $run --hf $run.hf >export.out 2>&1
    config max_position_embeddings 48 $run.hf
    grep -q 'max_position_embeddings is 48, as in long.hf/config.json; the samples of the training had 1[26] tokens' export.out || { cat export.out; fail "silently"; }
done
rm -r long.hf
"$TUTTI" checkpoint export shortest --hf shortest.hf --force >export.out 2>&1
config max_position_embeddings 12 shortest.hf
grep -q 'max_position_embeddings is 12, the context of the training: that of long.hf, with which it began, may be longer' export.out || { cat export.out; fail "silently"; }

# ---- Data of another tokenizer than the one beside the weights, although the sizes are equal
tokenizer_json "t h" "h e" >one.json
tokenizer_json "h e" "t h" >two.json
words="--data text --data-dir $SOURCE_DIR/README.md --max-steps 1 --eval-every 0 --threads 1 --progress quiet"
train one --model llama --layers 1 --heads 2 --width 32 --context 16 $words --tokenizer one.json
"$TUTTI" checkpoint export one --hf one.hf >/dev/null
another='mean something else to the model; for its own, leave tokenizer out'
for tokenizer in two.json bytes; do
    train two --init one.hf $words --tokenizer $tokenizer
    says two "the tokens of data=text are those of $tokenizer.*, and the weights of one.hf have one.hf/tokenizer.json \(digest [0-9a-f]{32}\) beside them: .*$another"
    rm -r two
done
train one.too --init one.hf $words --tokenizer one.json
mute one.too "$another"
train one.three --init one $words
mute one.three "$another"

# ---- A run of a language model, or its checkpoint, says the same
for place in run run/checkpoints/latest; do
    train from.run --init $place $text --lr 0
    same run from.run
    rm -r from.run
done
refused 2 "/config.json says 2; leave layers out, or give other weights (init)" "$TUTTI" train --init run $text --layers 3
refused 2 '/config.json says "gpt2"; leave model out' "$TUTTI" train --init run $text --model llama

# ---- A run continues without the folder it began with, as a rank on a new host does; nothing else begins in its place
cp -r hf gone
{
    printf '{"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}, "model": {"type": "BPE", "merges": [], "vocab": {"\\u0120": 0'
    n=0
    for letter in {a..z}; do printf ', "%s": %d' "$letter" $((n += 1)); done
    printf '}}}\n'
} >gone/tokenizer.json
for ((i = 0; i < 400; i++)); do printf 'the queen went in the other direction '; done >words.txt
words="--data text --data-dir words.txt --max-steps 2 --eval-every 0 --threads 1 --progress quiet --checkpoint-every 1"
train whole --init gone $text --checkpoint-every 1
train words --init gone $words
cp -r whole half.whole
cp -r words half.words
cp -r words half.words.2
rm -r half.*/checkpoints/step-00000002 half.*/checkpoints/latest
cp -r half.whole empty
rm -r empty/checkpoints
rm -r gone
train half.whole --init gone $text --checkpoint-every 1 --resume auto
same whole half.whole
train half.words --init gone $words --resume auto # its tokenizer was in that folder; the run has a copy
same words half.words
"$TUTTI" train --config half.words.2/config.json --resume auto >half.words.2.out 2>&1 || { cat half.words.2.out; fail "by its config.json"; }
same words half.words.2
train from.step --init gone $text --resume whole/checkpoints/step-00000001
same whole from.step
refused 1 "init: cannot open gone: there is no such file or folder" "$TUTTI" train --init gone $text --run-dir empty
refused 2 "init: cannot open gone: there is no such file or folder" "$TUTTI" train --init gone $text --run-dir new

# ---- What is refused
refused 2 "layers: it is given, and the weights' hf/config.json says 2; leave layers out, or give other weights (init)" \
    "$TUTTI" train --init hf $text --layers 3
refused 2 "model: it is given, and the weights' hf/config.json says \"gpt2\"" "$TUTTI" train --init hf $text --model llama
refused 2 "context: it is given, and the weights' hf/config.json says 24" "$TUTTI" train --init hf $text --context 48
train wider $text --model gpt2 --layers 1 --heads 1 --width 16 --context 24 --vocab 1000
"$TUTTI" checkpoint export wider --hf wider.hf >wider.out || { cat wider.out; fail "export of wider"; }
rm wider.hf/tokenizer*
refused 2 "tokenizer: wider.hf has none, and the 1000 tokens of its model are not bytes" \
    "$TUTTI" train --init wider.hf --data text --data-dir "$SOURCE_DIR/README.md" --max-steps 1
rm hf/tokenizer*
refused 2 "vocab is 65, and the data have 256 tokens" "$TUTTI" train --init hf --data text --data-dir "$SOURCE_DIR/README.md" --max-steps 1
sed 's/gelu_new/relu/' hf/config.json >config && cp config hf/config.json
refused 2 'init: hf/config.json: "activation_function" is "relu", which this version does not compute; expected "gelu_new"' "$TUTTI" train --init hf $text
sed 's/"relu"/"gelu_new", "n_inner": 7/' config >hf/config.json
refused 2 '"n_inner" is 7, which this version does not compute; expected 4 n_embd' "$TUTTI" train --init hf $text
changed() { # a change of a llama's config.json
    sed "$1" llama.json >llama.hf/config.json
    ! cmp -s llama.json llama.hf/config.json || fail "nothing was changed: $1"
}
train llama --model llama --layers 2 --heads 2 --width 32 --context 24 $text
"$TUTTI" checkpoint export llama --hf llama.hf >/dev/null
cp llama.hf/config.json llama.json
refused 2 'init: cannot open nowhere: there is no such file or folder' "$TUTTI" train --init nowhere $text
refused 2 'init: llama.json: no config.json that can be read names the language model' "$TUTTI" train --init llama.json $text
changed 's/"model_type": "llama",//'
refused 2 'llama.hf/config.json: it has neither the "model_type" of a folder of Hugging Face' "$TUTTI" generate llama.hf
refused 2 'init: llama.hf/config.json: it has neither' "$TUTTI" train --init llama.hf $text
changed 's/"llama"/"bert"/'
refused 2 '"model_type" is "bert", which is neither "gpt2" nor "llama"; it would name model and data; give --model' "$TUTTI" generate llama.hf
refused 2 'init: llama.hf/config.json: "model_type" is "bert"' "$TUTTI" train --init llama.hf $text
refused 2 '"model_type" is "bert"' "$TUTTI" checkpoint export llama.hf --hf other
for size in "intermediate_size 128 rows of mlp.up_proj" "hidden_size 32 columns of embed_tokens" "vocab_size 65 rows of embed_tokens" \
    "num_hidden_layers 2 tensors mlp.up_proj"; do
    changed "s/\"${size%% *}\": [0-9]*/\"${size%% *}\": 100000/"
    what=${size#* }
    said="llama.hf/config.json: \"${size%% *}\" is 100000, and llama.hf/model.safetensors has ${what%% *} (${what#* }.weight)"
    refused 1 "$said" "$TUTTI" generate llama.hf
    refused 2 "$said" "$TUTTI" train --init llama.hf $text
done
changed 's/"rope_theta": [0-9.]*/"rope_theta": "x"/'
refused 2 '"rope_theta" is not a number above 0' "$TUTTI" train --init llama.hf $text
changed 's/"rope_scaling": null/"rope_scaling": {"rope_type": "yarn"}/'
refused 2 '"rope_scaling" is {"rope_type":"yarn"}, which this version does not compute' "$TUTTI" train --init llama.hf $text
for rope in '{"type": "linear"}' '{"rope_type": "linear", "factor": 0}' '{"rope_type": "linear", "factor": "two"}'; do
    changed "s/\"rope_scaling\": null/\"rope_scaling\": $rope/"
    refused 2 'llama.hf/config.json: "rope_scaling" is {"' "$TUTTI" train --init llama.hf $text
    refused 2 'expected a factor above 0' "$TUTTI" train --init llama.hf $text
done
changed 's/"rope_scaling": null/"rope_scaling": {"rope_type": "llama3", "factor": 8}/'
refused 2 'expected a factor, low_freq_factor, a larger high_freq_factor and original_max_position_embeddings, all above 0' "$TUTTI" train --init llama.hf $text
refused 2 'vocab: 1048577 is out of range; expected 0 to 1048576' "$TUTTI" train $text --vocab 1048577
for rope in '"rope_scaling": {}' '"rope_parameters": {"rope_theta": 10000}' '"rope_scaling": {"factor": 2}' '"rope_parameters": null'; do
    changed "s/\"rope_scaling\": null/$rope/"
    rm -rf roped
    train roped --init llama.hf $text --lr 0
    same llama roped
done
sed -i 's/"heads": 2/"heads": -200/' llama/config.json
refused 1 'says -200 heads; expected a number above 0' "$TUTTI" checkpoint export llama/model.safetensors --hf other
echo '{"model_type": "gpt2", "n_layer": -1}' >hf/config.json
refused 2 'hf/config.json: "n_layer" is not a number above 0' "$TUTTI" train --init hf $text
sed -i 's/"transformer.wpe.weight": "model-00001/"transformer.wqe.weight": "model-00001/' parts/model.safetensors.index.json
refused 1 'tensor "transformer.wqe.weight" is not in model-00001-of-00001.safetensors, as the index says' "$TUTTI" train --init parts $text
sed -i 's/"transformer.wqe.weight": "/&..\//' parts/model.safetensors.index.json
refused 1 'the file of a tensor is not a name in its folder ("transformer.wqe.weight")' "$TUTTI" train --init parts $text
echo '{"weight_map": {}}' >parts/model.safetensors.index.json
refused 1 'it names no tensor' "$TUTTI" train --init parts $text
echo '{"weight_map": 3}' >parts/model.safetensors.index.json
refused 1 'it has no "weight_map"' "$TUTTI" train --init parts $text
train digits --model mlp --max-steps 1 --eval-every 0 --progress quiet
refused 2 "of which Hugging Face's folders are written; expected a checkpoint or a run of these" "$TUTTI" checkpoint export digits --hf other
refused 2 'rope_scaling: "yarn:4" is neither linear:FACTOR nor llama3:FACTOR,LOW,HIGH,CONTEXT' "$TUTTI" train --model llama $text --rope-scaling yarn:4
refused 2 'rope_theta: it is for model=llama, and this is gpt2; leave rope_theta out' "$TUTTI" train --model gpt2 $text --rope-theta 5
