# docs/adding.md, applied to a copy of the sources: an operation needs 3 files and a model 2, and existing code tests,
# exports, lists and trains them. Only files that read the changed ones are compiled, and linked before the built ones.
# e2e/adding_all builds the same with CMake.
# timeout: 180
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
ninja -C "$BUILD_DIR" -t commands tutti test_op_autograd_declared test_unit_train_null test_unit_optim_models tutti_shared >"$work/commands" 2>/dev/null ||
    { echo "skipped: needs a build by ninja, with tests" && exit 77; }
cd "$work" || exit 1
page=$SOURCE_DIR/docs/adding.md
mkdir -p tree/build
cp -r "$SOURCE_DIR"/{src,include,tests,tools} tree
cp -r tree before

# ---- Building ----
object_of() { # FILE
    echo "$work/${1//\//_}.o"
}
compile() { # FILE [LIKE]: object of tree/FILE, compiled like another file, LIKE, if the build does not know it
    local command
    command=$(grep -F -m1 -- "-c $SOURCE_DIR/${2:-$1}" commands) || fail "the build compiles no ${2:-$1}"
    command=$(sed -E "s| -M[TF] [^ ]+| |g; s| -MD | |; s| -o [^ ]+| -o $(object_of "$1")|" <<<"$command")
    command=${command//$SOURCE_DIR\/${2:-$1}/$work\/tree\/$1}
    for folder in src include tests; do command=${command//$SOURCE_DIR\/$folder/$work\/tree\/$folder}; done
    (cd "$BUILD_DIR" && eval "$command") >compile.out 2>&1 && [ ! -s compile.out ] || { cat compile.out; fail "to compile $1"; }
}
link() { # OUTPUT FILE...: links OUTPUT as the build does, with these files' objects in place of the build's; into tree/build
    local command output=$1 objects=""
    command=$(grep -F -m1 -- " -o $output " commands) || fail "the build links no $output"
    shift
    for file; do
        command=$(sed -E "s| [^ ]+/${file#tests/}\.o | |" <<<"$command")
        objects="$objects $(object_of "$file")"
    done
    (cd "$BUILD_DIR" && eval "${command/ -o $output / $objects -o $work/tree/build/$(basename "$output") }") >link.out 2>&1 ||
        { cat link.out; fail "to link $output"; }
}
touched() { # FILES: number of files that differ from the earlier sources
    diff -rq before tree | grep -vc ': build$'
}

# ---- An operation ----
"$SOURCE_DIR/tools/doc-apply" "$page" tree "An operation" >files || fail "the steps for an operation"
[ "$(touched)" = 3 ] && [ "$(wc -l <files)" = 3 ] || { diff -rq before tree; fail "an operation touches $(touched) files, not 3"; }
compile src/tensor/op/hardshrink.c src/tensor/op/relu.c
compile tests/op/autograd_declared.c
link tests/test_op_autograd_declared tests/op/autograd_declared.c src/tensor/op/hardshrink.c
for device in cpu strict; do
    TUTTI_TEST_DEVICE=$device tree/build/test_op_autograd_declared hardshrink >out 2>&1 || { cat out; fail "the operation's tests on $device"; }
    for what in gradient agreement "among blocks" "16 bit" threads "empty batch"; do
        grep -q "OK \] hardshrink: $what" out || { cat out; fail "$device: no test \"$what\""; }
    done
done
tree/build/test_op_autograd_declared --time hardshrink >out && grep -Eq '^hardshrink +[0-9.]+ +[0-9.]+' out || fail "no times"
[ "$(wc -l <out)" = 2 ] || fail "the output has other lines than the title and hardshrink"
run 1 tree/build/test_op_autograd_declared hard
err_has 'no operation hard in ops.def'
compile tests/unit/train_null.c
link tests/test_unit_train_null tests/unit/train_null.c src/tensor/op/hardshrink.c
SOURCE_DIR=$work/tree tree/build/test_unit_train_null >out 2>&1 || { cat out; fail "the call with NULL"; }
grep -q 'OK \] tutti_hardshrink' out || fail "no call with NULL"
shared=$(grep -oE -- '-o libtutti\.so[^ ]*' commands | cut -c4-)
link "$shared" src/tensor/op/hardshrink.c
[ "$shared" = libtutti.so ] || ln -s "$shared" tree/build/libtutti.so
ln -s "$BUILD_DIR/libtutti_comm.so" tree/build
tree/tools/check-exports tree/build >out || { cat out; fail "the exported names"; }
"$SOURCE_DIR/tools/check-exports" tree/build >out && fail "an additional name was accepted without its row"
grep -q '> tutti_hardshrink TUTTI_' out || fail "the exported name was not seen"

# ---- A model ----
rm -r before && cp -r tree before
"$SOURCE_DIR/tools/doc-apply" "$page" tree "A model" >files || fail "the steps for a model"
[ "$(touched)" = 2 ] && [ "$(wc -l <files)" = 2 ] || { diff -rq before tree; fail "a model touches $(touched) files, not 2"; }
files=src/nn/model/lenet.c
compile src/nn/model/lenet.c src/nn/model/mlp.c
for file in $(cd tree && grep -rl --include='*.c' 'TUTTI__MODELS' src); do
    compile "$file"
    files="$files $file"
done
compile tests/unit/optim_models.c
link tests/test_unit_optim_models tests/unit/optim_models.c src/nn/model/lenet.c src/nn/model.c
tree/build/test_unit_optim_models '*: lenet' >out 2>&1 || { cat out; fail "the model's tests"; }
[ "$(grep -c 'OK \] .*: lenet' out)" = 4 ] || { cat out; fail "the model's tests are not 4"; }
# shellcheck disable=SC2086
link tutti $files
run 0 tree/build/tutti train --model lenet --run-dir run --threads 1
awk -F': ' '/val_accuracy/ { exit !($2 + 0 > 0.85) }' run/summary.json || fail "accuracy: $(grep accuracy run/summary.json)"
run 2 tree/build/tutti train --model lenett
err_has 'expected mini_resnet, .*lenet'
tree/build/tutti train --help >out
grep -q -- '--model .*lenet' out || fail "--help does not list it"
TUTTI=$work/tree/build/tutti "$SOURCE_DIR/tools/make-train-docs" --check >out || { cat out; fail "docs/train.md lists models"; }
finish
