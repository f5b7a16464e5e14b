# A program's own model, data and loss through tutti_trainer: as tutti train, with any number of ranks; and models and data
# in shared objects, also malicious ones.
# SPDX-License-Identifier: MIT    timeout: 180
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
export TUTTI_KERNELS=reference
cp "$BUILD_DIR/tests/program/own_trainer" mine
last() { sed -n 's/^\(\[[0-9]*\] \)*result: //p' "$1"; }
own() { # DIR RANKS WHAT KEYS...: must succeed
    local dir=$1 ranks=$2 what=$3 code=0
    shift 3
    if [ "$ranks" = alone ]; then
        timeout 180 ./mine "$what" --run-dir "$dir" "$@" >"$dir.out" 2>&1 || code=$?
    else
        timeout 180 "$TUTTI" run -n "$ranks" ./mine "$what" --run-dir "$dir" "$@" >"$dir.out" 2>&1 || code=$?
    fi
    [ $code = 0 ] || { cat "$dir.out"; fail "exit code $code from: $dir $ranks $what $*"; }
}

# ---- A run's files and output
own images alone images --tensorboard --wandb offline
for file in config.json metrics.jsonl summary.json model.safetensors checkpoints/latest tensorboard; do
    [ -e "images/$file" ] || fail "no images/$file"
done
[ "$(field images/config.json model)" = net ] && [ "$(field images/config.json data)" = memory ] || fail "names in config.json"
[ "$(field images/config.json epochs)" = 2 ] || fail "the program's defaults"
grep -q '"program": "mine"' images/wandb/offline-run-*/files/wandb-metadata.json || fail "the program's name for W&B"
grep -q 'net, .* on memory: 96 training images of 1x8x8, 32 test images' images.out || fail "it does not say what is trained"
grep -q ' a rank, augment off$' images.out && [ "$(field images/config.json augment)" = false ] || fail "labels may depend on positions, but the images are moved"
[ "$(grep -c 'told: step' images.out)" = "$(grep -c '"loss"' images/metrics.jsonl)" ] || fail "lines told and written differ"
[ "$(grep -c 'told: eval' images.out)" = 2 ] || fail "evaluations told"
last images.out | grep -q "^completed, code 0, rank 0 of 1, 24 steps, 2 epochs, accuracy 1.0000, digest $(digest images), images$" ||
    { last images.out; fail "the result"; }
grep -q '^signals: as before$' images.out || fail "signals are not what they were"

# ---- A function that reads gives the same bits; another loss gives other bits
own read alone read --workers 2
same images read
own loss alone loss
[ "$(digest loss)" != "$(digest images)" ] || fail "the program's loss is not used"
# ---- A program's metrics: everywhere the same figures, whatever the number of ranks, also after a resumed run and by --eval
own metrics alone metrics --tensorboard --shards 2
own metrics2 2 metrics --shards 2
told=$(grep -c 'told: gap' metrics.out)
[ "$told" = 2 ] || fail "metrics are told $told times"
gap=$(field metrics/metrics.jsonl gap)
[ -n "$gap" ] && [ "$gap" = "$(field metrics/summary.json gap)" ] && [ "$gap" = "$(field metrics2/summary.json gap)" ] ||
    fail "gap is $gap, and $(field metrics/summary.json gap) in the summary, $(field metrics2/summary.json gap) by two ranks"
[ "$(field metrics/summary.json rms_logit)" = "$(field metrics2/summary.json rms_logit)" ] || fail "rms_logit"
grep -q 'gap ' metrics.out && grep -q 'test rms_logit ' metrics.out && grep -qa 'gap/validation' metrics/tensorboard/* || fail "metrics are not shown"
own metrics3 alone metrics --shards 2 --resume metrics/checkpoints/step-00000012
[ "$gap" = "$(field metrics3/summary.json gap)" ] || fail "gap of a resumed run: $(field metrics3/summary.json gap)"
./mine metrics --eval metrics --json metrics.json >metrics.eval || fail "--eval with metrics"
field metrics.json gap >gap.eval && echo "$gap" >gap.run && close gap.eval gap.run 1e-8

own rows alone rows --model linear --epochs 30 --eval-every 10
awk -v l="$(field rows/summary.json val_loss)" 'BEGIN { exit !(l < 0.01) }' || fail "regression: $(field rows/summary.json val_loss)"
[ "$(field rows/summary.json val_accuracy)" = null ] || fail "regression has an accuracy"
own rows2 2 rows --model mlp
grep -q '96 training rows of 2, 32 test rows' rows2.out || fail "the output does not count rows"
grep -q '^\[0\] epoch .* samples/s' rows2.out && grep -q '^\[0\]   samples/s ' rows2.out && ! grep -q image rows2.out ||
    { cat rows2.out; fail "rows are called images"; }
[ "$(field rows2/config.json augment)" = false ] || fail "rows are augmented: $(field rows2/config.json augment)"
refused 2 'augment: crops and flips are of images of bytes (U8 [C,H,W]), and the samples of data=memory are F32 rows of 2' ./mine rows --augment
grep -q augment rows2.out && fail "rows have nothing to augment"
own keys alone model --data digits --epochs 1
grep -q ' a rank, augment on$' keys.out || fail "digits are not augmented"
[ "$(field keys/config.json data)" = digits ] || fail "data by keys"

# ---- A layer's name with a quotation mark and a backslash is a JSON string in what the run writes
own quoted 2 quoted --profile 1:3
for rank in 0 1; do
    grep -qF '"parameters":["fc.weight","fc.bias","a\"b\\.weight"]' "quoted/trace/rank-$rank.json" ||
        { grep parameters "quoted/trace/rank-$rank.json"; fail "the trace's names of parameters"; }
    grep -qF '"layer":"a\"b\\"' "quoted/trace/rank-$rank.json" || { grep layer "quoted/trace/rank-$rank.json"; fail "the trace's name of a layer"; }
done
! command -v python3 >python.path || python3 -m json.tool quoted/trace/rank-0.json >json.out || fail "the trace is not JSON"

# ---- Ranks: all have the result; by shards it is the same for any number
own two 2 images
for rank in 0 1; do grep -q "^\[$rank\] result: completed, code 0, rank $rank of 2, 12 steps.* digest $(digest two), two$" two.out ||
    { cat two.out; fail "the result of rank $rank"; }; done
[ "$(grep -c 'told: step' two.out)" = 3 ] || fail "steps are told on rank 0 alone"
own shards1 alone images --shards 4
own shards2 2 images --shards 4
same shards1 shards2
timeout 180 "$TUTTI" run -n 2 --max-restarts 9 --chaos kill=2,until=1,seed=5 ./mine images --run-dir chaos --shards 4 --epochs 40 >chaos.out 2>&1 ||
    { cat chaos.out; fail "killed ranks"; }
own calm alone images --shards 4 --epochs 40
same calm chaos

# ---- Interrupted and resumed is uninterrupted, bit for bit
code=0
timeout 180 ./mine images --run-dir cut --epochs 4000 --schedule constant --warmup-epochs 0 >cut.out 2>&1 &
pid=$!
for _ in $(seq 1200); do
    grep -q 'told: eval' cut.out 2>/dev/null && break
    sleep 0.05
done
kill -TERM $pid
wait $pid || code=$?
[ $code = 143 ] || { tail cut.out; fail "exit code $code of a run stopped by SIGTERM"; }
last cut.out | grep -q '^interrupted, code 143' || fail "it does not say that it was interrupted"
grep -q 'to continue: ./mine --config cut/config.json --resume auto' cut.out || fail "the message does not say how to continue"
steps=$(field cut/summary.json steps)
own cut alone images --resume auto --schedule constant --warmup-epochs 0 --epochs 4000 --max-steps $((steps + 5))
own whole alone images --schedule constant --warmup-epochs 0 --epochs 4000 --max-steps $((steps + 5))
same cut whole

# ---- Errors are those of tutti train
refused 2 'unknown key "epoch"; did you mean "epochs"? (mine --help lists all)' ./mine images --epoch 3
refused 2 'model: this program brings its own, "net"; leave model out' ./mine images --model mlp
refused 2 'data: this program brings its own, "memory"; leave data out' ./mine images --data digits
refused 2 'data_dir: this program brings its own data; leave data_dir out' ./mine images --data-dir x
refused 2 'tutti run -n 2 ./mine' ./mine images -n 2
refused 2 'tutti run -n 3 ./mine' ./mine images --nproc-per-node=3
refused 2 'this is the configuration of a run of 2 ranks; tutti run -n 2 ./mine' ./mine images --config two/config.json
refused 1 'its read function failed and did not say why (sample' ./mine silent
refused 2 'model: the name "net\x1b[31m\n" is not one of 1 to 60 printable characters' ./mine name
# Ranks with data of unequal size would miss samples in an evaluation, or take different numbers of steps.
refused 3 'data: this rank has 48 training images of 1x8x8 in 4 classes, 32 test images of 1x8x8 in 4 classes, and rank 0 has 96 training' \
    "$TUTTI" run -n 2 ./mine fewer
refused 3 'data: this rank has 96 training images of 1x8x8 in 4 classes, 16 test' "$TUTTI" run -n 2 ./mine fewer-tests
refused 2 'data: this rank has 96 training images of 1x8x8 in 4 classes, 16 test' "$TUTTI" run -n 2 ./mine fewer-tests --shards 4
refused 2 "the program's loss function returned NULL" ./mine no-loss
refused 2 'model net: its forward function returned NULL' ./mine no-output
own nested 2 nested
grep -q 'nested: .*STATE' nested.out || { cat nested.out; fail "a run within a run is not refused"; }
grep -q '96 training images of 1x8x8, 1 test image$' nested.out || { cat nested.out; fail "one test image"; }
./mine images --help >help.out
grep -q 'tutti run -n 2 mine --epochs 3' help.out && ! grep -q -- '--data-dir\|--model ' help.out || fail "--help"
grep -q -- '--augment .*(default false)' help.out || fail "--help: images are augmented by default"
grep -q -- '--epochs .*(default 2)' help.out || fail "--help does not show the program's default"

# ---- --eval: the program's own model, data and loss over the weights of a run, as tutti eval shows them
near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0 && a - b < 1e-6 && b - a < 1e-6) }'; }
evaluated() { # COMMAND...: of a program with --eval; result.json are its numbers
    "$@" --json result.json >evaluated.out 2>&1 || { cat evaluated.out; fail "exit code $? from: $*"; }
}
evaluated ./mine images --eval images --confusion
[ "$(field result.json accuracy)" = 1.0 ] || { cat result.json; fail "--eval: accuracy"; }
grep -q '^net on memory:test, 32 images, 1 rank, ' evaluated.out && grep -q 'taken for' evaluated.out || { cat evaluated.out; fail "--eval: tables"; }
grep -q '^result: completed, code 0, rank 0 of 1, 0 steps, 0 epochs, accuracy 1.0000' evaluated.out || { cat evaluated.out; fail "--eval: the result"; }
grep -q '^told' evaluated.out && { cat evaluated.out; fail "--eval trains, or calls on_step or on_eval"; }
grep -v '"world_size"\|second\|images_per_s' result.json >one.json
evaluated "$TUTTI" run -n 2 ./mine images --eval=images --confusion
cmp one.json <(grep -v '"world_size"\|second\|images_per_s' result.json) || fail "--eval: 2 ranks give different numbers"
[ "$(field result.json world_size)" = 2 ] || fail "--eval: not 2 ranks"
grep -q '^\[1\] result: completed, code 0, rank 1 of 2, .*accuracy 1.0000' evaluated.out || { cat evaluated.out; fail "--eval: rank 1's result"; }
evaluated ./mine images --eval images/model.safetensors --split train
grep -q "\"images\": 96," result.json && [ "$(field result.json split)" = train ] || fail "--eval: --split train"
evaluated ./mine loss --eval loss
near "$(field result.json loss)" "$(field loss/summary.json val_loss)" || { cat result.json; fail "--eval: not the program's loss"; }
evaluated ./mine rows --eval rows
near "$(field result.json loss)" "$(field rows/summary.json val_loss)" || { cat result.json; fail "--eval: rows"; }
[ "$(field result.json accuracy)" = null ] || fail "--eval: rows have an accuracy"
grep -q '^linear on memory:test, 32 samples, ' evaluated.out && grep -q '^MAE .*  R2 .*  loss 0.00' evaluated.out || { cat evaluated.out; fail "--eval: rows"; }
evaluated ./mine model --eval keys
near "$(field result.json accuracy)" "$(field keys/summary.json val_accuracy)" || fail "--eval: the data are the run's"
refused 2 'expected train or test' ./mine images --eval images --split val
refused 2 'there is no --eval flag "--epochs"; see tutti eval --help' ./mine images --eval images --epochs 3
refused 2 'unknown key "evl"; did you mean "eval"?' ./mine images --evl images
refused 2 'expected train or test' "$TUTTI" eval keys --data digits --model mlp --split val
refused 2 '--confusion: the samples of data=memory have no classes' ./mine rows --eval rows --confusion
refused 2 'model: this program brings its own, "net"; leave model out' ./mine images --eval images --model mlp
refused 1 'does not hold the weights of this model; missing: conv.weight' ./mine images --eval rows
cp images/model.safetensors w.safetensors
refused 2 'w.safetensors has no configuration beside it (a checkpoint'"'"'s state.json, a run'"'"'s config.json), which would name model and data; give --data' ./mine model --eval w.safetensors
refused 2 'unknown key "eval"; did you mean "tutti eval"?' "$TUTTI" train --eval images
grep -q -- '--eval PATH' help.out || fail "--help does not list --eval"

# ---- --predict: the same weights' output for each sample, as tutti predict writes it; without classes beside the targets
timeout 180 ./mine images --predict images --out one.csv >predicted.out || { cat predicted.out; fail "--predict"; }
grep -q '^logits of 32 images of memory:test in one.csv: accuracy 100.00 %, loss ' predicted.out || { cat predicted.out; fail "--predict: the last line"; }
[ "$(head -1 one.csv)" = index,label,predicted,logit_0,logit_1,logit_2,logit_3 ] || fail "--predict: columns"
awk -F, 'NR > 1 && ($1 != NR - 2 || $2 != $3) { bad = 1 } END { exit bad || NR != 33 }' one.csv || { cat one.csv; fail "--predict: rows"; }
timeout 180 "$TUTTI" run -n 2 ./mine images --predict=images --out two.csv >predicted.out || { cat predicted.out; fail "--predict with 2 ranks"; }
cmp one.csv two.csv
timeout 180 ./mine rows --predict rows --out rows.csv >predicted.out || { cat predicted.out; fail "--predict: rows"; }
grep -q '^outputs of 32 samples of memory:test in rows.csv: loss ' predicted.out || { cat predicted.out; fail "--predict: the last line for rows"; }
[ "$(head -1 rows.csv)" = index,target_0,output_0 ] || { head -1 rows.csv; fail "--predict: columns of rows"; }
loss=$(awk -F, 'NR > 1 { sum += ($3 - $2)^2 } END { print sum / (NR - 1) }' rows.csv)
near "$loss" "$(field rows/summary.json val_loss)" || fail "--predict: the outputs have loss $loss"
timeout 180 "$TUTTI" run -n 2 ./mine rows --predict rows --out rows.safetensors >predicted.out || { cat predicted.out; fail "--predict to safetensors"; }
close <(numbers rows.safetensors) <(awk -F, 'NR > 1 { print $3 }' rows.csv; awk -F, 'NR > 1 { print $2 }' rows.csv) 1e-6
timeout 180 ./mine images --predict images --out - >out.csv || fail "--predict to standard output"
cmp one.csv <(head -33 out.csv)
if [ -w /dev/full ]; then
    code=0
    timeout 180 ./mine images --predict images --out - >/dev/full 2>predicted.err || code=$?
    [ $code = 4 ] && grep -q 'cannot write all of the output to standard output' predicted.err || { cat predicted.err; fail "--predict to a full disk: exit code $code"; }
fi
refused 2 '--format: the samples of data=memory have no classes (task=regression); leave it out' ./mine rows --predict rows --out x.csv --format logits
refused 2 '--out is not given, expected a file that ends in .safetensors or .csv, or -' ./mine images --predict images
refused 2 'one checkpoint or file, but there are "images" and "rows"' ./mine images --predict images --predict rows --out x.csv
refused 2 '--eval and --predict: expected one of them, not both' ./mine images --predict images --out x.csv --eval images
refused 2 'there is no --predict flag "--json"' ./mine images --predict images --out x.csv --json y
refused 2 '--out goes with --predict PATH, which is not given' ./mine images --out x.csv
refused 2 '--split goes with --eval PATH or --predict PATH, which is not given' ./mine images --split=train
refused 2 '--eval and --predict: expected one of them, not both' ./mine images --eval images --predict images
refused 2 'unknown key "predict"; did you mean "tutti predict"?' "$TUTTI" train --predict images
grep -q -- '--predict PATH' help.out || fail "--help does not list --predict"

# ---- tutti eval does not have a program's own parts
refused 2 'rows was trained by a program with its own data, "memory"; evaluate it with that program (./PROGRAM --eval RUN), or build the data format as a shared object' \
    "$TUTTI" eval rows
for command in eval "predict --out -"; do
    refused 2 'images was trained by a program with its own model, "net", and its own data, "memory"' \
        "$TUTTI" $command images
    grep -q 'build both as shared objects (TUTTI_SHARED_MODEL, TUTTI_SHARED_DATA) and add --model ./FILE.so --data ./FILE.so' refused.out || fail "the remedy"
    refused 2 'keys was trained by a program with its own model, "net"; ' "$TUTTI" $command keys
    grep -q 'build the model as a shared object (TUTTI_SHARED_MODEL) and add --model ./FILE.so' refused.out || fail "the remedy"
done

# ---- Shared objects
c=$(command -v "${CC:-cc}" || command -v gcc || command -v clang || true)
if [ -z "$c" ] || grep -q '^TUTTI_SANITIZE:[A-Z]*=.' "$BUILD_DIR/CMakeCache.txt"; then
    echo "not tested: shared objects (no compiler, or the build has a sanitizer)"
    exit 0
fi
shared() { # NAME SOURCE: NAME.so
    printf '#include <tutti/tutti.h>\n%s\n' "$2" >"$1.c"
    "$c" -Wall -Wextra -Werror -fPIC -shared -I"$SOURCE_DIR/include" -o "$1.so" "$1.c" || fail "$1.so does not compile"
}
model='typedef struct { tutti_module base; tutti_linear fc; } line;
static void init(tutti_module *m, const tutti_model_opts *o) { tutti_linear_init(&((line *)m)->fc, m, "fc", o->channels * o->height * o->width, o->classes); }
static tutti_tensor *forward(tutti_module *m, tutti_tensor *x) { return tutti_linear_forward(&((line *)m)->fc, tutti_flatten(x)); }
static const tutti_model_kind kind = {.name = "line", .bytes = sizeof(line), .init = init, .forward = forward};'
shared model "$model TUTTI_SHARED_MODEL(kind);"
shared data '#include <string.h>
static tutti_status open(void **self, const tutti_dataset_source *s, tutti_dataset_info *i) { (void)self; i->count = s->train ? 80 : 40; i->channels = 1; i->height = i->width = 4; i->classes = 2; return TUTTI_OK; }
static tutti_status read(const void *self, size_t n, uint8_t *x, int64_t *y) { (void)self; memset(x, n % 2 ? 200 : 20, 16); *y = (int64_t)(n % 2); return TUTTI_OK; }
static const tutti_dataset_format format = {.name = "halves", .help = "two greys", .no_folder = true, .open = open, .read = read};
TUTTI_SHARED_DATA(format);'
train so -n 2 --model ./model.so --data ./data.so --epochs 10 --batch-size 8 --lr 0.1 --augment off
[ "$(field so/config.json model) $(field so/config.json data)" = "line halves" ] || fail "names of shared objects"
[ "$(field so/config.json model_file)" = "$work/model.so" ] || fail "the file is not in config.json: $(field so/config.json model_file)"
[ "$(field so/summary.json val_accuracy)" = 1.0 ] || fail "accuracy $(field so/summary.json val_accuracy)"
train again -n 2 --config so/config.json
same so again
train so -n 2 --config so/config.json --resume auto
# Weights come from anywhere: a checkpoint may name code, which is not loaded.
refused 2 "add --model $work/model.so" "$TUTTI" eval so
refused 2 "add --data $work/data.so" "$TUTTI" eval so --model ./model.so
timeout 180 "$TUTTI" eval so -n 2 --model ./model.so --data ./data.so >eval.out || fail "eval"
grep -q 'accuracy 100.00 % (40 of 40)' eval.out || { cat eval.out; fail "eval says another accuracy"; }
shared program "$model TUTTI_SHARED_MODEL(kind);
int main(int argc, char **argv) { return tutti_trainer_main(argc, argv, &(tutti_trainer_opts){.model = &kind}); }"
timeout 180 "$TUTTI" eval so --model ./program.so --data ./data.so >eval.out || fail "eval of a program's source as a shared object"
grep -q 'accuracy 100.00 % (40 of 40)' eval.out || { cat eval.out; fail "eval by a program's source says another accuracy"; }
timeout 180 "$TUTTI" predict so --model ./model.so --data ./data.so --out predicted.csv >predict.out || fail "predict"
train digits --model ./model.so --epochs 1
refused 2 'data_dir: data=halves needs no files' "$TUTTI" train --data ./data.so --data-dir x

refused 2 'model: cannot open ./nowhere.so: No such file' "$TUTTI" train --model ./nowhere.so
refused 2 "model: $work is not a file; expected a shared object" "$TUTTI" train --model ./
echo "no object" >text.so
refused 2 'model: cannot load the shared object' "$TUTTI" train --model text.so
refused 2 'of a source, make one: cc -shared -fPIC' "$TUTTI" train --model ./model.c
refused 2 'it is a program: run it instead, or make a shared object of its source: cc -shared -fPIC' "$TUTTI" train --model ./mine
head -c 3000 model.so >short.so
refused 2 'model: cannot load the shared object' "$TUTTI" train --model ./short.so
mkfifo pipe.so
refused 2 "pipe.so is not a file" "$TUTTI" train --model ./pipe.so
shared empty 'int unrelated;'
refused 2 'has no symbol tutti_shared_model; write TUTTI_SHARED_MODEL(KIND);' "$TUTTI" train --model ./empty.so
refused 2 'holds a data format: give it with --data' "$TUTTI" train --model ./data.so
refused 2 'holds a model: give it with --model' "$TUTTI" train --data ./model.so
shared old "$model extern const tutti_shared_part tutti_shared_model; const tutti_shared_part tutti_shared_model = {\"0.0.9\", sizeof kind, &kind};"
refused 2 'was compiled for Tutti 0.0.9, and this is Tutti' "$TUTTI" train --model ./old.so
shared odd "$model extern const tutti_shared_part tutti_shared_model; const tutti_shared_part tutti_shared_model = {TUTTI_VERSION, 8, &kind};"
refused 2 'is not what TUTTI_SHARED_MODEL(KIND) of Tutti' "$TUTTI" train --model ./odd.so
shared bad 'static const tutti_model_kind kind = {.name = "../up", .bytes = 1}; TUTTI_SHARED_MODEL(kind);'
refused 2 'the name "../up" is not one of' "$TUTTI" train --model ./bad.so
shared none 'static const tutti_model_kind kind = {.name = "none", .bytes = 1}; TUTTI_SHARED_MODEL(kind);'
refused 2 'model "none": bytes is less than' "$TUTTI" train --model ./none.so
shared half 'static void init(tutti_module *m, const tutti_model_opts *o) { (void)m, (void)o; }
static const tutti_model_kind kind = {.name = "half", .bytes = sizeof(tutti_module), .init = init}; TUTTI_SHARED_MODEL(kind);'
refused 2 'model "half": forward is NULL in its tutti_model_kind' "$TUTTI" train --model ./half.so
shared lost "$model extern int not_there(void); int call(void); int call(void) { return not_there(); } TUTTI_SHARED_MODEL(kind);"
shared mute 'static tutti_status open(void **self, const tutti_dataset_source *s, tutti_dataset_info *i) { (void)self, (void)s, (void)i; return TUTTI_ERR_IO; }
static tutti_status read(const void *self, size_t n, uint8_t *x, int64_t *y) { (void)self, (void)n, (void)x, (void)y; return TUTTI_ERR_IO; }
static const tutti_dataset_format format = {.name = "mute", .help = "nothing", .no_folder = true, .open = open, .read = read};
TUTTI_SHARED_DATA(format);'
refused 1 'the open function of data format mute failed and did not say why' "$TUTTI" train --data ./mute.so
shared leaves "#include <stdlib.h>
__attribute__((constructor)) static void leave(void) { exit(0); }
$model TUTTI_SHARED_MODEL(kind);"
refused 1 "the shared object $work/leaves.so ended the process while it was loaded" "$TUTTI" train --model ./leaves.so
refused 2 'undefined symbol: not_there' "$TUTTI" train --model ./lost.so
refused 2 'holds "line", and the configuration says model "mlp"' "$TUTTI" train --model mlp --model-file ./model.so
